//! The flash sale's figures as tables, with what they say of the goals; and as a story, without goals.

use super::judgment;
use super::report::{Report, RoundReport, VariantReport};
use crate::shop;
use crate::stats::Responses;
use crate::story;
use crate::table::{self, Figures, count, ratio, seconds};

/// Everything that a person wants to read: tables, judgment, caveats, and where the rest is.
pub fn text(report: &Report) -> String {
    let mut text = format!("\n  The sale at {}/s\n", count(report.sale.rate));
    text.push_str(&indented(&sale_table(report)));
    text.push_str(
        "  Medians of the rounds (lowest … highest). All requests count; one that wasn't answered is\n  \
         charged the full time-out. Answered: while requests were still arriving.\n",
    );
    text.push_str(&format!("\n  A quiet load of {}/s\n", count(report.quiet.rate)));
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
    row(&mut figures, "answered per second", count, &|round| round.summary.throughput);
    let direct = variants[0].median(|round| round.summary.throughput);
    figures.row(
        "  times direct",
        variants.iter().map(|variant| ratio(variant.median(|round| round.summary.throughput) / direct)),
    );
    row(&mut figures, "answered per second of its CPU time", count, &|round| round.efficiency);
    row(&mut figures, "answered within 1 s, per second", count, &|round| round.summary.goodput);
    row(&mut figures, "waiting at the end", count, &|round| round.summary.backlog_end as f64);
    row(&mut figures, "waiting at most", count, &|round| round.summary.backlog_max as f64);
    figures.heading("mean response time");
    row(&mut figures, "  all requests", seconds, &|round| round.summary.overall.mean_seconds);
    for (number, name) in report.types.iter().enumerate() {
        let of = move |round: &RoundReport| round.summary.types[number].mean_seconds;
        row(&mut figures, &format!("  {name}"), seconds, &of);
    }
    figures.heading("95th percentile");
    row(&mut figures, "  all requests", seconds, &|round| round.summary.overall.p95_seconds);
    for (number, name) in report.types.iter().enumerate() {
        let of = move |round: &RoundReport| round.summary.types[number].p95_seconds;
        row(&mut figures, &format!("  {name}"), seconds, &of);
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
    row(&mut figures, "answered per second", count, &|round| round.summary.throughput);
    row(&mut figures, "mean response time", seconds, &|round| round.summary.overall.mean_seconds);
    for number in [shop::ORDER, shop::READ].map(usize::from) {
        let of = move |round: &RoundReport| round.summary.types[number].p50_seconds;
        row(&mut figures, &format!("  {}, median", report.types[number]), seconds, &of);
    }
    row(&mut figures, "95th percentile", seconds, &|round| round.summary.overall.p95_seconds);
    figures.to_string()
}

fn headings(variants: &[VariantReport]) -> Vec<String> {
    variants.iter().map(|variant| format!("{}\n({})", variant.label, variant.note)).collect()
}

fn indented(block: &str) -> String {
    block.lines().map(|line| format!("  {line}\n")).collect()
}

/// The story's last part, the outcome and its reasons: no tables, and no goals.
pub fn story(report: &Report) -> String {
    let (direct, gate) = judgment::ends(&report.sale.variants);
    let named = |of: &dyn Fn(&VariantReport) -> f64| [("direct", of(direct)), ("Gatekeeper", of(gate))];
    let throughput = |variant: &VariantReport| variant.median(|round| round.summary.throughput);
    let read = |round: &RoundReport| round.summary.types[usize::from(shop::READ)].mean_seconds;
    let curve = |variant: &VariantReport| {
        variant.rounds.first().map_or_else(Vec::new, |round| round.curves.throughput.clone())
    };
    let mut text = story::heading("What is seen");
    text += &story::bars("Answers per second", count, &named(&throughput));
    text += &story::curves(
        &format!("Answers per second over the {} seconds of a sale", count(report.window_seconds)),
        count,
        &[("direct", curve(direct)), ("Gatekeeper", curve(gate))],
    );
    text +=
        &story::bars("Mean response time of a short read", seconds, &named(&|variant| variant.median(read)));
    text += &story::heading("Why");
    text += &story::sentences(&why(report, direct, gate));
    text += &story::sentences(&judgment::caveats(report));
    text + &format!("\n  Plot     {}\n  Figures  {}\n", report.plot.display(), report.figures.display())
}

fn why(report: &Report, direct: &VariantReport, gate: &VariantReport) -> Vec<String> {
    let end = |variant: &VariantReport| variant.median(|round| round.summary.backlog_end as f64);
    let throughput = |variant: &VariantReport| variant.median(|round| round.summary.throughput);
    let read = |round: &RoundReport| round.summary.types[usize::from(shop::READ)].mean_seconds;
    let inside = end(direct).min(report.connections as f64);
    let more = throughput(gate) / throughput(direct);
    let more = if more >= 1.0 {
        format!("{} times as many requests are answered", ratio(more))
    } else {
        format!("{} times fewer requests are answered, which should not be", ratio(1.0 / more))
    };
    let faster = direct.median(read) / gate.median(read);
    let faster = if faster >= 1.0 {
        format!("{} times sooner", ratio(faster))
    } else {
        format!("{} times later, which should not be", ratio(1.0 / faster))
    };
    vec![
        format!(
            "Directly, up to {} transactions are in PostgreSQL at once. They wait for the same twenty rows, \
             and the one core spends its time on waking and checking them.",
            count(inside)
        ),
        format!(
            "Gatekeeper lets in few at once, and the others wait in its queue. {} wait at the end of a sale, \
             directly {}. So {more}.",
            count(end(gate)),
            count(end(direct)),
        ),
        format!("In the queue short requests go first. A short read is answered {faster}."),
    ]
}
