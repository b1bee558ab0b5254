//! Bytes that break the protocol, in every state of a session, crowds, and connections that are killed.
//! Afterwards the gatekeeper lives, holds no capacity and serves as before.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::BytesMut;
use wire::mysql::codec::{self, Sequence};
use wire::mysql::command::{ChangeUser, Command};

use crate::pitfalls::prepare;
use crate::stage::{Stage, capabilities, message, query};
use crate::support::chance::Chance;

const CONNECTIONS: usize = 2;
/// How many mutated dialogues are sent.
const MUTATIONS: u64 = 1_500;
/// The longest that a closed session's last bytes may take to come. Only a hang takes so long.
const READ_BOUND: Duration = Duration::from_secs(60);

fn stage() -> Stage {
    Stage::start(&["connections = 2", "capacity = \"none\"", "long_limit = \"none\""], "")
}

/// A state of a session, and how to reach it.
struct State {
    name: &'static str,
    reach: fn(&Stage) -> UnixStream,
}

const STATES: &[State] = &[
    State { name: "before the greeting is read", reach: connect },
    State { name: "in a half login", reach: half_login },
    State { name: "when asked for another proof", reach: asked_again },
    State { name: "idle", reach: |stage| stage.client().stream },
    State { name: "after BEGIN", reach: |stage| after(stage, &["BEGIN"]) },
    State { name: "in a transaction", reach: |stage| after(stage, &["BEGIN", "SELECT 1"]) },
    State { name: "behind an error of a transaction", reach: |stage| after(stage, &["BEGIN", "SELEC"]) },
    State { name: "pinned", reach: |stage| after(stage, &["SET @a = 1"]) },
    State { name: "with a prepared statement", reach: prepared },
    State { name: "while a statement is on its way", reach: on_its_way },
];

fn connect(stage: &Stage) -> UnixStream {
    UnixStream::connect(stage.socket()).unwrap()
}

fn half_login(stage: &Stage) -> UnixStream {
    let mut stream = connect(stage);
    stream.write_all(&[60, 0, 0, 1, 5, 0, 0]).unwrap();
    stream
}

fn asked_again(stage: &Stage) -> UnixStream {
    let mut session = stage.client();
    session.send(&message(&Command::ChangeUser(change())));
    session.stream
}

fn change() -> ChangeUser<'static> {
    let plugin = Some(&b"mysql_native_password"[..]);
    ChangeUser { user: b"root", proof: &[], database: b"", collation: Some(45), plugin, attributes: None }
}

fn after(stage: &Stage, queries: &[&str]) -> UnixStream {
    let mut session = stage.client();
    for sql in queries {
        session.query(sql);
    }
    session.stream
}

fn prepared(stage: &Stage) -> UnixStream {
    let mut session = stage.client();
    prepare(&mut session, "SELECT ?, ?");
    session.stream
}

fn on_its_way(stage: &Stage) -> UnixStream {
    let mut session = stage.client();
    session.send(&query("SELECT BENCHMARK(20000, MD5('a'))"));
    session.stream
}

fn garbage() -> Vec<Vec<u8>> {
    let mut all = vec![
        vec![0xff; 64],
        vec![0; 1_000],
        b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n".to_vec(),
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03".to_vec(),
        Vec::new(),
        // A header without its payload, and the half of one.
        b"\xff\xff\xff\x00".to_vec(),
        b"\x05\x00".to_vec(),
        // An empty message, and a number that isn't due.
        b"\x00\x00\x00\x00".to_vec(),
        b"\x01\x00\x00\x07\x0e".to_vec(),
    ];
    for code in (0..0x21).chain([0x4d, 0xfa, 0xfe, 0xff]) {
        for body in [&b""[..], &[0xff; 40], &[0; 3], b"\x01\0\0\0\0\x01\0\0\0"] {
            for sequence in [0, 1] {
                let mut out = BytesMut::new();
                codec::write(&mut out, Sequence(sequence), &[&[code], body].concat());
                all.push(out.to_vec());
            }
        }
    }
    all
}

/// Sends bytes and reads all that comes, up to the end. The gate may have closed before.
fn end(mut stream: UnixStream, bytes: &[u8]) {
    stream.set_read_timeout(Some(READ_BOUND)).unwrap();
    let _ = stream.write_all(bytes);
    let _ = stream.shutdown(Shutdown::Write);
    let mut rest = [0; 4_096];
    loop {
        match stream.read(&mut rest) {
            Ok(0) => return,
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::ConnectionReset => return,
            Err(error) => panic!("the session never ended: {error}"),
        }
    }
}

/// Waits until nobody is owed anything, then holds every connection at once to see that none was lost.
fn assert_whole(stage: &Stage, after: &str) {
    stage.gate.assert_alive();
    for name in ["queued", "in_flight", "suspended", "connections_in_use", "connections_pinned"] {
        println!("{after}: {name}");
        stage.until(name, 0);
    }
    stage.until("clients_connected", 0);
    let mut holders: Vec<_> = (0..CONNECTIONS).map(|_| stage.client()).collect();
    for holder in &mut holders {
        holder.query("BEGIN");
        assert_eq!(holder.query("SELECT 1").rows(), "1", "{after}");
    }
    for holder in &mut holders {
        holder.query("COMMIT").ok(capabilities());
    }
}

#[test]
fn garbage_in_every_state_is_answered_or_closed_and_leaves_nothing_behind() {
    let stage = stage();
    for state in STATES {
        for bytes in garbage() {
            println!("{}: {}", state.name, bytes.escape_ascii());
            end((state.reach)(&stage), &bytes);
        }
        for cut in [1, 4, 5, 7] {
            let mut stream = (state.reach)(&stage);
            let _ = stream.write_all(&query("SELECT 1")[..cut]);
        }
        assert_whole(&stage, state.name);
    }
}

#[test]
fn garbage_of_a_waiting_client_leaves_nothing_behind() {
    let stage = stage();
    let waiting: Vec<_> = garbage().into_iter().step_by(7).collect();
    // A login waits for its turn, too. So all log in before the connections are held.
    let mut holders: Vec<_> = (0..CONNECTIONS).map(|_| stage.client()).collect();
    let clients: Vec<_> = waiting.iter().map(|_| stage.client().stream).collect();
    for holder in &mut holders {
        holder.query("BEGIN");
        holder.query("SELECT 1");
    }
    for (mut stream, bytes) in clients.into_iter().zip(&waiting) {
        stream.write_all(&query("SELECT 1")).unwrap();
        end(stream, bytes);
    }
    stage.until("queued", 0);
    drop(holders);
    assert_whole(&stage, "while waiting");
}

/// Breaks bytes in one to three places.
fn mutate(bytes: &mut Vec<u8>, chance: &mut Chance) {
    for _ in 0..=chance.below(3) {
        let at = chance.below(bytes.len() + 1);
        let end = (at + chance.below(8)).min(bytes.len());
        match chance.below(4) {
            0 => drop(bytes.drain(at..end)),
            1 => {
                let again = bytes[at..end].to_vec();
                bytes.splice(at..at, again);
            }
            2 => drop(bytes.splice(at..end, [0xff; 4])),
            _ => {
                if let Some(byte) = bytes.get_mut(at) {
                    *byte ^= 1 << chance.below(8);
                }
            }
        }
    }
}

#[test]
fn mutated_dialogues_leave_nothing_behind() {
    let stage = stage();
    let execute = b"\x12\0\0\0\x17\x01\0\0\0\0\x01\0\0\0\0\x01\x03\0\x05\0\0\0".to_vec();
    let dialogues = [
        query("SELECT 1; SELECT 2"),
        [query("BEGIN"), query("SELECT 1"), query("COMMIT")].concat(),
        [message(&Command::Prepare { sql: b"SELECT ?" }), execute].concat(),
        message(&Command::InitDb { database: b"witness" }),
        message(&Command::ChangeUser(change())),
        [message(&Command::ResetConnection), message(&Command::Ping)].concat(),
        [query("SET time_zone = '+01:00'"), query("SELECT @@time_zone")].concat(),
    ];
    for seed in 0..MUTATIONS {
        let mut chance = Chance::new(seed);
        let mut bytes = chance.choose(&dialogues).clone();
        mutate(&mut bytes, &mut chance);
        println!("seed {seed}: {}", bytes.escape_ascii());
        let stream = if chance.once_in(4) { connect(&stage) } else { stage.client().stream };
        end(stream, &bytes);
    }
    assert_whole(&stage, "after mutated dialogues");
}

#[test]
fn one_client_too_many_is_told_so_and_the_others_are_served() {
    let stage = Stage::start(&["connections = 2", "max_clients = 5"], "");
    let mut clients: Vec<_> = (0..5).map(|_| stage.client()).collect();
    for _ in 0..20 {
        let mut stream = connect(&stage);
        let mut told = Vec::new();
        stream.set_read_timeout(Some(READ_BOUND)).unwrap();
        let _ = stream.read_to_end(&mut told);
        // A header, 0xff, and the error's number.
        assert_eq!(told.get(4..7), Some(&[0xff, 0x10, 0x04][..]), "{}", told.escape_ascii());
    }
    for client in &mut clients {
        assert_eq!(client.query("SELECT 1").rows(), "1");
    }
    drop(clients);
    stage.until("clients_connected", 0);
    assert_eq!(stage.client().query("SELECT 1").rows(), "1");
}

#[test]
fn who_says_nothing_or_half_of_it_is_closed() {
    let stage = Stage::start(&["login_timeout = \"200ms\"", "message_timeout = \"200ms\""], "");
    let silent: Vec<_> = (0..50).map(|_| connect(&stage)).collect();
    let slow: Vec<_> = (0..50)
        .map(|_| {
            let mut stream = stage.client().stream;
            stream.write_all(&query("SELECT 1")[..5]).unwrap();
            stream
        })
        .collect();
    for mut stream in silent.into_iter().chain(slow) {
        stream.set_read_timeout(Some(READ_BOUND)).unwrap();
        let mut rest = Vec::new();
        stream.read_to_end(&mut rest).unwrap();
    }
    stage.until("clients_connected", 0);
    assert_eq!(stage.client().query("SELECT 1").rows(), "1");
}

#[test]
fn what_was_confirmed_is_there_once_though_connections_are_killed() {
    const WORKERS: usize = 4;
    const ROWS: usize = 100;
    let stage = Stage::start(&["connections = 2"], "\"victim\" \"secret\"\n");
    stage.server.query("CREATE OR REPLACE USER victim@'%' IDENTIFIED BY 'secret'").unwrap();
    stage.server.query("GRANT ALL ON witness.* TO victim@'%'").unwrap();
    stage.server.query("CREATE OR REPLACE TABLE witness.killed (worker INT, number INT)").unwrap();
    let over = AtomicBool::new(false);
    let confirmed: Vec<Vec<bool>> = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..WORKERS)
            .map(|worker| {
                scope.spawn({
                    let stage = &stage;
                    move || work(stage, worker, ROWS)
                })
            })
            .collect();
        scope.spawn(|| {
            let mut killer = stage.direct();
            let asked =
                "SELECT id FROM information_schema.processlist WHERE user = 'victim' ORDER BY RAND() LIMIT 1";
            while !over.load(Ordering::Relaxed) {
                let thread = killer.query(asked).rows();
                if !thread.is_empty() {
                    killer.query(&format!("KILL {thread}"));
                }
            }
        });
        let confirmed = workers.into_iter().map(|worker| worker.join().unwrap()).collect();
        over.store(true, Ordering::Relaxed);
        confirmed
    });
    let mut witness = stage.direct();
    for (worker, rows) in confirmed.iter().enumerate() {
        for (number, is_confirmed) in rows.iter().enumerate() {
            let asked = format!("SELECT COUNT(*) FROM killed WHERE worker = {worker} AND number = {number}");
            let found = witness.query(&asked).rows();
            assert!(
                found == "1" || found == "0" && !is_confirmed,
                "{worker} {number}: {found} {is_confirmed}"
            );
        }
    }
    let total: usize = confirmed.iter().flatten().filter(|is_confirmed| **is_confirmed).count();
    println!("confirmed {total} of {}", WORKERS * ROWS);
    assert_whole(&stage, "after the kills");
}

/// Inserts rows, and says which were confirmed. A session ends with an error.
fn work(stage: &Stage, worker: usize, rows: usize) -> Vec<bool> {
    let login = || stage.login("victim", "secret").ok();
    let mut session = login();
    let insert = |number: usize| format!("INSERT INTO killed VALUES ({worker}, {number})");
    (0..rows)
        .map(|number| {
            while session.is_none() {
                session = login();
            }
            let Some(open) = &mut session else { return false };
            let answer = open.query(&insert(number));
            let is_confirmed = answer
                .messages
                .iter()
                .all(|(part, _)| !matches!(part, wire::mysql::response::Part::Error { .. }));
            if !is_confirmed {
                session = None;
            }
            is_confirmed
        })
        .collect()
}
