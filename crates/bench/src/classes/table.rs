//! Table 2: the waits of three classes by rates and weights, before an origin that blocks.
//!
//! The gate has no strict priority. Weights of 1000:1:0.001 stand for it in (c).

use std::time::Duration;

use sim::goals::{Sharing, TABLE_RATE, TABLE_SECONDS, WORKERS, table2};

use super::Options;
use super::laboratory::{Drawn, Ended, Stream, lines};
use crate::Error;
use crate::alternate::Display;
use crate::table::Figures;

/// The rates of a row, its weights, and what the paper found. Without weights: strict priority.
type Row = ([f64; 3], Option<[u32; 3]>, [f64; 3]);

const ROWS: [Row; 10] = [
    ([375.0, 375.0, 375.0], Some([1, 1, 1]), [1.5, 1.5, 1.5]),
    ([375.0, 400.0, 400.0], Some([1, 1, 1]), [1.5, 1.8, 1.9]),
    ([375.0, 425.0, 425.0], Some([1, 1, 1]), [1.5, 1.9, 2.1]),
    ([400.0; 3], Some([2, 1, 1]), [0.005, 2.4, 2.2]),
    ([400.0; 3], Some([3, 2, 1]), [0.006, 1.42, 3.15]),
    ([400.0; 3], Some([4, 3, 1]), [0.005, 0.75, 3.68]),
    ([400.0; 3], Some([5, 4, 1]), [0.006, 0.49, 3.89]),
    ([400.0; 3], Some([6, 5, 1]), [0.007, 0.26, 4.15]),
    ([425.0, 425.0, 425.0], None, [1.4, 1.5, 1.8]),
    ([450.0, 425.0, 400.0], None, [1.5, 1.7, 1.9]),
];

pub(super) async fn run(options: &Options, display: &Display) -> Result<String, Error> {
    let mut figures = Figures::new(&["the paper", "simulated", "real"].map(str::to_owned));
    for (rates, weights, paper) in ROWS {
        let sharing = weights.map_or(Sharing::Priority, Sharing::Weights);
        let simulated =
            table2(rates, sharing, options.seed).map_err(|error| Error::Experiment(error.to_string()))?;
        let real = cell(rates, weights, options).await?;
        let by =
            weights.map_or("priority".to_owned(), |weights| weights.map(|one| one.to_string()).join(":"));
        let label = format!("{} at {}/s", by, rates.map(|rate| rate.to_string()).join(", "));
        let shown = [paper, simulated, real].map(|waits| waits.map(|wait| format!("{wait:.3}")).join(" / "));
        display.say(&format!("  {label}: {}", shown.join("   ")));
        figures.row(&label, shown);
    }
    Ok(format!("\n  Table 2: mean waits of C1 / C2 / C3 in seconds\n{figures}\n"))
}

async fn cell(rates: [f64; 3], weights: Option<[u32; 3]>, options: &Options) -> Result<[f64; 3], Error> {
    let stream = |class: usize| Stream {
        class: class as u16,
        does: "block",
        mean: f64::from(WORKERS) / TABLE_RATE,
        rates: vec![(0.0, rates[class])],
        phase: None,
    };
    let drawn = Drawn::new(&[stream(0), stream(1), stream(2)], TABLE_SECONDS, options.seed);
    let weights = weights.map_or([1_000.0, 1.0, 0.001], |weights| weights.map(f64::from));
    let keys = weights.map(|weight| format!("weight = {weight}"));
    let lines = lines(WORKERS, Duration::from_secs(1), &keys);
    let (ended, ()) = drawn.meet(lines, options.cpu, |_, _| Ok(())).await?;
    Ok([0, 1, 2].map(|class| wait(&ended, class)))
}

/// The mean wait of those of a class that were let in while requests came, as in the paper.
fn wait(ended: &[Ended], class: usize) -> f64 {
    let wait = |one: &Ended| one.response - one.takes;
    let let_in = ended.iter().filter(|one| one.class == class && one.due + wait(one) < TABLE_SECONDS);
    crate::stats::mean(&let_in.map(wait).collect::<Vec<_>>())
}
