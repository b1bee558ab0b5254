//! The figures of the papers that Gatekeeper is built after, from scenario files, with the papers' own
//! numbers drawn in.
//!
//! [`generate`] runs every scenario below `scenarios/figures`, draws each figure, and writes the page that
//! sets ours beside theirs (`docs/guide/figures.md`). The prose of that page is `page.md`; what was
//! measured is put into it. Nothing is fitted here: what a service is calibrated with stands in its
//! scenario file.

mod bars;
pub mod catalogue;
mod digest;
mod error;
mod figure;
mod gatekeeper;
mod page;
mod results;
mod series;
mod shop;
pub mod uplink;
mod yaksha;

use std::path::{Path, PathBuf};

pub use digest::{Digest, Kind, Measured, Metric, Moment};
pub use error::Error;
pub use figure::{Drawing, Figure};
pub use page::TEMPLATE;
pub use results::{Length, Progress, Results};
pub use sim::Interval;

/// Where everything is.
#[derive(Clone, Debug)]
pub struct Places {
    /// The scenario files.
    pub scenarios: PathBuf,
    /// The page; the figures go into `figures/` beside it.
    pub page: PathBuf,
}

/// Runs everything, and writes the figures and the page.
///
/// # Errors
/// What is wrong with a scenario, or with a file that can't be written.
pub fn generate(places: &Places, length: Length, progress: &Progress) -> Result<(), Error> {
    let figures = figures(&places.scenarios, length, progress)?;
    page::write(&places.page, TEMPLATE, &figures)
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
    Ok(figures)
}
