//! The drivers' own test suites through the gatekeeper: pgx's and lib/pq's, as their modules carry them.
//!
//! Each suite runs three times: against PostgreSQL itself, through the gate with transaction pooling, and with session
//! pooling. What fails against the server itself says nothing of the gate. What fails through it only must be in the
//! list beside this file, with its reason, and what is in the list must fail: else the list is wrong. It takes five minutes,
//! mostly waiting: the suites have time-outs to test.

// Helpers of tests panic as tests do; clippy only knows functions marked as tests.
#![allow(clippy::panic)]

#[path = "conformance/psycopg.rs"]
mod psycopg;
mod support;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

use bench::postgres::{PrivateServer, PrivateServerOptions};
use support::{Gate, tests_directory};

/// Logins that the suites try, beside the superuser's: lib/pq's users as its own test server lets them in.
const ACCESS_RULES: [&str; 8] = [
    "host all pqgomd5 127.0.0.1/32 md5",
    "host all pqgopassword 127.0.0.1/32 password",
    "host all pqgoscram 127.0.0.1/32 scram-sha-256",
    "hostnossl all pqgossl 127.0.0.1/32 reject",
    "hostnossl all pqgosslcert 127.0.0.1/32 reject",
    "host all pqgo 127.0.0.1/32 trust",
    "host all pqgounknown 127.0.0.1/32 trust",
    "host all pgx_md5 127.0.0.1/32 md5",
];

/// What the suites' own instructions create.
const SETUP: &str = r#"
CREATE ROLE pqgo SUPERUSER LOGIN;
CREATE ROLE pqgossl LOGIN;
CREATE ROLE pqgosslcert LOGIN;
CREATE ROLE pqgopassword LOGIN PASSWORD 'wordpass';
CREATE ROLE pqgoscram LOGIN PASSWORD 'wordpass';
SET password_encryption = md5;
CREATE ROLE pqgomd5 LOGIN PASSWORD 'wordpass';
CREATE ROLE pgx_md5 SUPERUSER LOGIN PASSWORD 'secret';
RESET password_encryption;
CREATE ROLE pgx_scram SUPERUSER LOGIN PASSWORD 'secret';
CREATE ROLE " tricky, ' } "" \\ test user " SUPERUSER PASSWORD 'secret';
CREATE DATABASE pqgo OWNER pqgo;
CREATE DATABASE pgx_test;
CREATE DATABASE psycopg_test;
\c pqgo
CREATE EXTENSION hstore;
\c pgx_test
CREATE EXTENSION hstore;
CREATE EXTENSION ltree;
CREATE DOMAIN uint64 AS numeric(20,0);
"#;

/// A driver's suite.
struct Suite {
    /// The directory of the checks' own module, which says the version.
    checks: &'static str,
    module: &'static str,
    packages: &'static [&'static str],
    /// The environment that its tests read.
    environment: fn(&PrivateServer, u16) -> Vec<(&'static str, String)>,
}

const PGX: Suite = Suite {
    checks: "pgx",
    module: "github.com/jackc/pgx/v5",
    packages: &[".", "./pgconn", "./pgtype", "./pgxpool", "./stdlib"],
    environment: |server, port| {
        let login = |user: &str, password: &str| {
            format!(
                "host=127.0.0.1 port={port} user={user} password={password} dbname=pgx_test sslmode=disable"
            )
        };
        let own = login(server.user(), server.password());
        vec![
            ("PGX_TEST_DATABASE", own.clone()),
            ("PGX_TEST_TCP_CONN_STRING", own.clone()),
            // The tests that are made for poolers; they must pass against the server itself, too.
            ("PGX_TEST_PGBOUNCER_CONN_STRING", own),
            ("PGX_TEST_MD5_PASSWORD_CONN_STRING", login("pgx_md5", "secret")),
            ("PGX_TEST_SCRAM_PASSWORD_CONN_STRING", login("pgx_scram", "secret")),
        ]
    },
};

const LIB_PQ: Suite = Suite {
    checks: "pq",
    module: "github.com/lib/pq",
    packages: &[".", "./hstore"],
    environment: |_, port| {
        vec![
            ("PGHOST", "127.0.0.1".to_owned()),
            ("PGPORT", port.to_string()),
            ("PGUSER", "pqgo".to_owned()),
            ("PGDATABASE", "pqgo".to_owned()),
            ("PGSSLMODE", "disable".to_owned()),
        ]
    },
};

/// How a test ended, by package and name; of a test with subtests only they.
#[derive(Default)]
struct Outcome {
    passed: BTreeSet<String>,
    failed: BTreeSet<String>,
    skipped: usize,
    output: String,
}

impl Suite {
    fn source(&self) -> PathBuf {
        let listed = Command::new("go")
            .args(["list", "-m", "-f", "{{.Dir}}", self.module])
            .current_dir(tests_directory().join("drivers").join(self.checks))
            .output()
            .expect("go is installed (`make setup`)");
        PathBuf::from(String::from_utf8_lossy(&listed.stdout).trim())
    }

    /// Runs the suite at a port. `only` and `without` are regular expressions of tests' names.
    fn run_matching(&self, server: &PrivateServer, port: u16, only: &str, without: &str) -> Outcome {
        let mut outcome = Outcome::default();
        for package in self.packages {
            let mut command = Command::new("go");
            command.args(["test", "-v", "-count=1", "-vet=off", "-timeout=400s", "-run", only]);
            if !without.is_empty() {
                command.args(["-skip", without]);
            }
            command.arg(package).current_dir(self.source()).envs((self.environment)(server, port));
            let run = command.output().expect("go is installed (`make setup`)");
            let text = String::from_utf8_lossy(&run.stdout).into_owned();
            outcome.read(package.trim_start_matches("./"), &text);
            // A suite that doesn't build, or ends in mid-test, has no results of the rest.
            let ended = text.lines().any(|line| line.starts_with("ok ") || line == "FAIL");
            let panicked = text.contains("\npanic: ");
            assert!(
                ended && !panicked,
                "{package} at {port}\n{text}\n{}",
                String::from_utf8_lossy(&run.stderr)
            );
        }
        outcome
    }
}

impl Outcome {
    fn read(&mut self, package: &str, text: &str) {
        let mut parents = BTreeSet::new();
        let mut ended = Vec::new();
        for line in text.lines() {
            let Some((how, rest)) =
                line.trim_start().strip_prefix("--- ").and_then(|line| line.split_once(": "))
            else {
                continue;
            };
            let name = rest.split_once(" (").map_or(rest, |(name, _)| name);
            parents.extend(name.rsplit_once('/').map(|(parent, _)| parent.to_owned()));
            ended.push((how, name));
        }
        for (how, name) in ended {
            let full = if package == "." { name.to_owned() } else { format!("{package}.{name}") };
            match how {
                _ if parents.contains(name) => {}
                "PASS" => _ = self.passed.insert(full),
                "FAIL" => _ = self.failed.insert(full),
                _ => self.skipped += 1,
            }
        }
        self.output.push_str(text);
    }

    /// The lines from a test's start to its end.
    fn said_of(&self, test: &str) -> String {
        let name = test.rsplit_once('.').map_or(test, |(_, name)| name);
        let mine = |line: &&str| line.starts_with("    ") && !line.contains("--- ");
        let lines = self.output.lines().skip_while(|line| !line.ends_with(&format!("   {name}")));
        lines.filter(mine).take(12).collect::<Vec<_>>().join("\n")
    }
}

/// The written list of a suite: `mode test: reason`, where the mode is `transaction` or `both`. A test whose reason
/// begins with "not run" would hold up the suite for minutes; one with "now and then" may pass.
fn expected(list: &str, mode: &str) -> BTreeMap<String, String> {
    let path = tests_directory().join("conformance").join(format!("{list}.txt"));
    let text = std::fs::read_to_string(&path).expect("the list is there");
    let entries = text.lines().filter(|line| !line.starts_with('#') && !line.is_empty()).map(|line| {
        let (modes, rest) = line.split_once(' ').expect("a mode");
        let (test, reason) = rest.split_once(": ").expect("a reason");
        (modes, test.to_owned(), reason.to_owned())
    });
    entries.filter(|(modes, ..)| *modes == mode || *modes == "both").map(|(_, t, r)| (t, r)).collect()
}

/// Whether an entry of a list is about this test, or about the test that this is a part of.
fn covers(entry: &str, test: &str) -> bool {
    test.strip_prefix(entry).is_some_and(|rest| rest.is_empty() || rest.starts_with(['/', '[']))
}

/// A regular expression of exactly these top-level tests.
fn exactly<'a>(tests: impl Iterator<Item = &'a String>) -> String {
    let name = |test: &'a String| {
        let test = test.rsplit_once('.').map_or(test.as_str(), |(_, name)| name);
        test.split('/').next().unwrap_or(test)
    };
    let names: BTreeSet<_> = tests.map(name).collect();
    if names.is_empty() {
        return String::new();
    }
    format!("^({})$", names.into_iter().collect::<Vec<_>>().join("|"))
}

/// A suite as it is run: at a port, of all tests only these (all, if there are none), and without those.
trait Runs {
    /// The driver, for messages.
    fn name(&self) -> &str;
    /// The name of its list.
    fn list(&self) -> &str;
    fn run(&self, server: &PrivateServer, port: u16, only: &BTreeSet<String>, without: &[&String])
    -> Outcome;
}

impl Runs for Suite {
    fn name(&self) -> &str {
        self.module
    }

    fn list(&self) -> &str {
        self.checks
    }

    fn run(
        &self,
        server: &PrivateServer,
        port: u16,
        only: &BTreeSet<String>,
        without: &[&String],
    ) -> Outcome {
        let only = if only.is_empty() { ".".to_owned() } else { exactly(only.iter()) };
        self.run_matching(server, port, &only, &exactly(without.iter().copied()))
    }
}

fn conforms(suite: &impl Runs) {
    let options = PrivateServerOptions {
        access_rules: ACCESS_RULES.map(str::to_owned).to_vec(),
        max_connections: 200,
        settings: vec![("max_prepared_transactions".to_owned(), "8".to_owned())],
        ..PrivateServerOptions::default()
    };
    let server = PrivateServer::start(&options).expect("PostgreSQL starts");
    server.psql(SETUP).expect("the suites' databases are made");
    let all = BTreeSet::new();
    let direct = suite.run(&server, server.port(), &all, &[]);
    println!("{}: directly: {}", suite.name(), summary(&direct));
    let mut problems = String::new();
    for (mode, lines) in [
        ("transaction", ["connections = 40", "pinned_max = 39"].as_slice()),
        ("session", &["pooling = \"session\"", "connections = 150"]),
    ] {
        let settings: Vec<String> = lines.iter().map(|line| (*line).to_owned()).collect();
        let gate = Gate::start(server.port(), &settings);
        let expected = expected(suite.list(), mode);
        let unrun: Vec<_> =
            expected.iter().filter(|(_, why)| why.starts_with("not run")).map(|(test, _)| test).collect();
        let outcome = suite.run(&server, gate.port(), &all, &unrun);
        println!("{}: {mode} pooling: {}", suite.name(), summary(&outcome));
        let surprising: BTreeSet<_> = outcome
            .failed
            .difference(&direct.failed)
            .filter(|test| !expected.keys().any(|entry| covers(entry, test)))
            .cloned()
            .collect();
        // Tests of time-outs fail now and then on a busy machine: what fails must fail when it runs with few others.
        let again = if surprising.is_empty() {
            Outcome::default()
        } else {
            suite.run(&server, gate.port(), &surprising, &[])
        };
        for test in surprising.intersection(&again.failed) {
            writeln!(problems, "{mode}: {test} fails\n{}", again.said_of(test)).expect("a string takes it");
        }
        for test in surprising.difference(&again.failed) {
            println!("{mode}: {test} failed once and passed by itself\n{}", outcome.said_of(test));
        }
        for (entry, reason) in &expected {
            let fails = outcome.failed.iter().any(|test| covers(entry, test));
            if !fails && !["not run", "now and then"].iter().any(|mark| reason.starts_with(mark)) {
                writeln!(problems, "{mode}: {entry} passes, though it is in the list")
                    .expect("a string takes it");
            }
        }
        gate.assert_alive();
    }
    assert!(problems.is_empty(), "\n{problems}");
}

fn summary(outcome: &Outcome) -> String {
    let failed = outcome.failed.iter().map(String::as_str).collect::<Vec<_>>().join(" ");
    let (passed, failures) = (outcome.passed.len(), outcome.failed.len());
    format!("{passed} passed, {failures} failed, {} skipped; failed: {failed}", outcome.skipped)
}

#[test]
fn pgxs_own_suite_passes_but_for_what_is_listed() {
    conforms(&PGX);
}

#[test]
fn lib_pqs_own_suite_passes_but_for_what_is_listed() {
    conforms(&LIB_PQ);
}

#[test]
#[ignore = "wants a checkout of psycopg's repository: see CONTRIBUTING.md"]
fn psycopgs_own_suite_passes_but_for_what_is_listed() {
    conforms(&psycopg::Psycopg::at_hand());
}

/// Every entry of a list has a reason, and is there once.
#[test]
fn the_lists_are_well_formed() {
    for list in [PGX.checks, LIB_PQ.checks, psycopg::LIST] {
        for (test, reason) in expected(list, "transaction") {
            assert!(["Test", "::test_"].iter().any(|mark| test.contains(mark)), "{test}");
            assert!(reason.len() > 20, "{test}: {reason}");
        }
        // A session of its own is as good as the server itself.
        assert_eq!(expected(list, "session"), BTreeMap::new(), "{list}");
    }
    for suite in [&PGX, &LIB_PQ] {
        assert!(Path::new(&suite.source()).is_dir(), "{} is not there (`make setup`)", suite.module);
    }
}
