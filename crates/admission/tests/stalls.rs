//! A service that answers nothing for a while: how little is sent to it, and who goes first when it goes on.

#[path = "shell/mod.rs"]
mod shell;

use admission::{
    AfterStall, ClassId, Entry, Event, LongLimit, Order, Outcome, Policy, Reason, Request, ServiceClass,
    Ticket, Weight,
};
use shell::{MS, Shell, policy, request};

const SECOND: u64 = 1_000 * MS;
const SHORT: u64 = 1;
const LONG: u64 = 2;

fn newcomers_first() -> Policy {
    Policy { after_stall: AfterStall::NewcomersFirst, ..policy() }
}

/// A gate that has served requests of both types, one after the other.
fn known(policy: Policy) -> Shell {
    let mut shell = Shell::new(policy);
    shell.teach(SHORT, MS, 40);
    shell.teach(LONG, 200 * MS, 10);
    shell.teach(SHORT, MS, 200);
    shell
}

/// Lets `count` requests of a type arrive now.
fn come(shell: &mut Shell, kind: u64, count: usize) -> Vec<Ticket> {
    (0..count).map(|_| shell.arrive(kind)).collect()
}

/// Stalls the service for `seconds`. Returns the requests in flight, and those that wait at the end.
fn stall(shell: &mut Shell, seconds: u64) -> (Vec<Ticket>, Vec<Ticket>) {
    let in_flight = come(shell, SHORT, 4);
    shell.pass(SECOND);
    let waiting = come(shell, SHORT, 30);
    assert_eq!(shell.count(&waiting), 0, "no more is sent to a service that answers nothing");
    shell.pass((seconds - 1) * SECOND);
    (in_flight, waiting)
}

fn stalled(shell: &Shell) -> Vec<usize> {
    let late = shell.events.iter().filter_map(|event| match *event {
        Event::Stalled { late, .. } => Some(late),
        _ => None,
    });
    late.collect()
}

#[test]
fn a_service_that_stands_still_is_only_probed() {
    let mut shell = known(newcomers_first());
    let (_, waiting) = stall(&mut shell, 60);
    // After 2, 4, 8, 16 and 32 s.
    assert_eq!(shell.count(&waiting), 5);
    assert!(shell.snapshot().stalled);
}

#[test]
fn in_order_it_is_sent_what_the_connections_allow() {
    let mut shell = known(policy());
    let waiting = come(&mut shell, SHORT, 30);
    shell.pass(60 * SECOND);
    assert_eq!(shell.count(&waiting), 20);
    shell.succeed(waiting[0], 60 * SECOND);
    assert_eq!(shell.count(&waiting), 21, "and who has waited for longest is next");
    assert_eq!(stalled(&shell), [0; 0]);
}

#[test]
fn when_it_goes_on_newcomers_go_first_and_who_waited_takes_what_is_left() {
    let mut shell = known(newcomers_first());
    let (in_flight, waiting) = stall(&mut shell, 10);
    let before = shell.count(&waiting);
    shell.succeed(in_flight[0], 10 * SECOND);
    assert_eq!(stalled(&shell), [30 - before]);
    let first = shell.count(&waiting);
    assert!(first <= before + 1, "one at a time beside what it had");
    assert_eq!(shell.snapshot().late, 30 - first);
    let newcomers = come(&mut shell, SHORT, 10);
    assert_eq!(shell.count(&newcomers), 10, "as if nobody waited");
    for &ticket in in_flight[1..].iter().chain(&newcomers).chain(&waiting) {
        shell.succeed(ticket, MS);
    }
    assert_eq!(shell.count(&waiting), 30, "one after the other, in the end all");
    assert_eq!((shell.snapshot().in_flight, shell.snapshot().queued), (0, 0));
}

#[test]
fn who_waits_after_those_who_waited_through_a_stall_have_gone_is_served_as_ever() {
    let mut shell = known(newcomers_first());
    let (in_flight, waiting) = stall(&mut shell, 10);
    shell.succeed(in_flight[0], 10 * SECOND);
    for &ticket in in_flight[1..].iter().chain(&waiting) {
        shell.succeed(ticket, MS);
    }
    let after = come(&mut shell, SHORT, 60);
    let started = shell.count(&after);
    assert!(started < 60, "{started}");
    for &ticket in &after {
        shell.succeed(ticket, MS);
    }
    assert_eq!((shell.count(&after), shell.snapshot().queued), (60, 0));
}

#[test]
fn after_a_short_stall_all_is_in_order() {
    let mut shell = known(newcomers_first());
    let (in_flight, waiting) = stall(&mut shell, 4);
    shell.succeed(in_flight[0], 4 * SECOND);
    assert_eq!((stalled(&shell), shell.snapshot().late), (vec![0], 0));
    assert!(shell.count(&waiting) > 10, "they take the connections");
}

#[test]
fn neither_a_long_request_nor_one_that_others_do_not_wait_for_is_a_stall() {
    let mut shell = known(newcomers_first());
    let long = come(&mut shell, LONG, 3);
    shell.pass(15 * SECOND);
    assert!(!shell.snapshot().stalled, "75 times what it should take");
    // One is stuck (a lock), and others are served.
    let stuck = shell.arrive(SHORT);
    for _ in 0..50 {
        let other = shell.arrive(SHORT);
        assert!(shell.is_dispatched(other));
        shell.pass(MS);
        shell.succeed(other, MS);
        shell.pass(900 * MS);
        assert!(!shell.snapshot().stalled);
    }
    assert_eq!(shell.count(&[long[0], stuck]), 2);
}

#[test]
fn who_leaves_is_no_answer() {
    let mut shell = known(newcomers_first());
    let (in_flight, waiting) = stall(&mut shell, 3);
    let before = shell.count(&waiting);
    shell.finish(in_flight[0], Outcome::Canceled, 3 * SECOND);
    assert!(shell.snapshot().stalled);
    assert_eq!(shell.count(&waiting), before);
}

#[test]
fn where_the_queue_is_full_the_first_of_those_who_are_late_makes_room() {
    let mut shell = known(Policy { queue_max: 30, ..newcomers_first() });
    let (in_flight, waiting) = stall(&mut shell, 10);
    let late: Vec<Ticket> = waiting.iter().copied().filter(|&ticket| !shell.is_dispatched(ticket)).collect();
    shell.succeed(in_flight[0], 10 * SECOND);
    let newcomers = come(&mut shell, SHORT, 30);
    let in_time = newcomers.iter().filter(|&&ticket| shell.reason(ticket).is_none()).count();
    let refused: Vec<bool> =
        late.iter().map(|&ticket| shell.reason(ticket) == Some(Reason::QueueFull)).collect();
    assert!(refused.iter().any(|&refused| refused) && refused.is_sorted_by(|a, b| a >= b), "{refused:?}");
    assert_eq!(in_time, newcomers.len(), "no newcomer is refused for those who are late");
}

#[test]
fn late_shorts_go_before_late_longs_and_a_long_only_where_the_lane_has_room() {
    let mut shell = known(Policy { long_limit: Some(LongLimit::Fixed(1)), ..newcomers_first() });
    let in_flight = come(&mut shell, SHORT, 4);
    shell.pass(SECOND);
    let (long, short) = (come(&mut shell, LONG, 2), come(&mut shell, SHORT, 2));
    shell.pass(7 * SECOND);
    let probes: Vec<Ticket> =
        [long[0], long[1], short[0], short[1]].into_iter().filter(|&one| shell.is_dispatched(one)).collect();
    for &ticket in in_flight.iter().chain(&probes) {
        shell.succeed(ticket, 8 * SECOND);
    }
    assert_eq!((shell.count(&short), shell.count(&long)), (2, 1), "{:?}", shell.snapshot());
    shell.finish(long[0], Outcome::Success, 200 * MS);
    shell.finish(long[1], Outcome::Success, 200 * MS);
    assert_eq!(shell.count(&long), 2);
}

#[test]
fn a_second_stall_adds_to_who_is_late_and_other_policies_and_classes_keep_them() {
    let mut shell = known(newcomers_first());
    let (in_flight, _) = stall(&mut shell, 10);
    shell.succeed(in_flight[0], 10 * SECOND);
    let late = shell.snapshot().late;
    shell.pass(SECOND);
    let stuck = come(&mut shell, SHORT, 20);
    shell.pass(6 * SECOND);
    let more = come(&mut shell, SHORT, 5);
    shell.succeed(stuck[0], 6 * SECOND);
    let all = shell.snapshot().late;
    assert!(all > late, "{all} of {late}");
    let class = |id, weight| ServiceClass::new(id, Weight::new(weight).expect("a weight"));
    let classes = vec![class(ClassId::named("gold"), 2.0)];
    for policy in [
        Policy { order: Order::Fifo, ..newcomers_first() },
        Policy { classes, ..newcomers_first() },
        Policy { long_limit: None, ..policy() },
    ] {
        shell.gate.set_policy(shell.at(), policy);
        shell.drain();
        assert!(shell.snapshot().late > 0 || shell.snapshot().queued == 0);
    }
    let mut at = 0;
    while at < shell.dispatched.len() {
        shell.succeed(shell.dispatched[at], MS);
        at += 1;
    }
    assert_eq!(shell.count(&more), 5);
    assert_eq!((shell.snapshot().queued, shell.snapshot().late, shell.snapshot().in_flight), (0, 0, 0));
}

#[test]
fn who_may_not_wait_goes_in_a_stall_as_well() {
    let mut shell = known(newcomers_first());
    let _ = stall(&mut shell, 3);
    let at_once = shell.send(Request { entry: Entry::Immediate, ..request(SHORT) });
    assert!(shell.is_dispatched(at_once));
}

#[test]
fn a_stall_ends_with_the_last_in_flight_where_nobody_waits() {
    let mut shell = known(newcomers_first());
    let sent = come(&mut shell, SHORT, 2);
    shell.pass(60 * SECOND);
    // Nobody waits, so that nothing has called the gate.
    shell.gate.handle_timeout(shell.at());
    assert!(shell.snapshot().stalled);
    shell.finish(sent[0], Outcome::Canceled, 60 * SECOND);
    assert!(shell.snapshot().stalled, "one is still there");
    shell.finish(sent[1], Outcome::Canceled, 60 * SECOND);
    assert!(!shell.snapshot().stalled);
    shell.pass(600 * SECOND);
    let next = shell.arrive(SHORT);
    shell.succeed(next, MS);
    assert_eq!(stalled(&shell), [0; 0], "an idle time is no stall");
}
