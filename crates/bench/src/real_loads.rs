//! Services whose best number in flight isn't that of their processors, on real servers: statements that
//! sleep, a site with 64 places to sleep in, and a site with a lock that is held longer the more requests
//! want it. Whether a gate without settings harms the first two and saves the third.
//!
//! PostgreSQL is asked by pgbench, which keeps its own time. The sites are [`crate::http::origin`]'s keys
//! `place` and `lock`, in an open loop from a cold start. All count from the first request on, and a request
//! that isn't answered counts with its whole patience.

use std::path::PathBuf;
use std::time::Duration;

use serde::Serialize;
use testbed::postgres::{PrivateServer, PrivateServerOptions};

use crate::Error;
use crate::alternate::{Display, Turn, alternate};
use crate::blocking::blocking;
use crate::files::write_figures;
use crate::gatekeeper::Gatekeeper;
use crate::http::Request;
use crate::http::pages::{Arrivals, behind};
use crate::load::Outcome;
use crate::pgbench::{self, Amount, Protocol};
use crate::stats::{Rounds, mean};
use crate::table::{Figures, count, ratio, seconds, spread};

/// How long a client of a site waits.
const PATIENCE: Duration = Duration::from_secs(2);
/// Sessions of pgbench.
const SESSIONS: u32 = 90;
/// Half of the statements sleep.
const STATEMENTS: [&str; 2] = ["select pg_sleep(0.05);\n", "select 1;\n"];

/// Keys of a gate.
type Keys = &'static [(&'static str, &'static str)];

/// A load: requests of one kind, at a rate, of one server.
#[derive(Clone, Copy, Debug)]
pub struct Load {
    /// The name of the load.
    name: &'static str,
    /// Requests a second.
    rate: f64,
    /// The path of the site's requests; `None`: the load goes to PostgreSQL.
    path: Option<&'static str>,
    /// A gate with the number in flight that is known to be best.
    best: Keys,
}

const BEST_OF_PLACES: Keys = &[("connections", "64"), ("capacity", "\"none\"")];
const BEST_OF_LOCK: Keys = &[("connections", "8"), ("capacity", "\"none\"")];

/// 64 places with 40 ms each do 1,600 a second; a lock that is held for 4 ms is passed on 250 times.
const LOADS: [Load; 5] = [
    Load { name: "statements that sleep", rate: 1_600.0, path: None, best: &[("connections", "90")] },
    Load { name: "places, 0.7", rate: 1_120.0, path: Some("/?place=40000"), best: BEST_OF_PLACES },
    Load { name: "places, 1.5", rate: 2_400.0, path: Some("/?place=40000"), best: BEST_OF_PLACES },
    Load { name: "lock, 0.7", rate: 175.0, path: Some("/?lock=4000"), best: BEST_OF_LOCK },
    Load { name: "lock, 1.5", rate: 375.0, path: Some("/?lock=4000"), best: BEST_OF_LOCK },
];
/// The variants: what stands before each server.
const VARIANTS: [&str; 3] = ["direct", "gate", "gate, best number"];

/// Loads whose names have this in them.
pub fn called(part: &str) -> Vec<Load> {
    LOADS.into_iter().filter(|load| load.name.contains(part)).collect()
}

/// How the experiment is run.
#[derive(Clone, Debug)]
pub struct Options {
    /// The loads, one after another.
    pub loads: Vec<Load>,
    /// Rounds; every variant has one turn in each.
    pub rounds: usize,
    /// The duration of each turn.
    pub window: Duration,
    /// The seed of the arrivals.
    pub seed: u64,
    /// The server's processor.
    pub server_cpu: Option<usize>,
    /// Directory for the figures.
    pub output: PathBuf,
}

/// One turn.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Turned {
    /// Mean response time over all requests, in seconds.
    pub mean: f64,
    /// Answers in time, per second.
    pub served: f64,
}

/// The whole experiment.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// By load, its name; then by variant, then by round.
    pub results: Vec<(&'static str, Vec<Vec<Turned>>)>,
}

/// Runs the experiment.
///
/// # Errors
/// If something doesn't start, or a statement fails.
pub async fn run(options: &Options, display: &Display) -> Result<Report, Error> {
    let mut results = Vec::new();
    for &load in &options.loads {
        let expected = [options.window; VARIANTS.len()];
        let turned = alternate(options.rounds, &expected, async |at: Turn, left| {
            let (variant, round) = (VARIANTS[at.variant], at.round + 1);
            display.now(format!("{}, {variant}, round {round}: {left:.0?} to go", load.name));
            let keys = [None, Some(&[][..]), Some(load.best)][at.variant];
            let turned = match load.path {
                Some(path) => site(options, load, path, keys, at.round as u64).await?,
                None => statements(options, load, keys).await?,
            };
            let Turned { mean, served } = turned;
            display.say(&format!(
                "  {}, {variant}, round {round}: mean {}, {} served a second",
                load.name,
                seconds(mean),
                count(served)
            ));
            Ok(turned)
        })
        .await?;
        results.push((load.name, turned));
    }
    let report = Report { results };
    write_figures(&report, &options.output, "real-loads")?;
    Ok(report)
}

async fn site(
    options: &Options,
    load: Load,
    path: &str,
    keys: Option<Keys>,
    round: u64,
) -> Result<Turned, Error> {
    let requests = Request::poisson(load.rate, options.window, options.seed + round);
    let bytes = vec![format!("GET {path} HTTP/1.1\r\nHost: site.example\r\n\r\n").into_bytes()];
    let outcome = Arrivals { requests, bytes, work: vec![] }
        .meet(behind(keys), options.server_cpu, PATIENCE, None)
        .await?;
    let records = || outcome.records.iter().map(|(record, _)| record);
    let responses: Vec<f64> = records().map(|record| record.charged(PATIENCE).as_secs_f64()).collect();
    let served = records()
        .filter(|record| record.outcome == Outcome::Completed && record.end() <= options.window)
        .count();
    Ok(Turned { mean: mean(&responses), served: served as f64 / options.window.as_secs_f64() })
}

async fn statements(options: &Options, load: Load, keys: Option<Keys>) -> Result<Turned, Error> {
    let cpu = options.server_cpu;
    let amount = Amount::Time(options.window);
    let run = pgbench::Run {
        protocol: Protocol::Simple,
        clients: SESSIONS,
        amount,
        rate: Some(load.rate),
        scripts: &STATEMENTS,
    };
    blocking(move || {
        let server = PrivateServer::start(&PrivateServerOptions { cpu, ..Default::default() })?;
        let own = |keys: Keys| -> Vec<_> {
            keys.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
        };
        let gate = keys.map(|keys| Gatekeeper::start(server.port(), &own(keys))).transpose()?;
        let port = gate.as_ref().map_or(server.port(), Gatekeeper::port);
        let outcome = pgbench::run(&server, port, &run)?;
        Ok(Turned { mean: mean(&outcome.responses), served: outcome.tps })
    })
    .await
}

impl Report {
    /// The figures as a table.
    pub fn text(&self) -> String {
        let mut figures = Figures::new(&VARIANTS.map(str::to_owned));
        for (load, results) in &self.results {
            figures.heading(load);
            let mut row = |label: &str, figure: fn(&Turned) -> f64, show: fn(f64) -> String| {
                let all = |rounds: &[Turned]| rounds.iter().map(figure).collect::<Vec<_>>();
                figures.row(
                    &format!("  {label}"),
                    results.iter().map(|rounds| spread(Rounds::of(&all(rounds)), show)),
                );
                let direct = results.first().map(|rounds| all(rounds)).unwrap_or_default();
                let against = |rounds: &Vec<Turned>| {
                    let pairs = all(rounds).into_iter().zip(&direct);
                    spread(Rounds::of(&pairs.map(|(own, direct)| own / direct).collect::<Vec<_>>()), ratio)
                };
                figures.row("    of direct's", results.iter().map(against));
            };
            row("mean of all", |turned| turned.mean, seconds);
            row("served a second", |turned| turned.served, count);
        }
        figures.to_string().lines().map(|line| format!("  {line}\n")).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_round_is_compared_with_its_own_direct_turn() {
        let turned = |mean| Turned { mean, served: 100.0 };
        let results = vec![
            vec![turned(1.0), turned(2.0), turned(4.0)],
            vec![turned(2.0), turned(2.0), turned(2.0)],
            vec![turned(1.0), turned(2.0), turned(4.0)],
        ];
        let text = Report { results: vec![("lock", results)] }.text();
        assert!(text.contains("1.00  (0.50 … 2.00)"), "{text}");
        assert_eq!(called("lock").len(), 2);
    }
}
