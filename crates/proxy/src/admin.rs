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
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use admission::Instant;
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
use crate::memory;
use crate::metrics::shown::{Shown, TYPES_MAX};
use crate::metrics::{ProcessScrape, ReloadsView, Scrape};
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
pub use crate::lateness::LatenessView;
pub use crate::sql::SessionChangesView;
pub use crate::upstream::health::UpstreamView;
pub use crate::view::{CeilingView, ClientsView, GateView, PoolView, UplinkReport};
pub use classes::ClassStatus;
pub use report::{
    CountsReport, GateStatus, GateTypes, GoalReport, LatenessReport, MemoryStatus, PoolStatus,
    PrincipalReport, Status, TargetReport, TimesReport, TypeReport, TypesReport, UpstreamStatus,
};

/// The most admin connections at once: a few scrapers and people.
pub const CONNECTIONS_MAX: usize = 64;
/// How long a connection may wait for the whole head of a request.
pub const IDLE_MAX: Duration = Duration::from_secs(120);
/// How long an answer may take once a successor has the admin listener. Watchers connect again there.
const LAST_ANSWER_MAX: Duration = Duration::from_secs(2);
/// How often a process that ends looks whether all have their answers.
const ANSWER_LOOK: Duration = Duration::from_millis(5);

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

    /// What `/metrics` tells now.
    fn scrape(&self) -> Scrape {
        let process = ProcessScrape {
            version: self.version,
            ready: self.is_ready(),
            uptime_seconds: self.uptime().as_secs_f64(),
            memory: memory::view(),
            reloads: *self.reloads.lock(),
        };
        Scrape::of(process, &self.gates(), &self.shown, self.types_shown.load(Ordering::Relaxed))
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
    let encode = move |admin: &Admin| match crate::metrics::encode(admin.scrape()) {
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
