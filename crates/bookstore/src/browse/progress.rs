//! Shows while a run lasts how it goes: on a terminal one line that renews itself, elsewhere a line now and
//! then.

use std::io::{IsTerminal, stderr};
use std::sync::Arc;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};
use tokio::time::{MissedTickBehavior, interval};

use super::plan::Phase;
use super::record::{Outcome, Record};

/// How often there is a line where lines stay, in seconds.
const LINES_EVERY: u64 = 10;

/// Shows the progress until it is dropped.
pub(super) async fn show(phases: Vec<Phase>, record: Arc<Record>) {
    let bar = stderr().is_terminal().then(ProgressBar::new_spinner);
    if let Some(bar) = &bar {
        bar.set_style(ProgressStyle::default_spinner());
    }
    let mut ticks = interval(Duration::from_secs(1));
    ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
    let mut seconds = 0_u64;
    loop {
        ticks.tick().await;
        let line = line(&phases, &record);
        match &bar {
            Some(bar) => bar.set_message(line),
            None if seconds > 0 && seconds % LINES_EVERY == 0 => eprintln!("{line}"),
            None => {}
        }
        if let Some(bar) = &bar {
            bar.tick();
        }
        seconds += 1;
    }
}

/// Where the run is, how many visitors are there, and how the last second went.
fn line(phases: &[Phase], record: &Record) -> String {
    let counted = record.lock();
    let age = counted.age();
    let whole: Duration = phases.iter().map(|phase| phase.duration).sum();
    let mut end = Duration::ZERO;
    let phase = phases.iter().find(|phase| {
        end += phase.duration;
        age < end
    });
    let name = phase.map_or_else(
        || "leaving".to_owned(),
        |phase| format!("{} ({}, {})", phase.name, phase.load, phase.mix),
    );
    let last =
        (age.as_secs() as usize).checked_sub(1).and_then(|second| counted.seconds.get(second).copied());
    let last = last.unwrap_or_default();
    let at = |outcome| last.counts[outcome as usize];
    let done = at(Outcome::Done);
    let mean = last.done.as_secs_f64() * 1e3 / done.max(1) as f64;
    format!(
        "{} of {} s, {name}: {} present, {done}/s in {mean:.0} ms, {} rejected, {} timed out, {} failed or wrong",
        age.as_secs(),
        whole.as_secs(),
        counted.present,
        at(Outcome::Rejected),
        at(Outcome::TimedOut),
        at(Outcome::Failed) + at(Outcome::Wrong),
    )
}
