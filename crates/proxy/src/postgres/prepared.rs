//! Prepared statements across server connections.
//!
//! A client prepares a statement once and uses it in many transactions, each on whatever server connection
//! is free. So the session remembers the text of each statement under the client's name; on the server a
//! *named* statement goes by a name of ours, the same for all clients that prepared the same text, and is
//! prepared wherever it is missing, within the client's own batch. The *unnamed* statement stays the
//! unnamed statement (the server plans it anew each time, which clients rely on) and is prepared again
//! where another session's has taken its place.
//!
//! What a text means is settled when it is prepared, by that session's settings: which tables
//! its names are of, where a literal ends, what time `timestamptz '2026-01-01'` is. So only clients with
//! the same such settings share.
//!
//! Texts are compared in full, never by hash alone: a client must not be able to have another one run its
//! text.
//!
//! A statement whose client was told a description by the gate ([`Descriptions`]) is another one than a
//! statement of the same text without, or with another description. What it returns is compared with what
//! was told before it runs for the first time on a connection.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use bytes::{Bytes, BytesMut};
use lru::LruCache;
use parking_lot::Mutex;
use wire::postgres::backend;
use wire::postgres::frontend::{self, key};

use super::classify::Analysis;
use super::described::{Description, Descriptions};
use super::parameters::Reading;
use super::reject::Refusal;
use crate::memory::Held;

/// The most named statements that one client may keep prepared. PostgreSQL has no bound but memory; clients
/// that come near this one leak.
pub(crate) const CLIENT_STATEMENTS_MAX: usize = 10_000;

/// The most named statements kept on one server connection; the least recently used is closed.
pub(crate) const SERVER_STATEMENTS_MAX: usize = 500;

/// After so many insertions the registry looks for statements that no client knows any more.
const SWEEP_AFTER: usize = 1024;

static NEXT_ID: AtomicU64 = AtomicU64::new(1);

/// A statement's text and what was learned from reading it, once.
#[derive(Debug)]
pub(crate) struct Prepared {
    /// Unique in this process.
    pub(crate) id: u64,
    /// The text that the client sent.
    pub(crate) sql: Bytes,
    /// Count and type ids, as on the wire.
    pub(crate) parameter_types: Bytes,
    /// What the text says.
    pub(crate) analysis: Analysis,
    /// What the gate has told its clients of its parameters and columns.
    pub(crate) told: Option<Arc<Description>>,
    /// Tables have changed since, so that its result would be another one.
    is_stale: AtomicBool,
    /// Whether there was room for it.
    pub(crate) has_room: bool,
    /// What it counts for, as long as a client or a server connection knows it.
    held: Arc<Held>,
}

/// Whether a Bind ends as one of a statement without parameters does.
pub(super) fn has_no_values(rest: &[u8]) -> bool {
    matches!(frontend::bind_counts(rest), Ok((0 | 1, 0)))
}

impl Prepared {
    fn first_kind(&self) -> Option<wire::sql::Kind<'_>> {
        wire::sql::statements(&self.sql, self.analysis.reading.standard_strings).next().map(|it| it.kind)
    }

    /// Whether a text holds no statement. A failed transaction admits its Parse and not its Bind.
    pub(super) fn is_empty(&self) -> bool {
        self.first_kind().is_none_or(|kind| kind == wire::sql::Kind::Empty)
    }

    /// Whether a failed transaction admits the statement, because it ends the transaction.
    pub(super) fn ends_failed(&self) -> bool {
        use wire::sql::Kind;
        self.first_kind().is_some_and(|kind| {
            matches!(
                kind,
                Kind::Commit { .. }
                    | Kind::Rollback { .. }
                    | Kind::RollbackTo { .. }
                    | Kind::PrepareTransaction
            )
        })
    }

    /// Whether it surely has none: the text refers to no parameter, and its Parse declared no types.
    pub(crate) fn has_no_parameters(&self) -> bool {
        let declares_none = self.parameter_types.iter().all(|byte| *byte == 0);
        // A dollar quote is none.
        let is_parameter = |pair: &[u8]| pair[0] == b'$' && pair[1].is_ascii_digit();
        self.analysis.is_control || declares_none && !self.sql.windows(2).any(is_parameter)
    }

    /// Whether a Bind that ends so has as many values as it takes, for all that the gate can tell.
    pub(crate) fn takes(&self, rest: &[u8]) -> bool {
        frontend::bind_counts(rest).is_ok() && (!self.has_no_parameters() || has_no_values(rest))
    }

    /// What PostgreSQL answers to a Describe of it whatever has become of its tables, the search path or the
    /// transaction: so it describes a statement without rows. `None`: it may have some.
    pub(crate) fn described_without_rows(&self) -> Option<Bytes> {
        if let Some(told) = self.told.as_ref().filter(|told| told.has_no_rows()) {
            return Some(told.frames().clone());
        }
        let writes = self.has_no_parameters() && self.analysis.writes_without_rows(&self.sql);
        (writes || self.analysis.returns_nothing(&self.sql)).then(|| {
            let mut frames = BytesMut::new();
            backend::write_parameter_description_empty(&mut frames);
            backend::write_no_data(&mut frames);
            frames.freeze()
        })
    }

    /// A statement of one session alone.
    pub(crate) fn new(sql: &[u8], parameter_types: &[u8], analysis: Analysis) -> Arc<Self> {
        let mut held = Held::default();
        // The text is kept twice: with the statement, and to find it by.
        let has_room = held.set_exactly(2 * (sql.len() + parameter_types.len())).is_ok();
        Arc::new(Self {
            id: NEXT_ID.fetch_add(1, Ordering::Relaxed),
            sql: Bytes::copy_from_slice(sql),
            parameter_types: Bytes::copy_from_slice(parameter_types),
            analysis,
            told: None,
            is_stale: AtomicBool::new(false),
            has_room,
            held: Arc::new(held),
        })
    }

    /// A statement of the same text, whose client is told this.
    pub(crate) fn telling(&self, description: &Arc<Description>) -> Arc<Self> {
        Arc::new(Self {
            id: NEXT_ID.fetch_add(1, Ordering::Relaxed),
            sql: self.sql.clone(),
            parameter_types: self.parameter_types.clone(),
            analysis: self.analysis.clone(),
            told: Some(Arc::clone(description)),
            is_stale: AtomicBool::new(false),
            has_room: self.has_room,
            held: Arc::clone(&self.held),
        })
    }

    /// Whether its client was told just this.
    pub(crate) fn tells(&self, description: &Description) -> bool {
        self.told.as_ref().is_some_and(|told| told.frames() == description.frames())
    }

    /// Whether it is what a Parse message with these makes.
    pub(crate) fn is(&self, sql: &[u8], parameter_types: &[u8], reading: Reading) -> bool {
        self.sql == sql && self.parameter_types == parameter_types && self.analysis.reading == reading
    }

    /// Whether its result has become another one since it was prepared: it is no good any more, on any
    /// connection, because its clients were told of columns that it no longer has.
    pub(crate) fn is_stale(&self) -> bool {
        self.is_stale.load(Ordering::Relaxed)
    }

    /// Its result has become another one. A session that prepares the text again gets another statement.
    pub(crate) fn expire(&self) {
        self.is_stale.store(true, Ordering::Relaxed);
        self.void_description();
    }

    /// What was told of it may not hold any more: when the text is prepared again, the server is asked.
    pub(crate) fn void_description(&self) {
        self.told.iter().for_each(|told| told.void());
    }

    /// Its name on server connections.
    pub(crate) fn server_name(&self) -> String {
        server_name(self.id)
    }
}

/// The name of statement `id` on server connections.
pub(crate) fn server_name(id: u64) -> String {
    format!("gatekeeper_{id:x}")
}

/// Which text has which statement, over all sessions of a gate.
#[derive(Debug, Default)]
pub(crate) struct Registry {
    known: Mutex<Known>,
    /// What is known of texts without asking the server.
    pub(crate) descriptions: Descriptions,
    /// A session may have asked which value a sequence gave it last.
    pub(crate) asks_sequences: AtomicBool,
}

#[derive(Debug, Default)]
struct Known {
    statements: HashMap<Key, Weak<Prepared>>,
    inserted: usize,
}

/// All that makes a statement what it is.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Key {
    database: Arc<str>,
    /// See [`SessionSettings::read_by`](super::settings::SessionSettings::read_by).
    read_by: Bytes,
    sql: Bytes,
    parameter_types: Bytes,
    /// The frames of the description that its clients were told.
    told: Option<Bytes>,
}

impl Registry {
    /// The one statement of this text: known already, or made now. The same text read by other settings is
    /// another statement: about other tables, or with literals that mean something else.
    pub(crate) fn intern(
        &self,
        (database, read_by): (&Arc<str>, &Bytes),
        sql: &[u8],
        parameter_types: &[u8],
        analyze: impl FnOnce() -> Analysis,
    ) -> Arc<Prepared> {
        let key = Key {
            database: Arc::clone(database),
            read_by: read_by.clone(),
            sql: Bytes::copy_from_slice(sql),
            parameter_types: Bytes::copy_from_slice(parameter_types),
            told: None,
        };
        self.find(key, || Prepared::new(sql, parameter_types, analyze()))
    }

    /// The one statement of the same text whose clients are told this.
    pub(crate) fn intern_telling(
        &self,
        (database, read_by): (&Arc<str>, &Bytes),
        statement: &Prepared,
        description: &Arc<Description>,
    ) -> Arc<Prepared> {
        let key = Key {
            database: Arc::clone(database),
            read_by: read_by.clone(),
            sql: statement.sql.clone(),
            parameter_types: statement.parameter_types.clone(),
            told: Some(description.frames().clone()),
        };
        self.find(key, || statement.telling(description))
    }

    fn find(&self, key: Key, make: impl FnOnce() -> Arc<Prepared>) -> Arc<Prepared> {
        let mut known = self.known.lock();
        let fresh = |prepared: &Arc<Prepared>| !prepared.is_stale();
        if let Some(prepared) = known.statements.get(&key).and_then(Weak::upgrade).filter(fresh) {
            return prepared;
        }
        let prepared = make();
        known.statements.insert(key, Arc::downgrade(&prepared));
        known.inserted += 1;
        // Bounded by what clients keep: at most the living statements and as many insertions as since the
        // last sweep.
        if known.inserted >= SWEEP_AFTER.max(known.statements.len() / 2) {
            known.statements.retain(|_, statement| statement.strong_count() > 0);
            known.inserted = 0;
        }
        prepared
    }
}

/// The statements of one client, by its names.
#[derive(Debug, Default)]
pub(crate) struct ClientStatements {
    named: HashMap<Bytes, Arc<Prepared>>,
    unnamed: Option<Arc<Prepared>>,
}

/// What names stood for before a change that the server may yet refuse.
#[derive(Debug)]
pub(crate) enum Undo {
    Name { name: Bytes, before: Option<Arc<Prepared>> },
    AllNamed(HashMap<Bytes, Arc<Prepared>>),
    All(ClientStatements),
}

impl ClientStatements {
    /// The statement of that name; the empty name is the unnamed one's.
    pub(crate) fn get(&self, name: &[u8]) -> Option<&Arc<Prepared>> {
        if name.is_empty() { self.unnamed.as_ref() } else { self.named.get(key(name)) }
    }

    /// A name that the client has given to the statement.
    pub(crate) fn name_of(&self, id: u64) -> Option<&[u8]> {
        self.named.iter().find(|(_, statement)| statement.id == id).map(|(name, _)| &name[..])
    }

    /// Whether another named statement may be prepared.
    pub(crate) fn is_full(&self) -> bool {
        self.named.len() >= CLIENT_STATEMENTS_MAX
    }

    /// Sets what a name stands for (`None`: nothing).
    pub(crate) fn set(&mut self, name: &[u8], statement: Option<Arc<Prepared>>) -> Undo {
        let key = Bytes::copy_from_slice(key(name));
        let before = if name.is_empty() {
            std::mem::replace(&mut self.unnamed, statement)
        } else if let Some(statement) = statement {
            self.named.insert(key.clone(), statement)
        } else {
            self.named.remove(&key)
        };
        Undo::Name { name: key, before }
    }

    /// Takes a change back.
    pub(crate) fn undo(&mut self, undo: Undo) {
        match undo {
            Undo::Name { name, before } => _ = self.set(&name, before),
            Undo::AllNamed(named) => self.named = named,
            Undo::All(statements) => *self = statements,
        }
    }

    /// Forgets the named ones (DEALLOCATE ALL).
    pub(crate) fn clear_named(&mut self) -> Undo {
        Undo::AllNamed(std::mem::take(&mut self.named))
    }

    /// Forgets a statement at the client's word, or all (`None`): what undoes it, and the command tag. The
    /// server's copy serves others.
    pub(crate) fn deallocate(
        &mut self,
        name: &Option<Bytes>,
    ) -> (Result<Option<Undo>, Refusal>, &'static [u8]) {
        match name {
            None => (Ok(Some(self.clear_named())), b"DEALLOCATE ALL"),
            Some(name) if self.get(name).is_some() => (Ok(Some(self.set(name, None))), b"DEALLOCATE"),
            Some(name) => (Err(Refusal::no_such_statement(name)), b"DEALLOCATE"),
        }
    }

    /// Forgets all (DISCARD ALL).
    pub(crate) fn clear(&mut self) -> Undo {
        Undo::All(std::mem::take(self))
    }
}

/// What is prepared on one server connection.
#[derive(Clone, Debug)]
pub(crate) struct ServerStatements {
    /// Named statements by id, with the batch that used them last.
    named: LruCache<u64, u64>,
    /// Which statement is the unnamed one.
    pub(crate) unnamed: Option<u64>,
    /// Statements that the server must close before they are prepared again.
    stale: Vec<u64>,
    batch: u64,
}

impl Default for ServerStatements {
    fn default() -> Self {
        Self { named: LruCache::unbounded(), unnamed: None, stale: Vec::new(), batch: 0 }
    }
}

impl ServerStatements {
    /// A new batch begins; returns the statements to close before anything else: stale ones, and what the
    /// batch before needed beyond the bound.
    pub(crate) fn begin_batch(&mut self) -> Vec<u64> {
        self.batch += 1;
        let mut closing = std::mem::take(&mut self.stale);
        while self.named.len() > SERVER_STATEMENTS_MAX {
            closing.extend(self.named.pop_lru().map(|(id, _)| id));
        }
        closing
    }

    /// Marks the statement as used now; says whether it is prepared here.
    pub(crate) fn touch(&mut self, id: u64) -> bool {
        self.named.get_mut(&id).map(|batch| *batch = self.batch).is_some()
    }

    /// The statement is being prepared. Returns one to close for it, if there are too many; never one that
    /// the open batch uses, because a later message of the batch may need it.
    pub(crate) fn insert(&mut self, id: u64) -> Option<u64> {
        self.named.put(id, self.batch);
        let (_, batch) = self.named.peek_lru()?;
        if self.named.len() <= SERVER_STATEMENTS_MAX || *batch == self.batch {
            return None;
        }
        self.named.pop_lru().map(|(evicted, _)| evicted)
    }

    /// The name of a statement of no use, to be deallocated at once. It is closed in any case.
    pub(crate) fn placeholder(&mut self) -> String {
        let id = NEXT_ID.fetch_add(1, Ordering::Relaxed);
        self.stale.push(id);
        server_name(id)
    }

    /// Preparing it failed, or was skipped.
    pub(crate) fn remove(&mut self, id: u64) {
        self.named.pop(&id);
        if self.unnamed == Some(id) {
            self.unnamed = None;
        }
    }

    /// Forgets a statement that is there but no good any more ("cached plan must not change result type"):
    /// close it, then prepare anew.
    pub(crate) fn mark_stale(&mut self, id: u64) {
        if self.named.pop(&id).is_some() {
            self.stale.push(id);
        }
    }

    /// The server has forgotten all of them.
    pub(crate) fn clear(&mut self) {
        self.named.clear();
        self.stale.clear();
        self.unnamed = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn prepared(sql: &str) -> Arc<Prepared> {
        Prepared::new(sql.as_bytes(), &[0, 0], Analysis::default())
    }

    #[test]
    fn the_same_text_is_one_statement_for_all_clients_of_a_database() {
        let registry = Registry::default();
        let (shop, blog): (Arc<str>, Arc<str>) = ("shop".into(), "blog".into());
        let first = registry.intern((&shop, &Bytes::new()), b"SELECT 1", &[0, 0], Analysis::default);
        let second = registry.intern((&shop, &Bytes::new()), b"SELECT 1", &[0, 0], Analysis::default);
        assert_eq!(first.id, second.id);
        assert_ne!(
            first.id,
            registry.intern((&blog, &Bytes::new()), b"SELECT 1", &[0, 0], Analysis::default).id
        );
        assert_ne!(
            first.id,
            registry.intern((&shop, &Bytes::new()), b"SELECT 1", &[0, 1, 0, 0, 0, 23], Analysis::default).id
        );
    }

    #[test]
    fn the_registry_forgets_what_no_client_knows() {
        let registry = Registry::default();
        let shop: Arc<str> = "shop".into();
        for number in 0..10 * SWEEP_AFTER {
            registry.intern(
                (&shop, &Bytes::new()),
                number.to_string().as_bytes(),
                &[0, 0],
                Analysis::default,
            );
        }
        assert!(registry.known.lock().statements.len() <= 2 * SWEEP_AFTER);
    }

    #[test]
    fn a_change_that_the_server_refuses_is_undone() {
        let mut statements = ClientStatements::default();
        let (old, new) = (prepared("old"), prepared("new"));
        statements.set(b"s", Some(Arc::clone(&old)));
        let undo = statements.set(b"s", Some(new));
        statements.undo(undo);
        assert_eq!(statements.get(b"s").map(|statement| statement.id), Some(old.id));
        let undo = statements.set(b"t", Some(old));
        statements.undo(undo);
        assert!(statements.get(b"t").is_none());
    }

    #[test]
    fn the_least_recently_used_statement_makes_room_but_never_one_of_the_open_batch() {
        let mut statements = ServerStatements::default();
        statements.begin_batch();
        for id in 0..SERVER_STATEMENTS_MAX as u64 {
            assert_eq!(statements.insert(id), None);
        }
        // All belong to the open batch: it may hold more than the bound while it lasts.
        assert_eq!(statements.insert(9_000), None);
        assert_eq!(statements.begin_batch(), [0]);
        assert!(statements.touch(1));
        assert_eq!(statements.insert(9_001), Some(2));
        assert!(!statements.touch(2));
    }

    #[test]
    fn other_settings_and_an_expired_statement_make_another_one() {
        let registry = Registry::default();
        let shop: Arc<str> = "shop".into();
        let intern = |read_by: &'static str| {
            registry.intern(
                (&shop, &Bytes::from_static(read_by.as_bytes())),
                b"SELECT 1",
                &[0, 0],
                Analysis::default,
            )
        };
        let first = intern("");
        assert_ne!(first.id, intern("SET search_path = blog").id);
        assert_eq!(first.id, intern("").id);
        first.expire();
        let again = intern("");
        assert_ne!(first.id, again.id);
        assert_eq!(again.id, intern("").id);
    }

    #[test]
    fn a_stale_statement_is_closed_before_the_next_batch() {
        let mut statements = ServerStatements::default();
        statements.begin_batch();
        statements.insert(7);
        statements.mark_stale(7);
        assert!(!statements.touch(7));
        assert_eq!(statements.begin_batch(), vec![7]);
        assert_eq!(statements.begin_batch(), Vec::<u64>::new());
    }
}
