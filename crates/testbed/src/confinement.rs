//! Bounds on what a process and all that it forks may use, as a container has them: control groups of our
//! own, of version 2 or 1.
//!
//! **Memory.** The processes are killed that exceed it, as the kernel chooses. Distributions spare the
//! postmaster (systemd's `OOMScoreAdjust=-900`) and let PostgreSQL reset its children to 0. To lower a
//! score takes a privilege that root in a container often hasn't, to raise one takes none; and within a
//! group only the differences count. So here the postmaster stays at 0, and PostgreSQL sets its children to
//! 900 ([`ENVIRONMENT`]).
//!
//! **Processor.** All of them run for a part of each period, and stand still for the rest.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::Error;
use crate::process::is_gone;

/// What makes PostgreSQL set its children's score, of −1000 (never killed) to 1000: as far above the
/// postmaster's as in Debian.
pub const ENVIRONMENT: [(&str, &str); 2] =
    [("PG_OOM_ADJUST_FILE", "/proc/self/oom_score_adj"), ("PG_OOM_ADJUST_VALUE", "900")];

/// Where version 2 is mounted, and the controllers of version 1 are.
const ROOT: &str = "/sys/fs/cgroup";
/// How often and in which intervals removing a group is tried: its last processes may be about to go.
const REMOVALS: u32 = 50;
const REMOVAL_INTERVAL: Duration = Duration::from_millis(20);

/// A part of a processor.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Share {
    /// Of one processor; more than 1 for several.
    pub part: f64,
    /// Over how long it is counted: what it doesn't use meanwhile is lost, and when it has used all it
    /// waits for the next.
    pub period: Duration,
}

/// What is bounded.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Bounds {
    /// Bytes of memory.
    pub memory: Option<u64>,
    /// Processor time.
    pub processor: Option<Share>,
}

/// Groups with these bounds. Dropping it removes them; their processes have to have ended before.
#[derive(Debug)]
pub struct Confinement {
    /// One for each controller in version 1, at most one in version 2.
    groups: Vec<PathBuf>,
    /// Where the kernel tells of processes that it killed for their memory.
    killed: Option<PathBuf>,
}

/// The kernel's file, and what is written there.
type Setting = (&'static str, String);

impl Bounds {
    /// What version 2 is told.
    fn unified(&self) -> Vec<Setting> {
        let mut settings = Vec::new();
        if let Some(bytes) = self.memory {
            settings.push(("memory.max", bytes.to_string()));
        }
        if let Some(share) = self.processor {
            let (quota, period) = share.microseconds();
            settings.push(("cpu.max", format!("{quota} {period}")));
        }
        settings
    }

    /// What each controller of version 1 is told.
    fn legacy(&self) -> Vec<(&'static str, Vec<Setting>)> {
        let memory = self.memory.map(|bytes| ("memory", vec![("memory.limit_in_bytes", bytes.to_string())]));
        let processor = self.processor.map(|share| {
            let (quota, period) = share.microseconds();
            let period = ("cpu.cfs_period_us", period.to_string());
            ("cpu", vec![period, ("cpu.cfs_quota_us", quota.to_string())])
        });
        memory.into_iter().chain(processor).collect()
    }

    /// Whether version 2 has the controllers.
    fn are_unified(&self) -> bool {
        let controllers = fs::read_to_string(Path::new(ROOT).join("cgroup.controllers")).unwrap_or_default();
        let has = |wanted| controllers.split_whitespace().any(|name| name == wanted);
        (self.memory.is_none() || has("memory")) && (self.processor.is_none() || has("cpu"))
    }
}

impl Share {
    /// The quota and its period.
    fn microseconds(self) -> (u64, u128) {
        let period = self.period.as_micros();
        ((self.part * period as f64).round() as u64, period)
    }
}

impl Confinement {
    /// Makes groups with these bounds, and puts processes with all of their threads into them. `None` where
    /// nothing is bounded.
    ///
    /// # Errors
    /// If groups can't be made here.
    pub fn hold(pids: &[u32], bounds: &Bounds) -> Result<Option<Self>, Error> {
        if *bounds == Bounds::default() {
            return Ok(None);
        }
        let root = Path::new(ROOT);
        let mut held = Self { groups: Vec::new(), killed: None };
        if bounds.are_unified() {
            held.make(root, &bounds.unified())?;
            if bounds.memory.is_some() {
                // Not to be softened by swapping, where there is any; older kernels don't know it.
                let _ = write(&held.groups[0], "memory.swap.max", "0");
                held.killed = Some(held.groups[0].join("memory.events"));
            }
        } else {
            for (controller, settings) in bounds.legacy() {
                let group = held.make(&root.join(controller), &settings)?;
                if controller == "memory" {
                    held.killed = Some(group.join("memory.oom_control"));
                }
            }
        }
        pids.iter().try_for_each(|pid| held.take(*pid))?;
        Ok(Some(held))
    }

    /// Makes a group of this name that shares the processor by weights, and another for its accounting where
    /// that is apart.
    ///
    /// # Errors
    /// If groups can't be made here.
    pub fn weighed(name: &str) -> Result<Self, Error> {
        let root = Path::new(ROOT);
        let mut held = Self { groups: Vec::new(), killed: None };
        if root.join("cgroup.controllers").exists() {
            held.make_named(root, name, &[])?;
        } else {
            held.make_named(&root.join("cpu"), name, &[])?;
            // Often both controllers are one hierarchy.
            let accounts = root.join("cpuacct");
            if accounts.exists() && !accounts.join(name).exists() {
                held.make_named(&accounts, name, &[])?;
            }
        }
        Ok(held)
    }

    /// Puts a process with all of its threads into it.
    pub fn take(&self, pid: u32) -> Result<(), Error> {
        self.groups.iter().try_for_each(|group| take_in(group, pid))
    }

    /// Gives it so many times the weight that a group begins with.
    pub fn weigh(&self, times: f64) -> Result<(), Error> {
        let (file, default) = if self.is_unified() { ("cpu.weight", 100.0) } else { ("cpu.shares", 1_024.0) };
        let group = &self.groups[0];
        write(group, file, &format!("{:.0}", (default * times).max(2.0))).map_err(failed(group, file))
    }

    /// Seconds of the processor that its processes have used.
    pub fn used(&self) -> Option<f64> {
        let group = self.groups.last()?;
        if self.is_unified() {
            let text = fs::read_to_string(group.join("cpu.stat")).ok()?;
            let micros = text.lines().find_map(|line| line.strip_prefix("usage_usec "))?;
            return Some(micros.trim().parse::<f64>().ok()? * 1e-6);
        }
        let nanos = fs::read_to_string(group.join("cpuacct.usage")).ok()?;
        Some(nanos.trim().parse::<f64>().ok()? * 1e-9)
    }

    fn is_unified(&self) -> bool {
        self.groups[0].join("cgroup.controllers").exists()
    }

    fn make(&mut self, parent: &Path, settings: &[Setting]) -> Result<PathBuf, Error> {
        self.make_named(parent, &format!("gatekeeper-bench-{}", std::process::id()), settings)
    }

    fn make_named(&mut self, parent: &Path, name: &str, settings: &[Setting]) -> Result<PathBuf, Error> {
        let group = parent.join(name);
        fs::create_dir(&group).map_err(Error::io(format!(
            "making the control group {} (bounds on memory and processors need one; as root in most systems)",
            group.display()
        )))?;
        self.groups.push(group.clone());
        for (file, value) in settings {
            write(&group, file, value).map_err(failed(&group, file))?;
        }
        Ok(group)
    }

    /// How many processes were killed for their memory so far.
    pub fn kills(&self) -> u64 {
        let text = self.killed.as_ref().and_then(|file| fs::read_to_string(file).ok());
        kills_in(&text.unwrap_or_default())
    }
}

/// Puts a process into a group, unless it has ended meanwhile: helpers of a server come and go.
fn take_in(group: &Path, pid: u32) -> Result<(), Error> {
    let file = "cgroup.procs";
    match write(group, file, &pid.to_string()) {
        Err(error) if is_gone(&error) => Ok(()),
        written => written.map_err(failed(group, file)),
    }
}

/// The kernel's files of a group are there with it: a new one is never made.
fn write(group: &Path, file: &str, value: &str) -> std::io::Result<()> {
    OpenOptions::new().write(true).open(group.join(file))?.write_all(value.as_bytes())
}

fn failed(group: &Path, file: &str) -> impl FnOnce(std::io::Error) -> Error {
    Error::io(format!("writing to {}", group.join(file).display()))
}

/// `oom_kill 3` among the lines.
fn kills_in(text: &str) -> u64 {
    let count = |line: &str| line.strip_prefix("oom_kill ")?.trim().parse().ok();
    text.lines().find_map(count).unwrap_or(0)
}

impl Drop for Confinement {
    fn drop(&mut self) {
        for _ in 0..REMOVALS {
            self.groups.retain(|group| fs::remove_dir(group).is_err());
            if self.groups.is_empty() {
                return;
            }
            std::thread::sleep(REMOVAL_INTERVAL);
        }
        // Nothing but empty directories are left.
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_process_that_has_ended_is_left_out() {
        let directory = tempfile::tempdir().unwrap();
        let group = directory.path().join("group");
        // There is no such group: not the process is missing, and nothing is made in its place.
        let said = take_in(&group, 1).unwrap_err().to_string();
        assert!(said.starts_with("writing to ") && said.contains("group/cgroup.procs: "), "{said}");
        fs::create_dir(&group).unwrap();
        assert!(write(&group, "memory.max", "1").is_err());
        fs::write(group.join("cgroup.procs"), "").unwrap();
        take_in(&group, 7).unwrap();
        assert_eq!(fs::read_to_string(group.join("cgroup.procs")).unwrap(), "7");
    }

    #[test]
    fn both_versions_are_told_the_same() {
        let third = Share { part: 0.33, period: Duration::from_millis(10) };
        let bounds = Bounds { memory: Some(4096), processor: Some(third) };
        assert_eq!(bounds.unified(), [("memory.max", "4096".into()), ("cpu.max", "3300 10000".into())]);
        let legacy = bounds.legacy();
        assert_eq!(legacy[0], ("memory", vec![("memory.limit_in_bytes", "4096".into())]));
        let processor = vec![("cpu.cfs_period_us", "10000".into()), ("cpu.cfs_quota_us", "3300".into())];
        assert_eq!(legacy[1], ("cpu", processor));
        assert!(Bounds::default().unified().is_empty() && Bounds::default().legacy().is_empty());
        assert!(Confinement::hold(&[1], &Bounds::default()).unwrap().is_none());
    }

    #[test]
    fn kills_are_counted_as_both_versions_tell_them() {
        assert_eq!(kills_in("oom_kill_disable 0\nunder_oom 0\noom_kill 29\n"), 29);
        assert_eq!(kills_in("low 0\nhigh 0\nmax 12\noom 2\noom_kill 1\noom_group_kill 0\n"), 1);
        assert_eq!(kills_in(""), 0);
    }
}
