//! Go's own HTTP server as a process (`tests/clients/origin`), which a test can stop, kill and start again.

use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::OnceLock;

use serde_json::Value;

/// It ends with what it reads from, or when it is dropped.
pub(crate) struct Server {
    child: Child,
    _lifeline: ChildStdin,
    plain: u16,
    encrypted: u16,
}

impl Server {
    /// Starts one with a certificate and its key, at this port in the clear if it has to be a certain one.
    pub(crate) fn start(certificate: &(PathBuf, PathBuf), port: Option<u16>) -> Self {
        // Once: a program that runs can't be written.
        static EXECUTABLE: OnceLock<PathBuf> = OnceLock::new();
        let build = || super::go(&super::tests_directory().join("clients/origin"), "http-origin");
        let mut child = Command::new(EXECUTABLE.get_or_init(build))
            .args([&certificate.0, &certificate.1])
            .args(port.map(|port| port.to_string()))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the server starts");
        let mut line = String::new();
        let said = child.stdout.take().expect("it is piped");
        BufReader::new(said).read_line(&mut line).expect("it tells its ports");
        let ports: Vec<u16> = line.split_whitespace().map(|port| port.parse().expect("a port")).collect();
        let lifeline = child.stdin.take().expect("it is piped");
        Self { child, _lifeline: lifeline, plain: ports[0], encrypted: ports[1] }
    }

    /// Its port in the clear.
    pub(crate) fn plain(&self) -> u16 {
        self.plain
    }

    /// Its port with TLS.
    pub(crate) fn encrypted(&self) -> u16 {
        self.encrypted
    }

    /// Sends a signal.
    pub(crate) fn signal(&self, name: &str) {
        let kill = Command::new("kill").args([&format!("-{name}"), &self.child.id().to_string()]).status();
        assert!(kill.expect("kill runs").success());
    }

    /// What it counts: `connections`, `asked` or `sockets`.
    pub(crate) fn count(&self, what: &str) -> u64 {
        let url = format!("http://127.0.0.1:{}/counts", self.plain);
        let text = ureq::get(&url).call().expect("it answers").body_mut().read_to_string().expect("a body");
        let counts: Value = serde_json::from_str(&text).expect("counts");
        counts[what].as_u64().expect("a count")
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended by itself, or been killed.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
