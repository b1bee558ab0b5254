//! A part of a processor for one process, as a container has it: a control group of our own with a quota.

use std::fs;
use std::path::{Path, PathBuf};

use crate::Error;

/// Where version 2 is mounted, and the controller of version 1.
const UNIFIED: &str = "/sys/fs/cgroup";
const LEGACY: &str = "/sys/fs/cgroup/cpu";
/// The period over which the quota is counted, in microseconds: the kernel's default, as containers have it.
const PERIOD: u64 = 100_000;

/// A group with a quota. Dropping it removes it; its processes have to have ended before.
#[derive(Debug)]
pub(crate) struct Quota(PathBuf);

impl Quota {
    /// Makes a group that may use `share` of a processor, and puts a process with all of its threads into it.
    ///
    /// # Errors
    /// If groups can't be made here.
    pub(crate) fn hold(pid: u32, share: f64) -> Result<Self, Error> {
        let name = format!("gatekeeper-bench-{}", std::process::id());
        let quota = (share * PERIOD as f64).round() as u64;
        let controls = |path: &str| {
            fs::read_to_string(Path::new(path).join("cgroup.controllers"))
                .is_ok_and(|controllers| controllers.split_whitespace().any(|name| name == "cpu"))
        };
        let (parent, settings) = if controls(UNIFIED) {
            (UNIFIED, vec![("cpu.max", format!("{quota} {PERIOD}"))])
        } else {
            let period = ("cpu.cfs_period_us", PERIOD.to_string());
            (LEGACY, vec![period, ("cpu.cfs_quota_us", quota.to_string())])
        };
        let group = Path::new(parent).join(name);
        fs::create_dir(&group).map_err(Error::io(format!(
            "making the control group {} (processor quotas need one; as root in most systems)",
            group.display()
        )))?;
        let group = Self(group);
        for (file, value) in settings.into_iter().chain([("cgroup.procs", pid.to_string())]) {
            let path = group.0.join(file);
            fs::write(&path, value).map_err(Error::io(format!("writing to {}", path.display())))?;
        }
        Ok(group)
    }
}

impl Drop for Quota {
    fn drop(&mut self) {
        // Nothing but an empty directory is left if this fails.
        let _ = fs::remove_dir(&self.0);
    }
}
