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

use crate::Error;
use crate::alternate::Display;

/// How the experiment is run.
#[derive(Clone, Debug)]
pub struct Options {
    /// What is measured: `table`, `shares`, a figure's number, `reach` (goals that can't both be kept), or
    /// `yields` (how soon the background does, before PostgreSQL).
    pub only: Vec<String>,
    /// How many times faster than in the paper figures are played.
    pub speed: u32,
    /// Ticks before the first change of a figure.
    pub lead: u32,
    /// Ticks from each change to the next.
    pub phase: u32,
    /// Whether figures are also played under the published adaptation, and Fig. 8 without control groups.
    pub published: bool,
    /// What arrivals are drawn from.
    pub seed: u64,
    /// The origin's processor.
    pub origin_cpu: Option<usize>,
    /// Directory for pictures and figures.
    pub output: PathBuf,
}

/// What can be measured.
pub const PARTS: [&str; 9] = ["table", "shares", "4", "5", "6", "7", "8", "reach", "yields"];

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
