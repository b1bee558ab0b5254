//! The connected sessions, by the ids that clients got at login, and how one kills another's statement.
//!
//! A session is idle, waits in the queue, or runs on a connection. While a kill is under way the session's
//! activity is locked, so the connection can't be handed to another session meanwhile. A kill that comes
//! late hits nobody.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use parking_lot::Mutex;
use tokio::sync::{Mutex as AsyncMutex, Notify};

use super::server::Thread;

/// What a session does.
#[derive(Clone, Debug)]
pub(super) enum Activity {
    Idle,
    Queued,
    /// It was killed while it waited.
    Canceled,
    /// On the connection with this thread of the server.
    Running(Thread),
    /// Like `Running`; somebody has killed what runs there, or tried to.
    Killed(Thread),
}

/// One session, as others see it.
pub(super) struct Entry {
    pub(super) user: Mutex<Vec<u8>>,
    pub(super) activity: AsyncMutex<Activity>,
    /// Wakes a session that waits.
    pub(super) canceled: Notify,
    /// Wakes a session that is to end.
    pub(super) ended: Notify,
}

/// The first of as many ids of sessions. Servers count their threads from 1: no thread has such an id, and
/// a client can kill by either.
const FIRST: u32 = 1 << 30;

/// All sessions of a gate, at most `max_clients`.
#[derive(Default)]
pub(super) struct Sessions {
    by_id: Mutex<HashMap<u32, Arc<Entry>>>,
    last: AtomicU32,
}

/// A session's place among all; gone when dropped.
pub(super) struct Registration {
    sessions: Arc<Sessions>,
    pub(super) id: u32,
    pub(super) entry: Arc<Entry>,
}

impl Entry {
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

    /// Enters a session of a user. `None`: `max` have entered already, or one of this id.
    pub(super) fn register(self: &Arc<Self>, id: u32, user: &[u8], max: u32) -> Option<Registration> {
        let entry = Arc::new(Entry {
            user: Mutex::new(user.to_vec()),
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
        let is_own = |entry: &&Arc<Entry>| *entry.user.lock() == user;
        let found = if id >= FIRST {
            by_id.get(&id).filter(is_own)
        } else {
            by_id.values().find(|entry| is_own(entry) && entry.runs_on(id))
        };
        found.cloned()
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
