//! `connections = "auto"` before real servers: what a gate finds, what it never exceeds, and whom it leaves
//! room for.

mod gate;
mod support;

use std::time::{Duration, Instant};

use gate::client::Client;
use serde_json::Value;
use support::Gate;
use testbed::postgres::{Authentication, PrivateServer, PrivateServerOptions, Stop};

/// How long a condition may take to hold. Only a hang takes so long.
const BOUND: Duration = Duration::from_secs(60);
const AUTO: &str = "connections = \"auto\"";
const DATABASE: &str = "postgres";

/// A private server that allows so many connections, three of them to superusers only.
fn server(max_connections: u32) -> PrivateServer {
    server_with(max_connections, &[])
}

fn server_with(max_connections: u32, settings: &[(&str, &str)]) -> PrivateServer {
    let options = PrivateServerOptions {
        authentication: Authentication::Trust,
        max_connections,
        settings: settings.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect(),
        ..PrivateServerOptions::default()
    };
    let server = PrivateServer::start(&options).expect("PostgreSQL starts");
    administrator(&server).run("CREATE ROLE ann LOGIN; CREATE ROLE bob LOGIN");
    server
}

fn gate(server: &PrivateServer, more: &[&str]) -> Gate {
    let lines: Vec<String> = [AUTO].iter().chain(more).map(|line| (*line).to_owned()).collect();
    Gate::start(server.port(), &lines)
}

/// A superuser beside the gate, which may use what is reserved.
fn administrator(server: &PrivateServer) -> Client {
    Client::login(server.port(), "postgres", DATABASE)
}

fn ann(port: u16) -> Client {
    Client::login(port, "ann", DATABASE)
}

/// The gate's ceiling, and why it is that.
fn found(gate: &Gate) -> (u64, String) {
    let status = gate.status();
    let why = status["connections_found"]["why"].as_str().unwrap_or("nothing was found").to_owned();
    (status["connections"].as_u64().expect("a number"), why)
}

/// Waits for a condition, while `again` is done between looks at it.
fn until(what: &str, gate: &Gate, mut again: impl FnMut(), mut condition: impl FnMut(&Value) -> bool) {
    let deadline = Instant::now() + BOUND;
    while !condition(&gate.status()) {
        assert!(Instant::now() < deadline, "never: {what}\n{:#}\n{}", gate.status(), gate.log_tail());
        again();
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Waits until the gate has this ceiling, as clients log in.
fn until_found(gate: &Gate, connections: u64) {
    let login = || {
        let mut client = Client::connect(gate.port());
        client.start("ann", DATABASE);
    };
    until(&format!("{connections} connections"), gate, login, |status| status["connections"] == connections);
}

/// The server processes of clients, beside the one that asks.
fn processes(administrator: &mut Client, condition: &str) -> u64 {
    let sql = format!(
        "SELECT count(*) FROM pg_stat_activity \
         WHERE backend_type = 'client backend' AND pid <> pg_backend_pid() AND {condition}"
    );
    administrator.column(&sql).concat().parse().expect("a count")
}

#[test]
fn a_gate_takes_what_the_server_allows_and_leaves_a_quarter() {
    let server = server(23);
    let gate = gate(&server, &[]);
    assert_eq!(found(&gate), (20, "the server has not been asked yet".to_owned()));
    let mut client = ann(gate.port());
    assert_eq!(
        found(&gate),
        (14, "14 of 20, 1 more to prepare statements on; 5 left for others".to_owned()),
        "{}",
        gate.log_tail()
    );
    assert!(
        gate.log()
            .contains("connections found: 14 of 20, 1 more to prepare statements on; 5 left for others"),
        "{}",
        gate.log()
    );
    let metrics = gate.metrics();
    for (name, value) in [("", "14.0"), ("_allowed", "20.0"), ("_others", "0.0")] {
        let line = format!("gatekeeper_connections{name}{{gate=\"postgres\"}} {value}");
        assert!(metrics.contains(&line), "{line}\n{metrics}");
    }
    client.run("SELECT 1");
}

#[test]
fn however_many_clients_come_the_server_never_has_more_than_was_found_and_the_logins() {
    let server = server(23);
    let gate = gate(&server, &[]);
    let mut watcher = administrator(&server);
    let port = gate.port();
    // Nobody is refused, though each login takes a server connection for a moment.
    let logins: Vec<_> = (0..40).map(|_| std::thread::spawn(move || ann(port))).collect();
    let clients: Vec<_> = logins.into_iter().map(|login| login.join().expect("a login")).collect();
    // One of 20 is the watcher's: 14 at most, one of them to prepare on, and 5 are left.
    until_found(&gate, 13);
    until("surplus has ended", &gate, || {}, |_| processes(&mut watcher, "usename = 'ann'") <= 14);
    let busy: Vec<_> = clients
        .into_iter()
        .map(|mut client| {
            std::thread::spawn(move || (0..20).for_each(|_| client.run("SELECT pg_sleep(0.005)")))
        })
        .collect();
    while busy.iter().any(|client| !client.is_finished()) {
        let held = processes(&mut watcher, "usename = 'ann'");
        assert!(held <= 14, "{held} connections\n{}", gate.log_tail());
    }
    busy.into_iter().for_each(|client| client.join().expect("no client hears an error"));
    let (connections, why) = found(&gate);
    assert_eq!(
        (connections, why.as_str()),
        (13, "13 of 20, 1 more to prepare statements on; others hold 1, 5 more left for them")
    );
}

#[test]
fn what_is_reserved_is_left() {
    let options = PrivateServerOptions {
        binaries: Some(support::postgresql_18()),
        authentication: Authentication::Trust,
        max_connections: 30,
        settings: [("superuser_reserved_connections", "5"), ("reserved_connections", "8")]
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .to_vec(),
        ..PrivateServerOptions::default()
    };
    let server = PrivateServer::start(&options).expect("PostgreSQL starts");
    administrator(&server).run("CREATE ROLE ann LOGIN");
    let gate = gate(&server, &[]);
    let _client = ann(gate.port());
    assert_eq!(found(&gate), (11, "11 of 17, 1 more to prepare statements on; 5 left for others".to_owned()));
}

#[test]
fn a_roles_limit_bounds_its_own_pools() {
    let server = server(60);
    let mut administrator = administrator(&server);
    administrator.run("ALTER ROLE ann CONNECTION LIMIT 9");
    let gate = gate(&server, &[]);
    let mut clients: Vec<_> = (0..12).map(|_| ann(gate.port())).collect();
    clients.iter_mut().for_each(|client| client.run("SELECT 1"));
    let (connections, why) = found(&gate);
    assert_eq!(connections, 6, "{why}");
    assert!(why.starts_with("limits of roles or databases allow 6; the server: "), "{why}");
    until("six are ann's", &gate, || {}, |_| processes(&mut administrator, "usename = 'ann'") == 6);
    // A role without a limit isn't bounded by hers.
    let others: Vec<_> = (0..10).map(|_| Client::login(gate.port(), "bob", DATABASE)).collect();
    until("ten are bob's", &gate, || {}, |_| processes(&mut administrator, "usename = 'bob'") == 10);
    assert!(found(&gate).0 > 16, "{:?}", found(&gate));
    drop(others);
}

#[test]
fn a_databases_limit_bounds_its_own_pools() {
    let server = server(60);
    let mut administrator = administrator(&server);
    administrator.run("CREATE DATABASE shop CONNECTION LIMIT 9");
    let gate = gate(&server, &[]);
    let mut clients: Vec<_> =
        (0..12).map(|number| Client::login(gate.port(), ["ann", "bob"][number % 2], "shop")).collect();
    clients.iter_mut().for_each(|client| client.run("SELECT 1"));
    assert_eq!(found(&gate).0, 6, "{}", found(&gate).1);
    until("six are the shop's", &gate, || {}, |_| processes(&mut administrator, "datname = 'shop'") == 6);
}

#[test]
fn a_gate_makes_room_for_others_that_come_and_takes_it_back_when_they_go() {
    let server = server(23);
    let gate = gate(&server, &[]);
    until_found(&gate, 14);
    let others: Vec<_> = (0..12).map(|_| Client::login(server.port(), "bob", DATABASE)).collect();
    until_found(&gate, 5);
    drop(others);
    until_found(&gate, 14);
}

#[test]
fn a_refused_connection_lowers_the_ceiling_at_once() {
    let server = server(23);
    let gate = gate(&server, &[]);
    let mut clients: Vec<_> = (0..20).map(|_| ann(gate.port())).collect();
    let mut watcher = administrator(&server);
    until("the pool is full", &gate, || {}, |_| processes(&mut watcher, "usename = 'ann'") >= 14);
    // Others take what is left, to the last.
    let mut others = Vec::new();
    loop {
        let mut other = Client::connect(server.port());
        if !other.start("bob", DATABASE).ends_with("Z(I)") {
            break;
        }
        others.push(other);
    }
    let mut refused = Client::connect(gate.port());
    let heard = refused.start("ann", DATABASE);
    assert!(heard.contains("F(53300)"), "{heard}\n{}", gate.log_tail());
    // Asked over an idle connection, without any login: 20, less the others and the watcher.
    let free = 20 - others.len() as u64 - 1;
    let left = free.div_ceil(4).max(3);
    until(
        "the gate has lowered its ceiling",
        &gate,
        || {},
        |status| {
            let taken = free - left;
            status["connections"] == taken - taken / 8
        },
    );
    assert!(gate.log().contains("the server has no connection left"), "{}", gate.log());
    // There is room for a login, too, beside the gate and through it.
    until("surplus is closed", &gate, || {}, |_| processes(&mut watcher, "true") <= 19 - left);
    Client::login(server.port(), "bob", DATABASE).run("SELECT 1");
    ann(gate.port()).run("SELECT 1");
    clients.iter_mut().for_each(|client| client.run("SELECT 1"));
}

#[test]
fn a_role_that_is_refused_a_connection_gives_some_back() {
    let server = server(60);
    let mut administrator = administrator(&server);
    let gate = gate(&server, &[]);
    let mut clients: Vec<_> = (0..12).map(|_| ann(gate.port())).collect();
    administrator.run("ALTER ROLE ann CONNECTION LIMIT 8");
    let heard = Client::connect(gate.port()).start("ann", DATABASE);
    assert!(heard.contains("F(53300)"), "{heard}\n{}", gate.log_tail());
    until("five are left", &gate, || {}, |_| processes(&mut administrator, "usename = 'ann'") == 5);
    ann(gate.port()).run("SELECT 1");
    clients.iter_mut().for_each(|client| client.run("SELECT 1"));
    assert_eq!(found(&gate).0, 5, "{}", found(&gate).1);
}

#[test]
fn a_server_that_comes_back_with_another_limit_is_asked_again() {
    let mut server = server(23);
    let gate = gate(&server, &[]);
    until_found(&gate, 14);
    administrator(&server).run("ALTER SYSTEM SET max_connections = 43");
    server.restart(Stop::Fast).expect("it starts again");
    until_found(&gate, 27);
    administrator(&server).run("ALTER SYSTEM SET max_connections = 13");
    server.restart(Stop::Fast).expect("it starts again");
    until_found(&gate, 7);
}

#[test]
fn two_gates_leave_room_for_each_other_and_for_a_psql() {
    let server = server(10);
    let gates = [gate(&server, &[]), gate(&server, &[])];
    let mut watcher = administrator(&server);
    // The watcher holds one of seven.
    let mut clients = Vec::new();
    let deadline = Instant::now() + BOUND;
    while gates.iter().map(|gate| found(gate).0).sum::<u64>() > 4 {
        assert!(Instant::now() < deadline, "{:?} {:?}", found(&gates[0]), found(&gates[1]));
        for gate in &gates {
            let mut client = Client::connect(gate.port());
            if client.start("ann", DATABASE).ends_with("Z(I)") {
                clients.push(client);
            }
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    // Sessions are many, connections are few.
    for gate in &gates {
        clients.extend((0..4).map(|_| ann(gate.port())));
    }
    let both = gates.each_ref().map(found);
    assert!(both.iter().all(|(connections, _)| (1..=3).contains(connections)), "{both:?}");
    until("surplus has ended", &gates[0], || {}, |_| processes(&mut watcher, "usename = 'ann'") <= 4);
    // Both gates are busy, and anybody can look at the server.
    let ports = gates.each_ref().map(Gate::port);
    let busy: Vec<_> = clients
        .into_iter()
        .map(|mut client| {
            std::thread::spawn(move || (0..40).for_each(|_| client.run("SELECT pg_sleep(0.002)")))
        })
        .collect();
    while busy.iter().any(|client| !client.is_finished()) {
        Client::login(server.port(), "bob", DATABASE).run("SELECT 1");
        assert!(processes(&mut watcher, "usename = 'ann'") <= 4);
        // His process takes a moment to end.
        until("bob has left", &gates[0], || {}, |_| processes(&mut watcher, "usename = 'bob'") == 0);
    }
    busy.into_iter().for_each(|client| client.join().expect("no client hears an error"));
    // A psql beside both while each has a login in progress.
    for port in ports {
        ann(port).run("SELECT 1");
    }
    assert_eq!(server.psql("SELECT 1").expect("psql gets in").trim(), "1");
}

#[test]
fn a_gate_that_observes_judges_with_what_it_would_take_and_bounds_nobody() {
    let server = server(20);
    let gate = gate(&server, &["mode = \"observe\""]);
    let clients: Vec<_> = (0..15).map(|_| ann(gate.port())).collect();
    // Of 17 connections 5 stay free, and one is to prepare on. The clients' connections count as the gate's.
    until_found(&gate, 11);
    assert_eq!(gate.status()["clients_connected"], clients.len());
    assert_eq!(gate.status()["connections_found"]["others"], 0);
}

#[test]
fn a_number_stays_a_number() {
    let server = server(23);
    let gate = Gate::start(server.port(), &["connections = 4".to_owned()]);
    let mut clients: Vec<_> = (0..8).map(|_| ann(gate.port())).collect();
    clients.iter_mut().for_each(|client| client.run("SELECT 1"));
    assert_eq!(found(&gate), (4, "nothing was found".to_owned()));
    let mut watcher = administrator(&server);
    // Another one is to prepare on.
    until("five are the gate's", &gate, || {}, |_| processes(&mut watcher, "usename = 'ann'") == 5);
}

#[test]
fn a_reload_has_connections_found_from_the_next_login_on() {
    let server = server(23);
    let gate = Gate::start(server.port(), &["connections = 4".to_owned()]);
    let _client = ann(gate.port());
    gate.reconfigure(&[AUTO.to_owned()]);
    gate.signal("HUP");
    until_found(&gate, 14);
    gate.reconfigure(&["connections = 4".to_owned()]);
    gate.signal("HUP");
    until("a number again", &gate, || {}, |status| status["connections"] == 4);
}
