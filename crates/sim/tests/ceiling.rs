//! `capacity = "auto"` under a ceiling of 1,000 connections, against no gate and the best fixed number
//! (`docs/decisions/capacity.md`).

use admission::{AfterStall, Capacity, Controller, Duration, Instant, LongLimit, Order, Policy, Work};
use sim::{
    Abandoned, Arrivals, Collapse, Distribution, End, Kind, Mix, Outcome, Patience, Rate, Scenario, Source,
    Upstream, run,
};

fn seconds(seconds: f64) -> Duration {
    Duration::from_secs_f64(seconds)
}

fn kind(milliseconds: f64, cv: f64) -> Kind {
    Kind::new("a type", Distribution::Lognormal { mean: seconds(milliseconds / 1e3), cv })
}

fn patience(timeout: f64, retries: u32, abandoned: Abandoned) -> Patience {
    Patience { timeout: Some(seconds(timeout)), abandoned, retries, back_off: seconds(0.2) }
}

/// No gate at all.
fn none() -> Policy {
    Policy {
        connections: u32::MAX,
        queue_max: 10_000_000,
        queue_timeout: Duration::from_secs(1 << 40),
        ..Policy::default()
    }
}

fn gate(connections: u32, capacity: Capacity) -> Policy {
    Policy {
        connections,
        capacity,
        long_limit: Some(LongLimit::FOUND),
        order: Order::ShortestFirst { aging: Some(3.0), floor: Work::from(Duration::from_secs(3)) },
        after_stall: AfterStall::NewcomersFirst,
        queue_timeout: Duration::from_secs(120),
        ..Policy::default()
    }
}

fn searching() -> Policy {
    gate(1_000, Capacity::Found(Controller::Auto))
}

fn open(kinds: Vec<Kind>, shares: Vec<f64>, upstream: Upstream, load: f64, patience: Patience) -> Scenario {
    let rate = load * f64::from(upstream.cores()) / Scenario::mean_service_time(&kinds, &shares);
    steps(kinds, shares, upstream, Rate::constant(rate), patience)
}

fn steps(kinds: Vec<Kind>, shares: Vec<f64>, upstream: Upstream, rate: Rate, patience: Patience) -> Scenario {
    let source = Source { patience, ..Source::new(Arrivals::Poisson(rate), Mix::Shares(shares)) };
    let scenario = Scenario::new(none(), kinds, source, upstream);
    Scenario { duration: seconds(150.0), warm_up: seconds(30.0), end: End::Cut, ..scenario }
}

/// The mean response time in seconds, and the requests answered in a second.
fn outcome(scenario: &Scenario, policy: Policy) -> (f64, f64) {
    let scenario = Scenario { policy, ..scenario.clone() };
    let run = run(&scenario).expect("a sound run");
    let begin = Instant::ZERO.after(scenario.warm_up);
    let answered =
        run.rows.iter().filter(|row| row.outcome == Outcome::Completed && row.arrived >= begin).count();
    (run.summary.overall.response.mean, answered as f64 / run.summary.window)
}

/// What the search answers, as a part of what the best of these fixed numbers does.
fn part_of_the_best(name: &str, scenario: &Scenario, numbers: &[u32]) -> f64 {
    let (_, found) = outcome(scenario, searching());
    let fixed = numbers.iter().map(|number| outcome(scenario, gate(*number, Capacity::Unlimited)).1);
    let best = fixed.fold(0.0, f64::max);
    println!("{name}: {found:.1}/s of {best:.1}/s, {:.3}", found / best);
    found / best
}

#[test]
fn below_saturation_it_is_as_no_gate_whatever_the_cores() {
    for cores in [8, 64] {
        let two = vec![kind(4.0, 1.0), kind(30.0, 1.0)];
        let upstream = Upstream::sharing(cores, Collapse::None);
        let scenario = open(two, vec![9.0, 1.0], upstream, 0.7, Patience::ENDLESS);
        let cold = Scenario { warm_up: Duration::ZERO, duration: seconds(60.0), ..scenario.clone() };
        for (scenario, most) in [(scenario, 1.05), (cold, 1.5)] {
            let (mean, direct) = (outcome(&scenario, searching()).0, outcome(&scenario, none()).0);
            println!("{cores} cores: {:.3}", mean / direct);
            assert!(mean <= most * direct, "{cores} cores: {mean} s beside {direct} s");
        }
    }
}

#[test]
fn a_flash_crowd_with_retries_is_got_over() {
    let rate = Rate::steps(vec![(seconds(0.0), 60.0), (seconds(60.0), 800.0), (seconds(90.0), 60.0)]);
    let upstream = Upstream::sharing(4, Collapse::Thrashing { half: 60.0, power: 2 });
    let impatient = patience(3.0, 5, Abandoned::Canceled);
    let scenario = steps(vec![kind(10.0, 1.0)], vec![1.0], upstream, rate, impatient);
    assert!(part_of_the_best("a flash crowd", &scenario, &[4, 8, 16, 24]) >= 0.94);
}

#[test]
fn deadlocks_are_left_behind() {
    let deadlocks = |worst| Collapse::Deadlocks { best: 7, worst, factor: 30.0 };
    let impatient = patience(3.0, 3, Abandoned::Canceled);
    let short = vec![kind(1.0, 0.5), kind(3.0, 0.5)];
    let scenario = open(short, vec![7.0, 1.0], Upstream::sharing(4, deadlocks(24)), 2.0, impatient);
    assert!(part_of_the_best("load 2", &scenario, &[6, 7, 8]) >= 0.97);
    let impatient = patience(5.0, 0, Abandoned::Canceled);
    let longer = vec![kind(6.0, 0.7), kind(20.0, 0.7)];
    let scenario = open(longer, vec![7.0, 3.0], Upstream::sharing(4, deadlocks(20)), 0.75, impatient);
    assert!(part_of_the_best("load 0.75", &scenario, &[6, 7, 8]) >= 0.97);
}

#[test]
fn a_memory_that_recovers_when_little_is_in_flight_recovers_after_a_stall() {
    let memory = Collapse::Memory { limit: 12, after: 0.2, recovers_below: Some(3) };
    let kinds = vec![kind(6.0, 0.7), kind(20.0, 0.7)];
    let impatient = patience(5.0, 0, Abandoned::Canceled);
    let mut scenario = open(kinds, vec![7.0, 3.0], Upstream::sharing(4, memory), 0.6, impatient);
    scenario.upstream.speed = vec![(seconds(60.0), 0.0), (seconds(62.0), 1.0)];
    assert!(part_of_the_best("memory", &scenario, &[4, 8]) >= 0.93);
}

#[test]
fn work_that_runs_on_for_clients_that_have_left_counts_as_no_answer() {
    let rate = Rate::steps(vec![(seconds(0.0), 10.0), (seconds(60.0), 40.0), (seconds(80.0), 10.0)]);
    let impatient = patience(1.3, 20, Abandoned::RunsOn);
    let upstream = Upstream::sharing(4, Collapse::None);
    let scenario = steps(vec![kind(300.0, 0.5)], vec![1.0], upstream, rate, impatient);
    let scenario = Scenario { duration: seconds(300.0), warm_up: seconds(60.0), ..scenario };
    for seed in [1, 3, 5] {
        let scenario = Scenario { seed, ..scenario.clone() };
        assert!(part_of_the_best("work that runs on", &scenario, &[3, 4, 5]) >= 0.8, "seed {seed}");
    }
}
