//! The flash sale: one shop, one database on one processor core, more orders than it can take.
//!
//! **Question.** What does a database do under 1.3 times the load that it can take at its best, without a
//! gate before it, and with one?
//!
//! **Method.** First a closed loop over 4 to 32 direct clients finds the best that the database can do. Then
//! the same Poisson arrivals at 1.3 times that meet every variant, in alternation, each from a drained server
//! with the same table state. Response times run from the scheduled arrival and cover all requests;
//! one that wasn't answered is charged the full time-out. At last a quiet load, to see what a gate costs when
//! nothing is wrong.
//!
//! **Where it is unfair, and to whom.** The direct connections stay open (idle) while a gate is measured,
//! which costs the gate a little. Every variant is warmed up, so a gate knows the request types, as it
//! would in production. The client and the gate share the processors that the server doesn't use.

mod judgment;
mod laboratory;
mod report;
mod tables;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use crate::Error;
use crate::alternate::{Display, Turn, alternate};
use crate::load::{ClosedOutcome, OpenRun, Schedule};
use crate::shop;
use crate::stats::percentile;
use crate::table::{count, paragraph, seconds};
use testbed::database::Database;

use laboratory::{Laboratory, Measured, Variant};
pub use report::{Report, RoundReport, Section, VariantReport};
pub use tables::{story, text};

/// Clients of the closed loop that looks for the best that the database can do.
const CALIBRATION_CLIENTS: [usize; 4] = [4, 8, 16, 32];
/// How long each of them is tried.
const CALIBRATION_WINDOW: Duration = Duration::from_millis(1000);
/// The sale's load relative to the best.
const OVERLOAD: f64 = 1.3;
/// The quiet load relative to the best.
const QUIET: f64 = 0.25;
/// Rounds of the quiet load, and how long each lasts.
const QUIET_ROUNDS: usize = 2;
const QUIET_WINDOW: Duration = Duration::from_millis(1200);

/// What to measure.
#[derive(Clone, Debug)]
pub struct FlashSaleOptions {
    /// Rounds of the sale.
    pub rounds: usize,
    /// How long orders arrive in each turn.
    pub window: Duration,
    /// How long a client waits for an answer.
    pub timeout: Duration,
    /// Connections of the application's pool straight to the database, where each is a process.
    pub connections: usize,
    /// Connections of the application's pool to a gate, where a waiting one costs the database nothing.
    pub gate_connections: usize,
    /// Keys of the last variant's gate that differ from the defaults, as TOML.
    pub gate_keys: Vec<(String, String)>,
    /// What the arrivals are drawn from.
    pub seed: u64,
    /// The database that sells.
    pub database: Database,
    /// The server's own processor, if it has one (see [`separate_processors`](testbed::separate_processors)).
    pub server_cpu: Option<usize>,
    /// Where the plot and the figures go.
    pub output: PathBuf,
    /// What is compared with the direct connections.
    pub compare: Compare,
}

/// What is compared with the direct connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compare {
    /// A gate that works as a plain pool does, and a gate as configured by default.
    Gates,
    /// A gate as configured by default, alone.
    Gate,
    /// A pool of this many connections inside the client: what a plain pool gives, without any gatekeeper.
    ClientPool(usize),
}

/// Runs the whole experiment, writes the plot and the figures, and returns them.
///
/// # Errors
/// If the server or a gatekeeper doesn't start, or a run can't be finished.
pub async fn run(options: &FlashSaleOptions, display: &Display) -> Result<Report, Error> {
    display.say(&introduction(options));
    let laboratory = Laboratory::set_up(options, display).await?;
    let calibration = calibrate(&laboratory, display).await?;
    let best = calibration.iter().map(|outcome| outcome.throughput).fold(0.0, f64::max);
    let rate = best * OVERLOAD;
    display.say(&format!(
        "\n  The sale begins: {}/s, {OVERLOAD} times that. {} rounds, the same arrivals for everybody.\n",
        count(rate),
        options.rounds
    ));
    let everybody: Vec<&Variant> = laboratory.variants.iter().collect();
    let load = Load { rate, rounds: options.rounds, window: options.window, seed: options.seed };
    let sale = measure(&laboratory, &everybody, &load, options.timeout, display).await?;

    display.say(&format!("\n  The sale is over: a quiet load of {}/s.\n", count(best * QUIET)));
    let ends: Vec<&Variant> = everybody.first().into_iter().chain(everybody.last()).copied().collect();
    let load = Load { rate: best * QUIET, rounds: QUIET_ROUNDS, window: QUIET_WINDOW, seed: options.seed };
    let quiet = measure(&laboratory, &ends, &load, options.timeout, display).await?;

    let report = Report::new(options, &laboratory, calibration, (rate, sale), (best * QUIET, quiet));
    write(&report, &options.output)?;
    Ok(report)
}

/// Writes the plot and the figures.
fn write(report: &Report, output: &Path) -> Result<(), Error> {
    fs::create_dir_all(output).map_err(Error::io(format!("creating {}", output.display())))?;
    let json = serde_json::to_string_pretty(report)
        .map_err(|error| Error::Experiment(format!("the figures can't be written as JSON: {error}")))?;
    fs::write(&report.figures, json).map_err(Error::io(format!("writing {}", report.figures.display())))?;
    Ok(report::picture(report).write(&report.plot)?)
}

fn introduction(options: &FlashSaleOptions) -> String {
    let rivals = match options.compare {
        Compare::Gates => {
            "through a gate that works as a plain pool does, and through a gate without settings".to_owned()
        }
        Compare::Gate => "and through a gate without settings".to_owned(),
        Compare::ClientPool(size) => format!("and through a pool of {size} connections in the client"),
    };
    let text = format!(
        "A shop puts twenty articles on sale. Every order locks three of them, takes them from stock and commits; \
         beside the orders, visitors read articles and somebody computes a sales report now and then. The \
         application has {} connections to {}, which has one processor core, or {} to a gate, which \
         passes on as many as the database does best. Requests come at {OVERLOAD} times the rate that the database can take at its best: \
         straight to it, {rivals}.",
        count(options.connections as f64),
        options.database.name(),
        count(options.gate_connections as f64),
    );
    format!("\n  A flash sale\n\n{}", paragraph(&text))
}

/// Finds the best that direct clients get out of the database.
async fn calibrate(laboratory: &Laboratory, display: &Display) -> Result<Vec<ClosedOutcome>, Error> {
    let mut outcomes = Vec::new();
    for clients in CALIBRATION_CLIENTS {
        display.now(format!("looking for the best: {clients} clients straight to the database"));
        shop::restore(&laboratory.admin).await?;
        outcomes.push(laboratory.closed_loop(clients, CALIBRATION_WINDOW).await?);
    }
    let figures: Vec<String> = outcomes
        .iter()
        .map(|outcome| format!("{} clients {}/s", outcome.clients, count(outcome.throughput)))
        .collect();
    display.say(&format!("  The database at its best, direct: {}.", figures.join(", ")));
    Ok(outcomes)
}

/// One load for several variants.
struct Load {
    rate: f64,
    rounds: usize,
    window: Duration,
    seed: u64,
}

async fn measure(
    laboratory: &Laboratory,
    variants: &[&Variant],
    load: &Load,
    timeout: Duration,
    display: &Display,
) -> Result<Vec<Vec<Measured>>, Error> {
    let schedules = (0..load.rounds as u64)
        .map(|round| {
            let seed = load.seed.wrapping_add(round);
            Schedule::poisson(&laboratory.mix, load.rate, load.window, seed).map(Arc::new)
        })
        .collect::<Result<Vec<_>, Error>>()?;
    // The direct variant may wait for its time-outs; the others are expected to catch up soon.
    let expected: Vec<Duration> = (0..variants.len())
        .map(|variant| load.window + if variant == 0 { timeout } else { timeout / 2 })
        .collect();
    alternate(load.rounds, &expected, async |turn: Turn, left: Duration| {
        let variant = variants[turn.variant];
        let place = format!("round {}/{}  {:<24}", turn.round + 1, load.rounds, variant.label);
        let run = OpenRun {
            mix: Arc::clone(&laboratory.mix),
            schedule: Arc::clone(&schedules[turn.round]),
            timeout,
        };
        let measured = laboratory.open_loop(variant, &run, &place, left, display).await?;
        display.say(&format!("  {place} {}", in_a_line(&measured, load.window)));
        Ok(measured)
    })
    .await
}

/// One turn's figures in a line.
fn in_a_line(measured: &Measured, window: Duration) -> String {
    let reads: Vec<f64> = measured
        .outcome
        .records
        .iter()
        .filter(|record| record.request_type == shop::READ)
        .map(|record| record.charged(measured.outcome.timeout).as_secs_f64())
        .collect();
    format!(
        "answered {:>6}/s   waiting at the end {:>6}   short read, median {:>8}",
        count(measured.summary.throughput),
        count(measured.summary.backlog_end as f64),
        seconds(percentile(&reads, 0.5)),
    ) + &if window > QUIET_WINDOW {
        String::new()
    } else {
        format!("   overall {:>8}", seconds(measured.summary.overall.mean_seconds))
    }
}
