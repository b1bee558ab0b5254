//! The figures of *Yaksha* (Kamra, Misra and Nahum, IWQoS 2004), Figs. 6–16. Its text gives few numbers:
//! the target of 150 ms, about 50 jobs a second, and when browsers join. They are drawn in; the rest is
//! prose there, and on our page.

use std::fmt::Write as _;

use sim::plot::{Curve, Mark, Panel, Plot, Scale};

use crate::digest::{Digest, Moment};
use crate::error::Error;
use crate::figure::{Drawing, Figure, Line, Quantity, RESPONSE, Said, TwoMetrics};
use crate::numbers::{percent, seconds, short_seconds, with_interval};
use crate::results::Results;
use crate::series;

/// The target of all its experiments, in seconds (section V-B).
const TARGET: f64 = 0.15;
/// The capacity that it finds, in jobs per second (Fig. 6).
const CAPACITY: f64 = 50.0;
/// When more browsers join, and the end, in seconds (section V-C).
const PHASES: [(f64, f64); 3] = [(0.0, 50.0), (50.0, 100.0), (100.0, 200.0)];
const BROWSERS: &str = "browsers";
/// Where ours are compared.
const COMPARED: [f64; 5] = [40.0, 80.0, 200.0, 700.0, 1000.0];
const DOTTED: &str = "; dotted: the paper's number";
const SUBTITLE: &str = "shopping mix; 3 runs of 15 minutes after 15, bands: 90 %; dotted: the paper's number";

/// Requests per second.
const PER_SECOND: Quantity = Quantity {
    name: "Requests per second",
    of: |metric| metric.throughput,
    show: |value| format!("{value:.1}"),
    axis: |value| format!("{value:.0}"),
    scale: Scale::Linear,
};

/// All of them. `run` runs a scenario file by name.
pub(crate) fn figures(run: &dyn Fn(&str) -> Result<Results, Error>) -> Result<Vec<Figure>, Error> {
    let load = run("yaksha-load.toml")?;
    let ramp = run("yaksha-ramp.toml")?;
    let workloads = run("yaksha-workloads.toml")?;
    let mut figures = vec![capacity(&load)];
    figures.extend(increasing(&load));
    figures.push(cumulative(&ramp));
    figures.extend(changing(&workloads));
    Ok(figures)
}

/// Of processor sharing, what capacity the rate of what was served and its mean response time say: λ / (1 −
/// E\[X\]/T).
fn estimated(digest: &Digest) -> f64 {
    digest.in_time.throughput / (1.0 - digest.service_time / digest.in_time.response)
}

/// Fig. 6.
fn capacity(results: &Results) -> Figure {
    let mut table =
        "| browsers | λ, ours | T, ours | μ = λ/(1 − E[X]/T), paper | ours |\n|---:|---:|---:|---:|---:|\n"
            .to_owned();
    let mut curve = Curve::default();
    let variant = results.variant("original").unwrap_or_default();
    for (point, &browsers) in results.points.iter().enumerate() {
        let found = results.at(variant, point, estimated);
        curve.points.push((browsers, found.mean));
        if let Some(half) = found.half_width {
            curve.band.push((browsers, found.mean - half, found.mean + half));
        }
        let rate = results.at(variant, point, |digest| digest.in_time.throughput);
        let response = results.at(variant, point, |digest| digest.in_time.response);
        let _ = writeln!(
            table,
            "| {browsers} | {} | {} | about {CAPACITY} | {} |",
            with_interval(rate, PER_SECOND.show),
            with_interval(response, seconds),
            with_interval(found, PER_SECOND.show),
        );
    }
    let panel = Panel {
        title: "Estimated capacity, requests per second".to_owned(),
        scale: Scale::Linear,
        show: PER_SECOND.axis,
        curves: vec![curve],
        marks: vec![Mark::Level(CAPACITY)],
    };
    let plot = Plot {
        title: "Fig. 6: the capacity that processor sharing says".to_owned(),
        subtitle: SUBTITLE.to_owned(),
        variants: vec!["without the controller".to_owned()],
        marks: None,
        axis: BROWSERS,
        seconds: results.points.iter().copied().fold(0.0, f64::max),
        panels: vec![panel],
    };
    Figure { id: "yaksha-06".to_owned(), drawing: Some(Drawing::Plot(plot)), table }
}

/// Figs. 7 and 8.
fn increasing(results: &Results) -> [Figure; 2] {
    let figure = |id, title, quantity, level: Option<f64>| {
        let said: Vec<Said> = [1, 0]
            .into_iter()
            .flat_map(|line| COMPARED.map(|browsers| (line, browsers, level.filter(|_| line == 1))))
            .collect();
        let lines = ["original", "controlled"].map(|variant| Line { results, variant }).to_vec();
        let metrics = ["what was served (the paper's metric)", "all, refused ones too"];
        // Without a level there is nothing dotted.
        let subtitle = if level.is_some() { SUBTITLE } else { SUBTITLE.trim_end_matches(DOTTED) };
        let mut figure = TwoMetrics {
            id,
            title,
            subtitle,
            lines,
            quantity,
            said,
            at: None,
            level,
            axis: BROWSERS,
            metrics,
        };
        // The target is a line; a point for each place compared would only repeat it.
        let table = figure.figure().table;
        figure.said = Vec::new();
        Figure { table, ..figure.figure() }
    };
    [
        figure("yaksha-07", "Fig. 7: throughput under increasing load", PER_SECOND, None),
        figure("yaksha-08", "Fig. 8: response time under increasing load", RESPONSE, Some(TARGET)),
    ]
}

/// Fig. 9.
fn cumulative(results: &Results) -> Figure {
    let variants = ["original", "controlled"];
    let curve = |variant: &&str| {
        let mut served = series::curve(results, variant, |moment| moment.served);
        served.band = Vec::new();
        let mut sum = 0.0;
        for (_, value) in &mut served.points {
            sum += *value;
            *value = sum;
        }
        served
    };
    let end = results.moments(0).filter_map(<[Moment]>::last).map(|moment| moment.at).fold(0.0, f64::max);
    let count = |value: f64| format!("{value:.0}");
    let panel = |title: &str, curves, marks| Panel {
        title: title.to_owned(),
        scale: Scale::Linear,
        show: count,
        curves,
        marks,
    };
    let plot = Plot {
        title: "Fig. 9: cumulative throughput under increasing load".to_owned(),
        subtitle: "shopping mix; 100 more browsers every two minutes; 5 runs".to_owned(),
        variants: variants.map(str::to_owned).to_vec(),
        marks: None,
        axis: "seconds",
        seconds: end,
        panels: vec![panel(
            "Requests served so far (mean of the runs)",
            variants.iter().map(curve).collect(),
            Vec::new(),
        )],
    };
    let mut table =
        "| | served in the first 10 minutes | in the last 10 | mean response of those, the last 10 |\n\
                     |---|---:|---:|---:|\n"
            .to_owned();
    for variant in variants {
        let Some(index) = results.variant(variant) else { continue };
        let runs = results.moments(index).count() as f64;
        let half = end / 2.0;
        let served = |span| series::sum(results, index, span, |moment| moment.served);
        let kept = series::sum(results, index, (half, end), |moment| moment.response * moment.served);
        let _ = writeln!(
            table,
            "| {variant} | {:.0} | {:.0} | {} |",
            served((0.0, half)) / runs,
            served((half, end)) / runs,
            seconds(kept / served((half, end))),
        );
    }
    Figure { id: "yaksha-09".to_owned(), drawing: Some(Drawing::Plot(plot)), table }
}

/// What a figure shows over time.
struct Shown {
    title: &'static str,
    of: fn(&Moment) -> f64,
    show: fn(f64) -> String,
    scale: Scale,
    level: Option<f64>,
}

const SMOOTHED: Shown = Shown {
    title: "Mean response time of what was served, smoothed over 10 s by the controller (logarithmic)",
    of: |moment| moment.measured,
    show: short_seconds,
    scale: Scale::Logarithmic,
    level: Some(TARGET),
};
const EACH_SECOND: Shown =
    Shown { title: "The same of each second (logarithmic)", of: |moment| moment.response, ..SMOOTHED };
const PROBABILITY: Shown = Shown {
    title: "Probability of refusing",
    of: |moment| moment.probability,
    show: |value| format!("{value:.2}"),
    scale: Scale::Linear,
    level: None,
};
const A: Shown = Shown {
    title: "A, per second (logarithmic)",
    of: |moment| moment.gains.0,
    show: gain,
    scale: Scale::Logarithmic,
    level: None,
};
const B: Shown = Shown { title: "B, per second (logarithmic)", of: |moment| moment.gains.1, ..A };

/// A power of ten.
fn gain(value: f64) -> String {
    if value >= 0.1 { format!("{value:.1}") } else { format!("{value:.0e}") }
}

/// Figs. 10–16.
fn changing(results: &Results) -> Vec<Figure> {
    const SELF: &[&str] = &["self-tuned"];
    const CONSERVATIVE: &[&str] = &["self-tuned", "static-700"];
    const AGGRESSIVE: &[&str] = &["self-tuned", "static-2000"];
    let response = [SMOOTHED, EACH_SECOND];
    let figure = |id: &str, title: &str, variants: &[&str], shown: &[Shown]| {
        let panel = |shown: &Shown| Panel {
            title: shown.title.to_owned(),
            scale: shown.scale,
            show: shown.show,
            curves: variants.iter().map(|variant| series::curve(results, variant, shown.of)).collect(),
            marks: PHASES[1..]
                .iter()
                .map(|&(from, _)| Mark::At(from))
                .chain(shown.level.map(Mark::Level))
                .collect(),
        };
        let plot = Plot {
            title: title.to_owned(),
            subtitle: "700 browsers (browsing), 700 more (shopping) at 50 s, 700 more (ordering) at 100 s; 5 runs, bands: \
                       all; dotted: the paper's numbers"
                .to_owned(),
            variants: variants.iter().map(|&variant| variant.to_owned()).collect(),
            marks: None,
            axis: "seconds",
            seconds: PHASES[2].1,
            panels: shown.iter().map(panel).collect(),
        };
        Figure { id: id.to_owned(), drawing: Some(Drawing::Plot(plot)), table: String::new() }
    };
    let table = phases(results, &["self-tuned", "static-700", "static-2000"]);
    vec![
        Figure { id: "yaksha-phases".to_owned(), drawing: None, table },
        figure("yaksha-10", "Fig. 10: response time under changing workloads", SELF, &response),
        figure("yaksha-11", "Fig. 11: probability of refusing", SELF, &[PROBABILITY]),
        figure("yaksha-12", "Fig. 12: parameter A", SELF, &[A]),
        figure("yaksha-13", "Fig. 13: parameter B", SELF, &[B]),
        figure(
            "yaksha-14",
            "Fig. 14: static conservative and self-tuned: response time",
            CONSERVATIVE,
            &response,
        ),
        figure(
            "yaksha-15",
            "Fig. 15: static aggressive and self-tuned: response time",
            AGGRESSIVE,
            &response,
        ),
        figure(
            "yaksha-16",
            "Fig. 16: static aggressive and self-tuned: probability",
            AGGRESSIVE,
            &[PROBABILITY],
        ),
    ]
}

/// A row for each controller and phase.
fn phases(results: &Results, variants: &[&str]) -> String {
    let mut table = "| | from | to | served/s | mean response of those | seconds with T ≤ 150 ms | refused | p, from–to | \
                     A, from–to | B, from–to |\n|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|\n"
        .to_owned();
    for variant in variants {
        let Some(index) = results.variant(variant) else { continue };
        for span @ (from, to) in PHASES {
            let sum = |of| series::sum(results, index, span, of);
            let range = |of| {
                let (_, low, high) = series::mean(results, index, span, of);
                (low, high)
            };
            let (served, refused) = (sum(|moment| moment.served), sum(|moment| moment.refused));
            let kept = sum(|moment| moment.response * moment.served);
            let (below, ..) =
                series::mean(results, index, span, |moment| f64::from(u8::from(moment.measured <= TARGET)));
            let (least, most) = range(|moment| moment.probability);
            let (a_least, a_most) = range(|moment| moment.gains.0);
            let (b_least, b_most) = range(|moment| moment.gains.1);
            let runs = results.moments(index).count() as f64;
            let _ = writeln!(
                table,
                "| {variant} | {from} s | {to} s | {:.1} | {} | {} | {} | {least:.2}–{most:.2} | \
                 {a_least:.4}–{a_most:.4} | {b_least:.4}–{b_most:.4} |",
                served / runs / (to - from),
                seconds(kept / served),
                percent(below),
                percent(refused / (served + refused)),
            );
        }
    }
    table
}
