//! Cancel requests: from a client's key to the statement that runs for it, or to its place in the queue.
//!
//! A client cancels by a second connection that names the process id and secret of the first; ours are made
//! up here, because a session has no server process of its own. What a session does at the moment is its
//! [`Target`]:
//!
//! * *idle*: a cancel has no effect, as in PostgreSQL;
//! * *queued*: the session is told ([`Registration::canceled`]) and leaves the queue;
//! * *running*: the cancel is passed on, with the key of the server process that runs the statement.
//!
//! A cancel that arrives late must not hit the next client's statement on the same server connection. So
//! while one is under way the session keeps its server connection ([`Registration::settled`]), and "under
//! way" ends when the server closes the cancel connection: it does so after it has signaled the process. If
//! that takes longer than [`SETTLE_LIMIT`], nobody knows when the signal will come, and the server
//! connection has to be closed.
//!
//! A key that no session has may be one of the process before ([`Elsewhere`]), which still drains.

use std::collections::HashMap;
use std::ops::RangeInclusive;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use parking_lot::Mutex;
use rand::RngExt;
use tokio::io::AsyncReadExt;
use tokio::sync::{Notify, Semaphore};
use tokio::time::timeout;
use wire::postgres::startup::write_cancel;

use super::endpoint::{Endpoint, Route};
use super::server::Server;
use crate::stream::Stream;

/// How long a cancel may take to reach the server and be confirmed, from first to last.
const SETTLE_LIMIT: Duration = Duration::from_secs(5);
/// How many cancels may be under way to the server at once: each takes a connection there, beside the budget.
const IN_FLIGHT_MAX: usize = 32;

/// The keys of all living sessions of a gate.
pub(crate) struct Registry {
    sessions: Mutex<HashMap<i32, Entry>>,
    in_flight: Semaphore,
    bound: Mutex<(usize, Arc<Endpoint>)>,
    elsewhere: OnceLock<Elsewhere>,
}

/// Takes the key of a cancel request that no session here has. It doesn't wait.
pub type Elsewhere = Box<dyn Fn(i32, &[u8]) + Send + Sync>;

/// How long a client's cancel key is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum KeyLength {
    /// Four bytes: protocol 3.0.
    Short,
    /// The length of PostgreSQL's own keys: protocol 3.2, which allows up to 256 bytes.
    Long,
}

/// The bytes of a long key.
const SECRET_MAX: usize = 32;

/// A secret that nobody can guess (a long one), or not within a session's life (a short one).
#[derive(Clone, Copy)]
struct Secret {
    bytes: [u8; SECRET_MAX],
    length: KeyLength,
}

impl Secret {
    fn bytes(&self) -> &[u8] {
        match self.length {
            KeyLength::Short => &self.bytes[..4],
            KeyLength::Long => &self.bytes,
        }
    }
}

struct Entry {
    secret: Secret,
    target: Arc<Target>,
}

/// What a session does, as far as a cancel is concerned.
#[derive(Default)]
struct Target {
    state: Mutex<TargetState>,
    /// The session was canceled in the queue.
    canceled: Notify,
    /// No cancel is under way any more.
    settled: Notify,
}

#[derive(Default)]
struct TargetState {
    activity: Activity,
    /// A cancel came while the session was queued; until it queues again.
    was_canceled: bool,
    /// A cancel came for the request under way: its client waits for it no longer.
    is_given_up: bool,
    /// A cancel is on its way to the server.
    is_in_flight: bool,
    /// A cancel was sent and its arrival not confirmed: the server connection can't be trusted.
    is_unconfirmed: bool,
}

/// Process ids that are only ours: Linux gives out none from 2^22 on, and others stay far below. So nobody
/// takes another's notifications for its own, or ends a stranger's process by what its login told it.
const OWN_IDS: RangeInclusive<i32> = 1 << 22..=i32::MAX;

#[derive(Default)]
enum Activity {
    #[default]
    Idle,
    Queued,
    Running {
        process_id: i32,
        secret: Bytes,
        route: Route,
    },
}

/// A living session's key; gone when dropped.
pub(crate) struct Registration {
    registry: Arc<Registry>,
    process_id: i32,
    secret: Secret,
    target: Arc<Target>,
}

impl Registry {
    /// No sessions yet; at most `sessions_max` of them. Cancels go to `endpoint`.
    pub(crate) fn new(sessions_max: usize, endpoint: Arc<Endpoint>) -> Self {
        let (bound, in_flight) = (Mutex::new((sessions_max, endpoint)), Semaphore::new(IN_FLIGHT_MAX));
        Self { sessions: Mutex::default(), in_flight, bound, elsewhere: OnceLock::new() }
    }

    /// What [`Registry::new`] was told has changed.
    pub(crate) fn change(&self, sessions_max: usize, endpoint: Arc<Endpoint>) {
        *self.bound.lock() = (sessions_max, endpoint);
    }

    /// Passes keys on that no session has.
    pub(crate) fn pass_on(&self, elsewhere: Elsewhere) {
        let _ = self.elsewhere.set(elsewhere);
    }

    /// A key for a new session: a positive process id that no living session has (old drivers refuse
    /// negative ones), nor any process of the server, and a random secret. `None`: there are `sessions_max`
    /// already.
    pub(crate) fn register(self: &Arc<Self>, length: KeyLength) -> Option<Registration> {
        self.register_as(None, length)
    }

    /// A key for a session that has a server connection to itself: it goes by the server's own process id,
    /// by which clients find themselves in `pg_stat_activity`, as long as no other session does. The secret
    /// is ours.
    pub(crate) fn register_with(
        self: &Arc<Self>,
        server: &Server,
        length: KeyLength,
    ) -> Option<Registration> {
        self.register_as(Some(server.process_id).filter(|id| *id > 0), length)
    }

    fn register_as(self: &Arc<Self>, wanted: Option<i32>, length: KeyLength) -> Option<Registration> {
        let sessions_max = self.bound.lock().0;
        let mut random = rand::rng();
        let mut sessions = self.sessions.lock();
        if sessions.len() >= sessions_max {
            return None;
        }
        let mut process_id = wanted.unwrap_or_else(|| random.random_range(OWN_IDS));
        while sessions.contains_key(&process_id) {
            process_id = random.random_range(OWN_IDS);
        }
        let secret = Secret { bytes: random.random(), length };
        let target = Arc::new(Target::default());
        sessions.insert(process_id, Entry { secret, target: Arc::clone(&target) });
        Some(Registration { registry: Arc::clone(self), process_id, secret, target })
    }

    /// Does what a cancel request asks for. Returns when it has been done; a wrong key and a session at
    /// rest are nothing to do. The client gets no answer in any case, as the protocol wants it.
    pub(crate) async fn cancel(&self, process_id: i32, secret: &[u8]) {
        let Some(target) = self.find(process_id, secret) else {
            if let Some(elsewhere) = self.elsewhere.get() {
                elsewhere(process_id, secret);
            }
            return;
        };
        let Ok(Ok(_permit)) = timeout(SETTLE_LIMIT, self.in_flight.acquire()).await else { return };
        let Some((process_id, secret, route)) = target.begin() else { return };
        let mut under_way = UnderWay { target: &target, is_uncertain: false };
        let endpoint = Arc::clone(&self.bound.lock().1);
        // Nothing of the request has been sent before the connection stands.
        let mut stream = match timeout(SETTLE_LIMIT, endpoint.connect_along(route)).await {
            Ok(Ok(stream)) => stream,
            Ok(Err(error)) => return tracing::warn!(%error, "a cancel request could not be passed on"),
            Err(_) => return tracing::warn!("a cancel request could not be passed on in time"),
        };
        under_way.is_uncertain = true;
        match timeout(SETTLE_LIMIT, pass_on(&mut stream, process_id, &secret)).await {
            Ok(Ok(())) => under_way.is_uncertain = false,
            Ok(Err(error)) => tracing::warn!(%error, "a cancel request may have been lost"),
            Err(_) => tracing::warn!("the server did not confirm a cancel request in time"),
        }
    }

    fn find(&self, process_id: i32, secret: &[u8]) -> Option<Arc<Target>> {
        let sessions = self.sessions.lock();
        let entry = sessions.get(&process_id)?;
        is_equal(entry.secret.bytes(), secret).then(|| Arc::clone(&entry.target))
    }
}

/// Sends a cancel request and waits until the server has acted on it: it says nothing, and closes when the
/// process has been signaled.
async fn pass_on(stream: &mut Stream, process_id: i32, secret: &[u8]) -> std::io::Result<()> {
    let mut request = BytesMut::new();
    write_cancel(&mut request, process_id, secret);
    stream.send(&request).await?;
    let mut nothing = [0; 16];
    loop {
        match stream.read(&mut nothing).await {
            Ok(0) => return Ok(()),
            Ok(_) => {}
            // With TLS, the end of the connection without a good-bye.
            Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => return Ok(()),
            Err(error) => return Err(error),
        }
    }
}

impl Target {
    /// Takes note of a cancel; gives the server's key if it is to be passed on. While one is under way,
    /// another one would change nothing.
    fn begin(&self) -> Option<(i32, Bytes, Route)> {
        let mut state = self.state.lock();
        match &state.activity {
            Activity::Idle => None,
            Activity::Queued => {
                state.was_canceled = true;
                self.canceled.notify_one();
                None
            }
            Activity::Running { .. } if state.is_in_flight => None,
            Activity::Running { process_id, secret, route } => {
                let key = (*process_id, secret.clone(), *route);
                state.is_in_flight = true;
                state.is_given_up = true;
                Some(key)
            }
        }
    }
}

/// Ends "under way" on every path, also when the task is dropped.
struct UnderWay<'a> {
    target: &'a Target,
    /// It was sent (in part, perhaps), and its arrival isn't confirmed.
    is_uncertain: bool,
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        let mut state = self.target.state.lock();
        state.is_in_flight = false;
        state.is_unconfirmed |= self.is_uncertain;
        self.target.settled.notify_one();
    }
}

impl Registration {
    /// The process id and secret that the client is told.
    pub(crate) fn key(&self) -> (i32, &[u8]) {
        (self.process_id, self.secret.bytes())
    }

    /// The session's request waits in the queue from now on. Forgets an earlier cancel.
    pub(crate) fn queued(&self) {
        let mut state = self.target.state.lock();
        state.activity = Activity::Queued;
        state.was_canceled = false;
    }

    /// The session's statement runs on `server` from now on. `true`: it was canceled while it was still
    /// queued, and should not be sent. (Told once.)
    pub(crate) fn running(&self, server: &Server) -> bool {
        let (process_id, secret) = (server.process_id, server.secret.clone());
        let mut state = self.target.state.lock();
        state.activity = Activity::Running { process_id, secret, route: server.route };
        state.is_given_up = std::mem::take(&mut state.was_canceled);
        state.is_given_up
    }

    /// Whether a cancel came since [`Registration::running`], whatever the session was doing: also between
    /// two statements of a transaction, where it has no effect on the server, and the client rolls back.
    /// (Told once.)
    pub(crate) fn take_given_up(&self) -> bool {
        std::mem::take(&mut self.target.state.lock().is_given_up)
    }

    /// The session does nothing that could be canceled from now on. Forgets a cancel that it has been told
    /// of.
    pub(crate) fn idle(&self) {
        let mut state = self.target.state.lock();
        state.activity = Activity::Idle;
        state.was_canceled = false;
    }

    /// Waits until the session is canceled in the queue. Cancel-safe.
    pub(crate) async fn canceled(&self) {
        loop {
            if self.target.state.lock().was_canceled {
                return;
            }
            self.target.canceled.notified().await;
        }
    }

    /// To be awaited after a statement and [`Registration::idle`], before the server connection may serve
    /// another client: waits until no cancel is under way to it (at once in the ordinary case,
    /// [`SETTLE_LIMIT`] at worst). `false`: a cancel may still arrive, so the connection must be closed.
    /// Cancel-safe.
    pub(crate) async fn settled(&self) -> bool {
        loop {
            {
                let mut state = self.target.state.lock();
                if !state.is_in_flight {
                    return !std::mem::take(&mut state.is_unconfirmed);
                }
            }
            self.target.settled.notified().await;
        }
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        self.registry.sessions.lock().remove(&self.process_id);
    }
}

/// Compares without telling by its duration how much is equal.
fn is_equal(ours: &[u8], theirs: &[u8]) -> bool {
    let difference = ours.iter().zip(theirs).fold(0, |all, (a, b)| all | (a ^ b));
    ours.len() == theirs.len() && std::hint::black_box(difference) == 0
}

#[cfg(test)]
mod tests;
