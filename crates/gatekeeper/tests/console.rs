//! The console in front of a real PostgreSQL: what psql, drivers and raw bytes get from it, who may use it,
//! and what PAUSE, RESUME, KILL, RELOAD and SHUTDOWN do to sessions under load.

// Helpers of tests panic as tests do; clippy only knows functions marked as tests.
#![allow(clippy::panic)]

mod gate;
mod support;

use std::process::{Command, Output};

use gate::Scene;
use gate::client::{
    Client, bind, bind_to, close, describe, execute, fetch, group, parse, query, sync, synced,
};
use support::{Gate, python};

/// The virtual database.
const CONSOLE: &str = "gatekeeper";
const LISTS: [&str; 16] = [
    "HELP",
    "VERSION",
    "CONFIG",
    "POOLS",
    "CLIENTS",
    "SERVERS",
    "DATABASES",
    "USERS",
    "LISTS",
    "STATE",
    "STATS",
    "STATS_TOTALS",
    "STATS_AVERAGES",
    "TYPES",
    "QUEUE",
    "PINNED",
];

/// A gate whose user is its console's admin.
fn scene(user: &str, settings: &[&str]) -> Scene {
    let admins = format!("admin_users = [\"{user}\", \"admin_of_{user}\"]");
    Scene::start(user, &[&[admins.as_str()], settings].concat())
}

fn console(scene: &Scene) -> Client {
    Client::login(scene.gate.port(), &scene.user, CONSOLE)
}

/// One value of a list: of the row whose first column is this, the column of this name.
fn value(console: &mut Client, list: &str, first: &str, column: &str) -> Option<String> {
    let rows = console.rows(&format!("SHOW {list}"));
    rows.iter().find(|row| row[0].1 == first).map(|row| named(row, column))
}

fn psql(port: u16, (user, password): (&str, &str), database: &str, command: &str) -> Output {
    Command::new("psql")
        .args(["-X", "-h", "127.0.0.1", "-p", &port.to_string(), "-U", user, "-d", database, "-c", command])
        .env("PGPASSWORD", password)
        .output()
        .expect("psql is installed (`make setup`)")
}

#[test]
fn psql_sees_every_list_and_pgbouncers_columns() {
    let server = testbed::postgres::PrivateServer::start(&testbed::postgres::PrivateServerOptions::default());
    let server = server.expect("PostgreSQL starts");
    server
        .psql("CREATE ROLE watcher LOGIN PASSWORD 'w'; CREATE ROLE stranger LOGIN PASSWORD 's'")
        .expect("it runs");
    let admin = (server.user(), server.password());
    let settings = [format!("admin_users = {:?}", admin.0), "stats_users = [\"watcher\"]".to_owned()];
    let gate = Gate::start(server.port(), &settings);
    let port = gate.port();
    let used = psql(port, admin, "postgres", "SELECT 'a secret'");
    assert!(used.status.success(), "{used:?}");
    for list in LISTS {
        let shown = psql(port, admin, CONSOLE, &format!("SHOW {list}"));
        assert!(shown.status.success() && shown.stderr.is_empty(), "{list}: {shown:?}");
        assert!(!String::from_utf8_lossy(&shown.stdout).contains("secret"), "{shown:?}");
    }
    let header = |list: &str| {
        let shown = psql(port, ("watcher", "w"), CONSOLE, list);
        let text = String::from_utf8(shown.stdout).expect("it is text");
        let header = text.lines().next().unwrap_or_default().to_owned();
        header.split('|').map(|name| name.trim().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(
        header("show pools"),
        [
            "database",
            "user",
            "cl_active",
            "cl_waiting",
            "cl_active_cancel_req",
            "cl_waiting_cancel_req",
            "sv_active",
            "sv_active_cancel",
            "sv_being_canceled",
            "sv_idle",
            "sv_used",
            "sv_tested",
            "sv_login",
            "maxwait",
            "maxwait_us",
            "pool_mode"
        ]
    );
    let named = psql(port, ("watcher", "w"), "pgbouncer", "SHOW VERSION");
    assert!(named.status.success(), "{named:?}");
    assert_eq!(header("SHOW STATS")[..3], ["database", "total_xact_count", "total_query_count"]);
    assert_eq!(header("SHOW CONFIG"), ["key", "value", "default", "changeable"]);

    // The users that may come, and what they may do.
    let said = |output: &Output| String::from_utf8_lossy(&output.stderr).into_owned();
    let refused = psql(port, ("watcher", "w"), CONSOLE, "PAUSE");
    assert!(said(&refused).contains("PAUSE is for the users in admin_users"), "{refused:?}");
    let refused = psql(port, ("stranger", "s"), CONSOLE, "SHOW HELP");
    assert!(said(&refused).contains("not allowed to use gatekeeper's console"), "{refused:?}");
    for (user, password) in [(admin.0, "wrong"), ("watcher", "wrong"), ("nobody", "x")] {
        let refused = psql(port, (user, password), CONSOLE, "SHOW HELP");
        assert!(said(&refused).contains("password authentication failed"), "{refused:?}");
    }
    let refused = psql(port, admin, CONSOLE, "SELECT 1");
    assert!(said(&refused).contains("it runs no SQL"), "{refused:?}");
    // Logins of visitors leave nothing behind on the server, and don't count as clients.
    assert_eq!(gate.status()["clients_connected"], 0);
    assert_eq!(gate.status()["clients_logging_in"], 0);
}

#[test]
fn drivers_can_use_the_console() {
    let stack = support::Stack::start_gate_with(&["admin_users = \"postgres\""]);
    println!("{}", stack.check(python("console.py")));
}

#[test]
fn without_a_named_user_the_database_is_the_servers() {
    let scene = Scene::start("no_console", &[]);
    let mut client = Client::connect(scene.gate.port());
    assert_eq!(client.start(&scene.user, CONSOLE), "F(3D000) closed", "{:?}", client.said);
}

#[test]
fn the_extended_protocol_works_step_by_step() {
    let scene = scene("extended", &[]);
    let mut console = console(&scene);
    assert_eq!(
        console.ask(&synced("SHOW VERSION")),
        format!("1 2 D(gatekeeper {}) C(SHOW) Z(I)", env!("CARGO_PKG_VERSION"))
    );
    let described = [parse("v", "SHOW VERSION"), describe("v"), sync()].concat();
    assert_eq!(console.ask(&described), "1 t T Z(I)");
    // Rows a few at a time.
    let rows = [parse("", "SHOW STATE"), bind(""), fetch("", 2), fetch("", 2), sync()].concat();
    assert_eq!(console.ask(&rows), "1 2 D(active,yes) D(paused,no) s D(suspended,no) C(SHOW) Z(I)");
    // After an error everything is dropped up to the Sync; and again it works.
    let wrong = [group("SELECT 1"), group("SHOW VERSION"), sync()].concat();
    assert_eq!(console.ask(&wrong), "E(42601) Z(I)");
    assert!(console.said.hint.contains("SHOW HELP"), "{:?}", console.said);
    assert_eq!(console.ask(&[bind("nothing"), sync()].concat()), "E(26000) Z(I)");
    assert_eq!(console.ask(&[execute(), sync()].concat()), "E(34000) Z(I)");
    assert_eq!(console.ask(&[close("v"), bind("v"), sync()].concat()), "3 E(26000) Z(I)");
    assert_eq!(console.ask(&synced("SET extra_float_digits = 3")), "1 2 C(SET) Z(I)");
    assert_eq!(console.ask(&synced("")), "1 2 I Z(I)");
    assert_eq!(console.query("BEGIN"), "C(BEGIN) Z(T)");
    assert_eq!(
        console.query("SHOW STATE; nonsense; SHOW STATE"),
        "T D(active,yes) D(paused,no) D(suspended,no) C(SHOW) E(42601) Z(T)"
    );
    assert_eq!(console.query("ROLLBACK"), "C(ROLLBACK) Z(I)");
    assert_eq!(console.query("SHOW standard_conforming_strings"), "T D(on) C(SHOW) Z(I)");
    assert_eq!(console.query("; ;"), "I Z(I)");
    // What a session may hold is bounded, and what takes another's place needs none of its own.
    let open: Vec<u8> = (0..9).flat_map(|number| bind_to(&number.to_string())).collect();
    let again = [parse("", "SHOW STATE"), open.clone(), sync()].concat();
    assert_eq!(console.ask(&again), format!("1 {}E(54000) Z(I)", "2 ".repeat(8)));
    let again = [open[..open.len() - bind_to("8").len()].to_vec(), bind_to("0"), sync()].concat();
    assert_eq!(console.ask(&again), format!("{}Z(I)", "2 ".repeat(9)));
    // What is no message ends the session, with a word.
    assert_eq!(console.ask(b"B\0\0\0\x05x"), "F(08P01) closed");
}

#[test]
fn what_clients_and_connections_do_is_shown() {
    let scene = scene("shown", &["connections = 2"]);
    let mut console = console(&scene);
    let [mut first, mut second, mut waiting] = scene.clients();
    first.run("LISTEN news");
    second.hold();
    waiting.send(&query("SELECT pg_sleep(0)"));
    scene.until_queued(1);
    scene.until("one waits, two have a connection", || {
        let states: Vec<_> = console.rows("SHOW CLIENTS").iter().map(|row| named(row, "state")).collect();
        states == ["idle", "active", "waiting"]
    });
    let pool = console.rows("SHOW POOLS").remove(0);
    let figures = ["user", "cl_active", "cl_waiting", "sv_active", "sv_idle", "pool_mode"]
        .map(|name| named(&pool, name));
    assert_eq!(figures, ["shown", "2", "1", "2", "0", "transaction"]);
    let wait: u64 = named(&pool, "maxwait_us").parse().expect("a number");
    assert!(wait > 0 || named(&pool, "maxwait") != "0", "{pool:?}");
    let pinned = console.rows("SHOW PINNED");
    assert_eq!(pinned.len(), 1);
    assert_eq!((named(&pinned[0], "reasons"), named(&pinned[0], "id")), ("LISTEN".into(), "1".into()));
    let queue = console.rows("SHOW QUEUE");
    assert_eq!((queue.len(), named(&queue[0], "user")), (1, "shown".to_owned()));
    assert!(named(&queue[0], "type").contains("pg_sleep"), "{queue:?}");
    let servers = console.rows("SHOW SERVERS");
    let links: Vec<_> =
        servers.iter().map(|server| (named(server, "state"), named(server, "link"))).collect();
    let spare = ("idle".into(), "".into());
    assert_eq!(links, [spare, ("active".into(), "c1".into()), ("active".into(), "c2".into())]);
    let pids: Vec<_> = servers.iter().map(|server| named(server, "remote_pid")).collect();
    let mut there: Vec<_> = scene.lasting_processes().into_iter().collect();
    there.sort();
    let mut shown = pids.clone();
    shown.sort();
    assert_eq!(shown, there);
    second.let_go();
    assert_eq!(waiting.answers(), "T D() C(SELECT 1) Z(I)");
    let transactions = value(&mut console, "STATS", "postgres", "total_xact_count");
    assert_eq!(transactions.as_deref(), Some("3"));
    assert!(console.rows("SHOW TYPES").iter().any(|row| named(row, "type").contains("pg_sleep")));
    let timeout = value(&mut console, "CONFIG", "queue_timeout", "value");
    assert_eq!(timeout.as_deref(), Some("2m"));
}

fn named(row: &[(String, String)], name: &str) -> String {
    let found = row.iter().find(|(column, _)| column == name);
    found.unwrap_or_else(|| panic!("no column {name}: {row:?}")).1.clone()
}

/// Waits until requests are held up, though the pause may not be complete.
fn until_paused(scene: &Scene) {
    let mut console = console(scene);
    scene.until("the gate is paused", || {
        let paused = value(&mut console, "STATE", "paused", "value");
        paused.as_deref() == Some("yes")
    });
}

#[test]
fn a_pause_waits_for_transactions_holds_others_up_and_resume_lets_them_go() {
    let scene = scene("paused", &["connections = 3"]);
    let mut console = console(&scene);
    let [mut running, mut held, mut other] = scene.clients();
    running.hold();
    console.send(&query("PAUSE"));
    until_paused(&scene);
    held.send(&query("SELECT 'held'"));
    other.send(&synced("SELECT 'other'"));
    scene.until_queued(2);
    // The transaction in flight goes on, and with its end the pause is complete.
    assert_eq!(running.query("SELECT 1"), "T D(1) C(SELECT 1) Z(T)");
    running.let_go();
    assert_eq!(console.answers(), "C(PAUSE) Z(I)");
    assert_eq!(scene.figure("in_flight"), 0);
    assert_eq!(console.query("PAUSE"), "E(55000) Z(I)");
    let paused = value(&mut console, "DATABASES", "postgres", "paused");
    assert_eq!(paused.as_deref(), Some("1"));
    // One that gives up leaves nothing behind.
    held.cancel(scene.gate.port());
    assert_eq!(held.answers(), "E(57014) Z(I)");
    assert_eq!(console.query("RESUME"), "C(RESUME) Z(I)");
    assert_eq!(other.answers(), "1 2 D(other) C(SELECT 1) Z(I)");
    assert_eq!(console.query("RESUME"), "E(55000) Z(I)");
    scene.settled();
}

#[test]
fn one_database_can_be_paused_while_others_go_on() {
    let scene = scene("one_paused", &["connections = 4"]);
    let mut console = console(&scene);
    let mut here = scene.client();
    let mut there = Client::login(scene.gate.port(), &scene.user, "template1");
    assert_eq!(console.query("PAUSE nowhere"), "E(3D000) Z(I)");
    assert_eq!(console.query("PAUSE template1"), "C(PAUSE) Z(I)");
    there.send(&query("SELECT 1"));
    // A login during the pause makes no hole in it, whatever pool it makes.
    let mut new = Client::connect(scene.gate.port());
    assert_eq!(
        new.start_with(&[("user", &scene.user), ("database", "template1"), ("search_path", "x")]),
        "Z(I)"
    );
    new.send(&query("SELECT 2"));
    scene.until_queued(2);
    assert_eq!(here.query("SELECT 3"), "T D(3) C(SELECT 1) Z(I)");
    assert_eq!(console.query("RESUME template1"), "C(RESUME) Z(I)");
    assert_eq!(there.answers(), "T D(1) C(SELECT 1) Z(I)");
    assert_eq!(new.answers(), "T D(2) C(SELECT 1) Z(I)");
    scene.settled();
}

#[test]
fn a_pause_that_is_given_up_is_taken_back() {
    let scene = scene("given_up", &["connections = 2"]);
    let [mut running, mut other] = scene.clients();
    running.hold();
    let mut canceled = console(&scene);
    canceled.send(&query("PAUSE"));
    until_paused(&scene);
    other.send(&query("SELECT 1"));
    scene.until_queued(1);
    canceled.cancel(scene.gate.port());
    assert_eq!(canceled.answers(), "E(57014) Z(I)");
    assert_eq!(other.answers(), "T D(1) C(SELECT 1) Z(I)");
    canceled.send(&query("PAUSE"));
    until_paused(&scene);
    other.send(&query("SELECT 2"));
    scene.until_queued(1);
    drop(canceled);
    assert_eq!(other.answers(), "T D(2) C(SELECT 1) Z(I)");
    running.let_go();
    scene.settled();
}

#[test]
fn sessions_are_ended_in_every_state_and_nothing_leaks() {
    let scene = scene("killed", &["connections = 2", "long_limit = 0"]);
    scene.setup("CREATE TABLE t (a int)");
    let mut console = console(&scene);
    let [mut idle, mut open, mut running] = scene.clients();
    open.run("BEGIN");
    open.run("INSERT INTO t VALUES (1)");
    running.send(&query("SELECT pg_sleep(3600)"));
    scene.until("it runs", || {
        !scene.processes_where("query = 'SELECT pg_sleep(3600)' AND state = 'active'").is_empty()
    });
    let mut waiting = scene.client();
    waiting.send(&query("SELECT 1"));
    scene.until_queued(1);
    for (id, client) in [(4, &mut waiting), (1, &mut idle), (2, &mut open), (3, &mut running)] {
        assert_eq!(console.query(&format!("KILL {id}")), "N(00000) C(KILL) Z(I)");
        assert_eq!(client.answers(), "F(57P01) closed");
        assert_eq!(client.said.message, "terminating connection due to administrator command");
    }
    assert_eq!(console.query("KILL 4"), "E(42704) Z(I)");
    // The statement was canceled, the transaction rolled back, and both connections serve on.
    let status = scene.settled();
    assert_eq!(status["pools"][0]["connections"], 2, "{status:#}");
    assert_eq!(scene.rows("t"), "0");
    assert!(console.rows("SHOW CLIENTS").is_empty());

    let clients = scene.clients::<3>();
    assert_eq!(console.query("KILL postgres"), "N(00000) C(KILL) Z(I)");
    for mut client in clients {
        assert_eq!(client.answers(), "F(57P01) closed");
    }
    assert_eq!(console.query("KILL nowhere"), "E(3D000) Z(I)");
    scene.client().run("SELECT 1");
    scene.settled();
}

#[test]
fn sessions_of_their_own_can_be_paused_and_ended_and_who_only_observes_pauses_nobody() {
    let scene = scene("console_of_sessions", &["pooling = \"session\"", "connections = 2"]);
    let mut console = console(&scene);
    let [mut first, mut second] = scene.clients();
    assert_eq!(console.query("PAUSE postgres"), "E(0A000) Z(I)");
    assert_eq!(console.query("PAUSE"), "C(PAUSE) Z(I)");
    first.send(&query("SELECT 1"));
    scene.until_queued(1);
    assert_eq!(console.query("RESUME"), "C(RESUME) Z(I)");
    assert_eq!(first.answers(), "T D(1) C(SELECT 1) Z(I)");
    let pool = console.rows("SHOW POOLS").remove(0);
    let figures = ["cl_active", "sv_active", "sv_idle", "pool_mode"].map(|name| named(&pool, name));
    assert_eq!(figures, ["2", "0", "2", "session"]);
    assert_eq!(console.query("KILL 2"), "N(00000) C(KILL) Z(I)");
    assert_eq!(second.answers(), "F(57P01) closed");
    scene.until("its server process ends with it", || scene.processes().len() == 1);

    let scene =
        Scene::start("console_observed", &["mode = \"observe\"", "admin_users = \"console_observed\""]);
    let mut console = Client::login(scene.gate.port(), &scene.user, CONSOLE);
    assert_eq!(console.query("PAUSE"), "E(0A000) Z(I)");
    for list in LISTS {
        console.run(&format!("SHOW {list}"));
    }
}

/// Under a load of many sessions: pauses and ends, round after round. A session that isn't ended never
/// hears an error.
#[test]
fn pauses_and_ends_under_load_leak_nothing() {
    let scene = scene("loaded", &["connections = 3"]);
    scene.setup("CREATE TABLE t (a int)");
    let mut console = console(&scene);
    let stop = std::sync::atomic::AtomicBool::new(false);
    let acknowledged = std::sync::atomic::AtomicU64::new(0);
    let unknown = std::sync::atomic::AtomicU64::new(0);
    std::thread::scope(|threads| {
        use std::sync::atomic::Ordering::Relaxed;
        for _ in 0..12 {
            threads.spawn(|| {
                let mut client = Client::login(scene.gate.port(), &scene.user, gate::DATABASE);
                while !stop.load(Relaxed) {
                    let answers = client.query("INSERT INTO loaded.t VALUES (1)");
                    match answers.as_str() {
                        "C(INSERT 0 1) Z(I)" => _ = acknowledged.fetch_add(1, Relaxed),
                        "F(57P01) closed" => {
                            unknown.fetch_add(1, Relaxed);
                            client = Client::login(scene.gate.port(), &scene.user, gate::DATABASE);
                        }
                        other => panic!("{other}: {:?}", client.said),
                    }
                }
            });
        }
        for round in 0..18 {
            let before = acknowledged.load(Relaxed);
            gate::until("the load goes on", || acknowledged.load(Relaxed) >= before + 20);
            if round % 3 == 0 {
                let clients = console.rows("SHOW CLIENTS");
                let victim = named(&clients[round % clients.len()], "id");
                // It may have been ended in an earlier round, and have connected again.
                console.query(&format!("KILL {victim}"));
            } else {
                let database = if round % 3 == 1 { "" } else { " postgres" };
                assert_eq!(console.query(&format!("PAUSE{database}")), "C(PAUSE) Z(I)");
                assert_eq!(scene.figure("in_flight"), 0, "a pause that is complete is quiet");
                assert_eq!(console.query(&format!("RESUME{database}")), "C(RESUME) Z(I)");
            }
        }
        stop.store(true, Relaxed);
    });
    let status = scene.settled();
    assert_eq!(status["requests"]["rejected_total"], 0, "{status:#}");
    let rows: u64 = scene.rows("t").parse().expect("a number");
    let (acknowledged, unknown) = (acknowledged.into_inner(), unknown.into_inner());
    assert!((acknowledged..=acknowledged + unknown).contains(&rows), "{acknowledged} + {unknown}: {rows}");
}

#[test]
fn a_reload_tells_what_it_did_and_a_mistake_what_is_wrong() {
    let scene = scene("reloaded", &["connections = 3"]);
    let mut console = console(&scene);
    let admins = "admin_users = \"reloaded\"".to_owned();
    scene.gate.reconfigure(&[admins.clone(), "connections = 5".to_owned()]);
    assert_eq!(console.query("RELOAD"), "N(00000) C(RELOAD) Z(I)");
    assert!(console.said.message.contains("connections = 5 instead of 3"), "{:?}", console.said);
    assert_eq!(scene.figure("connections"), 5);
    scene.gate.reconfigure(&[admins, "connections = 0".to_owned()]);
    assert_eq!(console.query("RELOAD"), "E(F0000) Z(I)");
    assert!(console.said.message.contains("connections = 0: must be from 1 to 10000"), "{:?}", console.said);
    assert_eq!(scene.figure("connections"), 5);
    let connections = value(&mut console, "CONFIG", "connections", "value");
    assert_eq!(connections.as_deref(), Some("5"));
    assert_eq!(console.query("RECONNECT"), "C(RECONNECT) Z(I)");
}

#[test]
fn who_comes_by_the_socket_as_the_same_user_needs_no_server_and_shutdown_ends_the_process() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let path = directory.path().join("gate");
    let mut gate = Gate::start_between(
        &format!("unix:{}", path.display()),
        // Nobody listens there.
        &format!("unix:{}", directory.path().join("nothing").display()),
        &["admin_users = \"operator\"".to_owned()],
    );
    let mut stranger = Client::connect_unix(&path);
    assert_eq!(stranger.start("somebody", CONSOLE), "F(28000) closed");
    let mut console = Client::connect_unix(&path);
    assert_eq!(console.start("operator", CONSOLE), "Z(I)", "{:?}", console.said);
    assert_eq!(console.query("SHOW CLIENTS"), "T C(SHOW) Z(I)");
    assert_eq!(console.query("SHUTDOWN"), "C(SHUTDOWN) Z(I)");
    assert_eq!(console.answers(), "F(57P01) closed");
    assert_eq!(gate.wait().code(), Some(0));
}
