//! The gatekeeper as a process, as a user would run it: a file, a port, a log, and the admin listener.

use std::fs::{File, Permissions};
use std::io::Read;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::Value;
use tempfile::TempDir;
use testbed::postgres::free_port;

/// How long a start may take on a busy machine. Only a hang takes so long.
const START_BOUND: Duration = Duration::from_secs(60);
/// The pause between two looks at a condition.
const POLL_INTERVAL: Duration = Duration::from_millis(10);
/// How many of the log's last bytes a failure shows.
const LOG_TAIL_BYTES: usize = 8192;

/// A running gatekeeper; dropping it ends the process.
pub(crate) struct Gate {
    child: Child,
    port: u16,
    admin_port: u16,
    /// Where it listens, and where the server does.
    addresses: (String, String),
    directory: Arc<TempDir>,
    /// The name of its log there.
    log: String,
}

impl Gate {
    /// Starts a gate in front of a server's port and waits until it is ready. `settings` are lines of its
    /// `[[gate]]`, and `metrics_types_max` of `[admin]`.
    pub(crate) fn start(upstream_port: u16, settings: &[String]) -> Self {
        let port = free_port().expect("a free port");
        let (listen, upstream) = (format!("127.0.0.1:{port}"), format!("127.0.0.1:{upstream_port}"));
        Self::start_between(&listen, &upstream, settings)
    }

    /// Like `start`, with the addresses as the configuration takes them.
    pub(crate) fn start_between(listen: &str, upstream: &str, settings: &[String]) -> Self {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let admin_port = free_port().expect("a free port");
        let config = configuration((admin_port, directory.path()), listen, upstream, settings);
        let path = directory.path().join("gatekeeper.toml");
        std::fs::write(&path, config).expect("the configuration is written");
        let child = spawn(&path, "log", &[]);
        let directory = Arc::new(directory);
        let addresses = (listen.to_owned(), upstream.to_owned());
        let port = listen.rsplit_once(':').and_then(|(_, port)| port.parse().ok()).unwrap_or(0);
        let mut gate = Self { child, port, admin_port, addresses, directory, log: "log".to_owned() };
        gate.wait_until_ready();
        gate
    }

    /// Starts another one with the configuration as it is written now, which takes the sockets over.
    /// `Err`: it has ended, with this status and log.
    pub(crate) fn succeed(&self) -> Result<Self, (ExitStatus, String)> {
        let mut successor = self.begin_to_succeed();
        let deadline = Instant::now() + START_BOUND;
        while !successor.log().lines().any(|line| line.ends_with("msg=ready")) {
            if let Some(status) = successor.child.try_wait().expect("the process can be asked") {
                return Err((status, successor.log()));
            }
            assert!(Instant::now() < deadline, "the successor is not ready\n{}", successor.log_tail());
            std::thread::sleep(POLL_INTERVAL);
        }
        Ok(successor)
    }

    /// Like `succeed`, and doesn't wait.
    pub(crate) fn begin_to_succeed(&self) -> Self {
        let log = format!("{}+", self.log);
        let child = spawn(&self.directory.path().join("gatekeeper.toml"), &log, &["--takeover"]);
        let (addresses, directory) = (self.addresses.clone(), Arc::clone(&self.directory));
        Self { child, port: self.port, admin_port: self.admin_port, addresses, directory, log }
    }

    fn wait_until_ready(&mut self) {
        let deadline = Instant::now() + START_BOUND;
        while self.get("readyz").is_none() {
            let ended = self.child.try_wait().expect("the process can be asked");
            assert!(ended.is_none(), "the gatekeeper ended at once: {ended:?}\n{}", self.log_tail());
            assert!(Instant::now() < deadline, "the gatekeeper is not ready\n{}", self.log_tail());
            std::thread::sleep(POLL_INTERVAL);
        }
        // Somebody else may answer at a port that was free a moment ago.
        let ended = self.child.try_wait().expect("the process can be asked");
        assert!(ended.is_none(), "the gatekeeper has ended: {ended:?}\n{}", self.log_tail());
    }

    /// The port that clients connect to.
    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// The file of its configuration.
    pub(crate) fn config(&self) -> PathBuf {
        self.directory.path().join("gatekeeper.toml")
    }

    /// Where its admin listener is.
    pub(crate) fn admin_address(&self) -> String {
        format!("127.0.0.1:{}", self.admin_port)
    }

    /// The Unix socket of its admin listener, as `--admin` takes it.
    pub(crate) fn admin_socket(&self) -> String {
        format!("unix:{}", socket_in(self.directory.path()).display())
    }

    fn admin(&self) -> (u16, &Path) {
        (self.admin_port, self.directory.path())
    }

    /// The capacity of a gate, in the words of the configuration.
    pub(crate) fn capacity(&self, gate: &str) -> String {
        let text = self.get(&format!("gates/{gate}"));
        let text = text.unwrap_or_else(|| panic!("no gate {gate}\n{}", self.log_tail()));
        let settings: Value = serde_json::from_str(&text).expect("the settings are JSON");
        settings["capacity"].as_str().expect("a text").to_owned()
    }

    /// Waits for its end.
    pub(crate) fn wait(&mut self) -> ExitStatus {
        self.child.wait().expect("the process can be waited for")
    }

    /// Whether it has ended.
    pub(crate) fn has_ended(&mut self) -> bool {
        self.child.try_wait().expect("the process can be asked").is_some()
    }

    /// The process.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Writes another configuration, to be read by a reload.
    pub(crate) fn reconfigure(&self, settings: &[String]) {
        let (listen, upstream) = &self.addresses;
        let text = configuration(self.admin(), listen, upstream, settings);
        std::fs::write(self.directory.path().join("gatekeeper.toml"), text).expect("it is written");
    }

    /// Writes another configuration, with the server at another port, to be read by a reload.
    pub(crate) fn reconfigure_upstream(&self, port: u16, settings: &[String]) {
        let text = configuration(self.admin(), &self.addresses.0, &format!("127.0.0.1:{port}"), settings);
        std::fs::write(self.directory.path().join("gatekeeper.toml"), text).expect("it is written");
    }

    /// Gives it a token, with these settings as before, and returns the token.
    pub(crate) fn take_token(&self, settings: &[String]) -> &'static str {
        let (token, file) = ("0123456789abcdef0123456789abcdef", token_in(self.directory.path()));
        std::fs::write(&file, token).expect("the token is written");
        std::fs::set_permissions(&file, Permissions::from_mode(0o600)).expect("nobody else may read it");
        self.reconfigure(settings);
        self.signal("HUP");
        token
    }

    /// Sends a signal.
    pub(crate) fn signal(&self, name: &str) {
        let kill = Command::new("kill").args([&format!("-{name}"), &self.pid().to_string()]).status();
        assert!(kill.expect("kill runs").success());
    }

    /// What the only gate has learned, in `/types`.
    pub(crate) fn types(&self) -> Value {
        let text = self.get("types").unwrap_or_else(|| panic!("no types\n{}", self.log_tail()));
        let types: Value = serde_json::from_str(&text).expect("the types are JSON");
        types["gates"][0]["types"].clone()
    }

    /// Its whole log.
    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(self.directory.path().join(&self.log)).expect("the log is read")
    }

    /// The only gate in `/status`.
    pub(crate) fn status(&self) -> Value {
        self.try_status().unwrap_or_else(|| panic!("no status\n{}", self.log_tail()))
    }

    /// The only gate in `/status`; `None` if the process has ended.
    pub(crate) fn try_status(&self) -> Option<Value> {
        let text = self.get("status")?;
        let status: Value = serde_json::from_str(&text).expect("the status is JSON");
        Some(status["gates"][0].clone())
    }

    /// What clients' messages take, in `/status`.
    pub(crate) fn memory(&self, name: &str) -> u64 {
        let text = self.get("status").unwrap_or_else(|| panic!("no status\n{}", self.log_tail()));
        let status: Value = serde_json::from_str(&text).expect("the status is JSON");
        status["memory"][name].as_u64().unwrap_or_else(|| panic!("no {name}: {status}"))
    }

    /// All gates in `/status`.
    pub(crate) fn statuses(&self) -> Vec<Value> {
        let text = self.get("status").unwrap_or_else(|| panic!("no status\n{}", self.log_tail()));
        let status: Value = serde_json::from_str(&text).expect("the status is JSON");
        status["gates"].as_array().expect("a list of gates").clone()
    }

    /// What it answers at `/metrics`.
    pub(crate) fn metrics(&self) -> String {
        self.get("metrics").unwrap_or_else(|| panic!("no metrics\n{}", self.log_tail()))
    }

    fn get(&self, path: &str) -> Option<String> {
        let url = format!("http://127.0.0.1:{}/{path}", self.admin_port);
        ureq::get(&url).call().ok()?.body_mut().read_to_string().ok()
    }

    /// Fails if the process has ended.
    pub(crate) fn assert_alive(&self) {
        assert!(self.get("healthz").is_some(), "the gatekeeper has ended\n{}", self.log_tail());
    }

    /// The end of its log.
    pub(crate) fn log_tail(&self) -> String {
        let mut bytes = Vec::new();
        let path: PathBuf = self.directory.path().join(&self.log);
        // A log that can't be read is no reason to hide the failure that it was wanted for.
        let _ = File::open(path).and_then(|mut log| log.read_to_end(&mut bytes));
        let start = bytes.len().saturating_sub(LOG_TAIL_BYTES);
        String::from_utf8_lossy(&bytes[start..]).into_owned()
    }
}

fn spawn(config: &Path, log: &str, flags: &[&str]) -> Child {
    let log = File::create(config.with_file_name(log)).expect("the log is created");
    Command::new(env!("CARGO_BIN_EXE_gatekeeper"))
        .args(["run", "--config"])
        .arg(config)
        .args(flags)
        .stdin(Stdio::null())
        .stdout(log.try_clone().expect("the log is shared"))
        .stderr(log)
        .spawn()
        .expect("the gatekeeper starts")
}

fn configuration(
    (admin_port, directory): (u16, &Path),
    listen: &str,
    upstream: &str,
    settings: &[String],
) -> String {
    let token = token_in(directory);
    let is_of_admin = |line: &&String| line.starts_with("metrics_types_max");
    let of_admin: String = settings.iter().filter(is_of_admin).map(|line| format!("{line}\n")).collect();
    let settings: Vec<&str> = settings.iter().filter(|line| !is_of_admin(line)).map(String::as_str).collect();
    let token = if token.exists() { format!("token_file = {token:?}\n") } else { String::new() };
    format!(
        "[admin]\nlisten = \"127.0.0.1:{admin_port}\"\nsocket = \"{}\"\n{token}{of_admin}[[gate]]\nlisten = \"{listen}\"\n\
         upstream = \"{upstream}\"\n{}\n",
        socket_in(directory).display(),
        settings.join("\n")
    )
}

fn token_in(directory: &Path) -> PathBuf {
    directory.join("token")
}

fn socket_in(directory: &Path) -> PathBuf {
    directory.join("admin.sock")
}

impl Drop for Gate {
    fn drop(&mut self) {
        // It may have ended by itself; there is nothing to do about an error here.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
