//! What an experiment ran on, and how much others disturbed it.

use std::fs;
use std::time::SystemTime;

use serde::{Deserialize, Serialize};

use testbed::database::Database;

/// The machine and the programs.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
pub struct Machine {
    /// The kernel's name and release.
    pub kernel: String,
    /// The processor's model.
    pub processor: String,
    /// How many processors it has.
    pub processors: usize,
    /// Memory in bytes.
    pub memory: u64,
    /// Which database there was.
    #[serde(default, skip_serializing_if = "Database::is_postgres")]
    pub database: Database,
    /// The database's version; the name is older than the other database.
    pub postgresql: String,
    /// PgBouncer's version; empty if it isn't there.
    pub pgbouncer: String,
    /// pgpool-II's, likewise.
    #[serde(default)]
    pub pgpool: String,
    /// The gatekeeper's version, with a sum of its binary.
    pub gatekeeper: String,
}

/// How busy it was at some time.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
pub struct Moment {
    /// When, as RFC 3339 has it, in UTC.
    pub time: String,
    /// The load averages over 1, 5 and 15 minutes.
    pub load: [f64; 3],
    /// Processor time that a hypervisor gave to others since the machine began, in hundredths of a second.
    pub stolen: u64,
    /// All processor time since then, in hundredths of a second.
    pub elapsed: u64,
}

impl Machine {
    /// This one, with these versions.
    pub(super) fn here(
        (database, postgresql): (Database, String),
        pgbouncer: String,
        pgpool: String,
        gatekeeper: String,
    ) -> Self {
        let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
        let release = read("/proc/sys/kernel/osrelease");
        let cpuinfo = read("/proc/cpuinfo");
        Self {
            kernel: format!("{} {}", read("/proc/sys/kernel/ostype").trim(), release.trim()),
            processor: model(&cpuinfo),
            processors: processors(&cpuinfo),
            memory: memory(&read("/proc/meminfo")),
            database,
            postgresql,
            pgbouncer,
            pgpool,
            gatekeeper,
        }
    }
}

impl Machine {
    /// The database and its version.
    pub(super) fn server(&self) -> String {
        format!("{} {}", self.database.name(), self.postgresql)
    }
}

impl Moment {
    /// Now.
    pub fn now() -> Self {
        let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
        let (stolen, elapsed) = processor_time(&read("/proc/stat"));
        Self {
            time: humantime::format_rfc3339_seconds(SystemTime::now()).to_string(),
            load: load(&read("/proc/loadavg")),
            stolen,
            elapsed,
        }
    }

    /// The part of all processor time that was stolen since another moment.
    pub fn stolen_since(&self, earlier: &Self) -> f64 {
        let elapsed = self.elapsed.saturating_sub(earlier.elapsed).max(1);
        self.stolen.saturating_sub(earlier.stolen) as f64 / elapsed as f64
    }
}

fn model(cpuinfo: &str) -> String {
    let line = cpuinfo.lines().find_map(|line| line.strip_prefix("model name"));
    line.and_then(|rest| rest.split_once(':')).map_or("unknown", |(_, name)| name.trim()).to_owned()
}

fn processors(cpuinfo: &str) -> usize {
    cpuinfo.lines().filter(|line| line.starts_with("processor")).count()
}

fn memory(meminfo: &str) -> u64 {
    let kib =
        |line: &str| line.strip_prefix("MemTotal:")?.trim().strip_suffix("kB")?.trim().parse::<u64>().ok();
    meminfo.lines().find_map(kib).unwrap_or(0) * 1024
}

fn load(loadavg: &str) -> [f64; 3] {
    let mut numbers = loadavg.split_whitespace().map_while(|number| number.parse().ok());
    std::array::from_fn(|_| numbers.next().unwrap_or(0.0))
}

/// Stolen time and all of it, from the first line of `/proc/stat`.
fn processor_time(stat: &str) -> (u64, u64) {
    let line = stat.lines().next().unwrap_or_default();
    // user, nice, system, idle, iowait, irq, softirq, steal; guests' time is in user's already.
    let ticks: Vec<u64> =
        line.split_whitespace().skip(1).take(8).filter_map(|text| text.parse().ok()).collect();
    (ticks.get(7).copied().unwrap_or(0), ticks.iter().sum())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_files_are_read() {
        assert_eq!(model("vendor_id\t: A\nmodel name\t: AMD EPYC\nmodel name\t: x\n"), "AMD EPYC");
        assert_eq!(processors("processor\t: 0\nmodel name\t: A\nprocessor\t: 1\n"), 2);
        assert_eq!(memory("MemTotal:       24000 kB\nMemFree: 1 kB\n"), 24_000 * 1024);
        assert_eq!(load("1.81 2.10 3.29 2/300 1234\n"), [1.81, 2.1, 3.29]);
        assert_eq!(processor_time("cpu  10 1 5 80 0 0 1 3 0 0\ncpu0 1\n"), (3, 100));
        let moment = |stolen, elapsed| Moment { stolen, elapsed, ..Moment::default() };
        assert_eq!(moment(30, 300).stolen_since(&moment(10, 100)), 0.1);
    }
}
