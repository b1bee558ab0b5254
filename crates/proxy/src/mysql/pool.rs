//! The connections to the server that no session uses now.
//!
//! The gate lets at most as many requests pass as there may be connections, kept ones among them. A session
//! that may pass takes an idle connection of its user, preferably the one that it used last, or opens
//! another. If all that may exist exist, one of another user is closed first.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;

use super::server::{Key, Server};

/// The idle connections, and how many there are in all.
#[derive(Default)]
pub(super) struct Pool {
    /// The one that was used last is at the end.
    idle: Mutex<VecDeque<Server>>,
    /// All that exist or are being opened.
    existing: Arc<AtomicUsize>,
}

/// The place of one connection among those that may exist. It is free again when dropped.
pub(super) struct Place(Arc<AtomicUsize>);

impl Place {
    /// A place beside those of the pool, for a connection that only kills.
    pub(super) fn beside() -> Self {
        Self(Arc::new(AtomicUsize::new(1)))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Pool {
    /// An idle connection of this key that can serve a session; the session's own last one if it is there.
    pub(super) fn take(&self, key: &Key, session: u64, has_database: bool) -> Option<Server> {
        let mut idle = self.idle.lock();
        let fits = |server: &Server| server.key == *key && (has_database || server.database.is_empty());
        let own = idle.iter().position(|server| fits(server) && server.at.session == session);
        let place = own.or_else(|| idle.iter().rposition(fits))?;
        idle.remove(place)
    }

    /// A place for another connection, of which there may be so many. Idle ones are closed for it.
    pub(super) fn place(&self, connections: usize) -> Place {
        let mut idle = self.idle.lock();
        while self.existing.load(Ordering::Relaxed) >= connections && idle.pop_front().is_some() {}
        self.existing.fetch_add(1, Ordering::Relaxed);
        Place(Arc::clone(&self.existing))
    }

    /// Gives a connection back. It is closed if there are too many, or if the server has said something more.
    pub(super) fn put(&self, mut server: Server, connections: usize) {
        super::server::shrink(&mut server.channel.input);
        super::server::shrink(&mut server.channel.output);
        let mut idle = self.idle.lock();
        if self.existing.load(Ordering::Relaxed) <= connections && server.channel.input.is_empty() {
            idle.push_back(server);
        }
    }

    /// How many exist, and how many of them are idle.
    pub(super) fn counts(&self) -> (usize, usize) {
        let idle = self.idle.lock().len();
        (self.existing.load(Ordering::Relaxed), idle)
    }

    /// Closes all that are idle: they lead to a server that isn't used any more.
    pub(super) fn close_idle(&self) {
        self.idle.lock().clear();
    }
}
