//! Our own shop, simulated: what the experiments on the real one are set beside (`docs/results/README.md`).

use std::fmt::Write as _;

use crate::error::Error;
use crate::figure::{Figure, IN_TIME, Line, Quantity, RESPONSE, TwoMetrics, percent, seconds, with_interval};
use crate::results::Results;
use sim::plot::Scale;

const VARIANTS: [&str; 8] = ["original", "FIFO", "wait-1", "wait-3", "wait-5", "SJF", "found", "default"];
const SUBTITLE: &str = "the bookstore, locking in the application; 20 runs, bands: 90 %";
/// The numbers of browsers of the experiments that the table has.
const BROWSERS: [f64; 6] = [120.0, 235.0, 353.0, 471.0, 706.0, 1000.0];

const PER_SECOND: Quantity = Quantity {
    name: "Pages per second",
    of: |metric| metric.throughput,
    show: |value| format!("{value:.1}"),
    axis: |value| format!("{value:.0}"),
    scale: Scale::Linear,
};

/// Both. `run` runs a scenario file by name.
pub(crate) fn figures(run: &dyn Fn(&str) -> Result<Results, Error>) -> Result<Vec<Figure>, Error> {
    let shop = run("shop.toml")?;
    let figure = |id, title, quantity| {
        let drawn = TwoMetrics {
            id,
            title,
            subtitle: SUBTITLE,
            lines: VARIANTS.iter().map(|&variant| Line { results: &shop, variant }).collect(),
            quantity,
            said: Vec::new(),
            at: None,
            level: None,
            axis: "browsers",
            metrics: IN_TIME,
        };
        Figure { table: String::new(), ..drawn.figure() }
    };
    let throughput = figure("shop-throughput", "The shop: throughput", PER_SECOND);
    let response = figure("shop-response", "The shop: response time", RESPONSE);
    Ok(vec![throughput, response, table(&shop)])
}

/// What a real run tells, too.
fn table(results: &Results) -> Figure {
    let mut table = "| browsers | | pages/s | of its own peak | mean, in time | mean, all | not answered |\n\
                     |---:|---|---:|---:|---:|---:|---:|\n"
        .to_owned();
    let rate = |variant, point| results.at(variant, point, |digest| digest.in_time.throughput);
    for browsers in BROWSERS {
        for name in VARIANTS {
            // A short run leaves places out.
            let Some((variant, point)) = results.variant(name).zip(results.point(browsers)) else { continue };
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
    Figure { id: "shop-table".to_owned(), drawing: None, table }
}
