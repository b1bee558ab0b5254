//! A private MariaDB server: its own data directory, port and socket, gone when it is dropped.
//!
//! The server's programs are found on `PATH` and in `/usr/sbin`. Where we are root, the server runs as an
//! unprivileged user. Nothing outside the temporary directory is touched, and nothing but loopback and a Unix
//! socket listens.

use std::fs::{self, File, Permissions};
use std::io::Write;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::process::Signal;
use tempfile::TempDir;

use crate::Error;
use crate::postgres::{as_owner, temporary_directory, unprivileged_user, write_private};
use crate::process;

/// How long a server may take until it accepts connections.
const START_BOUND: Duration = Duration::from_secs(60);
/// How long a shutdown may take before the process is killed.
const STOP_BOUND: Duration = Duration::from_secs(10);
/// How often a start is tried again because another program took the port in between.
const PORT_ATTEMPTS: usize = 5;
/// The account that may do everything.
const USER: &str = "witness";
/// The database that addresses name.
const DATABASE: &str = "witness";

/// A running private MariaDB. Dropping it stops the server and removes everything that it wrote.
#[derive(Debug)]
pub struct PrivateMariadb {
    child: Child,
    port: u16,
    password: String,
    directory: TempDir,
    owner: Option<(u32, u32)>,
    options: Vec<String>,
    cpu: Option<usize>,
}

impl PrivateMariadb {
    /// Creates a data directory, starts a server on it with further `options` of `mariadbd` (such as
    /// `--max-allowed-packet=64M`), and waits until it answers a query. Blocks for a few seconds.
    ///
    /// # Errors
    /// If MariaDB isn't installed (the message names the package), or the server doesn't start (the message
    /// quotes its log).
    pub fn start(options: &[&str]) -> Result<Self, Error> {
        Self::start_on(None, options)
    }

    /// Starts a server on a processor, if one is named.
    ///
    /// # Errors
    /// As for [`start`](Self::start).
    pub fn start_on(cpu: Option<usize>, options: &[&str]) -> Result<Self, Error> {
        for name in ["mariadbd", "mariadb-install-db", "mariadb"] {
            program(name)?;
        }
        let owner = unprivileged_user()?;
        let directory = temporary_directory("mariadb-")?;
        let root = directory.path();
        if let Some((user, group)) = owner {
            fs::set_permissions(root, Permissions::from_mode(0o755))
                .and_then(|()| chown(root, Some(user), Some(group)))
                .map_err(Error::io(format!("handing {} to the server's user", root.display())))?;
        }
        let password = format!("witness-{:016x}", rand::random::<u64>());
        install(owner, root)?;
        write_private(&root.join("first.sql"), owner, &first_statements(&password))
            .map_err(Error::io("writing the server's first statements"))?;
        for _ in 0..PORT_ATTEMPTS {
            let port = process::free_port()?;
            let mut child = spawn((owner, cpu), root, port, options)?;
            match wait_until_ready(&mut child, root, &password) {
                Ok(()) => {
                    let options = options.iter().map(|option| (*option).to_owned()).collect();
                    return Ok(Self { child, port, password, directory, owner, options, cpu });
                }
                Err(error) => {
                    end(&mut child);
                    if !error.to_string().contains("Address already in use") {
                        return Err(error);
                    }
                }
            }
        }
        Err(Error::Unusable("no port was free for MariaDB".to_owned()))
    }

    /// Kills the server (SIGKILL), as a crash would.
    ///
    /// # Errors
    /// If the process can't be killed.
    pub fn kill(&mut self) -> Result<(), Error> {
        self.child.kill().and_then(|()| self.child.wait()).map(drop).map_err(Error::io("killing MariaDB"))
    }

    /// Stops the server in order.
    pub fn stop(&mut self) {
        end(&mut self.child);
    }

    /// Starts the server again on its data and port, and waits until it answers a query.
    ///
    /// # Errors
    /// As for [`start`](Self::start).
    pub fn start_again(&mut self) -> Result<(), Error> {
        let root = self.directory.path();
        // The account and the database are there.
        write_private(&root.join("first.sql"), self.owner, "")
            .map_err(Error::io("writing the server's first statements"))?;
        let options: Vec<_> = self.options.iter().map(String::as_str).collect();
        self.child = spawn((self.owner, self.cpu), root, self.port, &options)?;
        wait_until_ready(&mut self.child, root, &self.password)
    }

    /// Whether the process has ended.
    pub fn has_ended(&mut self) -> bool {
        !matches!(self.child.try_wait(), Ok(None))
    }

    /// The TCP port on 127.0.0.1.
    pub const fn port(&self) -> u16 {
        self.port
    }

    /// The Unix socket.
    pub fn socket(&self) -> PathBuf {
        socket_path(self.directory.path())
    }

    /// The name of the account that may do everything.
    pub const fn user(&self) -> &'static str {
        USER
    }

    /// The account's password.
    pub fn password(&self) -> &str {
        &self.password
    }

    /// A database that is empty at the start.
    pub const fn database(&self) -> &'static str {
        DATABASE
    }

    /// The server's process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Runs a script with MariaDB's own client and returns the rows, columns separated by tabs. Stops at the
    /// first error.
    ///
    /// # Errors
    /// If a statement fails or the server can't be reached.
    pub fn query(&self, sql: &str) -> Result<String, Error> {
        query(self.directory.path(), &self.password, sql)
    }

    /// The last lines of the server's log.
    pub fn log_tail(&self) -> String {
        process::log_tail(&log_path(self.directory.path()))
    }
}

impl Drop for PrivateMariadb {
    fn drop(&mut self) {
        end(&mut self.child);
    }
}

fn end(child: &mut Child) {
    process::end(child, &[(Signal::TERM, STOP_BOUND)]);
}

fn socket_path(root: &Path) -> PathBuf {
    root.join("mariadb.sock")
}

fn log_path(root: &Path) -> PathBuf {
    root.join("server.log")
}

/// A program of MariaDB.
fn program(name: &str) -> Result<PathBuf, Error> {
    process::find_installed(name, "the package `mariadb-server`, or put its directory on PATH")
}

fn install(owner: Option<(u32, u32)>, root: &Path) -> Result<(), Error> {
    let output = as_owner(&program("mariadb-install-db")?, owner, root)
        .args(["--no-defaults", "--auth-root-authentication-method=normal", "--skip-test-db"])
        .args(["--skip-name-resolve", "--innodb-log-file-size=8M"])
        .arg(format!("--datadir={}", root.join("data").display()))
        // In a directory that they share, one server's start removes the other's temporary tables.
        .env("TMPDIR", root)
        .output()
        .map_err(Error::io("starting mariadb-install-db"))?;
    if output.status.success() {
        return Ok(());
    }
    // Half of what it says goes to either stream.
    let output = [output.stdout, output.stderr].concat();
    Err(Error::Program {
        program: "mariadb-install-db".to_owned(),
        output: String::from_utf8_lossy(&output).trim().to_owned(),
    })
}

/// The statements of the server's start, one a line: an account of our own, and nobody else.
fn first_statements(password: &str) -> String {
    format!(
        "DELETE FROM mysql.global_priv WHERE User IN ('', 'root');\n\
         FLUSH PRIVILEGES;\n\
         CREATE USER '{USER}'@'%' IDENTIFIED BY '{password}';\n\
         GRANT ALL PRIVILEGES ON *.* TO '{USER}'@'%' WITH GRANT OPTION;\n\
         CREATE DATABASE {DATABASE} CHARACTER SET utf8mb4;\n"
    )
}

fn spawn(
    (owner, cpu): (Option<(u32, u32)>, Option<usize>),
    root: &Path,
    port: u16,
    options: &[&str],
) -> Result<Child, Error> {
    let log = File::create(log_path(root)).map_err(Error::io("creating the server's log"))?;
    let mut command = as_owner(&program("mariadbd")?, owner, root);
    command
        .args(["--no-defaults", "--bind-address=127.0.0.1", "--skip-name-resolve"])
        .args(["--innodb-flush-log-at-trx-commit=0", "--innodb-log-file-size=8M"])
        .arg(format!("--datadir={}", root.join("data").display()))
        .arg(format!("--tmpdir={}", root.display()))
        .arg(format!("--socket={}", socket_path(root).display()))
        .arg(format!("--pid-file={}", root.join("mariadb.pid").display()))
        .arg(format!("--init-file={}", root.join("first.sql").display()))
        .arg(format!("--port={port}"))
        .args(options)
        .stdout(Stdio::null())
        .stderr(log);
    process::spawn_pinned(&mut command, cpu)
}

fn wait_until_ready(child: &mut Child, root: &Path, password: &str) -> Result<(), Error> {
    // The socket lies in our own directory, so nobody else's server answers.
    let answers = || query(root, password, "SELECT 1").map(drop).map_err(|error| error.to_string());
    process::wait_until_ready(child, START_BOUND, answers).map_err(|problem| Error::NotReady {
        server: "MariaDB".to_owned(),
        problem,
        log: process::log_tail(&log_path(root)),
    })
}

fn query(root: &Path, password: &str, sql: &str) -> Result<String, Error> {
    let mut child = Command::new(program("mariadb")?)
        .args(["--no-defaults", "--batch", "--skip-column-names", "--user", USER, "--connect-timeout=10"])
        .args(["--default-character-set=utf8mb4", "--database", DATABASE])
        .arg(format!("--socket={}", socket_path(root).display()))
        .env("MYSQL_PWD", password)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(Error::io("starting mariadb"))?;
    let mut stdin = child.stdin.take();
    let script = sql.to_owned();
    // Written from another thread: a long script and a long result would otherwise wait for each other.
    let writer = std::thread::spawn(move || stdin.as_mut().map(|pipe| pipe.write_all(script.as_bytes())));
    let output = child.wait_with_output().map_err(Error::io("waiting for mariadb"))?;
    // A failed write means that the client ended early; its status and messages say why.
    let _ = writer.join();
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).trim_end().to_owned());
    }
    Err(Error::Program {
        program: "mariadb".to_owned(),
        output: String::from_utf8_lossy(&output.stderr).trim().to_owned(),
    })
}
