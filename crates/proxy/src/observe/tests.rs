//! Tests of the observer: what is counted where, and what bounds it.

use std::time::Duration;

use admission::{Completion, Connection, Cost, Gate, Instant, Order, Policy, PoolId, Request};

use super::*;

const READ: RequestType = RequestType(1);
const REPORT: RequestType = RequestType(2);

fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

fn named(key: RequestType, label: &str) -> TypeName {
    TypeName::new(key, label.into())
}

fn work_ms(millis: u64) -> Work {
    Work::from(ms(millis))
}

/// A type that did one thing of each kind.
fn busy(observer: &mut Observer, key: RequestType, label: &str) {
    busy_as(observer, &named(key, label));
}

fn busy_as(observer: &mut Observer, name: &TypeName) {
    observer.describe(name);
    let entry = observer.entry(name.key);
    entry.counts.dispatched += 1;
    entry.counts.reject(Reason::Deadline);
    entry.counts.complete(Outcome::Success, work_ms(20));
    entry.queue_wait.record(ms(3));
    entry.upstream_time.record(ms(20));
}

fn request() -> Request {
    Request {
        request_type: READ,
        class: ClassId::DEFAULT,
        pool: PoolId::default(),
        connection: Connection::Needed,
        entry: admission::Entry::Queued,
        client: None,
        tenant: None,
        deadline: None,
    }
}

/// Any ticket: the observer looks at none.
pub(crate) fn ticket() -> Ticket {
    let mut gate = Gate::new(Policy::default(), Instant::ZERO, 1);
    gate.arrive(Instant::ZERO, request())
}

fn row<'a>(rows: &'a [TypeRow], label: &str) -> &'a TypeRow {
    rows.iter().find(|row| &*row.label == label).unwrap()
}

#[test]
fn a_type_that_is_not_to_be_shown_counts_in_the_row_of_another_one() {
    let mut observer = Observer::new(10);
    let hidden = TypeName { key: REPORT, row: READ, label: "GET /*".into() };
    // Its row is there before a request of the row's own type.
    busy_as(&mut observer, &hidden);
    busy(&mut observer, READ, "GET /*");
    observer.record(&Event::LaneChanged { request_type: REPORT, lane: Lane::Long, work: work_ms(900) });
    let rows = observer.table();
    let [row] = rows.as_slice() else { panic!("{rows:?}") };
    assert_eq!((row.key, &*row.label, row.counts.dispatched), (Some(READ), "GET /*", 2));
    assert_eq!(row.lane, Lane::Unknown, "the lane of one of them is not the row's");
    let changes = observer.take_changes();
    assert!(matches!(&changes[..], [Change::Lane { label, .. }] if &**label == "GET /*"), "{changes:?}");
    assert_eq!((observer.label(REPORT), observer.own_label(REPORT)), (Some("GET /*".into()), None));

    // What it does once it is shown is seen in its own row, what it did before stays where it was.
    busy(&mut observer, REPORT, "GET /report");
    let rows = observer.table();
    assert_eq!(self::row(&rows, "GET /*").counts.dispatched, 2);
    assert_eq!(self::row(&rows, "GET /report").counts.dispatched, 1);
    assert_eq!(observer.own_label(REPORT), Some("GET /report".into()));

    // Nothing is left of it when it is forgotten.
    busy_as(&mut observer, &TypeName { key: RequestType(3), ..hidden });
    observer.record(&Event::TypeForgotten { request_type: RequestType(3) });
    assert_eq!(observer.label(RequestType(3)), None);
    assert!(observer.elsewhere.is_empty());
}

#[test]
fn what_a_gate_tells_is_counted_by_type_and_in_all() {
    let policy = Policy {
        capacity: admission::Capacity::Unlimited,
        connections: 1,
        long_limit: None,
        cost: Cost::DEFAULT,
        order: Order::Fifo,
        queue_max: 2,
        queue_timeout: ms(50),
        pinned_max: 1,
        types_max: 10,
        ..Policy::default()
    };
    let at = |millis: u64| Instant::ZERO.after(ms(millis));
    let mut gate = Gate::new(policy, at(0), 1);
    gate.set_pool(at(0), PoolId::default(), 1);
    let mut observer = Observer::new(10);
    observer.describe(&named(READ, "read"));
    // One runs for 60 ms; behind it one leaves after 10 ms, one is refused after 50 ms, one at once.
    let [first, leaving, _waiting, _full] = [(); 4].map(|()| gate.arrive(at(0), request()));
    gate.cancel(at(10), leaving);
    gate.handle_timeout(at(50));
    gate.complete(at(60), first, Completion { outcome: Outcome::Success, upstream_time: ms(60) });
    while let Some(event) = gate.poll_event() {
        observer.record(&event);
    }

    let rows = observer.table();
    let read = row(&rows, "read");
    let expected =
        Counts { dispatched: 1, succeeded: 1, rejected: [1, 1, 0, 0, 0, 0, 0, 0], left: 1, ..read.counts };
    assert_eq!((read.counts, read.counts.ended()), (expected, 4));
    assert_eq!((read.queue_wait.count, read.queue_wait.sum), (4, ms(60)));
    assert_eq!((read.upstream_time.count, read.upstream_time.sum), (1, ms(60)));
    let totals = observer.totals();
    assert_eq!(totals.counts, read.counts);
    assert_eq!(totals.queue_wait_rejected.sum, ms(50));
    assert_eq!((totals.queue_wait_left.sum, totals.upstream_time.count()), (ms(10), 1));
}

#[test]
fn a_forgotten_type_counts_for_other() {
    let mut observer = Observer::new(10);
    busy(&mut observer, READ, "read");
    busy(&mut observer, REPORT, "report");

    observer.record(&Event::TypeForgotten { request_type: READ });
    observer.record(&Event::TypeForgotten { request_type: REPORT });

    let rows = observer.table();
    let other = row(&rows, OTHER);
    assert_eq!((rows.len(), other.key), (1, None));
    assert_eq!((other.counts.dispatched, other.counts.succeeded, other.counts.refused()), (2, 2, 2));
    assert_eq!(other.counts.work, work_ms(40));
    assert_eq!((other.upstream_time.count, other.upstream_time.sum), (2, ms(40)));
    assert_eq!(observer.totals().types_forgotten, 2);
}

#[test]
fn a_type_that_was_never_described_counts_for_other() {
    let mut observer = Observer::new(10);
    observer.entry(READ).counts.left += 1;
    assert_eq!(row(&observer.table(), OTHER).counts.left, 1);
}

#[test]
fn describing_a_known_type_again_changes_nothing() {
    let mut observer = Observer::new(10);
    busy(&mut observer, READ, "read");
    observer.describe(&named(READ, "another name"));
    let rows = observer.table();
    assert_eq!((rows.len(), row(&rows, "read").counts.dispatched), (1, 1));
}

#[test]
fn types_that_look_alike_are_told_apart_by_their_keys() {
    let mut observer = Observer::new(10);
    for key in 1..=2 {
        observer.describe(&named(RequestType(key), "select ? …"));
    }
    observer.describe(&named(RequestType(3), OTHER));
    let mut labels: Vec<_> = observer.table().iter().map(|row| row.label.to_string()).collect();
    labels.sort();
    assert_eq!(labels, ["other #0000000000000003", "select ? …", "select ? … #0000000000000002"]);
}

#[test]
fn at_the_bound_the_least_recently_used_type_goes_to_other() {
    let mut observer = Observer::new(1);
    busy(&mut observer, RequestType(1), "first");
    busy(&mut observer, RequestType(2), "second");
    observer.describe(&named(RequestType(1), "first"));
    busy(&mut observer, RequestType(3), "third");

    let rows = observer.table();
    assert_eq!(rows.len(), 3, "types_max, one more, and other: {rows:?}");
    assert_eq!(row(&rows, "first").counts.dispatched, 1);
    assert_eq!(row(&rows, "third").counts.dispatched, 1);
    assert_eq!(row(&rows, OTHER).counts.dispatched, 1);
}

#[test]
fn lane_changes_wait_for_the_log_up_to_a_bound() {
    let mut observer = Observer::new(10);
    observer.describe(&named(REPORT, "report"));
    let change = Event::LaneChanged { request_type: REPORT, lane: Lane::Long, work: work_ms(60) };
    for _ in 0..CHANGES_MAX + 5 {
        observer.record(&change);
    }

    let changes = observer.take_changes();
    assert_eq!(changes.len(), CHANGES_MAX);
    assert_eq!(changes[0], Change::Lane { label: "report".into(), lane: Lane::Long, work: work_ms(60) });
    assert_eq!(observer.totals().lane_changes, CHANGES_MAX as u64 + 5);
    assert_eq!(row(&observer.table(), "report").lane, Lane::Long);
    assert!(observer.take_changes().is_empty());
}

#[test]
fn percentiles_are_within_a_sixteenth_above() {
    let mut times = Times::new();
    for millis in 1..=1000 {
        times.record(ms(millis));
    }
    let TimeSummary { count, sum, p50, p95 } = times.summary();
    assert_eq!((count, sum), (1000, ms(500_500)));
    for (exact, told) in [(ms(500), p50), (ms(950), p95)] {
        assert!(exact <= told && told <= exact + exact / 16, "{told:?} for {exact:?}");
    }
    assert_eq!(times.summary().mean(), Duration::from_micros(500_500));
    assert_eq!(TimeSummary::default().mean(), Duration::ZERO);
}

#[test]
fn durations_out_of_range_count_as_the_nearest_bound() {
    let mut times = Times::new();
    times.record(Duration::from_secs(100_000));
    times.record(Duration::MAX);
    times.record(Duration::ZERO);
    let summary = times.summary();
    assert_eq!((summary.count, summary.sum), (3, Duration::MAX));
    assert!(summary.p95 >= Duration::from_secs(3600) && summary.p95 < Duration::from_secs(4000));
}

#[test]
fn a_histogram_takes_as_little_as_is_promised() {
    assert!(Times::new().micros.distinct_values() * size_of::<u64>() < 3_800);
    assert!(size_of::<Entry>() < 512, "{}", size_of::<Entry>());
}

#[test]
fn a_bucket_includes_its_upper_bound() {
    let mut buckets = Buckets::default();
    buckets.record(ms(1));
    buckets.record(Duration::from_micros(1001));
    buckets.record(Duration::from_secs(500));
    assert_eq!((buckets.counts[2], buckets.counts[3], buckets.counts[18]), (1, 1, 1));
    assert_eq!((buckets.count(), buckets.sum), (3, Duration::from_micros(500_002_001)));
}

#[test]
fn shares_of_the_work_sum_to_one() {
    let mut observer = Observer::new(10);
    assert!(shares(&observer.table()).is_empty());
    busy(&mut observer, READ, "read");
    busy(&mut observer, REPORT, "report");
    assert_eq!(shares(&observer.table()), [0.5, 0.5]);
}
