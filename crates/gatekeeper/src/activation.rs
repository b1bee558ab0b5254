//! The sockets that a service manager has opened for this process (`LISTEN_FDS`): a socket unit of systemd
//! holds the addresses, also while no gatekeeper runs, and clients wait there instead of being refused.

use std::net::{IpAddr, SocketAddr, TcpListener};
use std::os::fd::OwnedFd;

use listenfd::ListenFd;

/// The sockets that nobody has taken yet, with their addresses.
#[derive(Debug, Default)]
pub(crate) struct Activated(Vec<(SocketAddr, TcpListener)>);

impl Activated {
    /// What the environment names; nothing without a service manager that opens sockets.
    ///
    /// # Errors
    /// A socket that isn't one of TCP which listens.
    pub(crate) fn from_environment() -> Result<Self, String> {
        let mut given = ListenFd::from_env();
        let mut sockets = Vec::new();
        for number in 0..given.len() {
            let taken = given.take_tcp_listener(number).and_then(|socket| {
                let Some(socket) = socket else { return Ok(None) };
                // A copy of its own isn't inherited by the processes that this one starts.
                let socket = socket.try_clone()?;
                socket.set_nonblocking(true)?;
                Ok(Some((socket.local_addr()?, socket)))
            });
            sockets.extend(taken.map_err(|error| {
                format!(
                    "socket {} of the service manager (LISTEN_FDS) can't be used: {error}; its socket unit takes \
                     ListenStream= with an IP address and a port",
                    number + 1
                )
            })?);
        }
        Ok(Self(sockets))
    }

    /// The socket for an address of the configuration.
    pub(crate) fn socket(&mut self, configured: &str) -> Option<OwnedFd> {
        let found = self.0.iter().position(|(address, _)| is_for(*address, configured))?;
        let (address, socket) = self.0.swap_remove(found);
        tracing::info!(listen = configured, socket = %address, "the service manager has opened this socket");
        Some(socket.into())
    }

    /// Closes those that the configuration doesn't name.
    pub(crate) fn close(self) {
        for (address, _) in self.0 {
            tracing::warn!(
                socket = %address,
                "the service manager has opened a socket that no `listen` names, and nobody is served there"
            );
        }
    }
}

/// Whether a socket serves an address of the configuration. `ListenStream=6432` stands for all addresses.
fn is_for(socket: SocketAddr, configured: &str) -> bool {
    let Some((host, port)) = configured.rsplit_once(':') else { return false };
    let host = host.trim_start_matches('[').trim_end_matches(']');
    let is_there = match host.parse::<IpAddr>() {
        Ok(address) => socket.ip() == address || socket.ip().is_unspecified() && address.is_unspecified(),
        Err(_) => host == "localhost" && socket.ip().is_loopback(),
    };
    is_there && port.parse() == Ok(socket.port())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_socket_serves_the_address_that_it_listens_on() {
        let is_for = |socket: &str, configured| is_for(socket.parse().unwrap(), configured);
        assert!(is_for("127.0.0.1:6432", "127.0.0.1:6432") && is_for("127.0.0.1:6432", "localhost:6432"));
        assert!(is_for("[::]:6432", "0.0.0.0:6432") && is_for("[::1]:6432", "[::1]:6432"));
        assert!(!is_for("127.0.0.1:6432", "127.0.0.1:6433") && !is_for("0.0.0.0:6432", "127.0.0.1:6432"));
        assert!(!is_for("127.0.0.1:6432", "/run/gatekeeper/admin.sock"));
    }
}
