//! TLS between the gate and a MariaDB that has a certificate.

use std::fs::{Permissions, set_permissions};
use std::io::{self, Read as _, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};

use testbed::mariadb::PrivateMariadb;

use crate::stage::Stage;
use crate::support::certificates::Authority;

/// A packet of MySQL that asks for TLS: its header, then flags, lengths and a character set.
const TLS_REQUEST: usize = 36;
/// Types of TLS's records: a message of a handshake, and what is encrypted.
const HANDSHAKE: u8 = 22;
const ENCRYPTED: u8 = 23;
/// An encrypted alert: two bytes, the type within, and the tag. No user and no proof is so short.
const ENCRYPTED_ALERT: usize = 2 + 1 + 16;

/// A server whose certificate, signed by the authority, is for these hosts.
fn server(authority: &Authority, hosts: &[&str]) -> Arc<PrivateMariadb> {
    let issued = authority.issue("the server", hosts);
    // The server may run as another user.
    set_permissions(authority.directory(), Permissions::from_mode(0o755)).unwrap();
    let certificate = authority.file("server.pem", &issued.certificate, 0o644);
    let key = authority.file("server.key", &issued.key, 0o644);
    let options = [("ca", authority.path()), ("cert", certificate), ("key", key)];
    let options = options.map(|(name, path)| format!("--ssl-{name}={}", path.display()));
    Arc::new(PrivateMariadb::start(&options.each_ref().map(String::as_str)).unwrap())
}

fn verify_full(authority: &Authority) -> String {
    format!("upstream_tls_mode = \"verify-full\"\nupstream_tls_ca = \"{}\"", authority.path().display())
}

#[test]
fn the_server_says_that_the_gate_came_encrypted_and_lets_in_who_must() {
    let authority = Authority::new("the tests' authority");
    let server = server(&authority, &["localhost"]);
    let create = "CREATE USER encrypted@'%' IDENTIFIED BY 'secret' REQUIRE SSL; \
                  GRANT ALL ON witness.* TO encrypted@'%'";
    server.query(create).unwrap();
    let upstream = format!("localhost:{}", server.port());
    let require = "upstream_tls_mode = \"require\"".to_owned();
    for (line, encrypts) in [
        (require, true),
        (verify_full(&authority), true),
        ("upstream_tls_mode = \"disable\"".to_owned(), false),
    ] {
        let users = "\"encrypted\" \"secret\"\n";
        let stage = Stage::reaching((Arc::clone(&server), &upstream), &[&line], users);
        let cipher = stage.client().query("SHOW STATUS LIKE 'Ssl_cipher'").rows();
        assert_eq!(cipher.starts_with("Ssl_cipher\tTLS_"), encrypts, "{line}: {cipher}");
        match stage.login("encrypted", "secret") {
            Ok(mut session) => assert_eq!((session.query("SELECT 1").rows().as_str(), encrypts), ("1", true)),
            Err(told) => {
                assert_eq!((told.code, encrypts), (1045, false), "{line}: {}", told.message);
                assert!(told.message.starts_with("Access denied for user 'encrypted'@"), "{}", told.message);
            }
        }
    }
}

#[test]
fn a_server_that_is_not_verified_learns_neither_user_nor_password() {
    let (authority, stranger) = (Authority::new("the tests' authority"), Authority::new("a stranger"));
    let server = server(&authority, &["db.example.com"]);
    for (trusted, advice) in [
        (&stranger, "upstream_tls_ca must hold the certificate of the authority that signed the server's"),
        (&authority, "upstream must name the server as its certificate does"),
    ] {
        let relay = Relay::start(server.port());
        let upstream = format!("localhost:{}", relay.port);
        let stage = Stage::reaching((Arc::clone(&server), &upstream), &[&verify_full(trusted)], "");
        let told = stage.login(server.user(), server.password()).err().expect("it is not verified");
        let reason = format!("no TLS with {upstream}: invalid peer certificate: ");
        let is_told = told.message.contains(&reason) && told.message.ends_with(advice);
        assert!(told.code == 1105 && is_told, "{}", told.message);
        drop(stage);
        let heard = relay.end();
        let logins: Vec<_> = heard.iter().filter(|sent| !sent.is_empty()).collect();
        assert!(!logins.is_empty());
        for sent in logins {
            assert_eq!(sent[..4], [TLS_REQUEST as u8 - 4, 0, 0, 1]);
            let mut rest = &sent[TLS_REQUEST..];
            assert_eq!(rest[0], HANDSHAKE);
            while let [kind, _, _, high, low, after @ ..] = rest {
                let length = usize::from(u16::from_be_bytes([*high, *low]));
                assert!(*kind != ENCRYPTED || length == ENCRYPTED_ALERT, "{length} encrypted bytes");
                rest = &after[length..];
            }
        }
    }
}

/// Passes connections on to the server, and keeps what the gate sends on each.
struct Relay {
    port: u16,
    is_over: Arc<AtomicBool>,
    heard: JoinHandle<Vec<Vec<u8>>>,
}

impl Relay {
    fn start(server: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let is_over = Arc::new(AtomicBool::new(false));
        let ends = Arc::clone(&is_over);
        let heard = thread::spawn(move || {
            let gates = listener.incoming().map(Result::unwrap);
            let gates = gates.take_while(|_| !ends.load(Ordering::SeqCst));
            let passed: Vec<_> = gates.map(|gate| thread::spawn(move || pass_on(&gate, server))).collect();
            passed.into_iter().map(|one| one.join().unwrap()).collect()
        });
        Self { port, is_over, heard }
    }

    /// What was sent on each connection. The gate has ended.
    fn end(self) -> Vec<Vec<u8>> {
        self.is_over.store(true, Ordering::SeqCst);
        TcpStream::connect(("127.0.0.1", self.port)).unwrap();
        self.heard.join().unwrap()
    }
}

fn pass_on(gate: &TcpStream, server: u16) -> Vec<u8> {
    let server = TcpStream::connect(("127.0.0.1", server)).unwrap();
    thread::scope(|scope| {
        scope.spawn(|| {
            let _ = io::copy(&mut &server, &mut &*gate);
            let _ = gate.shutdown(Shutdown::Both);
        });
        let (mut sent, mut chunk) = (Vec::new(), [0; 4096]);
        while let Ok(length @ 1..) = (&mut &*gate).read(&mut chunk) {
            sent.extend_from_slice(&chunk[..length]);
            let _ = (&server).write_all(&chunk[..length]);
        }
        let _ = server.shutdown(Shutdown::Both);
        sent
    })
}
