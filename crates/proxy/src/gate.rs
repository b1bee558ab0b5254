//! The driver of one gate: it owns an [`admission::Gate`] (or, observing, the shadow of one), tells it the
//! time, wakes the requests that it dispatches or refuses, and hands its events to the observer. It decides
//! nothing.
//!
//! # Concurrency
//!
//! One mutex guards the gate, the observer and the table of waiting requests. It is held for the few
//! microseconds of one decision and never across an await. Wake-ups are collected under the lock and sent
//! after it. A ticket has one owner at any time: the `Waiting` future while it is queued, then the
//! `Permit`; both give it back when dropped, so that a session that ends in any way leaks neither capacity
//! nor a place in the queue.
//!
//! The timer task sleeps until the gate's next timeout. A new, earlier timeout wakes it; timeouts are
//! honored to `TIMER_RESOLUTION`, so that a busy gate doesn't wake the task for every request.

use std::collections::HashMap;
use std::future::Future;
use std::pin::Pin as StdPin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};
use std::time::Duration;

use admission::{
    Action, ClassId, ClientId, Completion, Gate, Instant, Lane, Learned, LearnedType, Outcome, Pin, Policy,
    PoolId, PoolSet, Queued, Reason, Refused, Request, RequestType, ServiceClass, Shortage, Silent, Snapshot,
    Ticket, Turns,
};
use parking_lot::Mutex;
use tokio::sync::{Notify, oneshot};

use crate::clock::Clock;
use crate::news::Lanes;
use crate::observe::{
    Account, Change, ChangedRow, ChangedRows, Most, Observer, Totals, TypeName, TypeRow, log_changes,
};
use crate::permit::Permit;
use crate::principal::Principal;
use crate::trace::Recorder;
use crate::why::{Ask, Origin, Reply, Why};

mod decider;
mod rules;

use decider::Decider;
pub(crate) use rules::Passing;
use rules::Rules;

/// How late a timeout may be served. Finer buys nothing (the runtime's own timer ticks in milliseconds) and
/// costs a wake-up per request.
const TIMER_RESOLUTION: Duration = Duration::from_millis(1);

/// Nothing is armed.
const NEVER: u64 = u64::MAX;

/// The end of a dispatched request that nobody sent.
const UNUSED: Completion = Completion { outcome: Outcome::Canceled, upstream_time: Duration::ZERO };

/// The gate's answer to a request that waited.
type Verdict = Result<(), Refused>;

struct Inner {
    gate: Decider,
    observer: Observer,
    waiters: HashMap<Ticket, oneshot::Sender<Verdict>>,
    why: Why,
}

/// One gate, shared by all its sessions.
pub struct Driver {
    name: String,
    clock: Clock,
    rules: Mutex<Rules>,
    inner: Mutex<Inner>,
    /// When the timer task will wake, in nanoseconds of the clock.
    armed: AtomicU64,
    rearm: Notify,
    /// The recorder that writes down what happens, if there is one.
    recorder: OnceLock<Recorder>,
    /// What the log was told of types that change their lanes.
    lanes: Lanes,
}

/// What became of an arrival.
pub(crate) enum Arrival {
    /// Go.
    Dispatched(Permit),
    /// Wait for it.
    Waiting(Waiting),
    /// Refused, with its number for `gatekeeper why`.
    Rejected(Refused, u64),
}

impl Driver {
    /// A gate with this policy, named as in the config.
    pub fn new(name: impl Into<String>, policy: Policy, seed: u64) -> Arc<Self> {
        let clock = Clock::start();
        let gate = Decider::enforcing(policy.clone(), clock.now(), seed);
        Self::with(name.into(), policy, clock, gate)
    }

    /// A gate that lets everything pass, and counts what it would have done with this policy.
    pub fn observing(name: impl Into<String>, policy: Policy, seed: u64) -> Arc<Self> {
        let clock = Clock::start();
        let gate = Decider::observing(policy.clone(), clock.now(), seed);
        Self::with(name.into(), policy, clock, gate)
    }

    fn with(name: String, policy: Policy, clock: Clock, gate: Decider) -> Arc<Self> {
        let observer = Observer::new(policy.types_max);
        Arc::new(Self {
            name,
            clock,
            rules: Mutex::new(Rules::new(policy)),
            inner: Mutex::new(Inner { gate, observer, waiters: HashMap::new(), why: Why::default() }),
            armed: AtomicU64::new(NEVER),
            rearm: Notify::new(),
            recorder: OnceLock::new(),
            lanes: Lanes::default(),
        })
    }

    /// The gate's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What the log was told of types that change their lanes.
    pub(crate) fn lanes(&self) -> &Lanes {
        &self.lanes
    }

    /// Whether it only says what it would have decided.
    pub(crate) fn only_watches(&self) -> bool {
        matches!(self.inner.lock().gate, Decider::Observing { .. })
    }

    /// How many requests are really in flight, where that isn't what is decided.
    pub(crate) fn really_in_flight(&self) -> Option<usize> {
        self.inner.lock().gate.running()
    }

    /// The gate's clock.
    pub fn clock(&self) -> Clock {
        self.clock
    }

    /// A request arrives, of a principal where that is known. `label` names the request's type; it is called
    /// only when the type is new.
    pub(crate) fn arrive(
        self: &Arc<Self>,
        request: Request,
        origin: Origin,
        principal: Option<&Arc<Principal>>,
        label: impl FnOnce() -> TypeName,
    ) -> Arrival {
        let mut wakes = Wakes::default();
        let now = self.clock.now();
        let mut inner = self.inner.lock();
        if !inner.observer.knows(request.request_type) {
            inner.observer.describe(&label());
        }
        if let Some(principal) = principal {
            inner.observer.note_principal(request.request_type, principal);
        }
        let (ticket, account) = inner.gate.arrive(now, request, origin.turn);
        let recorder = self.recorder.get();
        if let Some(recorder) = recorder {
            recorder.arrived(now, ticket, &request);
        }
        if account != Account::Unforeseen {
            let obstacle = inner.gate.gate().obstacle(ticket);
            inner.why.arrived(now, ticket, (&request, origin), obstacle);
        }
        let own = inner.drain((now, recorder), Some(ticket), &mut wakes);
        let waiting = own.is_none().then(|| {
            let (sender, receiver) = oneshot::channel();
            inner.waiters.insert(ticket, sender);
            receiver
        });
        self.arm(&inner.gate, now);
        drop(inner);
        wakes.send(&self.name, &self.lanes);
        match (own, waiting) {
            (Some(Ok(())), _) => Arrival::Dispatched(Permit::new(Arc::clone(self), ticket)),
            (Some(Err(refused)), _) => Arrival::Rejected(refused, ticket.sequence()),
            (None, Some(verdict)) => {
                Arrival::Waiting(Waiting { driver: Arc::clone(self), ticket, verdict, ended: false })
            }
            (None, None) => unreachable!("a ticket without a verdict waits"),
        }
    }

    /// A client has connected, whose requests will name it until what is returned is dropped.
    pub(crate) fn connect(self: &Arc<Self>) -> Client {
        let id = self.inner.lock().gate.connect();
        Client { driver: Arc::clone(self), id }
    }

    /// Sets how many connections of a pool exist. Call it with the pool's lock held. The pool's lock comes
    /// first, then the gate's, never the other way round.
    pub fn set_pool(&self, pool: PoolId, connections: u32) {
        self.change(|gate, now| gate.set_pool(now, pool, connections));
    }

    /// Hands all that happens from now on to this recorder. Only the first one is heard.
    pub(crate) fn set_recorder(&self, recorder: Recorder) {
        let _ = self.recorder.set(recorder);
    }

    /// How many entries of the trace were left out; `None` if there is none.
    pub fn trace_lost(&self) -> Option<u64> {
        self.recorder.get().map(Recorder::lost)
    }

    /// A trace of what is kept in memory; `None` where nothing is, as of a gate that enforces.
    pub(crate) fn kept_trace(&self) -> Option<std::io::Result<Vec<u8>>> {
        Some(self.recorder.get()?.kept()?.trace(self))
    }

    /// The names of all types that are known.
    pub(crate) fn labels(&self) -> Vec<(RequestType, Arc<str>)> {
        self.inner.lock().observer.labels()
    }

    /// The most frequent principals of a row's types, and at least how many requests each sent.
    pub(crate) fn principals_of(&self, row: RequestType) -> Vec<(Arc<Principal>, u64)> {
        self.inner.lock().observer.principals_of(row)
    }

    /// The name of a type that is known.
    pub(crate) fn label(&self, request_type: RequestType) -> Option<Arc<str>> {
        self.inner.lock().observer.label(request_type)
    }

    /// Whether others of the service can go before a request that runs: one of the long lane, or of a class
    /// in the background.
    pub(crate) fn can_wait(&self, request_type: RequestType, class: ClassId) -> bool {
        let is_it = |known: &ServiceClass| known.id == class && known.turns == Turns::Background;
        let is_long = || matches!(self.inner.lock().gate.gate().lane_of(request_type), Some((Lane::Long, _)));
        self.rules.lock().classes().iter().any(is_it) || is_long()
    }

    /// What the classes are called from now on.
    pub(crate) fn name_classes(&self, names: Vec<(ClassId, Arc<str>)>) {
        self.inner.lock().observer.name_classes(names);
    }

    /// The gate's state now.
    pub fn snapshot(&self) -> Snapshot {
        self.looked_at(Gate::snapshot)
    }

    /// The gate's state now, without the types.
    pub(crate) fn brief(&self) -> Snapshot {
        self.looked_at(Gate::brief)
    }

    /// What the words about a refusal are made of.
    pub(crate) fn facts(&self) -> (Instant, Snapshot, Option<Silent>) {
        let inner = self.inner.lock();
        (self.clock.now(), inner.gate.gate().brief(), inner.gate.gate().silent())
    }

    /// When a client that is refused now may try again.
    pub(crate) fn retry_after(&self) -> Duration {
        self.inner.lock().gate.retry_after()
    }

    /// What the gate has learned, with the name of each type: to be kept across restarts.
    pub fn learned(&self) -> (Learned, Vec<Arc<str>>) {
        let inner = self.inner.lock();
        let mut learned = inner.gate.gate().learned();
        let label = |known: &LearnedType| inner.observer.own_label(known.request_type);
        // What has no name, or none to be shown, would have none after the restart either.
        learned.types.retain(|known| label(known).is_some());
        let labels = learned.types.iter().filter_map(label).collect();
        (learned, labels)
    }

    /// Knows from now on what another gate had learned; `labels` are the names of its types, one for each.
    pub fn recall(&self, learned: &Learned, labels: &[Arc<str>]) {
        self.settle(|inner, now| {
            for (known, label) in learned.types.iter().zip(labels) {
                inner.observer.describe(&TypeName::new(known.request_type, Arc::clone(label)));
            }
            inner.gate.recall(now, learned);
        });
    }

    /// Requests of these pools wait from now on, and no others for that reason. Returns those of which they
    /// waited before.
    pub(crate) fn pause(&self, pools: PoolSet) -> PoolSet {
        self.settle(|inner, now| {
            inner.why.look(now, inner.gate.gate());
            let before = inner.gate.pause(now, pools);
            inner.why.look(now, inner.gate.gate());
            before
        })
    }

    /// The pools whose requests wait because an operator has paused them.
    pub(crate) fn paused(&self) -> PoolSet {
        self.inner.lock().gate.paused()
    }

    /// The pools whose requests wait for nothing but a connection of theirs.
    pub(crate) fn short_of_connections(&self) -> Shortage {
        self.inner.lock().gate.gate().short_of_connections()
    }

    /// How many requests of these pools are in flight.
    pub(crate) fn in_flight_of(&self, pools: PoolSet) -> usize {
        self.inner.lock().gate.in_flight_of(pools)
    }

    /// Those that wait, with the names of their types, in order of arrival, at most so many.
    pub(crate) fn queue(&self, most: usize) -> Vec<(Queued, Option<Arc<str>>)> {
        let inner = self.inner.lock();
        let queue = inner.gate.gate().queue(most);
        queue.into_iter().map(|queued| (queued, inner.observer.label(queued.request_type))).collect()
    }

    /// The sessions of requests that wait, as far as they have one.
    pub(crate) fn sessions_of(&self, queue: impl Iterator<Item = Ticket>) -> Vec<Option<u64>> {
        let inner = self.inner.lock();
        queue.map(|ticket| inner.why.session_of(ticket)).collect()
    }

    /// The response of a request has waited so long for the uplink.
    pub(crate) fn has_waited_for_uplink(&self, number: u64, waited: Duration) {
        self.inner.lock().why.has_waited_for_uplink(number, waited);
    }

    /// What became of the requests that are asked for, and the names of the types in it.
    pub(crate) fn tell(&self, ask: Ask) -> (Instant, Vec<Reply>, HashMap<RequestType, Arc<str>>) {
        let now = self.clock.now();
        let inner = self.inner.lock();
        let told = inner.why.tell(now, ask);
        let types = told.iter().flat_map(Reply::types);
        let labels = types.filter_map(|key| Some((key, inner.observer.label(key)?))).collect();
        (now, told, labels)
    }

    /// The learned table.
    pub fn types(&self) -> Vec<TypeRow> {
        self.inner.lock().observer.table()
    }

    /// The rows of the types that were used since an earlier look.
    pub(crate) fn types_since(&self, mark: u64) -> ChangedRows {
        let Inner { gate, observer, .. } = &mut *self.inner.lock();
        let mut changed = observer.changed(mark);
        for ChangedRow { row, .. } in &mut changed.rows {
            // What the gate knows is newer: the observer hears of a lane only when it changes.
            if let Some(learned) = row.key.and_then(|key| gate.gate().lane_of(key)) {
                (row.lane, row.work) = learned;
            }
        }
        changed
    }

    /// Counts over all types.
    pub fn totals(&self) -> Totals {
        self.inner.lock().observer.totals()
    }

    /// What was refused most since the last call, by reason.
    pub(crate) fn take_refused(&self) -> HashMap<Reason, Most> {
        self.inner.lock().observer.take_refused()
    }

    /// Serves the gate's timeouts until the task is dropped.
    pub async fn run_timer(self: Arc<Self>) {
        loop {
            let armed = self.armed.load(Ordering::Acquire);
            let rearmed = self.rearm.notified();
            if armed == NEVER {
                rearmed.await;
                continue;
            }
            tokio::select! {
                () = tokio::time::sleep_until(self.clock.at(Instant::from_nanos(armed))) => {
                    self.armed.store(NEVER, Ordering::Release);
                    self.change(Decider::handle_timeout);
                }
                () = rearmed => {}
            }
        }
    }

    /// Changes the gate, then delivers what follows from it.
    pub(crate) fn change<R>(&self, change: impl FnOnce(&mut Decider, Instant) -> R) -> R {
        self.settle(|inner, now| change(&mut inner.gate, now))
    }

    /// A request in flight is refused, and counts so from now on, whatever becomes of the rest of it.
    pub(crate) fn refuse(&self, ticket: Ticket, reason: Reason) {
        self.settle(|inner, now| {
            if let Some((request_type, class)) = inner.why.refused(now, ticket, reason) {
                inner.observer.refuse_in_flight(ticket, (reason, request_type, class, None));
            }
        });
    }

    /// Takes a request out of the queue. `false`: it doesn't wait any more, its verdict is under way.
    fn leave(&self, ticket: Ticket) -> bool {
        // Both at once: dispatched in between it would be in flight for nobody, and for good.
        self.settle(|inner, now| {
            let is_waiting = inner.waiters.remove(&ticket).is_some();
            if is_waiting {
                inner.gate.cancel(now, ticket);
            }
            is_waiting
        })
    }

    /// Changes something under the lock, then delivers what follows from it.
    fn settle<R>(&self, change: impl FnOnce(&mut Inner, Instant) -> R) -> R {
        let mut wakes = Wakes::default();
        let now = self.clock.now();
        let mut inner = self.inner.lock();
        let result = change(&mut inner, now);
        inner.drain((now, self.recorder.get()), None, &mut wakes);
        self.arm(&inner.gate, now);
        drop(inner);
        wakes.send(&self.name, &self.lanes);
        result
    }

    /// Makes sure that the timer task wakes for the gate's next timeout. Called with the lock held, so that
    /// two callers can't undo one another's.
    fn arm(&self, gate: &Decider, now: Instant) {
        let Some(next) = gate.next_timeout() else { return };
        let earliest = now.after(TIMER_RESOLUTION);
        let next = next.max(earliest).as_nanos();
        // An alarm that is at most one resolution early is as good: it finds nothing to do and arms itself
        // again.
        if next.saturating_add(1) < self.armed.load(Ordering::Acquire) {
            self.armed.store(next, Ordering::Release);
            self.rearm.notify_one();
        }
    }
}

impl std::fmt::Debug for Driver {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Driver").field("name", &self.name).finish_non_exhaustive()
    }
}

impl Inner {
    /// Takes all that the gate wants done. Returns the verdict on `own`, which has no waiter yet.
    fn drain(
        &mut self,
        (now, recorder): (Instant, Option<&Recorder>),
        own: Option<Ticket>,
        wakes: &mut Wakes,
    ) -> Option<Verdict> {
        let mut found = None;
        while let Some(action) = self.gate.poll() {
            let (ticket, verdict) = match action {
                Action::Dispatch(ticket) => (ticket, Ok(())),
                Action::Reject(ticket, refused) => (ticket, Err(refused)),
            };
            if Some(ticket) == own {
                found = Some(verdict);
            } else if let Some(waiter) = self.waiters.remove(&ticket) {
                wakes.verdicts.push((waiter, verdict));
            }
        }
        while let Some((account, event)) = self.gate.poll_event() {
            self.observer.account(account, &event);
            if matches!(account, Account::Only | Account::Foreseen) {
                self.why.happened(now, &event);
            }
            if let Some(recorder) = recorder.filter(|_| account != Account::Real) {
                recorder.happened(now, &event);
            }
        }
        if self.why.is_due(now) {
            self.why.look(now, self.gate.gate());
        }
        wakes.changes.append(&mut self.observer.take_changes());
        found
    }
}

/// What is to be done once the lock is released: verdicts to deliver, and what is worth a line in the log.
#[derive(Default)]
struct Wakes {
    verdicts: Vec<(oneshot::Sender<Verdict>, Verdict)>,
    changes: Vec<Change>,
}

impl Wakes {
    fn send(self, gate: &str, lanes: &Lanes) {
        for (waiter, verdict) in self.verdicts {
            // A receiver that is gone took its verdict back in `Waiting::drop`.
            let _ = waiter.send(verdict);
        }
        log_changes(gate, lanes, &self.changes);
    }
}

/// A queued request. Resolves to a permit or to its refusal; leaves the queue when dropped.
#[derive(Debug)]
pub(crate) struct Waiting {
    driver: Arc<Driver>,
    ticket: Ticket,
    verdict: oneshot::Receiver<Verdict>,
    ended: bool,
}

impl Waiting {
    /// The number of the request, for `gatekeeper why`.
    pub(crate) fn number(&self) -> u64 {
        self.ticket.sequence()
    }
}

impl Future for Waiting {
    type Output = Result<Permit, Refused>;

    fn poll(mut self: StdPin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        StdPin::new(&mut self.verdict).poll(context).map(|verdict| {
            self.ended = true;
            // The sender is dropped unused only with the driver, which we hold.
            let verdict = verdict.unwrap_or(Err(Reason::QueueTimeout.into()));
            verdict.map(|()| Permit::new(Arc::clone(&self.driver), self.ticket))
        })
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        if self.ended {
            return;
        }
        let ticket = self.ticket;
        if self.driver.leave(ticket) {
            return;
        }
        // The verdict is under way to a receiver that nobody polls any more. The send follows the lock's
        // release, so closing the channel decides which side owns a dispatched ticket: what arrived is ours
        // to end.
        self.verdict.close();
        if !matches!(self.verdict.try_recv(), Ok(Err(_))) {
            self.driver.change(|gate, now| gate.complete(now, ticket, UNUSED));
        }
    }
}

/// A client that is connected to the gate; it has left when this is dropped.
#[derive(Debug)]
pub(crate) struct Client {
    driver: Arc<Driver>,
    id: ClientId,
}

impl Client {
    pub(crate) const fn id(&self) -> ClientId {
        self.id
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        self.driver.change(|gate, now| gate.disconnect(now, self.id));
    }
}

/// A connection that a session keeps beyond its request; given back when dropped.
#[derive(Debug)]
pub(crate) struct Pinned {
    driver: Arc<Driver>,
    pin: Option<Pin>,
}

impl Pinned {
    pub(crate) fn new(driver: Arc<Driver>, pin: Pin) -> Self {
        Self { driver, pin: Some(pin) }
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        if let Some(pin) = self.pin.take() {
            self.driver.change(|gate, now| gate.unpin(now, pin));
        }
    }
}

#[cfg(test)]
mod tests;
