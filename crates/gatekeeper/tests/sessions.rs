//! No session ever sees another's state: settings, pins and prepared names of sessions that share
//! connections, as each would find them on a connection of its own.

// Helpers of tests panic as tests do; clippy only knows functions marked as tests.
#![allow(clippy::panic)]

mod gate;
mod support;

use gate::Scene;
use gate::client::{Client, group, parse, query, sync, synced, terminate, use_of};
use support::raw::message;

/// Two sessions of one user that share one connection.
fn pair(user: &str) -> (Scene, Client, Client) {
    let scene = Scene::start(user, &["connections = 1"]);
    let [first, second] = scene.clients();
    (scene, first, second)
}

fn shown(client: &mut Client, setting: &str) -> String {
    client.column(&format!("SHOW {setting}")).concat()
}

/// Runs statements, a message each, whether they succeed or not.
fn try_all(client: &mut Client, statements: &[&str]) {
    statements.iter().for_each(|sql| _ = client.query(sql));
}

#[test]
fn a_savepoint_behind_a_deferred_begin_is_undone() {
    let (scene, mut a, mut b) = pair("deferred_savepoint");
    for change in ["SET app.tenant = '7'", "RESET app.tenant", "SET app.tenant TO DEFAULT", "RESET ALL"] {
        b.run("SET app.tenant = '7'");
        try_all(&mut a, &["SET app.tenant = '8'", "BEGIN", "SAVEPOINT a", change]);
        try_all(&mut a, &["SELECT 1/0", "ROLLBACK TO a", "COMMIT"]);
        assert_eq!(shown(&mut b, "app.tenant"), "7", "{change}");
        assert_eq!(shown(&mut a, "app.tenant"), "8", "{change}");
    }
    scene.settled();
}

/// The first call of all tells the gate that sequences are asked.
#[test]
fn a_sequence_tells_no_session_what_it_gave_another() {
    let (scene, mut a, mut b) = pair("sequences");
    a.run("CREATE SEQUENCE orders START 7");
    a.run("SELECT nextval('orders')");
    for ask in ["SELECT lastval()", "SELECT pg_catalog.currval('orders')", "SELECT 1; SELECT lastval()"] {
        let answer = b.query(ask);
        assert!(answer.contains("55000"), "{ask}: {answer}");
        // In a transaction that began with another statement, too.
        try_all(&mut a, &["SELECT nextval('orders')"]);
        try_all(&mut b, &["BEGIN", "SELECT 1"]);
        let answer = b.query("SELECT lastval()");
        assert!(answer.contains("55000"), "{answer}");
        b.run("ROLLBACK");
        a.run("SELECT nextval('orders')");
    }
    let given = a.column("SELECT nextval('orders')");
    assert_eq!(a.column("SELECT currval('orders')"), given, "nobody came between");
    b.run("BEGIN");
    let given = b.column("SELECT nextval('orders')");
    assert_eq!(b.column("SELECT lastval()"), given);
    b.run("COMMIT");
    scene.settled();
}

/// However the first call of all is written, and whichever message brings it.
#[test]
fn the_first_that_asks_a_sequence_hears_of_no_other_session() {
    type Ask = fn(&str) -> Vec<u8>;
    let asked: [(&str, Ask); 7] = [
        (r#"SELECT U&"last\0076al"()"#, query),
        ("DO $$ BEGIN RAISE EXCEPTION '%', lastval(); END $$", query),
        ("DO $$ BEGIN EXECUTE 'SELECT LASTVAL()'; END $$", query),
        ("SELECT query_to_xml('select lastval()', true, true, '')", query),
        ("PREPARE s AS SELECT lastval(); EXECUTE s", query),
        ("SELECT lastval()", |sql| [group("SELECT 1"), group(sql), sync()].concat()),
        ("lastval() by its number", |_| message(b'F', b"\0\0\x09\xff\0\0\0\0\0\0")),
    ];
    for (number, (ask, by)) in asked.into_iter().enumerate() {
        let (scene, mut a, mut b) = pair(&format!("first_asked_{number}"));
        a.run("CREATE SEQUENCE orders START 7");
        a.run("SELECT nextval('orders')");
        let answer = b.ask(&by(ask));
        assert!(answer.contains("55000"), "{ask}: {answer}");
        drop((a, b));
        scene.settled();
    }
}

#[test]
fn a_savepoint_behind_many_others_is_undone() {
    let (scene, mut a, mut b) = pair("many_savepoints");
    b.run("SET app.tenant = '7'");
    try_all(&mut a, &["SET app.tenant = '8'", "BEGIN", "SELECT 1"]);
    for _ in 0..70 {
        try_all(&mut a, &["SAVEPOINT s", "RELEASE s"]);
    }
    try_all(&mut a, &["SAVEPOINT z", "RESET app.tenant", "ROLLBACK TO z", "COMMIT"]);
    assert_eq!(shown(&mut b, "app.tenant"), "7");
    assert_eq!(shown(&mut a, "app.tenant"), "8");
    // More than the gate tells apart: the session keeps its connection instead.
    try_all(&mut a, &["BEGIN", "SELECT 1"]);
    (0..300).for_each(|number| a.run(&format!("SAVEPOINT s{number}")));
    try_all(&mut a, &["RESET app.tenant", "ROLLBACK TO s299", "COMMIT"]);
    assert_eq!(shown(&mut a, "app.tenant"), "8");
    assert_eq!(scene.figure("connections_pinned"), 1);
    a.run("DISCARD ALL");
    assert_eq!(shown(&mut b, "app.tenant"), "7");
    scene.settled();
}

#[test]
fn a_set_behind_a_reset_of_the_same_reported_setting_stays() {
    let (scene, mut a, _) = pair("set_behind_reset");
    let steps = ["begin", "select 1", "reset timezone", "set timezone = 'Asia/Tokyo'", "commit"];
    try_all(&mut a, &steps);
    assert_eq!(shown(&mut a, "timezone"), "Asia/Tokyo");
    for text in [
        "reset timezone; set timezone = 'Asia/Tokyo'",
        "reset all; set timezone = 'Asia/Tokyo'",
        "reset timezone; select set_config('TimeZone', 'Asia/Tokyo', false)",
        "begin; reset timezone; set timezone = 'Asia/Tokyo'; commit",
    ] {
        a.run("set timezone = 'UTC'");
        a.run(text);
        assert_eq!(shown(&mut a, "timezone"), "Asia/Tokyo", "{text}");
        a.run("set timezone = 'UTC'");
        let groups: Vec<u8> = text.split("; ").flat_map(group).collect();
        assert!(a.ask(&[groups, sync()].concat()).ends_with("Z(I)"));
        assert_eq!(shown(&mut a, "timezone"), "Asia/Tokyo", "{text} extended");
    }
    a.run("create table t (a int)");
    a.run("reset all; set default_transaction_read_only = on");
    assert_eq!(a.query("insert into t values (1)"), "E(25006) Z(I)");
    scene.settled();
}

/// Each reported setting, what it is set to, how it is shown then, and another value.
const REPORTED: [(&str, &str, &str, &str); 5] = [
    ("timezone", "Asia/Tokyo", "Asia/Tokyo", "UTC"),
    ("client_encoding", "LATIN1", "LATIN1", "WIN1252"),
    // The first column ends at the comma.
    ("datestyle", "German, DMY", "German", "SQL, MDY"),
    ("application_name", "mine", "mine", "other"),
    ("default_transaction_read_only", "on", "on", "off"),
];

#[test]
fn each_reported_setting_stays_that_is_set_behind_a_reset_unnamed_or_named() {
    // Some of these pin.
    let (_scene, mut a, _) = pair("set_behind_each_reset");
    let named = |(number, sql): (usize, &str)| {
        let name = format!("s{number}");
        [parse(&name, sql), use_of(&name)].concat()
    };
    for (setting, value, shows, other) in REPORTED {
        for (first, second) in [
            (format!("reset {setting}"), format!("set {setting} = '{value}'")),
            ("reset all".to_owned(), format!("set {setting} = '{value}'")),
            (
                format!("set {setting} to default"),
                format!("select set_config('{setting}', '{value}', false)"),
            ),
        ] {
            let unnamed = [group(&first), group(&second)].concat();
            let named: Vec<u8> = [&*first, &second].into_iter().enumerate().flat_map(named).collect();
            for group in [unnamed, named] {
                a.run(&format!("set {setting} = '{other}'"));
                let told = a.ask(&[group, sync()].concat());
                assert!(told.ends_with("Z(I)") && !told.contains("E("), "{first}; {second}: {told}");
                assert_eq!(shown(&mut a, setting), shows, "{first}; {second}");
                a.run("deallocate all");
            }
            a.run(&format!("set {setting} = '{other}'"));
            a.run(&format!("begin; {first}; {second}; commit"));
            assert_eq!(shown(&mut a, setting), shows, "{first}; {second} in one text");
        }
        a.run("reset all");
    }
}

#[test]
fn a_reset_returns_to_the_clients_own_start_also_within_its_transaction() {
    let scene = Scene::start("own_start", &["connections = 1"]);
    let login = |zone: &str| {
        let mut client = Client::connect(scene.gate.port());
        client.start_with(&[("user", "own_start"), ("database", gate::DATABASE), ("timezone", zone)]);
        client
    };
    let (mut first, mut second) = (login("Asia/Tokyo"), login("Europe/Stockholm"));
    for (client, zone) in [(&mut first, "Asia/Tokyo"), (&mut second, "Europe/Stockholm")] {
        try_all(client, &["SET timezone = 'UTC'", "BEGIN", "SELECT 1", "RESET timezone"]);
        assert_eq!(shown(client, "timezone"), zone);
        client.run("ROLLBACK");
        assert_eq!(shown(client, "timezone"), "UTC");
        client.run("RESET timezone");
        assert_eq!(shown(client, "timezone"), zone);
        // The gate's own SET is undone with the transaction in which it was.
        for end in ["ROLLBACK", "COMMIT"] {
            try_all(client, &["SET timezone = 'UTC'", "RESET ALL; BEGIN; SELECT 1; COMMIT AND CHAIN"]);
            assert_eq!(shown(client, "timezone"), zone);
            client.run(end);
            assert_eq!(shown(client, "timezone"), zone, "{end}");
        }
    }
    scene.settled();
}

#[test]
fn a_notification_that_comes_while_the_gate_restores_settings_is_told() {
    let scene = Scene::start("notified", &["connections = 1"]);
    let login = |zone: &str| {
        let mut client = Client::connect(scene.gate.port());
        client.start_with(&[("user", "notified"), ("database", gate::DATABASE), ("timezone", zone)]);
        client
    };
    let (_first, mut second) = (login("Asia/Tokyo"), login("Europe/Stockholm"));
    second.run("LISTEN news");
    second.run("RESET timezone");
    // The gate finds the server's message and the client's at once.
    scene.gate.signal("STOP");
    scene.direct().run("NOTIFY news, 'yes'");
    second.send(&query("SHOW timezone"));
    scene.gate.signal("CONT");
    let answers = second.answers();
    assert!(answers.contains("D(Europe/Stockholm)"), "{answers}");
    let answers = format!("{answers} {}", second.query("SELECT 1"));
    assert!(answers.starts_with("A ") || answers.contains(" A "), "{answers}");
}

#[test]
fn a_notification_of_a_session_that_left_is_told_to_no_other() {
    let (scene, mut left, mut other) = pair("notified_and_gone");
    other.run("SET work_mem = 9000");
    left.run("LISTEN news");
    left.run("BEGIN; SELECT 1");
    // The server tells it when the gate ends the transaction.
    scene.direct().run("NOTIFY news, 'a secret'");
    assert_eq!(left.ask(&terminate()), "closed");
    assert_eq!(other.query("SHOW work_mem"), "T D(9000kB) C(SHOW) Z(I)");
    scene.settled();
}

#[test]
fn a_release_of_a_pin_is_undone_with_its_savepoint() {
    let (scene, mut a, mut b) = pair("pins_and_savepoints");
    try_all(
        &mut a,
        &["LISTEN x", "BEGIN", "SELECT 1", "SAVEPOINT a", "UNLISTEN *", "ROLLBACK TO a", "COMMIT"],
    );
    assert_eq!(scene.figure("connections_pinned"), 1);
    a.run("UNLISTEN *");
    assert!(b.column("SELECT * FROM pg_listening_channels()").is_empty());
    a.run("UNLISTEN *; LISTEN x");
    assert_eq!(scene.figure("connections_pinned"), 1);
    a.run("UNLISTEN *");
    try_all(&mut a, &["CREATE TEMP TABLE t (a int)", "BEGIN", "SELECT 1", "SAVEPOINT a", "DISCARD TEMP"]);
    try_all(&mut a, &["ROLLBACK TO a", "COMMIT"]);
    assert_eq!(scene.figure("connections_pinned"), 1);
    assert_eq!(a.query("SELECT * FROM t"), "T C(SELECT 0) Z(I)");
    a.run("DISCARD TEMP");
    assert_eq!(b.query("SELECT * FROM pg_temp.t"), "E(42P01) Z(I)");
    scene.settled();
}

#[test]
fn changes_of_session_are_counted_with_a_reset_and_without() {
    let (scene, mut first, mut second) = pair("ivy");
    let counts = || {
        let changes = &scene.gate.status()["pools"][0]["session_changes"];
        ["reset_total", "unreset_total"].map(|name| changes[name].as_u64().unwrap())
    };
    (0..3).for_each(|_| [&mut first, &mut second].into_iter().for_each(|client| client.run("SELECT 1")));
    assert_eq!(counts(), [0, 5]);
    first.run("CREATE TEMPORARY TABLE own ()");
    drop(first);
    scene.until("its connection is reset", || counts() == [1, 6]);
    second.run("SELECT 1");
    assert_eq!(counts(), [1, 6]);
}

#[test]
fn a_role_that_is_given_back_gives_the_connection_back() {
    let (scene, mut a, mut b) = pair("roles");
    for (set, back) in [
        ("SET ROLE pg_monitor", "RESET ROLE"),
        ("SET ROLE pg_monitor", "SET ROLE NONE"),
        ("SET SESSION AUTHORIZATION pg_monitor", "SET SESSION AUTHORIZATION DEFAULT"),
    ] {
        a.run(set);
        assert_eq!(scene.figure("connections_pinned"), 1, "{set}");
        a.run(back);
        assert_eq!(scene.figure("connections_pinned"), 0, "{back}");
        assert_eq!(b.column("SELECT current_user"), ["roles"]);
    }
    scene.settled();
}

#[test]
fn a_setting_that_cannot_be_restored_costs_nobody_a_connection() {
    let (scene, mut a, mut b) = pair("refused_restore");
    let before = scene.lasting_processes();
    // In the client's order it can be restored.
    a.run("CREATE SCHEMA evil; CREATE TEXT SEARCH CONFIGURATION evil.cfg (COPY = simple)");
    a.run("SET search_path = evil; SET default_text_search_config = 'cfg'");
    assert_ne!(shown(&mut b, "default_text_search_config"), "evil.cfg");
    assert_eq!(shown(&mut a, "default_text_search_config"), "evil.cfg");
    // One that is refused is told once, and the session goes on with the default.
    let mut c = scene.client();
    c.run("SET plpgsql.variable_conflict = 'bogus'");
    b.run("DO $$ BEGIN NULL; END $$");
    assert_eq!(c.query("SELECT 1"), "E(22023) Z(I)");
    let counts = &scene.gate.status()["requests"];
    assert_eq!((&counts["failed_total"], &counts["canceled_total"]), (&1.into(), &0.into()), "{counts}");
    assert_eq!(c.query("SELECT 1"), "T D(1) C(SELECT 1) Z(I)");
    assert_eq!(a.query("SELECT 1"), "T D(1) C(SELECT 1) Z(I)");
    assert_eq!(scene.lasting_processes(), before);
    scene.settled();
}

#[test]
fn another_sessions_time_out_cuts_no_restore_short() {
    let (scene, mut a, mut b) = pair("short_time_out");
    let before = scene.lasting_processes();
    b.run("SET app.tenant = '7'; SET work_mem = '5MB'");
    for _ in 0..20 {
        _ = a.query("SET statement_timeout = '1ms'");
        assert_eq!(shown(&mut b, "app.tenant"), "7");
        assert_eq!(shown(&mut b, "statement_timeout"), "0");
    }
    assert_eq!(scene.processes(), before);
    scene.settled();
}

#[test]
fn carried_settings_mean_the_same_in_every_encoding() {
    let (scene, mut a, mut b) = pair("encodings");
    a.run("SET app.name = 'é'");
    b.run("SET client_encoding = 'LATIN1'");
    assert_eq!(a.column("SELECT length(current_setting('app.name'))"), ["1"]);
    a.run("SET client_encoding = 'LATIN1'");
    b.run("SET client_encoding = 'UTF8'");
    assert_eq!(a.column("SELECT length(current_setting('app.name'))"), ["1"]);
    scene.settled();
}

#[test]
fn what_the_text_shows_to_stay_with_the_connection_pins() {
    let (scene, mut a, mut b) = pair("seen_in_the_text");
    a.run("UPDATE pg_settings SET setting = '5MB' WHERE name = 'work_mem'");
    assert_eq!(scene.figure("connections_pinned"), 1);
    a.run("DISCARD ALL");
    assert_ne!(shown(&mut b, "work_mem"), "5MB");
    a.run("SET search_path = pg_temp; CREATE TABLE t (a int)");
    assert_eq!(scene.figure("connections_pinned"), 1);
    a.run("DISCARD ALL");
    assert_eq!(b.query("SELECT * FROM pg_temp.t"), "E(42P01) Z(I)");
    scene.settled();
}

#[test]
fn a_statement_made_invalid_within_a_transaction_that_rolls_back_is_valid_again() {
    let (scene, mut a, mut b) = pair("ddl_rolled_back");
    a.run("CREATE TABLE t (a int); INSERT INTO t VALUES (1)");
    for client in [&mut a, &mut b] {
        assert_eq!(
            client.ask(&[parse("s", "SELECT * FROM t"), use_of("s"), sync()].concat()),
            "1 2 D(1) C(SELECT 1) Z(I)"
        );
    }
    try_all(&mut a, &["BEGIN", "ALTER TABLE t ADD COLUMN b int"]);
    assert_eq!(a.ask(&[use_of("s"), sync()].concat()), "E(0A000) Z(E)");
    a.run("ROLLBACK");
    for client in [&mut b, &mut a] {
        assert_eq!(client.ask(&[use_of("s"), sync()].concat()), "2 D(1) C(SELECT 1) Z(I)");
    }
    scene.settled();
}

#[test]
fn a_deallocate_that_is_skipped_or_forwarded_takes_nothing_away() {
    let (scene, mut a, _) = pair("deallocates");
    assert_eq!(a.ask(&[parse("s", "SELECT 's'"), sync()].concat()), "1 Z(I)");
    let batch = [group("SELECT 1/0"), group("DEALLOCATE ALL"), sync()].concat();
    assert_eq!(a.ask(&batch), "1 E(22012) Z(I)");
    assert_eq!(a.ask(&[use_of("s"), sync()].concat()), "2 D(s) C(SELECT 1) Z(I)");
    assert_eq!(a.query("DEALLOCATE s; SELECT 1/0"), "C(DEALLOCATE) E(22012) Z(I)");
    assert_eq!(a.ask(&[use_of("s"), sync()].concat()), "E(26000) Z(I)");
    assert_eq!(a.ask(&[parse("s", "SELECT 's'"), sync()].concat()), "1 Z(I)");
    assert_eq!(a.query("SET app.x = '1'; DEALLOCATE s"), "C(SET) C(DEALLOCATE) Z(I)");
    assert_eq!(a.ask(&[use_of("s"), sync()].concat()), "E(26000) Z(I)");
    scene.settled();
}

#[test]
fn a_name_of_a_statement_that_the_gate_answers_is_taken_once() {
    let (scene, mut a, _) = pair("names_once");
    for sql in ["BEGIN", "SET LOCAL work_mem = '5MB'", "SHOW work_mem", "SET work_mem = '5MB'"] {
        assert_eq!(a.ask(&[parse("n", sql), sync()].concat()), "1 Z(I)", "{sql}");
        assert_eq!(a.ask(&[parse("n", sql), sync()].concat()), "E(42P05) Z(I)", "{sql}");
        assert_eq!(a.query("DEALLOCATE n"), "C(DEALLOCATE) Z(I)");
    }
    assert_eq!(a.ask(&[query("SELECT 1"), synced("SELECT 2")].concat()), "T D(1) C(SELECT 1) Z(I)");
    assert_eq!(a.answers(), "1 2 D(2) C(SELECT 1) Z(I)");
    scene.settled();
}

/// The guide's policy sees no difference between a connection that has never seen `app.tenant` and one on
/// which another session has set it.
#[test]
fn the_guides_row_policy_shows_each_tenant_its_own_rows_and_nothing_to_others() {
    let scene = Scene::start("row_policy", &["connections = 1"]);
    // Policies hold for anybody else.
    scene.setup("ALTER ROLE row_policy NOSUPERUSER");
    let [mut a, mut b] = scene.clients();
    let guide = include_str!("../../../docs/guide/sessions.md");
    let policy =
        guide.lines().find(|line| line.starts_with("CREATE POLICY")).expect("the guide has a policy");
    a.run("CREATE TABLE orders (tenant int, what text)");
    a.run("INSERT INTO orders VALUES (1, 'one'), (2, 'two')");
    a.run("ALTER TABLE orders ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY");
    a.run(policy);
    let seen = |client: &mut Client| client.column("SELECT what FROM orders");
    assert!(seen(&mut a).is_empty(), "no tenant was ever set");
    b.run("SET app.tenant = '1'");
    assert_eq!(seen(&mut b), ["one"]);
    assert_eq!(a.column("SELECT current_setting('app.tenant', true) = ''"), ["t"], "the placeholder stays");
    assert!(seen(&mut a).is_empty(), "another session has set a tenant");
    a.run("SET app.tenant = '2'");
    assert_eq!((seen(&mut a), seen(&mut b)), (vec!["two".to_owned()], vec!["one".to_owned()]));
    a.run("RESET app.tenant");
    assert!(seen(&mut a).is_empty());
    scene.settled();
}
