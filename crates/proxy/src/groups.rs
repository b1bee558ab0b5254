//! Control groups of service classes: the weights of their workers on this machine's processor follow the
//! classes' shares, and each group's own accounting is shown.
//!
//! **Formula.** weight = kernel's default · number of classes · share, within the kernel's bounds. Classes in
//! the background aren't counted: theirs are idle groups (`cpu.idle`), or have the least weight where there
//! is no such file. What a group had before has no part in that: a gate that was killed, or another gate,
//! leaves weights from which nobody should go on.
//!
//! **States.** A group is looked for at every tick, since its service may start after the gate and may start
//! again. The weight that it had is remembered, and is given back when the gate ends, or leaves its clients
//! to a successor, or when the key goes. A weight that somebody else writes meanwhile takes its place. A gate
//! that is killed gives nothing back.
//!
//! A group belongs to one gate at a time, or each would undo what the other writes: the one that has locked
//! its directory (flock). Any other only warns, since it may be the successor of the first, and is next.
//!
//! One lock guards all groups of a gate. It is held while their files are read and written, on a thread that
//! may block.

use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use admission::{ClassId, ClassSnapshot, Turns};
use parking_lot::Mutex;
use rustix::fs::{FlockOperation, flock};
use serde::{Deserialize, Serialize};

use crate::gate::Driver;
use crate::processor::{Controller, Version, ignores_weights};
use crate::shutdown::{Phase, Shutdown};

/// The weight that the kernel shows of an idle group.
const IDLE: u64 = 0;

/// The control group of a class, by the configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClassGroup {
    /// What the class is called.
    pub class: String,
    /// From the root of the hierarchy on.
    pub path: String,
}

impl ClassGroup {
    /// Looks whether the gate could weigh it.
    ///
    /// # Errors
    /// Why it can't, and what to do.
    pub fn examine(&self) -> Result<(), String> {
        Found::find(Path::new("/"), &self.path).map(|_| ())
    }
}

/// The control group of a class, in `/status`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "the names say it")]
pub struct ProcessorStatus {
    pub cgroup: String,
    /// Its weight in force: of 100 in version 2, of 1024 in version 1; 0: it is idle (`cpu.idle`).
    pub weight: Option<u64>,
    /// What its processes have used of the processor.
    pub used_seconds_total: Option<f64>,
    /// For how long any of its processes waited for the processor (version 2).
    pub waited_seconds_total: Option<f64>,
    /// Why it can't be adapted.
    pub problem: Option<String>,
}

/// The groups of a gate.
#[derive(Debug)]
pub(crate) struct Groups {
    root: PathBuf,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    groups: Vec<Group>,
    /// They are somebody else's from now on.
    is_over: bool,
}

#[derive(Debug)]
struct Group {
    told: ClassGroup,
    class: ClassId,
    /// Its directory, while this gate has locked it.
    locked: Option<File>,
    /// The weight that it had, and the one that was written last.
    written: Option<(u64, u64)>,
    status: ProcessorStatus,
}

impl Groups {
    /// Those of a gate on this machine.
    pub(crate) fn new(told: &[ClassGroup]) -> Self {
        let groups = Self { root: PathBuf::from("/"), state: Mutex::default() };
        groups.follow(told);
        groups
    }

    /// Others from now on. Those that are gone have their weight again.
    pub(crate) fn follow(&self, told: &[ClassGroup]) {
        let mut state = self.state.lock();
        let mut before = std::mem::take(&mut state.groups);
        for told in told {
            let known = before.iter().position(|group| group.told == *told);
            state.groups.push(known.map_or_else(|| Group::new(told), |at| before.swap_remove(at)));
        }
        before.iter_mut().for_each(|group| group.give_back(&self.root));
    }

    /// All have their weights again, and keep them.
    pub(crate) fn give_back(&self) {
        let mut state = self.state.lock();
        state.is_over = true;
        state.groups.iter_mut().for_each(|group| group.give_back(&self.root));
    }

    /// Weighs them at a tick: `times` says how many times the share of a class is an equal one.
    fn weigh(&self, gate: &str, times: impl Fn(ClassId) -> f64) {
        let mut state = self.state.lock();
        if !state.is_over {
            state.groups.iter_mut().for_each(|group| group.weigh(&self.root, gate, times(group.class)));
        }
    }

    /// What is known of the group of a class.
    pub(crate) fn status(&self, class: ClassId) -> Option<ProcessorStatus> {
        let state = self.state.lock();
        state.groups.iter().find(|group| group.class == class).map(|group| group.status.clone())
    }

    /// Has them follow the shares of a gate's classes until that ends.
    pub(crate) async fn run(self: Arc<Self>, driver: &Driver, shutdown: &Shutdown) {
        while shutdown.phase() == Phase::Running {
            let classes = driver.brief().classes;
            let (groups, name) = (Arc::clone(&self), driver.name().to_owned());
            let has_share = |it: &&ClassSnapshot| it.turns != Turns::Background;
            let shares = || classes.iter().filter(has_share).map(|it| it.weight.as_f64());
            let mean = shares().sum::<f64>() / shares().count() as f64;
            let times = move |class| match classes.iter().find(|it| it.class == class) {
                Some(it) if has_share(&it) => it.weight.as_f64() / mean,
                Some(_) => 0.0,
                None => 1.0,
            };
            let weighed = tokio::task::spawn_blocking(move || groups.weigh(&name, times)).await;
            if let Err(error) = weighed {
                tracing::error!(gate = driver.name(), %error, "the control groups of classes aren't adapted");
                break;
            }
            let tick = driver.policy().adaptation.tick;
            tokio::select! {
                () = tokio::time::sleep(tick) => {}
                () = shutdown.handed_over() => {}
            }
        }
        self.give_back();
        std::future::pending::<()>().await;
    }
}

impl Group {
    fn new(told: &ClassGroup) -> Self {
        let status = ProcessorStatus { cgroup: told.path.clone(), ..ProcessorStatus::default() };
        Self { told: told.clone(), class: ClassId::named(&told.class), locked: None, written: None, status }
    }

    fn weigh(&mut self, root: &Path, gate: &str, times: f64) {
        let done = Found::find(root, &self.told.path).and_then(|found| self.set(&found, gate, times));
        let (class, cgroup, before) = (&self.told.class, &self.told.path, self.status.problem.take());
        match done {
            Ok(status) => {
                if before.is_some() {
                    tracing::info!(gate, class, cgroup, "the class's control group is adapted from now on");
                }
                self.status = status;
            }
            Err(why) => {
                if before.as_ref() != Some(&why) {
                    tracing::warn!(gate, class, cgroup, "only the class's queue is adapted: {why}");
                }
                self.status = ProcessorStatus { problem: Some(why), ..Self::new(&self.told).status };
            }
        }
    }

    fn set(&mut self, found: &Found, gate: &str, times: f64) -> Result<ProcessorStatus, String> {
        self.lock(&found.at)?;
        let mut weight = found.weight;
        let former =
            self.written.filter(|(_, written)| *written == weight).map_or(weight, |(former, _)| former);
        let wanted = if times <= 0.0 && found.idle.is_some() { IDLE } else { found.version.weight(times) };
        if wanted != weight {
            found.write(wanted)?;
            let (class, cgroup, file) = (&self.told.class, &self.told.path, found.file_name());
            let said = |weight: u64| if weight == IDLE { "idle".to_owned() } else { weight.to_string() };
            let (from, to) = (said(weight), said(wanted));
            tracing::info!(gate, "class {class}: {file} of its control group {cgroup} {from} → {to}");
            self.written = Some((former, wanted));
            weight = wanted;
        }
        let seconds = |nanos: u64| nanos as f64 * 1e-9;
        Ok(ProcessorStatus {
            weight: Some(weight),
            used_seconds_total: found.used().map(seconds),
            waited_seconds_total: found.waited().map(seconds),
            ..Self::new(&self.told).status
        })
    }

    /// Has the group for this gate alone.
    fn lock(&mut self, at: &Path) -> Result<(), String> {
        let failed = |error: io::Error| format!("{}: it can't be locked ({error})", at.display());
        let here = at.metadata().map_err(failed)?;
        // A group that was made again is another directory.
        let is_here =
            |held: &File| held.metadata().is_ok_and(|it| (it.dev(), it.ino()) == (here.dev(), here.ino()));
        if self.locked.as_ref().is_some_and(is_here) {
            return Ok(());
        }
        self.unlock();
        let directory = File::open(at).map_err(failed)?;
        match flock(&directory, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => self.locked = Some(directory),
            Err(rustix::io::Errno::WOULDBLOCK) => {
                let what = "another gate sets this group's weight: leave `cgroup` to one of them, or have a group for each";
                return Err(format!("{}: {what}", at.display()));
            }
            Err(error) => return Err(failed(error.into())),
        }
        Ok(())
    }

    fn give_back(&mut self, root: &Path) {
        self.restore(root);
        self.unlock();
    }

    /// A process that this one is starting has the lock, too, until it runs its own program.
    fn unlock(&mut self) {
        if let Some(held) = self.locked.take() {
            let _ = flock(&held, FlockOperation::Unlock);
        }
    }

    fn restore(&mut self, root: &Path) {
        let Some((former, written)) = self.written.take() else { return };
        let given = Found::find(root, &self.told.path)
            .and_then(|found| if found.weight == written { found.write(former) } else { Ok(()) });
        let (class, cgroup) = (&self.told.class, &self.told.path);
        match given {
            Ok(()) => tracing::info!(class, cgroup, weight = former, "a control group has its weight again"),
            Err(why) => tracing::warn!(class, cgroup, "a control group keeps the weight {written}: {why}"),
        }
    }
}

impl Version {
    /// The weight of a group whose class's share is so many times an equal one.
    fn weight(self, times: f64) -> u64 {
        let (default, least, most) = match self {
            Self::V1 => (1_024.0, 2, 262_144),
            Self::V2 => (100.0, 1, 10_000),
        };
        ((default * times).round() as u64).clamp(least, most)
    }
}

/// A group that can be weighed.
struct Found {
    at: PathBuf,
    file: PathBuf,
    version: Version,
    weight: u64,
    /// The file that makes it idle, where there is one that the gate may write.
    idle: Option<PathBuf>,
    /// The file of what it has used, and nanoseconds for its unit.
    usage: Option<PathBuf>,
}

impl Found {
    fn find(root: &Path, path: &str) -> Result<Self, String> {
        if ignores_weights(root) {
            return Err(
                "a scheduler of sched_ext is loaded, which may not heed weights: unload it".to_owned()
            );
        }
        let mounts = std::fs::read_to_string(root.join("proc/mounts"))
            .map_err(|error| format!("/proc/mounts: {error}"))?;
        let controller = Controller::mounted(root, &mounts, "cpu")
            .ok_or("no controller `cpu` is mounted: mount control groups (cgroup2)")?;
        let path = path.trim_start_matches('/');
        let at = controller.at.join(path);
        if !at.is_dir() {
            let why = "there is no such control group: start its service, or write the path as /proc/PID/cgroup has it";
            return Err(format!("{}: {why}", at.display()));
        }
        let (file, usage) = match controller.version {
            Version::V1 => {
                let accounts = Controller::mounted(root, &mounts, "cpuacct").map(|it| it.at.join(path));
                (at.join("cpu.shares"), accounts.map(|at| at.join("cpuacct.usage")))
            }
            Version::V2 => (at.join("cpu.weight"), Some(at.join("cpu.stat"))),
        };
        let failed = |error: io::Error| {
            let what = match error.kind() {
                io::ErrorKind::NotFound => {
                    "the controller `cpu` isn't there: write +cpu to cgroup.subtree_control of the groups above \
                     (systemd: CPUWeight=)"
                }
                io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
                    "the gate may not write it: give its user the file (systemd: Delegate=cpu), or run it as root"
                }
                _ => "it can't be used",
            };
            format!("{}: {what} ({error})", file.display())
        };
        let text = std::fs::read_to_string(&file).map_err(failed)?;
        std::fs::OpenOptions::new().write(true).open(&file).map_err(failed)?;
        let weight =
            text.trim().parse().map_err(|_| format!("{}: {text:?} isn't a weight", file.display()))?;
        let idle = Some(at.join("cpu.idle")).filter(|it| File::options().write(true).open(it).is_ok());
        // Version 1 shows a weight of 3 then.
        let is_idle = idle.as_ref().and_then(|it| std::fs::read_to_string(it).ok());
        let weight = if is_idle.is_some_and(|text| text.trim() == "1") { IDLE } else { weight };
        Ok(Self { at, version: controller.version, weight, idle, usage, file })
    }

    fn write(&self, weight: u64) -> Result<(), String> {
        let put = |file: &Path, value: u64| {
            std::fs::write(file, value.to_string()).map_err(|error| format!("{}: {error}", file.display()))
        };
        match &self.idle {
            Some(idle) if weight == IDLE => return put(idle, 1),
            // The kernel refuses a weight for an idle group.
            Some(idle) if self.weight == IDLE => put(idle, 0)?,
            _ => {}
        }
        put(&self.file, weight)
    }

    fn file_name(&self) -> &'static str {
        match self.version {
            Version::V1 => "cpu.shares",
            Version::V2 => "cpu.weight",
        }
    }

    /// Nanoseconds of the processor.
    fn used(&self) -> Option<u64> {
        let text = std::fs::read_to_string(self.usage.as_ref()?).ok()?;
        match text.lines().find_map(|line| line.strip_prefix("usage_usec ")) {
            Some(micros) => Some(micros.trim().parse::<u64>().ok()?.saturating_mul(1_000)),
            None => text.trim().parse().ok(),
        }
    }

    /// Nanoseconds in which any of its processes waited for the processor.
    fn waited(&self) -> Option<u64> {
        let text = std::fs::read_to_string(self.at.join("cpu.pressure")).ok()?;
        let some = text.lines().find(|line| line.starts_with("some "))?;
        let micros = some.split(' ').find_map(|field| field.strip_prefix("total="))?;
        Some(micros.parse::<u64>().ok()?.saturating_mul(1_000))
    }
}

#[cfg(test)]
mod tests;
