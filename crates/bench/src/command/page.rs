//! `bench run page`.

use std::path::PathBuf;

use bench::Error;
use bench::alternate::Display;
use bench::page::{self, Options};
use clap::{Args, value_parser};

/// Flags of `bench run page`.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// Downloads beside the page, each over a connection of its own; several numbers in turn
    #[arg(long, value_delimiter = ',', default_values_t = [0_u32, 1, 4], value_parser = value_parser!(u32).range(..=100))]
    downloads: Vec<u32>,
    /// Rounds; every variant has one turn in each
    #[arg(long, default_value_t = 3, value_parser = value_parser!(u16).range(1..))]
    rounds: u16,
    /// Directory for the plot and the figures
    #[arg(long, default_value = "results/page")]
    output: PathBuf,
}

pub(crate) async fn run(arguments: Arguments, display: &Display) -> Result<String, Error> {
    let options = Options {
        downloads: arguments.downloads.iter().map(|&downloads| downloads as usize).collect(),
        rounds: arguments.rounds.into(),
        output: arguments.output,
    };
    Ok(page::run(&options, display).await?.text())
}
