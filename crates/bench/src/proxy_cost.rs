//! What standing in between costs: `pgbench -S` directly, through PgBouncer and through the gatekeeper, in
//! turns.
//!
//! Both proxies have as many server connections, run on the same processor (beside pgbench; the server has
//! the other one to itself) and get the same clients. Two loads: as much as goes, for the throughput and
//! the processor time that the proxy spends on a transaction; and half of what the slower proxy could do,
//! as a Poisson process, for how much longer a response takes than it takes directly.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;
use testbed::pgbouncer::{PgBouncer, Prepared};
use testbed::postgres::{PrivateServer, PrivateServerOptions};

use crate::Error;
use crate::alternate::{Display, alternate};
use crate::blocking::blocking;
use crate::files::write_figures;
use crate::gatekeeper::Gatekeeper;
use crate::load::CpuMeter;
use crate::pgbench::{self, Amount, Protocol, Run};
use crate::stats::{Rounds, percentile};
use crate::table::{self, Figures, count, ratio, spread};
use sim::plot::{Curve, Panel, Plot, Scale};

/// Server connections of each proxy.
pub const POOL: u32 = 20;
/// pgbench's scale: a million accounts, all in the server's memory.
const SCALE: u32 = 10;
/// The most that the proxy's own part may cost, as a multiple of PgBouncer's.
pub const COST_GOAL: f64 = 1.0;
/// The most that a proxy may add to the 99th percentile at half load.
pub const ADDED_GOAL: Duration = Duration::from_micros(100);

/// How the experiment is run.
#[derive(Clone, Debug)]
pub struct Options {
    /// Rounds; everything has one turn in each.
    pub rounds: usize,
    /// How long each turn is.
    pub window: Duration,
    /// pgbench's clients.
    pub clients: u32,
    /// The server's processor.
    pub server_cpu: Option<usize>,
    /// Directory for the plot and the figures.
    pub output: PathBuf,
}

/// What stands in between.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Variant {
    /// Nobody.
    Direct,
    /// PgBouncer.
    PgBouncer,
    /// The gatekeeper.
    Gatekeeper,
}

const VARIANTS: [Variant; 3] = [Variant::Direct, Variant::PgBouncer, Variant::Gatekeeper];

/// One turn at full load.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Full {
    /// Transactions per second.
    pub tps: f64,
    /// Processor time of the proxy for each, in seconds.
    pub cost: f64,
}

/// One turn at half load.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Half {
    /// Median response time in seconds.
    pub p50: f64,
    /// 99th percentile in seconds.
    pub p99: f64,
    /// Processor time of the proxy for each, in seconds.
    pub cost: f64,
}

/// What one protocol came to; by variant, then by round. Empty where the variant can't.
#[derive(Clone, Debug, Serialize)]
pub struct Section {
    /// How statements were sent.
    pub protocol: Protocol,
    /// At full load.
    pub full: Vec<Vec<Full>>,
    /// Transactions per second at half load.
    pub half_rate: f64,
    /// At half load.
    pub half: Vec<Vec<Half>>,
}

/// The whole experiment.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// PgBouncer's version.
    pub pgbouncer: String,
    /// pgbench's clients.
    pub clients: u32,
    /// Length of a turn in seconds.
    pub window_seconds: f64,
    /// One for each protocol.
    pub sections: Vec<Section>,
}

struct Laboratory {
    server: PrivateServer,
    pgbouncer: PgBouncer,
    gatekeeper: Gatekeeper,
}

impl Laboratory {
    fn start(options: &Options) -> Result<Self, Error> {
        let server =
            PrivateServer::start(&PrivateServerOptions { cpu: options.server_cpu, ..Default::default() })?;
        pgbench::initialize(&server, SCALE)?;
        let pgbouncer = PgBouncer::start(&server, POOL, options.clients + 10, Prepared::Followed)?;
        let keys = [("connections".to_owned(), POOL.to_string())];
        let gatekeeper = Gatekeeper::start(server.port(), &keys)?;
        Ok(Self { server, pgbouncer, gatekeeper })
    }

    fn can(&self, variant: Variant, protocol: Protocol) -> bool {
        variant != Variant::PgBouncer || protocol != Protocol::Prepared || self.pgbouncer.prepares()
    }

    /// The port to connect to, and the proxy's process.
    fn way(&self, variant: Variant) -> (u16, Option<u32>) {
        match variant {
            Variant::Direct => (self.server.port(), None),
            Variant::PgBouncer => (self.pgbouncer.port(), Some(self.pgbouncer.pid())),
            Variant::Gatekeeper => (self.gatekeeper.port(), Some(self.gatekeeper.pid())),
        }
    }

    /// What pgbench saw, and the proxy's processor time for each transaction.
    fn turn(&self, variant: Variant, run: &Run) -> Result<(pgbench::Outcome, f64), Error> {
        let (port, pid) = self.way(variant);
        let meter = CpuMeter::start(&pid.into_iter().collect::<Vec<_>>());
        let outcome = pgbench::run(&self.server, port, run)?;
        let cost = meter.used().as_secs_f64() / outcome.transactions as f64;
        Ok((outcome, cost))
    }
}

/// Runs the experiment.
///
/// # Errors
/// If something doesn't start, or a transaction fails.
pub async fn run(options: &Options, display: &Display) -> Result<Report, Error> {
    let own = options.clone();
    display.now("starting a server, PgBouncer and a gatekeeper");
    let laboratory = Arc::new(blocking(move || Laboratory::start(&own)).await?);
    let mut sections = Vec::new();
    for protocol in Protocol::ALL {
        sections.push(section(&laboratory, protocol, options, display).await?);
    }
    let report = Report {
        pgbouncer: laboratory.pgbouncer.version().to_owned(),
        clients: options.clients,
        window_seconds: options.window.as_secs_f64(),
        sections,
    };
    report.write(&options.output)?;
    Ok(report)
}

async fn section(
    laboratory: &Arc<Laboratory>,
    protocol: Protocol,
    options: &Options,
    display: &Display,
) -> Result<Section, Error> {
    let turn = async |variant: usize, rate: Option<f64>| {
        let variant = VARIANTS[variant];
        if !laboratory.can(variant, protocol) {
            return Ok(None);
        }
        let amount = Amount::Time(options.window);
        let run = Run { protocol, clients: options.clients, amount, rate, scripts: &[] };
        let laboratory = Arc::clone(laboratory);
        blocking(move || laboratory.turn(variant, &run)).await.map(Some)
    };
    let expected = [options.window; VARIANTS.len()];
    let full = alternate(options.rounds, &expected, async |at, left| {
        display.now(format!("{}, all that goes: {left:.0?} to go", protocol.name()));
        Ok(turn(at.variant, None).await?.map(|(outcome, cost)| Full { tps: outcome.tps, cost }))
    })
    .await?;
    let full: Vec<Vec<Full>> =
        full.into_iter().map(|rounds| rounds.into_iter().flatten().collect()).collect();
    let proxies = full.iter().skip(1).filter(|rounds| !rounds.is_empty());
    let slowest = proxies.map(|rounds| median(rounds, |round| round.tps)).fold(f64::INFINITY, f64::min);
    let half_rate = slowest / 2.0;
    let half = alternate(options.rounds, &expected, async |at, left| {
        display.now(format!("{}, half of it: {left:.0?} to go", protocol.name()));
        let turn = turn(at.variant, Some(half_rate)).await?;
        Ok(turn.map(|(outcome, cost)| Half { p50: outcome.response(0.5), p99: outcome.response(0.99), cost }))
    })
    .await?;
    let half = half.into_iter().map(|rounds| rounds.into_iter().flatten().collect()).collect();
    Ok(Section { protocol, full, half_rate, half })
}

fn median<T>(rounds: &[T], figure: impl Fn(&T) -> f64) -> f64 {
    percentile(&rounds.iter().map(figure).collect::<Vec<_>>(), 0.5)
}

impl Section {
    /// The gatekeeper's cost as a multiple of PgBouncer's: the median of the rounds' ratios. `None` without
    /// PgBouncer.
    pub fn cost_ratio(&self) -> Option<f64> {
        let [_, pgbouncer, gatekeeper] = &self.full[..] else { return None };
        let ratios: Vec<f64> =
            gatekeeper.iter().zip(pgbouncer).map(|(ours, theirs)| ours.cost / theirs.cost).collect();
        (!ratios.is_empty()).then(|| percentile(&ratios, 0.5))
    }

    /// How much more a variant's 99th percentile is than the direct one's, in seconds: the median of the
    /// rounds' differences.
    pub fn added_p99(&self, variant: usize) -> Option<f64> {
        let differences: Vec<f64> = self.added_p99s(variant).collect();
        (!differences.is_empty()).then(|| percentile(&differences, 0.5))
    }

    /// How much more a variant's 99th percentile is than the direct one's in each round, in seconds.
    fn added_p99s(&self, variant: usize) -> impl Iterator<Item = f64> {
        self.half[variant].iter().zip(&self.half[0]).map(|(ours, direct)| ours.p99 - direct.p99)
    }
}

fn micros(seconds: f64) -> String {
    format!("{:.1} µs", seconds * 1e6)
}

impl Report {
    fn write(&self, output: &Path) -> Result<(), Error> {
        write_figures(self, output, "proxy-cost")?;
        Ok(self.plot().write(&output.join("proxy-cost.svg"))?)
    }

    fn plot(&self) -> Plot {
        let panel = |section: &Section| {
            Panel::new(
                format!("{}: processor time of the proxy for one transaction", section.protocol.name()),
                Scale::Linear,
                micros,
                section.full.iter().skip(1).map(|rounds| curve(rounds, |round| round.cost)).collect(),
            )
        };
        Plot {
            title: "What standing in between costs".to_owned(),
            subtitle: format!(
                "pgbench -S, {} clients over {POOL} server connections, as much as goes; PgBouncer {}",
                self.clients, self.pgbouncer
            ),
            variants: vec!["PgBouncer".to_owned(), "Gatekeeper".to_owned()],
            marks: None,
            axis: "round",
            seconds: self.sections.iter().map(|section| section.full[0].len()).max().unwrap_or(1) as f64,
            panels: self.sections.iter().map(panel).collect(),
        }
    }

    /// The figures as tables, with verdicts computed from them.
    pub fn text(&self) -> String {
        let names = ["direct".to_owned(), format!("PgBouncer {}", self.pgbouncer), "Gatekeeper".to_owned()];
        let mut figures = Figures::new(&names);
        let mut verdicts = String::new();
        for section in &self.sections {
            let name = section.protocol.name();
            figures.heading(name);
            row(&mut figures, "transactions per second", &section.full, |round| round.tps, count);
            row(&mut figures, "proxy's processor time for each", &section.full, |round| round.cost, micros);
            figures.heading(&format!("{name}, {} per second", count(section.half_rate)));
            row(&mut figures, "median response time", &section.half, |round| round.p50, micros);
            row(&mut figures, "99th percentile", &section.half, |round| round.p99, micros);
            let added = (0..VARIANTS.len()).map(|variant| section.added_p99(variant));
            figures.row("  more than directly", added.map(|added| added.map_or("–".to_owned(), micros)));
            row(&mut figures, "proxy's processor time for each", &section.half, |round| round.cost, micros);
            verdicts.push_str(&table::paragraph(&section.verdict()));
        }
        let table: String = figures.to_string().lines().map(|line| format!("  {line}\n")).collect();
        table + "\n" + &verdicts
    }
}

impl Section {
    fn verdict(&self) -> String {
        let reached = |is: bool| if is { "reached" } else { "missed" };
        let cost = match self.cost_ratio() {
            Some(found) => format!(
                "{} times PgBouncer's processor time (goal: at most {COST_GOAL:.1}, {})",
                ratio(found),
                reached(found <= COST_GOAL)
            ),
            None => "this PgBouncer can't carry prepared statements in transaction mode".to_owned(),
        };
        let added = self.added_p99(VARIANTS.len() - 1).unwrap_or(f64::NAN);
        // What is sought is smaller than what the machine does by itself from round to round, so that only
        // what each round says is said.
        let within = self.added_p99s(VARIANTS.len() - 1).filter(|&added| added < ADDED_GOAL.as_secs_f64());
        let latency = match (within.count(), self.half[0].len()) {
            (all, rounds) if all == rounds => "reached in each round".to_owned(),
            (0, _) => "missed in each round".to_owned(),
            (some, rounds) => format!("can't be told: within it in {some} of {rounds} rounds"),
        };
        format!(
            "{}: {cost}; {} more than directly at the 99th percentile of half load (goal: less than {ADDED_GOAL:?}, \
             {latency}).",
            self.protocol.name(),
            micros(added)
        )
    }
}

fn row<T>(
    figures: &mut Figures,
    label: &str,
    variants: &[Vec<T>],
    figure: impl Fn(&T) -> f64,
    show: fn(f64) -> String,
) {
    let cell = |rounds: &Vec<T>| match rounds.len() {
        0 => "–".to_owned(),
        _ => spread(Rounds::of(&rounds.iter().map(&figure).collect::<Vec<_>>()), show),
    };
    figures.row(label, variants.iter().map(cell));
}

fn curve<T>(rounds: &[T], figure: impl Fn(&T) -> f64) -> Curve {
    let points = rounds.iter().enumerate().map(|(round, at)| ((round + 1) as f64, figure(at))).collect();
    Curve { points, band: Vec::new() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn section(protocol: Protocol, pgbouncer: &[f64], gatekeeper: &[f64], added: f64) -> Section {
        let full = |costs: &[f64]| costs.iter().map(|&cost| Full { tps: 1.0, cost }).collect();
        let half = |p99: f64| vec![Half { p50: 0.0, p99, cost: 0.0 }];
        Section {
            protocol,
            full: vec![full(&[0.0]), full(pgbouncer), full(gatekeeper)],
            half_rate: 1.0,
            half: vec![half(0.001), half(0.001), half(0.001 + added)],
        }
    }

    #[test]
    fn verdicts_come_from_the_rounds() {
        let good = section(Protocol::Simple, &[2.0, 4.0, 1.0], &[1.0, 2.0, 3.0], 0.000_099);
        assert_eq!(good.cost_ratio(), Some(0.5));
        assert_eq!(good.verdict().matches("reached").count(), 2, "{}", good.verdict());
        let bad = section(Protocol::Simple, &[2.0], &[2.1], 0.000_101);
        assert_eq!(bad.verdict().matches("missed").count(), 2, "{}", bad.verdict());
        let mut drifting = section(Protocol::Simple, &[2.0], &[2.0], 0.0);
        drifting.half[0].push(Half { p50: 0.0, p99: 0.002, cost: 0.0 });
        drifting.half[2].push(Half { p50: 0.0, p99: 0.003, cost: 0.0 });
        assert!(drifting.verdict().contains("can't be told"), "{}", drifting.verdict());
        let alone = section(Protocol::Prepared, &[], &[2.1], 0.0);
        assert!(alone.cost_ratio().is_none() && alone.verdict().contains("can't carry"));
    }

    #[test]
    fn the_text_has_a_row_for_each_figure() {
        let sections = vec![section(Protocol::Prepared, &[], &[0.000_01], 0.0)];
        let report = Report { pgbouncer: "1.18.0".to_owned(), clients: 8, window_seconds: 1.0, sections };
        let text = report.text();
        assert!(text.contains("10.0 µs") && text.contains('–'), "{text}");
    }
}
