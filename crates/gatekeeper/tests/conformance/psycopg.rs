//! psycopg's own suite: a command (`make conformance-psycopg`), since no package holds it. It is run from a
//! checkout of the repository, with the driver that the checks pin and the pytest beside it.

// A command that finds a failure ends as a test does.
#![allow(clippy::panic)]

#[path = "suite.rs"]
mod suite;
#[path = "../support/mod.rs"]
mod support;

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::{Command, ExitCode};

use testbed::postgres::PrivateServer;

use suite::{Outcome, Runs, conforms};
use support::target_directory;

/// Where the checkout is.
const CHECKOUT: &str = "GATEKEEPER_PSYCOPG_SUITE";
/// Tests that are about time or other processes, and fail on a busy machine with any server.
const MARKS: &str = "not slow and not timing and not flakey and not subprocess and not dns";
/// What says nothing of a gate: another database, texts that no server sees, types by the ten thousand, and
/// the pool, which is a package of its own.
const LEFT_OUT: [&str; 8] = [
    "tests/crdb",
    "tests/pool",
    "tests/scripts",
    "tests/types",
    "tests/test_conninfo.py",
    "tests/test_rows.py",
    "tests/test_sql.py",
    "tests/test_typing.py",
];
/// How a line of a test ends, before the percentage.
const ENDS: [&str; 6] = [" PASSED", " FAILED", " ERROR", " SKIPPED", " XFAIL", " XPASS"];

fn main() -> ExitCode {
    let Some(checkout) = std::env::var_os(CHECKOUT).map(PathBuf::from) else {
        eprintln!("psycopg's suite: set {CHECKOUT} to the directory where psycopg is checked out");
        return ExitCode::from(2);
    };
    if !checkout.join("tests/conftest.py").is_file() {
        eprintln!("psycopg's suite: there is none in {} (no tests/conftest.py)", checkout.display());
        return ExitCode::from(2);
    }
    conforms(&Psycopg { checkout });
    ExitCode::SUCCESS
}

struct Psycopg {
    checkout: PathBuf,
}

impl Runs for Psycopg {
    fn name(&self) -> &str {
        "psycopg"
    }

    fn list(&self) -> &str {
        "psycopg"
    }

    fn run(
        &self,
        server: &PrivateServer,
        port: u16,
        only: &BTreeSet<String>,
        without: &[&String],
    ) -> Outcome {
        let cache = tempfile::tempdir().expect("a temporary directory");
        let dsn = format!(
            "host=127.0.0.1 port={port} user={} password={} dbname=psycopg_test",
            server.user(),
            server.password()
        );
        let mut pytest = Command::new(target_directory().join("python/bin/python"));
        pytest.args(["-B", "-m", "pytest", "-v", "--tb=line", "-m", MARKS, "-o"]);
        pytest.arg(format!("cache_dir={}", cache.path().display()));
        pytest.args(LEFT_OUT.map(|path| format!("--ignore={path}")));
        pytest.args(without.iter().map(|test| format!("--deselect={test}"))).args(only);
        pytest.current_dir(&self.checkout).env("PSYCOPG_TEST_DSN", dsn);
        let run = pytest.output().expect("python is there (`make setup`)");
        let text = String::from_utf8_lossy(&run.stdout).into_owned();
        // 0: all have passed; 1: some have failed. Otherwise the suite hasn't been run to its end.
        assert!(
            matches!(run.status.code(), Some(0 | 1)),
            "{}\n{text}\n{}",
            run.status,
            String::from_utf8_lossy(&run.stderr)
        );
        read(text)
    }
}

/// Reads what pytest prints of each test: `file::test STATUS [ 12%]`.
fn read(text: String) -> Outcome {
    let mut outcome = Outcome::default();
    for line in text.lines().filter(|line| line.starts_with("tests/")) {
        let end = ENDS.iter().filter_map(|end| Some((line.rfind(end)?, *end))).max();
        let Some((at, end)) = end else { continue };
        let test = line[..at].trim_end().to_owned();
        match end {
            // A test that errs when it is over has passed before.
            " FAILED" | " ERROR" => {
                outcome.passed.remove(&test);
                outcome.failed.insert(test);
            }
            " PASSED" | " XPASS" => _ = outcome.passed.insert(test),
            _ => outcome.skipped += 1,
        }
    }
    outcome.output = text;
    outcome
}
