//! How much memory clients' messages may take: as configured, or by the memory that the process may use.
//!
//! That is the machine's, or the least limit of the control groups (version 2) that the process is in.

use std::fs;
use std::path::Path;
use std::time::Duration;

use config::World;
use tokio::task::spawn_blocking;
use tokio::time::sleep;

/// The part of the memory that messages may take, where nothing is configured.
const SHARE: u64 = 8;
/// The least and the most that it comes to.
const RANGE: (u64, u64) = (64 << 20, 1 << 30);

/// How long after messages have ended their memory is given back: others may end at about the same time.
const PAUSE: Duration = Duration::from_millis(500);

/// Gives memory back to the system whenever messages take much less than before, for as long as the process
/// lives.
pub(crate) async fn give_back() {
    loop {
        proxy::memory::fallen().await;
        sleep(PAUSE).await;
        if let Err(error) = spawn_blocking(allocator::give_back).await {
            tracing::error!(%error, "memory could not be given back");
        }
    }
}

/// The limit of the budget, in bytes.
pub(crate) fn limit(world: &World) -> usize {
    let bytes = match world.memory_max {
        Some(megabytes) => u64::from(megabytes) << 20,
        None => {
            let available = available(Path::new("/"));
            if available.is_none() {
                tracing::warn!(
                    limit = share(None),
                    "neither /proc/meminfo nor a control group says how much memory there is, and clients' \
                     messages get the least that memory_max = \"auto\" gives: set memory_max, or let the \
                     process read /proc/meminfo (a systemd unit hides it with ProcSubset=pid)"
                );
            }
            share(available)
        }
    };
    usize::try_from(bytes).unwrap_or(usize::MAX)
}

fn share(available: Option<u64>) -> u64 {
    let (least, most) = RANGE;
    (available.unwrap_or(0) / SHARE).clamp(least, most)
}

/// The bytes that the process may use, as far as the files below `root` tell.
fn available(root: &Path) -> Option<u64> {
    let read = |path: &str| fs::read_to_string(root.join(path)).ok();
    let machine = read("proc/meminfo").and_then(|text| {
        let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
        line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok().map(|kibibytes| kibibytes << 10)
    });
    let group = read("proc/self/cgroup").and_then(|text| {
        let path = text.lines().find_map(|line| line.strip_prefix("0::/"))?;
        // A group has no more than those that it is in.
        let groups = Path::new(path).ancestors();
        let limits = groups.map(|group| root.join("sys/fs/cgroup").join(group).join("memory.max"));
        limits.filter_map(|file| fs::read_to_string(file).ok()?.trim().parse().ok()).min()
    });
    machine.into_iter().chain(group).min()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_eighth_of_the_least_limit_is_taken_within_bounds() {
        let root = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        assert_eq!((available(root.path()), share(None)), (None, 64 << 20));
        write("proc/meminfo", "MemTotal:       16777216 kB\nMemFree:         9 kB\n");
        assert_eq!(available(root.path()), Some(16 << 30));
        write("proc/self/cgroup", "0::/system.slice/gatekeeper.service\n");
        write("sys/fs/cgroup/system.slice/gatekeeper.service/memory.max", "max\n");
        assert_eq!(available(root.path()), Some(16 << 30));
        write("sys/fs/cgroup/system.slice/memory.max", "2147483648\n");
        assert_eq!(available(root.path()), Some(2 << 30));
        assert_eq!(share(available(root.path())), 256 << 20);
        assert_eq!((share(Some(1 << 40)), share(Some(1 << 20))), (1 << 30, 64 << 20));
    }
}
