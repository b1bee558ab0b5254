//! Connections to the database: a pool of so many, or one for each interaction.
//!
//! A request that finds none free waits, for a bounded time and behind a bounded number of others.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use deadpool_postgres::{Manager, ManagerConfig, Pool, PoolError, RecyclingMethod, Runtime};
use tokio_postgres::{Config, NoTls};

use super::failure::Failure;
use super::session::Connection;
use crate::Error;

/// Where sessions get their connections.
pub(super) struct Connections {
    source: Source,
    /// How many wait.
    waiting: AtomicUsize,
    waiting_max: usize,
    timeout: Duration,
    started: Instant,
    /// The second since the start, counted from 1, in which the log was last told that the database lets
    /// nobody in.
    told: AtomicU64,
}

enum Source {
    Pool(Pool),
    PerRequest(Box<Config>),
}

/// Counts one that waits, until it is dropped.
struct Waiting<'a>(&'a AtomicUsize);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Connections {
    /// To the database at a URL: a pool of `size`, or one for each interaction if there is none. Connects
    /// to nothing yet.
    ///
    /// # Errors
    ///
    /// If the URL can't be read.
    pub(super) fn new(
        url: &str,
        size: Option<usize>,
        waiting_max: usize,
        timeout: Duration,
    ) -> Result<Self, Error> {
        let mut config: Config = url.parse().map_err(|error: tokio_postgres::Error| {
            let cause = std::error::Error::source(&error).map(ToString::to_string);
            Error::Address(cause.unwrap_or_else(|| error.to_string()))
        })?;
        config.connect_timeout(timeout);
        if config.get_application_name().is_none() {
            config.application_name("bookstore");
        }
        let source = match size {
            None => Source::PerRequest(Box::new(config)),
            Some(size) => {
                // Whether a connection is alive is seen when it is used: asking would be a round trip for
                // each page.
                let manner = ManagerConfig { recycling_method: RecyclingMethod::Fast };
                let manager = Manager::from_config(config, NoTls, manner);
                let pool = Pool::builder(manager)
                    .max_size(size)
                    .runtime(Runtime::Tokio1)
                    .wait_timeout(Some(timeout))
                    .create_timeout(Some(timeout))
                    .build()
                    .map_err(|error| Error::Address(error.to_string()))?;
                Source::Pool(pool)
            }
        };
        let (waiting, told) = (AtomicUsize::new(0), AtomicU64::new(0));
        Ok(Self { source, waiting, waiting_max, timeout, started: Instant::now(), told })
    }

    /// A connection.
    ///
    /// # Errors
    ///
    /// Busy, if there is none in time, too many wait for one, or the database lets none in.
    pub(super) async fn get(&self) -> Result<Connection, Failure> {
        if self.waiting.fetch_add(1, Ordering::Relaxed) >= self.waiting_max {
            self.waiting.fetch_sub(1, Ordering::Relaxed);
            return Err(Failure::Busy("too many wait for a connection".to_owned()));
        }
        let _waiting = Waiting(&self.waiting);
        match &self.source {
            Source::Pool(pool) => match pool.get().await {
                Ok(object) => Ok(Connection::Pooled(object)),
                Err(PoolError::Backend(error)) => Err(self.refused(&error)),
                Err(other) => Err(Failure::Busy(other.to_string())),
            },
            Source::PerRequest(config) => {
                match tokio::time::timeout(self.timeout, config.connect(NoTls)).await {
                    Ok(Ok((client, connection))) => {
                        tokio::spawn(connection);
                        Ok(Connection::Own(client))
                    }
                    Ok(Err(error)) => Err(self.refused(&error)),
                    Err(_) => Err(Failure::Busy("connecting took too long".to_owned())),
                }
            }
        }
    }

    /// Whatever keeps us from connecting, visitors can only come back later. The operator should know, but
    /// not by a line for every visitor.
    fn refused(&self, error: &tokio_postgres::Error) -> Failure {
        let cause = std::error::Error::source(error).map(ToString::to_string).unwrap_or_default();
        let now = self.started.elapsed().as_secs() + 1;
        if self.told.swap(now, Ordering::Relaxed) != now {
            tracing::warn!(%error, cause, "the database lets nobody in");
        }
        Failure::Busy(format!("{error}: {cause}"))
    }
}
