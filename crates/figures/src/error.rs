//! What can go wrong: a scenario, a file, or a drawing.

use std::path::Path;

/// Why there are no figures.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A scenario file is wrong.
    #[error("{0}")]
    Scenario(config::Errors),
    /// A run failed.
    #[error("{file}: {source}")]
    Run {
        /// The scenario file.
        file: String,
        /// Why.
        source: sim::Error,
    },
    /// A file or directory can't be made or written.
    #[error("cannot {what} {path}: {source}")]
    File {
        /// What was to be done.
        what: &'static str,
        /// With what.
        path: String,
        /// Why not.
        source: std::io::Error,
    },
    /// A figure can't be drawn.
    #[error(transparent)]
    Undrawn(#[from] sim::plot::Undrawn),
    /// A scenario lacks a gate at a swept value that a proof needs.
    #[error("the scenario has no gate {0}")]
    Missing(String),
}

impl Error {
    /// A file or directory that can't be made or written.
    pub fn file(what: &'static str, path: &Path, source: std::io::Error) -> Self {
        Self::File { what, path: path.display().to_string(), source }
    }
}
