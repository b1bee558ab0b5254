//! A driver's own suite, run three times: against PostgreSQL itself, through the gate with transaction
//! pooling, and with session pooling; and what comes of it compared with the list of what is known to fail.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

use testbed::postgres::{PrivateServer, PrivateServerOptions};

use crate::support::{Gate, tests_directory};

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

/// How a test ended, by package and name; of a test with subtests only they.
#[derive(Default)]
pub(crate) struct Outcome {
    pub(crate) passed: BTreeSet<String>,
    pub(crate) failed: BTreeSet<String>,
    pub(crate) skipped: usize,
    pub(crate) output: String,
}

impl Outcome {
    /// The lines from a test's start to its end.
    fn said_of(&self, test: &str) -> String {
        let name = test.rsplit_once('.').map_or(test, |(_, name)| name);
        let mine = |line: &&str| line.starts_with("    ") && !line.contains("--- ");
        let lines = self.output.lines().skip_while(|line| !line.ends_with(&format!("   {name}")));
        lines.filter(mine).take(12).collect::<Vec<_>>().join("\n")
    }
}

/// A suite as it is run: at a port, of all tests only these (all, if there are none), and without those.
pub(crate) trait Runs {
    /// The driver, for messages.
    fn name(&self) -> &str;
    /// The name of its list.
    fn list(&self) -> &str;
    fn run(&self, server: &PrivateServer, port: u16, only: &BTreeSet<String>, without: &[&String])
    -> Outcome;
}

/// Runs a suite in all three ways, and fails with everything that isn't as the list says.
pub(crate) fn conforms(suite: &impl Runs) {
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
        // Tests of time-outs fail now and then on a busy machine: what fails must fail when it runs with
        // few others.
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

/// The written list of a suite: `mode test: reason`, where the mode is `transaction` or `both`. A test
/// whose reason begins with "not run" would hold up the suite for minutes; one with "now and then" may
/// pass.
pub(crate) fn expected(list: &str, mode: &str) -> BTreeMap<String, String> {
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
