//! Clients who leave in service after a long wait: who goes first then.

#[path = "shell/mod.rs"]
mod shell;

use admission::{Lane, Mechanism, Order, Outcome, Policy, Reason, Ticket};
use shell::{MS, Shell, policy};

const KIND: u64 = 1;
/// What one takes.
const TAKES: u64 = 900 * MS;

fn one_at_a_time() -> Policy {
    Policy { connections: 1, ..policy() }
}

/// Six clients have left a tenth of a second after their requests were started, and those had waited for
/// 0.9 s.
fn impatient(policy: Policy) -> Shell {
    let mut shell = Shell::new(policy);
    shell.teach(KIND, TAKES, 40);
    for _ in 0..6 {
        let served = shell.arrive(KIND);
        let leaves = shell.arrive(KIND);
        shell.pass(TAKES);
        shell.succeed(served, TAKES);
        assert!(shell.is_dispatched(leaves), "nobody else is there");
        shell.pass(100 * MS);
        shell.cancel(leaves);
        shell.cancel(leaves);
        shell.finish(leaves, Outcome::Canceled, 100 * MS);
    }
    shell
}

/// Two requests that have waited for this long, and a new one, behind one in flight that is answered now:
/// the order in which they go.
fn order_after(shell: &mut Shell, waited: u64) -> Vec<&'static str> {
    order_of(shell, KIND, waited)
}

fn order_of(shell: &mut Shell, kind: u64, waited: u64) -> Vec<&'static str> {
    let served = shell.arrive(kind);
    let waiting = [shell.arrive(kind), shell.arrive(kind)];
    shell.pass(waited);
    let newcomer = shell.arrive(kind);
    let before = shell.dispatched.len();
    shell.succeed(served, TAKES);
    while shell.snapshot().in_flight > 0 {
        let going = *shell.dispatched.last().expect("in flight");
        shell.succeed(going, TAKES);
    }
    let name = |ticket: &Ticket| match ticket {
        ticket if *ticket == newcomer => "newcomer",
        ticket if *ticket == waiting[0] => "first",
        _ => "second",
    };
    shell.dispatched[before..].iter().map(name).collect()
}

#[test]
fn who_has_waited_for_so_long_goes_after_newcomers_and_in_order() {
    let mut shell = impatient(one_at_a_time());
    assert_eq!(order_after(&mut shell, 850 * MS), ["newcomer", "first", "second"]);
    assert_eq!(order_after(&mut shell, 500 * MS), ["first", "second", "newcomer"], "they will be answered");
}

#[test]
fn without_leavers_all_is_in_order() {
    let mut shell = Shell::new(one_at_a_time());
    shell.teach(KIND, TAKES, 40);
    assert_eq!(order_after(&mut shell, 850 * MS), ["first", "second", "newcomer"]);
}

/// Requests wait among the shorts while their type becomes long, and their clients leave in service. That
/// is evidence on the line of the shorts, in which they waited.
#[test]
fn who_leaves_is_evidence_on_the_line_in_which_it_waited() {
    const SHORT: u64 = 2;
    let mut shell = Shell::new(one_at_a_time());
    shell.teach(KIND, TAKES, 40);
    shell.teach(SHORT, MS, 40);
    let mut served = shell.arrive(SHORT);
    let leave: Vec<Ticket> = (0..6).map(|_| shell.arrive(KIND)).collect();
    assert_eq!(shell.lane(KIND), Lane::Short);
    for _ in 0..900 {
        let next = shell.arrive(SHORT);
        shell.pass(MS);
        shell.succeed(served, MS);
        served = next;
    }
    let long = shell.arrive(KIND);
    assert_eq!(shell.lane(KIND), Lane::Long);
    shell.cancel(long);
    shell.succeed(served, MS);
    for ticket in leave {
        assert!(shell.is_dispatched(ticket));
        shell.pass(100 * MS);
        shell.cancel(ticket);
        shell.finish(ticket, Outcome::Canceled, 100 * MS);
    }
    assert_eq!(order_of(&mut shell, SHORT, 1_400 * MS), ["newcomer", "first", "second"]);
}

#[test]
fn first_come_first_served_stays_so() {
    let mut shell = impatient(Policy { order: Order::Fifo, ..one_at_a_time() });
    assert_eq!(order_after(&mut shell, 850 * MS), ["first", "second", "newcomer"]);
}

#[test]
fn who_has_more_patience_than_those_who_leave_goes_first_but_not_one_after_the_other() {
    let mut shell = impatient(one_at_a_time());
    assert_eq!(order_after(&mut shell, 1_500 * MS), ["first", "newcomer", "second"]);
}

#[test]
fn a_gate_without_leavers_keeps_its_order() {
    let mut shell = impatient(Policy { without: Mechanism::Leavers.into(), ..one_at_a_time() });
    assert_eq!(order_after(&mut shell, 850 * MS), ["first", "second", "newcomer"]);
}

#[test]
fn where_the_queue_is_full_who_has_stepped_back_makes_room() {
    let mut shell = impatient(Policy { queue_max: 3, ..one_at_a_time() });
    let served = shell.arrive(KIND);
    let waiting = [shell.arrive(KIND), shell.arrive(KIND)];
    shell.pass(850 * MS);
    let newcomer = shell.arrive(KIND);
    shell.succeed(served, TAKES);
    assert!(shell.is_dispatched(newcomer));
    assert_eq!(shell.snapshot().late, 2);
    let newcomers = [shell.arrive(KIND), shell.arrive(KIND)];
    assert_eq!((shell.reason(waiting[0]), shell.snapshot().late), (Some(Reason::QueueFull), 1));
    assert!(newcomers.iter().all(|&newcomer| shell.reason(newcomer).is_none()));
}

#[test]
fn other_policies_keep_who_has_stepped_back() {
    let mut shell = impatient(one_at_a_time());
    let served = shell.arrive(KIND);
    let old = shell.arrive(KIND);
    shell.pass(850 * MS);
    let newcomers = [shell.arrive(KIND), shell.arrive(KIND)];
    shell.succeed(served, TAKES);
    assert_eq!(shell.snapshot().late, 1);
    for policy in [Policy { long_limit: None, ..one_at_a_time() }, one_at_a_time()] {
        shell.gate.set_policy(shell.at(), policy);
        shell.drain();
        assert_eq!(shell.snapshot().late, 1);
    }
    for ticket in newcomers {
        assert!(!shell.is_dispatched(old));
        shell.succeed(ticket, TAKES);
    }
    assert!(shell.is_dispatched(old));
    shell.succeed(old, TAKES);
    assert_eq!((shell.snapshot().late, shell.snapshot().queued, shell.snapshot().in_flight), (0, 0, 0));
}
