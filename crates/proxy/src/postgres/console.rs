//! The console of a gate for PostgreSQL.
//!
//! A visitor logs in as anybody does. The server checks the name and the password, over a login to a database
//! that it has, which is closed at once. A visitor by a Unix socket, from a process of our own user or of
//! root, isn't asked: such a process could end us anyway, and the server may be in trouble.

mod session;
mod subject;
mod table;

#[cfg(feature = "garbage")]
pub(crate) use session::result_formats;
pub(crate) use session::serve;
#[cfg(feature = "garbage")]
pub(crate) use table::Format;

use crate::console::Role;

/// What drivers take us for: they choose their words by it.
const SERVER_VERSION: &str = "15.0";

/// A user at the console.
pub(crate) struct Visitor {
    pub(crate) user: String,
    pub(crate) application: String,
    pub(crate) role: Role,
    /// His place among the visitors.
    pub(crate) place: tokio::sync::OwnedSemaphorePermit,
}

/// What a visitor is told at his login, as drivers want to hear it.
fn parameters(user: &str, application: &str) -> [(&'static str, String); 11] {
    let version = format!("{SERVER_VERSION} (gatekeeper {})", env!("CARGO_PKG_VERSION"));
    [
        ("server_version", version),
        ("server_encoding", "UTF8".to_owned()),
        ("client_encoding", "UTF8".to_owned()),
        ("application_name", application.to_owned()),
        ("DateStyle", "ISO, MDY".to_owned()),
        ("IntervalStyle", "postgres".to_owned()),
        ("TimeZone", "UTC".to_owned()),
        ("integer_datetimes", "on".to_owned()),
        ("standard_conforming_strings", "on".to_owned()),
        ("is_superuser", "off".to_owned()),
        ("session_authorization", user.to_owned()),
    ]
}
