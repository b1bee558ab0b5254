//! The process's budget for clients' messages: what has no room is refused at once, the largest first, and
//! its session goes on.

// Helpers of tests panic as tests do; clippy only knows functions marked as tests.
#![allow(clippy::panic)]

mod gate;
mod support;

use std::io::{Read as _, Write as _};
use std::net::TcpStream;

use gate::client::{Client, execute, parse, query, sync};
use gate::{Scene, until};
use support::Gate;
use support::frames::Connection;
use support::origin::{Origin, ask};
use support::raw::message;

const MIB: usize = 1 << 20;
/// The budget of these gates, in megabytes.
const BUDGET: usize = 16;
/// What hears a client whose message has no room.
const REFUSED: &str = "E(53200)";

/// A gate with a small budget.
fn scene(user: &str, more: &[&str]) -> Scene {
    let budget = format!("memory_max = {BUDGET}");
    Scene::start(user, &[more, &["[process]", &budget]].concat())
}

/// A simple Query of about so many bytes, most of them blanks.
fn long_query(bytes: usize) -> Vec<u8> {
    query(&format!("select 1{}", " ".repeat(bytes)))
}

/// A message of the extended protocol with a parameter of so many bytes, for a statement with one.
fn long_bind(bytes: usize) -> Vec<u8> {
    let value = vec![b'x'; bytes];
    let length = u32::try_from(bytes).expect("it is short").to_be_bytes();
    message(b'B', &[b"\0\0\0\0\0\x01", length.as_slice(), &value, b"\0\0"].concat())
}

/// Waits until clients' messages take at least so many bytes.
fn until_held(gate: &Gate, bytes: usize) {
    until("so much is held", || gate.memory("held_bytes") >= bytes as u64);
}

/// Waits until no more is held than some texts of prepared statements.
fn until_little_is_held(gate: &Gate) {
    until("little is held", || gate.memory("held_bytes") < 1000);
}

/// Runs a statement that is answered as on any day.
fn is_served(client: &mut Client) {
    assert_eq!(client.query("select 1"), "T D(1) C(SELECT 1) Z(I)");
}

#[test]
fn a_message_longer_than_the_budget_is_refused_at_its_header_and_the_session_goes_on() {
    let scene = scene("budget_header", &[]);
    let mut client = scene.client();
    let message = long_query(20 * MIB);
    assert_eq!(client.ask(&message[..5]), format!("{REFUSED} Z(I)"));
    assert!(client.said.detail.contains("20971"), "{:?}", client.said);
    client.send(&message[5..]);
    is_served(&mut client);
    // The same in an open transaction, which fails as by any error.
    assert_eq!(client.query("begin; select 1"), "C(BEGIN) T D(1) C(SELECT 1) Z(T)");
    assert_eq!(client.ask(&message[..5]), format!("{REFUSED} Z(E)"));
    client.send(&message[5..]);
    assert_eq!(client.query("rollback"), "C(ROLLBACK) Z(I)");
    // The same holds behind a BEGIN that the gate has answered.
    assert_eq!(client.query("begin"), "C(BEGIN) Z(T)");
    assert_eq!(client.ask(&message), format!("{REFUSED} Z(E)"));
    assert_eq!(client.query("rollback"), "C(ROLLBACK) Z(I)");
    until_little_is_held(&scene.gate);
    assert_eq!(scene.gate.memory("refused_total"), 3);
}

#[test]
fn a_parameter_that_has_no_room_fails_its_batch_and_no_more() {
    let scene = scene("budget_batch", &[]);
    let mut client = scene.client();
    let parameter = long_bind(20 * MIB);
    let rest = [execute(), sync()].concat();
    for is_whole in [true, false] {
        client.send(&parse("", "select length($1)"));
        if is_whole {
            client.send(&parameter);
        } else {
            client.send(&parameter[..100]);
            assert_eq!(client.next(2), format!("1 {REFUSED}"));
            client.send(&parameter[100..]);
        }
        let told = client.ask(&rest);
        let expected = if is_whole { format!("1 {REFUSED} Z(I)") } else { "Z(I)".to_owned() };
        assert_eq!(told, expected);
    }
    // One that the server drops because of an error before it isn't held, either.
    let dropped = [parse("", "select from"), parameter, execute(), sync()].concat();
    assert_eq!(client.ask(&dropped), "E(42601) Z(I)");
    let fits = [parse("", "select length($1)"), long_bind(6 * MIB), execute(), sync()].concat();
    assert_eq!(client.ask(&fits), format!("1 2 D({}) C(SELECT 1) Z(I)", 6 * MIB));
    until_little_is_held(&scene.gate);
}

#[test]
fn of_two_that_share_the_budget_the_one_that_grows_larger_is_refused() {
    let scene = scene("budget_two", &[]);
    let (mut first, mut second) = (scene.client(), scene.client());
    let message = long_query(12 * MIB);
    first.send(&message[..7 * MIB]);
    until_held(&scene.gate, 7 * MIB);
    second.send(&message[..10 * MIB]);
    assert_eq!(second.answers(), format!("{REFUSED} Z(I)"));
    assert_eq!(first.ask(&message[7 * MIB..]), "T D(1) C(SELECT 1) Z(I)");
    second.send(&message[10 * MIB..]);
    is_served(&mut second);
}

#[test]
fn a_short_message_has_the_longest_refused() {
    let scene = scene("budget_longest", &[]);
    let [mut long, mut longest, mut short] = scene.clients();
    let message = long_query(14 * MIB);
    long.send(&message[..3 * MIB]);
    until_held(&scene.gate, 3 * MIB);
    longest.send(&message[..11 * MIB]);
    until_held(&scene.gate, 14 * MIB);
    assert_eq!(short.ask(&long_query(3 * MIB)), "T D(1) C(SELECT 1) Z(I)");
    assert_eq!(longest.answers(), format!("{REFUSED} Z(I)"));
    longest.send(&message[11 * MIB..]);
    is_served(&mut longest);
    assert_eq!(long.ask(&message[3 * MIB..]), "T D(1) C(SELECT 1) Z(I)");
}

#[test]
fn a_request_that_waits_gives_up_its_room_for_a_shorter_one() {
    let scene = scene("budget_queue", &["connections = 1", "long_limit = 0"]);
    let [mut holder, mut long, mut short] = scene.clients();
    assert_eq!(holder.query("begin; select 1"), "C(BEGIN) T D(1) C(SELECT 1) Z(T)");
    long.send(&long_query(12 * MIB));
    scene.until_queued(1);
    short.send(&long_query(5 * MIB));
    assert_eq!(long.answers(), format!("{REFUSED} Z(I)"));
    scene.until_queued(1);
    assert_eq!(holder.query("commit"), "C(COMMIT) Z(I)");
    assert_eq!(short.answers(), "T D(1) C(SELECT 1) Z(I)");
    is_served(&mut long);
}

#[test]
fn the_rest_of_a_message_is_awaited_for_a_while() {
    let scene = scene("budget_late", &["message_timeout = \"100ms\""]);
    let message = long_query(MIB);
    let mut client = scene.client();
    client.send(&message[..MIB / 2]);
    assert_eq!(client.answers(), "F(57P05) closed");
    // Within a batch in a transaction the server connection is put in order.
    let mut client = scene.client();
    assert_eq!(client.query("begin; select 1"), "C(BEGIN) T D(1) C(SELECT 1) Z(T)");
    client.send(&[parse("", "select $1::text"), long_bind(MIB)[..MIB / 2].to_vec()].concat());
    assert!(client.answers().ends_with("F(57P05) closed"));
    scene.settled();
    is_served(&mut scene.client());
}

#[test]
fn texts_of_prepared_statements_take_no_more_than_the_budget() {
    let scene = scene("budget_texts", &[]);
    let mut client = scene.client();
    let prepared = |number: usize| {
        // Each is another text.
        let sql = format!("select {number}{}", " ".repeat(MIB));
        [parse(&format!("s{number}"), &sql), sync()].concat()
    };
    let mut told = Vec::new();
    while !told.last().is_some_and(|told: &String| told.contains(REFUSED)) {
        assert!(told.len() < 2 * BUDGET, "{told:?}");
        told.push(client.ask(&prepared(told.len())));
    }
    assert_eq!(told.last().expect("one was refused"), &format!("{REFUSED} Z(I)"));
    assert!(scene.gate.memory("held_bytes") <= ((BUDGET + BUDGET / 8) * MIB) as u64);
    is_served(&mut client);
    assert_eq!(client.query("deallocate all"), "C(DEALLOCATE ALL) Z(I)");
    until_little_is_held(&scene.gate);
}

#[test]
fn a_reload_changes_the_budget() {
    let scene = scene("budget_reload", &[]);
    assert_eq!(scene.gate.memory("limit_bytes"), (BUDGET * MIB) as u64);
    scene.gate.reconfigure(&["[process]".to_owned(), "memory_max = 32".to_owned()]);
    scene.gate.signal("HUP");
    until("the budget is another", || scene.gate.memory("limit_bytes") == 32 << 20);
    assert_eq!(scene.client().ask(&long_query(20 * MIB)), "T D(1) C(SELECT 1) Z(I)");
}

/// The end of what a client hears whose head has no room.
const NO_ROOM: &str = "content-length: 46\r\n\r\nThe gate has no room for this request's head.\n";

/// What has come of an answer. A reset behind it takes nothing away from it.
fn heard(stream: &mut TcpStream) -> String {
    stream.set_nonblocking(true).expect("it is told not to wait");
    let mut bytes = Vec::new();
    let _ = stream.read_to_end(&mut bytes);
    String::from_utf8(bytes).expect("text")
}

/// Half a head, of so many bytes.
fn half_head(port: u16, bytes: usize) -> TcpStream {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).expect("the listener accepts");
    let head = format!("GET / HTTP/1.1\r\nHost: site\r\nX-Filler: {}", "x".repeat(bytes));
    // It may be refused meanwhile.
    let _ = stream.write_all(head.as_bytes());
    stream
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn heads_that_never_end_take_no_more_than_the_budget_and_others_are_served() {
    let origin = Origin::start("site").await;
    let budget = format!("memory_max = {BUDGET}");
    let lines = ["protocol = \"http\"", "header_timeout = \"1h\"", "[process]", &budget];
    let gate = Gate::start(origin.address.port(), &lines.map(str::to_owned));
    let most = ((BUDGET + BUDGET / 8) * MIB) as u64;
    let mut heads = Vec::new();
    while gate.memory("refused_total") < 50 {
        heads.push(half_head(gate.port(), 30_000));
        assert!(gate.memory("held_bytes") <= most);
        assert!(heads.len() < 2_000, "all heads of {} have room", heads.len());
    }
    assert_eq!(ask(gate.port(), "/", &[]).expect("a response").status, 200);
    until("one of them hears why", || heads.iter_mut().any(|head| heard(head).ends_with(NO_ROOM)));
    drop(heads);
    until_little_is_held(&gate);
}

/// A gate for HTTP whose one connection is held until the site lets it go.
async fn held_site() -> (Origin, Gate, std::thread::JoinHandle<()>) {
    let origin = Origin::start("site").await;
    let budget = format!("memory_max = {BUDGET}");
    let waits = ["queue_timeout = \"1h\"", "body_timeout = \"1h\"", "upstream_timeout = \"1h\""];
    let lines = [&["protocol = \"http\"", "connections = 1"], &waits[..], &["[process]", &budget]].concat();
    let gate = Gate::start(origin.address.port(), &lines.into_iter().map(str::to_owned).collect::<Vec<_>>());
    let port = gate.port();
    let holder = std::thread::spawn(move || {
        assert_eq!(ask(port, "/held", &[]).map(|told| told.status), Some(200));
    });
    until("the connection is held", || gate.status()["in_flight"] == 1);
    (origin, gate, holder)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_body_that_has_no_room_is_refused_with_a_reason_and_its_place_given_back() {
    let (origin, gate, holder) = held_site().await;
    let mut bodies: Vec<TcpStream> = Vec::new();
    while gate.memory("refused_total") < 20 {
        let mut stream = TcpStream::connect(("127.0.0.1", gate.port())).expect("the listener accepts");
        let head = "POST / HTTP/1.1\r\nHost: site\r\nContent-Length: 100000\r\n\r\n";
        stream.write_all(head.as_bytes()).expect("it reads");
        let queued = gate.status()["queued"].as_u64();
        // It may be refused meanwhile.
        let _ = stream.write_all(&[b'x'; 64_000]);
        bodies.push(stream);
        assert!(bodies.len() < 1_000, "all of {} have room, {queued:?} wait", bodies.len());
    }
    let mut refused = String::new();
    until("one of them hears why", || {
        refused = bodies.iter_mut().map(heard).find(|told| !told.is_empty()).unwrap_or_default();
        !refused.is_empty()
    });
    assert!(refused.starts_with("HTTP/1.1 503 "), "{refused}");
    for line in ["x-gatekeeper: memory\r\n", "connection: close\r\n", "\"reason\":\"memory\""] {
        assert!(refused.contains(line), "{refused}");
    }
    let waits = bodies.len() as u64 - 20;
    until("their places are given back", || gate.status()["queued"].as_u64() <= Some(waits));
    drop(bodies);
    origin.let_go(1);
    holder.join().expect("it was answered");
    assert_eq!(ask(gate.port(), "/", &[]).map(|told| told.status), Some(200));
    until_little_is_held(&gate);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_of_http_2_that_has_no_room_hears_so() {
    let (origin, gate, holder) = held_site().await;
    let mut connections = Vec::new();
    while gate.memory("refused_total") < 1 {
        let mut connection = Connection::open(gate.port());
        connection.begin_head(1, 15_000);
        connections.push(connection);
        assert!(connections.len() < 2_000, "all have room");
    }
    // GOAWAY, ENHANCE_YOUR_CALM, and why.
    let told = |heard: &[u8]| heard.windows(25).any(|it| it.ends_with(b"\0\0\0\x0bThe gate has no room"));
    until("one of them hears why", || connections.iter_mut().any(|it| told(&it.heard())));
    drop(connections);
    origin.let_go(1);
    holder.join().expect("it was answered");
    until_little_is_held(&gate);
}

/// The streams of one connection that all wait in the queue, once `send` has sent each.
fn waiting_streams(gate: &Gate, send: impl Fn(&mut Connection, u32) -> bool) -> Connection {
    let refused = || {
        let lateness = &gate.status()["lateness"];
        ["closed_total", "ended_total", "gone_total", "refused_total"].map(|what| lateness[what].as_u64())
    };
    loop {
        let (before, mut connection) = (refused(), Connection::open(gate.port()));
        let all_are_sent = STREAMS.into_iter().all(|stream| send(&mut connection, stream));
        let wait = || gate.status()["queued"] == STREAMS.len();
        until("all wait, or the machine is so busy that the gate is late", || wait() || refused() != before);
        if all_are_sent && wait() {
            return connection;
        }
        drop(connection);
        until_little_is_held(gate);
    }
}

const STREAMS: [u32; 12] = [1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_http_2_holds_counts_until_it_is_taken_or_dropped() {
    let (origin, gate, holder) = held_site().await;
    // More than is read ahead of each: the rest is in its windows.
    let window = 256 << 10;
    let mut connection = waiting_streams(&gate, |connection, stream| {
        connection.begin(stream, 200) && connection.data(stream, window)
    });
    until_held(&gate, STREAMS.len() * window);
    // What is dropped counts no longer, though the connection stays.
    assert!(STREAMS.into_iter().all(|stream| connection.reset(stream)));
    until_little_is_held(&gate);
    // A frame that never ends.
    assert!(connection.begin_head(101, 10_000));
    until_held(&gate, 10_000);
    drop(connection);
    until_little_is_held(&gate);
    // Heads count as long as their requests wait.
    let filler = 12_000;
    let connection = waiting_streams(&gate, |connection, stream| connection.begin(stream, filler));
    until_held(&gate, STREAMS.len() * filler);
    drop(connection);
    until_little_is_held(&gate);
    origin.let_go(1);
    holder.join().expect("it was answered");
}
