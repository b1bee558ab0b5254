//! The hold-up: forty reports of ten seconds each meet a gate that has never seen anything. How long does a
//! `SELECT 1` wait behind them, the first one and later ones?
//!
//! A gate that lets requests of unknown types pass freely fills its connections with the reports; one that
//! takes every unknown type for heavy makes the first `SELECT 1` wait for a report. Two kinds of report are
//! tried: one that only sleeps (nothing but the gate can hold anybody up) and one that computes (the server's
//! processor is busy too). The same `SELECT 1` over a direct connection, asked in turn, tells the server's
//! part from the gate's.

use std::time::{Duration, Instant};

use testbed::postgres::{PrivateServer, PrivateServerOptions};

use crate::Error;
use crate::alternate::Display;
use crate::blocking::blocking;
use crate::gatekeeper::Gatekeeper;
use crate::load::{Client, Target};
use crate::stats::percentile;
use crate::table::{count, seconds};
use crate::turns::{Flags, Row};

/// Reports sent at once.
pub const REPORTS: usize = 40;
/// How long each of them takes, in seconds.
const REPORT_SECONDS: u32 = 10;
/// How long a first `SELECT 1` may be held up.
pub const FIRST_GOAL: Duration = Duration::from_millis(20);
/// How long a later one may be held up.
pub const LATER_GOAL: Duration = Duration::from_millis(10);
/// How many later ones are asked, and how often: until after the first report has ended.
const LATER_SAMPLES: usize = 500;
const LATER_INTERVAL: Duration = Duration::from_millis(25);
/// How long the first report may take to reach the server.
const ARRIVAL_BOUND: Duration = Duration::from_secs(20);

/// A report that keeps the processor busy for a time.
const BUSY_FUNCTION: &str = "
CREATE FUNCTION busy(seconds double precision) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    finish timestamptz := clock_timestamp() + make_interval(secs => seconds);
    turns bigint := 0;
BEGIN
    WHILE clock_timestamp() < finish LOOP turns := turns + 1; END LOOP;
    RETURN turns;
END $$";

/// What the reports do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// They sleep.
    Sleeping,
    /// They compute.
    Computing,
}

impl Kind {
    fn statement(self) -> String {
        match self {
            Self::Sleeping => format!("SELECT pg_sleep({REPORT_SECONDS})"),
            Self::Computing => format!("SELECT busy({REPORT_SECONDS})"),
        }
    }

    const fn name(self) -> &'static str {
        match self {
            Self::Sleeping => "reports that sleep",
            Self::Computing => "reports that compute",
        }
    }
}

/// How long `SELECT 1` took while the reports ran.
#[derive(Clone, Debug, serde::Serialize)]
pub struct HoldUp {
    /// What the reports did.
    pub kind: Kind,
    /// Reports that ran in the server at the end.
    pub running: i64,
    /// The first one through the gate, in seconds.
    pub first_seconds: f64,
    /// Later ones through the gate, in seconds.
    pub later_seconds: Vec<f64>,
    /// Later ones over a direct connection, in seconds.
    pub direct_seconds: Vec<f64>,
}

impl HoldUp {
    /// Whether neither the first nor any later one was held up for longer than allowed.
    ///
    /// What the same statement took directly in the same minutes isn't the gate's doing: the first one is
    /// held against the median of those, the worst of the later ones against the worst of as many (a report
    /// that computes has the server's only processor for milliseconds at a time).
    pub fn is_within_goals(&self) -> bool {
        let direct = |fraction| percentile(&self.direct_seconds, fraction);
        self.first_seconds - direct(0.5) <= FIRST_GOAL.as_secs_f64()
            && percentile(&self.later_seconds, 1.0) - direct(1.0) <= LATER_GOAL.as_secs_f64()
    }

    fn verdict(&self) -> String {
        let word = if self.is_within_goals() { "reached" } else { "missed" };
        let (kind, goals) = (self.kind.name(), "hold-up of the first at most");
        format!(
            "  {kind}: the goals ({goals} {FIRST_GOAL:?}, of any later one at most {LATER_GOAL:?}) are {word}.\n"
        )
    }
}

const ROWS: &[Row<HoldUp>] = &[
    Row::new("reports running", |it| it.running as f64, count),
    Row::new("first SELECT 1 through the gate", |it| it.first_seconds, seconds),
    Row::new("later ones, median", |it| percentile(&it.later_seconds, 0.5), seconds),
    Row::new("  directly, median", |it| percentile(&it.direct_seconds, 0.5), seconds),
    Row::new("later ones, 99th percentile", |it| percentile(&it.later_seconds, 0.99), seconds),
    Row::new("  directly, 99th percentile", |it| percentile(&it.direct_seconds, 0.99), seconds),
    Row::new("later ones, worst", |it| percentile(&it.later_seconds, 1.0), seconds),
    Row::new("  directly, worst", |it| percentile(&it.direct_seconds, 1.0), seconds),
];

/// Measures both kinds of report, each with a fresh gate.
///
/// # Errors
/// If the server or a gatekeeper doesn't start, or a statement fails.
pub async fn run(options: &Flags, display: &Display) -> Result<String, Error> {
    let kinds = [Kind::Sleeping, Kind::Computing];
    let mut report = options.report("reports", &kinds.map(Kind::name), ROWS)?;
    let times = (options.rounds(1), Duration::from_secs(30));
    let section = report
        .measure("", times, display, async |at| {
            let server = PrivateServerOptions { cpu: options.cpu, ..PrivateServerOptions::default() };
            let server = blocking(move || Ok(PrivateServer::start(&server)?)).await?;
            let upstream = server.port();
            let gatekeeper = blocking(move || Gatekeeper::start(upstream, &[])).await?;
            measure(kinds[at.variant], &server, &gatekeeper).await
        })
        .await?;
    let judged: String = section.turns.iter().flatten().map(HoldUp::verdict).collect();
    Ok(report.table() + &judged)
}

/// One kind of report behind one gate.
async fn measure(kind: Kind, server: &PrivateServer, gatekeeper: &Gatekeeper) -> Result<HoldUp, Error> {
    let direct = Target::parse(&server.dsn())?.connect().await?;
    direct.simple_query(BUSY_FUNCTION).await.map_err(Error::database("creating the report"))?;
    let gate = Target::parse(&server.dsn_through(gatekeeper.port()))?;
    let asking = gate.connect().await?;
    let mut reports = tokio::task::JoinSet::new();
    let mut clients = Vec::new();
    for _ in 0..REPORTS {
        clients.push(gate.connect().await?);
    }
    for client in clients {
        let statement = kind.statement();
        reports.spawn(async move { client.simple_query(&statement).await.is_ok() });
    }
    wait_for_a_report(&direct, kind).await?;
    let first_seconds = ask(&asking).await?;
    let mut hold_up =
        HoldUp { kind, running: 0, first_seconds, later_seconds: vec![], direct_seconds: vec![] };
    for _ in 0..LATER_SAMPLES {
        tokio::time::sleep(LATER_INTERVAL).await;
        hold_up.later_seconds.push(ask(&asking).await?);
        hold_up.direct_seconds.push(ask(&direct).await?);
    }
    hold_up.running = running(&direct, kind).await?;
    Ok(hold_up)
}

async fn ask(client: &Client) -> Result<f64, Error> {
    let start = Instant::now();
    client.simple_query("SELECT 1").await.map_err(Error::database("asking SELECT 1"))?;
    Ok(start.elapsed().as_secs_f64())
}

async fn wait_for_a_report(direct: &Client, kind: Kind) -> Result<(), Error> {
    let deadline = Instant::now() + ARRIVAL_BOUND;
    while running(direct, kind).await? == 0 {
        if Instant::now() > deadline {
            return Err(Error::Experiment(format!("no report reached the server within {ARRIVAL_BOUND:?}")));
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    Ok(())
}

async fn running(direct: &Client, kind: Kind) -> Result<i64, Error> {
    let statement = kind.statement().replace('\'', "''");
    let question =
        format!("SELECT count(*) FROM pg_stat_activity WHERE state = 'active' AND query = '{statement}'");
    let counted = direct.column(&question).await.map_err(Error::database("counting the reports"))?;
    Ok(counted.concat().parse().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hold_up(first: f64, later: f64, direct: f64) -> HoldUp {
        HoldUp {
            kind: Kind::Sleeping,
            running: 4,
            first_seconds: first,
            later_seconds: vec![0.001, later],
            direct_seconds: vec![direct],
        }
    }

    #[test]
    fn one_late_answer_misses_the_goals_and_the_servers_own_time_does_not_count() {
        assert!(hold_up(0.020, 0.010, 0.001).is_within_goals());
        assert!(!hold_up(0.022, 0.010, 0.001).is_within_goals());
        assert!(!hold_up(0.001, 0.012, 0.001).is_within_goals());
    }

    #[test]
    fn the_text_says_whether_the_goals_are_reached() {
        assert!(hold_up(0.001, 0.001, 0.001).verdict().contains("are reached"));
        assert!(hold_up(1.0, 0.001, 0.001).verdict().contains("are missed"));
    }
}
