//! TLS with the server, as libpq's `sslmode` has it, and SCRAM through a gate that speaks TLS on both sides.

#![expect(clippy::unwrap_used, reason = "a helper of tests fails like a test")]

mod support;

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use support::certificates::{Authority, Certificate};
use support::{Gate, Stack};
use testbed::postgres::{PrivateServer, PrivateServerOptions};

/// A server that speaks TLS (or doesn't), with more lines for pg_hba.conf.
fn server(authority: &Authority, certificate: Option<&Certificate>, rules: &[&str]) -> PrivateServer {
    PrivateServer::start(&options(authority, certificate, rules)).expect("PostgreSQL starts")
}

fn options(authority: &Authority, certificate: Option<&Certificate>, rules: &[&str]) -> PrivateServerOptions {
    let mut options = PrivateServerOptions {
        access_rules: rules.iter().map(|rule| (*rule).to_owned()).collect(),
        ..PrivateServerOptions::default()
    };
    if let Some(Certificate { certificate, key }) = certificate {
        options.files = vec![
            ("server.crt".to_owned(), certificate.clone()),
            ("server.key".to_owned(), key.clone()),
            ("root.crt".to_owned(), authority.certificate.clone()),
        ];
        options.settings =
            vec![("ssl".to_owned(), "on".to_owned()), ("ssl_ca_file".to_owned(), "root.crt".to_owned())];
    }
    options
}

/// A gate in front of a server, reached as `host`.
struct Front {
    gate: Gate,
    port: u16,
}

impl Front {
    fn new(server: &PrivateServer, host: &str, lines: &[String]) -> Self {
        let port = testbed::postgres::free_port().unwrap();
        let gate = Gate::start_between(
            &format!("127.0.0.1:{port}"),
            &format!("{host}:{}", server.port()),
            &[lines, &["connect_timeout = \"60s\"".to_owned()]].concat(),
        );
        Self { gate, port }
    }

    /// Whether the gate's connection to the server has TLS, as the server sees it; or psql's error.
    fn is_encrypted(&self, server: &PrivateServer, settings: &str) -> Result<bool, String> {
        let said = self.psql(
            server,
            &format!("user={} {settings}", server.user()),
            "SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()",
        )?;
        Ok(said == "t")
    }

    fn psql(&self, server: &PrivateServer, settings: &str, sql: &str) -> Result<String, String> {
        let output = Command::new(server.binaries().program("psql"))
            .args(["-X", "-A", "-t", "-c", sql])
            .arg(format!("host=localhost port={} dbname=postgres {settings}", self.port))
            .env("PGPASSWORD", server.password())
            .output()
            .unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
        if output.status.success() { Ok(text(&output.stdout)) } else { Err(text(&output.stderr)) }
    }
}

fn mode(mode: &str) -> String {
    format!("upstream_tls_mode = \"{mode}\"")
}

fn ca(authority: &Authority) -> String {
    format!("upstream_tls_ca = \"{}\"", authority.path().display())
}

#[test]
fn each_mode_asks_of_the_server_what_libpq_does() {
    let (authority, stranger) = (Authority::new("the tests' authority"), Authority::new("a stranger"));
    let named = authority.issue("the server", &["localhost"]);
    let with = server(&authority, Some(&named), &[]);
    let without = server(&authority, None, &[]);
    // What each server is like: with TLS, without.
    let cases: &[(&[String], Option<bool>, Option<bool>)] = &[
        (&[mode("disable")], Some(false), Some(false)),
        (&[mode("allow")], Some(false), Some(false)),
        (&[mode("prefer")], Some(true), Some(false)),
        (&[mode("require")], Some(true), None),
        (&[mode("require"), ca(&authority)], Some(true), None),
        (&[mode("require"), ca(&stranger)], None, None),
        (&[mode("verify-ca"), ca(&authority)], Some(true), None),
        (&[mode("verify-ca"), ca(&stranger)], None, None),
        (&[mode("verify-full"), ca(&authority)], Some(true), None),
        (&[mode("verify-full"), ca(&stranger)], None, None),
    ];
    for (lines, encrypted, in_the_clear) in cases {
        for (server, expected) in [(&with, encrypted), (&without, in_the_clear)] {
            let front = Front::new(server, "localhost", lines);
            let outcome = front.is_encrypted(server, "sslmode=disable");
            match expected {
                Some(expected) => assert_eq!(outcome.as_ref(), Ok(expected), "{lines:?}"),
                None => {
                    let error = outcome.expect_err("this server will not do");
                    assert!(error.contains("cannot be reached"), "{lines:?}: {error}");
                    let log = front.gate.log_tail();
                    assert!(log.contains("no TLS with localhost"), "{lines:?}: {log}");
                }
            }
        }
    }
}

#[test]
fn the_name_of_the_host_is_verified_in_full_mode_only() {
    let authority = Authority::new("the tests' authority");
    for (common_name, hosts, full) in [
        ("the server", &["localhost", "127.0.0.1"][..], [true, true]),
        ("localhost", &["db.example.com"], [false, false]),
        ("the server", &["127.0.0.1"], [false, true]),
        // Without alternative names the common name counts, as for psql.
        ("localhost", &[], [true, false]),
        ("other", &[], [false, false]),
    ] {
        let certificate = authority.issue(common_name, hosts);
        let server = server(&authority, Some(&certificate), &[]);
        for (host, expected) in ["localhost", "127.0.0.1"].into_iter().zip(full) {
            let front = Front::new(&server, host, &[mode("verify-full"), ca(&authority)]);
            let outcome = front.is_encrypted(&server, "sslmode=disable");
            assert_eq!(outcome.is_ok(), expected, "{common_name} {hosts:?} {host}: {outcome:?}");
            let direct = Command::new(server.binaries().program("psql"))
                .args(["-X", "-c", "SELECT 1"])
                .arg(format!(
                    "host={host} port={} user=postgres dbname=postgres sslmode=verify-full sslrootcert={}",
                    server.port(),
                    authority.path().display()
                ))
                .env("PGPASSWORD", server.password())
                .output()
                .unwrap();
            assert_eq!(
                direct.status.success(),
                expected,
                "psql says otherwise of {common_name} {hosts:?} {host}"
            );
        }
        let front = Front::new(&server, "localhost", &[mode("verify-ca"), ca(&authority)]);
        assert_eq!(front.is_encrypted(&server, "sslmode=disable"), Ok(true));
    }
}

#[test]
fn a_self_signed_certificate_is_trusted_where_it_is_given_as_the_authority() {
    let authority = Authority::new("localhost");
    let itself = authority.itself();
    let server = server(&authority, Some(&itself), &[]);
    for name in ["verify-ca", "verify-full"] {
        let front = Front::new(&server, "localhost", &[mode(name), ca(&authority)]);
        assert_eq!(front.is_encrypted(&server, "sslmode=disable"), Ok(true), "{name}");
    }
}

#[test]
fn allow_and_prefer_go_the_other_way_where_the_server_wants_it() {
    let authority = Authority::new("the tests' authority");
    let certificate = authority.issue("the server", &["localhost"]);
    for (rule, encrypted) in
        [("hostnossl all all 127.0.0.1/32 reject", true), ("hostssl all all 127.0.0.1/32 reject", false)]
    {
        // psql of the server's own start comes by TLS or without, whichever goes.
        let server = server(&authority, Some(&certificate), &[rule]);
        for name in ["allow", "prefer"] {
            let front = Front::new(&server, "localhost", &[mode(name)]);
            assert_eq!(front.is_encrypted(&server, "sslmode=disable"), Ok(encrypted), "{rule} {name}");
        }
        let never = Front::new(&server, "localhost", &[mode("disable")]);
        assert_eq!(never.is_encrypted(&server, "sslmode=disable").is_ok(), !encrypted);
    }
}

#[test]
fn the_server_may_ask_the_gate_for_a_certificate() {
    let authority = Authority::new("the tests' authority");
    let certificate = authority.issue("the server", &["localhost"]);
    let rule = "hostssl all all 127.0.0.1/32 scram-sha-256 clientcert=verify-ca";
    let own = "hostssl all postgres 127.0.0.1/32 scram-sha-256";
    let server = server(&authority, Some(&certificate), &[own, rule]);
    let password = server.password();
    server.psql(&format!("CREATE ROLE shopper LOGIN PASSWORD '{password}'")).unwrap();
    let (gates, key) = authority.files("gate", &authority.issue("gate", &[]));
    let identity = [
        format!("upstream_tls_cert = \"{}\"", gates.display()),
        format!("upstream_tls_key = \"{}\"", key.display()),
    ];
    for (lines, works) in
        [(vec![mode("require")], false), ([&[mode("require")], &identity[..]].concat(), true)]
    {
        let front = Front::new(&server, "localhost", &lines);
        let outcome = front.psql(&server, "user=shopper sslmode=disable", "SELECT 1");
        assert_eq!(outcome.is_ok(), works, "{outcome:?}");
    }
}

/// TLS on both sides, with the gate's certificate and the server's.
fn both(authority: &Authority, gates: &Certificate, servers: &Certificate) -> (PrivateServer, Front) {
    let server = server(authority, Some(servers), &[]);
    let front = Front::new(&server, "localhost", &both_lines(authority, gates));
    (server, front)
}

/// A gate's configuration for it.
fn both_lines(authority: &Authority, gates: &Certificate) -> [String; 5] {
    let (certificate, key) = authority.files("gate", gates);
    [
        mode("verify-full"),
        ca(authority),
        format!("tls_cert = \"{}\"", certificate.display()),
        format!("tls_key = \"{}\"", key.display()),
        "tls_mode = \"require\"".to_owned(),
    ]
}

#[test]
fn scram_is_relayed_between_two_tls_connections_where_no_channel_is_bound() {
    let authority = Authority::new("the tests' authority");
    let (gates, servers) =
        (authority.issue("gate", &["localhost"]), authority.issue("server", &["localhost"]));
    let (server, front) = both(&authority, &gates, &servers);
    let full = format!("sslmode=verify-full sslrootcert={}", authority.path().display());
    assert_eq!(front.is_encrypted(&server, &format!("{full} channel_binding=disable")), Ok(true));
    let error = front.is_encrypted(&server, &full).unwrap_err();
    assert!(error.contains("bound to a TLS channel") && error.contains("channel_binding=disable"), "{error}");
    let error = front.is_encrypted(&server, &format!("{full} channel_binding=require")).unwrap_err();
    assert!(error.contains("channel binding"), "{error}");
}

#[test]
fn a_gate_with_the_servers_certificate_relays_channel_binding() {
    let authority = Authority::new("the tests' authority");
    let shared = authority.issue("the server", &["localhost"]);
    let (server, front) = both(&authority, &shared, &shared);
    let full = format!("sslmode=verify-full sslrootcert={}", authority.path().display());
    for binding in ["require", "prefer", "disable"] {
        let outcome = front.is_encrypted(&server, &format!("{full} channel_binding={binding}"));
        assert_eq!(outcome, Ok(true), "{binding}");
    }
    let wrong = Command::new(server.binaries().program("psql"))
        .args(["-X", "-c", "SELECT 1"])
        .arg(format!("host=localhost port={} user=postgres dbname=postgres {full}", front.port))
        .env("PGPASSWORD", "wrong")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&wrong.stderr).into_owned();
    assert!(!wrong.status.success() && said.contains("password authentication failed"), "{said}");
}

#[test]
fn a_statement_is_canceled_through_two_tls_connections() {
    let authority = Authority::new("the tests' authority");
    let shared = authority.issue("the server", &["localhost"]);
    let (server, front) = both(&authority, &shared, &shared);
    let psql = Command::new(server.binaries().program("psql"))
        .args(["-X", "-c", "SELECT pg_sleep(600)"])
        .arg(format!(
            "host=localhost port={} user=postgres dbname=postgres sslmode=verify-full sslrootcert={}",
            front.port,
            authority.path().display()
        ))
        .env("PGPASSWORD", server.password())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let runs =
        "SELECT count(*) FROM pg_stat_activity WHERE query LIKE 'SELECT pg_sleep%' AND state = 'active'";
    let deadline = Instant::now() + Duration::from_secs(60);
    while server.psql(runs).unwrap() != "1" {
        assert!(Instant::now() < deadline, "it never ran\n{}", front.gate.log_tail());
    }
    // As a person would, with Ctrl-C.
    assert!(Command::new("kill").args(["-INT", &psql.id().to_string()]).status().unwrap().success());
    let output = psql.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains("canceling statement due to user request"), "{said}");
}

/// The checks of a driver, through TLS on both sides.
fn python(checks: &str, binding: &str) {
    let authority = Authority::new("the tests' authority");
    let shared = authority.issue("the server", &["localhost", "127.0.0.1"]);
    let options = options(&authority, Some(&shared), &[]);
    let mut program = support::python(checks);
    program.env("PGSSLMODE", "verify-full").env("PGSSLROOTCERT", authority.path());
    program.env("PGCHANNELBINDING", binding);
    println!("{}", Stack::start_both_with(options, &both_lines(&authority, &shared)).check(program));
}

#[test]
fn psycopg_works_with_tls_on_both_sides_and_its_channel_bound() {
    python("psycopg", "require");
}

#[test]
fn asyncpg_works_with_tls_on_both_sides() {
    python("asyncpg", "prefer");
}
