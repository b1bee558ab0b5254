//! A running gatekeeper reads its configuration again, in front of a real PostgreSQL and under load, and a
//! restarted one knows what it had learned.

// Helpers of tests panic as tests do; clippy only knows functions marked as tests.
#![allow(clippy::panic)]

mod support;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use testbed::postgres::PrivateServer;
use tokio_postgres::Client;

use support::{Gate, server, session, until};

fn lines(lines: &[&str]) -> Vec<String> {
    lines.iter().map(|line| (*line).to_owned()).collect()
}

/// The log, with quotes within its values as they are.
fn log(gate: &Gate) -> String {
    gate.log().replace("\\\"", "\"")
}

/// Waits until the log has so many lines with this in them.
async fn until_logged(gate: &Gate, what: &str, times: usize) {
    until(what, async || log(gate).lines().filter(|line| line.contains(what)).count() >= times).await;
}

/// Clients that run short transactions until told to stop; none may ever fail.
struct Load {
    stop: Arc<AtomicBool>,
    done: Arc<AtomicU64>,
    clients: Vec<tokio::task::JoinHandle<()>>,
}

impl Load {
    async fn start(server: &PrivateServer, gate: &Gate, count: usize) -> Self {
        let (stop, done) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let mut clients = Vec::new();
        for _ in 0..count {
            let client = session(server, gate).await;
            let (stop, done) = (Arc::clone(&stop), Arc::clone(&done));
            clients.push(tokio::spawn(async move {
                while !stop.load(Ordering::Relaxed) {
                    client
                        .batch_execute("BEGIN; SELECT pg_sleep(0.001); COMMIT")
                        .await
                        .expect("no request is lost");
                    done.fetch_add(1, Ordering::Relaxed);
                }
            }));
        }
        Self { stop, done, clients }
    }

    /// Waits until so many more transactions are done.
    async fn goes_on(&self, more: u64) {
        let goal = self.done.load(Ordering::Relaxed) + more;
        until("the load goes on", async || self.done.load(Ordering::Relaxed) >= goal).await;
    }

    async fn end(self) {
        self.stop.store(true, Ordering::Relaxed);
        for client in self.clients {
            client.await.expect("no client failed");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn policies_change_under_load_and_no_request_is_lost() {
    let server = server();
    let before = lines(&["connections = 4", "queue_max = 500", "max_clients = 100"]);
    let gate = Gate::start(server.port(), &before);
    let load = Load::start(&server, &gate, 24).await;
    load.goes_on(100).await;
    let policies = [
        &["connections = 2", "order = \"fifo\"", "queue_max = 400", "queue_timeout = \"90s\""][..],
        &[
            "connections = 6",
            "aging = \"none\"",
            "aging_floor = \"2s\"",
            "capacity = \"5s\"",
            "long_limit = 3",
        ],
        &["connections = 3", "pinned_max = 3", "max_clients = 30", "cost = \"ewma\"", "logins_max = 2"],
        &[
            "connections = 4",
            "login_timeout = \"9s\"",
            "suspend_after = \"5s\"",
            "on_disconnect = \"finish\"",
        ],
    ];
    for (round, policy) in policies.iter().cycle().take(12).enumerate() {
        gate.reconfigure(&lines(policy));
        gate.signal("HUP");
        let connections = policy[0].rsplit(' ').next().expect("a number");
        until_logged(
            &gate,
            &format!("reloaded: gate \"postgres\": connections = {connections}"),
            round / 4 + 1,
        )
        .await;
        assert_eq!(gate.status()["connections"].to_string(), connections);
        load.goes_on(50).await;
    }
    // What the pool has beyond the bound goes; then there is room again for what logs in.
    gate.reconfigure(&lines(&["connections = 2"]));
    gate.signal("HUP");
    until("the pool has two connections", async || gate.status()["pools"][0]["connections"] == 2).await;
    load.goes_on(50).await;
    load.end().await;
    until("the gate has settled", async || {
        let status = gate.status();
        status["in_flight"] == 0 && status["queued"] == 0 && status["load_seconds"] == 0.0
    })
    .await;
    let requests = &gate.status()["requests"];
    assert_eq!(
        (&requests["failed_total"], &requests["rejected_total"]),
        (&0.into(), &0.into()),
        "{requests}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_mistake_changes_nothing_and_is_told_with_line_and_hint() {
    let server = server();
    let gate = Gate::start(server.port(), &lines(&["connections = 3"]));
    let client = session(&server, &gate).await;
    gate.reconfigure(&lines(&["connections = 5", "queue_timeout = 120", "conections = 7"]));
    gate.signal("HUP");
    until_logged(&gate, "the configuration was not reloaded", 1).await;
    let log = log(&gate);
    assert!(log.contains("queue_timeout = 120: needs a unit; write"), "{log}");
    assert!(log.contains("gatekeeper.toml:8:") && log.contains("did you mean `connections`?"), "{log}");
    assert_eq!(gate.status()["connections"], 3);

    // What can't change is named and stays; the rest holds.
    gate.reconfigure(&lines(&["connections = 5", "pooling = \"session\"", "types_max = 7"]));
    gate.signal("HUP");
    until_logged(&gate, "pooling = \"session\" instead of \"transaction\": this takes a restart", 1).await;
    until_logged(&gate, "types_max = 7 instead of 1000: this takes a restart", 1).await;
    assert_eq!(gate.status()["connections"], 5);
    client.batch_execute("SELECT 1").await.expect("the session lives on");
}

#[test]
fn without_a_file_a_hang_up_is_told_to_have_nothing_to_read_and_all_goes_on() {
    use std::io::{BufRead as _, BufReader};
    let mut gate = std::process::Command::new(env!("CARGO_BIN_EXE_gatekeeper"))
        .args(["run", "--upstream", "127.0.0.1:1", "--listen", "127.0.0.1:0", "--admin", "none"])
        .stderr(std::process::Stdio::piped())
        .spawn()
        .expect("it starts");
    let mut log = BufReader::new(gate.stderr.take().expect("its log")).lines();
    assert!(log.any(|line| line.expect("text").ends_with("ready")));
    let id = gate.id().to_string();
    let kill = |signal: &str| {
        let kill = std::process::Command::new("kill").args([signal, &id]).status();
        assert!(kill.expect("kill runs").success());
    };
    kill("-HUP");
    assert!(log.any(|line| line.expect("text").contains("there is no file to read again")));
    kill("-TERM");
    assert!(log.any(|line| line.expect("text").contains("draining")));
    assert_eq!(gate.wait().expect("it ends").code(), Some(0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_new_address_of_the_server_is_taken_with_the_next_login() {
    let (old, new) = (server(), server());
    let gate = Gate::start(old.port(), &lines(&["connections = 3"]));
    let client = session(&old, &gate).await;
    let port = async |client: &Client| {
        let row = client.query_one("SELECT current_setting('port')", &[]).await.expect("it runs");
        row.get::<_, String>(0).parse::<u16>().expect("a port")
    };
    assert_eq!(port(&client).await, old.port());
    gate.reconfigure_upstream(new.port(), &lines(&["connections = 3"]));
    gate.signal("HUP");
    until_logged(&gate, "reloaded: gate \"postgres\": upstream", 1).await;
    assert_eq!(port(&client).await, old.port(), "until a connection to the new one is there");
    let other = session(&new, &gate).await;
    assert_eq!((port(&client).await, port(&other).await), (new.port(), new.port()));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restarted_gate_knows_what_it_had_learned() {
    let server = server();
    let directory = tempfile::tempdir().expect("a temporary directory");
    let path = directory.path().join("state.json");
    let settings = lines(&["connections = 4", &format!("state_file = {:?}", path.display().to_string())]);
    let mut gate = Gate::start(server.port(), &settings);
    let client = session(&server, &gate).await;
    for _ in 0..6 {
        client.batch_execute("SELECT pg_sleep(0.05), 'a secret'").await.expect("it runs");
        client.batch_execute("SELECT 471108150042").await.expect("it runs");
    }
    let before = gate.types();
    gate.signal("TERM");
    drop(client);
    assert_eq!(gate.wait().code(), Some(0));
    let text = std::fs::read_to_string(&path).expect("the file was written");
    assert!(!text.contains("secret") && !text.contains("471108150042"), "{text}");
    assert!(text.contains("pg_sleep"), "{text}");

    let mut gate = Gate::start(server.port(), &settings);
    let after = gate.types();
    for known in before.as_array().expect("types") {
        let label = &known["type"];
        let found = after.as_array().expect("types").iter().find(|found| found["type"] == *label);
        let found = found.unwrap_or_else(|| panic!("{label} in {after:#}"));
        assert_eq!(found["samples"], known["samples"], "{label}");
        // Known at once, and by the same figures.
        assert_ne!(found["lane"], "unknown", "{label}");
        let work = |known: &serde_json::Value| known["work_seconds"].as_f64().expect("a number");
        assert!((work(found) - work(known)).abs() < 1e-3 + 0.2 * work(known), "{label}: {found} {known}");
    }
    gate.signal("TERM");
    assert_eq!(gate.wait().code(), Some(0));

    // A damaged file is a warning, and put aside.
    std::fs::write(&path, &text[..text.len() / 2]).expect("the file is written");
    let gate = Gate::start(server.port(), &settings);
    assert!(gate.log().contains("the state file is not usable and was put aside"), "{}", gate.log());
    session(&server, &gate).await.batch_execute("SELECT 1").await.expect("it serves");
}
