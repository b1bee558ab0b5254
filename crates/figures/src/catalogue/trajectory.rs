//! The trajectory of a gate as text: its bound, and what is in flight, waits and is answered over time.

use std::fmt::Write as _;
use std::time::Duration;

use scenario::WITHOUT_GATE;
use sim::{Observer, Sample, Scenario, Steering, sweep_with};

use super::row::{Row, Variant};
use crate::error::Error;

/// How many lines a trajectory has at most.
const LINES: u64 = 60;

/// A text for each row: the trajectories of its gates with the first seed of its file.
///
/// # Errors
/// A run that failed.
pub fn trajectories(rows: &[Row]) -> Result<Vec<String>, Error> {
    let gates_of = |row| Row::variants(row).filter(|gate| gate.name != WITHOUT_GATE);
    let gates: Vec<_> = rows.iter().flat_map(|row| gates_of(row).map(move |gate| (row, gate))).collect();
    let scenarios: Vec<_> = gates.iter().map(|(row, gate)| scenario(row, gate)).collect();
    let recorder = |at: usize| Recorder { step: scenarios[at].tick.as_secs_f64(), text: String::new() };
    let runs = sweep_with(&scenarios, None, recorder, |at, run, recorder| {
        run.map(|_| recorder.text).map_err(|source| Error::Run { file: gates[at].0.name.clone(), source })
    });
    let runs = runs.into_iter().collect::<Result<Vec<_>, _>>()?;
    let of = |row: &Row| {
        let own = gates.iter().zip(&runs).filter(|((of, _), _)| of.name == row.name);
        own.map(|(gate, lines)| headed(gate, lines)).collect::<Vec<_>>().join("\n")
    };
    Ok(rows.iter().map(of).collect())
}

fn scenario(row: &Row, gate: &Variant) -> Scenario {
    let mut scenario = row.first_scenario(&gate.policy);
    scenario.tick = Duration::from_secs(scenario.duration.as_secs().div_ceil(LINES).max(1));
    scenario
}

fn headed((row, gate): &(&Row, Variant), lines: &str) -> String {
    let columns = ["bound", "in flight", "waiting", "answered/s", "refused/s", "gave up/s"];
    let [bound, in_flight, waiting, answered, refused, gave_up] = columns;
    format!(
        "{}, {}\n{:>6} {bound:>7} {in_flight:>9} {waiting:>8} {answered:>10} {refused:>10} {gave_up:>10}\n{lines}",
        row.name, gate.name, ""
    )
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
