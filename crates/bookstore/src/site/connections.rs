//! Connections to the database: a pool of so many, or one for each interaction.
//!
//! A request that finds none free waits, for a bounded time and behind a bounded number of others.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use clap::ValueEnum;
use deadpool_postgres::{Manager, ManagerConfig, Pool, PoolError, RecyclingMethod, Runtime};
use mysql_async::{Conn, Opts, PoolConstraints, PoolOpts};
use tokio::sync::Mutex;
use tokio_postgres::{Config, NoTls};

use super::failure::Failure;
use crate::Error;
use crate::database::{Connection, DatabaseError, is_mariadb, mariadb_options};

/// How far transactions are kept from one another.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Isolation {
    /// READ COMMITTED, PostgreSQL's own default
    #[default]
    ReadCommitted,
    /// REPEATABLE READ
    RepeatableRead,
    /// SERIALIZABLE
    Serializable,
}

impl Isolation {
    /// The level in SQL.
    pub(super) const fn sql(self) -> &'static str {
        match self {
            Self::ReadCommitted => "READ COMMITTED",
            Self::RepeatableRead => "REPEATABLE READ",
            Self::Serializable => "SERIALIZABLE",
        }
    }
}

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
    Mariadb(mysql_async::Pool),
    MariadbPerRequest(Opts),
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
        isolation: Isolation,
        size: Option<usize>,
        (waiting_max, timeout): (usize, Duration),
    ) -> Result<Self, Error> {
        let source = if is_mariadb(url) {
            to_mariadb(url, isolation, size)?
        } else {
            to_postgres(url, size, timeout)?
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
                Err(PoolError::Backend(error)) => Err(self.refused(error.into())),
                Err(other) => Err(Failure::Busy(other.to_string())),
            },
            Source::PerRequest(config) => {
                match tokio::time::timeout(self.timeout, config.connect(NoTls)).await {
                    Ok(Ok((client, connection))) => {
                        tokio::spawn(connection);
                        Ok(Connection::Own(client))
                    }
                    Ok(Err(error)) => Err(self.refused(error.into())),
                    Err(_) => Err(Failure::Busy("connecting took too long".to_owned())),
                }
            }
            Source::Mariadb(pool) => self.mariadb(pool.get_conn()).await,
            Source::MariadbPerRequest(options) => self.mariadb(Conn::new(options.clone())).await,
        }
    }

    async fn mariadb(
        &self,
        connecting: impl Future<Output = Result<Conn, mysql_async::Error>>,
    ) -> Result<Connection, Failure> {
        match tokio::time::timeout(self.timeout, connecting).await {
            Ok(Ok(conn)) => Ok(Connection::Mariadb(Mutex::new(conn))),
            Ok(Err(error)) => Err(self.refused(error.into())),
            Err(_) => Err(Failure::Busy("no connection in time".to_owned())),
        }
    }

    /// Whatever keeps us from connecting, visitors can only come back later. The operator should know, but
    /// not by a line for every visitor.
    fn refused(&self, error: DatabaseError) -> Failure {
        let now = self.started.elapsed().as_secs() + 1;
        if self.told.swap(now, Ordering::Relaxed) != now {
            tracing::warn!(%error, "the database lets nobody in");
        }
        Failure::Busy(error.to_string())
    }
}

fn to_postgres(url: &str, size: Option<usize>, timeout: Duration) -> Result<Source, Error> {
    let mut config: Config = url.parse().map_err(|error: tokio_postgres::Error| {
        let cause = std::error::Error::source(&error).map(ToString::to_string);
        Error::Address(cause.unwrap_or_else(|| error.to_string()))
    })?;
    config.connect_timeout(timeout);
    if config.get_application_name().is_none() {
        config.application_name("bookstore");
    }
    match size {
        None => Ok(Source::PerRequest(Box::new(config))),
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
            Ok(Source::Pool(pool))
        }
    }
}

/// To MariaDB, whose connections say at their login how far transactions are kept from one another.
fn to_mariadb(url: &str, isolation: Isolation, size: Option<usize>) -> Result<Source, Error> {
    let options = mariadb_options(url).map_err(|error| Error::Address(error.to_string()))?;
    let options = options.init(vec![format!("SET SESSION TRANSACTION ISOLATION LEVEL {}", isolation.sql())]);
    let Some(size) = size else { return Ok(Source::MariadbPerRequest(options.into())) };
    // As many may stay as may be; a reset would be a round trip for each page.
    let bounds = PoolConstraints::new(size, size)
        .ok_or_else(|| Error::Address("a pool has a connection at least".to_owned()))?;
    let pool = PoolOpts::default().with_constraints(bounds).with_reset_connection(false);
    Ok(Source::Mariadb(mysql_async::Pool::new(options.pool_opts(pool))))
}
