//! What an experiment leaves behind: its figures as JSON, for whoever draws or compares them.

use std::path::Path;

use serde::Serialize;

use crate::Error;

/// Writes the figures to `NAME.json` in a directory, which is made if it isn't there.
///
/// # Errors
/// If the directory can't be made or written to.
pub(crate) fn write_figures(figures: &impl Serialize, output: &Path, name: &str) -> Result<(), Error> {
    let failed = |source| Error::Io { action: format!("writing to {}", output.display()), source };
    std::fs::create_dir_all(output).map_err(failed)?;
    let text = serde_json::to_string_pretty(figures).map_err(std::io::Error::from).map_err(failed)?;
    std::fs::write(output.join(format!("{name}.json")), text).map_err(failed)
}
