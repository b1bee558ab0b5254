//! How much processor time a process used: the client checks that it isn't the bottleneck itself.

use std::collections::BTreeMap;
use std::fs;
use std::time::{Duration, Instant};

use testbed::process::family;

/// So often it is looked at most, where children end all the time.
const LOOKS: u32 = 3;

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

/// Measures the processor time of a process and its children, those that come and go in between too:
/// servers start a process for each connection, when it comes.
#[derive(Clone, Copy, Debug)]
pub struct FamilyMeter {
    root: u32,
    before: Duration,
    since: Instant,
}

impl FamilyMeter {
    /// Starts measuring this process and its children.
    pub fn start(root: u32) -> Self {
        Self { root, before: used_by_family(root), since: Instant::now() }
    }

    /// Processor time used since the start. Zero where there is no `/proc`; the children of children, and
    /// those for whom nobody waited when they ended, are missing.
    pub fn used(&self) -> Duration {
        used_by_family(self.root).saturating_sub(self.before)
    }

    /// Processors used on average since the start: 1.0 is one whole core.
    pub fn share(&self) -> f64 {
        self.used().as_secs_f64() / self.since.elapsed().as_secs_f64().max(1e-9)
    }
}

/// Time on a processor of those that live and of those that have ended: a process that ends in between goes
/// from the one to the other.
fn used_by_family(root: u32) -> Duration {
    of_both(|| family(root).into_iter().map(used).sum(), || ended(root))
}

/// What the living have used and what those had that ended, looked at one after the other. A process that
/// was reaped in between would be in both, or in neither; it shows by the ended having more afterwards, and
/// then it is looked again.
fn of_both(mut living: impl FnMut() -> Duration, mut ended: impl FnMut() -> Duration) -> Duration {
    let (mut before, mut sum) = (ended(), Duration::ZERO);
    for _ in 0..LOOKS {
        sum = living() + before;
        let after = ended();
        if after == before {
            break;
        }
        before = after;
    }
    sum
}

/// Time on a processor of all children that have ended, and of theirs, in hundredths of a second.
fn ended(pid: u32) -> Duration {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // The program's name, in brackets, may hold anything; after it come the fields from the third on, and
    // of them the sixteenth and seventeenth.
    let fields = text.rsplit_once(')').map_or("", |(_, fields)| fields);
    let ticks = fields.split_whitespace().skip(13).take(2).filter_map(|ticks| ticks.parse::<u64>().ok());
    Duration::from_millis(ticks.sum::<u64>() * 10)
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

/// Measures how busy one processor is, whatever uses it.
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

#[cfg(test)]
mod tests {
    use std::io::{BufRead as _, BufReader, Write as _};
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn children_that_come_and_go_are_of_the_family() {
        // One child works and ends; then one comes and works when it is told to, and stays until it is told
        // to go. A child in the background has no standard input in sh, so that it reads from a copy of its
        // parent's.
        let burn = "i=0; while [ $i -lt 400000 ]; do i=$((i+1)); done";
        let script = format!(
            "exec 3<&0; read a; ({burn}); echo ended; (read b; {burn}; echo stays; read c) <&3 & wait; echo gone; read d"
        );
        let mut shell = Command::new("sh")
            .args(["-c", &script])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let (mut input, output) = (shell.stdin.take().unwrap(), shell.stdout.take().unwrap());
        let mut lines = BufReader::new(output).lines();
        let mut after_go = |line: &str| {
            input.write_all(b"go\n").unwrap();
            assert_eq!(lines.next().unwrap().unwrap(), line);
        };
        let work = Duration::from_millis(20);
        let (meter, alone) = (FamilyMeter::start(shell.id()), CpuMeter::start(&[shell.id()]));

        after_go("ended");
        let of_ended = meter.used();
        assert!(of_ended > alone.used() + work, "the ended child is missing: {of_ended:?}");

        let reaped = ended(shell.id());
        after_go("stays");
        let of_both = meter.used();
        assert_eq!((family(shell.id()).len(), ended(shell.id())), (2, reaped), "the second child lives");
        assert!(of_both > of_ended + work, "the living child is missing: {of_ended:?}, {of_both:?}");

        after_go("gone");
        let at_last = meter.used();
        assert_eq!(family(shell.id()).len(), 1);
        // A process that has ended is counted in hundredths of a second.
        assert!(at_last + work > of_both, "a process that ended is missing: {of_both:?}, {at_last:?}");

        input.write_all(b"go\n").unwrap();
        shell.wait().unwrap();
    }

    #[test]
    fn a_child_that_is_reaped_between_two_looks_counts_once() {
        let seconds = Duration::from_secs;
        // A child with three seconds is reaped after it was seen alive, or before.
        let told = |living: [u64; 3], ended: [u64; 4]| {
            let (mut living, mut ended) = (living.into_iter(), ended.into_iter());
            let sum = of_both(|| seconds(living.next().unwrap()), || seconds(ended.next().unwrap()));
            (sum, living.count())
        };
        assert_eq!(told([5, 0, 0], [1, 1, 0, 0]), (seconds(6), 2), "nobody was");
        assert_eq!(told([5, 2, 0], [1, 4, 4, 0]), (seconds(6), 1));
        // Where it never ends, the last look has to do.
        assert_eq!(told([5, 4, 3], [1, 2, 3, 4]), (seconds(6), 0));
    }
}
