//! `pgbench -S` before PostgreSQL: directly, through PgBouncer, through the gate.

use std::sync::Arc;

use testbed::pgbouncer::{PgBouncer, Prepared};
use testbed::postgres::{PrivateServer, PrivateServerOptions};

use super::{Beside, Laboratory, Options, POOL, Turned, WINDOW};
use crate::Error;
use crate::blocking::blocking;
use crate::gatekeeper::Gatekeeper;
use crate::load::CpuMeter;
use crate::pgbench::{self, Amount, Protocol, Run};

/// pgbench's scale: a million accounts, all in the server's memory.
pub(super) const SCALE: u32 = 10;

struct Servers {
    server: PrivateServer,
    pgbouncer: PgBouncer,
    gatekeeper: Gatekeeper,
    options: Options,
}

pub(super) struct Pgbench(Arc<Servers>);

pub(super) async fn start(options: &Options) -> Result<Pgbench, Error> {
    let options = options.clone();
    let start = move || {
        let server =
            PrivateServer::start(&PrivateServerOptions { cpu: options.turns.cpu, ..Default::default() })?;
        pgbench::initialize(&server, SCALE)?;
        let pgbouncer = PgBouncer::start(&server, POOL, options.clients + 10, Prepared::Followed)?;
        let gatekeeper = Gatekeeper::start(server.port(), &[("connections".to_owned(), POOL.to_string())])?;
        Ok(Servers { server, pgbouncer, gatekeeper, options })
    };
    Ok(Pgbench(Arc::new(blocking(start).await?)))
}

impl Servers {
    /// What pgbench saw, and the proxy's processor time for each transaction.
    fn turn(
        &self,
        variant: usize,
        protocol: Protocol,
        rate: Option<f64>,
    ) -> Result<(pgbench::Outcome, f64), Error> {
        let (port, pid) = match variant {
            0 => (self.server.port(), None),
            1 => (self.pgbouncer.port(), Some(self.pgbouncer.pid())),
            _ => (self.gatekeeper.port(), Some(self.gatekeeper.pid())),
        };
        let amount = Amount::Time(self.options.turns.window(WINDOW));
        let run = Run { protocol, clients: self.options.clients, amount, rate, scripts: &[] };
        let meter = CpuMeter::start(&pid.into_iter().collect::<Vec<_>>());
        let outcome = pgbench::run(&self.server, port, &run)?;
        let cost = meter.used().as_secs_f64() / outcome.transactions as f64;
        Ok((outcome, cost))
    }
}

impl Laboratory for Pgbench {
    const NAMES: (&'static str, &'static str) = ("proxy-cost", "pgbench -S over 20 server connections");
    const GATE: usize = 2;
    const BESIDE: &'static [Beside] = &[Beside { variant: 1, goal: Some((1.0, 1.0)) }];
    const SECTIONS: &'static [&'static str] = &["simple", "extended", "prepared"];

    fn variants(&self) -> Vec<String> {
        let pgbouncer = format!("PgBouncer {}", self.0.pgbouncer.version());
        vec!["direct".to_owned(), pgbouncer, "Gatekeeper".to_owned()]
    }

    async fn turn(
        &self,
        variant: usize,
        section: usize,
        rate: Option<(f64, usize)>,
    ) -> Result<Turned, Error> {
        let protocol = Protocol::ALL[section];
        if variant == 1 && protocol == Protocol::Prepared && !self.0.pgbouncer.prepares() {
            // It is too old for prepared statements in transaction mode.
            return Ok(Turned::NONE);
        }
        let servers = Arc::clone(&self.0);
        let rate = rate.map(|(rate, _)| rate);
        let (outcome, cost) = blocking(move || servers.turn(variant, protocol, rate)).await?;
        Ok(match rate {
            None => Turned { rate: outcome.tps, cost, ..Turned::NONE },
            Some(_) => {
                Turned { cost, p50: outcome.response(0.5), p99: outcome.response(0.99), ..Turned::NONE }
            }
        })
    }
}
