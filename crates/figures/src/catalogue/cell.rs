//! What a gate gives in a row: the figures of each set of seeds.

use std::time::Duration;

use admission::Instant;
use sim::{Interval, Observer, Run, Sample, Steering, sweep_with};

use super::row::{Row, Seeds, Variant};
use crate::error::Error;
use crate::results::Progress;

/// What a gate gives in a row: a digest for each seed.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Cell {
    /// Figures of the seeds of the file, and of those held out.
    sets: [Vec<Digest>; 2],
}

/// The figures that are kept of a run. Times are in seconds.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Digest {
    /// The mean response time over all requests; those that time out or are refused count with their wait.
    pub mean: f64,
    /// Answers to clients that were still there, per second.
    pub served: f64,
    /// The part of the requests whose clients gave up.
    pub gave_up: f64,
    /// The part of the requests that were refused.
    pub refused: f64,
    /// The part of the visits that were answered whole.
    pub whole: f64,
    /// The mean over all requests of each type.
    pub types: Vec<f64>,
}

impl Digest {
    fn of(run: &Run) -> Self {
        let summary = &run.summary;
        let part = |count: u64| count as f64 / summary.overall.arrived.max(1) as f64;
        Self {
            mean: summary.overall.endured.mean,
            served: summary.overall.throughput,
            gave_up: part(summary.overall.timed_out),
            refused: part(summary.overall.rejected),
            whole: summary.visits.whole as f64 / summary.visits.begun.max(1) as f64,
            types: summary.types.iter().map(|kind| kind.endured.mean).collect(),
        }
    }
}

impl Cell {
    /// A cell with one digest for the seeds of the file, and one for those held out.
    #[cfg(test)]
    pub(super) fn with(tuned: Digest, held_out: Digest) -> Self {
        Self { sets: [vec![tuned], vec![held_out]] }
    }

    /// A figure of a set of seeds, with its interval.
    pub fn of(&self, seeds: Seeds, figure: impl Fn(&Digest) -> f64) -> Interval {
        let set = &self.sets[usize::from(seeds == Seeds::HeldOut)];
        Interval::of(&set.iter().map(figure).collect::<Vec<_>>())
    }

    /// A figure of the seeds that are held out.
    pub fn shown(&self, figure: impl Fn(&Digest) -> f64) -> f64 {
        self.of(Seeds::HeldOut, figure).mean
    }
}

/// Runs each gate with these sets of seeds.
pub(super) fn play(
    plan: &[(&Row, Variant)],
    sets: &[Seeds],
    progress: &Progress,
) -> Result<Vec<Cell>, Error> {
    let (mut places, mut scenarios) = (Vec::new(), Vec::new());
    for (at, (row, variant)) in plan.iter().enumerate() {
        for &seeds in sets {
            for scenario in row.scenarios(&variant.policy, seeds) {
                places.push((at, seeds));
                scenarios.push(scenario);
            }
        }
    }
    progress.begin("the catalogue", scenarios.iter().map(|scenario| scenario.duration.as_secs()).sum());
    let runs = sweep_with(
        &scenarios,
        None,
        |_| Watch { progress: progress.clone(), last: Instant::ZERO },
        |at, run, _| run.map(|run| Digest::of(&run)).map_err(|source| failed(plan[places[at].0].0, source)),
    );
    let mut cells = vec![Cell::default(); plan.len()];
    for ((at, seeds), digest) in places.into_iter().zip(runs) {
        cells[at].sets[usize::from(seeds == Seeds::HeldOut)].push(digest?);
    }
    Ok(cells)
}

fn failed(row: &Row, source: sim::Error) -> Error {
    Error::Run { file: row.name.clone(), source }
}

/// Moves the progress along with virtual time.
struct Watch {
    progress: Progress,
    last: Instant,
}

impl Observer for Watch {
    fn tick(&mut self, sample: &Sample, _: &mut Steering<'_>) {
        let seconds = |at: Instant| Duration::from_nanos(at.as_nanos()).as_secs();
        self.progress.advance(seconds(sample.at) - seconds(self.last));
        self.last = sample.at;
    }
}
