//! The order of service, compared decision by decision with a model that is a plain vector.
//!
//! Without a long lane, with types that are known beforehand, every dispatch follows from the rules alone:
//! promotion past strictly longer requests whose allowance lasts (those of one type rank alike while some
//! wait, and take their places in order of arrival), the blocked head, the skipped pools. The model says
//! which start after each step. Then the laws that the rules are for are checked on what really started,
//! without the model.

mod history;

use admission::{
    Action, Capacity, ClassId, Completion, Connection, Cost, Duration, Entry, Event, Gate, Instant, Order,
    Outcome, Policy, Request, RequestType, ServiceClass, Ticket, Weight, Work,
};
use history::{MS, check, pool};
use proptest::prelude::*;
use std::collections::BTreeMap;

const POOLS: u8 = 3;
const TAUGHT: ClassId = ClassId(99);
/// What each type costs, in milliseconds.
const COSTS: [u64; 6] = [1, 1, 2, 5, 20, 90];

#[derive(Clone, Debug)]
enum Op {
    Arrive {
        kind: u64,
        pool: u8,
        class: usize,
    },
    /// One ends, after so many halves of what was expected.
    Complete(usize, u64),
    Cancel(usize),
    SetPool(u8, u32),
    Pass(u64),
    /// Many of a type take so many eighths of its cost, where types drift and there are no classes.
    Teach(u64, u64),
}

#[derive(Clone, Debug)]
struct Setting {
    order: Order,
    capacity: Option<u64>,
    totals: [u32; POOLS as usize],
    connections: u32,
    /// Of each class, in thousandths. One: there are no classes.
    weights: Vec<u32>,
    /// What types take changes on the way.
    drifts: bool,
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        12 => (0..COSTS.len() as u64, 0..POOLS, 0..8_usize)
            .prop_map(|(kind, pool, class)| Op::Arrive { kind, pool, class }),
        8 => (0..64_usize, 1..7_u64).prop_map(|(which, halves)| Op::Complete(which, halves)),
        2 => (0..64_usize).prop_map(Op::Cancel),
        1 => (0..POOLS, 0..5_u32).prop_map(|(pool, total)| Op::SetPool(pool, total)),
        3 => (0..3_000_000_u64).prop_map(Op::Pass),
        1 => (0..COSTS.len() as u64, 1..40_u64).prop_map(|(kind, eighths)| Op::Teach(kind, eighths)),
    ]
}

fn setting(order: impl Strategy<Value = Order>) -> impl Strategy<Value = Setting> {
    let totals = prop_oneof![prop::array::uniform3(0..5_u32), Just([1_000; 3])];
    let weight = prop_oneof![Just(1_000), Just(6_000), 1..1_000_000_u32];
    let weights = prop_oneof![Just(vec![1_000]), prop::collection::vec(weight, 2..6)];
    (order, prop::option::of(5..200_u64), totals, 1..9_u32, weights, prop::bool::ANY).prop_map(
        |(order, capacity, totals, connections, weights, drifts)| Setting {
            order,
            capacity,
            totals,
            connections,
            weights,
            drifts,
        },
    )
}

fn aging(aging: Option<f64>, floor: u64) -> Order {
    Order::ShortestFirst { aging, floor: Work::from_nanos(floor * MS) }
}

fn any_order() -> impl Strategy<Value = Order> {
    let bounded =
        (0.1..8.0_f64, prop_oneof![Just(0), 0..100_u64]).prop_map(|(x, floor)| aging(Some(x), floor));
    prop_oneof![1 => Just(Order::Fifo), 1 => Just(aging(Some(0.0), 70)), 4 => bounded, 1 => Just(aging(None, 0))]
}

fn allowance(setting: &Setting, work: u64) -> f64 {
    match setting.order {
        Order::Fifo => 0.0,
        Order::ShortestFirst { aging: None, .. } => f64::INFINITY,
        Order::ShortestFirst { aging: Some(aging), .. } if aging <= 0.0 => 0.0,
        Order::ShortestFirst { aging: Some(aging), floor } => {
            (aging * work as f64).floor().max(f64::from(setting.connections) * floor.as_nanos() as f64)
        }
    }
}

struct Waiting {
    ticket: Ticket,
    kind: u64,
    pool: usize,
    work: u64,
    /// What it is put in order by.
    rank: u64,
    left: f64,
}

struct Running {
    pool: usize,
    class: usize,
    work: u64,
    since: u64,
}

/// The gate as plainly as it can be said.
struct Model {
    setting: Setting,
    /// By class.
    lines: Vec<Vec<Waiting>>,
    /// When the next of each class goes, and when the last one went, in virtual time.
    tags: Vec<u128>,
    now: u128,
    running: BTreeMap<Ticket, Running>,
    /// The latest rank of each type.
    ranks: BTreeMap<u64, u64>,
    /// A request has taken the place of another.
    exchanged: bool,
}

impl Model {
    /// Requests of one type rank alike while some wait, unless their steady mean has doubled or halved.
    fn rank(&mut self, kind: u64, steady: u64) -> u64 {
        let rank = self.ranks.entry(kind).or_insert(steady);
        let alone = !self.lines.iter().flatten().any(|waiting| waiting.kind == kind);
        if alone || steady >= 2 * *rank || steady <= *rank / 2 {
            *rank = steady;
        }
        *rank
    }

    fn arrive(
        &mut self,
        now: u64,
        ticket: Ticket,
        (kind, pool, class): (u64, usize, usize),
        (work, steady): (u64, u64),
    ) -> u64 {
        // Those that wait for another pool's connection are skipped by one that starts at once, not
        // overtaken.
        let at_once = !self.lines.iter().flatten().any(|waiting| self.has_connection(waiting.pool))
            && self.has_connection(pool)
            && self.fits(now, work);
        // What joins no line gives its type no rank.
        let rank = if at_once { steady } else { self.rank(kind, steady) };
        let left = allowance(&self.setting, rank);
        let newcomer = Waiting { ticket, kind, pool, work, rank, left };
        let line = &mut self.lines[class];
        if line.is_empty() {
            self.tags[class] = self.tags[class].max(self.now);
        }
        if at_once {
            line.insert(0, newcomer);
            return rank;
        }
        let mut at = line.len();
        while at > 0 && line[at - 1].rank > rank && line[at - 1].left >= rank as f64 {
            line[at - 1].left -= rank as f64;
            at -= 1;
        }
        line.insert(at, newcomer);
        rank
    }

    /// Gives a place to the oldest request of its type and pool, if that is among the type's first 64. Rank
    /// and allowance stay with the place.
    fn put_oldest_first(&mut self, class: usize, at: usize) {
        let Waiting { kind, pool, .. } = self.lines[class][at];
        let mut of_type: Vec<_> = self.lines.iter().flatten().filter(|it| it.kind == kind).collect();
        of_type.sort_by_key(|it| it.ticket);
        let looked_at: Vec<_> = of_type.iter().take(64).map(|it| it.ticket).collect();
        let line = &mut self.lines[class];
        let is_alike = |&other: &usize| line[other].pool == pool && looked_at.contains(&line[other].ticket);
        let oldest = (at..line.len()).filter(is_alike).min_by_key(|&other| line[other].ticket).unwrap_or(at);
        if oldest != at {
            self.exchanged = true;
            let (left, right) = line.split_at_mut(oldest);
            std::mem::swap(&mut left[at].ticket, &mut right[0].ticket);
            std::mem::swap(&mut left[at].work, &mut right[0].work);
        }
    }

    /// Starts all requests that may start now, and returns them in order.
    fn start(&mut self, now: u64) -> Vec<Ticket> {
        let mut started = Vec::new();
        let head = |model: &Self, class: usize| {
            model.lines[class].iter().position(|waiting| model.has_connection(waiting.pool))
        };
        loop {
            let could = (0..self.lines.len()).filter_map(|class| Some((class, head(self, class)?)));
            let Some((class, at)) = could.min_by_key(|&(class, _)| self.tags[class]) else { break };
            self.put_oldest_first(class, at);
            let work = self.lines[class][at].work;
            if !self.fits(now, work) {
                break;
            }
            let Waiting { ticket, pool, .. } = self.lines[class].remove(at);
            self.running.insert(ticket, Running { pool, class, work, since: now });
            started.push(ticket);
            let tag = self.tags[class];
            self.now = self.now.max(tag);
            for (other, line) in self.lines.iter().enumerate() {
                if !line.is_empty() {
                    self.tags[other] = self.tags[other].max(tag);
                }
            }
            self.tags[class] += self.in_virtual_time(class, work);
        }
        started
    }

    fn in_virtual_time(&self, class: usize, work: u64) -> u128 {
        (u128::from(work) << 32) / u128::from(self.setting.weights[class])
    }

    /// One has ended; its class pays for what it took.
    fn end(&mut self, ticket: Ticket, took: u64) {
        let Running { class, work, .. } = self.running.remove(&ticket).expect("it runs");
        let more = self.in_virtual_time(class, took.saturating_sub(work));
        let less = self.in_virtual_time(class, work.saturating_sub(took));
        self.tags[class] = (self.tags[class] + more).saturating_sub(less);
    }

    fn waiting(&self) -> usize {
        self.lines.iter().map(Vec::len).sum()
    }

    fn fits(&self, now: u64, work: u64) -> bool {
        let fits = self.setting.capacity.is_none_or(|most| self.load(now) + work <= most * MS);
        fits || self.running.is_empty()
    }

    fn has_connection(&self, pool: usize) -> bool {
        let in_pool = self.running.values().filter(|running| running.pool == pool).count();
        in_pool < self.setting.totals[pool] as usize && self.running.len() < self.setting.connections as usize
    }

    fn load(&self, now: u64) -> u64 {
        self.running.values().map(|running| running.work.max(now - running.since)).sum()
    }
}

/// What was seen to start, for the laws that don't need the model.
#[derive(Default)]
struct Seen {
    work: BTreeMap<Ticket, u64>,
    rank: BTreeMap<Ticket, u64>,
    waiting: BTreeMap<Ticket, f64>,
    class: BTreeMap<Ticket, usize>,
    kind: BTreeMap<Ticket, (u64, u8)>,
}

impl Seen {
    /// No older request of the same type, class and pool waits.
    fn goes_in_order_of_arrival(&mut self, ticket: Ticket) {
        self.waiting.remove(&ticket);
        let alike = |other: &Ticket| {
            self.kind[other] == self.kind[&ticket] && self.class[other] == self.class[&ticket]
        };
        let older = self.waiting.keys().find(|&other| *other < ticket && alike(other));
        assert_eq!(older, None, "an older request of its type waits");
    }

    /// With one pool for all no request is skipped. Until two exchange their places, a request that starts
    /// has overtaken all of its class that came before and still wait.
    fn start(&mut self, ticket: Ticket, setting: &Setting) {
        let work = self.rank[&ticket];
        let class = self.class[&ticket];
        for (other, overtaken) in self.waiting.iter_mut().filter(|(other, _)| self.class[other] == class) {
            if *other < ticket {
                *overtaken += work as f64;
                let own = self.rank[other];
                assert!(*overtaken <= allowance(setting, own), "overtaken by more than its allowance");
                assert!(own > work, "overtaken by one that isn't shorter");
            } else if matches!(setting.order, Order::ShortestFirst { aging: None, .. }) {
                assert!(self.rank[other] >= work, "not the shortest");
            }
        }
    }
}

struct World {
    gate: Gate,
    model: Model,
    seen: Seen,
    now: u64,
    one_pool: bool,
}

impl World {
    fn new(setting: Setting) -> Self {
        let policy = Policy {
            capacity: setting
                .capacity
                .map_or(Capacity::Unlimited, |ms| Capacity::Fixed(Work::from_nanos(ms * MS))),
            connections: u32::MAX,
            long_limit: None,
            cost: Cost::DEFAULT,
            order: setting.order,
            queue_max: usize::MAX,
            queue_timeout: Duration::from_secs(1 << 30),
            pinned_max: 0,
            types_max: 100,
            // What is taught is given to a class that is gone before anything is asked of the others.
            classes: vec![ServiceClass::new(TAUGHT, Weight::ONE)],
            ..Policy::default()
        };
        let mut gate = Gate::new(policy.clone(), Instant::ZERO, 1);
        gate.set_pool(Instant::ZERO, pool(0), u32::MAX);
        for (kind, cost) in COSTS.into_iter().enumerate() {
            for _ in 0..5 {
                let ticket =
                    gate.arrive(Instant::ZERO, Request { class: TAUGHT, ..request(kind as u64, 0, 0) });
                complete(&mut gate, 0, ticket, cost * MS);
            }
        }
        let one_pool = setting.totals == [1_000; 3];
        gate.set_policy(
            Instant::ZERO,
            Policy { connections: setting.connections, classes: classes(&setting.weights), ..policy },
        );
        for (index, total) in setting.totals.into_iter().enumerate() {
            gate.set_pool(Instant::ZERO, pool(index as u8), total);
        }
        while gate.poll().is_some() || gate.poll_event().is_some() {}
        let count = setting.weights.len();
        let model = Model {
            lines: (0..count).map(|_| Vec::new()).collect(),
            tags: vec![0; count],
            now: 0,
            setting,
            running: BTreeMap::new(),
            ranks: BTreeMap::new(),
            exchanged: false,
        };
        Self { gate, model, seen: Seen::default(), now: 0, one_pool }
    }

    fn drifts(&self) -> bool {
        self.model.setting.drifts && self.model.lines.len() == 1
    }

    fn apply(&mut self, op: &Op) {
        let now = Instant::from_nanos(self.now);
        match *op {
            Op::Arrive { kind, pool, class } => {
                let class = class % self.model.setting.weights.len();
                self.gate.handle_timeout(now);
                let types = self.gate.snapshot().types;
                let known = types.iter().find(|known| known.request_type == Some(RequestType(kind)));
                let known = known.expect("taught");
                let (work, steady) = (known.work.as_nanos(), known.rank.as_nanos());
                let ticket = self.gate.arrive(now, request(kind, pool, class));
                self.seen.work.insert(ticket, work);
                self.seen.waiting.insert(ticket, 0.0);
                self.seen.class.insert(ticket, class);
                self.seen.kind.insert(ticket, (kind, pool));
                let whose = (kind, pool as usize, class);
                let rank = self.model.arrive(self.now, ticket, whose, (work, steady));
                self.seen.rank.insert(ticket, rank);
            }
            Op::Complete(which, halves) => {
                let running: Vec<_> = self.model.running.keys().copied().collect();
                if let Some(&ticket) = running.get(which % running.len().max(1)) {
                    let work = self.seen.work[&ticket];
                    // Without classes estimates stay as they are.
                    let took = if self.model.lines.len() > 1 { (work * halves / 2).max(1) } else { work };
                    self.model.end(ticket, took);
                    complete(&mut self.gate, self.now, ticket, took);
                }
            }
            Op::Cancel(which) => {
                let waiting: Vec<_> = self.model.lines.iter().flatten().map(|it| it.ticket).collect();
                if !waiting.is_empty() {
                    let ticket = waiting[which % waiting.len()];
                    self.model.lines.iter_mut().for_each(|line| line.retain(|it| it.ticket != ticket));
                    self.seen.waiting.remove(&ticket);
                    self.gate.cancel(now, ticket);
                }
            }
            Op::SetPool(..) if self.one_pool => {}
            Op::SetPool(index, total) => {
                self.model.setting.totals[index as usize] = total;
                self.gate.set_pool(now, pool(index), total);
            }
            Op::Teach(kind, eighths) if self.drifts() => {
                let took = COSTS[kind as usize] * MS * eighths / 8;
                for _ in 0..100 {
                    let its = Request {
                        connection: Connection::Held,
                        entry: Entry::Immediate,
                        ..request(kind, 0, 0)
                    };
                    let ticket = self.gate.arrive(now, its);
                    complete(&mut self.gate, self.now, ticket, took);
                    assert_eq!(self.gate.poll(), Some(Action::Dispatch(ticket)), "it goes at once");
                }
                while self.gate.poll_event().is_some() {}
            }
            Op::Teach(..) => {}
            Op::Pass(nanos) => {
                self.now += nanos;
                self.gate.handle_timeout(Instant::from_nanos(self.now));
            }
        }
        self.compare();
    }

    fn compare(&mut self) {
        let expected = self.model.start(self.now);
        let mut started = Vec::new();
        while let Some(action) = self.gate.poll() {
            match action {
                Action::Dispatch(ticket) => started.push(ticket),
                Action::Reject(..) => unreachable!("nothing is refused here"),
            }
        }
        assert_eq!(started, expected, "who starts");
        while let Some(event) = self.gate.poll_event() {
            if let Event::Dispatched { ticket, work, .. } = event {
                self.seen.goes_in_order_of_arrival(ticket);
                assert_eq!(work.as_nanos(), self.seen.work[&ticket], "work is fixed at arrival");
                if self.one_pool && !self.model.exchanged {
                    self.seen.start(ticket, &self.model.setting);
                }
            }
        }
        let snapshot = self.gate.snapshot();
        assert_eq!(snapshot.load.as_nanos(), self.model.load(self.now));
        assert_eq!(snapshot.queued, self.model.waiting());
    }
}

fn classes(weights: &[u32]) -> Vec<ServiceClass> {
    let of = |(place, &weight): (usize, &u32)| {
        let weight = Weight::new(f64::from(weight) / 1e3).expect("a weight");
        ServiceClass::new(ClassId(place as u64), weight)
    };
    weights.iter().enumerate().map(of).collect()
}

fn request(kind: u64, index: u8, class: usize) -> Request {
    Request {
        request_type: RequestType(kind),
        class: ClassId(class as u64),
        pool: pool(index),
        connection: Connection::Needed,
        entry: Entry::Queued,
        client: None,
        tenant: None,
        deadline: None,
    }
}

fn complete(gate: &mut Gate, now: u64, ticket: Ticket, took: u64) {
    let completion = Completion { outcome: Outcome::Success, upstream_time: Duration::from_nanos(took) };
    gate.complete(Instant::from_nanos(now), ticket, completion);
}

fn follow(setting: Setting, ops: &[Op]) {
    let mut world = World::new(setting);
    for op in ops {
        world.apply(op);
    }
}

#[test]
fn the_gate_starts_whom_the_model_starts() {
    check(10_000, (setting(any_order()), prop::collection::vec(op(), 1..90)), |(setting, ops)| {
        follow(setting, &ops);
    });
}

#[test]
fn long_queues_follow_the_model_too() {
    let crowd = prop::collection::vec(op(), 500..900);
    let one = setting(any_order()).prop_map(|setting| Setting { connections: 1, capacity: None, ..setting });
    check(300, (one, crowd), |(setting, ops)| follow(setting, &ops));
}
