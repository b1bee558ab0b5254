//! The figures of the papers that Gatekeeper is built after, from scenario files, with the papers' own
//! numbers drawn in.
//!
//! [`generate`] runs every scenario below `scenarios/figures` and writes each figure into
//! `docs/results/figures`: a picture, and its values as CSV. The pages of `docs/results` compare them with
//! the papers. Nothing is fitted here: a service's calibration is in its scenario file.

mod bars;
pub mod catalogue;
mod digest;
mod error;
mod figure;
mod gatekeeper;
mod goals;
mod numbers;
pub mod proofs;
mod results;
mod series;
mod shop;
pub mod uplink;
mod yaksha;

use std::fs;
use std::path::{Path, PathBuf};

pub use digest::{Digest, Kind, Measured, Metric, Moment};
pub use error::Error;
pub use figure::{Drawing, Figure};
pub use results::{Length, Progress, Results};
pub use sim::Interval;

/// Where everything is.
#[derive(Clone, Debug)]
pub struct Places {
    /// The scenario files.
    pub scenarios: PathBuf,
    /// The directory of the figures.
    pub figures: PathBuf,
}

/// Runs everything, and writes the figures.
///
/// # Errors
/// What is wrong with a scenario, or with a file that can't be written.
pub fn generate(places: &Places, length: Length, progress: &Progress) -> Result<(), Error> {
    write(&places.figures, &figures(&places.scenarios, length, progress)?)
}

/// Writes the figures into this directory.
fn write(directory: &Path, figures: &[Figure]) -> Result<(), Error> {
    fs::create_dir_all(directory).map_err(|source| Error::file("make", directory, source))?;
    figures.iter().try_for_each(|figure| figure.write(directory))
}

/// All figures.
///
/// # Errors
/// What is wrong with a scenario.
pub fn figures(scenarios: &Path, length: Length, progress: &Progress) -> Result<Vec<Figure>, Error> {
    let run = |name: &str| Results::of(&scenarios.join(name), length, progress);
    let mut figures = gatekeeper::figures(&run)?;
    figures.extend(yaksha::figures(&run)?);
    figures.extend(shop::figures(&run)?);
    figures.extend(goals::figures(length, progress)?);
    Ok(figures)
}
