//! Endings out of the ordinary: the client leaves, the server is lost, and what becomes of the transaction
//! then.
//!
//! * A client that is gone while its COMMIT or its autocommit write runs, or after it said good-bye: the
//!   statement finishes, its result is thrown away. Otherwise the statement is canceled. Then what is open
//!   is rolled back, and the server connection goes back to its pool, healthy; it is closed only if that
//!   takes too long.
//! * A server connection lost before anything was sent costs nothing; with a statement unanswered, the
//!   outcome is unknown (08007); within a transaction, the transaction is gone (08006). Behind an error
//!   that the client was told of nothing is unknown: only its ReadyForQuery is given. The session lives on,
//!   unless it was pinned, or the connection its own: then the same is said by its last word.

use std::future::poll_fn;
use std::time::Duration;

use bytes::BytesMut;
use tokio::sync::Notify;
use tokio::time::timeout;
use wire::postgres::backend::{self, Status, parse_error};
use wire::postgres::codec::{HEADER_LEN, backend_frame};
use wire::sql::{Pins as Reasons, Touches};

use super::OnDisconnect;
use super::exchange::{Exchange, Fault};
use super::forward::{End, Parts, Relay};
use super::query_error::QueryError;
use super::reject::Refusal;
use super::roster::Ends;
use super::server::{ROUND_TRIP_LIMIT, Server};
use super::session::{Flow, Session};
use super::transaction::Transaction;
use crate::stream::poll_fill;

/// How long a canceled statement is waited for before it is canceled again.
const CANCEL_AGAIN: Duration = Duration::from_millis(250);

/// What brings a connection to what it was after its login.
const DISCARD: &str = "DISCARD ALL";
/// How often that is tried again.
const DISCARDS_MAX: usize = 16;
/// What makes `random()` forget its seed.
const RESEED: &str = "SELECT pg_catalog.setseed(pg_catalog.date_part('microseconds', \
                      pg_catalog.clock_timestamp()) / 1e8)";

/// What a server said to nobody in particular.
pub(super) enum Heard {
    /// Notices, notifications and settings for the client.
    Messages(BytesMut),
    /// The connection is lost; what the server said last.
    Lost(Option<String>),
}

/// Waits until the server says something unasked. Waits forever without a server. Cancel-safe.
pub(super) async fn watch(server: &mut Option<Server>) -> Heard {
    let Some(Server { stream, input, parameters, .. }) = server.as_mut() else {
        return std::future::pending().await;
    };
    let mut messages = BytesMut::new();
    loop {
        let Ok(frame) = backend_frame(input) else { return Heard::Lost(Some("nonsense".to_owned())) };
        if let Some(frame) = frame.filter(|frame| frame.len <= input.len()) {
            let bytes = input.split_to(frame.len);
            match frame.tag {
                b'S' => {
                    if let Ok((name, value)) = backend::parse_parameter_status(&bytes[HEADER_LEN..]) {
                        parameters.set(name, value);
                    }
                    messages.extend_from_slice(&bytes);
                }
                b'N' | b'A' => messages.extend_from_slice(&bytes),
                b'E' => return Heard::Lost(Some(said(&bytes[HEADER_LEN..]))),
                _ => return Heard::Lost(Some("an answer to nothing".to_owned())),
            }
        } else if !messages.is_empty() {
            return Heard::Messages(messages);
        } else if !matches!(poll_fn(|context| poll_fill(stream, input, context)).await, Ok(1..)) {
            return Heard::Lost(None);
        }
    }
}

/// Whether no transaction was open at the end of the exchange.
fn is_idle(exchange: &Exchange) -> bool {
    exchange.status.unwrap_or(Status::Idle) == Status::Idle
}

fn said(body: &[u8]) -> String {
    let fields = parse_error(body);
    format!("{} {}", fields.code(), String::from_utf8_lossy(fields.message()))
}

/// Whether anything belongs to the connection's schema of temporary objects. (2615 is `pg_namespace`.)
const HAS_TEMPORARY: &str = "SELECT EXISTS (SELECT FROM pg_catalog.pg_depend \
    WHERE refclassid OPERATOR(pg_catalog.=) 2615::pg_catalog.oid \
    AND refobjid OPERATOR(pg_catalog.=) pg_catalog.pg_my_temp_schema())";

/// How long a canceled statement may take to end before its connection is closed.
const CANCEL_LIMIT: Duration = Duration::from_secs(5);

/// What a session is told that somebody, or its own idleness, has ended.
pub(super) fn farewell(why: Ends) -> Refusal {
    match why {
        Ends::ByIdleness => Refusal::idle_in_transaction(),
        Ends::Never | Ends::ByOperator => Refusal::ended_by_operator(),
    }
}

impl Session {
    /// The client has left, and nothing of it runs. A client that says good-bye within a transaction rolls it
    /// back, for reasons of its own. A client that doesn't waits no longer for the rest of it, and what is
    /// rolled back then was of no use to anybody.
    pub(super) fn left_between_statements(&mut self) {
        if self.transaction.is_open() && !self.terminated {
            self.fault.add(Fault::Error);
            if let Some(permit) = &self.state.permit {
                permit.left();
            }
        }
    }

    /// The server has said something while the client was silent.
    pub(super) fn heard_while_idle(&mut self, heard: Heard) -> Result<(), Option<Refusal>> {
        match heard {
            Heard::Messages(mut messages) => {
                self.note_messages(&mut messages);
                self.client.output.extend_from_slice(&messages);
                Ok(())
            }
            Heard::Lost(said) => {
                let keeps_state = !self.state.shared || !self.state.pins.is_empty();
                self.discard_server();
                self.fault.add(Fault::Error);
                self.end_request();
                if keeps_state {
                    return Err(Some(Refusal::session_lost(said.as_deref())));
                }
                // The client hears of it with its next statement; until then its transaction has failed.
                self.transaction = Transaction::lost(Some(Refusal::transaction_lost(said.as_deref())));
                Ok(())
            }
        }
    }

    fn note_messages(&mut self, mut messages: &mut [u8]) {
        while let Ok(Some(frame)) = backend_frame(messages) {
            let Some((message, rest)) = messages.split_at_mut_checked(frame.len) else { return };
            let parameter = backend::parse_parameter_status(&message[HEADER_LEN..]);
            if let (b'S', Ok((name, value))) = (frame.tag, parameter) {
                self.state.settings.reports_unasked(name, value);
            } else if let Some(server) = &self.server {
                self.state.own_notification(&server.session_state, message);
            }
            messages = rest;
        }
    }

    /// The server connection was lost when all was answered: as if it had been lost a moment later.
    pub(super) async fn lost_behind_answer(&mut self, exchange: &Exchange, said: Option<String>) -> Flow {
        if is_idle(exchange) && self.state.shared && self.state.pins.is_empty() {
            self.discard_server();
            return self.exchanged(exchange).await;
        }
        let flow = self.exchanged(exchange).await;
        match self.heard_while_idle(Heard::Lost(said)) {
            Ok(()) => flow,
            Err(refusal) => {
                refusal.into_iter().for_each(|refusal| refusal.write(&mut self.client.output));
                self.client.flush().await;
                Flow::Close
            }
        }
    }

    /// The server connection was lost within an exchange; `in_message`: one side has got half a message.
    pub(super) async fn server_lost(
        &mut self,
        mut exchange: Exchange,
        said: Option<&str>,
        in_message: bool,
    ) -> Flow {
        let keeps_state = !self.state.shared || !self.state.pins.is_empty();
        let in_transaction = !matches!(self.transaction, Transaction::Idle);
        let synced = !exchange.awaits_sync();
        exchange.lost(&mut self.state);
        self.discard_server();
        self.fault.add(Fault::Error);
        self.end_request();
        if in_message {
            return Flow::Close;
        }
        let is_undone = in_transaction && !exchange.commits;
        let is_told = exchange.has_told_of_error();
        if keeps_state {
            let refusal = if is_undone || is_told {
                Refusal::session_lost(said)
            } else {
                Refusal::session_lost_unanswered(said)
            };
            refusal.write(&mut self.client.output);
            self.client.flush().await;
            return Flow::Close;
        }
        self.transaction = if is_undone { Transaction::lost(None) } else { Transaction::Idle };
        if !is_told {
            let refusal =
                if is_undone { Refusal::transaction_lost(said) } else { Refusal::outcome_unknown(said) };
            refusal.write(&mut self.client.output);
        }
        self.end_failed(synced)
    }

    /// The client broke the protocol in mid-exchange: a last word, and the server connection is put in order.
    pub(super) async fn broken(&mut self, exchange: Exchange, parts: Parts, refusal: &Refusal) -> Flow {
        refusal.write(&mut self.client.output);
        self.client.flush().await;
        self.client.is_gone = true;
        self.without_client(exchange, parts).await
    }

    /// The session is told to end in mid-exchange: a last word, unless the client has got half a message.
    pub(super) async fn end_killed(&mut self, exchange: Exchange, parts: Parts) -> Flow {
        if parts.from_server == 0 {
            self.say_killed().await;
        }
        self.without_client(exchange, parts).await
    }

    /// The last word of a session that is told to end, for as long as a client may take to hear it.
    pub(super) async fn say_killed(&mut self) -> Flow {
        farewell(self.place.card.ends()).write(&mut self.client.output);
        let _ = timeout(ROUND_TRIP_LIMIT, self.client.flush()).await;
        Flow::Close
    }

    /// The client is gone in mid-exchange. In a box of its own: what few sessions come to needs more room
    /// than the rest of a session, and each that is idle would hold it.
    pub(super) async fn without_client(&mut self, exchange: Exchange, parts: Parts) -> Flow {
        Box::pin(self.end_exchange(exchange, parts)).await
    }

    async fn end_exchange(&mut self, mut exchange: Exchange, parts: Parts) -> Flow {
        self.client.is_gone = true;
        if let Some(permit) = self.state.permit.as_ref().filter(|_| !self.is_killed) {
            permit.left();
        }
        let autocommit = matches!(self.transaction, Transaction::Idle);
        let finish = match self.shared.settings().on_disconnect {
            // An operator who ends a session wants its statement ended, too; only what is about to be durable
            // isn't touched.
            _ if self.is_killed => exchange.commits,
            OnDisconnect::Finish => true,
            OnDisconnect::Cancel => false,
            // What it hasn't synced will not be committed: there is nothing to finish.
            OnDisconnect::Auto if exchange.awaits_sync() => exchange.commits,
            OnDisconnect::Auto => {
                self.terminated
                    || exchange.commits
                    || (autocommit && exchange.touches == Touches::Anything && !exchange.is_copy_in())
            }
        };
        let Some(mut server) = self.server.take() else { return Flow::Close };
        if parts.from_client > 0 {
            // Half a message of the client's was sent: nothing can follow it but the end.
            self.server = Some(server);
            self.discard_server();
            return Flow::Close;
        }
        exchange.abandon(&mut self.to_server);
        let mut relay = Relay {
            exchange: &mut exchange,
            session: &mut self.state,
            client: &mut self.client,
            server: &mut server,
            to_server: &mut self.to_server,
            clock: self.shared.driver.clock(),
            client_time: Duration::ZERO,
            parts,
            rests: false,
            message_max: Duration::MAX,
            rest_by: None,
        };
        let end = if finish {
            tokio::select! {
                end = relay.run_out() => Some(end),
                () = self.ending.aborting() => None,
            }
        } else {
            let (process_id, secret) = self.cancel.key();
            let ended = Notify::new();
            let running = async {
                let end = relay.run_out().await;
                ended.notify_one();
                end
            };
            let canceling = async {
                loop {
                    self.shared.cancel.cancel(process_id, secret).await;
                    // One that overtook its statement had no effect.
                    if timeout(CANCEL_AGAIN, ended.notified()).await.is_ok() {
                        return;
                    }
                }
            };
            let both = async { tokio::join!(running, canceling).0 };
            timeout(CANCEL_LIMIT, both).await.ok()
        };
        self.server = Some(server);
        if matches!(end, Some(End::Done)) {
            let status = exchange.status.unwrap_or(Status::Idle);
            self.transaction = Transaction::of(status);
            // Nobody is there to commit it.
            if status != Status::Idle {
                self.fault.add(Fault::Error);
            }
        } else {
            self.discard_server();
        }
        Flow::Close
    }

    /// A search path may make temporary objects of what is created, and no text need show it: asks the server
    /// whether the connection has any.
    pub(super) async fn look_for_temporary(&mut self) {
        let creates = std::mem::take(&mut self.state.creates);
        let is_asked =
            creates && self.state.shared && !self.state.settings.book.held().contains(Reasons::TEMPORARY);
        let Some(server) = self.server.as_mut().filter(|_| is_asked) else { return };
        match server.simple_query(HAS_TEMPORARY, ROUND_TRIP_LIMIT).await {
            Ok(answer) if answer.value.as_deref() == Some(b"f") => {}
            Err(error) if !error.leaves_connection_usable() => self.discard_server(),
            _ => self.state.send_pins(Reasons::TEMPORARY),
        }
    }

    /// A session that came to be pinned by what the server has confirmed keeps its connection as any other:
    /// with the gate's leave. Without it the session ends, and its connection is put in order.
    pub(super) async fn keep_if_pinned(&mut self) -> Flow {
        if !self.state.shared || self.state.pins.is_empty() {
            return Flow::Continue;
        }
        let Err(refusal) = self.state.pin() else { return Flow::Continue };
        refusal.write(&mut self.client.output);
        self.client.flush().await;
        Flow::Close
    }

    /// The session ends: what is open is rolled back, and what is held is given back.
    pub(super) async fn close(mut self) {
        self.client.output.clear();
        if self.server.is_some() && self.state.shared {
            let in_order = timeout(ROUND_TRIP_LIMIT, self.put_in_order()).await.unwrap_or(false);
            if in_order {
                self.state.pins.hold(Reasons::NONE);
                if let Some(server) = &mut self.server {
                    // They were for this session.
                    server.notified.clear();
                }
                self.release().await;
            } else {
                self.discard_server();
            }
        } else if let Some(server) = self.server.take() {
            // A connection of this session alone ends with it.
            server.close();
        }
        self.fault.add(Fault::Error);
        self.end_request();
    }

    /// Makes a server connection fit for others.
    async fn put_in_order(&mut self) -> bool {
        let Some(server) = self.server.as_mut() else { return false };
        if self.transaction.is_open() && server.simple_query("ROLLBACK", ROUND_TRIP_LIMIT).await.is_err() {
            return false;
        }
        if self.state.pins.is_empty() {
            return true;
        }
        let mut discarded = server.simple_query(DISCARD, ROUND_TRIP_LIMIT).await;
        for _ in 0..DISCARDS_MAX {
            // What the session left may cut it short: a time-out of a millisecond.
            if !discarded.as_ref().is_err_and(QueryError::leaves_connection_usable) {
                break;
            }
            discarded = server.simple_query(DISCARD, ROUND_TRIP_LIMIT).await;
        }
        let is_seeded = self.state.pins.contains(Reasons::SEED);
        if discarded.is_ok() && is_seeded {
            // No other session must be able to tell what `random()` will be.
            discarded = server.simple_query(RESEED, ROUND_TRIP_LIMIT).await;
        }
        server.session_state.discard_all();
        server.session_state.last = None;
        self.lease.iter().for_each(|lease| lease.session_changes().reset());
        discarded.is_ok()
    }
}
