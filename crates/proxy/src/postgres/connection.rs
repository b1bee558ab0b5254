//! One client's session, from its first statement to its last.
//!
//! The loop: gather a *unit* (a simple query, or an extended batch up to its Sync or Flush), answer it here
//! if it is nothing but transaction control, otherwise ask the gate, take a server connection, carry the
//! exchange, and give the connection back when no transaction is open.
//!
//! A client may wait within its batch for an error that the server would already have sent. So a batch is
//! gathered for as long as more of it comes; when the client pauses, what has come is a unit, and the
//! exchange takes the rest. In an open transaction there is nothing to be learned from the rest before, and
//! no reason to wait for a pause.
//!
//! # Ownership
//!
//! The session's task owns the client's socket and, while a transaction is open or the session is pinned,
//! one server connection. The permit is held from dispatch to the end of the transaction. The connection
//! goes back to its pool *before* the permit ends, so that the request that goes next finds it there.
//! Everything is given back by drop on any other way out; a server connection that is dropped in
//! mid-exchange is closed, and its pool told.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use admission::{Instant, Outcome};
use bytes::BytesMut;
use wire::postgres::backend::{self, Status};
use wire::postgres::codec::HEADER_LEN;
use wire::postgres::frontend;
use wire::sql::Touches;

use super::batch;
use super::channel::Channel;
use super::classify::Analysis;
use super::exchange::{Exchange, Fault, Scope, characters};
use super::forward::{End, MESSAGE_MAX, Parts, Relay};
use super::gather::Unit;
use super::pins::Pins;
use super::pool::Lease;
use super::reject::{Refusal, warn_no_transaction};
use super::roster::{Activity, Identity};
use super::session::{Flow, Session};
use super::settings::SessionSettings;
use super::state::State;
use super::transaction::{Control, Left, Transaction};
use super::weight::Weight;
use super::{LoggedIn, OnDisconnect, Shared};
use crate::principal;
use crate::shutdown::Ending;

/// Serves a logged-in client until it leaves.
pub(crate) async fn serve(shared: Arc<Shared>, logged_in: LoggedIn) {
    let mut session = Session::new(shared, logged_in);
    while session.serve_unit().await == Flow::Continue {}
    Box::pin(session.close()).await;
}

/// What of a query is left for the server.
enum Forward {
    Nothing,
    All,
    From(usize),
}

impl Session {
    fn new(shared: Arc<Shared>, logged_in: LoggedIn) -> Self {
        let LoggedIn { client, client_input, parameters, reported, lease, server, cancel, places, .. } =
            logged_in;
        let parameter =
            |wanted: &str| parameters.iter().find(|(name, _)| name == wanted).map(|(_, value)| value);
        let database = parameter("database").or(parameter("user")).map_or("", String::as_str);
        let settings = SessionSettings::new(shared.parameters.share(reported));
        let own = shared.settings();
        let (gate, registry) = (Arc::from(own.name.as_str()), Arc::clone(&shared.statements));
        let sharing = own.shares_connections();
        let cancels_leavers = own.on_disconnect == OnDisconnect::Cancel;
        let identity = Identity {
            user: parameter("user").cloned().unwrap_or_default(),
            database: database.to_owned(),
            application: parameter("application_name").cloned().unwrap_or_default(),
            address: client.peer_address(),
            is_encrypted: client.encryption().is_some(),
        };
        let place = shared.roster.enter(identity, shared.driver.clock().now());
        let at_gate = shared.driver.connect();
        let counters = shared.stats.of(database);
        let pins = Pins::new(Arc::clone(&shared.pins), Arc::clone(&place.card.pins));
        let ending = Ending::new(&shared.shutdown);
        let mut state = State::new(gate, database.into(), settings, sharing, registry, pins);
        state.process_id = cancel.key().0;
        state.pool = lease.as_ref().map_or(0, Lease::number);
        Self {
            client: Channel::new(client, client_input, cancels_leavers, Arc::clone(&shared.lateness)),
            state,
            transaction: Transaction::default(),
            server: server.map(|server| *server),
            cancel,
            lease,
            to_server: BytesMut::new(),
            busy: Duration::ZERO,
            fault: Fault::None,
            skipping: false,
            terminated: false,
            observes: own.observe,
            ending,
            at_gate,
            place,
            principal: principal::Current::default(),
            counters,
            weight: Weight::Ordinary,
            opened: None,
            is_killed: false,
            _places: places,
            shared,
        }
    }

    /// Whether transaction control is answered here. A gate that only observes leaves everything as it is.
    pub(super) fn defers(&self) -> bool {
        !self.observes
    }

    async fn serve_unit(&mut self) -> Flow {
        let unit = match self.next_unit().await {
            Ok(unit) => unit,
            Err(refusal) => {
                match refusal {
                    Some(refusal) => {
                        refusal.write(&mut self.client.output);
                        self.client.flush().await;
                    }
                    None => self.left_between_statements(),
                }
                return Flow::Close;
            }
        };
        match unit {
            Unit::Query { length } => self.serve_query(length).await,
            Unit::Batch { length, until } => self.serve_batch(length, until).await,
            Unit::Function { length } => self.serve_function(length).await,
            Unit::TooMuch { tag, length } => Box::pin(self.serve_too_much(tag, length)).await,
        }
    }

    async fn serve_query(&mut self, length: usize) -> Flow {
        let frame = self.client.take(length);
        let sql = match frontend::parse(frame[0], &frame[HEADER_LEN..]) {
            Ok(frontend::Message::Query { sql }) => sql,
            Ok(_) => return Flow::Close,
            Err(error) if matches!(self.transaction, Transaction::Refused(_)) => {
                Refusal::malformed(&error).write(&mut self.client.output);
                backend::write_ready(&mut self.client.output, Status::Failed);
                return Flow::Continue;
            }
            Err(_) => return self.forward_query(frame, Analysis::prepare()).await,
        };
        let analysis = self.state.analyze(sql);
        let local = analysis.starts_with_control || matches!(self.transaction, Transaction::Refused(_));
        if local && self.defers() {
            match self.query_locally(sql, analysis.is_control) {
                Forward::Nothing => return Flow::Continue,
                Forward::All => {}
                Forward::From(start) => {
                    // Blanks keep the positions that errors tell.
                    let mut text = vec![b' '; characters(&sql[..start])];
                    text.extend_from_slice(&sql[start..]);
                    let mut rest = BytesMut::new();
                    frontend::write_query(&mut rest, &text);
                    let analysis = self.state.analyze(&text);
                    return self.forward_query(rest, analysis).await;
                }
            }
        }
        self.forward_query(frame, analysis).await
    }

    /// Answers what needs no server.
    fn query_locally(&mut self, sql: &[u8], is_single: bool) -> Forward {
        let before = self.transaction.clone();
        let refused = matches!(before, Transaction::Refused(_));
        let (mut out, mut undo) = (BytesMut::new(), vec![self.state.statements.set(b"", None)]);
        let (reading, mut left) = (self.state.settings.reported.reading(), Left::Nothing);
        for statement in wire::sql::statements(sql, reading.standard_strings) {
            // What follows a DEALLOCATE is in one transaction with it, and may mind its snapshot. A failed
            // transaction runs neither.
            let is_servers = !is_single
                && matches!(statement.kind, wire::sql::Kind::Deallocate { .. })
                && !matches!(self.transaction, Transaction::Refused(_));
            let control = match is_servers {
                false => batch::control(&mut self.state, &mut self.transaction, &statement, &mut undo),
                true => Control::Forward,
            };
            match control {
                Control::Tag(tag) => backend::write_command_complete(&mut out, tag),
                Control::TagWithWarning(tag) => {
                    warn_no_transaction(&mut out);
                    backend::write_command_complete(&mut out, tag);
                }
                Control::Empty => backend::write_empty_query(&mut out),
                Control::Error(refusal) => {
                    let leaves = Left::behind(&refusal, &statement.kind);
                    if leaves.is_some() {
                        self.state.portals.take(b"");
                    }
                    left = leaves.unwrap_or(self.transaction.left());
                    refusal.write(&mut out);
                    break;
                }
                Control::Forward if refused => {
                    // The end of a refused transaction was ours to answer; what follows it is the server's.
                    self.client.output.extend_from_slice(&out);
                    return Forward::From(statement.text.as_ptr() as usize - sql.as_ptr() as usize);
                }
                Control::Forward => {
                    self.transaction = before;
                    undo.into_iter().rev().for_each(|change| self.state.statements.undo(change));
                    return Forward::All;
                }
            }
        }
        self.transaction.leave(left);
        self.client.output.extend_from_slice(&out);
        backend::write_ready(&mut self.client.output, self.transaction.status());
        Forward::Nothing
    }

    async fn forward_query(&mut self, mut frame: BytesMut, analysis: Analysis) -> Flow {
        if let Err(flow) = self.admit(&analysis, true).await {
            return flow;
        }
        let exchange = Exchange::new(VecDeque::new(), &self.transaction);
        self.exchange(exchange, move |exchange, scope, out| {
            exchange.query(scope, &frame, analysis, out);
            Ok(frame.split_off(frame.len() - exchange.tail()))
        })
        .await
    }

    async fn serve_function(&mut self, length: usize) -> Flow {
        let frame = self.client.take(length);
        if matches!(self.transaction, Transaction::Refused(_)) {
            self.transaction.failure().write(&mut self.client.output);
            backend::write_ready(&mut self.client.output, Status::Failed);
            return Flow::Continue;
        }
        let analysis = self.state.analyze_function(&frame);
        if let Err(flow) = self.admit(&analysis, true).await {
            return flow;
        }
        let exchange = Exchange::new(VecDeque::new(), &self.transaction);
        self.exchange(exchange, move |exchange, scope, out| {
            exchange.client_frame(scope, &frame, out).map(|()| BytesMut::new())
        })
        .await
    }

    /// Carries one exchange and deals with its end. `encode` returns what of the client's messages has to
    /// wait.
    pub(super) async fn exchange(
        &mut self,
        mut exchange: Exchange,
        encode: impl FnOnce(
            &mut Exchange,
            &mut Scope<'_>,
            &mut BytesMut,
        ) -> Result<BytesMut, wire::postgres::ProtocolError>,
    ) -> Flow {
        let Some(server) = self.server.as_mut() else { return Flow::Close };
        let mut scope = Scope {
            session: &mut self.state,
            server: &mut server.session_state,
            parameters: &mut server.parameters,
        };
        self.to_server.clear();
        let deferred = self.transaction.deferred().filter(|_| exchange.aside.is_none());
        exchange.begin(&mut scope, deferred, &mut self.to_server);
        let encoded = encode(&mut exchange, &mut scope, &mut self.to_server)
            .map(|waiting| self.client.put_back(waiting));
        let parts = Parts { from_client: exchange.take_tail(), ..Parts::default() };
        exchange.answer_locally(&mut self.client.output);
        let clock = self.shared.driver.clock();
        let began = clock.now();
        self.opened.get_or_insert(began);
        self.place.card.note(Activity::Active, began);
        self.place.card.note_server(Some(&*server));
        self.client.release_taken();
        let message_max = self.shared.settings().message_timeout;
        let mut relay = Relay {
            exchange: &mut exchange,
            session: &mut self.state,
            client: &mut self.client,
            server,
            to_server: &mut self.to_server,
            clock,
            client_time: Duration::ZERO,
            parts,
            rests: false,
            message_max,
            rest_by: None,
        };
        let lowered = match (&encoded, self.weight) {
            (Ok(()), Weight::Low) if relay.exchange.touches == Touches::Nothing => {
                self.shared.lowering.lower(relay.server)
            }
            _ => None,
        };
        let end = match encoded {
            Ok(()) => {
                tokio::select! {
                    biased;
                    end = relay.run() => end,
                    () = self.ending.aborting() => End::ServerLost(None),
                    () = self.place.killed() => {
                        self.is_killed = true;
                        End::ClientGone
                    }
                }
            }
            Err(error) => End::ClientErred(error),
        };
        if matches!(end, End::ServerLost(_)) {
            relay.drop_tail();
        }
        let (client_time, parts) = (relay.client_time, relay.parts);
        if let Some(lowered) = lowered {
            lowered.raise().await;
        }
        let ended = clock.now();
        let busy = ended.since(began).saturating_sub(client_time);
        self.counters.queried(busy);
        self.busy += busy;
        self.fault.add(exchange.fault);
        self.skipping |= exchange.client_owes_sync;
        let flow = match end {
            End::Done => self.exchanged(&exchange).await,
            End::ClientGone if self.is_killed => self.end_killed(exchange, parts).await,
            End::ClientGone => self.without_client(exchange, parts).await,
            End::ClientErred(error) => {
                let (first, last) = Refusal::broken(&error);
                first.iter().for_each(|first| first.write(&mut self.client.output));
                self.broken(exchange, parts, &last).await
            }
            End::TooLarge(length) => {
                self.broken(exchange, parts, &Refusal::message_too_large(length, MESSAGE_MAX)).await
            }
            End::Late => self.broken(exchange, parts, &Refusal::message_late(message_max)).await,
            End::ServerLost(said) if exchange.is_done() => self.lost_behind_answer(&exchange, said).await,
            End::ServerLost(said) => {
                self.shared.settings().health.lost(said.as_deref());
                self.server_lost(exchange, said.as_deref(), parts.are_due()).await
            }
            End::ServerErred(error) => {
                tracing::error!(%error, "the server broke the protocol");
                self.discard_server();
                Refusal::server_violation(&error.to_string()).write(&mut self.client.output);
                self.client.flush().await;
                Flow::Close
            }
        };
        self.note_rest(ended);
        flow
    }

    /// Shows what the session is left with.
    fn note_rest(&self, now: Instant) {
        let is_open = self.transaction.is_open();
        self.place.card.note(if is_open { Activity::InTransaction } else { Activity::Idle }, now);
        self.place.card.note_server(self.server.as_ref());
    }

    /// All is answered: give back what is no longer needed.
    pub(super) async fn exchanged(&mut self, exchange: &Exchange) -> Flow {
        if exchange.patience.is_over() {
            self.release().await;
            return Flow::Continue;
        }
        if let Some(aside) = exchange.aside {
            return self.prepared_aside(exchange.fault != Fault::None, aside.is_whole).await;
        }
        let status = exchange.status.unwrap_or(Status::Idle);
        let was_in_time = exchange.is_of_use(&self.transaction);
        if exchange.prefix_failed {
            // The client believes in a transaction that the server refused to begin.
            backend::write_ready(&mut self.client.output, Status::Failed);
        }
        match (exchange.prefix_failed, status) {
            (true, Status::Idle) => self.transaction.refuse(),
            (true, _) => self.transaction = Transaction::Open(Status::Failed),
            (false, status) => self.transaction = Transaction::of(status),
        }
        if status == Status::Idle {
            // None comes for it from here on.
            self.cancel.idle();
            self.look_for_temporary().await;
            if self.keep_if_pinned().await == Flow::Close {
                return Flow::Close;
            }
            if was_in_time {
                // One that came for it came too late.
                self.cancel.take_given_up();
            }
            self.release().await;
        } else if let Some(permit) = &self.state.permit {
            permit.idle();
        }
        Flow::Continue
    }

    /// No transaction is open on the server: the connection goes back, unless the session keeps it; the
    /// request ends.
    pub(super) async fn release(&mut self) {
        self.cancel.idle();
        if self.state.shared && self.state.pins.is_empty() {
            let settled = self.cancel.settled().await;
            if let Some(server) = self.server.take_if(|_| settled) {
                self.shared.pools.put(server);
            } else {
                self.discard_server();
            }
            self.state.pinned = None;
        }
        self.end_request();
    }

    /// Ends the request in flight, if there is one.
    pub(super) fn end_request(&mut self) {
        // A client that cancels has left, though the connection stays; what is rolled back then was of no use
        // to anybody.
        let is_given_up = self.cancel.take_given_up() && !self.is_killed;
        let (fault, busy) = (std::mem::take(&mut self.fault), std::mem::take(&mut self.busy));
        let outcome = match (fault, is_given_up) {
            (Fault::None, false) => Outcome::Success,
            (Fault::None, true) if busy.is_zero() => Outcome::Canceled,
            (Fault::Conflict, false) => Outcome::Conflict,
            _ => Outcome::Failure,
        };
        if let Some(opened) = self.opened.take() {
            self.counters.transacted(self.shared.driver.clock().now().since(opened));
        }
        if let Some(permit) = self.state.permit.take() {
            if is_given_up {
                permit.left();
            }
            permit.complete(outcome, busy);
        }
    }

    /// Closes the server connection and tells its pool. What was open on it is taken back.
    pub(super) fn discard_server(&mut self) {
        self.cancel.idle();
        self.state.lost();
        // The pool learns of it by the drop.
        self.server = None;
        self.place.card.note_server(None);
        self.state.pinned = None;
    }
}
