//! `gatekeeper top` in a pseudo-terminal, before a gate under load in front of a real PostgreSQL.

// Helpers of tests panic as tests do; clippy only knows functions marked as tests.
#![allow(clippy::panic)]

mod support;
#[path = "support/terminal.rs"]
mod terminal;

use std::os::unix::fs::symlink;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use support::{Gate, server, session};
use terminal::Terminal;
use testbed::postgres::PrivateServer;
use tokio::task::JoinSet;

/// A name that would set the window's title, clear the screen, and turn what follows around.
const EVIL: &str = "SELECT 1 AS \"x\u{1b}]0;owned\u{7}\u{1b}[2J\u{9b}2J\u{202e}evil\"";
/// Statements of clients: two types, of which the longer ones fill the gate.
const STATEMENTS: [&str; 3] = ["SELECT 1 AS q", "SELECT pg_sleep(0.03)", EVIL];

/// Clients that send statements one after the other until this is dropped.
struct Load {
    ends: Arc<AtomicBool>,
    clients: JoinSet<()>,
}

impl Load {
    async fn start(server: &PrivateServer, gate: &Gate, clients: usize) -> Self {
        let ends = Arc::new(AtomicBool::new(false));
        let mut tasks = JoinSet::new();
        for number in 0..clients {
            let client = session(server, gate).await;
            let ends = Arc::clone(&ends);
            tasks.spawn(async move {
                while !ends.load(Ordering::Relaxed) {
                    // A full gate refuses some at once; then a client takes a breath.
                    if client.batch_execute(STATEMENTS[number % STATEMENTS.len()]).await.is_err() {
                        tokio::time::sleep(Duration::from_millis(5)).await;
                    }
                }
            });
        }
        Self { ends, clients: tasks }
    }

    async fn end(mut self) {
        self.ends.store(true, Ordering::Relaxed);
        while self.clients.join_next().await.is_some() {}
    }
}

fn full_gate(server: &PrivateServer) -> Gate {
    let settings = ["connections = 2", "queue_max = 4", "name = \"shop\""].map(str::to_owned);
    Gate::start(server.port(), &settings)
}

/// Whether the heading of the table marks this column.
fn is_sorted_by(screen: &str, column: &str) -> bool {
    screen.contains(&format!("{column}▼")) || screen.contains(&format!("{column}▲"))
}

/// Every figure and curve at the head has its value, and none is cut.
fn assert_whole(screen: &str) {
    let lines: Vec<_> = screen.lines().collect();
    let figures = lines.iter().find(|line| line.starts_with("served/s ")).expect("figures");
    let known = ["served/s", "p95", "waiting", "in flight", "refused/s", "clients"];
    for figure in figures.trim_end().split("  ") {
        let value = known.iter().find_map(|name| figure.strip_prefix(&format!("{name} ")));
        let first = value.and_then(|value| value.chars().next());
        assert!(
            first.is_some_and(|first| first.is_ascii_digit() || "<–".contains(first)),
            "{figure:?}\n{screen}"
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_small_terminal_shows_everything_that_an_operator_asks_first() {
    let server = server();
    let gate = full_gate(&server);
    let load = Load::start(&server, &gate, 12).await;
    let mut top = Terminal::start(&["top", "--admin", &gate.admin_address()], (80, 24));
    let screen = top.until("a refusing gate under load", |screen| {
        screen.contains("It refuses requests") && screen.contains("pg_sleep") && screen.contains("? as q")
    });
    assert_whole(&screen);
    for told in ["gate shop", "live", "served/s", "in flight", "bound", "RATE", "SHARE▼", "long", "F10Quit"]
    {
        assert!(screen.contains(told), "{told}:\n{screen}");
    }
    println!("{screen}");

    // Sorting.
    top.press(">");
    top.until("another order", |screen| is_sorted_by(screen, "REFUSED"));
    top.press("<<");
    top.until("the first order's neighbor", |screen| is_sorted_by(screen, "WAIT"));
    top.press("I");
    top.until("the order inverted", |screen| screen.contains("WAIT▲"));

    // Searching.
    top.press("/PG_SL");
    top.until("the search", |screen| screen.contains("Search: PG_SL"));
    top.press("\r");
    let found = top.until("one type", |screen| screen.contains("1 of ") && screen.contains("F10Quit"));
    assert!(!found.contains("? as q"), "{found}");

    // A type opens, with its reason.
    top.press("\r");
    let told = ["Request type", "since start", "lane"];
    let detail = top.until("a type", |screen| told.iter().all(|told| screen.contains(told)));
    println!("{detail}");
    top.press("\u{1b}");
    top.until("no type", |screen| !screen.contains("Request type"));
    top.press("\u{1b}");
    top.until("all types", |screen| !screen.contains("1 of ") && screen.contains("? as q"));

    // Every panel.
    for (key, told) in [
        ("2", "waits for"),
        ("3", "the queue was full"),
        ("4", "Service works on"),
        ("5", "pool postgres@postgres"),
        ("6", "refused: the queue was full"),
    ] {
        top.press(key);
        println!("{}", top.until(told, |screen| screen.contains(told)));
    }
    top.press("\u{1b}OP");
    top.until("help", |screen| screen.contains("show types whose text"));
    top.press("qq");
    assert_eq!(top.end(), 0);
    load.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_large_terminal_shows_all_panels_at_once_over_the_socket() {
    let server = server();
    let gate = full_gate(&server);
    let load = Load::start(&server, &gate, 12).await;
    let mut top = Terminal::start(&["top", "--admin", &gate.admin_socket(), "--gate", "shop"], (200, 50));
    let screen = top.until("all panels", |screen| {
        [
            "Waiting",
            "Refused",
            "Found",
            "Service",
            "Events",
            "RATE",
            "the queue was full",
            "pool postgres",
            "away",
        ]
        .iter()
        .all(|told| screen.contains(told))
    });
    println!("{screen}");
    load.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_that_a_stranger_writes_reaches_the_terminal_as_a_command() {
    let server = server();
    let gate = full_gate(&server);
    let client = session(&server, &gate).await;
    client.batch_execute(EVIL).await.expect("it runs");
    let mut top = Terminal::start(&["top", "--admin", &gate.admin_address()], (120, 24));
    top.until("the type", |screen| screen.contains("]0;owned") && screen.contains("evil"));
    top.press("\r");
    top.until("the whole text", |screen| screen.contains("Request type"));
    let raw = String::from_utf8_lossy(&top.raw).into_owned();
    assert_eq!(top.title(), "", "{raw:?}");
    for command in ["\u{1b}]0;", "\u{9b}", "\u{202e}", "\u{7}"] {
        assert!(!raw.contains(command), "{command:?} in {raw:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_gate_that_cannot_be_reached_is_told_and_tried_again() {
    let server = server();
    let directory = tempfile::tempdir().expect("a directory");
    let link = directory.path().join("admin.sock");
    let mut top = Terminal::start(&["top", "--admin", &format!("unix:{}", link.display())], (80, 24));
    let screen = top.until("why", |screen| screen.contains("can't be reached"));
    assert!(screen.contains("NOT CONNECTED") && screen.contains("No such file"), "{screen}");
    let gate = full_gate(&server);
    symlink(gate.admin_socket().trim_start_matches("unix:"), &link).expect("a link");
    top.until("the gate", |screen| screen.contains("gate shop") && screen.contains("live"));
    drop(gate);
    let screen = top.until("that it has gone", |screen| screen.contains("can't be reached"));
    assert!(screen.contains("What you see is old"), "{screen}");
    top.press("\u{3}");
    assert_eq!(top.end(), 0);
}

#[test]
fn without_a_terminal_it_names_the_commands_that_need_none() {
    let output = std::process::Command::new(env!("CARGO_BIN_EXE_gatekeeper"))
        .args(["top", "--admin", "127.0.0.1:1"])
        .stdin(std::process::Stdio::null())
        .output()
        .expect("it runs");
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("top needs a terminal; `gatekeeper status`"), "{said}");
}
