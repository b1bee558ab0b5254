//! The setups between server and clients in *Web servers under overload*, Figs. 9 to 11 and 13 to 15.

use std::fmt::Write as _;

use admission::Duration;
use sim::plot::{Curve, Panel, Scale};
use sim::uplink::{Digest, Download, Phases, Setup};

use super::{Case, ORDERS, Plan, play, plotted, queue};
use crate::figure::Figure;
use crate::numbers::{percent, seconds, short_seconds};

/// A row of Table II: its letter, what changes, and what the paper says of FAIR, of SRPT and of their ratio.
type Row = (&'static str, fn(&mut Setup), [&'static str; 3]);

const ROWS: [Row; 9] = [
    ("A baseline", |_| (), ["1.1 s", "138 ms", "8"]),
    ("B 100 ms away", |setup| away(setup, 100), ["", "", "2.5"]),
    ("C 5 % lost", |setup| setup.loss = 0.05, ["1.9 s", "930 ms", "2"]),
    ("D both", both, ["2.5 s", "1.2 s", "2"]),
    ("E 5 requests a connection", |setup| setup.reuse = 5, ["0.55 s", "", "3"]),
    ("F first time-out 0.5 s", |setup| setup.first_timeout = Duration::from_millis(500), ["", "", "4"]),
    ("H abort after 10 s, 3 retries", |setup| impatient(setup, 10, 3), ["", "", "8"]),
    ("I packets of 536 bytes", |setup| setup.segment = 496, ["1.6 s", "260 ms", "6"]),
    ("J realistic", realistic, ["1.48 s", "764 ms", "2"]),
];

fn away(setup: &mut Setup, millis: u64) {
    setup.round_trip += Duration::from_millis(millis);
}

fn both(setup: &mut Setup) {
    away(setup, 100);
    setup.loss = 0.05;
}

fn impatient(setup: &mut Setup, patience: u64, retries: u32) {
    (setup.patience, setup.retries) = (Some(Duration::from_secs(patience)), retries);
}

fn realistic(setup: &mut Setup) {
    both(setup);
    setup.reuse = 5;
    impatient(setup, 7, 3);
}

/// The rows without the paper's numbers, which are those of another trace.
fn unsaid() -> [Row; 9] {
    ROWS.map(|(name, change, _)| (name, change, ["–"; 3]))
}

pub(super) fn figures(plan: &Plan) -> Vec<Figure> {
    let trace = Plan::world_cup();
    let mut figures =
        vec![table("srpt-09-11", plan, &trace, &ROWS), table("srpt-13-15", plan, &plan.nasa(), &unsaid())];
    figures.push(ranges(plan, &trace));
    figures.push(impatience(plan, &trace));
    figures.push(laboratory(plan, &trace));
    figures
}

fn runs<'a>(plan: &Plan, trace: &'a [Download], setups: &[Setup]) -> Vec<Case<'a>> {
    let case = |setup: &Setup| Case {
        setup: setup.clone(),
        phases: Phases::published(1).unwrap_or_else(|| Phases::constant(1.0)),
        trace,
        length: plan.length(),
    };
    setups.iter().map(case).collect()
}

fn table(id: &str, plan: &Plan, trace: &[Download], rows: &[Row]) -> Figure {
    let setups = rows.iter().flat_map(|(_, change, _)| {
        ORDERS.map(|order| {
            let mut setup = Setup::baseline(queue(order));
            change(&mut setup);
            setup
        })
    });
    let digests = play(plan, &runs(plan, trace, &setups.collect::<Vec<_>>()));
    let mut table = "| | paper: FAIR | SRPT | ratio | FAIR | bands | SRPT | FAIR / bands | \
                     FAIR / SRPT | largest 1 %: FAIR | \
                     SRPT | incomplete: FAIR | \
                     SRPT |\n|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|\n"
        .to_owned();
    for ((name, _, said), row) in rows.iter().zip(digests.chunks(ORDERS.len())) {
        let [fair, bands, shortest] = row else { continue };
        let _ = writeln!(
            table,
            "| {name} | {} | {} | {} | {} | {} | {} | {:.1} | {:.1} | {} | {} | {} | {} |",
            said[0],
            said[1],
            said[2],
            seconds(fair.mean),
            seconds(bands.mean),
            seconds(shortest.mean),
            fair.mean / bands.mean,
            fair.mean / shortest.mean,
            seconds(fair.largest),
            seconds(shortest.largest),
            percent(fair.incomplete),
            percent(shortest.incomplete),
        );
    }
    Figure { id: id.to_owned(), drawing: None, table }
}

/// A factor over its range: what it is called, its values as they stand on the axis, and what each does.
type Range = (&'static str, &'static [f64], fn(&mut Setup, f64));

const RANGES: [Range; 5] = [
    ("B: milliseconds away", &[0.0, 50.0, 100.0, 150.0], |setup, at| away(setup, at as u64)),
    ("C: percent lost", &[0.0, 3.0, 5.0, 10.0, 15.0], |setup, at| setup.loss = at / 100.0),
    ("E: requests a connection", &[1.0, 2.0, 5.0, 10.0], |setup, at| setup.reuse = at as u32),
    ("F: first time-out in seconds", &[0.5, 1.0, 2.0, 3.0], |setup, at| {
        setup.first_timeout = Duration::from_secs_f64(at);
    }),
    ("I: bytes of a packet", &[536.0, 800.0, 1_500.0], |setup, at| setup.segment = at as u32 - 40),
];

fn ranges(plan: &Plan, trace: &[Download]) -> Figure {
    let mut table = "| | | FAIR | bands | SRPT | FAIR / SRPT |\n|---|---:|---:|---:|---:|---:|\n".to_owned();
    let mut panels = Vec::new();
    for (name, values, change) in RANGES {
        let setups = values.iter().flat_map(|&value| {
            ORDERS.map(|order| {
                let mut setup = Setup::baseline(queue(order));
                change(&mut setup, value);
                setup
            })
        });
        let digests = play(plan, &runs(plan, trace, &setups.collect::<Vec<_>>()));
        let mut curves = vec![Curve::default(); ORDERS.len()];
        // The panels share an axis: each range is drawn from 0 to 100 %.
        let most = values.iter().copied().fold(0.0, f64::max);
        for (&value, row) in values.iter().zip(digests.chunks(ORDERS.len())) {
            let [fair, bands, shortest] = row else { continue };
            let digests = [fair, bands, shortest];
            for (curve, digest) in curves.iter_mut().zip(digests) {
                curve.points.push((value / most * 100.0, digest.mean));
            }
            let [fair, bands, shortest] = digests.map(|digest: &Digest| digest.mean);
            let ratio = fair / shortest;
            let _ = writeln!(
                table,
                "| {name} | {value} | {} | {} | {} | {ratio:.1} |",
                seconds(fair),
                seconds(bands),
                seconds(shortest)
            );
        }
        panels.push(Panel::new(format!("{name}, up to {most}"), Scale::Logarithmic, short_seconds, curves));
    }
    let said = [
        "Figs. 9 and 10, right: mean response time over the range of each factor",
        "W1, 10 Mbit/s, sizes of the World Cup",
    ];
    Figure { table, ..plotted("srpt-ranges", said, ("percent of the range", 100.0), panels) }
}

/// Setup H over its range.
fn impatience(plan: &Plan, trace: &[Download]) -> Figure {
    let places: Vec<(u64, u32)> = [3, 5, 10, 15].iter().flat_map(|&after| [(after, 2), (after, 6)]).collect();
    let orders = ["FAIR", "SRPT"];
    let setups = places.iter().flat_map(|&(after, retries)| {
        orders.map(|order| {
            let mut setup = Setup::baseline(queue(order));
            impatient(&mut setup, after, retries);
            setup
        })
    });
    let digests = play(plan, &runs(plan, trace, &setups.collect::<Vec<_>>()));
    let mut table = "| abort after | retries | FAIR | SRPT | ratio | incomplete: FAIR | SRPT |\n\
                     |---:|---:|---:|---:|---:|---:|---:|\n"
        .to_owned();
    for ((after, retries), row) in places.iter().zip(digests.chunks(orders.len())) {
        let [fair, shortest] = row else { continue };
        let _ = writeln!(
            table,
            "| {after} s | {retries} | {} | {} | {:.1} | {} | {} |",
            seconds(fair.mean),
            seconds(shortest.mean),
            fair.mean / shortest.mean,
            percent(fair.incomplete),
            percent(shortest.incomplete),
        );
    }
    Figure { id: "srpt-impatience".to_owned(), drawing: None, table }
}

/// The one number that the laboratory has of its own.
fn laboratory(plan: &Plan, trace: &[Download]) -> Figure {
    let micros = [0, 500, 1_000, 2_000, 3_000];
    let setups = micros.iter().flat_map(|&micros| {
        ORDERS
            .map(|order| Setup { round_trip: Duration::from_micros(micros), ..Setup::baseline(queue(order)) })
    });
    let digests = play(plan, &runs(plan, trace, &setups.collect::<Vec<_>>()));
    let mut table =
        "| round trip | FAIR | C² | dropped | bands | SRPT |\n|---:|---:|---:|---:|---:|---:|\n".to_owned();
    for (micros, row) in micros.iter().zip(digests.chunks(ORDERS.len())) {
        let [fair, bands, shortest] = row else { continue };
        let _ = writeln!(
            table,
            "| {} ms | {} | {:.2} | {} | {} | {} |",
            *micros as f64 / 1e3,
            seconds(fair.mean),
            fair.squared_variation,
            fair.seconds.last().map_or(0, |second| second.dropped),
            seconds(bands.mean),
            seconds(shortest.mean),
        );
    }
    Figure { id: "srpt-lan".to_owned(), drawing: None, table }
}
