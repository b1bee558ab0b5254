//! The gate for HTTP, in front of the application servers.
//!
//! ```text
//! socket ─► hyper ─► connection: check, classify ─► Gate ─► forward ─► endpoint ─► service
//!                                                    └──► reject
//! ```
//!
//! `connection` is a client's connection and its requests; `classify` (with `routes` and `path`) says what
//! type a request is (`key` the number of one by its name, `parameters` what tells requests of one path
//! apart), `class` whose; `forward` sends what is dispatched and passes the response on,
//! `flight` is what that holds meanwhile, `upload` what one does whose body is still coming; `reject` is
//! what the gate says by itself, `foreseen` what it says where it only watches, `origins` whose scripts may
//! read a refusal. `endpoint` and `service` are the service as it is reached, `driven` a connection to
//! it, `alarm` when something has taken for too long, `abandoned` what becomes of a request whose client
//! has left. `fields` (with `present`) and `sniffer` know what a proxy must not pass on, `socket` and
//! `body` carry bytes, `interim` what comes before a response, `word` asks whether a client still listens,
//! `preamble` is the PROXY protocol, `uplink` whose bytes go next, `files` what the gate
//! serves by itself. `record` is what is known of a request
//! for the log (`access`) and its trace (`span`).

mod abandoned;
mod access;
mod alarm;
mod body;
mod class;
mod classify;
mod connection;
mod driven;
mod endpoint;
mod fields;
mod files;
mod flight;
mod foreseen;
mod forward;
mod frames;
#[cfg(feature = "garbage")]
pub mod garbage;
mod head;
mod interim;
mod key;
mod origins;
mod own_fields;
mod parameters;
mod path;
mod preamble;
mod present;
mod record;
mod reject;
mod routes;
mod service;
mod siblings;
mod sniffer;
mod socket;
mod span;
mod state;
mod uplink;
mod upload;
mod view;
mod word;

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use admission::PoolId;
use tokio::time::timeout;

pub use access::AccessLog;
pub use class::ClassRule;
pub use classify::{TypeField, TypeRule};
pub use endpoint::Speaks;
pub use files::Files;
pub use key::request_type;
pub use path::rule_segments;
pub use service::HealthCheck;
pub use span::Traces;
pub use state::Settings;
pub use uplink::{KernelBands, UplinkRate, UplinkSettings};
pub use view::Status;

use connection::serve;
use fields::From;
use socket::{Shared, Socket};
use state::Gate;

use crate::gate::{Driver, Passing};
use crate::listener::{Backlog, Bounds, Door, Listener};
use crate::news;
use crate::shutdown::Shutdown;
use crate::stream::{Peer, Stream};
use crate::upstream::address::Address;

/// A gate that listens, and serves nobody yet.
#[derive(Debug)]
pub struct Bound {
    gate: Arc<Gate>,
    listener: Listener,
}

/// Why a gate can't begin.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The address can't be had.
    #[error("cannot listen on {address}: {source}{}", crate::listener::remedy(source))]
    Listen {
        /// Which.
        address: Address,
        /// What the system says.
        source: io::Error,
    },
    /// There is nothing to protect.
    #[error("no upstream")]
    NoUpstream,
}

impl Bound {
    /// Listens.
    ///
    /// # Errors
    /// The address can't be had.
    pub async fn new(
        settings: Settings,
        driver: Arc<Driver>,
        shutdown: Shutdown,
    ) -> Result<Self, StartError> {
        if settings.upstream.is_empty() {
            return Err(StartError::NoUpstream);
        }
        let listener = Listener::bind(&settings.listen, settings.keepalive)
            .await
            .map_err(|source| StartError::Listen { address: settings.listen.clone(), source })?;
        Ok(Self::on(listener, settings, driver, shutdown))
    }

    /// A gate on a socket that listens already. Its settings name an upstream.
    pub fn on(listener: Listener, settings: Settings, driver: Arc<Driver>, shutdown: Shutdown) -> Self {
        let shutdown = shutdown.part();
        // Any request can go over any connection, and there can be as many of those as requests in flight.
        driver.set_pool(PoolId::default(), u32::MAX);
        driver.pass_in_emergency(Passing::All);
        let gate = Gate::new(settings, driver, shutdown);
        let listener = listener.minding(Arc::clone(&gate.lateness));
        Self { gate, listener }
    }

    /// Its listening socket, for a successor.
    pub fn door(&self) -> Door {
        self.listener.door()
    }

    /// Where it listens, with the real port.
    pub fn address(&self) -> Address {
        self.listener.address()
    }

    /// What it shows of itself.
    pub fn status(&self) -> Status {
        Status::new(Arc::clone(&self.gate), self.address())
    }

    /// Serves until the gate ends.
    pub async fn run(self) {
        let Self { gate, listener } = self;
        // What was kept of an earlier run was told to the driver since it exists.
        gate.classifier.recall(&gate.driver.learned().1);
        let bounds = || {
            let told = gate.told();
            Bounds {
                sockets_max: told.settings.max_clients,
                drain_timeout: told.settings.drain_timeout,
                backlog: Backlog::Served,
            }
        };
        let serving = listener.serve(bounds, &gate.shutdown, |stream| client(Arc::clone(&gate), stream));
        let timer = Arc::clone(&gate.driver).run_timer();
        let connected = || gate.counts.connected.load(Ordering::Relaxed);
        tokio::select! {
            () = serving => {}
            () = timer => {}
            () = gate.flights().look() => {}
            () = gate.classifier.look(&gate.driver) => {}
            () = gate.lateness.watch(gate.driver.name(), connected) => {}
            () = service::look(&gate) => {}
            () = Arc::clone(&gate.groups).run(&gate.driver, &gate.shutdown) => {}
            () = news::tell(&gate.driver, || gate.own_answers()) => {}
        }
        gate.groups.give_back();
        if let Some(traces) = &gate.told().settings.traces {
            traces.exporter.flush().await;
        }
    }
}

async fn client(gate: Arc<Gate>, stream: Stream) {
    gate.counts.connected.fetch_add(1, Ordering::Relaxed);
    let counted = Counted(Arc::clone(&gate));
    let peer = match stream.peer() {
        Peer::Inet(address) => Some(address.ip()),
        Peer::Unix => None,
    };
    let (mut shared, is_tcp) = match stream {
        Stream::Tcp(socket) => (Shared::Tcp(Arc::new(socket)), true),
        Stream::Unix(socket) => (Shared::Unix(Arc::new(socket)), false),
        Stream::Tls(_) => unreachable!("a listener doesn't shake hands"),
    };
    let mut address = peer;
    let told = gate.told();
    let settings = &told.settings;
    if settings.proxy_protocol {
        match timeout(settings.header_timeout, preamble::read(&mut shared)).await {
            Ok(Ok(said)) => address = said.or(peer),
            Ok(Err(error)) => return tracing::debug!(gate = gate.driver.name(), %error, "closed"),
            Err(_) => return,
        }
    }
    let stall_max = settings.body_timeout;
    let tls = settings.tls.clone().filter(|_| is_tcp);
    let encrypted = tls.is_some();
    let (socket, watched) = match tls {
        None => Socket::plain(shared, stall_max, Arc::clone(&gate.lateness)),
        Some(tls) => match timeout(settings.header_timeout, tls.handshake(shared)).await {
            Ok(Ok(stream)) => Socket::tls(stream, stall_max, Arc::clone(&gate.lateness)),
            Ok(Err(error)) => {
                return tracing::debug!(gate = gate.driver.name(), %error, "a TLS handshake failed");
            }
            Err(_) => return,
        },
    };
    let from = From::new(address, encrypted, told.trusts(address));
    drop(told);
    serve(gate, socket, watched, from).await;
    drop(counted);
}

/// Counts a client for as long as it is there.
struct Counted(Arc<Gate>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.counts.connected.fetch_sub(1, Ordering::Relaxed);
    }
}
