//! Small and large responses: directly, through HAProxy, nginx and the gate.
//!
//! Each proxy has one worker, and a processor that it shares with the other proxies, which are idle while
//! one has its turn; the origin (an nginx with files) and the clients share the other.

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

use super::{Beside, Laboratory, Options, Turned, WINDOW};
use crate::Error;
use crate::blocking::blocking;
use crate::gatekeeper::Gatekeeper;
use crate::http::{
    Beyond, ClosedRun, HaProxy, HaProxyRole, Habits, Nginx, NginxRole, OpenRun, Request, closed, write_files,
};
use crate::load::Outcome;
use crate::stats::percentile;

/// Responses of these sizes, in bytes.
const SIZES: [usize; 2] = [1_024, 102_400];
/// Clients, each with a connection that it keeps.
const CONNECTIONS: usize = 64;
/// How long clients ask before anything is counted.
const WARM_UP: Duration = Duration::from_millis(500);
/// How long a client waits: nobody should have to.
const PATIENCE: Duration = Duration::from_secs(10);

pub(super) struct Files {
    // In the order in which they are ended: proxies before the origin.
    haproxy: HaProxy,
    nginx: Nginx,
    gatekeeper: Gatekeeper,
    origin: Nginx,
    window: Duration,
    _files: tempfile::TempDir,
}

pub(super) async fn start(options: &Options) -> Result<Files, Error> {
    let (cpu, window) = (options.turns.cpu, options.turns.window(WINDOW));
    blocking(move || {
        let files = tempfile::tempdir().map_err(Error::io("creating a temporary directory"))?;
        write_files(files.path(), &SIZES)?;
        let origin = Nginx::start(&NginxRole::Files(files.path().to_owned()), None)?;
        Ok(Files {
            haproxy: HaProxy::start(HaProxyRole::Proxy(origin.port()), cpu)?,
            nginx: Nginx::start(&NginxRole::Proxy(origin.port()), cpu)?,
            gatekeeper: Gatekeeper::start_http(origin.port(), &[], cpu)?,
            origin,
            window,
            _files: files,
        })
    })
    .await
}

impl Files {
    /// The port to connect to, and the proxy's processes.
    fn way(&self, variant: usize) -> (u16, Vec<u32>) {
        match variant {
            0 => (self.origin.port(), Vec::new()),
            1 => (self.haproxy.port(), self.haproxy.pids()),
            2 => (self.nginx.port(), self.nginx.pids()),
            _ => (self.gatekeeper.port(), vec![self.gatekeeper.pid()]),
        }
    }
}

fn request(section: usize) -> Vec<u8> {
    let size = SIZES[section];
    format!("GET /{size} HTTP/1.1\r\nHost: site.example\r\nAccept: */*\r\n\r\n").into_bytes()
}

impl Laboratory for Files {
    const NAMES: (&'static str, &'static str) =
        ("http-cost", "64 connections, one worker on one processor each");
    const GATE: usize = 3;
    const BESIDE: &'static [Beside] = &[Beside { variant: 1, goal: Some((1.0, 1.2)) }];
    const SECTIONS: &'static [&'static str] = &["1 KB", "100 KB"];

    fn variants(&self) -> Vec<String> {
        let (haproxy, nginx) = (self.haproxy.version(), self.nginx.version());
        vec![
            "direct".to_owned(),
            format!("HAProxy {haproxy}"),
            format!("nginx {nginx}"),
            "Gatekeeper".to_owned(),
        ]
    }

    async fn turn(
        &self,
        variant: usize,
        section: usize,
        rate: Option<(f64, usize)>,
    ) -> Result<Turned, Error> {
        let (port, measured) = self.way(variant);
        let Some((rate, round)) = rate else {
            let run = ClosedRun {
                port,
                requests: vec![request(section)],
                status: 200,
                connections: CONNECTIONS,
                warm_up: WARM_UP,
                window: self.window,
                measured,
            };
            let counted = closed(run).await?;
            return Ok(Turned { rate: counted.rate, cost: counted.cost, ..Turned::NONE });
        };
        let run = OpenRun {
            address: (Ipv4Addr::LOCALHOST, port).into(),
            inside: None,
            habits: Habits::default(),
            requests: Arc::new(Request::poisson(rate, self.window, round as u64)),
            bytes: Arc::new(vec![request(section)]),
            patience: PATIENCE,
            connections_max: CONNECTIONS,
            beyond: Beyond::Waits,
            measured,
        };
        let outcome = run.run().await?;
        let mut records = outcome.records.iter().map(|(record, _)| record);
        if let Some(bad) = records.find(|record| record.outcome != Outcome::Completed) {
            let reason = outcome.first_failure.unwrap_or_default();
            return Err(Error::Experiment(format!(
                "a request at half load ended as {:?} {reason}",
                bad.outcome
            )));
        }
        let responses: Vec<f64> =
            outcome.records.iter().map(|(record, _)| record.response.as_secs_f64()).collect();
        Ok(Turned {
            p50: percentile(&responses, 0.5),
            p99: percentile(&responses, 0.99),
            cost: outcome.used / responses.len() as f64,
            late: outcome.lag_p99.as_secs_f64(),
            ..Turned::NONE
        })
    }
}
