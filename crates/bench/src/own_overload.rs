//! The gate's own overload: a tenth of a processor, and up to ten times as many requests as it can pass on.
//!
//! The origin answers 1 KB at once and is never the bottleneck. Clients wait for a second and then reset
//! their connections; a request that finds no connection free opens another one, as new visitors do. Asked
//! is whether as many get their answer in time as at best, whether memory stays where it was, and what
//! clients without an answer cost, left unread or refused. What an answered refusal costs beside a request
//! that is passed on is measured without a quota.

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use clap::Args;
use serde::Serialize;
use testbed::confinement::{Bounds, Confinement, Share};
use testbed::process::resident_memory;

use crate::Error;
use crate::alternate::Display;
use crate::blocking::blocking;
use crate::gatekeeper::{Gatekeeper, left_unread};
use crate::http::{
    Beyond, ClosedRun, Connections, Counted, HaProxy, HaProxyRole, Habits, Nginx, NginxRole, OpenRun, Origin,
    Request, closed, hold_up, knock, write_files,
};
use crate::load::Outcome;
use crate::stats::percentile;
use crate::table::{count, paragraph, ratio, seconds};
use crate::turns::{self, Row, Section, cell};

/// The part of a processor that the gate may use.
const SHARE: Share = Share { part: 0.1, period: Duration::from_millis(100) };
/// How long a client waits.
const PATIENCE: Duration = Duration::from_secs(1);
/// The most connections of all clients together; beyond the gate's default, so that its bound is met too.
const CONNECTIONS_MAX: usize = 12_000;
/// Clients that are never idle, while what it can do is measured.
const BUSY_CLIENTS: usize = 64;
/// The size of a response, in bytes.
const SIZE: usize = 1_024;
/// The least goodput, as a part of the best.
pub const GOODPUT_GOAL: f64 = 0.9;
/// The most that a request may cost that isn't served, as a part of one that is passed on.
pub const REFUSAL_GOAL: f64 = 0.1;
/// How long nobody asks between two loads, so that none meets what the last one left.
const PAUSE: Duration = Duration::from_secs(2);
/// How often memory is looked at.
const LOOK: Duration = Duration::from_millis(100);

/// Flags of `bench run own-overload`.
#[derive(Clone, Debug, Args)]
pub struct Options {
    /// The loads, as multiples of what the gate can do
    #[arg(long, value_delimiter = ',', default_values_t = [0.5, 0.8, 1.0, 2.0, 5.0, 10.0])]
    loads: Vec<f64>,
    /// What all experiments without a plan have.
    #[command(flatten)]
    pub turns: turns::Flags,
}

/// One load.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Offered {
    /// The load as a multiple of what the gate can do.
    pub load: f64,
    /// What it can do: answers a second just before, in a closed loop with its part of a processor.
    pub capacity: f64,
    /// Processor time of each of those, in seconds.
    pub served_cost: f64,
    /// Requests per second.
    pub offered: f64,
    /// Answered within the patience, per second.
    pub goodput: f64,
    /// Refused by the gate, per second.
    pub refused: f64,
    /// Not answered in time, per second.
    pub timed_out: f64,
    /// Broken off or not connected, per second.
    pub failed: f64,
    /// The gate's processor time, in seconds of each second.
    pub used: f64,
    /// The 95th percentile of those that were answered, in seconds.
    pub p95: f64,
    /// The most resident memory, in bytes.
    pub memory: u64,
    /// The gate's processor time for each that wasn't answered in time, in seconds, whatever became of it:
    /// all that it used, less what those that were answered take.
    pub unserved_cost: f64,
    /// Connections made, per second.
    pub connected: f64,
    /// Connections that the gate ended with an answer, per second.
    pub ended: f64,
    /// Connections that clients reset because their patience was over, per second: they had been made, and
    /// not answered in time.
    pub reset: f64,
    /// Connections that the gate closed unread because it was late, per second.
    pub closed: f64,
    /// Clients that had gone when it was their turn, per second.
    pub gone: f64,
    /// How late the client itself sent: the 99th percentile, in seconds.
    pub lag: f64,
}

const fn mib(bytes: f64) -> f64 {
    bytes / 1_048_576.0
}

const ROWS: &[Row<Offered>] = &[
    Row::new("answered in time", |offered| offered.goodput, count),
    Row::new("as a part of a closed loop's just before", Offered::kept, ratio),
    Row::new("refused", |offered| offered.refused, count),
    Row::new("offered per second", |offered| offered.offered, count),
    Row::new("in a closed loop just before", |offered| offered.capacity, count),
    Row::new("not answered in time", |offered| offered.timed_out, count),
    Row::new("broken off", |offered| offered.failed, count),
    Row::new("processor, ms of each second", |offered| offered.used * 1e3, count),
    Row::new("connections made", |offered| offered.connected, count),
    Row::new("connections ended by the gate", |offered| offered.ended, count),
    Row::new("connections reset by clients", |offered| offered.reset, count),
    Row::new("closed unread by the gate", |offered| offered.closed, count),
    Row::new("gone when it was their turn", |offered| offered.gone, count),
    Row::new("95th percentile of the answered", |offered| offered.p95, seconds),
    Row::new("for each unserved, µs", |offered| offered.unserved_cost * 1e6, |micros| format!("{micros:.2}")),
    Row::new("most memory, MiB", |offered| mib(offered.memory as f64), |mib| format!("{mib:.1}")),
];

/// Runs the experiment.
///
/// # Errors
/// If something doesn't start, or processor quotas can't be had here.
pub async fn run(options: &Options, display: &Display) -> Result<String, Error> {
    let files = tempfile::tempdir().map_err(Error::io("creating a temporary directory"))?;
    write_files(files.path(), &[SIZE])?;
    let (directory, cpu) = (files.path().to_owned(), options.turns.cpu);
    let (origin, gate, quota) = blocking(move || {
        let origin = Nginx::start(&NginxRole::Files(directory), None)?;
        let gate = Gatekeeper::start_http(origin.port(), &[], cpu)?;
        let quota = Confinement::hold(&[gate.pid()], &Bounds { processor: Some(SHARE), memory: None })?;
        Ok((origin, gate, quota))
    })
    .await?;
    let window = options.turns.window(10.0);
    let mut loads = options.loads.clone();
    loads.sort_by(f64::total_cmp);
    loads.dedup();
    let names: Vec<String> = loads.iter().map(|load| format!("{load} times")).collect();
    let mut report = options.turns.report("own-overload", &names, ROWS)?;
    let times = (options.turns.rounds(1), window * 2);
    let section = report
        .measure("", times, display, async |at| {
            // Asked again before each: the machine's own speed changes.
            let best = closed(busy(gate.port(), vec![gate.pid()], 200, window / 2)).await?;
            tokio::time::sleep(PAUSE).await;
            let seed = (at.round * loads.len() + at.variant) as u64;
            offer(&gate, (best, loads[at.variant]), window, seed).await
        })
        .await?;
    let judged = verdict(&loads, section);
    blocking(move || {
        // The group can only go once nobody is in it.
        drop(gate);
        drop(quota);
        Ok(())
    })
    .await?;
    let refusals = refusals(&origin, options, display).await?;
    Ok(report.table() + "\n" + &paragraph(&judged) + "\n" + &refusals)
}

fn request() -> Vec<u8> {
    format!("GET /{SIZE} HTTP/1.1\r\nHost: site.example\r\nAccept: */*\r\n\r\n").into_bytes()
}

fn busy(port: u16, measured: Vec<u32>, status: u16, window: Duration) -> ClosedRun {
    ClosedRun {
        port,
        requests: vec![request()],
        status,
        connections: BUSY_CLIENTS,
        warm_up: Duration::from_secs(1),
        window,
        measured,
    }
}

async fn offer(
    gate: &Gatekeeper,
    (best, load): (Counted, f64),
    window: Duration,
    seed: u64,
) -> Result<Offered, Error> {
    let requests = Arc::new(Request::poisson(load * best.rate, window, seed));
    let run = OpenRun {
        address: (Ipv4Addr::LOCALHOST, gate.port()).into(),
        inside: None,
        habits: Habits::default(),
        requests,
        bytes: Arc::new(vec![request()]),
        patience: PATIENCE,
        connections_max: CONNECTIONS_MAX,
        beyond: Beyond::IsLost,
        measured: vec![gate.pid()],
    };
    let watch = MemoryWatch::start(gate.pid());
    let before = left_unread(gate.admin_port()).unwrap_or_default();
    let outcome = run.run().await?;
    let memory = watch.most();
    let after = left_unread(gate.admin_port()).unwrap_or_default();
    let part = |ended: Outcome| {
        outcome.records.iter().filter(|(record, _)| record.outcome == ended).count() as f64
            / window.as_secs_f64()
    };
    let (Connections { made, ended, reset }, seconds) = (outcome.connections, window.as_secs_f64());
    let answered = outcome.records.iter().filter(|(record, _)| record.outcome == Outcome::Completed);
    let responses: Vec<f64> = answered.map(|(record, _)| record.response.as_secs_f64()).collect();
    let unserved = outcome.records.len() - responses.len();
    let spent = outcome.used - responses.len() as f64 * best.cost;
    Ok(Offered {
        load,
        capacity: best.rate,
        served_cost: best.cost,
        offered: outcome.records.len() as f64 / window.as_secs_f64(),
        goodput: part(Outcome::Completed),
        refused: part(Outcome::Rejected),
        timed_out: part(Outcome::TimedOut),
        failed: part(Outcome::Failed),
        // Not within the window only: it is measured until all requests have ended.
        used: outcome.used / outcome.metered.max(1e-9),
        p95: percentile(&responses, 0.95),
        memory,
        connected: made as f64 / seconds,
        ended: ended as f64 / seconds,
        reset: reset as f64 / seconds,
        closed: (after.0 - before.0) / seconds,
        gone: (after.1 - before.1) / seconds,
        unserved_cost: if unserved == 0 { 0.0 } else { spent.max(0.0) / unserved as f64 },
        lag: outcome.lag_p99.as_secs_f64(),
    })
}

/// Looks at a process's memory until it is asked.
struct MemoryWatch {
    most: Arc<AtomicU64>,
    is_over: Arc<AtomicBool>,
}

impl MemoryWatch {
    fn start(pid: u32) -> Self {
        let (most, is_over) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
        let watch = Self { most: Arc::clone(&most), is_over: Arc::clone(&is_over) };
        std::thread::spawn(move || {
            while !is_over.load(Ordering::Relaxed) {
                most.fetch_max(resident_memory(pid).unwrap_or(0), Ordering::Relaxed);
                std::thread::sleep(LOOK);
            }
        });
        watch
    }

    fn most(&self) -> u64 {
        self.most.load(Ordering::Relaxed)
    }
}

impl Drop for MemoryWatch {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
    }
}

impl Offered {
    /// Goodput as a part of what it could do just before.
    fn kept(&self) -> f64 {
        self.goodput / self.capacity
    }
}

/// A figure of each load: the median of its rounds.
fn medians(loads: &[f64], section: &Section<Offered>, figure: fn(&Offered) -> f64) -> Vec<(f64, f64)> {
    loads.iter().zip(0..).map(|(&load, number)| (load, section.median(number, figure))).collect()
}

/// What one that isn't served costs at the highest load, in seconds, and as a part of one that is. None where
/// that is no overload.
fn unserved(loads: &[f64], section: &Section<Offered>) -> Option<(f64, f64)> {
    let (load, cost) = *medians(loads, section, |offered| offered.unserved_cost).last()?;
    let (_, part) = *medians(loads, section, |offered| offered.unserved_cost / offered.served_cost).last()?;
    (load > 1.0).then_some((cost, part))
}

/// Goodput at the highest load as a part of the best, and the least from saturation on. None without a load
/// up to saturation and one beyond it: the best of overloads alone is what is to be judged.
fn kept(loads: &[f64], section: &Section<Offered>) -> Option<(f64, f64)> {
    let kept = medians(loads, section, Offered::kept);
    let (lowest, highest) = (kept.first()?, kept.last()?);
    if lowest.0 > 1.0 || highest.0 <= 1.0 {
        return None;
    }
    let best = kept.iter().map(|&(_, kept)| kept).fold(f64::MIN_POSITIVE, f64::max);
    let overloads = kept.iter().filter(|(load, _)| *load >= 1.0);
    let least = overloads.map(|&(_, kept)| kept).fold(best, f64::min);
    Some((highest.1 / best, least / best))
}

fn verdict(loads: &[f64], section: &Section<Offered>) -> String {
    let judged = |is: bool| if is { "reached" } else { "missed" };
    let highest = loads.last().copied().unwrap_or_default();
    let goodput = match kept(loads, section) {
        Some((kept, least)) => format!(
            "At {highest} times what it can do {} of the best goodput is left (goal: {GOODPUT_GOAL}, {}), and from saturation on \
             never less than {}, each beside what it can do at that moment.",
            ratio(kept),
            judged(kept >= GOODPUT_GOAL),
            ratio(least),
        ),
        None => {
            "What is left of the best goodput is not judged: that takes a load of 1 or less, and one of more."
                .to_owned()
        }
    };
    let unserved = match unserved(loads, section) {
        Some((cost, part)) => format!(
            "One that isn't served at {highest} times takes {:.2} µs of the gate's processor, whatever became of it: {part:.3} of one \
             that is (goal: less than {REFUSAL_GOAL}, {}).",
            cost * 1e6,
            judged(part < REFUSAL_GOAL),
        ),
        None => {
            "What one costs that isn't served is not judged: that takes a load of more than 1.".to_owned()
        }
    };
    format!("{goodput} {unserved}")
}

/// What a refusal that is answered costs beside a request that is passed on, without a quota; HAProxy passes
/// on, answers 503 (`http-request return`), and closes at once (`tcp-request connection reject`).
const REFUSALS: [&str; 5] =
    ["the gate passes on", "the gate refuses", "HAProxy passes on", "HAProxy refuses", "HAProxy closes"];

const COSTS: &[Row<f64>] =
    &[Row::new("processor time of each", |cost| *cost, |seconds| format!("{:.1} µs", seconds * 1e6))];

/// What is started for it.
struct Proxies {
    passing: Gatekeeper,
    refusing: Gatekeeper,
    haproxy: [HaProxy; 3],
    stalled: Origin,
}

impl Proxies {
    fn start(origin: u16, cpu: Option<usize>) -> Result<Self, Error> {
        let stalled = Origin::start(None)?;
        let keys = [("connections", "1"), ("queue_max", "1"), ("queue_timeout", "\"1h\"")];
        let haproxy = |role| HaProxy::start(role, cpu);
        Ok(Self {
            passing: Gatekeeper::start_http(origin, &[], cpu)?,
            refusing: Gatekeeper::start_http(stalled.port(), &keys, cpu)?,
            haproxy: [
                haproxy(HaProxyRole::Proxy(origin))?,
                haproxy(HaProxyRole::Refuses)?,
                haproxy(HaProxyRole::Rejects)?,
            ],
            stalled,
        })
    }
}

/// Measures them in turns. The gate refuses because the only request that it may let in never ends, and one
/// waits already.
async fn refusals(origin: &Nginx, options: &Options, display: &Display) -> Result<String, Error> {
    let (port, cpu) = (origin.port(), options.turns.cpu);
    let proxies = blocking(move || Proxies::start(port, cpu)).await?;
    // Half an hour of a processor: the origin is ended long before.
    let holding = hold_up(proxies.refusing.port(), "/long?work=1800000000").await?;
    let window = options.turns.window(10.0) / 4;
    let mut report = options.turns.report("refusals", &REFUSALS, COSTS)?;
    let (passing, refusing) = (&proxies.passing, &proxies.refusing);
    let [passes, refuses, rejects] = &proxies.haproxy;
    let section = report
        .measure("", (options.turns.rounds(5), window), display, async |at| {
            let counted = match at.variant {
                0 => closed(busy(passing.port(), vec![passing.pid()], 200, window)).await?,
                1 => closed(busy(refusing.port(), vec![refusing.pid()], 503, window)).await?,
                2 => closed(busy(passes.port(), passes.pids(), 200, window)).await?,
                3 => closed(busy(refuses.port(), refuses.pids(), 503, window)).await?,
                _ => knock(rejects.port(), BUSY_CLIENTS, window, rejects.pids()).await?,
            };
            Ok(counted.cost)
        })
        .await?;
    let part = |of, whole| cell(&section.ratios(of, whole, |cost| *cost), ratio);
    let parts = format!(
        "Without a quota a refusal takes {} of a request that the gate passes on; HAProxy's {}, and where it closes unread {}.",
        part(1, 0),
        part(3, 2),
        part(4, 2),
    );
    drop(holding);
    blocking(move || {
        let Proxies { passing, refusing, haproxy, stalled } = proxies;
        drop((passing, refusing, haproxy));
        drop(stalled);
        Ok(())
    })
    .await?;
    Ok(report.table() + "\n" + &paragraph(&parts))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_is_a_part_of_the_best() {
        let offered = |load, goodput| Offered {
            load,
            capacity: 100.0,
            served_cost: 20e-6,
            offered: load,
            goodput,
            refused: 0.0,
            timed_out: 0.0,
            failed: 0.0,
            used: 0.1,
            p95: 0.1,
            memory: 1 << 20,
            unserved_cost: 1e-6,
            connected: 0.0,
            ended: 0.0,
            reset: 0.0,
            closed: 0.0,
            gone: 0.0,
            lag: 0.0,
        };
        let report = |turns: &[(f64, &[f64])]| {
            let loads: Vec<f64> = turns.iter().map(|turn| turn.0).collect();
            let of =
                |&(load, goodputs): &(f64, &[f64])| goodputs.iter().map(|&it| offered(load, it)).collect();
            (loads, Section { name: String::new(), turns: turns.iter().map(of).collect() })
        };
        let is_about = |found: Option<(f64, f64)>, kept: f64, least: f64| {
            found.is_some_and(|found| (found.0 - kept).abs() < 1e-9 && (found.1 - least).abs() < 1e-9)
        };
        let (loads, usual) = report(&[(0.5, &[50.0]), (1.0, &[100.0]), (2.0, &[92.0]), (10.0, &[95.0])]);
        assert!(is_about(kept(&loads, &usual), 0.95, 0.92), "{:?}", kept(&loads, &usual));
        let said = verdict(&loads, &usual);
        assert_eq!(said.matches("reached").count(), 2, "{said}");
        // The median of what was offered several times: neither the last round nor the luckiest.
        let (loads, repeated) =
            report(&[(0.5, &[50.0]), (1.0, &[100.0, 140.0, 90.0]), (10.0, &[80.0, 30.0, 70.0])]);
        assert!(is_about(kept(&loads, &repeated), 0.7, 0.7), "{:?}", kept(&loads, &repeated));
        assert!(verdict(&loads, &repeated).starts_with("At 10 times"));
        // Where the best would be what is judged, nothing is.
        for (turns, judged) in [
            (&[(10.0, &[5.0][..])][..], 1),
            (&[(2.0, &[9.0]), (10.0, &[5.0])], 1),
            (&[(0.5, &[50.0]), (1.0, &[70.0])], 0),
        ] {
            let (loads, section) = report(turns);
            assert_eq!(kept(&loads, &section), None);
            let said = verdict(&loads, &section);
            assert_eq!(
                (said.matches("reached").count(), said.matches("not judged").count()),
                (judged, 2 - judged),
                "{said}"
            );
        }
    }
}
