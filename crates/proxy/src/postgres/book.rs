//! The session's book: what the server has confirmed of a session, in the order in which the server did it.
//!
//! A pooled connection serves many sessions in turn. The gate must know what each session has changed, so
//! that the next connection gets the same changes, and the next session gets none of them. The book is the
//! only place that keeps this knowledge. It does no I/O and reads no SQL: statements arrive as [`Effect`]s.
//!
//! # States
//!
//! * *Sent*: the statement is on its way. Only its pins count already ([`Book::send`]).
//! * *Confirmed*: the server has answered CommandComplete ([`Book::confirm`]). The effect lies in the
//!   innermost level.
//! * *Kept*: the transaction has committed. The effect is in [`Book::settings`] or in the pins.
//! * *Undone*: a ROLLBACK TO dropped the levels above its savepoint, or the transaction has ended otherwise.
//!
//! A level is the transaction itself, or a savepoint of it. Every statement is in a transaction, also one
//! without a BEGIN: the message, or the segment up to its Sync, is its transaction.
//!
//! # Rules
//!
//! 1. SAVEPOINT opens a level. RELEASE moves the contents of the savepoint's level, and of all above it,
//!    into the level below. ROLLBACK TO empties the savepoint's level and drops all above it.
//! 2. COMMIT keeps all levels from the lowest to the highest, so that a later effect overrides an earlier
//!    one. The command tag decides: COMMIT of a failed transaction says ROLLBACK.
//! 3. ReadyForQuery ends a transaction that is not open any more: kept, if no error came since the last one.
//! 4. A pin counts as soon as its statement is sent, and isn't taken back by a rollback. A release counts
//!    when its transaction commits, unless a later statement of the same transaction pins again. Some pins
//!    outlive every rollback (`LASTING`: locks, for one). Each that is sent, and each error, voids releases
//!    of these.
//! 5. DISCARD ALL is never part of a transaction block. No error behind it takes it back. Its pins go at
//!    once, its settings with ReadyForQuery.
//! 6. A lost connection undoes what was open on it, or wasn't answered to its ReadyForQuery.
//!
//! For settings that the server reports, the server knows the value, and the book knows only whether the
//! last confirmed change was a RESET ([`Book::at_default`]). RESET returns to what the *connection* was
//! started with. The session must get what its *own* login began with.
//!
//! # Invariants
//!
//! * `settings` holds each name once, in the order of the last SET of each, and at most [`CARRIED_MAX`] of
//!   them.
//! * At most [`LEVELS_MAX`] levels and [`CHANGES_MAX`] open changes are kept.
//! * Nothing is forgotten in silence. Beyond a bound, or behind an answer that the book can't explain, the
//!   book is *unsure*: it holds [`Reasons::OTHER`], which pins the session until DISCARD ALL. Savepoints
//!   beyond the bound make it unsure only when a rollback among them could undo something.

use std::sync::Arc;

use bytes::Bytes;
use wire::postgres::backend::Status;
use wire::sql::Effects;
use wire::sql::Pins as Reasons;

#[cfg(test)]
mod tests;

/// The most unreported settings that a session may carry.
pub(crate) const CARRIED_MAX: usize = 64;
/// The longest statement that is carried.
pub(crate) const CARRIED_TEXT_MAX: usize = 4096;
/// The most levels of a transaction that are told apart.
const LEVELS_MAX: usize = 256;
/// The most changes of a transaction that are kept.
const CHANGES_MAX: usize = 256;

/// Reported settings that a client may set, and that are therefore carried from connection to connection.
/// The others that servers report (server_version, is_superuser, …) are the server's to say.
pub(crate) const CARRIED: [&str; 8] = [
    "application_name",
    "client_encoding",
    "DateStyle",
    "default_transaction_read_only",
    "IntervalStyle",
    "search_path",
    "standard_conforming_strings",
    "TimeZone",
];

const PATH: &str = "search_path";
/// What is found by the search path when it is set.
pub(crate) const DEPENDENT: &str = "default_text_search_config";

/// Pins of what a rollback doesn't undo on the server.
const LASTING: Reasons = Reasons::ADVISORY_LOCK
    .union(Reasons::PREPARE)
    .union(Reasons::LOAD)
    .union(Reasons::SEED)
    .union(Reasons::OTHER);

/// A set of the settings in [`CARRIED`].
pub(crate) type Mask = u8;
const ALL_CARRIED: Mask = Mask::MAX;

/// A change of one setting, or of all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    /// SET for the session: the statement that repeats it.
    Set { name: String, text: Bytes },
    /// SET LOCAL: gone with the transaction.
    Local { name: String, text: Bytes },
    /// RESET, or SET … TO DEFAULT.
    Reset { name: String },
    /// RESET ALL.
    ResetAll,
}

/// The part of a statement's effect that has an order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum Act {
    #[default]
    Nothing,
    /// These settings change, in this order.
    Changes(Vec<Change>),
    Savepoint(Bytes),
    Release(Bytes),
    RollbackTo(Bytes),
    /// COMMIT, ROLLBACK or PREPARE TRANSACTION: the command tag tells which it became.
    End,
    /// DEALLOCATE of one statement.
    Deallocate(Bytes),
    /// The server has forgotten its named statements.
    DeallocateAll,
    /// The session is as new.
    DiscardAll,
}

/// What a statement means for its session once it has succeeded.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Effect {
    pub(crate) act: Act,
    /// The pins that come and go.
    pub(crate) leaves: Effects,
}

impl Effect {
    /// Whether the statement means nothing for its session.
    pub(crate) fn is_empty(&self) -> bool {
        self.act == Act::Nothing && self.leaves.is_empty()
    }

    /// The texts that would have to be carried to other connections.
    pub(crate) fn carried_texts(&self) -> impl Iterator<Item = &Bytes> {
        let changes = if let Act::Changes(changes) = &self.act { &changes[..] } else { &[] };
        changes.iter().filter_map(|change| match change {
            Change::Set { text, .. } => Some(text),
            _ => None,
        })
    }
}

/// An unreported setting and the statement that set it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Setting {
    pub(crate) name: String,
    pub(crate) text: Bytes,
}

/// Unreported settings in the order in which they were set. Shared, because sessions of an application set
/// alike.
pub(crate) type Settings = Arc<Vec<Setting>>;

/// What was confirmed since a savepoint, or since the transaction began.
#[derive(Debug, Default)]
struct Level {
    /// The savepoint's name; empty for the transaction itself.
    name: Bytes,
    changes: Vec<Change>,
    leaves: Effects,
}

impl Level {
    fn is_empty(&self) -> bool {
        self.changes.is_empty() && self.leaves.is_empty()
    }

    /// Adds a change; what it makes void goes.
    fn push(&mut self, change: Change) {
        match &change {
            Change::ResetAll => self.changes.clear(),
            Change::Set { name, .. } | Change::Reset { name } => {
                self.changes.retain(|earlier| earlier.name() != Some(name));
            }
            Change::Local { name, .. } => self
                .changes
                .retain(|earlier| !matches!(earlier, Change::Local { name: known, .. } if known == name)),
        }
        self.changes.push(change);
    }

    /// Takes over the contents of the level above.
    fn merge(&mut self, above: Self) {
        above.changes.into_iter().for_each(|change| self.push(change));
        self.leaves = self.leaves.then(above.leaves);
    }
}

impl Change {
    /// Which setting it changes; `None`: all.
    pub(crate) fn name(&self) -> Option<&String> {
        match self {
            Self::Set { name, .. } | Self::Local { name, .. } | Self::Reset { name } => Some(name),
            Self::ResetAll => None,
        }
    }
}

/// What the server has confirmed of one session.
#[derive(Debug)]
pub(crate) struct Book {
    /// Which of [`CARRIED`] the server reports.
    reported: Mask,
    /// Unreported settings in force, kept.
    settings: Settings,
    /// Reported settings whose last kept change was a RESET.
    defaults: Mask,
    /// Those that were RESET since the last ReadyForQuery.
    reset: Mask,
    /// Those that the gate itself has set within the open transaction: its end undoes that, or keeps it.
    restored: Mask,
    /// Why the session keeps its connection.
    held: Reasons,
    /// The open transaction and its savepoints.
    base: Level,
    savepoints: Vec<Level>,
    /// There are savepoints that `savepoints` doesn't show.
    has_lost_savepoints: bool,
    /// An error came since the last ReadyForQuery.
    has_failed: bool,
    /// DISCARD ALL has run since then.
    has_discarded: bool,
}

impl Default for Book {
    fn default() -> Self {
        Self::new(0)
    }
}

impl Book {
    /// The book of a session that has just logged in, to a server that reports these settings.
    pub(crate) fn new(reported: Mask) -> Self {
        Self {
            reported,
            settings: Arc::default(),
            defaults: 0,
            reset: 0,
            restored: 0,
            held: Reasons::NONE,
            base: Level::default(),
            savepoints: Vec::new(),
            has_lost_savepoints: false,
            has_failed: false,
            has_discarded: false,
        }
    }

    /// Unreported settings in force, as far as they are kept.
    pub(crate) fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Why the session keeps its connection.
    pub(crate) fn held(&self) -> Reasons {
        self.held
    }

    /// How many more settings can be carried.
    pub(crate) fn room(&self) -> usize {
        let open: usize = self.levels().map(|level| level.changes.len()).sum();
        CARRIED_MAX.saturating_sub(self.settings.len() + open)
    }

    /// The text that put an unreported setting in force, also one of the open transaction. `None`: its
    /// default.
    pub(crate) fn in_force(&self, name: &str) -> Option<&Bytes> {
        let changes = self.levels().flat_map(|level| &level.changes).rev();
        for change in changes {
            match change {
                Change::Set { name: known, text } | Change::Local { name: known, text } if known == name => {
                    return Some(text);
                }
                Change::Reset { name: known } if known == name => return None,
                Change::ResetAll => return None,
                _ => {}
            }
        }
        self.settings.iter().find(|setting| setting.name == name).map(|setting| &setting.text)
    }

    /// Those of [`CARRIED`] whose last confirmed change was a RESET. What is set behind that for the
    /// transaction alone is in force, too, until its end.
    pub(crate) fn at_default(&self) -> Mask {
        let mut local = 0;
        let changes = self.levels().flat_map(|level| &level.changes);
        let defaults = changes.fold(self.defaults, |defaults, change| {
            match change {
                Change::Local { name, .. } => local |= mask(name),
                Change::ResetAll => local = 0,
                Change::Set { name, .. } | Change::Reset { name } => local &= !mask(name),
            }
            after(defaults, change)
        });
        defaults & !local
    }

    /// Statements with these pins are sent.
    pub(crate) fn send(&mut self, pins: Reasons) {
        self.held = self.held.union(pins);
        self.void_releases(pins);
    }

    /// A statement has succeeded; `tag` is its command tag.
    pub(crate) fn confirm(&mut self, effect: &Effect, tag: &[u8]) {
        self.send(effect.leaves.pins);
        if effect.act == Act::DiscardAll {
            return self.discard(effect.leaves.releases);
        }
        let level = self.innermost();
        level.leaves = level.leaves.then(effect.leaves);
        match &effect.act {
            Act::Changes(changes) => changes.iter().for_each(|change| self.change(change)),
            Act::Savepoint(name) => self.open(name),
            Act::Release(name) => self.release(name),
            Act::RollbackTo(name) => self.roll_back_to(name),
            Act::End => self.end(tag != b"ROLLBACK"),
            Act::Nothing | Act::Deallocate(_) | Act::DeallocateAll | Act::DiscardAll => {}
        }
    }

    /// A statement may have ended transactions, one way or the other, before it succeeded or failed.
    pub(crate) fn may_have_ended(&mut self) {
        if self.levels().any(|level| !level.is_empty()) {
            self.send(Reasons::OTHER);
            // A RESET is told from its undoing by the value that the server reports.
            self.defaults = self.levels().flat_map(|level| &level.changes).fold(self.defaults, after);
            self.levels_mut().for_each(|level| level.leaves.releases = Reasons::NONE);
        }
    }

    /// A statement has failed.
    pub(crate) fn fail(&mut self) {
        self.has_failed = true;
        self.void_releases(LASTING);
    }

    /// ReadyForQuery has come; the server has reported `changed` since the last one. What changed without a
    /// RESET was set by something that no text shows.
    pub(crate) fn ready(&mut self, status: Status, changed: Mask) {
        let set = changed & !std::mem::take(&mut self.reset) & !self.restored & self.at_default();
        for (_, name) in CARRIED.iter().enumerate().filter(|(index, _)| set >> index & 1 == 1) {
            self.change(&Change::Set { name: (*name).to_owned(), text: Bytes::new() });
        }
        let committed = !std::mem::take(&mut self.has_failed);
        if status == Status::Idle {
            self.end(committed);
            self.restored = 0;
        }
    }

    /// The gate has set these within the open transaction.
    pub(crate) fn restored(&mut self, settings: Mask) {
        self.restored |= settings;
    }

    /// The connection is lost, and what was open on it with it.
    pub(crate) fn lost(&mut self) {
        (self.has_failed, self.has_discarded, self.restored) = (false, false, 0);
        self.end(false);
    }

    /// A setting can't be restored: the session goes on with its default.
    pub(crate) fn give_up(&mut self, name: &str) {
        if let Some(index) = self.settings.iter().position(|setting| setting.name == name) {
            Arc::make_mut(&mut self.settings).remove(index);
        }
    }

    /// Something has happened that the book can't follow.
    pub(crate) fn be_unsure(&mut self) {
        self.send(Reasons::OTHER);
        // The server's word counts, not what the book believes.
        self.defaults = 0;
        for level in self.levels_mut() {
            level.changes.retain(|change| !matches!(change, Change::Reset { .. } | Change::ResetAll));
        }
    }

    fn levels(&self) -> impl DoubleEndedIterator<Item = &Level> {
        std::iter::once(&self.base).chain(&self.savepoints)
    }

    fn levels_mut(&mut self) -> impl Iterator<Item = &mut Level> {
        std::iter::once(&mut self.base).chain(&mut self.savepoints)
    }

    /// Releases of these, as far as they are lasting, don't count any more.
    fn void_releases(&mut self, pins: Reasons) {
        let lasting = pins.without(Reasons::ALL.without(LASTING));
        if !lasting.is_empty() {
            for level in self.levels_mut() {
                level.leaves.releases = level.leaves.releases.without(lasting);
            }
        }
    }

    fn innermost(&mut self) -> &mut Level {
        self.savepoints.last_mut().unwrap_or(&mut self.base)
    }

    fn change(&mut self, change: &Change) {
        let open: usize = self.levels().map(|level| level.changes.len()).sum();
        let is_long = matches!(change, Change::Set { text, .. } | Change::Local { text, .. }
            if text.len() > CARRIED_TEXT_MAX);
        if open >= CHANGES_MAX || is_long {
            return self.be_unsure();
        }
        // Where the search path no longer holds by which it was found, it can't be set again.
        let is_path = |change: &Change| change.name().is_some_and(|name| name.eq_ignore_ascii_case(PATH));
        let is_local = |change: &Change| matches!(change, Change::Local { .. });
        let is_lost = match change {
            Change::Set { name, text } if name == DEPENDENT && !text.contains(&b'.') => {
                self.levels().flat_map(|level| &level.changes).any(|it| is_path(it) && is_local(it))
            }
            _ if is_path(change) && !is_local(change) => {
                self.in_force(DEPENDENT).is_some_and(|text| !text.contains(&b'.'))
            }
            _ => false,
        };
        if is_lost {
            self.send(Reasons::OTHER);
        }
        self.reset = after(self.reset, change);
        self.innermost().push(change.clone());
    }

    fn open(&mut self, name: &Bytes) {
        if self.savepoints.len() < LEVELS_MAX && !self.has_lost_savepoints {
            self.savepoints.push(Level { name: name.clone(), ..Level::default() });
        } else {
            self.has_lost_savepoints = true;
        }
    }

    fn position(&self, name: &Bytes) -> Option<usize> {
        let known = self.savepoints.iter().rposition(|level| level.name == *name);
        known.filter(|_| !self.has_lost_savepoints)
    }

    fn release(&mut self, name: &Bytes) {
        let Some(index) = self.position(name) else {
            // Nothing is undone by it, but which savepoints are left can't be told.
            self.has_lost_savepoints = true;
            return;
        };
        for level in self.savepoints.split_off(index) {
            self.innermost().merge(level);
        }
    }

    fn roll_back_to(&mut self, name: &Bytes) {
        match self.position(name) {
            Some(index) => {
                self.savepoints.truncate(index);
                self.open(name);
            }
            None if self.levels().all(Level::is_empty) => self.has_lost_savepoints = true,
            None => self.be_unsure(),
        }
    }

    /// The transaction has ended: kept, or undone whole.
    fn end(&mut self, committed: bool) {
        self.has_lost_savepoints = false;
        if std::mem::take(&mut self.has_discarded) {
            self.keep(Change::ResetAll);
        }
        let mut whole = std::mem::take(&mut self.base);
        for level in std::mem::take(&mut self.savepoints) {
            whole.merge(level);
        }
        if !committed || whole.is_empty() {
            return;
        }
        self.held = whole.leaves.apply(self.held);
        whole.changes.into_iter().for_each(|change| self.keep(change));
    }

    fn keep(&mut self, change: Change) {
        self.defaults = after(self.defaults, &change);
        match change {
            Change::Set { name, .. } if mask(&name) & self.reported != 0 => {}
            Change::Set { name, text } => {
                let settings = Arc::make_mut(&mut self.settings);
                settings.retain(|setting| setting.name != name);
                if settings.len() < CARRIED_MAX {
                    settings.push(Setting { name, text });
                } else {
                    self.be_unsure();
                }
            }
            Change::Reset { name } => self.give_up(&name),
            Change::ResetAll => self.settings = Arc::default(),
            Change::Local { .. } => {}
        }
    }

    fn discard(&mut self, releases: Reasons) {
        self.end(false);
        (self.has_discarded, self.reset) = (true, ALL_CARRIED);
        self.held = self.held.without(releases);
    }
}

/// Which of [`CARRIED`] this setting is.
fn mask(name: &str) -> Mask {
    let index = CARRIED.iter().position(|carried| carried.eq_ignore_ascii_case(name));
    index.map_or(0, |index| 1 << index)
}

/// Those of [`CARRIED`] that the names are.
pub(crate) fn masks<'a>(names: impl Iterator<Item = &'a str>) -> Mask {
    names.fold(0, |all, name| all | mask(name))
}

/// Which settings were RESET last, behind one more change.
fn after(defaults: Mask, change: &Change) -> Mask {
    match change {
        Change::Set { name, .. } => defaults & !mask(name),
        Change::Reset { name } => defaults | mask(name),
        Change::ResetAll => ALL_CARRIED,
        Change::Local { .. } => defaults,
    }
}
