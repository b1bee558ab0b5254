//! The result of a simulation as text: the service, a line for each gate, and the mean response time of each
//! type.

use std::fmt::Write as _;

use scenario::{Experiment, Sweep};
use sim::{Figures, Service, Times};

use super::Outcome;
use crate::commands::table::{cut, lines, plain, time};

/// The longest name that is shown, in characters.
const NAME_CHARS_MAX: usize = 18;

/// Both tables. Where there are several seeds, figures are means over them.
pub(super) fn of(experiment: &Experiment, outcomes: &[Outcome]) -> String {
    let mut text = service(experiment) + "\n";
    text += &overall(experiment, outcomes);
    text.push('\n');
    if experiment.sweep.is_none() {
        text += &by_type(experiment, outcomes);
        text.push('\n');
    }
    let one = outcomes.first().map(|outcome| &outcome.summary);
    let seconds = one.map_or(0.0, |summary| summary.window);
    let seeds =
        if experiment.seeds == 1 { "1 seed".to_owned() } else { format!("{} seeds", experiment.seeds) };
    let trace = outcomes.iter().fold(0u64, |folded, outcome| folded.rotate_left(7) ^ outcome.trace);
    // Writing to a string cannot fail.
    let _ =
        writeln!(text, "{seconds} s measured, {seeds}; the same requests met each gate; trace {trace:016x}");
    text
}

/// What serves, and whether its cores are a guess.
fn service(experiment: &Experiment) -> String {
    let Some((_, scenario)) = experiment.variants.first() else { return String::new() };
    let (what, one) = match scenario.upstream.service {
        Service::Sharing { .. } | Service::Weighted { .. } => ("a service that shares", "core"),
        Service::Fifo { .. } | Service::ShortestFirst { .. } | Service::ShortestRemaining { .. } => {
            ("a service of", "server")
        }
    };
    let (cores, guess) = match (&experiment.sweep, experiment.cores_are_told) {
        (Some(Sweep::Cores(_)), _) => return format!("{what} as many {one}s as each line says\n"),
        (_, true) => (scenario.upstream.cores(), ""),
        (_, false) => (scenario.upstream.cores(), ": a guess, so name them (`cores` in [upstream])"),
    };
    format!("{what} {cores} {one}{}{guess}\n", if cores == 1 { "" } else { "s" })
}

fn overall(experiment: &Experiment, outcomes: &[Outcome]) -> String {
    let mut table = plain();
    let axis = experiment.sweep.as_ref().map(Sweep::axis);
    table.set_header(["gate"].into_iter().chain(axis).chain([
        "served/s",
        "in time/s",
        "refused",
        "gave up",
        "mean",
        "±",
        "p50",
        "p95",
        "p99",
        "waiting",
        "in flight",
    ]));
    for (variant, point) in experiment.places() {
        let name = &experiment.variants[variant].0;
        let value = experiment.sweep.as_ref().map(|sweep| sweep.points()[point].to_string());
        let summaries: Vec<_> = outcomes
            .iter()
            .filter(|outcome| (outcome.variant, outcome.point) == (variant, point))
            .map(|outcome| &outcome.summary)
            .collect();
        let mean = |of: &dyn Fn(&sim::Summary) -> f64| {
            summaries.iter().map(|summary| of(summary)).sum::<f64>() / summaries.len().max(1) as f64
        };
        let response = |of: fn(&Times) -> f64| time(mean(&|summary| of(&summary.overall.response)));
        let share = |of: fn(&Figures) -> u64| {
            let part = mean(&|summary| of(&summary.overall) as f64 / summary.overall.arrived.max(1) as f64);
            format!("{:.1}%", part * 100.0)
        };
        // Runs with other seeds are independent: the interval of their mean is narrower by √n.
        let half_width =
            mean(&|summary| summary.overall.response.half_width) / (summaries.len() as f64).sqrt();
        table.add_row([cut(name, NAME_CHARS_MAX)].into_iter().chain(value).chain([
            format!("{:.1}", mean(&|summary| summary.overall.throughput)),
            format!("{:.1}", mean(&|summary| summary.overall.goodput)),
            share(|figures| figures.rejected),
            share(|figures| figures.timed_out),
            response(|times| times.mean),
            time(half_width),
            response(|times| times.p50),
            response(|times| times.p95),
            response(|times| times.p99),
            format!("{:.1}", mean(&|summary| summary.queued)),
            format!("{:.1}", mean(&|summary| summary.in_flight)),
        ]));
    }
    lines(&mut table, 1)
}

fn by_type(experiment: &Experiment, outcomes: &[Outcome]) -> String {
    let Some((_, scenario)) = experiment.variants.first() else { return String::new() };
    let mut table = plain();
    let gates = experiment.variants.iter().map(|(name, _)| cut(name, NAME_CHARS_MAX));
    table.set_header(["mean of those served".to_owned()].into_iter().chain(gates));
    for (at, kind) in scenario.types.iter().enumerate() {
        let cell = |variant: usize| {
            let of_variant = outcomes.iter().filter(|outcome| outcome.variant == variant);
            let (sum, count) = of_variant.fold((0.0, 0.0), |(sum, count), outcome| {
                let response = outcome.summary.types[at].response;
                let served = response.count as f64;
                (sum + response.mean * served, count + served)
            });
            if count == 0.0 { "–".to_owned() } else { time(sum / count) }
        };
        table.add_row(
            [cut(&kind.name, NAME_CHARS_MAX)].into_iter().chain((0..experiment.variants.len()).map(cell)),
        );
    }
    lines(&mut table, 1)
}
