//! `mode = "observe"` in front of a real PostgreSQL: nothing waits, and what would have waited is told.

// Helpers of tests panic as tests do; clippy only knows functions marked as tests.
#![allow(clippy::panic)]

mod support;

use support::{Gate, server, session, until};

fn status_of(gate: &Gate) -> String {
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_gatekeeper"));
    let output = command.args(["status", "--admin", &gate.admin_address()]).output().expect("it runs");
    String::from_utf8(output.stdout).expect("it is text")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_busy_clients_every_end_is_counted_and_no_more_would_wait_than_there_are() {
    const CLIENTS: u64 = 8;
    const EACH: u64 = 50;
    let server = server();
    let settings = ["mode = \"observe\"", "connections = 1"].map(str::to_owned);
    let gate = Gate::start(server.port(), &settings);
    let mut clients = Vec::new();
    for _ in 0..CLIENTS {
        clients.push(session(&server, &gate).await);
    }
    let busy = clients.iter().map(|client| async move {
        for _ in 0..EACH {
            client.batch_execute("SELECT pg_sleep(0.002)").await.expect("it runs at once");
        }
    });
    let busy = futures_util::future::join_all(busy);
    tokio::pin!(busy);
    let mut is_over = false;
    while !is_over {
        tokio::select! {
            _ = &mut busy => is_over = true,
            () = tokio::time::sleep(std::time::Duration::from_millis(20)) => {}
        }
        let status = gate.status();
        let would_be = |key: &str| status[key].as_u64().expect("a number");
        assert!(would_be("in_flight") + would_be("queued") <= CLIENTS, "{status}");
    }
    until("every end is counted", async || gate.status()["requests"]["succeeded_total"] == CLIENTS * EACH)
        .await;
    let types = gate.types();
    let row = &types[0];
    assert_eq!(row["requests"]["succeeded_total"], CLIENTS * EACH, "{types}");
    assert_eq!(row["upstream_time"]["count"], CLIENTS * EACH, "{types}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_would_have_waited_for_a_connection_runs_at_once_and_is_told() {
    let server = server();
    let settings = ["mode = \"observe\"", "connections = 1", "queue_max = 1"].map(str::to_owned);
    let gate = Gate::start(server.port(), &settings);
    let [holder, waiter, refused] =
        [session(&server, &gate).await, session(&server, &gate).await, session(&server, &gate).await];

    holder.batch_execute("BEGIN; SELECT 1").await.expect("the transaction begins");
    // With one connection, which the open transaction holds, the next would wait and the one after be
    // refused.
    waiter.batch_execute("SELECT 2").await.expect("it runs at once");
    refused.batch_execute("SELECT 3").await.expect("it runs at once");
    let status = gate.status();
    assert_eq!(status["mode"], "observe");
    assert_eq!((&status["in_flight"], &status["queued"]), (&1.into(), &1.into()), "{status}");
    assert_eq!(status["requests"]["rejected_by_reason"]["queue_full"], 1, "{status}");
    // What has really ended is counted at once, whatever would have become of it.
    let real = async || {
        let status = gate.status();
        status["really_in_flight"] == 1 && status["requests"]["succeeded_total"] == 2
    };
    until("both are counted", real).await;
    assert_eq!(status["logins_succeeded_total"], 3, "{status}");

    holder.batch_execute("COMMIT").await.expect("the transaction commits");
    until("the shadow is done with both", async || {
        let status = gate.status();
        status["requests"]["succeeded_total"] == 3 && status["in_flight"] == 0 && status["queued"] == 0
    })
    .await;
    let told = status_of(&gate);
    assert!(told.contains("0 requests in flight, all pass; enforcing there would be 0"), "{told}");
    assert!(
        told.contains("since the start: 3 requests succeeded, 0 failed, 1 would have been refused"),
        "{told}"
    );
    gate.assert_alive();
}
