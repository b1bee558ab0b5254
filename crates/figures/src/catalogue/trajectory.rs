//! The trajectory of a gate as text: its bound, and what is in flight, waits and is answered over time.

use std::fmt::Write as _;

use sim::{Observer, Sample, Steering, run_with};

use super::row::{Row, Seeds, Variant};
use crate::error::Error;

/// How many lines a trajectory has at most.
const LINES: u64 = 60;

/// The trajectory with the first seed of the file.
///
/// # Errors
/// A run that failed.
pub fn trajectory(row: &Row, variant: &Variant) -> Result<String, Error> {
    let Some(mut scenario) = row.scenarios(&variant.policy, Seeds::Tuned).into_iter().next() else {
        return Ok(String::new());
    };
    let step = scenario.duration.as_secs().div_ceil(LINES).max(1);
    scenario.tick = std::time::Duration::from_secs(step);
    let mut recorder = Recorder { step: step as f64, text: String::new() };
    run_with(&scenario, &mut recorder).map_err(|source| Error::Run { file: row.name.clone(), source })?;
    Ok(format!(
        "{}, {}\n{:>6} {:>7} {:>9} {:>8} {:>10} {:>10} {:>10}\n{}",
        row.name,
        variant.name,
        "",
        "bound",
        "in flight",
        "waiting",
        "answered/s",
        "refused/s",
        "gave up/s",
        recorder.text
    ))
}

struct Recorder {
    step: f64,
    text: String,
}

impl Observer for Recorder {
    fn tick(&mut self, sample: &Sample, steering: &mut Steering<'_>) {
        let bound = steering.snapshot().capacity_found.map_or("-".to_owned(), |bound| bound.to_string());
        let rate = |count: u64| format!("{:.0}", count as f64 / self.step);
        // Writing to a string cannot fail.
        let _ = writeln!(
            self.text,
            "{:>4} s {bound:>7} {:>9} {:>8} {:>10} {:>10} {:>10}",
            sample.at.as_nanos() / 1_000_000_000,
            sample.in_flight,
            sample.queued,
            rate(sample.completed),
            rate(sample.rejected),
            rate(sample.timed_out),
        );
    }
}
