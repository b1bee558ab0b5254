//! The admin listener of the process.

use std::net::TcpListener as StdListener;
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::Path;
use std::sync::Arc;

use config::{SocketMode, World};
use proxy::admin::{Admin, AdminSocket, CapacityWords};
use tokio::net::TcpListener;

use crate::Failure;
use crate::activation::Activated;
use crate::assemble::token;
use crate::handover::{Estate, Inheritance, Listening};
use crate::state::can_be_made_in;

/// The sockets of the admin listener, which answer nobody yet.
pub(super) struct Listeners {
    /// Each with the address that the configuration names.
    socket: Option<(String, AdminSocket)>,
    network: Option<(String, TcpListener)>,
}

impl Listeners {
    /// Listens.
    pub(super) async fn open(
        world: &World,
        admin: &Arc<Admin>,
        (mut inheritance, activated): (Option<&mut Inheritance>, &mut Activated),
    ) -> Result<Self, Failure> {
        admin.allow_changes(CapacityWords { read: config::capacity, write: config::capacity_text });
        let listens_as = world.admin.listen.as_ref().and_then(|address| match address {
            config::Address::Inet { host, .. } => Some(host.clone()),
            config::Address::Unix(_) => None,
        });
        admin.set_types_shown(world.admin.metrics_types_max as usize);
        admin.answer_for(world.admin.names.iter().cloned().chain(listens_as));
        admin.set_token(token(&world.admin).map_err(Failure::Usage)?);
        let mut inherited = |address: &str| inheritance.as_mut().and_then(|given| given.socket(address));
        let failed = |address: &str, error: std::io::Error| {
            let remedy = proxy::remedy(&error);
            Failure::Runtime(format!("cannot serve the admin listener on {address}: {error}{remedy}"))
        };
        let mut listeners = Self { socket: None, network: None };
        if let Some(path) = &world.admin.socket {
            let address = path.display().to_string();
            let socket = open_socket(path, world.admin.socket_mode, inherited(&address)).await;
            let socket = socket.map_err(|error| match can_be_made_in(path) {
                Ok(()) => failed(&address, error),
                Err(why) => Failure::Runtime(format!("cannot serve the admin listener on {address}: {why}")),
            })?;
            tracing::info!(socket = address, "admin listener, for changes too");
            listeners.socket = Some((address, socket));
        }
        if let Some(address) = &world.admin.listen {
            let address = address.to_string();
            let listener =
                open_network(&address, inherited(&address).or_else(|| activated.socket(&address))).await;
            let (real, listener) = listener.map_err(|error| failed(&address, error))?;
            if !real.ip().is_loopback() {
                tracing::warn!(listen = %real, "the admin listener can be reached from other machines, and asks for no password to look");
            }
            tracing::info!(listen = %real, "admin listener");
            listeners.network = Some((address, listener));
        }
        Ok(listeners)
    }

    /// A successor gets them.
    pub(super) fn leave_to(&self, estate: &mut Estate) {
        let socket = self.socket.as_ref().map(|(address, socket)| (address, socket.descriptor()));
        let network =
            self.network.as_ref().map(|(address, listener)| (address, listener.as_fd().try_clone_to_owned()));
        for (address, socket) in socket.into_iter().chain(network) {
            match socket {
                Ok(socket) => {
                    estate.sockets.push((address.clone(), address.clone(), Listening::Admin(socket)));
                }
                Err(error) => tracing::warn!(address, %error, "a successor can't have this socket"),
            }
        }
    }

    /// Answers.
    pub(super) fn serve(self, admin: &Arc<Admin>) {
        if self.socket.is_some() || self.network.is_some() {
            tokio::spawn(proxy::admin::watch(Arc::clone(admin)));
        }
        if let Some((_, socket)) = self.socket {
            tokio::spawn(socket.serve(Arc::clone(admin)));
        }
        if let Some((_, listener)) = self.network {
            tokio::spawn(proxy::admin::serve(listener, Arc::clone(admin)));
        }
    }
}

async fn open_socket(
    path: &Path,
    mode: SocketMode,
    inherited: Option<OwnedFd>,
) -> std::io::Result<AdminSocket> {
    let mode = match mode {
        SocketMode::Owner => 0o600,
        SocketMode::Group => 0o660,
    };
    match inherited {
        Some(socket) => AdminSocket::adopt(socket, path),
        None => AdminSocket::bind(path, mode).await,
    }
}

async fn open_network(
    address: &str,
    inherited: Option<OwnedFd>,
) -> std::io::Result<(std::net::SocketAddr, TcpListener)> {
    let listener = match inherited {
        Some(socket) => TcpListener::from_std(StdListener::from(socket))?,
        None => TcpListener::bind(address).await?,
    };
    Ok((listener.local_addr()?, listener))
}
