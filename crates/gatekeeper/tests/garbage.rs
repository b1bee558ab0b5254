//! Bytes that break the protocol, in every state of a session: each is answered with an error or a close,
//! and afterwards the gatekeeper lives, is as small as before, owes nobody anything and serves as if
//! nothing had been.

mod support;

use std::time::{Duration, Instant};

use testbed::postgres::{Authentication, PrivateServerOptions};

use support::chance::Chance;
use support::raw::{Raw, batch, message, parse_and_bind, query, startup, untagged};
use support::{CONNECTIONS, FlatMemory, Stack};

/// A user whom the server lets in without a challenge, and one whom it asks for a password.
const OPEN: &str = "postgres";
const GUARDED: &str = "guarded";
/// How many mutated dialogues are sent, half of them before the login.
const MUTATIONS: u64 = 10_000;
/// How many mutated groups of messages one session is sent after its login.
const GROUPS_PER_SESSION: u64 = 5;
/// How long a state may take to settle. Only a leak takes so long.
const SETTLE_BOUND: Duration = Duration::from_secs(60);
/// The pause between two looks at a condition.
const POLL_INTERVAL: Duration = Duration::from_millis(10);

fn stack() -> Stack {
    let options = PrivateServerOptions {
        authentication: Authentication::Trust,
        access_rules: vec![format!("host all {GUARDED} 127.0.0.1/32 scram-sha-256")],
        ..PrivateServerOptions::default()
    };
    let stack = Stack::start_with(options);
    let setup = format!("CREATE ROLE {GUARDED} LOGIN PASSWORD 'x'; CREATE TABLE filled (a text);");
    stack.server.psql(&setup).expect("the tables are created");
    stack
}

/// A state of a session, and how to reach it.
struct State {
    name: &'static str,
    reach: fn(u16) -> Raw,
    /// Whether messages have no tag yet.
    before_login: bool,
}

const STATES: &[State] = &[
    State { name: "before the start-up message", reach: Raw::connect, before_login: true },
    State { name: "after a refused encryption request", reach: after_encryption_request, before_login: true },
    State { name: "in a half start-up message", reach: half_startup, before_login: true },
    State { name: "during authentication", reach: authenticating, before_login: true },
    State { name: "idle", reach: |port| Raw::login(port, OPEN), before_login: false },
    State { name: "in a batch before Sync", reach: open_batch, before_login: false },
    State { name: "in a flushed batch before Sync", reach: flushed_batch, before_login: false },
    State { name: "in a failed batch before Sync", reach: failed_batch, before_login: false },
    State { name: "while a statement is on its way", reach: on_its_way, before_login: false },
    State { name: "after BEGIN", reach: begun, before_login: false },
    State { name: "in a transaction", reach: in_transaction, before_login: false },
    State { name: "in a failed transaction", reach: failed_transaction, before_login: false },
    State { name: "in COPY in", reach: copy_in, before_login: false },
    State { name: "in COPY in of a batch", reach: copy_in_batch, before_login: false },
    State { name: "in COPY out", reach: copy_out, before_login: false },
];

fn after_encryption_request(port: u16) -> Raw {
    let mut raw = Raw::connect(port);
    raw.send(&untagged(&80_877_103_u32.to_be_bytes()));
    assert_eq!(raw.read_byte(), b'N');
    raw
}

fn half_startup(port: u16) -> Raw {
    let mut raw = Raw::connect(port);
    let whole = startup(OPEN);
    raw.send(&whole[..whole.len() / 2]);
    raw
}

fn authenticating(port: u16) -> Raw {
    let mut raw = Raw::connect(port);
    raw.send(&startup(GUARDED));
    let (tag, body) = raw.read().expect("a challenge");
    assert_eq!((tag, &body[..4]), (b'R', &10_u32.to_be_bytes()[..]), "SASL is asked for");
    raw
}

fn open_batch(port: u16) -> Raw {
    let mut raw = Raw::login(port, OPEN);
    raw.send(&parse_and_bind("SELECT 1"));
    raw
}

fn flushed_batch(port: u16) -> Raw {
    let mut raw = Raw::login(port, OPEN);
    raw.send(&[parse_and_bind("SELECT 1"), message(b'H', b"")].concat());
    raw.read_until(b'2');
    raw
}

fn failed_batch(port: u16) -> Raw {
    let mut raw = Raw::login(port, OPEN);
    raw.send(&[parse_and_bind("SELECT no_such_column"), message(b'H', b"")].concat());
    raw.read_until(b'E');
    raw
}

fn on_its_way(port: u16) -> Raw {
    let mut raw = Raw::login(port, OPEN);
    raw.send(&query("SELECT count(*) FROM generate_series(1, 10000)"));
    raw
}

fn begun(port: u16) -> Raw {
    let mut raw = Raw::login(port, OPEN);
    raw.run("BEGIN", b'T');
    raw
}

fn in_transaction(port: u16) -> Raw {
    let mut raw = begun(port);
    raw.run("SELECT 1", b'T');
    raw
}

fn failed_transaction(port: u16) -> Raw {
    let mut raw = begun(port);
    raw.send(&query("SELECT 1/0"));
    raw.expect_ready(b'E');
    raw
}

fn copy_in(port: u16) -> Raw {
    let mut raw = Raw::login(port, OPEN);
    raw.send(&query("COPY filled FROM STDIN"));
    raw.read_until(b'G');
    raw.send(&message(b'd', b"line\n"));
    raw
}

fn copy_in_batch(port: u16) -> Raw {
    let mut raw = Raw::login(port, OPEN);
    raw.send(
        &[parse_and_bind("COPY filled FROM STDIN"), message(b'E', b"\0\0\0\0\0"), message(b'H', b"")]
            .concat(),
    );
    raw.read_until(b'G');
    raw
}

fn copy_out(port: u16) -> Raw {
    let mut raw = Raw::login(port, OPEN);
    raw.send(&query("COPY (SELECT repeat('x', 1000) FROM generate_series(1, 3000)) TO STDOUT"));
    raw.read_until(b'd');
    raw
}

/// Bytes that are wrong in most states, for messages with a tag or without.
fn garbage(before_login: bool) -> Vec<Vec<u8>> {
    let mut all = vec![
        vec![0xff; 64],
        vec![0; 1000],
        b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n".to_vec(),
        // A TLS handshake that nobody asked for.
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03".to_vec(),
        Vec::new(),
    ];
    // Too short for itself, longer than what follows, longer than anything, negative.
    let alone = [0_u32, 5, 0x3fff_ffff, 0x8000_0000];
    let with_body = [3_u32, 4, 0x7fff_ffff, 0xffff_ffff];
    if before_login {
        for length in [alone, with_body].concat() {
            all.push(length.to_be_bytes().to_vec());
            all.push([&length.to_be_bytes()[..], &[7; 16]].concat());
        }
        for code in
            [0_u32, 0x0002_0000, 0x0003_0000, 0x0003_ffff, 0x0004_0000, 80_877_102, 80_877_103, 80_877_104]
        {
            all.push(untagged(&code.to_be_bytes()));
            all.push(untagged(&[&code.to_be_bytes()[..], b"user"].concat()));
            all.push(untagged(&[&code.to_be_bytes()[..], b"\0\0\0\0\0"].concat()));
        }
        // Encryption is asked for and the handshake is already there: it must not be taken for the login's
        // bytes.
        all.push([untagged(&80_877_103_u32.to_be_bytes()), startup(OPEN)].concat());
    }
    // The answers to a challenge have a tag, so these are for both.
    for tag in *b"BCDEFHPQSXcdfp\0\x7f\xffZ" {
        for length in alone {
            all.push([&[tag], &length.to_be_bytes()[..]].concat());
        }
        for length in with_body {
            all.push([&[tag], &length.to_be_bytes()[..], b"abc\0\xff\xff\x00\x01"].concat());
        }
        all.push(message(tag, b""));
        all.push(message(tag, &[0xff; 40]));
        all.push(message(tag, &[0; 3]));
    }
    all
}

/// Waits until nobody is owed anything, then holds every connection at once to see that none was lost.
fn assert_whole(stack: &Stack, after: &str) {
    if let Some(gate) = stack.gate() {
        gate.assert_alive();
        let deadline = Instant::now() + SETTLE_BOUND;
        let zeros = [
            "load_seconds",
            "queued",
            "in_flight",
            "suspended",
            "long_in_flight",
            "connections_in_use",
            "connections_pinned",
            "clients_connected",
            "clients_logging_in",
        ];
        loop {
            let status = gate.status();
            let left: Vec<_> = zeros.iter().filter(|name| status[**name].as_f64() != Some(0.0)).collect();
            if left.is_empty() {
                break;
            }
            assert!(
                Instant::now() < deadline,
                "{after}: {left:?} never became 0: {status:#}\n{}",
                gate.log_tail()
            );
            std::thread::sleep(POLL_INTERVAL);
        }
    }
    for mut holder in hold_all(stack) {
        holder.run("COMMIT", b'I');
        holder.send(&batch("SELECT 1"));
        holder.expect_ready(b'I');
    }
}

/// Opens a session for each connection. Each session holds its connection by a transaction.
fn hold_all(stack: &Stack) -> Vec<Raw> {
    (0..CONNECTIONS).map(|_| in_transaction(stack.port())).collect()
}

#[test]
fn garbage_in_every_state_is_answered_or_closed_and_leaves_nothing_behind() {
    let stack = stack();
    assert_whole(&stack, "at the start");
    let memory = FlatMemory::start(&stack);
    for state in STATES {
        for bytes in garbage(state.before_login) {
            println!("{}: {}", state.name, bytes.escape_ascii());
            let mut raw = (state.reach)(stack.port());
            raw.send(&bytes);
            if state.before_login { raw.end_before_login() } else { raw.end() }
        }
        // Gone without a word, in the middle of a message.
        for cut in [1, 4, 5, 7] {
            let mut raw = (state.reach)(stack.port());
            let whole = if state.before_login { startup(OPEN) } else { query("SELECT 1") };
            raw.send(&whole[..cut]);
        }
        assert_whole(&stack, state.name);
    }
    memory.assert_flat();
}

#[test]
fn garbage_of_a_waiting_client_leaves_nothing_behind() {
    let stack = stack();
    assert_whole(&stack, "at the start");
    let memory = FlatMemory::start(&stack);
    let mut holders = hold_all(&stack);
    for waits in [query("SELECT 1"), batch("SELECT 1"), [query("BEGIN"), query("SELECT 1")].concat()] {
        for bytes in garbage(false) {
            println!("behind {}: {}", waits.escape_ascii(), bytes.escape_ascii());
            let mut raw = Raw::login(stack.port(), OPEN);
            raw.send(&waits);
            raw.send(&bytes);
            // A client that says good-bye behind its statement wants it done: it waits for its turn.
            if !bytes.starts_with(&message(b'X', b"")) {
                raw.end();
            }
        }
    }
    for holder in &mut holders {
        holder.run("COMMIT", b'I');
    }
    drop(holders);
    assert_whole(&stack, "while waiting");
    memory.assert_flat();
}

#[test]
fn messages_that_arrive_byte_by_byte_are_understood() {
    let stack = stack();
    let mut raw = Raw::connect(stack.port());
    assert!(raw.dribble(&startup(OPEN)));
    raw.expect_ready(b'I');
    for (bytes, state) in [
        (query("SELECT 1"), b'I'),
        (batch("SELECT 'extended'"), b'I'),
        (query("BEGIN"), b'T'),
        (batch("SELECT 2"), b'T'),
        (query("COMMIT"), b'I'),
    ] {
        assert!(raw.dribble(&bytes));
        raw.expect_ready(state);
    }
    assert!(raw.dribble(&query("COPY filled FROM STDIN")));
    raw.read_until(b'G');
    assert!(raw.dribble(&[message(b'd', b"one\ntwo\n"), message(b'c', b"")].concat()));
    raw.expect_ready(b'I');
    drop(raw);
    assert_whole(&stack, "after the dribble");
}

#[test]
fn a_query_behind_an_error_in_a_batch_is_dropped_until_sync() {
    let stack = stack();
    let mut raw = failed_batch(stack.port());
    raw.send(&[query("SELECT 1"), message(b'S', b"")].concat());
    assert_eq!(raw.read_until(b'Z'), b"Z");
    raw.run("SELECT 2", b'I');
}

#[test]
fn a_client_that_leaves_between_its_copy_and_the_servers_request_for_data_keeps_nothing() {
    let stack = stack();
    for copy in [
        query("COPY filled FROM STDIN"),
        batch("COPY filled FROM STDIN"),
        [parse_and_bind("COPY filled FROM STDIN"), message(b'E', b"\0\0\0\0\0")].concat(),
    ] {
        for rest in [Vec::new(), message(b'd', b"one\n"), b"d\0\0".to_vec()] {
            let mut raw = Raw::login(stack.port(), OPEN);
            raw.send(&[copy.clone(), rest].concat());
            raw.end();
        }
    }
    assert_whole(&stack, "after copies without a client");
}

/// Breaks bytes in one to three places.
fn mutate(bytes: &mut Vec<u8>, chance: &mut Chance) {
    for _ in 0..=chance.below(3) {
        let at = chance.below(bytes.len() + 1);
        let end = (at + chance.below(8)).min(bytes.len());
        match chance.below(7) {
            0 => bytes.truncate(at),
            1 => drop(bytes.drain(at..end)),
            2 => {
                let again = bytes[at..end].to_vec();
                bytes.splice(at..at, again);
            }
            3 => {
                let random: Vec<_> = (0..chance.below(9)).map(|_| chance.next().to_be_bytes()[0]).collect();
                bytes.splice(at..at, random);
            }
            4 => {
                // Most likely to hit a length: whole big-endian extremes.
                let extreme = *chance.choose(&[0_u32, 3, 4, 0x7fff_ffff, 0x8000_0000, 0xffff_ffff]);
                let end = (at + 4).min(bytes.len());
                bytes.splice(at..end, extreme.to_be_bytes());
            }
            _ => {
                if let Some(byte) = bytes.get_mut(at) {
                    *byte ^= 1 << chance.below(8);
                }
            }
        }
    }
}

/// Valid messages of before the login.
fn opening_dialogues() -> Vec<Vec<u8>> {
    let encryption = |code: u32| untagged(&code.to_be_bytes());
    vec![
        startup(OPEN),
        startup(GUARDED),
        [startup(OPEN), query("SELECT 1"), message(b'X', b"")].concat(),
        [startup(GUARDED), message(b'p', b"SCRAM-SHA-256\0\0\0\0\x20n,,n=,r=rOprNGfwEbeRWgbNEkqO0123")]
            .concat(),
        encryption(80_877_103),
        encryption(80_877_104),
        untagged(&[80_877_102_u32.to_be_bytes(), 1_u32.to_be_bytes(), 2_u32.to_be_bytes()].concat()),
    ]
}

/// Valid groups of messages of after the login; none of them waits for anything but its own answer.
fn dialogues() -> Vec<Vec<u8>> {
    let named = message(b'P', b"named\0SELECT $1::int4\0\0\x01\0\0\0\x17");
    let bound = message(b'B', b"\0named\0\0\0\0\x01\0\0\0\x0242\0\0");
    let call = message(b'F', b"\0\0\x08\x71\0\0\0\0\0\x01");
    vec![
        query("SELECT 1"),
        query("BEGIN; SELECT 1; COMMIT"),
        [query("BEGIN"), query("SELECT 1/0"), query("ROLLBACK")].concat(),
        [query("BEGIN"), query("SAVEPOINT a"), batch("SELECT 1"), query("ROLLBACK TO a"), query("COMMIT")]
            .concat(),
        batch("SELECT 1"),
        batch("SELECT no_such_column"),
        [parse_and_bind("SELECT generate_series(1, 10)"), message(b'E', b"\0\0\0\0\x03"), message(b'H', b"")]
            .concat(),
        [named, bound, message(b'E', b"\0\0\0\0\0"), message(b'C', b"Snamed\0"), message(b'S', b"")].concat(),
        [query("COPY filled FROM STDIN"), message(b'd', b"one\n"), message(b'c', b"")].concat(),
        [query("COPY filled FROM STDIN"), message(b'd', b"one\n"), message(b'f', b"no\0")].concat(),
        query("COPY (SELECT 1) TO STDOUT"),
        query("SET application_name = 'x'"),
        query("CREATE TEMP TABLE t (a int); DROP TABLE t"),
        query(";"),
        [call, message(b'S', b"")].concat(),
        message(b'S', b""),
        message(b'H', b""),
    ]
}

#[test]
fn ten_thousand_mutated_dialogues_leave_nothing_behind() {
    let stack = stack();
    assert_whole(&stack, "at the start");
    let memory = FlatMemory::start(&stack);
    let seed =
        std::env::var("GATEKEEPER_TEST_SEED").map_or(20_261_121, |text| text.parse().expect("a number"));
    println!("replay with GATEKEEPER_TEST_SEED={seed} cargo test --test garbage ten_thousand");
    let mut chance = Chance::new(seed);
    let (openings, groups) = (opening_dialogues(), dialogues());
    for number in 0..MUTATIONS / 2 {
        let mut bytes = chance.choose(&openings).clone();
        mutate(&mut bytes, &mut chance);
        println!("opening {number}: {}", bytes.escape_ascii());
        let mut raw = Raw::connect(stack.port());
        raw.send(&bytes);
        raw.end_before_login();
    }
    assert_whole(&stack, "after mutated openings");
    for number in 0..MUTATIONS / 2 / GROUPS_PER_SESSION {
        let mut raw = Raw::login(stack.port(), OPEN);
        for _ in 0..GROUPS_PER_SESSION {
            let mut bytes = chance.choose(&groups).clone();
            mutate(&mut bytes, &mut chance);
            println!("session {number}: {}", bytes.escape_ascii());
            raw.send(&bytes);
        }
        raw.end();
    }
    assert_whole(&stack, "after mutated sessions");
    memory.assert_flat();
}
