//! Transactions whose beginning is deferred.
//!
//! Drivers send `BEGIN` by itself and wait for its answer before the first statement. A gate that asked for
//! admission then would know nothing of what is to come. So BEGIN is answered here, with its options kept;
//! so are SAVEPOINT, SET TRANSACTION and harmless SET LOCALs that follow. With the first real statement,
//! whose text tells the request type, all of it goes to the server in one write, in order. A transaction
//! that ends before that costs the server nothing.
//!
//! A deferred transaction that is refused, or canceled while it waits, is a failed transaction like any
//! other: 25P02 until ROLLBACK, or until ROLLBACK TO a savepoint that was pending, which makes it deferred
//! again.

use bytes::Bytes;
use wire::postgres::backend::Status;
use wire::postgres::frontend::NAME_LEN;
use wire::sql::statement::{Kind, Statement};

use super::book::{Act, Effect};
use super::effect::effect;
use super::reject::Refusal;
use crate::memory::FREE;

/// How many statements a deferred transaction may keep pending; with more it becomes a real one.
pub(crate) const PENDING_MAX: usize = 64;
/// How many bytes of them, with its BEGIN: no more than what no client is charged for.
pub(crate) const PENDING_BYTES_MAX: usize = FREE;

/// Settings whose SET LOCAL is kept pending: bounds, memory and look-up, which change nothing until a
/// statement runs, and custom ones (with a dot), which only functions and policies read.
const DEFERRABLE_SETTINGS: [&str; 11] = [
    "constraint_exclusion",
    "idle_in_transaction_session_timeout",
    "jit",
    "lock_timeout",
    "maintenance_work_mem",
    "random_page_cost",
    "search_path",
    "statement_timeout",
    "synchronous_commit",
    "transaction_timeout",
    "work_mem",
];

/// Words of isolation levels at which a transaction sees what was there when its first statement was
/// prepared.
const SETTLED_BY_PREPARING: [&str; 3] = ["repeatable", "serializable", "snapshot"];

/// What makes the server pass on the characteristics of a transaction.
const CHAIN: &[u8] = b"COMMIT AND CHAIN";

/// Where a session is with its transaction.
#[derive(Clone, Debug, Default)]
pub(crate) enum Transaction {
    /// None is open.
    #[default]
    Idle,
    /// The client believes that one is open; the server knows nothing of it yet.
    Deferred(Deferred),
    /// Open on the server.
    Open(Status),
    /// Deferred and then refused or canceled, or lost with its server connection: failed, on no server.
    Refused(Refused),
}

/// A failed transaction on no server.
#[derive(Clone, Debug)]
pub(crate) struct Refused {
    deferred: Deferred,
    /// Why it failed, if the client hasn't been told yet.
    untold: Option<Refusal>,
}

/// What was acknowledged and not yet sent.
#[derive(Clone, Debug)]
pub(crate) struct Deferred {
    begin: Bytes,
    pending: Vec<Pending>,
    bytes: usize,
    /// How many of these statements, the first one included, stand for what a chain has passed on.
    inherited: usize,
    /// What the client finds of the unnamed portal.
    left: Left,
}

/// What a statement leaves of the unnamed portal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Left {
    /// A simple Query closes its portal.
    #[default]
    Nothing,
    /// An Execute keeps it; in a failed transaction it isn't run.
    Done,
    /// A simple Query that fails keeps it, and it can't be run.
    Failed,
}

impl Left {
    /// What a statement of a simple Query that fails so leaves: one that runs and fails keeps the portal.
    /// `None`: it didn't run.
    pub(crate) fn behind(failure: &Refusal, statement: &Kind<'_>) -> Option<Self> {
        // In a failed transaction only what ends the failure is looked at any further.
        let left = if matches!(statement, Kind::Release { .. }) { Self::Done } else { Self::Failed };
        failure.has_run().then_some(left)
    }
}

#[derive(Clone, Debug)]
struct Pending {
    /// The savepoint that this statement sets.
    savepoint: Option<Bytes>,
    /// A released savepoint stays as a statement, for what was set since.
    sql: Bytes,
    /// What it means for the session once the server has done it.
    effect: Effect,
}

/// What to do with a statement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Control {
    /// Answer with this command tag.
    Tag(&'static [u8]),
    /// Answer with this tag, after a warning that no transaction is open.
    TagWithWarning(&'static [u8]),
    /// Answer EmptyQueryResponse.
    Empty,
    /// Answer with an error; the transaction has failed.
    Error(Refusal),
    /// It is for the server.
    Forward,
}

impl Transaction {
    /// The transaction that a ReadyForQuery with this status tells of.
    pub(crate) fn of(status: Status) -> Self {
        if status == Status::Idle { Self::Idle } else { Self::Open(status) }
    }

    /// A transaction that was lost with its server connection; `untold`: what the client must hear of it
    /// still.
    pub(crate) fn lost(untold: Option<Refusal>) -> Self {
        Self::Refused(Refused { deferred: Deferred::new(b"BEGIN"), untold })
    }

    /// What a statement in a failed transaction is answered with: first why it failed, then that it has.
    pub(crate) fn failure(&mut self) -> Refusal {
        match self {
            Self::Refused(refused) => refused.untold.take().unwrap_or_else(Refusal::in_failed_transaction),
            _ => Refusal::in_failed_transaction(),
        }
    }

    /// The status that the client knows.
    pub(crate) fn status(&self) -> Status {
        match self {
            Self::Idle => Status::Idle,
            Self::Deferred(_) => Status::Transaction,
            Self::Open(status) => *status,
            Self::Refused(_) => Status::Failed,
        }
    }

    /// Whether its next statements go to a server connection that it holds.
    pub(crate) fn is_open(&self) -> bool {
        matches!(self, Self::Open(_))
    }

    /// The deferred beginning, if there is one to replay.
    pub(crate) fn deferred(&self) -> Option<&Deferred> {
        match self {
            Self::Deferred(deferred) => Some(deferred),
            _ => None,
        }
    }

    /// The last statement was answered here, and leaves this of its unnamed portal to the client.
    pub(crate) fn leave(&mut self, left: Left) {
        if let Self::Deferred(deferred) | Self::Refused(Refused { deferred, .. }) = self {
            deferred.left = left;
        }
    }

    /// What the client finds of the unnamed portal.
    pub(crate) fn left(&self) -> Left {
        match self {
            Self::Deferred(deferred) | Self::Refused(Refused { deferred, .. }) => deferred.left,
            _ => Left::Nothing,
        }
    }

    /// The request was refused or canceled before it reached the server.
    pub(crate) fn refuse(&mut self) {
        *self = match std::mem::take(self) {
            Self::Deferred(deferred) => Self::Refused(Refused { deferred, untold: None }),
            other => other,
        };
    }

    /// Serves a statement here if that can be done without the server.
    pub(crate) fn control(&mut self, statement: &Statement<'_>) -> Control {
        match self {
            Self::Open(_) => Control::Forward,
            Self::Idle => self.idle_control(statement),
            Self::Deferred(_) => self.deferred_control(statement),
            Self::Refused(_) => self.refused_control(&statement.kind),
        }
    }

    fn idle_control(&mut self, statement: &Statement<'_>) -> Control {
        match &statement.kind {
            Kind::Empty => Control::Empty,
            Kind::Begin { .. } if statement.text.len() > PENDING_BYTES_MAX => Control::Forward,
            Kind::Begin { tag } => {
                *self = Self::Deferred(Deferred::new(statement.text));
                Control::Tag(tag.as_bytes())
            }
            Kind::Commit { chain: false } => Control::TagWithWarning(b"COMMIT"),
            Kind::Rollback { chain: false } => Control::TagWithWarning(b"ROLLBACK"),
            _ => Control::Forward,
        }
    }

    fn deferred_control(&mut self, statement: &Statement<'_>) -> Control {
        let Self::Deferred(deferred) = self else { return Control::Forward };
        let kept = match &statement.kind {
            Kind::Empty => return Control::Empty,
            Kind::Commit { chain } => return self.end(b"COMMIT", *chain),
            Kind::Rollback { chain } => return self.end(b"ROLLBACK", *chain),
            // The server may have cut the name, and gives a notice then.
            Kind::RollbackTo { savepoint: name } | Kind::Release { name } | Kind::Savepoint { name }
                if name.len() >= NAME_LEN =>
            {
                None
            }
            Kind::RollbackTo { savepoint } => {
                if deferred.rollback_to(savepoint) {
                    return Control::Tag(b"ROLLBACK");
                }
                let error = Refusal::no_such_savepoint(savepoint);
                self.refuse();
                return Control::Error(error);
            }
            Kind::Release { name } => {
                if deferred.release(name) {
                    return Control::Tag(b"RELEASE");
                }
                let error = Refusal::no_such_savepoint(name);
                self.refuse();
                return Control::Error(error);
            }
            Kind::Savepoint { name } => deferred.keep(Some(name), statement).then_some(&b"SAVEPOINT"[..]),
            // Behind a savepoint it is an error, which only the server can give.
            Kind::SetTransaction if !deferred.has_savepoint() => {
                deferred.keep(None, statement).then_some(&b"SET"[..])
            }
            Kind::SetLocal { name } if is_deferrable(name) => {
                deferred.keep(None, statement).then_some(&b"SET"[..])
            }
            _ => None,
        };
        kept.map_or(Control::Forward, Control::Tag)
    }

    fn refused_control(&mut self, kind: &Kind<'_>) -> Control {
        let Self::Refused(refused) = self else { return Control::Forward };
        match kind {
            Kind::Empty => Control::Empty,
            Kind::Commit { .. } if refused.untold.is_some() => {
                // A client that commits must hear that nothing was committed.
                let why = self.failure();
                *self = Self::Idle;
                Control::Error(why)
            }
            // COMMIT of a failed transaction rolls it back, and says so.
            Kind::Commit { chain } | Kind::Rollback { chain } => self.end(b"ROLLBACK", *chain),
            Kind::RollbackTo { savepoint } if refused.deferred.rollback_to(savepoint) => {
                if let Self::Refused(refused) = std::mem::take(self) {
                    *self = Self::Deferred(refused.deferred);
                }
                Control::Tag(b"ROLLBACK")
            }
            Kind::RollbackTo { savepoint } if refused.untold.is_none() => {
                Control::Error(Refusal::no_such_savepoint(savepoint))
            }
            _ => Control::Error(self.failure()),
        }
    }

    /// Ends a transaction that the server never saw. AND CHAIN begins the next with the same
    /// characteristics. When a transaction fails outside all savepoints, PostgreSQL returns to those that
    /// it began with.
    fn end(&mut self, tag: &'static [u8], chain: bool) -> Control {
        *self = match std::mem::take(self) {
            Self::Refused(Refused { deferred, .. }) if chain && !deferred.has_savepoint() => {
                Self::Deferred(deferred.returned_to_its_start())
            }
            Self::Deferred(deferred) | Self::Refused(Refused { deferred, .. }) if chain => {
                Self::Deferred(deferred.chained())
            }
            _ => Self::Idle,
        };
        Control::Tag(tag)
    }
}

impl Deferred {
    fn new(begin: &[u8]) -> Self {
        let begin = Bytes::copy_from_slice(begin);
        Self { bytes: begin.len(), begin, pending: Vec::new(), inherited: 0, left: Left::default() }
    }

    /// Whether the unnamed portal of the last statement is the client's own.
    pub(crate) fn leaves_portal(&self) -> bool {
        self.left != Left::Nothing
    }

    /// What the server must be sent before the first real statement, in order.
    pub(crate) fn statements<'a>(&'a self) -> impl Iterator<Item = (&'a [u8], Effect)> {
        let pending = |part: &'a [Pending]| part.iter().map(|it| (it.sql.as_ref(), it.effect.clone()));
        let (inherited, own) = self.pending.split_at(self.inherited.saturating_sub(1));
        // A failure takes back what a transaction was begun with, and leaves it what a chain has passed on.
        let chain = (self.inherited > 0).then(|| (CHAIN, Effect::default()));
        std::iter::once((self.begin.as_ref(), Effect::default()))
            .chain(pending(inherited))
            .chain(chain)
            .chain(pending(own))
    }

    /// Whether a text may be prepared outside of it with the same outcome: nothing that is pending changes
    /// how texts are read or how long preparing may take, and preparing settles nothing that the transaction
    /// sees (from repeatable read on, its snapshot is taken then).
    pub(crate) fn may_prepare_outside(&self) -> bool {
        let texts = std::iter::once(&self.begin).chain(self.pending.iter().map(|pending| &pending.sql));
        let settles = |text: &Bytes| {
            let text = text.to_ascii_lowercase();
            SETTLED_BY_PREPARING.iter().any(|word| memchr::memmem::find(&text, word.as_bytes()).is_some())
        };
        let mut effects = self.pending.iter().map(|pending| &pending.effect.act);
        !texts.into_iter().any(settles)
            && !effects.any(|act| {
                matches!(act, Act::Changes(changes)
            if changes.iter().any(|change| change.name().is_none_or(|name| bears_on_preparing(name))))
            })
    }

    fn keep(&mut self, savepoint: Option<&[u8]>, statement: &Statement<'_>) -> bool {
        let sql = statement.text;
        let fits = self.pending.len() < PENDING_MAX && self.bytes + sql.len() <= PENDING_BYTES_MAX;
        if fits {
            self.bytes += sql.len();
            let savepoint = savepoint.map(Bytes::copy_from_slice);
            self.pending.push(Pending {
                savepoint,
                sql: Bytes::copy_from_slice(sql),
                effect: effect(statement),
            });
        }
        fits
    }

    /// Takes back what followed the savepoint, which itself stays.
    fn rollback_to(&mut self, name: &[u8]) -> bool {
        let Some(index) = self.position(name) else { return false };
        self.pending.truncate(index + 1);
        self.bytes = self.begin.len() + self.pending.iter().map(|pending| pending.sql.len()).sum::<usize>();
        true
    }

    /// Forgets the savepoint and those after it; what was set since stays set.
    fn release(&mut self, name: &[u8]) -> bool {
        let Some(index) = self.position(name) else { return false };
        let mut position = 0;
        self.pending.retain(|pending| {
            position += 1;
            position <= index || pending.savepoint.is_none()
        });
        true
    }

    fn has_savepoint(&self) -> bool {
        self.pending.iter().any(|pending| pending.savepoint.is_some())
    }

    fn position(&self, name: &[u8]) -> Option<usize> {
        self.pending.iter().rposition(|pending| pending.savepoint.as_deref() == Some(name))
    }

    /// The next transaction of a chain: the same characteristics, nothing else.
    fn chained(mut self) -> Self {
        let transaction = |pending: &Pending| {
            pending.savepoint.is_none() && !pending.sql.to_ascii_lowercase().starts_with(b"set local")
        };
        self.pending.retain(transaction);
        self.inherited = 1 + self.pending.len();
        self
    }

    /// The next transaction of a chain whose last one has failed: with what that had inherited.
    fn returned_to_its_start(mut self) -> Self {
        match self.inherited {
            0 => Self::new(b"BEGIN"),
            count => {
                self.pending.truncate(count - 1);
                self
            }
        }
    }
}

/// Whether a setting changes how a text is read, or how long preparing it may take.
fn bears_on_preparing(name: &str) -> bool {
    name == "search_path" || name.ends_with("timeout")
}

fn is_deferrable(name: &[u8]) -> bool {
    name.contains(&b'.')
        || DEFERRABLE_SETTINGS.iter().any(|known| known.as_bytes().eq_ignore_ascii_case(name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::sql::statements;

    /// Runs statements and gives the answers: a tag, `-` for forward, or the SQLSTATE.
    fn run(transaction: &mut Transaction, sql: &str) -> String {
        let answers =
            statements(sql.as_bytes(), true).map(|statement| match transaction.control(&statement) {
                Control::Tag(tag) => String::from_utf8_lossy(tag).into_owned(),
                Control::TagWithWarning(tag) => format!("{}!", String::from_utf8_lossy(tag)),
                Control::Empty => "empty".to_owned(),
                Control::Error(refusal) => refusal.code.into_owned(),
                Control::Forward => "-".to_owned(),
            });
        answers.collect::<Vec<_>>().join(" ")
    }

    fn replay(transaction: &Transaction) -> Vec<String> {
        let deferred = transaction.deferred().expect("a deferred transaction");
        deferred.statements().map(|(sql, _)| String::from_utf8_lossy(sql).into_owned()).collect()
    }

    #[test]
    fn a_transaction_without_statements_needs_no_server() {
        let mut transaction = Transaction::default();
        assert_eq!(run(&mut transaction, "BEGIN; COMMIT"), "BEGIN COMMIT");
        assert_eq!(
            run(&mut transaction, "START TRANSACTION READ ONLY; ROLLBACK"),
            "START TRANSACTION ROLLBACK"
        );
        assert_eq!(transaction.status(), Status::Idle);
    }

    #[test]
    fn what_precedes_the_first_statement_is_replayed_in_order() {
        let mut transaction = Transaction::default();
        let sql = "BEGIN ISOLATION LEVEL SERIALIZABLE; SET LOCAL statement_timeout = 100; SET TRANSACTION READ ONLY; SAVEPOINT a";
        assert_eq!(run(&mut transaction, sql), "BEGIN SET SET SAVEPOINT");
        assert_eq!(run(&mut transaction, "SELECT 1"), "-");
        assert_eq!(replay(&transaction), sql.split("; ").collect::<Vec<_>>());
    }

    #[test]
    fn set_transaction_behind_a_savepoint_is_the_servers_error() {
        let mut transaction = Transaction::default();
        run(&mut transaction, "BEGIN; SAVEPOINT a");
        assert_eq!(run(&mut transaction, "SET TRANSACTION ISOLATION LEVEL SERIALIZABLE"), "-");
    }

    #[test]
    fn a_text_is_prepared_outside_only_where_that_makes_no_difference() {
        let may = |sql: &str| {
            let mut transaction = Transaction::default();
            run(&mut transaction, sql);
            transaction.deferred().unwrap().may_prepare_outside()
        };
        for sql in ["BEGIN", "BEGIN READ ONLY; SAVEPOINT a", "BEGIN; SET LOCAL app.tenant = 7"] {
            assert!(may(sql), "{sql}");
        }
        for sql in [
            "BEGIN ISOLATION LEVEL REPEATABLE READ",
            "BEGIN; SET TRANSACTION ISOLATION LEVEL SERIALIZABLE",
            "BEGIN; SET LOCAL \"search_path\" = blog",
            "BEGIN; SET LOCAL lock_timeout = 100",
        ] {
            assert!(!may(sql), "{sql}");
        }
    }

    #[test]
    fn settings_that_could_fail_or_be_seen_are_not_deferred() {
        let mut transaction = Transaction::default();
        run(&mut transaction, "BEGIN");
        assert_eq!(run(&mut transaction, "SET LOCAL role = 'admin'"), "-");
        assert_eq!(run(&mut transaction, "SET work_mem = '1GB'"), "-");
        assert_eq!(run(&mut transaction, "SET LOCAL app.tenant = '7'"), "SET");
    }

    #[test]
    fn rolling_back_to_a_pending_savepoint_takes_back_what_followed() {
        let mut transaction = Transaction::default();
        run(&mut transaction, "BEGIN; SAVEPOINT a; SET LOCAL work_mem = 1; SAVEPOINT b; SAVEPOINT a");
        assert_eq!(run(&mut transaction, "ROLLBACK TO b"), "ROLLBACK");
        assert_eq!(replay(&transaction), ["BEGIN", "SAVEPOINT a", "SET LOCAL work_mem = 1", "SAVEPOINT b"]);
        assert_eq!(run(&mut transaction, "RELEASE a"), "RELEASE");
        assert_eq!(replay(&transaction), ["BEGIN", "SET LOCAL work_mem = 1"]);
    }

    #[test]
    fn an_unknown_savepoint_fails_the_transaction() {
        let mut transaction = Transaction::default();
        run(&mut transaction, "BEGIN; SAVEPOINT a");
        assert_eq!(run(&mut transaction, "ROLLBACK TO nothing"), "3B001");
        assert_eq!(transaction.status(), Status::Failed);
        assert_eq!(run(&mut transaction, "SELECT 1"), "25P02");
        assert_eq!(run(&mut transaction, "ROLLBACK TO a"), "ROLLBACK");
        assert_eq!(transaction.status(), Status::Transaction);
    }

    #[test]
    fn a_refused_transaction_has_failed_until_it_is_rolled_back() {
        let mut transaction = Transaction::default();
        run(&mut transaction, "BEGIN");
        transaction.refuse();
        assert_eq!(run(&mut transaction, "SELECT 1; SAVEPOINT a"), "25P02 25P02");
        assert_eq!(run(&mut transaction, "COMMIT"), "ROLLBACK");
        assert_eq!(transaction.status(), Status::Idle);
    }

    #[test]
    fn only_a_deferred_transaction_can_be_refused() {
        let mut transaction = Transaction::lost(None);
        transaction.refuse();
        assert_eq!(transaction.status(), Status::Failed);
        let mut transaction = Transaction::Open(Status::Transaction);
        transaction.refuse();
        assert_eq!(transaction.status(), Status::Transaction);
    }

    #[test]
    fn why_a_transaction_was_lost_is_told_once_and_a_commit_hears_it() {
        let mut transaction = Transaction::lost(Some(Refusal::transaction_lost(None)));
        assert_eq!(run(&mut transaction, "SELECT 1; SELECT 2; COMMIT"), "08006 25P02 ROLLBACK");
        let mut transaction = Transaction::lost(Some(Refusal::transaction_lost(None)));
        assert_eq!(run(&mut transaction, "COMMIT; COMMIT"), "08006 COMMIT!");
        let mut transaction = Transaction::lost(Some(Refusal::transaction_lost(None)));
        assert_eq!(run(&mut transaction, "ROLLBACK"), "ROLLBACK");
    }

    #[test]
    fn a_chain_begins_anew_with_the_same_characteristics() {
        let mut transaction = Transaction::default();
        run(&mut transaction, "BEGIN READ ONLY; SAVEPOINT a; SET LOCAL work_mem = 1; COMMIT AND CHAIN");
        assert_eq!(replay(&transaction), ["BEGIN READ ONLY", "COMMIT AND CHAIN"]);
    }

    #[test]
    fn a_chain_after_a_failure_keeps_the_characteristics_only_behind_a_savepoint() {
        let mut transaction = Transaction::default();
        run(&mut transaction, "BEGIN READ ONLY; ROLLBACK TO nothing; COMMIT AND CHAIN");
        assert_eq!(replay(&transaction), ["BEGIN"]);
        let mut transaction = Transaction::default();
        run(&mut transaction, "BEGIN READ ONLY; SAVEPOINT a; ROLLBACK TO nothing; COMMIT AND CHAIN");
        assert_eq!(replay(&transaction), ["BEGIN READ ONLY", "COMMIT AND CHAIN"]);
        // What a chain has passed on stays.
        run(&mut transaction, "SET TRANSACTION READ WRITE; ROLLBACK TO nothing; COMMIT AND CHAIN");
        assert_eq!(replay(&transaction), ["BEGIN READ ONLY", "COMMIT AND CHAIN"]);
    }

    #[test]
    fn ending_no_transaction_warns() {
        let mut transaction = Transaction::default();
        assert_eq!(run(&mut transaction, "COMMIT; ROLLBACK"), "COMMIT! ROLLBACK!");
    }

    #[test]
    fn what_is_pending_is_bounded() {
        let mut transaction = Transaction::default();
        run(&mut transaction, "BEGIN");
        for _ in 0..PENDING_MAX {
            assert_eq!(run(&mut transaction, "SAVEPOINT a"), "SAVEPOINT");
        }
        assert_eq!(run(&mut transaction, "SAVEPOINT a"), "-");
        let mut transaction = Transaction::default();
        run(&mut transaction, "BEGIN");
        let long = format!("SAVEPOINT {}", "a".repeat(PENDING_BYTES_MAX));
        assert_eq!(run(&mut transaction, &long), "-");
        let long = format!("BEGIN /* {} */ ISOLATION LEVEL SERIALIZABLE", "a".repeat(PENDING_BYTES_MAX));
        assert_eq!(run(&mut Transaction::default(), &long), "-");
    }
}
