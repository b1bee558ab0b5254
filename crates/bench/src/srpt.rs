//! Response bytes in order of least remaining size on a real link of 10 Mbit/s: the experiments of *Web
//! servers under overload* (TOIT 2006).
//!
//! Clients and server are in network namespaces of their own; requests come when the trace says. Each cell
//! has a new link and new servers; variants have their turns one after the other. The same requests are
//! played in the simulator, whose figures stand beside the measured ones.

mod case;
mod cost;
mod curves;
mod factors;
mod follow;
mod laboratory;
mod report;

use std::io::Read as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use flate2::read::MultiGzDecoder;
use serde::Serialize;
use sim::uplink::{Bytes, Digest, Download, Response, Served, poisson, read_trace};

use crate::Error;
use crate::alternate::Display;
use crate::blocking::blocking;
use crate::http::OpenRuns;
use crate::load::Outcome;
use crate::table::{paragraph, seconds};
use crate::turns;

pub use case::{BITS, By, Load, Setup, Variant, variants_called};

/// Requests of a generated trace.
const REQUESTS: usize = 100_000;
/// How long users wait that never abort: a request without an answer by then counts as incomplete.
const PATIENCE: Duration = Duration::from_secs(120);
/// A client that is later than this part of the mean with one of a hundred requests is the bottleneck.
const LATE: f64 = 0.2;
/// A client that uses more of a processor than this is the bottleneck.
const BUSY: f64 = 0.9;
/// How a file begins that gzip has compressed.
const GZIP: [u8; 2] = [0x1f, 0x8b];
/// Ends of the classes of sizes.
const CLASSES: [u64; 4] = [1_000, 10_000, 100_000, u64::MAX];

/// Seconds for which requests come, rounds of the comparison of processor time, and rounds in which the rate
/// of the link changes: of the short form and the full one.
const SHORT: (f64, usize, usize) = (20.0, 1, 1);
const FULL: (f64, usize, usize) = (300.0, 9, 3);
/// The variant that the short form leaves out.
const NOT_SHORT: &str = "no aging";

/// Flags of `bench run srpt`. `--only` takes names of variants: FAIR (no gate), bands, SRPT, `no aging` (SRPT
/// in which a large response waits without bound), auto (SRPT that finds the rate), fair, htb and pfifo_fast
/// (the kernel's bands). Without it the first five are played, in the short form all of them but `no aging`.
/// `--window` is for how long requests come at least; workloads are played in whole periods.
#[derive(Clone, Debug, Args)]
pub struct Options {
    /// The short form, at most ten minutes: W1 and a load of 1.2, each once
    #[arg(long)]
    short: bool,
    /// The loads: W1 to W10, or a constant part of the link such as 1.2
    #[arg(long, value_name = "LOAD,…", value_delimiter = ',')]
    loads: Vec<Load>,
    /// What is between server and clients: A nothing, B100 a round trip of 100 ms, C5 loss of 5 %, D both,
    /// E5 five requests a connection, F0.5 a first time-out of TCP of half a second, H10 users that abort
    /// after ten seconds (three retries), I536 small packets, J7 all of D, E5 and H7
    #[arg(long, value_name = "SETUP,…", value_delimiter = ',', default_value = "A")]
    setups: Vec<Setup>,
    /// Rounds of the comparison of processor time with and without an uplink
    #[arg(long)]
    cost_rounds: Option<usize>,
    /// Rounds in which the link's rate is halved and doubled under a gate that finds it
    #[arg(long)]
    follow_rounds: Option<usize>,
    /// A trace instead of the World Cup's sizes, perhaps compressed by gzip: lines of seconds, bytes and
    /// perhaps status, behind a heading
    #[arg(long)]
    trace: Option<PathBuf>,
    /// Measure nothing, and draw the factors of these files beside the paper's (srpt.json of earlier runs)
    #[arg(long, value_name = "FILE,…", value_delimiter = ',')]
    from: Vec<PathBuf>,
    /// What all experiments without a plan have.
    #[command(flatten)]
    pub turns: turns::Flags,
}

/// A load with a setup.
#[derive(Clone, Debug)]
struct Case {
    load: String,
    setup: Setup,
    /// For how long requests came.
    seconds: u64,
}

/// The figures of one cell.
#[derive(Clone, Debug, Serialize)]
pub struct Cell {
    /// Requests that were due.
    pub requests: usize,
    /// Mean response time of those that came whole, in seconds.
    pub mean: f64,
    /// Mean response time of all, in seconds: what didn't come whole counts with what its user waited.
    pub mean_of_all: f64,
    /// Squared coefficient of variation of their response times.
    pub squared_variation: f64,
    /// Mean time to the first byte, in seconds.
    pub first_byte: f64,
    /// The times that half, 90, 99 and 99.9 % keep, in seconds.
    pub quantiles: [f64; 4],
    /// Mean response time by class of sizes: up to 1, 10, 100 KB, and above.
    pub by_size: [f64; 4],
    /// Mean of response times, each divided by what its bytes take on the link.
    pub slowdown: f64,
    /// Mean response time of the largest hundredth, in seconds.
    pub largest: f64,
    /// Response time of the largest, in seconds.
    pub very_largest: f64,
    /// Response times of the largest hundredth of all requests, the largest first, in seconds.
    pub of_largest: Vec<Option<f64>>,
    /// What these take where all share alike, in seconds: on a link of bytes alone, or in the simulator if
    /// there is a wide-area network behind the link; the mean and the most of several runs.
    pub fair_of_largest: Vec<Option<[f64; 2]>>,
    /// The part of requests that didn't come whole.
    pub incomplete: f64,
    /// How often users tried again.
    pub retries: u64,
    /// Most connections at the server.
    pub connections: usize,
    /// Connections that the server's kernel refused.
    pub refused: u64,
    /// Packets that found the link's queue full.
    pub dropped: u64,
    /// Bytes that the link sent while requests came.
    pub sent: u64,
    /// Most memory of the gate, in bytes; zero without a gate.
    pub memory: u64,
    /// Processor time of the server, and of the gate before it, for each response, in seconds.
    pub cost: f64,
    /// How late the client was: the 99th percentile and the most, in seconds.
    pub late: [f64; 2],
    /// Processors that the client used.
    pub client_cpu: f64,
    /// Mean response time of the same requests in the simulator, in seconds: of those that came whole.
    pub simulated: f64,
    /// The simulated mean of all of them, as `mean_of_all`.
    pub simulated_of_all: f64,
    /// The part that didn't come whole in the simulator.
    pub simulated_incomplete: f64,
    /// Mean response time under an order that knows all sizes, on a link with neither TCP nor connections, in
    /// seconds.
    pub clairvoyant: f64,
    /// Mean response time and time to the first byte of those sent in each second.
    pub over_time: Vec<[f64; 2]>,
    /// Connections after each second.
    pub connections_over_time: Vec<usize>,
    /// Memory of the gate after each second, in bytes; empty without a gate.
    pub memory_over_time: Vec<u64>,
}

impl Cell {
    fn of(
        outcome: &OpenRuns,
        (requests, setup): (&[Download], Setup),
        length: Duration,
        seen: laboratory::Seen,
    ) -> Self {
        let mut served =
            Served { responses: requests.iter().map(unanswered).collect(), seconds: seen.seconds };
        let mut retries = 0;
        for (record, number) in &outcome.records {
            retries += u64::from(record.retries);
            if record.outcome == Outcome::Completed {
                let response = &mut served.responses[*number];
                response.response = Some(record.response.as_secs_f64());
                response.first_byte = outcome.first_bytes[*number].map(|time| time.as_secs_f64());
            }
        }
        let digest = Digest::of(&served, length);
        let whole = served.times().count().max(1) as f64;
        let last = served.seconds.last().copied().unwrap_or_default();
        Self {
            requests: requests.len(),
            mean: digest.mean,
            mean_of_all: case::mean_of_all(&served, setup),
            squared_variation: digest.squared_variation,
            first_byte: digest.first_byte,
            quantiles: digest.quantiles,
            by_size: by_size(&served),
            slowdown: slowdown(&served),
            largest: digest.largest,
            very_largest: digest.very_largest.1,
            of_largest: digest.of_largest.clone(),
            fair_of_largest: Vec::new(),
            incomplete: digest.incomplete,
            retries,
            connections: digest.connections(),
            refused: last.refused,
            dropped: seen.dropped,
            sent: digest.after(length.as_secs()).sent,
            memory: seen.memory.iter().copied().max().unwrap_or_default(),
            memory_over_time: seen.memory,
            cost: outcome.used / whole,
            late: [outcome.lag_p99.as_secs_f64(), outcome.lag_max.as_secs_f64()],
            client_cpu: outcome.client_cpu,
            simulated: f64::NAN,
            simulated_of_all: f64::NAN,
            simulated_incomplete: f64::NAN,
            clairvoyant: f64::NAN,
            over_time: digest.over_time,
            connections_over_time: served.seconds.iter().map(|second| second.connections).collect(),
        }
    }

    /// How many times longer than on a fair link the slowest of the largest hundredth took, of those that
    /// came whole: in means of that link's runs, and in their most.
    pub fn slowest_of_largest(&self) -> [f64; 2] {
        let pairs = self.of_largest.iter().zip(&self.fair_of_largest);
        let times: Vec<_> = pairs.filter_map(|(one, fair)| Some(((*one)?, (*fair)?))).collect();
        [0, 1].map(|at| times.iter().map(|(one, fair)| one / fair[at]).fold(f64::NAN, f64::max))
    }

    /// The part of the largest hundredth that didn't come whole.
    pub fn incomplete_of_largest(&self) -> f64 {
        self.of_largest.iter().filter(|time| time.is_none()).count() as f64 / self.of_largest.len() as f64
    }

    /// Whether the client itself was the bottleneck.
    pub fn is_client_slow(&self) -> bool {
        self.late[0] > LATE * self.mean || self.client_cpu > BUSY
    }

    fn in_a_line(&self) -> String {
        format!(
            "mean {} (of all {}), C² {:.1}, largest 1 % {}, first byte {}, {} connections, {:.2} % incomplete; simulated {} ({}), {:.2} %{}",
            seconds(self.mean),
            seconds(self.mean_of_all),
            self.squared_variation,
            seconds(self.largest),
            seconds(self.first_byte),
            self.connections,
            100.0 * self.incomplete,
            seconds(self.simulated),
            seconds(self.simulated_of_all),
            100.0 * self.simulated_incomplete,
            if self.is_client_slow() { "; the client was slow" } else { "" },
        )
    }
}

fn unanswered(request: &Download) -> Response {
    Response { at: request.at.as_secs_f64(), bytes: request.bytes, first_byte: None, response: None }
}

fn by_size(served: &Served) -> [f64; 4] {
    let mut from = 0;
    CLASSES.map(|to| {
        let of_it = |one: &&Response| (from..to).contains(&one.bytes);
        let times: Vec<f64> = served.responses.iter().filter(of_it).filter_map(|one| one.response).collect();
        from = to;
        crate::stats::mean(&times)
    })
}

fn slowdown(served: &Served) -> f64 {
    let link = case::counted(Setup::BASELINE);
    let alone = |bytes: u64| link.on_the_link(bytes) as f64 * 8.0 / link.bits;
    let slower = |one: &Response| Some(one.response? / alone(one.bytes));
    crate::stats::mean(&served.responses.iter().filter_map(slower).collect::<Vec<_>>())
}

/// Runs the experiment.
///
/// # Errors
/// If there can be no link, a server doesn't start, or the trace can't be read.
pub async fn run(options: &Options, display: &Display) -> Result<String, Error> {
    if !options.from.is_empty() {
        return factors::draw(&options.from, &options.turns.directory("srpt")?);
    }
    let mut variants = variants_called(&options.turns.only).map_err(Error::Experiment)?;
    if options.short && options.turns.only.is_empty() {
        variants.retain(|variant| variant.name != NOT_SHORT);
    }
    let (usual, cost_rounds, follow_rounds) = if options.short { SHORT } else { FULL };
    let mut loads = options.loads.clone();
    if loads.is_empty() {
        loads.extend((1..=if options.short { 1 } else { 10 }).map(Load::Workload));
        loads.push(Load::Persistent(1.2));
        loads.extend((!options.short).then_some(Load::Persistent(1.4)));
    }
    let trace = trace(options)?;
    let names: Vec<&str> = variants.iter().map(|variant| variant.name).collect();
    let mut report = options.turns.report("srpt", &names, report::ROWS)?;
    let (mut cases, mut is_slow): (Vec<Case>, bool) = (Vec::new(), false);
    for (load, setup) in loads.iter().flat_map(|&load| options.setups.iter().map(move |&setup| (load, setup)))
    {
        let length = load.whole(options.turns.window(usual));
        let requests = Arc::new(load.phases().replay(&case::counted(setup), &trace, length));
        let case = Case { load: load.to_string(), setup, seconds: length.as_secs() };
        let name = format!("{load}, setup {setup}, {} requests in {} s", requests.len(), case.seconds);
        let times = (options.turns.rounds(1), length + length / 4);
        let section = report
            .measure(&name, times, display, async |at| {
                cell(variants[at.variant], setup, &requests, length, (options.turns.cpu, display)).await
            })
            .await?;
        is_slow |= section.turns.iter().flatten().any(Cell::is_client_slow);
        let picture = report::plot(&case, section, &names);
        report.draw(&format!("srpt-{load}-{setup}.svg"), &picture)?;
        cases.push(case);
        for (name, picture) in curves::pictures(&report.variants, &cases, &report.sections) {
            report.draw(&name, &picture)?;
        }
    }
    let mut text = report.table();
    if is_slow {
        text += &paragraph(
            "In some cells the client itself was slow: it was late by more than a fifth of the mean, or used more than 0.9 of its processor.",
        );
    }
    match options.cost_rounds.unwrap_or(cost_rounds) {
        0 => {}
        rounds => text += &cost::measure(rounds, &options.turns, display).await?,
    }
    match options.follow_rounds.unwrap_or(follow_rounds) {
        0 => {}
        rounds => text += &follow::measure(rounds, &trace, &options.turns, display).await?,
    }
    Ok(text)
}

/// One variant under one load with one setup.
async fn cell(
    variant: Variant,
    setup: Setup,
    requests: &Arc<Vec<Download>>,
    length: Duration,
    (cpu, display): (Option<usize>, &Display),
) -> Result<Cell, Error> {
    let (outcome, seen) = laboratory::play(variant, setup, requests, cpu).await?;
    if let Some(failure) = &outcome.first_failure {
        display.say(&format!("    a request failed: {failure}"));
    }
    let mut cell = Cell::of(&outcome, (requests, setup), length, seen);
    let same = Arc::clone(requests);
    let expected = blocking(move || Ok(case::in_the_simulator(variant, setup, &same, length))).await?;
    [cell.simulated, cell.simulated_of_all] = expected.mean;
    (cell.simulated_incomplete, cell.clairvoyant) = (expected.incomplete, expected.clairvoyant);
    cell.fair_of_largest = expected.fair;
    display.say(&format!("    {:8} {}", variant.name, cell.in_a_line()));
    Ok(cell)
}

/// The trace that loads are made of.
fn trace(options: &Options) -> Result<Vec<Download>, Error> {
    let Some(path) = &options.trace else {
        return Ok(poisson(&Bytes::WorldCup, REQUESTS, options.turns.seed));
    };
    let name = path.display();
    let said = |problem: String| Error::Experiment(format!("{name}: {problem}"));
    let mut bytes = std::fs::read(path).map_err(Error::io(format!("reading {name}")))?;
    if bytes.starts_with(&GZIP) {
        let mut plain = Vec::new();
        let read = MultiGzDecoder::new(&bytes[..]).read_to_end(&mut plain);
        read.map_err(|error| said(format!("it can't be decompressed: {error}")))?;
        bytes = plain;
    }
    let text = String::from_utf8(bytes).map_err(|error| said(error.to_string()))?;
    let requests = read_trace(&text).map_err(|error| said(error.to_string()))?;
    if requests.is_empty() { Err(said("there is no request in it".to_owned())) } else { Ok(requests) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_that_is_late_or_busy_is_the_bottleneck() {
        let is_slow = |milliseconds, client_cpu| {
            let late = Duration::from_millis(milliseconds);
            let outcome = OpenRuns { lag_p99: late, client_cpu, ..OpenRuns::default() };
            let none = (&[][..], Setup::BASELINE);
            let cell = Cell::of(&outcome, none, Duration::from_secs(1), laboratory::Seen::default());
            Cell { mean: 0.1, ..cell }.is_client_slow()
        };
        assert!(!is_slow(10, 0.5));
        assert!(is_slow(30, 0.5));
        assert!(is_slow(10, 0.95));
    }
}
