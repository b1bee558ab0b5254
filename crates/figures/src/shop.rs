//! Our own shop, simulated, to be set beside the real one (`docs/results/simulated-beside-real.md`).
//! Once as it locks in the application, once locking nothing, so that its pages wait at the gate.

use std::fmt::Write as _;

use crate::error::Error;
use crate::figure::{Figure, IN_TIME, Line, Quantity, RESPONSE, TwoMetrics};
use crate::numbers::{percent, seconds, with_interval};
use crate::results::Results;
use sim::plot::Scale;

/// What is drawn of one scenario.
struct Shop {
    /// The file, and what the names of its figures begin with.
    name: &'static str,
    title: &'static str,
    subtitle: &'static str,
    variants: &'static [&'static str],
    /// The numbers of browsers that the table has.
    browsers: &'static [f64],
}

const SHOPS: [Shop; 2] = [
    Shop {
        name: "shop",
        title: "The shop",
        subtitle: "the bookstore, locking in the application; 20 runs, bands: 90 %",
        variants: &["original", "FIFO", "wait-1", "wait-3", "wait-5", "SJF", "found", "default"],
        browsers: &[120.0, 235.0, 353.0, 471.0, 706.0, 1000.0],
    },
    Shop {
        name: "shop-database",
        title: "The shop that waits at the gate",
        subtitle: "the bookstore, locking nothing; 20 runs, bands: 90 %",
        variants: &["original", "FIFO", "SJF", "found", "default"],
        browsers: &[130.0, 270.0, 540.0, 810.0],
    },
];

const PER_SECOND: Quantity = Quantity {
    name: "Pages per second",
    of: |metric| metric.throughput,
    show: |value| format!("{value:.1}"),
    axis: |value| format!("{value:.0}"),
    scale: Scale::Linear,
};

/// All. `run` runs a scenario file by name.
pub(crate) fn figures(run: &dyn Fn(&str) -> Result<Results, Error>) -> Result<Vec<Figure>, Error> {
    let mut figures = Vec::new();
    for shop in &SHOPS {
        let results = run(&format!("{}.toml", shop.name))?;
        figures.push(shop.curves("throughput", &results, PER_SECOND));
        figures.push(shop.curves("response time", &results, RESPONSE));
        figures.push(shop.table(&results));
    }
    Ok(figures)
}

impl Shop {
    fn curves(&self, what: &str, results: &Results, quantity: Quantity) -> Figure {
        let id = format!("{}-{}", self.name, what.replace(" time", ""));
        let title = format!("{}: {what}", self.title);
        let drawn = TwoMetrics {
            id: &id,
            title: &title,
            subtitle: self.subtitle,
            lines: self.variants.iter().map(|&variant| Line { results, variant }).collect(),
            quantity,
            said: Vec::new(),
            at: None,
            level: None,
            axis: "browsers",
            metrics: IN_TIME,
        };
        Figure { table: String::new(), ..drawn.figure() }
    }

    /// What a real run tells, too.
    fn table(&self, results: &Results) -> Figure {
        let mut table =
            "| browsers | | pages/s | of its own peak | mean, in time | mean, all | not answered |\n\
                         |---:|---|---:|---:|---:|---:|---:|\n"
                .to_owned();
        let rate = |variant, point| results.at(variant, point, |digest| digest.in_time.throughput);
        for &browsers in self.browsers {
            for &name in self.variants {
                // A short run leaves places out.
                let Some((variant, point)) = results.variant(name).zip(results.point(browsers)) else {
                    continue;
                };
                let peak = (0..results.points.len()).map(|at| rate(variant, at).mean).fold(0.0, f64::max);
                let _ = writeln!(
                    table,
                    "| {browsers} | {name} | {} | {:.2} | {} | {} | {} |",
                    with_interval(rate(variant, point), PER_SECOND.show),
                    rate(variant, point).mean / peak,
                    with_interval(results.at(variant, point, |digest| digest.in_time.response), seconds),
                    with_interval(results.at(variant, point, |digest| digest.measured.response), seconds),
                    percent(results.at(variant, point, |digest| digest.measured.unanswered).mean),
                );
            }
        }
        Figure { id: format!("{}-table", self.name), drawing: None, table }
    }
}
