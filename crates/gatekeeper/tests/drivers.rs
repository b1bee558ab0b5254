//! Drivers of other languages, unmodified, through the gatekeeper in transaction mode: in front of the
//! machine's own PostgreSQL (15 on Debian 12) in the clear with logins by relay, then in front of
//! PostgreSQL 18 with TLS, verified in full, and logins by SCRAM that the gatekeeper asks for itself, bound
//! to the channel by drivers that can.
//!
//! Each driver's checks are a program of its own under `tests/drivers`, which prints one line per check and
//! stops at the first that fails. A driver that is not installed fails its test: `make setup` installs it.

// Helpers of tests panic as tests do; clippy only knows functions marked as tests.
#![allow(clippy::panic)]

mod support;

use std::path::PathBuf;
use std::process::Command;

use support::{Stack, python, tests_directory};

/// Runs a driver's checks on each server, in each way of getting there.
fn check(program: impl Fn() -> Command) {
    for stack in [Stack::start, Stack::start_encrypted_with_postgresql_18] {
        let stack = stack();
        println!("PostgreSQL {}", stack.server.psql("SHOW server_version").expect("the server tells"));
        println!("{}", stack.check(program()));
    }
}

fn sources(driver: &str) -> PathBuf {
    tests_directory().join("drivers").join(driver)
}

fn go(checks: &str) {
    let executable = support::go(&sources(checks), &format!("{checks}-checks"));
    check(|| Command::new(&executable));
}

#[test]
fn psycopg_works_through_the_gate() {
    check(|| python("psycopg"));
}

#[test]
fn asyncpg_works_through_the_gate() {
    check(|| python("asyncpg"));
}

#[test]
fn sqlalchemy_on_psycopg_works_through_the_gate() {
    check(|| python("sqlalchemy"));
}

#[test]
fn django_on_psycopg_works_through_the_gate() {
    check(|| python("django"));
}

#[test]
fn pgx_works_through_the_gate() {
    go("pgx");
}

#[test]
fn lib_pq_works_through_the_gate() {
    go("pq");
}

#[test]
fn pgjdbc_and_hibernate_on_it_work_through_the_gate() {
    check(support::java(&sources("java"), &[], "java-classes"));
}

#[test]
fn node_postgres_works_through_the_gate() {
    check(|| support::node("node-postgres/main.cjs"));
}
