//! A closed loop, and an overload without end: Figs. 4, 6 and 7.

use std::fmt::Write as _;

use admission::Duration;
use sim::plot::{Curve, Panel, Scale};
use sim::uplink::{Bytes, Demand, Digest, Phases, Setup, closed_sizes, serve};

use super::{Case, ORDERS, Plan, play, plotted, queue};
use crate::figure::Figure;
use crate::numbers::{seconds, short_seconds};

/// The simulated time.
const LENGTH: Duration = Duration::from_secs(200);

pub(super) fn figures(plan: &Plan) -> Vec<Figure> {
    let mut figures = vec![closed_loop()];
    for (load, id) in [(1.2, "srpt-06-07"), (1.4, "srpt-06-07-more")] {
        figures.push(persistent(plan, load, id));
    }
    figures
}

/// Fig. 4.
fn closed_loop() -> Figure {
    let sizes = closed_sizes(&Bytes::WorldCup, super::REQUESTS, 1);
    let mut table = "| clients think for | link busy | most connections | refused | mean response |\n\
                     |---:|---:|---:|---:|---:|\n"
        .to_owned();
    for think in [10_000, 1_000, 100, 10] {
        let setup = Setup::baseline(queue("FAIR"));
        let demand = Demand::Closed {
            clients: 200,
            think: Duration::from_millis(think),
            sizes: sizes.clone(),
            until: LENGTH,
        };
        let served = serve(&setup, &demand, LENGTH, 1);
        let last = served.seconds.last().copied().unwrap_or_default();
        let busy = last.sent as f64 * 8.0 / setup.bits / served.seconds.len() as f64;
        let most = served.seconds.iter().map(|second| second.connections + second.waiting).max().unwrap_or(0);
        let _ = writeln!(
            table,
            "| {} | {:.0} % | {most} | {} | {} |",
            seconds(think as f64 / 1e3),
            busy * 100.0,
            last.refused,
            seconds(served.mean()),
        );
    }
    Figure { id: "srpt-04".to_owned(), drawing: None, table }
}

fn persistent(plan: &Plan, load: f64, id: &str) -> Figure {
    let trace = Plan::world_cup();
    let cases = ORDERS.map(|order| Case {
        setup: Setup::baseline(queue(order)),
        phases: Phases::constant(load),
        trace: &trace,
        length: LENGTH,
    });
    let digests = play(plan, &cases);
    let mut table = "| | connections at 50 s | at 200 s | first refused | refused by 200 s | \
                     bytes sent | mean of those sent \
                     at 40 s | their first byte | mean of those sent at 150 s |\n\
                     |---|---:|---:|---:|---:|---:|---:|---:|---:|\n"
        .to_owned();
    for (order, digest) in ORDERS.iter().zip(&digests) {
        let refused = digest.seconds.iter().position(|second| second.refused > 0);
        let around = |at: usize, which: usize| {
            let near: Vec<f64> = digest.over_time[at - 5..at + 5].iter().map(|times| times[which]).collect();
            seconds(near.iter().sum::<f64>() / near.len() as f64)
        };
        let _ = writeln!(
            table,
            "| {order} | {} | {} | {} | {} | {:.1} MB | {} | {} | {} |",
            digest.after(50).connections,
            digest.after(200).connections,
            refused.map_or("never".to_owned(), |second| format!("{second} s")),
            digest.after(200).refused,
            digest.after(200).sent as f64 / 1e6,
            around(40, 0),
            around(40, 1),
            around(150, 0),
        );
    }
    let said = [
        &format!("Figs. 6 and 7: a load of {load} that doesn't end"),
        "10 Mbit/s, sizes of the World Cup, one run",
    ];
    Figure { table, ..plotted(id, said, ("seconds", LENGTH.as_secs_f64()), panels(&digests)) }
}

fn panels(digests: &[Digest]) -> Vec<Panel> {
    let state = |of: fn(&sim::uplink::Second) -> f64| -> Vec<Curve> {
        let curve = |digest: &Digest| {
            let within = digest.seconds.iter().take(LENGTH.as_secs() as usize).enumerate();
            Curve { points: within.map(|(at, second)| (at as f64, of(second))).collect(), band: Vec::new() }
        };
        digests.iter().map(curve).collect()
    };
    let count: fn(f64) -> String = |value| format!("{value:.0}");
    vec![
        Panel::new("Connections at the server", Scale::Linear, count, state(|one| one.connections as f64)),
        Panel::new("Connections refused so far", Scale::Linear, count, state(|one| one.refused as f64)),
        Panel::new("Mean response time", Scale::Logarithmic, short_seconds, over_time(digests, 0, LENGTH)),
        Panel::new(
            "Mean time to the first byte",
            Scale::Logarithmic,
            short_seconds,
            over_time(digests, 1, LENGTH),
        ),
    ]
}

/// For each second, the mean over the responses that ended in it: the time to the last byte (`which` 0) or to
/// the first (1).
pub(super) fn over_time(digests: &[Digest], which: usize, length: Duration) -> Vec<Curve> {
    let curve = |digest: &Digest| {
        let within = digest.over_time.iter().take(length.as_secs() as usize).enumerate();
        let points = within.map(|(at, times)| (at as f64, times[which])).filter(|(_, time)| time.is_finite());
        Curve { points: points.collect(), band: Vec::new() }
    };
    digests.iter().map(curve).collect()
}
