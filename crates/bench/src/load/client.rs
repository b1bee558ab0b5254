//! One connection of a client, to PostgreSQL or to MariaDB, and its server.
//!
//! Both are driven by a task of their own, so that a request can be given up at any time: what it asked for
//! goes on, until [`Target::settle`] has it canceled and waits for its end.

use std::future::Future;
use std::pin::pin;
use std::time::Duration;

use mysql_async::Opts;
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;
use tokio_postgres::config::{Host, SslMode};
use tokio_postgres::tls::MakeTlsConnect;
use tokio_postgres::{NoTls, SimpleQueryMessage, Socket};

use super::mariadb::{self, Conversation};
use super::said::DatabaseError;
use crate::Error;
use crate::encryption::Trust;

/// How long a connection attempt may take.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(30);
/// PostgreSQL's port, if an address names none.
const DEFAULT_PORT: u16 = 5432;
/// How an address of MariaDB begins.
const MARIADB: &str = "mysql://";
/// How long the server may take to end a statement that was canceled.
const CANCEL_BOUND: Duration = Duration::from_secs(5);
/// After how long a cancel is repeated: one that comes before its statement has started is forgotten by the
/// server.
const CANCEL_PERIOD: Duration = Duration::from_millis(250);

/// A connection.
#[derive(Debug)]
pub enum Client {
    /// To PostgreSQL.
    Postgres(tokio_postgres::Client),
    /// To MariaDB.
    Mariadb(Conversation),
}

impl Client {
    /// Whether it leads to MariaDB.
    pub const fn is_mariadb(&self) -> bool {
        matches!(self, Self::Mariadb(_))
    }

    /// Whether the connection has ended.
    pub fn is_closed(&self) -> bool {
        match self {
            Self::Postgres(client) => client.is_closed(),
            Self::Mariadb(conversation) => conversation.is_closed(),
        }
    }

    /// Runs a text whose rows nobody needs.
    ///
    /// # Errors
    /// What the server says.
    pub async fn simple_query(&self, sql: &str) -> Result<(), DatabaseError> {
        match self {
            Self::Postgres(client) => Ok(client.simple_query(sql).await.map(drop)?),
            Self::Mariadb(conversation) => conversation.run(sql).await,
        }
    }

    /// The first column of all rows of a text, as text.
    ///
    /// # Errors
    /// What the server says.
    pub async fn column(&self, sql: &str) -> Result<Vec<String>, DatabaseError> {
        let first = |answer| match answer {
            SimpleQueryMessage::Row(row) => Some(row.get(0).unwrap_or_default().to_owned()),
            _ => None,
        };
        match self {
            Self::Postgres(client) => {
                Ok(client.simple_query(sql).await?.into_iter().filter_map(first).collect())
            }
            Self::Mariadb(conversation) => conversation.column(sql).await,
        }
    }
}

/// The server or gate to connect to.
#[derive(Clone, Debug)]
pub enum Target {
    /// PostgreSQL; host and port again, for what the driver doesn't do.
    Postgres(Box<tokio_postgres::Config>, (String, u16)),
    /// MariaDB.
    Mariadb(Opts),
}

impl Target {
    /// Reads `host=… port=…`, `postgres://…` or `mysql://…`.
    ///
    /// # Errors
    /// If the text isn't a connection string with a host to reach by TCP.
    pub fn parse(dsn: &str) -> Result<Self, Error> {
        if dsn.starts_with(MARIADB) {
            return Ok(Self::Mariadb(mariadb::options(dsn)?));
        }
        let config: tokio_postgres::Config = dsn.parse().map_err(Error::database("reading the address"))?;
        let Some(Host::Tcp(host)) = config.get_hosts().first() else {
            return Err(Error::Experiment("the address has no host".to_owned()));
        };
        let address = (host.clone(), config.get_ports().first().copied().unwrap_or(DEFAULT_PORT));
        Ok(Self::Postgres(Box::new(config), address))
    }

    /// This target for the sessions of an application, which say its name at login. Only PostgreSQL has
    /// such a name; a plan that gives one to MariaDB's clients is refused before.
    #[must_use]
    pub fn of(&self, application: &str) -> Self {
        let mut target = self.clone();
        if let Self::Postgres(config, _) = &mut target {
            config.application_name(application);
        }
        target
    }

    /// Opens one connection, driven by a task of its own.
    ///
    /// # Errors
    /// If it can't be opened within half a minute.
    pub async fn connect(&self) -> Result<Client, Error> {
        match self {
            Self::Postgres(config, _) => connect(config, NoTls).await,
            Self::Mariadb(options) => {
                let opened = in_time(Conversation::open(options.clone())).await?;
                Ok(Client::Mariadb(opened.map_err(Error::database("connecting"))?))
            }
        }
    }

    /// Opens one connection with TLS to a PostgreSQL that shows this certificate.
    ///
    /// # Errors
    /// As [`Target::connect`].
    pub(crate) async fn connect_encrypted(&self, trust: &Trust) -> Result<Client, Error> {
        let Self::Postgres(config, _) = self else {
            return Err(Error::Experiment("with TLS only PostgreSQL is connected to".to_owned()));
        };
        let mut config = config.clone();
        config.ssl_mode(SslMode::Require);
        connect(&config, trust.clone()).await
    }

    /// Cancels what a connection runs, until its server is done with it: whether the connection can be used
    /// again.
    pub(super) async fn settle(&self, client: &Client) -> bool {
        !client.is_closed() && within(CANCEL_BOUND, self.roll_back(client)).await
    }

    async fn roll_back(&self, client: &Client) -> Result<(), Error> {
        self.cancel(client).await?;
        // Queued behind what was canceled: its answer says that the server is done with it.
        let mut done = pin!(client.simple_query("ROLLBACK"));
        loop {
            match tokio::time::timeout(CANCEL_PERIOD, &mut done).await {
                Ok(answer) => return answer.map_err(Error::database("rolling back")),
                Err(_) => self.cancel(client).await?,
            }
        }
    }

    /// Cancels what a connection runs and waits until the server has passed the signal on.
    ///
    /// PostgreSQL's driver sends the request but doesn't wait for the server to close the cancel
    /// connection, which is how it says that it is done (libpq does wait); the signal could then hit the
    /// connection's next request.
    async fn cancel(&self, client: &Client) -> Result<(), Error> {
        match (self, client) {
            (Self::Postgres(_, address), Client::Postgres(client)) => {
                let canceled = Error::io("canceling");
                cancel(client, address).await.map_err(canceled)
            }
            (_, Client::Mariadb(conversation)) => {
                let kill = format!("KILL QUERY {}", conversation.id());
                self.connect().await?.simple_query(&kill).await.map_err(Error::database(kill))
            }
            (Self::Mariadb(_), Client::Postgres(_)) => {
                Err(Error::Experiment("the connection leads to another server".to_owned()))
            }
        }
    }
}

async fn connect<T>(config: &tokio_postgres::Config, tls: T) -> Result<Client, Error>
where
    T: MakeTlsConnect<Socket>,
    T::Stream: Send + 'static,
{
    let attempt = in_time(config.connect(tls)).await?;
    let (client, connection) = attempt.map_err(Error::database("connecting"))?;
    // An error ends the connection; the client's next call reports it.
    tokio::spawn(async move { connection.await.is_ok() });
    Ok(Client::Postgres(client))
}

async fn cancel(client: &tokio_postgres::Client, (host, port): &(String, u16)) -> std::io::Result<()> {
    let mut stream = TcpStream::connect((host.as_str(), *port)).await?;
    client.cancel_token().cancel_query_raw(&mut stream, NoTls).await.map_err(std::io::Error::other)?;
    let mut answer = [0; 1];
    while stream.read(&mut answer).await? > 0 {}
    Ok(())
}

/// What a connection attempt came to, unless it took too long.
async fn in_time<T>(attempt: impl Future<Output = T>) -> Result<T, Error> {
    let ended = tokio::time::timeout(CONNECT_TIMEOUT, attempt).await;
    ended.map_err(|_| Error::Experiment(format!("no connection within {CONNECT_TIMEOUT:?}")))
}

/// Whether `operation` succeeds within `bound`.
async fn within<T, E>(bound: Duration, operation: impl Future<Output = Result<T, E>>) -> bool {
    matches!(tokio::time::timeout(bound, operation).await, Ok(Ok(_)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gates_refusal_is_told_from_a_lock_that_was_not_had() {
        let error = |code, message: &str| {
            let (message, state) = (message.to_owned(), "HY000".to_owned());
            DatabaseError::from(mysql_async::Error::from(mysql_async::ServerError { code, message, state }))
        };
        assert!(error(1205, "gatekeeper \"mysql\": overloaded").is_refusal());
        assert!(!error(1205, "Lock wait timeout exceeded; try restarting transaction").is_refusal());
        assert!(error(1040, "Too many connections").is_refusal());
        assert!(!DatabaseError::Ended.is_refusal());
    }
}
