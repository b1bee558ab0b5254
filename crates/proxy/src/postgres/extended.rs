//! Groups of extended messages: answered here, prepared aside, or sent on in the client's transaction.
//!
//! A group that only prepares and describes needs no connection of its client's transaction, and is worth
//! no wait for one: a program that prepares for one of its clients, and waits, may be the one that has yet
//! to end the transactions of the others (pgbench with fewer threads than clients does so). Texts that the
//! server has described lately are answered here ([`State::recall`](super::state::State::recall)). Others
//! go aside: over the pool's spare connection, outside of a deferred BEGIN. Where the pool has none, or
//! others have kept it for [`SPARE_WAIT`], they wait their turn for an ordinary connection. So does a text
//! that takes longer than [`LOCK_WAIT`] there, because it waits for a lock: it would hold up all others.
//!
//! A session with a connection of its own prepares on it, as does one whose deferred BEGIN bears on it.

use std::borrow::Cow;
use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Buf, Bytes, BytesMut};
use tokio::time::{sleep, timeout};
use wire::postgres::ProtocolError;
use wire::postgres::backend;
use wire::postgres::codec::frontend_frame;

use super::admit::Attached;
use super::batch::{self, Answered, Batch, Until};
use super::classify::Analysis;
use super::exchange::{Exchange, Patience, Scope};
use super::pool::Lease;
use super::session::{Flow, Session};
use super::transaction::Transaction;

/// How long a group waits for the spare connection before it asks for an ordinary one.
const SPARE_WAIT: Duration = Duration::from_secs(1);

/// How long a text may take there. Most take less than a millisecond; one that waits for a lock takes longer.
const LOCK_WAIT: Duration = Duration::from_millis(200);

/// Decides for how a transaction sees data when it begins.
const ISOLATION: &str = "default_transaction_isolation";

impl Session {
    pub(super) async fn serve_batch(&mut self, length: usize, until: Until) -> Flow {
        let batch = batch::read(&self.state, &self.client.input[..length]);
        let refused = matches!(self.transaction, Transaction::Refused(_));
        if (batch.is_control || refused) && self.defers() && !self.transaction.is_open() {
            let bytes = &self.client.input[..length];
            let parsed = &batch.parsed;
            let answer = batch::answer_locally(&mut self.state, &mut self.transaction, bytes, parsed);
            if let Some(answered) = answer {
                return self.answered(&answered);
            }
        }
        if self.may_prepare_aside(&batch, until) {
            return Box::pin(self.prepare_aside(length, until, batch)).await;
        }
        self.forward_batch(length, until, batch).await
    }

    fn answered(&mut self, answered: &Answered) -> Flow {
        self.client.output.extend_from_slice(&answered.out);
        self.client.input.advance(answered.length);
        self.skipping = answered.skips;
        Flow::Continue
    }

    /// Whether a group means the same on any connection of the pool, outside of the client's transaction.
    fn may_prepare_aside(&self, batch: &Batch, until: Until) -> bool {
        let is_outside = match &self.transaction {
            Transaction::Idle => true,
            Transaction::Deferred(deferred) => {
                deferred.may_prepare_outside() && self.state.settings.book.in_force(ISOLATION).is_none()
            }
            Transaction::Open(_) | Transaction::Refused(_) => false,
        };
        is_outside
            && batch.prepares_only()
            && !batch.compares
            && !batch.is_malformed
            && until != Until::More
            && self.defers()
            && self.state.shared
            && self.server.is_none()
            && self.state.settings.reported.reading().is_readable
    }

    /// Answers a group that only prepares, from what is known or by the server.
    async fn prepare_aside(&mut self, length: usize, until: Until, batch: Batch) -> Flow {
        if let Some(answered) = self.recall(length, &batch) {
            return self.answered(&answered);
        }
        match self.take_spare(until.is_whole()).await {
            Ok(true) => {
                // A session that had it before may have asked the same.
                if let Some(answered) = self.recall(length, &batch) {
                    self.release().await;
                    return self.answered(&answered);
                }
                let patience = Arc::default();
                let flow = self.prepare_for_a_while(length, until, &batch, &patience).await;
                if flow == Flow::Close || !patience.is_over() {
                    return flow;
                }
            }
            Ok(false) => {}
            Err(flow) => return self.not_prepared(length, flow),
        }
        if let Err(flow) = self.admit(&Analysis::prepare(), until.is_whole()).await {
            return self.not_prepared(length, flow);
        }
        let frames = self.client.take(length);
        self.prepare_there(&frames, until, &batch, Arc::default()).await
    }

    /// Prepares a group on the spare connection. A text that waits there for a lock is given up.
    async fn prepare_for_a_while(
        &mut self,
        length: usize,
        until: Until,
        batch: &Batch,
        patience: &Arc<Patience>,
    ) -> Flow {
        let frames = self.client.take(length);
        // Of others something may have been answered before.
        let may_give_up = batch.parsed.len() == 1 && frames.first() == Some(&b'P');
        let (registry, (id, secret)) = (Arc::clone(&self.shared.cancel), self.cancel.key());
        let secret = Bytes::copy_from_slice(secret);
        let giving_up = async {
            sleep(LOCK_WAIT).await;
            patience.ask();
            registry.cancel(id, &secret).await;
            pending().await
        };
        let flow = tokio::select! {
            biased;
            flow = self.prepare_there(&frames, until, batch, Arc::clone(patience)) => flow,
            never = giving_up, if may_give_up => never,
        };
        if patience.is_over() {
            self.client.put_back(frames);
        }
        flow
    }

    /// Prepares a group on the connection that the session has.
    async fn prepare_there(
        &mut self,
        frames: &[u8],
        until: Until,
        batch: &Batch,
        patience: Arc<Patience>,
    ) -> Flow {
        let mut aside = Exchange::aside(batch.parsed.clone(), self.state.epoch(), until.is_whole());
        aside.patience = patience;
        self.exchange(aside, |exchange, scope, out| {
            let mut rest = frames;
            while let Some(frame) = frontend_frame(rest)? {
                if !matches!(frame.tag, b'S' | b'H') {
                    exchange.client_frame(scope, &rest[..frame.len], out)?;
                }
                rest = &rest[frame.len..];
            }
            exchange.end_batch(out);
            Ok(BytesMut::new())
        })
        .await
    }

    /// The group was refused.
    fn not_prepared(&mut self, length: usize, flow: Flow) -> Flow {
        if flow == Flow::Continue {
            self.client.input.advance(length);
        }
        flow
    }

    fn recall(&mut self, length: usize, batch: &Batch) -> Option<Answered> {
        let bytes = &self.client.input[..length];
        let parsed = batch::recall(&self.state, bytes, batch)?;
        batch::answer_locally(&mut self.state, &mut self.transaction, bytes, &parsed)
    }

    /// Takes the pool's spare connection, in the session's settings. `false`: there is none to be had.
    async fn take_spare(&mut self, synced: bool) -> Result<bool, Flow> {
        let Some(pool) = self.lease.as_ref().map(Lease::pool) else { return Ok(false) };
        let shared = Arc::clone(&self.shared);
        self.cancel.queued();
        match self.watching(timeout(SPARE_WAIT, shared.pools.spare(pool))).await {
            Ok(Ok(Some(server))) => self.server = Some(server),
            Ok(_) => return Ok(false),
            Err(interrupted) => {
                self.cancel.idle();
                return Err(self.interrupted(interrupted, synced).await);
            }
        }
        match self.attach().await {
            Attached::Ready => Ok(true),
            Attached::Retry | Attached::Gone => Ok(false),
            Attached::Refused(_, refusal) => Err(self.refuse(&refusal, synced)),
        }
    }

    /// A group was prepared aside, or refused by the server. The client's transaction goes on, or fails.
    pub(super) async fn prepared_aside(&mut self, failed: bool, is_whole: bool) -> Flow {
        if failed {
            self.transaction.refuse();
        }
        self.release().await;
        if is_whole {
            self.skipping = false;
            backend::write_ready(&mut self.client.output, self.transaction.status());
        }
        Flow::Continue
    }

    async fn forward_batch(&mut self, length: usize, until: Until, batch: Batch) -> Flow {
        let mut frames = self.client.take(length);
        let explicit = !matches!(self.transaction, Transaction::Idle);
        // With a connection of its own, a client that pauses behind its Parse keeps what the server holds
        // for the batch (its time-outs run), and is most likely to go on with a Bind. On a shared one,
        // nobody keeps it for a Parse.
        let may_go_on = until == Until::Pause && !self.state.shared;
        let is_preparation = batch.prepares_only() && !explicit && !may_go_on;
        let mut analysis = match &batch.first {
            // A statement that is prepared and not run costs alike, whatever it is.
            Some(first) if !is_preparation => Cow::Borrowed(&first.analysis),
            _ => Cow::Owned(Analysis::prepare()),
        };
        if batch.executes > 1 {
            analysis.to_mut().add_size(batch.executes);
        }
        let admitted = self.admit(&analysis, until.is_whole()).await;
        if let Err(flow) = admitted {
            return flow;
        }
        let exchange = Exchange::new(batch.parsed, &self.transaction);
        self.exchange(exchange, move |exchange, scope, out| {
            let sent = send(exchange, scope, &frames, out)?;
            let waiting = frames.split_off(sent);
            match until {
                _ if !waiting.is_empty() => {}
                Until::Sync => {}
                _ if is_preparation => exchange.end_batch(out),
                Until::Pause => exchange.flush(out),
                Until::Flush | Until::More => {}
            }
            Ok(waiting)
        })
        .await
    }
}

/// Sends the messages of a batch, up to one that has to wait. Returns how many bytes were sent.
fn send(
    exchange: &mut Exchange,
    scope: &mut Scope<'_>,
    frames: &[u8],
    out: &mut BytesMut,
) -> Result<usize, ProtocolError> {
    let mut sent = 0;
    while let Some(frame) = frontend_frame(&frames[sent..])? {
        exchange.client_frame(scope, &frames[sent..sent + frame.len], out)?;
        if exchange.is_verifying() {
            break;
        }
        sent += frame.len - exchange.tail();
        if exchange.tail() > 0 {
            break;
        }
    }
    Ok(sent)
}
