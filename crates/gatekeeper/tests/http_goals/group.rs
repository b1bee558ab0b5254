//! A real control group of this machine.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// A group with a weight; it goes when this is dropped.
pub(crate) struct Group {
    path: String,
    at: PathBuf,
    /// In version 1 the group of its accounting, where that is mounted by itself.
    accounts: Option<PathBuf>,
    file: &'static str,
}

impl Group {
    /// Makes a group. `None`: only root can, so the test is skipped.
    pub(crate) fn make(name: &str) -> Option<Self> {
        if !rustix::process::geteuid().is_root() {
            println!("skipped: only root can make control groups");
            return None;
        }
        Some(Self::made(name).expect("root can make a control group with the controller `cpu`"))
    }

    fn made(name: &str) -> Option<Self> {
        let path = format!("/gatekeeper-test-{}-{name}", std::process::id());
        let below = |root: &Path| root.join(path.trim_start_matches('/'));
        let mounts = std::fs::read_to_string("/proc/mounts").ok()?;
        let mounted = |kind: &str, option: &str| {
            let mut mounts = mounts.lines().map(|line| line.split(' ').collect::<Vec<_>>());
            let found = mounts.find(|it| it[2] == kind && it[3].split(',').any(|one| one == option));
            found.map(|it| PathBuf::from(it[1]))
        };
        let (at, accounts, file) = match mounted("cgroup", "cpu") {
            Some(root) => (below(&root), mounted("cgroup", "cpuacct").map(|it| below(&it)), "cpu.shares"),
            None => (below(&mounted("cgroup2", "rw")?), None, "cpu.weight"),
        };
        let group = Self { path, at, accounts: accounts.filter(|it| !it.exists()), file };
        std::fs::create_dir(&group.at).ok()?;
        if let Some(accounts) = group.accounts.as_ref().filter(|it| !it.exists()) {
            std::fs::create_dir(accounts).ok()?;
        }
        group.at.join(file).exists().then_some(group)
    }

    /// The path that a configuration names.
    pub(crate) fn path(&self) -> &str {
        &self.path
    }

    /// Whether the kernel has such groups and this is one, which runs only where no other wants to.
    pub(crate) fn is_idle(&self) -> Option<bool> {
        std::fs::read_to_string(self.at.join("cpu.idle")).ok().map(|text| text.trim() == "1")
    }

    /// The weight in force.
    pub(crate) fn weight(&self) -> u64 {
        let text = std::fs::read_to_string(self.at.join(self.file)).expect("a weight");
        text.trim().parse().expect("a number")
    }

    /// Has a process in it compute, with the least priority, until that is dropped.
    pub(crate) fn keep_busy(&self) -> Busy {
        let mut computing = Command::new("nice");
        let child = computing.args(["-n", "19", "yes"]).stdout(Stdio::null()).spawn().expect("it runs");
        for at in [Some(&self.at), self.accounts.as_ref()].into_iter().flatten() {
            std::fs::write(at.join("cgroup.procs"), child.id().to_string()).expect("it is moved");
        }
        Busy(child)
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir(&self.at);
        if let Some(accounts) = &self.accounts {
            let _ = std::fs::remove_dir(accounts);
        }
    }
}

/// A process that computes.
pub(crate) struct Busy(Child);

impl Drop for Busy {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
