//! What was recorded beside what was simulated, as text.

use std::collections::HashMap;
use std::fmt::Write as _;

use scenario::Experiment;
use sim::Figures;

use super::super::simulate::Outcome;
use super::super::table::{cut, lines, plain, time};
use super::recorded::{End, Recorded, Request};
use super::{Cores, demand};

/// The longest label that is shown, in characters.
const LABEL_CHARS_MAX: usize = 40;

/// What became of some requests; times in seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Line {
    requests: u64,
    served: u64,
    rejected: u64,
    /// Left, canceled, cut off.
    others: u64,
    wait: (f64, f64),
    response: (f64, f64),
}

impl Line {
    /// What was recorded of these.
    fn recorded<'a>(requests: impl Iterator<Item = &'a Request>) -> Self {
        let mut line = Self::default();
        let (mut waits, mut responses) = (Vec::new(), Vec::new());
        for request in requests {
            line.requests += 1;
            match (request.end, request.dispatched, request.ended) {
                (End::Completed, Some(dispatched), Some(ended)) => {
                    line.served += 1;
                    waits.push(dispatched - request.arrived);
                    responses.push(ended - request.arrived);
                }
                (End::Rejected, ..) => line.rejected += 1,
                _ => line.others += 1,
            }
        }
        Self { wait: mean_and_p95(waits), response: mean_and_p95(responses), ..line }
    }

    /// What was simulated.
    pub(super) fn simulated(figures: &Figures) -> Self {
        Self {
            requests: figures.arrived,
            served: figures.completed,
            rejected: figures.rejected,
            others: figures.timed_out + figures.cut_off,
            wait: (figures.wait.mean, figures.wait.p95),
            response: (figures.response.mean, figures.response.p95),
        }
    }
}

fn mean_and_p95(mut nanos: Vec<u64>) -> (f64, f64) {
    if nanos.is_empty() {
        return (f64::NAN, f64::NAN);
    }
    nanos.sort_unstable();
    let mean = nanos.iter().map(|&nanos| nanos as f64).sum::<f64>() / nanos.len() as f64;
    let rank = (nanos.len() as f64 * 0.95).ceil() as usize;
    (mean / 1e9, nanos[rank.clamp(1, nanos.len()) - 1] as f64 / 1e9)
}

/// Both tables, and what is to be known of them.
pub(super) fn of(
    recorded: &Recorded,
    demands: &[Option<f64>],
    cores: Cores,
    experiment: &Experiment,
    outcomes: &[Outcome],
) -> String {
    let mut text = head(recorded, cores);
    if let Some(misfit) = misfit(recorded, outcomes) {
        text += &misfit;
    }
    text.push('\n');
    let cores = cores.count();
    text += &overall(recorded, experiment, outcomes);
    text.push('\n');
    text += &by_type(recorded, demands, cores, experiment, outcomes);
    text
}

/// How far what was replayed may lie from what was recorded, before it is said not to fit.
const MISFIT: f64 = 0.25;
/// Below that no difference matters, in seconds.
const MISFIT_LEAST: f64 = 0.001;

/// What is to be said where the replayed gate has not done what the recorded one did.
fn misfit(recorded: &Recorded, outcomes: &[Outcome]) -> Option<String> {
    let replayed = outcomes.first().map(|outcome| Line::simulated(&outcome.summary.overall))?;
    differences(&Line::recorded(recorded.requests.iter()), &replayed)
}

/// By which part the mean response time of a replay lies off what was recorded, and what is to be said if it
/// doesn't fit.
pub(super) fn misfit_of(requests: &[Request], replayed: &Line) -> (f64, Option<String>) {
    let was = Line::recorded(requests.iter());
    let off = (replayed.response.0 - was.response.0).abs() / was.response.0.max(f64::MIN_POSITIVE);
    (off, differences(&was, replayed))
}

fn differences(was: &Line, is: &Line) -> Option<String> {
    let differ = |a: f64, b: f64| (a - b).abs() > (a.abs().max(b.abs()) * MISFIT).max(MISFIT_LEAST);
    let mut found = Vec::new();
    if differ(was.response.0, is.response.0) {
        let (was, is) = (time(was.response.0), time(is.response.0));
        found.push(format!("a mean response time of {was}, replayed {is}"));
    }
    if was.rejected.abs_diff(is.rejected) as f64 > was.requests as f64 * 0.05 {
        found.push(format!("{} refused, replayed {}", was.rejected, is.rejected));
    }
    (!found.is_empty()).then(|| {
        format!(
            "The replay does not fit what was recorded ({}), so what it says of other gates is not to be believed. Either \
             the service has another number of cores (try --cores), or requests wait for locks, disks or other services \
             (try --service-times measured).\n",
            found.join("; ")
        )
    })
}

/// Words that say where the number of cores comes from.
const fn source(known: Cores) -> &'static str {
    match known {
        Cores::Named(_) => "",
        Cores::Learned(_) => ", as the gate had learned",
        Cores::Guessed(_) => ": a guess, so name them with --cores",
    }
}

fn head(recorded: &Recorded, known: Cores) -> String {
    let cores = known.count();
    let source = source(known);
    let last = recorded.requests.iter().filter_map(|request| request.ended).max().unwrap_or(recorded.from);
    let seconds = last.saturating_sub(recorded.from) as f64 / 1e9;
    let mut text = format!(
        "gate {}: {} requests in {}, replayed on a service that shares {cores} cores{source}\n",
        recorded.header.gate,
        recorded.requests.len(),
        time(seconds)
    );
    if recorded.header.mode == "observe" {
        text += "it only observed: waits and refusals are what it would have decided\n";
    }
    if recorded.lost > 0 {
        let _ =
            writeln!(text, "{} entries are missing: the gate could not write them in time", recorded.lost);
    }
    if recorded.truncated {
        text += "the trace is cut off: what follows the last whole block is missing\n";
    }
    text
}

fn overall(recorded: &Recorded, experiment: &Experiment, outcomes: &[Outcome]) -> String {
    let mut table = plain();
    table.set_header(["gate", "requests", "served", "refused", "other", "wait", "p95", "response", "p95"]);
    let mut row = |name: &str, line: Line| {
        table.add_row([
            name.to_owned(),
            line.requests.to_string(),
            line.served.to_string(),
            line.rejected.to_string(),
            line.others.to_string(),
            time(line.wait.0),
            time(line.wait.1),
            time(line.response.0),
            time(line.response.1),
        ]);
    };
    row("recorded", Line::recorded(recorded.requests.iter()));
    for ((name, _), outcome) in experiment.variants.iter().zip(outcomes) {
        row(name, Line::simulated(&outcome.summary.overall));
    }
    lines(&mut table, 1)
}

/// In each cell the mean queue wait and the mean response time, and how many were refused, if any.
fn by_type(
    recorded: &Recorded,
    demands: &[Option<f64>],
    cores: u32,
    experiment: &Experiment,
    outcomes: &[Outcome],
) -> String {
    let mut kinds: Vec<Vec<&Request>> = vec![Vec::new(); recorded.labels.len()];
    for request in &recorded.requests {
        kinds[request.kind as usize].push(request);
    }
    let company = demand::by_company(&recorded.requests, demands, cores, kinds.len());
    let mut table = plain();
    let names = experiment.variants.iter().map(|(name, _)| name.clone());
    let first = ["wait + upstream time of", "requests", "alone", "shared", "recorded"].map(str::to_owned);
    table.set_header(first.into_iter().chain(names));
    let mut order: Vec<usize> = (0..kinds.len()).filter(|&kind| !kinds[kind].is_empty()).collect();
    let work = |kind: usize| kinds[kind].iter().map(|request| request.upstream as f64).sum::<f64>();
    order.sort_by(|&a, &b| work(b).total_cmp(&work(a)).then(a.cmp(&b)));
    let names = told_apart(&recorded.labels, &order);
    for (kind, name) in order.into_iter().zip(names) {
        let alone = company[kind].map(|mean| mean.map_or_else(|| "–".to_owned(), time));
        let cells = outcomes.iter().map(|outcome| cell(&Line::simulated(&outcome.summary.types[kind])));
        let first = [name, kinds[kind].len().to_string()];
        let known = [cell(&Line::recorded(kinds[kind].iter().copied()))];
        table.add_row(first.into_iter().chain(alone).chain(known).chain(cells));
    }
    lines(&mut table, 1)
}

/// The labels of these types. Types that the gate knew by one label have a number behind it.
fn told_apart(labels: &[String], order: &[usize]) -> Vec<String> {
    let labels = || order.iter().map(|&kind| labels[kind].as_str());
    let mut seen = HashMap::<_, usize>::new();
    let mut names = Vec::new();
    for label in labels() {
        let number = seen.entry(label).and_modify(|number| *number += 1).or_insert(1);
        let is_alone = labels().filter(|other| *other == label).count() == 1;
        let shown = cut(label, LABEL_CHARS_MAX);
        names.push(if is_alone { shown } else { format!("{shown} #{number}") });
    }
    names
}

fn cell(line: &Line) -> String {
    let refused = if line.rejected > 0 { format!(", {} refused", line.rejected) } else { String::new() };
    if line.served == 0 {
        return format!("–{refused}");
    }
    format!("{} + {}{refused}", time(line.wait.0), time((line.response.0 - line.wait.0).max(0.0)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_counts_every_request_once() {
        let at = |end, dispatched, ended| Request {
            kind: 0,
            class: 0,
            arrived: 1_000_000,
            dispatched,
            ended,
            upstream: 0,
            end,
        };
        let requests = [
            at(End::Completed, Some(2_000_000), Some(5_000_000)),
            at(End::Completed, Some(4_000_000), Some(5_000_000)),
            at(End::Rejected, None, Some(9_000_000)),
            at(End::Left, None, Some(9_000_000)),
            at(End::Canceled, Some(2_000_000), Some(5_000_000)),
            at(End::Unfinished, None, None),
        ];
        let line = Line::recorded(requests.iter());
        assert_eq!((line.requests, line.served, line.rejected, line.others), (6, 2, 1, 3));
        assert_eq!((line.wait, line.response), ((0.002, 0.003), (0.004, 0.004)));
        assert_eq!(cell(&line), "2.00ms + 2.00ms, 1 refused");
        assert_eq!(cell(&Line::recorded(requests[2..].iter())), "–, 1 refused");
    }

    #[test]
    fn types_of_one_label_can_be_told_apart() {
        let labels = ["GET /*", "GET /item", "GET /*", "GET /*"].map(str::to_owned);
        assert_eq!(told_apart(&labels, &[2, 1, 0]), ["GET /* #1", "GET /item", "GET /* #2"]);
        assert_eq!(told_apart(&labels, &[3, 1]), ["GET /*", "GET /item"]);
    }

    #[test]
    fn a_replay_that_does_not_fit_says_so() {
        let was = Line { requests: 100, served: 100, response: (0.050, 0.1), ..Line::default() };
        assert_eq!(differences(&was, &Line { response: (0.060, 0.5), ..was }), None);
        let told = differences(&was, &Line { response: (0.090, 0.1), ..was }).unwrap_or_default();
        assert!(told.contains("a mean response time of 50ms, replayed 90ms"), "{told}");
        let told = differences(&was, &Line { rejected: 6, ..was }).unwrap_or_default();
        assert!(told.contains("0 refused, replayed 6"), "{told}");
        let fast = Line { response: (0.0002, 0.0), ..was };
        assert_eq!(differences(&fast, &Line { response: (0.0009, 0.0), ..was }), None, "nobody feels that");
    }

    #[test]
    fn cores_that_nobody_knows_are_said_to_be_a_guess() {
        assert_eq!(source(Cores::Named(2)), "");
        assert_eq!(source(Cores::Guessed(4)), ": a guess, so name them with --cores");
    }
}
