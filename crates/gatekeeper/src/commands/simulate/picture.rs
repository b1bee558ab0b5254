//! The result of a simulation as curves over time: the first seed of each gate.

use config::Experiment;
use sim::Sample;
use sim::plot::{Curve, Panel, Plot, Scale};

use super::Outcome;
use super::table::time;

/// The plot.
pub(super) fn of(experiment: &Experiment, outcomes: &[Outcome], title: &str) -> Plot {
    let first = |variant| outcomes.iter().find(|outcome| outcome.variant == variant);
    let samples: Vec<&[Sample]> = (0..experiment.variants.len())
        .map(|variant| first(variant).map_or(&[][..], |outcome| &outcome.samples))
        .collect();
    let panel = |title: &str, scale, show: fn(f64) -> String, value: fn(&Sample) -> Option<f64>| {
        let point = |sample: &Sample| Some((sample.at.as_nanos() as f64 / 1e9, value(sample)?));
        let curve = |samples: &&[Sample]| Curve {
            points: samples.iter().filter_map(point).collect(),
            band: Vec::new(),
        };
        Panel { title: title.to_owned(), scale, show, curves: samples.iter().map(curve).collect() }
    };
    let count = |value: f64| format!("{value:.0}");
    let seconds = experiment.variants.first().map_or(1.0, |(_, scenario)| scenario.duration.as_secs_f64());
    Plot {
        title: title.to_owned(),
        subtitle: "simulated; the same requests met each gate".to_owned(),
        variants: experiment.variants.iter().map(|(name, _)| name.clone()).collect(),
        axis: "seconds",
        seconds,
        panels: vec![
            panel("Mean response time of what was served", Scale::Logarithmic, time, |sample| {
                (sample.completed > 0).then_some(sample.response_time.as_secs_f64())
            }),
            panel("Served per second", Scale::Linear, count, |sample| {
                Some(sample.completed as f64 / sample.since.as_secs_f64())
            }),
            panel("Requests that wait at the gate", Scale::Linear, count, |sample| {
                Some(sample.queued as f64)
            }),
            panel("Requests in flight", Scale::Linear, count, |sample| Some(sample.in_flight as f64)),
        ],
    }
}
