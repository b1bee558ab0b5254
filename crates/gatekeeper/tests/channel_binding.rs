//! Logins by SCRAM that are bound to their TLS channel, where the gate is an end of it: towards clients
//! that it authenticates itself, and towards the server.

// Helpers of tests are outside of `#[test]` functions, where clippy.toml's allowances don't reach.
#![allow(clippy::unwrap_used, clippy::panic)]

mod support;

use std::net::TcpStream;
use std::process::Command;
use std::time::Duration;

use bytes::BytesMut;
use rcgen::{KeyPair, PKCS_ECDSA_P256_SHA256, PKCS_ECDSA_P384_SHA384, PKCS_ED25519};
use rustls::{ClientConnection, StreamOwned};
use support::Gate;
use support::certificates::{Authority, Certificate};
use support::raw::startup;
use testbed::postgres::{PrivateServer, PrivateServerOptions};
use wire::postgres::authentication::{SaslInitial, write_sasl_initial, write_sasl_response};
use wire::postgres::backend::{Authentication, parse_authentication, parse_error};
use wire::postgres::scram::{client_final, client_final_without_proof, parse_server_first};
use wire::postgres::startup::write_ssl_request;

/// The user that these tests log in as.
const USER: &str = "ann";
/// Her password.
const PASSWORD: &str = "right";

/// A server that knows the user, with TLS if it has a certificate.
fn server(certificate: Option<&Certificate>) -> PrivateServer {
    let mut options = PrivateServerOptions::default();
    if let Some(Certificate { certificate, key }) = certificate {
        options.files =
            vec![("server.crt".to_owned(), certificate.clone()), ("server.key".to_owned(), key.clone())];
        options.settings.push(("ssl".to_owned(), "on".to_owned()));
    }
    let server = PrivateServer::start(&options).unwrap();
    server.psql(&format!("CREATE ROLE {USER} LOGIN PASSWORD '{PASSWORD}'")).unwrap();
    server
}

/// Lines of a gate that knows the user by the server's own secret.
fn asking(authority: &Authority, server: &PrivateServer) -> Vec<String> {
    let sql = "SELECT format('\"%s\" \"%s\"', rolname, rolpassword) FROM pg_authid WHERE rolname = 'ann'";
    let users = authority.file("users.txt", &server.psql(sql).unwrap(), 0o600);
    vec!["auth = \"scram-sha-256\"".to_owned(), format!("users_file = \"{}\"", users.display())]
}

/// Lines of a gate with TLS for `localhost`.
fn showing(authority: &Authority, name: &str) -> Vec<String> {
    let (certificate, key) = authority.files(name, &authority.issue(name, &["localhost"]));
    vec![format!("tls_cert = \"{}\"", certificate.display()), format!("tls_key = \"{}\"", key.display())]
}

/// What psql hears through a port as the user: that it is in, or why it isn't.
fn psql(server: &PrivateServer, port: u16, authority: &Authority, user: &str, settings: &str) -> String {
    let root = authority.path();
    let output = Command::new(server.binaries().program("psql"))
        .args(["-X", "-A", "-t", "-c", "SELECT 'in as ' || current_user"])
        .arg(format!(
            "host=localhost port={port} user={user} dbname=postgres sslrootcert={} {settings}",
            root.display()
        ))
        .env("PGPASSWORD", PASSWORD)
        .output()
        .unwrap();
    let said = if output.status.success() { output.stdout } else { output.stderr };
    String::from_utf8_lossy(&said).trim().to_owned()
}

/// Asserts that these words are said.
fn tells(said: &str, words: &str) {
    assert!(said.contains(words), "{words:?} isn't in: {said}");
}

#[test]
fn a_login_is_bound_to_the_certificate_that_the_gate_shows() {
    for algorithm in [&PKCS_ECDSA_P256_SHA256, &PKCS_ECDSA_P384_SHA384] {
        let key = KeyPair::generate_for(algorithm).unwrap();
        let authority = Authority::with_key("the tests' authority", key);
        let server = server(None);
        let lines = [asking(&authority, &server), showing(&authority, "gate")].concat();
        let gate = Gate::start(server.port(), &lines);
        let says = |user: &str, settings: &str| psql(&server, gate.port(), &authority, user, settings);
        for binding in ["require", "prefer", "disable"] {
            let settings = format!("sslmode=verify-full channel_binding={binding}");
            assert_eq!(says(USER, &settings), "in as ann", "{binding}\n{}", gate.log_tail());
            // A user that isn't known, or has no password, goes through the same.
            tells(&says("nobody", &settings), "password authentication failed for user \"nobody\"");
            let wrong = format!("{settings} password=wrong");
            tells(&says(USER, &wrong), "password authentication failed for user \"ann\"");
        }
        // Without TLS there is no channel.
        assert_eq!(says(USER, "sslmode=disable channel_binding=prefer"), "in as ann");
        tells(&says(USER, "sslmode=disable channel_binding=require"), "channel binding");
    }
}

#[test]
fn a_signature_without_a_hash_of_its_own_binds_nothing() {
    let key = KeyPair::generate_for(&PKCS_ED25519).unwrap();
    let authority = Authority::with_key("the tests' authority", key);
    let server = server(None);
    let gate =
        Gate::start(server.port(), &[asking(&authority, &server), showing(&authority, "gate")].concat());
    let says = |settings: &str| psql(&server, gate.port(), &authority, USER, settings);
    assert_eq!(says("sslmode=verify-full channel_binding=prefer"), "in as ann");
    tells(&says("sslmode=verify-full channel_binding=require"), "channel binding");
}

/// A login by hand over TLS, up to the gate's challenge.
struct Dialogue {
    stream: StreamOwned<ClientConnection, TcpStream>,
}

impl Dialogue {
    fn begin(authority: &Authority, gate: &Gate) -> (Self, Vec<String>) {
        use std::io::{Read as _, Write as _};
        let mut socket = TcpStream::connect(("127.0.0.1", gate.port())).unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        let mut request = BytesMut::new();
        write_ssl_request(&mut request);
        socket.write_all(&request).unwrap();
        let mut answer = [0];
        socket.read_exact(&mut answer).unwrap();
        assert_eq!(answer, *b"S");
        let mut dialogue = Self { stream: authority.connect(socket, None, None) };
        dialogue.stream.write_all(&startup(USER)).unwrap();
        let (_, body) = dialogue.hear();
        let Ok(Authentication::Sasl { mechanisms }) = parse_authentication(&body) else {
            panic!("SASL is asked for")
        };
        let offered = mechanisms.into_iter().map(str::to_owned).collect();
        (dialogue, offered)
    }

    fn hear(&mut self) -> (u8, Vec<u8>) {
        use std::io::Read as _;
        let mut header = [0; 5];
        self.stream.read_exact(&mut header).unwrap();
        let length = u32::from_be_bytes([header[1], header[2], header[3], header[4]]) as usize;
        let mut body = vec![0; length - 4];
        self.stream.read_exact(&mut body).unwrap();
        (header[0], body)
    }

    /// Says something, and hears the next message.
    fn say(&mut self, write: impl FnOnce(&mut BytesMut)) -> (u8, Vec<u8>) {
        use std::io::Write as _;
        let mut out = BytesMut::new();
        write(&mut out);
        self.stream.write_all(&out).unwrap();
        self.hear()
    }

    fn first(&mut self, mechanism: &str, text: &str) -> (u8, Vec<u8>) {
        let initial = SaslInitial { mechanism: mechanism.as_bytes(), data: Some(text.as_bytes()) };
        self.say(|out| write_sasl_initial(out, &initial))
    }
}

/// The SQLSTATE and the text of an error.
fn error((tag, body): (u8, Vec<u8>)) -> (String, String) {
    assert_eq!(tag, b'E', "{}", String::from_utf8_lossy(&body));
    let fields = parse_error(&body);
    (fields.code().to_owned(), String::from_utf8_lossy(fields.message()).into_owned())
}

#[test]
fn who_takes_the_offer_away_or_shows_another_certificate_is_found_out() {
    let authority = Authority::new("the tests' authority");
    let server = server(None);
    let gate =
        Gate::start(server.port(), &[asking(&authority, &server), showing(&authority, "gate")].concat());
    let (plus, plain) = ("SCRAM-SHA-256-PLUS", "SCRAM-SHA-256");
    let negotiation = ("08P01".to_owned(), "SCRAM channel binding negotiation error".to_owned());
    for (mechanism, first) in [
        // The client could have bound the login, and was told that the server can't.
        (plain, "y,,n=,r=abc"),
        (plain, "p=tls-server-end-point,,n=,r=abc"),
        (plus, "n,,n=,r=abc"),
        (plus, "y,,n=,r=abc"),
        // A binding that isn't spoken here.
        (plus, "p=tls-unique,,n=,r=abc"),
    ] {
        let (mut dialogue, offered) = Dialogue::begin(&authority, &gate);
        assert_eq!(offered, [plus, plain]);
        assert_eq!(error(dialogue.first(mechanism, first)), negotiation, "{mechanism} {first}");
    }
    // The client has seen the certificate of somebody in the middle.
    let (mut dialogue, _) = Dialogue::begin(&authority, &gate);
    let (_, body) = dialogue.first(plus, "p=tls-server-end-point,,n=,r=abc");
    let Ok(Authentication::SaslContinue(challenge)) = parse_authentication(&body) else {
        panic!("a challenge")
    };
    let nonce = parse_server_first(challenge).unwrap().nonce.to_owned();
    let seen = [b"p=tls-server-end-point,,".as_slice(), &[7; 32]].concat();
    let last = client_final(&client_final_without_proof(&seen, &nonce), &[0; 32]);
    let heard = error(dialogue.say(|out| write_sasl_response(out, last.as_bytes())));
    assert_eq!(heard, ("08P01".to_owned(), "SCRAM channel binding check failed".to_owned()));
    // A client that can't bind, and says so, comes as far as the challenge.
    let (mut dialogue, _) = Dialogue::begin(&authority, &gate);
    assert_eq!(dialogue.first(plain, "n,,n=,r=abc").0, b'R');
}

fn upstream(mode: &str, binding: &str) -> Vec<String> {
    vec![format!("upstream_tls_mode = \"{mode}\""), format!("upstream_channel_binding = \"{binding}\"")]
}

#[test]
fn the_gates_own_logins_are_bound_to_the_servers_certificate() {
    let authority = Authority::new("the tests' authority");
    let with = server(Some(&authority.issue("server", &["localhost"])));
    for (mode, binding, comes_in) in [
        ("require", "require", true),
        ("require", "prefer", true),
        ("require", "disable", true),
        ("disable", "prefer", true),
        ("disable", "require", false),
    ] {
        let lines = [asking(&authority, &with), upstream(mode, binding)].concat();
        let gate = Gate::start(with.port(), &lines);
        let said = psql(&with, gate.port(), &authority, USER, "sslmode=disable");
        if comes_in {
            assert_eq!(said, "in as ann", "{mode} {binding}\n{}", gate.log_tail());
        } else {
            tells(&said, "it does not bind logins to a TLS channel");
        }
    }
    // A server that asks for nothing, or for another proof, binds nothing.
    let options = PrivateServerOptions {
        access_rules: vec![format!("host all {USER} 127.0.0.1/32 trust")],
        ..PrivateServerOptions::default()
    };
    let trusting = PrivateServer::start(&options).unwrap();
    trusting.psql(&format!("CREATE ROLE {USER} LOGIN PASSWORD '{PASSWORD}'")).unwrap();
    let lines = [asking(&authority, &trusting), upstream("disable", "require")].concat();
    let gate = Gate::start(trusting.port(), &lines);
    let said = psql(&trusting, gate.port(), &authority, USER, "sslmode=disable");
    tells(&said, "it does not bind logins to a TLS channel");
}

#[test]
fn a_gate_in_the_middle_is_found_out_by_the_gate_that_it_relays() {
    // The outer gate knows the user itself, and reaches the server through an inner one, which relays and
    // speaks TLS on both sides with a certificate of its own: to the outer one, somebody in the middle.
    let authority = Authority::new("the tests' authority");
    let server = server(Some(&authority.issue("server", &["localhost"])));
    let relaying =
        [showing(&authority, "inner"), vec!["upstream_tls_mode = \"require\"".to_owned()]].concat();
    let inner = Gate::start(server.port(), &relaying);
    for (binding, comes_in) in [("prefer", false), ("require", false), ("disable", true)] {
        let lines = [asking(&authority, &server), upstream("require", binding)].concat();
        let outer = Gate::start(inner.port(), &lines);
        let said = psql(&server, outer.port(), &authority, USER, "sslmode=disable");
        assert_eq!(said == "in as ann", comes_in, "{binding}: {said}");
    }
    // One that authenticates its clients itself is an end of the channel, and no middle.
    let asking_too = [
        asking(&authority, &server),
        showing(&authority, "inner"),
        vec!["upstream_tls_mode = \"require\"".to_owned()],
    ];
    let inner = Gate::start(server.port(), &asking_too.concat());
    let lines = [asking(&authority, &server), upstream("require", "require")].concat();
    let outer = Gate::start(inner.port(), &lines);
    assert_eq!(psql(&server, outer.port(), &authority, USER, "sslmode=disable"), "in as ann");
}
