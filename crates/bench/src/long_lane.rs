//! The long lane: short and long requests on a server that doesn't thrash, below saturation.
//!
//! **Question.** A database without contention shares its processor well: a short statement passes a long
//! one. Any limit on how much runs at once takes that away, because short requests then queue behind long
//! ones. Does a limit on the *long* ones alone do better than no limit at all?
//!
//! **Method.** One core, the mix of the simulations (most statements 0.4 ms, a twentieth 60 ms; the long
//! types vary little within themselves), Poisson arrivals at a part of the most that direct clients get out
//! of the server. The same arrivals meet every variant, in alternation: no gate; gates that limit how many
//! requests run, whichever they are (first come first served, and shortest first); a gate with its defaults.
//! Response times cover all requests.
//!
//! **Where it is unfair, and to whom.** The gates pay for their hop, on the client's processor. What is
//! said holds for types that vary little within themselves; one that varies by more than its mean isn't
//! limited at all.

use std::sync::Arc;
use std::time::Duration;

use crate::Error;
use crate::alternate::{Display, Turn, alternate};
use crate::blocking::blocking;
use crate::gatekeeper::Gatekeeper;
use crate::load::{
    ConnectionPool, Draw, Mix, OpenRun, Progress, RequestType, Schedule, Target, Unit, run_closed,
};
use crate::shop;
use crate::stats::{Rounds, Summary};
use crate::table::{Figures, count, paragraph, ratio, seconds, spread};
use testbed::database::Database;

/// The mix: name, requests per thousand, and how long one takes alone.
const TYPES: [(&str, f64, Duration); 5] = [
    ("lookup", 718.0, Duration::from_micros(400)),
    ("search", 170.0, Duration::from_micros(1_500)),
    ("new products", 50.0, Duration::from_micros(2_600)),
    ("buy confirm", 12.0, Duration::from_millis(30)),
    ("best sellers", 50.0, Duration::from_millis(60)),
];
/// Connections of the application, to the database as to a gate: more than are ever busy.
const CONNECTIONS: usize = 300;
/// Server connections beyond those.
const SPARE_CONNECTIONS: usize = 150;
/// Clients of the closed loop that finds the most the server can do, and how long they run.
const CALIBRATION_CLIENTS: usize = 4;
const CALIBRATION_WINDOW: Duration = Duration::from_secs(3);
/// How long every variant is warmed up, by how many clients.
const WARM_UP: Duration = Duration::from_secs(2);
const WARM_UP_CLIENTS: usize = 8;
/// Longer than any request takes: nobody gives up.
const TIMEOUT: Duration = Duration::from_secs(60);
/// The gates: label, and the keys that differ from the defaults. The last one is the default gate.
const GATES: [(&str, &[(&str, &str)]); 5] = [
    (
        "limit 2",
        &[("connections", "2"), ("capacity", "\"none\""), ("order", "\"fifo\""), ("long_limit", "\"none\"")],
    ),
    (
        "limit 4",
        &[("connections", "4"), ("capacity", "\"none\""), ("order", "\"fifo\""), ("long_limit", "\"none\"")],
    ),
    (
        "limit 8",
        &[("connections", "8"), ("capacity", "\"none\""), ("order", "\"fifo\""), ("long_limit", "\"none\"")],
    ),
    (
        "limit 2, shortest first",
        &[("connections", "2"), ("capacity", "\"none\""), ("long_limit", "\"none\"")],
    ),
    ("gate", &[]),
];

/// How many of them don't look at types: the first ones. The next knows them but limits all alike.
const TYPE_BLIND: usize = 3;

/// What to measure.
#[derive(Clone, Copy, Debug)]
pub struct LongLaneOptions {
    /// Rounds.
    pub rounds: usize,
    /// How long requests arrive in each turn.
    pub window: Duration,
    /// The load, as a part of the most that direct clients got.
    pub load: f64,
    /// What the arrivals are drawn from.
    pub seed: u64,
    /// The server's own processor, if it has one.
    pub server_cpu: Option<usize>,
}

/// What every variant made of the load.
#[derive(Clone, Debug)]
pub struct LongLaneReport {
    /// Requests offered per second.
    pub rate: f64,
    /// The load, as a part of the most that direct clients got.
    pub load: f64,
    /// Label and turns of each variant: direct first, the default gate last.
    pub variants: Vec<(String, Vec<Summary>)>,
}

impl LongLaneReport {
    /// The mean response time over all requests of a variant in each round, relative to direct in the same
    /// round.
    fn relative_means(&self, variant: usize) -> Rounds {
        let of = |variant: usize| self.variants[variant].1.iter().map(|turn| turn.overall.mean_seconds);
        Rounds::of(&of(variant).zip(of(0)).map(|(mean, direct)| mean / direct).collect::<Vec<_>>())
    }
}

struct Variant {
    label: &'static str,
    pool: Arc<ConnectionPool>,
    _gatekeeper: Option<Gatekeeper>,
}

/// Runs the whole experiment.
///
/// # Errors
/// If the server or a gatekeeper doesn't start, or a run can't be finished.
pub async fn run(options: &LongLaneOptions, display: &Display) -> Result<LongLaneReport, Error> {
    display.say("\n  Short and long requests, below saturation\n");
    display.now("starting a private PostgreSQL");
    let server =
        shop::start_server(Database::Postgres, CONNECTIONS + SPARE_CONNECTIONS, options.server_cpu).await?;
    let target = Target::parse(&server.url())?;
    let admin = target.connect().await?;
    display.now("filling the shop");
    shop::create(&admin).await?;
    let mut types = Vec::new();
    for (name, weight, alone) in TYPES {
        types.push(request_type(name, weight, shop::rows_for(&admin, alone).await?)?);
    }
    let mix = Arc::new(Mix::new(types)?);

    let pool = ConnectionPool::open(target, CONNECTIONS).await?;
    let mut variants = vec![Variant { label: "direct", pool, _gatekeeper: None }];
    for (label, keys) in GATES {
        display.now(format!("opening {CONNECTIONS} connections to the gate ({label})"));
        let (upstream, keys) = (server.port(), owned(keys));
        let gatekeeper = blocking(move || Gatekeeper::start(upstream, &keys)).await?;
        let target = Target::parse(&server.url_through(gatekeeper.port()))?;
        let pool = ConnectionPool::open(target, CONNECTIONS).await?;
        variants.push(Variant { label, pool, _gatekeeper: Some(gatekeeper) });
    }
    for variant in &variants {
        display.now(format!("warming up: {}", variant.label));
        run_closed(&variant.pool, &mix, WARM_UP_CLIENTS, WARM_UP, 0).await?;
    }
    display.now("looking for the most that the server can do");
    let best =
        run_closed(&variants[0].pool, &mix, CALIBRATION_CLIENTS, CALIBRATION_WINDOW, 1).await?.throughput;
    let rate = best * options.load;
    display.say(&format!(
        "  The server does {}/s; the load is {}/s, {} of it.\n",
        count(best),
        count(rate),
        options.load
    ));
    let turns = measure(options, &variants, &mix, rate, display).await?;
    let labels = variants.iter().map(|variant| variant.label.to_owned());
    Ok(LongLaneReport { rate, load: options.load, variants: labels.zip(turns).collect() })
}

/// A statement that reads so many rows. Its tag makes it a type of its own, though all have the same shape.
fn request_type(name: &str, weight: f64, rows: i64) -> Result<RequestType, Error> {
    let statement = format!("{} /*route='{}'*/", shop::REPORT, name.replace(' ', "-"));
    RequestType::new(
        name,
        weight,
        Unit::Statements,
        &[Draw::Constant(1), Draw::Constant(rows)],
        &[&statement],
    )
}

fn owned(keys: &[(&str, &str)]) -> Vec<(String, String)> {
    keys.iter().map(|&(key, value)| (key.to_owned(), value.to_owned())).collect()
}

async fn measure(
    options: &LongLaneOptions,
    variants: &[Variant],
    mix: &Arc<Mix>,
    rate: f64,
    display: &Display,
) -> Result<Vec<Vec<Summary>>, Error> {
    let expected = vec![options.window + options.window / 10; variants.len()];
    alternate(options.rounds, &expected, async |turn: Turn, left: Duration| {
        let variant = &variants[turn.variant];
        let place = format!("round {}/{}  {:<24}", turn.round + 1, options.rounds, variant.label);
        display.now(format!("{place} about {:.0} s left", left.as_secs_f64()));
        let seed = options.seed.wrapping_add(turn.round as u64);
        let schedule = Arc::new(Schedule::poisson(mix, rate, options.window, seed)?);
        let run = OpenRun { mix: Arc::clone(mix), schedule, timeout: TIMEOUT };
        let outcome = run.run(&variant.pool, &Arc::new(Progress::default())).await?;
        let summary = Summary::of(&outcome, TYPES.len());
        display.say(&format!("  {place} mean response time {:>8}", seconds(summary.overall.mean_seconds)));
        Ok(summary)
    })
    .await
}

/// The figures as a table, a line per variant, with a verdict computed from them.
pub fn text(report: &LongLaneReport) -> String {
    let headings =
        ["mean, all requests", "times direct", "lookup", "best sellers", "median", "95th percentile"];
    let mut figures = Figures::new(&headings.map(str::to_owned));
    for (variant, (label, turns)) in report.variants.iter().enumerate() {
        let rounds = |of: fn(&Summary) -> f64| Rounds::of(&turns.iter().map(of).collect::<Vec<_>>());
        let median = |of: fn(&Summary) -> f64| seconds(rounds(of).median);
        figures.row(
            label,
            [
                spread(rounds(|turn| turn.overall.mean_seconds), seconds),
                spread(report.relative_means(variant), ratio),
                median(|turn| turn.types[0].mean_seconds),
                median(|turn| turn.types[TYPES.len() - 1].mean_seconds),
                median(|turn| turn.overall.p50_seconds),
                median(|turn| turn.overall.p95_seconds),
            ],
        );
    }
    let table: String = figures.to_string().lines().map(|line| format!("  {line}\n")).collect();
    format!(
        "\n  {}/s, {} of the most\n{table}  Medians of the rounds (lowest … highest); lookup and best sellers are means.\n\n{}",
        count(report.rate),
        report.load,
        paragraph(&verdict(report))
    )
}

fn verdict(report: &LongLaneReport) -> String {
    let gate = report.relative_means(report.variants.len() - 1).median;
    let limits = (1..=TYPE_BLIND).map(|variant| report.relative_means(variant).median);
    let best = limits.fold(f64::INFINITY, f64::min);
    let word = if gate < 1.0 && best > 1.0 { "reached" } else { "missed" };
    format!(
        "Over all requests the mean response time behind the gate is {} times direct's, behind the best of the \
         type-blind limits {} times. The goal that the gate beats the server without a gate where every type-blind \
         limit loses to it is {word}.",
        ratio(gate),
        ratio(best),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stats::Responses;

    fn report(means: &[f64]) -> LongLaneReport {
        let responses = |mean_seconds| Responses {
            arrived: 1,
            completed: 1,
            timed_out: 0,
            rejected: 0,
            failed: 0,
            mean_seconds,
            p50_seconds: mean_seconds,
            p95_seconds: mean_seconds,
            p99_seconds: mean_seconds,
        };
        let turn = |mean: f64| Summary {
            offered: 1.0,
            throughput: 1.0,
            goodput: 1.0,
            backlog_end: 0,
            backlog_max: 1,
            overall: responses(mean),
            types: vec![responses(mean); TYPES.len()],
        };
        let variants = means.iter().map(|&mean| (format!("{mean}"), vec![turn(mean)])).collect();
        LongLaneReport { rate: 100.0, load: 0.85, variants }
    }

    #[test]
    fn the_verdict_needs_a_gate_that_wins_and_limits_that_all_lose() {
        assert!(text(&report(&[1.0, 1.2, 4.0, 1.5, 0.9, 0.6])).contains("reached"));
        assert!(text(&report(&[1.0, 0.9, 4.0, 1.5, 0.9, 0.6])).contains("missed"));
        assert!(text(&report(&[1.0, 1.2, 4.0, 1.5, 0.9, 1.1])).contains("missed"));
    }

    #[test]
    fn the_two_heaviest_types_are_long() {
        let total: f64 = TYPES.iter().map(|(_, weight, _)| weight).sum();
        let mean: f64 =
            TYPES.iter().map(|(_, weight, alone)| weight * alone.as_secs_f64()).sum::<f64>() / total;
        let long = |&&(_, _, alone): &&(&str, f64, Duration)| alone.as_secs_f64() > 3.0 * mean;
        let names: Vec<&str> = TYPES.iter().filter(long).map(|(name, ..)| *name).collect();
        assert_eq!(names, ["buy confirm", "best sellers"]);
    }
}
