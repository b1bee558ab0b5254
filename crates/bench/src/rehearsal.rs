//! Whatever a gate does much of, in short: what the compiler is shown when it builds a gate for release
//! (`scripts/release`).
//!
//! A build that is guided by a profile lays out what runs often in line and close together, and moves what
//! it never saw out of the way. So everything that has to be fast is in here, each part through a gate of
//! its own: both protocols, with TLS and without, requests that wait and requests that are refused; once on
//! one processor and once on several, which are different runtimes. It measures nothing that may be quoted:
//! an instrumented gate is slower.

use std::net::{Ipv4Addr, TcpListener};
use std::process::{Command, Stdio};
use std::time::Duration;

use testbed::postgres::{PrivateServer, PrivateServerOptions};
use testbed::process::allowed_cpus;

use crate::Error;
use crate::alternate::Display;
use crate::blocking::blocking;
use crate::encryption::Identity;
use crate::gatekeeper::Gatekeeper;
use crate::http::{ClosedRun, Nginx, NginxRole, closed, hold_up, write_files};
use crate::pgbench::{self, Amount, Protocol, Run};
use crate::table::{Figures, count};

/// Responses over HTTP, in bytes: one that fits into a buffer and one that doesn't.
const SIZES: [usize; 2] = [1_024, 102_400];
/// Clients that the gate lets in all at once.
const FEW: usize = 64;
/// Clients that the gate doesn't let in all at once, so that some wait.
const MANY: usize = 300;
/// How many of the [`MANY`] clients the gate lets in at once. Its target is one for which it needn't refuse
/// anybody, however slow the machine.
const LET_IN: &str = "100";
/// pgbench's clients; a gate for PostgreSQL has 20 connections unless it is told otherwise, so that a third
/// of them waits.
const SESSIONS: u32 = 32;
/// Connections of h2load, and requests that each has under way over HTTP/2.
const STREAMS: [u32; 2] = [16, 8];
/// Requests of h2load for each second of a part.
const EACH_SECOND: f64 = 8_000.0;
/// Transactions of each of pgbench's clients for each second of a part. A time would count from before the
/// clients connect, and a slow machine might do nothing in it.
const EACH_SESSIONS_SECOND: f64 = 250.0;
/// How long clients ask before anything is counted.
const WARM_UP: Duration = Duration::from_millis(100);

/// How long it takes, and where it runs.
#[derive(Clone, Debug)]
pub struct Options {
    /// How long each part is.
    pub window: Duration,
    /// The processor of the gates that have only one.
    pub alone: Option<usize>,
}

impl Options {
    /// Parts of this length, on the first processor that there is.
    pub fn new(window: Duration) -> Self {
        Self { window, alone: allowed_cpus().first().copied() }
    }
}

/// What was done.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// The parts, with how many requests a second each did.
    pub parts: Vec<(String, f64)>,
}

impl Report {
    /// The report as a table.
    pub fn text(&self) -> String {
        let mut figures = Figures::new(&["requests per second".to_owned()]);
        for (part, rate) in &self.parts {
            figures.row(part, [count(*rate)]);
        }
        figures.indented()
    }
}

/// Runs the rehearsal.
///
/// # Errors
/// If something isn't installed or doesn't start, or a request is answered otherwise than it should be.
pub async fn run(options: &Options, display: &Display) -> Result<Report, Error> {
    let mut report = Report::default();
    // The runtime of one processor, and that of several.
    for (cpu, where_) in [(options.alone, "one processor"), (None, "all processors")] {
        let mut parts = Parts { options, display, where_, report: &mut report };
        over_http(&mut parts, cpu).await?;
        over_postgres(&mut parts, cpu).await?;
    }
    Ok(report)
}

/// Where parts are told, and kept.
struct Parts<'a> {
    options: &'a Options,
    display: &'a Display,
    where_: &'static str,
    report: &'a mut Report,
}

impl Parts<'_> {
    async fn part(
        &mut self,
        name: &str,
        part: impl Future<Output = Result<f64, Error>>,
    ) -> Result<(), Error> {
        let name = format!("{name}, {}", self.where_);
        self.display.now(&name);
        let rate = part.await.map_err(|error| Error::Experiment(format!("{name}: {error}")))?;
        self.report.parts.push((name, rate));
        Ok(())
    }

    /// Clients that each ask again as soon as they are answered.
    async fn closed(
        &mut self,
        name: &str,
        port: u16,
        path: &str,
        clients: usize,
        status: u16,
    ) -> Result<(), Error> {
        let run = ClosedRun {
            port,
            requests: vec![format!("GET {path} HTTP/1.1\r\nHost: site.example\r\n\r\n").into_bytes()],
            status,
            connections: clients,
            warm_up: WARM_UP,
            window: self.options.window,
            measured: Vec::new(),
        };
        self.part(name, async { closed(run).await.map(|counted| counted.rate) }).await
    }
}

async fn over_http(parts: &mut Parts<'_>, cpu: Option<usize>) -> Result<(), Error> {
    let directory = tempfile::tempdir().map_err(Error::io("creating a temporary directory"))?;
    write_files(directory.path(), &SIZES)?;
    let identity = Identity::new()?;
    let files = NginxRole::Files(directory.path().to_owned());
    let keys = identity.keys();
    let (origin, [gate, waited_for, refusing, encrypted], nobody) = blocking(move || {
        let origin = Nginx::start(&files, None)?;
        // It takes connections, as far as the kernel does, and never answers.
        let nobody = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).map_err(Error::io("listening"))?;
        let silent = nobody.local_addr().map_err(Error::io("listening"))?.port();
        let keys = keys.each_ref().map(|(key, value)| (key.as_str(), value.as_str()));
        let gates = [
            Gatekeeper::start_http(origin.port(), &[], cpu)?,
            Gatekeeper::start_http(origin.port(), &[("connections", LET_IN), ("target", "\"1h\"")], cpu)?,
            Gatekeeper::start_http(
                silent,
                &[("connections", "1"), ("queue_max", "1"), ("queue_timeout", "\"1h\"")],
                cpu,
            )?,
            Gatekeeper::start_http(origin.port(), &keys, cpu)?,
        ];
        Ok((origin, gates, nobody))
    })
    .await?;
    for size in SIZES {
        let name = format!("HTTP/1.1, {} KB", size / 1_024);
        parts.closed(&name, gate.port(), &format!("/{size}"), FEW, 200).await?;
    }
    parts.closed("HTTP/1.1, some wait", waited_for.port(), &format!("/{}", SIZES[0]), MANY, 200).await?;
    let held = hold_up(refusing.port(), "/").await?;
    parts.closed("HTTP/1.1, refused", refusing.port(), "/", FEW, 503).await?;
    drop(held);
    for (name, version) in [("HTTP/1.1 with TLS", Version::Http1), ("HTTP/2 with TLS", Version::Http2)] {
        for size in SIZES {
            // Large ones are as much work when there are a quarter as many.
            let each_second = if size == SIZES[0] { EACH_SECOND } else { EACH_SECOND / 4.0 };
            let requests = (each_second * parts.options.window.as_secs_f64()) as u64;
            let url = format!("https://127.0.0.1:{}/{size}", encrypted.port());
            let load = blocking(move || h2load(&url, version, requests));
            parts.part(&format!("{name}, {} KB", size / 1_024), load).await?;
        }
    }
    // Gates before their origins: they are asked to end, and write what they were built to write.
    blocking(move || {
        drop((gate, waited_for, refusing, encrypted));
        drop((origin, nobody, directory, identity));
        Ok(())
    })
    .await
}

/// A version of HTTP that h2load is told to speak.
#[derive(Clone, Copy, Debug)]
enum Version {
    Http1,
    Http2,
}

/// Sends a number of requests, which all have to succeed. Returns the requests per second.
fn h2load(url: &str, version: Version, requests: u64) -> Result<f64, Error> {
    let [clients, streams] = STREAMS.map(|number| number.to_string());
    let mut command = Command::new("h2load");
    command.args(["--requests", &requests.to_string(), "--threads", "1", "--clients", &clients]);
    match version {
        Version::Http1 => command.arg("--h1"),
        Version::Http2 => command.args(["--max-concurrent-streams", &streams]),
    };
    let output = command.arg(url).stdin(Stdio::null()).output().map_err(|source| match source.kind() {
        std::io::ErrorKind::NotFound => {
            testbed::Error::Missing("h2load isn't installed; scripts/setup h2load does that".to_owned())
        }
        _ => testbed::Error::Io { action: "starting h2load".to_owned(), source },
    })?;
    let said = String::from_utf8_lossy(&output.stdout);
    let succeeded = said.contains(&format!("status codes: {requests} 2xx"));
    let rate = said
        .split_once("finished in ")
        .and_then(|(_, rest)| rest.split(", ").nth(1)?.split(' ').next()?.parse::<f64>().ok());
    match rate {
        Some(rate) if output.status.success() && succeeded => Ok(rate),
        _ => {
            let output = format!("{said}{}", String::from_utf8_lossy(&output.stderr));
            Err(testbed::Error::Program { program: "h2load".to_owned(), output }.into())
        }
    }
}

async fn over_postgres(parts: &mut Parts<'_>, cpu: Option<usize>) -> Result<(), Error> {
    let identity = Identity::new()?;
    let keys = identity.keys();
    let (server, gates) = blocking(move || {
        let server = PrivateServer::start(&PrivateServerOptions::default())?;
        pgbench::initialize(&server, 1)?;
        // pgbench takes TLS where it is offered.
        let gates = [
            ("PostgreSQL", Gatekeeper::start_pinned(server.port(), &[], cpu)?),
            ("PostgreSQL with TLS", Gatekeeper::start_pinned(server.port(), &keys, cpu)?),
        ];
        Ok((std::sync::Arc::new(server), gates))
    })
    .await?;
    for (name, gate) in &gates {
        for protocol in Protocol::ALL {
            let each = EACH_SESSIONS_SECOND * parts.options.window.as_secs_f64();
            let amount = Amount::Each(each as u32);
            let run = Run { protocol, clients: SESSIONS, amount, rate: None, scripts: &[] };
            let (server, port) = (std::sync::Arc::clone(&server), gate.port());
            let load = blocking(move || pgbench::run(&server, port, &run).map(|outcome| outcome.tps));
            parts.part(&format!("{name}, {}", protocol.name()), load).await?;
        }
    }
    blocking(move || {
        drop(gates);
        drop((server, identity));
        Ok(())
    })
    .await
}
