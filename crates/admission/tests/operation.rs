//! What an operator does with a gate: pauses and resumes it, looks at its queue, keeps what it has learned.

mod shell;

use admission::{
    Capacity, Connection, Controller, Cost, Entry, Gate, Instant, Learned, LongLimit, Policy, PoolSet,
    Reason, Request, RequestType, Work,
};
use shell::{MS, Shell, ms, policy, pool, request};

fn only(index: u8) -> PoolSet {
    let mut pools = PoolSet::NONE;
    pools.insert(pool(index));
    pools
}

fn of_pool(index: u8) -> Request {
    Request { pool: pool(index), ..request(1) }
}

/// Two pools of five connections, and a type of 1 ms.
fn two_pools() -> Shell {
    let mut shell = Shell::new(policy());
    shell.teach(1, MS, 8);
    shell.gate.set_pool(shell.at(), pool(0), 5);
    shell.gate.set_pool(shell.at(), pool(1), 5);
    shell.dispatched.clear();
    shell
}

fn arrive(shell: &mut Shell, request: Request) -> admission::Ticket {
    let ticket = shell.gate.arrive(shell.at(), request);
    shell.drain();
    ticket
}

#[test]
fn a_pause_holds_up_the_requests_of_its_pools_and_no_others() {
    let mut shell = two_pools();
    let running = arrive(&mut shell, of_pool(0));
    shell.gate.hold_up(shell.at(), only(0));
    let held = arrive(&mut shell, of_pool(0));
    let pinned = arrive(&mut shell, Request { connection: Connection::Held, ..of_pool(0) });
    let free = arrive(&mut shell, of_pool(1));
    assert_eq!(shell.dispatched, [running, free]);
    let in_flight =
        [only(0), only(1), PoolSet::ALL, PoolSet::NONE].map(|pools| shell.gate.in_flight_of(pools));
    assert_eq!(in_flight, [1, 1, 2, 0]);
    let queue: Vec<_> = shell.gate.queue(10).into_iter().map(|queued| queued.ticket).collect();
    assert_eq!(queue, [held, pinned]);
    assert_eq!(shell.gate.queue(1).len(), 1);

    shell.succeed(running, MS);
    assert_eq!(shell.dispatched, [running, free], "an end lets nobody through");
    shell.gate.hold_up(shell.at(), PoolSet::NONE);
    shell.drain();
    assert_eq!(shell.dispatched, [running, free, held, pinned]);
}

#[test]
fn who_waits_out_a_pause_is_refused_when_his_time_is_up() {
    let mut shell = two_pools();
    shell.gate.hold_up(shell.at(), PoolSet::ALL);
    let held = arrive(&mut shell, of_pool(1));
    shell.pass(120_000 * MS);
    assert_eq!(shell.rejected, [(held, Reason::QueueTimeout)]);
}

#[test]
fn who_holds_a_lock_passes_a_pause() {
    let mut shell = two_pools();
    shell.gate.hold_up(shell.at(), PoolSet::ALL);
    let unlock = arrive(&mut shell, Request { entry: Entry::Immediate, ..of_pool(0) });
    let pinned = Request { entry: Entry::Immediate, connection: Connection::Held, ..of_pool(0) };
    let pinned = arrive(&mut shell, pinned);
    assert_eq!(shell.dispatched, [unlock, pinned]);
}

/// Five types from 20 ms to 1.5 s, some of them varying, and one that has run twice only.
fn experienced(policy: Policy) -> Shell {
    let mut shell = Shell::new(policy);
    for kind in 1..=4 {
        for round in 0..40 {
            let ticket = shell.arrive(kind);
            shell.succeed(ticket, (kind * 20 + round % (kind * 3)) * MS);
        }
    }
    shell.teach(5, 1_500 * MS, 40);
    shell.teach(6, 7 * MS, 2);
    shell
}

fn recalled(learned: &Learned, policy: Policy) -> Shell {
    let mut shell = Shell::new(policy);
    shell.gate.recall(shell.at(), learned);
    shell
}

#[test]
fn a_gate_that_recalls_expects_ranks_and_lanes_as_the_one_that_learned() {
    for cost in [Cost::DEFAULT, Cost::Ewma { weight: 0.06 }] {
        let policy = Policy { cost, ..policy() };
        let old = experienced(policy.clone());
        let learned = old.gate.learned();
        assert_eq!(learned.types.len(), 6);
        let new = recalled(&learned, policy);
        let (before, after) = (old.gate.snapshot().types, new.gate.snapshot().types);
        for (before, after) in before.iter().zip(&after) {
            let key = before.request_type;
            assert_eq!((key, before.lane), (after.request_type, after.lane));
            assert_eq!(before.samples, after.samples, "{key:?}");
            for (before, after) in [(before.work, after.work), (before.rank, after.rank)] {
                // An EWMA's mean is rounded once more.
                assert!(before.as_nanos().abs_diff(after.as_nanos()) <= 1, "{key:?}: {before:?} {after:?}");
            }
            assert!((before.variation - after.variation).abs() < 1e-9, "{key:?}");
        }
        assert_eq!(new.gate.learned().types.len(), 6);
    }
}

#[test]
fn a_gate_that_recalls_is_not_cold() {
    let mut shell = recalled(&experienced(policy()).gate.learned(), policy());
    let shorts: Vec<_> = (0..15).map(|_| shell.arrive(1)).collect();
    assert_eq!(shell.count(&shorts), 15, "none waits for a scout");
    let mut cold = Shell::new(policy());
    let shorts: Vec<_> = (0..15).map(|_| cold.arrive(1)).collect();
    assert_eq!(cold.count(&shorts), 1);
    let longs: Vec<_> = (0..15).map(|_| shell.arrive(5)).collect();
    assert_eq!(shell.count(&longs), 4, "the long lane's limit holds at once");
}

#[test]
fn a_gate_that_recalls_goes_on_from_the_capacity_and_the_width_that_were_found() {
    let policy = |cores| Policy {
        capacity: Capacity::Found(Controller::Auto),
        long_limit: Some(LongLimit::Found { cores }),
        connections: 30,
        ..policy()
    };
    let found = |capacity, width| Learned { capacity, width, ..Learned::default() };
    let recalled = |learned: &Learned, cores| {
        let shell = recalled(learned, policy(cores));
        (shell.gate.learned(), shell.gate.snapshot())
    };
    let (learned, shown) = recalled(&found(Some(23), Some(4)), None);
    assert_eq!((learned.capacity, shown.capacity_found), (Some(23), Some(23)));
    assert_eq!(
        (learned.width, shown.long_limit),
        (Some(4), Some(6)),
        "two more, for requests that wait for disks"
    );
    // A file may say anything, and the service has told of fewer cores.
    for (capacity, width, bounds) in [(0, 7, (1, None)), (u32::MAX, 8, (30, None)), (8, 2, (8, Some(2)))] {
        let (learned, _) = recalled(&found(Some(capacity), Some(width)), Some(2));
        assert_eq!((learned.capacity, learned.width), (Some(bounds.0), bounds.1));
    }
}

#[test]
fn the_next_execution_weighs_what_it_would_have_weighed() {
    let mut shell = recalled(&experienced(policy()).gate.learned(), policy());
    let before =
        shell.gate.learned().types.iter().find(|known| known.request_type == RequestType(5)).copied();
    let ticket = shell.arrive(5);
    shell.succeed(ticket, 2_000 * MS);
    let after = shell.gate.learned().types.iter().find(|known| known.request_type == RequestType(5)).copied();
    let (before, after) = (before.unwrap().mean.as_nanos(), after.unwrap().mean.as_nanos());
    assert_eq!(after - before, 500 * MS / 32);
}

#[test]
fn of_more_types_than_there_may_be_the_most_recently_used_are_recalled() {
    let mut old = experienced(policy());
    let ticket = old.arrive(2);
    old.succeed(ticket, 40 * MS);
    let few = Policy { types_max: 2, ..policy() };
    let keys: Vec<_> = recalled(&old.gate.learned(), few)
        .gate
        .learned()
        .types
        .iter()
        .map(|known| known.request_type)
        .collect();
    assert_eq!(keys, [RequestType(6), RequestType(2)]);
}

#[test]
fn what_cannot_have_been_learned_is_left_out_and_what_is_known_stays() {
    let mut learned = experienced(policy()).gate.learned();
    learned.types[0].variation.variance = f64::NAN;
    learned.types[1].variation.mean = f64::INFINITY;
    learned.types[2].samples = 0;
    learned.types[3].mean = Work::ZERO;
    learned.types[4].samples = u64::MAX;
    let shell = recalled(&learned, policy());
    assert_eq!(shell.gate.learned().types.len(), 2);

    let mut shell = Shell::new(policy());
    shell.teach(5, 3 * MS, 40);
    let mean = shell.gate.snapshot();
    shell.gate.recall(shell.at(), &experienced(policy()).gate.learned());
    let kept =
        shell.gate.snapshot().types.into_iter().find(|known| known.request_type == Some(RequestType(5)));
    assert_eq!(kept.map(|known| known.work), Some(ms(3)), "{mean:?}");
    // And nothing of this needs a clock.
    let gate = Gate::new(policy(), Instant::ZERO, 1);
    assert_eq!(gate.learned(), Learned::default());
}
