//! `bench run classes`.

use std::path::PathBuf;

use bench::Error;
use bench::alternate::Display;
use bench::classes::{self, Options, PARTS};
use clap::{Args, value_parser};

/// Flags of `bench run classes`.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// Only these: Table 2, shares in work, or figures by number
    #[arg(long, value_name = "PART,…", value_delimiter = ',', value_parser = PARTS, default_values_t = PARTS.map(str::to_owned))]
    only: Vec<String>,
    /// How many times faster than in the paper figures are played
    #[arg(long, default_value_t = 10, value_parser = value_parser!(u32).range(1..=50))]
    speed: u32,
    /// Ticks before the first change of a figure
    #[arg(long, default_value_t = 40, value_parser = value_parser!(u32).range(1..=1_000))]
    lead: u32,
    /// Ticks from each change to the next; the paper's are 400 to 500
    #[arg(long, default_value_t = 200, value_parser = value_parser!(u32).range(80..=1_000))]
    phase: u32,
    /// Play figures under the gate's adaptation only, without the published one or that of the queue alone
    #[arg(long)]
    gate_alone: bool,
    /// What arrivals are drawn from
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Directory for the pictures
    #[arg(long, default_value = "results/classes")]
    output: PathBuf,
}

pub(crate) async fn run(
    arguments: Arguments,
    origin_cpu: Option<usize>,
    display: &Display,
) -> Result<String, Error> {
    let Arguments { only, speed, lead, phase, gate_alone, seed, output } = arguments;
    classes::run(
        &Options { only, speed, lead, phase, published: !gate_alone, seed, origin_cpu, output },
        display,
    )
    .await
}
