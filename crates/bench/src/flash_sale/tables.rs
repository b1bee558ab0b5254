//! The flash sale's figures as tables, with what they say of the goals.

use super::judgment;
use super::report::{Report, RoundReport, VariantReport};
use crate::shop;
use crate::stats::Responses;
use crate::table::{self, Figures};

/// Everything that a person wants to read: tables, judgment, caveats, and where the rest is.
pub fn text(report: &Report) -> String {
    let mut text = format!("\n  The sale at {}/s\n", table::count(report.sale.rate));
    text.push_str(&indented(&sale_table(report)));
    text.push_str(
        "  Medians of the rounds (lowest … highest). All requests count; one that wasn't answered is\n  \
         charged the full time-out. Answered: while requests were still arriving.\n",
    );
    text.push_str(&format!("\n  A quiet load of {}/s\n", table::count(report.quiet.rate)));
    text.push_str(&indented(&quiet_table(report)));
    text.push('\n');
    for sentence in judgment::sentences(report).into_iter().chain(judgment::caveats(report)) {
        text.push_str(&table::paragraph(&sentence));
    }
    text.push_str(&format!("\n  Plot     {}\n", report.plot.display()));
    text.push_str(&format!("  Figures  {}\n", report.figures.display()));
    text
}

fn sale_table(report: &Report) -> String {
    let variants = &report.sale.variants;
    let mut figures = Figures::new(&headings(variants));
    let row =
        |figures: &mut Figures, label: &str, show: fn(f64) -> String, of: &dyn Fn(&RoundReport) -> f64| {
            figures.row(label, variants.iter().map(|variant| table::spread(variant.rounds(of), show)));
        };
    row(&mut figures, "answered per second", table::count, &|round| round.summary.throughput);
    let direct = variants[0].median(|round| round.summary.throughput);
    figures.row(
        "  times direct",
        variants
            .iter()
            .map(|variant| table::ratio(variant.median(|round| round.summary.throughput) / direct)),
    );
    row(&mut figures, "answered per second of its CPU time", table::count, &|round| round.efficiency);
    row(&mut figures, "answered within 1 s, per second", table::count, &|round| round.summary.goodput);
    row(&mut figures, "waiting at the end", table::count, &|round| round.summary.backlog_end as f64);
    row(&mut figures, "waiting at most", table::count, &|round| round.summary.backlog_max as f64);
    figures.heading("mean response time");
    row(&mut figures, "  all requests", table::seconds, &|round| round.summary.overall.mean_seconds);
    for (number, name) in report.types.iter().enumerate() {
        let of = move |round: &RoundReport| round.summary.types[number].mean_seconds;
        row(&mut figures, &format!("  {name}"), table::seconds, &of);
    }
    figures.heading("95th percentile");
    row(&mut figures, "  all requests", table::seconds, &|round| round.summary.overall.p95_seconds);
    for (number, name) in report.types.iter().enumerate() {
        let of = move |round: &RoundReport| round.summary.types[number].p95_seconds;
        row(&mut figures, &format!("  {name}"), table::seconds, &of);
    }
    let part = |count: fn(&Responses) -> usize| {
        variants.iter().map(move |variant| {
            let of = |round: &RoundReport| {
                100.0 * count(&round.summary.overall) as f64 / round.summary.overall.arrived.max(1) as f64
            };
            format!("{:.1} %", variant.median(of))
        })
    };
    figures.row("timed out", part(|responses| responses.timed_out));
    figures.row("refused or failed", part(|responses| responses.rejected + responses.failed));
    figures.to_string()
}

fn quiet_table(report: &Report) -> String {
    let variants = &report.quiet.variants;
    let mut figures = Figures::new(&headings(variants));
    let row =
        |figures: &mut Figures, label: &str, show: fn(f64) -> String, of: &dyn Fn(&RoundReport) -> f64| {
            figures.row(label, variants.iter().map(|variant| table::spread(variant.rounds(of), show)));
        };
    row(&mut figures, "answered per second", table::count, &|round| round.summary.throughput);
    row(&mut figures, "mean response time", table::seconds, &|round| round.summary.overall.mean_seconds);
    for number in [shop::ORDER, shop::READ].map(usize::from) {
        let of = move |round: &RoundReport| round.summary.types[number].p50_seconds;
        row(&mut figures, &format!("  {}, median", report.types[number]), table::seconds, &of);
    }
    row(&mut figures, "95th percentile", table::seconds, &|round| round.summary.overall.p95_seconds);
    figures.to_string()
}

fn headings(variants: &[VariantReport]) -> Vec<String> {
    variants.iter().map(|variant| format!("{}\n({})", variant.label, variant.note)).collect()
}

fn indented(block: &str) -> String {
    block.lines().map(|line| format!("  {line}\n")).collect()
}
