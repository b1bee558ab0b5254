//! What holds whatever happens: random histories of everything that a shell can do.
//!
//! The history is checked against a second bookkeeping, written as plainly as it can be (`World`): every
//! ticket ends exactly once, load and connections are what the sum over the requests in flight says, no
//! bound is ever exceeded, time-outs make progress, nothing leaks, and the same history gives the same
//! trace. The order of service is compared with a naive model in `tests/order.rs`.

mod history;
#[path = "laws/operations.rs"]
mod operations;
#[path = "laws/outside.rs"]
mod outside;

use admission::{
    Action, Capacity, ClassId, ClientId, Completion, Connection, Contention, Cost, Duration, Entry, Event,
    Gate, Instant, Lane, Mechanism, Outcome, Pin, Policy, PoolId, PoolSet, Reason, Refused, Rejection,
    Request, RequestType, ServiceClass, Snapshot, TenantId, Ticket, Turns, Work,
};
use history::{MS, check, pool};
use operations::{CLIENTS, KINDS, Op, POOLS, a_policy, op};
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};

/// A request as the second bookkeeping sees it.
#[derive(Debug)]
struct Known {
    request: Request,
    in_flight: bool,
    work: u64,
    used: u64,
    busy_since: Option<u64>,
    suspended: bool,
    /// Its client has left while it was in flight.
    left: bool,
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
    /// The clients that are connected.
    clients: [Option<ClientId>; CLIENTS as usize],
    arrived: usize,
    ended: usize,
    /// Whether what requests have used was always counted in time.
    by_time: bool,
    /// The request that was refused last, and the reason.
    refused: Option<(Ticket, Reason)>,
    /// Whether the policy has been the same from the beginning.
    same_policy: bool,
    /// The smallest number of types that the policy has had room for.
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
            clients: [None; CLIENTS as usize],
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
            Op::Arrive { kind, pool: index, held, immediate, deadline, class, client } => {
                let request = Request {
                    request_type: RequestType(kind),
                    class: ClassId(class),
                    client: self.clients[client as usize],
                    // Of some classes the requests are shared between tenants.
                    tenant: (class >= 2).then(|| TenantId::new(client.into())),
                    pool: pool(index),
                    connection: if held { Connection::Held } else { Connection::Needed },
                    entry: if immediate { Entry::Immediate } else { Entry::Queued },
                    deadline: deadline.map(|ms| Instant::from_nanos(self.now + ms * MS)),
                };
                self.arrive(request);
            }
            Op::Complete { which, outcome, took } => {
                if let Some(ticket) = self.pick(which, Some(true)) {
                    self.complete(ticket, outcome, took);
                }
            }
            Op::Connect(which) => {
                if let Some(client) = self.clients[which as usize].take() {
                    self.gate.disconnect(now, client);
                }
                self.clients[which as usize] = Some(self.gate.connect());
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
                    self.settle(false);
                    if let Some(known) = self.alive.get_mut(&ticket) {
                        known.left = true;
                    }
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

    fn arrive(&mut self, request: Request) {
        let RequestType(kind) = request.request_type;
        let (held, immediate) = (request.connection == Connection::Held, request.entry == Entry::Immediate);
        // What happens by the clock alone comes first, so that the bound is judged on what the newcomer
        // meets.
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
            left: false,
            thought: false,
            pinned: false,
            short,
        };
        assert!(self.alive.insert(ticket, known).is_none(), "a ticket was used twice");
        self.settle(true);
        assert!(self.waiting() <= waiting.max(self.policy.queue_max), "more wait than may");
        assert!(!immediate || held || self.alive.contains_key(&ticket), "an immediate request was refused");
        if let Some((_, reason)) = self.refused.filter(|(refused, _)| is_idle && *refused == ticket) {
            assert!(reason != Reason::OverShare, "over a share of what it has for itself");
            let by_chance = matches!(self.policy.rejection, Rejection::Yaksha(_));
            assert!(by_chance || is_of_the_queue(reason), "{reason:?} though nobody else is there");
        }
    }

    /// Whether the policy has a rule that refuses for this reason.
    fn may_refuse(&self, reason: Reason) -> bool {
        match reason {
            Reason::DeadlineUnreachable => self.policy.rejection == Rejection::Deadline,
            Reason::QueueDelay => matches!(self.policy.rejection, Rejection::Other(_)),
            // Of classes or of tenants.
            Reason::OverShare => {
                self.class_count() > 1 || self.alive.values().any(|it| it.request.tenant.is_some())
            }
            Reason::Target => {
                matches!(self.policy.rejection, Rejection::Yaksha(_) | Rejection::Target(_))
            }
            _ => true,
        }
    }

    /// The default one among them.
    fn class_count(&self) -> usize {
        let ids = self.policy.classes.iter().map(|class| class.id).chain([ClassId::DEFAULT]);
        ids.collect::<BTreeSet<_>>().len()
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
                | Event::Stalled { .. }
                | Event::TargetReach { .. }
                | Event::ClassGoal(_)
                | Event::TypeForgotten { .. } => {}
            }
        }
        while let Some(action) = self.gate.poll() {
            self.trace.push(format!("{} {action:?}", self.now));
            if let Action::Reject(ticket, Refused { reason, .. }) = action {
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
        assert_eq!(snapshot.left, self.alive.values().filter(|known| known.left).count());
        assert_eq!(self.gate.in_flight_of(PoolSet::ALL), in_flight);
        assert_eq!(snapshot.queued, self.alive.len() - in_flight);
        assert_eq!(self.arrived, self.ended + self.alive.len(), "tickets conserved");
        assert_eq!(snapshot.connections_in_use, self.in_use.iter().sum::<u32>());
        assert_eq!(snapshot.pinned, self.pinned);
        let by_type: u32 = snapshot.types.iter().map(|known| known.queued).sum();
        assert_eq!(by_type as usize, snapshot.queued, "queued by type");
        assert!(snapshot.types.len() <= self.policy.types_max.max(in_flight + snapshot.queued) + 1);
        self.compare_lanes(&snapshot);
        self.compare_classes(&snapshot);
    }

    fn compare_classes(&self, snapshot: &Snapshot) {
        let count = self.class_count();
        assert_eq!(snapshot.classes.len(), if count > 1 { count } else { 0 });
        for class in snapshot.classes.iter().filter(|_| self.same_policy) {
            let is_known = |id: ClassId| snapshot.classes.iter().any(|known| known.class == id);
            let is_of = |known: &&Known| {
                let id = known.request.class;
                class.class == if is_known(id) { id } else { ClassId::DEFAULT }
            };
            let of_class: Vec<_> = self.alive.values().filter(is_of).collect();
            let in_flight = of_class.iter().filter(|known| known.in_flight).count();
            assert_eq!(class.in_flight as usize, in_flight, "in flight of a class");
            assert_eq!(class.queued as usize, of_class.len() - in_flight, "queued of a class");
        }
        if count > 1 {
            let sums = snapshot.classes.iter().fold((0, 0), |(queued, in_flight), class| {
                (queued + class.queued as usize, in_flight + class.in_flight as usize)
            });
            assert_eq!(sums, (snapshot.queued, snapshot.in_flight), "each belongs to one class");
        }
    }

    fn compare_lanes(&self, snapshot: &Snapshot) {
        let lanes = self.policy.long_limit.is_some();
        // Without a capacity, shorts (and without lanes all) wait for connections only; those who waited
        // through a stall for what the service has left.
        if self.policy.capacity == Capacity::Unlimited && !snapshot.stalled && snapshot.late == 0 {
            let waits = |known: &&Known| {
                let is_left_out = self.is_in_background(known) && snapshot.in_flight > 0;
                !known.in_flight && (known.short || !lanes) && self.could_start(known) && !is_left_out
            };
            // Who waits because its group is full holds up nobody else.
            let idle = self.alive.values().find(waits);
            assert!(idle.is_none(), "it waits for nothing: {idle:?}");
        }
        let has_scouts = !self.policy.without.has(Mechanism::Scouts);
        if lanes && has_scouts && self.same_policy {
            for known in snapshot.types.iter().filter(|known| known.lane == Lane::Unknown) {
                let of_type = |other: &&Known| {
                    (other.request.entry == Entry::Immediate || other.thought)
                        && known.request_type.is_none_or(|key| key == other.request.request_type)
                };
                let at_once = self.alive.values().filter(of_type).count();
                assert!(
                    known.in_flight as usize <= self.class_count() + at_once,
                    "more than one of an unknown type"
                );
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

    /// Whether its class gets only what others leave.
    fn is_in_background(&self, known: &Known) -> bool {
        let is_it =
            |class: &ServiceClass| class.id == known.request.class && class.turns == Turns::Background;
        self.policy.classes.iter().any(is_it)
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
        assert_eq!(
            (snapshot.queued, snapshot.in_flight, snapshot.long_in_flight, snapshot.left),
            (0, 0, 0, 0)
        );
        assert_eq!(self.gate.next_timeout(), None, "an alarm for nobody");
        let before = self.gate.snapshot().types;
        self.pass(3_600_000 * MS, true);
        assert_eq!(self.gate.snapshot().types, before, "an idle night teaches nothing");
        assert_eq!(self.arrived, self.ended);
    }
}

/// Whether a request refused for this reason may be alone: its time is over, or no connection was there
/// to wait for.
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
