//! The verdict on a flash sale, computed from its figures, also where the gate loses.

use super::report::{Report, RoundReport, VariantReport};
use crate::shop;
use crate::table::{count, ratio, seconds};

/// How many times the direct throughput the gate should reach in the sale.
const THROUGHPUT_GOAL: f64 = 1.8;
/// How much may wait behind the gate at any time, as a time of arrivals: more than that, and it isn't
/// keeping up.
const BACKLOG_GOAL_SECONDS: f64 = 0.25;
/// How many times shorter the short reads' mean response time should be.
const READ_GOAL: f64 = 5.0;
/// A quiet load's figures within this factor are the same within the noise of a shared machine.
const QUIET_NOISE: f64 = 1.2;
/// More lateness than this, and the client's own slowness shows in the response times.
const LAG_LIMIT_SECONDS: f64 = 0.02;
/// More of a processor than this, and the client may be the bottleneck.
const CLIENT_CPU_LIMIT: f64 = 0.85;
/// More of the server's processor in other hands than this, and the figures are disturbed.
const DISTURBANCE_LIMIT: f64 = 0.15;

/// Four sentences: throughput, backlog, short reads, the quiet load.
pub(super) fn sentences(report: &Report) -> Vec<String> {
    vec![throughput(report), backlog(report), reads(report), quiet(report)]
}

pub(super) fn ends(variants: &[VariantReport]) -> (&VariantReport, &VariantReport) {
    // A section always has at least the direct variant.
    (&variants[0], &variants[variants.len() - 1])
}

fn verdict(value: f64, goal: f64) -> String {
    let word = if value >= goal { "reached" } else { "missed" };
    format!("the goal of {goal} is {word}")
}

fn throughput(report: &Report) -> String {
    let (direct, gate) = ends(&report.sale.variants);
    let of = |round: &RoundReport| round.summary.throughput;
    let (without, with) = (direct.median(of), gate.median(of));
    format!(
        "Under overload the database answered {} requests per second behind the {}, {} directly: {} times as \
         many ({}).",
        count(with),
        gate.label,
        count(without),
        ratio(with / without),
        verdict(with / without, THROUGHPUT_GOAL),
    )
}

fn backlog(report: &Report) -> String {
    let (direct, gate) = ends(&report.sale.variants);
    let end = |round: &RoundReport| round.summary.backlog_end as f64;
    let most = gate.median(|round| round.summary.backlog_max as f64);
    let bound = report.sale.rate * BACKLOG_GOAL_SECONDS;
    format!(
        "Behind the {} {} requests were waiting at most and {} at the end, directly {} at the end: the backlog {} \
         ({} is what arrives within {}).",
        gate.label,
        count(most),
        count(gate.median(end)),
        count(direct.median(end)),
        if most <= bound { "stays bounded" } else { "isn't bounded, the goal is missed" },
        count(bound),
        seconds(BACKLOG_GOAL_SECONDS),
    )
}

fn reads(report: &Report) -> String {
    let (direct, gate) = ends(&report.sale.variants);
    let of = |round: &RoundReport| round.summary.types[usize::from(shop::READ)].mean_seconds;
    let (without, with) = (direct.median(of), gate.median(of));
    let factor = without / with;
    let change = if factor >= 1.0 {
        format!("{} times shorter", ratio(factor))
    } else {
        format!("{} times longer", ratio(1.0 / factor))
    };
    format!(
        "A short read took {} on average, directly {}: {change} ({}).",
        seconds(with),
        seconds(without),
        verdict(factor, READ_GOAL)
    )
}

fn quiet(report: &Report) -> String {
    let (direct, gate) = ends(&report.quiet.variants);
    let of = |round: &RoundReport| round.summary.overall.mean_seconds;
    let (without, with) = (direct.median(of), gate.median(of));
    let comment = if with <= without * QUIET_NOISE {
        "nobody notices it when nothing is wrong".to_owned()
    } else {
        format!("that is what it costs when nothing is wrong ({} per request)", seconds(with - without))
    };
    format!(
        "Under a quiet load the mean response time is {} behind the {} and {} directly: {comment}.",
        seconds(with),
        gate.label,
        seconds(without)
    )
}

/// What a reader should know before trusting the figures; nothing on a quiet machine.
pub(super) fn caveats(report: &Report) -> Vec<String> {
    let rounds = || report.sale.variants.iter().flat_map(|variant| &variant.rounds);
    let most = |of: fn(&RoundReport) -> f64| rounds().map(of).fold(0.0, f64::max);
    let mut notes = Vec::new();
    let disturbance = most(|round| round.disturbance);
    if disturbance > DISTURBANCE_LIMIT {
        notes.push(format!(
            "Caution: other programs used up to {:.0} % of the server's processor. The variants alternated, so \
             the comparison holds better than the absolute figures; a quiet machine gives steadier ones.",
            disturbance * 100.0
        ));
    }
    let (lag, cpu) = (most(|round| round.client_lag_p99_seconds), most(|round| round.client_cpu));
    if lag > LAG_LIMIT_SECONDS || cpu > CLIENT_CPU_LIMIT {
        notes.push(format!(
            "Caution: the client itself was short of processor time (it sent requests up to {} late, 99th \
             percentile, and used {:.2} of a processor), which lengthens every response time.",
            seconds(lag),
            cpu
        ));
    }
    if let Some(failure) = rounds().find_map(|round| round.first_failure.as_ref()) {
        notes.push(format!("The first request that was refused or failed was told: {failure}."));
    }
    notes
}
