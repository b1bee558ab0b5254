//! The result of a simulation as curves: over time, of the first seed of each gate; or over what is swept,
//! with the mean of all seeds.

use std::borrow::Cow;

use scenario::{Experiment, Sweep};
use sim::plot::{Curve, Panel, Plot, Scale};
use sim::{Sample, Summary};

use super::Outcome;
use crate::commands::table::tick;

/// The plot.
pub(in crate::commands) fn of(experiment: &Experiment, outcomes: &[Outcome], title: &str) -> Plot {
    match &experiment.sweep {
        Some(sweep) => over_points(experiment, sweep, outcomes, title),
        None => {
            let subtitle = "simulated; the same requests met each gate";
            over_time(experiment, curves(experiment, outcomes), (title, subtitle))
        }
    }
}

/// The plot, with what was recorded as the first curve; `recorded` takes samples at the same instants.
pub(in crate::commands) fn with_recorded(
    experiment: &Experiment,
    outcomes: &[Outcome],
    title: &str,
    recorded: impl FnOnce(&[Sample]) -> Vec<Sample>,
) -> Plot {
    let mut curves = curves(experiment, outcomes);
    let first = recorded(curves.first().map_or(&[][..], |(_, samples)| samples));
    curves.insert(0, ("recorded", first.into()));
    over_time(experiment, curves, (title, "recorded, and simulated with the same requests"))
}

/// What is drawn of each variant.
type Curves<'a> = Vec<(&'a str, Cow<'a, [Sample]>)>;

fn curves<'a>(experiment: &'a Experiment, outcomes: &'a [Outcome]) -> Curves<'a> {
    let first = |variant| outcomes.iter().find(|outcome| outcome.variant == variant);
    let of = |(variant, (name, _)): (usize, &'a (String, sim::Scenario))| {
        let samples = first(variant).map_or(&[][..], |outcome| &outcome.samples);
        (name.as_str(), Cow::Borrowed(samples))
    };
    experiment.variants.iter().enumerate().map(of).collect()
}

fn over_points(experiment: &Experiment, sweep: &Sweep, outcomes: &[Outcome], title: &str) -> Plot {
    let values = sweep.points();
    let mean = |variant: usize, point: usize, of: fn(&Summary) -> f64| {
        let here = outcomes.iter().filter(|outcome| (outcome.variant, outcome.point) == (variant, point));
        let (sum, count) =
            here.fold((0.0, 0.0), |(sum, count), outcome| (sum + of(&outcome.summary), count + 1.0));
        sum / count
    };
    let panel = |title: &str, show: fn(f64) -> String, of: fn(&Summary) -> f64| {
        let curve = |variant| Curve {
            points: values.iter().enumerate().map(|(at, &value)| (value, mean(variant, at, of))).collect(),
            band: Vec::new(),
        };
        let curves = (0..experiment.variants.len()).map(curve).collect();
        Panel::new(title, Scale::Linear, show, curves)
    };
    let count = |value: f64| format!("{value:.0}");
    Plot {
        title: title.to_owned(),
        subtitle: "simulated; the same requests met each gate".to_owned(),
        variants: experiment.variants.iter().map(|(name, _)| name.clone()).collect(),
        marks: None,
        axis: sweep.axis(),
        seconds: values.iter().copied().fold(0.0, f64::max),
        panels: vec![
            panel("Served per second", count, |summary| summary.overall.throughput),
            panel("Mean response time of what was served", tick, |summary| summary.overall.response.mean),
            panel("Mean over all, those too that were refused or gave up", tick, |summary| {
                summary.overall.endured.mean
            }),
            panel("Requests in flight", count, |summary| summary.in_flight),
        ],
    }
}

fn over_time(experiment: &Experiment, curves: Curves<'_>, (title, subtitle): (&str, &str)) -> Plot {
    let panel = |title: &str, scale, show: fn(f64) -> String, value: fn(&Sample) -> Option<f64>| {
        let point = |sample: &Sample| (sample.at.as_nanos() as f64 / 1e9, value(sample));
        let curve = |(_, samples): &(&str, Cow<'_, [Sample]>)| Curve::with_gaps(samples.iter().map(point));
        Panel::new(title, scale, show, curves.iter().map(curve).collect())
    };
    let count = |value: f64| format!("{value:.0}");
    let seconds = experiment.variants.first().map_or(1.0, |(_, scenario)| scenario.duration.as_secs_f64());
    Plot {
        title: title.to_owned(),
        subtitle: subtitle.to_owned(),
        variants: curves.iter().map(|(name, _)| (*name).to_owned()).collect(),
        marks: None,
        axis: "seconds",
        seconds,
        panels: vec![
            panel("Mean response time of what was served", Scale::Logarithmic, tick, |sample| {
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
