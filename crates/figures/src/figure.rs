//! A figure: what is drawn, and the same as a table, by both metrics.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use sim::plot::{Curve, Mark, Panel, Plot, Scale};

use crate::bars::Bars;
use crate::digest::{Digest, Metric};
use crate::error::Error;
use crate::numbers::{percent, seconds, short_seconds, with_interval};
use crate::results::Results;

/// A figure.
#[derive(Clone, Debug)]
pub struct Figure {
    /// The name of the figure's files, such as `gatekeeper-05`.
    pub id: String,
    /// The drawing, if there is one.
    pub drawing: Option<Drawing>,
    /// The figure's values as a table in Markdown.
    pub table: String,
}

/// A drawing of curves or of bars.
#[derive(Clone, Debug)]
pub enum Drawing {
    /// Curves.
    Plot(Plot),
    /// Bars.
    Bars(Bars),
}

impl Figure {
    /// Writes the picture and the table that the figure has into this directory.
    pub(crate) fn write(&self, directory: &Path) -> Result<(), Error> {
        let path = directory.join(format!("{}.svg", self.id));
        match &self.drawing {
            None => {}
            Some(Drawing::Plot(plot)) => plot.write(&path)?,
            Some(Drawing::Bars(bars)) => {
                fs::write(&path, bars.svg()).map_err(|source| Error::file("write", &path, source))?;
            }
        }
        if self.table.is_empty() {
            return Ok(());
        }
        let path = directory.join(format!("{}.csv", self.id));
        fs::write(&path, csv(&self.table)).map_err(|source| Error::file("write", &path, source))
    }
}

/// A table in Markdown as CSV, without the line below the headings. No cell has a bar or a quotation mark.
fn csv(table: &str) -> String {
    let rows = table.lines().enumerate().filter(|&(line, _)| line != 1).map(|(_, row)| {
        let cells = row.trim().trim_start_matches('|').trim_end_matches('|').split('|').map(str::trim);
        let quoted =
            cells.map(|cell| if cell.contains(',') { format!("\"{cell}\"") } else { cell.to_owned() });
        quoted.collect::<Vec<_>>().join(",") + "\n"
    });
    rows.collect()
}

/// One of the curves of a figure.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Line<'a> {
    pub(crate) results: &'a Results,
    /// The gate's name in the results.
    pub(crate) variant: &'a str,
}

/// What a figure shows of a metric.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Quantity {
    /// The name, with the unit.
    pub(crate) name: &'static str,
    pub(crate) of: fn(&Metric) -> f64,
    pub(crate) show: fn(f64) -> String,
    /// Formats a value for an axis.
    pub(crate) axis: fn(f64) -> String,
    pub(crate) scale: Scale,
}

/// Interactions per minute, as in the Gatekeeper paper.
pub(crate) const PER_MINUTE: Quantity = Quantity {
    name: "Interactions per minute",
    of: |metric| metric.throughput * 60.0,
    show: |value| format!("{value:.0}"),
    axis: |value| format!("{value:.0}"),
    scale: Scale::Linear,
};

/// A mean response time.
pub(crate) const RESPONSE: Quantity = Quantity {
    name: "Mean response time (logarithmic)",
    of: |metric| metric.response,
    show: seconds,
    axis: short_seconds,
    scale: Scale::Logarithmic,
};

/// A place that is compared with the paper: the curve, the swept value, and what the paper says there, if
/// anything.
pub(crate) type Said = (usize, f64, Option<f64>);

/// A figure whose curves are shown by both metrics.
#[derive(Debug)]
pub(crate) struct TwoMetrics<'a> {
    pub(crate) id: &'a str,
    pub(crate) title: &'a str,
    pub(crate) subtitle: &'a str,
    pub(crate) lines: Vec<Line<'a>>,
    pub(crate) quantity: Quantity,
    pub(crate) said: Vec<Said>,
    /// Where the paper says that something happens, and what.
    pub(crate) at: Option<(f64, &'a str)>,
    /// A value that the paper says is held.
    pub(crate) level: Option<f64>,
    pub(crate) axis: &'static str,
    /// What the two metrics are of.
    pub(crate) metrics: [&'a str; 2],
}

/// What the metrics are of where nobody is refused.
pub(crate) const IN_TIME: [&str; 2] =
    ["requests served in time (the paper's metric)", "all requests, each at its full wait"];

impl TwoMetrics<'_> {
    pub(crate) fn figure(&self) -> Figure {
        let marks = |said: bool| {
            let points = self.said.iter().filter_map(|&(variant, at, value)| {
                Some(Mark::Point { at, value: value.filter(|_| said)?, variant })
            });
            points
                .chain(self.at.map(|(at, _)| Mark::At(at)))
                .chain(self.level.map(Mark::Level))
                .collect::<Vec<_>>()
        };
        let right =
            self.lines.iter().flat_map(|line| line.results.points.iter().copied()).fold(0.0, f64::max);
        let in_time: fn(&Digest) -> &Metric = |digest| &digest.in_time;
        let over_all: fn(&Digest) -> &Metric = |digest| &digest.over_all;
        let said = self.said.iter().any(|(_, _, value)| value.is_some());
        let plot = Plot {
            title: self.title.to_owned(),
            subtitle: match self.at {
                Some((_, what)) => format!("{}; dotted: {what}", self.subtitle),
                None => self.subtitle.to_owned(),
            },
            variants: self.lines.iter().map(|line| line.variant.to_owned()).collect(),
            marks: said.then(|| "the paper's numbers".to_owned()),
            axis: self.axis,
            seconds: right,
            panels: vec![
                self.panel(self.metrics[0], in_time, marks(true)),
                self.panel(self.metrics[1], over_all, marks(false)),
            ],
        };
        let drawing = Some(Drawing::Plot(plot));
        Figure { id: self.id.to_owned(), drawing, table: self.table() }
    }

    fn panel(&self, of: &str, metric: fn(&Digest) -> &Metric, marks: Vec<Mark>) -> Panel {
        let Quantity { name, axis, scale, of: value, .. } = self.quantity;
        let curve = |line: &Line<'_>| {
            let mut curve = Curve::default();
            let Some(variant) = line.results.variant(line.variant) else { return curve };
            for (point, &at) in line.results.points.iter().enumerate() {
                let found = line.results.at(variant, point, |digest| value(metric(digest)));
                if !found.mean.is_finite() {
                    continue;
                }
                curve.points.push((at, found.mean));
                if let Some(half) = found.half_width {
                    curve.band.push((at, (found.mean - half).max(0.0), found.mean + half));
                }
            }
            curve
        };
        let curves = self.lines.iter().map(curve).collect();
        Panel { title: format!("{name}: {of}"), scale, show: axis, curves, marks }
    }

    /// A row for each place that is compared.
    fn table(&self) -> String {
        let mut text = format!(
            "| {} | | paper | ours, the paper's metric | ours, over all | N − X(R+Z), the paper's | …, over all |\n\
             |---:|---|---:|---:|---:|---:|---:|\n",
            self.axis
        );
        for &(line, at, said) in &self.said {
            let Line { results, variant } = self.lines[line];
            let place = results.variant(variant).zip(results.point(at));
            // A short run leaves places out.
            let Some((index, point)) = place else { continue };
            let Quantity { of, show, .. } = self.quantity;
            let found = |metric: fn(&Digest) -> &Metric| {
                with_interval(results.at(index, point, |digest| of(metric(digest))), show)
            };
            let left = |metric: fn(&Digest) -> &Metric| {
                percent(results.at(index, point, |digest| metric(digest).residual).mean)
            };
            // Writing to a string cannot fail.
            let _ = writeln!(
                text,
                "| {at} | {variant} | {} | {} | {} | {} | {} |",
                said.map_or("–".to_owned(), show),
                found(|digest| &digest.in_time),
                found(|digest| &digest.over_all),
                left(|digest| &digest.in_time),
                left(|digest| &digest.over_all),
            );
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_becomes_csv_with_quotes_where_a_cell_has_a_comma() {
        let table = "| | p, from–to | N |\n|---|---:|---:|\n| FIFO | 0–1 | |\n";
        assert_eq!(csv(table), ",\"p, from–to\",N\nFIFO,0–1,\n");
    }
}
