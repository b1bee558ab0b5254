//! What standing in between costs, in turns: directly, through what others would take, through the gate.
//!
//! Two loads. A closed loop at full speed shows the throughput, and the processor time that the proxy spends
//! on a request. A Poisson process at half the speed of the slowest proxy shows how much longer a response
//! takes than directly. Proxies have as many server connections or workers and run on one processor. The
//! modules `postgres`, `mariadb` and `http` hold the questions and the proxies.

mod http;
mod mariadb;
mod postgres;

use std::time::Duration;

use clap::{Args, ValueEnum, value_parser};
use serde::Serialize;
use sim::plot::{Curve, Panel, Plot, Scale};

use crate::Error;
use crate::alternate::Display;
use crate::stats::percentile;
use crate::table::{count, paragraph, ratio};
use crate::turns::{self, Report, Row, Section, cell};

/// Server connections of each proxy before a database.
const POOL: u32 = 20;
/// How long each turn is, in seconds.
const WINDOW: f64 = 3.0;
/// The most that a proxy may add to the 99th percentile at half load.
const ADDED_GOAL: Duration = Duration::from_micros(100);

/// Before what the proxies stand.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Before {
    /// PostgreSQL: `pgbench -S`, beside PgBouncer.
    #[default]
    Postgresql,
    /// MariaDB: sysbench's lookups, beside ProxySQL and the gate for PostgreSQL.
    Mariadb,
    /// An nginx with files of 1 and 100 KB, beside HAProxy and nginx.
    Http,
}

/// Flags of `bench run proxy-cost`.
#[derive(Clone, Debug, Args)]
pub struct Options {
    /// Clients before a database
    #[arg(long, default_value_t = 32, value_parser = value_parser!(u32).range(1..))]
    clients: u32,
    /// Before what the proxies stand
    #[arg(long, value_enum, default_value_t)]
    before: Before,
    /// What all experiments without a plan have.
    #[command(flatten)]
    pub turns: turns::Flags,
}

/// One turn. NaN where the client doesn't tell a figure, or the variant can't do it.
#[derive(Clone, Copy, Debug, Serialize)]
struct Turned {
    /// Requests per second.
    rate: f64,
    /// Processor time of the proxy for each, in seconds.
    cost: f64,
    /// Median response time in seconds, at half load.
    p50: f64,
    /// 99th percentile in seconds, at half load.
    p99: f64,
    /// How much more that is than directly in the same round.
    added: f64,
    /// How late the client sent its requests: the 99th percentile, in seconds, at half load.
    late: f64,
}

impl Turned {
    const NONE: Self = Self {
        rate: f64::NAN,
        cost: f64::NAN,
        p50: f64::NAN,
        p99: f64::NAN,
        added: f64::NAN,
        late: f64::NAN,
    };
}

const ROWS: &[Row<Turned>] = &[
    Row::new("per second", |turn| turn.rate, count),
    Row::new("proxy's processor time for each", |turn| turn.cost, micros),
    Row::new("median response time", |turn| turn.p50, micros),
    Row::new("99th percentile", |turn| turn.p99, micros),
    Row::new("  more than directly", |turn| turn.added, micros),
    Row::new("  of which the client was late", |turn| turn.late, micros),
];

/// A proxy whose processor time the gate's is divided by.
#[derive(Clone, Copy, Debug)]
struct Beside {
    /// Its number.
    variant: usize,
    /// The most that the ratio should be, and the most that it may be.
    goal: Option<(f64, f64)>,
}

/// Servers, proxies, and what is asked.
trait Laboratory {
    /// What the report is called, and how the load is described.
    const NAMES: (&'static str, &'static str);
    /// The gate's number. Directly is 0, and what stands behind the gate is for comparison only.
    const GATE: usize;
    /// With which variants the gate is compared.
    const BESIDE: &'static [Beside];
    /// What is asked, in sections.
    const SECTIONS: &'static [&'static str];

    /// The variants' names.
    fn variants(&self) -> Vec<String>;

    /// Whether the client can ask at half of the rate.
    const HAS_HALF: bool = true;

    /// One turn of all that goes, or of so many a second in this round.
    async fn turn(&self, variant: usize, section: usize, rate: Option<(f64, usize)>)
    -> Result<Turned, Error>;
}

/// Runs the experiment, and returns its tables with verdicts.
///
/// # Errors
/// If something doesn't start, or a request fails.
pub async fn run(options: &Options, display: &Display) -> Result<String, Error> {
    display.now("starting servers and proxies");
    match options.before {
        Before::Postgresql => measure(&postgres::start(options).await?, options, display).await,
        Before::Mariadb => measure(&mariadb::start(options).await?, options, display).await,
        Before::Http => measure(&http::start(options).await?, options, display).await,
    }
}

async fn measure<L: Laboratory>(
    laboratory: &L,
    options: &Options,
    display: &Display,
) -> Result<String, Error> {
    let mut report = options.turns.report(L::NAMES.0, &laboratory.variants(), ROWS)?;
    let times = (options.turns.rounds(9), options.turns.window(WINDOW));
    let mut verdicts = String::new();
    for (number, &name) in L::SECTIONS.iter().enumerate() {
        let full = report
            .measure(&format!("{name}, as much as goes"), times, display, async |at| {
                laboratory.turn(at.variant, number, None).await
            })
            .await?;
        let proxies = (1..full.turns.len()).map(|variant| full.median(variant, |turn| turn.rate));
        // The least of those that can: a comparison with NaN leaves the other one.
        let half_rate = proxies.fold(f64::INFINITY, f64::min) / 2.0;
        let compared: Vec<(Beside, Vec<f64>)> = L::BESIDE
            .iter()
            .map(|beside| (*beside, full.ratios(L::GATE, beside.variant, |turn| turn.cost)))
            .collect();
        let mut added = Vec::new();
        if L::HAS_HALF {
            let mut direct = f64::NAN;
            let half = report
                .measure(&format!("{name}, {} per second", count(half_rate)), times, display, async |at| {
                    let turned = laboratory.turn(at.variant, number, Some((half_rate, at.round))).await?;
                    if at.variant == 0 {
                        direct = turned.p99;
                    }
                    Ok(Turned { added: turned.p99 - direct, ..turned })
                })
                .await?;
            added = half.figures(L::GATE, |turn| turn.added);
        }
        verdicts += &paragraph(&verdict(name, &report.variants, &compared, &added));
    }
    report.draw(&format!("{}.svg", L::NAMES.0), &plot(&report, L::NAMES.1))?;
    Ok(report.table() + "\n" + &verdicts)
}

fn micros(seconds: f64) -> String {
    format!("{:.1} µs", seconds * 1e6)
}

/// What the gate's processor time is of others', in each round, and what it adds at half load.
fn verdict(name: &str, variants: &[String], beside: &[(Beside, Vec<f64>)], added: &[f64]) -> String {
    let compared = |(beside, ratios): &(Beside, Vec<f64>)| {
        let other = &variants[beside.variant];
        if ratios.is_empty() {
            return format!("{other} can't do this");
        }
        let goal = beside.goal.map_or(String::new(), |(goal, allowed)| {
            let judged = match percentile(ratios, 0.5) {
                median if median <= goal => "reached",
                median if median <= allowed => "missed, within what is allowed",
                _ => "missed",
            };
            format!(" (goal: at most {goal:.1}, {judged})")
        });
        format!("{} times the processor time of {other}{goal}", cell(ratios, ratio))
    };
    let mut said: Vec<String> = beside.iter().map(compared).collect();
    if !added.is_empty() {
        // What is sought is smaller than what the machine does by itself from round to round, so that only
        // what each round says is said.
        let within = added.iter().filter(|&&added| added < ADDED_GOAL.as_secs_f64()).count();
        let latency = match (within, added.len()) {
            (all, rounds) if all == rounds => "reached in each round".to_owned(),
            (0, _) => "missed in each round".to_owned(),
            (some, rounds) => format!("can't be told: within it in {some} of {rounds} rounds"),
        };
        said.push(format!(
            "at half load {} more than directly at the 99th percentile (goal: less than {ADDED_GOAL:?}, {latency})",
            cell(added, micros)
        ));
    }
    format!("{name}: {}.", said.join("; "))
}

fn plot(report: &Report<Turned>, load: &str) -> Plot {
    let panel = |section: &Section<Turned>| {
        let curve = |turns: &Vec<Turned>| {
            let points = turns.iter().zip(1..).filter(|(turn, _)| !turn.cost.is_nan());
            let points = points.map(|(turn, round)| (f64::from(round), turn.cost)).collect();
            Curve { points, band: Vec::new() }
        };
        let title = format!("{}: processor time of the proxy for each", section.name);
        Panel::new(title, Scale::Linear, micros, section.turns.iter().skip(1).map(curve).collect())
    };
    Plot {
        title: "What standing in between costs".to_owned(),
        subtitle: load.to_owned(),
        variants: report.variants.iter().skip(1).cloned().collect(),
        marks: None,
        axis: "round",
        seconds: report.sections.iter().map(|section| section.turns[0].len()).max().unwrap_or(1) as f64,
        panels: report.sections.iter().map(panel).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn verdicts_come_from_the_rounds() {
        let said = |ratios: &[f64], added: &[f64]| {
            let beside = Beside { variant: 1, goal: Some((1.0, 1.2)) };
            let variants = ["direct", "PgBouncer", "gate"].map(str::to_owned);
            verdict("simple", &variants, &[(beside, ratios.to_vec())], added)
        };
        let good = said(&[0.5, 0.5, 3.0], &[0.000_099]);
        assert_eq!(good.matches("reached").count(), 2, "{good}");
        assert!(said(&[1.1], &[]).contains("within what is allowed"));
        let bad = said(&[1.25], &[0.000_101]);
        assert_eq!(bad.matches("missed").count(), 2, "{bad}");
        assert!(said(&[1.0], &[0.0, 0.001]).contains("can't be told"));
        assert!(said(&[], &[]).contains("PgBouncer can't do this"));
    }
}
