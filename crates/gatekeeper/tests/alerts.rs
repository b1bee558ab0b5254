//! Every alert rule is fired in a real Prometheus by a fault of a real gate, and none is without one. Only
//! the times of the rules are shorter: see `support/prometheus.rs`.

// Helpers of tests panic as tests do; clippy only knows functions marked as tests.
#![allow(clippy::panic)]

#[path = "support/prometheus.rs"]
mod prometheus;
mod support;

use std::collections::BTreeSet;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use prometheus::{Prometheus, alerts};
use rustix::process::{Pid, Resource, Rlimit, Signal, kill_process, prlimit};
use support::{Gate, server, session, until};
use testbed::postgres::{PrivateServer, Stop};
use tokio::task::JoinSet;
use tokio_postgres::{Client, NoTls};

/// Files that a gate may open beside those that it has open.
const FILES_LEFT: u64 = 16;
/// Files that clients leave of these.
const FILES_KEPT: u64 = 3;

const WRITE: &str = "INSERT INTO locked VALUES (1)";

/// A private server, gates before it, and what watches the gates.
struct Scene {
    server: PrivateServer,
    prometheus: Prometheus,
    /// Alerts that have fired.
    fired: BTreeSet<String>,
}

impl Scene {
    /// Provokes a fault again and again until an alert of this gate fires.
    async fn fires(&mut self, alert: &str, gate: &str, mut provoke: impl AsyncFnMut()) {
        let wanted = (alert.to_owned(), gate.to_owned());
        until(&format!("{alert}\n{}", self.prometheus.log()), async || {
            provoke().await;
            self.prometheus.alerts("firing").contains(&wanted)
        })
        .await;
        self.fired.insert(alert.to_owned());
    }
}

fn gate(server: &PrivateServer, name: &str, settings: &[&str]) -> Gate {
    let name = format!("name = \"{name}\"");
    let lines: Vec<_> = [&[name.as_str()], settings].concat().into_iter().map(str::to_owned).collect();
    Gate::start(server.port(), &lines)
}

/// Sends a statement again and again, from so many sessions.
async fn load(server: &PrivateServer, gate: &Gate, clients: usize, statement: &'static str) -> JoinSet<()> {
    let mut load = JoinSet::new();
    let mut all = Vec::new();
    for _ in 0..clients {
        all.push(session(server, gate).await);
    }
    for client in all {
        load.spawn(async move {
            loop {
                if client.batch_execute(statement).await.is_err() {
                    tokio::time::sleep(Duration::from_millis(10)).await;
                }
            }
        });
    }
    load
}

/// Two transactions change the same row; the second one fails.
async fn conflict(first: &Client, second: &Client) {
    first
        .batch_execute("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT * FROM counted")
        .await
        .expect("it runs");
    second.batch_execute("UPDATE counted SET n = n + 1").await.expect("it runs");
    first.batch_execute("UPDATE counted SET n = n + 1").await.expect_err("the row has changed");
    first.batch_execute("ROLLBACK").await.expect("it runs");
}

/// Lets a process run for a fiftieth of the time only, as a quota does, until this is dropped.
struct Starved {
    ends: Arc<AtomicBool>,
    turns: Option<std::thread::JoinHandle<()>>,
}

impl Starved {
    fn new(gate: &Gate) -> Self {
        let pid = process(gate);
        let ends = Arc::new(AtomicBool::new(false));
        let is_over = Arc::clone(&ends);
        let turns = std::thread::spawn(move || {
            while !is_over.load(Ordering::Relaxed) {
                kill_process(pid, Signal::STOP).expect("it runs");
                std::thread::sleep(Duration::from_millis(45));
                kill_process(pid, Signal::CONT).expect("it runs");
                std::thread::sleep(Duration::from_millis(1));
            }
        });
        Self { ends, turns: Some(turns) }
    }
}

impl Drop for Starved {
    fn drop(&mut self) {
        self.ends.store(true, Ordering::Relaxed);
        let _ = self.turns.take().map(std::thread::JoinHandle::join);
    }
}

/// Clients that send a write, which waits for a lock, and are gone.
async fn leave(server: &PrivateServer, gate: &Gate, clients: usize) {
    let mut gone = Vec::new();
    for _ in 0..clients {
        let dsn = server.dsn_through(gate.port());
        let (client, connection) = tokio_postgres::connect(&dsn, NoTls).await.expect("the login succeeds");
        let connection = tokio::spawn(connection);
        let sent = tokio::spawn(async move { client.batch_execute(WRITE).await });
        gone.push((connection, sent));
    }
    until("all wait for the lock", async || gate.status()["in_flight"] == clients).await;
    for (connection, sent) in gone {
        connection.abort();
        sent.abort();
    }
}

fn process(gate: &Gate) -> Pid {
    i32::try_from(gate.pid()).ok().and_then(Pid::from_raw).expect("a process")
}

/// How many files a process has open.
fn open_files(gate: &Gate) -> u64 {
    std::fs::read_dir(format!("/proc/{}/fd", gate.pid())).expect("it runs").count() as u64
}

/// Lets a process open a few files more, and no further ones; returns how many that are in all.
fn limit_files(gate: &Gate) -> u64 {
    let pid = process(gate);
    let most = open_files(gate) + FILES_LEFT;
    let limit = Rlimit { current: Some(most), maximum: Some(most) };
    prlimit(Some(pid), Resource::Nofile, limit).expect("its limit is lowered");
    most
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_alert_is_fired_by_a_fault_and_silent_without() {
    let server = server();
    server.psql("CREATE TABLE counted AS SELECT 1 AS n; CREATE TABLE locked (n int)").expect("tables");
    let calm = gate(&server, "calm", &[]);
    let short = gate(&server, "short", &["connections = 2", "queue_max = 2"]);
    let slow = gate(&server, "slow", &["connections = 1"]);
    let wide = gate(&server, "wide", &["connections = 8", "capacity = \"none\"", "long_limit = 0"]);
    let late = gate(&server, "late", &["connections = 4"]);
    let held = gate(&server, "held", &["connections = 8", "target = \"5ms\""]);
    let classes = ["web", "batch"]
        .map(|name| format!("[[gate.class]]\nname = \"{name}\"\napplication = \"{name}\"\ngoal = \"5ms\""));
    let aims = ["connections = 2", "goal_tick = \"100ms\"", &classes[0], &classes[1]];
    let aims = gate(&server, "aims", &aims);
    let full = gate(&server, "full", &["[process]", "memory_max = 16"]);
    let all = [&calm, &short, &slow, &wide, &late, &held, &aims, &full].map(Gate::admin_address);
    let prometheus = Prometheus::start(&all);
    let mut scene = Scene { server, prometheus, fired: BTreeSet::new() };

    // Without a fault: figures for some seconds of a little load, and no alert even begins.
    let mut clients = Vec::new();
    for gate in [&calm, &short, &slow, &wide, &late, &held, &aims, &full] {
        clients.push(session(&scene.server, gate).await);
    }
    until("all are watched", async || {
        for client in &clients {
            client.batch_execute("SELECT 1").await.expect("it runs");
        }
        scene.prometheus.query("count_over_time(up[1m]) >= 5").len() == all.len()
    })
    .await;
    assert_eq!(scene.prometheus.alerts("pending|firing"), BTreeSet::new());

    scene = of_sessions(scene, &short, &wide, &clients[3]).await;
    scene = of_load(scene, &slow, &late).await;
    scene = of_aims(scene, &held, &aims).await;
    scene = of_the_process(scene, &full, &clients[7]).await;
    let of_calm = |alert: &(String, String)| alert.1 == calm.admin_address();
    assert_eq!(scene.prometheus.alerts("pending|firing").into_iter().find(of_calm), None);

    scene.server.stop(Stop::Fast);
    scene
        .fires("GatekeeperUpstreamDown", &all[0], async || drop(clients[0].batch_execute("SELECT 1").await))
        .await;
    drop(calm);
    scene.fires("GatekeeperDown", &all[0], async || ()).await;
    let known: BTreeSet<_> = alerts().into_iter().map(|(name, _)| name).collect();
    assert_eq!(scene.fired, known);
}

/// Faults of what sessions do.
async fn of_sessions(mut scene: Scene, short: &Gate, wide: &Gate, client: &Client) -> Scene {
    let at = short.admin_address();
    let holder = session(&scene.server, short).await;
    holder.batch_execute("CREATE TEMPORARY TABLE kept (n int)").await.expect("it runs");
    scene.fires("GatekeeperConnectionsPinned", &at, async || ()).await;
    let crowd = load(&scene.server, short, 6, "SELECT pg_sleep(0.05)").await;
    scene.fires("GatekeeperRefuses", &at, async || ()).await;
    drop((crowd, holder));

    let at = wide.admin_address();
    let other = session(&scene.server, wide).await;
    scene.fires("GatekeeperConflicts", &at, async || conflict(client, &other).await).await;
    let (lock, connection) = tokio_postgres::connect(&scene.server.dsn(), NoTls).await.expect("a session");
    tokio::spawn(connection);
    // Requests of a type that isn't known run one at a time.
    for _ in 0..50 {
        client.batch_execute(WRITE).await.expect("it runs");
    }
    lock.batch_execute("BEGIN; LOCK TABLE locked").await.expect("it is locked");
    leave(&scene.server, wide, 6).await;
    scene.fires("GatekeeperLeftBehind", &at, async || ()).await;
    // Last: an address whose logins fail is kept away.
    let dsn = scene.server.dsn_through(wide.port()).replace(scene.server.password(), "wrong");
    scene
        .fires("GatekeeperLoginsFail", &at, async || {
            assert!(tokio_postgres::connect(&dsn, NoTls).await.is_err(), "the password is wrong");
        })
        .await;
    scene
}

/// Faults of too much load.
async fn of_load(mut scene: Scene, slow: &Gate, late: &Gate) -> Scene {
    let crowd = load(&scene.server, slow, 6, "SELECT pg_sleep(0.4)").await;
    scene.fires("GatekeeperQueueSlow", &slow.admin_address(), async || ()).await;
    drop(crowd);
    // The gate answers alone that a text is known: no server, and no queue for it, slows the clients down.
    let mut crowd = JoinSet::new();
    for _ in 0..400 {
        let client = session(&scene.server, late).await;
        crowd.spawn(async move { while client.prepare("SELECT 1").await.is_ok() {} });
    }
    let starved = Starved::new(late);
    scene.fires("GatekeeperLate", &late.admin_address(), async || ()).await;
    drop((starved, crowd));
    scene
}

/// Aims that no gate can reach: a request takes longer alone.
async fn of_aims(mut scene: Scene, held: &Gate, aims: &Gate) -> Scene {
    const LONGER: &str = "SELECT pg_sleep(0.02)";
    let crowd = load(&scene.server, held, 4, LONGER).await;
    scene.fires("GatekeeperTargetOutOfReach", &held.admin_address(), async || ()).await;
    drop(crowd);
    let dsn = scene.server.dsn_through(aims.port());
    let mut crowd = JoinSet::new();
    for name in ["web", "batch"].repeat(3) {
        let dsn = format!("{dsn} application_name={name}");
        let (client, connection) = tokio_postgres::connect(&dsn, NoTls).await.expect("the login succeeds");
        crowd.spawn(async move { drop(connection.await) });
        crowd.spawn(async move { while client.batch_execute(LONGER).await.is_ok() {} });
    }
    scene.fires("GatekeeperGoalOutOfReach", &aims.admin_address(), async || ()).await;
    scene
}

/// Faults of what a process has and is told.
async fn of_the_process(mut scene: Scene, full: &Gate, client: &Client) -> Scene {
    let at = full.admin_address();
    let long = format!("SELECT '{}'", "x".repeat(20 << 20));
    scene
        .fires("GatekeeperMemoryFull", &at, async || {
            client.batch_execute(&long).await.expect_err("there is no room");
        })
        .await;
    full.reconfigure(&["conections = 1".to_owned()]);
    full.signal("HUP");
    scene.fires("GatekeeperReloadFailed", &at, async || ()).await;
    for (command, alert) in [("pause", "GatekeeperPaused"), ("pass", "GatekeeperPassesEverything")] {
        let mut asked = Command::new(env!("CARGO_BIN_EXE_gatekeeper"));
        asked.args([command, "--admin", &full.admin_socket()]);
        assert!(asked.status().expect("it runs").success(), "{command}");
        scene.fires(alert, &at, async || ()).await;
    }
    let most = limit_files(full);
    let mut crowd = Vec::new();
    scene
        .fires("GatekeeperFilesShort", &at, async || {
            // Being scraped takes one or two.
            if open_files(full) + FILES_KEPT < most {
                crowd.push(std::net::TcpStream::connect(("127.0.0.1", full.port())).expect("it listens"));
            }
        })
        .await;
    scene
}
