//! The admin listener: metrics, health, the learned table and changes over HTTP.
//!
//! | path | answers |
//! |---|---|
//! | `/metrics` | what [`crate::metrics`] declares, in the text format of Prometheus (OpenMetrics 1.0) |
//! | `/healthz` | 200 as long as the process lives |
//! | `/readyz` | 200 while clients are served, also in overload; 503 before gates listen and in a drain |
//! | `/readyz?upstream` | 503 also while a gate has no upstream up; `?upstream=NAME` asks one gate |
//! | `/status` | the state of every gate, as JSON ([`Status`]) |
//! | `/types` | the learned table, as JSON ([`TypesReport`]); `?gate=NAME` for one gate |
//! | `/why` | what became of a request, and why, as JSON ([`WhyReport`], `admin/why.rs`) |
//! | `/gates/NAME/trace` | the last hour of a gate that only observes, as a trace ([`crate::trace`]) |
//! | `/` | a page for people, live (`admin/page.rs`) |
//! | `/gates/NAME` | a gate's settings, as JSON ([`GateSettings`]); `PATCH` changes it (`admin/change.rs`) |
//! | `/reload` and others | `POST`: an operator's commands (`admin/act.rs`) |
//!
//! Over TCP it asks for no password as long as a client only looks, so it belongs on loopback. Changes are
//! taken over a Unix socket, whose file says who may open it, or with a token. At most [`CONNECTIONS_MAX`]
//! connections are served at once at each of both; one that sends no request for [`IDLE_MAX`] is closed.
//! What looks at every type is built for one client at a time, on none of the runtime's workers
//! (`Admin::build`).

use std::io;
use std::sync::atomic::{AtomicU8, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use admission::{Capacity, ClassId, Instant, PoolSet, Snapshot};
use axum::Router;
use axum::extract::{DefaultBodyLimit, Query, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::middleware::from_fn_with_state;
use axum::response::{IntoResponse, Json, Response};
use axum::routing::get;
use parking_lot::{Mutex, RwLock};
use serde::Deserialize;
use tokio::task::spawn_blocking;

use crate::clock::Clock;
use crate::command::Commands;
use crate::gate::Driver;
pub use crate::lateness::LatenessView;
use crate::logins::LoginCounts;
use crate::memory;
use crate::metrics::shown::{Shown, TYPES_MAX};
use crate::observe::{Totals, TypeRow};
use crate::postgres::CeilingView;
use crate::shutdown::{Phase, Shutdown};
use crate::upstream::health::Condition;

mod act;
mod change;
mod classes;
mod kept;
mod names;
mod page;
mod predecessor;
mod report;
mod serve;
mod timeline;
mod token;
mod types;
mod why;

pub use act::HANDOVER_PROTOCOL;
pub use change::{BODY_BYTES_MAX, CapacityWords, GateChange, GateSettings};
use names::Names;
use page::Page;
pub use page::{VIEWERS_MAX, watch};
pub use serve::{AdminSocket, serve};
pub use timeline::{Happening, Timeline};
pub use token::{Token, TokenError};
pub use why::{OvertakersReport, StoryReport, TypeCountReport, WaitReport, WhyReport};

pub use crate::groups::ProcessorStatus;
pub use crate::upstream::pool::SessionChangesView;
pub use classes::ClassStatus;
pub(crate) use classes::named_classes;
pub use report::{
    CountsReport, GateStatus, GateTypes, GoalReport, LatenessReport, MemoryStatus, PoolStatus,
    PrincipalReport, Status, TargetReport, TimesReport, TypeReport, TypesReport, UplinkReport,
    UpstreamStatus,
};

/// The most admin connections at once: a few scrapers and people.
pub const CONNECTIONS_MAX: usize = 64;
/// How long a connection may wait for the whole head of a request.
pub const IDLE_MAX: Duration = Duration::from_secs(120);
/// How long an answer may take once a successor has the admin listener. Watchers connect again there.
const LAST_ANSWER_MAX: Duration = Duration::from_secs(2);
/// How often a process that ends looks whether all have their answers.
const ANSWER_LOOK: Duration = Duration::from_millis(5);

/// What a gate shows of itself. Called for each scrape, never for a request.
pub trait GateView: Send + Sync {
    /// Its driver, where there is a real one. What the driver knows is told from there.
    fn driver(&self) -> Option<&Driver> {
        None
    }
    /// Its name in the config.
    fn name(&self) -> &str {
        self.driver().map_or("", Driver::name)
    }
    /// `"enforce"` or `"observe"`. When observing, waits and refusals are what *would* have been decided.
    fn mode(&self) -> &'static str;
    /// Where clients connect.
    fn listen(&self) -> String;
    /// Where the service listens.
    fn upstream(&self) -> String;
    /// The state of its admission.
    fn snapshot(&self) -> Snapshot {
        self.driver().map(Driver::snapshot).unwrap_or_default()
    }
    /// The capacity that is in force.
    fn capacity(&self) -> Capacity {
        self.driver().map_or(Capacity::Unlimited, |driver| driver.policy().capacity)
    }
    /// Another capacity, until the configuration is read again.
    fn set_capacity(&self, capacity: Capacity) {
        if let Some(driver) = self.driver() {
            driver.update_policy(|policy| policy.capacity = capacity);
        }
    }
    /// How many entries of its trace were left out, if it writes one.
    fn trace_lost(&self) -> Option<u64> {
        self.driver()?.trace_lost()
    }
    /// What each type did.
    fn types(&self) -> Vec<TypeRow> {
        self.driver().map(Driver::types).unwrap_or_default()
    }
    /// What all did.
    fn totals(&self) -> Totals {
        self.driver().map(Driver::totals).unwrap_or_default()
    }
    /// What a service class of the snapshot is called.
    fn class_name(&self, class: ClassId) -> Option<Arc<str>> {
        let _ = class;
        None
    }
    /// What is known of the control group of a class.
    fn processor(&self, class: ClassId) -> Option<ProcessorStatus> {
        let _ = class;
        None
    }
    /// The addresses of its service, and whether each is there.
    fn upstreams(&self) -> Vec<UpstreamView> {
        Vec::new()
    }
    /// Its pools of server connections.
    fn pools(&self) -> Vec<PoolView>;
    /// The databases whose requests an operator holds up; `*` for all.
    fn paused(&self) -> Vec<String> {
        let is_paused = self.driver().is_some_and(|driver| driver.paused() == PoolSet::ALL);
        is_paused.then(|| "*".to_owned()).into_iter().collect()
    }
    /// Holds up requests for a database, or all.
    ///
    /// # Errors
    /// Why it can't.
    fn pause(&self, database: Option<&str>) -> Result<(), String> {
        if self.mode() == "observe" {
            return Err("this gate only observes: it holds nobody up".to_owned());
        }
        if database.is_some() {
            return Err("only gates for PostgreSQL pause one database; pause the whole gate".to_owned());
        }
        match self.driver().map(|driver| driver.pause(PoolSet::ALL)) {
            Some(PoolSet::ALL) => Err("already paused".to_owned()),
            _ => Ok(()),
        }
    }
    /// Lets paused requests go.
    ///
    /// # Errors
    /// Why it can't.
    fn resume(&self, database: Option<&str>) -> Result<(), String> {
        if database.is_some() {
            return Err("only gates for PostgreSQL pause one database; resume the whole gate".to_owned());
        }
        match self.driver().map(|driver| driver.pause(PoolSet::NONE)) {
            Some(PoolSet::ALL) => Ok(()),
            _ => Err("not paused".to_owned()),
        }
    }
    /// How many requests for a database, or all, are in flight.
    fn in_flight_of(&self, database: Option<&str>) -> usize {
        let _ = database;
        self.snapshot().in_flight
    }
    /// Its clients.
    fn clients(&self) -> ClientsView;
    /// How many server connections it has found, where it looks for that.
    fn ceiling(&self) -> Option<CeilingView> {
        None
    }
    /// Whether it keeps up with its own clients, if it looks at that.
    fn lateness(&self) -> Option<LatenessView> {
        None
    }
    /// The link to its clients, where responses wait for that.
    fn uplink(&self) -> Option<UplinkReport> {
        None
    }
    /// What it has answered by itself, not the judge: each reason, and how often.
    fn own_answers(&self) -> Vec<(&'static str, u64)> {
        Vec::new()
    }
    /// Why sessions keep their connections: each reason and how many sessions it pins now.
    fn pins(&self) -> Vec<(&'static str, u32)> {
        Vec::new()
    }
}

/// One address of a gate's service.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UpstreamView {
    /// Where it is.
    pub address: String,
    /// Whether it is there.
    pub condition: Condition,
    /// For how long it has been so.
    pub since: Duration,
    /// How often it has failed.
    pub failures: u64,
    /// Why it failed last, and how long ago.
    pub last_error: Option<(String, Duration)>,
}

/// One pool of server connections.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PoolView {
    /// The user that it logged in as.
    pub user: String,
    /// Its database.
    pub database: String,
    /// Connections that exist.
    pub connections: u32,
    /// Existing connections that nobody uses.
    pub idle: u32,
    /// Connections beside those, on which texts are prepared (PostgreSQL).
    pub spare: u32,
    /// How often connections went to another session, where sessions share them.
    pub session_changes: Option<SessionChangesView>,
}

/// The clients of one gate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClientsView {
    /// Clients connected now, logging in or logged in.
    pub connected: usize,
    /// Clients logging in now.
    pub logging_in: usize,
    /// Logins that succeeded.
    pub logins_succeeded: u64,
    /// Logins that failed, for whatever reason.
    pub logins_failed: u64,
    /// Clients turned away because `max_clients` were connected.
    pub refused: u64,
    /// Connections now that have not become sessions yet.
    pub unfinished: u64,
    /// Of the failed logins: those with a wrong password or an unknown user, by the gate's own judgment.
    pub denied: u64,
    /// Of the failed logins: those not tried after too many failures of their address.
    pub limited: u64,
    /// Of the failed logins: those that took longer than `login_timeout`.
    pub late: u64,
    /// Questions of `auth_query` that found a user.
    pub auth_queries_found: u64,
    /// Those that found none.
    pub auth_queries_unknown: u64,
    /// Those that the server did not answer.
    pub auth_queries_failed: u64,
    /// Server connections that the gate opened by itself to refill pools.
    pub openings_succeeded: u64,
    /// Those that it could not open.
    pub openings_failed: u64,
}

impl ClientsView {
    /// What is counted of logins.
    pub(crate) fn of(counts: &LoginCounts) -> Self {
        let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Self {
            logins_succeeded: of(&counts.succeeded),
            logins_failed: of(&counts.failed),
            refused: of(&counts.refused),
            unfinished: of(&counts.unfinished),
            denied: of(&counts.denied),
            limited: of(&counts.limited),
            late: of(&counts.late),
            ..Self::default()
        }
    }
}

/// How often the configuration was read again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ReloadsView {
    pub(crate) succeeded: u64,
    /// It was wrong, and nothing has changed.
    pub(crate) failed: u64,
    /// The last time it was.
    pub(crate) failed_last: bool,
}

/// The lock of the task that builds an answer.
type Building = tokio::sync::Mutex<()>;

/// What the process is doing, for `/readyz`.
const STARTING: u8 = 0;
const READY: u8 = 1;
const DRAINING: u8 = 2;

/// The process as the admin listener shows it.
pub struct Admin {
    version: &'static str,
    clock: Clock,
    phase: AtomicU8,
    gates: RwLock<Vec<Arc<dyn GateView>>>,
    /// The types that have metrics of their own.
    shown: Shown,
    types_shown: AtomicUsize,
    reloads: Mutex<ReloadsView>,
    /// The token whose sender may change gates over TCP.
    token: RwLock<Option<Token>>,
    words: OnceLock<CapacityWords>,
    /// The way to the process.
    commands: OnceLock<Commands>,
    /// The host names under which it answers over TCP.
    names: OnceLock<Names>,
    /// Whether a successor has the admin listener.
    shutdown: OnceLock<Shutdown>,
    predecessor: OnceLock<predecessor::Predecessor>,
    /// Held by each connection.
    connected: Arc<()>,
    page: Page,
    /// Held while an answer is built that looks at every type.
    building: Arc<Building>,
}

impl Admin {
    /// A process of this version that begins now: without gates, and not ready.
    pub fn new(version: &'static str) -> Arc<Self> {
        Arc::new(Self {
            version,
            clock: Clock::start(),
            phase: AtomicU8::new(STARTING),
            gates: RwLock::new(Vec::new()),
            shown: Shown::default(),
            types_shown: AtomicUsize::new(TYPES_MAX),
            reloads: Mutex::default(),
            token: RwLock::new(None),
            words: OnceLock::new(),
            commands: OnceLock::new(),
            names: OnceLock::new(),
            shutdown: OnceLock::new(),
            predecessor: OnceLock::new(),
            connected: Arc::default(),
            page: Page::default(),
            building: Arc::default(),
        })
    }

    /// Gates may be changed, from now on and in these words. The first call has the say.
    pub fn allow_changes(&self, words: CapacityWords) {
        let _ = self.words.set(words);
    }

    /// Commands of operators go there. The first call has the say.
    pub fn take_commands(&self, commands: Commands) {
        let _ = self.commands.set(commands);
    }

    /// Leaves its connections to a successor when the process does. The first call has the say.
    pub fn hand_over_with(&self, shutdown: Shutdown) {
        let _ = self.shutdown.set(shutdown);
    }

    /// Waits until all requests have their answers, once a successor has the admin listener.
    pub async fn answered(&self) {
        let deadline = tokio::time::Instant::now() + LAST_ANSWER_MAX;
        while Arc::strong_count(&self.connected) > 1 && tokio::time::Instant::now() < deadline {
            tokio::time::sleep(ANSWER_LOOK).await;
        }
    }

    /// Waits until a successor has the admin listener.
    pub(crate) async fn handed_over(&self) {
        match self.shutdown.get() {
            Some(shutdown) => shutdown.handed_over().await,
            None => std::future::pending().await,
        }
        // One that drains by itself is still asked.
        if self.shutdown.get().is_some_and(|shutdown| shutdown.phase() != Phase::HandedOver) {
            std::future::pending::<()>().await;
        }
    }

    /// Over TCP it answers under these host names, too. The first call has the say.
    pub fn answer_for(&self, names: impl IntoIterator<Item = String>) {
        let _ = self.names.set(Names::new(names));
    }

    /// The page shows this timeline. The first call has the say.
    pub fn show_timeline(&self, timeline: Timeline) {
        self.page.show_timeline(timeline);
    }

    /// Sets the token whose sender may change gates over TCP; with `None` nobody may.
    pub fn set_token(&self, token: Option<Token>) {
        *self.token.write() = token;
    }

    /// At most so many types of a gate have metrics of their own. Default 100.
    pub fn set_types_shown(&self, most: usize) {
        self.types_shown.store(most, Ordering::Relaxed);
    }

    pub(crate) fn types_shown(&self) -> usize {
        self.types_shown.load(Ordering::Relaxed)
    }

    pub(crate) fn shown(&self) -> &Shown {
        &self.shown
    }

    /// The configuration was read again, and holds.
    pub fn note_reload(&self) {
        let mut reloads = self.reloads.lock();
        *reloads = ReloadsView { succeeded: reloads.succeeded + 1, failed_last: false, ..*reloads };
    }

    /// The configuration was read again and is wrong, so that nothing has changed.
    pub fn note_failed_reload(&self) {
        let mut reloads = self.reloads.lock();
        *reloads = ReloadsView { failed: reloads.failed + 1, failed_last: true, ..*reloads };
    }

    pub(crate) fn reloads(&self) -> ReloadsView {
        *self.reloads.lock()
    }

    /// Shows one more gate.
    pub fn add_gate(&self, gate: Arc<dyn GateView>) {
        self.gates.write().push(gate);
    }

    /// All gates listen. Has no effect once draining.
    pub fn set_ready(&self) {
        // A signal may have come before the last gate listened: draining is never taken back.
        let _ = self.phase.compare_exchange(STARTING, READY, Ordering::AcqRel, Ordering::Acquire);
    }

    /// The process is about to end.
    pub fn set_draining(&self) {
        self.phase.store(DRAINING, Ordering::Release);
    }

    pub(crate) fn version(&self) -> &'static str {
        self.version
    }

    pub(crate) fn uptime(&self) -> Duration {
        self.clock.now().since(Instant::ZERO)
    }

    pub(crate) fn is_ready(&self) -> bool {
        self.phase.load(Ordering::Acquire) == READY
    }

    /// The gates, so that none is asked with the lock held.
    pub(crate) fn gates(&self) -> Vec<Arc<dyn GateView>> {
        self.gates.read().clone()
    }

    /// Builds an answer that looks at every type. One is built at a time, and on none of the runtime's
    /// workers, which serve the gates. An answer whose client has gone is built to its end.
    async fn build(self: Arc<Self>, build: impl FnOnce(&Self) -> Response + Send + 'static) -> Response {
        let turn = Arc::clone(&self.building).lock_owned().await;
        let built = spawn_blocking(move || {
            let built = build(&self);
            drop(turn);
            built
        });
        built.await.unwrap_or_else(|error| {
            tracing::error!(%error, "an answer of the admin listener could not be built");
            StatusCode::INTERNAL_SERVER_ERROR.into_response()
        })
    }

    fn phase_name(&self) -> &'static str {
        match self.phase.load(Ordering::Acquire) {
            STARTING => "starting",
            READY => "ready",
            _ => "draining",
        }
    }
}

/// Where a request came in, which decides whether it may change anything.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Door {
    /// The Unix socket: a program that may open it may change gates.
    Socket,
    /// TCP: it takes the token.
    Network,
}

/// What every handler is given.
#[derive(Clone)]
struct Desk {
    admin: Arc<Admin>,
    door: Door,
}

/// The paths, for requests that come in there.
pub fn router(admin: Arc<Admin>, door: Door) -> Router {
    Router::new()
        .route("/metrics", get(metrics))
        .route("/healthz", get(async || "ok\n"))
        .route("/readyz", get(ready))
        .route("/status", get(status))
        .route("/types", get(types::types))
        .route("/why", get(why::tell))
        .route("/gates/{name}/trace", get(kept::trace))
        .route("/gates/{name}", get(change::show).patch(change::change))
        .merge(act::routes())
        .merge(page::routes())
        .fallback(page::nowhere)
        .method_not_allowed_fallback(page::otherwise)
        .layer(DefaultBodyLimit::max(BODY_BYTES_MAX))
        .layer(from_fn_with_state(Desk { admin: Arc::clone(&admin), door }, names::check))
        .with_state(Desk { admin, door })
}

async fn metrics(State(Desk { admin, .. }): State<Desk>, headers: HeaderMap) -> Response {
    let accepted = headers.get(header::ACCEPT).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let is_plain = accepted.contains("text/plain") && !accepted.contains("application/openmetrics-text");
    let encode = move |admin: &Admin| match crate::metrics::encode(admin) {
        Ok(text) if is_plain => {
            let head = [(header::CONTENT_TYPE, crate::metrics::PLAIN_CONTENT_TYPE)];
            (head, crate::metrics::plain(&text)).into_response()
        }
        Ok(text) => ([(header::CONTENT_TYPE, crate::metrics::CONTENT_TYPE)], text).into_response(),
        Err(error) => {
            let error = io::Error::other(error);
            tracing::error!(%error, "the metrics could not be written");
            StatusCode::INTERNAL_SERVER_ERROR.into_response()
        }
    };
    admin.build(encode).await
}

#[derive(Deserialize)]
struct ReadyQuery {
    /// Whether upstreams count: empty for those of all gates, else a gate's name.
    upstream: Option<String>,
}

async fn ready(
    State(Desk { admin, .. }): State<Desk>,
    Query(query): Query<ReadyQuery>,
) -> (StatusCode, String) {
    if !admin.is_ready() {
        return (StatusCode::SERVICE_UNAVAILABLE, format!("{}\n", admin.phase_name()));
    }
    let Some(asked) = query.upstream else { return (StatusCode::OK, "ready\n".to_owned()) };
    let mut gates = admin.gates();
    gates.retain(|gate| asked.is_empty() || gate.name() == asked);
    if gates.is_empty() {
        return (StatusCode::NOT_FOUND, format!("there is no gate {asked:?}\n"));
    }
    let is_reached = |gate: &dyn GateView| gate.upstreams().iter().any(|it| it.condition == Condition::Up);
    gates.retain(|gate| !is_reached(&**gate));
    let lines = gates.iter().map(|gate| format!("gate {}: no upstream is up\n", gate.name()));
    match lines.collect::<String>() {
        lines if lines.is_empty() => (StatusCode::OK, "ready\n".to_owned()),
        lines => (StatusCode::SERVICE_UNAVAILABLE, lines),
    }
}

async fn status(State(Desk { admin, .. }): State<Desk>) -> Response {
    let tell = |admin: &Admin| {
        let status = Status {
            version: admin.version.to_owned(),
            phase: admin.phase_name().to_owned(),
            uptime_seconds: admin.uptime().as_secs_f64(),
            predecessor: admin.predecessor(),
            memory: memory::view().into(),
            gates: admin.gates().iter().map(|gate| GateStatus::of(&**gate)).collect(),
        };
        Json(status).into_response()
    };
    admin.build(tell).await
}
