//! The simulator against theory: means within 2 %, or within the run's own confidence interval of 95 %.
//!
//! `cargo test -p sim --test theory -- --nocapture` prints the table of `docs/results/theory.md`. In
//! cases named "reference" the service itself orders by true service times, which no gate can know. In all
//! others the gate orders.

mod common;

use admission::{Duration, Order, Work};
use common::{SHORTEST, gate, no_gate, one, open, seconds};
use sim::theory::{self, Class};
use sim::{
    Arrivals, Collapse, Distribution, Kind, Mix, Run, Scenario, Service, Source, Summary, Times, Upstream,
    sweep,
};

const UNIT: Duration = Duration::from_millis(1);

/// A simulation, the time that is compared (in milliseconds), and the value of theory.
struct Case {
    name: String,
    scenario: Scenario,
    look: fn(&Summary) -> Times,
    theory: f64,
}

fn response(summary: &Summary) -> Times {
    summary.overall.response
}

fn wait(summary: &Summary) -> Times {
    summary.overall.wait
}

fn case(name: impl Into<String>, scenario: Scenario, look: fn(&Summary) -> Times, theory: f64) -> Case {
    Case { name: name.into(), scenario, look, theory }
}

/// One request type and one upstream, behind a gate with this order or without a gate.
fn single(
    order: Option<Order>,
    upstream: Upstream,
    service_time: Distribution,
    utilization: f64,
    requests: u64,
) -> Scenario {
    let (types, shares) = one(service_time);
    let policy = order.map_or_else(no_gate, |order| gate(order, upstream.cores()));
    open(policy, types, shares, upstream, utilization, requests)
}

fn exponential() -> Distribution {
    Distribution::Exponential { mean: UNIT }
}

/// C² = 10.
fn hyperexponential() -> Distribution {
    Distribution::Hyperexponential { mean: UNIT, cv: 10f64.sqrt() }
}

fn pareto() -> Distribution {
    Distribution::BoundedPareto { alpha: 1.1, least: UNIT, most: 10_000 * UNIT }
}

fn simple_cases() -> Vec<Case> {
    let server = Upstream::server;
    let shared = || Upstream::sharing(1, Collapse::None);
    let shortest = || Upstream::new(Service::ShortestFirst { servers: 1 });
    let remaining = || Upstream::new(Service::ShortestRemaining { servers: 1 });
    let fifo = Some(Order::Fifo);
    let four = Upstream::sharing(4, Collapse::None);
    let mut cases = Vec::new();
    for (utilization, expected) in [(0.5, 2.0), (0.7, 3.33333), (0.9, 10.0)] {
        let scenario = single(fifo, server(), exponential(), utilization, 1_000_000);
        cases.push(case(format!("M/M/1, ρ {utilization}"), scenario, response, expected));
        let scenario = single(None, shared(), exponential(), utilization, 1_000_000);
        cases.push(case(format!("sharing, exponential, ρ {utilization}"), scenario, response, expected));
    }
    let fixed = Distribution::Fixed(UNIT);
    cases.extend([
        case(
            "M/M/4, ρ 0.8",
            single(fifo, four, exponential(), 0.8, 1_000_000),
            wait,
            theory::mmc(4, 3.2, 1.0),
        ),
        case("M/D/1, ρ 0.8", single(fifo, server(), fixed.clone(), 0.8, 600_000), response, 3.0),
        case("FIFO, C² 10, ρ 0.5", single(fifo, server(), hyperexponential(), 0.5, 1_500_000), response, 6.5),
        case(
            "FIFO, C² 10, ρ 0.7",
            single(fifo, server(), hyperexponential(), 0.7, 2_000_000),
            response,
            13.8333,
        ),
        case("sharing, fixed, ρ 0.8", single(None, shared(), fixed, 0.8, 600_000), response, 5.0),
        case(
            "sharing, C² 10, ρ 0.7",
            single(None, shared(), hyperexponential(), 0.7, 1_500_000),
            response,
            3.33333,
        ),
        case(
            "shortest first (reference), exponential, ρ 0.7",
            single(None, shortest(), exponential(), 0.7, 1_000_000),
            response,
            2.3122,
        ),
        case(
            "shortest first (reference), exponential, ρ 0.9",
            single(None, shortest(), exponential(), 0.9, 1_500_000),
            response,
            4.19694,
        ),
        case(
            "shortest first (reference), C² 10, ρ 0.7",
            single(None, shortest(), hyperexponential(), 0.7, 1_500_000),
            response,
            6.19208,
        ),
        case(
            "shortest remaining (reference), exponential, ρ 0.7",
            single(None, remaining(), exponential(), 0.7, 1_000_000),
            response,
            1.87457,
        ),
        case(
            "shortest remaining (reference), exponential, ρ 0.9",
            single(None, remaining(), exponential(), 0.9, 1_000_000),
            response,
            3.55215,
        ),
        case(
            "shortest remaining (reference), C² 10, ρ 0.7",
            single(None, remaining(), hyperexponential(), 0.7, 1_500_000),
            response,
            1.78011,
        ),
        case(
            "shortest remaining (reference), Pareto, ρ 0.7",
            single(None, remaining(), pareto(), 0.7, 1_500_000),
            response,
            11.5426,
        ),
    ]);
    cases
}

/// Shortest first over a continuum of service times, by the gate: it sees a hundred types, each a thin
/// slice of an exponential distribution, and learns them.
fn continuous() -> Case {
    const SLICES: u32 = 100;
    let quantile = |part: f64| UNIT.mul_f64(-libm::log1p(-part.min(0.999_999)));
    let slice = |number: u32| {
        let (least, most) =
            (f64::from(number) / f64::from(SLICES), f64::from(number + 1) / f64::from(SLICES));
        let service_time = if number + 1 < SLICES {
            Distribution::Uniform { least: quantile(least), most: quantile(most) }
        } else {
            // The tail is as long as the whole: its slice keeps an exponential's first two moments.
            let times: Vec<_> = (0..1_000).map(|at| quantile(least + (f64::from(at) + 0.5) / 1e5)).collect();
            Distribution::Empirical(times.into())
        };
        Kind::new(format!("slice {number}"), service_time)
    };
    let types = (0..SLICES).map(slice).collect();
    let shares = vec![1.0; SLICES as usize];
    let scenario = open(gate(SHORTEST, 1), types, shares, Upstream::server(), 0.7, 1_000_000);
    case("shortest first by the gate, exponential, ρ 0.7", scenario, response, 2.3122)
}

/// Shortest first by estimates, by the gate: requests of equal estimate are one type.
fn estimated() -> Case {
    let (spread, error, utilization) = (1.0f64, 0.7f64, 0.8);
    let deviation = libm::hypot(spread, error);
    let slope = spread * spread / deviation;
    let left = spread * error / deviation;
    let mean = libm::exp(spread * spread / 2.0);
    let (mut types, mut shares) = (Vec::new(), Vec::new());
    for number in -40..40 {
        let (least, most) = (f64::from(number) / 10.0, f64::from(number + 1) / 10.0);
        let middle = f64::midpoint(least, most);
        let mean = libm::exp(slope * middle + left * left / 2.0);
        let cv = libm::sqrt(libm::expm1(left * left));
        types.push(Kind::new(
            format!("{middle:.2}"),
            Distribution::Lognormal { mean: UNIT.mul_f64(mean), cv },
        ));
        shares.push(theory::normal(most) - theory::normal(least));
    }
    let scenario = open(gate(SHORTEST, 1), types, shares, Upstream::server(), utilization, 1_500_000);
    let theory = theory::shortest_by_estimate_wait(utilization / mean, mean, spread, error);
    case("shortest first by estimates that are wrong by e^±0.7, ρ 0.8", scenario, wait, theory)
}

fn judge(case: &Case, run: &Run) -> (String, bool) {
    let found = (case.look)(&run.summary);
    let (mean, half_width) = (found.mean * 1e3, found.half_width * 1e3);
    let off = mean / case.theory - 1.0;
    let agrees = off.abs() <= 0.02 || (mean - case.theory).abs() <= half_width;
    let Case { name, theory, .. } = case;
    (format!("| {name} | {theory:.4} | {mean:.4} ± {half_width:.4} | {:+.2} % |", off * 100.0), agrees)
}

#[test]
fn simulated_means_are_those_of_theory() {
    let mut cases = simple_cases();
    cases.push(continuous());
    cases.push(estimated());
    let scenarios: Vec<_> = cases.iter().map(|case| case.scenario.clone()).collect();
    let lines = sweep(&scenarios, None, |at, run| judge(&cases[at], &run.expect("a sound scenario")));
    let table: Vec<_> = lines.iter().map(|(line, _)| line.as_str()).collect();
    println!("| case | theory | simulated | off by |\n|---|---|---|---|\n{}", table.join("\n"));
    let wrong: Vec<_> = lines.iter().filter(|(_, agrees)| !agrees).map(|(line, _)| line).collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// Table 1 of the Gatekeeper paper, idle: milliseconds, and percent of the requests, shortest first; the
/// wait at ρ = 0.7 under shortest first, by an independent program.
const TABLE_1: [(&str, f64, f64, f64); 13] = [
    ("Order Inquiry", 0.05, 0.75, 361.632278),
    ("Search Request", 0.22, 20.0, 361.779162),
    ("Shopping Cart", 0.34, 11.6, 362.055566),
    ("Product Detail", 0.75, 17.0, 362.609641),
    ("Home", 1.83, 16.0, 364.010515),
    ("Admin Request", 2.84, 0.1, 364.999726),
    ("Buy Request", 5.26, 2.6, 365.468686),
    ("Order Display", 7.43, 0.66, 366.093924),
    ("New Products", 13.82, 5.0, 368.604496),
    ("Buy Confirm", 15.71, 1.2, 371.613978),
    ("Exec Search", 73.27, 17.0, 420.936029),
    ("Best Sellers", 1205.01, 5.0, 1294.905053),
    ("Admin Response", 2476.75, 0.09, 3762.349359),
];

fn table_1(order: Order, requests: u64) -> Scenario {
    let kind = |&(name, millis, _, _): &(&str, f64, f64, f64)| {
        Kind::new(name, Distribution::Fixed(Duration::from_secs_f64(millis / 1e3)))
    };
    let types = TABLE_1.iter().map(kind).collect();
    let shares = TABLE_1.iter().map(|row| row.2).collect();
    open(gate(order, 1), types, shares, Upstream::server(), 0.7, requests)
}

fn classes(scenario: &Scenario) -> Vec<Class> {
    let total: f64 = TABLE_1.iter().map(|row| row.2).sum();
    let mean: f64 = TABLE_1.iter().map(|row| row.1 * row.2).sum::<f64>() / total;
    assert_eq!(scenario.types.len(), TABLE_1.len());
    let class = |row: &(&str, f64, f64, f64)| Class {
        rate: 0.7 / mean * row.2 / total,
        mean: row.1,
        second_moment: row.1 * row.1,
    };
    TABLE_1.iter().map(class).collect()
}

#[test]
fn shortest_first_by_class_is_cobhams_and_what_load_times_wait_sums_to_is_conserved() {
    let aging = Order::ShortestFirst { aging: Some(3.0), floor: Work::ZERO };
    let orders = [Order::Fifo, SHORTEST, aging];
    let scenarios = orders.map(|order| table_1(order, 2_500_000));
    let classes = classes(&scenarios[0]);
    let conserved = theory::conserved(&classes);
    let cobham = theory::priority_waits(&classes);
    for (wait, row) in cobham.iter().zip(&TABLE_1) {
        assert!((wait / row.3 - 1.0).abs() < 1e-6, "the formula gives what the independent program gave");
    }
    let summaries = sweep(&scenarios, None, |_, run| run.expect("a sound scenario").summary);
    let mut wrong = Vec::new();
    let mut agree = |what: String, found: f64, half_width: f64, expected: f64| {
        println!(
            "| {what} | {expected:.2} | {found:.2} ± {half_width:.2} | {:+.2} % |",
            (found / expected - 1.0) * 100.0
        );
        if (found / expected - 1.0).abs() > 0.02 && (found - expected).abs() > half_width {
            wrong.push(what);
        }
    };
    for (order, summary) in orders.iter().zip(&summaries) {
        let waits = summary.types.iter().map(|figures| figures.wait);
        let parts = waits.zip(&classes).map(|(wait, class)| (class.rate * class.mean, wait));
        let (sum, half) = parts.fold((0.0, 0.0), |(sum, half), (load, wait)| {
            let finite = if wait.half_width.is_finite() { wait.half_width } else { 0.0 };
            (sum + load * wait.mean * 1e3, half + load * finite * 1e3)
        });
        agree(format!("Σ ρW, {order:?}"), sum, half, conserved);
    }
    agree(
        "Table 1, FIFO, wait".to_owned(),
        summaries[0].overall.wait.mean * 1e3,
        summaries[0].overall.wait.half_width * 1e3,
        1205.436791,
    );
    agree(
        "Table 1, shortest first, wait".to_owned(),
        summaries[1].overall.wait.mean * 1e3,
        summaries[1].overall.wait.half_width * 1e3,
        424.551888,
    );
    for (figures, row) in summaries[1].types.iter().zip(&TABLE_1) {
        agree(
            format!("Table 1, shortest first, {}", row.0),
            figures.wait.mean * 1e3,
            figures.wait.half_width * 1e3,
            row.3,
        );
    }
    assert!(wrong.is_empty(), "{wrong:?}");
}

fn closed(order: Order, clients: u32, service_time: Distribution) -> Scenario {
    let (types, shares) = one(service_time);
    let think = Distribution::Exponential { mean: seconds(7) };
    let source = Source::new(Arrivals::Closed { clients, think, think_max: None }, Mix::Shares(shares));
    Scenario {
        duration: seconds(44_000),
        warm_up: seconds(4_000),
        tick: seconds(400),
        ..Scenario::new(gate(order, 1), types, source, Upstream::server())
    }
}

#[test]
fn in_closed_loops_clients_are_throughput_times_response_and_think_time() {
    let mean = Duration::from_millis(100);
    let exponential = || Distribution::Exponential { mean };
    let scenarios = [
        closed(Order::Fifo, 50, exponential()),
        closed(Order::Fifo, 65, exponential()),
        closed(SHORTEST, 250, exponential()),
        closed(Order::Fifo, 250, Distribution::Lognormal { mean, cv: 2.0 }),
    ];
    let summaries = sweep(&scenarios, None, |_, run| run.expect("a sound scenario").summary);
    for (summary, clients) in summaries.iter().zip([50, 65, 250, 250]) {
        let residual = summary.little_residual.expect("all clients stay");
        assert!(residual.abs() < 0.005, "{clients} clients: {residual}");
        let (throughput, response) = theory::closed(clients, 7.0, 0.1);
        let found = summary.overall.throughput;
        assert!(
            (found / throughput - 1.0).abs() < 0.01,
            "{clients} clients: {found} instead of {throughput}"
        );
        let Times { mean, half_width, .. } = summary.overall.response;
        let agrees = (mean / response - 1.0).abs() < 0.02 || (mean - response).abs() < half_width;
        assert!(agrees, "{clients} clients: {mean} ± {half_width} instead of {response}");
    }
}

#[test]
fn at_saturation_the_mean_response_time_over_all_requests_is_the_same_in_any_order() {
    // The paper's 250 clients on Table 1's mix: R = N·E[S] − Z, in any order (mission: 11 of the
    // oracles).
    let closed = |order| {
        let open = table_1(order, 1);
        let Mix::Shares(shares) = open.sources[0].mix.clone() else { unreachable!() };
        let think = Distribution::Exponential { mean: seconds(7) };
        let source =
            Source::new(Arrivals::Closed { clients: 250, think, think_max: None }, Mix::Shares(shares));
        Scenario {
            duration: seconds(66_000),
            warm_up: seconds(6_000),
            tick: seconds(600),
            sources: vec![source],
            ..open
        }
    };
    let bounded = Order::ShortestFirst { aging: Some(5.0), floor: Work::from_nanos(1_000_000_000) };
    let summaries =
        sweep(&[closed(Order::Fifo), closed(bounded)], None, |_, run| run.expect("sound").summary);
    let expected = 250.0 * 0.078_873_967 - 7.0;
    for summary in summaries {
        let Times { mean, half_width, .. } = summary.overall.response;
        assert!((mean / expected - 1.0).abs() < 0.03, "{mean} ± {half_width} instead of {expected}");
        assert!(summary.little_residual.is_some_and(|residual| residual.abs() < 0.02), "{summary:?}");
    }
}
