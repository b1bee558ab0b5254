//! One run of sysbench's `oltp_point_select`: every transaction one lookup by key, as `pgbench -S` does it.

use std::process::{Command, Stdio};
use std::time::Duration;

use testbed::mariadb::PrivateMariadb;

use crate::Error;

/// Rows of its table, as many as pgbench's ten times 100,000 are bytes in the server's memory.
const ROWS: u32 = 1_000_000;

/// A way to send statements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Protocol {
    /// The text of each.
    Text,
    /// Prepared once for each client, then executed.
    Prepared,
}

impl Protocol {
    /// Every way.
    pub const ALL: [Self; 2] = [Self::Text, Self::Prepared];

    const fn flag(self) -> &'static str {
        match self {
            Self::Text => "--db-ps-mode=disable",
            Self::Prepared => "--db-ps-mode=auto",
        }
    }
}

/// What came of a run.
#[derive(Clone, Copy, Debug)]
pub struct Outcome {
    /// Transactions that were done; none failed.
    pub transactions: u64,
    /// Transactions per second.
    pub tps: f64,
}

/// Makes the table.
///
/// # Errors
/// If sysbench isn't installed (the message names the package) or fails.
pub fn initialize(server: &PrivateMariadb) -> Result<(), Error> {
    let mut command = program(server, server.port());
    command.arg("prepare");
    output(command).map(drop)
}

/// Runs it through a port of 127.0.0.1 and waits for its end.
///
/// # Errors
/// If sysbench fails, or one of its transactions does.
pub fn run(
    server: &PrivateMariadb,
    port: u16,
    protocol: Protocol,
    clients: u32,
    window: Duration,
) -> Result<Outcome, Error> {
    let mut command = program(server, port);
    command.arg(protocol.flag()).arg(format!("--threads={clients}"));
    command.arg(format!("--time={}", window.as_secs().max(1))).arg("run");
    let text = output(command)?;
    outcome(&text).ok_or(testbed::Error::Program { program: "sysbench".to_owned(), output: text }.into())
}

fn program(server: &PrivateMariadb, port: u16) -> Command {
    let mut command = Command::new("sysbench");
    command.args(["oltp_point_select", "--tables=1", "--mysql-host=127.0.0.1"]);
    command.arg(format!("--table-size={ROWS}")).arg(format!("--mysql-port={port}"));
    command.arg(format!("--mysql-user={}", server.user())).arg(format!("--mysql-db={}", server.database()));
    command.arg(format!("--mysql-password={}", server.password())).stdin(Stdio::null());
    command
}

fn output(mut command: Command) -> Result<String, Error> {
    let output = command.output().map_err(|error| match error.kind() {
        std::io::ErrorKind::NotFound => {
            testbed::Error::Missing("sysbench was not found; install the package `sysbench`".to_owned())
        }
        _ => testbed::Error::io("starting sysbench")(error),
    })?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    if output.status.success() {
        return Ok(text);
    }
    // sysbench tells its errors on its standard output.
    Err(testbed::Error::Program { program: "sysbench".to_owned(), output: text }.into())
}

/// Reads `transactions: 1234 (567.89 per sec.)`. `None` where there is none, or a transaction failed.
fn outcome(text: &str) -> Option<Outcome> {
    let line = |name: &str| text.lines().find_map(|line| line.trim().strip_prefix(name));
    let (count, rate) = line("transactions:")?.trim().split_once('(')?;
    let failed = line("ignored errors:")?.trim().split(' ').next()?;
    let transactions = count.trim().parse().ok().filter(|&count: &u64| count > 0)?;
    let tps = rate.split(' ').next()?.parse().ok()?;
    (failed == "0").then_some(Outcome { transactions, tps })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_counts_only_if_no_transaction_failed() {
        let text = |failed: u32| {
            format!(
                "SQL statistics:\n    transactions:                        386154 (38611.02 per sec.)\n\
                 \x20   ignored errors:                      {failed}      (0.00 per sec.)\n"
            )
        };
        let good = outcome(&text(0)).expect("a good run");
        assert_eq!((good.transactions, good.tps), (386_154, 38_611.02));
        assert!(outcome(&text(2)).is_none() && outcome("FATAL: no server").is_none());
    }
}
