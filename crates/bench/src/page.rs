//! A page of 60 files over one HTTP/2 connection through 10 Mbit/s, beside downloads of others: the time
//! until Chromium has painted it, directly, through nginx and through a gate that orders responses.
//!
//! The page counts as painted in the frame behind its load event in which all its images are decoded. Each
//! cell has a new link, new servers and a new browser, which knows nothing of the page.

mod laboratory;
mod site;

use std::time::Duration;

use clap::{Args, value_parser};
use serde::{Deserialize, Serialize};
use sim::plot::{Panel, Plot, Scale};

use crate::Error;
use crate::alternate::Display;
use crate::table::{count, ratio, seconds};
use crate::turns::{self, Report, Row, Section};

pub use laboratory::{VARIANTS, Variant};
pub use site::FILES;

/// About how long a cell takes.
const CELL: Duration = Duration::from_secs(8);

/// Flags of `bench run page`.
#[derive(Clone, Debug, Args)]
pub struct Options {
    /// Downloads beside the page, each over a connection of its own; several numbers in turn
    #[arg(long, value_delimiter = ',', default_values_t = [0, 1, 4], value_parser = value_parser!(u32).range(..=100))]
    downloads: Vec<u32>,
    /// What all experiments without a plan have.
    #[command(flatten)]
    pub turns: turns::Flags,
}

/// What one page came to; times in seconds since the browser was told to open it.
#[derive(Clone, Debug, Serialize)]
pub struct Painted {
    /// When all was painted, with all images decoded.
    pub painted: f64,
    /// The first contentful paint.
    pub first: f64,
    /// The largest contentful paint.
    pub largest: f64,
    /// The files, in the order in which they had come.
    pub files: Vec<Came>,
    /// What the downloads received since the browser was started, in bytes per second.
    pub downloaded: f64,
}

/// A file of the page.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Came {
    /// Its name.
    pub name: String,
    /// When its first byte had come, in seconds.
    pub head: f64,
    /// When all of it had come, in seconds.
    pub end: f64,
}

const ROWS: &[Row<Painted>] = &[
    Row::new("painted, all images decoded", |page| page.painted, seconds),
    Row::new("largest contentful paint", |page| page.largest, seconds),
    Row::new("first contentful paint", |page| page.first, seconds),
    Row::new("downloads' Mbit/s since the browser began", |page| page.downloaded * 8.0 / 1e6, ratio),
];

/// Runs the experiment.
///
/// # Errors
/// If there can be no link, something doesn't start, or the page didn't come over one connection.
pub async fn run(options: &Options, display: &Display) -> Result<String, Error> {
    let mut report = options.turns.report("page", &VARIANTS.map(Variant::name), ROWS)?;
    for &downloads in &options.downloads {
        let name = format!("beside {downloads} downloads");
        let (rounds, count) = (options.turns.rounds(3), downloads as usize);
        report
            .measure(&name, (rounds, CELL), display, async |at| {
                laboratory::paint(VARIANTS[at.variant], count).await
            })
            .await?;
        report.draw("page.svg", &plot(&report))?;
    }
    Ok(report.table())
}

fn plot(report: &Report<Painted>) -> Plot {
    let come =
        |page: &Painted| page.files.iter().zip(1..).map(|(file, at)| (file.end, f64::from(at))).collect();
    let panel = |section: &Section<Painted>| {
        let title = format!("files that have come, {}", section.name);
        Panel::new(title, Scale::Linear, count, section.curves(come))
    };
    let all = report.sections.iter().flat_map(|section| section.turns.iter().flatten());
    let last = all.filter_map(|page| page.files.last().map(|file| file.end)).fold(0.0, f64::max);
    Plot {
        title: format!("A page of {FILES} files in Chromium through 10 Mbit/s"),
        subtitle: "one HTTP/2 connection; the first round".to_owned(),
        variants: report.variants.clone(),
        marks: None,
        axis: "seconds",
        seconds: last.ceil().max(1.0),
        panels: report.sections.iter().map(panel).collect(),
    }
}
