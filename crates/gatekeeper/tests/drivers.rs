//! Drivers of other languages, unmodified, through the gatekeeper in transaction mode.
//!
//! Each driver's checks are a program of its own under `tests/drivers`, which prints one line per check and stops
//! at the first that fails. A driver that is not installed fails its test: `make setup` installs it.

mod support;

use std::process::Command;

use support::{Stack, target_directory, tests_directory};

fn python(checks: &str) {
    let mut program = Command::new(target_directory().join("python/bin/python"));
    // Bytecode would be written beside the sources.
    program.arg("-B").arg(tests_directory().join("drivers").join(checks));
    println!("{}", Stack::start().check(program));
}

#[test]
fn psycopg_works_through_the_gate() {
    python("psycopg");
}

#[test]
fn asyncpg_works_through_the_gate() {
    python("asyncpg");
}

#[test]
fn pgx_works_through_the_gate() {
    let executable = target_directory().join("tmp/pgx-checks");
    let built = Command::new("go")
        .args(["build", "-mod=readonly", "-o"])
        .arg(&executable)
        .arg(".")
        .current_dir(tests_directory().join("drivers/pgx"))
        .output()
        .expect("go is installed (`make setup`)");
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    println!("{}", Stack::start().check(Command::new(executable)));
}
