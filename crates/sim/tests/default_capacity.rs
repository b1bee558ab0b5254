//! The capacity that is found by default, with up to 20 connections: it does no harm where there is nothing
//! to find. The gate has its defaults otherwise: shortest first, with the long lane. (`tests/capacity.rs` has
//! what it is good for.)

mod common;

use admission::{Capacity, Controller, Duration, Event, LongLimit, Policy};
use common::capacity;
use common::contention::SHORTEST;
use common::no_harm::{CONNECTIONS, Cell, Outturn, Traffic, Variant, outturn};
use sim::{Scenario, run};

const FOUND: Capacity = Capacity::Found(Controller::Auto);

/// What came of it, and how often the capacity moved.
fn played(cell: &Cell, capacity: Capacity, requests: u64) -> (Outturn, usize) {
    let mut scenario = cell.scenario(Variant::Default(CONNECTIONS), 8, requests);
    scenario.policy.capacity = capacity;
    let run = run(&scenario).expect("a sound run");
    let moves = run.events.iter().filter(|(_, event)| matches!(event, Event::CapacityMoved { .. })).count();
    (outturn(cell, &run), moves)
}

/// With 1, 4 and 16 cores and so much variation within the types: the mean response time as without, and
/// goodput and useful work in overload.
fn does_no_harm(traffic: Traffic, variation: f64, loads: &[f64], requests: u64) {
    for cores in [1, 4, 16] {
        for &load in loads {
            let cell = Cell { traffic, cores, variation, load };
            let (found, moves) = played(&cell, FOUND, requests);
            let (without, _) = played(&cell, Capacity::Unlimited, requests);
            println!(
                "{cell:?}: mean {:.3}, goodput {:.3}, useful {:.3}, {moves} moves",
                found.mean / without.mean,
                found.goodput / without.goodput,
                found.useful / without.useful
            );
            assert!(found.goodput >= 0.99 * without.goodput, "{cell:?}");
            if cell.is_overloaded() {
                assert!(found.useful >= 0.95 * without.useful, "{cell:?}");
            } else {
                assert!(found.mean <= 1.01 * without.mean, "{cell:?}");
            }
        }
    }
}

#[test]
fn below_saturation_it_costs_nothing() {
    for variation in [0.5, 1.0] {
        does_no_harm(Traffic::Postgres, variation, &[0.7, 0.9, 0.95], 30_000);
    }
    does_no_harm(Traffic::Table1, 0.5, &[0.7, 0.9], 10_000);
}

#[test]
fn where_requests_vary_very_much_it_costs_nothing() {
    does_no_harm(Traffic::Postgres, 3.0, &[0.7, 0.9, 0.95], 30_000);
    does_no_harm(Traffic::Table1, 3.0, &[0.9], 10_000);
}

#[test]
fn in_overload_it_costs_next_to_nothing() {
    for variation in [0.5, 3.0] {
        does_no_harm(Traffic::Postgres, variation, &[1.2], 60_000);
    }
}

/// What it is for, behind the same gate: where too much in flight deadlocks, as good as the best number of
/// connections.
#[test]
fn deadlocks_are_found_behind_the_gate_as_it_comes() {
    let good = |policy: Policy| {
        let duration = Duration::from_secs(90);
        let scenario = Scenario { duration, ..capacity::scenario(1, 21, policy, 2.0) };
        capacity::goodput_between(&run(&scenario).expect("a sound run"), 60, 90)
    };
    let gate = |capacity, connections| Policy {
        order: SHORTEST,
        long_limit: Some(LongLimit::FOUND),
        ..capacity::policy(capacity, connections)
    };
    let best = [1, 2, 3].map(|most| good(gate(Capacity::Unlimited, most))).into_iter().fold(0.0, f64::max);
    let (found, without) = (good(gate(FOUND, CONNECTIONS)), good(gate(Capacity::Unlimited, CONNECTIONS)));
    println!("{best:.0}/s at best, {found:.0}/s found, {without:.0}/s without");
    assert!(found >= 0.9 * best && without < 0.5 * best, "{found:.0} of {best:.0}/s, {without:.0}/s without");
}
