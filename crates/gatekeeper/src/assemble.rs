//! From a checked configuration to a running process: gates, admin listener, signals.

use std::hash::{BuildHasher as _, RandomState};
use std::io;
use std::sync::Arc;

use admission::Order;
use config::{LongLimit, Mode, World};
use proxy::admin::Admin;
use proxy::gate::Driver;
use proxy::postgres::{self, Bound, Settings, StartError};
use proxy::shutdown::{Shutdown, Trigger, shutdown};
use tokio::net::TcpListener;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::task::JoinSet;

use crate::Failure;

/// Protects what the configuration says, until a signal or an error ends it.
///
/// The first SIGTERM or SIGINT drains: no new clients, and transactions may end within `drain_timeout`. The second cuts
/// them off.
pub(crate) async fn protect(world: World) -> Result<(), Failure> {
    let failed = |what: &str, error: &dyn std::fmt::Display| Failure::Runtime(format!("{what}: {error}"));
    let mut signals = Signals::new().map_err(|error| failed("cannot listen to signals", &error))?;
    let (trigger, phase) = shutdown();
    let admin = Admin::new(env!("CARGO_PKG_VERSION"));
    serve_admin(&world, &admin).await?;
    let mut gates = JoinSet::new();
    for gate in &world.gates {
        start_gate(gate, &admin, &phase, &mut gates).await?;
    }
    admin.set_ready();
    tracing::info!("ready");
    let mut result = Ok(());
    loop {
        tokio::select! {
            ended = gates.join_next() => match ended {
                None => return result,
                Some(Ok(Ok(()))) => {}
                Some(Ok(Err(error))) => result = stop_all(&trigger, error.to_string()),
                Some(Err(error)) => result = stop_all(&trigger, error.to_string()),
            },
            name = signals.next() => {
                admin.set_draining();
                if phase.phase() == proxy::shutdown::Phase::Running {
                    tracing::info!(signal = name, "draining: no new clients; a second signal ends at once");
                    trigger.drain();
                } else {
                    tracing::warn!(signal = name, "ending at once");
                    trigger.abort();
                }
            }
        }
    }
}

/// One gate failed, so all end: half of what was asked for isn't what was asked for.
fn stop_all(trigger: &Trigger, error: String) -> Result<(), Failure> {
    trigger.abort();
    Err(Failure::Runtime(error))
}

async fn serve_admin(world: &World, admin: &Arc<Admin>) -> Result<(), Failure> {
    let Some(address) = &world.admin.listen else { return Ok(()) };
    let bound = TcpListener::bind(address.to_string()).await;
    let listener = bound.and_then(|listener| Ok((listener.local_addr()?, listener)));
    let (real, listener) = listener.map_err(|error| {
        Failure::Runtime(format!("cannot serve the admin listener on {address}: {error}"))
    })?;
    if !real.ip().is_loopback() {
        tracing::warn!(listen = %real, "the admin listener can be reached from other machines, and asks nobody who they are");
    }
    tracing::info!(listen = %real, "admin listener");
    tokio::spawn(proxy::admin::serve(listener, Arc::clone(admin)));
    Ok(())
}

async fn start_gate(
    gate: &config::Gate,
    admin: &Admin,
    phase: &Shutdown,
    gates: &mut JoinSet<Result<(), StartError>>,
) -> Result<(), Failure> {
    let named = |error: String| Failure::Runtime(format!("gate {:?}: {error}", gate.name));
    let settings = settings(gate).map_err(|error| named(error.to_string()))?;
    let (policy, seed) = (gate.policy.clone(), RandomState::new().hash_one(&gate.name));
    let driver = match gate.mode {
        Mode::Enforce => Driver::new(&gate.name, policy, seed),
        Mode::Observe => Driver::observing(&gate.name, policy, seed),
    };
    let bound =
        Bound::new(settings, driver, phase.clone()).await.map_err(|error| named(error.to_string()))?;
    announce(gate, &bound);
    admin.add_gate(Arc::new(bound.status()));
    gates.spawn(bound.run());
    Ok(())
}

/// What is protected, where clients connect, and which limits are in force.
fn announce(gate: &config::Gate, bound: &Bound) {
    let policy = &gate.policy;
    let (name, upstream, listen) = (&gate.name, &gate.upstream, bound.address());
    match gate.mode {
        Mode::Enforce => {
            tracing::info!(gate = name, %listen, %upstream, "protecting");
        }
        Mode::Observe => {
            tracing::info!(gate = name, %listen, %upstream, "observing: nothing waits, nothing is refused");
        }
    }
    let capacity = policy.capacity.map_or("none".to_owned(), |work| format!("{} ms", work.as_millis_f64()));
    let long_limit = match gate.long_limit {
        LongLimit::AskServer => "the server's cores".to_owned(),
        LongLimit::Fixed(limit) => limit.to_string(),
        LongLimit::NoLane => "none".to_owned(),
    };
    tracing::info!(
        gate = name,
        connections = policy.connections,
        capacity,
        long_limit,
        order = match policy.order {
            Order::Fifo => "fifo",
            Order::ShortestFirst { .. } => "shortest-first",
        },
        queue_max = policy.queue_max,
        queue_timeout = ?policy.queue_timeout,
        max_clients = gate.max_clients,
        "limits"
    );
}

/// What the PostgreSQL gate is told beside the policy.
fn settings(gate: &config::Gate) -> Result<Settings, proxy::AddressError> {
    let keepalive = proxy::Keepalive { idle: gate.keepalive, ..proxy::Keepalive::default() };
    Ok(Settings {
        name: gate.name.clone(),
        listen: gate.listen.to_string().parse()?,
        upstream: gate.upstream.to_string().parse()?,
        pooling: match gate.pooling {
            config::Pooling::Transaction => postgres::Pooling::Transaction,
            config::Pooling::Session => postgres::Pooling::Session,
        },
        connections: gate.policy.connections,
        max_clients: gate.max_clients,
        logins_max: gate.logins_max,
        login_timeout: gate.login_timeout,
        connect_timeout: gate.connect_timeout,
        queue_timeout: gate.policy.queue_timeout,
        keepalive,
        allow_trust_relay: gate.allow_trust_relay,
        ask_cores: gate.long_limit == LongLimit::AskServer,
        on_disconnect: match gate.on_disconnect {
            config::OnDisconnect::Default => postgres::OnDisconnect::Auto,
            config::OnDisconnect::Cancel => postgres::OnDisconnect::Cancel,
            config::OnDisconnect::Finish => postgres::OnDisconnect::Finish,
        },
        drain_timeout: gate.drain_timeout,
        observe: gate.mode == Mode::Observe,
    })
}

/// The signals that end the process.
struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    fn new() -> io::Result<Self> {
        let terminate = signal(SignalKind::terminate())?;
        Ok(Self { terminate, interrupt: signal(SignalKind::interrupt())? })
    }

    /// Waits for the next one, and names it.
    async fn next(&mut self) -> &'static str {
        tokio::select! {
            _ = self.terminate.recv() => "SIGTERM",
            _ = self.interrupt.recv() => "SIGINT",
        }
    }
}
