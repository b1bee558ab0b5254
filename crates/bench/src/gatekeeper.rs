//! The `gatekeeper` binary, run as a process with a configuration of its own.

use std::collections::VecDeque;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::process::Signal;
use tempfile::TempDir;
use testbed::database::Upstream;
use testbed::postgres::write_private;
use testbed::process::{self, free_port};

use crate::Error;

/// How long the gatekeeper may take until its port accepts connections.
const START_BOUND: Duration = Duration::from_secs(20);
/// How long it may take to drain after SIGTERM before it is killed.
const STOP_BOUND: Duration = Duration::from_secs(10);
/// How long its admin pages may take to answer.
const ANSWER_BOUND: Duration = Duration::from_secs(2);
/// The longest admin page that is read: a thousand types with their figures are a megabyte.
const ANSWER_BYTES_MAX: u64 = 8 << 20;
/// How many of its last log lines are kept.
const LOG_LINES: usize = 400;
/// How much of one log line is kept, in characters.
const LOG_LINE_LENGTH: usize = 2_000;
/// The words of its log for a key that does nothing here.
const INEFFECTIVE: &str = "has no effect";
/// The name of its configuration.
const CONFIG: &str = "gatekeeper.toml";
/// The name of its file of users.
const USERS: &str = "users.txt";
/// The environment variable that names the binary.
const BINARY_VARIABLE: &str = "GATEKEEPER_BIN";

/// A running gatekeeper with one gate. Dropping it ends it.
#[derive(Debug)]
pub struct Gatekeeper {
    child: Child,
    port: u16,
    admin_port: u16,
    log: Arc<Mutex<VecDeque<String>>>,
    collector: Option<JoinHandle<()>>,
    /// What stands before the gate's keys in its configuration.
    head: String,
    directory: TempDir,
}

impl Gatekeeper {
    /// Starts a gatekeeper before the PostgreSQL server on 127.0.0.1:`upstream`, with these keys of its
    /// `[[gate]]` beside the addresses (TOML values, such as `order` and `"fifo"` with its quotes), and
    /// waits until it accepts connections.
    ///
    /// # Errors
    /// If the binary isn't found, or it doesn't start (the message quotes its log).
    pub fn start(upstream: u16, keys: &[(String, String)]) -> Result<Self, Error> {
        Self::start_pinned(upstream, keys, None)
    }

    /// Starts a gatekeeper before a PostgreSQL server, with these keys, on a processor if one is named.
    ///
    /// # Errors
    /// See [`Gatekeeper::start`].
    pub fn start_pinned(upstream: u16, keys: &[(String, String)], cpu: Option<usize>) -> Result<Self, Error> {
        Self::start_gate("postgres", (Ipv4Addr::LOCALHOST, upstream), keys, None, cpu)
    }

    /// Starts a gatekeeper before a private server of either database, with these keys. A gate that judges
    /// logins itself has the server's account, unless its keys name a file of users.
    ///
    /// # Errors
    /// See [`Gatekeeper::start`].
    pub fn start_before(upstream: &Upstream, keys: &[(String, String)]) -> Result<Self, Error> {
        let has = |wanted: &str| keys.iter().any(|(key, _)| key == wanted);
        let judges = upstream.protocol == "mysql" || has("auth");
        let users = (judges && !has("users_file")).then_some(upstream.users.as_str());
        Self::start_gate(upstream.protocol, (Ipv4Addr::LOCALHOST, upstream.port), keys, users, None)
    }

    /// Starts a gatekeeper with a gate for HTTP before the service on 127.0.0.1:`upstream`, with these
    /// keys, on a processor if one is named.
    ///
    /// # Errors
    /// As [`Gatekeeper::start`].
    pub fn start_http(upstream: u16, keys: &[(&str, &str)], cpu: Option<usize>) -> Result<Self, Error> {
        Self::start_gate("http", (Ipv4Addr::LOCALHOST, upstream), keys, None, cpu)
    }

    /// Starts a gatekeeper with a gate for HTTP that listens on an address that includes 127.0.0.1.
    ///
    /// # Errors
    /// As [`Gatekeeper::start`].
    pub fn start_http_on(
        address: Ipv4Addr,
        upstream: u16,
        keys: &[(&str, &str)],
        cpu: Option<usize>,
    ) -> Result<Self, Error> {
        Self::start_gate("http", (address, upstream), keys, None, cpu)
    }

    /// Starts a gatekeeper with a gate for HTTP whose keys, and tables below it, are these lines.
    ///
    /// # Errors
    /// As [`Gatekeeper::start`].
    pub(crate) fn start_lines(upstream: u16, lines: &str) -> Result<Self, Error> {
        let (head, ports) = Self::addresses("http", Ipv4Addr::LOCALHOST, upstream)?;
        Self::start_binary(&find()?, (head, lines.to_owned()), None, ports, None)
    }

    /// The commands of `tc` that give a device the kernel's bands.
    ///
    /// # Errors
    /// If the binary isn't found, or refuses.
    pub(crate) fn bands_of(device: &str, bits: u64, bands: &str) -> Result<String, Error> {
        let arguments = format!("uplink setup --dev {device} --rate {}kbit --bands {bands}", bits / 1_000);
        let output = Command::new(find()?).args(arguments.split(' ')).stdin(Stdio::null()).output();
        let output = output.map_err(Error::io("starting gatekeeper"))?;
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
            return Err(
                testbed::Error::Program { program: format!("gatekeeper {arguments}"), output: said }.into()
            );
        }
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// A configuration as far as the addresses of its gate, and its ports.
    fn addresses(protocol: &str, address: Ipv4Addr, upstream: u16) -> Result<(String, (u16, u16)), Error> {
        let (port, admin_port) = (free_port()?, free_port()?);
        let head = format!(
            "[admin]\nlisten = \"127.0.0.1:{admin_port}\"\n\n[[gate]]\nprotocol = \"{protocol}\"\n\
             listen = \"{address}:{port}\"\nupstream = \"127.0.0.1:{upstream}\"\n"
        );
        Ok((head, (port, admin_port)))
    }

    fn start_gate(
        protocol: &str,
        (address, upstream): (Ipv4Addr, u16),
        keys: &[(impl AsRef<str>, impl AsRef<str>)],
        users: Option<&str>,
        cpu: Option<usize>,
    ) -> Result<Self, Error> {
        let (head, ports) = Self::addresses(protocol, address, upstream)?;
        let line = |(key, value): &(_, _)| format!("{} = {}\n", AsRef::as_ref(key), AsRef::as_ref(value));
        let lines: String = keys.iter().map(line).collect();
        Self::start_binary(&find()?, (head, lines), users, ports, cpu)
    }

    fn start_binary(
        binary: &Path,
        (mut head, lines): (String, String),
        users: Option<&str>,
        (port, admin_port): (u16, u16),
        cpu: Option<usize>,
    ) -> Result<Self, Error> {
        let directory = tempfile::Builder::new()
            .prefix("gatekeeper-")
            .tempdir()
            .map_err(Error::io("creating a temporary directory"))?;
        let path = directory.path().join(CONFIG);
        if let Some(users) = users {
            // Only its owner may read it, or the gate refuses it.
            let path = directory.path().join(USERS);
            write_private(&path, None, users).map_err(Error::io("writing the users of a gate"))?;
            head += &format!("users_file = {}\n", toml::Value::String(path.display().to_string()));
        }
        fs::write(&path, head.clone() + &lines)
            .map_err(Error::io("writing the gatekeeper's configuration"))?;
        let mut command = Command::new(binary);
        command.arg("run").arg("--config").arg(&path);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = process::spawn_pinned(&mut command, cpu)?;
        let log = Arc::default();
        let collector = child.stderr.take().map(|stderr| {
            let log = Arc::clone(&log);
            std::thread::spawn(move || collect(stderr, &log))
        });
        let mut gatekeeper = Self { child, port, admin_port, log, collector, head, directory };
        gatekeeper.wait_until_ready()?;
        Ok(gatekeeper)
    }

    /// The gate's port on 127.0.0.1.
    pub const fn port(&self) -> u16 {
        self.port
    }

    /// The admin pages' port on 127.0.0.1.
    pub const fn admin_port(&self) -> u16 {
        self.admin_port
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Gives the running gate other keys: the lines of its `[[gate]]` behind the addresses.
    ///
    /// # Errors
    /// If its configuration can't be written.
    pub fn reconfigure(&self, lines: &str) -> Result<(), Error> {
        let text = self.head.clone() + lines;
        fs::write(self.directory.path().join(CONFIG), text)
            .map_err(Error::io("writing the gatekeeper's configuration"))?;
        process::signal(&self.child, Signal::HUP);
        Ok(())
    }

    /// What it said of a key that has no effect: what is measured then isn't what was asked.
    pub fn ineffective(&self) -> Option<String> {
        let lines = self.log.lock().unwrap_or_else(PoisonError::into_inner);
        lines.iter().find(|line| line.contains(INEFFECTIVE)).cloned()
    }

    /// The last lines that it wrote to standard error.
    pub fn log_tail(&self) -> String {
        let lines = self.log.lock().unwrap_or_else(PoisonError::into_inner);
        lines.iter().map(|line| format!("{line}\n")).collect()
    }

    fn wait_until_ready(&mut self) -> Result<(), Error> {
        let port = self.port;
        process::wait_until_ready(&mut self.child, START_BOUND, || process::accepts(port)).map_err(
            |problem| {
                if let Ok(Some(_)) = self.child.try_wait() {
                    // With the process gone its log ends; whatever it said is in it after this.
                    let _ = self.collector.take().map(JoinHandle::join);
                }
                testbed::Error::NotReady { server: "gatekeeper".to_owned(), problem, log: self.log_tail() }
                    .into()
            },
        )
    }
}

impl Drop for Gatekeeper {
    fn drop(&mut self) {
        process::end(&mut self.child, &[(Signal::TERM, STOP_BOUND)]);
    }
}

/// The binary.
fn find() -> Result<PathBuf, Error> {
    Ok(process::find_binary("gatekeeper", BINARY_VARIABLE)?)
}

/// How many requests the gate with this admin listener lets in at once; none if it doesn't find that
/// itself, or doesn't answer.
pub(crate) fn capacity(admin_port: u16) -> Option<f64> {
    value_in(&admin_page(admin_port, "/metrics")?, "gatekeeper_capacity_requests")
}

/// The work that the gate with this admin listener has in flight, in seconds; none if it doesn't answer.
pub(crate) fn load(admin_port: u16) -> Option<f64> {
    value_in(&admin_page(admin_port, "/metrics")?, "gatekeeper_load_seconds")
}

/// How many types of requests the gate with this admin listener knows; none if it doesn't answer.
pub(crate) fn types_known(admin_port: u16) -> Option<u64> {
    status(admin_port)?["types_known"].as_u64()
}

/// `/status` of the only gate with this admin listener; none if it doesn't answer.
pub(crate) fn status(admin_port: u16) -> Option<serde_json::Value> {
    Some(admin_json(admin_port, "/status")?["gates"][0].take())
}

/// Clients that a late gate with this admin listener left unread since it began: those that it
/// closed, and those that had gone.
pub(crate) fn left_unread(admin_port: u16) -> Option<(f64, f64)> {
    let metrics = admin_page(admin_port, "/metrics")?;
    let how = |how: &str| {
        let of_it = |line: &&str| line.starts_with("gatekeeper_left_out_total{") && line.contains(how);
        metrics.lines().find(of_it)?.rsplit(' ').next()?.parse::<f64>().ok()
    };
    Some((how("\"closed\"")?, how("\"gone\"")?))
}

/// The rate of the uplink in bits per second, if the gate knows one.
pub(crate) fn uplink_rate(admin_port: u16) -> Option<f64> {
    let metrics = admin_page(admin_port, "/metrics")?;
    let bytes = value_in(&metrics, "gatekeeper_uplink_rate_bytes").filter(|bytes| !bytes.is_nan());
    bytes.map(|bytes| bytes * 8.0)
}

/// What an admin page of JSON says; none if it doesn't answer.
pub(crate) fn admin_json(admin_port: u16, path: &str) -> Option<serde_json::Value> {
    let page = admin_page(admin_port, path)?;
    serde_json::from_str(page.split_once("\r\n\r\n")?.1).ok()
}

/// An admin page, with its head; none if it doesn't answer in time, or is cut off because it is longer than
/// [`ANSWER_BYTES_MAX`].
pub(crate) fn admin_page(admin_port: u16, path: &str) -> Option<String> {
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, admin_port)).ok()?;
    stream.set_read_timeout(Some(ANSWER_BOUND)).ok()?;
    let asked = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    stream.write_all(asked.as_bytes()).ok()?;
    let mut text = String::new();
    let length = stream.take(ANSWER_BYTES_MAX + 1).read_to_string(&mut text).ok()?;
    (length as u64 <= ANSWER_BYTES_MAX).then_some(text)
}

/// The value of a gate's metric.
fn value_in(metrics: &str, name: &str) -> Option<f64> {
    let of_it = |line: &&str| line.strip_prefix(name).is_some_and(|rest| rest.starts_with('{'));
    metrics.lines().find(of_it)?.rsplit(' ').next()?.parse().ok()
}

/// The version of the binary that [`Gatekeeper::start`] runs, with a sum of its bytes: other figures come
/// from another one.
///
/// # Errors
/// If the binary isn't found.
pub fn identity() -> Result<String, Error> {
    let binary = find()?;
    let bytes = fs::read(&binary).map_err(Error::io(format!("reading {}", binary.display())))?;
    let output = Command::new(&binary)
        .arg("--version")
        .output()
        .map_err(Error::io(format!("starting {}", binary.display())))?;
    let version = String::from_utf8_lossy(&output.stdout);
    let number = version.trim().rsplit(' ').next().unwrap_or_default().to_owned();
    Ok(format!("{number} ({:016x})", xxhash_rust::xxh3::xxh3_64(&bytes)))
}

/// Keeps the last lines of the log; ends with the process.
fn collect(stderr: ChildStderr, log: &Mutex<VecDeque<String>>) {
    let mut reader = BufReader::new(stderr);
    let mut line = Vec::new();
    while reader.read_until(b'\n', &mut line).is_ok_and(|length| length > 0) {
        keep(log, &String::from_utf8_lossy(&line));
        line.clear();
    }
}

fn keep(log: &Mutex<VecDeque<String>>, line: &str) {
    let mut lines = log.lock().unwrap_or_else(PoisonError::into_inner);
    if lines.len() == LOG_LINES {
        lines.pop_front();
    }
    lines.push_back(line.trim_end().chars().take(LOG_LINE_LENGTH).collect());
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_gatekeeper_that_stops_at_once_shows_its_log() {
        let directory = tempfile::tempdir().unwrap();
        let binary = directory.path().join("gatekeeper");
        fs::write(&binary, "#!/bin/sh\necho \"$1 $2 fails\" >&2\nexit 3\n").unwrap();
        fs::set_permissions(&binary, fs::Permissions::from_mode(0o755)).unwrap();
        let port = free_port().unwrap();
        let error = Gatekeeper::start_binary(&binary, Default::default(), None, (port, port), None)
            .unwrap_err()
            .to_string();
        assert!(error.contains("stopped at once") && error.contains("run --config fails"), "{error}");
    }

    #[test]
    fn a_capacity_is_read_where_one_is_found() {
        let text = "# TYPE x gauge\ngatekeeper_capacity_requests{gate=\"postgres\"} 5.0\nother 1\n";
        assert_eq!(value_in(text, "gatekeeper_capacity_requests"), Some(5.0));
        assert_eq!(value_in(text, "gatekeeper_capacity"), None);
        assert_eq!(value_in("other 1\n", "gatekeeper_capacity_requests"), None);
    }

    #[test]
    fn the_log_keeps_its_last_lines_and_cuts_long_ones() {
        let log = Mutex::default();
        for number in 0..=LOG_LINES {
            keep(&log, &format!("{number}\n"));
        }
        keep(&log, &"x".repeat(LOG_LINE_LENGTH + 1));
        let lines = log.into_inner().unwrap();
        assert_eq!(lines.len(), LOG_LINES);
        assert_eq!(lines.front().map(String::as_str), Some("2"));
        assert_eq!(lines.back().map(String::len), Some(LOG_LINE_LENGTH));
    }
}
