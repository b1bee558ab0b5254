//! What standing in between costs before MariaDB: sysbench's lookups by key directly, through ProxySQL where
//! it is installed, and through the gate, in turns with pgbench's through the gate for PostgreSQL.
//!
//! All proxies have as many server connections, run on the same processor beside the client, and get as many
//! clients as in [`proxy_cost`](crate::proxy_cost).

use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;
use testbed::database::{Database, DatabaseServer};
use testbed::mariadb::PrivateMariadb;
use testbed::postgres::{PrivateServer, PrivateServerOptions};
use testbed::proxysql::ProxySql;

use crate::Error;
use crate::alternate::{Display, alternate};
use crate::blocking::blocking;
use crate::files::write_figures;
use crate::gatekeeper::Gatekeeper;
use crate::load::CpuMeter;
use crate::pgbench::{self, Amount};
use crate::proxy_cost::{Full, Options, POOL};
use crate::stats::Rounds;
use crate::sysbench::{self, Protocol};
use crate::table::{self, Figures, count, ratio, spread};

/// The most that a transaction may cost, as a multiple of the gate's for PostgreSQL.
const GOAL: f64 = 1.1;
/// pgbench's scale, as in [`proxy_cost`](crate::proxy_cost).
const SCALE: u32 = 10;

/// What stands in between.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum Variant {
    Direct,
    ProxySql,
    Gate,
    /// The gate for PostgreSQL, with pgbench.
    Postgres,
}

const VARIANTS: [Variant; 4] = [Variant::Direct, Variant::ProxySql, Variant::Gate, Variant::Postgres];

/// One way to send statements; by variant, then by round.
#[derive(Clone, Debug, Serialize)]
struct SentBy {
    protocol: Protocol,
    full: Vec<Vec<Full>>,
}

/// The whole experiment.
#[derive(Clone, Debug, Serialize)]
pub struct MariadbCosts {
    /// ProxySQL's version, where it is installed.
    proxysql: Option<String>,
    clients: u32,
    window_seconds: f64,
    sections: Vec<SentBy>,
}

struct Servers {
    mariadb: PrivateMariadb,
    postgres: PrivateServer,
    proxysql: Option<ProxySql>,
    gate: Gatekeeper,
    gate_for_postgres: Gatekeeper,
}

impl Servers {
    fn start(options: &Options) -> Result<Self, Error> {
        let server = PrivateServerOptions { cpu: options.server_cpu, ..Default::default() };
        let keys = [("connections".to_owned(), POOL.to_string())];
        let mariadb = DatabaseServer::start(Database::Mariadb, &server)?;
        let gate = Gatekeeper::start_before(&mariadb.upstream(), &keys)?;
        let DatabaseServer::Mariadb(mariadb) = mariadb else { unreachable!("it was started as MariaDB") };
        sysbench::initialize(&mariadb)?;
        let postgres = PrivateServer::start(&server)?;
        pgbench::initialize(&postgres, SCALE)?;
        let gate_for_postgres = Gatekeeper::start(postgres.port(), &keys)?;
        let proxysql = ProxySql::start(&mariadb, POOL)?;
        Ok(Self { mariadb, postgres, proxysql, gate, gate_for_postgres })
    }

    /// `None` where ProxySQL isn't installed.
    fn turn(&self, variant: Variant, protocol: Protocol, options: &Options) -> Result<Option<Full>, Error> {
        let (port, pid) = match variant {
            Variant::Direct => (self.mariadb.port(), None),
            Variant::Gate => (self.gate.port(), Some(self.gate.pid())),
            Variant::Postgres => (self.gate_for_postgres.port(), Some(self.gate_for_postgres.pid())),
            Variant::ProxySql => match &self.proxysql {
                Some(proxysql) => (proxysql.port(), Some(proxysql.pid())),
                None => return Ok(None),
            },
        };
        let meter = CpuMeter::start(&pid.into_iter().collect::<Vec<_>>());
        let (transactions, tps) = if variant == Variant::Postgres {
            let run = pgbench::Run {
                protocol: match protocol {
                    Protocol::Text => pgbench::Protocol::Simple,
                    Protocol::Prepared => pgbench::Protocol::Prepared,
                },
                clients: options.clients,
                amount: Amount::Time(options.window),
                rate: None,
                scripts: &[],
            };
            let outcome = pgbench::run(&self.postgres, port, &run)?;
            (outcome.transactions, outcome.tps)
        } else {
            let outcome = sysbench::run(&self.mariadb, port, protocol, options.clients, options.window)?;
            (outcome.transactions, outcome.tps)
        };
        Ok(Some(Full { tps, cost: meter.used().as_secs_f64() / transactions as f64 }))
    }
}

/// Measures it.
///
/// # Errors
/// If something doesn't start, or a transaction fails.
pub async fn run(options: &Options, display: &Display) -> Result<MariadbCosts, Error> {
    let own = options.clone();
    display.now("starting MariaDB, PostgreSQL and their gates");
    let servers = Arc::new(blocking(move || Servers::start(&own)).await?);
    let mut sections = Vec::new();
    for protocol in Protocol::ALL {
        let expected = [options.window; VARIANTS.len()];
        let full = alternate(options.rounds, &expected, async |at, left: Duration| {
            display.now(format!("{protocol:?}: {left:.0?} to go"));
            let (servers, options) = (Arc::clone(&servers), options.clone());
            blocking(move || servers.turn(VARIANTS[at.variant], protocol, &options)).await
        })
        .await?;
        let full = full.into_iter().map(|rounds| rounds.into_iter().flatten().collect()).collect();
        sections.push(SentBy { protocol, full });
    }
    let report = MariadbCosts {
        proxysql: servers.proxysql.as_ref().map(|proxysql| proxysql.version().to_owned()),
        clients: options.clients,
        window_seconds: options.window.as_secs_f64(),
        sections,
    };
    write_figures(&report, &options.output, "mariadb-cost")?;
    Ok(report)
}

fn micros(seconds: f64) -> String {
    format!("{:.1} µs", seconds * 1e6)
}

impl SentBy {
    /// The gate's cost as a multiple of a variant's, in each round.
    fn ratios(&self, of: Variant) -> Vec<f64> {
        let [_, proxysql, gate, postgres] = &self.full[..] else { return Vec::new() };
        let other = if of == Variant::ProxySql { proxysql } else { postgres };
        gate.iter().zip(other).map(|(ours, theirs)| ours.cost / theirs.cost).collect()
    }

    fn verdict(&self) -> String {
        let beside = Rounds::of(&self.ratios(Variant::Postgres));
        let reached = if beside.median <= GOAL { "reached" } else { "missed" };
        let proxysql = match &self.ratios(Variant::ProxySql)[..] {
            [] => "ProxySQL isn't installed".to_owned(),
            ratios => format!("{} times ProxySQL's", spread(Rounds::of(ratios), ratio)),
        };
        format!(
            "{:?}: {} times the processor time of the gate for PostgreSQL (goal: at most {GOAL}, {reached}); {proxysql}.",
            self.protocol,
            spread(beside, ratio)
        )
    }
}

impl MariadbCosts {
    /// The figures as tables, with verdicts computed from them.
    pub fn text(&self) -> String {
        let proxysql = self.proxysql.as_ref().map_or("no ProxySQL".to_owned(), |it| format!("ProxySQL {it}"));
        let names = ["direct", &proxysql, "gate", "gate, PostgreSQL"].map(str::to_owned);
        let mut figures = Figures::new(&names);
        let mut verdicts = String::new();
        for section in &self.sections {
            figures.heading(&format!("{:?}", section.protocol));
            let row = |figure: fn(&Full) -> f64, show: fn(f64) -> String| {
                section.full.iter().map(move |rounds| match &rounds[..] {
                    [] => "–".to_owned(),
                    rounds => spread(Rounds::of(&rounds.iter().map(figure).collect::<Vec<_>>()), show),
                })
            };
            figures.row("transactions per second", row(|full| full.tps, count));
            figures.row("proxy's processor time for each", row(|full| full.cost, micros));
            verdicts.push_str(&table::paragraph(&section.verdict()));
        }
        let table: String = figures.to_string().lines().map(|line| format!("  {line}\n")).collect();
        table + "\n" + &verdicts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn verdicts_come_from_the_rounds_and_bear_that_proxysql_is_missing() {
        let costs = |costs: &[f64]| costs.iter().map(|&cost| Full { tps: 1.0, cost }).collect::<Vec<_>>();
        let section = |proxysql: &[f64], gate: &[f64]| SentBy {
            protocol: Protocol::Text,
            full: vec![costs(&[0.0; 3]), costs(proxysql), costs(gate), costs(&[1.0, 2.0, 4.0])],
        };
        let good = section(&[2.0, 2.0, 2.0], &[1.0, 2.2, 4.0]).verdict();
        assert!(good.contains("reached") && good.contains("times ProxySQL's"), "{good}");
        let bad = section(&[], &[1.2, 2.4, 4.0]).verdict();
        assert!(bad.contains("missed") && bad.contains("isn't installed"), "{bad}");
    }
}
