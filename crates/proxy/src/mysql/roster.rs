//! The connected sessions, by the ids that clients got at login, and how one kills another's statement.
//!
//! A session is idle, waits in the queue, or runs on a connection. While a kill is under way the session's
//! activity is locked, so the connection can't be handed to another session meanwhile. A kill that comes
//! late hits nobody.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::SystemTime;

use admission::Instant;
use parking_lot::Mutex;
use tokio::sync::{Mutex as AsyncMutex, Notify};

use super::pins;
use super::server::{Server, Thread};
use crate::console::{self, SessionRow};
use crate::sql::{Hand, ServerInHand};
use crate::stream::Stream;

/// What a session does.
#[derive(Clone, Debug)]
pub(super) enum Activity {
    Idle,
    /// Its transaction is open, and its client thinks.
    Resting,
    Queued,
    /// It was killed while it waited.
    Canceled,
    /// On the connection with this thread of the server.
    Running(Thread),
    /// Like `Running`; somebody has killed what runs there, or tried to.
    Killed(Thread),
}

/// A session's user and database. COM_CHANGE_USER and USE change them.
#[derive(Clone, Debug, Default)]
pub(super) struct Who {
    pub(super) user: Vec<u8>,
    pub(super) database: Vec<u8>,
    pub(super) application: Vec<u8>,
}

/// One session, as others see it.
pub(super) struct Entry {
    pub(super) who: Mutex<Who>,
    /// `None`: by a Unix socket.
    address: Option<SocketAddr>,
    is_encrypted: bool,
    connected: SystemTime,
    pub(super) activity: AsyncMutex<Activity>,
    /// Since when it does what it does, by the gate's clock in nanoseconds.
    since: AtomicU64,
    /// The server connection that it has.
    hand: Hand,
    /// Why it keeps that connection: a bit for each of [`Pin::ALL`].
    pub(super) pins: Arc<AtomicU32>,
    /// Wakes a session that waits.
    pub(super) canceled: Notify,
    /// Wakes a session that is to end.
    pub(super) ended: Notify,
}

/// The first of as many ids of sessions. Servers count their threads from 1: no thread has such an id, and
/// a client can kill by either.
const FIRST: u32 = 1 << 30;

/// All sessions of a gate, at most `max_clients`.
pub(super) struct Sessions {
    by_id: Mutex<HashMap<u32, Arc<Entry>>>,
    last: AtomicU32,
}

impl Default for Sessions {
    /// None yet. The ids begin anywhere: those of a process that this one has followed mean nobody here.
    fn default() -> Self {
        Self { by_id: Mutex::default(), last: AtomicU32::new(rand::random()) }
    }
}

/// A session's place among all; gone when dropped.
pub(super) struct Registration {
    sessions: Arc<Sessions>,
    pub(super) id: u32,
    pub(super) entry: Arc<Entry>,
}

impl Activity {
    fn shown(&self) -> console::Activity {
        match self {
            Self::Idle => console::Activity::Idle,
            Self::Resting => console::Activity::InTransaction,
            Self::Queued | Self::Canceled => console::Activity::Waiting,
            Self::Running(_) | Self::Killed(_) => console::Activity::Active,
        }
    }
}

impl Entry {
    /// What the session does from now on, and on which thread of the server; returns what it did.
    pub(super) async fn note(&self, activity: Activity, now: Instant, server: Option<&Server>) -> Activity {
        self.since.store(now.as_nanos(), Ordering::Relaxed);
        self.note_server(server);
        std::mem::replace(&mut *self.activity.lock().await, activity)
    }

    /// The connection that the session has from now on.
    pub(super) fn note_server(&self, server: Option<&Server>) {
        self.hand.note(server.map(|server| ServerInHand {
            id: u64::from(server.thread.id),
            process_id: server.thread.id,
            connected: server.connected,
        }));
    }

    /// What a console shows of it.
    fn row(&self, id: u32) -> SessionRow {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let who = self.who.lock().clone();
        // Somebody kills what runs there just now.
        let activity = self.activity.try_lock().map_or(console::Activity::Active, |now| now.shown());
        SessionRow {
            id: u64::from(id),
            user: text(&who.user),
            database: text(&who.database),
            application: text(&who.application),
            address: self.address,
            is_encrypted: self.is_encrypted,
            connected: self.connected,
            activity,
            since: Instant::from_nanos(self.since.load(Ordering::Relaxed)),
            server: self.hand.server(),
            pins: pins::names(&self.pins),
        }
    }

    /// Whether a statement of the session runs on this thread, and nobody kills it just now.
    fn runs_on(&self, thread: u32) -> bool {
        let running = self.activity.try_lock();
        matches!(running.as_deref(), Ok(Activity::Running(it) | Activity::Killed(it)) if it.id == thread)
    }
}

impl Sessions {
    /// The id that the next client is told.
    pub(super) fn next_id(&self) -> u32 {
        FIRST + self.last.fetch_add(1, Ordering::Relaxed) % FIRST
    }

    /// Whether as many have entered as may.
    pub(super) fn is_full(&self, max: u32) -> bool {
        self.len() >= max as usize
    }

    /// Enters a session that comes over this stream. `None`: `max` have entered already, or one of this id.
    pub(super) fn register(
        self: &Arc<Self>,
        (id, who): (u32, Who),
        stream: &Stream,
        max: u32,
    ) -> Option<Registration> {
        let entry = Arc::new(Entry {
            who: Mutex::new(who),
            address: stream.peer_address(),
            is_encrypted: matches!(stream, Stream::Tls(_)),
            connected: SystemTime::now(),
            since: AtomicU64::default(),
            hand: Hand::default(),
            pins: Arc::default(),
            activity: AsyncMutex::new(Activity::Idle),
            canceled: Notify::new(),
            ended: Notify::new(),
        });
        let mut by_id = self.by_id.lock();
        if by_id.len() >= max as usize || by_id.contains_key(&id) {
            return None;
        }
        by_id.insert(id, Arc::clone(&entry));
        Some(Registration { sessions: Arc::clone(self), id, entry })
    }

    /// The session of this id, if it is the user's. An id of a thread of the server's is that of the session
    /// whose statement runs there.
    pub(super) fn of_user(&self, id: u64, user: &[u8]) -> Option<Arc<Entry>> {
        let id = u32::try_from(id).ok()?;
        let by_id = self.by_id.lock();
        let is_own = |entry: &&Arc<Entry>| entry.who.lock().user == user;
        let found = if id >= FIRST {
            by_id.get(&id).filter(is_own)
        } else {
            by_id.values().find(|entry| is_own(entry) && entry.runs_on(id))
        };
        found.cloned()
    }

    /// All sessions, as a console shows them.
    pub(super) fn rows(&self) -> Vec<SessionRow> {
        let by_id = self.by_id.lock();
        let mut rows: Vec<_> = by_id.iter().map(|(id, entry)| entry.row(*id)).collect();
        rows.sort_by_key(|row| row.id);
        rows
    }

    /// Has a session end, and what it runs.
    pub(super) fn end(&self, id: u64) {
        if let Some(entry) = u32::try_from(id).ok().and_then(|id| self.by_id.lock().get(&id).cloned()) {
            entry.ended.notify_one();
        }
    }

    pub(super) fn len(&self) -> usize {
        self.by_id.lock().len()
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        self.sessions.by_id.lock().remove(&self.id);
    }
}
