//! The client-side pool: N connections to one address, and a FIFO queue beyond them, as application servers
//! have.
//!
//! Idle connections are reused last in, first out: the server's few warm processes do most of the work, which
//! is what most pools do and what suits the uncontrolled server best.
//!
//! **Ownership.** A connection is either idle (in the stack), held by one request's task, or being
//! repaired. A request is either waiting (in the queue) or held by the task of its connection. One lock
//! guards both lists and is never held across an await.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Semaphore;

use super::client::{Client, Target};
use crate::Error;

/// Connections that are opened at the same time: more would be a storm of its own.
const OPENING_MAX: usize = 8;
/// How often a lost connection is opened again before the pool goes on without it.
const REOPEN_ATTEMPTS: u32 = 5;
/// How long to wait before the next attempt.
const REOPEN_PAUSE: Duration = Duration::from_millis(200);

#[derive(Debug, Default)]
struct Lists {
    idle: Vec<Client>,
    /// Arrival numbers of the requests that wait for a connection.
    waiting: VecDeque<usize>,
}

/// A pool of connections that outlives the runs made with it.
#[derive(Debug)]
pub struct ConnectionPool {
    target: Target,
    size: usize,
    lists: Mutex<Lists>,
    opening: Semaphore,
    missing: AtomicUsize,
    reopened: AtomicUsize,
}

impl ConnectionPool {
    /// Opens `size` connections, a few at a time.
    ///
    /// # Errors
    /// If one of them can't be opened.
    pub async fn open(target: Target, size: usize) -> Result<Arc<Self>, Error> {
        let pool = Arc::new(Self {
            target,
            size,
            lists: Mutex::default(),
            opening: Semaphore::new(OPENING_MAX),
            missing: AtomicUsize::new(0),
            reopened: AtomicUsize::new(0),
        });
        let mut tasks = tokio::task::JoinSet::new();
        for _ in 0..size {
            let pool = Arc::clone(&pool);
            tasks.spawn(async move {
                let _permit = pool.opening.acquire().await;
                pool.target.connect().await
            });
        }
        while let Some(joined) = tasks.join_next().await {
            let client =
                joined.map_err(|_| Error::Experiment("opening a connection was aborted".to_owned()))??;
            pool.lists().idle.push(client);
        }
        Ok(pool)
    }

    /// How many connections had to be opened again so far.
    pub fn reopened(&self) -> usize {
        self.reopened.load(Ordering::Relaxed)
    }

    /// Connections that could not be opened again: the pool goes on without them.
    pub fn missing(&self) -> usize {
        self.missing.load(Ordering::Relaxed)
    }

    /// Whether every connection is idle, so that a new run starts from a clean pool.
    pub fn is_at_rest(&self) -> bool {
        let lists = self.lists();
        lists.waiting.is_empty() && lists.idle.len() + self.missing() >= self.size
    }

    /// Queues a request; returns a connection and the request that is to use it, if both are at hand.
    pub(super) fn offer(&self, request: usize) -> Option<(Client, usize)> {
        let mut lists = self.lists();
        lists.waiting.push_back(request);
        let client = lists.idle.pop()?;
        let Some(first) = lists.waiting.pop_front() else {
            lists.idle.push(client);
            return None;
        };
        Some((client, first))
    }

    /// Hands a connection to the request that has waited longest, or keeps it idle.
    pub(super) fn hand_on(&self, client: Client) -> Option<(Client, usize)> {
        let mut lists = self.lists();
        if let Some(request) = lists.waiting.pop_front() {
            return Some((client, request));
        }
        lists.idle.push(client);
        None
    }

    /// Takes the waiting requests from the front for which `gone` holds.
    pub(super) fn take_expired(&self, gone: impl Fn(usize) -> bool) -> Vec<usize> {
        let mut lists = self.lists();
        let expired = lists.waiting.iter().take_while(|&&request| gone(request)).count();
        lists.waiting.drain(..expired).collect()
    }

    /// Makes a connection whose request was given up usable again: cancels what still runs and rolls back, or
    /// opens a new one. Returns `None` if that failed for good.
    pub(super) async fn repair(&self, client: Client) -> Option<Client> {
        if self.target.settle(&client).await {
            return Some(client);
        }
        drop(client);
        for _ in 0..REOPEN_ATTEMPTS {
            let opened = {
                let _permit = self.opening.acquire().await;
                self.target.connect().await
            };
            if let Ok(client) = opened {
                self.reopened.fetch_add(1, Ordering::Relaxed);
                return Some(client);
            }
            tokio::time::sleep(REOPEN_PAUSE).await;
        }
        self.missing.fetch_add(1, Ordering::Relaxed);
        None
    }

    fn lists(&self) -> MutexGuard<'_, Lists> {
        // The lists are consistent after every statement, so a panic elsewhere doesn't spoil them.
        self.lists.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
