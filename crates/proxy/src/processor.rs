//! Gives processes of this machine less of the processor than others have, for a while.
//!
//! By a control group beside or below that of the process: of version 1 (`cpu.shares`) or 2 (`cpu.weight`).
//! Where there are no groups, by `nice`, if the gate may raise a process again.
//!
//! The weight is a sixteenth of the ordinary one, and not the least that there is. A server process holds
//! short locks inside the server even while it only reads. What it holds then, others wait for until it has
//! run on: with a sixteenth for a few tens of milliseconds, with the least weight for a second.

use std::path::{Path, PathBuf};
use std::{fmt, io};

use rustix::process::{Pid, setpriority_process};

/// What groups of low weight are called.
const GROUP: &str = "gatekeeper-low";
/// Of 1024 in version 1.
const SHARES: &str = "64";
/// Of 100 in version 2.
const WEIGHT: &str = "6";
/// What `nice` gives those of low weight.
const NICE: i32 = 19;
/// The capability to raise priorities, by its number.
const CAP_SYS_NICE: u32 = 23;

/// How a process is lowered and raised.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Means {
    /// By the file of its own group, and that of the low one.
    Groups { home: PathBuf, low: PathBuf },
    /// By its priority.
    Nice,
}

/// Why a process can't be lowered.
#[derive(Debug, thiserror::Error)]
#[error("control groups: {groups}; nice: {nice}")]
pub(crate) struct Unable {
    groups: String,
    nice: &'static str,
}

impl fmt::Display for Means {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Groups { low, .. } => write!(out, "the control group of {}", low.display()),
            Self::Nice => out.write_str("nice"),
        }
    }
}

impl Means {
    /// Finds how this process can be lowered, and makes the group for it. `root` is where the system's files
    /// are.
    pub(crate) fn find(root: &Path, process: i32) -> Result<Self, Unable> {
        let groups = match groups(root, process) {
            Ok(means) => return Ok(means),
            Err(why) => why,
        };
        if may_raise(root) {
            return Ok(Self::Nice);
        }
        Err(Unable { groups, nice: "a process that was lowered could not be raised without CAP_SYS_NICE" })
    }

    /// Gives the process less.
    pub(crate) fn lower(&self, process: i32) -> io::Result<()> {
        match self {
            Self::Groups { low, .. } => std::fs::write(low, process.to_string()),
            Self::Nice => set_nice(process, NICE),
        }
    }

    /// Gives the process back what it had.
    pub(crate) fn raise(&self, process: i32) -> io::Result<()> {
        match self {
            Self::Groups { home, .. } => std::fs::write(home, process.to_string()),
            Self::Nice => set_nice(process, 0),
        }
    }
}

fn set_nice(process: i32, nice: i32) -> io::Result<()> {
    let process = Pid::from_raw(process).ok_or(io::ErrorKind::InvalidInput)?;
    Ok(setpriority_process(Some(process), nice)?)
}

/// Which files control groups have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Version {
    /// Each controller may be mounted by itself.
    V1,
    /// There is one hierarchy. Processes are only in groups without others below.
    V2,
}

/// Where a controller of groups is mounted.
pub(crate) struct Controller {
    pub(crate) at: PathBuf,
    pub(crate) version: Version,
}

impl Controller {
    /// Finds the controller of this name: `cpu` or, in version 1, `cpuacct`.
    pub(crate) fn mounted(root: &Path, mounts: &str, name: &str) -> Option<Self> {
        let mounted = |wanted: &dyn Fn(&str, &str) -> bool| {
            let mut mounts = mounts.lines().map(|line| line.split(' ').collect::<Vec<_>>());
            let is_it = |fields: &Vec<&str>| fields.len() > 3 && wanted(fields[2], fields[3]);
            mounts.find(is_it).map(|fields| root.join(fields[1].trim_start_matches('/')))
        };
        let first = mounted(&|kind, options| kind == "cgroup" && names(options, name));
        if let Some(at) = first {
            return Some(Self { at, version: Version::V1 });
        }
        let at = mounted(&|kind, _| kind == "cgroup2")?;
        Some(Self { at, version: Version::V2 })
    }
}

/// Whether a scheduler runs that may not heed weights.
pub(crate) fn ignores_weights(root: &Path) -> bool {
    let state = std::fs::read_to_string(root.join("sys/kernel/sched_ext/state"));
    state.is_ok_and(|state| state.trim() == "enabled")
}

/// Whether a list with commas has a name.
fn names(list: &str, name: &str) -> bool {
    list.split(',').any(|one| one == name)
}

/// Finds the groups of a process, and makes the low one.
fn groups(root: &Path, process: i32) -> Result<Means, String> {
    let read =
        |path: &str| std::fs::read_to_string(root.join(path)).map_err(|error| format!("/{path}: {error}"));
    if ignores_weights(root) {
        return Err("a scheduler of sched_ext is loaded, which may not heed weights".to_owned());
    }
    // Its parent, which started it, is never lowered.
    let parent = parent(&read(&format!("proc/{process}/status"))?).ok_or("no parent is known")?;
    let (mounts, own) = (read("proc/mounts")?, read(&format!("proc/{parent}/cgroup"))?);
    let mounted = Controller::mounted(root, &mounts, "cpu");
    let placed = mounted.and_then(|cpu| Some((place_in(cpu.version, &own)?, cpu)));
    let (path, Controller { at, version }) = placed.ok_or("no controller `cpu` is mounted")?;
    let home = at.join(path.trim_start_matches('/'));
    let above = if version == Version::V2 && home != at { home.parent() } else { None };
    let low = above.unwrap_or(&home).join(GROUP);
    let failed = |path: &Path, error: io::Error| format!("{}: {error}", path.display());
    match std::fs::create_dir(&low) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(failed(&low, error)),
        _ => {}
    }
    let (file, weight) = match version {
        Version::V1 => ("cpu.shares", SHARES),
        Version::V2 => ("cpu.weight", WEIGHT),
    };
    std::fs::write(low.join(file), weight).map_err(|error| failed(&low.join(file), error))?;
    let (home, low) = (home.join("cgroup.procs"), low.join("cgroup.procs"));
    // What can't come back isn't lowered.
    std::fs::write(&home, process.to_string()).map_err(|error| failed(&home, error))?;
    Ok(Means::Groups { home, low })
}

/// The parent of a process, by its status.
pub(crate) fn parent(status: &str) -> Option<i32> {
    status.lines().find_map(|line| line.strip_prefix("PPid:"))?.trim().parse().ok()
}

/// The place of a process in the hierarchy that weighs processes.
fn place_in(version: Version, own: &str) -> Option<&str> {
    let mut groups = own.lines().filter_map(|line| {
        let mut fields = line.splitn(3, ':').skip(1);
        Some((fields.next()?, fields.next()?))
    });
    let is_it = |controllers: &str| match version {
        Version::V1 => names(controllers, "cpu"),
        Version::V2 => controllers.is_empty(),
    };
    groups.find(|(controllers, _)| is_it(controllers)).map(|(_, path)| path)
}

/// Whether this process may raise priorities.
fn may_raise(root: &Path) -> bool {
    let status = std::fs::read_to_string(root.join("proc/self/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    let held = line.and_then(|held| u64::from_str_radix(held.trim(), 16).ok()).unwrap_or(0);
    held >> CAP_SYS_NICE & 1 == 1
}

#[cfg(test)]
mod tests {
    use super::*;

    fn system(files: &[(&str, &str)]) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = root.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        root
    }

    fn text(root: &tempfile::TempDir, path: &str) -> String {
        std::fs::read_to_string(root.path().join(path)).unwrap()
    }

    #[test]
    fn in_version_1_the_low_group_is_below_the_servers_own() {
        let root = system(&[
            ("proc/mounts", "cgroup /sys/fs/cgroup/cpu,cpuacct cgroup rw,cpu,cpuacct 0 0\n"),
            ("proc/7/status", "PPid:\t3\n"),
            ("proc/3/cgroup", "4:memory:/m\n2:cpu,cpuacct:/db\n0::/\n"),
            ("sys/fs/cgroup/cpu,cpuacct/db/cgroup.procs", ""),
        ]);
        let means = Means::find(root.path(), 7).unwrap();
        means.lower(7).unwrap();
        let low = "sys/fs/cgroup/cpu,cpuacct/db/gatekeeper-low";
        assert_eq!(text(&root, &format!("{low}/cpu.shares")), "64");
        assert_eq!(text(&root, &format!("{low}/cgroup.procs")), "7");
        means.raise(7).unwrap();
        assert_eq!(text(&root, "sys/fs/cgroup/cpu,cpuacct/db/cgroup.procs"), "7");
    }

    #[test]
    fn in_version_2_the_low_group_is_beside_the_servers_own() {
        let root = system(&[
            ("proc/mounts", "cgroup2 /sys/fs/cgroup cgroup2 rw 0 0\n"),
            ("proc/7/status", "PPid:\t3\n"),
            ("proc/3/cgroup", "0::/system.slice/db.service\n"),
            ("sys/fs/cgroup/system.slice/db.service/cgroup.procs", ""),
        ]);
        let means = Means::find(root.path(), 7).unwrap();
        means.lower(7).unwrap();
        assert_eq!(text(&root, "sys/fs/cgroup/system.slice/gatekeeper-low/cpu.weight"), "6");
        assert_eq!(text(&root, "sys/fs/cgroup/system.slice/gatekeeper-low/cgroup.procs"), "7");
        means.raise(7).unwrap();
        assert_eq!(text(&root, "sys/fs/cgroup/system.slice/db.service/cgroup.procs"), "7");
    }

    #[test]
    fn without_groups_it_takes_the_right_to_raise_and_else_says_what_is_missing() {
        let none = ("proc/mounts", "proc /proc proc rw 0 0\n");
        let (own, parent) = (("proc/7/status", "PPid:\t3\n"), ("proc/3/cgroup", "0::/\n"));
        let can = system(&[none, own, parent, ("proc/self/status", "CapEff:\t0000000000800000\n")]);
        assert_eq!(Means::find(can.path(), 7).unwrap(), Means::Nice);
        let cannot = system(&[none, own, parent, ("proc/self/status", "CapEff:\t00000000007fffff\n")]);
        let said = Means::find(cannot.path(), 7).unwrap_err().to_string();
        assert!(said.contains("no controller `cpu` is mounted") && said.contains("CAP_SYS_NICE"), "{said}");
        let ignored = system(&[("sys/kernel/sched_ext/state", "enabled\n")]);
        let said = Means::find(ignored.path(), 7).unwrap_err().to_string();
        assert!(said.contains("may not heed weights"), "{said}");
    }
    #[test]
    fn without_groups_a_process_is_nice_while_it_is_lowered() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let process = i32::try_from(child.id()).unwrap();
        let nice = || rustix::process::getpriority_process(Pid::from_raw(process)).unwrap();
        let before = nice();
        Means::Nice.lower(process).unwrap();
        assert_eq!(nice(), NICE);
        // Without the right to raise it nothing is lowered that way, as above.
        let raised = Means::Nice.raise(process);
        assert_eq!(raised.is_ok(), may_raise(Path::new("/")) || before == NICE);
        assert_eq!(nice(), if raised.is_ok() { 0 } else { NICE });
        child.kill().unwrap();
        child.wait().unwrap();
    }
}
