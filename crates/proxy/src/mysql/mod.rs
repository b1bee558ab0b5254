//! The gate for MySQL and MariaDB: its settings, what its sessions share, and its assembly.
//!
//! ```text
//! listener ─► login ─► session ─► admit ─► pool ─► server
//!                         └───────── kill ───────────┘
//! ```
//!
//! The unit of admission is a transaction, by the status flags of the server's answers; outside of one a
//! statement.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use admission::{Capacity, ClassId, Policy, PoolId, Snapshot};
use parking_lot::RwLock;
use tokio::sync::Semaphore;
use wire::mysql::codec::Sequence;

use crate::admin::{ClientsView, GateView, LatenessView, PoolView};
use crate::gate::Driver;
use crate::lateness::Lateness;
use crate::listener::{Backlog, Bounds, Listener};
use crate::news;
use crate::observe::{Totals, TypeRow};
use crate::shutdown::Shutdown;
use crate::sql_class::{SqlClassRule, SqlClasses};
use crate::stream::{Keepalive, Stream};
use crate::tls;
use crate::upstream::address::Address;
use crate::upstream::dial::Dial;
use crate::upstream::resolver::Lookup;

mod admit;
mod channel;
mod classify;
mod kill;
mod login;
mod pins;
mod pool;
mod readings;
mod reject;
mod relay;
mod renew;
mod results;
mod server;
mod session;
mod sessions;
mod statements;
mod track;
mod users;

pub use users::Users;

/// Sockets beside those of clients that are let in, so that one more can be told why it isn't.
const SPARE_SOCKETS: usize = 64;
/// How many KILLs may be under way at once. Each takes a connection to the server beside the budget.
const KILLS_MAX: usize = 32;

/// Everything that an operator chooses for one gate, beside the admission policy.
#[derive(Clone, Debug)]
pub struct Settings {
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
    /// The longest that a login may take.
    pub login_timeout: Duration,
    /// The longest that a client's message may take from its beginning to its end.
    pub message_timeout: Duration,
    /// The longest that connecting to the server may take.
    pub connect_timeout: Duration,
    /// How long an answer for the server's name is used.
    pub dns_ttl: Duration,
    /// TCP keepalive, on both sides.
    pub keepalive: Keepalive,
    /// How long sessions may take to finish after the order to shut down.
    pub drain_timeout: Duration,
    /// Which units belong to which service class: the first rule that fits.
    pub classes: Vec<SqlClassRule>,
    /// TLS towards clients.
    pub tls: Option<Arc<tls::Acceptor>>,
    /// TLS towards the server.
    pub upstream_tls: Option<Arc<tls::Connector>>,
}

/// Why a gate could not start.
#[derive(Debug, thiserror::Error)]
#[error("cannot listen on {address}: {source}")]
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
    known: RwLock<Option<Arc<server::Known>>>,
    pool: pool::Pool,
    sessions: Arc<sessions::Sessions>,
    pins: Arc<pins::Counts>,
    kills: Semaphore,
    driver: Arc<Driver>,
    classes: SqlClasses,
    shutdown: Shutdown,
    lateness: Arc<Lateness>,
    /// How many sessions there have been.
    epoch: AtomicU64,
    logins_failed: AtomicU64,
    logins_succeeded: AtomicU64,
    refused: AtomicU64,
}

impl Shared {
    fn settings(&self) -> Arc<Settings> {
        Arc::clone(&self.settings.read())
    }

    /// The way to the server that is used now.
    fn way(&self) -> server::Way {
        server::Way { dial: Arc::clone(&self.dial.read()), peer: None }
    }

    /// What the server says of itself. It is asked once; each login of the gate's own refreshes it.
    async fn known(&self) -> Result<Arc<server::Known>, server::Failed> {
        if let Some(known) = &*self.known.read() {
            return Ok(Arc::clone(known));
        }
        let known = Arc::new(server::look(self).await?);
        *self.known.write() = Some(Arc::clone(&known));
        Ok(known)
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
        // A connection of any user may be opened in the place of another user's.
        driver.set_pool(PoolId::default(), u32::MAX);
        let classes = SqlClasses::by(&settings.classes);
        driver.name_classes(classes.names());
        let lateness = Arc::new(Lateness::new(driver.clock()));
        let listener = listener.minding(Arc::clone(&lateness));
        let shared = Arc::new(Shared {
            dial: RwLock::new(dial(&settings)),
            settings: RwLock::new(Arc::new(settings)),
            known: RwLock::default(),
            pool: pool::Pool::default(),
            sessions: Arc::default(),
            pins: Arc::default(),
            kills: Semaphore::new(KILLS_MAX),
            driver,
            classes,
            shutdown,
            lateness,
            epoch: AtomicU64::new(1),
            logins_failed: AtomicU64::new(0),
            logins_succeeded: AtomicU64::new(0),
            refused: AtomicU64::new(0),
        });
        Ok(Self { shared, listener })
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
            () = shared.lateness.watch(shared.driver.name(), connected) => {}
        }
    }
}

async fn serve(shared: Arc<Shared>, stream: Stream) {
    let Some(place) = shared.sessions.register(shared.settings().max_clients as usize) else {
        shared.refused.fetch_add(1, Ordering::Relaxed);
        let mut client = channel::Channel::new(stream);
        reject::Refusal::too_many_clients().write(&mut client.output, Sequence(0));
        let limit = shared.settings().login_timeout;
        let _ = tokio::time::timeout(limit, client.flush()).await;
        return;
    };
    let Some(logged_in) = login::login(&shared, stream, &place).await else {
        shared.logins_failed.fetch_add(1, Ordering::Relaxed);
        return;
    };
    shared.logins_succeeded.fetch_add(1, Ordering::Relaxed);
    let next = logged_in.next;
    session::Session::new(shared, logged_in, place).run(next).await;
}

impl Status {
    /// Changes what can change in a running gate: where it listens stays as it is.
    pub fn reload(&self, settings: Settings, policy: Policy) {
        let mut place = self.0.settings.write();
        let settings = Settings { listen: place.listen.clone(), keepalive: place.keepalive, ..settings };
        *self.0.dial.write() = dial(&settings);
        if settings.upstream != place.upstream {
            self.0.pool.leave();
            *self.0.known.write() = None;
        }
        self.0.classes.follow(&settings.classes);
        self.0.driver.name_classes(self.0.classes.names());
        *place = Arc::new(settings);
        drop(place);
        self.0.driver.update_policy(|running| *running = policy);
    }
}

impl GateView for Status {
    fn name(&self) -> &str {
        self.0.driver.name()
    }

    fn driver(&self) -> Option<&Driver> {
        Some(&self.0.driver)
    }

    fn mode(&self) -> &'static str {
        "enforce"
    }

    fn listen(&self) -> String {
        self.0.settings().listen.to_string()
    }

    fn upstream(&self) -> String {
        self.0.settings().upstream.to_string()
    }

    fn snapshot(&self) -> Snapshot {
        self.0.driver.snapshot()
    }

    fn capacity(&self) -> Capacity {
        self.0.driver.policy().capacity
    }

    fn set_capacity(&self, capacity: Capacity) {
        self.0.driver.update_policy(|policy| policy.capacity = capacity);
    }

    fn trace_lost(&self) -> Option<u64> {
        self.0.driver.trace_lost()
    }

    fn types(&self) -> Vec<TypeRow> {
        self.0.driver.types()
    }

    fn class_name(&self, class: ClassId) -> Option<Arc<str>> {
        self.0.classes.name(class)
    }

    fn totals(&self) -> Totals {
        self.0.driver.totals()
    }

    /// One, of all users.
    fn pools(&self) -> Vec<PoolView> {
        let (existing, idle) = self.0.pool.counts();
        let count = |count| u32::try_from(count).unwrap_or(u32::MAX);
        vec![PoolView {
            user: String::new(),
            database: String::new(),
            connections: count(existing),
            idle: count(idle),
            spare: 0,
        }]
    }

    fn clients(&self) -> ClientsView {
        ClientsView {
            connected: self.0.sessions.len(),
            logins_succeeded: self.0.logins_succeeded.load(Ordering::Relaxed),
            logins_failed: self.0.logins_failed.load(Ordering::Relaxed),
            refused: self.0.refused.load(Ordering::Relaxed),
            ..ClientsView::default()
        }
    }

    fn lateness(&self) -> Option<LatenessView> {
        Some(self.0.lateness.view())
    }

    fn pins(&self) -> Vec<(&'static str, u32)> {
        self.0.pins.snapshot()
    }
}
