//! What the queue's operations cost with a million waiting.
//!
//! Through the whole gate, not the bare structure: `insert` is an arrival (type, estimate, record, line,
//! time-out), `remove` is the cancellation of any one that waits, `dispatch` is the completion of the one
//! in flight, which teaches its type and starts the next. Only the operation is timed; what brings the
//! queue back to a million isn't. One connection, so that everything waits; forty types from 0.4 to 80 ms,
//! mostly short; ids are spread all over memory, as they are after hours of traffic.
//!
//! Run: `cargo bench -p admission --bench queue`. The figures are in `docs/reference/queue-operations.md`.

use std::hint::black_box;
use std::time::Instant as Clock;

use admission::{
    Capacity, Completion, Connection, Cost, Duration, Entry, Gate, Instant, LongLimit, Order, Outcome,
    Policy, PoolId, Request, RequestType, Ticket, Work,
};
use criterion::{Criterion, criterion_group, criterion_main};

const WAITING: usize = 1_000_000;
const TYPES: u64 = 40;
/// How many operations make a batch.
const BATCH: u64 = 500;

struct Crowd {
    gate: Gate,
    now: u64,
    chance: u64,
    running: Ticket,
    waiting: Vec<Ticket>,
}

impl Crowd {
    fn new(order: Order, long_limit: Option<u32>) -> Self {
        let policy = Policy {
            capacity: Capacity::Unlimited,
            connections: 1,
            long_limit: long_limit.map(LongLimit::Fixed),
            cost: Cost::DEFAULT,
            order,
            queue_max: 2 * WAITING,
            queue_timeout: Duration::from_secs(1 << 30),
            pinned_max: 0,
            types_max: 1_000,
            ..Policy::default()
        };
        let mut gate = Gate::new(policy, Instant::ZERO, 1);
        gate.set_pool(Instant::ZERO, PoolId::default(), u32::MAX);
        let running = gate.arrive(Instant::ZERO, request(0));
        let mut crowd = Self { gate, now: 0, chance: 7, running, waiting: Vec::new() };
        for kind in (0..TYPES).flat_map(|kind| [kind; 6]) {
            let ticket = if kind == 0 { crowd.running } else { crowd.gate.arrive(crowd.at(), request(kind)) };
            crowd.complete(ticket, kind);
            crowd.running = crowd.gate.arrive(crowd.at(), request(0));
            crowd.complete(crowd.running, 0);
        }
        crowd.running = crowd.gate.arrive(crowd.at(), request(0));
        for _ in 0..WAITING {
            crowd.arrive();
        }
        // Churn, so that neighbors in the line are not neighbors in memory.
        for _ in 0..WAITING / 4 {
            let ticket = crowd.choose();
            crowd.gate.cancel(crowd.at(), ticket);
            crowd.arrive();
            crowd.drain();
        }
        crowd
    }

    fn at(&self) -> Instant {
        Instant::from_nanos(self.now)
    }

    fn random(&mut self, below: u64) -> u64 {
        self.chance =
            self.chance.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.chance >> 33) % below
    }

    fn arrive(&mut self) {
        let kind = self.kind();
        let ticket = self.gate.arrive(Instant::from_nanos(self.now), request(kind));
        self.waiting.push(ticket);
    }

    /// The shorter, the more often.
    fn kind(&mut self) -> u64 {
        self.now += 10;
        self.random(TYPES).min(self.random(TYPES))
    }

    fn choose(&mut self) -> Ticket {
        let at = self.random(self.waiting.len() as u64) as usize;
        self.waiting.swap_remove(at)
    }

    fn complete(&mut self, ticket: Ticket, kind: u64) {
        self.now += 10;
        let upstream_time = Duration::from_micros(400 + 50 * kind * kind);
        self.gate.complete(self.at(), ticket, Completion { outcome: Outcome::Success, upstream_time });
    }

    /// What was dispatched since, and nothing to report.
    fn drain(&mut self) -> Option<Ticket> {
        let mut dispatched = None;
        while let Some(action) = self.gate.poll() {
            if let admission::Action::Dispatch(ticket) = action {
                dispatched = Some(ticket);
            }
        }
        while self.gate.poll_event().is_some() {}
        dispatched
    }
}

fn request(kind: u64) -> Request {
    Request {
        request_type: RequestType(kind),
        class: admission::ClassId::DEFAULT,
        pool: PoolId::default(),
        connection: Connection::Needed,
        entry: Entry::Queued,
        client: None,
        tenant: None,
        deadline: None,
    }
}

/// Calls `operation` so many times; each returns what it took. To criterion goes the median of each batch,
/// as if all of it had taken that: what the target is about, and what other processes on the machine
/// disturb least. (It includes looking at the clock, some 25 ns.)
fn medians(count: u64, mut operation: impl FnMut() -> Duration) -> Duration {
    let mut left = count;
    let mut total = Duration::ZERO;
    while left > 0 {
        let batch = left.min(BATCH);
        let mut took: Vec<Duration> = (0..batch).map(|_| operation()).collect();
        took.sort_unstable();
        total += took[took.len() / 2] * batch as u32;
        left -= batch;
    }
    total
}

fn insert(crowd: &mut Crowd) -> Duration {
    let kind = crowd.kind();
    let start = Clock::now();
    let ticket = crowd.gate.arrive(crowd.at(), request(kind));
    let elapsed = start.elapsed();
    crowd.waiting.push(ticket);
    let leaves = crowd.choose();
    crowd.gate.cancel(crowd.at(), leaves);
    crowd.drain();
    elapsed
}

fn remove(crowd: &mut Crowd) -> Duration {
    let ticket = crowd.choose();
    let start = Clock::now();
    crowd.gate.cancel(crowd.at(), black_box(ticket));
    let elapsed = start.elapsed();
    crowd.arrive();
    crowd.drain();
    elapsed
}

fn dispatch(crowd: &mut Crowd) -> Duration {
    let completion =
        Completion { outcome: Outcome::Success, upstream_time: black_box(Duration::from_micros(400)) };
    let (at, running) = (crowd.at(), crowd.running);
    let start = Clock::now();
    crowd.gate.complete(at, running, completion);
    let elapsed = start.elapsed();
    crowd.running = crowd.drain().unwrap_or(running);
    // The one that was dispatched is still among those that the crowd believes to wait: its cancellation
    // only marks it. That is too rare to matter among a million.
    crowd.arrive();
    crowd.drain();
    elapsed
}

fn benchmark(c: &mut Criterion) {
    let aging = Order::ShortestFirst { aging: Some(5.0), floor: Work::from_nanos(1_000_000_000) };
    let shortest = Order::ShortestFirst { aging: None, floor: Work::ZERO };
    let settings = [
        ("fifo", Order::Fifo, None),
        ("shortest", shortest, None),
        ("aging", aging, None),
        ("default", aging, Some(4)),
    ];
    for (name, order, long_limit) in settings {
        let mut crowd = Crowd::new(order, long_limit);
        let mut group = c.benchmark_group(name);
        group.sample_size(30);
        group.bench_function("insert", |b| b.iter_custom(|count| medians(count, || insert(&mut crowd))));
        group.bench_function("remove", |b| b.iter_custom(|count| medians(count, || remove(&mut crowd))));
        group.bench_function("dispatch", |b| {
            b.iter_custom(|count| medians(count, || dispatch(&mut crowd)));
        });
        group.finish();
    }
}

criterion_group!(benches, benchmark);
criterion_main!(benches);
