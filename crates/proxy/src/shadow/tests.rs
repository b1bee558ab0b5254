//! Tests of the shadow in virtual time, with the real gate.

use admission::{Cost, Entry, LongLimit, Order, Reason, RequestType, Snapshot, Work};
use proptest::prelude::*;

use super::*;

const READ: RequestType = RequestType(1);

fn at(millis: u64) -> Instant {
    Instant::from_nanos(millis * 1_000_000)
}

fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

fn policy(connections: u32) -> Policy {
    Policy {
        capacity: admission::Capacity::Unlimited,
        connections,
        long_limit: None,
        cost: Cost::DEFAULT,
        order: Order::Fifo,
        queue_max: 100,
        queue_timeout: Duration::from_secs(120),
        pinned_max: connections,
        types_max: 100,
        ..Policy::default()
    }
}

fn request(request_type: RequestType) -> Request {
    Request {
        request_type,
        class: admission::ClassId::DEFAULT,
        pool: PoolId::new(7).unwrap(),
        connection: Connection::Held,
        entry: Entry::Queued,
        client: None,
        tenant: None,
        deadline: None,
    }
}

fn served(millis: u64) -> Completion {
    Completion { outcome: Outcome::Success, upstream_time: ms(millis) }
}

const LEFT: Completion = Completion { outcome: Outcome::Canceled, upstream_time: Duration::ZERO };

/// A shadow whose type READ is known, at instant 100 ms, without events.
fn knowing(policy: Policy) -> Shadow {
    let mut shadow = Shadow::new(policy, at(0), 1);
    let ticket = shadow.arrive(at(0), request(READ));
    shadow.finished(at(1), ticket, served(1));
    events(&mut shadow);
    shadow
}

fn events(shadow: &mut Shadow) -> Vec<Event> {
    let events = std::iter::from_fn(|| shadow.poll_event());
    events.filter(|event| !matches!(event, Event::LaneChanged { .. })).collect()
}

fn queue_waits(events: &[Event]) -> Vec<Duration> {
    let wait = |event: &Event| match event {
        Event::Dispatched { queue_wait, .. } => Some(*queue_wait),
        _ => None,
    };
    events.iter().filter_map(wait).collect()
}

fn completed(events: &[Event]) -> usize {
    events.iter().filter(|event| matches!(event, Event::Completed { .. })).count()
}

#[test]
fn without_contention_the_shadow_does_what_really_happens() {
    let mut shadow = knowing(policy(2));
    let (a, b) = (shadow.arrive(at(10), request(READ)), shadow.arrive(at(11), request(READ)));
    assert_eq!(shadow.gate().snapshot().in_flight, 2);
    shadow.finished(at(20), a, served(10));
    shadow.finished(at(21), b, served(10));
    let events = events(&mut shadow);
    assert_eq!((queue_waits(&events), completed(&events)), (vec![ms(0), ms(0)], 2));
    assert_eq!((shadow.gate().snapshot().in_flight, shadow.next_timeout()), (0, None));
}

#[test]
fn what_ran_at_once_would_have_waited_and_then_taken_as_long() {
    let mut shadow = knowing(policy(1));
    let (a, b) = (shadow.arrive(at(10), request(READ)), shadow.arrive(at(12), request(READ)));
    // Both really run at once; the second ends first.
    shadow.finished(at(15), b, served(3));
    shadow.finished(at(20), a, served(10));
    assert_eq!(queue_waits(&events(&mut shadow)), [ms(0), ms(8)], "b is dispatched when a ends, at 20");
    assert_eq!((shadow.gate().snapshot().in_flight, shadow.next_timeout()), (1, Some(at(23))));
    shadow.handle_timeout(at(30));
    let events = events(&mut shadow);
    assert!(
        matches!(events[..], [Event::Completed { queue_wait, upstream_time, .. }]
            if queue_wait == ms(8) && upstream_time == ms(3)),
        "{events:?}"
    );
}

#[test]
fn dispatched_before_it_really_ends_it_ends_as_much_later() {
    let mut shadow = knowing(policy(1));
    let (a, b) = (shadow.arrive(at(10), request(READ)), shadow.arrive(at(10), request(READ)));
    shadow.finished(at(20), a, served(10));
    // b is in flight in the shadow since 20, and really until 60: in the shadow until 70.
    shadow.finished(at(60), b, served(50));
    assert_eq!(shadow.next_timeout(), Some(at(70)));
    assert_eq!(completed(&events(&mut shadow)), 1);
    shadow.handle_timeout(at(70));
    assert_eq!(completed(&events(&mut shadow)), 1);
}

#[test]
fn what_would_have_been_refused_is_told_and_its_real_end_forgotten() {
    let mut shadow = knowing(Policy { queue_max: 1, ..policy(1) });
    let [a, b, c] = [(); 3].map(|()| shadow.arrive(at(10), request(READ)));
    let refused = events(&mut shadow);
    assert!(matches!(
        refused[..],
        [Event::Dispatched { .. }, Event::Rejected { reason: Reason::QueueFull, .. }]
    ));
    for ticket in [c, b, a] {
        shadow.finished(at(20), ticket, served(10));
    }
    shadow.handle_timeout(at(100));
    assert_eq!(completed(&events(&mut shadow)), 2);
    assert!(shadow.requests.is_empty() && shadow.due.is_empty());
}

#[test]
fn a_queue_timeout_is_told_at_its_own_instant_however_late_the_timer_is() {
    let mut shadow = knowing(Policy { queue_timeout: ms(50), ..policy(1) });
    let a = shadow.arrive(at(10), request(READ));
    let b = shadow.arrive(at(20), request(READ));
    assert_eq!(shadow.next_timeout(), Some(at(70)));
    shadow.finished(at(500), a, served(490));
    let told = events(&mut shadow);
    assert!(
        matches!(told[1], Event::Rejected { reason: Reason::QueueTimeout, queue_wait, .. } if queue_wait == ms(50)),
        "{told:?}"
    );
    shadow.idle(at(501), b);
    shadow.resume(at(502), b);
    shadow.finished(at(503), b, served(1));
    assert!(shadow.requests.is_empty() && shadow.due.is_empty());
}

#[test]
fn a_client_that_really_leaves_leaves_the_shadows_queue_at_once() {
    let mut shadow = knowing(policy(1));
    let (a, b) = (shadow.arrive(at(10), request(READ)), shadow.arrive(at(10), request(READ)));
    shadow.finished(at(15), b, LEFT);
    let told = events(&mut shadow);
    assert!(matches!(told[1], Event::Left { queue_wait, .. } if queue_wait == ms(5)), "{told:?}");
    shadow.finished(at(20), a, LEFT);
    assert!(matches!(events(&mut shadow)[..], [Event::Completed { outcome: Outcome::Canceled, .. }]));
    assert_eq!(shadow.gate().snapshot().in_flight, 0);
}

#[test]
fn a_transactions_pauses_happen_as_much_later_as_its_dispatch() {
    let mut shadow = knowing(policy(1));
    let (a, b) = (shadow.arrive(at(1000), request(READ)), shadow.arrive(at(1000), request(READ)));
    // b really thinks from 1010 to 3010, while a still runs.
    shadow.idle(at(1010), b);
    shadow.resume(at(3010), b);
    shadow.finished(at(3020), b, served(20));
    shadow.finished(at(4000), a, served(3000));
    events(&mut shadow);
    // Dispatched at 4000: idle at 4010, suspended after a second, resumed at 6010, ends at 6020.
    shadow.handle_timeout(at(5009));
    assert_eq!(shadow.gate().snapshot().suspended, 0);
    shadow.handle_timeout(at(5010));
    assert_eq!((shadow.gate().snapshot().suspended, shadow.gate().snapshot().connections_in_use), (1, 1));
    shadow.handle_timeout(at(6010));
    assert_eq!(shadow.gate().snapshot().suspended, 0);
    assert_eq!(shadow.next_timeout(), Some(at(6020)));
    shadow.handle_timeout(at(6020));
    assert_eq!(shadow.gate().snapshot().in_flight, 0);
    assert!(matches!(events(&mut shadow)[..], [
        Event::Suspended { .. },
        Event::Resumed { .. },
        Event::Completed { upstream_time, .. }
    ] if upstream_time == ms(20)));
}

#[test]
fn pauses_beyond_the_maximum_count_as_busy() {
    let mut shadow = knowing(policy(1));
    let (a, b) = (shadow.arrive(at(10), request(READ)), shadow.arrive(at(10), request(READ)));
    for pause in 0..STEPS_MAX as u64 {
        shadow.idle(at(10 + 2 * pause), b);
        shadow.resume(at(11 + 2 * pause), b);
    }
    shadow.finished(at(900), b, served(1));
    let steps = &shadow.requests[&b].steps;
    assert_eq!(steps.len(), STEPS_MAX - 1);
    assert!(matches!(steps.last(), Some((_, Step::End(_)))));
    shadow.finished(at(1000), a, served(1));
    shadow.handle_timeout(at(9000));
    assert_eq!(shadow.gate().snapshot().in_flight, 0);
}

#[test]
fn the_budget_of_connections_applies_whatever_pool_or_connection_a_session_has() {
    let mut shadow = knowing(policy(3));
    let _tickets: Vec<_> = (0..10)
        .map(|n| {
            let pool = PoolId::new(n).unwrap();
            shadow.arrive(at(10), Request { pool, ..request(READ) })
        })
        .collect();
    let Snapshot { in_flight, queued, .. } = shadow.gate().snapshot();
    assert_eq!((in_flight, queued), (3, 7));
}

#[test]
fn a_new_policy_applies_at_once() {
    let mut shadow = knowing(policy(1));
    for _ in 0..3 {
        shadow.arrive(at(10), request(READ));
    }
    shadow.set_policy(at(20), policy(2));
    assert_eq!((shadow.gate().snapshot().in_flight, shadow.gate().snapshot().queued), (2, 1));
}

#[test]
fn a_connections_next_request_passes_by_while_its_last_would_still_be_under_way() {
    let mut shadow = knowing(policy(1));
    let a = shadow.arrive_in_turn(at(10), request(READ), 1).unwrap();
    let b = shadow.arrive_in_turn(at(10), request(READ), 2).unwrap();
    // Two at once, as over HTTP/2: as long as none has really ended, both count.
    let c = shadow.arrive_in_turn(at(11), request(READ), 2).unwrap();
    shadow.finished(at(20), b, served(10));
    assert_eq!(shadow.arrive_in_turn(at(20), request(READ), 2), None, "b still waits for a");
    let other = shadow.arrive_in_turn(at(20), request(READ), 3).unwrap();
    shadow.finished(at(30), a, served(20));
    // b runs from 30 to 40, then c.
    assert_eq!(shadow.arrive_in_turn(at(39), request(READ), 2), None);
    let d = shadow.arrive_in_turn(at(40), request(READ), 2).unwrap();
    for ticket in [c, other, d] {
        shadow.finished(at(50), ticket, served(1));
    }
    shadow.handle_timeout(at(1_000));
    assert!(shadow.requests.is_empty() && shadow.behind.is_empty() && shadow.due.is_empty());
    // One that is refused, or leaves the queue, leaves nothing behind.
    let mut shadow = knowing(Policy { queue_max: 1, queue_timeout: ms(50), ..policy(1) });
    let [a, b, c] = [1, 2, 3].map(|turn| shadow.arrive_in_turn(at(10), request(READ), turn).unwrap());
    shadow.finished(at(11), c, served(1));
    shadow.finished(at(12), b, served(2));
    assert_eq!(shadow.arrive_in_turn(at(13), request(READ), 2), None);
    assert!(shadow.arrive_in_turn(at(60), request(READ), 2).is_some(), "refused at 60 ms, b holds nothing");
    shadow.finished(at(61), a, LEFT);
    assert!(shadow.behind.is_empty());
}

/// What really happens to one request: when it arrives, of which type, and what follows after how long.
#[derive(Clone, Debug)]
struct Story {
    arrives: u64,
    request_type: u64,
    pauses: Vec<(u64, u64)>,
    ends_after: u64,
    outcome: Outcome,
}

fn story() -> impl Strategy<Value = Story> {
    let outcome =
        prop_oneof![4 => Just(Outcome::Success), 1 => Just(Outcome::Failure), 1 => Just(Outcome::Canceled)];
    let pauses = proptest::collection::vec((0..50u64, 0..3000u64), 0..4);
    (0..2000u64, 0..5u64, pauses, 0..100u64, outcome).prop_map(
        |(arrives, request_type, pauses, ends_after, outcome)| Story {
            arrives,
            request_type,
            pauses,
            ends_after,
            outcome,
        },
    )
}

/// The real happenings of all stories, in order.
fn happenings(stories: &[Story]) -> Vec<(u64, usize, Option<Step>)> {
    let mut all = Vec::new();
    for (index, story) in stories.iter().enumerate() {
        let mut now = story.arrives;
        all.push((now, index, None));
        for (busy, thinks) in &story.pauses {
            all.push((now + busy, index, Some(Step::Idle)));
            now += busy + thinks;
            all.push((now, index, Some(Step::Resume)));
        }
        let completion = Completion { outcome: story.outcome, upstream_time: ms(story.ends_after) };
        all.push((now + story.ends_after, index, Some(Step::End(completion))));
    }
    all.sort_by_key(|(when, ..)| *when);
    all
}

/// Runs the stories; `ticks` are instants at which somebody looks at the clock besides.
fn run(policy: Policy, stories: &[Story], ticks: &[u64]) -> (Shadow, Vec<Event>) {
    let mut shadow = Shadow::new(policy, at(0), 1);
    let mut told = Vec::new();
    let mut tickets: Vec<Option<Ticket>> = vec![None; stories.len()];
    let mut ticks = ticks.iter().copied().peekable();
    for (when, index, step) in happenings(stories) {
        while let Some(tick) = ticks.next_if(|tick| *tick <= when) {
            shadow.handle_timeout(at(tick));
        }
        let now = at(when);
        match (step, tickets[index]) {
            (None, _) => {
                let arriving = request(RequestType(stories[index].request_type));
                tickets[index] = Some(shadow.arrive(now, arriving));
            }
            (Some(Step::Idle), Some(ticket)) => shadow.idle(now, ticket),
            (Some(Step::Resume), Some(ticket)) => shadow.resume(now, ticket),
            (Some(Step::End(completion)), Some(ticket)) => shadow.finished(now, ticket, completion),
            (Some(_), None) => {}
        }
        told.extend(std::iter::from_fn(|| shadow.poll_event()));
    }
    shadow.handle_timeout(at(100_000_000));
    told.extend(std::iter::from_fn(|| shadow.poll_event()));
    (shadow, told)
}

#[test]
fn what_would_become_of_a_request_is_known_while_it_really_runs() {
    let mut shadow = knowing(Policy { queue_max: 1, ..policy(1) });
    let [first, second, third] = [(); 3].map(|()| shadow.arrive(at(100), request(READ)));
    assert_eq!(shadow.foresee(at(110), first), Some(Foreseen::Dispatched(ms(0))));
    assert_eq!(shadow.foresee(at(110), second), Some(Foreseen::Waiting(ms(10))));
    assert_eq!(shadow.foresee(at(110), third), Some(Foreseen::Rejected(Reason::QueueFull)));
    shadow.finished(at(130), first, served(30));
    assert_eq!(shadow.foresee(at(140), second), Some(Foreseen::Dispatched(ms(30))));
    shadow.finished(at(140), third, served(40));
    assert_eq!((shadow.foresee(at(140), third), shadow.refused.len()), (None, 0));
}

fn policies() -> impl Strategy<Value = Policy> {
    let order = prop_oneof![
        Just(Order::Fifo),
        Just(Order::ShortestFirst { aging: Some(5.0), floor: Work::from(ms(100)) })
    ];
    (1..4u32, order, 0..8usize, 1..500u64, proptest::option::of(1..3u32)).prop_map(
        |(connections, order, queue_max, timeout, long_limit)| Policy {
            order,
            queue_max,
            queue_timeout: ms(timeout),
            long_limit: long_limit.map(LongLimit::Fixed),
            ..policy(connections)
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    #[test]
    fn every_request_ends_once_in_the_shadow_and_nothing_is_left(
        policy in policies(),
        stories in proptest::collection::vec(story(), 1..40),
    ) {
        let (shadow, told) = run(policy, &stories, &[]);
        let ended = told.iter().filter(|event| {
            matches!(event, Event::Completed { .. } | Event::Rejected { .. } | Event::Left { .. })
        });
        prop_assert_eq!(ended.count(), stories.len());
        let Snapshot { load, in_flight, queued, connections_in_use, .. } = shadow.gate().snapshot();
        prop_assert_eq!((load, in_flight, queued, connections_in_use), (Work::ZERO, 0, 0, 0));
        prop_assert!(shadow.requests.is_empty() && shadow.refused.is_empty() && shadow.due.is_empty());
    }

    #[test]
    fn how_often_the_clock_is_looked_at_changes_nothing(
        policy in policies(),
        stories in proptest::collection::vec(story(), 1..40),
        mut ticks in proptest::collection::vec(0..20_000u64, 0..100),
    ) {
        ticks.sort_unstable();
        let (_, seldom) = run(policy.clone(), &stories, &[]);
        let (_, often) = run(policy, &stories, &ticks);
        prop_assert_eq!(seldom, often);
    }
}
