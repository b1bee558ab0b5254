//! Whether a server's certificate will do: libpq's `verify-ca` and `verify-full`, and `require`, which
//! takes any.
//!
//! Beside what an authority of the file has signed, a certificate that is itself in the file is trusted (if
//! it is valid now): the usual self-signed certificate of a lone server, which OpenSSL takes and webpki
//! doesn't.

use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{verify_server_cert_signed_by_trust_anchor, verify_server_name};
use rustls::crypto::{WebPkiSupportedAlgorithms, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{CertificateError, DigitallySignedStruct, Error, RootCertStore, SignatureScheme};

use super::names;

/// Whether the host's name counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Name {
    Ignored,
    Verified,
}

/// Verifies servers' certificates.
#[derive(Debug)]
pub(super) struct Verifier {
    /// `None`: every certificate will do.
    authority: Option<Authority>,
    algorithms: WebPkiSupportedAlgorithms,
}

#[derive(Debug)]
struct Authority {
    roots: Arc<RootCertStore>,
    itself: Vec<CertificateDer<'static>>,
    name: Name,
}

impl Verifier {
    /// Takes every certificate.
    pub(super) fn lenient(algorithms: WebPkiSupportedAlgorithms) -> Self {
        Self { authority: None, algorithms }
    }

    /// Takes what `roots` have signed, or what is one of `itself`.
    pub(super) fn new(
        (roots, itself): (Arc<RootCertStore>, Vec<CertificateDer<'static>>),
        name: Name,
        algorithms: WebPkiSupportedAlgorithms,
    ) -> Self {
        Self { authority: Some(Authority { roots, itself, name }), algorithms }
    }
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        host: &ServerName<'_>,
        _ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let Some(authority) = &self.authority else { return Ok(ServerCertVerified::assertion()) };
        let parsed = ParsedCertificate::try_from(certificate)?;
        if authority.itself.iter().any(|known| known == certificate) {
            if !names::is_current(certificate, now) {
                return Err(CertificateError::Expired.into());
            }
        } else {
            let algorithms = self.algorithms.all;
            verify_server_cert_signed_by_trust_anchor(
                &parsed,
                &authority.roots,
                intermediates,
                now,
                algorithms,
            )?;
        }
        if authority.name == Name::Verified && !names::is_named(certificate, host) {
            verify_server_name(&parsed, host)?;
        }
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, certificate, signature, &self.algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, certificate, signature, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}
