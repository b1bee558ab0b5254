//! Before anything is sent: the gate's leave, and a server connection in the session's settings.

use std::sync::Arc;
use std::time::Duration;

use admission::{Connection, Entry, Outcome, Refused, Request, RequestType};
use wire::postgres::backend::{self, Status};
use wire::sql::Touches;

use super::classify::Analysis;
use super::forward::INPUT_MAX;
use super::leave::Heard;
use super::pool::Lease;
use super::reject::Refusal;
use super::restore::plan;
use super::roster::{Activity, Identity};
use super::server::ROUND_TRIP_LIMIT;
use super::session::{Flow, Session};
use super::settings::Sequences;
use super::transaction::Transaction;
use super::weight::{LongReads, Weight};
use crate::gate::Arrival;
use crate::sql::class::Unit;
use crate::why::Origin;

/// How often a request is sent to another connection after one was found dead.
const ATTACH_TRIES: usize = 3;

/// Why a session has stopped waiting for its turn.
pub(super) enum Interrupted {
    Canceled,
    Left,
    /// The gate ends now.
    Ending,
    Killed,
    /// Others need the room that it takes.
    NoRoom,
    /// There is no server connection any more, and only a login could bring one.
    Gone,
}

/// What became of the search for a server connection.
pub(super) enum Attached {
    Ready,
    /// The one that was there is dead; there may be others.
    Retry,
    /// There are none, and only a login could bring one.
    Gone,
    /// How the request ends, and what its client is told.
    Refused(Outcome, Refusal),
}

impl Session {
    /// Gets the right to be in flight and a server connection, or answers why not. `synced`: the client
    /// awaits ReadyForQuery; otherwise the rest of its batch is still to come.
    pub(super) async fn admit(&mut self, analysis: &Analysis, synced: bool) -> Result<(), Flow> {
        self.weight = Weight::Ordinary;
        if let Some(permit) = &self.state.permit {
            permit.resume();
            return self.restore_within(synced).await;
        }
        // Never left out: an open transaction, a session that keeps its connection, what releases locks.
        let begins = matches!(self.transaction, Transaction::Idle) && self.server.is_none();
        if begins && !analysis.is_immediate && self.client.is_left_out() {
            return Err(self.refuse(&Refusal::late(&self.state.gate), synced));
        }
        for _ in 0..ATTACH_TRIES {
            self.arrive(analysis, synced).await?;
            match self.attach().await {
                Attached::Ready => {
                    self.weight = self.weight_of(analysis, synced);
                    return Ok(());
                }
                Attached::Retry => self.give_up_permit(),
                Attached::Gone => return Err(self.end_with(&Refusal::pool_is_gone()).await),
                Attached::Refused(outcome, refusal) => {
                    if let Some(permit) = self.state.permit.take() {
                        permit.complete(outcome, Duration::ZERO);
                    }
                    return Err(self.refuse(&refusal, synced));
                }
            }
        }
        Err(self.refuse(&Refusal::not_sent(), synced))
    }

    /// How much of the processor the statement needs: a long read outside a transaction, and what is in the
    /// background, can wait for others.
    fn weight_of(&self, analysis: &Analysis, synced: bool) -> Weight {
        let is_alone =
            synced && matches!(self.transaction, Transaction::Idle) && analysis.touches == Touches::Nothing;
        if !is_alone || self.shared.settings().long_reads == LongReads::Ordinary {
            return Weight::Ordinary;
        }
        let request_type = self.state.request_type(analysis, false);
        let class = self.shared.classes.class_of(|| self.unit(request_type, &analysis.tags));
        if self.shared.driver.can_wait(request_type, class) { Weight::Low } else { Weight::Ordinary }
    }

    /// Nothing was sent.
    fn give_up_permit(&mut self) {
        if let Some(permit) = self.state.permit.take() {
            // It was not sent.
            permit.give_up(Duration::ZERO);
        }
    }

    async fn arrive(&mut self, analysis: &Analysis, synced: bool) -> Result<(), Flow> {
        // What is prepared aside is no part of the transaction.
        let explicit = matches!(self.transaction, Transaction::Deferred(_)) && !analysis.is_preparation();
        let immediate = analysis.is_immediate || self.state.pins.holds_lock();
        let driver = Arc::clone(&self.shared.driver);
        let request_type = self.state.request_type(analysis, explicit);
        let class = self.shared.classes.class_of(|| self.unit(request_type, &analysis.tags));
        let request = Request {
            request_type,
            class,
            client: Some(self.at_gate.id()),
            tenant: self.shared.classes.tenant_of(class, || self.unit(request_type, &analysis.tags)),
            pool: self.lease.as_ref().map(Lease::pool).unwrap_or_default(),
            connection: if self.server.is_some() { Connection::Held } else { Connection::Needed },
            entry: if immediate { Entry::Immediate } else { Entry::Queued },
            deadline: analysis.timeout.map(|timeout| driver.clock().now().after(timeout)),
        };
        let session = Some(self.place.card.id);
        let application = self.state.settings.reported.get("application_name").unwrap_or("");
        let user = self.place.card.identity.user.as_bytes();
        let principal = Arc::clone(self.principal.named(user, application.as_bytes()));
        let origin = Origin { trace: analysis.trace, session, turn: session };
        match driver.arrive(request, origin, Some(&principal), || self.state.type_name(analysis, explicit)) {
            Arrival::Dispatched(permit) => self.state.permit = Some(permit),
            Arrival::Rejected(refused, number) => {
                let refusal = self.rejected(refused, Duration::ZERO).named(driver.name(), number);
                return Err(self.refuse(&refusal, synced));
            }
            Arrival::Waiting(waiting) => {
                let (arrived, number) = (driver.clock().now(), waiting.number());
                self.cancel.queued();
                self.place.card.note(Activity::Waiting, arrived);
                let verdict = self.watching(waiting).await;
                let waited = driver.clock().now().since(arrived);
                self.counters.waited(waited);
                if let Ok(Ok(permit)) = verdict {
                    self.state.permit = Some(permit);
                    return Ok(());
                }
                self.cancel.idle();
                self.place.card.note(Activity::Idle, arrived.after(waited));
                return Err(match verdict {
                    Err(interrupted) => self.interrupted(interrupted, synced).await,
                    Ok(verdict) => {
                        let refusal = verdict
                            .err()
                            .map(|refused| self.rejected(refused, waited).named(driver.name(), number));
                        self.refuse(&refusal.unwrap_or_else(Refusal::not_sent), synced)
                    }
                });
            }
        }
        Ok(())
    }

    /// What the rules of classes ask for.
    fn unit<'a>(&'a self, request_type: RequestType, tags: &'a [u64]) -> Unit<'a> {
        let Identity { user, database, address, .. } = &self.place.card.identity;
        Unit {
            user: user.as_bytes(),
            database: database.as_bytes(),
            application: self.state.settings.reported.get("application_name").unwrap_or("").as_bytes(),
            client: address.map(|address| address.ip()),
            request_type,
            tags,
        }
    }

    /// The error for a refused request.
    pub(super) fn rejected(&self, refused: Refused, waited: Duration) -> Refusal {
        let driver = &self.shared.driver;
        let times = (waited, driver.retry_after());
        Refusal::rejected(&self.state.gate, refused.reason, times, driver.cause(refused))
    }

    /// Waits for the session's turn, and watches the client, which may cancel or leave.
    pub(super) async fn watching<T>(&mut self, turn: impl Future<Output = T>) -> Result<T, Interrupted> {
        self.client.flush().await;
        let shared = Arc::clone(&self.shared);
        let needed = self.lease.as_ref().filter(|_| self.server.is_none()).map(Lease::pool);
        let gone = async {
            match needed {
                Some(pool) => shared.pools.emptied(pool).await,
                None => std::future::pending().await,
            }
        };
        let told = self.client.told();
        let notice_after = shared.settings().wait_notice;
        let mut is_noticed = notice_after.is_none();
        let long = tokio::time::sleep(notice_after.unwrap_or_default());
        tokio::pin!(gone, turn, told, long);
        loop {
            let readable = !self.terminated && self.client.input.len() < INPUT_MAX;
            tokio::select! {
                biased;
                turn = &mut turn => return Ok(turn),
                () = self.cancel.canceled() => return Err(Interrupted::Canceled),
                () = self.ending.aborting() => return Err(Interrupted::Ending),
                () = self.place.killed() => return Err(Interrupted::Killed),
                () = &mut gone => return Err(Interrupted::Gone),
                () = &mut long, if !is_noticed => {
                    is_noticed = true;
                    Refusal::notice_of_wait(&mut self.client.output, notice_after.unwrap_or_default());
                    self.client.flush().await;
                }
                () = &mut told => return Err(Interrupted::NoRoom),
                there = self.client.fill(), if readable => {
                    // A client that has said good-bye behind its statement wants it done.
                    self.terminated = self.client.has_said_good_bye();
                    if !there && !self.terminated {
                        return Err(Interrupted::Left);
                    }
                }
            }
        }
    }

    /// The session's turn has not come.
    pub(super) async fn interrupted(&mut self, interrupted: Interrupted, synced: bool) -> Flow {
        match interrupted {
            Interrupted::Canceled => self.refuse(&Refusal::canceled_in_queue(), synced),
            Interrupted::Left => Flow::Close,
            Interrupted::Ending => self.end_with(&Refusal::shutting_down()).await,
            Interrupted::Killed => self.say_killed().await,
            Interrupted::NoRoom => self.refuse(&Refusal::no_memory(self.client.taken()), synced),
            // A new session can be served, because its login brings a connection.
            Interrupted::Gone => self.end_with(&Refusal::pool_is_gone()).await,
        }
    }

    /// The session can't be served any more.
    async fn end_with(&mut self, refusal: &Refusal) -> Flow {
        refusal.write(&mut self.client.output);
        self.client.flush().await;
        Flow::Close
    }

    /// Answers with an error that ends the request but not the session.
    pub(super) fn refuse(&mut self, refusal: &Refusal, synced: bool) -> Flow {
        self.transaction.refuse();
        refusal.write(&mut self.client.output);
        self.end_failed(synced)
    }

    /// Behind an error: what ends the request, or the rest of its batch is dropped.
    pub(super) fn end_failed(&mut self, synced: bool) -> Flow {
        if synced {
            backend::write_ready(&mut self.client.output, self.transaction.status());
        } else {
            self.skipping = true;
        }
        Flow::Continue
    }

    /// Takes a server connection, in the session's settings.
    pub(super) async fn attach(&mut self) -> Attached {
        let is_taken = self.server.is_none();
        if is_taken {
            let Some(pool) = self.lease.as_ref().map(Lease::pool) else { return Attached::Gone };
            match self.shared.pools.take(pool) {
                Some(server) => self.server = Some(server),
                None if self.shared.pools.is_lost(pool) => return Attached::Gone,
                None => return Attached::Retry,
            }
        }
        if let Err(attached) = self.restore().await {
            return attached;
        }
        if is_taken && let Err(attached) = self.forget_sequences().await {
            return attached;
        }
        let Some(server) = self.server.as_mut() else { return Attached::Retry };
        if self.state.shared {
            let id = self.place.card.id;
            if server.session_state.last.replace(id).is_some_and(|last| last != id) {
                self.lease.iter().for_each(|lease| lease.session_changes().unreset());
            }
            self.state.settings.tell(&server.parameters, &mut self.client.output);
        }
        if self.cancel.running(server) {
            self.release().await;
            return Attached::Refused(Outcome::Canceled, Refusal::canceled_in_queue());
        }
        Attached::Ready
    }

    /// Brings the server connection to the session's settings. A connection that is the session's own has
    /// all but what a RESET returned to the connection's start instead of the session's.
    async fn restore(&mut self) -> Result<(), Attached> {
        let Some(server) = self.server.as_mut().filter(|_| self.state.shared) else { return Ok(()) };
        let settings = &mut self.state.settings;
        let is_own = !self.state.pins.is_empty();
        settings.reported.unite(&mut server.parameters);
        let Some(plan) = plan(settings, (&server.parameters, &server.session_state), is_own) else {
            return Ok(());
        };
        let carried = Arc::clone(settings.book.settings());
        let carried_out = plan.carry_out(server, &carried, ROUND_TRIP_LIMIT).await;
        self.state.tell_notified(server, &mut self.client.output);
        let Err(refused) = carried_out else { return Ok(()) };
        tracing::warn!(error = %refused.error, "a session's settings could not be carried to a server connection");
        if !refused.error.leaves_connection_usable() {
            self.discard_server();
            return Err(Attached::Retry);
        }
        // The connection's settings are known, so that it serves others; this session goes on without this
        // one.
        if let Some(name) = &refused.setting {
            self.state.settings.give_up(name, &server.parameters);
        }
        if let Some(server) = self.server.take_if(|_| !is_own) {
            self.shared.pools.put(server);
        }
        let refusal = Refusal::settings(refused.setting.as_deref(), &refused.error);
        Err(Attached::Refused(Outcome::Failure, refusal))
    }

    /// Once any session may have asked which value a sequence gave it last, no connection tells a session
    /// what a sequence gave another.
    async fn forget_sequences(&mut self) -> Result<(), Attached> {
        let id = self.place.card.id;
        let Some(server) = self.server.as_mut().filter(|_| self.state.shared) else { return Ok(()) };
        let before = server.session_state.sequences;
        let others = !matches!(before, Sequences::OfNobody) && before != Sequences::Of(id);
        if !others || !self.state.asks_sequences() {
            server.session_state.sequences = if others { Sequences::OfSeveral } else { Sequences::Of(id) };
            return Ok(());
        }
        let forgotten = server.simple_query("DISCARD SEQUENCES", ROUND_TRIP_LIMIT).await;
        self.state.tell_notified(server, &mut self.client.output);
        let Err(error) = forgotten else {
            server.session_state.sequences = Sequences::Of(id);
            return Ok(());
        };
        if !error.leaves_connection_usable() {
            self.discard_server();
            return Err(Attached::Retry);
        }
        if let Some(server) = self.server.take_if(|_| self.state.pins.is_empty()) {
            self.shared.pools.put(server);
        }
        Err(Attached::Refused(Outcome::Failure, Refusal::settings(None, &error)))
    }

    /// Within a transaction, behind a RESET: what it returned to the connection's start, and not the
    /// session's, is set.
    async fn restore_within(&mut self, synced: bool) -> Result<(), Flow> {
        if !matches!(self.transaction, Transaction::Open(Status::Transaction)) {
            return Ok(());
        }
        let Some(server) = self.server.as_mut().filter(|_| self.state.shared) else { return Ok(()) };
        let settings = &self.state.settings;
        let Some(plan) = plan(settings, (&server.parameters, &server.session_state), true) else {
            return Ok(());
        };
        let names = plan.carried();
        let carried_out = plan.carry_out_within(server, ROUND_TRIP_LIMIT).await;
        self.state.tell_notified(server, &mut self.client.output);
        match carried_out {
            Ok(()) => {
                self.state.settings.book.restored(names);
                Ok(())
            }
            Err(refused) if refused.error.leaves_connection_usable() => {
                self.transaction = Transaction::Open(Status::Failed);
                self.state.settings.book.fail();
                Err(self.refuse(&Refusal::settings(refused.setting.as_deref(), &refused.error), synced))
            }
            Err(refused) => {
                let said = Some(refused.error.to_string());
                if let Err(Some(refusal)) = self.heard_while_idle(Heard::Lost(said)) {
                    refusal.write(&mut self.client.output);
                    self.client.flush().await;
                    return Err(Flow::Close);
                }
                let refusal = self.transaction.failure();
                Err(self.refuse(&refusal, synced))
            }
        }
    }
}
