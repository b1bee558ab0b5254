//! A private pgpool-II, for standing beside the gatekeeper: its own configuration, port and log, gone when
//! dropped.
//!
//! It only pools here: one server, `raw` mode, no load balancing, no health checks. A client has one of its
//! processes for its whole session, and with it a server connection that is kept for the next client.
//! Clients beyond wait to be accepted, in the kernel's queue: a client that stays connected keeps them
//! there for ever. To the databases `postgres`, `template0`, `template1` and `regression` it keeps no
//! connections.

use std::fs::{self, File, Permissions};
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

/// A running pgpool-II. Dropping it ends it.
#[derive(Debug)]
pub struct PgPool {
    child: Child,
    port: u16,
    _directory: TempDir,
}

impl PgPool {
    /// Starts a pgpool-II before `server` with so many processes, as many sessions at once, and room for so
    /// many clients that wait.
    ///
    /// # Errors
    /// If it isn't installed (the message names the package), the server asks for passwords, or it doesn't
    /// start (the message quotes its log).
    pub fn start(server: &PrivateServer, processes: u32, clients_max: u32) -> Result<Self, Error> {
        if server.authentication() != Authentication::Trust {
            return Err(Error::Unusable("pgpool-II is started before servers that trust".to_owned()));
        }
        let binary = find()?;
        let directory = tempfile::Builder::new()
            .prefix("pgpool-")
            .tempdir()
            .map_err(Error::io("creating a temporary directory"))?;
        let (port, control) = (free_port()?, free_port()?);
        let owner = unprivileged_user()?;
        let own = directory.path();
        let text = configuration(own, server.port(), (port, control), processes, clients_max);
        let path = own.join("pgpool.conf");
        for (path, text) in
            [(&path, text.as_str()), (&own.join("pcp.conf"), ""), (&own.join("pool_hba.conf"), "")]
        {
            fs::write(path, text).map_err(Error::io("writing pgpool-II's configuration"))?;
            give(path, owner)?;
        }
        give(own, owner)?;
        fs::set_permissions(own, Permissions::from_mode(0o700))
            .map_err(Error::io("closing pgpool-II's directory to others"))?;
        let log = own.join("log");
        let file = File::create(&log).map_err(Error::io("writing pgpool-II's log"))?;
        let mut command = Command::new(&binary);
        command.arg("-n").arg("-f").arg(&path).arg("-F").arg(own.join("pcp.conf"));
        command.arg("-a").arg(own.join("pool_hba.conf"));
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(file);
        if let Some((user, group)) = owner {
            command.uid(user).gid(group);
        }
        let child = command.spawn().map_err(Error::io(format!("starting {}", binary.display())))?;
        let mut pgpool = Self { child, port, _directory: directory };
        process::wait_until_ready(&mut pgpool.child, START_BOUND, || process::accepts(port)).map_err(
            |problem| {
                let log = process::log_tail(&log);
                Error::NotReady { server: "pgpool-II".to_owned(), problem, log }
            },
        )?;
        Ok(pgpool)
    }

    /// Its port on 127.0.0.1.
    pub const fn port(&self) -> u16 {
        self.port
    }

    /// The process id of its parent process.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }
}

impl Drop for PgPool {
    fn drop(&mut self) {
        // INT is its order to end at once: TERM waits for clients.
        process::end(&mut self.child, &[(Signal::INT, STOP_BOUND)]);
    }
}

fn configuration(
    directory: &Path,
    upstream: u16,
    (port, control): (u16, u16),
    processes: u32,
    clients_max: u32,
) -> String {
    let directory = directory.display();
    // The queue is a multiple of the processes. Beyond it connecting fails or is tried again by the kernel
    // a second later.
    let backlog = clients_max.div_ceil(processes.max(1));
    format!(
        "listen_addresses = '127.0.0.1'\nport = {port}\nsocket_dir = '{directory}'\n\
         pcp_listen_addresses = ''\npcp_port = {control}\npcp_socket_dir = '{directory}'\n\
         pid_file_name = '{directory}/pid'\nlogdir = '{directory}'\nlog_destination = 'stderr'\n\
         backend_clustering_mode = 'raw'\nbackend_hostname0 = '127.0.0.1'\nbackend_port0 = {upstream}\n\
         backend_weight0 = 1\nbackend_flag0 = 'DISALLOW_TO_FAILOVER'\nfailover_on_backend_error = off\n\
         load_balance_mode = off\nsr_check_period = 0\nhealth_check_period = 0\nuse_watchdog = off\n\
         memory_cache_enabled = off\nenable_pool_hba = off\npool_passwd = ''\n\
         connection_cache = on\nmax_pool = 1\nnum_init_children = {processes}\nreserved_connections = 0\n\
         listen_backlog_multiplier = {backlog}\nserialize_accept = off\n\
         child_life_time = 0\nchild_max_connections = 0\nconnection_life_time = 0\nclient_idle_limit = 0\n"
    )
}

fn give(path: &Path, owner: Option<(u32, u32)>) -> Result<(), Error> {
    let Some((user, group)) = owner else { return Ok(()) };
    chown(path, Some(user), Some(group))
        .map_err(Error::io(format!("handing {} to pgpool-II's user", path.display())))
}

/// The version of the one that is installed; nothing if none is.
pub fn installed() -> String {
    // pgpool-II version 4.3.5 (tamahomeboshi), on standard error.
    let said = find().map(|binary| process::said(&binary, "--version")).unwrap_or_default();
    said.split_whitespace().nth(2).unwrap_or_default().to_owned()
}

fn find() -> Result<PathBuf, Error> {
    process::find_installed("pgpool", "Debian's package pgpool2, or run `scripts/setup pgpool`")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_only_pools_and_its_queue_holds_every_client() {
        let text = configuration(Path::new("/d"), 5432, (1, 2), 20, 410);
        for line in [
            "num_init_children = 20",
            "max_pool = 1",
            "listen_backlog_multiplier = 21",
            "reserved_connections = 0",
            "backend_clustering_mode = 'raw'",
            "load_balance_mode = off",
            "connection_cache = on",
            "backend_port0 = 5432",
        ] {
            assert!(text.lines().any(|found| found == line), "{line}: {text}");
        }
    }
}
