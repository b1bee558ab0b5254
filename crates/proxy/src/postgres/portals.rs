//! The portals of a session's transaction, as far as the gate knows what they are made of.

use std::collections::HashMap;
use std::sync::Arc;

use bytes::Bytes;

use super::prepared::Prepared;

/// The most portals of a transaction that the gate follows.
pub(super) const PORTALS_MAX: usize = 10_000;

/// What a portal was made of.
#[derive(Debug)]
pub(crate) struct Portal {
    pub(super) statement: Option<Arc<Prepared>>,
    /// The gate has run it in the server's place, which can be done once.
    pub(super) is_spent: bool,
}

/// The portals of a session's transaction, by name.
#[derive(Debug, Default)]
pub(crate) struct Portals {
    pub(super) known: HashMap<Bytes, Portal>,
    /// Some are left of which the gate doesn't know what they are made of.
    pub(super) has_others: bool,
}

impl Portals {
    /// Some have gone with their savepoint or transaction; which ones can't be told.
    pub(crate) fn lose(&mut self) {
        self.known.clear();
        self.has_others = true;
    }

    /// One was bound in a failed transaction that no server knows of. `false`: there is no room for it.
    pub(crate) fn keep(&mut self, name: &[u8], statement: Arc<Prepared>) -> bool {
        let has_room = self.known.len() < PORTALS_MAX;
        if has_room {
            let portal = Portal { statement: Some(statement), is_spent: false };
            self.known.insert(Bytes::copy_from_slice(name), portal);
        }
        has_room
    }

    /// Takes one that was kept.
    pub(crate) fn take(&mut self, name: &[u8]) -> Option<Arc<Prepared>> {
        self.known.remove(name)?.statement
    }
}
