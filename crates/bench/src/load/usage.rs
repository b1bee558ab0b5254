//! How much processor time a process used: the client checks that it isn't the bottleneck itself.

use std::collections::BTreeMap;
use std::fs;
use std::time::{Duration, Instant};

/// Measures the processor time of some processes over an interval.
#[derive(Clone, Debug)]
pub struct CpuMeter {
    used: BTreeMap<u32, Duration>,
    since: Instant,
}

impl CpuMeter {
    /// Starts measuring these processes.
    pub fn start(pids: &[u32]) -> Self {
        Self { used: pids.iter().map(|&pid| (pid, used(pid))).collect(), since: Instant::now() }
    }

    /// Starts measuring this process.
    pub fn start_own() -> Self {
        Self::start(&[std::process::id()])
    }

    /// Processor time used since the start. Zero where there is no `/proc`; what processes and threads that
    /// ended in between had used is missing.
    pub fn used(&self) -> Duration {
        self.used.iter().map(|(&pid, &before)| used(pid).saturating_sub(before)).sum()
    }

    /// Processors used on average since the start: 1.0 is one whole core.
    pub fn share(&self) -> f64 {
        self.used().as_secs_f64() / self.since.elapsed().as_secs_f64().max(1e-9)
    }
}

/// Time on a processor of all living threads; the scheduler counts nanoseconds.
fn used(pid: u32) -> Duration {
    let Ok(threads) = fs::read_dir(format!("/proc/{pid}/task")) else { return Duration::ZERO };
    threads
        .filter_map(Result::ok)
        .filter_map(|thread| fs::read_to_string(thread.path().join("schedstat")).ok())
        .filter_map(|text| text.split_whitespace().next()?.parse().ok())
        .map(Duration::from_nanos)
        .sum()
}

/// Measures how busy one processor is, whoever uses it.
#[derive(Clone, Copy, Debug)]
pub struct ProcessorMeter {
    cpu: usize,
    busy: Duration,
    since: Instant,
}

impl ProcessorMeter {
    /// Starts measuring processor `cpu`.
    pub fn start(cpu: usize) -> Self {
        Self { cpu, busy: busy(cpu), since: Instant::now() }
    }

    /// The part of the time since the start in which the processor was not idle. Zero where there is no
    /// `/proc`.
    pub fn share(&self) -> f64 {
        busy(self.cpu).saturating_sub(self.busy).as_secs_f64() / self.since.elapsed().as_secs_f64().max(1e-9)
    }
}

/// Time that a processor was not idle since the machine started.
fn busy(cpu: usize) -> Duration {
    let Ok(text) = fs::read_to_string("/proc/stat") else { return Duration::ZERO };
    let name = format!("cpu{cpu} ");
    let Some(line) = text.lines().find(|line| line.starts_with(&name)) else { return Duration::ZERO };
    // user, nice, system, idle, iowait, irq, softirq: idle and iowait are the fourth and fifth.
    let ticks = line
        .split_whitespace()
        .skip(1)
        .take(7)
        .enumerate()
        .filter(|&(column, _)| column != 3 && column != 4)
        .filter_map(|(_, ticks)| ticks.parse::<u64>().ok());
    // The kernel reports in hundredths of a second to every program (USER_HZ).
    Duration::from_millis(ticks.sum::<u64>() * 10)
}
