//! Where a connection comes from, as far as fairness is concerned.
//!
//! IPv6 addresses count by their /64, the smallest network that is given to one customer. All processes on
//! this machine that come by a Unix socket are one.

use std::net::{IpAddr, Ipv6Addr};

use crate::stream::Peer;

/// Where a connection comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Source {
    /// The gate itself.
    Gate,
    Unix,
    Network(IpAddr),
}

impl From<Peer> for Source {
    fn from(peer: Peer) -> Self {
        match peer {
            Peer::Unix => Self::Unix,
            Peer::Inet(address) => Self::Network(match address.ip().to_canonical() {
                IpAddr::V6(ip) => {
                    let [a, b, c, d, ..] = ip.segments();
                    IpAddr::V6(Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0))
                }
                v4 => v4,
            }),
        }
    }
}
