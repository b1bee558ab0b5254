//! `gatekeeper calibrate` with a real gatekeeper, a real PostgreSQL and pgbench as the load: windows are
//! short, so that what is found is of no account here; that it measures, tells and puts everything back is.

// Helpers of tests panic as tests do; clippy only knows functions marked as tests.
#![allow(clippy::panic)]

mod support;

use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

use testbed::postgres::PrivateServer;

use support::{Gate, server, until};

/// A gate with a capacity that is none of those that are tried.
fn gate(server: &PrivateServer) -> Gate {
    Gate::start(server.port(), &["connections = 4".to_owned(), "capacity = \"auto\"".to_owned()])
}

/// The command with its flags, up to the load.
fn calibrate(admin: &str, flags: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_gatekeeper"));
    command.args(["calibrate", "--admin", admin]).args(flags).arg("--");
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Eight clients that sleep in the server for two milliseconds at a time, for as long as they may.
fn with_pgbench(command: &mut Command, server: &PrivateServer, gate: &Gate, directory: &Path) {
    let script = directory.join("load.sql");
    std::fs::write(&script, "SELECT pg_sleep(0.002);\n").expect("the script is written");
    command.arg(server.binaries().program("pgbench")).args(["-n", "-c", "8", "-T", "3600", "-f"]).arg(script);
    command.args(["-h", "127.0.0.1", "-U", server.user(), "-p", &gate.port().to_string(), "postgres"]);
    command.env("PGPASSWORD", server.password());
}

fn text(output: &Output) -> (String, String) {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (text(&output.stdout), text(&output.stderr))
}

/// Nothing of the load is left, and the capacity is what it was.
async fn is_as_before(gate: &Gate) {
    assert_eq!(gate.capacity("postgres"), "auto");
    until("the load is gone", async || gate.status()["clients_connected"] == 0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_curve_is_measured_and_the_capacity_is_as_before() {
    let (server, directory) = (server(), tempfile::tempdir().expect("a temporary directory"));
    let gate = gate(&server);
    let plots = directory.path().join("plots");
    let prepared = directory.path().join("prepared");
    let before = format!("echo once >> {}", prepared.display());
    let mut flags =
        vec!["--gate", "postgres", "--window", "300ms", "--warm-up", "300ms", "--measurements", "8"];
    flags.extend(["--before", &before, "--output", plots.to_str().expect("Unicode")]);
    let mut command = calibrate(&gate.admin_socket(), &flags);
    with_pgbench(&mut command, &server, &gate, directory.path());
    let output = command.output().expect("it runs");
    let (table, said) = text(&output);
    assert_eq!(output.status.code(), Some(0), "{said}\n{}", gate.log_tail());

    // From the smallest up, each at least twice, and something was completed with each.
    let rows: Vec<Vec<&str>> = table
        .lines()
        .skip(1)
        .map(|line| line.split("  ").map(str::trim).filter(|cell| !cell.is_empty()).collect::<Vec<_>>())
        .take_while(|row| row.len() == 6)
        .collect();
    assert!(rows.len() >= 2 && rows[0][0] == "1ms" && rows.iter().any(|row| row[0] == "4ms"), "{table}");
    // The last one may have been measured once when there were as many measurements as were allowed.
    assert!(rows.iter().filter(|row| row[4] == "1×").count() <= 1, "{table}");
    assert!(rows.iter().any(|row| row[1].parse::<f64>().expect("a number") > 0.0), "{table}");
    assert!(table.contains("    capacity = \"") && table.contains("is \"auto\" again"), "{table}");
    // Without a terminal each measurement is a line, and nothing else is written.
    let lines: Vec<_> = said.lines().collect();
    assert!(lines.iter().all(|line| line.starts_with("measurement ") && line.ends_with("/s")), "{said}");
    assert!(lines.len() >= 4 && !said.contains('\u{1b}'), "{said}");
    assert_eq!(std::fs::read_to_string(prepared).expect("it ran").lines().count(), lines.len());
    let plot = std::fs::read_to_string(plots.join("capacity.svg")).expect("there is a plot");
    assert!(plot.contains("Requests completed per second") && plot.contains("<polyline"));
    assert!(gate.log().contains("the capacity was changed over the admin listener"), "{}", gate.log_tail());
    is_as_before(&gate).await;
}

fn interrupt(child: &Child, signal: &str) {
    let kill = Command::new("kill").args([&format!("-{signal}"), &child.id().to_string()]).status();
    assert!(kill.expect("kill runs").success());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_signal_ends_the_load_and_puts_the_capacity_back() {
    let (server, directory) = (server(), tempfile::tempdir().expect("a temporary directory"));
    let gate = gate(&server);
    for signal in ["INT", "TERM"] {
        let mut command = calibrate(&gate.admin_socket(), &["--window", "1h"]);
        with_pgbench(&mut command, &server, &gate, directory.path());
        let child = command.spawn().expect("it starts");
        until("the load runs", async || {
            gate.capacity("postgres") == "1ms" && gate.status()["clients_connected"] == 8
        })
        .await;
        interrupt(&child, signal);
        let output = child.wait_with_output().expect("it ends");
        let (table, said) = text(&output);
        assert_eq!((output.status.code(), table.as_str()), (Some(130), ""), "{said}");
        assert!(said.contains("the capacity is \"auto\" again"), "{said}");
        is_as_before(&gate).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_load_that_fails_ends_it_with_what_it_said() {
    let server = server();
    let gate = gate(&server);
    let run = |load: &[&str]| {
        let output =
            calibrate(&gate.admin_socket(), &["--window", "1h"]).args(load).output().expect("it runs");
        let (_, said) = text(&output);
        (output.status.code(), said)
    };
    let (code, said) = run(&["sh", "-c", "echo 'no such table' >&2; exit 7"]);
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("the load command ended after") && said.contains("exit status: 7"), "{said}");
    assert!(said.contains("no such table") && said.contains("\"auto\" again"), "{said}");
    let (code, said) = run(&["/nonexistent/load"]);
    assert_eq!(code, Some(2), "{said}");
    assert!(said.contains("cannot start /nonexistent/load"), "{said}");
    is_as_before(&gate).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_may_not_change_anything_is_told_so_before_anything_is_started() {
    let (server, directory) = (server(), tempfile::tempdir().expect("a temporary directory"));
    let gate = gate(&server);
    let started = directory.path().join("started");
    let run = |admin: &str, flags: &[&str]| {
        let output = calibrate(admin, flags).arg("touch").arg(&started).output().expect("it runs");
        let (_, said) = text(&output);
        (output.status.code(), said)
    };
    let (code, said) = run(&gate.admin_address(), &[]);
    assert_eq!(code, Some(2), "{said}");
    assert!(said.contains("takes no changes from here") && said.contains("token_file"), "{said}");
    let (code, said) = run(&gate.admin_socket(), &["--gate", "other"]);
    assert_eq!((code, said.trim_end()), (Some(2), "there is no gate \"other\"; there are: postgres"));
    let (code, said) = run("unix:/nonexistent/socket", &[]);
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("no gatekeeper answers at unix:/nonexistent/socket"), "{said}");
    assert!(!started.exists());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reload_takes_a_change_back() {
    let server = server();
    let gate = gate(&server);
    let socket = gate.admin_socket();
    let path = socket.strip_prefix("unix:").expect("a socket");
    let mut stream = UnixStream::connect(path).expect("the socket is served");
    let body = "{\"capacity\":\"7s\"}";
    let head = "PATCH /gates/postgres HTTP/1.1\r\nHost: localhost\r\nConnection: close";
    write!(stream, "{head}\r\nContent-Length: {}\r\n\r\n{body}", body.len()).expect("it is sent");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("it is answered");
    assert!(answer.ends_with("{\"gate\":\"postgres\",\"capacity\":\"7s\"}"), "{answer}");
    assert_eq!(gate.capacity("postgres"), "7s");
    assert_eq!(gate.status()["capacity_seconds"], 7.0);
    gate.signal("HUP");
    until("it is as configured", async || gate.capacity("postgres") == "auto").await;
}
