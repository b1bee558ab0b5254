//! The connections to the server that no session uses now.
//!
//! The gate lets at most as many requests pass as there may be connections, kept ones among them. A session
//! that may pass takes an idle connection of its user, preferably the one that it used last, or opens
//! another. If all that may exist exist, one of another user is closed first.

use std::collections::VecDeque;

use parking_lot::Mutex;

use super::server::{Key, Server};

/// The idle connections, the one that was used last at the end.
#[derive(Default)]
pub(super) struct Pool(Mutex<State>);

#[derive(Default)]
struct State {
    idle: VecDeque<Server>,
    /// All that exist or are being opened.
    existing: usize,
}

impl Pool {
    /// An idle connection of this key that can serve a session; the session's own last one if it is there.
    pub(super) fn take(&self, key: &Key, session: u64, has_database: bool) -> Option<Server> {
        let mut state = self.0.lock();
        let fits = |server: &Server| server.key == *key && (has_database || server.database.is_empty());
        let own = state.idle.iter().position(|server| fits(server) && server.at.session == session);
        let place = own.or_else(|| state.idle.iter().rposition(fits))?;
        state.idle.remove(place)
    }

    /// Makes room for another connection, of which there may be so many. The connection counts until it is
    /// [removed](Self::remove).
    pub(super) fn add(&self, connections: usize) {
        let mut state = self.0.lock();
        while state.existing >= connections && state.idle.pop_front().is_some() {
            state.existing -= 1;
        }
        state.existing += 1;
    }

    /// Gives a connection back.
    pub(super) fn put(&self, mut server: Server, connections: usize) {
        super::server::shrink(&mut server.channel.input);
        super::server::shrink(&mut server.channel.output);
        let mut state = self.0.lock();
        if state.existing > connections || !server.channel.input.is_empty() {
            state.existing -= 1;
            return;
        }
        state.idle.push_back(server);
    }

    /// A connection is gone.
    pub(super) fn remove(&self) {
        self.0.lock().existing -= 1;
    }

    /// How many exist, and how many of them are idle.
    pub(super) fn counts(&self) -> (usize, usize) {
        let state = self.0.lock();
        (state.existing, state.idle.len())
    }

    /// Closes all that are idle: they lead to a server that isn't used any more.
    pub(super) fn close_idle(&self) {
        let mut state = self.0.lock();
        state.existing -= state.idle.len();
        state.idle.clear();
    }
}
