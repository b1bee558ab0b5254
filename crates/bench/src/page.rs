//! A page of 60 files over one HTTP/2 connection through 10 Mbit/s, beside downloads of others: the time
//! until Chromium has painted it, directly, through nginx and through a gate that orders responses.
//!
//! The page counts as painted in the frame behind its load event in which all its images are decoded. Each
//! cell has a new link, new servers and a new browser, which knows nothing of the page.

mod laboratory;
mod site;

use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use sim::plot::{Curve, Panel, Plot, Scale};

use crate::Error;
use crate::alternate::{Display, Turn, alternate};
use crate::files::write_figures;
use crate::stats::Rounds;
use crate::table::{Figures, count, ratio, seconds, spread};

pub use laboratory::{VARIANTS, Variant};
pub use site::FILES;

/// About how long a cell takes.
const CELL: Duration = Duration::from_secs(8);

/// How the experiment is run.
#[derive(Clone, Debug)]
pub struct Options {
    /// How many downloads go on beside the page, one number after the other.
    pub downloads: Vec<usize>,
    /// Rounds; every variant has one turn in each.
    pub rounds: usize,
    /// Directory for the plot and the figures.
    pub output: PathBuf,
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

/// One number of downloads; by variant, then by round.
#[derive(Clone, Debug, Serialize)]
pub struct Section {
    /// How many.
    pub downloads: usize,
    /// What was measured.
    pub pages: Vec<Vec<Painted>>,
}

/// The whole experiment.
#[derive(Clone, Debug, Serialize)]
pub struct PageReport {
    /// The variants' names.
    pub variants: Vec<String>,
    /// One for each number of downloads.
    pub sections: Vec<Section>,
}

/// Runs the experiment.
///
/// # Errors
/// If there can be no link, something doesn't start, or the page didn't come over one connection.
pub async fn run(options: &Options, display: &Display) -> Result<PageReport, Error> {
    let mut report = PageReport {
        variants: VARIANTS.map(|variant| variant.name().to_owned()).to_vec(),
        sections: Vec::new(),
    };
    for &downloads in &options.downloads {
        let pages = alternate(options.rounds, &[CELL; VARIANTS.len()], async |at: Turn, left| {
            let variant = VARIANTS[at.variant];
            display.now(format!("{}, {downloads} downloads: {left:.0?} to go", variant.name()));
            let page = laboratory::paint(variant, downloads).await?;
            let (name, painted) = (variant.name(), seconds(page.painted));
            display.say(&format!("    {downloads} downloads, {name}: painted after {painted}"));
            Ok(page)
        })
        .await?;
        report.sections.push(Section { downloads, pages });
        // What is measured is kept if somebody interrupts the rest.
        report.write(&options.output)?;
    }
    Ok(report)
}

type Row = (&'static str, fn(&Painted) -> f64, fn(f64) -> String);

const ROWS: [Row; 4] = [
    ("painted, all images decoded", |page| page.painted, seconds),
    ("largest contentful paint", |page| page.largest, seconds),
    ("first contentful paint", |page| page.first, seconds),
    ("downloads' Mbit/s since the browser began", |page| page.downloaded * 8.0 / 1e6, ratio),
];

impl PageReport {
    fn write(&self, output: &Path) -> Result<(), Error> {
        write_figures(self, output, "page")?;
        Ok(self.plot().write(&output.join("page.svg"))?)
    }

    fn plot(&self) -> Plot {
        // The first round: a mean of curves shows what no page did.
        let curve = |rounds: &Vec<Painted>| {
            let files = rounds.first().map_or(&[][..], |page| &page.files);
            Curve {
                points: files.iter().enumerate().map(|(at, file)| (file.end, (at + 1) as f64)).collect(),
                band: Vec::new(),
            }
        };
        let panel = |section: &Section| {
            let title = match section.downloads {
                0 => "Alone: files that have come".to_owned(),
                1 => "Beside one download".to_owned(),
                downloads => format!("Beside {downloads} downloads"),
            };
            Panel::new(title, Scale::Linear, count, section.pages.iter().map(curve).collect())
        };
        let all = self.sections.iter().flat_map(|section| section.pages.iter().flatten());
        let last = all.filter_map(|page| page.files.last().map(|file| file.end)).fold(0.0, f64::max);
        Plot {
            title: format!("A page of {FILES} files in Chromium through 10 Mbit/s"),
            subtitle: "one HTTP/2 connection; the first round".to_owned(),
            variants: self.variants.clone(),
            marks: None,
            axis: "seconds",
            seconds: last.ceil().max(1.0),
            panels: self.sections.iter().map(panel).collect(),
        }
    }

    /// The figures as a table.
    pub fn text(&self) -> String {
        let mut figures = Figures::new(&self.variants);
        for section in &self.sections {
            figures.heading(&format!("{} downloads", section.downloads));
            for (label, figure, show) in ROWS {
                let cell = |rounds: &Vec<Painted>| {
                    spread(Rounds::of(&rounds.iter().map(figure).collect::<Vec<_>>()), show)
                };
                figures.row(label, section.pages.iter().map(cell));
            }
        }
        figures.to_string().lines().map(|line| format!("  {line}\n")).collect()
    }
}
