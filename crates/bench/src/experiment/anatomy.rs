//! What a server is made of while it works, as Table 2 of *Gatekeeper* (WWW 2004) has it: how many
//! processes, how much memory, how often they are switched, what they move to and from the disk, and what
//! its processor does.
//!
//! From `/proc`, of the server's first process and its children. What `/proc` doesn't tell (without root,
//! or on another operating system) is left out. Work of processes and threads that end within the window
//! isn't counted: this is for loads whose connections stay open.

use std::collections::BTreeMap;
use std::fs;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use testbed::process::{family, is_gone};

use crate::Error;
use crate::blocking::blocking;

/// Time between two counts of the processes.
const EVERY: Duration = Duration::from_secs(1);

/// What a server was made of within a window.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
pub struct Anatomy {
    /// Its processes, the mean of counts a second apart; those for its own purposes, too.
    pub processes: f64,
    /// Their memory at the end of the window, in bytes (PSS: a page that n processes share counts 1/n for
    /// each).
    pub memory: Option<u64>,
    /// Of that, what belongs to one process alone.
    pub private: Option<u64>,
    /// Memory of the machine that is available at the end of the window, in bytes.
    pub available: Option<u64>,
    /// How often its processes gave the processor away, per second, because they waited for something.
    pub voluntary_switches: f64,
    /// How often the kernel took the processor from its processes, per second.
    pub involuntary_switches: f64,
    /// Bytes that its processes had read from the disk, per second.
    pub read: Option<f64>,
    /// Bytes that they handed to the disk, per second.
    pub written: Option<f64>,
    /// What its processor did, if it has one of its own.
    pub processor: Option<Processor>,
}

/// Parts of a processor's time, from 0 to 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Deserialize, Serialize)]
pub struct Processor {
    /// In programs.
    pub user: f64,
    /// In the kernel.
    pub system: f64,
    /// Idle.
    pub idle: f64,
    /// Idle while something waited for a disk.
    pub waiting: f64,
    /// Given to others by a hypervisor.
    pub stolen: f64,
}

/// Measures the server from `begin` for the length of `window`.
pub(super) async fn watch(
    server: u32,
    cpu: Option<usize>,
    begin: Instant,
    window: Duration,
) -> Result<Anatomy, Error> {
    tokio::time::sleep_until(begin.into()).await;
    let before = blocking(move || Ok(Look::take(server, cpu))).await?;
    let mut counts = vec![before.processes.len() as f64];
    let mut next = begin + EVERY;
    while next < begin + window {
        tokio::time::sleep_until(next.into()).await;
        counts.push(family(server).len() as f64);
        next += EVERY;
    }
    tokio::time::sleep_until((begin + window).into()).await;
    blocking(move || {
        let after = Look::take(server, cpu);
        let mut anatomy = after.since(&before);
        anatomy.processes = crate::stats::mean(&counts);
        // Walking through the memory of hundreds of processes takes time: behind all the rest.
        let pids = family(server);
        anatomy.memory = sum(&pids, "Pss:");
        anatomy.private = sum(&pids, "Private_Dirty:").zip(sum(&pids, "Private_Clean:")).map(|(a, b)| a + b);
        anatomy.available = read("/proc/meminfo").and_then(|text| kib(&text, "MemAvailable:"));
        Ok(anatomy)
    })
    .await
}

/// Counters at a time.
#[derive(Clone, Debug)]
struct Look {
    at: Instant,
    processes: BTreeMap<u32, Counters>,
    processor: Option<[u64; 8]>,
}

/// Counters of one process since it began, all its threads together.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Counters {
    voluntary: u64,
    involuntary: u64,
    /// Bytes read from the disk and handed to it; `None` without permission to see them.
    disk_bytes: Option<(u64, u64)>,
}

impl Look {
    fn take(server: u32, cpu: Option<usize>) -> Self {
        let counters = |pid: u32| Some((pid, Counters::of(pid)?));
        Self {
            at: Instant::now(),
            processes: family(server).into_iter().filter_map(counters).collect(),
            processor: cpu.and_then(|cpu| ticks(&read("/proc/stat")?, cpu)),
        }
    }

    /// The rates. [`watch`] adds memory and the mean number of processes.
    fn since(&self, before: &Self) -> Anatomy {
        let seconds = self.at.saturating_duration_since(before.at).as_secs_f64().max(1e-9);
        // A process that has come since began with nothing.
        let of = |pid: &u32| before.processes.get(pid).copied().unwrap_or_default();
        let rate = |count: fn(&Counters) -> u64| {
            let all = self.processes.iter().map(|(pid, now)| count(now).saturating_sub(count(&of(pid))));
            all.sum::<u64>() as f64 / seconds
        };
        let may_read_io = self.processes.values().any(|counters| counters.disk_bytes.is_some());
        let disk = |count: fn(&Counters) -> u64| may_read_io.then(|| rate(count));
        Anatomy {
            voluntary_switches: rate(|counters| counters.voluntary),
            involuntary_switches: rate(|counters| counters.involuntary),
            read: disk(|counters| counters.disk_bytes.unwrap_or_default().0),
            written: disk(|counters| counters.disk_bytes.unwrap_or_default().1),
            processor: self.processor.zip(before.processor).map(|(now, then)| Processor::between(then, now)),
            ..Anatomy::default()
        }
    }
}

impl Counters {
    /// The counters of a process; `None` if it isn't there any more.
    fn of(pid: u32) -> Option<Self> {
        let disk_bytes = read(&format!("/proc/{pid}/io"))
            .and_then(|text| Some((number(&text, "read_bytes:")?, number(&text, "write_bytes:")?)));
        let threads = fs::read_dir(format!("/proc/{pid}/task")).ok()?.filter_map(Result::ok);
        // The process's own `status` has the switches of its first thread only. A thread that has just
        // ended has none.
        let status = threads.filter_map(|thread| fs::read_to_string(thread.path().join("status")).ok());
        let switches = status.filter_map(|text| {
            let involuntary = number(&text, "nonvoluntary_ctxt_switches:")?;
            Some((number(&text, "voluntary_ctxt_switches:")?, involuntary))
        });
        let (voluntary, involuntary) = switches.fold((0, 0), |all, one| (all.0 + one.0, all.1 + one.1));
        Some(Self { voluntary, involuntary, disk_bytes })
    }
}

impl Processor {
    /// Of ticks in the order of `/proc/stat`: user, nice, system, idle, waiting for a disk, interrupts,
    /// soft interrupts, stolen.
    fn between(before: [u64; 8], after: [u64; 8]) -> Self {
        let passed: Vec<f64> =
            after.iter().zip(before).map(|(after, before)| after.saturating_sub(before) as f64).collect();
        let all = passed.iter().sum::<f64>().max(1.0);
        Self {
            user: (passed[0] + passed[1]) / all,
            system: (passed[2] + passed[5] + passed[6]) / all,
            idle: passed[3] / all,
            waiting: passed[4] / all,
            stolen: passed[7] / all,
        }
    }
}

fn read(path: &str) -> Option<String> {
    fs::read_to_string(path).ok()
}

/// The ticks of one processor.
fn ticks(text: &str, cpu: usize) -> Option<[u64; 8]> {
    let name = format!("cpu{cpu} ");
    let line = text.lines().find_map(|line| line.strip_prefix(&name))?;
    let ticks: Vec<u64> = line.split_whitespace().take(8).filter_map(|ticks| ticks.parse().ok()).collect();
    ticks.try_into().ok()
}

/// The number behind a name at the beginning of a line.
fn number(text: &str, name: &str) -> Option<u64> {
    let rest = text.lines().find_map(|line| line.strip_prefix(name))?;
    rest.split_whitespace().next()?.parse().ok()
}

/// The number of kB behind a name at the beginning of a line, in bytes.
fn kib(text: &str, name: &str) -> Option<u64> {
    Some(number(text, name)? * 1024)
}

/// The sum over all processes; `None` if a live one can't be read.
fn sum(pids: &[u32], name: &str) -> Option<u64> {
    let mut all = 0;
    for pid in pids {
        match fs::read_to_string(format!("/proc/{pid}/smaps_rollup")) {
            Ok(text) => all += kib(&text, name)?,
            // It has just ended.
            Err(error) if error.kind() == std::io::ErrorKind::NotFound || is_gone(&error) => {}
            Err(_) => return None,
        }
    }
    Some(all)
}

#[cfg(test)]
mod tests {
    use rustix::process::{Pid, WaitId, WaitIdOptions, waitid};

    use super::*;

    fn look(at: Instant, processes: &[(u32, Counters)], processor: [u64; 8]) -> Look {
        Look { at, processes: processes.iter().copied().collect(), processor: Some(processor) }
    }

    #[test]
    fn rates_are_of_what_passed_between_two_looks() {
        let counters = |voluntary, involuntary, disk_bytes| Counters { voluntary, involuntary, disk_bytes };
        let begin = Instant::now();
        let before = [(1, counters(100, 10, Some((1_000, 5_000)))), (2, counters(7, 7, Some((0, 0))))];
        // The second has ended, the third has come.
        let after = [(1, counters(300, 20, Some((1_000, 9_000)))), (3, counters(40, 2, Some((600, 0))))];
        let before = look(begin, &before, [100, 0, 100, 500, 0, 0, 0, 0]);
        let after = look(begin + Duration::from_secs(2), &after, [250, 0, 130, 510, 2, 4, 4, 0]);
        let anatomy = after.since(&before);
        assert_eq!((anatomy.voluntary_switches, anatomy.involuntary_switches), (120.0, 6.0));
        assert_eq!((anatomy.read, anatomy.written), (Some(300.0), Some(2_000.0)));
        let split = Processor { user: 0.75, system: 0.19, idle: 0.05, waiting: 0.01, stolen: 0.0 };
        assert_eq!(anatomy.processor, Some(split));
    }

    #[test]
    fn without_permission_disk_bytes_are_none() {
        let begin = Instant::now();
        let blind = [(1, Counters { voluntary: 5, involuntary: 1, disk_bytes: None })];
        let anatomy = look(begin, &blind, [1; 8]).since(&look(begin, &blind, [1; 8]));
        assert_eq!((anatomy.read, anatomy.written, anatomy.voluntary_switches), (None, None, 0.0));
    }

    #[test]
    fn the_kernels_texts_are_read() {
        let stat = "cpu  9 9 9 9 9 9 9 9 0 0\ncpu1 1 2 3 4 5 6 7 8 0 0\ncpu11 9 9 9 9 9 9 9 9\n";
        assert_eq!(ticks(stat, 1), Some([1, 2, 3, 4, 5, 6, 7, 8]));
        assert_eq!(ticks(stat, 2), None);
        let status = "Name:\tpostgres\nvoluntary_ctxt_switches:\t31\nnonvoluntary_ctxt_switches:\t2\n";
        assert_eq!(number(status, "voluntary_ctxt_switches:"), Some(31));
        assert_eq!(kib("Rss:  10 kB\nPss:   7 kB\n", "Pss:"), Some(7 * 1024));
        assert_eq!(kib("Rss:  10 kB\n", "Pss:"), None);
    }

    #[test]
    fn switches_of_every_thread_count() {
        let own = std::process::id();
        let switches_of = |path: &str| {
            let text = fs::read_to_string(path).unwrap();
            number(&text, "voluntary_ctxt_switches:").unwrap()
        };
        let (wake, sleeps) = std::sync::mpsc::channel::<()>();
        let (tell, path) = std::sync::mpsc::channel();
        let thread = std::thread::spawn(move || {
            let own = fs::read_link("/proc/thread-self").unwrap();
            tell.send(format!("/proc/{}/status", own.display())).unwrap();
            // Each wait for a message is a voluntary switch, or finds one that is there already.
            while sleeps.recv().is_ok() {}
        });
        let path = path.recv().unwrap();
        while switches_of(&path) < 10 {
            wake.send(()).unwrap();
            std::thread::yield_now();
        }
        let first = switches_of(&format!("/proc/{own}/status"));
        let all = Counters::of(own).unwrap().voluntary;
        assert!(all >= first + 10, "{all} of all threads, {first} of the first one");
        drop(wake);
        thread.join().unwrap();
    }

    #[test]
    fn a_process_that_ends_meanwhile_takes_nothing_from_the_others() {
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let pid = Pid::from_child(&child);
        // It has ended, and is there still because nobody has waited for it.
        waitid(WaitId::Pid(pid), WaitIdOptions::EXITED | WaitIdOptions::NOWAIT).unwrap();
        let own = std::process::id();
        assert!(sum(&[child.id(), own], "Pss:").is_some_and(|bytes| bytes > 0));
        child.wait().unwrap();
    }

    #[tokio::test]
    async fn this_program_has_an_anatomy() {
        let window = Duration::from_millis(30);
        let own = watch(std::process::id(), None, Instant::now(), window).await.unwrap();
        assert!(own.processes >= 1.0 && own.memory.is_some_and(|bytes| bytes > 0), "{own:?}");
        assert!(own.private <= own.memory && own.processor.is_none(), "{own:?}");
    }
}
