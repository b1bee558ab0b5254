//! Long reads before a PostgreSQL on this machine: their server processes have less of the processor while
//! they run (`lower_long_reads`), and nobody else's has.

// Helpers of tests panic as tests do; clippy only knows functions marked as tests.
#![allow(clippy::panic)]

mod support;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use testbed::postgres::PrivateServer;
use tokio_postgres::{Client, NoTls, SimpleQueryMessage};

use support::{Gate, server, until};

/// A read of about a second, which only computes. Lowered on a busy machine it takes much longer.
const LONG: &str = "SELECT count(*) FROM generate_series(1, 5000000)";
/// The control group of the process that runs it. It calls what isn't known to compute only.
const OWN_GROUP: &str = "SELECT pg_read_file('/proc/self/cgroup')";

fn gate(server: &PrivateServer) -> Gate {
    let lines = [
        "connections = 2",
        "long_limit = 2",
        "lower_long_reads = true",
        "[[gate.class]]\nname = \"reports\"\napplication = \"reports\"\nbackground = true",
    ];
    Gate::start(server.port(), &lines.map(str::to_owned))
}

async fn session(server: &PrivateServer, gate: &Gate, application: &str) -> Client {
    let dsn = format!("{} application_name={application}", server.dsn_through(gate.port()));
    let (client, connection) = tokio_postgres::connect(&dsn, NoTls).await.expect("the login succeeds");
    tokio::spawn(connection);
    client
}

/// Whether this machine lets processes be moved at all: root can, where version 1 is mounted.
fn can_lower() -> bool {
    let root = std::path::Path::new("/sys/fs/cgroup/cpu");
    if !root.exists() || !rustix::process::geteuid().is_root() {
        println!("skipped: only root can move processes to control groups, and only version 1 is looked at");
        return false;
    }
    let probe = root.join(format!("gatekeeper-test-{}", std::process::id()));
    std::fs::create_dir(&probe).expect("root can make a control group");
    let _ = std::fs::remove_dir(&probe);
    true
}

fn is_low(process: &str) -> bool {
    let groups = std::fs::read_to_string(format!("/proc/{process}/cgroup")).unwrap_or_default();
    groups.contains("gatekeeper-low")
}

/// The process that runs such a statement now.
fn process_of(server: &PrivateServer, part: &str) -> Option<String> {
    let asked = format!(
        "SELECT pid FROM pg_stat_activity WHERE state = 'active' AND query LIKE '%{part}%' AND pid <> pg_backend_pid()"
    );
    let told = server.psql(&asked).expect("the server tells");
    told.lines().next().filter(|pid| !pid.is_empty()).map(str::to_owned)
}

async fn text(client: &Client, sql: &str) -> String {
    let messages = client.simple_query(sql).await.unwrap_or_else(|error| panic!("{sql}: {error}"));
    let rows = messages.iter().filter_map(|message| match message {
        SimpleQueryMessage::Row(row) => row.get(0),
        _ => None,
    });
    rows.collect::<Vec<_>>().join("\n")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_long_read_has_less_of_the_processor_until_it_ends() {
    let server = server();
    let gate = gate(&server);
    let reports = session(&server, &gate, "reports").await;
    if !can_lower() {
        text(&reports, "SELECT count(*) FROM generate_series(1, 10)").await;
        until("it is told", async || gate.log().contains("lower_long_reads")).await;
        return;
    }
    let running = tokio::spawn(async move { (text(&reports, LONG).await, reports) });
    let mut process = None;
    until("it runs", async || {
        process = process_of(&server, "5000000");
        process.is_some()
    })
    .await;
    let process = process.expect("it was found");
    until("its process is in the low group", async || is_low(&process)).await;
    assert!(!running.is_finished(), "it is lowered while it runs");
    let (count, reports) = running.await.expect("no panic");
    assert_eq!(count, "5000000");
    // The next session on this connection has a process of ordinary weight.
    assert!(!text(&reports, OWN_GROUP).await.contains("gatekeeper-low"));
    assert!(!is_low(&process));
    assert!(gate.log().contains("long reads get less of the processor"), "{}", gate.log_tail());
    // A report that is given up is raised, too.
    let cancel = reports.cancel_token();
    let running = tokio::spawn(async move { reports.simple_query(LONG).await.map(|_| ()) });
    let mut process = None;
    until("another is in the low group", async || {
        process = process_of(&server, "5000000").filter(|process| is_low(process));
        process.is_some()
    })
    .await;
    cancel.cancel_query(NoTls).await.expect("it is asked to stop");
    running.await.expect("no panic").expect_err("it was canceled");
    let process = process.expect("it was found");
    until("it has its weight again", async || !is_low(&process)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_writes_holds_locks_or_may_do_so_keeps_its_weight() {
    let server = server();
    server
        .psql("CREATE TABLE hot (id int PRIMARY KEY, n int); INSERT INTO hot VALUES (1, 0)")
        .expect("a table");
    server.psql("CREATE TABLE seen (what text)").expect("a table");
    let gate = gate(&server);
    let reports = session(&server, &gate, "reports").await;
    for sql in [
        OWN_GROUP,
        "INSERT INTO seen SELECT pg_read_file('/proc/self/cgroup') RETURNING what",
        "SELECT pg_read_file('/proc/self/cgroup') FROM hot FOR UPDATE",
        "WITH one AS (UPDATE hot SET n = n + 1 RETURNING n) SELECT pg_read_file('/proc/self/cgroup') FROM one",
    ] {
        let groups = text(&reports, sql).await;
        assert!(groups.contains("cpu") || groups.contains("0::"), "{sql}: {groups}");
        assert!(!groups.contains("gatekeeper-low"), "{sql}: {groups}");
    }
    // A transaction that holds the hot row computes for long, and another waits for the row.
    let (holds, waits) = (reports, session(&server, &gate, "shop").await);
    holds.batch_execute("BEGIN; UPDATE hot SET n = n + 1 WHERE id = 1").await.expect("it has the row");
    let process = text(&holds, "SELECT pg_backend_pid()").await;
    let waiting =
        tokio::spawn(async move { waits.batch_execute("UPDATE hot SET n = n + 1 WHERE id = 1").await });
    let is_over = Arc::new(AtomicBool::new(false));
    let watch = std::thread::spawn({
        let (is_over, process) = (Arc::clone(&is_over), process.clone());
        move || {
            let mut looks = 0;
            while !is_over.load(Ordering::Relaxed) {
                assert!(!is_low(&process), "it holds the row that another waits for");
                looks += 1;
            }
            looks
        }
    });
    text(&holds, LONG).await;
    is_over.store(true, Ordering::Relaxed);
    assert!(watch.join().expect("it was never lowered") > 0);
    assert!(!waiting.is_finished(), "the row was held all the time");
    holds.batch_execute("COMMIT").await.expect("it ends");
    waiting.await.expect("no panic").expect("the other has the row");
}
