//! The catalogue: scenarios in which a gate does harm or good, and the goals that each gate has to reach.
//!
//! The scenarios are files below `scenarios/catalogue`, in the form that `gatekeeper simulate` reads. A file
//! is one row, or one row for each point of its sweep. The gate that is named `fixed` has the best number of
//! connections that is known; [`search`] tries others.
//!
//! Every row is run with two sets of seeds: those of its file, which a change may be tuned on, and as many
//! that are held out. The page shows the figures of the held-out seeds. A goal is reached when both sets
//! reach it.

mod cell;
mod mechanisms;
mod page;
mod row;
mod search;
mod trajectory;
mod verdict;

use std::fs;
use std::path::{Path, PathBuf};

pub use cell::Cell;
pub use mechanisms::{Loss, without};
pub use page::page;
pub use row::{Row, Seeds, Variant, rows_of};
pub use search::{Found, search};
pub use trajectory::trajectories;
pub use verdict::{Miss, misses};

use crate::error::Error;
use crate::results::Progress;

/// All rows of a directory, in the order of the files' names.
///
/// # Errors
/// What is wrong with a file.
pub fn rows(directory: &Path) -> Result<Vec<Row>, Error> {
    let entries = fs::read_dir(directory).map_err(|source| Error::file("read", directory, source))?;
    let mut files: Vec<PathBuf> = entries
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| path.extension().is_some_and(|extension| extension == "toml"))
        .collect();
    files.sort();
    let mut rows = Vec::new();
    for file in files {
        rows.extend(rows_of(&file)?);
    }
    Ok(rows)
}

/// Runs every row with every gate and both sets of seeds. A row's cells are in the order of its gates.
///
/// # Errors
/// A run that failed.
pub fn play(rows: &[Row], progress: &Progress) -> Result<Vec<Vec<Cell>>, Error> {
    let variants = rows.iter().flat_map(|row| row.variants().map(move |variant| (row, variant)));
    let cells = cell::play(&variants.collect::<Vec<_>>(), &Seeds::BOTH, progress)?;
    let mut cells = cells.into_iter();
    Ok(rows.iter().map(|row| cells.by_ref().take(row.variants().count()).collect()).collect())
}
