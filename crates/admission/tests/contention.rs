//! Groups of types that contend with one another, as stories: who waits for whom.

mod shell;

use admission::{Capacity, Contention, Duration, Given, Order, Policy, Reason, RequestType, Ticket};
use shell::{MS, Shell, policy};

const HOT: u64 = 1;
const ALSO_HOT: u64 = 2;
const BYSTANDER: u64 = 3;

fn held(most: u32) -> Contention {
    Contention::Given(vec![Given { types: vec![RequestType(HOT), RequestType(ALSO_HOT)], most }])
}

/// Four connections, first come, first served, and so many of the hot ones at a time.
fn sale(most: u32) -> Shell {
    let policy =
        Policy { connections: 4, long_limit: None, order: Order::Fifo, contention: held(most), ..policy() };
    let mut shell = Shell::new(policy);
    for kind in [HOT, ALSO_HOT, BYSTANDER] {
        shell.teach(kind, MS, 10);
    }
    shell
}

fn arrive(shell: &mut Shell, kind: u64, count: usize) -> Vec<Ticket> {
    (0..count).map(|_| shell.arrive(kind)).collect()
}

#[test]
fn who_waits_for_a_group_blocks_nobody() {
    let mut shell = sale(2);
    let hot = arrive(&mut shell, HOT, 50);
    assert_eq!(shell.count(&hot), 2);
    let bystanders = arrive(&mut shell, BYSTANDER, 2);
    assert_eq!(shell.count(&bystanders), 2, "all other connections");
    let next = shell.arrive(BYSTANDER);
    shell.succeed(bystanders[0], MS);
    assert!(shell.is_dispatched(next), "before 48 that arrived earlier");
    assert_eq!(shell.count(&hot), 2);
}

#[test]
fn the_types_of_a_group_share_its_bound_in_order_of_arrival() {
    let mut shell = sale(1);
    let tickets: Vec<_> = [HOT, ALSO_HOT, HOT, ALSO_HOT].map(|kind| shell.arrive(kind)).into();
    for done in 0..4 {
        assert_eq!(shell.count(&tickets), done + 1);
        assert!(shell.is_dispatched(tickets[done]));
        shell.succeed(tickets[done], MS);
    }
}

#[test]
fn who_had_its_turn_goes_before_what_arrived_later() {
    let mut shell = sale(1);
    let hot = arrive(&mut shell, HOT, 2);
    let busy = arrive(&mut shell, BYSTANDER, 3);
    let later = shell.arrive(BYSTANDER);
    // One connection comes free, and room in the group with it: both could start, the hot one has waited
    // for longer.
    shell.succeed(hot[0], MS);
    assert!(shell.is_dispatched(hot[1]) && !shell.is_dispatched(later));
    shell.succeed(busy[0], MS);
    assert!(shell.is_dispatched(later));
}

#[test]
fn what_was_in_flight_before_a_bound_goes_on_and_counts() {
    let mut shell = sale(4);
    let hot = arrive(&mut shell, HOT, 6);
    assert_eq!(shell.count(&hot), 4);
    let policy =
        Policy { connections: 4, long_limit: None, order: Order::Fifo, contention: held(2), ..policy() };
    shell.gate.set_policy(shell.at(), policy.clone());
    shell.drain();
    for ticket in &hot[..2] {
        shell.succeed(*ticket, MS);
        assert_eq!(shell.count(&hot), 4, "two are in flight still");
    }
    shell.succeed(hot[2], MS);
    assert_eq!(shell.count(&hot), 5);
    shell.gate.set_policy(shell.at(), Policy { contention: Contention::None, ..policy });
    shell.drain();
    assert_eq!(shell.count(&hot), 6, "without a group nobody is aside");
}

#[test]
fn who_is_aside_may_leave_and_is_refused_like_anybody() {
    let mut shell = sale(1);
    let hot = arrive(&mut shell, HOT, 3);
    shell.cancel(hot[1]);
    shell.pass(120_000 * MS);
    assert_eq!(shell.reason(hot[2]), Some(Reason::QueueTimeout));
    let snapshot = shell.snapshot();
    assert_eq!((snapshot.queued, snapshot.groups[0].aside, snapshot.groups[0].in_flight), (0, 0, 1));
    shell.succeed(hot[0], MS);
    let next = shell.arrive(HOT);
    assert!(shell.is_dispatched(next));
}

#[test]
fn a_group_stays_within_the_capacity() {
    let policy = Policy {
        capacity: Capacity::Fixed(shell::ms(3)),
        connections: 20,
        long_limit: None,
        order: Order::Fifo,
        contention: held(2),
        ..policy()
    };
    let mut shell = Shell::new(policy);
    shell.teach(HOT, MS, 10);
    shell.teach(BYSTANDER, MS, 10);
    let hot = arrive(&mut shell, HOT, 5);
    let others = arrive(&mut shell, BYSTANDER, 5);
    assert_eq!((shell.count(&hot), shell.count(&others)), (2, 1));
}

#[test]
fn a_transaction_that_is_suspended_gives_its_room_in_the_group_back() {
    let mut shell = sale(1);
    let hot = arrive(&mut shell, HOT, 2);
    shell.gate.idle(shell.at(), hot[0]);
    shell.drain();
    assert!(!shell.is_dispatched(hot[1]), "it may hold the lock");
    shell.pass(1_000 * MS);
    assert!(shell.is_dispatched(hot[1]), "suspended after a second");
    shell.gate.resume(shell.at(), hot[0]);
    shell.drain();
    assert_eq!(shell.snapshot().groups[0].in_flight, 2, "never queued again");
}

#[test]
fn a_group_that_is_looked_for_is_not_there_below_saturation() {
    let policy = Policy { contention: Contention::Auto, long_limit: None, ..policy() };
    let mut shell = Shell::new(policy);
    for _ in 0..2_000 {
        let tickets = arrive(&mut shell, HOT, 3);
        shell.pass(5 * MS);
        tickets.into_iter().for_each(|ticket| shell.succeed(ticket, 5 * MS));
    }
    assert!(shell.snapshot().groups.is_empty());
    assert_eq!(shell.gate.next_timeout(), None);
    assert!(shell.now >= Duration::from_secs(10).as_nanos() as u64);
}
