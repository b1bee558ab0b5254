//! TLS with clients: how it begins, what the modes demand, certificates of clients, cancel requests; by raw
//! bytes and by `psql`.

#![expect(clippy::unwrap_used, reason = "a helper of tests fails like a test")]

mod gate;
mod support;

use std::net::TcpStream;
use std::time::Duration;

use bytes::BytesMut;
use gate::client::{Client, query, startup};
use gate::{DATABASE, Scene};
use support::certificates::{Authority, Certificate};
use wire::postgres::startup::{write_cancel, write_ssl_request};

/// A raw GSSENCRequest.
const GSS_REQUEST: &[u8] = b"\0\0\0\x08\x04\xd2\x16\x30";

/// A gate with a certificate for `localhost`, in a mode.
struct Secure {
    scene: Scene,
    authority: Authority,
}

impl Secure {
    fn start(user: &str, lines: &[&str]) -> Self {
        let authority = Authority::new("the tests' authority");
        let (certificate, key) = authority.files("gate", &authority.issue("gate", &["localhost"]));
        let mut settings = vec![
            format!("tls_cert = \"{}\"", certificate.display()),
            format!("tls_key = \"{}\"", key.display()),
            format!("tls_client_ca = \"{}\"", authority.path().display()),
        ];
        settings.extend(lines.iter().map(|line| (*line).to_owned()));
        let settings: Vec<_> = settings.iter().map(String::as_str).collect();
        Self { scene: Scene::start(user, &settings), authority }
    }

    fn socket(&self) -> TcpStream {
        let socket = TcpStream::connect(("127.0.0.1", self.scene.gate.port())).unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        socket.set_nodelay(true).unwrap();
        socket
    }

    /// TLS after an SSLRequest.
    fn asked(&self, identity: Option<&Certificate>) -> Client {
        let mut socket = self.socket();
        assert_eq!(ask(&mut socket, &ssl_request()), "S");
        Client::over(self.authority.connect(socket, None, identity))
    }

    /// TLS from the first byte.
    fn direct(&self, protocol: Option<&str>) -> Client {
        Client::over(self.authority.connect(self.socket(), protocol, None))
    }

    /// A session with TLS.
    fn client(&self) -> Client {
        let mut client = self.asked(None);
        assert_eq!(client.start(&self.scene.user, DATABASE), "Z(I)", "{:?}", client.said);
        client
    }

    /// What psql says with these connection settings: its output, or its error.
    fn psql(&self, settings: &str) -> Result<String, String> {
        let program = self.scene.server.binaries().program("psql");
        let (port, user) = (self.scene.gate.port(), &self.scene.user);
        let root = self.authority.path();
        let output = std::process::Command::new(program)
            .args(["-X", "-A", "-t", "-c", "SELECT 'through'"])
            .arg(format!(
                "host=localhost port={port} user={user} dbname=postgres sslrootcert={} {settings}",
                root.display()
            ))
            .env("PGCONNECT_TIMEOUT", "60")
            .output()
            .unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
        if output.status.success() { Ok(text(&output.stdout)) } else { Err(text(&output.stderr)) }
    }
}

fn ssl_request() -> Vec<u8> {
    let mut request = BytesMut::new();
    write_ssl_request(&mut request);
    request.to_vec()
}

/// Sends something in the clear, and returns the byte that comes back, or nothing at the end of the
/// connection.
fn ask(socket: &mut TcpStream, bytes: &[u8]) -> String {
    use std::io::{Read as _, Write as _};
    socket.write_all(bytes).unwrap();
    let mut answer = [0];
    match socket.read(&mut answer) {
        Ok(1) => char::from(answer[0]).to_string(),
        _ => String::new(),
    }
}

#[test]
fn tls_begins_after_a_request_or_at_once() {
    let secure = Secure::start("begins", &[]);
    let mut asked = secure.client();
    assert_eq!(asked.query("SELECT 1"), "T D(1) C(SELECT 1) Z(I)");
    let mut direct = secure.direct(Some("postgresql"));
    assert_eq!(direct.start(&secure.scene.user, DATABASE), "Z(I)");
    assert_eq!(direct.query("SELECT 2"), "T D(2) C(SELECT 1) Z(I)");
    // In the clear goes, too: the mode is `prefer`.
    assert_eq!(secure.scene.client().query("SELECT 3"), "T D(3) C(SELECT 1) Z(I)");
    // A large result, and much to send, by parts that don't fit into records or socket buffers.
    assert!(asked.query("SELECT repeat('x', 20000000)").ends_with("C(SELECT 1) Z(I)"));
    let long = format!("SELECT length('{}')", "y".repeat(5_000_000));
    assert_eq!(asked.query(&long), "T D(5000000) C(SELECT 1) Z(I)");
    let pipeline: Vec<u8> = (0..2000).flat_map(|_| query("SELECT repeat('z', 1000)")).collect();
    direct.send(&pipeline);
    for _ in 0..2000 {
        assert!(direct.answers().ends_with("C(SELECT 1) Z(I)"));
    }
    // A good-bye is answered with TLS's own, which this client insists on.
    asked.send(&gate::client::terminate());
    assert_eq!(asked.answer(), "closed");
    secure.scene.settled();
}

#[test]
fn direct_tls_must_name_the_protocol() {
    let secure = Secure::start("protocol", &[]);
    for (protocol, works) in [(None, false), (Some("http/1.1"), false), (Some("postgresql"), true)] {
        let mut client = secure.direct(protocol);
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            client.start(&secure.scene.user, DATABASE)
        }));
        assert_eq!(outcome.is_ok_and(|answers| answers == "Z(I)"), works, "{protocol:?}");
    }
}

#[test]
fn what_came_before_the_handshake_is_not_taken_for_something_said_within() {
    let secure = Secure::start("injected", &[]);
    let startup = startup(3 << 16, &[("user", "injected")]);
    // Also for GSSAPI, which is declined.
    for request in [ssl_request(), GSS_REQUEST.to_vec()] {
        let mut socket = secure.socket();
        assert_eq!(ask(&mut socket, &[request, startup.clone()].concat()), "");
    }
    // GSSAPI is declined within TLS, and before it.
    let mut client = secure.asked(None);
    client.send(GSS_REQUEST);
    assert_eq!(client.byte(), "N");
    assert_eq!(client.start(&secure.scene.user, DATABASE), "Z(I)");
    let mut socket = secure.socket();
    assert_eq!(ask(&mut socket, GSS_REQUEST), "N");
    assert_eq!(ask(&mut socket, &ssl_request()), "S");
    let mut client = Client::over(secure.authority.connect(socket, Some("postgresql"), None));
    assert_eq!(client.start(&secure.scene.user, DATABASE), "Z(I)");
    // TLS once is enough.
    let mut client = secure.asked(None);
    client.send(&ssl_request());
    assert_eq!(client.answer(), "closed");
}

#[test]
fn a_mode_demands_tls_and_certificates() {
    let authority = Authority::new("somebody else");
    // A certificate that is shown is verified in any mode.
    let modes = [
        ("require", [true, true, true, false]),
        ("verify-ca", [false, true, true, false]),
        ("verify-full", [false, false, true, false]),
    ];
    for (mode, [none, anothers, own, foreign]) in modes {
        let user = format!("mode_{}", mode.replace('-', "_"));
        let secure = Secure::start(&user, &[&format!("tls_mode = \"{mode}\"")]);
        let mut clear = Client::connect(secure.scene.gate.port());
        assert_eq!(clear.start(&user, DATABASE), "F(28000) closed");
        assert!(clear.said.hint.contains("sslmode=require"), "{:?}", clear.said);
        let of_user = secure.authority.issue(&user, &[]);
        let of_another = secure.authority.issue("another", &[]);
        let forged = authority.issue(&user, &[]);
        for (identity, comes_in) in
            [(None, none), (Some(&of_another), anothers), (Some(&of_user), own), (Some(&forged), foreign)]
        {
            let mut client = secure.asked(identity);
            let outcome =
                std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| client.start(&user, DATABASE)));
            let came_in = outcome.as_ref().is_ok_and(|answers| answers == "Z(I)");
            assert_eq!(came_in, comes_in, "{mode}: {outcome:?} {:?}", client.said);
            if mode == "verify-full"
                && identity.is_some_and(|shown| shown.certificate == of_another.certificate)
            {
                assert!(client.said.message.contains("\"another\"'s, not user"), "{:?}", client.said);
            }
        }
    }
}

#[test]
fn psql_verifies_the_gate() {
    let secure = Secure::start("psql_verifies", &["tls_mode = \"require\""]);
    let through = Ok("through".to_owned());
    for mode in ["allow", "prefer", "require", "verify-ca", "verify-full"] {
        assert_eq!(secure.psql(&format!("sslmode={mode}")), through, "{mode}");
    }
    let error = secure.psql("sslmode=disable").unwrap_err();
    assert!(error.contains("connections with TLS only"), "{error}");
    let error = secure.psql("sslmode=verify-full hostaddr=127.0.0.1 host=other").unwrap_err();
    assert!(error.contains("does not match host name"), "{error}");
    let foreign = Authority::new("somebody else");
    let error =
        secure.psql(&format!("sslmode=verify-ca sslrootcert={}", foreign.path().display())).unwrap_err();
    assert!(error.contains("certificate verify failed"), "{error}");
}

/// Cancels what a session does, over a connection of `how`.
fn cancel(mut canceler: Client, of: &(i32, Vec<u8>)) {
    let mut request = BytesMut::new();
    write_cancel(&mut request, of.0, &of.1);
    canceler.send(&request);
    assert_eq!(canceler.answer(), "closed");
}

#[test]
fn cancels_come_with_tls_and_without() {
    let secure =
        Secure::start("cancels_tls", &["tls_mode = \"require\"", "connections = 2", "long_limit = 0"]);
    let scene = &secure.scene;
    for (version, greeting) in [(3 << 16, "Z(I)"), (3 << 16 | 2, "v Z(I)")] {
        let mut client = secure.asked(None);
        // PostgreSQL 15 speaks 3.0 with all.
        assert_eq!(client.start_version(version, &scene.user, DATABASE), greeting);
        assert_eq!(client.key.1.len(), 4);
        for encrypted in [true, false] {
            client.send(&query("SELECT pg_sleep(600)"));
            scene.until_runs("pg_sleep(600)");
            // Neither another key nor more than the key is the key.
            let mut wrong = [client.key.clone(), client.key.clone()];
            wrong[0].1[3] ^= 1;
            wrong[1].1 = [&wrong[1].1[..], &[0; 28]].concat();
            for wrong in &wrong {
                cancel(secure.asked(None), wrong);
            }
            assert_eq!(scene.processes_where("state = 'active'").len(), 1);
            let canceler = if encrypted { secure.asked(None) } else { Client::connect(scene.gate.port()) };
            cancel(canceler, &client.key);
            assert!(client.answers().ends_with("E(57014) Z(I)"));
        }
        let direct = secure.direct(Some("postgresql"));
        client.send(&query("SELECT pg_sleep(600)"));
        scene.until_runs("pg_sleep(600)");
        cancel(direct, &client.key);
        assert!(client.answers().ends_with("E(57014) Z(I)"));
    }
    scene.settled();
}

#[test]
fn a_late_cancel_with_tls_hits_nobody() {
    let secure = Secure::start("late_tls", &["connections = 1"]);
    let (mut first, mut second) = (secure.client(), secure.client());
    first.run("SELECT 1");
    // The server connection that served the first serves the second now.
    second.send(&query("SELECT 'survivor' FROM pg_sleep(600)"));
    secure.scene.until_runs("survivor");
    for _ in 0..5 {
        cancel(secure.asked(None), &first.key);
    }
    assert_eq!(secure.scene.processes_where("state = 'active'").len(), 1);
    cancel(secure.asked(None), &second.key);
    assert_eq!(second.answers(), "T E(57014) Z(I)");
    for _ in 0..10 {
        assert_eq!(second.query("SELECT 1"), "T D(1) C(SELECT 1) Z(I)");
        cancel(secure.asked(None), &second.key);
        assert_eq!(first.query("SELECT 1"), "T D(1) C(SELECT 1) Z(I)");
    }
    secure.scene.settled();
}

#[test]
fn a_client_that_goes_away_in_a_handshake_leaves_nothing() {
    let secure = Secure::start("goes_away", &[]);
    for bytes in [&b""[..], b"\x16", b"\x16\x03\x01\x00\x05hello", b"GET / HTTP/1.1\r\n\r\n"] {
        let mut socket = secure.socket();
        assert_eq!(ask(&mut socket, &ssl_request()), "S");
        std::io::Write::write_all(&mut socket, bytes).unwrap();
        drop(socket);
        let mut socket = secure.socket();
        std::io::Write::write_all(&mut socket, bytes).unwrap();
    }
    assert_eq!(secure.client().query("SELECT 1"), "T D(1) C(SELECT 1) Z(I)");
    secure.scene.settled();
}

impl Secure {
    /// The certificate that a new client is shown, and its session.
    fn shown(&self) -> Vec<u8> {
        let mut socket = self.socket();
        assert_eq!(ask(&mut socket, &ssl_request()), "S");
        let mut stream = self.authority.connect(socket, None, None);
        while stream.conn.is_handshaking() {
            stream.conn.complete_io(&mut stream.sock).unwrap();
        }
        stream.conn.peer_certificates().unwrap()[0].to_vec()
    }
}

#[test]
fn a_reload_shows_the_new_certificate_and_a_mistake_keeps_the_old() {
    let secure = Secure::start("reloaded", &[]);
    let mut old = secure.client();
    let first = secure.shown();
    secure.authority.files("gate", &secure.authority.issue("gate", &["localhost"]));
    assert_eq!(secure.shown(), first, "nobody has asked for the new one yet");
    secure.scene.gate.signal("HUP");
    gate::until("the new certificate is shown", || secure.shown() != first);
    let second = secure.shown();
    assert_eq!(old.query("SELECT 1"), "T D(1) C(SELECT 1) Z(I)", "a client that is connected stays");

    let third = secure.authority.issue("gate", &["localhost"]);
    secure.authority.file("gate.key", &third.key, 0o644);
    secure.scene.gate.signal("HUP");
    gate::until("the mistake is told", || {
        secure.scene.gate.log().contains("can be read or written by others")
    });
    secure.authority.file("gate.key", &third.key, 0o600);
    secure.scene.gate.signal("HUP");
    gate::until("the next mistake is told", || {
        secure.scene.gate.log().contains("isn't the key of the certificate")
    });
    assert_eq!(secure.shown(), second);
    assert_eq!(secure.client().query("SELECT 1"), "T D(1) C(SELECT 1) Z(I)");
}

#[test]
fn a_backup_is_streamed_through_the_gate_in_session_mode_and_refused_in_transaction_mode() {
    let secure = Secure::start("backup", &["pooling = \"session\"", "tls_mode = \"require\""]);
    let copy = tempfile::tempdir().unwrap();
    let target = copy.path().join("copy");
    let settings = format!(
        "host=localhost port={} user=backup sslmode=verify-full sslrootcert={}",
        secure.scene.gate.port(),
        secure.authority.path().display()
    );
    // Two replication connections at once: the files, and what is written meanwhile.
    let output = std::process::Command::new(secure.scene.server.binaries().program("pg_basebackup"))
        .args(["--wal-method=stream", "--checkpoint=fast", "--no-sync", "--dbname", &settings, "--pgdata"])
        .arg(&target)
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(target.join("PG_VERSION").exists() && target.join("pg_wal").exists());
    let mut client = secure.asked(None);
    let parameters = [("user", "backup"), ("database", DATABASE), ("replication", "database")];
    assert_eq!(client.start_with(&parameters), "Z(I)");
    assert!(client.query("IDENTIFY_SYSTEM").starts_with("T D("));
    drop(client);
    secure.scene.until("both have left", || secure.scene.processes().is_empty());

    let secure = Secure::start("no_backup", &[]);
    let mut client = secure.asked(None);
    let parameters = [("user", "no_backup"), ("database", DATABASE), ("replication", "true")];
    assert_eq!(client.start_with(&parameters), "F(0A000) closed");
    assert!(client.said.hint.contains("pooling = \"session\""), "{:?}", client.said);
}
