//! The flash sale as a picture: answers, backlog and the short reads' response time over time.

use super::report::{Report, RoundReport, VariantReport};
use crate::stats::Rounds;
use crate::table::{count, seconds};
use sim::plot::{Curve, Panel, Plot, Scale};

/// The picture of the sale.
pub(super) fn of(report: &Report) -> Plot {
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
