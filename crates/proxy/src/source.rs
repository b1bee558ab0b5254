//! Where a connection comes from, as far as fairness is concerned.
//!
//! IPv6 addresses count by their /64, the smallest network that is given to one customer. All processes on
//! this machine that come by a Unix socket are one.

use std::net::IpAddr;

use crate::network::home_of;
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
            Peer::Inet(address) => Self::Network(home_of(address.ip())),
        }
    }
}
