//! One run of pgbench, PostgreSQL's own client: every transaction one lookup by key (`-S`), or one of
//! scripts.

use std::fs;
use std::process::{Command, Stdio};
use std::time::Duration;

use testbed::postgres::PrivateServer;

use crate::Error;
use crate::stats::percentile;

/// A way to send statements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Protocol {
    /// One message with the text.
    Simple,
    /// Parse, Bind, Execute for each.
    Extended,
    /// Prepared once, then Bind, Execute.
    Prepared,
}

impl Protocol {
    /// Every one.
    pub const ALL: [Self; 3] = [Self::Simple, Self::Extended, Self::Prepared];

    /// What pgbench calls it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Simple => "simple",
            Self::Extended => "extended",
            Self::Prepared => "prepared",
        }
    }
}

/// When a run is over.
#[derive(Clone, Copy, Debug)]
pub enum Amount {
    /// After this time, counted from before the clients connect.
    Time(Duration),
    /// After so many transactions of each client.
    Each(u32),
}

/// What a run is like.
#[derive(Clone, Copy, Debug)]
pub struct Run {
    /// How statements are sent.
    pub protocol: Protocol,
    /// How many clients.
    pub clients: u32,
    /// How long, or how much.
    pub amount: Amount,
    /// Transactions per second, as a Poisson process; without it each client goes on at once.
    pub rate: Option<f64>,
    /// What transactions do, each as often as the others; a lookup by key if nothing is said.
    pub scripts: &'static [&'static str],
}

/// What came of a run.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// Transactions that were done; none failed.
    pub transactions: u64,
    /// Per second, without the time to connect.
    pub tps: f64,
    /// Response times in seconds from when each was due, if there was a rate.
    pub responses: Vec<f64>,
}

impl Outcome {
    /// The response time that this fraction didn't exceed, in seconds.
    pub fn response(&self, fraction: f64) -> f64 {
        percentile(&self.responses, fraction)
    }
}

/// Makes pgbench's tables, this many times 100 000 accounts.
///
/// # Errors
/// If pgbench fails.
pub fn initialize(server: &PrivateServer, scale: u32) -> Result<(), Error> {
    let mut command = program(server, server.port());
    command.args(["-i", "-q", "-s", &scale.to_string()]);
    output(command).map(|_| ())
}

/// Runs pgbench through a port of 127.0.0.1 and waits for its end.
///
/// # Errors
/// If pgbench fails, or one of its transactions does.
pub fn run(server: &PrivateServer, port: u16, run: &Run) -> Result<Outcome, Error> {
    let logs = tempfile::tempdir().map_err(Error::io("creating a temporary directory"))?;
    let mut command = program(server, port);
    command.current_dir(logs.path());
    command.args(["-n", "-j", "1", "-M", run.protocol.name(), "-c", &run.clients.to_string()]);
    if run.scripts.is_empty() {
        command.arg("-S");
    }
    for (number, script) in run.scripts.iter().enumerate() {
        let name = format!("{number}.sql");
        fs::write(logs.path().join(&name), script).map_err(Error::io("writing a script for pgbench"))?;
        command.args(["-f", &name]);
    }
    match run.amount {
        Amount::Time(window) => command.args(["-T", &window.as_secs().max(1).to_string()]),
        Amount::Each(transactions) => command.args(["-t", &transactions.to_string()]),
    };
    if let Some(rate) = run.rate {
        command.args(["-l", "-R", &format!("{rate:.0}")]);
    }
    let text = output(command)?;
    let number = |before: &str| {
        let rest = text.split_once(before)?.1.trim_start();
        let end = rest.find(|letter: char| !letter.is_ascii_digit() && letter != '.').unwrap_or(rest.len());
        rest[..end].parse::<f64>().ok()
    };
    let failed = number("number of failed transactions:").unwrap_or(0.0);
    let (Some(tps), Some(transactions)) = (number("tps ="), number("actually processed:")) else {
        return Err(testbed::Error::Program { program: "pgbench".to_owned(), output: text }.into());
    };
    if failed > 0.0 || transactions < 1.0 {
        return Err(testbed::Error::Program { program: "pgbench".to_owned(), output: text }.into());
    }
    Ok(Outcome { transactions: transactions as u64, tps, responses: responses(logs.path())? })
}

fn program(server: &PrivateServer, port: u16) -> Command {
    let mut command = Command::new(server.binaries().program("pgbench"));
    command.args(["-h", "127.0.0.1", "-p", &port.to_string(), "-U", server.user()]);
    command.env("PGPASSWORD", server.password()).env("PGDATABASE", "postgres").stdin(Stdio::null());
    command
}

fn output(mut command: Command) -> Result<String, Error> {
    let output = command.output().map_err(Error::io("starting pgbench"))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    Err(testbed::Error::Program { program: "pgbench".to_owned(), output: said }.into())
}

/// The third column of pgbench's logs: microseconds from when a transaction was due to its end.
fn responses(directory: &std::path::Path) -> Result<Vec<f64>, Error> {
    let mut responses = Vec::new();
    for entry in fs::read_dir(directory).map_err(Error::io("looking for pgbench's logs"))? {
        let path = entry.map_err(Error::io("looking for pgbench's logs"))?.path();
        if path.extension().is_some_and(|extension| extension == "sql") {
            continue;
        }
        let text = fs::read_to_string(&path).map_err(Error::io("reading pgbench's log"))?;
        let micros = text.lines().filter_map(|line| line.split(' ').nth(2)?.parse::<f64>().ok());
        responses.extend(micros.map(|micros| micros / 1e6));
    }
    Ok(responses)
}
