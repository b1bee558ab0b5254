//! Looking whether the shop's books balance.

use clap::Args;

use crate::Error;

/// What is checked.
#[derive(Debug, Args)]
pub struct Options {
    /// The PostgreSQL database
    #[arg(long, value_name = "URL")]
    pub database: String,
}

/// Checks.
///
/// # Errors
///
/// If something doesn't balance.
pub async fn run(_options: Options) -> Result<(), Error> {
    Ok(())
}
