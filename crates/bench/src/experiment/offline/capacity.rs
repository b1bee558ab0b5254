//! A capacity that is found offline: "we run experiments using several relatively large candidate values,
//! […] then perform a binary search" (Gatekeeper, WWW 2004, section 3.1).
//!
//! Which one is tried next, and how often, is [`sim::search`]'s to say, as with `gatekeeper calibrate`.
//! Each measurement is a cell of its own under the most clients of the form, and a line of the results: an
//! interrupted search goes on where it was, since what comes next follows from what was measured.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use sim::search::{Found, Measurement, Plan as Settings, Point, Rounding, Search, Step};

use super::{CAPACITY, costs, most, set, text};
use crate::Error;
use crate::alternate::Display;
use crate::experiment::cell::Cell;
use crate::experiment::complaint::Judge;
use crate::experiment::plan::takes::times;
use crate::experiment::plan::{Form, Plan};
use crate::experiment::results::{Book, Line, Results};
use crate::experiment::runner::Laboratory;
use crate::experiment::words::Time;
use crate::table::count;

/// What stands in the place of a capacity that is looked for.
const CALIBRATED: &str = "calibrated";
/// What stands in the place of the capacity of a named variant; the variant's name follows.
const CALIBRATED_AS: &str = "calibrated as ";
/// Capacities for each factor of two, as with `gatekeeper calibrate`: they differ by 26 %.
const PER_OCTAVE: u32 = 3;
/// How much of a capacity must be in flight for a larger one to make a difference.
const REACHED: f64 = 0.5;
/// Two settings are the same if they differ by no more: a number may lose its last digit in a file.
const SAME: f64 = 1e-9;

/// How a capacity is looked for.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct CapacitySearch {
    /// The smallest that is tried, at least a millisecond.
    pub from: Time,
    /// The largest.
    pub to: Time,
    /// How long each measurement runs before anything counts.
    pub warm_up: Time,
    /// How long it counts.
    pub window: Time,
    /// The most measurements of one capacity, at least 2.
    pub repeats: usize,
    /// The most measurements in all.
    pub measurements: usize,
}

impl CapacitySearch {
    /// With nothing measured; none if there is nothing to try.
    fn begin(&self) -> Option<Search> {
        let (least, most) = (self.from.0.as_secs_f64(), self.to.0.as_secs_f64());
        let settings = Settings::between(least, most, PER_OCTAVE, Rounding::TwoDigits);
        Search::new(Settings { repeats_max: self.repeats, measurements_max: self.measurements, ..settings })
    }

    /// With what was measured for a variant.
    fn replay(&self, results: &Results, variant: &str) -> Option<Search> {
        let mut search = self.begin()?;
        for line in &results.lines {
            let Line::Capacity { variant: whose, seconds, throughput, reached } = line else { continue };
            let at = search.grid().iter().position(|setting| (setting / seconds - 1.0).abs() < SAME);
            if let Some(at) = at.filter(|_| whose == variant) {
                search.record(at, Measurement { throughput: *throughput, reached: *reached });
            }
        }
        Some(search)
    }
}

/// The variant whose capacity a variant has, if it is one that is looked for.
pub(super) fn source<'a>(plan: &'a Plan, variant: &'a str) -> Option<&'a str> {
    let asked = text(plan, variant, CAPACITY)?;
    if asked == CALIBRATED { Some(variant) } else { asked.strip_prefix(CALIBRATED_AS) }
}

/// The variants of a form whose capacity is looked for, each once.
fn searched<'a>(plan: &'a Plan, form: &'a Form) -> Vec<&'a str> {
    let mut sources: Vec<&str> = form.variants.iter().filter_map(|variant| source(plan, variant)).collect();
    sources.sort_unstable();
    sources.dedup();
    sources
}

/// Looks for the capacity of a variant as far as it isn't known; returns it as configurations have it.
pub(super) async fn find(
    plan: &Plan,
    form: &Form,
    variant: &str,
    laboratory: &mut impl Laboratory,
    book: &mut Book,
    display: &Display,
) -> Result<String, Error> {
    let missing =
        || Error::Experiment(format!("{variant}: the plan doesn't say how its capacity is looked for"));
    let asked = form.search.ok_or_else(missing)?;
    let mut search = asked.replay(book.results(), variant).ok_or_else(missing)?;
    let brief = Form { warm_up: asked.warm_up, window: asked.window, ..form.clone() };
    loop {
        let at = match search.next() {
            Step::Settled(found) => return Ok(written(found.chosen)),
            Step::Measure(at) => at,
        };
        let seconds = search.grid()[at];
        display.now(format!("{variant}: a capacity of {}", written(seconds)));
        let mut trial = plan.clone();
        set(&mut trial, variant, CAPACITY, &written(seconds));
        costs::recall(&trial, variant, book.results())?;
        laboratory.adopt(&trial, &brief);
        // Other visitors each time, so that the measurements of one capacity show how much they vary.
        let repetition = u32::try_from(search.measured()).unwrap_or(u32::MAX);
        let cell = Cell { variant: variant.to_owned(), load: most(form, book.results()), repetition };
        let measured = laboratory.measure(&cell, None, None).await?;
        let throughput = measured.clients.throughput;
        let reached = measured.load_seconds.is_none_or(|load| load >= REACHED * seconds);
        display.say(&format!("  {variant}: a capacity of {}: {}/s", written(seconds), count(throughput)));
        search.record(at, Measurement { throughput, reached });
        book.write(Line::Capacity { variant: variant.to_owned(), seconds, throughput, reached })?;
    }
}

/// What is settled for a variant.
fn found(form: &Form, results: &Results, variant: &str) -> Option<(Search, Found)> {
    let search = form.search?.replay(results, variant)?;
    match search.next() {
        Step::Settled(found) => Some((search, found)),
        Step::Measure(_) => None,
    }
}

/// How many measurements of a variant's capacity there are.
fn measured(results: &Results, variant: &str) -> usize {
    let is_its = |line: &&Line| matches!(line, Line::Capacity { variant: whose, .. } if whose == variant);
    results.lines.iter().filter(is_its).count()
}

/// The capacity of a variant, as configurations have it.
pub(super) fn settled(form: &Form, results: &Results, variant: &str) -> Option<String> {
    found(form, results, variant).map(|(_, found)| written(found.chosen))
}

/// The curve of each variant, and what was taken.
pub(super) fn told(plan: &Plan, form: &Form, results: &Results) -> Vec<String> {
    let one = |variant| {
        let (search, found) = found(form, results, variant)?;
        let point = |point: &Point| {
            format!("{} {}/s ({}×)", written(point.setting), count(point.mean()), point.measurements.len())
        };
        let curve: Vec<String> = search.points().iter().map(point).collect();
        let fell = if found.fell { "" } else { "; no larger one did clearly worse" };
        Some(format!(
            "The capacity of `{variant}` was looked for {}: {}. Taken: {}, the middle of what is as good as the best ({} to {}){fell}.",
            most(form, results).phrase(),
            curve.join(", "),
            written(found.chosen),
            written(found.plateau.0),
            written(found.plateau.1),
        ))
    };
    searched(plan, form).into_iter().filter_map(one).collect()
}

/// How long the searches of a form still take at most, as far as is known beforehand.
pub(super) fn takes(plan: &Plan, form: &Form, results: &Results) -> Duration {
    let Some(asked) = form.search else { return Duration::ZERO };
    let brief = Form { warm_up: asked.warm_up, window: asked.window, ..form.clone() };
    let measurements: usize = searched(plan, form)
        .into_iter()
        .filter(|variant| found(form, results, variant).is_none())
        .map(|variant| asked.measurements.saturating_sub(measured(results, variant)))
        .sum();
    times(plan.cell_takes(&brief, most(form, results)), measurements)
}

/// Checks the variants whose capacity is looked for, and how.
pub(super) fn check(plan: &Plan, judge: &mut Judge<'_>) {
    for name in plan.variant.keys() {
        let Some(whose) = source(plan, name) else { continue };
        if text(plan, whose, CAPACITY) != Some(CALIBRATED) {
            let why = format!("`{whose}` is no variant with capacity = \"{CALIBRATED}\"");
            judge.complain(&format!("variant.{name}.{CAPACITY}"), why, None);
        }
    }
    for (name, form) in [("short", &plan.short), ("full", &plan.full)] {
        let path = format!("{name}.search");
        match (form.search, searched(plan, form).first()) {
            (None, Some(variant)) => {
                let hint = "write search = { from = \"50ms\", to = \"60s\", warm_up = \"4s\", window = \"8s\", repeats = 3, measurements = 24 }";
                judge.complain(
                    &path,
                    format!("is missing, and the capacity of `{variant}` is looked for"),
                    Some(hint),
                );
            }
            (Some(_), None) => {
                judge.complain(&path, "is there, and no variant's capacity is looked for", None);
            }
            (Some(search), Some(_)) => check_search(&path, search, judge),
            (None, None) => {}
        }
        if form.search.is_some() && form.clients.is_empty() && form.busy.is_empty() {
            judge.complain(
                &path,
                "needs a closed loop",
                Some("write numbers of clients in `clients`, or parts in `busy`"),
            );
        }
    }
}

fn check_search(path: &str, search: CapacitySearch, judge: &mut Judge<'_>) {
    if search.from.0 < Duration::from_millis(1) || search.to.0 < search.from.0 {
        judge.complain(&format!("{path}.from"), "must be at least 1ms, and at most `to`", None);
    }
    if search.window.0.is_zero() {
        judge.complain(&format!("{path}.window"), "must be more than zero", None);
    }
    if search.repeats < 2 || search.measurements < 2 {
        let key = if search.repeats < 2 { "repeats" } else { "measurements" };
        judge.complain(&format!("{path}.{key}"), "must be at least 2", None);
    }
}

/// A capacity as configurations have it, to the microsecond.
fn written(seconds: f64) -> String {
    let micros = (seconds * 1e6).round().max(1.0) as u64;
    humantime::format_duration(Duration::from_micros(micros)).to_string()
}
