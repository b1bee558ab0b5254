//! Batches of the extended protocol, read before they are sent: what a batch is about decides whether it
//! waits, and some need no server at all.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;

use bytes::BytesMut;
use wire::postgres::ProtocolError;
use wire::postgres::backend;
use wire::postgres::codec::frontend_frame;
use wire::postgres::frontend::{self, Message, Target, key};
use wire::sql::statements;

use super::portals::Portals;
use super::prepared::{Prepared, Undo};
use super::reject::Refusal;
use super::state::State;
use super::transaction::{Control, Left, Transaction};

/// How far a batch has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Until {
    /// To its Sync: it is whole.
    Sync,
    /// To a Flush: the client wants the answers before it goes on.
    Flush,
    /// To where it is sent on, though more of it may be there: it has grown long, or the session holds the
    /// connection of an open transaction, or a simple Query ends it.
    More,
    /// To where the client paused.
    Pause,
}

impl Until {
    /// Whether the client awaits ReadyForQuery; otherwise the rest of its batch is still to come.
    pub(crate) fn is_whole(self) -> bool {
        self == Self::Sync
    }
}

/// What a batch is about.
#[derive(Debug, Default)]
pub(crate) struct Batch {
    /// Its Parse messages, read.
    pub(crate) parsed: VecDeque<Arc<Prepared>>,
    /// The first statement that isn't control.
    pub(crate) first: Option<Arc<Prepared>>,
    /// How many times something runs.
    pub(crate) executes: usize,
    /// Something is bound, so that a portal may be open.
    pub(crate) binds: bool,
    /// It describes what the client was told of before tables have changed.
    pub(crate) compares: bool,
    /// Every statement is control, so that the session may be able to answer by itself.
    pub(crate) is_control: bool,
    /// A message isn't well-formed.
    pub(crate) is_malformed: bool,
}

/// Reads the frames of a batch. Of a malformed one only the server can say what is wrong.
pub(crate) fn read(state: &State, bytes: &[u8]) -> Batch {
    let mut batch = Batch { is_control: true, ..Batch::default() };
    // Looked up by hash: a batch has room for tens of thousands of names.
    let mut named: HashMap<&[u8], Arc<Prepared>> = HashMap::new();
    let mut bound: HashSet<&[u8]> = HashSet::new();
    for (start, length, message) in messages(bytes) {
        let Ok(message) = message else {
            (batch.is_control, batch.is_malformed) = (false, true);
            continue;
        };
        match message {
            Message::Parse { name, sql, parameter_types } => {
                let statement = state.prepare(name, sql, parameter_types);
                batch.about(&statement);
                batch.parsed.push_back(Arc::clone(&statement));
                named.insert(key(name), statement);
            }
            Message::Bind { portal, statement, .. } => {
                bound.insert(key(portal));
                batch.binds = true;
                match named.get(key(statement)).or_else(|| state.statements.get(statement)) {
                    Some(statement) => batch.about(&Arc::clone(statement)),
                    None => batch.is_control = false,
                }
            }
            Message::Execute { portal, .. } => {
                batch.executes += 1;
                batch.is_control &= bound.contains(key(portal));
            }
            Message::Describe { target: Target::Statement, name } => {
                let is_told =
                    |it: &Arc<Prepared>| !named.contains_key(key(name)) && !state.may_tell_again(it);
                batch.compares |= state.statements.get(name).is_some_and(is_told);
                batch.is_control &= named.contains_key(key(name))
                    || state.statements.get(name).is_some_and(|it| it.analysis.is_control);
            }
            Message::Describe { target: Target::Portal, name } => {
                batch.is_control &= bound.contains(key(name));
            }
            Message::FunctionCall => {
                batch.is_control = false;
                state.analyze_function(&bytes[start..start + length]);
            }
            _ => {}
        }
    }
    batch
}

impl Batch {
    /// Nothing of it runs: it prepares, describes or closes.
    pub(crate) fn prepares_only(&self) -> bool {
        !self.binds && self.executes == 0
    }

    fn about(&mut self, statement: &Arc<Prepared>) {
        if !statement.analysis.is_control {
            self.is_control = false;
            self.first.get_or_insert_with(|| Arc::clone(statement));
        }
    }
}

/// The complete messages of a batch, each with where it begins and how long it is.
fn messages(bytes: &[u8]) -> impl Iterator<Item = (usize, usize, Result<Message<'_>, ProtocolError>)> {
    let mut start = 0;
    std::iter::from_fn(move || {
        let rest = &bytes[start..];
        let frame = frontend_frame(rest).ok()??;
        let message = frontend::parse(frame.tag, frame.body(rest)?);
        start += frame.len;
        Some((start - frame.len, frame.len, message))
    })
}

/// What was answered without the server.
pub(crate) struct Answered {
    pub(crate) out: BytesMut,
    /// How much of the batch that answers: a batch that ends a refused transaction may go on with something
    /// for the server.
    pub(crate) length: usize,
    /// The answer ends with an error: what follows up to the Sync is to be skipped.
    pub(crate) skips: bool,
}

/// What the Parse messages of a group make that only prepares, where the server has described every text of
/// it already.
pub(crate) fn recall(state: &State, bytes: &[u8], batch: &Batch) -> Option<VecDeque<Arc<Prepared>>> {
    let mut parsed = batch.parsed.iter();
    let mut recalled = VecDeque::with_capacity(batch.parsed.len());
    for (_, _, message) in messages(bytes) {
        if let Ok(Message::Parse { name, .. }) = message {
            let statement = parsed.next()?;
            let is_ours = statement.analysis.is_control;
            recalled.push_back(if is_ours {
                Arc::clone(statement)
            } else {
                state.recall(name, statement)?
            });
        }
    }
    Some(recalled)
}

/// Answers a batch of transaction control, or of statements that were recalled, without the server, if that
/// can be done; `None` leaves everything as it was.
pub(crate) fn answer_locally(
    state: &mut State,
    transaction: &mut Transaction,
    bytes: &[u8],
    parsed: &VecDeque<Arc<Prepared>>,
) -> Option<Answered> {
    let before = transaction.clone();
    let refused = matches!(transaction, Transaction::Refused(_));
    let mut answer =
        Local { out: BytesMut::new(), parsed: parsed.iter(), bound: HashMap::new(), failed: false };
    let mut undo = Vec::new();
    let mut synced = false;
    let mut is_ours = true;
    for (start, length, message) in messages(bytes) {
        synced = bytes[start] == b'S';
        is_ours = match &message {
            Ok(message) => answer.message(state, transaction, message, &mut undo),
            Err(error) => refused && answer.malformed(error, synced, transaction),
        };
        if refused && is_ours && !answer.failed && !matches!(transaction, Transaction::Refused(_)) {
            // The refused transaction has ended: what follows is another batch, and may be the server's.
            return Some(Answered { out: answer.out, length: start + length, skips: false });
        }
        if !is_ours && refused {
            return Some(Answered { out: answer.out, length: start, skips: false });
        }
        if !is_ours {
            break;
        }
    }
    // What follows in the batch may use the portal, and be the server's.
    let ends = synced && (answer.bound.is_empty() || matches!(transaction, Transaction::Idle));
    if is_ours && (ends || refused || answer.failed || !synced && answer.bound.is_empty()) {
        return Some(Answered { out: answer.out, length: bytes.len(), skips: answer.failed });
    }
    *transaction = before;
    undo.into_iter().rev().for_each(|change| state.statements.undo(change));
    None
}

struct Local<'a> {
    out: BytesMut,
    parsed: std::collections::vec_deque::Iter<'a, Arc<Prepared>>,
    /// Portals of this batch.
    bound: HashMap<Vec<u8>, Arc<Prepared>>,
    /// An error was answered: all up to the Sync is skipped.
    failed: bool,
}

impl Local<'_> {
    /// Answers one message; `false` if only the server can.
    fn message(
        &mut self,
        state: &mut State,
        transaction: &mut Transaction,
        message: &Message<'_>,
        undo: &mut Vec<Undo>,
    ) -> bool {
        if self.failed && *message != Message::Sync {
            return true;
        }
        let refused = matches!(transaction, Transaction::Refused(_));
        match message {
            Message::Sync => {
                self.failed = false;
                backend::write_ready(&mut self.out, transaction.status());
            }
            Message::Parse { name, .. } => {
                let Some(statement) = self.parsed.next() else { return false };
                if refused && !statement.ends_failed() && !statement.is_empty() {
                    return match is_several(statement) {
                        true => self.err(&Refusal::several_statements()),
                        false => self.fail(transaction),
                    };
                }
                // With a server connection of its own, the client's names are the server's: it must know
                // them.
                let is_known = statement.analysis.is_control || statement.told.is_some();
                if !is_known || (!state.shared && !name.is_empty()) {
                    return refused && self.fail(transaction);
                }
                // A name that is taken, and one too many, are errors that the server gives in its place.
                if !name.is_empty() && state.statements.get(name).is_some() {
                    return refused && self.err(&Refusal::statement_exists(name));
                }
                if !name.is_empty() && state.statements.is_full() {
                    return refused && self.fail(transaction);
                }
                undo.push(state.statements.set(name, Some(Arc::clone(statement))));
                backend::write_parse_complete(&mut self.out);
            }
            Message::Bind { portal, statement, rest } => {
                let Some(known) = state.statements.get(statement) else {
                    return refused && self.err(&Refusal::no_such_statement(statement));
                };
                // The server compares the counts first, then asks for the transaction, then reads the values.
                if !known.takes(rest) {
                    return refused && self.err(&Refusal::bound_values(statement, rest));
                }
                if !known.analysis.is_control || refused && !known.ends_failed() {
                    return refused && self.fail(transaction);
                }
                if let Err(error) = frontend::check_bind(rest) {
                    return refused && self.err(&Refusal::malformed(&error));
                }
                let statement = Arc::clone(known);
                // Whether a named portal exists already, only the server knows.
                if !portal.is_empty() && !refused {
                    return false;
                }
                if refused && !state.portals.keep(key(portal), Arc::clone(&statement)) {
                    return self.fail(transaction);
                }
                self.bound.insert(key(portal).to_vec(), statement);
                backend::write_bind_complete(&mut self.out);
            }
            Message::Describe { target, name } => {
                if *target == Target::Statement {
                    let Some(known) = state.statements.get(name) else {
                        return refused && self.err(&Refusal::no_such_statement(name));
                    };
                    let is_asked = refused || known.is_stale() || !state.may_tell_again(known);
                    if let (Some(told), false) = (&known.told, is_asked) {
                        self.out.extend_from_slice(told.frames());
                        return true;
                    }
                    if let Some(frames) = refused.then(|| known.described_without_rows()).flatten() {
                        self.out.extend_from_slice(&frames);
                        return true;
                    }
                    if !known.analysis.is_control {
                        return refused && self.fail(transaction);
                    }
                    backend::write_parameter_description_empty(&mut self.out);
                }
                backend::write_no_data(&mut self.out);
            }
            Message::Close { target, name } => {
                if *target == Target::Statement {
                    if !state.shared {
                        return refused && self.fail(transaction);
                    }
                    undo.push(state.statements.set(name, None));
                } else {
                    self.bound.remove(key(name));
                    if refused {
                        state.portals.take(key(name));
                    }
                }
                backend::write_close_complete(&mut self.out);
            }
            Message::Execute { portal, .. } => {
                let portal_key = key(portal);
                // A failed transaction keeps the portals of its earlier batches.
                let kept = if refused { state.portals.take(portal_key) } else { None };
                // An empty text runs as often as it is asked for.
                let bound = match self.bound.get(portal_key) {
                    Some(statement) if statement.is_empty() => Some(Arc::clone(statement)),
                    _ => self.bound.remove(portal_key).or(kept),
                };
                let Some(statement) = bound else {
                    let left = if portal.is_empty() { transaction.left() } else { Left::Nothing };
                    return refused
                        && match left {
                            Left::Nothing => self.err(&Refusal::no_such_portal(portal)),
                            Left::Done => self.fail(transaction),
                            Left::Failed => self.err(&Refusal::spent_portal(portal)),
                        };
                };
                let is_ours = self.execute(state, transaction, &statement, undo);
                if portal.is_empty() {
                    // Portals end with their transaction.
                    let ends = !self.failed && statement.ends_failed();
                    transaction.leave(if ends { Left::Nothing } else { Left::Done });
                }
                return is_ours;
            }
            _ => {}
        }
        true
    }

    fn execute(
        &mut self,
        state: &mut State,
        transaction: &mut Transaction,
        prepared: &Prepared,
        undo: &mut Vec<Undo>,
    ) -> bool {
        for statement in statements(&prepared.sql, prepared.analysis.reading.standard_strings) {
            match control(state, transaction, &statement, undo) {
                Control::Tag(tag) => backend::write_command_complete(&mut self.out, tag),
                Control::TagWithWarning(tag) => {
                    super::reject::warn_no_transaction(&mut self.out);
                    backend::write_command_complete(&mut self.out, tag);
                }
                Control::Empty => backend::write_empty_query(&mut self.out),
                Control::Error(refusal) => {
                    refusal.write(&mut self.out);
                    self.failed = true;
                }
                Control::Forward => return false,
            }
        }
        true
    }

    /// A failed transaction changes nothing about a malformed message.
    fn malformed(&mut self, error: &ProtocolError, is_sync: bool, transaction: &Transaction) -> bool {
        if is_sync || !self.failed {
            self.err(&Refusal::malformed(error));
        }
        if is_sync {
            self.failed = false;
            backend::write_ready(&mut self.out, transaction.status());
        }
        true
    }

    /// An error of ours in the server's place; the rest of the batch is skipped.
    fn err(&mut self, refusal: &Refusal) -> bool {
        refusal.write(&mut self.out);
        self.failed = true;
        true
    }

    /// Answers with PostgreSQL's error for a statement in a failed transaction.
    fn fail(&mut self, transaction: &mut Transaction) -> bool {
        let failure = transaction.failure();
        self.err(&failure)
    }
}

/// Serves a statement without the server if that can be done: transaction control, and DEALLOCATE of what
/// only we know by that name.
pub(crate) fn control(
    state: &mut State,
    transaction: &mut Transaction,
    statement: &wire::sql::Statement<'_>,
    undo: &mut Vec<Undo>,
) -> Control {
    use wire::postgres::backend::Status;
    use wire::sql::Kind;
    if !state.shared && statement.kind == Kind::Empty && matches!(transaction, Transaction::Idle) {
        // A ping is to find out whether the session's server process lives.
        return Control::Forward;
    }
    if let Kind::Deallocate { name } = &statement.kind {
        let name = name.as_ref().map(|name| bytes::Bytes::copy_from_slice(name));
        if state.shared && state.is_ours(&name) && transaction.status() == Status::Idle {
            let (before, tag) = state.statements.deallocate(&name);
            return match before {
                Ok(before) => {
                    undo.extend(before);
                    Control::Tag(tag)
                }
                Err(refusal) => Control::Error(refusal),
            };
        }
    }
    let was_refused = matches!(transaction, Transaction::Refused(_));
    let control = transaction.control(statement);
    if was_refused && !matches!(transaction, Transaction::Refused(_)) {
        // Its portals end with it.
        state.portals = Portals::default();
    }
    match control {
        // The client may have chosen not to hear warnings, by a statement or by what pins it.
        Control::TagWithWarning(_)
            if !state.pins.is_empty() || state.settings.book.in_force("client_min_messages").is_some() =>
        {
            Control::Forward
        }
        control => control,
    }
}

fn is_several(prepared: &Prepared) -> bool {
    let of_any = |it: &wire::sql::Statement<'_>| it.kind != wire::sql::Kind::Empty;
    statements(&prepared.sql, prepared.analysis.reading.standard_strings).filter(of_any).count() > 1
}
