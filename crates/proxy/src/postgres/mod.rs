//! The PostgreSQL gate: its settings, what its sessions share, and its assembly.
//!
//! ```text
//! listener ─► login ─► connection::serve ─► gate ─► pools ─► server
//!               └────────── cancel ─────────────────────────┘
//! ```

use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::BytesMut;
use parking_lot::RwLock;
use tokio::sync::OwnedSemaphorePermit;

use crate::console::{Console, VISITORS_MAX};
use crate::gate::Driver;
use crate::lateness::Lateness;
use crate::listener::{Backlog, Bounds, Door, Listener};
use crate::news;
use crate::quota::Quota;
use crate::shutdown::Shutdown;
use crate::sql::class::{SqlClassRule, SqlClasses};
use crate::sql::logins;
use crate::sql::stats::Stats;
use crate::stream::{Keepalive, Stream};
use crate::tls;
use crate::turns::Turns;
use crate::upstream::address::Address;
use crate::upstream::health::{Health, Named};
use crate::upstream::resolver::Lookup;
use pool::{Lease, Pools};

use auth::Authentication;
pub use cancel::Elsewhere;
pub use ceiling::{FOUND_CONNECTIONS_MAX, Finding};
pub use crowds::Shares;
use endpoint::Endpoint;
use parameters::Parameters;
pub use pool::PoolSnapshot;
use server::Server;
pub use weight::LongReads;

mod admit;
pub mod auth;
mod auth_query;
mod batch;
mod book;
pub(crate) mod cancel;
pub(crate) mod ceiling;
mod channel;
mod classify;
mod connection;
mod console;
mod cores;
mod crowds;
pub(crate) mod defaults;
mod described;
mod effect;
pub(crate) mod endpoint;
mod exchange;
mod extended;
mod fill;
mod forward;
#[cfg(feature = "garbage")]
#[doc(hidden)]
pub mod garbage;
mod gather;
mod leave;
mod login;
pub(crate) mod message;
pub(crate) mod parameters;
pub(crate) mod pins;
mod pool;
mod portals;
mod prepared;
mod processes;
mod query_error;
mod refusal;
mod reject;
mod reload;
mod replication;
mod restore;
mod roster;
pub(crate) mod server;
mod session;
pub(crate) mod settings;
mod state;
mod stuck;
mod transaction;
mod version;
mod view;
mod watch;
mod weight;

/// How often the pools look after their idle connections.
const MAINTENANCE_PERIOD: Duration = Duration::from_secs(1);

/// For how long a client keeps a server connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Pooling {
    /// For a transaction at a time: many clients share few connections.
    #[default]
    Transaction,
    /// For its whole session: nothing is shared, logins beyond the budget wait.
    Session,
}

/// What to do with a statement in progress whose client has gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum OnDisconnect {
    /// Finish what may change data for good (COMMIT, autocommit writes, anything after Terminate); cancel
    /// the rest.
    #[default]
    Auto,
    /// Always let it finish.
    Finish,
    /// Always cancel it.
    Cancel,
}

/// Everything that an operator chooses for one PostgreSQL gate, beside the admission policy.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The gate's name, in logs and metrics.
    pub name: String,
    /// Where clients connect. Default `127.0.0.1:6432`.
    pub listen: Address,
    /// Where the server is.
    pub upstream: Address,
    /// For how long a client keeps a server connection. Default: a transaction.
    pub pooling: Pooling,
    /// The most server connections, logins in progress aside. Default 20.
    pub connections: u32,
    /// Find the number of connections by asking the server, from `connections` on. Default no.
    pub finding: Option<Finding>,
    /// The most clients at once. Default 10 000.
    pub max_clients: u32,
    /// The most clients of one user, and of one database. Default: as many as of all.
    pub shares: Shares,
    /// How long a transaction may be idle with a server connection before its session ends. Default:
    /// without end.
    pub idle_transaction_timeout: Option<Duration>,
    /// After how long a wait a client hears of it in a notice. Default: it doesn't.
    pub wait_notice: Option<Duration>,
    /// The most logins at once, each with a fresh server connection beside `connections`. Default 16.
    pub logins_max: u32,
    /// The longest that a login may take, the client's own pauses included. Default 15 s.
    pub login_timeout: Duration,
    /// The longest that a client's message may take from its beginning to its end. Default 5 minutes.
    pub message_timeout: Duration,
    /// The longest that connecting to the server may take. Default 5 s.
    pub connect_timeout: Duration,
    /// Session mode: the longest that a login waits for its turn. Default 120 s.
    pub queue_timeout: Duration,
    /// TLS towards clients. Default none: an SSLRequest is declined.
    pub tls: Option<Arc<tls::Acceptor>>,
    /// TLS towards the server. Default none. Without meaning for a Unix socket.
    pub upstream_tls: Option<Arc<tls::Connector>>,
    /// How often the server's name is looked up while connections to it stand, and how long an answer is
    /// used. Zero: it is looked up for every connection, and connections stay where they are. Default 15 s.
    pub dns_ttl: Duration,
    /// What looks up the addresses of the server's name. Default: the system.
    pub lookup: Lookup,
    /// What is known of whether the server is there. A reload keeps it for the same server.
    pub health: Arc<Health>,
    /// TCP keepalive, on both sides.
    pub keepalive: Keepalive,
    /// Accept clients from other machines although the server asks nobody for a password. Default no: the
    /// server would trust all who reach the gate, because it only sees the gate's address.
    pub allow_trust_relay: bool,
    /// Ask the server for its number of cores at the first login. Default yes (no where `long_limit` is set).
    pub ask_cores: bool,
    /// Ask each fresh pooled connection for the defaults that its login was given. Default yes.
    pub ask_defaults: bool,
    /// Which units belong to which service class: the first rule that fits. Default: all to one class.
    pub classes: Vec<SqlClassRule>,
    /// How much of the processor long reads get, where the server is on this machine.
    pub long_reads: LongReads,
    /// What to do with a statement whose client has gone.
    pub on_disconnect: OnDisconnect,
    /// How long sessions may take to finish after the order to shut down. Default 30 s.
    pub drain_timeout: Duration,
    /// Which users may log in, and how they prove it. Default: the server decides.
    pub auth: Arc<Authentication>,
    /// Only watch: session mode without a budget; nothing waits and nothing is refused. Default no.
    pub observe: bool,
    /// The virtual database for operators.
    pub console: Console,
    /// How often server connections were asked to be replaced (by a new address, or by an operator): a
    /// fresh login brings one of the newest generation. Counted by the gate itself; what a reload says is
    /// ignored.
    pub generation: u64,
}

impl Settings {
    /// The defaults, for a gate in front of `upstream`.
    pub fn new(upstream: Address) -> Self {
        Self {
            name: "postgres".to_owned(),
            listen: Address::Inet { host: "127.0.0.1".to_owned(), port: 6432 },
            upstream,
            pooling: Pooling::default(),
            connections: 20,
            finding: None,
            max_clients: 10_000,
            shares: Shares::default(),
            idle_transaction_timeout: None,
            wait_notice: None,
            logins_max: 16,
            login_timeout: Duration::from_secs(15),
            message_timeout: Duration::from_secs(5 * 60),
            connect_timeout: Duration::from_secs(5),
            queue_timeout: Duration::from_secs(120),
            tls: None,
            upstream_tls: None,
            dns_ttl: Duration::from_secs(15),
            lookup: Lookup::default(),
            health: Arc::default(),
            keepalive: Keepalive::default(),
            allow_trust_relay: false,
            ask_cores: true,
            ask_defaults: true,
            classes: Vec::new(),
            long_reads: LongReads::default(),
            on_disconnect: OnDisconnect::default(),
            drain_timeout: Duration::from_secs(30),
            auth: Arc::default(),
            observe: false,
            console: Console::default(),
            generation: 0,
        }
    }

    /// The server, for the log.
    pub(crate) fn named(&self) -> Named<'_> {
        Named { gate: &self.name, address: &self.upstream }
    }

    /// Whether server connections are shared.
    pub(crate) fn shares_connections(&self) -> bool {
        self.pooling == Pooling::Transaction && !self.observe
    }
}

/// Why a gate could not start, or had to stop.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The address can't be listened on.
    #[error("cannot listen on {address}: {source}{}", crate::listener::remedy(source))]
    Listen {
        /// Which address.
        address: Address,
        /// The system's reason.
        source: io::Error,
    },
    /// The server trusts everybody, and clients may come from other machines.
    #[error(
        "the server at {upstream} lets logins in without a password, so a client that reaches {listen} could log in as \
         any user; have the server ask for passwords (scram-sha-256 in pg_hba.conf), listen on 127.0.0.1, or set \
         allow_trust_relay = true if only trusted machines can reach this port"
    )]
    TrustRelay {
        /// The server.
        upstream: Address,
        /// The listener.
        listen: Address,
    },
}

/// What all sessions of a gate share.
pub(crate) struct Shared {
    /// Swapped as a whole by a reload; a caller that does several things by them takes them once.
    settings: RwLock<Arc<Settings>>,
    /// The server, as the settings have it.
    endpoint: RwLock<Arc<Endpoint>>,
    /// What is told of users who don't exist: by the users file of the start, also after a reload.
    pub(crate) nobody: auth::KeyOfNobody,
    pub(crate) pools: Arc<Pools>,
    pub(crate) cancel: Arc<cancel::Registry>,
    pub(crate) statements: Arc<prepared::Registry>,
    pub(crate) pins: Arc<pins::PinCounts>,
    pub(crate) parameters: parameters::Common,
    pub(crate) driver: Arc<Driver>,
    pub(crate) classes: SqlClasses,
    pub(crate) lowering: weight::Lowering,
    pub(crate) shutdown: Shutdown,
    /// Asks the server for users.
    pub(crate) auth_query: auth_query::AuthQuery,
    /// Failed logins by address.
    pub(crate) failures: logins::Failures,
    /// The gate's own logins that refill pools.
    pub(crate) openings: fill::OpeningCounts,
    /// How logins ended.
    login_counts: logins::LoginCounts,
    /// What the log hears of failed ones.
    failed: logins::FailedLogins,
    /// Logins in progress.
    pub(crate) logins: Turns,
    /// Session mode: server connections, first come, first served.
    budget: Quota,
    /// Clients past their first message.
    clients: Quota,
    /// Visitors of the console.
    visitors: Quota,
    /// How many of each user and database are.
    crowds: crowds::Crowds,
    /// The sessions that are connected.
    roster: Arc<roster::Roster>,
    /// What each database was asked for.
    stats: Stats,
    /// How many connections the server has for the gate.
    pub(crate) ceiling: ceiling::Ceiling,
    /// What is known of the server's cores.
    cores: cores::Known,
    /// What is known of the server's version of the protocol.
    spoken: version::Spoken,
    /// Whether the gate keeps up with its own clients.
    pub(crate) lateness: Arc<Lateness>,
}

impl Shared {
    pub(crate) fn new(settings: Settings, driver: Arc<Driver>, shutdown: Shutdown) -> Self {
        let hook = Arc::clone(&driver);
        let changed = Box::new(move |pool, connections| hook.set_pool(pool, connections));
        let holder = Arc::clone(&driver);
        let hold_up = Box::new(move |pools| {
            holder.pause(pools);
        });
        let endpoint = Arc::new(Endpoint::new(&settings));
        let classes = SqlClasses::by(&settings.classes);
        driver.name_classes(classes.names());
        Self {
            pools: Arc::new(
                Pools::new(settings.connections, reload::waiting_max(settings.logins_max), changed)
                    .holding_up(hold_up),
            ),
            cancel: Arc::new(cancel::Registry::new(settings.max_clients as usize, Arc::clone(&endpoint))),
            statements: Arc::default(),
            pins: Arc::default(),
            parameters: parameters::Common::default(),
            lateness: Arc::new(Lateness::new(driver.clock())),
            driver,
            classes,
            lowering: weight::Lowering::default(),
            shutdown,
            auth_query: auth_query::AuthQuery::default(),
            failures: logins::Failures::default(),
            openings: fill::OpeningCounts::default(),
            login_counts: logins::LoginCounts::default(),
            failed: logins::FailedLogins::default(),
            logins: Turns::new(settings.logins_max),
            budget: Quota::new(settings.connections),
            clients: Quota::new(settings.max_clients),
            visitors: Quota::new(VISITORS_MAX),
            crowds: crowds::Crowds::default(),
            roster: Arc::default(),
            stats: Stats::default(),
            ceiling: ceiling::Ceiling::default(),
            cores: cores::Known::default(),
            spoken: version::Spoken::default(),
            endpoint: RwLock::new(endpoint),
            nobody: settings.auth.key_of_nobody(),
            settings: RwLock::new(Arc::new(settings)),
        }
    }

    /// The server as it is reached now.
    pub(crate) fn endpoint(&self) -> Arc<Endpoint> {
        Arc::clone(&self.endpoint.read())
    }

    /// The settings that hold now.
    pub(crate) fn settings(&self) -> Arc<Settings> {
        Arc::clone(&self.settings.read())
    }
}

/// A client that has logged in, ready for its first statement.
pub(crate) struct LoggedIn {
    pub(crate) client: Stream,
    /// What was read from the client behind its login and not yet looked at.
    pub(crate) client_input: BytesMut,
    /// The start-up parameters as the client sent them, without `_pq_.` options.
    pub(crate) parameters: Vec<(String, String)>,
    /// The settings that the client was told.
    pub(crate) reported: Parameters,
    /// Transaction mode: the session counts in its pool, where its connections come from, while this is held.
    pub(crate) lease: Option<Lease>,
    /// Session mode: its own server connection.
    pub(crate) server: Option<Box<Server>>,
    /// Its key for cancel requests.
    pub(crate) cancel: cancel::Registration,
    /// Its place among the clients and, in session mode, in the budget; to be held to the end.
    pub(crate) places: Places,
}

/// The bounded places that a session occupies.
pub(crate) struct Places {
    pub(crate) _client: OwnedSemaphorePermit,
    pub(crate) _budget: Option<OwnedSemaphorePermit>,
    pub(crate) _member: crowds::Member,
}

/// A gate that listens already, but doesn't serve yet.
pub struct Bound {
    shared: Arc<Shared>,
    listener: Listener,
}

/// A look at a running gate's clients and connections; cheap to clone.
#[derive(Clone)]
pub struct Status(Arc<Shared>);

impl Status {
    /// The pools of server connections. Empty in session mode.
    pub fn pools(&self) -> Vec<PoolSnapshot> {
        self.0.pools.snapshot()
    }

    /// Cancels what runs for the session of this key, as a cancel request of a client does.
    pub async fn cancel(&self, process_id: i32, secret: &[u8]) {
        self.0.cancel.cancel(process_id, secret).await;
    }

    /// Passes cancel requests with keys that no session has on to the process before. The first call has the
    /// say.
    pub fn pass_cancels_on(&self, elsewhere: Elsewhere) {
        self.0.cancel.pass_on(elsewhere);
    }

    /// How many idle server connections the server has closed since the start.
    pub fn idle_connections_lost(&self) -> u64 {
        self.0.pools.idle_lost()
    }

    /// How many clients are logged in, or about to be.
    pub fn clients(&self) -> u32 {
        u32::try_from(self.0.clients.taken()).unwrap_or(u32::MAX)
    }
}

impl Bound {
    /// Opens the gate's listening socket.
    ///
    /// # Errors
    /// [`StartError::Listen`].
    pub async fn new(
        settings: Settings,
        driver: Arc<Driver>,
        shutdown: Shutdown,
    ) -> Result<Self, StartError> {
        let listen = |source| StartError::Listen { address: settings.listen.clone(), source };
        let listener = Listener::bind(&settings.listen, settings.keepalive).await.map_err(listen)?;
        Ok(Self::on(listener, settings, driver, shutdown))
    }

    /// A gate on a socket that listens already.
    pub fn on(listener: Listener, settings: Settings, driver: Arc<Driver>, shutdown: Shutdown) -> Self {
        let shutdown = shutdown.part();
        let shared = Arc::new(Shared::new(settings, driver, shutdown));
        let listener = listener.minding(Arc::clone(&shared.lateness));
        Self { shared, listener }
    }

    /// Looks whether it may serve, as [`Bound::run`] does before its first client.
    ///
    /// # Errors
    /// [`StartError::TrustRelay`].
    pub async fn probe(&self) -> Result<(), StartError> {
        login::probe_trust(&self.shared.settings()).await
    }

    /// Its listening socket, for a successor.
    pub fn door(&self) -> Door {
        self.listener.door()
    }

    /// Where it listens; the port is the real one where 0 was asked for.
    pub fn address(&self) -> Address {
        self.listener.address()
    }

    /// A look at it while it runs.
    pub fn status(&self) -> Status {
        Status(Arc::clone(&self.shared))
    }

    /// Serves until the shutdown has run its course.
    ///
    /// # Errors
    /// [`StartError::TrustRelay`], before the first client is served.
    pub async fn run(self) -> Result<(), StartError> {
        let Self { shared, listener } = self;
        login::probe_trust(&shared.settings()).await?;
        let of_settings = Arc::clone(&shared);
        let bounds = move || {
            let settings = of_settings.settings();
            Bounds {
                sockets_max: settings.max_clients as usize + SPARE_SOCKETS,
                drain_timeout: settings.drain_timeout,
                backlog: Backlog::Closed,
            }
        };
        let maintenance = maintain(&shared);
        let following = follow(&shared);
        let serve = |stream| serve_client(Arc::clone(&shared), stream);
        tokio::select! {
            () = listener.serve(bounds, &shared.shutdown, serve) => {}
            () = maintenance => {}
            () = fill::keep_full(&shared) => {}
            () = ceiling::watch(&shared) => {}
            () = watch::watch(&shared) => {}
            () = news::tell(&shared.driver, || vec![("late", shared.lateness.view().refused)]) => {}
            () = following => {}
            () = Arc::clone(&shared.driver).run_timer() => {}
            () = shared.lateness.watch(shared.driver.name(), || shared.clients.taken()) => {}
        }
        shared.pools.close_idle();
        Ok(())
    }
}

/// Sockets beyond `max_clients`: cancel requests and clients that are about to hear that there are too many.
const SPARE_SOCKETS: usize = 256;

/// Runs a PostgreSQL gate until `shutdown` has run its course.
///
/// # Errors
/// See [`StartError`].
pub async fn run(settings: Settings, driver: Arc<Driver>, shutdown: Shutdown) -> Result<(), StartError> {
    Bound::new(settings, driver, shutdown).await?.run().await
}

/// Never returns.
async fn maintain(shared: &Shared) {
    let mut tick = tokio::time::interval(MAINTENANCE_PERIOD);
    tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut stuck = stuck::Watch::default();
    loop {
        tick.tick().await;
        shared.pools.maintain();
        stuck.look(shared);
        shared.failed.look(shared.driver.name());
        let settings = shared.settings();
        if let Some(limit) = settings.idle_transaction_timeout {
            let now = shared.driver.clock().now();
            shared.roster.cards().iter().for_each(|card| card.end_idle(now, limit));
        }
        settings.health.tell_lost(settings.named(), shared.pools.idle_lost());
        shared.stats.tick(shared.driver.clock().now());
    }
}

/// Looks the server's name up now and then, so that connections don't stay at an address that it no longer
/// has. Never returns.
async fn follow(shared: &Shared) {
    let mut is_failing = false;
    loop {
        let endpoint = shared.endpoint();
        let Some((resolver, period)) = endpoint.followed() else {
            shared.pools.keep_everywhere();
            // A reload may bring a name that is to be followed.
            tokio::time::sleep(MAINTENANCE_PERIOD).await;
            continue;
        };
        match resolver.refresh().await {
            Ok(()) => {
                is_failing = false;
                shared.pools.keep_at(resolver.kept());
            }
            Err(error) => {
                if !std::mem::replace(&mut is_failing, true) {
                    let (gate, host) = (shared.driver.name(), resolver.host());
                    tracing::warn!(gate, host, %error, "the server's name can't be looked up; its last addresses are used");
                }
            }
        }
        tokio::time::sleep(period).await;
    }
}

async fn serve_client(shared: Arc<Shared>, stream: Stream) {
    // Each in a box of its own: a client that logs in needn't hold room for a session, nor a session for a
    // login.
    if let Some(logged_in) = Box::pin(login::login(&shared, stream)).await {
        if replication::is_asked_for(&logged_in.parameters) {
            Box::pin(replication::serve(shared, logged_in)).await;
        } else {
            Box::pin(connection::serve(shared, logged_in)).await;
        }
    }
}
