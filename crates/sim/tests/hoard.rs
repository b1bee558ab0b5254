//! Visitors of a shop that asks over a pool of connections, and goes on with pages whose visitors have
//! left, without a word: one page of fourteen is most of the work. Postponed for as long as shorts come it
//! would be served for nobody, and hold the pool's connections meanwhile.

use admission::{Capacity, Controller, Duration, LongLimit, Order, Policy, Work};
use sim::{
    Abandoned, Application, Arrivals, Collapse, Distribution, End, Kind, Mix, Outcome, Patience, Rate, Row,
    Scenario, Sessions, Source, Upstream, run,
};

/// What a gate has.
const CONNECTIONS: u32 = 20;
/// Measured are these seconds.
const MEASURED: (u64, u64) = (30, 90);
/// How many visitors the shop can just serve.
const SATURATED: u32 = 230;
const HOME: u32 = 0;
const BEST_SELLERS: u32 = 1;
/// Of the sale.
const READ: u32 = 0;

/// The default gate.
fn as_it_comes() -> Policy {
    let floor = Work::from(Duration::from_secs(3));
    Policy {
        capacity: Capacity::Found(Controller::Auto),
        connections: CONNECTIONS,
        long_limit: Some(LongLimit::FOUND),
        order: Order::ShortestFirst { aging: Some(3.0), floor },
        queue_timeout: Duration::from_secs(120),
        ..Policy::default()
    }
}

/// A type with this mean service time when it is alone in the service.
fn kind(name: &str, micros: u64, cv: f64) -> Kind {
    Kind::new(name, Distribution::Lognormal { mean: Duration::from_micros(micros), cv })
}

/// A shop with `visitors` visitors, who think for 0.7 s and wait for 10 s.
fn shop(seed: u64, visitors: u32, connections: u32, policy: Policy) -> Scenario {
    let types = vec![kind("home", 600, 0.4), kind("best sellers", 48_000, 0.1), kind("another", 900, 0.8)];
    // A fourteenth of all pages, if all are answered. Who gets none tries again.
    let next = vec![vec![0.0, 31.0, 69.0], vec![0.0, 0.0, 1.0], vec![21.0, 0.0, 79.0]];
    let sessions = Sessions { first: HOME, next, lasts: None, stays: true };
    let think = Distribution::Exponential { mean: Duration::from_millis(700) };
    let arrivals = Arrivals::Closed { clients: visitors, think, think_max: None };
    let patience = Patience { abandoned: Abandoned::RunsOn, ..Patience::of(Duration::from_secs(10)) };
    let source = Source { patience, ..Source::new(arrivals, Mix::Sessions(sessions)) };
    Scenario {
        seed,
        duration: Duration::from_secs(MEASURED.1),
        warm_up: Duration::ZERO,
        end: End::Cut,
        application: Some(Application { connections, timeout: Some(Duration::from_secs(10)) }),
        ..Scenario::new(policy, types, source, Upstream::sharing(1, Collapse::None))
    }
}

/// What visitors had while it was measured.
#[derive(Debug, Default)]
struct Had {
    /// Pages per second.
    pages: f64,
    /// The part of those that ended without a page.
    lost: f64,
    /// Mean response times in seconds: of all pages that came, of Home, of Best Sellers.
    all: f64,
    home: f64,
    best_sellers: f64,
}

/// How long they took on average that were answered, in seconds: all, or those of one type.
fn mean<'a>(rows: impl Iterator<Item = &'a Row>, kind: Option<u32>) -> f64 {
    let waits: Vec<f64> = rows
        .filter(|row| row.outcome == Outcome::Completed && kind.is_none_or(|kind| row.kind == kind))
        .map(|row| row.ended.since(row.arrived).as_secs_f64())
        .collect();
    waits.iter().sum::<f64>() / waits.len() as f64
}

/// The mean over three seeds.
fn had(visitors: u32, connections: u32, policy: &Policy) -> Had {
    const SEEDS: u64 = 3;
    let at = |seconds: u64| admission::Instant::ZERO.after(Duration::from_secs(seconds));
    let mut had = Had::default();
    for seed in 1..=SEEDS {
        let run = run(&shop(seed, visitors, connections, policy.clone())).expect("a sound run");
        let ended: Vec<&Row> = (run.rows.iter())
            .filter(|row| (at(MEASURED.0)..at(MEASURED.1)).contains(&row.ended))
            .filter(|row| row.outcome != Outcome::CutOff)
            .collect();
        let came = ended.iter().filter(|row| row.outcome == Outcome::Completed).count() as f64;
        let mean = |kind: Option<u32>| mean(ended.iter().copied(), kind);
        had.pages += came / (MEASURED.1 - MEASURED.0) as f64 / SEEDS as f64;
        had.lost += (1.0 - came / ended.len() as f64) / SEEDS as f64;
        had.all += mean(None) / SEEDS as f64;
        had.home += mean(Some(HOME)) / SEEDS as f64;
        had.best_sellers += mean(Some(BEST_SELLERS)) / SEEDS as f64;
    }
    had
}

#[test]
fn visitors_of_a_shop_that_tells_nobody_of_those_who_left_are_all_served_at_what_it_can_do() {
    let in_order = Policy { order: Order::Fifo, long_limit: None, ..as_it_comes() };
    for connections in [50, 300] {
        let mut peak = 0.0_f64;
        for visitors in [SATURATED, 270, 400, 540, 690, 1_200] {
            let (ours, fifo) =
                (had(visitors, connections, &as_it_comes()), had(visitors, connections, &in_order));
            println!(
                "{visitors} visitors, {connections} connections: {ours:.3?}; in order of arrival {fifo:.3?}"
            );
            peak = peak.max(ours.pages);
            // The last is more than five times what saturates the shop.
            assert!(ours.pages >= 0.95 * peak && ours.lost < 0.02, "{ours:?}");
            assert!(ours.pages >= 0.97 * fifo.pages && ours.all <= 1.05 * fifo.all, "{ours:?}, {fifo:?}");
            // N = X(R + Z): what some gain others lose. Shorts gain as long as they don't wait in the shop.
            let gains = if connections == 300 && visitors <= 540 { 2.5 } else { 1.0 };
            assert!(ours.home <= fifo.home / gains, "{ours:?}, in order {fifo:?}");
        }
    }
}

#[test]
fn below_saturation_longs_still_wait_for_shorts() {
    for connections in [20, 300] {
        let calm = had(200, connections, &as_it_comes());
        println!("{connections} connections: {calm:.4?}");
        // Three times what each takes alone, at 0.9 of what the shop can do.
        assert!(calm.home < 0.003 && calm.best_sellers < 0.3, "{calm:?}");
    }
}

#[test]
fn in_a_sale_short_reads_do_not_wait_for_the_orders_that_fill_the_pool() {
    // Arrivals that wait for nobody's answer, at 1.3 times what the service can do, over a pool of a
    // thousand connections. Waiting orders hold many of them; a gate that lets those go first makes every
    // read wait as long (`docs/decisions/hoarding.md`: 280 ms instead of 3).
    let types = vec![kind("read", 100, 0.4), kind("order", 1_600, 0.4), kind("report", 20_000, 0.4)];
    let mix = Mix::Shares(vec![64.0, 35.5, 0.5]);
    let arrivals = Arrivals::Poisson(Rate::constant(1_800.0));
    let source = Source { patience: Patience::of(Duration::from_secs(4)), ..Source::new(arrivals, mix) };
    for seed in 1..=3 {
        let scenario = Scenario {
            seed,
            duration: Duration::from_secs(6),
            warm_up: Duration::ZERO,
            end: End::Cut,
            application: Some(Application { connections: 1_000, timeout: Some(Duration::from_secs(4)) }),
            ..Scenario::new(
                as_it_comes(),
                types.clone(),
                source.clone(),
                Upstream::sharing(1, Collapse::None),
            )
        };
        let run = run(&scenario).expect("a sound run");
        let mean = mean(run.rows.iter(), Some(READ));
        println!("reads take {mean:.4} s");
        assert!(mean < 0.02, "{mean}");
    }
}
