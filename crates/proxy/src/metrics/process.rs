//! Metrics of the process: gatekeeper's own, and what the system knows under the names that every Prometheus
//! client has (`process_…`).

use std::fs;
use std::time::Duration;

use rustix::process::{Resource, getrlimit};

use super::scrape::ProcessScrape;
use super::{Kind, Metric, Seconds};

pub(super) const PROCESS: &[Metric<ProcessScrape>] = &[
    Metric {
        name: "build_info",
        in_seconds: Seconds::No,
        kind: Kind::Gauge,
        labels: &["version"],
        help: "Always 1; the label says which version runs",
        read: |process, out| out.gauge(&[process.version], 1.0),
    },
    Metric {
        name: "ready",
        in_seconds: Seconds::No,
        kind: Kind::Gauge,
        labels: &[],
        help: "1 while clients are served; 0 before the gates listen and while they drain",
        read: |process, out| out.gauge(&[], f64::from(u8::from(process.ready))),
    },
    Metric {
        name: "uptime",
        in_seconds: Seconds::Yes,
        kind: Kind::Gauge,
        labels: &[],
        help: "Time since the process started",
        read: |process, out| out.gauge(&[], process.uptime_seconds),
    },
    Metric {
        name: "reloads",
        in_seconds: Seconds::No,
        kind: Kind::Counter,
        labels: &["outcome"],
        help: "How often the configuration was read again: success, or failure",
        read: |process, out| {
            out.counter(&["success"], process.reloads.succeeded)?;
            out.counter(&["failure"], process.reloads.failed)
        },
    },
    Metric {
        name: "last_reload_successful",
        in_seconds: Seconds::No,
        kind: Kind::Gauge,
        labels: &[],
        help: "0 if the last reload found errors; else 1",
        read: |process, out| out.gauge(&[], f64::from(u8::from(!process.reloads.failed_last))),
    },
    Metric {
        name: "memory_limit_bytes",
        in_seconds: Seconds::No,
        kind: Kind::Gauge,
        labels: &[],
        help: "The most bytes that clients' messages may take together (memory_max)",
        read: |process, out| out.gauge(&[], process.memory.limit as f64),
    },
    Metric {
        name: "memory_held_bytes",
        in_seconds: Seconds::No,
        kind: Kind::Gauge,
        labels: &[],
        help: "Bytes that clients' messages take; up to 4 KiB of each client aren't counted",
        read: |process, out| out.gauge(&[], process.memory.held as f64),
    },
    Metric {
        name: "memory_refusals",
        in_seconds: Seconds::No,
        kind: Kind::Counter,
        labels: &[],
        help: "Messages that were refused because there was no room for them",
        read: |process, out| out.counter(&[], process.memory.refused),
    },
];

/// The unit of times in `/proc`: a hundredth of a second, on every system that Linux runs on today.
const TICKS_PER_SECOND: f64 = 100.0;

/// One look at the process. What can't be read is zero.
#[derive(Debug, Default)]
pub(super) struct Figures {
    cpu: f64,
    started: f64,
    resident: f64,
    virtual_size: f64,
    open_files: f64,
    files_max: f64,
}

impl Figures {
    pub(super) fn now() -> Self {
        let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
        let kilobytes = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name));
            line.and_then(|line| line.trim().trim_end_matches(" kB").parse::<f64>().ok()).unwrap_or(0.0)
        };
        let stat = fs::read_to_string("/proc/self/stat").unwrap_or_default();
        // The name, in parentheses, may hold anything; the numbers are behind it.
        let behind = stat.rsplit_once(") ").map_or("", |(_, behind)| behind);
        let numbers: Vec<f64> = behind.split(' ').map(|word| word.parse().unwrap_or(0.0)).collect();
        let ticks = |at: usize| numbers.get(at).copied().unwrap_or(0.0) / TICKS_PER_SECOND;
        let limit = getrlimit(Resource::Nofile).current;
        Self {
            cpu: ticks(11) + ticks(12),
            started: started(boot(), ticks(19)),
            resident: kilobytes("VmRSS:") * 1024.0,
            virtual_size: kilobytes("VmSize:") * 1024.0,
            // The directory itself is open while it is read.
            open_files: fs::read_dir("/proc/self/fd")
                .map_or(0.0, |files| files.count().saturating_sub(1) as f64),
            files_max: limit.map_or(f64::INFINITY, |limit| limit as f64),
        }
    }
}

/// When the process was started, in seconds since 1970: so long after the machine. Zero where nothing tells
/// when that was.
fn started(boot: Option<Duration>, after: f64) -> f64 {
    boot.map_or(0.0, |boot| boot.as_secs_f64() + after)
}

/// When the machine was started, as time since 1970.
fn boot() -> Option<Duration> {
    let stat = fs::read_to_string("/proc/stat").ok()?;
    let seconds = stat.lines().find_map(|line| line.strip_prefix("btime "))?;
    seconds.trim().parse().ok().map(Duration::from_secs)
}

const fn gauge(
    name: &'static str,
    in_seconds: Seconds,
    help: &'static str,
    read: fn(&Figures, &mut super::Samples<'_, '_>) -> std::fmt::Result,
) -> Metric<Figures> {
    Metric { name, in_seconds, kind: Kind::Gauge, labels: &[], help, read }
}

pub(super) const SYSTEM: &[Metric<Figures>] = &[
    Metric {
        name: "process_cpu",
        in_seconds: Seconds::Yes,
        kind: Kind::Counter,
        labels: &[],
        help: "Processor time that the process has used",
        read: |figures, out| out.counter_seconds(&[], figures.cpu),
    },
    gauge("process_start_time", Seconds::Yes, "When the process was started, since 1970", |figures, out| {
        out.gauge(&[], figures.started)
    }),
    gauge("process_resident_memory_bytes", Seconds::No, "Memory of the process", |figures, out| {
        out.gauge(&[], figures.resident)
    }),
    gauge("process_virtual_memory_bytes", Seconds::No, "Virtual memory of the process", |figures, out| {
        out.gauge(&[], figures.virtual_size)
    }),
    gauge("process_open_fds", Seconds::No, "Files and sockets that are open", |figures, out| {
        out.gauge(&[], figures.open_files)
    }),
    gauge("process_max_fds", Seconds::No, "The most files and sockets that may be open", |figures, out| {
        out.gauge(&[], figures.files_max)
    }),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_start_is_not_told_where_that_of_the_machine_is_hidden() {
        assert_eq!((started(Some(Duration::from_secs(1_000)), 2.5), started(None, 2.5)), (1_002.5, 0.0));
    }

    #[test]
    fn the_system_knows_of_this_process() {
        let Figures { cpu, started, resident, virtual_size, open_files, files_max } = Figures::now();
        assert!(cpu >= 0.0 && started > 1e9 && resident > 1e5 && virtual_size >= resident);
        assert!(open_files >= 3.0 && files_max >= open_files);
    }
}
