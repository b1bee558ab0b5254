//! The kernel's bands: the priority of a client's socket follows what remains of its response.
//!
//! That is the mechanism of *Web servers under overload* (TOIT 2006, section 3). The gate orders nothing; the
//! device's queueing discipline does, which `gatekeeper uplink setup` prepares. A packet gets the priority of
//! its socket when it leaves that, so bytes that still wait in the socket move with it.

use std::io;

use socket2::{Domain, SockRef, Socket, Type};
use tokio::net::TcpStream;

use super::disciplines::{Discipline, disciplines};

/// What a socket may hold that the kernel can't send yet: all of that moves with the last bytes.
const UNSENT_MAX: u32 = 16 * 1024;

/// Which queueing discipline keeps the bands apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KernelBands {
    /// `pfifo_fast`, which has three bands for everybody's priorities.
    PfifoFast,
    /// `prio` with five bands, which priorities from 2 to 6 name.
    Prio,
    /// Five classes of HTB, `1:10` to `1:14`. Only `CAP_NET_ADMIN` may set a priority that names a class.
    Htb,
}

impl KernelBands {
    /// The priorities of the five bands.
    const fn priorities(self) -> [u32; 5] {
        match self {
            Self::PfifoFast => [6, 6, 0, 0, 2],
            Self::Prio => [6, 5, 4, 3, 2],
            Self::Htb => [0x1_0010, 0x1_0011, 0x1_0012, 0x1_0013, 0x1_0014],
        }
    }

    /// Checks that this process may set the priorities.
    ///
    /// # Errors
    /// The kernel refuses one.
    pub fn examine(self) -> io::Result<()> {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
        self.priorities().into_iter().try_for_each(|priority| socket.set_priority(priority)).map_err(
            |error| {
                let hint = "give the gatekeeper CAP_NET_ADMIN, or take uplink = \"prio\" or \"pfifo_fast\"";
                io::Error::new(
                    error.kind(),
                    format!("the kernel refuses a socket's priority ({error}); {hint}"),
                )
            },
        )
    }

    /// The discipline that keeps the bands apart: its name, and the first part of its handle if that counts.
    const fn discipline(self) -> (&'static str, Option<u16>) {
        match self {
            Self::PfifoFast => ("pfifo_fast", None),
            Self::Prio => ("prio", None),
            // The priorities name classes of this one.
            Self::Htb => ("htb", Some(1)),
        }
    }

    /// What is missing on this machine, and what to do, if no device keeps the bands apart. Another one that
    /// the packets reach later may.
    pub fn unprepared(self) -> Option<String> {
        // A kernel that tells nothing is no reason to warn.
        self.missing_in(&disciplines().ok()?, Discipline::device)
    }

    fn missing_in(self, all: &[Discipline], device: fn(&Discipline) -> String) -> Option<String> {
        let (kind, major) = self.discipline();
        let keeps = |one: &Discipline| one.kind == kind && major.is_none_or(|major| one.major == major);
        if all.iter().any(keeps) {
            return None;
        }
        let handle = major.map(|major| format!(" {major}:")).unwrap_or_default();
        let mut present: Vec<String> =
            all.iter().map(|one| format!("{} has {}", device(one), one.kind)).collect();
        present.dedup();
        let present = if present.is_empty() { "none has any".to_owned() } else { present.join(", ") };
        Some(format!(
            "no network device has the queueing discipline {kind}{handle} ({present}), so responses leave in one \
             order; make it with `gatekeeper uplink setup --dev DEVICE --rate RATE --bands {kind} --apply`, or \
             take uplink = \"auto\""
        ))
    }

    /// Bounds what a socket holds unsent. Where the kernel knows no bound, more bytes overtake than should.
    pub(super) fn prepare(socket: &TcpStream) {
        let _ = SockRef::from(socket).set_tcp_notsent_lowat(UNSENT_MAX);
    }

    /// Moves a socket to the band of the bytes that it gets next: streams of HTTP/2 share it.
    pub(super) fn follow(self, socket: &TcpStream, band: u64) {
        let at = usize::try_from(band).map_or(4, |band| band.min(4));
        // `examine` has shown that it may; a socket that is gone needs no band.
        let _ = SockRef::from(socket).set_priority(self.priorities()[at]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_discipline_that_no_device_has_is_named_with_those_that_are_there() {
        let is = |kind: &str, major| Discipline::of(1, major, kind);
        let missing = |bands: KernelBands, all: &[Discipline]| bands.missing_in(all, |_| "eth0".to_owned());
        let there = [is("pfifo_fast", 0), is("htb", 1)];
        assert_eq!(missing(KernelBands::PfifoFast, &there), None);
        assert_eq!(missing(KernelBands::Htb, &there), None);
        let told = missing(KernelBands::Htb, &[is("pfifo_fast", 0), is("htb", 2)]).unwrap();
        assert!(told.contains("discipline htb 1: (eth0 has pfifo_fast, eth0 has htb)"), "{told}");
        assert!(told.contains("--bands htb --apply"), "{told}");
        let told = missing(KernelBands::Prio, &[]).unwrap();
        assert!(told.contains("discipline prio (none has any)"), "{told}");
    }
}
