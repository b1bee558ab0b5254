//! Service classes on real servers: the tables and figures of *Self-managing web servers* (Computer
//! Communications 29, 2006), and shares of work.
//!
//! An origin blocks or computes for as long as each request says, behind a gate with a class for each
//! stream of requests. The figures are the laboratory's own data ([`sim::goals`]), played faster: rates are
//! multiplied by the speed, and times divided. What is reported is in the paper's time.
//!
//! **Where it differs from the paper.** Its processor shares processes by weights. Here the gate's queue
//! before one processor is the resource of Figs. 4 to 6, so a request that runs isn't interrupted. Their
//! processor times are chosen as in the laboratory: so that the goals need another share and can be kept.
//! In Fig. 8 the classes of a site have workers in control groups of their own.

mod figure;
mod laboratory;
mod moved;
mod shares;
mod table;
mod yields;

use std::path::PathBuf;

use clap::{Args, value_parser};

use crate::Error;
use crate::alternate::Display;

/// Flags of `bench run classes`.
#[derive(Clone, Debug, Args)]
pub struct Options {
    /// Only these: Table 2, shares in work, figures by number, goals that can't both be kept, or how soon the
    /// background yields before PostgreSQL
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
    /// The origin's processor.
    #[arg(skip)]
    pub cpu: Option<usize>,
}

/// What can be measured.
const PARTS: [&str; 9] = ["table", "shares", "4", "5", "6", "7", "8", "reach", "yields"];

/// Runs the experiment. Returns its report.
///
/// # Errors
/// If something doesn't start.
pub async fn run(options: &Options, display: &Display) -> Result<String, Error> {
    let mut text = String::new();
    for part in PARTS.into_iter().filter(|part| options.only.iter().any(|only| only == part)) {
        let found = match part {
            "table" => table::run(options, display).await?,
            "8" => moved::run(options, display).await?,
            "shares" => shares::run(options, display).await?,
            "yields" => yields::run(options, display).await?,
            number => figure::run(number, options, display).await?,
        };
        text += &found;
    }
    Ok(text)
}
