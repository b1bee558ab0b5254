//! Bodies of fuzz targets for what is private here: certificates that the other side shows.

use std::time::Duration;

use rustls::pki_types::{CertificateDer, ServerName, UnixTime};

use super::names::{common_name, is_current, is_named};
use super::{end_point, files};

/// A certificate: whose it says it is.
pub fn certificate(data: &[u8]) {
    let certificate = CertificateDer::from_slice(data);
    let name = common_name(&certificate);
    assert!(name.as_ref().is_none_or(|name| !name.is_empty() && !name.contains('\0')));
    assert!(end_point(&certificate).is_none_or(|digest| (28..=64).contains(&digest.len())));
    for host in ["db.example.com", "localhost", "127.0.0.1", "::1"] {
        let host = ServerName::try_from(host).expect("it is a name");
        assert!(!is_named(&certificate, &host) || name.is_some());
    }
    for seconds in [0, 1_800_000_000, u64::MAX] {
        let _ = is_current(&certificate, UnixTime::since_unix_epoch(Duration::from_secs(seconds)));
    }
    // The same bytes as a file of an operator's.
    let _ = files::certificates_in(data, super::File::Certificate);
    let _ = files::key_in(data);
}
