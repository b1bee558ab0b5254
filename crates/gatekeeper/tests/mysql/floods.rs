//! Ten thousand logins that never end, and ten thousand with wrong passwords: the gate's memory stays where
//! it was, and sessions that are logged in notice nothing. Long messages take no more than the budget.

use bytes::BytesMut;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpSocket, TcpStream};
use tokio::task::JoinSet;
use wire::mysql::codec::Sequence;
use wire::mysql::command::{self, Command, Query};
use wire::mysql::execute::{Execute, Parameters, push_parameters};
use wire::mysql::handshake::{Response, write_response};

use crate::pitfalls::prepare;
use crate::stage::{Stage, capabilities};
use crate::support::witness::Witness;
use crate::support::{self, resident_bytes};

/// How many there are of each kind.
const FLOOD: usize = 10_000;
/// How many of the wrong passwords are tried at once.
const AT_ONCE: usize = 64;
/// What an unfinished login may cost the gate, in bytes, in a build that isn't optimized.
const HALF_OPEN_BYTES_MAX: u64 = 8 << 10;
/// What may be added to the memory by a second flood, or by one that leaves nothing behind: the allocator's
/// own.
const SLACK_BYTES: u64 = 16 << 20;
const MIB: usize = 1 << 20;
/// What a gate may take beside the budget and its reserve: what is just being read, and the allocator's own.
const BESIDE: u64 = 16 << 20;

/// Room for so many sockets in this process.
fn raise_limit() {
    let limit = rlimit::increase_nofile_limit(2 * FLOOD as u64).unwrap();
    assert!(limit >= FLOOD as u64 + 500, "the process may open only {limit} files (ulimit -Hn)");
}

/// A connection from an address of its own: all of 127.0.0.0/8 is this machine.
async fn connect(port: u16, number: usize) -> TcpStream {
    let socket = TcpSocket::new_v4().unwrap();
    let [high, low] = u16::try_from(number % FLOOD + 256).unwrap().to_be_bytes();
    socket.bind(([127, 1, high, low], 0).into()).unwrap();
    socket.connect(([127, 0, 0, 1], port).into()).await.unwrap()
}

/// The payload of the next packet.
async fn read(stream: &mut TcpStream) -> Vec<u8> {
    let mut header = [0; 4];
    stream.read_exact(&mut header).await.unwrap();
    let length = u32::from_le_bytes([header[0], header[1], header[2], 0]) as usize;
    let mut payload = vec![0; length];
    stream.read_exact(&mut payload).await.unwrap();
    payload
}

fn response(user: &str, plugin: &str) -> BytesMut {
    let mut out = BytesMut::new();
    let response = Response {
        capabilities: capabilities(),
        max_packet: 1 << 24,
        collation: 45,
        user: user.as_bytes(),
        proof: &[7; 20],
        database: None,
        plugin: plugin.as_bytes(),
        attributes: None,
        zstd_level: None,
    };
    write_response(&mut out, Sequence(1), &response);
    out
}

/// A login that stops before its first byte, behind it, behind its header, or when asked for another proof.
async fn half_open(port: u16, number: usize) -> TcpStream {
    let mut stream = connect(port, number).await;
    read(&mut stream).await;
    let hello = response("witness", "another");
    match number % 4 {
        0 => {}
        1 => stream.write_all(&hello[..1]).await.unwrap(),
        2 => stream.write_all(&hello[..4]).await.unwrap(),
        _ => {
            stream.write_all(&hello).await.unwrap();
            assert_eq!(read(&mut stream).await[0], 0xfe);
        }
    }
    stream
}

/// A whole login with a wrong password; the number of the error that is heard then.
async fn wrong_password(port: u16, number: usize) -> u16 {
    let mut stream = connect(port, number).await;
    let mut told = read(&mut stream).await;
    if told[0] != 0xff {
        // Half of them don't exist at all.
        let user = if number % 2 == 0 { "witness" } else { "unknown" };
        stream.write_all(&response(user, "mysql_native_password")).await.unwrap();
        told = read(&mut stream).await;
    }
    assert_eq!(told[0], 0xff);
    u16::from_le_bytes([told[1], told[2]])
}

/// A client that asks as long as a flood lasts.
fn witness(stage: &Stage) -> Witness {
    let mut client = stage.client();
    Witness::start(move || assert_eq!(client.query("SELECT 1").rows(), "1"))
}

fn unfinished(stage: &Stage) -> usize {
    let metrics = stage.gate.metrics();
    let line = metrics.lines().find(|line| line.starts_with("gatekeeper_connections_unfinished"));
    line.and_then(|line| line.rsplit_once(' ')).unwrap().1.parse::<f64>().unwrap() as usize
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_thousand_logins_that_never_end_cost_little_and_hold_up_nobody() {
    raise_limit();
    // Nobody is to be ended before all are there, whatever the machine.
    let stage = Stage::over_tcp(&["login_timeout = \"1h\"", "max_clients = 11000"], "");
    let witness = witness(&stage);
    let before = resident_bytes(stage.gate.pid());
    let mut peaks = Vec::new();
    for round in 0..2 {
        let mut flood = Vec::with_capacity(FLOOD);
        for number in 0..FLOOD {
            flood.push(half_open(stage.gate.port(), number).await);
        }
        support::until("all of them are there", async || unfinished(&stage) == FLOOD).await;
        witness.is_served().await;
        // There is room for clients that do log in.
        assert_eq!(stage.client().query("SELECT 1").rows(), "1");
        peaks.push(resident_bytes(stage.gate.pid()));
        drop(flood);
        support::until("all of them are gone", async || unfinished(&stage) == 0).await;
        println!("flood {round}: {} KiB over {} KiB", (peaks[round] - before) / 1024, before / 1024);
    }
    assert!(peaks[0] - before < FLOOD as u64 * HALF_OPEN_BYTES_MAX, "{before} bytes before, then {peaks:?}");
    assert!(peaks[1] < peaks[0] + SLACK_BYTES, "{before} bytes before, then {peaks:?}");
    witness.end().await;
}

/// Floods the gate, and returns how often each error was heard.
async fn wrong_passwords(port: u16) -> std::collections::BTreeMap<u16, usize> {
    let (mut heard, mut flood) = (std::collections::BTreeMap::new(), JoinSet::new());
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
    let stage = Stage::over_tcp(&["login_failures_max = 1"], "");
    let port = stage.gate.port();
    let witness = witness(&stage);
    let before = resident_bytes(stage.gate.pid());
    let heard = wrong_passwords(port).await;
    assert_eq!(heard.into_iter().collect::<Vec<_>>(), [(1045, FLOOD)]);
    let first = resident_bytes(stage.gate.pid());
    // Once more from the same addresses, which have to wait for a minute after a failure: whether they are
    // tried again depends on the machine.
    let heard = wrong_passwords(port).await;
    assert_eq!(heard.values().sum::<usize>(), FLOOD);
    wrong_password(port, 0).await;
    assert_eq!(wrong_password(port, 0).await, 1129);
    let second = resident_bytes(stage.gate.pid());
    println!("{} KiB, then {} KiB, then {} KiB", before / 1024, first / 1024, second / 1024);
    assert!(
        first < before + SLACK_BYTES && second < first + SLACK_BYTES,
        "{before}, {first}, {second} bytes"
    );
    witness.end().await;
}

/// The most that a process has ever taken, in bytes.
fn peak_bytes(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().strip_suffix("kB").unwrap().trim().parse::<u64>().unwrap() << 10
}

/// Waits until the gate has given memory back, and shows what it took.
fn given_back(stage: &Stage, what: &str, before: u64) {
    let pid = stage.gate.pid();
    let over = |bytes: u64| bytes.saturating_sub(before) / MIB as u64;
    stage.until_holds("memory is given back", || resident_bytes(pid) < before + SLACK_BYTES);
    println!("{what}: {} MiB before, {} more at the peak", before / MIB as u64, over(peak_bytes(pid)));
}

#[test]
fn ten_clients_that_stop_within_a_long_message_take_no_more_than_the_budget() {
    let budget = 128;
    let stage = Stage::start(&["[process]", &format!("memory_max = {budget}")], "");
    let mut witness = stage.client();
    assert_eq!(witness.query("SELECT 1").rows(), "1");
    let before = resident_bytes(stage.gate.pid());
    let mut message = BytesMut::new();
    let sql = vec![b' '; 60 * MIB];
    command::write(&mut message, &Command::Query(Query { attributes: &[], sql: &sql }), capabilities());
    let mut clients: Vec<_> = (0..10).map(|_| stage.client()).collect();
    for client in &mut clients {
        client.send(&message[..50 * MIB]);
        assert_eq!(witness.query("SELECT 1").rows(), "1");
    }
    stage.until_holds("eight have no room", || stage.gate.memory("refused_total") >= 8);
    let peak = peak_bytes(stage.gate.pid());
    assert!(peak - before < (budget << 20) * 9 / 8 + BESIDE, "{before} bytes before, then {peak}");
    drop(clients);
    given_back(&stage, "ten clients with 50 of 60 MiB", before);
}

#[test]
fn a_long_parameter_is_held_once() {
    let stage = Stage::start(&["[process]", "memory_max = 256"], "");
    let mut client = stage.client();
    let statement = prepare(&mut client, "SELECT LENGTH(?)");
    let before = resident_bytes(stage.gate.pid());
    let length = 50 * MIB;
    let values = [&[0xfe][..], &(length as u64).to_le_bytes(), &vec![b'x'; length]];
    let mut rest = BytesMut::new();
    let types = Some(&[0xfc, 0][..]);
    let parameters = Parameters { count: 1, nulls: &[0], types, values: &values.concat() };
    push_parameters(&mut rest, &parameters, capabilities());
    let execute = Execute { statement, flags: 0, iterations: 1, rest: &rest };
    let answer = client.command(&Command::Execute(execute));
    assert_eq!(answer.row(0)[2..6], u32::try_from(length).unwrap().to_le_bytes());
    let peak = peak_bytes(stage.gate.pid());
    println!("{} MiB over {} MiB", (peak - before) >> 20, before >> 20);
    assert!(peak - before < length as u64 + BESIDE, "{before} bytes before, then {peak}");
    given_back(&stage, "a parameter of 50 MiB", before);
}
