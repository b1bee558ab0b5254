//! The figures of *Gatekeeper* (Elnikety, Nahum, Tracey and Zwaenepoel, WWW 2004), Figs. 5–15 and Table 2,
//! with every number that its text or the slides of its talk give.

use std::fmt::Write as _;

use crate::bars::{Bar, Bars};
use crate::error::Error;
use crate::figure::{Drawing, Figure, IN_TIME, Line, PER_MINUTE, RESPONSE, Said, TwoMetrics};
use crate::numbers::{percent, seconds, with_interval};
use crate::results::Results;

/// The clients at which section 5.2 compares, and Figs. 11–13 (their averages are those of Fig. 9 there).
const COMPARED: f64 = 250.0;
const CLIENTS: &str = "clients";

/// All of them. `run` runs a scenario file by name.
pub(crate) fn figures(run: &dyn Fn(&str) -> Result<Results, Error>) -> Result<Vec<Figure>, Error> {
    let application = run("gatekeeper-application.toml")?;
    let offline = run("gatekeeper-offline.toml")?;
    let database = run("gatekeeper-database.toml")?;
    let db2 = run("gatekeeper-db2.toml")?;
    let open = run("gatekeeper-open.toml")?;
    let mut figures = throughput(&application, &offline, &database, &db2);
    figures.push(table_2(&application));
    figures.extend(response(&application, &database));
    figures.extend(breakdown(&application));
    figures.push(below_saturation(&open));
    Ok(figures)
}

/// These gates of one scenario.
fn lines<'a>(results: &'a Results, variants: &[&'a str]) -> Vec<Line<'a>> {
    variants.iter().map(|&variant| Line { results, variant }).collect()
}

const ADMISSION: [&str; 3] = ["original", "FIFO", "SJF"];
const AGING: [&str; 6] = ["original", "FIFO", "SJF", "wait-1", "wait-3", "wait-5"];
const APPLICATION: &str = "locking in the application server; 20 runs, bands: 90 %; in time: within 60 s";
const DATABASE: &str = "locking in the database; 20 runs, bands: 90 %; in time: within 60 s";

/// Figs. 5–8.
fn throughput(application: &Results, offline: &Results, database: &Results, db2: &Results) -> Vec<Figure> {
    let figure = |id, title, subtitle, lines, said, at| {
        let (level, metrics) = (None, IN_TIME);
        TwoMetrics {
            id,
            title,
            subtitle,
            lines,
            quantity: PER_MINUTE,
            said,
            at,
            level,
            axis: CLIENTS,
            metrics,
        }
        .figure()
    };
    let rest = |line: usize, places: &[f64]| -> Vec<Said> {
        places.iter().map(|&place| (line, place, None)).collect()
    };
    let mut online = lines(application, &["original", "FIFO"]);
    online.push(Line { results: offline, variant: "offline" });
    let figure_5 = [(0, 200.0, Some(852.0)), (0, 300.0, Some(589.0)), (1, 230.0, Some(941.0))].into_iter();
    let figure_6 = [rest(0, &[300.0]), rest(1, &[150.0, 230.0, 300.0, 325.0])];
    vec![
        figure(
            "gatekeeper-05",
            "Fig. 5: throughput, locking in the application server",
            APPLICATION,
            lines(application, &ADMISSION),
            figure_5.chain(rest(1, &[125.0, 300.0, 325.0])).chain(rest(2, &[125.0, 230.0, 325.0])).collect(),
            Some((250.0, "where the paper's original begins to fall")),
        ),
        figure(
            "gatekeeper-06",
            "Fig. 6: estimates made online and offline",
            APPLICATION,
            online,
            figure_6.into_iter().flatten().chain(rest(2, &[150.0, 230.0, 300.0, 325.0])).collect(),
            Some((270.0, "where the paper's offline estimates begin to fail")),
        ),
        figure(
            "gatekeeper-07",
            "Fig. 7: throughput, locking in the database",
            DATABASE,
            lines(database, &ADMISSION),
            [(0, 70.0, Some(515.0))]
                .into_iter()
                .chain(rest(0, &[90.0, 120.0]))
                .chain(rest(1, &[70.0, 90.0, 120.0]))
                .chain(rest(2, &[70.0, 90.0, 120.0]))
                .collect(),
            None,
        ),
        figure(
            "gatekeeper-08",
            "Fig. 8: throughput of a second database",
            "DB2; 20 runs, bands: 90 %; in time: within 180 s",
            lines(db2, &["original", "FIFO"]),
            rest(0, &[300.0, 400.0, 500.0, 600.0])
                .into_iter()
                .chain(rest(1, &[300.0, 400.0, 600.0]))
                .collect(),
            Some((400.0, "where the paper's original begins to fall")),
        ),
    ]
}

/// Figs. 9, 10, 14 and 15.
fn response(application: &Results, database: &Results) -> Vec<Figure> {
    let figure = |id, title, subtitle, lines, said, at| {
        let (level, metrics) = (None, IN_TIME);
        TwoMetrics { id, title, subtitle, lines, quantity: RESPONSE, said, at, level, axis: CLIENTS, metrics }
            .figure()
    };
    let each = |lines: std::ops::Range<usize>, places: &[f64]| -> Vec<Said> {
        lines.flat_map(|line| places.iter().map(move |&place| (line, place, None))).collect()
    };
    let figure_9 = [(0, COMPARED, Some(11.0)), (1, COMPARED, Some(9.0)), (2, COMPARED, Some(0.5))];
    vec![
        figure(
            "gatekeeper-09",
            "Fig. 9: response time, locking in the application server",
            APPLICATION,
            lines(application, &ADMISSION),
            figure_9.into_iter().chain(each(0..3, &[150.0, 300.0])).collect(),
            Some((290.0, "the knee of the paper's SJF")),
        ),
        figure(
            "gatekeeper-10",
            "Fig. 10: response time, locking in the database",
            DATABASE,
            lines(database, &ADMISSION),
            each(0..3, &[70.0, 90.0, 120.0]),
            None,
        ),
        figure(
            "gatekeeper-14",
            "Fig. 14: aging, locking in the application server",
            APPLICATION,
            lines(application, &AGING),
            each(1..6, &[100.0, 125.0, 250.0]),
            None,
        ),
        figure(
            "gatekeeper-15",
            "Fig. 15: aging, locking in the database",
            DATABASE,
            lines(database, &AGING),
            each(1..6, &[80.0, 90.0, 120.0]),
            None,
        ),
    ]
}

/// Table 2: what is inside the database, beside the processes and the memory that were counted there.
fn table_2(results: &Results) -> Figure {
    let mut table =
        "| | clients | interactions/min, paper | ours | database processes, paper | in flight, ours | \
                     memory used, paper |\n|---|---:|---:|---:|---:|---:|---:|\n"
            .to_owned();
    let rows = [
        ("original", 200.0, 852, "233", "450 MB"),
        ("original", 300.0, 589, "345", "509 MB"),
        ("FIFO", 230.0, 941, "49", "375 MB (talk: 275 MB)"),
    ];
    for (variant, clients, said, processes, memory) in rows {
        let Some((index, point)) = results.variant(variant).zip(results.point(clients)) else { continue };
        let rate = results.at(index, point, |digest| (PER_MINUTE.of)(&digest.in_time));
        let in_flight = results.at(index, point, |digest| digest.in_flight);
        let _ = writeln!(
            table,
            "| {variant} | {clients} | {said} | {} | {processes} | {} | {memory} |",
            with_interval(rate, PER_MINUTE.show),
            with_interval(in_flight, |count| format!("{count:.1}")),
        );
    }
    Figure { id: "gatekeeper-table-2".to_owned(), drawing: None, table }
}

/// The figure, the type, and waiting and service under FIFO and SJF, in seconds.
type Parts = (&'static str, &'static str, [(f64, f64); 2]);

/// What Figs. 11–13 say.
const BREAKDOWN: [Parts; 3] = [
    ("gatekeeper-11", "Exec Search", [(8.0, 0.4), (0.099, 0.4)]),
    ("gatekeeper-12", "Admin Response", [(12.89, 4.8), (15.621, 4.8)]),
    ("gatekeeper-13", AVERAGE, [(8.856, 0.428), (0.225, 0.428)]),
];
const AVERAGE: &str = "average";

/// Figs. 11–13.
fn breakdown(results: &Results) -> Vec<Figure> {
    // A short run may leave that point out.
    let Some(point) = results.point(COMPARED).or(results.points.len().checked_sub(1)) else {
        return Vec::new();
    };
    let clients = results.points[point];
    let figure = |&(id, name, said): &Parts| {
        let kind = results.types.iter().position(|known| known == name).unwrap_or(results.types.len());
        let mut bars = Vec::new();
        let mut table =
            "| | waiting, paper | waiting, ours | service, paper | service, ours | not in time | \
                         response over all |\n|---|---:|---:|---:|---:|---:|---:|\n"
                .to_owned();
        for (order, (wait, service)) in ["FIFO", "SJF"].into_iter().zip(said) {
            let Some(variant) = results.variant(order) else { continue };
            let found = |of: fn(&crate::Kind) -> f64| {
                results.at(variant, point, move |digest| of(&digest.kinds[kind]))
            };
            let (waited, served) = (found(|kind| kind.wait), found(|kind| kind.upstream));
            bars.push(Bar { name: format!("{order}, paper"), wait, service });
            let (wait_ours, service_ours) = (waited.mean, served.mean);
            bars.push(Bar { name: format!("{order}, ours"), wait: wait_ours, service: service_ours });
            let _ = writeln!(
                table,
                "| {order} | {} | {} | {} | {} | {} | {} |",
                seconds(wait),
                with_interval(waited, seconds),
                seconds(service),
                with_interval(served, seconds),
                percent(found(|kind| kind.late).mean),
                with_interval(found(|kind| kind.over_all), seconds),
            );
        }
        let number = id.trim_start_matches("gatekeeper-");
        let title = format!("Fig. {number}: {name} request, at {clients} clients");
        let subtitle = "of requests served in time; locking in the application server".to_owned();
        let drawing = Some(Drawing::Bars(Bars { title, subtitle, bars }));
        Figure { id: id.to_owned(), drawing, table }
    };
    BREAKDOWN.iter().map(figure).collect()
}

/// What shortest first is worth in an open loop, where nobody is left out.
fn below_saturation(results: &Results) -> Figure {
    let mut table =
        "| utilization | FIFO | SJF | FIFO/SJF, theory | ours | Admin Response, SJF/FIFO, theory | ours | \
                     wait-5 | Admin Response, wait-5/FIFO |\n|---:|---:|---:|---:|---:|---:|---:|---:|---:|\n"
            .to_owned();
    // Pollaczek and Khinchine, and Cobham, for Table 1's mix.
    let theory = [(0.7, "2.55", "1.69"), (0.8, "3.54", "2.58"), (0.9, "5.90", "5.52")];
    let admin = results.types.iter().position(|name| name == "Admin Response").unwrap_or_default();
    for (utilization, means, longs) in theory {
        let Some(point) = results.point(utilization) else { continue };
        let mean = |order| {
            let variant = results.variant(order)?;
            Some(results.at(variant, point, |digest| digest.over_all.response))
        };
        let long = |order| {
            let variant = results.variant(order)?;
            Some(results.at(variant, point, |digest| digest.kinds[admin].over_all).mean)
        };
        let (Some(fifo), Some(sjf), Some(aged)) = (mean("FIFO"), mean("SJF"), mean("wait-5")) else {
            continue;
        };
        let (Some(fifo_long), Some(sjf_long), Some(aged_long)) = (long("FIFO"), long("SJF"), long("wait-5"))
        else {
            continue;
        };
        let _ = writeln!(
            table,
            "| {utilization} | {} | {} | {means} | {:.2} | {longs} | {:.2} | {} | {:.2} |",
            with_interval(fifo, seconds),
            with_interval(sjf, seconds),
            fifo.mean / sjf.mean,
            sjf_long / fifo_long,
            with_interval(aged, seconds),
            aged_long / fifo_long,
        );
    }
    Figure { id: "gatekeeper-open".to_owned(), drawing: None, table }
}
