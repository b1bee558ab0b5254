//! Ten thousand clients that are connected and say nothing: what memory does each take, in the clear and
//! with TLS, and do they slow down the few that work beside them?

use std::sync::Arc;
use std::time::Duration;

use clap::{Args, value_parser};
use testbed::postgres::{Authentication, PrivateServer, PrivateServerOptions};
use testbed::process::resident_memory;

use crate::Error;
use crate::alternate::Display;
use crate::blocking::blocking;
use crate::encryption::{Identity, Trust};
use crate::gatekeeper::Gatekeeper;
use crate::load::{Client, Target};
use crate::pgbench::{self, Amount, Protocol, Run};
use crate::stats::percentile;
use crate::table::{count, paragraph, ratio};
use crate::turns::{self, Row};

/// The most resident memory of the gatekeeper for each idle client, in bytes.
pub const MEMORY_GOAL: f64 = 8.0 * 1024.0;
/// The least throughput beside the idle clients, as a part of that without them.
pub const THROUGHPUT_GOAL: f64 = 0.95;
/// Logins under way at a time: as many as a gate lets through.
const LOGINS: usize = 16;
/// pgbench's scale.
const SCALE: u32 = 10;

/// Flags of `bench run idle-clients`.
#[derive(Clone, Debug, Args)]
pub struct Options {
    /// Clients that are connected and say nothing
    #[arg(long, default_value_t = 10_000, value_parser = value_parser!(u32).range(1..))]
    clients: u32,
    /// Clients that work beside them
    #[arg(long, default_value_t = 500, value_parser = value_parser!(u32).range(1..))]
    active: u32,
    /// Transactions of each active client in a turn
    #[arg(long, default_value_t = 400, value_parser = value_parser!(u32).range(1..))]
    transactions: u32,
    /// What all experiments without a plan have.
    #[command(flatten)]
    pub turns: turns::Flags,
}

const ROWS: &[Row<f64>] = &[Row::compared("transactions a second", |tps| *tps, count)];

/// Runs the experiment.
///
/// # Errors
/// If something doesn't start, or a connection or transaction fails.
pub async fn run(options: &Options, display: &Display) -> Result<String, Error> {
    display.now("starting a server and two gatekeepers");
    let cpu = options.turns.cpu;
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
    let mut report = options.turns.report("idle-clients", &["alone", "beside the idle ones"], ROWS)?;
    let times = (options.turns.rounds(5), Duration::from_secs(5));
    let section = report
        .measure("", times, display, async |at| {
            let (server, port) = (Arc::clone(&server), ports[at.variant]);
            blocking(move || pgbench::run(&server, port, &run)).await.map(|outcome| outcome.tps)
        })
        .await?;
    let throughput = percentile(&section.ratios(1, 0, |tps| *tps), 0.5);
    let lost = clients.iter().chain([&first]).filter(|client| client.is_closed()).count();
    if lost > 0 {
        return Err(Error::Experiment(format!("{lost} idle clients were cut off")));
    }
    drop((clients, first, crowded));
    display.now(format!("connecting {} clients with TLS", options.clients));
    let with_tls = encrypted(&server, options.clients, clients_max).await?;
    let memory = format!(
        "{} idle clients take {:.1} KiB of the gatekeeper's memory each, beside {:.1} MiB; with TLS {:.1} KiB.",
        count(f64::from(options.clients)),
        bytes_per_client / 1024.0,
        bytes_before / 1024.0 / 1024.0,
        with_tls / 1024.0
    );
    Ok(report.table() + "\n" + &paragraph(&memory) + &paragraph(&verdict(bytes_per_client, throughput)))
}

fn verdict(bytes: f64, throughput: f64) -> String {
    let reached = |is: bool| if is { "reached" } else { "missed" };
    format!(
        "Goals: at most {:.0} KiB for each idle client ({}); beside them at least {THROUGHPUT_GOAL} of the throughput ({}: {}).",
        MEMORY_GOAL / 1024.0,
        reached(bytes <= MEMORY_GOAL),
        reached(throughput >= THROUGHPUT_GOAL),
        ratio(throughput),
    )
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn verdicts_come_from_the_figures() {
        assert_eq!(verdict(8_000.0, 0.96).matches("reached").count(), 2);
        assert_eq!(verdict(8_200.0, 0.94).matches("missed").count(), 2);
    }
}
