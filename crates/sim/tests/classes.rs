//! Service classes in the simulator: shares as the weights say, protection from the others' excess, and
//! nothing left over.
//!
//! Part D of the mission: weights of 2:1:1 to 6:5:1 with every class asking for more than its share (Table
//! 2 of its paper), and equal weights that isolate. Shares are of the work done, taken alone, in what every
//! class asked for all the time.

mod common;

use admission::{
    Capacity, ClassId, Controller, Duration, LongLimit, Order, Policy, Rejection, ServiceClass, Targets,
    Turns, Weight, Work,
};
use common::{SHORTEST, seconds};
use sim::{
    Arrivals, Collapse, Distribution, End, Kind, Mix, Outcome, Rate, Run, Scenario, Source, Upstream, run,
};

const NAMES: [&str; 3] = ["a", "b", "c"];

fn classes(weights: [f64; 3]) -> Vec<ServiceClass> {
    let class = |(name, weight): (&&str, f64)| {
        ServiceClass::new(ClassId::named(name), Weight::new(weight).expect("a weight"))
    };
    NAMES.iter().zip(weights).map(class).collect()
}

/// Types of 1 to 40 ms whose times vary; the classes ask for different ones.
fn types() -> Vec<Kind> {
    let exponential = |ms| Distribution::Exponential { mean: Duration::from_millis(ms) };
    vec![
        Kind::new("small", exponential(2)),
        Kind::new("middle", exponential(8)),
        Kind::new("large", exponential(40)),
    ]
}

const MIXES: [[f64; 3]; 3] = [[1.0, 0.0, 0.0], [0.7, 0.2, 0.1], [0.0, 0.5, 0.5]];
const MEANS: [f64; 3] = [2.0, 7.0, 24.0];

/// Each class offers so much of what the service can do; four at a time on four cores.
fn scenario(order: Order, weights: [f64; 3], offered: [f64; 3], in_flight: u32) -> Scenario {
    let policy = Policy {
        capacity: Capacity::Unlimited,
        connections: in_flight,
        long_limit: None,
        order,
        queue_max: 600,
        queue_timeout: Duration::from_secs(10_000),
        classes: classes(weights),
        ..Policy::default()
    };
    let cores = 4;
    let source = |class: usize| Source {
        class: ClassId::named(NAMES[class]),
        ..Source::new(
            Arrivals::Poisson(Rate::constant(offered[class] * f64::from(cores) / (MEANS[class] / 1e3))),
            Mix::Shares(MIXES[class].to_vec()),
        )
    };
    let upstream = Upstream::sharing(cores, Collapse::None);
    let sources: Vec<_> = (0..3).filter(|&class| offered[class] > 0.0).map(source).collect();
    let base = Scenario::new(policy, types(), sources[0].clone(), upstream);
    Scenario { sources, duration: seconds(140), warm_up: seconds(20), end: End::Cut, ..base }
}

struct Seen {
    /// Work done, by class, as parts of all.
    shares: [f64; 3],
    /// All of it, as a part of what the service can do.
    busy: f64,
    /// The mean response time of each class, in seconds.
    response: [f64; 3],
    refused: [usize; 3],
}

fn look(scenario: &Scenario) -> Seen {
    let (from, until) = (scenario.warm_up, scenario.duration);
    let classes: Vec<usize> = scenario
        .sources
        .iter()
        .map(|source| {
            NAMES.iter().position(|name| ClassId::named(name) == source.class).expect("one of three")
        })
        .collect();
    let record: Run = run(scenario).expect("a scenario that can be");
    let (mut work, mut response, mut count, mut refused) = ([0.0; 3], [0.0; 3], [0.0_f64; 3], [0; 3]);
    for row in &record.rows {
        let class = classes[usize::from(row.source)];
        let ended = row.ended.as_nanos() as f64 / 1e9;
        if ended < from.as_secs_f64() {
            continue;
        }
        match row.outcome {
            Outcome::Completed => {
                work[class] += Work::as_millis_f64(row.service_time) / 1e3;
                response[class] += row.response_time().as_secs_f64();
                count[class] += 1.0;
            }
            Outcome::Rejected(_) => refused[class] += 1,
            _ => {}
        }
    }
    let all: f64 = work.iter().sum();
    Seen {
        shares: work.map(|work| work / all),
        busy: all / (4.0 * (until - from).as_secs_f64()),
        response: [0, 1, 2].map(|class| response[class] / count[class].max(1.0)),
        refused,
    }
}

#[test]
fn under_overload_shares_of_work_are_as_the_weights() {
    for weights in [[2.0, 1.0, 1.0], [4.0, 2.0, 1.0], [1.0, 1.0, 1.0], [6.0, 5.0, 1.0]] {
        for order in [Order::Fifo, SHORTEST] {
            let seen = look(&scenario(order, weights, [1.5; 3], 8));
            let sum: f64 = weights.iter().sum();
            println!("{weights:?} {order:?}: {:.3?} busy {:.3}", seen.shares, seen.busy);
            for class in 0..3 {
                let wanted = weights[class] / sum;
                let off = (seen.shares[class] - wanted).abs();
                assert!(off < 0.02, "{weights:?} {order:?}: {:?}, {wanted} was wanted", seen.shares);
            }
            assert!(seen.busy > 0.97, "never idle for fairness: {}", seen.busy);
        }
    }
}

#[test]
fn equal_weights_isolate_a_class_from_the_excess_of_others() {
    // A asks for a fifth of what the service can do, less than its third. Whatever the others ask for, it is
    // served nearly as fast: only what is in flight already is before it.
    let alone = look(&scenario(SHORTEST, [1.0; 3], [0.2, 0.2, 0.2], 4));
    let beside = look(&scenario(SHORTEST, [1.0; 3], [0.2, 2.0, 2.0], 4));
    let far = look(&scenario(SHORTEST, [1.0; 3], [0.2, 8.0, 8.0], 4));
    println!("{:.4} alone, {:.4} and {:.4} beside", alone.response[0], beside.response[0], far.response[0]);
    assert!(beside.response[0] < alone.response[0] + 0.015, "{:?}", beside.response);
    assert!((far.response[0] / beside.response[0] - 1.0).abs() < 0.1, "{:?}", far.response);
    assert_eq!((beside.refused[0], far.refused[0]), (0, 0), "who is within its share is never refused");
    assert!(far.refused[1] > 0 && far.refused[2] > 0);
    assert!((far.shares[0] - 0.2).abs() < 0.01, "{:?}", far.shares);
}

#[test]
fn what_an_idle_class_leaves_the_others_share() {
    let all = look(&scenario(SHORTEST, [6.0, 3.0, 1.0], [1.5; 3], 8));
    let two = look(&scenario(SHORTEST, [6.0, 3.0, 1.0], [0.0, 1.5, 1.5], 8));
    assert!((two.shares[1] - 0.75).abs() < 0.03, "{:?}", two.shares);
    assert!((two.busy / all.busy - 1.0).abs() < 0.02, "{} of {}", two.busy, all.busy);
    let little = look(&scenario(SHORTEST, [6.0, 3.0, 1.0], [0.2, 1.5, 1.5], 8));
    assert!((little.shares[0] - 0.2).abs() < 0.02, "{:?}", little.shares);
    assert!((little.shares[1] / little.shares[2] - 3.0).abs() < 0.3, "{:?}", little.shares);
}

#[test]
fn the_long_lane_stays_within_its_limit_and_each_class_gets_its_share_of_it() {
    let base = scenario(SHORTEST, [3.0, 1.0, 1.0], [1.5; 3], 12);
    let long_limit = Some(LongLimit::Fixed(4));
    let policy = Policy { long_limit, ..base.policy.clone() };
    let seen = look(&Scenario { policy, ..base });
    assert!(seen.busy > 0.95, "{}", seen.busy);
    // A's are all short: nothing that they wait for is in the lane, and A takes what the others can't,
    // while it is full.
    assert!((0.58..0.7).contains(&seen.shares[0]), "{:?}", seen.shares);
    assert!((seen.shares[1] / seen.shares[2] - 1.0).abs() < 0.2, "{:?}", seen.shares);
}

const SPARE: ClassId = ClassId::named("spare");

/// A shop of exponential requests at this load of all cores. A backfill in the background asks for all that
/// it can get, in short batches; `None`: there is none.
fn beside(cores: u32, load: f64, backfill: Option<u32>) -> Scenario {
    let shop_mean = 8.0;
    let spare = ServiceClass { turns: Turns::Background, ..ServiceClass::new(SPARE, Weight::ONE) };
    let policy = Policy {
        capacity: Capacity::Unlimited,
        connections: 24,
        long_limit: None,
        order: SHORTEST,
        queue_timeout: Duration::from_secs(10_000),
        classes: vec![ServiceClass::new(ClassId::named("a"), Weight::ONE), spare],
        ..Policy::default()
    };
    let kinds = vec![
        Kind::new("page", Distribution::Exponential { mean: Duration::from_millis(8) }),
        Kind::new("batch", Distribution::Fixed(Duration::from_millis(1))),
    ];
    let shop = Source {
        class: ClassId::named("a"),
        ..Source::new(
            Arrivals::Poisson(Rate::constant(load * f64::from(cores) / (shop_mean / 1e3))),
            Mix::Shares(vec![1.0, 0.0]),
        )
    };
    let fill = backfill.map(|clients| Source {
        class: SPARE,
        ..Source::new(
            Arrivals::Closed { clients, think: Distribution::Fixed(Duration::ZERO), think_max: None },
            Mix::Shares(vec![0.0, 1.0]),
        )
    });
    let base = Scenario::new(policy, kinds, shop.clone(), Upstream::sharing(cores, Collapse::None));
    let sources = [shop].into_iter().chain(fill).collect();
    Scenario { sources, duration: seconds(300), warm_up: seconds(20), end: End::Cut, ..base }
}

/// The 95th percentile of the shop's response times in seconds, and the part of the service that the backfill
/// had.
fn of_both(scenario: &Scenario) -> (f64, f64) {
    let record = run(scenario).expect("a scenario that can be");
    let counted = record.rows.iter().filter(|row| {
        row.outcome == Outcome::Completed
            && (row.ended.as_nanos() as f64) > scenario.warm_up.as_secs_f64() * 1e9
    });
    let (mut times, mut work) = (Vec::new(), 0.0);
    for row in counted {
        match row.source {
            0 => times.push(row.response_time().as_secs_f64()),
            _ => work += Work::as_millis_f64(row.service_time) / 1e3,
        }
    }
    times.sort_by(f64::total_cmp);
    (times[times.len() * 95 / 100], work / (scenario.duration - scenario.warm_up).as_secs_f64())
}

#[test]
fn a_background_class_gets_what_is_left_and_the_others_hardly_notice() {
    for cores in [1, 4] {
        for load in [0.3, 0.6, 0.9] {
            let (alone, _) = of_both(&beside(cores, load, None));
            let (with, spare) = of_both(&beside(cores, load, Some(8)));
            let left = f64::from(cores) * (1.0 - load);
            println!(
                "{cores} cores at {load}: p95 {:.1} → {:.1} ms, {spare:.2} of {left:.2} used",
                alone * 1e3,
                with * 1e3
            );
            assert!(with < 1.05 * alone, "{cores} cores at {load}: {with} instead of {alone}");
            // A quarter of the places stay free for newcomers: beside several cores a backfill has less.
            let least = if cores == 1 { left / 1.1 } else { left / 2.0 };
            assert!(spare > least, "{cores} cores at {load}: {spare} of {left}");
        }
    }
}

#[test]
fn a_background_class_has_yielded_within_200_ms_of_a_crowd_that_comes_at_once() {
    // Nobody comes for ten seconds. Then pages take half of the cores, while batches of 50 ms run.
    for cores in [1, 4] {
        let base = beside(cores, 0.5, Some(8));
        let crowd = |from, rate| Arrivals::Poisson(Rate::steps([(seconds(0), 0.0), (from, rate)]));
        let batch = Kind::new("batch", Distribution::Fixed(Duration::from_millis(50)));
        let shop =
            Source { arrivals: crowd(seconds(10), 60.0 * f64::from(cores)), ..base.sources[0].clone() };
        let scenario = Scenario {
            types: vec![base.types[0].clone(), batch],
            sources: vec![shop, base.sources[1].clone()],
            duration: seconds(20),
            warm_up: Duration::ZERO,
            ..base
        };
        let rows = run(&scenario).expect("a scenario that can be").rows;
        let came = rows.iter().filter(|row| row.source == 0).map(|row| row.arrived).min().expect("a crowd");
        // Those that ran when it came, at a part of their speed beside it.
        let before = rows.iter().filter(|row| row.source == 1 && row.dispatched.is_some_and(|at| at < came));
        let ended = before.map(|row| row.ended).max().expect("batches ran");
        println!(
            "{cores} cores: the last batch that ran ended {:.0} ms later",
            ended.since(came).as_secs_f64() * 1e3
        );
        assert!(ended.since(came) <= Duration::from_millis(200), "{cores} cores");
        let first = rows.iter().filter(|row| row.source == 0).take(100);
        let waited = first.map(sim::Row::queue_wait).max().expect("a crowd");
        assert!(
            waited <= Duration::from_millis(200),
            "{cores} cores: one of the crowd waited for {waited:?}"
        );
    }
}

/// How many pages were refused, and the most that the gate let in of what it found.
fn held(scenario: &Scenario, capacity: Capacity, rejection: Rejection) -> (usize, u32) {
    let policy = Policy { capacity, rejection, connections: 100, ..scenario.policy.clone() };
    let record = run(&Scenario { policy, ..scenario.clone() }).expect("a scenario that can be");
    let of_pages = record.rows.iter().filter(|row| row.source == 0);
    let refused = of_pages.filter(|row| matches!(row.outcome, Outcome::Rejected(_)));
    let found = record.samples.iter().filter_map(|sample| sample.capacity_found).max();
    (refused.count(), found.unwrap_or(0))
}

#[test]
fn a_background_class_that_always_waits_says_nothing_of_the_capacity_or_of_a_target() {
    let (alone, with) = (beside(4, 0.6, None), beside(4, 0.6, Some(8)));
    let auto = Capacity::Found(Controller::Auto);
    let [found, found_beside] = [&alone, &with].map(|scenario| held(scenario, auto, Rejection::Nobody).1);
    assert_eq!(found_beside, found, "the capacity beside a backfill and without one");
    // Far above what a page takes, and far below what a batch waits.
    let target = Rejection::Target(Targets::mean(Duration::from_millis(400)));
    let (refused, _) = held(&beside(1, 0.6, Some(200)), Capacity::Unlimited, target);
    assert_eq!(refused, 0, "pages are refused for a backfill that waits");
}

#[test]
fn a_target_holds_beside_a_background_class_that_always_waits() {
    let target = Rejection::Target(Targets::mean(Duration::from_millis(100)));
    let [alone, with] = [None, Some(200)].map(|backfill| {
        let scenario = beside(4, 1.5, backfill);
        let policy = Policy { rejection: target.clone(), ..scenario.policy.clone() };
        let record = run(&Scenario { policy, ..scenario }).expect("a scenario that can be");
        let served = record.rows.iter().filter(|row| row.source == 0 && row.outcome == Outcome::Completed);
        let times: Vec<f64> = served.map(|row| row.response_time().as_secs_f64()).collect();
        times.iter().sum::<f64>() / times.len() as f64
    });
    println!("mean of the pages served: {:.0} and {:.0} ms", alone * 1e3, with * 1e3);
    assert!(with < 1.05 * alone && alone < 0.12, "{alone} {with}");
}

/// A shop of browsers as in `experiments/backfill`, on one core: a page is a transaction, and a twentieth of
/// the pages scan for 90 ms. The gate sees each statement for longer than this needs the core.
fn shop_of_transactions(clients: u32, backfill: Option<u32>) -> Scenario {
    let micros = Duration::from_micros;
    let base = beside(1, 0.5, backfill);
    let page = |name, work, statements| Kind {
        statements,
        pause: micros(150),
        ..Kind::new(name, Distribution::Lognormal { mean: micros(work), cv: 0.3 })
    };
    let batch = Kind::new("batch", Distribution::Fixed(micros(400)));
    let think = Distribution::Exponential { mean: Duration::from_millis(700) };
    let browsers = Source {
        class: ClassId::named("a"),
        ..Source::new(
            Arrivals::Closed { clients, think, think_max: None },
            Mix::Shares(vec![0.95, 0.05, 0.0]),
        )
    };
    let fill =
        base.sources.get(1).map(|fill| Source { mix: Mix::Shares(vec![0.0, 0.0, 1.0]), ..fill.clone() });
    let policy = Policy {
        capacity: Capacity::Found(Controller::Auto),
        connections: 100,
        long_limit: Some(LongLimit::Found { cores: Some(1) }),
        ..base.policy.clone()
    };
    Scenario {
        policy,
        types: vec![page("page", 600, 4), page("scan", 90_000, 2), batch],
        sources: [browsers].into_iter().chain(fill).collect(),
        upstream: Upstream { round_trip: micros(150), ..base.upstream.clone() },
        ..base
    }
}

#[test]
fn a_background_class_leaves_the_core_to_a_long_page_of_several_statements() {
    // Behind the gate the core is busy for a half and for two thirds of the time.
    for clients in [70, 96] {
        let [alone, with] = [None, Some(2)].map(|backfill| shop_of_transactions(clients, backfill));
        let scans = |scenario: &Scenario| {
            let rows = run(scenario).expect("a scenario that can be").rows;
            let (mut sum, mut count, mut work) = (0.0, 0.0, 0.0);
            for row in rows.iter().filter(|row| row.source == 0 && row.outcome == Outcome::Completed) {
                work += Work::as_millis_f64(row.service_time) / 1e3;
                if row.kind == 1 {
                    sum += row.response_time().as_secs_f64();
                    count += 1.0;
                }
            }
            (sum / count, work / scenario.duration.as_secs_f64())
        };
        let ((scan, busy), (scan_beside, _)) = (scans(&alone), scans(&with));
        let (p95, (p95_beside, used)) = (of_both(&alone).0, of_both(&with));
        println!(
            "{clients}: p95 {:.1} → {:.1} ms, scans {:.0} → {:.0} ms, {used:.2} of {:.2} used",
            p95 * 1e3,
            p95_beside * 1e3,
            scan * 1e3,
            scan_beside * 1e3,
            1.0 - busy
        );
        assert!(scan_beside < 1.1 * scan && p95_beside < 1.1 * p95, "{clients}");
        assert!(used > (1.0 - busy) / 1.3, "{clients}: {used} of {}", 1.0 - busy);
    }
}
