//! Loads that change: Figs. 8, 12 and 16, section 6.1, aging, and what the scheduler is told of sizes.

use std::fmt::Write as _;

use admission::{Cutoffs, Duration, EgressOrder};
use sim::plot::{Panel, Scale};
use sim::uplink::{Digest, Download, Phases, Queue, Setup};

use super::overload::over_time;
use super::{Case, ORDERS, Plan, play, plotted, queue};
use crate::figure::Figure;
use crate::numbers::{seconds, short_seconds};

/// What of a run is drawn.
const SHOWN: Duration = Duration::from_secs(200);
/// The workloads of Table I.
const COUNT: usize = 10;

pub(super) fn figures(plan: &Plan) -> Vec<Figure> {
    let trace = Plan::world_cup();
    let all = workloads(plan, &trace);
    let mut figures = vec![detail(&all[..ORDERS.len()]), table("srpt-12", &all)];
    figures.push(table("srpt-16", &workloads(plan, &plan.nasa())));
    figures.push(decomposed(plan, &trace));
    figures.push(orders(plan, &trace));
    figures.push(aging(plan, &trace));
    figures
}

fn phases(number: usize) -> Phases {
    Phases::published(number).unwrap_or_else(|| Phases::constant(1.0))
}

/// All workloads with all orders, the orders of W1 first.
fn workloads(plan: &Plan, trace: &[Download]) -> Vec<Digest> {
    let case = |number: usize, order: &&str| Case {
        setup: Setup::baseline(queue(order)),
        phases: phases(number),
        trace,
        length: plan.length(),
    };
    let cases: Vec<_> =
        (1..=COUNT).flat_map(|number| ORDERS.iter().map(move |order| case(number, order))).collect();
    play(plan, &cases)
}

/// Fig. 8.
fn detail(digests: &[Digest]) -> Figure {
    let mut table = "| | mean | C² | standard deviation | first byte | half within | 90 % | 99 % | \
                     99.9 % | largest 1 % | \
                     the largest | most connections | refused | dropped |\n\
                     |---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|\n\
                     | FAIR, paper | 1.1 s | 6.39 | | | | | | | 2.9 s | 17.8 s | over 200 | 0 | |\n\
                     | SRPT, paper | 138 ms | 1.08 | | | | | | | 2.8 s | 19.4 s | at most 50 | 0 | |\n"
        .to_owned();
    for (order, digest) in ORDERS.iter().zip(digests) {
        let [half, ninety, hundredth, thousandth] = digest.quantiles.map(seconds);
        let last = digest.seconds.last().copied().unwrap_or_default();
        let _ = writeln!(
            table,
            "| {order} | {} | {:.2} | {} | {} | {half} | {ninety} | {hundredth} | {thousandth} | {} | \
                     {} | {} | {} | {} |",
            seconds(digest.mean),
            digest.squared_variation,
            seconds(digest.deviation),
            seconds(digest.first_byte),
            seconds(digest.largest),
            seconds(digest.very_largest.1),
            digest.connections(),
            last.refused,
            last.dropped,
        );
    }
    let panel = |title: &str, which| {
        Panel::new(title, Scale::Logarithmic, short_seconds, over_time(digests, which, SHOWN))
    };
    let said = [
        "Fig. 8: W1, 25 s at a load of 0.2 and 25 s at 1.2, in turn",
        "10 Mbit/s, sizes of the World Cup; the mean of those sent in each second",
    ];
    Figure {
        table,
        ..plotted(
            "srpt-08",
            said,
            ("seconds", SHOWN.as_secs_f64()),
            vec![panel("Mean response time", 0), panel("Mean time to the first byte", 1)],
        )
    }
}

/// Figs. 12 and 16.
fn table(id: &str, digests: &[Digest]) -> Figure {
    let mut table = "| | FAIR | bands | SRPT | FAIR / bands | FAIR / SRPT | largest 1 %: FAIR | bands | \
                     SRPT | refused, FAIR | \
                     refused, SRPT |\n|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|\n"
        .to_owned();
    for (at, row) in digests.chunks(ORDERS.len()).enumerate() {
        let [fair, bands, shortest] = row else { continue };
        let refused = |digest: &Digest| digest.seconds.last().map_or(0, |second| second.refused);
        let _ = writeln!(
            table,
            "| W{} | {} | {} | {} | {:.1} | {:.1} | {} | {} | {} | {} | {} |",
            at + 1,
            seconds(fair.mean),
            seconds(bands.mean),
            seconds(shortest.mean),
            fair.mean / bands.mean,
            fair.mean / shortest.mean,
            seconds(fair.largest),
            seconds(bands.largest),
            seconds(shortest.largest),
            refused(fair),
            refused(shortest),
        );
    }
    Figure { id: id.to_owned(), drawing: None, table }
}

/// Section 6.1: what of the gain is whose.
fn decomposed(plan: &Plan, trace: &[Download]) -> Figure {
    let fair = Setup::baseline(Queue::fair());
    let quick = Duration::from_millis(500);
    let cases = [
        ("FAIR", fair.clone()),
        ("FAIR, no connection refused", Setup { half_open: 1 << 20, ..fair.clone() }),
        ("FAIR, first time-out 0.5 s", Setup { first_timeout: quick, ..fair.clone() }),
        ("FAIR, both", Setup { half_open: 1 << 20, first_timeout: quick, ..fair }),
        ("fair in the gate: nothing dropped", Setup::baseline(Queue::gate(EgressOrder::Fair, None))),
        ("bands in the kernel", Setup::baseline(Queue::published_bands())),
        ("SRPT in the gate", Setup::baseline(queue("SRPT"))),
    ];
    let numbers = [1, 4];
    let runs: Vec<Case<'_>> = cases
        .iter()
        .flat_map(|(_, setup)| {
            numbers.map(|number| Case {
                setup: setup.clone(),
                phases: phases(number),
                trace,
                length: plan.length(),
            })
        })
        .collect();
    let digests = play(plan, &runs);
    let mut table =
        "| | W1 | dropped | W4 | dropped | refused |\n|---|---:|---:|---:|---:|---:|\n".to_owned();
    for ((name, _), row) in cases.iter().zip(digests.chunks(numbers.len())) {
        let last = |at: usize| row[at].seconds.last().copied().unwrap_or_default();
        let _ = writeln!(
            table,
            "| {name} | {} | {} | {} | {} | {} |",
            seconds(row[0].mean),
            last(0).dropped,
            seconds(row[1].mean),
            last(1).dropped,
            last(1).refused,
        );
    }
    Figure { id: "srpt-61".to_owned(), drawing: None, table }
}

/// Every order of the gate on W1.
fn orders(plan: &Plan, trace: &[Download]) -> Figure {
    let bands = |cutoffs| EgressOrder::Bands(cutoffs);
    let cases = [
        ("fair", Queue::gate(EgressOrder::Fair, None)),
        ("bands, the paper's cutoffs", Queue::gate(bands(Cutoffs::published()), None)),
        ("bands, learned cutoffs", Queue::gate(bands(Cutoffs::Learned), None)),
        ("SRPT", Queue::gate(EgressOrder::ShortestRemaining, None)),
        ("SRPT, aging 1", Queue::gate(EgressOrder::ShortestRemaining, Some(1.0))),
    ];
    let runs = cases.each_ref().map(|(_, queue)| Case {
        setup: Setup::baseline(queue.clone()),
        phases: phases(1),
        trace,
        length: plan.length(),
    });
    let mut table = "| in the gate | mean | C² | 99 % | largest 1 % | \
                     most connections |\n|---|---:|---:|---:|---:|---:|\n"
        .to_owned();
    for ((name, _), digest) in cases.iter().zip(play(plan, &runs)) {
        let _ = writeln!(
            table,
            "| {name} | {} | {:.1} | {} | {} | {} |",
            seconds(digest.mean),
            digest.squared_variation,
            seconds(digest.quantiles[2]),
            seconds(digest.largest),
            digest.connections(),
        );
    }
    Figure { id: "srpt-orders".to_owned(), drawing: None, table }
}

/// How much slower than on a fair link any of the largest hundredth is.
fn aging(plan: &Plan, trace: &[Download]) -> Figure {
    let queues = [
        Queue::gate(EgressOrder::Fair, None),
        Queue::gate(EgressOrder::ShortestRemaining, None),
        Queue::gate(EgressOrder::ShortestRemaining, Some(1.0)),
    ];
    let runs: Vec<Case<'_>> = (1..=COUNT)
        .flat_map(|number| {
            queues.clone().map(|queue| Case {
                // What is fair doesn't depend on how many workers there are.
                setup: Setup { workers: 1 << 20, ..Setup::baseline(queue) },
                phases: phases(number),
                trace,
                length: plan.length(),
            })
        })
        .collect();
    let digests = play(plan, &runs);
    let mut table = "| | mean: fair | SRPT | with aging 1 | \
                     slowest of the largest 1 %, in fair times: SRPT | with aging 1 | \
                     their mean: fair | SRPT | with aging 1 |\n\
                     |---|---:|---:|---:|---:|---:|---:|---:|---:|\n"
        .to_owned();
    for (at, row) in digests.chunks(queues.len()).enumerate() {
        let [fair, shortest, aged] = row else { continue };
        let worst = |digest: &Digest| {
            let pairs = fair.of_largest.iter().zip(&digest.of_largest);
            pairs.filter_map(|(fair, one)| Some((*one)? / (*fair)?)).fold(0.0, f64::max)
        };
        let _ = writeln!(
            table,
            "| W{} | {} | {} | {} | {:.2} | {:.2} | {} | {} | {} |",
            at + 1,
            seconds(fair.mean),
            seconds(shortest.mean),
            seconds(aged.mean),
            worst(shortest),
            worst(aged),
            seconds(fair.largest),
            seconds(shortest.largest),
            seconds(aged.largest),
        );
    }
    Figure { id: "srpt-aging".to_owned(), drawing: None, table }
}
