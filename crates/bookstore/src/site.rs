//! Not yet.

use clap::Args;

use crate::Error;

/// How.
#[derive(Debug, Args)]
pub struct Options {}

/// Does it.
///
/// # Errors
///
/// None yet.
pub async fn run(_options: Options) -> Result<(), Error> {
    Ok(())
}

/// How it is checked.
#[derive(Debug, Args)]
pub struct CheckOptions {}

/// Checks.
///
/// # Errors
///
/// None yet.
pub async fn check(_options: CheckOptions) -> Result<(), Error> {
    Ok(())
}
