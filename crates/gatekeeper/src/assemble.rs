//! From a checked configuration to gates that run.

use std::hash::{BuildHasher as _, RandomState};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use admission::{Order, Policy};
use config::{Connections, LongLimit, Mode, Service, World};
use proxy::admin::{Admin, GateView, Token};
use proxy::command::Commands;
use proxy::gate::Driver;
use proxy::shutdown::Shutdown;
use proxy::trace::{Full, Header, Recording, TraceFile};
use proxy::{Door, Listener};
use tokio::task::JoinSet;

use crate::Failure;
use crate::activation::Activated;
use crate::handover::{Estate, Inheritance, Listening};
use crate::state::{self, StateFile};

mod console;
mod http;
mod mysql;
mod postgres;

pub(crate) use http::{group, page};
pub(crate) use mysql::{asked as mysql_asked, users as mysql_users};
pub(crate) use postgres::authentication;

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
    /// Has the gate follow another configuration, for the same protocol: that never changes in a running
    /// process.
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

    /// A gate on a socket that the gatekeeper before this one has opened.
    fn on(socket: OwnedFd, told: Told, driver: Arc<Driver>, phase: Shutdown) -> Result<Self, String> {
        let (address, keepalive) = match &told {
            Told::Postgres(settings) => (&settings.listen, settings.keepalive),
            Told::Mysql(settings) => (&settings.listen, settings.keepalive),
            Told::Http(settings) => (&settings.listen, settings.keepalive),
        };
        let listener = Listener::adopt(socket, address, keepalive)
            .map_err(|error| format!("cannot take {address} over: {error}"))?;
        Ok(match told {
            Told::Postgres(settings) => {
                Self::Postgres(proxy::postgres::Bound::on(listener, settings, driver, phase))
            }
            Told::Mysql(settings) => Self::Mysql(proxy::mysql::Bound::on(listener, settings, driver, phase)),
            Told::Http(settings) => Self::Http(proxy::http::Bound::on(listener, settings, driver, phase)),
        })
    }

    /// Looks for what would keep it from serving, while another gatekeeper still does.
    async fn probe(&self) -> Result<(), String> {
        match self {
            Self::Postgres(bound) => bound.probe().await.map_err(|error| error.to_string()),
            Self::Mysql(_) | Self::Http(_) => Ok(()),
        }
    }

    fn door(&self) -> Door {
        match self {
            Self::Postgres(bound) => bound.door(),
            Self::Mysql(bound) => bound.door(),
            Self::Http(bound) => bound.door(),
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

/// All gates, which listen and don't serve yet, with what belongs to them.
#[derive(Default)]
pub(crate) struct Gates {
    bound: Vec<Bound>,
    pub(crate) running: Vec<Running>,
    pub(crate) files: Vec<StateFile>,
    pub(crate) recordings: Vec<Recording>,
    /// What a successor gets of them.
    pub(crate) estate: Estate,
}

/// What a gate is started with.
pub(crate) struct Start<'a> {
    pub(crate) admin: &'a Admin,
    pub(crate) phase: &'a Shutdown,
    pub(crate) commands: &'a Commands,
    /// What the gatekeeper before this one has given.
    pub(crate) inheritance: Option<&'a mut Inheritance>,
    /// What the service manager has given.
    pub(crate) activated: &'a mut Activated,
}

impl Gates {
    /// Has all gates listen.
    pub(crate) async fn start(world: &World, mut start: Start<'_>) -> Result<Self, Failure> {
        let mut gates = Self::default();
        for gate in &world.gates {
            gates.add(gate, &mut start).await?;
        }
        Ok(gates)
    }

    async fn add(&mut self, gate: &config::Gate, start: &mut Start<'_>) -> Result<(), Failure> {
        let named = |error: String| Failure::Runtime(format!("gate {:?}: {error}", gate.name));
        let told = told(gate, start.commands)
            .map_err(|error| Failure::Usage(format!("gate {:?}: {error}", gate.name)))?;
        let (policy, seed) = (policy(gate), RandomState::new().hash_one(&gate.name));
        let driver = match gate.mode {
            Mode::Enforce => Driver::new(&gate.name, policy, seed),
            Mode::Observe => Driver::observing(&gate.name, policy, seed),
        };
        let (configured, kept, phase) = (gate.listen.to_string(), Arc::clone(&driver), start.phase.clone());
        let (socket, learned) = match &mut start.inheritance {
            Some(inheritance) => (inheritance.socket(&configured), inheritance.learned(&gate.name)),
            None => (None, None),
        };
        let bound = match socket.or_else(|| start.activated.socket(&configured)) {
            Some(socket) => Bound::on(socket, told, driver, phase),
            None => Bound::new(told, driver, phase).await,
        };
        let bound = bound.map_err(|error| named(state::why_not_listening(&gate.listen, error)))?;
        announce(gate, &bound);
        if let Some(inheritance) = &start.inheritance {
            bound.probe().await.map_err(named)?;
            if let Bound::Postgres(bound) = &bound {
                bound.status().pass_cancels_on(inheritance.cancels_of(&gate.name));
            }
        }
        // Only now, since a second gatekeeper that finds the address in use has no business with the first
        // one's file.
        let recording = start_trace(gate, &kept).map_err(|error| {
            let Some(path) = gate.trace.file.as_deref() else { return named(format!("trace: {error}")) };
            let why = state::can_be_made_in(path).err().unwrap_or_else(|| error.to_string());
            named(format!("trace_file: {}: {why}", path.display()))
        })?;
        self.recordings.extend(recording);
        self.files.extend(gate.state_file.as_ref().map(|path| match &learned {
            Some(_) => StateFile::unread(path.clone(), Arc::clone(&kept)),
            None => StateFile::open(path.clone(), Arc::clone(&kept)),
        }));
        if let Some((learned, labels)) = learned {
            kept.recall(&learned, &labels);
        }
        let (status, listening) = (bound.status(), Listening::Gate(bound.door()));
        start.admin.add_gate(status.view());
        self.estate.sockets.push((configured, bound.address().to_string(), listening));
        self.estate.drivers.push(kept);
        if let Status::Postgres(status) = &status {
            self.estate.postgres.insert(gate.name.clone(), status.clone());
        }
        self.running.push(Running { status, commands: start.commands.clone() });
        self.bound.push(bound);
        Ok(())
    }

    /// Serves clients.
    pub(crate) fn serve(&mut self) -> JoinSet<Result<(), String>> {
        self.bound.drain(..).map(Bound::run).collect()
    }
}

/// The token of the admin listener, if it has one.
pub(crate) fn token(admin: &config::Admin) -> Result<Option<Token>, String> {
    let path = admin.token_file.as_ref();
    path.map(|path| Token::load(path)).transpose().map_err(|error| format!("admin: token_file: {error}"))
}

/// Writes down what the gate is asked and does, if that is wanted, or if it only observes.
fn start_trace(gate: &config::Gate, driver: &Arc<Driver>) -> std::io::Result<Option<Recording>> {
    if gate.trace.file.is_none() && gate.mode == Mode::Enforce {
        return Ok(None);
    }
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
    let file = gate.trace.file.as_ref().map(|path| {
        tracing::info!(gate = gate.name, trace = %path.display(), "each request is written down");
        let full = match gate.trace.full {
            config::TraceFull::Stop => Full::Stop,
            config::TraceFull::Rotate => Full::Rotate,
        };
        TraceFile { path: path.clone(), bytes_max: u64::from(gate.trace.megabytes_max) << 20, full }
    });
    proxy::trace::record(driver, header, file).map(Some)
}

/// A world of one gate, without what belongs to the process.
fn alone(gate: &config::Gate) -> World {
    World {
        admin: config::Admin::default(),
        log: config::Log { format: config::LogFormat::Text, level: config::LogLevel::Info },
        handover_timeout: Duration::ZERO,
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
        queue_timeout_seconds = policy.queue_timeout.as_secs_f64(),
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

fn tenant(by: &config::TenantBy) -> proxy::TenantBy {
    match by {
        config::TenantBy::Network => proxy::TenantBy::Network,
        config::TenantBy::User => proxy::TenantBy::User,
        config::TenantBy::Header(name) => proxy::TenantBy::Header(name.clone()),
    }
}

/// The rules of a gate for SQL.
fn sql_classes(gate: &config::Gate) -> Vec<proxy::SqlClassRule> {
    gate.classes
        .iter()
        .map(|class| proxy::SqlClassRule {
            name: class.name.clone(),
            users: class.users.clone(),
            databases: class.databases.clone(),
            applications: class.applications.clone(),
            networks: class.networks.iter().map(network).collect(),
            types: class.types.iter().filter_map(|name| proxy::request_type_named(name)).collect(),
            tags: class.tags.iter().map(|tag| (tag.key.clone(), tag.value.clone())).collect(),
            tenant: class.tenant.as_ref().map(tenant),
        })
        .collect()
}

fn keepalive(gate: &config::Gate) -> proxy::Keepalive {
    proxy::Keepalive { idle: gate.keepalive, ..proxy::Keepalive::default() }
}
