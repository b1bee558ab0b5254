//! The flash sale as a story: what is seen, and why.

use super::judgment;
use super::report::{Report, RoundReport, VariantReport};
use crate::shop;
use crate::story;
use crate::table::{count, ratio, seconds};

/// What is seen and why, for people who have read what happens: no tables, and no goals.
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
