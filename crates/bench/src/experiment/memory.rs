//! A bound on the memory of a server and all that it forks: a control group of our own, of version 2 or 1.
//!
//! The processes are killed that exceed it, as the kernel chooses. Distributions spare the postmaster (systemd's
//! `OOMScoreAdjust=-900`) and let PostgreSQL reset its children to 0. To lower a score takes a privilege that root in a
//! container often hasn't, to raise one takes none; and within a group only the differences count. So here the postmaster
//! stays at 0, and PostgreSQL sets its children to 900 ([`ENVIRONMENT`]).

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::Error;
use crate::process::is_gone;

/// What makes PostgreSQL set its children's score, of −1000 (never killed) to 1000: as far above the postmaster's as in Debian.
pub(super) const ENVIRONMENT: [(&str, &str); 2] =
    [("PG_OOM_ADJUST_FILE", "/proc/self/oom_score_adj"), ("PG_OOM_ADJUST_VALUE", "900")];

/// Where version 2 is mounted, and the controller of version 1.
const UNIFIED: &str = "/sys/fs/cgroup";
const LEGACY: &str = "/sys/fs/cgroup/memory";
/// How often and in which intervals removing the group is tried: its last processes may be about to go.
const REMOVALS: u32 = 50;
const REMOVAL_INTERVAL: Duration = Duration::from_millis(20);

/// A group with a bound. Dropping it removes it; its processes have to have ended before.
#[derive(Debug)]
pub(super) struct MemoryBound {
    group: PathBuf,
    unified: bool,
}

impl MemoryBound {
    /// Makes a group of at most so many bytes, and puts these processes into it.
    ///
    /// # Errors
    /// If groups can't be made here.
    pub(super) fn hold(pids: &[u32], bytes: u64) -> Result<Self, Error> {
        let unified = fs::read_to_string(Path::new(UNIFIED).join("cgroup.controllers"))
            .is_ok_and(|controllers| controllers.split_whitespace().any(|name| name == "memory"));
        let parent = if unified { UNIFIED } else { LEGACY };
        let group = Path::new(parent).join(format!("gatekeeper-bench-memory-{}", std::process::id()));
        fs::create_dir(&group).map_err(Error::io(format!(
            "making the control group {} (an experiment with a bound on memory needs one; as root in most systems)",
            group.display()
        )))?;
        let bound = Self { group, unified };
        if unified {
            bound.set("memory.max", &bytes.to_string())?;
            // Not to be softened by swapping, where there is any; older kernels don't know it.
            let _ = bound.set("memory.swap.max", "0");
        } else {
            bound.set("memory.limit_in_bytes", &bytes.to_string())?;
        }
        for pid in pids {
            bound.take_in(*pid)?;
        }
        Ok(bound)
    }

    /// Puts a process into it, unless it has ended meanwhile: helpers of a server come and go.
    fn take_in(&self, pid: u32) -> Result<(), Error> {
        match self.write("cgroup.procs", &pid.to_string()) {
            Err(error) if is_gone(&error) => Ok(()),
            written => written.map_err(self.failed("cgroup.procs")),
        }
    }

    fn set(&self, file: &str, value: &str) -> Result<(), Error> {
        self.write(file, value).map_err(self.failed(file))
    }

    /// The kernel's files of a group are there with it: a new one is never made.
    fn write(&self, file: &str, value: &str) -> std::io::Result<()> {
        OpenOptions::new().write(true).open(self.group.join(file))?.write_all(value.as_bytes())
    }

    fn failed(&self, file: &str) -> impl FnOnce(std::io::Error) -> Error {
        Error::io(format!("writing to {}", self.group.join(file).display()))
    }

    /// How many processes were killed for its sake so far.
    pub(super) fn kills(&self) -> u64 {
        let file = if self.unified { "memory.events" } else { "memory.oom_control" };
        let text = fs::read_to_string(self.group.join(file)).unwrap_or_default();
        kills_in(&text)
    }
}

/// `oom_kill 3` among the lines.
fn kills_in(text: &str) -> u64 {
    let count = |line: &str| line.strip_prefix("oom_kill ")?.trim().parse().ok();
    text.lines().find_map(count).unwrap_or(0)
}

impl Drop for MemoryBound {
    fn drop(&mut self) {
        for _ in 0..REMOVALS {
            if fs::remove_dir(&self.group).is_ok() {
                return;
            }
            std::thread::sleep(REMOVAL_INTERVAL);
        }
        // Nothing but an empty directory is left.
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_process_that_has_ended_is_left_out() {
        let directory = tempfile::tempdir().unwrap();
        let bound = MemoryBound { group: directory.path().join("group"), unified: true };
        // There is no such group: not the process is missing, and nothing is made in its place.
        let said = bound.take_in(1).unwrap_err().to_string();
        assert!(said.starts_with("writing to ") && said.contains("group/cgroup.procs: "), "{said}");
        fs::create_dir(&bound.group).unwrap();
        assert!(bound.set("memory.max", "1").is_err());
        fs::write(bound.group.join("cgroup.procs"), "").unwrap();
        bound.take_in(7).unwrap();
        assert_eq!(fs::read_to_string(bound.group.join("cgroup.procs")).unwrap(), "7");
        fs::remove_file(bound.group.join("cgroup.procs")).unwrap();
    }

    #[test]
    fn kills_are_counted_as_both_versions_tell_them() {
        assert_eq!(kills_in("oom_kill_disable 0\nunder_oom 0\noom_kill 29\n"), 29);
        assert_eq!(kills_in("low 0\nhigh 0\nmax 12\noom 2\noom_kill 1\noom_group_kill 0\n"), 1);
        assert_eq!(kills_in(""), 0);
    }
}
