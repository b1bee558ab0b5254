//! The gate for MySQL and MariaDB: its settings, what its sessions share, and its assembly.
//!
//! ```text
//! listener ─► login ─► session ─► admit ─► pool ─► server
//!                         └───────── kill ───────────┘
//! ```
//!
//! The unit of admission is a transaction, by the status flags of the server's answers; outside of one a
//! statement.

use std::fmt::Display;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use admission::PoolId;
use parking_lot::RwLock;
use tokio::sync::{Mutex as AsyncMutex, Semaphore};
use tokio::time::Instant;
use wire::mysql::scramble::native;

use crate::console::{Console, VISITORS_MAX};
use crate::gate::Driver;
use crate::lateness::Lateness;
use crate::listener::{Backlog, Bounds, Door, Listener};
use crate::news;
use crate::quota::Quota;
use crate::shutdown::Shutdown;
use crate::sql::class::{SqlClassRule, SqlClasses};
use crate::sql::logins::{Caller, FailedLogins, Failures, LoginCounts};
use crate::sql::stats::Stats;
use crate::stream::{Keepalive, Peer, Stream};
use crate::tls;
use crate::upstream::address::Address;
use crate::upstream::dial::Dial;
use crate::upstream::health::{Health, Named};
use crate::upstream::resolver::Lookup;

mod accounts;
mod admit;
mod auth_query;
mod carried;
mod channel;
mod classify;
mod console;
mod file;
#[cfg(feature = "garbage")]
#[doc(hidden)]
pub mod garbage;
mod greeting;
mod kill;
mod left;
mod login;
mod opening;
mod pins;
mod place;
mod pool;
mod proof;
mod readings;
mod reject;
mod relay;
mod renew;
mod results;
mod roster;
mod rsa;
mod server;
mod session;
mod statements;
mod tables;
mod track;
mod users;
mod view;

pub use accounts::{Asked, Imported, import};
pub use users::{Query, Users};

/// Sockets beside `max_clients`: clients that log in, or are told that there are too many.
const SPARE_SOCKETS: usize = 256;
/// How many KILLs may be under way at once. Each takes a connection to the server beside the budget.
const KILLS_MAX: usize = 32;

/// Everything that an operator chooses for one gate, beside the admission policy.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The gate's name, in logs and metrics.
    pub name: String,
    /// Where clients connect.
    pub listen: Address,
    /// Where the server is.
    pub upstream: Address,
    /// The users that may log in.
    pub users: Arc<Users>,
    /// The most server connections.
    pub connections: u32,
    /// The most clients at once.
    pub max_clients: u32,
    /// The most failed logins of one address in a minute; `None` is no bound.
    pub failures_max: Option<u32>,
    /// The longest that a login may take.
    pub login_timeout: Duration,
    /// The longest that a client's message may take from its beginning to its end.
    pub message_timeout: Duration,
    /// The longest that connecting to the server may take.
    pub connect_timeout: Duration,
    /// How long an answer for the server's name is used.
    pub dns_ttl: Duration,
    /// What is known of whether the server is there. A reload keeps it for the same server.
    pub health: Arc<Health>,
    /// TCP keepalive, on both sides.
    pub keepalive: Keepalive,
    /// How long sessions may take to finish after the order to shut down.
    pub drain_timeout: Duration,
    /// Which units belong to which service class: the first rule that fits.
    pub classes: Vec<SqlClassRule>,
    /// Only watch: each session has a connection of its own; nothing waits and nothing is refused.
    pub observe: bool,
    /// The virtual database that shows the gate.
    pub console: Console,
    /// TLS towards clients.
    pub tls: Option<Arc<tls::Acceptor>>,
    /// TLS towards the server.
    pub upstream_tls: Option<Arc<tls::Connector>>,
}

impl Settings {
    /// The server, for the log.
    pub(crate) fn named(&self) -> Named<'_> {
        Named { gate: &self.name, address: &self.upstream }
    }
}

/// Why a gate could not start.
#[derive(Debug, thiserror::Error)]
#[error("cannot listen on {address}: {source}{}", crate::listener::remedy(source))]
pub struct StartError {
    /// Which address.
    address: Address,
    /// The system's reason.
    source: io::Error,
}

/// What all sessions of a gate share.
struct Shared {
    settings: RwLock<Arc<Settings>>,
    dial: RwLock<Arc<Dial>>,
    /// What the server said of itself last.
    known: RwLock<Option<Arc<greeting::Known>>>,
    /// Held by the one that asks the server what it is.
    looking: AsyncMutex<()>,
    pool: pool::Pool,
    sessions: Arc<roster::Sessions>,
    pins: Arc<pins::Counts>,
    tables: Arc<tables::Tables>,
    kills: Semaphore,
    /// Visitors of the console.
    visitors: Quota,
    /// What each database was asked for.
    stats: Stats,
    driver: Arc<Driver>,
    classes: SqlClasses,
    shutdown: Shutdown,
    lateness: Arc<Lateness>,
    /// How many sessions there have been.
    epoch: AtomicU64,
    /// Failed logins by address.
    failures: Failures,
    /// What unknown users are asked for: by the users file of the start, also after a reload.
    choice: users::Choice,
    /// Clients that send their password itself.
    passwords: proof::Passwords,
    /// How users are asked for that aren't in the file.
    auth_query: auth_query::AuthQuery,
    /// How logins ended.
    login_counts: LoginCounts,
    /// What the log hears of failed ones.
    failed: FailedLogins,
}

impl Shared {
    fn settings(&self) -> Arc<Settings> {
        Arc::clone(&self.settings.read())
    }

    /// The way to the server that is used now.
    fn way(&self) -> greeting::Way {
        greeting::Way { dial: Arc::clone(&self.dial.read()), peer: None }
    }

    /// What the server says of itself. It is asked once; each login of the gate's own refreshes it.
    async fn known(&self) -> Result<Arc<greeting::Known>, greeting::Failed> {
        let known = || self.known.read().clone();
        if let Some(known) = known() {
            return Ok(known);
        }
        let _looking = self.looking.lock().await;
        match known() {
            Some(known) => Ok(known),
            None => Ok(self.learn(greeting::look(self).await?)),
        }
    }

    /// The plug-in that clients are greeted with, and what unknown users are asked for.
    fn plugin(&self) -> (&'static str, users::Choice) {
        (self.known.read().as_ref().map_or(native::NAME, |known| known.plugin), self.choice)
    }

    fn learn(&self, known: greeting::Known) -> Arc<greeting::Known> {
        let known = Arc::new(known);
        *self.known.write() = Some(Arc::clone(&known));
        known
    }

    /// Whether a client from there may try to log in: not too many have failed lately.
    fn may_try(&self, peer: Peer) -> bool {
        self.failures.may_try(Instant::now(), peer, self.settings().failures_max)
    }

    /// A client from there has failed to log in.
    fn note_failure(&self, peer: Peer) {
        self.failures.note(Instant::now(), peer, self.settings().failures_max);
    }

    /// The log hears of a failed login.
    fn tell_failed(&self, (caller, peer): (&Caller, Peer), refusal: &reject::Refusal, why: &dyn Display) {
        self.failed.note((self.driver.name(), caller, peer), (refusal.sqlstate(), why));
    }

    /// An idle connection for a session, or another; of as many as there may be.
    async fn connection(
        &self,
        (key, credential): (&server::Key, &users::Credential),
        wanted: (u64, bool),
        connections: usize,
    ) -> Result<server::Server, greeting::Failed> {
        while let Some(mut server) = self.pool.take(key, wanted, connections) {
            if !server.has_ended() {
                return Ok(server);
            }
            self.pool.note_lost(1);
        }
        let place = self.pool.place(connections);
        server::Server::login((self, &self.way()), key, credential, place).await
    }

    fn give_back(&self, server: server::Server) {
        self.pool.put(server, self.settings().connections as usize);
    }

    /// Bits that make a session's number unlike that of an earlier one with the same id.
    fn next_epoch(&self) -> u64 {
        (self.epoch.fetch_add(1, Ordering::Relaxed) & 0x7fff_ffff) << 32
    }
}

fn dial(settings: &Settings) -> Arc<Dial> {
    let names = (&Lookup::default(), settings.dns_ttl);
    Arc::new(Dial::new(settings.upstream.clone(), names, settings.connect_timeout, settings.keepalive))
}

/// A gate that listens already, but doesn't serve yet.
pub struct Bound {
    shared: Arc<Shared>,
    listener: Listener,
}

/// A look at a running gate; cheap to clone.
#[derive(Clone)]
pub struct Status(Arc<Shared>);

impl Bound {
    /// Opens the gate's listening socket.
    ///
    /// # Errors
    /// [`StartError`].
    pub async fn new(
        settings: Settings,
        driver: Arc<Driver>,
        shutdown: Shutdown,
    ) -> Result<Self, StartError> {
        let listener = Listener::bind(&settings.listen, settings.keepalive)
            .await
            .map_err(|source| StartError { address: settings.listen.clone(), source })?;
        Ok(Self::on(listener, settings, driver, shutdown))
    }

    /// A gate on a socket that listens already.
    pub fn on(listener: Listener, settings: Settings, driver: Arc<Driver>, shutdown: Shutdown) -> Self {
        let shutdown = shutdown.part();
        // A connection of any user may be opened in the place of another user's.
        driver.set_pool(PoolId::default(), u32::MAX);
        let classes = SqlClasses::by(&settings.classes);
        driver.name_classes(classes.names());
        let lateness = Arc::new(Lateness::new(driver.clock()));
        let listener = listener.minding(Arc::clone(&lateness));
        let shared = Arc::new(Shared {
            dial: RwLock::new(dial(&settings)),
            choice: settings.users.choice(),
            settings: RwLock::new(Arc::new(settings)),
            known: RwLock::default(),
            looking: AsyncMutex::default(),
            pool: pool::Pool::default(),
            sessions: Arc::default(),
            pins: Arc::default(),
            tables: Arc::default(),
            kills: Semaphore::new(KILLS_MAX),
            visitors: Quota::new(VISITORS_MAX),
            stats: Stats::default(),
            driver,
            classes,
            shutdown,
            lateness,
            epoch: AtomicU64::new(1),
            failures: Failures::default(),
            passwords: proof::Passwords::default(),
            auth_query: auth_query::AuthQuery::default(),
            login_counts: LoginCounts::default(),
            failed: FailedLogins::default(),
        });
        Self { shared, listener }
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
    pub async fn run(self) {
        let Self { shared, listener } = self;
        let bounds = || {
            let settings = shared.settings();
            Bounds {
                sockets_max: settings.max_clients as usize + SPARE_SOCKETS,
                drain_timeout: settings.drain_timeout,
                backlog: Backlog::Closed,
            }
        };
        let connected = || shared.sessions.len();
        let serving = listener.serve(bounds, &shared.shutdown, |stream| serve(Arc::clone(&shared), stream));
        tokio::select! {
            () = serving => {}
            () = Arc::clone(&shared.driver).run_timer() => {}
            () = news::tell(&shared.driver, Vec::new) => {}
            () = greeting::watch(&shared) => {}
            () = auth_query::tend(&shared) => {}
            () = shared.lateness.watch(shared.driver.name(), connected) => {}
        }
    }
}

async fn serve(shared: Arc<Shared>, stream: Stream) {
    // Each in a box of its own: a client that logs in needn't hold room for a session.
    match Box::pin(login::login(&shared, stream)).await {
        Some(login::Entered::Client(logged_in)) => {
            let next = logged_in.next;
            Box::pin(session::Session::new(shared, *logged_in).run(next)).await;
        }
        Some(login::Entered::Visitor(visitor)) => Box::pin(console::serve(shared, *visitor)).await,
        None => {}
    }
}
