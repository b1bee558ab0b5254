//! The server connection that a session has, for others to read while the session goes on.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// A server connection in a session's hands.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ServerInHand {
    /// Its number, which is never 0.
    pub(crate) id: u64,
    pub(crate) process_id: u32,
    pub(crate) connected: SystemTime,
}

/// A session notes here which connection it has: a few stores, no lock. A reader may find one half noted.
#[derive(Debug, Default)]
pub(crate) struct Hand {
    /// 0: no connection.
    id: AtomicU64,
    process_id: AtomicU32,
    /// Since when the connection exists, in seconds since 1970.
    connected: AtomicU64,
}

impl Hand {
    /// The session has this connection from now on, or none.
    pub(crate) fn note(&self, server: Option<ServerInHand>) {
        if let Some(server) = server {
            let connected = server.connected.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
            self.process_id.store(server.process_id, Ordering::Relaxed);
            self.connected.store(connected, Ordering::Relaxed);
        }
        self.id.store(server.map_or(0, |server| server.id), Ordering::Relaxed);
    }

    /// The connection that the session has now.
    pub(crate) fn server(&self) -> Option<ServerInHand> {
        let id = self.id.load(Ordering::Relaxed);
        let connected = Duration::from_secs(self.connected.load(Ordering::Relaxed));
        let process_id = self.process_id.load(Ordering::Relaxed);
        (id != 0).then(|| ServerInHand { id, process_id, connected: UNIX_EPOCH + connected })
    }
}
