//! Types of HTTP by a parameter as a user runs them: a site behind whose paths cheap and costly functions
//! stand, and a gate without a setting.

// Helpers of tests panic as tests do; clippy only knows functions marked as tests.
#![allow(clippy::panic)]

mod support;

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use tokio::task::{JoinSet, spawn_blocking};

use support::origin::{Origin, ask, send};
use support::{Gate, until};

/// Clients that ask a gate for the same requests in turn, until they are dropped.
struct Load(Arc<AtomicBool>);

impl Load {
    fn start(gate: &Gate, clients: usize, request: fn(usize) -> String) -> Self {
        let (ended, count) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
        for _ in 0..clients {
            let (port, ended, count) = (gate.port(), Arc::clone(&ended), Arc::clone(&count));
            spawn_blocking(move || {
                while !ended.load(Ordering::Relaxed) {
                    // The gate may have ended.
                    let _ = send(port, &request(count.fetch_add(1, Ordering::Relaxed)));
                }
            });
        }
        Self(ended)
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

fn gate(origin: &Origin, connections: u32) -> Gate {
    let connections = format!("connections = {connections}");
    // What a request is called, the site is told, and says so to its client.
    let lines = ["protocol = \"http\"", "pass_type = true", &connections].map(str::to_owned);
    Gate::start(origin.address.port(), &lines)
}

fn types(gate: &Gate) -> Vec<String> {
    let types = gate.types();
    let types = types.as_array().expect("a list").iter();
    types.map(|row| row["type"].as_str().expect("a name").to_owned()).collect()
}

async fn until_all_are_told_apart(gate: &Gate, names: &[&str]) {
    let all = async || {
        let types = types(gate);
        names.iter().all(|name| types.iter().any(|known| known == name))
    };
    until("the types are told apart", all).await;
}

fn post(path: &str, body: &str) -> String {
    let length = body.len();
    format!(
        "POST {path} HTTP/1.1\r\nHost: site\r\nConnection: close\r\nContent-Type: application/json\r\n\
         Content-Length: {length}\r\n\r\n{body}"
    )
}

/// What the gate called a request, of a response as it came.
fn called(response: &str) -> Option<&str> {
    response.lines().find_map(|line| line.strip_prefix("x-told-type: "))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_parameter_tells_the_cheap_from_the_costly_and_the_cheap_go_first() {
    let origin = Origin::start("site").await;
    let gate = gate(&origin, 4);
    let load = Load::start(&gate, 4, |number| {
        let action = ["cheap", "costly", "cheap"][number % 3];
        let user = ["ann", "bob", "eve"][number / 3 % 3];
        format!(
            "GET /ajax?id={number}&token=c0ffee{number:04}&mail={user}@example.org&action={action} HTTP/1.1\r\n\
             Host: site\r\nConnection: close\r\n\r\n"
        )
    });
    until_all_are_told_apart(&gate, &["GET /ajax?action=cheap", "GET /ajax?action=costly"]).await;
    drop(load);
    until("the log tells it", async || gate.log().contains("a type is told apart")).await;
    let shown = format!("{:?}{:?}{}{}", types(&gate), gate.status(), gate.metrics(), gate.log());
    for data in ["c0ffee", "ann", "token=", "mail=", "id="] {
        assert!(!shown.contains(data), "{data} is nobody's business: {shown}");
    }

    // All places are taken, and the first costly request waits for longer than the cheap ones.
    until("all have ended", async || gate.status()["in_flight"] == 0).await;
    let mut held = JoinSet::new();
    let port = gate.port();
    (0..4).for_each(|_| _ = held.spawn(async move { spawn_blocking(move || ask(port, "/held", &[])).await }));
    until("all places are taken", async || gate.status()["in_flight"] == 4).await;
    let (mut asking, ended) = (JoinSet::new(), Arc::new(AtomicUsize::new(0)));
    for (count, path) in [(8, "/ajax?action=costly&x=1"), (8, "/ajax?action=cheap&x=1")] {
        let before = gate.status()["queued"].as_u64().expect("a number");
        for _ in 0..count {
            let ended = Arc::clone(&ended);
            asking.spawn(async move {
                let asked = spawn_blocking(move || ask(port, path, &[])).await.expect("it runs");
                assert_eq!(asked.expect("a response").status, 200);
                (path.contains("cheap"), ended.fetch_add(1, Ordering::Relaxed))
            });
        }
        until("all wait", async || gate.status()["queued"] == before + count).await;
    }
    origin.let_go(4);
    let ended = asking.join_all().await;
    let last_cheap = ended.iter().filter(|(is_cheap, _)| *is_cheap).map(|(_, at)| *at).max();
    // A few of the costly go by their age.
    assert!(last_cheap.is_some_and(|at| at <= 11), "{ended:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn operations_in_bodies_are_told_apart_in_one_piece_and_in_many() {
    let origin = Origin::start("site").await;
    let gate = gate(&origin, 8);
    let load = Load::start(&gate, 8, |number| {
        let operation = ["cheap", "costly", "cheap"][number / 3 % 3];
        match number % 3 {
            0 => post("/graphql", &format!("{{\"query\": \"query {operation} {{ shop {{ id }} }}\"}}")),
            1 => post(
                "/unnamed",
                &format!(
                    "{{\"query\": \"{{ {operation} {{ id }} }}\", \"variables\": {{\"id\": {number}}}}}"
                ),
            ),
            _ => post(
                "/rpc",
                &format!("{{\"jsonrpc\": \"2.0\", \"method\": \"{operation}\", \"id\": {number}}}"),
            ),
        }
    });
    let names = [
        "POST /graphql?operationName=cheap",
        "POST /graphql?operationName=costly",
        "POST /unnamed?operationName=cheap",
        "POST /rpc?method=cheap",
        "POST /rpc?method=costly",
    ];
    until_all_are_told_apart(&gate, &names).await;
    drop(load);

    let call = |kind: &str, body: &str, pieces: usize| {
        let request = post("/rpc", body).replace("application/json", kind);
        let mut socket = TcpStream::connect(("127.0.0.1", gate.port())).expect("it listens");
        socket.set_nodelay(true).expect("an option");
        for piece in request.as_bytes().chunks(request.len().div_ceil(pieces)) {
            socket.write_all(piece).expect("it is read");
            std::thread::sleep(Duration::from_millis(if pieces > 1 { 5 } else { 0 }));
        }
        let mut response = String::new();
        socket.read_to_string(&mut response).expect("a response");
        assert!(response.ends_with(&format!("site /rpc {}", body.len())), "the body came whole: {response}");
        called(&response).expect("a type").to_owned()
    };
    let body = "{\"id\": 7, \"method\": \"cheap\", \"params\": []}";
    for pieces in [1, 3, 60] {
        assert_eq!(
            call("application/json; charset=utf-8", body, pieces),
            "POST /rpc?method=cheap",
            "{pieces}"
        );
    }
    assert_eq!(call("text/plain", body, 1), "POST /rpc");
    assert_eq!(call("application/json", &format!("[{body}]"), 1), "POST /rpc");
    assert_eq!(call("application/json", "{\"method\": \"cheap\", \"method\": \"costly\"}", 1), "POST /rpc");
    assert_eq!(call("application/json", "{\"method\": \"unheard-of\"}", 1), "POST /rpc");
    // Of a large body only what has come is read, and nobody waits for the rest.
    let large = format!("{{\"method\": \"cheap\", \"params\": \"{}\"}}", "x".repeat(200_000));
    let of_large = call("application/json", &large, 1);
    assert_eq!(of_large, "POST /rpc?method=cheap");
    let of_late = call("application/json", &large, 50);
    assert!(["POST /rpc", "POST /rpc?method=cheap"].contains(&of_late.as_str()), "{of_late}");
}
