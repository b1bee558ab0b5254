//! The flash sale's figures, as data.

use std::path::PathBuf;
use std::time::Duration;

use serde::Serialize;
use testbed::database::Database;

use super::FlashSaleOptions;
use super::laboratory::{Laboratory, Measured};
use crate::load::ClosedOutcome;
use crate::shop;
use crate::stats::{Curves, Rounds, Summary};

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
