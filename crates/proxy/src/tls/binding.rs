//! What SCRAM binds a login to: `tls-server-end-point`, a hash of the certificate that the server's end of
//! the channel has shown.
//!
//! The hash function is that of the certificate's own signature, and SHA-256 where that is MD5 or SHA-1. A
//! signature without a hash function of its own (Ed25519) has no such binding: there PostgreSQL offers one
//! all the same, and logins of clients that take it up fail; here none is offered.
//!
//! Source: RFC 5929, section 4.1; PostgreSQL's `be_tls_get_certificate_hash`.

use rustls::pki_types::CertificateDer;
use sha2::{Digest, Sha224, Sha256, Sha384, Sha512};
use x509_cert::Certificate;
use x509_cert::der::asn1::{Any, ContextSpecific};
use x509_cert::der::{Decode, SliceReader, TagNumber};
use x509_cert::spki::AlgorithmIdentifierRef;

/// The hash functions of signatures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Hash {
    Sha224,
    Sha256,
    Sha384,
    Sha512,
}

/// Signatures with PKCS #1's probabilistic padding, whose parameters name the hash function (RFC 8017,
/// A.2.3).
const RSASSA_PSS: &str = "1.2.840.113549.1.1.10";

/// Signatures, and plain hash functions as RSASSA-PSS names them, by what counts for the binding.
const HASHES: [(&str, Hash); 18] = [
    // RSA with MD5, SHA-1 and the family of SHA-2 (RFC 8017, appendix C).
    ("1.2.840.113549.1.1.4", Hash::Sha256),
    ("1.2.840.113549.1.1.5", Hash::Sha256),
    ("1.2.840.113549.1.1.14", Hash::Sha224),
    ("1.2.840.113549.1.1.11", Hash::Sha256),
    ("1.2.840.113549.1.1.12", Hash::Sha384),
    ("1.2.840.113549.1.1.13", Hash::Sha512),
    // ECDSA with the same (RFC 3279, RFC 5758).
    ("1.2.840.10045.4.1", Hash::Sha256),
    ("1.2.840.10045.4.3.1", Hash::Sha224),
    ("1.2.840.10045.4.3.2", Hash::Sha256),
    ("1.2.840.10045.4.3.3", Hash::Sha384),
    ("1.2.840.10045.4.3.4", Hash::Sha512),
    // MD5, SHA-1 (in two names) and SHA-2 themselves.
    ("1.2.840.113549.2.5", Hash::Sha256),
    ("1.3.14.3.2.26", Hash::Sha256),
    ("1.3.14.3.2.29", Hash::Sha256),
    ("2.16.840.1.101.3.4.2.4", Hash::Sha224),
    ("2.16.840.1.101.3.4.2.1", Hash::Sha256),
    ("2.16.840.1.101.3.4.2.2", Hash::Sha384),
    ("2.16.840.1.101.3.4.2.3", Hash::Sha512),
];

/// The data of the binding to a server that shows this certificate; `None` where there is none.
pub(crate) fn end_point(certificate: &CertificateDer<'_>) -> Option<Vec<u8>> {
    let parsed = Certificate::from_der(certificate).ok()?;
    let signature = &parsed.signature_algorithm;
    let name = signature.oid.to_string();
    let hash = if name == RSASSA_PSS { of_pss(signature.parameters.as_ref()?)? } else { known(&name)? };
    Some(match hash {
        Hash::Sha224 => Sha224::digest(certificate).to_vec(),
        Hash::Sha256 => Sha256::digest(certificate).to_vec(),
        Hash::Sha384 => Sha384::digest(certificate).to_vec(),
        Hash::Sha512 => Sha512::digest(certificate).to_vec(),
    })
}

fn known(name: &str) -> Option<Hash> {
    HASHES.iter().find(|(known, _)| *known == name).map(|(_, hash)| *hash)
}

/// The first of RSASSA-PSS's parameters; SHA-1, and so SHA-256, where it is left out.
fn of_pss(parameters: &Any) -> Option<Hash> {
    let mut reader = SliceReader::new(parameters.value()).ok()?;
    let hash = ContextSpecific::<AlgorithmIdentifierRef<'_>>::decode_explicit(&mut reader, TagNumber::N0);
    match hash.ok()? {
        Some(hash) => known(&hash.value.oid.to_string()),
        None => Some(Hash::Sha256),
    }
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, KeyPair};
    use x509_cert::der::Encode;
    use x509_cert::der::asn1::ObjectIdentifier;

    use super::*;

    /// A certificate as it would be with another signature, which nobody verifies here.
    fn signed_with(name: &str, parameters: Option<&[u8]>) -> CertificateDer<'static> {
        let key = KeyPair::generate().unwrap();
        let made = CertificateParams::new(Vec::new()).unwrap().self_signed(&key).unwrap();
        let mut certificate = Certificate::from_der(made.der()).unwrap();
        certificate.signature_algorithm.oid = ObjectIdentifier::new(name).unwrap();
        certificate.signature_algorithm.parameters = parameters.map(|der| Any::from_der(der).unwrap());
        certificate.to_der().unwrap().into()
    }

    #[test]
    fn the_hash_is_the_signatures_own_and_never_a_weak_one() {
        for (name, hash) in [
            ("1.2.840.113549.1.1.4", Some(Hash::Sha256)),
            ("1.2.840.113549.1.1.5", Some(Hash::Sha256)),
            ("1.2.840.113549.1.1.13", Some(Hash::Sha512)),
            ("1.2.840.10045.4.3.1", Some(Hash::Sha224)),
            ("1.2.840.10045.4.3.2", Some(Hash::Sha256)),
            ("1.2.840.10045.4.3.3", Some(Hash::Sha384)),
            // Ed25519, and one that nobody knows.
            ("1.3.101.112", None),
            ("1.2.3.4", None),
        ] {
            let certificate = signed_with(name, None);
            let expected = hash.map(|hash| match hash {
                Hash::Sha224 => Sha224::digest(&certificate).to_vec(),
                Hash::Sha256 => Sha256::digest(&certificate).to_vec(),
                Hash::Sha384 => Sha384::digest(&certificate).to_vec(),
                Hash::Sha512 => Sha512::digest(&certificate).to_vec(),
            });
            assert_eq!(end_point(&certificate), expected, "{name}");
        }
    }

    #[test]
    fn a_signature_with_parameters_names_its_hash_there() {
        let length = |parameters: Option<&[u8]>| {
            end_point(&signed_with(RSASSA_PSS, parameters)).map(|data| data.len())
        };
        // SEQUENCE { [0] { SEQUENCE { sha384 } } }, as OpenSSL writes it, with a salt's length behind it.
        let sha384 =
            b"\x30\x14\xa0\x0d\x30\x0b\x06\x09\x60\x86\x48\x01\x65\x03\x04\x02\x02\xa2\x03\x02\x01\x30";
        assert_eq!(length(Some(sha384)), Some(48));
        // Without one it is SHA-1, which is too weak.
        assert_eq!(length(Some(b"\x30\x00")), Some(32));
        assert_eq!(length(Some(b"\x30\x05\xa2\x03\x02\x01\x30")), Some(32));
        // A hash that nobody knows, something else than parameters, and none at all.
        assert_eq!(length(Some(b"\x30\x08\xa0\x06\x30\x04\x06\x02\x2a\x03")), None);
        assert_eq!(length(Some(b"\x30\x02\xa0\x00")), None);
        assert_eq!(length(None), None);
        assert_eq!(end_point(&b"no certificate".to_vec().into()), None);
    }
}
