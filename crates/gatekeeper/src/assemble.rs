//! From a checked configuration to a running process: gates, admin listener, signals.

use std::hash::{BuildHasher as _, RandomState};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use admission::{ClassId, Order, Policy};
use config::{Connections, LongLimit, Mode, Service, SocketMode, World};
use parking_lot::Mutex;
use proxy::admin::{Admin, AdminSocket, CapacityWords, GateView, Timeline, Token};
use proxy::command::{Command, Commands};
use proxy::gate::Driver;
use proxy::shutdown::{Phase, Shutdown, Trigger, shutdown};
use proxy::trace::{Full, Header, Recording, TraceFile};
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use crate::log::SetLevel;
use crate::manager::Watchdog;
use crate::reload::Configuration;
use crate::signals::{Asked, Signals};
use crate::state::{self, StateFile};
use crate::{Failure, manager, memory};

mod console;
mod http;
mod mysql;
mod postgres;

pub(crate) use http::page;
pub(crate) use mysql::users as mysql_users;
pub(crate) use postgres::authentication;

/// How many commands of consoles may wait for the process; one more waits in its console.
const COMMANDS_MAX: usize = 8;

/// A gate that runs, as a reload and its state file know it.
pub(crate) struct Running {
    status: Status,
    pub(crate) commands: Commands,
}

/// What a gate is told beside the policy.
pub(crate) enum Told {
    Postgres(proxy::postgres::Settings),
    Mysql(proxy::mysql::Settings),
    Http(proxy::http::Settings),
}

/// A gate that runs.
enum Status {
    Postgres(proxy::postgres::Status),
    Mysql(proxy::mysql::Status),
    Http(proxy::http::Status),
}

/// A gate that listens, and serves nobody yet.
enum Bound {
    Postgres(proxy::postgres::Bound),
    Mysql(proxy::mysql::Bound),
    Http(proxy::http::Bound),
}

impl Running {
    /// Has it follow another configuration, for the same protocol: that never changes in a running process.
    pub(crate) fn reload(&self, told: Told, policy: Policy) {
        match (&self.status, told) {
            (Status::Postgres(status), Told::Postgres(settings)) => status.reload(settings, policy),
            (Status::Mysql(status), Told::Mysql(settings)) => status.reload(settings, policy),
            (Status::Http(status), Told::Http(settings)) => status.reload(settings, policy),
            (Status::Postgres(_) | Status::Mysql(_) | Status::Http(_), _) => {
                tracing::error!("a gate was told of another protocol, and stays as it is");
            }
        }
    }
}

impl Status {
    fn view(&self) -> Arc<dyn GateView> {
        match self {
            Self::Postgres(status) => Arc::new(status.clone()),
            Self::Mysql(status) => Arc::new(status.clone()),
            Self::Http(status) => Arc::new(status.clone()),
        }
    }
}

impl Bound {
    /// Listens.
    async fn new(told: Told, driver: Arc<Driver>, phase: Shutdown) -> Result<Self, String> {
        match told {
            Told::Postgres(settings) => {
                let bound = proxy::postgres::Bound::new(settings, driver, phase).await;
                bound.map(Self::Postgres).map_err(|error| error.to_string())
            }
            Told::Mysql(settings) => {
                let bound = proxy::mysql::Bound::new(settings, driver, phase).await;
                bound.map(Self::Mysql).map_err(|error| error.to_string())
            }
            Told::Http(settings) => {
                let bound = proxy::http::Bound::new(settings, driver, phase).await;
                bound.map(Self::Http).map_err(|error| error.to_string())
            }
        }
    }

    fn address(&self) -> proxy::Address {
        match self {
            Self::Postgres(bound) => bound.address(),
            Self::Mysql(bound) => bound.address(),
            Self::Http(bound) => bound.address(),
        }
    }

    fn status(&self) -> Status {
        match self {
            Self::Postgres(bound) => Status::Postgres(bound.status()),
            Self::Mysql(bound) => Status::Mysql(bound.status()),
            Self::Http(bound) => Status::Http(bound.status()),
        }
    }

    async fn run(self) -> Result<(), String> {
        match self {
            Self::Postgres(bound) => bound.run().await.map_err(|error| error.to_string()),
            Self::Mysql(bound) => {
                bound.run().await;
                Ok(())
            }
            Self::Http(bound) => {
                bound.run().await;
                Ok(())
            }
        }
    }
}

/// A gate that was started, with what belongs to it.
struct Started {
    gate: Running,
    file: Option<StateFile>,
    recording: Option<Recording>,
}

/// Protects what the configuration says, until a signal, a command or an error ends it. `source`: the file
/// that it is read from again.
///
/// The first SIGTERM or SIGINT drains: no new clients, and transactions may end within `drain_timeout`. The
/// second cuts them off. SIGHUP reloads.
pub(crate) async fn protect(
    world: World,
    source: Option<PathBuf>,
    (set_level, timeline): (SetLevel, Timeline),
) -> Result<(), Failure> {
    let failed = |what: &str, error: &dyn std::fmt::Display| Failure::Runtime(format!("{what}: {error}"));
    let mut signals = Signals::new().map_err(|error| failed("cannot listen to signals", &error))?;
    let (trigger, phase) = shutdown();
    let (commands, mut asked) = mpsc::channel(COMMANDS_MAX);
    let admin = Admin::new(env!("CARGO_PKG_VERSION"));
    admin.show_timeline(timeline);
    admin.take_commands(commands.clone());
    proxy::memory::set_limit(memory::limit(&world));
    tokio::spawn(memory::give_back());
    serve_admin(&world, &admin).await?;
    let mut gates = JoinSet::new();
    let (mut running, mut files, mut recordings) = (Vec::new(), Vec::new(), Vec::new());
    for gate in &world.gates {
        let started = start_gate(gate, &admin, &phase, &commands, &mut gates).await?;
        running.push(started.gate);
        files.extend(started.file);
        recordings.extend(started.recording);
    }
    let files = Arc::new(Mutex::new(files));
    let mut configuration = Configuration { world, source, set_level, admin: Arc::clone(&admin) };
    let ending = Ending { admin: &admin, trigger: &trigger, phase: &phase };
    admin.set_ready();
    manager::ready();
    tracing::info!("ready");
    let mut result = Ok(());
    let keeping = state::keep(&files);
    tokio::pin!(keeping);
    let mut watchdog = Watchdog::new();
    loop {
        tokio::select! {
            ended = gates.join_next() => match ended {
                None => break,
                Some(Ok(Ok(()))) => {}
                Some(Ok(Err(error))) => result = stop_all(&trigger, error),
                Some(Err(error)) => result = stop_all(&trigger, error.to_string()),
            },
            asked = signals.next() => match asked {
                Asked::End(name) => ending.go_on(name),
                // What is wrong is in the log.
                Asked::Reload => _ = configuration.reload(&running),
            },
            Some(command) = asked.recv() => match command {
                Command::Reload(answer) => _ = answer.send(configuration.reload(&running)),
                Command::Shutdown => ending.drain("SHUTDOWN"),
                Command::ShutdownNow => ending.abort("SHUTDOWN IMMEDIATE"),
            },
            () = &mut keeping => {}
            () = watchdog.beat() => {}
        }
    }
    state::write_all(&files).await;
    // All that happened has happened: what is still under way to the file gets there.
    recordings.into_iter().for_each(Recording::finish);
    result
}

/// The end of the process, step by step.
struct Ending<'a> {
    admin: &'a Admin,
    trigger: &'a Trigger,
    phase: &'a Shutdown,
}

impl Ending<'_> {
    /// The next step.
    fn go_on(&self, why: &str) {
        if self.phase.phase() == Phase::Running { self.drain(why) } else { self.abort(why) }
    }

    fn drain(&self, why: &str) {
        self.admin.set_draining();
        manager::stopping();
        tracing::info!(signal = why, "draining: no new clients; a second signal ends at once");
        self.trigger.drain();
    }

    fn abort(&self, why: &str) {
        self.admin.set_draining();
        manager::stopping();
        tracing::warn!(signal = why, "ending at once");
        self.trigger.abort();
    }
}

/// One gate failed, so all end: half of what was asked for isn't what was asked for.
fn stop_all(trigger: &Trigger, error: String) -> Result<(), Failure> {
    trigger.abort();
    Err(Failure::Runtime(error))
}

async fn serve_admin(world: &World, admin: &Arc<Admin>) -> Result<(), Failure> {
    admin.allow_changes(CapacityWords { read: config::capacity, write: config::capacity_text });
    let listens_as = world.admin.listen.as_ref().and_then(|address| match address {
        config::Address::Inet { host, .. } => Some(host.clone()),
        config::Address::Unix(_) => None,
    });
    admin.set_types_shown(world.admin.metrics_types_max as usize);
    admin.answer_for(world.admin.names.iter().cloned().chain(listens_as));
    admin.set_token(token(&world.admin).map_err(Failure::Usage)?);
    if let Some(path) = &world.admin.socket {
        let mode = match world.admin.socket_mode {
            SocketMode::Owner => 0o600,
            SocketMode::Group => 0o660,
        };
        let socket = AdminSocket::bind(path, mode).await.map_err(|error| {
            Failure::Runtime(format!("cannot serve the admin listener on {}: {error}", path.display()))
        })?;
        tracing::info!(socket = %path.display(), "admin listener, for changes too");
        tokio::spawn(socket.serve(Arc::clone(admin)));
    }
    if world.admin.socket.is_some() || world.admin.listen.is_some() {
        tokio::spawn(proxy::admin::watch(Arc::clone(admin)));
    }
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

/// The token of the admin listener, if it has one.
pub(crate) fn token(admin: &config::Admin) -> Result<Option<Token>, String> {
    let path = admin.token_file.as_ref();
    path.map(|path| Token::load(path)).transpose().map_err(|error| format!("admin: token_file: {error}"))
}

async fn start_gate(
    gate: &config::Gate,
    admin: &Admin,
    phase: &Shutdown,
    commands: &Commands,
    gates: &mut JoinSet<Result<(), String>>,
) -> Result<Started, Failure> {
    let named = |error: String| Failure::Runtime(format!("gate {:?}: {error}", gate.name));
    let settings =
        told(gate, commands).map_err(|error| Failure::Usage(format!("gate {:?}: {error}", gate.name)))?;
    let (policy, seed) = (policy(gate), RandomState::new().hash_one(&gate.name));
    let driver = match gate.mode {
        Mode::Enforce => Driver::new(&gate.name, policy, seed),
        Mode::Observe => Driver::observing(&gate.name, policy, seed),
    };
    let kept = Arc::clone(&driver);
    let bound = Bound::new(settings, driver, phase.clone()).await.map_err(named)?;
    announce(gate, &bound);
    // Only now, since a second gatekeeper that finds the address in use has no business with the first
    // one's file.
    let recording = start_trace(gate, &kept).map_err(|error| named(format!("trace_file: {error}")))?;
    let file = gate.state_file.as_ref().map(|path| StateFile::open(path.clone(), kept));
    let status = bound.status();
    admin.add_gate(status.view());
    gates.spawn(bound.run());
    Ok(Started { gate: Running { status, commands: commands.clone() }, file, recording })
}

/// Writes down what the gate is asked and does, if that is wanted.
fn start_trace(gate: &config::Gate, driver: &Arc<Driver>) -> std::io::Result<Option<Recording>> {
    let Some(path) = &gate.trace.file else { return Ok(None) };
    let of_gate = alone(gate);
    let header = Header {
        gatekeeper: env!("CARGO_PKG_VERSION").to_owned(),
        gate: gate.name.clone(),
        mode: match gate.mode {
            Mode::Enforce => "enforce".to_owned(),
            Mode::Observe => "observe".to_owned(),
        },
        configuration: config::effective(&of_gate),
        began_unix_seconds: SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs(),
    };
    let file = TraceFile {
        path: path.clone(),
        bytes_max: u64::from(gate.trace.megabytes_max) << 20,
        full: match gate.trace.full {
            config::TraceFull::Stop => Full::Stop,
            config::TraceFull::Rotate => Full::Rotate,
        },
    };
    tracing::info!(gate = gate.name, trace = %path.display(), "each request is written down");
    proxy::trace::record(driver, header, file).map(Some)
}

/// A world of one gate, without what belongs to the process.
fn alone(gate: &config::Gate) -> World {
    World {
        admin: config::Admin::default(),
        log: config::Log { format: config::LogFormat::Text, level: config::LogLevel::Info },
        memory_max: None,
        gates: vec![gate.clone()],
    }
}

/// What is protected, where clients connect, and which limits are in force.
fn announce(gate: &config::Gate, bound: &Bound) {
    let policy = &gate.policy;
    let (name, listen) = (&gate.name, bound.address());
    let upstream: Vec<String> = gate.upstream().iter().map(config::Address::to_string).collect();
    let upstream = upstream.join(", ");
    match gate.mode {
        Mode::Enforce => {
            tracing::info!(gate = name, %listen, %upstream, "protecting");
        }
        Mode::Observe => {
            tracing::info!(gate = name, %listen, %upstream, "observing: nothing waits, nothing is refused");
        }
    }
    let capacity = config::capacity_text(policy.capacity);
    let long_limit = match gate.long_limit {
        LongLimit::Auto => "auto".to_owned(),
        LongLimit::Fixed(limit) => limit.to_string(),
        LongLimit::NoLane => "none".to_owned(),
    };
    tracing::info!(
        gate = name,
        connections = policy.connections,
        finds_connections = matches!(gate.connections, Connections::Found { .. }),
        capacity,
        long_limit,
        order = match policy.order {
            Order::Fifo => "fifo",
            Order::ShortestFirst { .. } => "shortest-first",
        },
        queue_max = policy.queue_max,
        queue_timeout = ?policy.queue_timeout,
        rejection = config::rejection_name(&policy.rejection),
        types_with_targets = gate.own_targets.len(),
        classes = policy.classes.len().max(1),
        max_clients = gate.max_clients,
        "limits"
    );
}

/// What a gate is told beside the policy.
///
/// # Errors
/// A file that can't be used (it was looked at before, but may have changed since).
pub(crate) fn told(gate: &config::Gate, commands: &Commands) -> Result<Told, String> {
    match &gate.service {
        Service::Postgres(of_postgres) => postgres::told(gate, of_postgres, commands).map(Told::Postgres),
        Service::Mysql(of_mysql) => mysql::told(gate, of_mysql, commands).map(Told::Mysql),
        Service::Http(of_http) => http::told(gate, of_http).map(Told::Http),
    }
}

/// What the gate decides by: with the targets of types, whose names its protocol knows.
pub(crate) fn policy(gate: &config::Gate) -> Policy {
    match &gate.service {
        Service::Postgres(_) | Service::Mysql(_) => gate.policy_of(proxy::request_type_named),
        Service::Http(_) => gate.policy_of(|name| Some(proxy::http::request_type(name))),
    }
}

fn address(configured: &config::Address) -> proxy::Address {
    match configured {
        config::Address::Inet { host, port } => proxy::Address::inet(host, *port),
        config::Address::Unix(path) => proxy::Address::Unix(path.clone()),
    }
}

fn network(network: &config::Network) -> proxy::Network {
    proxy::Network { address: network.address, bits: network.bits }
}

/// The rules of a gate for SQL; a table without one says only the weight of the default class.
fn sql_classes(gate: &config::Gate) -> Vec<proxy::SqlClassRule> {
    let rules = gate.classes.iter().filter(|class| class.name != ClassId::DEFAULT_NAME);
    rules
        .map(|class| proxy::SqlClassRule {
            name: class.name.clone(),
            users: class.users.clone(),
            databases: class.databases.clone(),
            applications: class.applications.clone(),
            networks: class.networks.iter().map(network).collect(),
            types: class.types.iter().filter_map(|name| proxy::request_type_named(name)).collect(),
            tags: class.tags.iter().map(|tag| (tag.key.clone(), tag.value.clone())).collect(),
        })
        .collect()
}

fn keepalive(gate: &config::Gate) -> proxy::Keepalive {
    proxy::Keepalive { idle: gate.keepalive, ..proxy::Keepalive::default() }
}
