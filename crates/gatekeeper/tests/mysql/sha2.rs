//! Logins at a server that asks for `caching_sha2_password`, as MySQL 8 does: the fast way, by a hash that
//! the server keeps, and the full way, by the password itself over TLS or encrypted by RSA. The server is
//! Dolt's (`drivers/mysql/server`). Clients log in at the gate by the same ways.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream, UdpSocket};
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use bytes::BytesMut;
use tempfile::TempDir;
use testbed::postgres::free_port;
use wire::mysql::authentication::{Step, parse_step};
use wire::mysql::capabilities::Capabilities;
use wire::mysql::codec::Sequence;
use wire::mysql::handshake::{Greeting, Response, parse_greeting, write_response};
use wire::mysql::salted::Salted;
use wire::mysql::scramble::caching_sha2;

use crate::accounts::import;
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
    address: SocketAddr,
}

impl Server {
    /// `takes` is how it takes the password itself: "tls" or "rsa".
    fn start(takes: &str) -> Self {
        Self::start_at(Ipv4Addr::LOCALHOST.into(), takes)
    }

    fn start_at(ip: IpAddr, takes: &str) -> Self {
        let source = tests_directory().join("drivers/mysql/server");
        let mut child = Command::new(support::go(&source, "mysql-server"))
            .args(["ann", "secret", takes, &ip.to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let lifeline = child.stdin.take().unwrap();
        let said = BufReader::new(child.stdout.take().unwrap());
        let mut server = Self { child, _lifeline: lifeline, said, address: SocketAddr::new(ip, 0) };
        let port = server.line().parse().unwrap();
        server.address.set_port(port);
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

/// A gate whose users file has this secret for the server's user, with more lines of configuration.
fn gate_with(
    (server, listen): (&Server, &dyn Fn(&TempDir) -> String),
    secret: &str,
    settings: &[&str],
) -> (Gate, TempDir) {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("users.txt");
    std::fs::write(&file, format!("\"ann\" \"{secret}\"\n")).unwrap();
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o600)).unwrap();
    let own = ["protocol = \"mysql\"".to_owned(), format!("users_file = {:?}", file.display().to_string())];
    let lines: Vec<_> = own.into_iter().chain(settings.iter().map(|line| (*line).to_owned())).collect();
    let gate = Gate::start_between(&listen(&directory), &server.address.to_string(), &lines);
    (gate, directory)
}

fn over_tcp(_: &TempDir) -> String {
    format!("127.0.0.1:{}", free_port().unwrap())
}

fn socket(directory: &TempDir) -> PathBuf {
    directory.path().join("gate.sock")
}

fn over_unix(directory: &TempDir) -> String {
    format!("unix:{}", socket(directory).display())
}

/// A gate that comes to the server over TLS.
fn gate(server: &Server, password: &str) -> (Gate, TempDir) {
    gate_with((server, &over_tcp), password, &["upstream_tls_mode = \"require\""])
}

/// What MySQL 8 keeps of the server's user.
fn kept() -> String {
    Salted::new(b"secret", 5, *b"abcdefghijklmnopqrst").to_hexadecimal()
}

/// A login over the gate's Unix socket.
fn login_unix(directory: &TempDir, user: &str, password: &str) -> Result<Session, Told> {
    Session::login(&socket(directory), (user, Secret::Password(password)), WANTED)
}

fn message(stream: &mut UnixStream) -> Vec<u8> {
    let mut head = [0; 4];
    stream.read_exact(&mut head).unwrap();
    let mut payload = vec![0; u32::from_le_bytes([head[0], head[1], head[2], 0]) as usize];
    stream.read_exact(&mut payload).unwrap();
    payload
}

/// A client that has read the gate's greeting.
fn greeted(directory: &TempDir) -> (UnixStream, Vec<u8>) {
    let mut stream = UnixStream::connect(socket(directory)).unwrap();
    let first = message(&mut stream);
    (stream, first)
}

/// Guesses a password, and leaves with the gate's first answer, which shows that it is another.
fn guess_and_leave((mut stream, first): (UnixStream, Vec<u8>)) -> Vec<u8> {
    let Greeting::Handshake(greeting) = parse_greeting(&first).unwrap() else { panic!("it greets") };
    let response = Response {
        capabilities: WANTED & greeting.capabilities,
        max_packet: 1 << 24,
        collation: 45,
        user: b"ann",
        proof: &caching_sha2::prove(&caching_sha2::key(b"guess"), &greeting.scramble),
        database: Some(b"witness"),
        plugin: caching_sha2::NAME.as_bytes(),
        attributes: None,
        zstd_level: None,
    };
    let mut out = BytesMut::new();
    write_response(&mut out, Sequence(1), &response);
    stream.write_all(&out).unwrap();
    message(&mut stream)
}

/// What a driver gets by a login over TCP, where it encrypts a password that is asked for: the answer to a
/// query, or the number of the error.
fn login_by(mut program: Command, gate: &Gate, (user, password): (&str, &str)) -> String {
    program.env("MYSQL_HOST", "127.0.0.1").env("MYSQL_TCP_PORT", gate.port().to_string());
    program.env("MYSQL_USER", user).env("MYSQL_PWD", password).env("MYSQL_DATABASE", "witness");
    let output = program.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

fn mysql2() -> Command {
    support::node("mysql/node/login.cjs")
}

fn login(gate: &Gate, password: &str) -> Result<Session, Told> {
    let socket = TcpStream::connect(("127.0.0.1", gate.port())).unwrap();
    Session::login_over(OwnedFd::from(socket).into(), ("ann", Secret::Password(password)), WANTED)
}

#[test]
fn the_first_login_gives_the_password_over_tls_and_later_ones_its_proof() {
    let mut server = Server::start("tls");
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
fn a_users_file_made_from_the_servers_accounts_lets_its_user_in() {
    let mut server = Server::start("tls");
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("imported.txt");
    let (address, output) = (server.address.to_string(), file.display().to_string());
    let args = ["--upstream", &address, "--upstream-tls-mode", "require", "--output", &output];
    let told = import(&args, "ann", "secret");
    let said = String::from_utf8_lossy(&told.stdout).into_owned();
    assert_eq!(said, format!("{output} has 1 user.\n"), "{}", String::from_utf8_lossy(&told.stderr));
    assert_eq!(server.line(), "full ann");
    let text = std::fs::read_to_string(&file).unwrap();
    let Some(line) = text.lines().find(|line| line.starts_with("\"ann\" ")) else { panic!("{text}") };
    let secret = line.trim_start_matches("\"ann\" ").trim_matches('"');
    assert!(secret.starts_with("0x2441"), "{secret}");
    let settings = ["upstream_tls_mode = \"require\""];
    let (_gate, directory) = gate_with((&server, &over_unix), secret, &settings);
    assert_eq!(login_unix(&directory, "ann", "guess").err().unwrap().code, 1045);
    assert_eq!(login_unix(&directory, "ann", "secret").unwrap().query("SELECT 1").rows(), "1");
}

#[test]
fn the_server_refuses_a_wrong_password_of_the_users_file() {
    let mut server = Server::start("tls");
    let (wrong, _directory) = gate(&server, "guess");
    assert_eq!(login(&wrong, "guess").err().unwrap().code, 1045);
    // Nobody came in so far.
    let (encrypted, _directory) = gate(&server, "secret");
    login(&encrypted, "secret").unwrap();
    assert_eq!(server.line(), "full ann");
}

#[test]
fn without_tls_the_password_goes_to_the_server_encrypted_by_its_key() {
    let mut server = Server::start("rsa");
    let (plain, _directory) = gate_with((&server, &over_tcp), "secret", &[]);
    let mut first = login(&plain, "secret").unwrap();
    assert_eq!(server.line(), "full ann");
    assert_eq!(first.query("SELECT 1").rows(), "1");
    first.query("SET @mine = 1");
    let mut second = login(&plain, "secret").unwrap();
    assert_eq!(server.line(), "fast ann");
    assert_eq!(second.query("SELECT 2").rows(), "2");
    let (wrong, _directory) = gate_with((&server, &over_tcp), "guess", &[]);
    assert_eq!(login(&wrong, "guess").err().unwrap().code, 1045);
}

/// An address of this machine that isn't loopback: nobody can see that what comes from there comes from here.
fn outer_address() -> Option<IpAddr> {
    let socket = UdpSocket::bind("0.0.0.0:0").ok()?;
    // Nothing is sent. The system only chooses the address that it would send from.
    socket.connect("198.51.100.1:9").ok()?;
    socket.local_addr().ok().map(|own| own.ip()).filter(|ip| !ip.is_loopback())
}

#[test]
fn a_server_elsewhere_gets_no_password_by_a_key_that_nobody_vouches_for() {
    let Some(ip) = outer_address() else {
        println!("skipped: this machine has no address but loopback");
        return;
    };
    let mut server = Server::start_at(ip, "rsa");
    let (plain, _directory) = gate_with((&server, &over_tcp), "secret", &[]);
    let told = login(&plain, "secret").err().unwrap();
    let address = server.address.to_string();
    let imported = import(&["--upstream", &address], "ann", "secret");
    let said = String::from_utf8_lossy(&imported.stderr).into_owned();
    for told in [told.message, said] {
        assert!(told.contains("nobody vouches") && told.contains("verify-full"), "{told}");
    }
    // Nobody has come in.
    server.child.kill().unwrap();
    assert_eq!(server.line(), "");
}

#[test]
fn a_client_sends_its_password_once_where_only_a_salted_hash_is_known() {
    let mut server = Server::start("rsa");
    let (_gate, directory) = gate_with((&server, &over_unix), &kept(), &[]);
    for (user, password) in [("ann", "guess"), ("nobody", "secret")] {
        assert_eq!(login_unix(&directory, user, password).err().unwrap().code, 1045, "{user}");
    }
    let mut first = login_unix(&directory, "ann", "secret").unwrap();
    // The gate gives the server the password that it has got.
    assert_eq!(server.line(), "full ann");
    assert_eq!((first.query("SELECT 1").rows().as_str(), first.sent_password), ("1", true));
    let mut second = login_unix(&directory, "ann", "secret").unwrap();
    assert_eq!((second.query("SELECT 2").rows().as_str(), second.sent_password), ("2", false));
    // What was kept lets nobody else in.
    assert_eq!(login_unix(&directory, "ann", "guess").err().unwrap().code, 1045);
}

/// Logs in by a driver, rightly and wrongly, with a server and a gate of its own.
fn check_driver(program: impl Fn() -> Command) {
    let mut server = Server::start("rsa");
    let settings = ["login_failures_max = 3"];
    let (plain, _directory) = gate_with((&server, &over_tcp), &kept(), &settings);
    let login = |user: &str, password: &str| login_by(program(), &plain, (user, password));
    assert_eq!(login("ann", "secret"), "1");
    assert_eq!(server.line(), "full ann");
    // The second way is the fast one. A second later this server can't be asked for a proof on an idle
    // connection (1047), which the gate then closes.
    let fast = login("ann", "secret");
    assert!(fast == "1" || fast == "1047" && login("ann", "secret") == "1", "{fast}");
    for (user, password) in [("ann", "guess"), ("nobody", "secret"), ("ann", "")] {
        assert_eq!(login(user, password), "1045", "{user} {password}");
    }
    // Each of them has counted.
    assert_eq!(login("ann", "secret"), "1129");
}

#[test]
fn mysql2_encrypts_its_password_with_the_gates_key() {
    check_driver(mysql2);
}

#[test]
fn go_sql_driver_encrypts_its_password_with_the_gates_key() {
    let executable = support::go(&tests_directory().join("drivers/mysql/go"), "go-mysql-login");
    check_driver(|| {
        let mut program = Command::new(&executable);
        program.arg("login");
        program
    });
}

#[test]
fn a_client_that_leaves_behind_a_wrong_proof_has_failed() {
    let server = Server::start("rsa");
    let settings = ["login_failures_max = 3"];
    let (_gate, directory) = gate_with((&server, &over_unix), &kept(), &settings);
    // From now on the gate can tell a right proof from a wrong one.
    login_unix(&directory, "ann", "secret").unwrap();
    let late = greeted(&directory);
    for _ in 0..3 {
        let answer = guess_and_leave(greeted(&directory));
        assert!(matches!(parse_step(&answer), Ok(Step::More([caching_sha2::FULL]))), "{answer:?}");
    }
    let shut_out = || login_unix(&directory, "ann", "secret").is_err_and(|told| told.code == 1129);
    assert!((0..1_000).any(|_| shut_out() || {
        std::thread::sleep(std::time::Duration::from_millis(20));
        false
    }));
    // A client that was greeted before is shut out, too.
    let answer = guess_and_leave(late);
    assert!(matches!(parse_step(&answer), Ok(Step::Error(told)) if told.code == 1129), "{answer:?}");
}

#[test]
fn what_is_no_encrypted_password_is_refused() {
    let server = Server::start("rsa");
    let (plain, _directory) = gate_with((&server, &over_tcp), &kept(), &[]);
    // The test's client sends its password in clear, though it isn't within TLS.
    assert_eq!(login(&plain, "secret").err().unwrap().code, 1045);
    assert_eq!(login_by(mysql2(), &plain, ("ann", "secret")), "1");
}
