//! `gatekeeper check`: what a file means, or everything that is wrong with it.

use std::path::Path;

use crate::Failure;

/// The effective configuration.
pub(crate) fn check(file: &Path) -> Result<String, Failure> {
    match config::load(file) {
        Ok(world) => Ok(config::effective(&world)),
        Err(errors) => Err(Failure::Usage(errors.to_string())),
    }
}
