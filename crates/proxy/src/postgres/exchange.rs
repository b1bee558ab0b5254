//! One exchange with the server: what was sent, what answers are still due, and what each of them means.
//!
//! Sans-IO. Frames of the client go in and come out rewritten for the server ([`Exchange::client_frame`]);
//! frames of the server go in and come out for the client ([`Exchange::server_frame`]). In between stands a
//! queue of *steps*: one for each message that the server will answer, in order, and one for each answer
//! that we give ourselves (a statement that is prepared already), so that it comes out in its place. An
//! error in the extended protocol makes the server skip to the next Sync; the steps up to there are
//! dropped, and what they had changed in the client's table of statements is undone, last first.
//!
//! An exchange is done when nothing is due, no batch is open (every extended message is followed by a Sync)
//! and no COPY runs. The server connection can't go to another client before.
//!
//! # A client that pauses within a batch
//!
//! The server keeps answers back until a Sync or Flush, errors excepted. While a client pauses
//! the gate must know whether the server still works, so it sends a Flush of its own. A batch that has only
//! prepared, or that has failed, holds nothing in the server that is worth the connection: a Sync of ours
//! ends it, its ReadyForQuery is swallowed, and what the client sends next is another batch (or, behind an
//! error, is dropped up to the Sync that the client still owes).
//!
//! # A Sync behind a COPY
//!
//! libpq sends one behind the Execute, before it knows that a COPY begins, and another one behind the data.
//! The server ignores the first, if it reads it within the COPY: a COPY that fails before leaves it, and
//! answers both. So the first is held back until the server has said whether it awaits data. Then it is
//! dropped, unless copy data precede it: see [`copy`].
//!
//! # Copy data that come early
//!
//! A client that knows its statement may send copy data right behind the Execute. The server reads them
//! when the COPY has begun, and skips them if it fails. So copy messages belong to the Execute before them,
//! as long as the data haven't ended. What follows their end is answered behind the COPY.
//!
//! # Descriptions that the gate has told
//!
//! An exchange *aside* only prepares, for a group whose texts the gate can't describe yet. Each text is
//! prepared as the unnamed statement, with a Describe of ours behind it whose answer is learned.
//!
//! A statement that its client was told of by the gate ([`Prepared::told`]) is prepared on a connection
//! when it is bound there for the first time. It is described there, too, and the client's messages wait
//! for the answer: what has changed since fails, as in PostgreSQL, and doesn't run.
//!
//! # A deferred BEGIN
//!
//! It precedes the client's first statement as extended messages *without a Sync of their own*. If one of
//! them fails, the server skips what follows, also a simple Query, up to a Sync: the client's statement
//! can't run outside the transaction that it believes in.

use std::collections::VecDeque;
use std::mem;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::{Bytes, BytesMut};
use wire::postgres::backend::Status;
use wire::postgres::frontend;
use wire::sql::Touches;

use super::book::Effect;
use super::described::Epoch;
use super::parameters::Parameters;
use super::portals::Portal;
use super::prepared::{Prepared, ServerStatements, Undo};
use super::reject::Refusal;
use super::settings::ServerState;
use super::state::State;
use super::transaction::Transaction;

mod answer;
mod copy;
mod described;
mod request;
mod shift;
#[cfg(test)]
mod tests;

use shift::Shift;
pub(crate) use shift::characters;

/// The most steps of one exchange: a client that pipelines more waits until some are answered.
pub(crate) const STEPS_MAX: usize = 4096;

/// What a client has sent of its copy data before the server has asked for them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum EarlyData {
    Nothing,
    Begun,
    Ended,
}

/// What an exchange works on besides itself.
pub(crate) struct Scope<'a> {
    /// The client's session.
    pub(crate) session: &'a mut State,
    /// What is prepared and set on the server connection.
    pub(crate) server: &'a mut ServerState,
    /// What the server connection reported.
    pub(crate) parameters: &'a mut Parameters,
}

/// Something due.
#[derive(Debug)]
enum Step {
    Parse {
        id: u64,
        undo: Option<Undo>,
        client_name: Bytes,
        visible: bool,
    },
    /// A Bind. `statement` is the named statement that others share, if it binds one.
    Bind {
        statement: Option<Arc<Prepared>>,
        visible: bool,
    },
    /// A Describe. `statement` is the named statement that others share, if it describes one.
    Describe {
        statement: Option<Arc<Prepared>>,
    },
    /// A Describe of a statement whose result has changed: its client hears of the parameters, then an error.
    Parameters,
    /// A Describe of ours: whether a statement is what its client was told. `parameters` have been answered;
    /// `owed` goes to the client before an error: the parameters, if it has asked for them.
    Verify {
        statement: Arc<Prepared>,
        parameters: Bytes,
        owed: Bytes,
    },
    /// A Describe of ours: the gate learns what a text that the client prepares is.
    Learn {
        client_name: Bytes,
        statement: Arc<Prepared>,
        parameters: Bytes,
    },
    /// A Describe that fails on purpose; its error is replaced by ours.
    Doomed(Refusal),
    Execute {
        statement: Option<Arc<Prepared>>,
        effect: Effect,
        /// What it makes the server forget.
        forgotten: Option<Box<Forgotten>>,
        early: EarlyData,
        visible: bool,
    },
    Close {
        visible: bool,
    },
    Sync,
    /// A Sync of ours: the client hasn't sent its own yet.
    OwnSync,
    /// What its statements mean, and how many of them have succeeded. A Query that isn't malformed ends the
    /// unnamed statement.
    Query {
        effects: std::vec::IntoIter<(usize, Effect)>,
        done: usize,
        unnamed: Option<Undo>,
        /// Where the server's text isn't the client's.
        shifts: Vec<Shift>,
        /// It may end the transaction of the open batch that it stands in.
        ends_batch: bool,
    },
    Function,
    /// What the server has answered of the Syncs within a COPY that has failed, and of one of ours.
    CopySyncs {
        answers: Vec<Status>,
        /// The COPY was executed in a batch: the client owes its Sync, unless one is answered.
        is_batch: bool,
    },
    /// An answer of ours, and what to undo if it is never given.
    Local {
        answer: Bytes,
        undo: Option<Undo>,
    },
    /// Behind a Bind: what its portal's name stood for before, if the Bind is skipped.
    Bound {
        portal: Bytes,
        before: Option<Portal>,
    },
}

/// The statements that DISCARD ALL or DEALLOCATE ALL forgets, as they were. What the same batch prepares
/// behind it is new. So they are forgotten when it is sent, and remembered again if it fails.
#[derive(Debug)]
struct Forgotten {
    names: Undo,
    server: ServerStatements,
}

impl Scope<'_> {
    /// The statement that a portal was made of.
    fn bound(&self, portal: &[u8]) -> Option<&Arc<Prepared>> {
        self.session.portals.known.get(frontend::key(portal))?.statement.as_ref()
    }
}

/// The state of one exchange.
#[derive(Debug, Default)]
pub(crate) struct Exchange {
    steps: VecDeque<Step>,
    /// Steps of a deferred BEGIN that are not answered yet.
    prefix: usize,
    /// An error occurred: until its next Sync the client's messages are dropped, as the server would drop
    /// them.
    skipping: bool,
    /// Extended messages were sent and no Sync yet.
    batch_open: bool,
    /// The server reads copy data.
    copy_in: bool,
    /// It has done so, for the statement that was executed last.
    has_copied: bool,
    /// How many Syncs the client has sent within the COPY.
    copy_syncs: usize,
    /// The client's Sync is held back until it is known whether a COPY begins.
    sync_held: bool,
    /// The worst ErrorResponse that was seen.
    pub(crate) fault: Fault,
    /// The client was told of an error, and no ReadyForQuery has come since.
    has_told: bool,
    /// The simple Query that was sent follows no batch of the client's, so that no Sync of the client's
    /// will come.
    is_query_alone: bool,
    /// A deferred BEGIN failed.
    pub(crate) prefix_failed: bool,
    /// What all that was sent so far may do to rows and locks.
    pub(crate) touches: Touches,
    /// A COMMIT was sent.
    pub(crate) commits: bool,
    /// The status of the last ReadyForQuery.
    pub(crate) status: Option<Status>,
    /// Named statements used, in case their plans turn out to be stale.
    used: Vec<u64>,
    /// A Bind of the batch has the name of a portal that may not be there any more.
    rebinds: bool,
    /// Statements of the batch that were read before it was sent, in order.
    parsed: VecDeque<Arc<Prepared>>,
    /// What the batch began in.
    within: Within,
    /// A portal was made, or something ran.
    binds: bool,
    /// The client has asked for its answers with a Flush.
    asks: bool,
    /// The server was asked for the answers to all that it was sent.
    flushed: bool,
    /// The client's messages wait until a statement has been compared with what was told of it.
    is_verifying: bool,
    /// Only texts are prepared, outside of the client's transaction.
    pub(crate) aside: Option<Aside>,
    /// Whether that is given up where a text waits for a lock.
    pub(crate) patience: Arc<Patience>,
    /// How many bytes of the last message are still to be passed on unchanged.
    tail: usize,
    /// The exchange has ended with an error before the client's Sync: up to that, its messages are to be
    /// dropped.
    pub(crate) client_owes_sync: bool,
}

/// What has failed of an exchange or of a request; the worst counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Fault {
    /// Nothing.
    #[default]
    None,
    /// Something, for a reason of its own.
    Error,
    /// Something, because of other transactions.
    Conflict,
}

impl Fault {
    /// Adds what else has failed.
    pub(crate) fn add(&mut self, other: Self) {
        *self = other.max(*self);
    }
}

/// What a batch began in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Within {
    /// No transaction but its own.
    #[default]
    Nothing,
    /// An explicit transaction, which what was sent since may have ended.
    Transaction,
    /// An explicit transaction that had failed, and nothing that ends it was sent since.
    Failed,
}

impl Within {
    fn of(before: &Transaction) -> Self {
        match before {
            Transaction::Idle => Self::Nothing,
            _ if before.status() == Status::Failed => Self::Failed,
            _ => Self::Transaction,
        }
    }

    /// Notes that something was sent that ends a failed transaction.
    fn leave_failed(&mut self) {
        if *self == Self::Failed {
            *self = Self::Transaction;
        }
    }
}

/// An exchange in which texts are prepared aside.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Aside {
    /// Since when what is learned holds.
    pub(crate) epoch: Epoch,
    /// Whether the client has sent its Sync.
    pub(crate) is_whole: bool,
    /// The server has given a notice, which every client that prepares the same text is to hear, too.
    pub(crate) has_notice: bool,
}

/// Whether a text that is prepared aside is given up, to be prepared elsewhere.
#[derive(Debug, Default)]
pub(crate) struct Patience {
    has_asked: AtomicBool,
    is_over: AtomicBool,
}

impl Patience {
    /// The server is asked to cancel it.
    pub(crate) fn ask(&self) {
        self.has_asked.store(true, Ordering::Relaxed);
    }

    /// Whether the server has canceled it before its client was told anything.
    pub(crate) fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Relaxed)
    }
}

impl Exchange {
    /// An exchange about to begin; `parsed` are the batch's Parse messages, read already; `before`: the
    /// transaction that it begins in.
    pub(crate) fn new(parsed: VecDeque<Arc<Prepared>>, before: &Transaction) -> Self {
        Self { touches: Touches::Nothing, parsed, within: Within::of(before), ..Self::default() }
    }

    /// An exchange in which the texts of a group are prepared, outside of any transaction.
    pub(crate) fn aside(parsed: VecDeque<Arc<Prepared>>, epoch: Epoch, is_whole: bool) -> Self {
        let aside = Some(Aside { epoch, is_whole, has_notice: false });
        Self { aside, ..Self::new(parsed, &Transaction::Idle) }
    }

    /// A client may prepare, ask for the answers with Flush and think for a while before it goes on
    /// (asyncpg does), or hear of an error and leave its Sync for later. Nothing of that is a transaction,
    /// so the server connection needn't wait: the batch ends here, and the client's next messages are
    /// another one.
    pub(crate) fn end_early(&mut self, out: &mut BytesMut) {
        let holds_nothing = self.skipping || (self.asks && !self.binds);
        if self.batch_open
            && self.steps.is_empty()
            && !self.copy_in
            && self.within == Within::Nothing
            && holds_nothing
        {
            self.end_batch(out);
        }
    }

    /// Ends the batch by a Sync of ours: the client hasn't sent its own yet.
    pub(crate) fn end_batch(&mut self, out: &mut BytesMut) {
        frontend::write_sync(out);
        self.steps.push_back(Step::OwnSync);
        self.client_owes_sync |= mem::take(&mut self.skipping);
        self.batch_open = false;
    }

    /// Whether the server may keep back answers that the client hasn't asked for.
    pub(crate) fn may_be_kept_back(&self) -> bool {
        self.batch_open && !self.flushed && !self.copy_in && !self.steps.is_empty()
    }

    /// Asks the server for the answers to all that it was sent.
    pub(crate) fn flush(&mut self, out: &mut BytesMut) {
        frontend::write_flush(out);
        self.flushed = true;
    }

    /// Whether what a transaction that was like this `before` has ended with was of use to its client: a
    /// COMMIT that has committed, or what was no part of a transaction block and has succeeded.
    pub(crate) fn is_of_use(&self, before: &Transaction) -> bool {
        let ends_well = match before {
            Transaction::Idle => true,
            Transaction::Open(Status::Failed) => false,
            _ => self.commits,
        };
        ends_well && self.fault == Fault::None
    }

    /// How many bytes of the last message, its end, the caller has to pass on. They are too many to be
    /// copied.
    pub(crate) fn tail(&self) -> usize {
        self.tail
    }

    /// Takes the number of these bytes.
    pub(crate) fn take_tail(&mut self) -> usize {
        mem::take(&mut self.tail)
    }

    /// Whether all is answered.
    pub(crate) fn is_done(&self) -> bool {
        self.steps.is_empty() && !self.batch_open && !self.copy_in && !self.sync_held
    }

    /// Whether the client's next messages belong to this exchange.
    pub(crate) fn wants_client(&self) -> bool {
        (self.batch_open || self.copy_in)
            && !self.is_verifying
            && !self.has_open_syncs()
            && self.steps.len() < STEPS_MAX
    }

    /// Whether the client's last message was not taken: it waits until a statement has been compared with
    /// what was told of it.
    pub(crate) fn is_verifying(&self) -> bool {
        self.is_verifying
    }

    /// Whether the client is within a batch, and will end it with a Sync.
    pub(crate) fn awaits_sync(&self) -> bool {
        self.batch_open || self.aside.is_some_and(|aside| !aside.is_whole)
    }

    /// Whether the client has been told of an error that only a ReadyForQuery can follow: what it is in is
    /// undone.
    pub(crate) fn has_told_of_error(&self) -> bool {
        self.has_told
    }

    /// Whether the server waits for the client and not the client for the server.
    pub(crate) fn is_client_paced(&self) -> bool {
        self.copy_in || self.is_paused()
    }

    /// Whether the client is within a batch, and all that it has said so far is answered.
    pub(crate) fn is_paused(&self) -> bool {
        self.batch_open && !self.copy_in && self.steps.is_empty()
    }

    /// Whether the client's copy data are for the server: it reads them, or will.
    pub(crate) fn takes_copy_data(&self) -> bool {
        self.copy_in || self.is_about_to_copy()
    }

    /// Whether the server reads copy data.
    pub(crate) fn is_copy_in(&self) -> bool {
        self.copy_in
    }

    /// The server connection is lost: what it hasn't answered has not happened, as far as the client's
    /// statements are concerned.
    pub(crate) fn lost(&mut self, session: &mut State) {
        for step in self.steps.drain(..).rev() {
            match step {
                Step::Parse { undo: Some(undo), .. }
                | Step::Local { undo: Some(undo), .. }
                | Step::Query { unnamed: Some(undo), .. } => session.statements.undo(undo),
                Step::Execute { forgotten: Some(forgotten), .. } => session.statements.undo(forgotten.names),
                _ => {}
            }
        }
    }

    /// The client is gone: ends what it left open, so that the server comes to an end too. To be called
    /// again whenever the server has said something. What a client hasn't synced isn't committed for it.
    pub(crate) fn abandon(&mut self, out: &mut BytesMut) {
        let copied = mem::take(&mut self.copy_in);
        if copied {
            frontend::write_copy_fail(out, b"the client is gone");
        }
        if !self.batch_open || self.has_open_syncs() {
            return;
        }
        if self.binds && !copied && !self.skipping {
            if !self.steps.is_empty() {
                // One of them may begin a COPY, in which what follows would be taken for something else.
                if !mem::replace(&mut self.flushed, true) {
                    frontend::write_flush(out);
                }
                return;
            }
            // The error is for nobody.
            self.doom(Refusal::no_such_statement(b""), out);
        }
        frontend::write_sync(out);
        self.steps.push_back(Step::Sync);
        (self.skipping, self.batch_open) = (false, false);
    }
}
