//! The gate's rules one by one: the paper's admission, the ledger, connections, pins, and refusals.

mod shell;

use admission::{
    Connection, Cost, Duration, EVENTS_MAX, Entry, Event, Gate, Instant, Lane, LongLimit, Obstacle, Order,
    Outcome, Policy, PolicyError, Reason, Refused, Request, RequestType,
};
use shell::{MS, Shell, ms, paper, policy, pool, request};

const ONE: u64 = 1;
const TEN: u64 = 10;
const FORTY: u64 = 40;

/// Knows types of 1, 10 and 40 ms.
fn experienced(policy: Policy) -> Shell {
    let mut shell = Shell::new(policy);
    for kind in [ONE, TEN, FORTY] {
        shell.teach(kind, kind * MS, 8);
    }
    shell.dispatched.clear();
    shell.events.clear();
    shell
}

fn aging(times: f64) -> Order {
    Order::ShortestFirst { aging: Some(times), floor: ms(0) }
}

fn immediate(kind: u64) -> Request {
    Request { entry: Entry::Immediate, ..request(kind) }
}

// Admission by work.

#[test]
fn work_is_let_in_up_to_the_capacity_and_no_further() {
    let mut shell = experienced(paper(35, Order::Fifo));
    let tickets: Vec<_> = (0..5).map(|_| shell.arrive(TEN)).collect();
    assert_eq!(shell.dispatched, tickets[..3]);
    assert_eq!(shell.load_ms(), 30.0);
    shell.succeed(tickets[1], 10 * MS);
    assert_eq!(shell.count(&tickets), 4);
}

#[test]
fn an_arrival_never_overtakes_a_blocked_head_that_it_may_not_overtake() {
    let mut shell = experienced(paper(45, Order::Fifo));
    let first = shell.arrive(TEN);
    let head = shell.arrive(FORTY);
    let small = shell.arrive(ONE);
    assert_eq!(shell.dispatched, [first], "the small one would fit beside it, but the head was first");
    shell.succeed(first, 10 * MS);
    assert_eq!(shell.dispatched, [first, head, small]);
}

#[test]
fn a_shorter_arrival_overtakes_a_blocked_head_whose_allowance_lasts_and_starts_if_it_fits() {
    let mut shell = experienced(paper(45, aging(0.05)));
    let running = shell.arrive(TEN);
    let head = shell.arrive(FORTY);
    let tickets: Vec<_> = (0..3).map(|_| shell.arrive(ONE)).collect();
    assert_eq!(shell.dispatched, [running, tickets[0], tickets[1]], "two of 1 ms are 0.05 times 40 ms");
    shell.succeed(running, 10 * MS);
    assert_eq!(shell.dispatched[3..], [head, tickets[2]], "the third had to stay behind it");
}

#[test]
fn a_request_larger_than_the_whole_capacity_still_runs_alone() {
    let mut shell = experienced(paper(20, aging(5.0)));
    let small = shell.arrive(ONE);
    let large = shell.arrive(FORTY);
    assert!(!shell.is_dispatched(large));
    shell.succeed(small, MS);
    assert!(shell.is_dispatched(large));
    let next = shell.arrive(ONE);
    assert!(!shell.is_dispatched(next), "alone");
    shell.succeed(large, 40 * MS);
    assert!(shell.is_dispatched(next));
}

#[test]
fn a_free_gate_dispatches_before_it_looks_at_the_queues_bound() {
    let mut shell = experienced(Policy { queue_max: 0, ..paper(15, aging(5.0)) });
    let first = shell.arrive(TEN);
    assert!(shell.is_dispatched(first));
    let second = shell.arrive(TEN);
    assert_eq!(shell.reason(second), Some(Reason::QueueFull));
}

#[test]
fn a_full_queue_rejects() {
    let mut shell = experienced(Policy { queue_max: 2, ..paper(10, Order::Fifo) });
    let tickets: Vec<_> = (0..4).map(|_| shell.arrive(TEN)).collect();
    assert_eq!(shell.reason(tickets[3]), Some(Reason::QueueFull));
    assert_eq!(shell.snapshot().queued, 2);
}

#[test]
fn a_full_queue_for_one_pool_does_not_refuse_a_request_for_a_free_one() {
    let mut shell = experienced(Policy { queue_max: 1, ..policy() });
    shell.gate.set_pool(shell.at(), pool(1), 1);
    let in_pool_1 = Request { pool: pool(1), ..request(ONE) };
    shell.send(in_pool_1);
    shell.send(in_pool_1);
    let refused = shell.send(in_pool_1);
    assert_eq!(shell.reason(refused), Some(Reason::QueueFull));
    let other = shell.arrive(ONE);
    assert!(shell.is_dispatched(other));
}

#[test]
fn one_that_is_refused_for_a_full_queue_charges_nobody() {
    let mut shell = experienced(Policy { queue_max: 1, ..paper(41, aging(0.05)) });
    let running = shell.arrive(FORTY);
    let waiting = shell.arrive(FORTY);
    for _ in 0..50 {
        shell.arrive(TEN);
    }
    shell.gate.set_policy(shell.at(), Policy { queue_max: 10, ..paper(41, aging(0.05)) });
    let (a, b) = (shell.arrive(ONE), shell.arrive(ONE));
    assert_eq!(shell.count(&[a]), 1, "it may still be overtaken by 2 ms, and 1 ms fits beside 40");
    shell.succeed(running, 40 * MS);
    assert!(shell.is_dispatched(waiting) || shell.is_dispatched(b));
}

// The ledger.

#[test]
fn a_request_that_outlives_its_estimate_holds_back_others_by_what_it_has_used() {
    let mut shell = experienced(paper(30, Order::Fifo));
    shell.arrive(TEN);
    shell.pass(25 * MS);
    let next = shell.arrive(ONE);
    assert!(shell.is_dispatched(next));
    assert_eq!(shell.load_ms(), 26.0);
    let late = shell.arrive(TEN);
    assert!(!shell.is_dispatched(late), "25 + 1 + 10 is more than 30");
}

#[test]
fn a_transaction_idle_for_a_second_gives_its_work_back_but_not_its_connection() {
    let mut shell = experienced(Policy { connections: 3, ..paper(15, Order::Fifo) });
    let idle = shell.arrive(TEN);
    let waiting = shell.arrive(TEN);
    shell.gate.idle(shell.at(), idle);
    shell.drain();
    shell.pass(999 * MS);
    assert!(!shell.is_dispatched(waiting));
    shell.pass(MS);
    assert!(shell.is_dispatched(waiting));
    assert_eq!(shell.snapshot().connections_in_use, 2);
    shell.gate.resume(shell.at(), idle);
    assert_eq!(shell.load_ms(), 20.0, "charged again without queueing, over the capacity");
    assert!(shell.gate.poll_event() == Some(Event::Resumed { ticket: idle }));
}

#[test]
fn cancel_removes_one_that_waits_and_only_marks_one_in_flight() {
    let mut shell = experienced(paper(10, Order::Fifo));
    let running = shell.arrive(TEN);
    let waiting = shell.arrive(TEN);
    shell.cancel(waiting);
    assert_eq!(shell.snapshot().queued, 0);
    shell.cancel(running);
    assert_eq!(shell.load_ms(), 10.0);
    let before = shell.snapshot().types;
    shell.succeed(running, 5_000 * MS);
    assert_eq!(shell.load_ms(), 0.0);
    let samples = |types: &[admission::TypeSnapshot]| types.iter().map(|known| known.samples).sum::<u64>();
    assert_eq!(samples(&shell.snapshot().types), samples(&before), "it teaches nothing");
}

#[test]
fn one_that_ends_before_its_end_teaches_only_a_type_of_which_nothing_is_known() {
    let mut shell = experienced(policy());
    let cut_short = |shell: &mut Shell, kind: u64| {
        let ticket = shell.arrive(kind);
        shell.gate.cut_short(ticket);
        shell.succeed(ticket, MS);
    };
    let before = shell.snapshot().types;
    cut_short(&mut shell, TEN);
    assert_eq!(shell.snapshot().types, before);
    let unknown = 4_711;
    let samples = |shell: &Shell| {
        let types = shell.snapshot().types;
        types.iter().find(|known| known.request_type == Some(RequestType(unknown))).map(|known| known.samples)
    };
    cut_short(&mut shell, unknown);
    assert_eq!(samples(&shell), Some(1), "others wait for what comes of it");
    cut_short(&mut shell, unknown);
    assert_eq!(samples(&shell), Some(1));
}

#[test]
fn tickets_that_have_ended_change_nothing() {
    let mut shell = experienced(policy());
    let ticket = shell.arrive(ONE);
    shell.succeed(ticket, MS);
    let before = shell.snapshot();
    shell.succeed(ticket, MS);
    shell.cancel(ticket);
    shell.gate.idle(shell.at(), ticket);
    shell.gate.resume(shell.at(), ticket);
    shell.gate.suspend(shell.at(), ticket);
    assert_eq!(shell.gate.pin(shell.at(), ticket), Err(Reason::PinnedMax));
    assert_eq!(shell.snapshot(), before);
}

#[test]
fn one_that_is_said_to_have_completed_while_it_waits_leaves_the_queue() {
    let mut shell = experienced(paper(10, Order::Fifo));
    shell.arrive(TEN);
    let waiting = shell.arrive(TEN);
    shell.finish(waiting, Outcome::Failure, MS);
    assert_eq!((shell.snapshot().queued, shell.snapshot().in_flight), (0, 1));
}

#[test]
fn time_does_not_go_back() {
    let mut shell = experienced(paper(10, Order::Fifo));
    shell.pass(500 * MS);
    shell.gate.handle_timeout(shell.at());
    let ticket = shell.gate.arrive(Instant::ZERO, request(TEN));
    shell.drain();
    assert_eq!(shell.load_ms(), 10.0);
    shell.succeed(ticket, MS);
    assert_eq!(shell.load_ms(), 0.0);
}

// Connections and pins.

#[test]
fn a_request_starts_only_if_its_own_pool_has_a_free_connection() {
    let mut shell = experienced(policy());
    shell.gate.set_pool(shell.at(), pool(0), 1);
    shell.gate.set_pool(shell.at(), pool(1), 1);
    let first = shell.arrive(ONE);
    let second = shell.arrive(ONE);
    let other = shell.send(Request { pool: pool(1), ..request(ONE) });
    assert_eq!(shell.dispatched, [first, other], "skipping one that has no connection isn't overtaking");
    shell.gate.set_pool(shell.at(), pool(0), 2);
    shell.drain();
    assert!(shell.is_dispatched(second));
}

#[test]
fn a_pool_that_was_never_set_has_no_connection() {
    let mut gate = Gate::new(policy(), Instant::ZERO, 1);
    gate.arrive(Instant::ZERO, request(ONE));
    assert_eq!(gate.poll(), None);
    assert_eq!(gate.snapshot().queued, 1);
}

#[test]
fn a_request_on_a_held_connection_takes_none() {
    let mut shell = experienced(Policy { connections: 1, ..policy() });
    let first = shell.arrive(ONE);
    let held = shell.send(Request { connection: Connection::Held, ..request(ONE) });
    assert_eq!(shell.dispatched, [first, held]);
    assert_eq!(shell.snapshot().connections_in_use, 1);
}

#[test]
fn a_pinned_session_keeps_its_connection_beyond_completion_until_it_is_unpinned() {
    let mut shell = experienced(Policy { connections: 1, ..policy() });
    let first = shell.arrive(ONE);
    let pin = shell.gate.pin(shell.at(), first).expect("the first");
    shell.succeed(first, MS);
    let next = shell.arrive(ONE);
    assert!(!shell.is_dispatched(next));
    assert_eq!((shell.snapshot().pinned, shell.snapshot().connections_in_use), (1, 1));
    shell.gate.unpin(shell.at(), pin);
    shell.drain();
    assert!(shell.is_dispatched(next));
}

#[test]
fn a_session_unpinned_while_its_request_runs_gives_its_connection_back_when_that_completes() {
    let mut shell = experienced(Policy { connections: 1, ..policy() });
    let first = shell.arrive(ONE);
    let pin = shell.gate.pin(shell.at(), first).expect("the first");
    shell.gate.unpin(shell.at(), pin);
    assert_eq!(shell.snapshot().connections_in_use, 1);
    shell.succeed(first, MS);
    assert_eq!(shell.snapshot().connections_in_use, 0);
}

#[test]
fn more_than_pinned_max_can_not_be_pinned() {
    let mut shell = experienced(Policy { pinned_max: 1, ..policy() });
    let (a, b) = (shell.arrive(ONE), shell.arrive(ONE));
    let pin = shell.gate.pin(shell.at(), a).expect("the first");
    assert_eq!(shell.gate.pin(shell.at(), b), Err(Reason::PinnedMax));
    assert_eq!(shell.gate.pin(shell.at(), a), Err(Reason::PinnedMax), "pinned already");
    shell.gate.unpin(shell.at(), pin);
    assert!(shell.gate.pin(shell.at(), b).is_ok());
}

#[test]
fn an_immediate_request_is_charged_but_never_queued() {
    let mut shell = experienced(Policy { queue_max: 0, ..paper(10, Order::Fifo) });
    shell.arrive(TEN);
    let commit = shell.send(immediate(TEN));
    assert!(shell.is_dispatched(commit));
    assert_eq!(shell.load_ms(), 20.0);
}

#[test]
fn an_immediate_request_without_a_connection_takes_the_very_next_one() {
    let mut shell = experienced(Policy { connections: 1, queue_max: 1, ..policy() });
    let running = shell.arrive(ONE);
    let waiting = shell.arrive(ONE);
    let commit = shell.send(immediate(FORTY));
    assert_eq!(shell.reason(commit), None, "a full queue does not refuse it");
    shell.succeed(running, MS);
    assert_eq!(shell.dispatched, [running, commit]);
    shell.succeed(commit, MS);
    assert!(shell.is_dispatched(waiting));
}

// Who is refused.

#[test]
fn one_that_has_waited_for_queue_timeout_is_refused() {
    let mut shell = experienced(Policy { queue_timeout: Duration::from_secs(5), ..paper(10, Order::Fifo) });
    shell.arrive(TEN);
    let early = shell.arrive(TEN);
    shell.pass(1_000 * MS);
    let late = shell.arrive(TEN);
    shell.pass(4_000 * MS - 1);
    assert_eq!(shell.reason(early), None);
    shell.pass(1);
    assert_eq!((shell.reason(early), shell.reason(late)), (Some(Reason::QueueTimeout), None));
}

#[test]
fn a_request_whose_deadline_has_passed_is_refused_at_arrival_or_in_the_queue() {
    let mut shell = experienced(paper(10, Order::Fifo));
    shell.pass(100 * MS);
    let deadline = |millis| Request { deadline: Some(Instant::from_nanos(millis * MS)), ..request(TEN) };
    let base = shell.now / MS;
    let gone = shell.send(deadline(base));
    assert_eq!(shell.reason(gone), Some(Reason::Deadline));
    let running = shell.arrive(TEN);
    let hurried = shell.send(deadline(base + 5));
    shell.pass(5 * MS);
    assert_eq!(shell.reason(hurried), Some(Reason::Deadline));
    shell.succeed(running, 5 * MS);
    assert!(!shell.is_dispatched(hurried));
}

#[test]
fn a_deadline_that_the_shell_slept_through_never_reaches_the_service() {
    let mut shell = experienced(paper(10, Order::Fifo));
    let running = shell.arrive(TEN);
    let hurried = shell.send(Request { deadline: Some(Instant::from_nanos(shell.now + 5)), ..request(TEN) });
    shell.now += 10 * MS;
    shell.succeed(running, 10 * MS);
    assert_eq!(shell.reason(hurried), Some(Reason::Deadline));
}

#[test]
fn an_idle_gate_asks_for_no_timeout() {
    let mut shell = experienced(policy());
    assert_eq!(shell.gate.next_timeout(), None);
    let ticket = shell.arrive(ONE);
    assert_eq!(shell.gate.next_timeout(), None, "a known request in flight needs no timer");
    shell.succeed(ticket, MS);
    assert_eq!(shell.gate.next_timeout(), None);
}

// Types.

#[test]
fn the_least_recently_used_type_goes_to_other() {
    let mut shell = Shell::new(Policy { types_max: 2, ..policy() });
    shell.teach(1, MS, 1);
    shell.teach(2, MS, 1);
    shell.teach(1, MS, 1);
    shell.teach(3, MS, 1);
    assert!(shell.events.contains(&Event::TypeForgotten { request_type: RequestType(2) }));
    let types: Vec<_> = shell.snapshot().types.iter().map(|known| known.request_type).collect();
    assert_eq!(types, [Some(RequestType(1)), Some(RequestType(3)), None]);
}

#[test]
fn a_type_with_requests_is_never_forgotten_and_a_new_one_shares_other() {
    let mut shell = Shell::new(Policy { types_max: 2, ..policy() });
    let (a, b) = (shell.arrive(1), shell.arrive(2));
    let c = shell.arrive(3);
    assert_eq!(shell.count(&[a, b, c]), 3);
    let types: Vec<_> = shell.snapshot().types.iter().map(|known| known.request_type).collect();
    assert_eq!(types, [Some(RequestType(1)), Some(RequestType(2)), None]);
    shell.succeed(a, MS);
    shell.arrive(4);
    assert!(shell.events.contains(&Event::TypeForgotten { request_type: RequestType(1) }));
}

#[test]
fn the_number_of_types_is_bounded_whatever_arrives() {
    let mut shell = Shell::new(Policy { types_max: 16, ..policy() });
    for kind in 0..5_000 {
        shell.teach(kind, MS, 1);
    }
    assert_eq!(shell.snapshot().types.len(), 17);
    shell.gate.set_policy(shell.at(), Policy { types_max: 4, ..policy() });
    assert_eq!(shell.snapshot().types.len(), 5);
}

#[test]
fn an_idle_night_and_a_pause_of_the_process_teach_nothing() {
    let mut shell = experienced(policy());
    let tickets: Vec<_> = (0..10).map(|_| shell.arrive(ONE)).collect();
    shell.pass(60_000 * MS);
    for ticket in tickets {
        shell.succeed(ticket, 60_000 * MS);
    }
    shell.pass(8 * 3_600_000 * MS);
    let types = shell.snapshot().types;
    let known = types.iter().find(|known| known.request_type == Some(RequestType(ONE))).expect("known");
    assert!(known.work < ms(10), "{:?} after a pause of a minute", known.work);
}

// Reload.

#[test]
fn a_larger_capacity_lets_in_at_once_those_that_wait() {
    let mut shell = experienced(paper(10, Order::Fifo));
    let tickets: Vec<_> = (0..3).map(|_| shell.arrive(TEN)).collect();
    assert_eq!(shell.count(&tickets), 1);
    shell.gate.set_policy(shell.at(), paper(30, Order::Fifo));
    shell.drain();
    assert_eq!(shell.count(&tickets), 3);
}

#[test]
fn another_order_sorts_those_that_wait_anew() {
    let mut shell = experienced(paper(40, Order::Fifo));
    let running = shell.arrive(FORTY);
    let (long, short) = (shell.arrive(FORTY), shell.arrive(ONE));
    shell.gate.set_policy(shell.at(), paper(40, Order::ShortestFirst { aging: None, floor: ms(0) }));
    shell.succeed(running, 40 * MS);
    assert_eq!(shell.dispatched, [running, short]);
    shell.gate.set_policy(shell.at(), paper(40, Order::Fifo));
    shell.succeed(short, MS);
    assert!(shell.is_dispatched(long));
}

#[test]
fn a_long_lane_that_is_switched_on_or_off_moves_those_that_wait() {
    let mut shell = Shell::new(policy());
    shell.teach(ONE, MS, 90);
    shell.teach(FORTY, 40 * MS, 6);
    shell.teach(ONE, MS, 90);
    assert_eq!(shell.lane(FORTY), Lane::Long);
    let tickets: Vec<_> = (0..10).map(|_| shell.arrive(FORTY)).collect();
    assert_eq!(shell.count(&tickets), 4);
    shell.gate.set_policy(shell.at(), Policy { long_limit: None, connections: 6, ..policy() });
    shell.drain();
    assert_eq!(shell.count(&tickets), 6);
    assert_eq!(shell.snapshot().long_in_flight, 0);
    shell.gate.set_policy(shell.at(), policy());
    shell.drain();
    assert_eq!((shell.count(&tickets), shell.snapshot().long_in_flight), (6, 6));
}

#[test]
fn a_shorter_queue_timeout_holds_at_once() {
    let mut shell = experienced(paper(10, Order::Fifo));
    shell.arrive(TEN);
    let waiting = shell.arrive(TEN);
    shell.pass(50 * MS);
    shell.gate.set_policy(
        shell.at(),
        Policy { queue_timeout: Duration::from_millis(50), ..paper(10, Order::Fifo) },
    );
    shell.drain();
    assert_eq!(shell.reason(waiting), Some(Reason::QueueTimeout));
}

#[test]
fn a_policy_that_can_not_be_is_named() {
    assert_eq!(policy().check(), Ok(()));
    let wrong = [
        (Policy { connections: 0, ..policy() }, PolicyError::NoConnections),
        (Policy { long_limit: Some(LongLimit::Fixed(0)), ..policy() }, PolicyError::NoLongs),
        (Policy { cost: Cost::MovingAverage { window: 0 }, ..policy() }, PolicyError::Window),
        (Policy { cost: Cost::MovingAverage { window: 1_025 }, ..policy() }, PolicyError::Window),
        (Policy { cost: Cost::Ewma { weight: 0.0 }, ..policy() }, PolicyError::Weight),
        (Policy { cost: Cost::Ewma { weight: f64::NAN }, ..policy() }, PolicyError::Weight),
        (Policy { order: aging(-1.0), ..policy() }, PolicyError::Aging),
        (Policy { order: aging(f64::NAN), ..policy() }, PolicyError::Aging),
    ];
    for (policy, error) in wrong {
        assert_eq!(policy.check(), Err(error));
        let mut shell = Shell::new(policy);
        let ticket = shell.arrive(ONE);
        assert!(shell.is_dispatched(ticket), "read as the nearest policy that can be");
    }
}

// Bounds.

#[test]
fn events_that_nobody_drains_are_bounded_and_the_loss_is_counted() {
    let mut gate = Gate::new(Policy { queue_max: 0, ..policy() }, Instant::ZERO, 1);
    for _ in 0..EVENTS_MAX + 10 {
        gate.arrive(Instant::ZERO, request(ONE));
        assert!(gate.poll().is_some());
    }
    assert_eq!(gate.events_lost(), 10);
    let mut kept = 0;
    while gate.poll_event().is_some() {
        kept += 1;
    }
    assert_eq!(kept, EVENTS_MAX);
}

#[test]
fn immediate_requests_that_wait_are_bounded() {
    let mut gate = Gate::new(policy(), Instant::ZERO, 1);
    for _ in 0..65_536 {
        gate.arrive(Instant::ZERO, immediate(ONE));
    }
    assert_eq!(gate.poll(), None);
    let ticket = gate.arrive(Instant::ZERO, immediate(ONE));
    let full = Refused { reason: Reason::QueueFull, obstacle: Some(Obstacle::Connections) };
    assert_eq!(gate.poll(), Some(admission::Action::Reject(ticket, full)));
}

#[test]
fn requests_of_one_type_do_not_overtake_one_another_when_their_estimate_wanders() {
    let order = Order::ShortestFirst { aging: None, floor: ms(0) };
    let mut shell = Shell::new(paper(200, order));
    shell.teach(1, 100 * MS, 5);
    let running = [shell.arrive(1), shell.arrive(1)];
    let (first, second) = (shell.arrive(1), shell.arrive(1));
    shell.succeed(running[0], 60 * MS);
    assert!(shell.is_dispatched(first) && !shell.is_dispatched(second));
    let third = shell.arrive(1);
    shell.succeed(running[1], 60 * MS);
    assert!(
        shell.is_dispatched(second) && !shell.is_dispatched(third),
        "the third is expected to take a little less"
    );
}

#[test]
fn a_type_that_becomes_faster_goes_earlier_and_in_order_of_arrival() {
    let order = Order::ShortestFirst { aging: None, floor: ms(0) };
    let mut shell = Shell::new(paper(200, order));
    shell.teach(1, 100 * MS, 5);
    shell.teach(2, 50 * MS, 5);
    let running = [shell.arrive(1), shell.arrive(1)];
    let (first, other) = (shell.arrive(1), shell.arrive(2));
    for _ in 0..40 {
        // A service that has become ten times as fast, seen by requests that never wait.
        let ticket = shell.send(Request { entry: Entry::Immediate, ..request(1) });
        shell.succeed(ticket, 10 * MS);
    }
    let second = shell.arrive(1);
    shell.succeed(running[0], 100 * MS);
    assert!(shell.is_dispatched(first), "the first of the type takes the place that the second was given");
    assert!(!shell.is_dispatched(second));
    assert!(!shell.is_dispatched(other), "the type goes before the other one");
}
