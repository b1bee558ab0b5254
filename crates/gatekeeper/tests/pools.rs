//! Several users and databases on one gate: each has a pool of its own, nothing is mixed, and the budget of
//! server connections holds for all of them together.

mod gate;
mod support;

use std::os::unix::fs::PermissionsExt as _;
use std::panic::AssertUnwindSafe;
use std::sync::atomic::{AtomicBool, Ordering};

use gate::client::{Client, parse, query, sync, use_of};
use gate::{DATABASE, Scene};

/// A request of some milliseconds.
const SHORT: &str = "SELECT count(*) FROM generate_series(1, 20000)";
/// The gate's budget.
const CONNECTIONS: usize = 4;

#[test]
fn users_and_databases_have_pools_of_their_own_within_one_budget() {
    let scene = Scene::start("alice", &[&format!("connections = {CONNECTIONS}")]);
    scene.setup("CREATE ROLE bob SUPERUSER LOGIN");
    scene.setup("CREATE DATABASE second");
    let port = scene.gate.port();
    let mut sessions = Vec::new();
    for round in 0..3 {
        for (user, database) in [("alice", "postgres"), ("alice", "second"), ("bob", "postgres")] {
            let mut session = Client::login(port, user, database);
            session.run(&format!("SET statement_timeout = '{}s'", 100 + sessions.len()));
            session.run(&format!("SET application_name = '{user} {round}'"));
            let identity = "SELECT current_user || ' ' || current_database()";
            assert_eq!(session.ask(&[parse("s", identity), sync()].concat()), "1 Z(I)");
            sessions.push((session, user, database, round));
        }
    }
    let open = "SELECT count(*) FROM pg_stat_activity WHERE usename IN ('alice', 'bob')";
    for _ in 0..3 {
        for (index, (session, user, database, round)) in sessions.iter_mut().enumerate() {
            let identity = format!("2 D({user} {database}) C(SELECT 1) Z(I)");
            assert_eq!(session.ask(&[use_of("s"), sync()].concat()), identity);
            let timeout = format!("{}s", 100 + index);
            assert_eq!(session.column("SHOW statement_timeout"), [timeout]);
            assert_eq!(session.column("SHOW application_name"), [format!("{user} {round}")]);
        }
    }
    let status = scene.settled();
    let pools = status["pools"].as_array().expect("pools");
    assert_eq!(pools.len(), 3, "{status:#}");
    let sum = |name: &str| pools.iter().filter_map(|pool| pool[name].as_u64()).sum::<u64>() as usize;
    assert!(sum("connections") <= CONNECTIONS && sum("spare") <= pools.len(), "{status:#}");
    scene.until("the server has no more processes than the budget and the spare ones", || {
        scene.see(open).concat().parse::<usize>().is_ok_and(|count| count <= CONNECTIONS + sum("spare"))
    });
}

#[test]
fn what_start_up_sets_and_is_not_tracked_keeps_pools_apart() {
    let scene = Scene::start("carol", &["connections = 2"]);
    let port = scene.gate.port();
    let mut plain = scene.client();
    let mut exact = Client::connect(port);
    let parameters = [("user", "carol"), ("database", "postgres"), ("extra_float_digits", "-3")];
    assert_eq!(exact.start_with(&parameters), "Z(I)");
    for _ in 0..2 {
        assert_eq!(plain.column("SHOW extra_float_digits"), ["1"]);
        assert_eq!(exact.column("SHOW extra_float_digits"), ["-3"]);
    }
    assert_eq!(scene.settled()["pools"].as_array().map(Vec::len), Some(2));
}

#[test]
fn an_idle_connection_moves_to_a_pool_whose_short_requests_wait() {
    let users = tempfile::tempdir().expect("a directory");
    let path = users.path().join("users.txt");
    std::fs::write(&path, "\"erin\" \"\"\n\"frank\" \"\"\n").expect("a file");
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).expect("its mode");
    let file = format!("users_file = \"{}\"", path.display());
    let scene = Scene::start("erin", &["connections = 4", "long_limit = 3", "auth = \"trust\"", &file]);
    scene.setup("CREATE ROLE frank SUPERUSER LOGIN");
    let port = scene.gate.port();
    let mut longs: Vec<Client> = (0..2).map(|_| Client::login(port, "frank", DATABASE)).collect();
    let mut shorts: Vec<Client> = (0..10).map(|_| scene.client()).collect();
    for session in shorts.iter_mut().chain(&mut longs) {
        (0..20).for_each(|_| session.run(SHORT));
    }
    (0..3).for_each(|_| longs[0].run("SELECT pg_sleep(0.2)"));
    let sizes = || {
        let status = scene.gate.status();
        let of = |user: &str| {
            let pools = status["pools"].as_array().expect("pools");
            pools.iter().find(|pool| pool["user"] == user).and_then(|pool| pool["connections"].as_u64())
        };
        (of("frank"), of("erin"))
    };
    scene.until("equal shares", || sizes() == (Some(2), Some(2)));
    longs.iter_mut().for_each(|session| session.send(&query("SELECT pg_sleep(600)")));
    scene.until("one runs, and the other waits for the connection that shorts can have", || {
        let status = scene.gate.status();
        status["long_in_flight"] == 1 && status["queued"] == 1
    });
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for session in &mut shorts {
            let stop = &stop;
            scope.spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    session.run(SHORT);
                }
            });
        }
        let moved = std::panic::catch_unwind(AssertUnwindSafe(|| {
            scene.until("the idle connection has moved", || sizes() == (Some(1), Some(3)));
        }));
        stop.store(true, Ordering::Relaxed);
        moved.expect("it moves");
    });
    scene.setup("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'frank'");
}

#[test]
fn who_sends_shorts_and_longs_over_one_connection_is_counted_while_it_waits_with_a_long() {
    let scene = Scene::start("dave", &["connections = 8", "long_limit = 1"]);
    let figure = |name: &str| {
        let metrics = scene.gate.metrics();
        let line = metrics.lines().find(|line| line.starts_with(&format!("gatekeeper_{name}{{")));
        line.and_then(|line| line.rsplit(' ').next()?.parse::<f64>().ok())
            .unwrap_or_else(|| panic!("{metrics}"))
    };
    let mut sessions: Vec<Client> = (0..6).map(|_| scene.client()).collect();
    for session in &mut sessions {
        (0..20).for_each(|_| session.run("SELECT 1"));
    }
    let mut worker = scene.client();
    (0..3).for_each(|_| worker.run("SELECT pg_sleep(0.3)"));
    scene.until("they mix, and a client of longs alone doesn't", || figure("clients_mixing") == 6.0);
    worker.send(&query("SELECT pg_sleep(600)"));
    scene.until_runs("pg_sleep(600)");
    for session in &mut sessions {
        session.send(&query("SELECT pg_sleep(0.1)"));
    }
    let mut other = scene.client();
    other.send(&query("SELECT pg_sleep(0.2)"));
    scene.until_queued(7);
    assert_eq!(figure("clients_mixing_waiting"), 6.0);
    sessions.truncate(4);
    drop(other);
    scene.until("two have left", || figure("clients_mixing_waiting") == 4.0);
    scene.terminate("query LIKE '%pg_sleep(600)%'");
    for session in &mut sessions {
        let answers = session.answers();
        assert!(answers.ends_with("C(SELECT 1) Z(I)"), "{answers}");
    }
    assert_eq!(figure("clients_mixing_waiting"), 0.0);
    sessions.clear();
    scene.until("nobody mixes", || figure("clients_mixing") == 0.0);
}
