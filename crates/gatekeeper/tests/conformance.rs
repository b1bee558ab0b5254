//! The drivers' own test suites through the gatekeeper: pgx's and lib/pq's, as their modules carry them.
//!
//! Each suite runs three times: against PostgreSQL itself, through the gate with transaction pooling, and
//! with session pooling. What fails against the server itself says nothing of the gate. What fails through
//! it only must be in the list beside this file, with its reason, and what is in the list must fail: else
//! the list is wrong. It takes five minutes, mostly waiting: the suites have time-outs to test.

// Helpers of tests panic as tests do; clippy only knows functions marked as tests.
#![allow(clippy::panic)]

#[path = "conformance/suite.rs"]
mod suite;
mod support;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, PoisonError};

use suite::{Outcome, Runs, conforms, expected};
use support::tests_directory;
use testbed::postgres::PrivateServer;

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

/// Suites that run at once disturb each other's waits.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
/// A package that breaks off is run so many times at most.
const TIMES: u32 = 4;

impl Suite {
    fn source(&self) -> PathBuf {
        let listed = support::go_command()
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
            let mut command = support::go_command();
            command.args(["test", "-v", "-count=1", "-vet=off", "-timeout=400s", "-run", only]);
            if !without.is_empty() {
                command.args(["-skip", without]);
            }
            command.arg(package).current_dir(self.source()).envs((self.environment)(server, port));
            let text = (1..).find_map(|time| match to_its_end(&mut command) {
                Ok(text) => Some(text),
                // lib/pq's own waits of 100 ms panic when the machine is busy, and take the rest of the
                // package along.
                Err(text) if time < TIMES => {
                    println!("{package} at {port} broke off, and is run again\n{text}");
                    None
                }
                Err(text) => panic!("{package} at {port}\n{text}"),
            });
            let text = text.expect("it ends with a text or a panic");
            read(&mut outcome, package.trim_start_matches("./"), &text);
        }
        outcome
    }
}

/// What `go test` printed, or why it has no results of all tests: it didn't build, or ended in mid-test.
fn to_its_end(command: &mut Command) -> Result<String, String> {
    let run = command.output().expect("go is installed (`make setup`)");
    let text = String::from_utf8_lossy(&run.stdout).into_owned();
    let ended = text.lines().any(|line| line.starts_with("ok ") || line == "FAIL");
    if ended && !text.contains("\npanic: ") {
        return Ok(text);
    }
    Err(text + &String::from_utf8_lossy(&run.stderr))
}

/// Adds what `go test -v` printed of a package.
fn read(outcome: &mut Outcome, package: &str, text: &str) {
    let mut parents = BTreeSet::new();
    let mut ended = Vec::new();
    for line in text.lines() {
        let Some((how, rest)) = line.trim_start().strip_prefix("--- ").and_then(|line| line.split_once(": "))
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
            "PASS" => _ = outcome.passed.insert(full),
            "FAIL" => _ = outcome.failed.insert(full),
            _ => outcome.skipped += 1,
        }
    }
    outcome.output.push_str(text);
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

#[test]
fn pgxs_own_suite_passes_but_for_what_is_listed() {
    let _alone = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    conforms(&PGX);
}

#[test]
fn lib_pqs_own_suite_passes_but_for_what_is_listed() {
    let _alone = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    conforms(&LIB_PQ);
}

/// Every entry of a list has a reason, and is there once.
#[test]
fn the_lists_are_well_formed() {
    for list in [PGX.checks, LIB_PQ.checks, "psycopg"] {
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
