//! What holds whatever happens: random histories of everything that a shell can do.
//!
//! The history is checked against a second bookkeeping, written as plainly as it can be (`World`): every
//! ticket ends exactly once, load and connections are what the sum over the requests in flight says, no bound is ever
//! exceeded, time-outs make progress, nothing leaks, and the same history gives the same trace. The order of service is
//! compared with a naive model in `tests/order.rs`.

mod history;

use admission::{
    Action, Capacity, Completion, Connection, Contention, Controller, Cost, Duration, Entry, Event, Gate,
    Given, Goal, Instant, Lane, LongLimit, Order, Outcome, Pin, Policy, PoolId, PoolSet, Reason, Rejection,
    Request, RequestType, Snapshot, Targets, Ticket, Tuning, Work, YakshaSettings,
};
use history::{MS, check, pool};
use proptest::prelude::*;
use std::collections::BTreeMap;

const POOLS: u8 = 3;
const KINDS: usize = 6;

#[derive(Clone, Debug)]
enum Op {
    Arrive {
        kind: u64,
        pool: u8,
        held: bool,
        immediate: bool,
        deadline: Option<u64>,
    },
    Complete {
        which: usize,
        outcome: Outcome,
        took: u64,
    },
    Idle(usize),
    Resume(usize),
    Suspend(usize),
    Cancel(usize),
    Pin(usize),
    Unpin(usize),
    SetPool(u8, u32),
    SetPolicy(Box<Policy>),
    /// The pools with these bits are held up, and no others.
    HoldUp(u8),
    /// Time goes on: with every time-out answered, or unseen.
    Pass {
        nanos: u64,
        answered: bool,
    },
}

fn order() -> impl Strategy<Value = Order> {
    let aging = |aging, floor| Order::ShortestFirst { aging, floor: Work::from_nanos(floor * MS) };
    prop_oneof![
        Just(Order::Fifo),
        Just(aging(Some(0.0), 50)),
        Just(aging(Some(1.0), 0)),
        Just(aging(Some(5.0), 20)),
        Just(aging(None, 0)),
    ]
}

fn capacity() -> impl Strategy<Value = Capacity> {
    let controller = prop_oneof![
        Just(Controller::Auto),
        Just(Controller::IncrementalSteps),
        Just(Controller::Parabola),
        Just(Controller::Vegas),
        Just(Controller::Gradient2),
        Just(Controller::Aimd),
    ];
    prop_oneof![
        Just(Capacity::Unlimited),
        (1..100_u64).prop_map(|ms| Capacity::Fixed(Work::from_nanos(ms * MS))),
        controller.prop_map(Capacity::Found),
    ]
}

fn contention() -> impl Strategy<Value = Contention> {
    let given = |range: std::ops::Range<u64>, most| Given { types: range.map(RequestType).collect(), most };
    prop_oneof![
        Just(Contention::None),
        Just(Contention::Auto),
        (1..3_u32).prop_map(move |most| Contention::Given(vec![given(0..2, most)])),
        (1..3_u32, 1..3_u32)
            .prop_map(move |(one, two)| Contention::Given(vec![given(0..1, one), given(3..5, two)])),
    ]
}

fn rejection() -> impl Strategy<Value = Rejection> {
    let ms = Duration::from_millis;
    let yaksha = |tuning| {
        let settings = YakshaSettings { tuning, interval: ms(20), ..YakshaSettings::new(ms(5)) };
        Rejection::Yaksha(YakshaSettings { smoothing: ms(50), averaging: ms(50), ..settings })
    };
    prop_oneof![
        3 => Just(Rejection::Nobody),
        1 => Just(Rejection::Deadline),
        1 => Just(Rejection::Codel { target: ms(2), interval: ms(10) }),
        1 => Just(yaksha(Tuning::SelfTuned)),
        1 => Just(yaksha(Tuning::Static)),
        1 => Just(Rejection::Target(Targets::mean(ms(3)))),
        1 => Just(Rejection::Target(Targets::p95(ms(9)))),
        1 => Just(of_types()),
    ]
}

/// Targets of two types, one of all besides.
fn of_types() -> Rejection {
    let goal = |mean, p95: Option<u64>| Goal {
        mean: Some(Duration::from_millis(mean)),
        p95: p95.map(Duration::from_millis),
    };
    let types = BTreeMap::from([(RequestType(1), goal(1, None)), (RequestType(2), goal(9, Some(20)))]);
    Rejection::Target(Targets { all: goal(5, None), types })
}

fn cost() -> impl Strategy<Value = Cost> {
    prop_oneof![Just(Cost::MovingAverage { window: 8 }), Just(Cost::Ewma { weight: 0.1 }), Just(Cost::Steady),]
}

fn long_limit() -> impl Strategy<Value = LongLimit> {
    let prior = prop::option::of(1..5_u32);
    prop_oneof![(1..5_u32).prop_map(LongLimit::Fixed), prior.prop_map(|prior| LongLimit::Found { prior })]
}

fn a_policy() -> impl Strategy<Value = Policy> {
    let limits =
        (capacity(), 1..9_u32, prop::option::of(long_limit()), 0..20_usize, 1..100_u64, 0..4_u32, 0..8_usize);
    (limits, order(), rejection(), cost(), contention()).prop_map(
        |(limits, order, rejection, cost, contention)| {
            let (capacity, connections, long_limit, queue_max, timeout, pinned_max, types_max) = limits;
            Policy {
                capacity,
                contention,
                connections,
                long_limit,
                cost,
                order,
                queue_max,
                queue_timeout: Duration::from_millis(timeout),
                pinned_max,
                types_max,
                suspend_after: Duration::from_millis(10),
                rejection,
            }
        },
    )
}

fn outcome() -> impl Strategy<Value = Outcome> {
    prop_oneof![6 => Just(Outcome::Success), 1 => Just(Outcome::Failure), 1 => Just(Outcome::Canceled)]
}

fn op() -> impl Strategy<Value = Op> {
    let arrive = (0..KINDS as u64, 0..POOLS, 0..10_u8, prop::option::weighted(0.1, 0..30_u64)).prop_map(
        |(kind, pool, special, deadline)| Op::Arrive {
            kind,
            pool,
            held: special == 0,
            immediate: special == 1,
            deadline,
        },
    );
    let took = prop_oneof![3 => 0..2_000_000_u64, 1 => 0..200_000_000_u64];
    let complete = (0..64_usize, outcome(), took).prop_map(|(which, outcome, took)| Op::Complete {
        which,
        outcome,
        took,
    });
    let pass = (prop_oneof![0..1_000_000_u64, 0..30_000_000_u64], any::<bool>())
        .prop_map(|(nanos, answered)| Op::Pass { nanos, answered });
    prop_oneof![
        16 => arrive,
        10 => complete,
        2 => (0..64_usize).prop_map(Op::Idle),
        2 => (0..64_usize).prop_map(Op::Resume),
        1 => (0..64_usize).prop_map(Op::Suspend),
        3 => (0..64_usize).prop_map(Op::Cancel),
        1 => (0..64_usize).prop_map(Op::Pin),
        1 => (0..64_usize).prop_map(Op::Unpin),
        1 => (0..POOLS, 0..6_u32).prop_map(|(pool, total)| Op::SetPool(pool, total)),
        1 => a_policy().prop_map(|policy| Op::SetPolicy(Box::new(policy))),
        1 => (0..1_u8 << POOLS).prop_map(Op::HoldUp),
        6 => pass,
    ]
}

/// A request as the second bookkeeping sees it.
#[derive(Debug)]
struct Known {
    request: Request,
    in_flight: bool,
    work: u64,
    used: u64,
    busy_since: Option<u64>,
    suspended: bool,
    /// Its client thought for a while, once.
    thought: bool,
    pinned: bool,
    /// Its type was known to pass freely when it arrived.
    short: bool,
}

struct World {
    gate: Gate,
    policy: Policy,
    now: u64,
    alive: BTreeMap<Ticket, Known>,
    pins: Vec<(Ticket, Pin, PoolId)>,
    totals: [u32; POOLS as usize],
    in_use: [u32; POOLS as usize],
    pinned: u32,
    held_up: PoolSet,
    arrived: usize,
    ended: usize,
    /// Whether what requests have used was always counted in time.
    by_time: bool,
    /// Who was refused last, and why.
    refused: Option<(Ticket, Reason)>,
    /// It has been the same from the beginning.
    same_policy: bool,
    /// The fewest types that there was room for.
    types_min: usize,
    trace: Vec<String>,
}

impl World {
    fn new(policy: Policy) -> Self {
        let mut gate = Gate::new(policy.clone(), Instant::ZERO, 1);
        let (totals, types_min) = ([2, 3, 1], policy.types_max);
        for (index, total) in totals.into_iter().enumerate() {
            gate.set_pool(Instant::ZERO, pool(index as u8), total);
        }
        let (alive, pins, trace) = (BTreeMap::new(), Vec::new(), Vec::new());
        let (in_use, pinned, arrived, ended, now) = ([0; POOLS as usize], 0, 0, 0, 0);
        Self {
            by_time: policy.cost != Cost::Steady,
            gate,
            policy,
            now,
            alive,
            pins,
            totals,
            in_use,
            pinned,
            held_up: PoolSet::NONE,
            arrived,
            ended,
            refused: None,
            same_policy: true,
            types_min,
            trace,
        }
    }

    fn at(&self) -> Instant {
        Instant::from_nanos(self.now)
    }

    fn pick(&self, which: usize, in_flight: Option<bool>) -> Option<Ticket> {
        let fit = |known: &Known| in_flight.is_none_or(|wanted| wanted == known.in_flight);
        let tickets: Vec<_> =
            self.alive.iter().filter(|(_, known)| fit(known)).map(|(ticket, _)| *ticket).collect();
        (!tickets.is_empty()).then(|| tickets[which % tickets.len()])
    }

    fn apply(&mut self, op: &Op) {
        let now = self.at();
        match *op {
            Op::Arrive { kind, pool: index, held, immediate, deadline } => {
                self.arrive(kind, index, held, immediate, deadline);
            }
            Op::Complete { which, outcome, took } => {
                if let Some(ticket) = self.pick(which, Some(true)) {
                    self.complete(ticket, outcome, took);
                }
            }
            Op::Idle(which) => {
                if let Some(ticket) = self.pick(which, Some(true)) {
                    self.gate.idle(now, ticket);
                    self.stop(ticket);
                }
            }
            Op::Resume(which) => {
                if let Some(ticket) = self.pick(which, Some(true)) {
                    self.gate.resume(now, ticket);
                    self.settle(false);
                    let known = self.alive.get_mut(&ticket).expect("in flight");
                    known.busy_since.get_or_insert(self.now);
                }
            }
            Op::Suspend(which) => {
                if let Some(ticket) = self.pick(which, Some(true)) {
                    self.gate.suspend(now, ticket);
                    self.stop(ticket);
                }
            }
            Op::Cancel(which) => {
                if let Some(ticket) = self.pick(which, None) {
                    self.gate.cancel(now, ticket);
                }
            }
            Op::Pin(which) => self.pin(which),
            Op::Unpin(which) => self.unpin(which),
            Op::SetPool(index, total) => {
                self.totals[index as usize] = total;
                self.gate.set_pool(now, pool(index), total);
            }
            Op::SetPolicy(ref policy) => {
                // What was due before is refused by what held before.
                self.gate.handle_timeout(now);
                self.settle(true);
                self.same_policy = false;
                self.alive.values_mut().for_each(|known| known.short = false);
                self.policy = (**policy).clone();
                self.types_min = self.types_min.min(self.policy.types_max);
                self.gate.set_policy(now, self.policy.clone());
                self.by_time &= self.policy.cost != Cost::Steady;
            }
            Op::HoldUp(pools) => self.hold_up(pools),
            Op::Pass { nanos, answered } => self.pass(nanos, answered),
        }
        self.settle(true);
    }

    fn arrive(&mut self, kind: u64, index: u8, held: bool, immediate: bool, deadline: Option<u64>) {
        let request = Request {
            request_type: RequestType(kind),
            pool: pool(index),
            connection: if held { Connection::Held } else { Connection::Needed },
            entry: if immediate { Entry::Immediate } else { Entry::Queued },
            deadline: deadline.map(|ms| Instant::from_nanos(self.now + ms * MS)),
        };
        // What happens by the clock alone comes first, so that the bound is judged on what the newcomer meets.
        self.gate.handle_timeout(self.at());
        self.settle(true);
        let (waiting, short) = (self.waiting(), self.is_short(kind));
        let is_idle = self.alive.is_empty();
        let ticket = self.gate.arrive(self.at(), request);
        self.arrived += 1;
        let short = short && self.is_short(kind);
        let known = Known {
            request,
            in_flight: false,
            work: 0,
            used: 0,
            busy_since: None,
            suspended: false,
            thought: false,
            pinned: false,
            short,
        };
        assert!(self.alive.insert(ticket, known).is_none(), "a ticket was used twice");
        self.settle(true);
        assert!(self.waiting() <= waiting.max(self.policy.queue_max), "more wait than may");
        assert!(!immediate || held || self.alive.contains_key(&ticket), "an immediate request was refused");
        if let Some((_, reason)) = self.refused.filter(|(refused, _)| is_idle && *refused == ticket) {
            let by_chance = matches!(self.policy.rejection, Rejection::Yaksha(_));
            assert!(by_chance || is_of_the_queue(reason), "{reason:?} though nobody else is there");
        }
    }

    /// Whether the policy has a rule that refuses for this reason.
    fn may_refuse(&self, reason: Reason) -> bool {
        match reason {
            Reason::DeadlineUnreachable => self.policy.rejection == Rejection::Deadline,
            Reason::QueueDelay => matches!(self.policy.rejection, Rejection::Codel { .. }),
            Reason::Target => {
                matches!(self.policy.rejection, Rejection::Yaksha(_) | Rejection::Target(_))
            }
            _ => true,
        }
    }

    /// Whether this type passes freely.
    fn is_short(&self, kind: u64) -> bool {
        let types = self.gate.snapshot().types;
        let known = types.iter().find(|known| known.request_type == Some(RequestType(kind)));
        known.is_some_and(|known| matches!(known.lane, Lane::Short | Lane::Variable))
    }

    /// Those that may be made to wait, and do.
    fn waiting(&self) -> usize {
        let waits = |known: &&Known| !known.in_flight && known.request.entry == Entry::Queued;
        self.alive.values().filter(waits).count()
    }

    fn complete(&mut self, ticket: Ticket, outcome: Outcome, took: u64) {
        self.gate.handle_timeout(self.at());
        self.settle(true);
        self.land(ticket);
        let upstream_time = Duration::from_nanos(took);
        self.gate.complete(self.at(), ticket, Completion { outcome, upstream_time });
    }

    fn land(&mut self, ticket: Ticket) {
        let known = self.alive.remove(&ticket).expect("in flight");
        self.ended += 1;
        if known.request.connection == Connection::Needed && !known.pinned {
            self.in_use[known.request.pool.index()] -= 1;
        }
    }

    /// The client thinks from now on.
    fn stop(&mut self, ticket: Ticket) {
        let now = self.now;
        let known = self.alive.get_mut(&ticket).expect("in flight");
        if let Some(since) = known.busy_since.take() {
            known.used += now - since;
        }
        known.thought = true;
    }

    fn pin(&mut self, which: usize) {
        let Some(ticket) = self.pick(which, Some(true)) else { return };
        let known = self.alive.get_mut(&ticket).expect("in flight");
        let may = known.request.connection == Connection::Needed
            && !known.pinned
            && self.pinned < self.policy.pinned_max;
        match self.gate.pin(Instant::from_nanos(self.now), ticket) {
            Ok(pin) => {
                assert!(may, "more pinned than may be");
                known.pinned = true;
                self.pinned += 1;
                self.pins.push((ticket, pin, known.request.pool));
            }
            Err(reason) => assert!(!may && reason == Reason::PinnedMax),
        }
    }

    fn unpin(&mut self, which: usize) {
        if self.pins.is_empty() {
            return;
        }
        let (ticket, pin, pool) = self.pins.swap_remove(which % self.pins.len());
        self.pinned -= 1;
        match self.alive.get_mut(&ticket) {
            Some(known) => known.pinned = false,
            None => self.in_use[pool.index()] -= 1,
        }
        self.gate.unpin(self.at(), pin);
    }

    fn hold_up(&mut self, pools: u8) {
        // What was due before starts by what held before.
        self.gate.handle_timeout(self.at());
        self.settle(true);
        self.held_up = PoolSet::NONE;
        (0..POOLS).filter(|index| pools >> index & 1 == 1).for_each(|index| self.held_up.insert(pool(index)));
        self.gate.hold_up(self.at(), self.held_up);
    }

    /// Whether a pause holds a request up.
    fn is_held_up(&self, request: &Request) -> bool {
        request.entry == Entry::Queued && self.held_up.contains(request.pool)
    }

    fn pass(&mut self, nanos: u64, answered: bool) {
        let end = self.now + nanos;
        while let Some(next) = self.gate.next_timeout().filter(|next| answered && next.as_nanos() <= end) {
            self.now = self.now.max(next.as_nanos());
            self.gate.handle_timeout(self.at());
            let after = self.gate.next_timeout();
            assert!(after.is_none_or(|after| after > self.at()), "a time-out that makes no progress");
            self.settle(true);
        }
        self.now = end;
        self.gate.handle_timeout(self.at());
    }

    /// Drains, and compares the gate with the second bookkeeping.
    fn settle(&mut self, compare: bool) {
        while let Some(event) = self.gate.poll_event() {
            self.trace.push(format!("{} {event:?}", self.now));
            match event {
                Event::Dispatched { ticket, work, .. } => self.dispatch(ticket, work),
                Event::Suspended { ticket } => {
                    self.stop(ticket);
                    let known = self.alive.get_mut(&ticket).expect("in flight");
                    known.suspended = true;
                }
                Event::Resumed { ticket } => {
                    self.alive.get_mut(&ticket).expect("in flight").suspended = false;
                }
                Event::Left { ticket, .. } => {
                    assert!(!self.alive.remove(&ticket).expect("alive").in_flight);
                    self.ended += 1;
                }
                Event::Rejected { .. }
                | Event::Completed { .. }
                | Event::LaneChanged { .. }
                | Event::CapacityMoved { .. }
                | Event::GroupFormed { .. }
                | Event::GroupJoined { .. }
                | Event::GroupMoved { .. }
                | Event::GroupDissolved { .. }
                | Event::LongLimitMoved { .. }
                | Event::TypeForgotten { .. } => {}
            }
        }
        while let Some(action) = self.gate.poll() {
            self.trace.push(format!("{} {action:?}", self.now));
            if let Action::Reject(ticket, reason) = action {
                assert!(self.may_refuse(reason), "{reason:?} under another rule");
                self.refused = Some((ticket, reason));
                assert!(!self.alive.remove(&ticket).expect("alive").in_flight);
                self.ended += 1;
            }
        }
        if compare {
            self.compare();
        }
    }

    fn dispatch(&mut self, ticket: Ticket, work: Work) {
        let request = self.alive.get(&ticket).expect("alive").request;
        assert!(!self.is_held_up(&request), "dispatched though it is held up");
        // With less room for types than there are types, one of the group may be among `other`.
        if request.entry == Entry::Queued && self.types_min >= KINDS {
            assert!(!self.is_group_full(&request), "more of a group than may be");
        }
        let known = self.alive.get_mut(&ticket).expect("alive");
        assert!(!known.in_flight, "dispatched twice");
        known.in_flight = true;
        known.work = work.as_nanos();
        known.busy_since = Some(self.now);
        let passed = known.request.deadline.is_some_and(|deadline| deadline.as_nanos() <= self.now);
        assert!(!passed || known.request.entry == Entry::Immediate, "dispatched after its deadline");
        if known.request.connection == Connection::Needed {
            let index = known.request.pool.index();
            self.in_use[index] += 1;
            assert!(self.in_use[index] <= self.totals[index], "more in use than the pool has");
            assert!(
                self.in_use.iter().sum::<u32>() <= self.policy.connections,
                "more in use than the budget"
            );
        }
    }

    fn compare(&self) {
        let snapshot = self.gate.snapshot();
        let load: u64 =
            self.alive.values().filter(|known| known.in_flight).map(|known| self.charge(known)).sum();
        let in_flight = self.alive.values().filter(|known| known.in_flight).count();
        let suspended = self.alive.values().filter(|known| known.suspended).count();
        if self.by_time {
            assert_eq!(snapshot.load.as_nanos(), load, "load");
        } else {
            // Progress is not faster than time, and what was expected is charged at least.
            let least: u64 = self
                .alive
                .values()
                .filter(|known| known.in_flight && !known.suspended)
                .map(|known| known.work)
                .sum();
            assert!(
                (least..=load).contains(&snapshot.load.as_nanos()),
                "load {:?} of {least} to {load}",
                snapshot.load
            );
        }
        assert_eq!((snapshot.in_flight, snapshot.suspended), (in_flight, suspended));
        assert_eq!(self.gate.in_flight_of(PoolSet::ALL), in_flight);
        assert_eq!(snapshot.queued, self.alive.len() - in_flight);
        assert_eq!(self.arrived, self.ended + self.alive.len(), "tickets conserved");
        assert_eq!(snapshot.connections_in_use, self.in_use.iter().sum::<u32>());
        assert_eq!(snapshot.pinned, self.pinned);
        let by_type: u32 = snapshot.types.iter().map(|known| known.queued).sum();
        assert_eq!(by_type as usize, snapshot.queued, "queued by type");
        assert!(snapshot.types.len() <= self.policy.types_max.max(in_flight + snapshot.queued) + 1);
        self.compare_lanes(&snapshot);
    }

    fn compare_lanes(&self, snapshot: &Snapshot) {
        let lanes = self.policy.long_limit.is_some();
        // Without a capacity, shorts (and without lanes all) wait for connections only.
        if self.policy.capacity == Capacity::Unlimited {
            let waits =
                |known: &&Known| !known.in_flight && (known.short || !lanes) && self.could_start(known);
            // Who waits because its group is full holds up nobody else.
            assert!(self.alive.values().find(waits).is_none(), "it waits for nothing");
        }
        if lanes && self.same_policy {
            for known in snapshot.types.iter().filter(|known| known.lane == Lane::Unknown) {
                let of_type = |other: &&Known| {
                    (other.request.entry == Entry::Immediate || other.thought)
                        && known.request_type.is_none_or(|key| key == other.request.request_type)
                };
                let at_once = self.alive.values().filter(of_type).count();
                assert!(known.in_flight as usize <= 1 + at_once, "more than one of an unknown type");
            }
        }
    }

    /// Whether so many of a request's group are in flight as may be.
    fn is_group_full(&self, request: &Request) -> bool {
        let Contention::Given(given) = &self.policy.contention else { return false };
        given.iter().filter(|group| group.types.contains(&request.request_type)).any(|group| {
            let counts = |known: &&Known| {
                known.in_flight && !known.suspended && group.types.contains(&known.request.request_type)
            };
            self.alive.values().filter(counts).count() >= group.most as usize
        })
    }

    fn charge(&self, known: &Known) -> u64 {
        if known.suspended {
            return 0;
        }
        known.work.max(known.used + known.busy_since.map_or(0, |since| self.now - since))
    }

    fn could_start(&self, known: &Known) -> bool {
        let index = known.request.pool.index();
        let free = self.in_use[index] < self.totals[index]
            && self.in_use.iter().sum::<u32>() < self.policy.connections;
        (free || known.request.connection == Connection::Held)
            && !self.is_held_up(&known.request)
            && !self.is_group_full(&known.request)
    }

    /// Everything ends: nothing may be left.
    fn wind_up(&mut self) {
        for round in 0.. {
            assert!(round < 10_000, "it never ends");
            if let Some(ticket) = self.pick(round, Some(true)) {
                self.complete(ticket, Outcome::Success, MS);
            } else if let Some(ticket) = self.pick(round, Some(false)) {
                self.gate.cancel(self.at(), ticket);
            } else if self.pins.is_empty() {
                break;
            } else {
                self.unpin(round);
            }
            self.settle(true);
        }
        let snapshot = self.gate.snapshot();
        assert_eq!((snapshot.load, snapshot.connections_in_use), (Work::ZERO, 0));
        assert_eq!((snapshot.queued, snapshot.in_flight, snapshot.long_in_flight), (0, 0, 0));
        assert_eq!(self.gate.next_timeout(), None, "an alarm for nobody");
        let before = self.gate.snapshot().types;
        self.pass(3_600_000 * MS, true);
        assert_eq!(self.gate.snapshot().types, before, "an idle night teaches nothing");
        assert_eq!(self.arrived, self.ended);
    }
}

/// Whether who is refused for it may be alone: its time is over, or it has no connection to wait for.
fn is_of_the_queue(reason: Reason) -> bool {
    !matches!(reason, Reason::Target | Reason::QueueDelay)
}

fn run(policy: &Policy, ops: &[Op]) -> Vec<String> {
    let mut world = World::new(policy.clone());
    for op in ops {
        world.apply(op);
    }
    world.wind_up();
    world.trace
}

#[test]
fn whatever_happens_tickets_are_conserved_and_nothing_leaks() {
    check(10_000, (a_policy(), prop::collection::vec(op(), 1..80)), |(policy, ops)| {
        run(&policy, &ops);
    });
}

#[test]
fn the_same_history_gives_the_same_trace() {
    check(500, (a_policy(), prop::collection::vec(op(), 1..80)), |(policy, ops)| {
        assert_eq!(run(&policy, &ops), run(&policy, &ops));
    });
}
