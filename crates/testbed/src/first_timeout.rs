//! Another first time-out of TCP than the kernel's second, on a [`Link`].
//!
//! Linux has no setting for it, but asks a program of BPF, if there is one. That belongs to a control group
//! of version 2, which needn't be mounted anywhere.

use std::net::{Ipv4Addr, SocketAddrV4};
use std::os::fd::{AsFd as _, OwnedFd};
use std::time::Duration;

use rustix::io::Errno;
use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags, fsconfig_create, fsmount, fsopen};
use rustix::net::{AddressFamily, SocketFlags, SocketType, connect, socket_with};

use crate::Error;
use crate::link::Link;

/// The addresses of links.
const NETWORK: (Ipv4Addr, Ipv4Addr) = (Ipv4Addr::new(10, 99, 0, 0), Ipv4Addr::new(255, 255, 255, 0));
/// Nobody is there.
const NOBODY: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(10, 99, 0, 3), 9);
/// How many jiffies are tried to learn how long one lasts.
const TRIED: u32 = 10_000;
/// Ticks of the times in `/proc/net/tcp`, in seconds.
const TICKS: f64 = 100.0;

/// A first time-out that counts for all connections of a link's network until this is dropped, and also until
/// this process is killed. Openings wait so long before they are sent again, and so do answers to them.
#[derive(Debug)]
pub struct FirstTimeout {
    _program: OwnedFd,
}

impl FirstTimeout {
    /// Sets it. Connections that exist keep theirs.
    ///
    /// # Errors
    /// If the kernel has neither BPF nor control groups of version 2, or this process may not use them.
    pub fn set(link: &Link, timeout: Duration) -> Result<Self, Error> {
        let tried = attach(TRIED)?;
        let ticks = first_wait(link)?;
        drop(tried);
        // The kernel counts in jiffies, and tells nobody how long they last.
        let jiffies = f64::from(TRIED) * timeout.as_secs_f64() * TICKS / f64::from(ticks.max(1));
        Ok(Self { _program: attach(jiffies.round().max(1.0) as u32)? })
    }
}

fn attach(jiffies: u32) -> Result<OwnedFd, Error> {
    let group =
        groups().map_err(|errno| failed("making a tree of control groups (version 2)", errno.into()))?;
    let program = sockops::set_first_timeout(group.as_fd(), NETWORK, jiffies);
    program.map_err(|error| failed("loading a program of BPF", error))
}

fn failed(doing: &str, error: std::io::Error) -> Error {
    Error::Unusable(format!(
        "setting TCP's first time-out: {doing}: {error} (it takes root, and a kernel with CONFIG_CGROUP_BPF)"
    ))
}

/// The root of all control groups, mounted nowhere.
fn groups() -> Result<OwnedFd, Errno> {
    let tree = fsopen("cgroup2", FsOpenFlags::FSOPEN_CLOEXEC)?;
    fsconfig_create(&tree)?;
    fsmount(&tree, FsMountFlags::FSMOUNT_CLOEXEC, MountAttrFlags::empty())
}

/// For how long an opening waits until it is sent again, in ticks.
fn first_wait(link: &Link) -> Result<u32, Error> {
    let (opening, table) = link.server().inside(|| {
        let opening = open(NOBODY).map_err(|errno| Error::io("opening a connection")(errno.into()))?;
        let path = "/proc/thread-self/net/tcp";
        let table = std::fs::read_to_string(path).map_err(Error::io(format!("reading {path}")))?;
        Ok((opening, table))
    })?;
    drop(opening);
    wait_in(&table).ok_or_else(|| Error::Unusable("the kernel doesn't tell for how long it waits".to_owned()))
}

/// Begins to open a connection.
fn open(to: SocketAddrV4) -> Result<OwnedFd, Errno> {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let socket = socket_with(AddressFamily::INET, SocketType::STREAM, flags, None)?;
    match connect(&socket, &to) {
        Ok(()) | Err(Errno::INPROGRESS) => Ok(socket),
        Err(errno) => Err(errno),
    }
}

/// The ticks until the timer of the one opening in a table.
fn wait_in(table: &str) -> Option<u32> {
    let opening = table.lines().skip(1).find_map(|line| {
        let columns: Vec<&str> = line.split_whitespace().collect();
        // SYN-SENT.
        (columns.get(3) == Some(&"02")).then(|| columns.get(5).copied().map(str::to_owned))?
    })?;
    u32::from_str_radix(opening.split_once(':')?.1, 16).ok()
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;
    use crate::link::{Properties, UPLINK};

    #[test]
    fn the_wait_of_an_opening_is_read() {
        let table = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt\n\
             0: 0100630A:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0\n\
             1: 0100630A:C001 0300630A:0009 02 00000001:00000000 01:00000032 00000000     0\n";
        assert_eq!(wait_in(table), Some(50));
        assert_eq!(wait_in("  sl  local_address\n"), None);
    }

    /// How long it takes until an opening to nobody is sent again.
    fn until_sent_again(link: &Link) -> Duration {
        let before = link.openings_again().unwrap();
        let opening = link.server().inside(|| Ok(open(NOBODY).unwrap())).unwrap();
        let began = Instant::now();
        while link.openings_again().unwrap() == before {
            assert!(began.elapsed() < Duration::from_secs(60), "it is never sent again");
            std::thread::sleep(Duration::from_millis(1));
        }
        drop(opening);
        began.elapsed()
    }

    #[test]
    fn an_opening_is_sent_again_after_the_time_that_was_set() {
        if !rustix::process::geteuid().is_root() {
            println!("skipped: only root can make network namespaces");
            return;
        }
        let link =
            Link::new(Properties { bits: 100_000_000, queue: 100, segment: 1_460, wan: None }).unwrap();
        // Packets for nobody leave, instead of waiting for the address of a device.
        let neighbor = format!("neigh add {} lladdr 02:00:00:00:00:09 dev {UPLINK}", NOBODY.ip());
        link.server().run("ip", &neighbor).unwrap();
        let half = Duration::from_millis(500);
        let set = match FirstTimeout::set(&link, half) {
            Ok(set) => set,
            Err(error) => {
                println!("skipped: {error}");
                return;
            }
        };
        let took = until_sent_again(&link);
        assert!(took >= half.mul_f64(0.9), "{took:?}");
        // A busy machine is late, but not by as much as the kernel's own second takes longer.
        assert_eq!(first_wait(&link).unwrap(), 50);
        drop(set);
        assert_eq!(first_wait(&link).unwrap(), 100);
        assert!(until_sent_again(&link) >= Duration::from_millis(900));
    }
}
