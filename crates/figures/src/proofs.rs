//! What the papers leave open, tried in the laboratory: one page a question.
//!
//! Each page is written whole: its prose stands beside the code that fills in the figures.

mod overruns;
mod yaksha_grid;

use std::fs;
use std::path::Path;

use scenario::Experiment;
use sim::{Scenario, sweep_with};

use crate::digest::Digest;
use crate::error::Error;
use crate::results::{Length, Progress};

/// Runs all proofs and writes their pages into a directory.
///
/// # Errors
/// What is wrong with a scenario, or with a page that can't be written.
pub fn write(scenarios: &Path, pages: &Path, length: Length, progress: &Progress) -> Result<(), Error> {
    let proofs = [("yaksha-grid.md", yaksha_grid::page as Proof), ("overruns.md", overruns::page)];
    for (name, proof) in proofs {
        let page = pages.join(name);
        let text = proof(scenarios, length, progress)?;
        fs::write(&page, text).map_err(|source| Error::file("write", &page, source))?;
    }
    Ok(())
}

type Proof = fn(&Path, Length, &Progress) -> Result<String, Error>;

/// The experiment of a scenario file.
fn experiment(scenarios: &Path, file: &str) -> Result<Experiment, Error> {
    scenario::load(&scenarios.join(file)).map_err(Error::Scenario)
}

/// One gate of an experiment at one swept value, with the first seed.
fn scenario(experiment: &Experiment, gate: &str, value: f64, length: Length) -> Result<Scenario, Error> {
    let missing = || Error::Missing(format!("{gate} at {value}"));
    let variant = experiment.variants.iter().position(|(name, _)| name == gate).ok_or_else(missing)?;
    let points = experiment.sweep.as_ref().map_or_else(|| vec![0.0], scenario::Sweep::points);
    let point = points.iter().position(|&point| (point - value).abs() < 1e-9).ok_or_else(missing)?;
    let mut scenario = experiment.scenario(variant, point, 0);
    if length == Length::Short {
        (scenario.duration, scenario.warm_up) = (scenario.duration / 6, scenario.warm_up / 6);
    }
    Ok(scenario)
}

/// What became of each scenario.
fn play(what: &str, scenarios: &[Scenario], progress: &Progress) -> Result<Vec<Digest>, Error> {
    progress.begin(what, scenarios.iter().map(|scenario| scenario.duration.as_secs()).sum());
    let found = sweep_with(
        scenarios,
        None,
        |_| (),
        |at, run, ()| {
            progress.advance(scenarios[at].duration.as_secs());
            run.map(|run| Digest::of(&scenarios[at], &run, Vec::new()))
        },
    );
    found.into_iter().collect::<Result<_, _>>().map_err(|source| Error::Run { file: what.to_owned(), source })
}
