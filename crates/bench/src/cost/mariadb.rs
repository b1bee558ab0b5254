//! sysbench's lookups by key before MariaDB: directly, through ProxySQL where it is installed, through the
//! gate, in turns with pgbench's through the gate for PostgreSQL.

use std::sync::Arc;

use testbed::database::{Database, DatabaseServer};
use testbed::mariadb::PrivateMariadb;
use testbed::postgres::{PrivateServer, PrivateServerOptions};
use testbed::proxysql::ProxySql;

use super::postgres::SCALE;
use super::{Beside, Laboratory, Options, POOL, Turned, WINDOW};
use crate::Error;
use crate::blocking::blocking;
use crate::gatekeeper::Gatekeeper;
use crate::load::CpuMeter;
use crate::pgbench::{self, Amount};
use crate::sysbench::{self, Protocol};

struct Servers {
    mariadb: PrivateMariadb,
    postgres: PrivateServer,
    proxysql: Option<ProxySql>,
    gate: Gatekeeper,
    gate_for_postgres: Gatekeeper,
    options: Options,
}

pub(super) struct Sysbench(Arc<Servers>);

pub(super) async fn start(options: &Options) -> Result<Sysbench, Error> {
    let options = options.clone();
    let start = move || {
        let server = PrivateServerOptions { cpu: options.turns.cpu, ..Default::default() };
        let keys = [("connections".to_owned(), POOL.to_string())];
        let mariadb = DatabaseServer::start(Database::Mariadb, &server)?;
        let gate = Gatekeeper::start_before(&mariadb.upstream(), &keys)?;
        let DatabaseServer::Mariadb(mariadb) = mariadb else { unreachable!("it was started as MariaDB") };
        sysbench::initialize(&mariadb)?;
        let postgres = PrivateServer::start(&server)?;
        pgbench::initialize(&postgres, SCALE)?;
        let gate_for_postgres = Gatekeeper::start(postgres.port(), &keys)?;
        let proxysql = ProxySql::start(&mariadb, POOL)?;
        Ok(Servers { mariadb, postgres, proxysql, gate, gate_for_postgres, options })
    };
    Ok(Sysbench(Arc::new(blocking(start).await?)))
}

impl Servers {
    fn turn(&self, variant: usize, protocol: Protocol) -> Result<Turned, Error> {
        let (port, pid) = match (variant, &self.proxysql) {
            (0, _) => (self.mariadb.port(), None),
            (1, Some(proxysql)) => (proxysql.port(), Some(proxysql.pid())),
            (1, None) => return Ok(Turned::NONE),
            (2, _) => (self.gate.port(), Some(self.gate.pid())),
            _ => (self.gate_for_postgres.port(), Some(self.gate_for_postgres.pid())),
        };
        let (clients, window) = (self.options.clients, self.options.turns.window(WINDOW));
        let meter = CpuMeter::start(&pid.into_iter().collect::<Vec<_>>());
        let (transactions, rate) = if variant == 3 {
            let protocol = match protocol {
                Protocol::Text => pgbench::Protocol::Simple,
                Protocol::Prepared => pgbench::Protocol::Prepared,
            };
            let amount = Amount::Time(window);
            let run = pgbench::Run { protocol, clients, amount, rate: None, scripts: &[] };
            let outcome = pgbench::run(&self.postgres, port, &run)?;
            (outcome.transactions, outcome.tps)
        } else {
            let outcome = sysbench::run(&self.mariadb, port, protocol, clients, window)?;
            (outcome.transactions, outcome.tps)
        };
        Ok(Turned { rate, cost: meter.used().as_secs_f64() / transactions as f64, ..Turned::NONE })
    }
}

impl Laboratory for Sysbench {
    const NAMES: (&'static str, &'static str) =
        ("mariadb-cost", "oltp_point_select over 20 server connections");
    const GATE: usize = 2;
    const BESIDE: &'static [Beside] =
        &[Beside { variant: 3, goal: Some((1.1, 1.1)) }, Beside { variant: 1, goal: None }];
    const SECTIONS: &'static [&'static str] = &["text", "prepared"];
    const HAS_HALF: bool = false;

    fn variants(&self) -> Vec<String> {
        let proxysql = self.0.proxysql.as_ref();
        let proxysql =
            proxysql.map_or("ProxySQL (not installed)".to_owned(), |it| format!("ProxySQL {}", it.version()));
        vec!["direct".to_owned(), proxysql, "gate".to_owned(), "the gate for PostgreSQL".to_owned()]
    }

    async fn turn(&self, variant: usize, section: usize, _: Option<(f64, usize)>) -> Result<Turned, Error> {
        let servers = Arc::clone(&self.0);
        blocking(move || servers.turn(variant, Protocol::ALL[section])).await
    }
}
