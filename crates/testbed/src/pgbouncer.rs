//! A private PgBouncer, for standing beside the gatekeeper: its own configuration, port and log, gone when
//! dropped.

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::process::Signal;
use tempfile::TempDir;

use crate::Error;
use crate::postgres::{Authentication, PrivateServer, unprivileged_user};
use crate::process::{self, free_port};

/// How long it may take until its port accepts connections.
const START_BOUND: Duration = Duration::from_secs(20);
/// How long it may take to end.
const STOP_BOUND: Duration = Duration::from_secs(5);
/// The first version that can carry prepared statements from connection to connection. It does so only
/// where it is told to; from 1.24 on also by itself.
const PREPARES_SINCE: (u32, u32) = (1, 21);
/// How many it keeps prepared on a connection: what it has by default since 1.24.
const PREPARED_MAX: u32 = 200;

/// What becomes of prepared statements in transaction mode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Prepared {
    /// They are carried along, by a version that can.
    Followed,
    /// They stay where they were prepared.
    Left,
}

/// A running PgBouncer in transaction mode. Dropping it ends it.
#[derive(Debug)]
pub struct PgBouncer {
    child: Child,
    port: u16,
    version: String,
    /// How many prepared statements it keeps, if it knows that setting.
    prepared: Option<u32>,
    directory: TempDir,
}

impl PgBouncer {
    /// Starts a PgBouncer before `server`, with so many server connections and room for so many clients. It
    /// lets everybody in where the server does, and asks for SCRAM elsewhere.
    ///
    /// # Errors
    /// If it isn't installed (the message names the package) or doesn't start (the message quotes its log).
    pub fn start(
        server: &PrivateServer,
        pool_size: u32,
        clients_max: u32,
        prepared: Prepared,
    ) -> Result<Self, Error> {
        let binary = find()?;
        let version = version(&binary);
        let directory = tempfile::Builder::new()
            .prefix("pgbouncer-")
            .tempdir()
            .map_err(Error::io("creating a temporary directory"))?;
        let port = free_port()?;
        let owner = unprivileged_user()?;
        let mut configuration = configuration(directory.path(), server, port, pool_size, clients_max);
        // Written wherever it is known, since what it is by default depends on the version.
        let prepared = prepared_max(&version, prepared);
        if let Some(most) = prepared {
            configuration += &format!("max_prepared_statements = {most}\n");
        }
        let users = format!("\"{}\" \"{}\"\n", server.user(), server.password());
        for (name, text) in [("pgbouncer.ini", configuration), ("users.txt", users)] {
            let path = directory.path().join(name);
            fs::write(&path, text).map_err(Error::io("writing PgBouncer's configuration"))?;
            give(&path, owner)?;
        }
        give(directory.path(), owner)?;
        fs::set_permissions(directory.path(), Permissions::from_mode(0o700))
            .map_err(Error::io("closing PgBouncer's directory to others"))?;
        let mut command = Command::new(&binary);
        command.arg("-q").arg(directory.path().join("pgbouncer.ini"));
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        if let Some((user, group)) = owner {
            command.uid(user).gid(group);
        }
        let child = command.spawn().map_err(Error::io(format!("starting {}", binary.display())))?;
        let mut pgbouncer = Self { child, port, version, prepared, directory };
        process::wait_until_ready(&mut pgbouncer.child, START_BOUND, || process::accepts(port)).map_err(
            |problem| {
                let log = process::log_tail(&pgbouncer.directory.path().join("log"));
                Error::NotReady { server: "PgBouncer".to_owned(), problem, log }
            },
        )?;
        Ok(pgbouncer)
    }

    /// Its port on 127.0.0.1.
    pub const fn port(&self) -> u16 {
        self.port
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Its version, such as `1.18.0`.
    pub fn version(&self) -> &str {
        &self.version
    }

    /// Whether it carries prepared statements in transaction mode.
    pub fn prepares(&self) -> bool {
        self.prepared.is_some_and(|most| most > 0)
    }
}

impl Drop for PgBouncer {
    fn drop(&mut self) {
        // TERM is its order to end at once.
        process::end(&mut self.child, &[(Signal::TERM, STOP_BOUND)]);
    }
}

fn configuration(
    directory: &Path,
    server: &PrivateServer,
    port: u16,
    pool_size: u32,
    clients_max: u32,
) -> String {
    let (directory, upstream, database) = (directory.display(), server.port(), server.database());
    let authentication = match server.authentication() {
        Authentication::Trust => "trust",
        Authentication::Md5 | Authentication::Scram => "scram-sha-256",
    };
    format!(
        "[databases]\n{database} = host=127.0.0.1 port={upstream} dbname={database}\n\n\
         [pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {port}\nunix_socket_dir =\n\
         auth_type = {authentication}\nauth_file = {directory}/users.txt\nlogfile = {directory}/log\n\
         pool_mode = transaction\ndefault_pool_size = {pool_size}\nmax_client_conn = {clients_max}\n\
         log_connections = 0\nlog_disconnections = 0\n"
    )
}

/// How many prepared statements a PgBouncer of this version is told to keep; none if it doesn't know the
/// setting, and keeps none.
fn prepared_max(version: &str, prepared: Prepared) -> Option<u32> {
    let mut numbers = version.split('.').map_while(|number| number.parse::<u32>().ok());
    let version = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    (version >= PREPARES_SINCE).then_some(match prepared {
        Prepared::Followed => PREPARED_MAX,
        Prepared::Left => 0,
    })
}

fn give(path: &Path, owner: Option<(u32, u32)>) -> Result<(), Error> {
    let Some((user, group)) = owner else { return Ok(()) };
    chown(path, Some(user), Some(group))
        .map_err(Error::io(format!("handing {} to PgBouncer's user", path.display())))
}

/// The version of the one that is installed; nothing if none is.
pub fn installed() -> String {
    find().map(|binary| version(&binary)).unwrap_or_default()
}

fn find() -> Result<PathBuf, Error> {
    process::find_installed("pgbouncer", "the package `pgbouncer`")
}

fn version(binary: &Path) -> String {
    let said = process::said(binary, "--version");
    let number = said.lines().next().and_then(|line| line.strip_prefix("PgBouncer "));
    number.unwrap_or("of an unknown version").trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn how_many_statements_are_kept_is_said_to_every_version_that_knows_the_setting() {
        for version in ["1.21.0", "1.23.1", "1.24.1", "2.0.0"] {
            assert_eq!(prepared_max(version, Prepared::Followed), Some(200), "{version}");
            assert_eq!(prepared_max(version, Prepared::Left), Some(0), "{version}");
        }
        for version in ["1.9.0", "1.18.0", "1.20.1", "of an unknown version"] {
            assert_eq!(prepared_max(version, Prepared::Followed), None, "{version}");
            assert_eq!(prepared_max(version, Prepared::Left), None, "{version}");
        }
    }
}
