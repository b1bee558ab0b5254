//! The flash sale's figures: as data for machines, and as a table.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Serialize;

use super::laboratory::{Laboratory, Measured};
use super::{FlashSaleOptions, judgment, picture};
use crate::Error;
use crate::database::Database;
use crate::load::ClosedOutcome;
use crate::shop;
use crate::stats::{Curves, Responses, Rounds, Summary};
use crate::table::{self, Figures};

/// How finely the curves are drawn.
const CURVE_STEP: Duration = Duration::from_millis(125);

/// One turn of one variant.
#[derive(Clone, Debug, Serialize)]
pub struct RoundReport {
    /// What the clients saw.
    pub summary: Summary,
    /// Processors that the server used.
    pub server_cpu: f64,
    /// Requests answered per second of the server's processor time, until the last had ended. Where other
    /// programs use the server's processor this tells more than the throughput.
    pub efficiency: f64,
    /// Processors that the gatekeeper used.
    pub gate_cpu: f64,
    /// Processors that the client used.
    pub client_cpu: f64,
    /// Part of the server's processor that other programs used.
    pub disturbance: f64,
    /// How late the client sent its requests, 99th percentile.
    pub client_lag_p99_seconds: f64,
    /// Connections that had to be opened again.
    pub reopened: usize,
    /// What the first failed request was told.
    pub first_failure: Option<String>,
    /// Throughput, backlog and the short reads' response time over time.
    pub curves: Curves,
}

/// All turns of one variant.
#[derive(Clone, Debug, Serialize)]
pub struct VariantReport {
    /// What it is called.
    pub label: String,
    /// What it gives, in a few words.
    pub note: String,
    /// Its turns.
    pub rounds: Vec<RoundReport>,
}

impl VariantReport {
    /// A figure of every round, summarized.
    pub fn rounds(&self, figure: impl Fn(&RoundReport) -> f64) -> Rounds {
        Rounds::of(&self.rounds.iter().map(figure).collect::<Vec<_>>())
    }

    /// The median over the rounds.
    pub fn median(&self, figure: impl Fn(&RoundReport) -> f64) -> f64 {
        self.rounds(figure).median
    }
}

/// One load and what every variant made of it.
#[derive(Clone, Debug, Serialize)]
pub struct Section {
    /// Requests offered per second.
    pub rate: f64,
    /// The variants, direct first, the default gate last.
    pub variants: Vec<VariantReport>,
}

/// The whole experiment.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// The database that sold.
    pub database: Database,
    /// Connections of the application straight to the database.
    pub connections: usize,
    /// Connections of the application to a gate.
    pub gate_connections: usize,
    /// How long requests arrived in each turn of the sale, in seconds.
    pub window_seconds: f64,
    /// The clients' time-out, in seconds.
    pub timeout_seconds: f64,
    /// What the arrivals were drawn from.
    pub seed: u64,
    /// How long a report takes alone, in seconds.
    pub report_alone_seconds: f64,
    /// Names of the request types, in the order of the figures.
    pub types: Vec<String>,
    /// What direct clients reached in a closed loop.
    pub calibration: Vec<ClosedOutcome>,
    /// The sale.
    pub sale: Section,
    /// The quiet load.
    pub quiet: Section,
    /// Where the plot is.
    pub plot: PathBuf,
    /// Where these figures are.
    pub figures: PathBuf,
}

impl Report {
    pub(super) fn new(
        options: &FlashSaleOptions,
        laboratory: &Laboratory,
        calibration: Vec<ClosedOutcome>,
        sale: (f64, Vec<Vec<Measured>>),
        quiet: (f64, Vec<Vec<Measured>>),
    ) -> Self {
        let label = |position: usize| {
            let variant = &laboratory.variants[position];
            (variant.label.clone(), variant.note.clone())
        };
        let last = laboratory.variants.len() - 1;
        Self {
            database: options.database,
            connections: options.connections,
            gate_connections: options.gate_connections,
            window_seconds: options.window.as_secs_f64(),
            timeout_seconds: options.timeout.as_secs_f64(),
            seed: options.seed,
            report_alone_seconds: laboratory.report_alone.as_secs_f64(),
            types: laboratory.mix.types().iter().map(|request_type| request_type.name.clone()).collect(),
            calibration,
            sale: section(sale, label),
            quiet: section(quiet, |position| label(if position == 0 { 0 } else { last })),
            plot: options.output.join("flash-sale.svg"),
            figures: options.output.join("flash-sale.json"),
        }
    }

    /// Writes the plot and the figures.
    pub(super) fn write(&self, output: &Path) -> Result<(), Error> {
        fs::create_dir_all(output).map_err(Error::io(format!("creating {}", output.display())))?;
        let json = serde_json::to_string_pretty(self)
            .map_err(|error| Error::Experiment(format!("the figures can't be written as JSON: {error}")))?;
        fs::write(&self.figures, json).map_err(Error::io(format!("writing {}", self.figures.display())))?;
        Ok(picture::of(self).write(&self.plot)?)
    }

    /// Everything that a person wants to read: tables, judgment, caveats, and where the rest is.
    pub fn text(&self) -> String {
        let mut text = format!("\n  The sale at {}/s\n", table::count(self.sale.rate));
        text.push_str(&indented(&self.sale_table()));
        text.push_str(
            "  Medians of the rounds (lowest … highest). All requests count; one that wasn't answered is\n  \
             charged the full time-out. Answered: while requests were still arriving.\n",
        );
        text.push_str(&format!("\n  A quiet load of {}/s\n", table::count(self.quiet.rate)));
        text.push_str(&indented(&self.quiet_table()));
        text.push('\n');
        for sentence in judgment::sentences(self).into_iter().chain(judgment::caveats(self)) {
            text.push_str(&table::paragraph(&sentence));
        }
        text.push_str(&format!("\n  Plot     {}\n", self.plot.display()));
        text.push_str(&format!("  Figures  {}\n", self.figures.display()));
        text
    }

    fn sale_table(&self) -> String {
        let variants = &self.sale.variants;
        let mut figures = Figures::new(&headings(variants));
        let row = |figures: &mut Figures,
                   label: &str,
                   show: fn(f64) -> String,
                   of: &dyn Fn(&RoundReport) -> f64| {
            figures.row(label, variants.iter().map(|variant| table::spread(variant.rounds(of), show)));
        };
        row(&mut figures, "answered per second", table::count, &|round| round.summary.throughput);
        let direct = variants[0].median(|round| round.summary.throughput);
        figures.row(
            "  times direct",
            variants
                .iter()
                .map(|variant| table::ratio(variant.median(|round| round.summary.throughput) / direct)),
        );
        row(&mut figures, "answered per second of its CPU time", table::count, &|round| round.efficiency);
        row(&mut figures, "answered within 1 s, per second", table::count, &|round| round.summary.goodput);
        row(&mut figures, "waiting at the end", table::count, &|round| round.summary.backlog_end as f64);
        row(&mut figures, "waiting at most", table::count, &|round| round.summary.backlog_max as f64);
        figures.heading("mean response time");
        row(&mut figures, "  all requests", table::seconds, &|round| round.summary.overall.mean_seconds);
        for (number, name) in self.types.iter().enumerate() {
            let of = move |round: &RoundReport| round.summary.types[number].mean_seconds;
            row(&mut figures, &format!("  {name}"), table::seconds, &of);
        }
        figures.heading("95th percentile");
        row(&mut figures, "  all requests", table::seconds, &|round| round.summary.overall.p95_seconds);
        for (number, name) in self.types.iter().enumerate() {
            let of = move |round: &RoundReport| round.summary.types[number].p95_seconds;
            row(&mut figures, &format!("  {name}"), table::seconds, &of);
        }
        let part = |count: fn(&Responses) -> usize| {
            variants.iter().map(move |variant| {
                let of = |round: &RoundReport| {
                    100.0 * count(&round.summary.overall) as f64 / round.summary.overall.arrived.max(1) as f64
                };
                format!("{:.1} %", variant.median(of))
            })
        };
        figures.row("timed out", part(|responses| responses.timed_out));
        figures.row("refused or failed", part(|responses| responses.rejected + responses.failed));
        figures.to_string()
    }

    fn quiet_table(&self) -> String {
        let variants = &self.quiet.variants;
        let mut figures = Figures::new(&headings(variants));
        let row = |figures: &mut Figures,
                   label: &str,
                   show: fn(f64) -> String,
                   of: &dyn Fn(&RoundReport) -> f64| {
            figures.row(label, variants.iter().map(|variant| table::spread(variant.rounds(of), show)));
        };
        row(&mut figures, "answered per second", table::count, &|round| round.summary.throughput);
        row(&mut figures, "mean response time", table::seconds, &|round| round.summary.overall.mean_seconds);
        for number in [shop::ORDER, shop::READ].map(usize::from) {
            let of = move |round: &RoundReport| round.summary.types[number].p50_seconds;
            row(&mut figures, &format!("  {}, median", self.types[number]), table::seconds, &of);
        }
        row(&mut figures, "95th percentile", table::seconds, &|round| round.summary.overall.p95_seconds);
        figures.to_string()
    }
}

fn headings(variants: &[VariantReport]) -> Vec<String> {
    variants.iter().map(|variant| format!("{}\n({})", variant.label, variant.note)).collect()
}

fn section((rate, turns): (f64, Vec<Vec<Measured>>), label: impl Fn(usize) -> (String, String)) -> Section {
    let variants = turns
        .into_iter()
        .enumerate()
        .map(|(position, rounds)| {
            let (label, note) = label(position);
            VariantReport { label, note, rounds: rounds.into_iter().map(round).collect() }
        })
        .collect();
    Section { rate, variants }
}

fn round(measured: Measured) -> RoundReport {
    RoundReport {
        curves: Curves::of(&measured.outcome, shop::READ, CURVE_STEP),
        summary: measured.summary,
        server_cpu: measured.server_cpu,
        efficiency: measured.efficiency,
        gate_cpu: measured.gate_cpu,
        client_cpu: measured.outcome.client_cpu,
        disturbance: measured.disturbance,
        client_lag_p99_seconds: measured.outcome.lag_p99.as_secs_f64(),
        reopened: measured.outcome.reopened,
        first_failure: measured.outcome.first_failure,
    }
}

fn indented(block: &str) -> String {
    block.lines().map(|line| format!("  {line}\n")).collect()
}
