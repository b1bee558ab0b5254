//! Names in certificates.
//!
//! rustls only looks at a certificate's alternative names. PostgreSQL's own client falls back on the common
//! name where there are none, and the certificates of many private authorities (those of PostgreSQL's
//! manual among them) have nothing else, so that `verify-full` without the fallback would refuse what
//! `psql` accepts.

use std::time::Duration;

use rustls::client::verify_server_name;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use x509_cert::Certificate;
use x509_cert::der::asn1::{PrintableStringRef, TeletexStringRef, Utf8StringRef};
use x509_cert::der::{Decode, Tag, Tagged};
use x509_cert::ext::pkix::SubjectAltName;
use x509_cert::ext::pkix::name::GeneralName;

/// The attribute `commonName` (X.520).
const COMMON_NAME: &str = "2.5.4.3";

/// The common name of a certificate's subject: the last one, as PostgreSQL has it. `None` where there is
/// none, or it holds a zero byte, behind which other programs would not read on.
pub(crate) fn common_name(certificate: &CertificateDer<'_>) -> Option<String> {
    let certificate = Certificate::from_der(certificate).ok()?;
    let mut attributes = certificate.tbs_certificate.subject.0.iter().flat_map(|names| names.0.iter());
    let last = attributes.rfind(|attribute| attribute.oid.to_string() == COMMON_NAME)?;
    let value = &last.value;
    let name = match value.tag() {
        Tag::Utf8String => value.decode_as::<Utf8StringRef<'_>>().ok()?.as_str().to_owned(),
        Tag::PrintableString => value.decode_as::<PrintableStringRef<'_>>().ok()?.as_str().to_owned(),
        Tag::TeletexString => value.decode_as::<TeletexStringRef<'_>>().ok()?.as_str().to_owned(),
        _ => return None,
    };
    (!name.is_empty() && !name.contains('\0')).then_some(name)
}

/// Whether a certificate is for this host, by an alternative name or, without one, by its common name.
pub(super) fn is_for(certificate: &CertificateDer<'_>, host: &ServerName<'_>) -> bool {
    ParsedCertificate::try_from(certificate).is_ok_and(|parsed| verify_server_name(&parsed, host).is_ok())
        || is_named(certificate, host)
}

/// Whether a certificate without alternative names is for this host by its common name.
pub(super) fn is_named(certificate: &CertificateDer<'_>, host: &ServerName<'_>) -> bool {
    if has_alternative_names(certificate) {
        return false;
    }
    let Some(name) = common_name(certificate) else { return false };
    match host {
        ServerName::DnsName(host) => matches(&name, host.as_ref()),
        ServerName::IpAddress(ip) => name == std::net::IpAddr::from(*ip).to_string(),
        _ => false,
    }
}

/// Whether a certificate is valid now. What can't be read isn't.
pub(super) fn is_current(certificate: &CertificateDer<'_>, now: UnixTime) -> bool {
    Certificate::from_der(certificate).is_ok_and(|certificate| {
        let validity = certificate.tbs_certificate.validity;
        let now = Duration::from_secs(now.as_secs());
        (validity.not_before.to_unix_duration()..=validity.not_after.to_unix_duration()).contains(&now)
    })
}

/// Whether it says for which hosts it is otherwise than by its common name. One that can't be read may.
fn has_alternative_names(certificate: &CertificateDer<'_>) -> bool {
    let Ok(certificate) = Certificate::from_der(certificate) else { return true };
    match certificate.tbs_certificate.get::<SubjectAltName>() {
        Ok(None) => false,
        Ok(Some((_, names))) => {
            names.0.iter().any(|name| matches!(name, GeneralName::DnsName(_) | GeneralName::IpAddress(_)))
        }
        Err(_) => true,
    }
}

/// libpq's rule: without regard to case; a `*` stands for the whole first label, and only for that.
fn matches(pattern: &str, host: &str) -> bool {
    let host = host.strip_suffix('.').unwrap_or(host);
    if let Some(rest) = pattern.strip_prefix("*.") {
        let Some((first, domain)) = host.split_once('.') else { return false };
        return !first.is_empty() && domain.contains('.') && domain.eq_ignore_ascii_case(rest);
    }
    !pattern.contains('*') && pattern.eq_ignore_ascii_case(host)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_matches_as_a_whole_and_a_star_one_label() {
        for (pattern, host) in [
            ("db.example.com", "DB.example.com"),
            ("*.example.com", "db.example.com"),
            ("db", "db"),
            ("db", "db."),
        ] {
            assert!(matches(pattern, host), "{pattern} {host}");
        }
        for (pattern, host) in [
            ("db.example.com", "example.com"),
            ("*.example.com", "a.db.example.com"),
            ("*.example.com", "example.com"),
            ("*.example.com", ".example.com"),
            ("*.com", "example.com"),
            ("*", "db"),
            ("d*.example.com", "db.example.com"),
            ("", "db"),
        ] {
            assert!(!matches(pattern, host), "{pattern} {host}");
        }
    }
}
