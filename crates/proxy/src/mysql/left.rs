//! What sessions have left on a connection since its last reset.
//!
//! A reset costs three commands, and has every statement prepared again. The reset is left out where there
//! is nothing to reset. All that ran since the last one are SELECTs that leave nothing, and the session that
//! comes runs another. Both have the same database and variables. Prepared statements then serve every
//! session that prepares the same text.
//!
//! A connection that has passed from session to session is reset before anything but such a SELECT runs on
//! it, and within [`RESET_AFTER`] in any case.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use tokio::time::Instant;

/// Variables that differ from the login's.
type Variables = BTreeMap<Vec<u8>, Vec<u8>>;

/// The longest that sessions follow one another without a reset.
const RESET_AFTER: Duration = Duration::from_secs(1);
/// The most statements that later sessions may find, and the longest text of one, in bytes.
const TEXTS_MAX: usize = 32;
const TEXT_MAX: usize = 1_024;

/// What a connection has of sessions before.
#[derive(Debug, Default)]
pub(super) struct Left {
    /// Since when only SELECTs that leave nothing have run; `None`: something may be left.
    since: Option<Instant>,
    /// It has passed from one session to another without a reset.
    passed: bool,
    /// What the last reset was followed by.
    variables: Variables,
    insert_id: u64,
    /// Statements that are prepared since then, in the connection's database.
    texts: HashMap<Box<[u8]>, u32>,
}

impl Left {
    /// The connection has been reset, and has a session's state now; `None`: one that nobody shares.
    pub(super) fn renew(&mut self, variables: Option<&Variables>, insert_id: u64) {
        let (since, variables) = (variables.map(|_| Instant::now()), variables.cloned().unwrap_or_default());
        *self = Self { since, variables, insert_id, ..Self::default() };
    }

    /// Another session has the connection from now on.
    pub(super) fn pass(&mut self) {
        self.passed = true;
    }

    /// Whether the connection has passed from session to session since its last reset.
    pub(super) const fn has_passed(&self) -> bool {
        self.passed
    }

    /// The server's id of a statement with this text.
    pub(super) fn find(&self, sql: &[u8]) -> Option<u32> {
        self.texts.get(sql).copied()
    }

    /// Something may be left.
    pub(super) fn spoil(&mut self) {
        *self = Self { passed: self.passed, ..Self::default() };
    }

    /// Whether nothing can be left, the last reset was a moment ago, and a session with these variables and
    /// this `LAST_INSERT_ID()` finds its own.
    pub(super) fn suits(&self, variables: &Variables, insert_id: u64) -> bool {
        let is_fresh = self.since.is_some_and(|since| since.elapsed() < RESET_AFTER);
        is_fresh && self.insert_id == insert_id && self.variables == *variables
    }

    /// A statement is prepared. What no later session could find has to be forgotten by a reset.
    pub(super) fn prepared(&mut self, sql: &[u8], id: u32) {
        let has_room = self.texts.len() < TEXTS_MAX && sql.len() <= TEXT_MAX;
        if self.since.is_none() || !has_room || self.texts.insert(sql.into(), id).is_some() {
            self.spoil();
        }
    }

    /// A statement is closed.
    pub(super) fn closed(&mut self, id: u32) {
        self.texts.retain(|_, known| *known != id);
    }
}
