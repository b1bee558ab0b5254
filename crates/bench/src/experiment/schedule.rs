//! Browsers that join a site one after another while one cell lasts, and what is seen of it from second to
//! second.

use std::fmt::Write as _;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::complaint::{Judge, nearest};
use super::plan::{Form, Plan};
use super::words::Time;
use crate::load::{Outcome, Record};

/// Where visitors of a site go.
pub(super) const MIXES: [&str; 3] = ["browsing", "shopping", "ordering"];
/// The most phases of a schedule: each is a row of a table for each variant.
pub const PHASES_MAX: usize = 20;
/// The longest that a schedule may last: each second of it is kept.
pub const LASTS_MAX: Duration = Duration::from_secs(60 * 60);
/// A load has settled where the mean of so many seconds is at most so many times the target, for good.
const SETTLED_OVER: usize = 5;
const SETTLED: f64 = 2.0;

/// A part of a schedule: it begins with browsers that join those that are there.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Phase {
    /// How many join at its beginning.
    pub join: u32,
    /// Where those go, which keep to it: `browsing`, `shopping` or `ordering`; as the site says, if it isn't
    /// said.
    pub mix: Option<String>,
    /// How long it lasts.
    pub lasts: Time,
    /// For how long it has to settle before it counts.
    #[serde(default = "ten_seconds")]
    pub settles: Time,
}

const fn ten_seconds() -> Time {
    Time(Duration::from_secs(10))
}

/// A second of a schedule, or of an open loop.
#[derive(Clone, Copy, Debug, Default, PartialEq, Deserialize, Serialize)]
pub struct Moment {
    /// Right pages; of an open loop the requests that came in it and weren't refused.
    pub done: u64,
    /// Refused by the gate.
    pub refused: u64,
    /// Neither: not there in time, turned away by the shop itself, failed, wrong.
    pub lost: u64,
    /// Mean response time of those done, in seconds.
    pub response: f64,
    /// Browsers there; of an open loop the requests that have come and not ended, at the second's end.
    pub present: usize,
    /// Of an open loop: answers in it.
    #[serde(default)]
    pub answered: u64,
}

/// An open loop by second since the first arrival; a request that isn't answered counts with its whole
/// patience.
pub(super) fn moments(records: &[Record], lasts: Duration, patience: Duration) -> Vec<Moment> {
    let mut moments = vec![Moment::default(); lasts.as_secs() as usize];
    for record in records {
        let (due, end) = (record.due.as_secs() as usize, record.end().as_secs() as usize);
        match moments.get_mut(due) {
            Some(moment) if record.outcome == Outcome::Rejected => moment.refused += 1,
            Some(moment) => {
                moment.done += 1;
                moment.response += record.charged(patience).as_secs_f64();
            }
            None => {}
        }
        moments.iter_mut().take(end).skip(due).for_each(|moment| moment.present += 1);
        if record.outcome == Outcome::Completed {
            moments.get_mut(end).into_iter().for_each(|moment| moment.answered += 1);
        }
    }
    moments.iter_mut().for_each(|moment| moment.response /= moment.done.max(1) as f64);
    moments
}

/// How long a schedule lasts.
pub(super) fn lasts(phases: &[Phase]) -> Duration {
    phases.iter().fold(Duration::ZERO, |sum, phase| sum.saturating_add(phase.lasts.0))
}

/// How many browsers there are at its end.
pub(super) fn browsers(phases: &[Phase]) -> usize {
    phases.iter().fold(0, |sum, phase| sum.saturating_add(phase.join as usize))
}

/// When its phases begin, in seconds.
pub(super) fn beginnings(phases: &[Phase]) -> Vec<f64> {
    let before = |index: usize| lasts(&phases[..index]).as_secs_f64();
    (0..phases.len()).map(before).collect()
}

/// After how many seconds of a load the mean was near the target for good; `None`: never.
pub(super) fn settles(moments: &[Moment], calm: Duration, target: Duration) -> Option<f64> {
    let step = moments.get(calm.as_secs() as usize..).unwrap_or_default();
    let is_late = |part: &[Moment]| {
        let done: u64 = part.iter().map(|moment| moment.done).sum();
        let sum: f64 = part.iter().map(|moment| moment.response * moment.done as f64).sum();
        sum > SETTLED * target.as_secs_f64() * done as f64
    };
    let parts: Vec<bool> = step.chunks(SETTLED_OVER).map(is_late).collect();
    match parts.iter().rposition(|&late| late) {
        None => Some(0.0),
        Some(last) if last + 1 == parts.len() => None,
        Some(last) => Some(((last + 1) * SETTLED_OVER) as f64),
    }
}

/// Each phase in words.
pub(super) fn described(phases: &[Phase], mix: &str) -> String {
    let mut text = Vec::new();
    for (number, phase) in phases.iter().enumerate() {
        let joined = if number == 0 { "" } else { " more" };
        let mix = phase.mix.as_deref().unwrap_or(mix);
        let (lasts, settles) = (phase.lasts.0.as_secs_f64(), phase.settles.0.as_secs_f64());
        text.push(format!(
            "phase {}: {}{joined} {mix}, {lasts} s, counted from {settles} s on",
            number + 1,
            phase.join
        ));
    }
    text.join("; ")
}

/// The schedule as `bookstore browse` reads it: each phase in two parts, the settling one not counted.
pub(super) fn file(phases: &[Phase], mix: &str) -> String {
    let mut text = String::new();
    let mut present = 0u32;
    for phase in phases {
        present = present.saturating_add(phase.join);
        let mix = phase.mix.as_deref().unwrap_or(mix);
        let parts = [(phase.settles.0, false), (phase.lasts.0.saturating_sub(phase.settles.0), true)];
        for (lasts, counted) in parts.into_iter().filter(|(lasts, _)| !lasts.is_zero()) {
            // Writing into a string can't fail.
            let _ = writeln!(
                text,
                "[[phase]]\nduration = \"{}ms\"\nbrowsers = {present}\nmix = \"{mix}\"\ncounted = {counted}\n",
                lasts.as_millis()
            );
        }
    }
    text
}

/// What a plan's schedules must keep.
pub(super) fn check(plan: &Plan, (name, form): (&str, &Form), judge: &mut Judge<'_>) {
    let at = |index: usize, key: &str| format!("{name}.schedule.{index}.{key}");
    let path = format!("{name}.schedule");
    if !form.schedule.is_empty() && plan.workload.site.is_none() {
        judge.complain(&path, "is for browsers, and there are none", Some("write [workload.site]"));
    }
    if form.schedule.len() > PHASES_MAX {
        judge.complain(&path, format!("has more than {PHASES_MAX} phases"), None);
    }
    if lasts(&form.schedule) > LASTS_MAX {
        judge.complain(&path, format!("lasts more than {} s", LASTS_MAX.as_secs()), None);
    }
    for (index, phase) in form.schedule.iter().enumerate() {
        if let Some(mix) = phase.mix.as_deref().filter(|mix| !MIXES.contains(mix)) {
            judge.complain(&at(index, "mix"), format!("`{mix}` is no mix"), nearest(mix, &MIXES).as_deref());
        }
        if phase.settles.0 >= phase.lasts.0 {
            let why = "is not shorter than the phase, of which nothing would count";
            judge.complain(&at(index, "settles"), why, Some("10 s if it isn't said"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn phase(join: u32, mix: Option<&str>, lasts: u64, settles: u64) -> Phase {
        let time = |seconds| Time(Duration::from_secs(seconds));
        Phase { join, mix: mix.map(str::to_owned), lasts: time(lasts), settles: time(settles) }
    }

    #[test]
    fn browsers_are_told_how_many_there_are_and_what_counts() {
        let phases = [phase(700, Some("browsing"), 50, 10), phase(300, None, 20, 0)];
        let text = file(&phases, "shopping");
        let parts: Vec<&str> = text.split("[[phase]]\n").skip(1).map(str::trim_end).collect();
        assert_eq!(
            parts,
            [
                "duration = \"10000ms\"\nbrowsers = 700\nmix = \"browsing\"\ncounted = false",
                "duration = \"40000ms\"\nbrowsers = 700\nmix = \"browsing\"\ncounted = true",
                "duration = \"20000ms\"\nbrowsers = 1000\nmix = \"shopping\"\ncounted = true",
            ]
        );
        assert_eq!((lasts(&phases), browsers(&phases)), (Duration::from_secs(70), 1_000));
        assert_eq!(beginnings(&phases), [0.0, 50.0]);
    }

    #[test]
    fn a_schedule_is_told_in_words() {
        let phases = [phase(700, Some("browsing"), 50, 10), phase(300, None, 20, 0)];
        assert_eq!(
            described(&phases, "shopping"),
            "phase 1: 700 browsing, 50 s, counted from 10 s on; phase 2: 300 more shopping, 20 s, counted from 0 s on"
        );
    }

    #[test]
    fn a_load_has_settled_where_the_mean_is_near_the_target_for_good() {
        let of = |means: &[f64]| -> Vec<Moment> {
            let each = means.iter().flat_map(|&response| [response; SETTLED_OVER]);
            each.map(|response| Moment { done: 10, response, ..Moment::default() }).collect()
        };
        let (calm, target) = (Duration::from_secs(5), Duration::from_millis(150));
        assert_eq!(settles(&of(&[9.0, 0.1, 0.29]), calm, target), Some(0.0));
        assert_eq!(settles(&of(&[0.1, 9.0, 0.1]), calm, target), Some(5.0));
        assert_eq!(settles(&of(&[0.1, 0.1, 0.4]), calm, target), None);
    }
}
