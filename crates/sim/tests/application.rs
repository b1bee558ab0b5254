//! An application between the clients and the gate: requests wait for its locks and connections where no gate
//! sees them.

mod common;

use admission::{Duration, Order, Policy, Reason};
use common::{gate, ms, no_gate, seconds};
use sim::{
    Abandoned, Application, Arrival, Arrivals, Collapse, Distribution, End, Kind, Mix, Outcome, Patience,
    Run, Scenario, Source, TableLock, Upstream, run,
};

const READS: usize = 0;
const WRITES: usize = 1;
const LOCKS_NOTHING: usize = 2;

/// Requests at these milliseconds, of these types, that take so many alone; a service of one core that
/// shares it.
fn replay(policy: Policy, application: Application, requests: &[(u64, usize, u64)]) -> Scenario {
    let kind = |locks: &[bool]| {
        let tables = locks.iter().map(|&written| TableLock { table: 0, written }).collect();
        Kind { tables, ..Kind::new("page", Distribution::Fixed(ms(1))) }
    };
    let recorded = |&(at, kind, takes): &(u64, usize, u64)| Arrival {
        at: ms(at),
        kind: kind as u32,
        service_time: Some(ms(takes)),
    };
    let arrivals: Vec<_> = requests.iter().map(recorded).collect();
    let types = vec![kind(&[false]), kind(&[true]), kind(&[])];
    let source = Source::new(Arrivals::Replayed(arrivals.into()), Mix::Shares(vec![1.0; 3]));
    Scenario {
        duration: seconds(10),
        warm_up: Duration::ZERO,
        application: Some(application),
        ..Scenario::new(policy, types, source, Upstream::sharing(1, Collapse::None))
    }
}

const AMPLE: Application = Application { connections: 100, timeout: None };

fn ends(run: &Run) -> Vec<u64> {
    run.rows.iter().map(|row| row.ended.as_nanos() / 1_000_000).collect()
}

#[test]
fn an_application_that_locks_nothing_changes_nothing() {
    let requests = [(0, LOCKS_NOTHING, 10), (1, LOCKS_NOTHING, 6), (2, LOCKS_NOTHING, 1)];
    let with = replay(gate(Order::Fifo, 2), AMPLE, &requests);
    let without = Scenario { application: None, ..with.clone() };
    assert_eq!(run(&with).unwrap(), run(&without).unwrap());
}

#[test]
fn a_writer_has_the_service_to_itself_and_who_locks_nothing_shares_it() {
    let locked = [(0, WRITES, 10), (2, READS, 4), (3, READS, 4)];
    // 10 ms alone, then two share: both begin at 10 and end at 18.
    assert_eq!(ends(&run(&replay(no_gate(), AMPLE, &locked)).unwrap()), [10, 18, 18]);
    let free = [(0, WRITES, 10), (2, LOCKS_NOTHING, 4)];
    assert_eq!(ends(&run(&replay(no_gate(), AMPLE, &free)).unwrap()), [14, 10]);
}

#[test]
fn a_gate_orders_only_what_has_its_locks() {
    // One at a time, the shortest first: the short reader waits for the lock of the long writer that waits
    // at the gate.
    let requests = [(0, LOCKS_NOTHING, 10), (1, WRITES, 30), (2, READS, 1), (3, LOCKS_NOTHING, 10)];
    let mut scenario = replay(gate(common::SHORTEST, 1), AMPLE, &requests);
    for (kind, known) in [(READS, 1), (WRITES, 30), (LOCKS_NOTHING, 10)] {
        scenario.types[kind].known = Some(ms(known));
    }
    let waits = |scenario: &Scenario| run(scenario).unwrap().rows[2].queue_wait();
    assert_eq!(waits(&scenario), ms(48));
    assert_eq!(waits(&Scenario { application: None, ..scenario }), ms(8));
}

#[test]
fn connections_are_waited_for_in_order_and_not_for_longer_than_is_said() {
    let one = Application { connections: 1, timeout: Some(ms(12)) };
    let requests = [(0, LOCKS_NOTHING, 10), (1, LOCKS_NOTHING, 10), (2, LOCKS_NOTHING, 10)];
    let run = run(&replay(no_gate(), one, &requests)).unwrap();
    assert_eq!(ends(&run), [10, 20, 14]);
    assert_eq!(run.rows[2].outcome, Outcome::Rejected(Reason::QueueTimeout));
}

#[test]
fn what_runs_on_is_performed_for_clients_who_have_left() {
    let requests = [(0, WRITES, 10), (1, WRITES, 10), (9, WRITES, 10)];
    let with = |abandoned| {
        let mut scenario = replay(no_gate(), AMPLE, &requests);
        scenario.sources[0].patience = Patience { abandoned, ..Patience::of(ms(15)) };
        run(&scenario).unwrap()
    };
    // The second client leaves at 16, in the middle of its work; the third would be done at 26, or at 30.
    assert_eq!(ends(&with(Abandoned::Canceled)), [10, 16, 24]);
    let run = with(Abandoned::RunsOn);
    assert_eq!(ends(&run), [10, 16, 24]);
    assert_eq!([1, 2].map(|row| run.rows[row].outcome), [Outcome::TimedOut; 2]);
    let dispatched = run.rows[2].dispatched.map(|at| at.as_nanos() / 1_000_000);
    assert_eq!(dispatched, Some(20));
}

#[test]
fn the_books_balance_whatever_is_given_up_cut_off_or_turned_away() {
    let mut outcomes = Vec::new();
    for seed in 0..40 {
        let table = |table, written| TableLock { table, written };
        let sometimes = |of: u64, then: u64| if seed % of == 0 { None } else { Some(ms(then)) };
        let takes = |mean| Distribution::Exponential { mean: ms(mean) };
        let types = vec![
            Kind { tables: vec![table(0, false), table(1, false)], ..Kind::new("read", takes(5)) },
            Kind { tables: vec![table(0, true)], ..Kind::new("write", takes(20)) },
            Kind { tables: vec![table(0, false), table(1, true)], ..Kind::new("both", takes(2)) },
            Kind::new("neither", takes(10)),
        ];
        let patience = Patience {
            timeout: sometimes(3, 300),
            abandoned: if seed % 2 == 0 { Abandoned::RunsOn } else { Abandoned::Canceled },
            retries: u32::from(seed % 5 == 0),
            back_off: ms(50),
        };
        let arrivals = Arrivals::Closed { clients: 60, think: takes(100), think_max: None };
        let source = Source { patience, ..Source::new(arrivals, Mix::Shares(vec![6.0, 1.0, 2.0, 1.0])) };
        let mut policy = gate(if seed % 4 < 2 { Order::Fifo } else { common::SHORTEST }, 3);
        policy.queue_timeout = ms(if seed % 7 == 0 { 100 } else { 10_000 });
        let application =
            Application { connections: if seed % 6 < 3 { 5 } else { 100 }, timeout: sometimes(2, 200) };
        let scenario = Scenario {
            seed,
            duration: seconds(5),
            warm_up: seconds(1),
            end: if seed % 8 < 4 { End::Cut } else { End::Drained },
            application: Some(application),
            ..Scenario::new(policy, types, source, Upstream::sharing(1, Collapse::None))
        };
        // It checks its laws itself.
        let run = run(&scenario).unwrap();
        outcomes.extend(run.rows.iter().map(|row| row.outcome));
    }
    for outcome in
        [Outcome::Completed, Outcome::TimedOut, Outcome::CutOff, Outcome::Rejected(Reason::QueueTimeout)]
    {
        assert!(outcomes.contains(&outcome), "{outcome:?}");
    }
}
