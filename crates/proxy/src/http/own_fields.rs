//! The fields that the gate itself gives the service, and names that could be read as theirs.

use http::header::HeaderName;

/// What an application calls the type of the request that it answers; and, where it is asked for, what the
/// gate calls the type of the request that it passes on.
pub(crate) const TYPE: HeaderName = HeaderName::from_static("x-gatekeeper-type");
pub(crate) const FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
pub(crate) const FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");
pub(crate) const FORWARDED_HOST: HeaderName = HeaderName::from_static("x-forwarded-host");

/// The names that the gate itself gives the service, and that can be spelled otherwise.
pub(crate) static OWN: [HeaderName; 4] = [FORWARDED_FOR, FORWARDED_PROTO, FORWARDED_HOST, TYPE];

/// Whether a name is another spelling of one of the gate's own: with any sign in the place of a hyphen.
pub(crate) fn is_misspelled(name: &str) -> bool {
    let folds = |own: &HeaderName| {
        let mut pairs = name.bytes().zip(own.as_str().bytes());
        name != own.as_str()
            && name.len() == own.as_str().len()
            && pairs.all(|(byte, known)| byte == known || known == b'-' && !byte.is_ascii_alphanumeric())
    };
    OWN.iter().any(folds)
}
