//! A private server of either database, for what is asked of both.

use serde::{Deserialize, Serialize};

use crate::Error;
use crate::mariadb::PrivateMariadb;
use crate::postgres::{PrivateServer, PrivateServerOptions, Stop};

/// What MariaDB is configured with: memory for the whole shop, no checkpoint in the middle of a round, and
/// commits that are flushed, as PostgreSQL's are.
const MARIADB_SETTINGS: [&str; 4] = [
    "--innodb-buffer-pool-size=256M",
    "--innodb-log-file-size=1G",
    "--innodb-flush-log-at-trx-commit=1",
    "--table-open-cache=4000",
];

/// Which database.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Database {
    /// PostgreSQL.
    #[default]
    #[value(name = "postgresql")]
    #[serde(rename = "postgresql")]
    Postgres,
    /// MariaDB.
    Mariadb,
}

impl Database {
    /// Its name in sentences.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Postgres => "PostgreSQL",
            Self::Mariadb => "MariaDB",
        }
    }

    /// Whether it is PostgreSQL.
    pub const fn is_postgres(&self) -> bool {
        matches!(self, Self::Postgres)
    }
}

/// A private server. Dropping it stops the server and removes everything that it wrote.
#[derive(Debug)]
pub enum DatabaseServer {
    /// PostgreSQL.
    Postgres(PrivateServer),
    /// MariaDB.
    Mariadb(PrivateMariadb),
}

/// What a gate must know of the server behind it.
#[derive(Clone, Debug)]
pub struct Upstream {
    /// Where the server listens on 127.0.0.1.
    pub port: u16,
    /// What a gate for it speaks, as its configuration has it.
    pub protocol: &'static str,
    /// The lines of a `users_file` that has its account.
    pub users: String,
}

impl DatabaseServer {
    /// Starts a server with a processor and as many connections as these options say. MariaDB has settings
    /// of its own.
    ///
    /// # Errors
    /// If it isn't installed, or doesn't start.
    pub fn start(database: Database, options: &PrivateServerOptions) -> Result<Self, Error> {
        match database {
            Database::Postgres => PrivateServer::start(options).map(Self::Postgres),
            Database::Mariadb => {
                let connections = format!("--max-connections={}", options.max_connections);
                let settings = [&MARIADB_SETTINGS[..], &[connections.as_str()]].concat();
                PrivateMariadb::start_on(options.cpu, &settings).map(Self::Mariadb)
            }
        }
    }

    /// Which database it is.
    pub const fn database(&self) -> Database {
        match self {
            Self::Postgres(_) => Database::Postgres,
            Self::Mariadb(_) => Database::Mariadb,
        }
    }

    /// Its version's number.
    ///
    /// # Errors
    /// If it doesn't tell.
    pub fn version(&self) -> Result<String, Error> {
        let (version, end) = match self {
            Self::Postgres(server) => (server.psql("SHOW server_version")?, ' '),
            Self::Mariadb(server) => (server.query("SELECT version()")?, '-'),
        };
        Ok(version.split(end).next().unwrap_or_default().to_owned())
    }

    /// The TCP port on 127.0.0.1.
    pub const fn port(&self) -> u16 {
        match self {
            Self::Postgres(server) => server.port(),
            Self::Mariadb(server) => server.port(),
        }
    }

    /// The first process.
    pub fn pid(&self) -> u32 {
        match self {
            Self::Postgres(server) => server.pid(),
            Self::Mariadb(server) => server.pid(),
        }
    }

    /// Every process.
    pub fn processes(&self) -> Vec<u32> {
        match self {
            Self::Postgres(server) => server.processes(),
            Self::Mariadb(server) => vec![server.pid()],
        }
    }

    /// The address, as the load generator and the bookstore read it.
    pub fn url(&self) -> String {
        self.url_through(self.port())
    }

    /// The address through another port of 127.0.0.1, such as a gate's.
    pub fn url_through(&self, port: u16) -> String {
        match self {
            Self::Postgres(server) => server.url_through(port),
            Self::Mariadb(server) => {
                let (user, password, database) = (server.user(), server.password(), server.database());
                format!("mysql://{user}:{password}@127.0.0.1:{port}/{database}")
            }
        }
    }

    /// The last lines of its log.
    pub fn log_tail(&self) -> String {
        match self {
            Self::Postgres(server) => server.log_tail(),
            Self::Mariadb(server) => server.log_tail(),
        }
    }

    /// Whether its first process has ended.
    pub fn has_ended(&mut self) -> bool {
        match self {
            Self::Postgres(server) => server.has_ended(),
            Self::Mariadb(server) => server.has_ended(),
        }
    }

    /// Stops the server as if it had crashed, and starts it again on its data.
    ///
    /// # Errors
    /// If it doesn't start.
    pub fn restart(&mut self) -> Result<(), Error> {
        match self {
            Self::Postgres(server) => server.restart(Stop::Immediate),
            Self::Mariadb(server) => {
                server.kill()?;
                server.start_again()
            }
        }
    }

    /// What a gate must know of it.
    pub fn upstream(&self) -> Upstream {
        let (protocol, user, password) = match self {
            Self::Postgres(server) => ("postgres", server.user(), server.password()),
            Self::Mariadb(server) => ("mysql", server.user(), server.password()),
        };
        Upstream { port: self.port(), protocol, users: format!("\"{user}\" \"{password}\"\n") }
    }
}
