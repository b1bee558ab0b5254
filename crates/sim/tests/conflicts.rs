//! Requests that the service gives up for others in flight: what is found where they are, and where they
//! don't matter.

mod common;

use admission::{Capacity, Controller, Duration, LongLimit, Policy, Rejection, Targets};
use common::capacity::{goodput_between, policy};
use common::contention::SHORTEST;
use sim::{Arrivals, Collapse, Distribution, Kind, Mix, Patience, Rate, Scenario, Source, Upstream, run};

const FOUND: Capacity = Capacity::Found(Controller::Auto);
const CONNECTIONS: u32 = 20;

/// A service of some speed by what is in flight, which gives some part of it up: what it completes is (1 −
/// part) × speed.
struct Service {
    speed: &'static [(u32, f64)],
    given_up: &'static [(u32, f64)],
}

/// Level from 3 to 6 and twice as good at 1, as serializable transactions over PostgreSQL are. (There two
/// connections complete nine tenths of what one does, five a third, twenty an eighth.)
const LEVEL: Service = Service {
    speed: &[(1, 1.0), (2, 1.4), (3, 1.25), (6, 2.5), (20, 3.0)],
    given_up: &[(1, 0.0), (2, 0.4), (3, 0.6), (6, 0.8), (20, 0.96)],
};
/// A tenth is given up wherever there are others, and four at once complete the most all the same.
const WORTH_IT: Service =
    Service { speed: &[(1, 1.0), (4, 3.0), (5, 2.9), (20, 1.0)], given_up: &[(1, 0.0), (2, 0.1)] };

/// One alone is best by far: orders that deadlock over PostgreSQL.
const ALONE: Service = Service {
    speed: &[(1, 1.0), (2, 0.35), (4, 0.14), (9, 0.12), (20, 0.02)],
    given_up: &[(1, 0.0), (2, 0.2), (4, 0.3), (20, 0.5)],
};

/// What is completed in a second of a minute, after another one, by 300 clients who never think.
fn completed(service: &Service, seed: u64, capacity: Capacity, connections: u32) -> f64 {
    let think = Distribution::Fixed(Duration::ZERO);
    let clients = Arrivals::Closed { clients: 300, think, think_max: None };
    served(service, seed, clients, policy(capacity, connections))
}

fn served(service: &Service, seed: u64, clients: Arrivals, gate: Policy) -> f64 {
    let gate = Policy {
        order: SHORTEST,
        long_limit: Some(LongLimit::FOUND),
        queue_timeout: Duration::from_secs(60),
        ..gate
    };
    let transfer = Distribution::Lognormal { mean: Duration::from_millis(2), cv: 0.5 };
    let upstream = Upstream {
        conflicts: service.given_up.to_vec(),
        ..Upstream::sharing(1, Collapse::Measured { points: service.speed.to_vec() })
    };
    let source = Source { patience: Patience::ENDLESS, ..Source::new(clients, Mix::Shares(vec![1.0])) };
    let scenario = Scenario {
        seed,
        duration: Duration::from_secs(120),
        warm_up: Duration::from_secs(60),
        ..Scenario::new(gate, vec![Kind::new("transfer", transfer)], source, upstream)
    };
    goodput_between(&run(&scenario).expect("a sound run"), 60, 120)
}

/// What is found of what the best number of connections completes, in the worst of some runs.
fn of_the_best(service: &Service) -> f64 {
    let best = [1, 2, 3, 4, 5].map(|most| completed(service, 1, Capacity::Unlimited, most));
    let best = best.into_iter().fold(0.0, f64::max);
    let found = [1, 2, 3, 4, 5].map(|seed| completed(service, seed, FOUND, CONNECTIONS) / best);
    println!("{best:.0}/s at best, found {found:.2?} of it");
    found.into_iter().fold(f64::INFINITY, f64::min)
}

#[test]
fn one_at_a_time_is_found_though_a_few_fewer_gain_nothing() {
    let found = of_the_best(&LEVEL);
    assert!(found >= 0.9, "{found:.2}");
}

#[test]
fn where_others_are_worth_their_conflicts_they_stay() {
    let found = of_the_best(&WORTH_IT);
    assert!(found >= 0.9, "{found:.2}");
}

/// A target lets in no more than are served in time. Where nine wait for one another those are nine, so
/// that nobody ever waits for room, and fewer would complete ten times as much.
#[test]
fn behind_a_target_that_refuses_one_at_a_time_is_found_too() {
    let target = Rejection::Target(Targets::mean(Duration::from_millis(250)));
    let found = [1, 2, 3, 4, 5].map(|seed| {
        let gate = Policy { rejection: target.clone(), ..policy(FOUND, CONNECTIONS) };
        served(&ALONE, seed, Arrivals::Poisson(Rate::constant(1_500.0)), gate)
    });
    let best = completed(&ALONE, 1, Capacity::Unlimited, 1);
    println!("{best:.0}/s at best, {found:.0?}/s behind a target");
    assert!(found.iter().all(|&found| found >= 0.9 * best), "{found:.0?} of {best:.0}");
}
