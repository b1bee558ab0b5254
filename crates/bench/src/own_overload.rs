//! The gate's own overload: a tenth of a processor, and up to ten times as many requests as it can pass on.
//!
//! The origin answers 1 KB at once and is never the bottleneck. Clients wait for a second and then reset
//! their connections; a request that finds no connection free opens another one, as new visitors do. Asked
//! is whether as many get their answer in time as at best, whether memory stays where it was, and what
//! clients without an answer cost, left unread or refused. What an answered refusal costs beside a request
//! that is passed on is measured without a quota ([`Refusals`]).

use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use serde::Serialize;
use testbed::confinement::{Bounds, Confinement, Share};
use testbed::process::resident_memory;

use crate::Error;
use crate::alternate::Display;
use crate::blocking::blocking;
use crate::files::write_figures;
use crate::gatekeeper::{Gatekeeper, left_unread};
use crate::http::{
    Beyond, ClosedRun, Connections, Counted, HaProxy, HaProxyRole, Habits, Nginx, NginxRole, OpenRun, Origin,
    Request, closed, hold_up, knock, write_files,
};
use crate::load::Outcome;
use crate::stats::{Rounds, percentile};
use crate::table::{Figures, count, paragraph, ratio, spread};

/// The part of a processor that the gate may use.
const SHARE: Share = Share { part: 0.1, period: Duration::from_millis(100) };
/// The usual loads, as multiples of what it can do.
pub const LOADS: [f64; 6] = [0.5, 0.8, 1.0, 2.0, 5.0, 10.0];
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

/// How the experiment is run.
#[derive(Clone, Debug)]
pub struct Options {
    /// How long each load is offered.
    pub window: Duration,
    /// The loads, as multiples of what it can do, in this order.
    pub loads: Vec<f64>,
    /// Rounds of the comparison of refusals.
    pub rounds: usize,
    /// The gate's processor.
    pub gate_cpu: Option<usize>,
    /// Directory for the figures.
    pub output: PathBuf,
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

/// The whole experiment.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// By load.
    pub loads: Vec<Offered>,
    /// What refusals that are answered cost.
    pub refusals: Refusals,
}

/// Runs the experiment.
///
/// # Errors
/// If something doesn't start, or processor quotas can't be had here.
pub async fn run(options: &Options, display: &Display) -> Result<Report, Error> {
    let files = tempfile::tempdir().map_err(Error::io("creating a temporary directory"))?;
    write_files(files.path(), &[SIZE])?;
    let (directory, cpu) = (files.path().to_owned(), options.gate_cpu);
    let (origin, gate, quota) = blocking(move || {
        let origin = Nginx::start(&NginxRole::Files(directory), None)?;
        let gate = Gatekeeper::start_http(origin.port(), &[], cpu)?;
        let quota = Confinement::hold(&[gate.pid()], &Bounds { processor: Some(SHARE), memory: None })?;
        Ok((origin, gate, quota))
    })
    .await?;
    let mut loads = Vec::new();
    for (number, &load) in options.loads.iter().enumerate() {
        display.now(format!("{load} times what it can do"));
        // Asked again before each: the machine's own speed changes.
        let best = closed(busy(gate.port(), vec![gate.pid()], 200, options.window / 2)).await?;
        tokio::time::sleep(PAUSE).await;
        let offered = offer(&gate, (best, load), options.window, number as u64).await?;
        display.say(&format!(
            "  {load} times what it can do: {} in time a second, of {}, {} refused, {} too late, {} broken off, {:.1} MiB, {:.2} µs for each unserved",
            count(offered.goodput),
            count(offered.capacity),
            count(offered.refused),
            count(offered.timed_out),
            count(offered.failed),
            offered.memory as f64 / 1_048_576.0,
            offered.unserved_cost * 1e6
        ));
        loads.push(offered);
    }
    blocking(move || {
        // The group can only go once nobody is in it.
        drop(gate);
        drop(quota);
        Ok(())
    })
    .await?;
    let refusals = measure_refusals(&origin, options, display).await?;
    let report = Report { loads, refusals };
    report.write(&options.output)?;
    Ok(report)
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

impl Report {
    fn write(&self, output: &Path) -> Result<(), Error> {
        write_figures(self, output, "own-overload")
    }

    /// A figure of each load, in ascending order: the median where one was offered several times.
    fn medians(&self, figure: fn(&Offered) -> f64) -> Vec<(f64, f64)> {
        let mut loads: Vec<f64> = self.loads.iter().map(|offered| offered.load).collect();
        loads.sort_by(f64::total_cmp);
        loads.dedup();
        let figures_of = |load: f64| {
            let same = self.loads.iter().filter(|offered| offered.load == load);
            same.map(figure).collect::<Vec<f64>>()
        };
        loads.into_iter().map(|load| (load, percentile(&figures_of(load), 0.5))).collect()
    }

    /// What one that isn't served costs at the highest load, in seconds, and as a part of one that is. None
    /// where that is no overload.
    fn unserved(&self) -> Option<(f64, f64)> {
        let (load, cost) = *self.medians(|offered| offered.unserved_cost).last()?;
        let (_, part) = *self.medians(|offered| offered.unserved_cost / offered.served_cost).last()?;
        (load > 1.0).then_some((cost, part))
    }

    /// Goodput at the highest load as a part of the best, and the least from saturation on. None without a
    /// load up to saturation and one beyond it: the best of overloads alone is what is to be judged.
    fn kept(&self) -> Option<(f64, f64)> {
        let kept = self.medians(Offered::kept);
        let (lowest, highest) = (kept.first()?, kept.last()?);
        if lowest.0 > 1.0 || highest.0 <= 1.0 {
            return None;
        }
        let best = kept.iter().map(|&(_, kept)| kept).fold(f64::MIN_POSITIVE, f64::max);
        let overloads = kept.iter().filter(|(load, _)| *load >= 1.0);
        let least = overloads.map(|&(_, kept)| kept).fold(best, f64::min);
        Some((highest.1 / best, least / best))
    }

    /// The figures as a table, with verdicts computed from them.
    pub fn text(&self) -> String {
        let names: Vec<String> = self.loads.iter().map(|offered| format!("{} times", offered.load)).collect();
        let mut figures = Figures::new(&names);
        let mut row = |label: &str, figure: fn(&Offered) -> f64, show: fn(f64) -> String| {
            figures.row(label, self.loads.iter().map(|offered| show(figure(offered))));
        };
        row("offered per second", |offered| offered.offered, count);
        row("in a closed loop just before", |offered| offered.capacity, count);
        row("answered in time", |offered| offered.goodput, count);
        row("as a part of that", Offered::kept, ratio);
        row("refused", |offered| offered.refused, count);
        row("not answered in time", |offered| offered.timed_out, count);
        row("broken off", |offered| offered.failed, count);
        row("processor, ms of each second", |offered| offered.used * 1e3, |used| format!("{used:.0}"));
        row("connections made", |offered| offered.connected, count);
        row("connections ended by the gate", |offered| offered.ended, count);
        row("connections reset by clients", |offered| offered.reset, count);
        row("closed unread by the gate", |offered| offered.closed, count);
        row("gone when it was their turn", |offered| offered.gone, count);
        row("95th percentile of the answered", |offered| offered.p95, crate::table::seconds);
        row("for each unserved, µs", |offered| offered.unserved_cost * 1e6, |micros| format!("{micros:.2}"));
        row("most memory, MiB", |offered| offered.memory as f64 / 1_048_576.0, |mib| format!("{mib:.1}"));
        let table: String = figures.to_string().lines().map(|line| format!("  {line}\n")).collect();
        table + "\n" + &paragraph(&self.verdict())
    }

    fn verdict(&self) -> String {
        let judged = |is: bool| if is { "reached" } else { "missed" };
        let highest = self.loads.iter().map(|offered| offered.load).fold(0.0, f64::max);
        let goodput = match self.kept() {
            Some((kept, least)) => format!(
                "At {highest} times what it can do {} of the best goodput is left (goal: {GOODPUT_GOAL}, {}), and from saturation on \
                 never less than {}, each beside what it can do at that moment.",
                ratio(kept),
                judged(kept >= GOODPUT_GOAL),
                ratio(least),
            ),
            None => "What is left of the best goodput is not judged: that takes a load of 1 or less, and one of more.".to_owned(),
        };
        let unserved = match self.unserved() {
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
        format!("{goodput} {unserved} {}", self.refusals.told())
    }
}

/// Processor time of each, in seconds, by round, without a quota.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Refusals {
    /// The gate passes a request on.
    pub passed: Vec<f64>,
    /// The gate answers 503.
    pub refused: Vec<f64>,
    /// HAProxy passes a request on.
    pub haproxy_passed: Vec<f64>,
    /// HAProxy answers 503 (`http-request return`).
    pub haproxy_refused: Vec<f64>,
    /// HAProxy closes a connection at once (`tcp-request connection reject`).
    pub haproxy_rejected: Vec<f64>,
}

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
///
/// # Errors
/// If something doesn't start, or answers otherwise.
async fn measure_refusals(origin: &Nginx, options: &Options, display: &Display) -> Result<Refusals, Error> {
    let (port, cpu) = (origin.port(), options.gate_cpu);
    let proxies = blocking(move || Proxies::start(port, cpu)).await?;
    // Half an hour of a processor: the origin is ended long before.
    let holding = hold_up(proxies.refusing.port(), "/long?work=1800000000").await?;
    let (mut found, window) = (Refusals::default(), options.window / 4);
    let [passes, refuses, rejects] = &proxies.haproxy;
    for round in 0..options.rounds {
        display.now(format!("what a refusal costs: round {} of {}", round + 1, options.rounds));
        let (gate, pids) = (&proxies.passing, vec![proxies.passing.pid()]);
        found.passed.push(closed(busy(gate.port(), pids, 200, window)).await?.cost);
        let (gate, pids) = (&proxies.refusing, vec![proxies.refusing.pid()]);
        found.refused.push(closed(busy(gate.port(), pids, 503, window)).await?.cost);
        found.haproxy_passed.push(closed(busy(passes.port(), passes.pids(), 200, window)).await?.cost);
        found.haproxy_refused.push(closed(busy(refuses.port(), refuses.pids(), 503, window)).await?.cost);
        let rejected = knock(rejects.port(), BUSY_CLIENTS, window, rejects.pids()).await?;
        found.haproxy_rejected.push(rejected.cost);
    }
    drop(holding);
    blocking(move || {
        let Proxies { passing, refusing, haproxy, stalled } = proxies;
        drop((passing, refusing, haproxy));
        drop(stalled);
        Ok(())
    })
    .await?;
    Ok(found)
}

impl Refusals {
    /// In words.
    fn told(&self) -> String {
        let micros = |seconds: f64| format!("{:.1} µs", seconds * 1e6);
        let of_rounds = |rounds: &[f64]| spread(Rounds::of(rounds), micros);
        let part = |of: &[f64], whole: &[f64]| spread(Self::part(of, whole), ratio);
        let Self { passed, refused, haproxy_passed, haproxy_refused, haproxy_rejected } = self;
        format!(
            "Without a quota, a request that is passed on takes {}, a refusal that is answered {}: {} of it. HAProxy passes one \
             on for {}, answers 503 for {}, {} of it, and closes a new connection unread for {}, {} of it.",
            of_rounds(passed),
            of_rounds(refused),
            part(refused, passed),
            of_rounds(haproxy_passed),
            of_rounds(haproxy_refused),
            part(haproxy_refused, haproxy_passed),
            of_rounds(haproxy_rejected),
            part(haproxy_rejected, haproxy_passed),
        )
    }

    /// What the one costs as a part of the other, of each round.
    fn part(of: &[f64], whole: &[f64]) -> Rounds {
        Rounds::of(&of.iter().zip(whole).map(|(of, whole)| of / whole).collect::<Vec<_>>())
    }
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
        let one = || vec![20e-6];
        let refusals = Refusals {
            passed: one(),
            refused: one(),
            haproxy_passed: one(),
            haproxy_refused: one(),
            haproxy_rejected: one(),
        };
        let report = |loads: &[(f64, f64)]| Report {
            loads: loads.iter().map(|&(load, goodput)| offered(load, goodput)).collect(),
            refusals: refusals.clone(),
        };
        let is_about = |found: Option<(f64, f64)>, kept: f64, least: f64| {
            found.is_some_and(|found| (found.0 - kept).abs() < 1e-9 && (found.1 - least).abs() < 1e-9)
        };
        let usual = report(&[(0.5, 50.0), (1.0, 100.0), (2.0, 92.0), (10.0, 95.0)]);
        assert!(is_about(usual.kept(), 0.95, 0.92), "{:?}", usual.kept());
        assert_eq!(usual.verdict().matches("reached").count(), 2, "{}", usual.verdict());
        // In any order, and the median of what was offered several times: neither the last cell nor the
        // luckiest.
        let turns =
            [(10.0, 80.0), (1.0, 100.0), (1.0, 140.0), (10.0, 30.0), (1.0, 90.0), (10.0, 70.0), (0.5, 50.0)];
        let repeated = report(&turns);
        assert!(is_about(repeated.kept(), 0.7, 0.7), "{:?}", repeated.kept());
        assert!(repeated.verdict().starts_with("At 10 times"), "{}", repeated.verdict());
        // Where the best would be what is judged, nothing is.
        for (loads, judged) in
            [(&[(10.0, 5.0)][..], 1), (&[(2.0, 9.0), (10.0, 5.0)], 1), (&[(0.5, 50.0), (1.0, 70.0)], 0)]
        {
            let report = report(loads);
            assert_eq!(report.kept(), None);
            let said = report.verdict();
            assert_eq!(
                (said.matches("reached").count(), said.matches("not judged").count()),
                (judged, 2 - judged),
                "{said}"
            );
        }
    }
}
