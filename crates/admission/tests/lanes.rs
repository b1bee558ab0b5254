//! The long lane and the types that nobody knows yet, as stories.

mod history;
mod shell;

use admission::{
    Capacity, Connection, Controller, Duration, Entry, Event, Lane, LongLimit, Order, Outcome, Policy,
    PoolSet, Reason, Request, Shortage, Ticket,
};
use history::check;
use proptest::prelude::*;
use shell::{MS, Shell, ms, policy, pool, request};

const SHORT: u64 = 1;
const REPORT: u64 = 2;

/// A gate that knows shorts of 1 ms and reports of 100 ms, mostly shorts.
fn experienced(policy: Policy) -> Shell {
    let mut shell = Shell::new(policy);
    shell.teach(SHORT, MS, 90);
    shell.teach(REPORT, 100 * MS, 6);
    shell.teach(SHORT, MS, 90);
    assert_eq!((shell.lane(SHORT), shell.lane(REPORT)), (Lane::Short, Lane::Long));
    shell
}

fn arrive(shell: &mut Shell, kind: u64, count: usize) -> Vec<Ticket> {
    (0..count).map(|_| shell.arrive(kind)).collect()
}

#[test]
fn a_flood_of_unknown_reports_does_not_hold_up_a_first_short_statement_nor_later_ones() {
    let mut shell = Shell::new(policy());
    let reports = arrive(&mut shell, REPORT, 40);
    assert_eq!(shell.count(&reports), 1, "one request at a time while the type is unknown");
    shell.pass(MS);
    let first = shell.arrive(SHORT);
    assert!(shell.is_dispatched(first), "a first statement is dispatched at once");
    shell.pass(MS);
    shell.succeed(first, MS);
    shell.pass(10 * MS);
    assert_eq!(shell.lane(REPORT), Lane::Long, "called long by its age");
    assert_eq!(shell.count(&reports), 4, "up to the long limit");
    for _ in 0..1_000 {
        let later = shell.arrive(SHORT);
        assert!(shell.is_dispatched(later));
        shell.pass(MS);
        shell.succeed(later, MS);
    }
    assert_eq!(shell.count(&reports), 4);
    shell.succeed(reports[0], 10_000 * MS);
    assert_eq!(shell.count(&reports), 5);
    assert_eq!(
        shell.dispatched.iter().filter(|t| reports.contains(t)).copied().collect::<Vec<_>>(),
        reports[..5]
    );
}

#[test]
fn where_reports_fill_a_number_that_was_found_one_short_at_a_time_goes_beyond_it() {
    let found = LongLimit::Found { cores: None };
    let mut shell = Shell::new(Policy {
        capacity: Capacity::Found(Controller::Auto),
        long_limit: Some(found),
        ..policy()
    });
    let reports = arrive(&mut shell, REPORT, 40);
    shell.pass(MS);
    let first = shell.arrive(SHORT);
    shell.pass(MS);
    shell.succeed(first, MS);
    shell.pass(10 * MS);
    assert_eq!((shell.lane(REPORT), shell.count(&reports)), (Lane::Long, 8), "all that may be in flight");
    for _ in 0..5 {
        let two = arrive(&mut shell, SHORT, 2);
        assert_eq!(shell.count(&two), 1);
        shell.pass(MS);
        shell.succeed(two[0], MS);
        assert_eq!(shell.count(&two), 2);
        shell.pass(MS);
        shell.succeed(two[1], MS);
    }
    let late = shell.arrive(SHORT);
    shell.pass(1_000 * MS);
    assert_eq!(shell.lane(SHORT), Lane::Short);
    let next = shell.arrive(SHORT);
    assert!(
        shell.is_dispatched(late) && !shell.is_dispatched(next),
        "not even where that one has become old"
    );
}

#[test]
fn a_first_statement_that_reports_slow_down_makes_its_type_no_long_one() {
    let mut shell = Shell::new(policy());
    arrive(&mut shell, REPORT, 40);
    shell.pass(10 * MS);
    let first = shell.arrive(SHORT);
    shell.pass(28 * MS);
    assert_eq!((shell.lane(REPORT), shell.lane(SHORT)), (Lane::Long, Lane::Long), "called long by age");
    shell.succeed(first, 28 * MS);
    assert_eq!((shell.lane(REPORT), shell.lane(SHORT)), (Lane::Long, Lane::Short));
}

#[test]
fn a_flood_of_distinct_unknown_reports_leaves_connections_to_known_shorts() {
    let mut shell = experienced(policy());
    let reports: Vec<_> = (100..200).map(|kind| shell.arrive(kind)).collect();
    assert_eq!(shell.count(&reports), 15, "all but a quarter of the connections");
    shell.pass(1_000 * MS);
    assert_eq!(shell.count(&reports), 15, "called long, they still hold their connections");
    let shorts = arrive(&mut shell, SHORT, 5);
    assert_eq!(shell.count(&shorts), 5);
}

#[test]
fn an_unknown_type_becomes_known_when_its_first_request_succeeds() {
    let mut shell = experienced(policy());
    let tickets = arrive(&mut shell, 7, 10);
    assert_eq!(shell.count(&tickets), 1);
    shell.pass(MS);
    shell.succeed(tickets[0], MS);
    assert_eq!(shell.lane(7), Lane::Short);
    assert_eq!(shell.count(&tickets), 10);
}

#[test]
fn an_unknown_type_that_fails_goes_on_one_by_one_and_is_known_after_three_failures() {
    let mut shell = experienced(policy());
    let tickets = arrive(&mut shell, 7, 10);
    for done in 0..3 {
        assert_eq!(shell.count(&tickets), done + 1);
        shell.finish(tickets[done], Outcome::Failure, MS);
    }
    assert_eq!(shell.count(&tickets), 10);
}

#[test]
fn when_the_first_of_an_unknown_type_leaves_the_next_one_goes() {
    let mut shell = experienced(Policy { connections: 1, ..policy() });
    let busy = shell.arrive(SHORT);
    let tickets = arrive(&mut shell, 7, 3);
    shell.cancel(tickets[0]);
    shell.succeed(busy, MS);
    assert_eq!(shell.count(&tickets), 1);
    assert!(shell.is_dispatched(tickets[1]));
    shell.finish(tickets[1], Outcome::Canceled, MS);
    assert!(shell.is_dispatched(tickets[2]));
}

#[test]
fn shorts_never_wait_behind_longs() {
    let mut shell = experienced(policy());
    let reports = arrive(&mut shell, REPORT, 50);
    assert_eq!(shell.count(&reports), 4);
    let shorts = arrive(&mut shell, SHORT, 16);
    assert_eq!(shell.count(&shorts), 16, "all other connections");
}

#[test]
fn longs_can_never_take_all_connections() {
    let pairs = [(1, 1), (2, 1), (3, 2), (4, 3), (20, 15)];
    for (connections, most) in pairs {
        let mut shell =
            experienced(Policy { connections, long_limit: Some(LongLimit::Fixed(100)), ..policy() });
        let reports = arrive(&mut shell, REPORT, 50);
        assert_eq!(shell.count(&reports), most, "{connections} connections");
        assert_eq!(shell.snapshot().long_limit, Some(most as u32));
    }
}

#[test]
fn longs_can_not_take_all_connections_of_a_pool_either_when_the_pools_fill_the_budget() {
    let mut shell = experienced(Policy { connections: 8, long_limit: Some(LongLimit::Fixed(6)), ..policy() });
    shell.gate.set_pool(shell.at(), pool(0), 4);
    let reports = arrive(&mut shell, REPORT, 10);
    assert_eq!(shell.count(&reports), 4, "the budget has room: the pool can grow");
    let mut shell = experienced(Policy { connections: 8, long_limit: Some(LongLimit::Fixed(6)), ..policy() });
    shell.gate.set_pool(shell.at(), pool(0), 4);
    shell.gate.set_pool(shell.at(), pool(1), 4);
    let reports = arrive(&mut shell, REPORT, 10);
    assert_eq!(shell.count(&reports), 3);
}

#[test]
fn pools_are_short_whose_requests_wait_for_nothing_but_a_connection_of_theirs() {
    let mut shell = experienced(Policy { connections: 4, long_limit: Some(LongLimit::Fixed(3)), ..policy() });
    shell.gate.set_pool(shell.at(), pool(0), 2);
    shell.gate.set_pool(shell.at(), pool(1), 2);
    let shortage = |shell: &Shell| {
        let Shortage { shorts, heavy } = shell.gate.short_of_connections();
        let of = |set: PoolSet| [0, 1].map(|index| set.contains(pool(index)));
        (of(shorts), of(heavy))
    };
    let shorts: Vec<_> = (0..2).map(|_| shell.arrive(SHORT)).collect();
    assert_eq!(shortage(&shell), ([false; 2], [false; 2]));
    shell.arrive(SHORT);
    assert_eq!(shortage(&shell), ([true, false], [false; 2]));
    let reports: Vec<_> = (0..2).map(|_| shell.send(Request { pool: pool(1), ..request(REPORT) })).collect();
    assert_eq!(shell.count(&reports), 1, "the other connection is left for shorts");
    assert_eq!(shortage(&shell), ([true, false], [false, true]));
    shell.succeed(shorts[0], MS);
    assert_eq!(shortage(&shell), ([false; 2], [false, true]));
    // What the long lane holds up doesn't wait for a connection.
    let (now, one_long) =
        (shell.at(), Policy { connections: 4, long_limit: Some(LongLimit::Fixed(1)), ..policy() });
    shell.gate.set_policy(now, one_long);
    assert_eq!(shortage(&shell), ([false; 2], [false; 2]));
}

/// The times that a variable report takes, one after another.
fn varying(round: usize) -> u64 {
    if round % 6 == 0 { 2_000 * MS } else { 10 * MS }
}

/// An experienced gate that has learned that reports vary.
fn with_varying_reports(policy: Policy) -> Shell {
    let mut shell = experienced(policy);
    for round in 0..12 {
        shell.teach(REPORT, varying(round), 1);
        shell.teach(SHORT, MS, 30);
    }
    assert_eq!(shell.lane(REPORT), Lane::Variable);
    shell
}

#[test]
fn a_type_that_varies_too_much_within_itself_is_not_limited() {
    let mut shell = with_varying_reports(policy());
    let reports = arrive(&mut shell, REPORT, 20);
    assert_eq!(shell.count(&reports), 15, "by nothing but that it leaves the last connections to others");
}

#[test]
fn a_type_that_seems_to_vary_is_limited_once_more_of_it_are_in_service_than_were_seen() {
    let mut shell = with_varying_reports(Policy { connections: 200, ..policy() });
    let reports = arrive(&mut shell, REPORT, 80);
    assert_eq!(shell.count(&reports), 19, "as many as samples, and one");
    assert_eq!(shell.lane(REPORT), Lane::Long);
    for (round, &report) in reports.iter().enumerate() {
        assert!(shell.is_dispatched(report), "they go on in the lane");
        shell.pass(varying(round));
        shell.succeed(report, varying(round));
        if round < 50 {
            assert_eq!(shell.lane(REPORT), Lane::Long, "after {round}");
        }
    }
    assert_eq!(shell.lane(REPORT), Lane::Variable, "known by four times as many it is believed");
}

#[test]
fn a_single_request_that_outlives_the_cutoff_takes_a_seat_in_the_lane() {
    let mut shell = experienced(Policy { long_limit: Some(LongLimit::Fixed(1)), ..policy() });
    let stuck = shell.arrive(SHORT);
    shell.pass(1_000 * MS);
    let report = shell.arrive(REPORT);
    assert!(!shell.is_dispatched(report));
    assert_eq!(shell.snapshot().long_in_flight, 1);
    shell.succeed(stuck, 1_000 * MS);
    assert!(shell.is_dispatched(report));
}

#[test]
fn when_a_type_turns_out_long_what_is_in_flight_takes_seats_in_the_lane() {
    let mut shell = experienced(policy());
    shell.teach(7, MS, 1);
    let flood = arrive(&mut shell, 7, 6);
    assert_eq!(shell.count(&flood), 6);
    shell.succeed(flood[0], 300 * MS);
    shell.succeed(flood[1], 300 * MS);
    assert_eq!(shell.lane(7), Lane::Long);
    assert_eq!(shell.snapshot().long_in_flight, 4);
    let report = shell.arrive(REPORT);
    assert!(!shell.is_dispatched(report));
}

#[test]
fn a_suspended_long_gives_its_seat_back_and_keeps_its_connection() {
    let mut shell = experienced(Policy { long_limit: Some(LongLimit::Fixed(1)), ..policy() });
    let first = shell.arrive(REPORT);
    let second = shell.arrive(REPORT);
    shell.gate.idle(shell.at(), first);
    shell.pass(999 * MS);
    assert!(!shell.is_dispatched(second));
    shell.pass(MS);
    assert!(shell.is_dispatched(second));
    assert_eq!((shell.snapshot().suspended, shell.snapshot().connections_in_use), (1, 2));
    shell.gate.resume(shell.at(), first);
    assert_eq!(shell.snapshot().long_in_flight, 2, "resumed without queueing, over the limit for a while");
}

/// All connections busy with shorts, and always one more short waiting: does the waiting report ever start?
fn shorts_before_a_report_starts(order: Order) -> Option<u64> {
    let mut shell = experienced(Policy { order, connections: 2, ..policy() });
    let mut running = arrive(&mut shell, SHORT, 2);
    let report = shell.arrive(REPORT);
    let mut waiting = shell.arrive(SHORT);
    for passed in 0..5_000 {
        shell.pass(MS / 2);
        shell.succeed(running.remove(0), MS);
        if shell.is_dispatched(report) {
            return Some(passed);
        }
        assert!(shell.is_dispatched(waiting));
        running.push(waiting);
        waiting = shell.arrive(SHORT);
    }
    None
}

#[test]
fn a_long_that_shorts_have_overtaken_by_more_than_its_allowance_goes_first_for_the_next_connection() {
    let aging = |aging, floor| Order::ShortestFirst { aging, floor: ms(floor) };
    let passed = shorts_before_a_report_starts(aging(Some(5.0), 0)).expect("aging");
    assert!((450..=620).contains(&passed), "five times its 100 ms or so in shorts of 1 ms: {passed}");
    let passed = shorts_before_a_report_starts(aging(Some(1.0), 500)).expect("the floor");
    assert!((950..=1_100).contains(&passed), "the floor of half a second, for two in flight: {passed}");
    assert_eq!(shorts_before_a_report_starts(aging(None, 0)), None, "without aging it has no claim");
    assert_eq!(shorts_before_a_report_starts(Order::Fifo), Some(0), "under FIFO it arrived first");
}

#[test]
fn a_long_that_has_lost_its_patience_may_exceed_the_capacity_but_blocks_nobody() {
    let order = Order::ShortestFirst { aging: Some(1.0), floor: ms(0) };
    let mut shell = experienced(Policy { order, capacity: Capacity::Fixed(ms(20)), ..policy() });
    let running = shell.arrive(SHORT);
    let report = shell.arrive(REPORT);
    assert!(!shell.is_dispatched(report), "larger than the capacity, and something is in flight");
    let mut last = running;
    for _ in 0..130 {
        let next = shell.arrive(SHORT);
        assert!(shell.is_dispatched(next), "shorts never wait behind it while there is room");
        shell.succeed(last, MS);
        last = next;
        if shell.is_dispatched(report) {
            break;
        }
    }
    assert!(shell.is_dispatched(report));
    assert!(shell.load_ms() > 100.0);
}

#[test]
fn an_immediate_request_of_an_unknown_type_is_not_held_back() {
    let mut shell = experienced(policy());
    let first = shell.arrive(7);
    let second = shell.send(Request { entry: Entry::Immediate, ..request(7) });
    assert_eq!(shell.count(&[first, second]), 2);
}

#[test]
fn those_held_back_behind_an_unknown_type_count_in_the_queue_and_time_out() {
    let mut shell = experienced(Policy { queue_max: 3, queue_timeout: Duration::from_millis(4), ..policy() });
    let tickets = arrive(&mut shell, 7, 5);
    assert_eq!(shell.reason(tickets[4]), Some(Reason::QueueFull));
    assert_eq!(shell.snapshot().queued, 3);
    shell.pass(4 * MS);
    assert_eq!(shell.reason(tickets[1]), Some(Reason::QueueTimeout));
    assert_eq!(shell.snapshot().queued, 0);
}

#[test]
fn a_held_connection_counts_in_the_lane_but_takes_none() {
    let mut shell = experienced(Policy { long_limit: Some(LongLimit::Fixed(1)), ..policy() });
    let first = shell.send(Request { connection: Connection::Held, ..request(REPORT) });
    let second = shell.send(Request { connection: Connection::Held, ..request(REPORT) });
    assert_eq!(shell.count(&[first, second]), 1);
    assert_eq!(shell.snapshot().connections_in_use, 0);
}

#[test]
fn a_type_near_the_cutoff_does_not_flap() {
    let mut shell = experienced(policy());
    let mut changes = 0;
    for round in 0..200 {
        shell.teach(REPORT, if round % 2 == 0 { 14 * MS } else { 10 * MS }, 1);
        shell.teach(SHORT, MS, 2);
    }
    for event in &shell.events {
        changes +=
            usize::from(matches!(event, Event::LaneChanged { request_type, .. } if request_type.0 == REPORT));
    }
    assert!(changes <= 4, "{changes} changes of lane");
}

#[test]
fn without_a_long_lane_nothing_is_held_back() {
    let mut shell = Shell::new(Policy { long_limit: None, ..policy() });
    let reports = arrive(&mut shell, REPORT, 40);
    assert_eq!(shell.count(&reports), 20);
}

#[test]
fn a_scout_whose_client_thinks_does_not_hold_back_its_type() {
    let mut shell = experienced(policy());
    let tickets = arrive(&mut shell, 7, 3);
    assert_eq!(shell.count(&tickets), 1);
    shell.gate.idle(shell.at(), tickets[0]);
    shell.drain();
    assert_eq!(shell.count(&tickets), 2);
    shell.succeed(tickets[1], MS);
    assert_eq!(shell.count(&tickets), 3);
}

#[test]
fn clients_that_think_in_transactions_of_an_unknown_type_can_use_all_connections() {
    let mut shell = Shell::new(Policy { connections: 4, ..policy() });
    let tickets = arrive(&mut shell, 7, 4);
    for ticket in &tickets {
        shell.gate.idle(shell.at(), *ticket);
        shell.drain();
    }
    assert_eq!(shell.count(&tickets), 4);
}

#[test]
fn clients_that_think_in_transactions_called_long_by_age_alone_can_use_all_connections() {
    let mut shell = Shell::new(Policy { connections: 4, ..policy() });
    let first = shell.arrive(7);
    shell.pass(1000 * MS);
    assert_eq!(shell.lane(7), Lane::Long);
    shell.finish(first, Outcome::Failure, 1000 * MS);
    let tickets = arrive(&mut shell, 7, 4);
    for ticket in &tickets {
        shell.gate.idle(shell.at(), *ticket);
        shell.pass(1000 * MS);
    }
    assert_eq!(shell.count(&tickets), 4);
}

#[test]
fn one_pause_does_not_make_a_long_type_short() {
    let mut shell = experienced(policy());
    let caught = shell.arrive(7);
    shell.pass(60_000 * MS);
    shell.succeed(caught, 60_000 * MS);
    shell.teach(SHORT, MS, 20);
    shell.teach(REPORT, 100 * MS, 1);
    assert_eq!(shell.lane(REPORT), Lane::Long);
}

#[test]
fn a_long_type_whose_cost_falls_below_the_cutoff_passes_freely_again() {
    let mut shell = experienced(policy());
    for _ in 0..160 {
        shell.teach(REPORT, MS, 1);
        shell.teach(SHORT, MS, 4);
    }
    assert_eq!(shell.lane(REPORT), Lane::Short);
    let reports = arrive(&mut shell, REPORT, 20);
    assert_eq!(shell.count(&reports), 20);
}

/// Random arrivals and completions, with the clock standing still, so that only the order of dispatch is at
/// stake.
#[derive(Clone, Debug)]
enum Step {
    Arrive(u64),
    Complete(usize),
}

#[test]
fn no_short_starts_while_a_long_that_has_lost_its_patience_could() {
    let step = prop_oneof![
        4 => Just(Step::Arrive(SHORT)),
        1 => (REPORT..REPORT + 3).prop_map(Step::Arrive),
        4 => (0..64_usize).prop_map(Step::Complete),
    ];
    let histories = (1..8_u32, 1..4_u32, 0..6_u64, 0..30_u64, prop::collection::vec(step, 50..300));
    check(2_000, histories, |(connections, long_limit, times, floor, steps)| {
        let order = Order::ShortestFirst { aging: Some(0.1 + times as f64 * 0.1), floor: ms(floor) };
        let mut shell = experienced(Policy {
            connections,
            long_limit: Some(LongLimit::Fixed(long_limit)),
            order,
            ..policy()
        });
        for kind in REPORT + 1..REPORT + 3 {
            shell.teach(kind, kind * 30 * MS, 6);
            shell.teach(SHORT, MS, 90);
        }
        shell.events.clear();
        let limit = shell.snapshot().long_limit.expect("a long lane");
        let (mut running, mut waiting) = (Vec::new(), Vec::new());
        for step in &steps {
            match *step {
                Step::Arrive(kind) => {
                    let types = shell.snapshot().types;
                    let known = types.iter().find(|known| known.request_type.map(|key| key.0) == Some(kind));
                    let work = known.expect("taught").work.as_nanos();
                    let allowance = ((0.1 + times as f64 * 0.1) * work as f64) as u64;
                    waiting.push((
                        shell.arrive(kind),
                        kind != SHORT,
                        allowance.max(u64::from(connections) * floor * MS),
                        0,
                    ));
                }
                Step::Complete(which) if !running.is_empty() => {
                    let (ticket, _, work) = running.swap_remove(which % running.len());
                    shell.succeed(ticket, work);
                }
                Step::Complete(_) => {}
            }
            for event in std::mem::take(&mut shell.events) {
                let Event::Dispatched { ticket, work, .. } = event else { continue };
                let at = waiting.iter().position(|waiting| waiting.0 == ticket).expect("it waits");
                let (_, long, ..) = waiting.remove(at);
                let longs = running.iter().filter(|running: &&(Ticket, bool, u64)| running.1).count() as u32;
                running.push((ticket, long, work.as_nanos()));
                if long {
                    assert!(longs < limit, "more longs than the lane takes");
                    continue;
                }
                for (_, long, allowance, overtaken) in &mut waiting {
                    assert!(
                        !*long || longs >= limit || *overtaken <= *allowance,
                        "overtaken beyond its patience"
                    );
                    *overtaken += work.as_nanos();
                }
            }
        }
    });
}
