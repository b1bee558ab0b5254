//! How a gate asks its server about users (`auth_query`): over one connection of its own, one question after
//! the other, and at most [`WAITING_MAX`] logins wait.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::{Mutex, MutexGuard, Semaphore, SemaphorePermit};

/// After so long without a question the connection is closed.
pub(crate) const IDLE_MAX: Duration = Duration::from_secs(60);
/// The longest that a question may take, connecting aside.
pub(crate) const ANSWER_MAX: Duration = Duration::from_secs(10);
/// The most logins that wait for their turn to ask.
const WAITING_MAX: usize = 1_000;

/// The connection, and how its questions ended.
#[derive(Debug)]
pub(crate) struct Asking<C> {
    connection: Mutex<Option<C>>,
    waiting: Semaphore,
    pub(crate) found: AtomicU64,
    pub(crate) unknown: AtomicU64,
    pub(crate) failed: AtomicU64,
}

/// A turn to ask. A connection that is taken out and not put back is closed.
pub(crate) struct Turn<'a, C> {
    pub(crate) connection: MutexGuard<'a, Option<C>>,
    _waiting: SemaphorePermit<'a>,
}

impl<C> Default for Asking<C> {
    fn default() -> Self {
        Self {
            connection: Mutex::new(None),
            waiting: Semaphore::new(WAITING_MAX),
            found: AtomicU64::new(0),
            unknown: AtomicU64::new(0),
            failed: AtomicU64::new(0),
        }
    }
}

impl<C> Asking<C> {
    /// The next turn; `None` if too many wait.
    pub(crate) async fn turn(&self) -> Option<Turn<'_, C>> {
        let _waiting = self.waiting.try_acquire().ok()?;
        Some(Turn { connection: self.connection.lock().await, _waiting })
    }

    /// Counts how a question has ended.
    pub(crate) fn count<U, E>(&self, answer: &Result<Option<U>, E>) {
        let counter = match answer {
            Ok(Some(_)) => &self.found,
            Ok(None) => &self.unknown,
            Err(_) => &self.failed,
        };
        counter.fetch_add(1, Ordering::Relaxed);
    }

    /// Takes the connection out if it is of no use any more and nobody asks now.
    pub(crate) fn take_if(&self, is_over: impl FnOnce(&mut C) -> bool) -> Option<C> {
        self.connection.try_lock().ok()?.take_if(is_over)
    }
}
