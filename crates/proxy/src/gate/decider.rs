//! The decider: a gate that means it, or one that only says what it would have decided.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use admission::{
    Action, ClientId, Completion, Event, Gate, Instant, Learned, Pin, Policy, PoolId, PoolSet, Reason,
    Request, RequestType, Ticket, Work,
};

use crate::observe::Account;
use crate::shadow::{Foreseen, Shadow};

/// An [`admission::Gate`], or a shadow of one that dispatches everything at once. Its methods are the gate's.
#[derive(Debug)]
pub(crate) enum Decider {
    /// `mode = "enforce"`.
    Enforcing(Box<Gate>),
    /// `mode = "observe"`.
    Observing {
        /// What would have been decided.
        shadow: Box<Shadow>,
        /// What really happens.
        real: Real,
    },
}

/// Requests that really run, each from its arrival on.
#[derive(Debug, Default)]
pub(crate) struct Real {
    /// What is decided: to go ahead. Drained after each arrival, so it never holds more than one.
    dispatched: VecDeque<Ticket>,
    /// Those that run.
    running: HashMap<Ticket, Running>,
    /// How many have passed the shadow by.
    passed: u64,
    /// Drained after each call.
    events: VecDeque<(Account, Event)>,
}

/// A request that really runs.
#[derive(Clone, Copy, Debug)]
struct Running {
    account: Account,
    request_type: RequestType,
    /// What it was expected to need.
    work: Work,
}

impl Real {
    /// A request begins, which the shadow knows by this ticket if it has it.
    fn begin(&mut self, known: Option<Ticket>, request_type: RequestType, work: Work) -> (Ticket, Account) {
        self.passed += u64::from(known.is_none());
        let account = if known.is_some() { Account::Real } else { Account::Unforeseen };
        let ticket = known.unwrap_or(Ticket::aside(self.passed));
        self.dispatched.push_back(ticket);
        self.running.insert(ticket, Running { account, request_type, work });
        let queue_wait = Duration::ZERO;
        self.events.push_back((account, Event::Dispatched { ticket, request_type, work, queue_wait }));
        (ticket, account)
    }

    fn end(&mut self, ticket: Ticket, Completion { outcome, upstream_time }: Completion) {
        let Some(Running { account, request_type, work }) = self.running.remove(&ticket) else { return };
        let queue_wait = Duration::ZERO;
        let ended = Event::Completed { ticket, request_type, outcome, work, queue_wait, upstream_time };
        self.events.push_back((account, ended));
    }
}

impl Decider {
    pub(crate) fn enforcing(policy: Policy, now: Instant, seed: u64) -> Self {
        Self::Enforcing(Box::new(Gate::new(policy, now, seed)))
    }

    pub(crate) fn observing(policy: Policy, now: Instant, seed: u64) -> Self {
        Self::Observing { shadow: Box::new(Shadow::new(policy, now, seed)), real: Real::default() }
    }

    /// Observing, `turn` is the connection whose requests come one after the other.
    pub(crate) fn arrive(&mut self, now: Instant, request: Request, turn: Option<u64>) -> (Ticket, Account) {
        match self {
            Self::Enforcing(gate) => (gate.arrive(now, request), Account::Only),
            Self::Observing { shadow, real } => {
                let known = match turn {
                    Some(turn) => shadow.arrive_in_turn(now, request, turn),
                    None => Some(shadow.arrive(now, request)),
                };
                let expected = known.and_then(|ticket| shadow.gate().expected_of(ticket));
                let work = expected.or_else(|| Some(shadow.gate().lane_of(request.request_type)?.1));
                real.begin(known, request.request_type, work.unwrap_or(Work::ZERO))
            }
        }
    }

    /// How many requests are really in flight, where that isn't what is decided.
    pub(crate) fn running(&self) -> Option<usize> {
        match self {
            Self::Enforcing(_) => None,
            Self::Observing { real, .. } => Some(real.running.len()),
        }
    }

    pub(crate) fn connect(&mut self) -> ClientId {
        match self {
            Self::Enforcing(gate) => gate.connect(),
            Self::Observing { shadow, .. } => shadow.connect(),
        }
    }

    pub(crate) fn disconnect(&mut self, now: Instant, client: ClientId) {
        match self {
            Self::Enforcing(gate) => gate.disconnect(now, client),
            Self::Observing { shadow, .. } => shadow.disconnect(now, client),
        }
    }

    pub(crate) fn idle(&mut self, now: Instant, ticket: Ticket) {
        match self {
            Self::Enforcing(gate) => gate.idle(now, ticket),
            Self::Observing { shadow, .. } => shadow.idle(now, ticket),
        }
    }

    /// Idle, with its work given back at once; a gate that only watches does so after the usual time.
    pub(crate) fn make_way(&mut self, now: Instant, ticket: Ticket) {
        self.idle(now, ticket);
        if let Self::Enforcing(gate) = self {
            gate.suspend(now, ticket);
        }
    }

    pub(crate) fn resume(&mut self, now: Instant, ticket: Ticket) {
        match self {
            Self::Enforcing(gate) => gate.resume(now, ticket),
            Self::Observing { shadow, .. } => shadow.resume(now, ticket),
        }
    }

    pub(crate) fn complete(&mut self, now: Instant, ticket: Ticket, completion: Completion) {
        match self {
            Self::Enforcing(gate) => gate.complete(now, ticket, completion),
            Self::Observing { shadow, real } => {
                real.end(ticket, completion);
                shadow.finished(now, ticket, completion);
            }
        }
    }

    /// A request ends before its end. Observing, it only seems to end sooner.
    pub(crate) fn cut_short(&mut self, ticket: Ticket) {
        if let Self::Enforcing(gate) = self {
            gate.cut_short(ticket);
        }
    }

    /// What would have become of a request. Enforcing, it has become of it.
    pub(crate) fn foresee(&mut self, now: Instant, ticket: Ticket) -> Option<Foreseen> {
        match self {
            Self::Enforcing(_) => None,
            Self::Observing { shadow, .. } => shadow.foresee(now, ticket),
        }
    }

    /// When a client that is refused now may try again. Observing, nobody is refused.
    pub(crate) fn retry_after(&self) -> Duration {
        match self {
            Self::Enforcing(gate) => gate.retry_after(),
            Self::Observing { .. } => Duration::ZERO,
        }
    }

    /// What a request in flight was expected to take. Observing, nobody asks.
    pub(crate) fn expected_of(&self, ticket: Ticket) -> Option<Work> {
        match self {
            Self::Enforcing(gate) => gate.expected_of(ticket),
            Self::Observing { .. } => None,
        }
    }

    /// A client has left: its request leaves the queue, or is marked in flight. Observing, none ever waits.
    pub(crate) fn cancel(&mut self, now: Instant, ticket: Ticket) {
        if let Self::Enforcing(gate) = self {
            gate.cancel(now, ticket);
        }
    }

    /// Observing, no session shares its connection, so none has one to pin.
    pub(crate) fn pin(&mut self, now: Instant, ticket: Ticket) -> Result<Pin, Reason> {
        match self {
            Self::Enforcing(gate) => gate.pin(now, ticket),
            Self::Observing { .. } => Err(Reason::PinnedMax),
        }
    }

    pub(crate) fn unpin(&mut self, now: Instant, pin: Pin) {
        if let Self::Enforcing(gate) = self {
            gate.unpin(now, pin);
        }
    }

    /// Observing, there are no pools: each session has a connection of its own.
    pub(crate) fn set_pool(&mut self, now: Instant, pool: PoolId, connections: u32) {
        if let Self::Enforcing(gate) = self {
            gate.set_pool(now, pool, connections);
        }
    }

    pub(crate) fn set_policy(&mut self, now: Instant, policy: Policy) {
        match self {
            Self::Enforcing(gate) => gate.set_policy(now, policy),
            Self::Observing { shadow, .. } => shadow.set_policy(now, policy),
        }
    }

    pub(crate) fn recall(&mut self, now: Instant, learned: &Learned) {
        match self {
            Self::Enforcing(gate) => gate.recall(now, learned),
            Self::Observing { shadow, .. } => shadow.recall(now, learned),
        }
    }

    /// Returns the pools that were paused before. Observing, nobody is held up.
    pub(crate) fn pause(&mut self, now: Instant, pools: PoolSet) -> PoolSet {
        let before = self.paused();
        if let Self::Enforcing(gate) = self {
            gate.hold_up(now, pools);
        }
        before
    }

    pub(crate) fn paused(&self) -> PoolSet {
        match self {
            Self::Enforcing(gate) => gate.held_up(),
            Self::Observing { .. } => PoolSet::NONE,
        }
    }

    /// Observing, nobody waits for the last one to end.
    pub(crate) fn in_flight_of(&self, pools: PoolSet) -> usize {
        match self {
            Self::Enforcing(gate) => gate.in_flight_of(pools),
            Self::Observing { .. } => 0,
        }
    }

    /// The gate that decides, or would: what it knows, and its queue.
    pub(crate) fn gate(&self) -> &Gate {
        match self {
            Self::Enforcing(gate) => gate,
            Self::Observing { shadow, .. } => shadow.gate(),
        }
    }

    pub(crate) fn handle_timeout(&mut self, now: Instant) {
        match self {
            Self::Enforcing(gate) => gate.handle_timeout(now),
            Self::Observing { shadow, .. } => shadow.handle_timeout(now),
        }
    }

    pub(crate) fn next_timeout(&self) -> Option<Instant> {
        match self {
            Self::Enforcing(gate) => gate.next_timeout(),
            Self::Observing { shadow, .. } => shadow.next_timeout(),
        }
    }

    pub(crate) fn poll(&mut self) -> Option<Action> {
        match self {
            Self::Enforcing(gate) => gate.poll(),
            Self::Observing { real, .. } => real.dispatched.pop_front().map(Action::Dispatch),
        }
    }

    pub(crate) fn poll_event(&mut self) -> Option<(Account, Event)> {
        match self {
            Self::Enforcing(gate) => gate.poll_event().map(|event| (Account::Only, event)),
            Self::Observing { shadow, real } => {
                let foreseen = || shadow.poll_event().map(|event| (Account::Foreseen, event));
                real.events.pop_front().or_else(foreseen)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use admission::{Connection, Cost, Entry, Order, Outcome, RequestType, Snapshot};

    use super::*;

    fn policy() -> Policy {
        Policy {
            capacity: admission::Capacity::Unlimited,
            connections: 1,
            long_limit: None,
            cost: Cost::DEFAULT,
            order: Order::Fifo,
            queue_max: 10,
            queue_timeout: Duration::from_secs(1),
            pinned_max: 1,
            types_max: 10,
            ..Policy::default()
        }
    }

    fn request() -> Request {
        Request {
            request_type: RequestType(1),
            class: admission::ClassId::DEFAULT,
            pool: PoolId::default(),
            connection: Connection::Needed,
            entry: Entry::Queued,
            client: None,
            tenant: None,
            deadline: None,
        }
    }

    #[test]
    fn observing_dispatches_what_enforcing_holds_back_and_counts_the_same() {
        let request = request();
        let mut enforcing = Decider::enforcing(policy(), Instant::ZERO, 1);
        enforcing.set_pool(Instant::ZERO, PoolId::default(), 1);
        let mut observing = Decider::observing(policy(), Instant::ZERO, 1);
        let done = Completion { outcome: Outcome::Success, upstream_time: Duration::ZERO };
        for (decider, dispatched_at_once) in [(&mut enforcing, 1), (&mut observing, 2)] {
            let tickets = [(); 2].map(|()| decider.arrive(Instant::ZERO, request, None).0);
            assert_eq!(std::iter::from_fn(|| decider.poll()).count(), dispatched_at_once);
            let Snapshot { in_flight, queued, .. } = decider.gate().snapshot();
            assert_eq!((in_flight, queued), (1, 1));
            for ticket in tickets {
                decider.complete(Instant::ZERO, ticket, done);
            }
        }
        observing.handle_timeout(Instant::ZERO);
        assert_eq!((observing.gate().snapshot().in_flight, observing.poll()), (0, None));
    }

    #[test]
    fn more_never_wait_in_foresight_than_there_are_connections_and_every_real_end_is_counted() {
        let request = request();
        let policy = Policy { queue_max: 1000, queue_timeout: Duration::from_secs(3600), ..policy() };
        let mut decider = Decider::observing(policy, Instant::ZERO, 1);
        let mut observer = crate::observe::Observer::new(10);
        observer.describe(&crate::observe::TypeName::new(request.request_type, "a type".into()));
        let (connections, rounds, took) = (8, 50, Duration::from_millis(10));
        let done = Completion { outcome: Outcome::Success, upstream_time: took };
        // Eight connections without a pause, while the shadow serves one request at a time: it falls behind.
        for round in 0..rounds {
            let at = Instant::ZERO.after(took * round);
            let tickets: Vec<_> =
                (0..connections).map(|turn| decider.arrive(at, request, Some(turn)).0).collect();
            assert_eq!(decider.running(), Some(tickets.len()));
            assert_eq!(std::iter::from_fn(|| decider.poll()).count(), tickets.len(), "all go ahead");
            for ticket in tickets {
                decider.complete(at.after(took), ticket, done);
            }
            let Snapshot { in_flight, queued, .. } = decider.gate().snapshot();
            assert!(in_flight <= 1 && in_flight + queued <= 8, "{in_flight} + {queued}");
            assert!(in_flight + queued >= 6, "the shadow is never without work: {in_flight} + {queued}");
            while let Some((account, event)) = decider.poll_event() {
                observer.account(account, &event);
            }
        }
        let counts = observer.totals().counts;
        let all = u64::from(rounds) * connections;
        assert_eq!((counts.dispatched, counts.succeeded, counts.left), (all, all, 0));
        let row = observer.table().into_iter().find(|row| row.key.is_some()).unwrap();
        assert_eq!((row.counts.succeeded, row.upstream_time.count), (all, all));
        let waits = row.queue_wait.count;
        assert!((u64::from(rounds) - 1..all / 4).contains(&waits), "one a round is foreseen: {waits}");
        assert_eq!(decider.running(), Some(0));
    }
}
