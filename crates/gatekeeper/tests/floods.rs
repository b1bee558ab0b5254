//! Ten thousand logins that never end, and ten thousand with wrong passwords: the gate's memory stays where
//! it was, and sessions that are logged in notice nothing. Long messages, heads of requests that never end,
//! and bodies that wait: they take no more than the budget, and give it back.

// Helpers of tests are outside of `#[test]` functions, where clippy.toml's allowances don't reach.
#![allow(clippy::unwrap_used, clippy::panic)]

mod auth_stage;
mod gate;
mod support;

use std::io::Write as _;

use auth_stage::{Stage, who_is};
use bytes::BytesMut;
use gate::Scene;
use gate::client::{execute, parse, sync};
use support::frames::Connection;
use support::origin::{Origin, ask};
use support::raw::{message, startup};
use support::witness::Witness;
use support::{Gate, resident_bytes};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpSocket, TcpStream};
use tokio::runtime::Handle;
use tokio::task::JoinSet;
use wire::postgres::authentication::{SaslInitial, write_sasl_initial, write_sasl_response};
use wire::postgres::backend::{Authentication, parse_authentication, parse_error};
use wire::postgres::scram::{KEY_BYTES, client_final, client_final_without_proof, parse_server_first};

/// How many there are of each kind.
const FLOOD: usize = 10_000;
/// How many of the wrong passwords are tried at once.
const AT_ONCE: usize = 64;
/// What an unfinished login may cost the gate, in bytes, in a build that isn't optimized.
const HALF_OPEN_BYTES_MAX: u64 = 8 << 10;
/// What may be added to the memory by a second flood, or by one that leaves nothing behind: the allocator's
/// own.
const SLACK_BYTES: u64 = 16 << 20;

/// Room for so many sockets in this process.
fn raise_limit() {
    let needed = 2 * FLOOD as u64;
    let limit = rlimit::increase_nofile_limit(needed).unwrap();
    assert!(limit >= FLOOD as u64 + 500, "the process may open only {limit} files (ulimit -Hn)");
}

/// A connection from an address of its own: all of 127.0.0.0/8 is this machine.
async fn connect(port: u16, number: usize) -> TcpStream {
    let socket = TcpSocket::new_v4().unwrap();
    let [high, low] = u16::try_from(number % FLOOD + 256).unwrap().to_be_bytes();
    socket.bind(([127, 1, high, low], 0).into()).unwrap();
    socket.connect(([127, 0, 0, 1], port).into()).await.unwrap()
}

/// The next message.
async fn read(stream: &mut TcpStream) -> (u8, Vec<u8>) {
    let tag = stream.read_u8().await.unwrap();
    let length = stream.read_u32().await.unwrap() as usize;
    let mut body = vec![0; length - 4];
    stream.read_exact(&mut body).await.unwrap();
    (tag, body)
}

/// A login that stops after its first byte, its first packet, or the gate's challenge.
async fn half_open(port: u16, number: usize) -> TcpStream {
    let mut stream = connect(port, number).await;
    let hello = startup("hf_ann");
    match number % 4 {
        0 => {}
        1 => stream.write_all(&hello[..1]).await.unwrap(),
        2 => {
            stream.write_all(&hello).await.unwrap();
            assert_eq!(read(&mut stream).await.0, b'R');
        }
        _ => {
            stream.write_all(&hello).await.unwrap();
            assert_eq!(read(&mut stream).await.0, b'R');
            answer(&mut stream).await;
            assert_eq!(read(&mut stream).await.0, b'R');
        }
    }
    stream
}

/// The first answer of SCRAM.
async fn answer(stream: &mut TcpStream) {
    let mut out = BytesMut::new();
    let initial = SaslInitial { mechanism: b"SCRAM-SHA-256", data: Some(b"n,,n=,r=abcdefgh") };
    write_sasl_initial(&mut out, &initial);
    stream.write_all(&out).await.unwrap();
}

/// A whole login with a wrong password; what is heard then.
async fn wrong_password(port: u16, number: usize) -> String {
    let mut stream = connect(port, number).await;
    // Half of them don't exist at all.
    stream.write_all(&startup(if number % 2 == 0 { "wf_ann" } else { "wf_unknown" })).await.unwrap();
    let (mut tag, mut body) = read(&mut stream).await;
    if tag == b'R' {
        answer(&mut stream).await;
        let (_, challenge) = read(&mut stream).await;
        let Ok(Authentication::SaslContinue(data)) = parse_authentication(&challenge) else {
            panic!("a challenge")
        };
        let nonce = parse_server_first(data).unwrap().nonce.to_owned();
        let last = client_final(&client_final_without_proof(b"n,,", &nonce), &[7; KEY_BYTES]);
        let mut out = BytesMut::new();
        write_sasl_response(&mut out, last.as_bytes());
        stream.write_all(&out).await.unwrap();
        (tag, body) = read(&mut stream).await;
    }
    assert_eq!(tag, b'E');
    parse_error(&body).code().to_owned()
}

/// A client of this user that asks as long as a flood lasts.
async fn witness(stage: &Stage, user: &'static str) -> Witness {
    let client = stage.client(user, "right").await.unwrap();
    let runtime = Handle::current();
    Witness::start(move || assert_eq!(runtime.block_on(who_is(&client)), user))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_thousand_logins_that_never_end_cost_little_and_hold_up_nobody() {
    raise_limit();
    // Nobody is to be ended before all are there, whatever the machine.
    let lines = ["auth = \"scram-sha-256\"", "login_timeout = \"1h\"", "max_clients = 11000"];
    let stage = Stage::with_secrets("hf", &lines);
    let witness = witness(&stage, "hf_ann").await;
    let before = resident_bytes(stage.pid());
    let mut peaks = Vec::new();
    for round in 0..2 {
        let mut flood = Vec::with_capacity(FLOOD);
        for number in 0..FLOOD {
            flood.push(half_open(stage.port(), number).await);
        }
        let unfinished = "connections_unfinished{gate=\"postgres\"}";
        stage.until("all of them are there", || stage.metric(unfinished) as usize == FLOOD).await;
        witness.is_served().await;
        // There is room for clients that do log in.
        assert_eq!(stage.who("hf_ann", "right").await, "hf_ann");
        peaks.push(resident_bytes(stage.pid()));
        drop(flood);
        stage.until("all of them are gone", || stage.metric(unfinished) as usize == 0).await;
        println!("flood {round}: {} KiB over {} KiB", (peaks[round] - before) / 1024, before / 1024);
    }
    assert!(peaks[0] - before < FLOOD as u64 * HALF_OPEN_BYTES_MAX, "{before} bytes before, then {peaks:?}");
    assert!(peaks[1] < peaks[0] + SLACK_BYTES, "{before} bytes before, then {peaks:?}");
    witness.end().await;
}

/// Floods the gate, and returns how often each answer was heard.
async fn wrong_passwords(stage: &Stage) -> std::collections::BTreeMap<String, usize> {
    let (port, mut heard, mut flood) = (stage.port(), std::collections::BTreeMap::new(), JoinSet::new());
    let mut numbers = 0..FLOOD;
    loop {
        while flood.len() < AT_ONCE {
            let Some(number) = numbers.next() else { break };
            flood.spawn(wrong_password(port, number));
        }
        let Some(code) = flood.join_next().await else { return heard };
        *heard.entry(code.unwrap()).or_default() += 1;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_thousand_wrong_passwords_leave_nothing_behind() {
    raise_limit();
    // Each comes from an address of its own, so that none is stopped by the bound of one.
    let stage = Stage::with_secrets("wf", &["auth = \"scram-sha-256\"", "login_failures_max = 1"]);
    let witness = witness(&stage, "wf_ann").await;
    let before = resident_bytes(stage.pid());
    let heard = wrong_passwords(&stage).await;
    assert_eq!(heard.into_iter().collect::<Vec<_>>(), [("28P01".to_owned(), FLOOD)]);
    let first = resident_bytes(stage.pid());
    // Once more from the same addresses, which have to wait for a minute after a failure: whether they are
    // tried again depends on the machine.
    let heard = wrong_passwords(&stage).await;
    assert_eq!(heard.values().sum::<usize>(), FLOOD);
    wrong_password(stage.port(), 0).await;
    assert_eq!(wrong_password(stage.port(), 0).await, "53300");
    let second = resident_bytes(stage.pid());
    println!("{} KiB, then {} KiB, then {} KiB", before / 1024, first / 1024, second / 1024);
    assert!(
        first < before + SLACK_BYTES && second < first + SLACK_BYTES,
        "{before}, {first}, {second} bytes"
    );
    // Nothing of it reached the server: it has the witness's connection only.
    assert_eq!(stage.processes("wf_ann"), 1);
    witness.end().await;
}

const MIB: usize = 1 << 20;
/// What a gate may take beside the budget and its reserve: what is just being read, and the allocator's own.
const BESIDE: u64 = 16 << 20;

/// The most that a process has ever taken, in bytes.
fn peak_bytes(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().strip_suffix("kB").unwrap().trim().parse::<u64>().unwrap() << 10
}

/// Waits until the gate has given memory back, and shows what it took.
fn given_back(gate: &Gate, what: &str, before: u64) {
    let peak = peak_bytes(gate.pid());
    gate::until("memory is given back", || resident_bytes(gate.pid()) < before + SLACK_BYTES);
    let over = |bytes: u64| bytes.saturating_sub(before) / MIB as u64;
    let after = resident_bytes(gate.pid());
    println!(
        "{what}: {} MiB before, {} more at the peak, {} more after",
        before / MIB as u64,
        over(peak),
        over(after)
    );
}

#[test]
fn ten_clients_that_stop_within_a_long_message_take_no_more_than_the_budget() {
    let budget = 128;
    let scene = Scene::start("lm_long", &["[process]", &format!("memory_max = {budget}")]);
    let mut witness = scene.client();
    assert_eq!(witness.query("select 1"), "T D(1) C(SELECT 1) Z(I)");
    let before = resident_bytes(scene.gate.pid());
    let mut query = message(b'Q', b"");
    query[1..].copy_from_slice(&(120_u32 << 20).to_be_bytes());
    query.resize(60 * MIB, b' ');
    let mut clients: [_; 10] = scene.clients();
    for client in &mut clients {
        client.send(&query);
        assert_eq!(witness.query("select 1"), "T D(1) C(SELECT 1) Z(I)");
    }
    gate::until("eight have no room", || scene.gate.memory("refused_total") >= 8);
    let peak = peak_bytes(scene.gate.pid());
    assert!(peak - before < (budget << 20) * 9 / 8 + BESIDE, "{before} bytes before, then {peak}");
    drop(clients);
    given_back(&scene.gate, "ten clients with 60 of 120 MiB", before);
}

#[test]
fn a_long_parameter_is_held_once() {
    let scene = Scene::start("lm_parameter", &["[process]", "memory_max = 256"]);
    let mut client = scene.client();
    assert_eq!(client.query("select 1"), "T D(1) C(SELECT 1) Z(I)");
    let before = resident_bytes(scene.gate.pid());
    let length = 100 * MIB;
    let value = vec![b'x'; length];
    let bytes = u32::try_from(length).unwrap().to_be_bytes();
    let bind = message(b'B', &[b"\0\0\0\0\0\x01", bytes.as_slice(), &value, b"\0\0"].concat());
    let told = client.ask(&[parse("", "select length($1)"), bind, execute(), sync()].concat());
    assert_eq!(told, format!("1 2 D({length}) C(SELECT 1) Z(I)"));
    let peak = peak_bytes(scene.gate.pid());
    assert!(peak - before < length as u64 + BESIDE, "{before} bytes before, then {peak}");
    given_back(&scene.gate, "a parameter of 100 MiB", before);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn five_thousand_half_heads_take_no_more_than_the_budget() {
    raise_limit();
    let (budget, heads) = (64_u64, 5_000);
    let origin = Origin::start("site").await;
    let budget_line = format!("memory_max = {budget}");
    let lines = ["protocol = \"http\"", "header_timeout = \"1h\"", "[process]", &budget_line];
    let gate = Gate::start(origin.address.port(), &lines.map(str::to_owned));
    assert_eq!(ask(gate.port(), "/", &[]).unwrap().status, 200);
    let before = resident_bytes(gate.pid());
    let head = format!("GET / HTTP/1.1\r\nHost: site\r\nX-Filler: {}", "x".repeat(16_000));
    let mut flood = Vec::with_capacity(heads);
    for _ in 0..heads {
        let mut stream = std::net::TcpStream::connect(("127.0.0.1", gate.port())).unwrap();
        // It may have been refused already.
        let _ = stream.write_all(head.as_bytes());
        flood.push(stream);
    }
    assert_eq!(ask(gate.port(), "/", &[]).unwrap().status, 200);
    let peak = peak_bytes(gate.pid());
    // What is short isn't counted: 8 KiB of each connection.
    let most = (budget << 20) * 9 / 8 + heads as u64 * (8 << 10) + BESIDE;
    assert!(peak - before < most, "{before} bytes before, then {peak}");
    drop(flood);
    given_back(&gate, "5,000 half heads of 16 kB", before);
}

/// What the gate holds of one connection of HTTP/2: sixteen windows of streams.
const STREAMS: usize = 16;
const WINDOW: usize = 256 << 10;

/// A gate with so many megabytes for clients, whose one connection is held.
async fn held_site(budget: u64) -> (Origin, Gate, std::thread::JoinHandle<()>) {
    let origin = Origin::start("site").await;
    let budget = format!("memory_max = {budget}");
    let waits = ["queue_timeout = \"1h\"", "body_timeout = \"1h\"", "upstream_timeout = \"1h\""];
    let lines = [&["protocol = \"http\"", "connections = 1"], &waits[..], &["[process]", &budget]].concat();
    let lines: Vec<String> = lines.into_iter().map(str::to_owned).collect();
    let gate = Gate::start(origin.address.port(), &lines);
    let port = gate.port();
    let holder = std::thread::spawn(move || assert_eq!(ask(port, "/held", &[]).unwrap().status, 200));
    gate::until("the connection is held", || gate.status()["in_flight"] == 1);
    (origin, gate, holder)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bodies_that_wait_take_no_more_than_the_budget() {
    raise_limit();
    let (budget, bodies) = (64_u64, 3_000);
    let (origin, gate, holder) = held_site(budget).await;
    let before = resident_bytes(gate.pid());
    let mut flood = Vec::with_capacity(bodies);
    // More where the machine is so busy that the gate refuses some for that.
    while flood.len() < bodies || gate.memory("refused_total") < bodies as u64 / 3 {
        assert!(flood.len() < FLOOD, "{} bodies have room", flood.len());
        let mut stream = std::net::TcpStream::connect(("127.0.0.1", gate.port())).unwrap();
        stream.write_all(b"POST / HTTP/1.1\r\nHost: site\r\nContent-Length: 100000\r\n\r\n").unwrap();
        // It may have been refused already.
        let _ = stream.write_all(&[b'x'; 64_000]);
        flood.push(stream);
    }
    let waiting = || gate.status()["queued"].as_u64().unwrap();
    gate::until("each waits or has given its place back", || {
        let waiting = waiting();
        waiting <= (budget << 20) * 9 / 8 / 128_000 && waiting + gate.memory("refused_total") >= bodies as u64
    });
    let peak = peak_bytes(gate.pid());
    // What is short isn't counted: a task, hyper's buffer, and 4 KiB of each.
    let most = (budget << 20) * 9 / 8 + bodies as u64 * (12 << 10) + BESIDE;
    assert!(peak - before < most, "{before} bytes before, then {peak}");
    drop(flood);
    given_back(&gate, "3,000 bodies of 64 kB that wait", before);
    origin.let_go(1);
    holder.join().unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn windows_of_http_2_take_no_more_than_the_budget() {
    let (budget, connections) = (64_u64, 100);
    let (origin, gate, holder) = held_site(budget).await;
    let before = resident_bytes(gate.pid());
    let mut flood = Vec::with_capacity(connections);
    while flood.len() < connections || gate.memory("refused_total") <= connections as u64 / 2 {
        assert!(flood.len() < 10 * connections, "the windows of {} connections have room", flood.len());
        let mut connection = Connection::open(gate.port());
        for stream in (1..).step_by(2).take(STREAMS) {
            // It may have been ended already.
            let _ = connection.begin(stream, 200) && connection.data(stream, WINDOW);
        }
        flood.push(connection);
    }
    let peak = peak_bytes(gate.pid());
    assert!(peak - before < (budget << 20) * 9 / 8 + BESIDE, "{before} bytes before, then {peak}");
    drop(flood);
    given_back(&gate, "100 connections of 16 windows of 256 KiB", before);
    origin.let_go(1);
    holder.join().unwrap();
}
