//! `bench run viewer`.

use bench::Error;
use bench::alternate::Display;
use bench::viewer::{self, Options, TYPES_MAX};
use clap::{Args, value_parser};

/// Flags of `bench run viewer`.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// Types of requests
    #[arg(long, default_value_t = TYPES_MAX as u32, value_parser = value_parser!(u32).range(1..=TYPES_MAX as i64))]
    types: u32,
    /// Statements a second
    #[arg(long, default_value_t = 1_000, value_parser = value_parser!(u32).range(1..=10_000))]
    rate: u32,
    /// Rounds: in each, a window with nobody and one with a viewer
    #[arg(long, default_value_t = 5, value_parser = value_parser!(u32).range(1..))]
    rounds: u32,
    /// How long processor time is counted in each window, in seconds
    #[arg(long, default_value_t = 20.0)]
    window: f64,
}

pub(crate) async fn run(
    arguments: &Arguments,
    server_cpu: Option<usize>,
    display: &Display,
) -> Result<String, Error> {
    let options = Options {
        types: arguments.types as usize,
        rate: arguments.rate as usize,
        rounds: arguments.rounds as usize,
        window: crate::seconds(arguments.window)?,
        server_cpu,
    };
    Ok(viewer::run(&options, display).await?.text())
}
