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
