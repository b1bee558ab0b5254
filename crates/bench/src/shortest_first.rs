//! Short requests first, on a real site that is busy but not overloaded: what it does to the mean response
//! time.
//!
//! The origin and the pages of [`crate::bounded_response`], at nine tenths of the capacity in an open loop:
//! nobody is refused, and a short request waits behind a long one or doesn't. The same requests meet
//! every variant, in rounds with other seeds. Both gates let as many in at once, so that they differ in
//! nothing but the order.

use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Serialize;

use crate::Error;
use crate::alternate::{Display, Turn, alternate};
use crate::files::write_figures;
use crate::http::Mix;
use crate::http::pages::{Arrivals, Visits};
use crate::load::Outcome;
use crate::stats::{Rounds, mean, percentile};
use crate::table::{Figures, paragraph, ratio, seconds, spread};

/// The load, in capacities.
pub const LOAD: f64 = 0.9;
/// The load of the first seconds, in which the gate learns what is short.
const CALM: f64 = 0.5;
/// How long that is.
const CALM_LASTS: Duration = Duration::from_secs(10);
/// How long a client waits: as good as for ever.
const PATIENCE: Duration = Duration::from_secs(60);

/// How the experiment is run.
#[derive(Clone, Debug)]
pub struct Options {
    /// Rounds; every variant has one turn in each.
    pub rounds: usize,
    /// How long requests are counted in each turn.
    pub window: Duration,
    /// What the arrivals are drawn from.
    pub seed: u64,
    /// The origin's processor.
    pub origin_cpu: Option<usize>,
    /// Directory for the figures.
    pub output: PathBuf,
}

/// What stands before the origin, with the keys of the gate.
type Variant = (&'static str, Option<&'static [(&'static str, &'static str)]>);

/// The variants that are compared. Where they differ in the order only, two requests are in the service at
/// once: one works, one is on its way.
const VARIANTS: [Variant; 4] = [
    ("no gate", None),
    (
        "FIFO",
        Some(&[
            ("connections", "2"),
            ("capacity", "\"none\""),
            ("order", "\"fifo\""),
            ("long_limit", "\"none\""),
        ]),
    ),
    ("shortest first", Some(&[("connections", "2"), ("capacity", "\"none\""), ("long_limit", "\"none\"")])),
    ("the default gate", Some(&[])),
];
const FIFO: usize = 1;
const SHORTEST: usize = 2;

/// One turn.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Turned {
    /// Requests that were counted.
    pub arrived: usize,
    /// Counted requests that were refused, failed or gave up.
    pub lost: usize,
    /// Mean response time in seconds; a request that was lost counts the whole patience.
    pub mean: f64,
    /// Median, in seconds.
    pub p50: f64,
    /// 95th percentile, in seconds.
    pub p95: f64,
    /// The longest, in seconds.
    pub longest: f64,
}

/// The whole experiment.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// The variants' names.
    pub variants: Vec<&'static str>,
    /// By variant, then by round.
    pub results: Vec<Vec<Turned>>,
}

/// What the origin can do on this machine at this time, in processors: loads are multiples of it.
async fn peak(options: &Options) -> Result<f64, Error> {
    crate::bounded_response::peak(Visits::of(Mix::Shopping), options.origin_cpu, CALM_LASTS, options.seed)
        .await
}

/// Runs the experiment.
///
/// # Errors
/// If something doesn't start.
pub async fn run(options: &Options, display: &Display) -> Result<Report, Error> {
    let peak = peak(options).await?;
    display.say(&format!("  the origin does {peak:.3} s of work a second"));
    let expected = [options.window + CALM_LASTS; VARIANTS.len()];
    let results = alternate(options.rounds, &expected, async |at: Turn, left| {
        let (name, keys) = VARIANTS[at.variant];
        display.now(format!("{name}, round {}: {left:.0?} to go", at.round + 1));
        let result = one(options, keys, peak, options.seed + at.round as u64).await?;
        display.say(&format!("  {name}, round {}: mean {}", at.round + 1, seconds(result.mean)));
        Ok(result)
    })
    .await?;
    let report = Report { variants: VARIANTS.iter().map(|(name, _)| *name).collect(), results };
    report.write(&options.output)?;
    Ok(report)
}

async fn one(
    options: &Options,
    keys: Option<&'static [(&'static str, &'static str)]>,
    peak: f64,
    seed: u64,
) -> Result<Turned, Error> {
    let cpu = options.origin_cpu;
    let arrivals = Arrivals::poisson(
        Visits::of(Mix::Shopping),
        &[(CALM * peak, CALM_LASTS), (LOAD * peak, options.window)],
        seed,
    )?;
    let outcome = arrivals.meet(keys, cpu, PATIENCE).await?;
    let counted = outcome.records.iter().map(|(record, _)| record).filter(|record| record.due >= CALM_LASTS);
    let lost = counted.clone().filter(|record| record.outcome != Outcome::Completed).count();
    let responses: Vec<f64> = counted.map(|record| record.charged(PATIENCE).as_secs_f64()).collect();
    Ok(Turned {
        arrived: responses.len(),
        lost,
        mean: mean(&responses),
        p50: percentile(&responses, 0.5),
        p95: percentile(&responses, 0.95),
        longest: percentile(&responses, 1.0),
    })
}

impl Report {
    fn write(&self, output: &Path) -> Result<(), Error> {
        write_figures(self, output, "shortest-first")
    }

    /// The mean under FIFO as a multiple of that with short requests first, of each round.
    fn gain(&self) -> Rounds {
        let pairs = self.results[FIFO].iter().zip(&self.results[SHORTEST]);
        Rounds::of(&pairs.map(|(fifo, shortest)| fifo.mean / shortest.mean).collect::<Vec<_>>())
    }

    /// The figures as a table, with a sentence about them.
    pub fn text(&self) -> String {
        let names: Vec<String> = self.variants.iter().map(|name| (*name).to_owned()).collect();
        let mut figures = Figures::new(&names);
        let mut row = |label: &str, figure: fn(&Turned) -> f64, show: fn(f64) -> String| {
            let cell = |rounds: &Vec<Turned>| {
                spread(Rounds::of(&rounds.iter().map(figure).collect::<Vec<_>>()), show)
            };
            figures.row(label, self.results.iter().map(cell));
        };
        row("mean response time", |result| result.mean, seconds);
        row("median", |result| result.p50, seconds);
        row("95th percentile", |result| result.p95, seconds);
        row("the longest", |result| result.longest, seconds);
        row("lost", |result| result.lost as f64, |lost| format!("{lost:.0}"));
        let table: String = figures.to_string().lines().map(|line| format!("  {line}\n")).collect();
        let gain = spread(self.gain(), ratio);
        table
            + "\n"
            + &paragraph(&format!(
                "At {LOAD} of the capacity FIFO's mean is {gain} times that with short requests first."
            ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_gain_is_of_each_round() {
        let result = |mean| Turned { arrived: 1, lost: 0, mean, p50: mean, p95: mean, longest: mean };
        let results = vec![
            vec![result(1.0), result(1.0)],
            vec![result(3.0), result(4.0)],
            vec![result(1.0), result(4.0)],
            vec![result(1.0), result(1.0)],
        ];
        let report = Report { variants: vec!["a", "b", "c", "d"], results };
        assert_eq!(report.gain(), Rounds { median: 2.0, low: 1.0, high: 3.0 });
        assert!(report.text().contains("2.00"), "{}", report.text());
    }
}
