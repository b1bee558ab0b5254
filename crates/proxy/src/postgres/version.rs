//! Which version of the protocol the server speaks, as far as its connections have told.
//!
//! Clients are spoken to in the newest version that they and the server know, as the server itself would
//! have it. A login is negotiated before the server has said anything of itself: what counts is what the
//! connections before it reported.

use std::sync::atomic::{AtomicBool, Ordering};

use wire::postgres::startup::{PROTOCOL_3_0, PROTOCOL_3_2};

use super::parameters::Parameters;

/// From this version of PostgreSQL on it is 3.2.
const FIRST_WITH_3_2: u32 = 18;

/// What is known of the server's version of the protocol.
#[derive(Debug, Default)]
pub(crate) struct Spoken {
    is_3_2: AtomicBool,
}

impl Spoken {
    /// Takes to heart what a connection of the server reported.
    pub(crate) fn learn(&self, reported: &Parameters) {
        if let Some(version) = reported.get("server_version").and_then(major) {
            self.is_3_2.store(version >= FIRST_WITH_3_2, Ordering::Relaxed);
        }
    }

    /// The newest version that the server speaks; 3.0, which every server does, if none has told.
    pub(crate) fn newest(&self) -> u32 {
        if self.is_3_2.load(Ordering::Relaxed) { PROTOCOL_3_2 } else { PROTOCOL_3_0 }
    }
}

/// The number that a version begins with.
fn major(version: &str) -> Option<u32> {
    let end = version.find(|c: char| !c.is_ascii_digit()).unwrap_or(version.len());
    version[..end].parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_server_speaks_is_known_by_its_version() {
        let spoken = Spoken::default();
        assert_eq!(spoken.newest(), PROTOCOL_3_0);
        let versions = [
            ("18.1 (Debian 18.1-1)", PROTOCOL_3_2),
            ("15.9", PROTOCOL_3_0),
            ("19devel", PROTOCOL_3_2),
            ("9.6.24", PROTOCOL_3_0),
            ("180000000000", PROTOCOL_3_0),
            ("18", PROTOCOL_3_2),
            ("newest", PROTOCOL_3_2),
            ("", PROTOCOL_3_2),
        ];
        for (version, newest) in versions {
            let mut reported = Parameters::default();
            reported.set("server_version", version);
            spoken.learn(&reported);
            assert_eq!(spoken.newest(), newest, "{version}");
        }
        // What says nothing changes nothing.
        spoken.learn(&Parameters::default());
        assert_eq!(spoken.newest(), PROTOCOL_3_2);
    }
}
