//! What was measured, as a curve: throughput and requests in flight over the capacity, which is laid out by
//! factors.

use std::path::Path;

use sim::plot::{Curve, Panel, Plot, Scale, Undrawn};
use sim::search::{Point, Search};

use super::table::{capacity, mean_of};

/// Writes the plot.
pub(super) fn write(
    path: &Path,
    search: &Search,
    in_flight: &[(usize, f64)],
    gate: &str,
) -> Result<(), Undrawn> {
    let points = search.points();
    let (first, last) = (points.first(), points.last());
    let least = first.map_or(1.0, |point| point.setting);
    let place = |point: &Point| (point.setting / least).log2();
    let throughput = Curve {
        points: points.iter().map(|point| (place(point), point.mean())).collect(),
        band: points.iter().map(|point| (place(point), point.range().0, point.range().1)).collect(),
    };
    let flight = Curve {
        points: points.iter().map(|point| (place(point), mean_of(in_flight, point.at))).collect(),
        band: Vec::new(),
    };
    let show = |value: f64| format!("{value:.0}");
    let panel = |title: &str, curve| Panel::new(title, Scale::Linear, show, vec![curve]);
    let plot = Plot {
        title: format!("Capacity of the gate {gate}"),
        subtitle: "each point the mean of its measurements; the band from the lowest to the highest"
            .to_owned(),
        variants: vec!["measured".to_owned()],
        marks: None,
        axis: "capacity (work in flight)",
        // A single point still needs an axis.
        seconds: last.map_or(1.0, place).max(1.0),
        panels: vec![
            panel("Requests completed per second", throughput),
            panel("Requests in flight, on average", flight),
        ],
    };
    plot.write_labeled(path, &|place| capacity(two_digits(least * place.exp2())))
}

/// The labels of an axis by factors need no more.
fn two_digits(value: f64) -> f64 {
    let unit = 10f64.powf(value.log10().floor() - 1.0);
    (value / unit).round() * unit
}
