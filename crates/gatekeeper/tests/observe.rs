//! `mode = "observe"` in front of a real PostgreSQL: nothing waits, and what would have waited is told.

// Helpers of tests panic as tests do; clippy only knows functions marked as tests.
#![allow(clippy::panic)]

mod support;

use support::{Gate, server, session, until};

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
    assert_eq!(status["logins_succeeded_total"], 3, "{status}");

    holder.batch_execute("COMMIT").await.expect("the transaction commits");
    until("the shadow is done with both", async || {
        let status = gate.status();
        status["requests"]["succeeded_total"] == 2 && status["in_flight"] == 0 && status["queued"] == 0
    })
    .await;
    gate.assert_alive();
}
