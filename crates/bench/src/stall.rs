//! A site that answers nothing for a minute, and goes on: when is it as fast as before for those that come
//! afterwards?
//!
//! The origin and the pages of [`crate::experiment::origin`], each page a half as long, in an open loop below
//! saturation. The origin's process is stopped (`SIGSTOP`), and goes on a minute later. Three meet the same
//! requests: no gate, a gate that keeps waiting requests in order, and the gate with its defaults. What
//! counts is the 95th percentile of requests after that instant, by their arrival. A request that isn't
//! served counts with its whole patience.
//!
//! A twentieth of the pages is long, so that the percentile of 140 requests is that of a short page or of a
//! long one as chance has it, and jumps by a factor of ten where nothing stands still, too. So in each
//! round the same requests also meet the gate before a site that goes on all the time, and each window is
//! compared with the same window there.

use std::ops::Range;
use std::time::Duration;

use clap::Args;
use serde::Serialize;
use sim::plot::{Panel, Plot, Scale};

use crate::Error;
use crate::alternate::Display;
use crate::http::Mix;
use crate::http::pages::{Arrivals, Visits, behind};
use crate::load::{Outcome, Record};
use crate::stats::percentile;
use crate::table::{paragraph, seconds};
use crate::turns::{self, Report, Row};

/// What a page takes on average, in seconds of a processor.
const MEAN_WORK: f64 = 0.010;
/// The load of the first seconds, in which the gate learns what is short.
const CALM: f64 = 0.5;
/// How long that is.
const CALM_LASTS: f64 = 10.0;
/// How long the load lasts before the stall,
const BEFORE: f64 = 40.0;
/// and for how long the site is watched after it.
const AFTER: f64 = 90.0;
/// Percentiles are of requests that come within such windows.
const WINDOW: f64 = 2.0;
/// The site is back where the percentile is at most so many times that of the same requests without a
/// stall, in the window and over as long as this.
const BACK: f64 = 2.0;
const BACK_FOR: f64 = 10.0;
/// How long a client waits.
const PATIENCE: Duration = Duration::from_secs(60);

/// Flags of `bench run stall`.
#[derive(Clone, Debug, Args)]
pub struct Options {
    /// For how long the site stands still, in seconds
    #[arg(long, default_value = "60", value_parser = turns::time)]
    stall: Duration,
    /// The load, in what the site can do
    #[arg(long, default_value_t = 0.7)]
    load: f64,
    /// What all experiments without a plan have.
    #[command(flatten)]
    pub turns: turns::Flags,
}

/// What stands before the origin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Variant {
    name: &'static str,
    /// The keys of the gate, if it is one.
    keys: Option<&'static [(&'static str, &'static str)]>,
    stalls: bool,
}

/// What is normal: the default gate, before an origin that goes on.
const NORMAL: Variant = Variant { name: "no stall", keys: Some(&[]), stalls: false };
/// Everybody else.
const ALL: [Variant; 3] = [
    Variant { name: "no gate", keys: None, stalls: true },
    Variant { name: "in order", keys: Some(&[("after_stall", "\"in-order\"")]), stalls: true },
    Variant { name: "default", keys: Some(&[]), stalls: true },
];

/// One turn.
#[derive(Clone, Debug, Serialize)]
pub struct Turned {
    /// After how many seconds it is as without a stall; `None`: not while it was watched.
    pub back: Option<f64>,
    /// The 95th percentile of requests that came within the first two seconds after the stall, in seconds.
    pub first: f64,
    /// The part of all that were served, from the stall's beginning on.
    pub served: f64,
    /// When they came, since the end of the stall, and their 95th percentile, in seconds.
    pub curve: Vec<(f64, f64)>,
}

const ROWS: &[Row<Turned>] = &[
    Row::new("95th percentile of the first two seconds after it", |turned| turned.first, seconds),
    Row::new("back after", |turned| turned.back.unwrap_or(f64::INFINITY), back),
    Row::new("served of all since", |turned| turned.served, |part| format!("{:.1} %", 100.0 * part)),
];

fn back(after: f64) -> String {
    if after.is_finite() { format!("{after:.1} s") } else { format!("over {:.0} s", AFTER - BACK_FOR) }
}

/// Runs the experiment.
///
/// # Errors
/// If something doesn't start.
pub async fn run(options: &Options, display: &Display) -> Result<String, Error> {
    let others = ALL.into_iter().filter(|variant| options.turns.has(variant.name));
    let variants: Vec<Variant> = [NORMAL].into_iter().chain(others).collect();
    let (from, to) = (CALM_LASTS + BEFORE, CALM_LASTS + BEFORE + options.stall.as_secs_f64());
    let times = (options.turns.rounds(3), Duration::from_secs_f64(to + AFTER));
    let names: Vec<&str> = variants.iter().map(|variant| variant.name).collect();
    let mut report = options.turns.report("stall", &names, ROWS)?;
    let mut normal = Vec::new();
    report
        .measure("", times, display, async |at| {
            let variant = variants[at.variant];
            let records = one(options, variant, from..to, options.turns.seed + at.round as u64).await?;
            if variant == NORMAL {
                normal.clone_from(&records);
            }
            Ok(Turned::of(&records, &normal, from, to))
        })
        .await?;
    report.draw("stall.svg", &plot(&report, options))?;
    let means = format!(
        "Back: from then on the 95th percentile of {WINDOW} s, and of {BACK_FOR} s, is at most {BACK} times that of the same requests without a stall."
    );
    Ok(report.table() + "\n" + &paragraph(&means))
}

fn plot(report: &Report<Turned>, options: &Options) -> Plot {
    let curves = report.sections.iter().flat_map(|section| section.curves(|turned| turned.curve.clone()));
    let title = "response time, 95th percentile";
    Plot {
        title: format!("A site that has answered nothing for {} s", options.stall.as_secs_f64()),
        subtitle: format!(
            "95th percentiles of {WINDOW} s by arrival, at {} of what it can do; one not served counts {} s",
            options.load,
            PATIENCE.as_secs()
        ),
        variants: report.variants.clone(),
        marks: None,
        axis: "seconds since it goes on",
        seconds: AFTER,
        panels: vec![Panel::new(title, Scale::Logarithmic, seconds, curves.collect())],
    }
}

/// What becomes of the requests of this seed, where the origin stands still within that time if the
/// variant's does.
async fn one(
    options: &Options,
    variant: Variant,
    stall: Range<f64>,
    seed: u64,
) -> Result<Vec<Record>, Error> {
    let steps = [(CALM, CALM_LASTS), (options.load, stall.end + AFTER - CALM_LASTS)];
    let steps = steps.map(|(load, lasts)| (load, Duration::from_secs_f64(lasts)));
    let visits = Visits { mix: Mix::Shopping, mean: MEAN_WORK };
    let arrivals = Arrivals::poisson(visits, &steps, seed)?;
    let within =
        variant.stalls.then(|| Duration::from_secs_f64(stall.start)..Duration::from_secs_f64(stall.end));
    let outcome = arrivals.meet(behind(variant.keys), options.turns.cpu, PATIENCE, within).await?;
    Ok(outcome.records.into_iter().map(|(record, _)| record).collect())
}

/// The 95th percentile of requests that came between these, in seconds.
fn p95(records: &[Record], begin: f64, end: f64) -> f64 {
    let came = records.iter().filter(|record| (begin..end).contains(&record.due.as_secs_f64()));
    let took: Vec<f64> = came.map(|record| record.charged(PATIENCE).as_secs_f64()).collect();
    percentile(&took, 0.95)
}

impl Turned {
    /// The site stood still between these, in seconds since the beginning, and without a stall it would
    /// have been like that.
    fn of(records: &[Record], normal: &[Record], from: f64, to: f64) -> Self {
        let windows = (AFTER / WINDOW) as usize;
        let curve: Vec<(f64, f64)> = (0..windows)
            .map(|window| {
                let begin = window as f64 * WINDOW;
                (begin, p95(records, to + begin, to + begin + WINDOW))
            })
            .collect();
        let is_back = |after: &f64| {
            let begin = to + after;
            [WINDOW, BACK_FOR]
                .into_iter()
                .all(|lasts| p95(records, begin, begin + lasts) <= BACK * p95(normal, begin, begin + lasts))
        };
        // In steps of a fifth of a second.
        let mut steps = (0..((AFTER - BACK_FOR) * 5.0) as usize).map(|step| step as f64 / 5.0);
        let late: Vec<&Record> = records.iter().filter(|record| record.due.as_secs_f64() >= from).collect();
        let served = late.iter().filter(|record| record.outcome == Outcome::Completed).count();
        Self {
            back: steps.find(is_back),
            first: curve.first().map_or(f64::NAN, |(_, p95)| *p95),
            served: served as f64 / late.len().max(1) as f64,
            curve,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Ten a second, each of which takes as long as this says of when it came.
    fn came(took: impl Fn(f64) -> f64) -> Vec<Record> {
        let due = (0..2_000).map(|number| f64::from(number) / 10.0);
        due.map(|due| Record {
            due: Duration::from_secs_f64(due),
            request_type: 0,
            outcome: if took(due).is_finite() { Outcome::Completed } else { Outcome::Rejected },
            response: Duration::from_secs_f64(took(due).min(1.0)),
            retries: 0,
        })
        .collect()
    }

    #[test]
    fn it_is_back_when_who_comes_waits_at_most_twice_as_long_as_without_a_stall() {
        let normal = came(|_| 0.1);
        let after = |took: fn(f64) -> f64, normal: &[Record]| Turned::of(&came(took), normal, 50.0, 110.0);
        let turned = after(|at| if (50.0..125.0).contains(&at) { 0.7 } else { 0.1 }, &normal);
        assert_eq!(turned.first, 0.7);
        let back = turned.back.expect("it is");
        assert!((14.6..=15.0).contains(&back), "{back}");
        let at_once = after(|at| if (50.0..110.0).contains(&at) { f64::INFINITY } else { 0.1 }, &normal);
        assert_eq!(at_once.back, Some(0.0));
        assert!((at_once.served - 0.6).abs() < 0.01, "{}", at_once.served);
        let never = after(|at| if at < 50.0 { 0.1 } else { f64::INFINITY }, &normal);
        assert_eq!((never.back, never.served), (None, 0.0));
        // What takes long at that time without a stall as well is normal.
        let busy = came(|at| if (110.0..115.0).contains(&at) { 0.7 } else { 0.1 });
        let slow = after(|at| if (50.0..115.0).contains(&at) { 0.9 } else { 0.1 }, &busy);
        assert_eq!(slow.back, Some(0.0));
    }
}
