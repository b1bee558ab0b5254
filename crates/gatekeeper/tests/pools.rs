//! Several users and databases on one gate: each has a pool of its own, nothing is mixed, and the budget of server
//! connections holds for all of them together.

mod gate;
mod support;

use gate::Scene;
use gate::client::{Client, parse, sync, use_of};

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
    scene.until("the server has no more processes than the budget", || {
        scene.see(open).concat().parse::<usize>().is_ok_and(|count| count <= CONNECTIONS)
    });
    let status = scene.settled();
    let pools = status["pools"].as_array().expect("pools");
    assert_eq!(pools.len(), 3, "{status:#}");
    assert!(gate::pooled(&status) as usize <= CONNECTIONS, "{status:#}");
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
