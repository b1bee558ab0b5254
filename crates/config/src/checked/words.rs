//! Values that several tables have: names, files, and where a database listens.

use std::path::PathBuf;

use toml::de::DeValue;

use crate::address::Address;
use crate::complaint::Complaint;
use crate::raw::{self, Section};

/// The longest name of a gate, in bytes.
pub(super) const NAME_BYTES_MAX: usize = 64;

/// Where a database's server listens; `port` is what its servers listen on by default.
pub(super) fn read_upstream(section: &mut Section<'_>, port: u16) -> Address {
    let upstream = section.read_given("upstream", |value| {
        let address = Address::parse(&raw::text(value)?, port)?;
        if address.port() == Some(0) { Err(Complaint::new("has port 0")) } else { Ok(address) }
    });
    if upstream.is_none() && !section.has("upstream") {
        let hint = format!("write where the server listens, such as \"127.0.0.1:{port}\"");
        section.complain("upstream", Complaint::new("is missing").hint(hint));
    }
    // Not used: there is an error then.
    upstream.unwrap_or(Address::Inet { host: String::new(), port: 0 })
}

/// A name that can stand in labels, in the log and in paths.
pub(super) fn name(value: &DeValue<'_>) -> Result<String, Complaint> {
    let name = raw::text(value)?;
    let fits = (1..=NAME_BYTES_MAX).contains(&name.len());
    if fits && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_')) {
        Ok(name)
    } else {
        Err(Complaint::new("can't be a name")
            .hint(format!("write letters, digits, - and _, at most {NAME_BYTES_MAX}")))
    }
}

/// The absolute path of a file, or "none".
pub(super) fn absolute_file(value: &DeValue<'_>) -> Result<Option<PathBuf>, Complaint> {
    let path = match raw::text(value)?.as_str() {
        "none" => return Ok(None),
        text => PathBuf::from(text),
    };
    if !path.is_absolute() {
        return Err(Complaint::new("is a relative path").hint("write an absolute one, or \"none\""));
    }
    if path.file_name().is_none() {
        return Err(Complaint::new("is a directory").hint("name a file in it"));
    }
    Ok(Some(path))
}
