//! `bench run real-loads`.

use std::path::PathBuf;

use bench::Error;
use bench::alternate::Display;
use bench::real_loads::{self, Options};
use clap::{Args, value_parser};

/// Flags of `bench run real-loads`.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// Only loads with this in their names: statements, places or lock
    #[arg(long, default_value = "")]
    only: String,
    /// Rounds; every variant has one turn in each
    #[arg(long, default_value_t = 3, value_parser = value_parser!(u16).range(1..))]
    rounds: u16,
    /// How long requests come in each turn, in seconds
    #[arg(long, default_value_t = 30.0)]
    window: f64,
    /// What the arrivals are drawn from
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Directory for the figures
    #[arg(long, default_value = "results/real-loads")]
    output: PathBuf,
}

pub(crate) async fn run(
    arguments: Arguments,
    server_cpu: Option<usize>,
    display: &Display,
) -> Result<String, Error> {
    let options = Options {
        loads: real_loads::called(&arguments.only),
        rounds: arguments.rounds.into(),
        window: crate::seconds(arguments.window)?,
        seed: arguments.seed,
        server_cpu,
        output: arguments.output,
    };
    Ok(real_loads::run(&options, display).await?.text())
}
