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
use std::future::Future;
use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;
use tokio::sync::Semaphore;
use tokio_postgres::config::{Host, SslMode};
use tokio_postgres::tls::MakeTlsConnect;
use tokio_postgres::{Client, NoTls, Socket};

use crate::Error;
use crate::encryption::Trust;

/// Connections that are opened at the same time: more would be a storm of its own.
const OPENING_MAX: usize = 8;
/// How long a connection attempt may take.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(30);
/// How often a lost connection is opened again before the pool goes on without it.
const REOPEN_ATTEMPTS: u32 = 5;
/// How long to wait before the next attempt.
const REOPEN_PAUSE: Duration = Duration::from_millis(200);
/// PostgreSQL's port, if an address names none.
const DEFAULT_PORT: u16 = 5432;
/// How long the server may take to end a statement that was canceled.
const CANCEL_BOUND: Duration = Duration::from_secs(5);
/// After how long a cancel is repeated: one that comes before its statement has started is forgotten by the
/// server.
const CANCEL_PERIOD: Duration = Duration::from_millis(250);

/// Whom to connect to.
#[derive(Clone, Debug)]
pub struct Target {
    config: tokio_postgres::Config,
    /// Host and port again, for what the driver doesn't do.
    address: (String, u16),
}

impl Target {
    /// Reads `host=… port=…` or `postgres://…`.
    ///
    /// # Errors
    /// If the text isn't a connection string with a host to reach by TCP.
    pub fn parse(dsn: &str) -> Result<Self, Error> {
        let config: tokio_postgres::Config = dsn.parse().map_err(Error::database("reading the address"))?;
        let Some(Host::Tcp(host)) = config.get_hosts().first() else {
            return Err(Error::Experiment("the address has no host".to_owned()));
        };
        let address = (host.clone(), config.get_ports().first().copied().unwrap_or(DEFAULT_PORT));
        Ok(Self { config, address })
    }

    /// Opens one connection, driven by a task of its own.
    ///
    /// # Errors
    /// If it can't be opened within half a minute.
    pub async fn connect(&self) -> Result<Client, Error> {
        self.connect_with(NoTls).await
    }

    /// Opens one connection with TLS to a server that shows this certificate.
    ///
    /// # Errors
    /// As [`Target::connect`].
    pub(crate) async fn connect_encrypted(&self, trust: &Trust) -> Result<Client, Error> {
        let mut target = self.clone();
        target.config.ssl_mode(SslMode::Require);
        target.connect_with(trust.clone()).await
    }

    async fn connect_with<T>(&self, tls: T) -> Result<Client, Error>
    where
        T: MakeTlsConnect<Socket>,
        T::Stream: Send + 'static,
    {
        let attempt = tokio::time::timeout(CONNECT_TIMEOUT, self.config.connect(tls)).await;
        let (client, connection) = attempt
            .map_err(|_| Error::Experiment(format!("no connection within {CONNECT_TIMEOUT:?}")))?
            .map_err(Error::database("connecting"))?;
        // An error ends the connection; the client's next call reports it.
        tokio::spawn(async move { connection.await.is_ok() });
        Ok(client)
    }

    /// Cancels what a connection runs, until its server is done with it: whether the connection can be used
    /// again.
    pub(super) async fn settle(&self, client: &Client) -> bool {
        !client.is_closed() && within(CANCEL_BOUND, self.roll_back(client)).await
    }

    async fn roll_back(&self, client: &Client) -> std::io::Result<()> {
        self.cancel(client).await?;
        // Queued behind what was canceled: its answer says that the server is done with it.
        let mut done = pin!(client.simple_query("ROLLBACK"));
        loop {
            match tokio::time::timeout(CANCEL_PERIOD, &mut done).await {
                Ok(answer) => return answer.map(drop).map_err(std::io::Error::other),
                Err(_) => self.cancel(client).await?,
            }
        }
    }

    /// Cancels what a connection runs and waits until the server has passed the signal on.
    ///
    /// The driver sends the request but doesn't wait for the server to close the cancel connection, which
    /// is how it says that it is done (libpq does wait); the signal could then hit the connection's next
    /// request.
    async fn cancel(&self, client: &Client) -> std::io::Result<()> {
        let mut stream = TcpStream::connect((self.address.0.as_str(), self.address.1)).await?;
        client.cancel_token().cancel_query_raw(&mut stream, NoTls).await.map_err(std::io::Error::other)?;
        let mut answer = [0; 1];
        while stream.read(&mut answer).await? > 0 {}
        Ok(())
    }
}

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

    /// How many connections the pool was opened with.
    pub const fn size(&self) -> usize {
        self.size
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

    /// Takes an idle connection out of the pool, for a closed loop.
    pub(super) fn take(&self) -> Option<Client> {
        self.lists().idle.pop()
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

/// Whether `operation` succeeds within `bound`.
async fn within<T, E>(bound: Duration, operation: impl Future<Output = Result<T, E>>) -> bool {
    matches!(tokio::time::timeout(bound, operation).await, Ok(Ok(_)))
}
