//! A private PostgreSQL server: its own data directory, port and socket, gone when it is dropped.
//!
//! Used by the experiments and by other crates' tests. The server's binaries are found, not asked for; as
//! root it runs under an unprivileged user, because PostgreSQL refuses to run as root. Nothing outside the
//! temporary directory is touched and nothing but loopback and a Unix socket listens.

mod binaries;
mod configuration;

use std::fs::{self, File, Permissions};
use std::io::Write;
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::process::Signal;
use tempfile::TempDir;

use crate::Error;
use crate::process;

pub use crate::process::free_port;
pub use binaries::Binaries;
pub use binaries::unprivileged_user;
pub use configuration::{Authentication, Durability, PrivateServerOptions};

/// How long a server may take until it accepts connections. A cold, busy machine needs a few seconds.
const START_BOUND: Duration = Duration::from_secs(60);
/// How long a fast shutdown (which rolls back and writes a checkpoint) may take before an immediate one.
const FAST_STOP_BOUND: Duration = Duration::from_secs(10);
/// How long an immediate shutdown may take before the process is killed.
const IMMEDIATE_STOP_BOUND: Duration = Duration::from_secs(5);
/// How often a start is tried again because somebody else took the port in between.
const PORT_ATTEMPTS: usize = 5;
/// The longest directory that a Unix socket's path has room for (`sun_path` has 108 bytes).
const SOCKET_DIRECTORY_BYTES: usize = 80;
/// The superuser's name.
const SUPERUSER: &str = "postgres";
/// The database that every cluster has from its beginning.
const DATABASE: &str = "postgres";

/// A running private server. Dropping it stops the server and removes everything that it wrote.
#[derive(Debug)]
pub struct PrivateServer {
    child: Child,
    port: u16,
    options: PrivateServerOptions,
    owner: Option<(u32, u32)>,
    password: String,
    binaries: Binaries,
    directory: TempDir,
}

/// How a server is made to stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// Sessions are ended, transactions rolled back, everything is written.
    Fast,
    /// The server stops as if it had crashed: the next start recovers from the log.
    Immediate,
}

impl PrivateServer {
    /// Creates a database cluster in a temporary directory, starts a server on it and waits until it answers
    /// a query. Blocks for about a second.
    ///
    /// # Errors
    /// If PostgreSQL isn't installed (the message names the package), the options are wrong, or the server
    /// doesn't start (the message quotes its log).
    pub fn start(options: &PrivateServerOptions) -> Result<Self, Error> {
        let mut binaries = options.binaries.clone().map_or_else(Binaries::find, Ok)?;
        let owner = unprivileged_user()?;
        let directory = temporary_directory("pg-")?;
        let root = directory.path();
        if let Some((user, group)) = owner {
            fs::set_permissions(root, Permissions::from_mode(0o755))
                .and_then(|()| chown(root, Some(user), Some(group)))
                .map_err(Error::io(format!("handing {} to the server's user", root.display())))?;
            if !binaries.open_to_all() {
                binaries = binaries.copied_into(root)?;
            }
        }
        let password = format!("witness-{:016x}", rand::random::<u64>());
        init_database(&binaries, owner, root, &password, options)?;
        for (name, content) in &options.files {
            write_private(&data_path(root).join(name), owner, content)
                .map_err(Error::io(format!("writing {name} for the server")))?;
        }
        let mut taken = None;
        for _ in 0..PORT_ATTEMPTS {
            let port = free_port()?;
            configuration::write(root, port, options)?;
            let mut child = spawn_server(&binaries, owner, root, options)?;
            let ready = wait_until_ready(&binaries, &mut child, root, port, &password);
            match ready {
                Ok(()) => {
                    let options = options.clone();
                    let server = Self { child, port, options, owner, password, binaries, directory };
                    server.create_database()?;
                    return Ok(server);
                }
                Err(error) => {
                    process::end(&mut child, &[(Signal::QUIT, IMMEDIATE_STOP_BOUND)]);
                    if !error.to_string().contains("Address already in use") {
                        return Err(error);
                    }
                    taken = Some(error);
                }
            }
        }
        Err(taken.unwrap_or_else(|| Error::Unusable("no port was tried".to_owned())))
    }

    /// Makes the database of its own, if it is to have one.
    fn create_database(&self) -> Result<(), Error> {
        let database = self.options.database;
        if database == DATABASE {
            return Ok(());
        }
        let create = format!("CREATE DATABASE \"{database}\"");
        psql(&self.binaries, (self.port, DATABASE), &self.password, &create).map(drop)
    }

    /// The database that addresses name.
    pub const fn database(&self) -> &'static str {
        self.options.database
    }

    /// Stops the server and starts it again, with the same data at the same port; returns when it answers
    /// queries.
    ///
    /// # Errors
    /// If it doesn't start again (the message quotes its log).
    pub fn restart(&mut self, how: Stop) -> Result<(), Error> {
        self.stop(how);
        self.start_again()
    }

    /// Stops the server, and keeps its data.
    pub fn stop(&mut self, how: Stop) {
        let immediate = (Signal::QUIT, IMMEDIATE_STOP_BOUND);
        let steps = match how {
            Stop::Fast => &[(Signal::INT, FAST_STOP_BOUND), immediate][..],
            Stop::Immediate => &[immediate][..],
        };
        process::end(&mut self.child, steps);
    }

    /// Starts a stopped server with the same data at the same port; returns when it answers queries.
    ///
    /// # Errors
    /// If it doesn't start (the message quotes its log).
    pub fn start_again(&mut self) -> Result<(), Error> {
        self.child = spawn_server(&self.binaries, self.owner, self.directory.path(), &self.options)?;
        wait_until_ready(&self.binaries, &mut self.child, self.directory.path(), self.port, &self.password)
    }

    /// Whether the postmaster has ended by itself.
    pub fn has_ended(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(Some(_)))
    }

    /// The TCP port on 127.0.0.1.
    pub const fn port(&self) -> u16 {
        self.port
    }

    /// The directory of the Unix socket; the socket is `.s.PGSQL.<port>` in it.
    pub fn socket_dir(&self) -> &Path {
        self.directory.path()
    }

    /// How clients prove who they are.
    pub const fn authentication(&self) -> Authentication {
        self.options.authentication
    }

    /// The superuser's name.
    pub const fn user(&self) -> &'static str {
        SUPERUSER
    }

    /// The superuser's password.
    pub fn password(&self) -> &str {
        &self.password
    }

    /// The process id of the postmaster.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Where this server's programs (`psql`, `pgbench` …) are.
    pub const fn binaries(&self) -> &Binaries {
        &self.binaries
    }

    /// `postgres://…` for the superuser, straight to the server.
    pub fn url(&self) -> String {
        self.url_through(self.port)
    }

    /// `postgres://…` for the superuser through another port of 127.0.0.1, such as a gate's.
    pub fn url_through(&self, port: u16) -> String {
        let database = self.options.database;
        format!("postgres://{SUPERUSER}:{}@127.0.0.1:{port}/{database}", self.password)
    }

    /// `host=… port=…` for the superuser, straight to the server.
    pub fn dsn(&self) -> String {
        self.dsn_through(self.port)
    }

    /// `host=… port=…` for the superuser through another port of 127.0.0.1, such as a gate's.
    pub fn dsn_through(&self, port: u16) -> String {
        let database = self.options.database;
        format!("host=127.0.0.1 port={port} user={SUPERUSER} password={} dbname={database}", self.password)
    }

    /// Runs a script as the superuser, each statement in its own transaction, and returns the rows unaligned
    /// (columns separated by `|`). Stops at the first error.
    ///
    /// # Errors
    /// If a statement fails or the server can't be reached.
    pub fn psql(&self, sql: &str) -> Result<String, Error> {
        psql(&self.binaries, (self.port, self.options.database), &self.password, sql)
    }

    /// The last lines of the server's log.
    pub fn log_tail(&self) -> String {
        process::log_tail(&log_path(self.directory.path()))
    }

    /// Every process of the server: the postmaster and its children, as the operating system lists them.
    pub fn processes(&self) -> Vec<u32> {
        process::family(self.child.id())
    }
}

impl Drop for PrivateServer {
    fn drop(&mut self) {
        let steps = [(Signal::INT, FAST_STOP_BOUND), (Signal::QUIT, IMMEDIATE_STOP_BOUND)];
        process::end(&mut self.child, &steps);
    }
}

/// A directory short enough for a socket's path, wherever `TMPDIR` points.
pub fn temporary_directory(prefix: &str) -> Result<TempDir, Error> {
    let mut builder = tempfile::Builder::new();
    builder.prefix(prefix);
    let short = std::env::temp_dir().as_os_str().len() + 10 <= SOCKET_DIRECTORY_BYTES;
    if short { builder.tempdir() } else { builder.tempdir_in("/tmp") }
        .map_err(Error::io("creating a temporary directory"))
}

fn data_path(root: &Path) -> PathBuf {
    root.join("data")
}

fn log_path(root: &Path) -> PathBuf {
    root.join("server.log")
}

/// `command` as the unprivileged user, in a directory that this user may enter.
pub fn as_owner(program: &Path, owner: Option<(u32, u32)>, root: &Path) -> Command {
    let mut command = Command::new(program);
    command.current_dir(root).stdin(Stdio::null()).env("LC_ALL", "C");
    if let Some((user, group)) = owner {
        // The standard library clears the supplementary groups when it changes the user as root.
        command.uid(user).gid(group);
    }
    command
}

fn init_database(
    binaries: &Binaries,
    owner: Option<(u32, u32)>,
    root: &Path,
    password: &str,
    options: &PrivateServerOptions,
) -> Result<(), Error> {
    let password_file = root.join("password");
    write_private(&password_file, owner, &format!("{password}\n"))
        .map_err(Error::io("writing the superuser's password file"))?;
    let output = as_owner(&binaries.program("initdb"), owner, root)
        .args(["--username", SUPERUSER, "--encoding", "UTF8", "--locale", "C", "--no-sync"])
        .args(["--auth", options.authentication.method()])
        .arg("--pwfile")
        .arg(&password_file)
        .arg("--pgdata")
        .arg(data_path(root))
        .output()
        .map_err(Error::io("starting initdb"))?;
    fs::remove_file(&password_file).map_err(Error::io("removing the password file"))?;
    if output.status.success() {
        return Ok(());
    }
    Err(Error::Program {
        program: "initdb".to_owned(),
        output: String::from_utf8_lossy(&output.stderr).trim().to_owned(),
    })
}

/// Writes a file that only the server's user can read.
pub fn write_private(path: &Path, owner: Option<(u32, u32)>, content: &str) -> std::io::Result<()> {
    File::create(path)?.write_all(content.as_bytes())?;
    if let Some((user, group)) = owner {
        chown(path, Some(user), Some(group))?;
    }
    fs::set_permissions(path, Permissions::from_mode(0o600))
}

fn spawn_server(
    binaries: &Binaries,
    owner: Option<(u32, u32)>,
    root: &Path,
    options: &PrivateServerOptions,
) -> Result<Child, Error> {
    let log = File::create(log_path(root)).map_err(Error::io("creating the server's log"))?;
    let mut command = as_owner(&binaries.program("postgres"), owner, root);
    command.arg("-D").arg(data_path(root)).stdout(Stdio::null()).stderr(log);
    command.envs(options.environment.iter().map(|(name, value)| (name, value)));
    process::spawn_pinned(&mut command, options.cpu)
}

fn wait_until_ready(
    binaries: &Binaries,
    child: &mut Child,
    root: &Path,
    port: u16,
    password: &str,
) -> Result<(), Error> {
    // The port alone proves nothing (somebody else may hold it): a login with our password does.
    let answers = || {
        psql(binaries, (port, DATABASE), password, "SELECT 1").map(drop).map_err(|error| error.to_string())
    };
    process::wait_until_ready(child, START_BOUND, answers).map_err(|problem| Error::NotReady {
        server: "PostgreSQL".to_owned(),
        problem,
        log: process::log_tail(&log_path(root)),
    })
}

fn psql(
    binaries: &Binaries,
    (port, database): (u16, &str),
    password: &str,
    sql: &str,
) -> Result<String, Error> {
    let mut child = Command::new(binaries.program("psql"))
        .args(["-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1", "-h", "127.0.0.1", "-U", SUPERUSER])
        .args(["-d", database, "-f", "-", "-p", &port.to_string()])
        .env("PGPASSWORD", password)
        .env("PGCONNECT_TIMEOUT", "10")
        .env_remove("PGOPTIONS")
        .env_remove("PGSERVICE")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(Error::io("starting psql"))?;
    let mut stdin = child.stdin.take();
    let script = sql.to_owned();
    // Written from another thread: a long script and a long result would otherwise wait for each other.
    let writer = std::thread::spawn(move || stdin.as_mut().map(|pipe| pipe.write_all(script.as_bytes())));
    let output = child.wait_with_output().map_err(Error::io("waiting for psql"))?;
    // A failed write means that psql ended early; its status and messages say why.
    let _ = writer.join();
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).trim_end().to_owned());
    }
    Err(Error::Program {
        program: "psql".to_owned(),
        output: String::from_utf8_lossy(&output.stderr).trim().to_owned(),
    })
}
