//! Experiments without a plan: what no laboratory of plans has, such as a browser or a link. In each section
//! the variants take turns, round by round. All have these flags, this runner and this report.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, value_parser};
use serde::Serialize;
use sim::plot::{Curve, Plot};

use crate::Error;
use crate::alternate::{Display, Turn, alternate};
use crate::stats::{Rounds, percentile};
use crate::table::{Figures, ratio, spread};

/// Flags that all of them have.
#[derive(Clone, Debug, Default, Args)]
pub struct Flags {
    /// Only parts with one of these in their names, where there are several
    #[arg(long, value_name = "PART,…", value_delimiter = ',')]
    pub only: Vec<String>,
    /// Rounds; every variant has one turn in each
    #[arg(long, value_parser = value_parser!(u16).range(1..))]
    rounds: Option<u16>,
    /// How long each turn is: 50s, or a number of seconds
    #[arg(long, alias = "seconds", value_parser = time)]
    window: Option<Duration>,
    /// What arrivals are drawn from, where any are
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Directory for figures and pictures, if not results/NAME
    #[arg(long)]
    output: Option<PathBuf>,
    /// The processor that what is measured has for itself.
    #[arg(skip)]
    pub cpu: Option<usize>,
}

/// A length of time with its unit, or a number of seconds.
///
/// # Errors
/// If the text is none, or zero.
pub fn time(text: &str) -> Result<Duration, String> {
    let seconds = text.parse().ok().and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    let time = seconds.or_else(|| humantime::parse_duration(text).ok());
    time.filter(|time| !time.is_zero()).ok_or_else(|| "not a length of time, such as 50s".to_owned())
}

impl Flags {
    /// Whether a part of this name is asked for.
    pub fn has(&self, name: &str) -> bool {
        self.only.is_empty() || self.only.iter().any(|part| name.contains(part))
    }

    /// How many rounds, if not so many.
    pub fn rounds(&self, usual: u16) -> usize {
        self.rounds.unwrap_or(usual).into()
    }

    /// How long a turn is, if not so many seconds.
    pub fn window(&self, usual: f64) -> Duration {
        self.window.unwrap_or(Duration::from_secs_f64(usual))
    }

    /// The directory of an experiment's figures and pictures, which is made if it isn't there.
    ///
    /// # Errors
    /// If it can't be made.
    pub fn directory(&self, name: &str) -> Result<PathBuf, Error> {
        let directory = self.output.clone().unwrap_or_else(|| PathBuf::from("results").join(name));
        fs::create_dir_all(&directory).map_err(Error::io(format!("making {}", directory.display())))?;
        Ok(directory)
    }

    /// A report without a section yet.
    ///
    /// # Errors
    /// If its directory can't be made.
    pub fn report<T: Serialize>(
        &self,
        name: &'static str,
        variants: &[impl AsRef<str>],
        rows: &'static [Row<T>],
    ) -> Result<Report<T>, Error> {
        let variants = variants.iter().map(|variant| variant.as_ref().to_owned()).collect();
        Ok(Report { name, variants, sections: Vec::new(), rows, directory: self.directory(name)? })
    }
}

/// A row of the table: a figure of a turn, and how it is written. A turn without such a figure has NaN.
#[derive(Debug)]
pub struct Row<T> {
    label: &'static str,
    figure: fn(&T) -> f64,
    show: fn(f64) -> String,
    is_compared: bool,
}

impl<T> Row<T> {
    /// A figure alone.
    pub const fn new(label: &'static str, figure: fn(&T) -> f64, show: fn(f64) -> String) -> Self {
        Self { label, figure, show, is_compared: false }
    }

    /// A figure, and in a row below what each variant has of the first one's in the same round.
    pub const fn compared(label: &'static str, figure: fn(&T) -> f64, show: fn(f64) -> String) -> Self {
        Self { is_compared: true, ..Self::new(label, figure, show) }
    }
}

/// What the variants made of one load.
#[derive(Clone, Debug, Serialize)]
pub struct Section<T> {
    /// What it is called; empty if it is the only one.
    pub name: String,
    /// By variant, then by round.
    pub turns: Vec<Vec<T>>,
}

impl<T> Section<T> {
    /// A figure of each round of a variant that has it.
    pub fn figures(&self, variant: usize, figure: impl Fn(&T) -> f64) -> Vec<f64> {
        self.turns[variant].iter().map(figure).filter(|figure| !figure.is_nan()).collect()
    }

    /// The median of a variant's figure; NaN if it has none.
    pub fn median(&self, variant: usize, figure: impl Fn(&T) -> f64) -> f64 {
        let figures = self.figures(variant, figure);
        if figures.is_empty() { f64::NAN } else { percentile(&figures, 0.5) }
    }

    /// A variant's figure by round, each divided by that of another in the same round.
    pub fn ratios(&self, variant: usize, other: usize, figure: impl Fn(&T) -> f64) -> Vec<f64> {
        let pairs = self.turns[variant].iter().zip(&self.turns[other]);
        pairs.map(|(one, other)| figure(one) / figure(other)).filter(|ratio| !ratio.is_nan()).collect()
    }

    /// A curve for each variant, of the first round: a mean of curves shows what no turn did.
    pub fn curves(&self, points: impl Fn(&T) -> Vec<(f64, f64)>) -> Vec<Curve> {
        let first = |turns: &Vec<T>| turns.first().map(&points).unwrap_or_default();
        self.turns.iter().map(|turns| Curve { points: first(turns), band: Vec::new() }).collect()
    }
}

/// An experiment that has begun.
#[derive(Debug, Serialize)]
pub struct Report<T: 'static> {
    #[serde(skip)]
    name: &'static str,
    /// The variants' names.
    pub variants: Vec<String>,
    /// What is measured so far.
    pub sections: Vec<Section<T>>,
    #[serde(skip)]
    rows: &'static [Row<T>],
    #[serde(skip)]
    directory: PathBuf,
}

impl<T: Serialize> Report<T> {
    /// Measures a section, each turn of which takes about so long, and keeps it: somebody may interrupt the
    /// rest.
    ///
    /// # Errors
    /// With the first turn's error, or if the figures can't be written.
    pub async fn measure(
        &mut self,
        name: &str,
        (rounds, lasts): (usize, Duration),
        display: &Display,
        mut turn: impl AsyncFnMut(Turn) -> Result<T, Error>,
    ) -> Result<&Section<T>, Error> {
        let expected = vec![lasts; self.variants.len()];
        let turns = alternate(rounds, &expected, async |at: Turn, left| {
            let place = format!("{name}  {}  round {}", self.variants[at.variant], at.round + 1);
            display.now(format!("{place}: {left:.0?} to go"));
            let turned = turn(at).await?;
            let known = |row: &&Row<T>| !(row.figure)(&turned).is_nan();
            let told = |row: &Row<T>| format!("{} {}", row.label.trim(), (row.show)((row.figure)(&turned)));
            let told: Vec<String> = self.rows.iter().filter(known).take(3).map(told).collect();
            display.say(&format!("  {}: {}", place.trim(), told.join(", ")));
            Ok(turned)
        })
        .await?;
        self.add(name, turns)
    }

    /// Keeps a section that was measured.
    ///
    /// # Errors
    /// If the figures can't be written.
    pub fn add(&mut self, name: &str, turns: Vec<Vec<T>>) -> Result<&Section<T>, Error> {
        self.sections.push(Section { name: name.to_owned(), turns });
        crate::files::write_figures(self, &self.directory, self.name)?;
        Ok(&self.sections[self.sections.len() - 1])
    }

    /// Draws a picture beside the figures.
    ///
    /// # Errors
    /// If it can't be written.
    pub fn draw(&self, name: &str, plot: &Plot) -> Result<(), Error> {
        Ok(plot.write(&self.directory.join(name))?)
    }

    /// The figures as a table: medians of the rounds, lowest and highest.
    pub fn table(&self) -> String {
        let mut figures = Figures::new(&self.variants);
        for section in &self.sections {
            if !section.name.is_empty() {
                figures.heading(&section.name);
            }
            let variants = || 0..section.turns.len();
            for Row { label, figure, show, is_compared } in self.rows {
                let known: Vec<Vec<f64>> =
                    variants().map(|variant| section.figures(variant, figure)).collect();
                if known.iter().all(Vec::is_empty) {
                    continue;
                }
                figures.row(label, known.iter().map(|figures| cell(figures, *show)));
                if *is_compared {
                    let beside = |variant| cell(&section.ratios(variant, 0, figure), ratio);
                    figures.row(&format!("  of {}'s", self.variants[0]), variants().map(beside));
                }
            }
        }
        figures.indented()
    }
}

/// The median of some rounds, the lowest and the highest.
pub fn cell(rounds: &[f64], show: fn(f64) -> String) -> String {
    if rounds.is_empty() { "–".to_owned() } else { spread(Rounds::of(rounds), show) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_round_is_compared_with_its_own_first_turn() {
        const ROWS: &[Row<f64>] =
            &[Row::compared("mean", |mean| *mean, ratio), Row::new("late", |_| f64::NAN, ratio)];
        let directory = tempfile::tempdir().unwrap();
        let options = Flags { output: Some(directory.path().to_owned()), ..Flags::default() };
        let mut report = options.report("tried", &["direct", "gate", "none"], ROWS).unwrap();
        let turns = vec![vec![1.0, 2.0, 4.0], vec![2.0; 3], vec![]];
        assert_eq!(report.add("lock", turns).unwrap().ratios(1, 0, |one| *one), [2.0, 1.0, 0.5]);
        let text = report.table();
        assert!(text.contains("1.00  (0.50 … 2.00)") && text.contains("of direct's"), "{text}");
        assert!(text.contains("–") && !text.contains("late"), "{text}");
        assert!(directory.path().join("tried.json").is_file());
        assert!(options.has("lock") && !Flags { only: vec!["place".to_owned()], ..options }.has("lock"));
        assert!(time("0").is_err() && time("x").is_err() && time("500ms") == time("0.5"));
        assert_eq!(time("0.5"), Ok(Duration::from_millis(500)));
    }
}
