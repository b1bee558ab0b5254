//! What an operator does to a gate, and what happens around it: observe mode, reload, drain, and a server
//! that crashes.

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use testbed::mariadb::PrivateMariadb;
use wire::mysql::capabilities::Status;
use wire::mysql::response::Part;

use crate::pitfalls::{one, prepare, run};
use crate::session::Session;
use crate::stage::{Door, Stage, capabilities};

fn has_failed(session: &mut Session, sql: &str) -> bool {
    let answer = session.query(sql);
    matches!(answer.messages.last(), Some((Part::Error { .. }, _)))
}

#[test]
fn what_would_have_waited_for_a_connection_runs_at_once_and_is_told() {
    let lines = ["mode = \"observe\"", "connections = 1", "queue_max = 1", "pinned_max = 1"];
    let stage = Stage::start(&lines, "");
    let (mut holder, mut waiter, mut refused) = (stage.client(), stage.client(), stage.client());
    stage.until("in_flight", 0);
    let before = stage.gate.status()["requests"]["succeeded_total"].as_u64().unwrap();
    holder.query("CREATE OR REPLACE TABLE observed (v INT)");
    assert!(holder.query("BEGIN").ok(capabilities()).status.contains(Status::IN_TRANSACTION));
    holder.query("INSERT INTO observed VALUES (1)").ok(capabilities());
    // With one connection, which the open transaction holds, the next would wait, and the one after be
    // refused.
    assert_eq!(waiter.query("SELECT 2").rows(), "2");
    assert_eq!(refused.query("SELECT 3").rows(), "3");
    let status = stage.gate.status();
    assert_eq!(status["mode"], "observe");
    assert_eq!((&status["in_flight"], &status["queued"]), (&1.into(), &1.into()), "{status}");
    assert_eq!(status["requests"]["rejected_by_reason"]["queue_full"], 1, "{status}");
    holder.query("COMMIT").ok(capabilities());
    stage.until_holds("the shadow is done with all", || {
        let status = stage.gate.status();
        let done = status["requests"]["succeeded_total"].as_u64().unwrap() - before;
        done == 4 && status["in_flight"] == 0 && status["queued"] == 0
    });
    let types = stage.gate.types().to_string();
    assert!(types.contains("witness: BEGIN; "), "{types}");
}

#[test]
fn while_it_only_observes_a_gate_leaves_each_session_its_connection() {
    let stage = Stage::start(&["mode = \"observe\"", "connections = 1", "pinned_max = 1"], "");
    let (mut first, mut second) = (stage.client(), stage.client());
    let thread = first.query("SELECT CONNECTION_ID()").rows();
    // What would pin a session, and what would be asked for.
    first.query("SET @mine = 5");
    first.query("CREATE TEMPORARY TABLE own (v INT AUTO_INCREMENT PRIMARY KEY)");
    let statement = prepare(&mut first, "SELECT @mine");
    for _ in 0..3 {
        second.query("SET @mine = 7");
        assert_eq!(second.query("SELECT 1 UNION SELECT 2").rows(), "1\n2");
        first.query("SET NAMES latin1");
        first.query("INSERT INTO own VALUES ()");
        assert_eq!(first.query("SELECT ROW_COUNT()").rows(), "1");
        assert_eq!(second.query("SELECT FOUND_ROWS()").rows(), "2");
        // A header, a bitmap, and the number.
        assert_eq!(run(&mut first, statement).row(0)[2], 5);
        assert_eq!(first.query("SELECT CONNECTION_ID()").rows(), thread);
    }
    assert_eq!(first.query("SELECT COUNT(*) FROM own").rows(), "3");
    assert_eq!(stage.gate.status()["connections_pinned"], 0);
    let asked = format!("SELECT COUNT(*) FROM information_schema.processlist WHERE id = {thread}");
    let mut witness = stage.direct();
    drop(first);
    stage.until_holds("its connection ends with the session", || witness.query(&asked).rows() == "0");
}

/// Runs `gatekeeper` with the gate's admin socket; its exit status, and what it said.
fn command(stage: &Stage, name: &str, more: &[&str]) -> (Option<i32>, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_gatekeeper"));
    command.args([name, "--admin", &stage.gate.admin_socket()]).args(more);
    let output = command.output().unwrap();
    let said = [output.stdout, output.stderr].concat();
    (output.status.code(), String::from_utf8(said).unwrap())
}

#[test]
fn a_pause_holds_up_all_but_who_holds_a_lock_and_lets_what_is_in_flight_end() {
    let stage = Stage::start(&["connections = 3", "pinned_max = 2", "queue_timeout = \"1h\""], "");
    let (mut holder, mut waiter, mut late) = (stage.client(), stage.client(), stage.client());
    // The session has another reason to keep its connection before it holds a lock.
    holder.query("SET @mine = 5");
    assert_eq!(holder.query("SELECT GET_LOCK('mine', 0)").rows(), "1");
    std::thread::scope(|scope| {
        let waits = scope.spawn(|| waiter.query("SELECT GET_LOCK('mine', 3600)").rows());
        stage.until("in_flight", 1);
        let paused = scope.spawn(|| command(&stage, "pause", &[]));
        stage.until_holds("it is held up", || stage.gate.status()["paused"] == serde_json::json!(["*"]));
        let held = scope.spawn(|| late.query("SELECT 2").rows());
        stage.until("queued", 1);
        // The request in flight waits for this lock.
        assert_eq!(holder.query("SELECT RELEASE_LOCK('mine')").rows(), "1");
        assert_eq!(waits.join().unwrap(), "1");
        let (code, said) = paused.join().unwrap();
        assert!(code == Some(0) && said.contains("paused: no request is in flight"), "{said}");
        assert_eq!(stage.gate.status()["queued"], 1);
        assert!(
            stage.gate.metrics().contains("gatekeeper_paused{gate=\"mysql\"} 1"),
            "{}",
            stage.gate.metrics()
        );
        let (code, said) = command(&stage, "pause", &[]);
        assert!(code == Some(1) && said.contains("already paused"), "{said}");
        let (code, said) = command(&stage, "pause", &["--database", "witness"]);
        assert!(code == Some(1) && said.contains("pause the whole gate"), "{said}");
        assert_eq!(command(&stage, "resume", &[]).0, Some(0));
        assert_eq!(held.join().unwrap(), "2");
    });
    let (code, said) = command(&stage, "resume", &[]);
    assert!(code == Some(1) && said.contains("not paused"), "{said}");
}

#[test]
fn who_waits_through_a_pause_for_too_long_is_told_so() {
    let stage = Stage::start(&["queue_timeout = \"100ms\""], "");
    let mut session = stage.client();
    stage.until("in_flight", 0);
    assert_eq!(command(&stage, "pause", &[]).0, Some(0));
    let told = session.query("SELECT 1").error();
    assert!(told.code == 1205 && told.message.contains("requests are paused"), "{}", told.message);
    assert!(told.message.contains("let requests go on (RESUME)."), "{}", told.message);
    assert_eq!(command(&stage, "resume", &[]).0, Some(0));
    assert_eq!(session.query("SELECT 1").rows(), "1");
}

#[test]
fn a_drain_while_a_gate_is_paused_ends_in_time_and_answers_those_that_wait() {
    let mut stage = Stage::start(&["queue_timeout = \"1h\"", "drain_timeout = \"100ms\""], "");
    let mut session = stage.client();
    stage.until("in_flight", 0);
    assert_eq!(command(&stage, "pause", &[]).0, Some(0));
    std::thread::scope(|scope| {
        let waits = scope.spawn(|| session.query("SELECT 1").error());
        stage.until("queued", 1);
        assert_eq!(command(&stage, "drain", &[]).0, Some(0));
        let told = waits.join().unwrap();
        assert_eq!(told.code, 1053, "{}", told.message);
    });
    assert_eq!(stage.gate.wait().code(), Some(0));
}

#[test]
fn a_reload_changes_bounds_and_users_and_sessions_go_on() {
    let stage = Stage::start(&["connections = 1", "max_clients = 1"], "\"later\" \"old\"\n");
    stage.server.query("CREATE OR REPLACE USER later@'%' IDENTIFIED BY 'new'").unwrap();
    stage.server.query("GRANT ALL ON witness.* TO later@'%'").unwrap();
    let mut session = stage.client();
    session.query("SET time_zone = '+05:00'");
    session.query("CREATE OR REPLACE TABLE reloaded (v INT)");
    session.query("BEGIN");
    session.query("INSERT INTO reloaded VALUES (1)");
    assert_eq!(stage.turned_away(), 1040);
    stage.reload(&["connections = 2", "max_clients = 3"], "\"later\" \"new\"\n");
    stage.until("connections", 2);
    let mut later = stage.login("later", "new").unwrap();
    assert_eq!(later.query("SELECT COUNT(*) FROM reloaded").rows(), "0");
    session.query("COMMIT").ok(capabilities());
    assert_eq!(later.query("SELECT COUNT(*) FROM reloaded").rows(), "1");
    assert_eq!(session.query("SELECT @@time_zone").rows(), "+05:00");
    // A file that is wrong changes nothing.
    stage.reload(&["connections = 5", "max_clients = 3"], "later\n");
    stage.until_holds("it is told", || stage.gate.log().contains("does not begin with a user in quotes"));
    assert_eq!(stage.gate.status()["connections"], 2);
    assert_eq!(stage.login("later", "new").unwrap().query("SELECT 1").rows(), "1");
}

#[test]
fn a_gate_that_drains_lets_transactions_end_and_tells_idle_sessions() {
    let mut stage = Stage::start(&["connections = 2", "drain_timeout = \"1h\""], "");
    let (mut open, mut idle) = (stage.client(), stage.client());
    open.query("CREATE OR REPLACE TABLE drained (v INT)");
    open.query("BEGIN");
    open.query("INSERT INTO drained VALUES (1)");
    stage.gate.signal("TERM");
    // Nothing was asked: the error comes by itself.
    let mut told = Vec::new();
    std::io::Read::read_to_end(&mut idle.stream, &mut told).unwrap();
    assert_eq!(told.get(4..7), Some(&[0xff, 0x1d, 0x04][..]), "{}", told.escape_ascii());
    open.query("INSERT INTO drained VALUES (2)");
    // The gate says good-bye behind the answer.
    open.send(b"\x07\0\0\0\x03COMMIT");
    let mut told = Vec::new();
    std::io::Read::read_to_end(&mut open.stream, &mut told).unwrap();
    assert_eq!(told.get(4), Some(&0), "{}", told.escape_ascii());
    assert!(stage.gate.wait().success());
    let count = stage.server.query("SELECT COUNT(*) FROM witness.drained").unwrap();
    assert_eq!(count, "2");
}

/// How often the server crashes.
const CRASHES: usize = 5;
const WORKERS: usize = 4;

#[test]
fn what_was_confirmed_is_there_once_though_the_server_crashes() {
    let server = PrivateMariadb::start(&["--innodb-flush-log-at-trx-commit=2"]).unwrap();
    let mut stage = Stage::in_front_of(server, &["connections = 2"]);
    stage.server.query("CREATE TABLE witness.crashed (worker INT, number INT)").unwrap();
    let confirmed: Vec<Mutex<Vec<usize>>> = (0..WORKERS).map(|_| Default::default()).collect();
    let over = AtomicBool::new(false);
    let door = stage.door();
    std::thread::scope(|scope| {
        for (worker, confirmed) in confirmed.iter().enumerate() {
            let (door, over) = (&door, &over);
            scope.spawn(move || work(worker, confirmed, door, over));
        }
        let done = || confirmed.iter().map(|of| of.lock().unwrap().len()).collect::<Vec<_>>();
        for _ in 0..CRASHES {
            let before = done();
            stage.until_holds("each worker has got on", || {
                done().iter().zip(&before).all(|(now, before)| now > before)
            });
            let server = Arc::get_mut(&mut stage.server).unwrap();
            server.kill().unwrap();
            server.start_again().unwrap();
        }
        let before = done();
        stage.until_holds("each worker has got on", || {
            done().iter().zip(&before).all(|(now, before)| now > before)
        });
        over.store(true, Ordering::Relaxed);
    });
    for (worker, confirmed) in confirmed.iter().enumerate() {
        let sql = format!("SELECT number FROM witness.crashed WHERE worker = {worker} ORDER BY number");
        let found: Vec<usize> =
            stage.server.query(&sql).unwrap().lines().map(|number| number.parse().unwrap()).collect();
        let once: BTreeSet<_> = found.iter().copied().collect();
        assert_eq!(once.len(), found.len(), "a row was written twice");
        let lost: Vec<_> =
            confirmed.lock().unwrap().iter().filter(|it| !once.contains(it)).copied().collect();
        assert!(lost.is_empty(), "of worker {worker}: {lost:?}");
    }
    for name in ["queued", "in_flight", "connections_in_use", "clients_connected"] {
        stage.until(name, 0);
    }
}

/// Writes numbers, each in a transaction of its own, and notes which were confirmed.
fn work(worker: usize, confirmed: &Mutex<Vec<usize>>, door: &Door, over: &AtomicBool) {
    let mut session = None;
    let mut number = 0;
    while !over.load(Ordering::Relaxed) {
        let Some(open) = &mut session else {
            session = door.login();
            continue;
        };
        number += 1;
        let insert = format!("INSERT INTO witness.crashed VALUES ({worker}, {number})");
        let texts =
            if number % 2 == 0 { vec![insert] } else { vec!["BEGIN".into(), insert, "COMMIT".into()] };
        if texts.iter().any(|sql| has_failed(open, sql)) {
            session = None;
        } else {
            confirmed.lock().unwrap().push(number);
        }
    }
}

#[test]
fn why_a_statement_was_refused_is_told_by_the_trace_in_its_comment() {
    let stage = Stage::start(&["connections = 1", "queue_timeout = \"200ms\""], "");
    let (mut holder, mut waiter) = (stage.client(), stage.client());
    holder.query("CREATE OR REPLACE TABLE kept_up (v INT)");
    holder.query("BEGIN");
    holder.query("INSERT INTO kept_up VALUES (1)").ok(capabilities());
    let trace = "4bf92f3577b34da6a3ce929d0e0e4736";
    let text = format!("SELECT 'secret' /*traceparent='00-{trace}-00f067aa0ba902b7-01'*/");
    assert!(has_failed(&mut waiter, &text));
    let mut why = Command::new(env!("CARGO_BIN_EXE_gatekeeper"));
    why.args(["why", trace, "--json", "--admin", &stage.gate.admin_address()]);
    let told = why.env_remove("GATEKEEPER_ADMIN").output().unwrap();
    let told: serde_json::Value = serde_json::from_slice(&told.stdout).unwrap();
    let [one] = told["requests"].as_array().unwrap().as_slice() else { panic!("{told}") };
    assert_eq!((&one["state"], &one["reason"]), (&"refused".into(), &"queue_timeout".into()), "{told}");
    assert_eq!(
        (&one["waited_for"][0]["what"], &one["trace"]),
        (&"connections".into(), &trace.into()),
        "{told}"
    );
    assert!(!told.to_string().contains("secret"), "{told}");
    holder.query("ROLLBACK");
}

#[test]
fn a_scrape_tells_of_requests_logins_changes_of_session_and_types() {
    let stage = one();
    let mut sessions = [stage.client(), stage.client()];
    assert_eq!(stage.login(stage.server.user(), "wrong").err().unwrap().code, 1045);
    let scraped = || -> BTreeMap<String, f64> {
        let text = stage.gate.metrics();
        let series = text.lines().filter(|line| !line.starts_with('#'));
        series
            .filter_map(|line| line.rsplit_once(' '))
            .map(|(name, figure)| (name.to_owned(), figure.parse().unwrap()))
            .collect()
    };
    stage.until_holds("logins are counted", || {
        let text = stage.gate.metrics();
        let told = |outcome| format!("gatekeeper_logins_total{{gate=\"mysql\",outcome=\"{outcome}\"}}");
        text.contains(&(told("success") + " 2\n")) && text.contains(&(told("failure") + " 1\n"))
    });
    stage.until("in_flight", 0);
    let before = scraped();
    for _ in 0..3 {
        sessions.iter_mut().for_each(|session| assert_eq!(session.query("SELECT 40 + 2").rows(), "42"));
    }
    assert!(has_failed(&mut sessions[0], "SELECT nothing"));
    stage.until("in_flight", 0);
    let after = scraped();
    let info = after.keys().find(|name| name.ends_with(",text=\"witness: select ? + ?\"}")).unwrap();
    let id = info.split('"').nth(3).unwrap();
    for (series, more) in [
        ("requests_total{gate=\"mysql\",outcome=\"success\"}".to_owned(), 6.0),
        ("requests_total{gate=\"mysql\",outcome=\"failure\"}".to_owned(), 1.0),
        ("upstream_time_seconds_count{gate=\"mysql\"}".to_owned(), 7.0),
        (format!("type_requests_total{{gate=\"mysql\",type=\"{id}\",outcome=\"success\"}}"), 6.0),
        (
            // Sessions of all users share one pool.
            "pool_session_changes_total{gate=\"mysql\",user=\"\",database=\"\",how=\"reset\"}".to_owned(),
            7.0,
        ),
    ] {
        let series = format!("gatekeeper_{series}");
        let of = |scraped: &BTreeMap<String, f64>| scraped.get(&series).copied().unwrap_or_default();
        assert!((of(&after) - of(&before) - more).abs() < 0.1, "{series}: {} {}", of(&before), of(&after));
    }
}
