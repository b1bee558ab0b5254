//! `mode = "observe"` in front of a real PostgreSQL: nothing waits, and what would have waited is told.

// Helpers of tests panic as tests do; clippy only knows functions marked as tests.
#![allow(clippy::panic)]

mod support;

use support::origin::{Origin, ask};
use support::{Gate, server, session, until};

/// What a command says of the gate: the standard output, or else the error.
fn asked(gate: &Gate, arguments: &[&str]) -> String {
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_gatekeeper"));
    let output = command.args(arguments).args(["--admin", &gate.admin_address()]).output().expect("it runs");
    let told = if output.stdout.is_empty() { output.stderr } else { output.stdout };
    String::from_utf8(told).expect("it is text")
}

/// The end of `gatekeeper observe`, once it tells of all requests.
async fn observed(gate: &Gate, of_all: impl Fn(&str) -> bool) -> String {
    let last = || {
        let told = asked(gate, &["observe", "--cores", "1"]);
        told.lines().skip_while(|line| !line.starts_with("In the last ")).collect::<Vec<_>>().join("\n")
    };
    until("all requests are kept", async || of_all(&last())).await;
    last()
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
    let told = asked(&gate, &["status"]);
    assert!(told.contains("0 requests in flight, all pass; enforcing there would be 0"), "{told}");
    assert!(
        told.contains("since the start: 3 requests succeeded, 0 failed, 1 would have been refused"),
        "{told}"
    );
    // A block that is kept may end between a request's arrival and its start.
    let all = "this gate would have delayed 1 of 3 requests and refused 1; ";
    observed(&gate, |told| told.contains(all)).await;
    gate.assert_alive();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_requests_that_enforcing_would_not_have_served_better_nothing_is_advised() {
    let server = server();
    let gate = Gate::start(server.port(), &["mode = \"observe\"".to_owned()]);
    assert!(asked(&gate, &["observe"]).ends_with("In the last 1h no request came.\n"));
    let client = session(&server, &gate).await;
    for _ in 0..1_500 {
        client.batch_execute("SELECT 'a secret'").await.expect("it runs");
    }
    let told = observed(&gate, |told| told.contains("saved nothing")).await;
    let (_, told) = told.split_once("this gate ").expect("a span comes first");
    assert_eq!(told, "would have delayed 0 requests and refused 0, and saved nothing.");

    // The literals of statements are not kept.
    let trace = ureq::get(format!("http://{}/gates/postgres/trace", gate.admin_address())).call();
    let trace = trace.expect("an answer").body_mut().read_to_vec().expect("a trace");
    let found = |text: &str| trace.windows(text.len()).any(|window| window == text.as_bytes());
    assert!(found("select ?") && !found("secret"));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_lane_for_long_requests_would_have_saved_is_told() {
    const HELD: usize = 5;
    let origin = Origin::start("site").await;
    let settings = ["protocol = \"http\"", "mode = \"observe\"", "connections = 4", "long_limit = 1"];
    let routes = ["/page", "/held"].map(|path| format!("[[gate.route]]\npath = {path:?}"));
    let settings: Vec<String> = settings.iter().map(|line| (*line).to_owned()).chain(routes).collect();
    let gate = Gate::start(origin.address.port(), &settings);
    // Each round some long requests share the cores with a hundred short ones, which come in turn: however
    // long that takes, the long ones would have ended sooner one after the other.
    let round = async || {
        let asked = origin.asked();
        let port = gate.port();
        let held: Vec<_> =
            (0..HELD).map(|_| tokio::task::spawn_blocking(move || ask(port, "/held", &[]))).collect();
        until("the long ones are at the site", async || origin.asked() == asked + HELD).await;
        let pages = move || (0..100).all(|_| ask(port, "/page", &[]).is_some_and(|told| told.status == 200));
        assert!(tokio::task::spawn_blocking(pages).await.expect("no panic"));
        origin.let_go(HELD);
        for one in held {
            assert_eq!(one.await.expect("no panic").expect("an answer").status, 200);
        }
    };
    for _ in 0..10 {
        round().await;
    }
    until("it is sure of what would be saved", async || {
        round().await;
        asked(&gate, &["observe", "--cores", "1"]).contains(", and saved ")
            && !asked(&gate, &["observe", "--cores", "1"]).contains("saved nothing")
    })
    .await;
    let told = asked(&gate, &["observe", "--cores", "1"]);
    let saved = told.lines().find(|line| line.starts_with("In the last ")).unwrap_or_default();
    assert!(saved.contains(" of each on average: ") && saved.contains(" instead of "), "{told}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_gate_that_enforces_has_nothing_to_say_of_what_it_would_do() {
    let server = server();
    let gate = Gate::start(server.port(), &[]);
    assert!(asked(&gate, &["observe"]).starts_with("no gate observes: "));
    assert!(asked(&gate, &["observe", "--gate", "postgres"]).starts_with("gate postgres enforces: "));
}
