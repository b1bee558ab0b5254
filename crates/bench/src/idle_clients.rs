//! Ten thousand clients that are connected and say nothing: what memory does each take, in the clear and
//! with TLS, and do they slow down the few that work beside them?

use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;
use testbed::postgres::{Authentication, PrivateServer, PrivateServerOptions};
use testbed::process::resident_memory;

use crate::Error;
use crate::alternate::{Display, alternate};
use crate::blocking::blocking;
use crate::encryption::{Identity, Trust};
use crate::gatekeeper::Gatekeeper;
use crate::load::{Client, Target};
use crate::pgbench::{self, Amount, Protocol, Run};
use crate::stats::{Rounds, percentile};
use crate::table::{count, paragraph, ratio, spread};

/// The most resident memory of the gatekeeper for each idle client, in bytes.
pub const MEMORY_GOAL: f64 = 8.0 * 1024.0;
/// The least throughput beside the idle clients, as a part of that without them.
pub const THROUGHPUT_GOAL: f64 = 0.95;
/// Logins under way at a time: as many as a gate lets through.
const LOGINS: usize = 16;
/// pgbench's scale.
const SCALE: u32 = 10;

/// How the experiment is run.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Clients that are idle.
    pub clients: u32,
    /// Clients that work beside them.
    pub active: u32,
    /// Rounds of the comparison.
    pub rounds: usize,
    /// Transactions of each active client in a turn.
    pub transactions: u32,
    /// The server's processor.
    pub server_cpu: Option<usize>,
}

/// What came of it.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// Idle clients.
    pub clients: u32,
    /// Clients that worked.
    pub active: u32,
    /// Resident memory of the gatekeeper for each idle client, in bytes; each had run a statement.
    pub bytes_per_client: f64,
    /// Resident memory before the first of them, in bytes.
    pub bytes_before: f64,
    /// Resident memory for each of as many idle clients with TLS, in bytes.
    pub bytes_per_encrypted_client: f64,
    /// Throughput of the active ones alone, by round.
    pub alone: Vec<f64>,
    /// Throughput beside the idle ones, by round.
    pub beside: Vec<f64>,
}

/// Runs the experiment.
///
/// # Errors
/// If something doesn't start, or a connection or transaction fails.
pub async fn run(options: &Options, display: &Display) -> Result<Report, Error> {
    display.now("starting a server and two gatekeepers");
    let cpu = options.server_cpu;
    let clients_max = options.clients + options.active + 100;
    // The logins aren't what is measured: without a password they take a tenth of the time.
    let start = move || {
        let authentication = Authentication::Trust;
        let server =
            PrivateServer::start(&PrivateServerOptions { authentication, cpu, ..Default::default() })?;
        pgbench::initialize(&server, SCALE)?;
        let keys = [("max_clients".to_owned(), clients_max.to_string())];
        let quiet = Gatekeeper::start(server.port(), &keys)?;
        let crowded = Gatekeeper::start(server.port(), &keys)?;
        Ok((Arc::new(server), quiet, crowded))
    };
    let (server, quiet, crowded) = blocking(start).await?;
    // A first client, so that pools, threads and tables are there.
    let way = Way::Clear(Target::parse(&server.dsn_through(crowded.port()))?);
    let first = way.connect().await?;
    display.now(format!("connecting {} clients", options.clients));
    let (clients, Memory { bytes_before, bytes_per_client }) = crowd(&crowded, &way, options.clients).await?;
    let ports = [quiet.port(), crowded.port()];
    let run = Run {
        protocol: Protocol::Simple,
        clients: options.active,
        amount: Amount::Each(options.transactions),
        rate: None,
        scripts: &[],
    };
    let results = alternate(options.rounds, &[Duration::from_secs(5); 2], async |at, left| {
        display.now(format!("{} active clients: {left:.0?} to go", options.active));
        let (server, port) = (Arc::clone(&server), ports[at.variant]);
        blocking(move || pgbench::run(&server, port, &run)).await.map(|outcome| outcome.tps)
    })
    .await?;
    let lost = clients.iter().chain([&first]).filter(|client| client.is_closed()).count();
    if lost > 0 {
        return Err(Error::Experiment(format!("{lost} idle clients were cut off")));
    }
    drop((clients, first, crowded));
    display.now(format!("connecting {} clients with TLS", options.clients));
    let bytes_per_encrypted_client = encrypted(&server, options.clients, clients_max).await?;
    let mut results = results.into_iter();
    let (alone, beside) = (results.next().unwrap_or_default(), results.next().unwrap_or_default());
    let (clients, active) = (options.clients, options.active);
    Ok(Report { clients, active, bytes_per_client, bytes_before, bytes_per_encrypted_client, alone, beside })
}

/// Resident memory for each of so many idle clients with TLS, in bytes.
async fn encrypted(server: &Arc<PrivateServer>, count: u32, clients_max: u32) -> Result<f64, Error> {
    let identity = Identity::new()?;
    let [certificate, key] = identity.keys();
    let keys = [("max_clients".to_owned(), clients_max.to_string()), certificate, key];
    let port = server.port();
    let gate = blocking(move || Gatekeeper::start(port, &keys)).await?;
    let target = Target::parse(&server.dsn_through(gate.port()))?;
    let way = Way::Encrypted(target, identity.trust.clone());
    let _first = way.connect().await?;
    let (_clients, memory) = crowd(&gate, &way, count).await?;
    Ok(memory.bytes_per_client)
}

/// What a gatekeeper's clients take.
struct Memory {
    bytes_before: f64,
    bytes_per_client: f64,
}

/// Connects so many clients.
async fn crowd(gate: &Gatekeeper, way: &Way, count: u32) -> Result<(Vec<Client>, Memory), Error> {
    let resident = || resident_memory(gate.pid()).map(|bytes| bytes as f64);
    let bytes_before = resident()?;
    let clients = connect_all(way, count as usize).await?;
    let bytes_per_client = (resident()? - bytes_before) / f64::from(count.max(1));
    Ok((clients, Memory { bytes_before, bytes_per_client }))
}

/// How clients come.
#[derive(Clone)]
enum Way {
    Clear(Target),
    Encrypted(Target, Trust),
}

/// Connects a number of clients, of which a few log in at a time.
async fn connect_all(way: &Way, count: usize) -> Result<Vec<Client>, Error> {
    let mut lanes = tokio::task::JoinSet::new();
    for lane in 0..LOGINS {
        let way = way.clone();
        lanes.spawn(async move {
            let mut clients = Vec::new();
            for _ in (lane..count).step_by(LOGINS) {
                clients.push(way.connect().await?);
            }
            Ok::<_, Error>(clients)
        });
    }
    let mut clients = Vec::with_capacity(count);
    while let Some(lane) = lanes.join_next().await {
        let aborted = |error| Error::Experiment(format!("connecting was aborted: {error}"));
        clients.extend(lane.map_err(aborted)??);
    }
    Ok(clients)
}

impl Way {
    /// A client that has run a statement and then says nothing.
    async fn connect(&self) -> Result<Client, Error> {
        let client = match self {
            Self::Clear(target) => target.connect().await?,
            Self::Encrypted(target, trust) => target.connect_encrypted(trust).await?,
        };
        client.simple_query("SELECT 1").await.map_err(Error::database("asking SELECT 1"))?;
        Ok(client)
    }
}

impl Report {
    /// Throughput beside the idle clients as a part of that without them: the median of the rounds' ratios.
    pub fn throughput_ratio(&self) -> f64 {
        let ratios: Vec<f64> =
            self.beside.iter().zip(&self.alone).map(|(with, without)| with / without).collect();
        percentile(&ratios, 0.5)
    }

    /// The figures, with a verdict computed from them.
    pub fn text(&self) -> String {
        let reached = |is: bool| if is { "reached" } else { "missed" };
        let throughput = self.throughput_ratio();
        paragraph(&format!(
            "{} idle clients take {:.1} KiB of the gatekeeper's memory each, beside {:.1} MiB (goal: at most {:.0} KiB, \
             {}); with TLS {:.1} KiB.",
            count(f64::from(self.clients)),
            self.bytes_per_client / 1024.0,
            self.bytes_before / 1024.0 / 1024.0,
            MEMORY_GOAL / 1024.0,
            reached(self.bytes_per_client <= MEMORY_GOAL),
            self.bytes_per_encrypted_client / 1024.0
        )) + &paragraph(&format!(
            "{} active clients: {} transactions per second alone, {} beside the idle ones: {} times as many (goal: at \
             least {THROUGHPUT_GOAL}, {}).",
            self.active,
            spread(Rounds::of(&self.alone), count),
            spread(Rounds::of(&self.beside), count),
            ratio(throughput),
            reached(throughput >= THROUGHPUT_GOAL)
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn verdicts_come_from_the_figures() {
        let report = |bytes_per_client: f64, beside: f64| Report {
            clients: 10_000,
            active: 500,
            bytes_per_client,
            bytes_before: 1e7,
            bytes_per_encrypted_client: 2e4,
            alone: vec![100.0, 200.0],
            beside: vec![beside, 2.0 * beside],
        };
        assert_eq!(report(8_000.0, 96.0).text().matches("reached").count(), 2);
        assert_eq!(report(8_200.0, 94.0).text().matches("missed").count(), 2);
    }
}
