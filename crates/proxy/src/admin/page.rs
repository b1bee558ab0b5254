//! The page at `/`: its files, and the stream of server-sent events that keeps it live.
//!
//! A task looks at every gate once a second and keeps the last minutes, also while nobody watches. Each
//! frame is written once for all viewers. A new viewer gets everything first, then the changes. A viewer
//! that doesn't read is dropped: by [`BEHIND_MAX`], or by the kernel once its window has been closed for
//! half a minute. Its browser connects again and gets everything anew.
//!
//! **Bounds.** [`VIEWERS_MAX`] viewers with [`BEHIND_MAX`] frames each. A look costs what has changed since
//! the last one, however many types are known.

use std::collections::{HashMap, VecDeque};
use std::convert::Infallible;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use axum::Router;
use axum::body::Body;
use axum::extract::State;
use axum::http::{Method, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use bytes::Bytes;
use http_body::Frame as BodyFrame;
use parking_lot::Mutex;
use serde::Serialize;
use tokio::sync::mpsc;
use tokio::task::spawn_blocking;
use tokio::time::{Instant, MissedTickBehavior, interval};

use super::timeline::Timeline;
use super::{Admin, Desk};

mod frames;
mod history;

use frames::{Frame, GateFrame, Hello, Samples};
use history::History;

/// The most viewers at once.
pub const VIEWERS_MAX: usize = 16;
/// The most frames that a viewer may be behind.
const BEHIND_MAX: usize = 16;
/// How often gates are looked at.
const TICK: Duration = Duration::from_secs(1);

/// Nothing comes from another host, and nobody frames the page.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src data:; \
                      connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// A file of the page: its path, its type, its text.
type Asset = (&'static str, &'static str, &'static str);

const JAVASCRIPT: &str = "text/javascript; charset=utf-8";
const ASSETS: [Asset; 10] = [
    ("/", "text/html; charset=utf-8", include_str!("../../page/index.html")),
    ("/page/page.css", "text/css; charset=utf-8", include_str!("../../page/page.css")),
    ("/page/page.js", JAVASCRIPT, include_str!("../../page/page.js")),
    ("/page/act.js", JAVASCRIPT, include_str!("../../page/act.js")),
    ("/page/dom.js", JAVASCRIPT, include_str!("../../page/dom.js")),
    ("/page/model.js", JAVASCRIPT, include_str!("../../page/model.js")),
    ("/page/words.js", JAVASCRIPT, include_str!("../../page/words.js")),
    ("/page/curves.js", JAVASCRIPT, include_str!("../../page/curves.js")),
    ("/page/types.js", JAVASCRIPT, include_str!("../../page/types.js")),
    ("/page/why.js", JAVASCRIPT, include_str!("../../page/why.js")),
];

/// The page's paths.
pub(super) fn routes() -> Router<Desk> {
    let mut router = Router::new().route("/page/events", get(events));
    for (path, kind, text) in ASSETS {
        router = router.route(path, get(async move || asset(kind, text)));
    }
    router
}

/// Answers a request for a path that isn't there.
pub(super) async fn nowhere(uri: Uri) -> Response {
    let there = "/ (the page), /status, /types, /why, /metrics, /healthz, /readyz, /gates/NAME, /gates/NAME/trace; \
                 with POST: /reload, /drain, /upgrade, /allowed, /gates/NAME/pause, /gates/NAME/resume, \
                 /gates/NAME/pass, /gates/NAME/enforce";
    (StatusCode::NOT_FOUND, format!("there is nothing at {}; there are: {there}\n", uri.path()))
        .into_response()
}

/// Answers a request for a path that takes another method.
pub(super) async fn otherwise(method: Method, uri: Uri) -> Response {
    let other = if method == Method::POST { "GET" } else { "POST" };
    (StatusCode::METHOD_NOT_ALLOWED, format!("{} is not for {method}; use {other}\n", uri.path()))
        .into_response()
}

fn asset(kind: &'static str, text: &'static str) -> Response {
    let headers = [
        (header::CONTENT_TYPE, kind),
        (header::CACHE_CONTROL, "no-cache"),
        (header::CONTENT_SECURITY_POLICY, POLICY),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::REFERRER_POLICY, "no-referrer"),
    ];
    (headers, text).into_response()
}

/// The stream of one viewer.
async fn events(State(Desk { admin, .. }): State<Desk>) -> Response {
    let join = |admin: &Admin| {
        let Some(frames) = admin.page.join(admin) else {
            let why = format!("{VIEWERS_MAX} viewers watch already; there is no room for another one\n");
            return (StatusCode::SERVICE_UNAVAILABLE, why).into_response();
        };
        let headers = [(header::CONTENT_TYPE, "text/event-stream"), (header::CACHE_CONTROL, "no-store")];
        (headers, Body::new(Frames(frames))).into_response()
    };
    admin.build(join).await
}

/// A body of frames as they come.
struct Frames(mpsc::Receiver<Bytes>);

impl http_body::Body for Frames {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<BodyFrame<Bytes>, Infallible>>> {
        self.0.poll_recv(context).map(|bytes| bytes.map(|bytes| Ok(BodyFrame::data(bytes))))
    }
}

/// What the page knows.
#[derive(Debug, Default)]
pub(super) struct Page {
    timeline: OnceLock<Timeline>,
    state: Mutex<Watch>,
}

#[derive(Debug, Default)]
struct Watch {
    viewers: Vec<mpsc::Sender<Bytes>>,
    gates: HashMap<String, Followed>,
    /// The timeline's stamp of the last frame.
    told: u64,
    looked: Option<Instant>,
}

/// A gate that is looked at again and again.
#[derive(Debug, Default)]
struct Followed {
    history: History,
    /// Up to where the viewers know its types.
    mark: u64,
}

impl Page {
    pub(super) fn show_timeline(&self, timeline: Timeline) {
        let _ = self.timeline.set(timeline);
    }

    /// One more viewer; `None` where there is no room. The lock is held throughout, so that what is told at
    /// first and the frames afterwards leave no gap.
    fn join(&self, admin: &Admin) -> Option<mpsc::Receiver<Bytes>> {
        let mut state = self.state.lock();
        state.viewers.retain(|viewer| !viewer.is_closed());
        if state.viewers.len() >= VIEWERS_MAX {
            return None;
        }
        let gates = admin.gates();
        if state.viewers.is_empty() {
            for (gate, driver) in gates.iter().filter_map(|gate| Some((gate, gate.driver()?))) {
                // The next frame tells what changes from now on: nothing is so new that it has changed since.
                state.gates.entry(gate.name().to_owned()).or_default().mark =
                    driver.types_since(u64::MAX).mark;
            }
        }
        let nothing = VecDeque::new();
        let frames = gates.iter().filter_map(|gate| {
            let driver = gate.driver()?;
            let known = state.gates.get(gate.name()).map_or(&nothing, |it| it.history.samples());
            let (snapshot, totals) = (driver.brief(), driver.totals());
            let (view, rows) = ((&**gate, driver), driver.types_since(0));
            Some(GateFrame::new(view, (&snapshot, &totals), rows, Samples::All(known)))
        });
        let events = self.timeline.get().map_or_else(Vec::new, |timeline| timeline.since(0).1);
        let hello = Hello::new(admin, Frame::new(admin, frames.collect(), events));
        let (sender, receiver) = mpsc::channel(BEHIND_MAX);
        sender.try_send(message("hello", &hello)).ok()?;
        state.viewers.push(sender);
        Some(receiver)
    }

    /// Looks at every gate, and tells the viewers.
    fn look(&self, admin: &Admin) {
        let mut state = self.state.lock();
        let Watch { viewers, gates: followed, told, looked } = &mut *state;
        viewers.retain(|viewer| !viewer.is_closed());
        let now = Instant::now();
        let elapsed = looked.replace(now).map_or(TICK, |last| now.duration_since(last));
        let at = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        let gates = admin.gates();
        let mut seen = Vec::with_capacity(gates.len());
        for gate in &gates {
            let Some(driver) = gate.driver() else { continue };
            let known = followed.entry(gate.name().to_owned()).or_default();
            let (snapshot, totals) = (driver.brief(), driver.totals());
            known.history.note((at, elapsed), (&snapshot, &totals), gate.own_answers());
            // Without viewers nobody knows the types. A viewer that comes asks for all of them.
            let rows = (!viewers.is_empty()).then(|| driver.types_since(known.mark));
            if let Some(rows) = rows {
                known.mark = rows.mark;
                seen.push((gate, driver, snapshot, totals, rows));
            }
        }
        if viewers.is_empty() {
            return;
        }
        let frames = seen.into_iter().map(|(gate, driver, snapshot, totals, rows)| {
            let last = followed.get(gate.name()).and_then(|it| it.history.samples().back());
            GateFrame::new((&**gate, driver), (&snapshot, &totals), rows, Samples::Last(last))
        });
        let frames = frames.collect();
        let (stamp, events) = self.timeline.get().map_or((0, Vec::new()), |timeline| timeline.since(*told));
        *told = stamp;
        let bytes = message("frame", &Frame::new(admin, frames, events));
        viewers.retain(|viewer| viewer.try_send(bytes.clone()).is_ok());
    }
}

/// A server-sent event.
fn message(name: &str, told: &impl Serialize) -> Bytes {
    // Nothing in it can fail to be written: no map with odd keys. JSON holds no line feed.
    let json = serde_json::to_string(told).unwrap_or_default();
    Bytes::from(format!("event: {name}\nretry: 2000\ndata: {json}\n\n"))
}

/// Looks at the gates once a second, until the future is dropped.
pub async fn watch(admin: Arc<Admin>) {
    let mut ticks = interval(TICK);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        // A viewer that joins holds the page's lock: no worker of the runtime waits for that.
        let looking = Arc::clone(&admin);
        if let Err(error) = spawn_blocking(move || looking.page.look(&looking)).await {
            tracing::error!(%error, "the page could not look at the gates");
        }
    }
}
