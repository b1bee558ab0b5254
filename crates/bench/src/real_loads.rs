//! Services whose best number in flight isn't that of their processors, on real servers: statements that
//! sleep, a site with 64 places to sleep in, and a site with a lock that is held longer the more requests
//! want it. Whether a gate without settings harms the first two and saves the third.
//!
//! PostgreSQL is asked by pgbench, which keeps its own time. The sites are [`crate::http::origin`]'s keys
//! `place` and `lock`, in an open loop from a cold start. All count from the first request on, and a request
//! that isn't answered counts with its whole patience.

use std::time::Duration;

use serde::Serialize;
use testbed::postgres::{PrivateServer, PrivateServerOptions};

use crate::Error;
use crate::alternate::Display;
use crate::blocking::blocking;
use crate::gatekeeper::Gatekeeper;
use crate::http::Request;
use crate::http::pages::{Arrivals, behind};
use crate::load::Outcome;
use crate::pgbench::{self, Amount, Protocol};
use crate::stats::mean;
use crate::table::{count, seconds};
use crate::turns::{Flags, Row};

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

/// One turn.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Turned {
    /// Mean response time over all requests, in seconds.
    pub mean: f64,
    /// Answers in time, per second.
    pub served: f64,
}

const ROWS: &[Row<Turned>] = &[
    Row::compared("mean of all", |turned| turned.mean, seconds),
    Row::compared("served a second", |turned| turned.served, count),
];

/// Runs the experiment.
///
/// # Errors
/// If something doesn't start, or a statement fails.
pub async fn run(options: &Flags, display: &Display) -> Result<String, Error> {
    let mut report = options.report("real-loads", &VARIANTS, ROWS)?;
    let window = options.window(30.0);
    for load in LOADS.into_iter().filter(|load| options.has(load.name)) {
        report
            .measure(load.name, (options.rounds(3), window), display, async |at| {
                let keys = [None, Some(&[][..]), Some(load.best)][at.variant];
                match load.path {
                    Some(path) => site(options, load, path, keys, at.round as u64).await,
                    None => statements(options, load, keys).await,
                }
            })
            .await?;
    }
    Ok(report.table())
}

async fn site(
    options: &Flags,
    load: Load,
    path: &str,
    keys: Option<Keys>,
    round: u64,
) -> Result<Turned, Error> {
    let window = options.window(30.0);
    let requests = Request::poisson(load.rate, window, options.seed + round);
    let bytes = vec![format!("GET {path} HTTP/1.1\r\nHost: site.example\r\n\r\n").into_bytes()];
    let outcome =
        Arrivals { requests, bytes, work: vec![] }.meet(behind(keys), options.cpu, PATIENCE, None).await?;
    let records = || outcome.records.iter().map(|(record, _)| record);
    let responses: Vec<f64> = records().map(|record| record.charged(PATIENCE).as_secs_f64()).collect();
    let served =
        records().filter(|record| record.outcome == Outcome::Completed && record.end() <= window).count();
    Ok(Turned { mean: mean(&responses), served: served as f64 / window.as_secs_f64() })
}

async fn statements(options: &Flags, load: Load, keys: Option<Keys>) -> Result<Turned, Error> {
    let cpu = options.cpu;
    let amount = Amount::Time(options.window(30.0));
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
