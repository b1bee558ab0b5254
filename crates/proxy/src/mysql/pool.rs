//! The connections to the server that no session uses now.
//!
//! The gate lets at most as many requests pass as there may be connections, kept ones among them. A session
//! that may pass takes the idle connection that it used last, or one that nobody has used since its reset, or
//! opens another. Only if all that may exist exist, it takes one that another session of its user has used,
//! which costs a reset there, and another one later for that session. One of another user is closed.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use bytes::BytesMut;
use parking_lot::Mutex;

use super::place::Place;
use super::server::{Key, NOBODY, Server};
use crate::console::IdleServer;
use crate::sql::{SessionChanges, SessionChangesView};

/// The idle connections, and how many there are in all.
#[derive(Default)]
pub(super) struct Pool {
    /// The one that was used last is at the end.
    idle: Mutex<VecDeque<Server>>,
    /// All that exist or are being opened.
    existing: Arc<AtomicUsize>,
    session_changes: Arc<SessionChanges>,
    /// How often connections were left for those to another server. Changes while `idle` is locked.
    generation: AtomicU64,
    /// Idle connections that the server has ended.
    lost: AtomicU64,
}

impl Pool {
    /// An idle connection of this key that can serve a session; the session's own last one if it is there.
    /// One of a session that lives only if there are as many as there may be.
    pub(super) fn take(
        &self,
        key: &Key,
        (session, has_database): (u64, bool),
        connections: usize,
    ) -> Option<Server> {
        let mut idle = self.idle.lock();
        let fits = |server: &Server| server.key == *key && (has_database || server.database.is_empty());
        let of = |session: u64| move |server: &Server| fits(server) && server.at.session == session;
        let own = idle.iter().position(of(session)).or_else(|| idle.iter().rposition(of(NOBODY)));
        let is_full = self.existing.load(Ordering::Relaxed) >= connections;
        let place = own.or_else(|| idle.iter().rposition(fits).filter(|_| is_full))?;
        idle.remove(place)
    }

    /// Drops the idle connections that the server has ended; returns how many.
    pub(super) fn drop_ended(&self) -> usize {
        let mut idle = self.idle.lock();
        let before = idle.len();
        idle.retain_mut(|server| !server.has_ended());
        let ended = before - idle.len();
        self.note_lost(ended);
        ended
    }

    /// Counts idle connections that were found to be ended.
    pub(super) fn note_lost(&self, count: usize) {
        self.lost.fetch_add(count as u64, Ordering::Relaxed);
    }

    /// How many idle connections the server has ended since the start.
    pub(super) fn idle_lost(&self) -> u64 {
        self.lost.load(Ordering::Relaxed)
    }

    /// A place for another connection, of which there may be so many. Idle ones are closed for it.
    pub(super) fn place(&self, connections: usize) -> Place {
        let mut idle = self.idle.lock();
        while self.existing.load(Ordering::Relaxed) >= connections && idle.pop_front().is_some() {}
        let generation = self.generation.load(Ordering::Relaxed);
        let (existing, session_changes) = (Arc::clone(&self.existing), Arc::clone(&self.session_changes));
        Place::new(existing, session_changes, generation)
    }

    /// Whether a place is for a connection to the server that is used now.
    pub(super) fn is_current(&self, place: &Place) -> bool {
        place.generation() == self.generation.load(Ordering::Relaxed)
    }

    /// Gives a connection back. It is closed if it leads to an earlier server, if there are too many, or if
    /// the server has said something more.
    pub(super) fn put(&self, mut server: Server, connections: usize) {
        shrink(&mut server.channel.input);
        shrink(&mut server.channel.output);
        let mut idle = self.idle.lock();
        let has_room = self.existing.load(Ordering::Relaxed) <= connections;
        if has_room && self.is_current(&server.place) && server.channel.input.is_empty() {
            idle.push_back(server);
        }
    }

    /// A session has ended, or begins anew: what it has left on idle connections is gone at once, locks above
    /// all. The next user of such a connection reads the answer.
    pub(super) fn release(&self, session: u64) {
        let mut idle = self.idle.lock();
        idle.retain_mut(|server| server.at.session != session || server.release().is_ok());
    }

    /// How many exist, and how many of them are idle.
    pub(super) fn counts(&self) -> (usize, usize) {
        let idle = self.idle.lock().len();
        (self.existing.load(Ordering::Relaxed), idle)
    }

    /// How often connections went to another session.
    pub(super) fn session_changes(&self) -> SessionChangesView {
        self.session_changes.view()
    }

    /// The idle connections, for a console.
    pub(super) fn idle_servers(&self) -> Vec<IdleServer> {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let row = |server: &Server| IdleServer {
            user: text(&server.key.user),
            database: text(&server.database),
            id: u64::from(server.thread.id),
            process_id: server.thread.id,
            connected: server.connected,
        };
        self.idle.lock().iter().map(row).collect()
    }

    /// Another server is used from now on: idle connections are closed, and used ones when they come back.
    pub(super) fn leave(&self) {
        let mut idle = self.idle.lock();
        self.generation.fetch_add(1, Ordering::Relaxed);
        idle.clear();
    }
}

/// An empty buffer's worth of capacity isn't kept by idle connections.
fn shrink(buffer: &mut BytesMut) {
    if buffer.is_empty() {
        *buffer = BytesMut::new();
    }
}
