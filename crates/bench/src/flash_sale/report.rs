//! The flash sale's figures, as data and as a picture: answers, backlog and the short reads' response time
//! over time.

use std::path::PathBuf;
use std::time::Duration;

use serde::Serialize;
use testbed::database::Database;

use super::FlashSaleOptions;
use super::laboratory::{Laboratory, Measured};
use crate::load::ClosedOutcome;
use crate::shop;
use crate::stats::{Curves, Rounds, Summary};
use crate::table::{count, seconds};
use sim::plot::{Curve, Panel, Plot, Scale};

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

/// The picture of the sale.
pub(super) fn picture(report: &Report) -> Plot {
    let variants = &report.sale.variants;
    let panel =
        |title: &str, scale, show: fn(f64) -> String, values: fn(&RoundReport) -> Vec<Option<f64>>| {
            Panel::new(title, scale, show, variants.iter().map(|variant| curve(variant, values)).collect())
        };
    Plot {
        title: "A flash sale at 1.3 times what the database can take at its best".to_owned(),
        subtitle: format!(
            "{} requests/s; {} connections direct, {} to a gate; {} on one core; medians of {} rounds, bands: lowest to highest",
            count(report.sale.rate),
            count(report.connections as f64),
            count(report.gate_connections as f64),
            report.database.name(),
            variants[0].rounds.len()
        ),
        variants: variants.iter().map(|variant| format!("{} ({})", variant.label, variant.note)).collect(),
        marks: None,
        axis: "seconds since the first arrival",
        seconds: report.window_seconds,
        panels: vec![
            panel("Answers per second", Scale::Linear, count, |round| some(&round.curves.throughput)),
            panel("Requests waiting or being served", Scale::Linear, count, |round| {
                some(&round.curves.backlog)
            }),
            panel(
                "Mean response time of short reads, by time of arrival (logarithmic)",
                Scale::Logarithmic,
                short_seconds,
                |round| round.curves.response_seconds.clone(),
            ),
        ],
    }
}

fn some(values: &[f64]) -> Vec<Option<f64>> {
    values.iter().copied().map(Some).collect()
}

/// A power of ten as an axis shows it: `1 ms`, not `1.00 ms`.
fn short_seconds(value: f64) -> String {
    seconds(value).replace(".00", "").replace(".0 ", " ")
}

fn curve(variant: &VariantReport, values: fn(&RoundReport) -> Vec<Option<f64>>) -> Curve {
    let rounds: Vec<Vec<Option<f64>>> = variant.rounds.iter().map(values).collect();
    let times = variant.rounds.first().map_or(&[][..], |round| &round.curves.seconds);
    let mut curve = Curve::default();
    for (position, &time) in times.iter().enumerate() {
        let here: Vec<f64> =
            rounds.iter().filter_map(|round| round.get(position).copied().flatten()).collect();
        if here.is_empty() {
            continue;
        }
        let Rounds { median, low, high } = Rounds::of(&here);
        curve.points.push((time, median));
        if here.len() > 1 {
            curve.band.push((time, low, high));
        }
    }
    curve
}
