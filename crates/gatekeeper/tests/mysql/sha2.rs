//! Logins at a server that asks for `caching_sha2_password`, as MySQL 8 does: the fast way, by a hash that
//! the server keeps, and the full way, by the password itself over TLS. The server is Dolt's
//! (`drivers/mysql/server`).

use std::io::{BufRead as _, BufReader};
use std::net::TcpStream;
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt as _;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use tempfile::TempDir;
use wire::mysql::capabilities::Capabilities;

use crate::session::{Secret, Session, Told};
use crate::support::{self, Gate, tests_directory};

/// What the server offers of what the gate offers.
const WANTED: Capabilities = Capabilities(
    Capabilities::PROTOCOL_41.0
        | Capabilities::SECURE_CONNECTION.0
        | Capabilities::PLUGIN_AUTH.0
        | Capabilities::PLUGIN_AUTH_LENENC.0
        | Capabilities::CONNECT_WITH_DB.0,
);

/// A server with one user, "ann", whose password is "secret".
struct Server {
    child: Child,
    /// Its end ends the server.
    _lifeline: ChildStdin,
    said: BufReader<ChildStdout>,
    port: u16,
}

impl Server {
    fn start() -> Self {
        let source = tests_directory().join("drivers/mysql/server");
        let mut child = Command::new(support::go(&source, "mysql-server"))
            .args(["ann", "secret"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let lifeline = child.stdin.take().unwrap();
        let said = BufReader::new(child.stdout.take().unwrap());
        let mut server = Self { child, _lifeline: lifeline, said, port: 0 };
        server.port = server.line().parse().unwrap();
        server
    }

    /// The next that it says: by which way somebody came.
    fn line(&mut self) -> String {
        let mut line = String::new();
        self.said.read_line(&mut line).unwrap();
        line.trim().to_owned()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A gate whose users file has this password for the server's user.
fn gate(server: &Server, password: &str) -> (Gate, TempDir) {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("users.txt");
    std::fs::write(&file, format!("\"ann\" \"{password}\"\n")).unwrap();
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o600)).unwrap();
    let lines = [
        "protocol = \"mysql\"".to_owned(),
        format!("users_file = {:?}", file.display().to_string()),
        // The server takes a password in no other way.
        "upstream_tls_mode = \"require\"".to_owned(),
    ];
    (Gate::start(server.port, &lines), directory)
}

fn login(gate: &Gate, password: &str) -> Result<Session, Told> {
    let socket = TcpStream::connect(("127.0.0.1", gate.port())).unwrap();
    Session::login_over(OwnedFd::from(socket).into(), ("ann", Secret::Password(password)), WANTED)
}

#[test]
fn the_first_login_gives_the_password_over_tls_and_later_ones_its_proof() {
    let mut server = Server::start();
    let (encrypted, _directory) = gate(&server, "secret");
    let mut first = login(&encrypted, "secret").unwrap();
    assert_eq!(server.line(), "full ann");
    assert_eq!(first.query("SELECT 1").rows(), "1");
    // The first session keeps its connection, so that the next one has to log in.
    first.query("SET @mine = 1");
    let mut second = login(&encrypted, "secret").unwrap();
    assert_eq!(server.line(), "fast ann");
    assert_eq!(second.query("SELECT 2").rows(), "2");
}

#[test]
fn the_server_refuses_a_wrong_password_of_the_users_file() {
    let mut server = Server::start();
    let (wrong, _directory) = gate(&server, "guess");
    assert_eq!(login(&wrong, "guess").err().unwrap().code, 1045);
    // Nobody came in so far.
    let (encrypted, _directory) = gate(&server, "secret");
    login(&encrypted, "secret").unwrap();
    assert_eq!(server.line(), "full ann");
}
