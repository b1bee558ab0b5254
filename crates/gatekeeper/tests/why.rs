//! `gatekeeper why` tells what became of requests, against real servers.

// Helpers of tests panic as tests do; clippy only knows functions marked as tests.
#![allow(clippy::panic)]

mod support;

use std::process::Command;

use serde_json::Value;
use support::origin::{Origin, ask};
use support::{Gate, server, session, until};

const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e47";

/// Exit status, standard output, standard error.
fn why(gate: &Gate, args: &[&str]) -> (i32, String, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_gatekeeper"));
    command.args(["why", "--admin", &gate.admin_address()]).args(args).env_remove("GATEKEEPER_ADMIN");
    let output = command.output().expect("it runs");
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).expect("it is text");
    (output.status.code().expect("it exits"), text(&output.stdout), text(&output.stderr))
}

fn told(gate: &Gate, args: &[&str]) -> Value {
    let (code, told, said) = why(gate, &[args, &["--json"]].concat());
    assert_eq!(code, 0, "{said}");
    serde_json::from_str(&told).expect("it is JSON")
}

/// The only request of a trace that ends so.
fn of(gate: &Gate, trace: u8) -> Option<Value> {
    let (code, told, _) = why(gate, &[&format!("{TRACE}{trace:02}"), "--json"]);
    let told: Value = if code == 0 { serde_json::from_str(&told).ok()? } else { return None };
    assert_eq!(told["requests"].as_array().map(Vec::len), Some(1), "{told}");
    Some(told["requests"][0].clone())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_visitors_request_is_told_by_its_trace() {
    let origin = Origin::start("site").await;
    let lines =
        ["protocol = \"http\"", "name = \"web\"", "connections = 1", "queue_max = 1", "long_limit = 0"];
    let lines = [&lines[..], &["[[gate.route]]\npath = \"/held/*\""]].concat();
    let gate =
        Gate::start(origin.address.port(), &lines.iter().map(|line| (*line).to_owned()).collect::<Vec<_>>());
    let port = gate.port();
    let asking = |trace: u8| {
        let parent = format!("traceparent: 00-{TRACE}{trace:02}-00f067aa0ba902b7-00");
        tokio::task::spawn_blocking(move || ask(port, "/held/1?secret=1", &[&parent]).expect("a response"))
    };
    let first = asking(1);
    until("the first is at the site", async || origin.asked() == 1).await;
    let second = asking(2);
    until("the second waits", async || gate.status()["queued"] == 1).await;
    let answer = asking(3).await.unwrap();
    assert_eq!(answer.status, 503);
    let named = told(&gate, &[answer.field("x-gatekeeper-request").expect("its id")]);
    assert_eq!(named["requests"][0]["trace"], format!("{TRACE}03"), "{named}");

    let (code, words, _) = why(&gate, &[&format!("{TRACE}02")]);
    assert_eq!(code, 0);
    assert!(words.contains("It has waited") && words.contains("for a server connection"), "{words}");
    assert!(words.contains("“/held/*”") && words.ends_with("It still waits.\n"), "{words}");
    let refused = of(&gate, 3).expect("it was refused");
    assert_eq!((&refused["state"], &refused["reason"]), (&"refused".into(), &"queue_full".into()));
    assert_eq!(of(&gate, 1).expect("it runs")["state"], "in flight");

    origin.let_go(2);
    for asked in [first, second] {
        assert_eq!(asked.await.unwrap().status, 200);
    }
    until("both have ended", async || of(&gate, 2).is_some_and(|told| told["state"] == "served")).await;
    let second = of(&gate, 2).expect("it was served");
    assert_eq!(second["waited_for"][0]["what"], "connections");
    assert_eq!(second["overtaken_by"]["count"], 0);
    let id = second["id"].as_str().expect("an id");
    assert_eq!(told(&gate, &[id])["requests"][0]["trace"], format!("{TRACE}02"));
    let slowest = told(&gate, &["--slowest", "1"]);
    assert_eq!(slowest["requests"].as_array().map(Vec::len), Some(1));
    assert!(!slowest.to_string().contains("secret"));

    for (args, code, words) in [
        (vec!["0123456789abcdef0123456789abcdef"], 1, "nothing is known of that request"),
        (vec!["web/99"], 1, "nothing is known of that request"),
        (vec!["nonsense"], 2, "names no request"),
        (vec!["a&b"], 2, "names no request"),
        (vec!["--gate", "other"], 2, "there is no gate"),
        (vec!["other/1"], 2, "there is no gate"),
    ] {
        let (found, _, said) = why(&gate, &args);
        assert!(found == code && said.contains(words), "{args:?}: {found} {said}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_response_that_waits_for_the_uplink_says_so() {
    let origin = Origin::start("site").await;
    let lines = ["protocol = \"http\"", "name = \"web\"", "uplink = \"1Mbit\""].map(str::to_owned);
    let gate = Gate::start(origin.address.port(), &lines);
    let port = gate.port();
    // The answer has the path in it: some packets of a millisecond and more each.
    let path = format!("/{}", "a".repeat(12_000));
    let parent = format!("traceparent: 00-{TRACE}09-00f067aa0ba902b7-00");
    let answer = tokio::task::spawn_blocking(move || ask(port, &path, &[&parent]).expect("a response"));
    assert!(answer.await.expect("no panic").body.len() > 12_000);
    let told = || of(&gate, 9).filter(|told| told["uplink_seconds"].as_f64() > Some(0.0));
    until("the wait is told", async || told().is_some()).await;
    let story = told().expect("it is kept")["story"].to_string();
    assert!(story.contains("Its response waited ") && story.contains(" for the uplink"), "{story}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refused_statement_names_its_request() {
    let server = server();
    let settings = ["name = \"shop\"", "connections = 1", "queue_max = 1", "queue_timeout = \"200ms\""];
    let gate = Gate::start(server.port(), &settings.map(str::to_owned));
    let (holder, waiter, refused) =
        (session(&server, &gate).await, session(&server, &gate).await, session(&server, &gate).await);
    holder.batch_execute("BEGIN; SELECT 1").await.expect("it runs");
    let waits = tokio::spawn(async move { waiter.batch_execute("SELECT 2").await });
    until("one waits", async || gate.status()["queued"] == 1).await;
    let at_once = refused.batch_execute("SELECT 3").await.expect_err("the queue is full");
    let later = waits.await.expect("no panic").expect_err("it waits too long");
    for (error, reason) in [(at_once, "queue_full"), (later, "queue_timeout")] {
        let hint = error.as_db_error().and_then(|told| told.hint()).expect("a hint").to_owned();
        let (_, id) = hint.rsplit_once("gatekeeper why ").expect("it names the request");
        let story = told(&gate, &[id]);
        assert_eq!(story["requests"][0]["reason"], reason, "{hint}: {story}");
    }
    holder.batch_execute("COMMIT").await.expect("it ends");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_statement_is_told_by_the_trace_in_its_comment_and_by_its_session() {
    let server = server();
    let gate = Gate::start(server.port(), &["name = \"shop\"".to_owned(), "connections = 1".to_owned()]);
    let (holder, waiter) = (session(&server, &gate).await, session(&server, &gate).await);
    holder.batch_execute("BEGIN; SELECT 1").await.expect("it runs");
    let waits = tokio::spawn(async move {
        let text =
            format!("SELECT 'secret', 471108150042 /*traceparent='00-{TRACE}07-00f067aa0ba902b7-01'*/");
        waiter.batch_execute(&text).await.map(|()| waiter)
    });
    let is_seen = async || of(&gate, 7).is_some_and(|told| told["held_by_silent_clients"] == 1);
    until("the transaction's silence is seen", is_seen).await;
    let (_, words, _) = why(&gate, &[&format!("{TRACE}07")]);
    assert!(words.contains("silent within their transactions held up to 1"), "{words}");
    holder.batch_execute("COMMIT").await.expect("it ends");
    let waiter = waits.await.expect("no panic").expect("it runs");
    until("it has ended", async || of(&gate, 7).is_some_and(|told| told["state"] == "served")).await;
    let story = of(&gate, 7).expect("it was served");
    assert!(story["label"].as_str().is_some_and(|label| label.contains("select")), "{story}");
    assert!(!story.to_string().contains("secret") && !story.to_string().contains("471108150042"), "{story}");

    let session = story["session"].as_u64().expect("a session").to_string();
    waiter.batch_execute("SELECT 2").await.expect("it runs");
    let both = async || told(&gate, &["--session", &session])["requests"].as_array().map(Vec::len) == Some(2);
    until("the session's second is told, too", both).await;
}
