//! Tries the gate that is named `fixed` with other numbers of connections.

use admission::Policy;

use super::cell;
use super::row::{Row, Seeds, Variant};
use crate::error::Error;
use crate::results::Progress;

/// The numbers that are tried.
const GRID: [u32; 14] = [1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 16, 24, 48, 96];

/// What was found for a row.
#[derive(Clone, Debug, PartialEq)]
pub struct Found {
    /// The row's name.
    pub row: String,
    /// The number in the file, and what it serves per second.
    pub known: (u32, f64),
    /// The best of the numbers that were tried, and what it serves.
    pub best: (u32, f64),
}

/// Tries every number in each row whose fixed gate is a number, with the seeds of the files.
///
/// # Errors
/// A run that failed.
pub fn search(rows: &[Row], progress: &Progress) -> Result<Vec<Found>, Error> {
    let mut plan = Vec::new();
    for row in rows {
        let Some(fixed) = row.fixed_number() else { continue };
        let numbers = GRID.into_iter().filter(|&number| number != fixed.policy.connections);
        for connections in std::iter::once(fixed.policy.connections).chain(numbers) {
            let policy = Policy { connections, ..fixed.policy.clone() };
            plan.push((row, Variant { name: connections.to_string(), policy }));
        }
    }
    let cells = cell::play(&plan, &[Seeds::Tuned], progress)?;
    let served: Vec<f64> = cells.iter().map(|cell| cell.of(Seeds::Tuned, |of| of.served).mean).collect();
    let mut found: Vec<Found> = Vec::new();
    for ((row, variant), served) in plan.iter().zip(served) {
        let here = (variant.policy.connections, served);
        match found.last_mut().filter(|last| last.row == row.name) {
            Some(last) if served > last.best.1 => last.best = here,
            Some(_) => {}
            None => found.push(Found { row: row.name.clone(), known: here, best: here }),
        }
    }
    Ok(found)
}
