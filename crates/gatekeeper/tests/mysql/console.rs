//! The console of a gate for MySQL, with the `mariadb` client.

use std::process::{Command, Output};
use std::sync::Arc;

use testbed::mariadb::PrivateMariadb;

use crate::stage::{Stage, capabilities};

/// The client at the console, by TCP or by the gate's own socket.
fn client(stage: &Stage, (user, password): (&str, &str), more: &[&str]) -> Command {
    let mut command = Command::new("mariadb");
    command.args(["--no-defaults", "--batch", "--user", user, "--database", "gatekeeper"]).args(more);
    if stage.socket().exists() {
        command.arg(format!("--socket={}", stage.socket().display()));
    } else {
        command.args(["--protocol", "tcp", "--host", "127.0.0.1", "--port", &stage.gate.port().to_string()]);
    }
    command.env("MYSQL_PWD", password);
    command
}

pub(crate) fn run(stage: &Stage, who: (&str, &str), sql: &str) -> Result<String, String> {
    let Output { status, stdout, stderr } =
        client(stage, who, &["--execute", sql]).output().expect("the mariadb client runs");
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    if status.success() { Ok(text(stdout)) } else { Err(text(stderr)) }
}

/// The values of a column.
fn column(table: &str, name: &str) -> Vec<String> {
    let mut lines = table.lines().map(|line| line.split('\t').collect::<Vec<_>>());
    let head = lines.next().unwrap_or_default();
    let Some(at) = head.iter().position(|known| *known == name) else { panic!("no {name}:\n{table}") };
    lines.map(|cells| cells[at].to_owned()).collect()
}

#[test]
fn who_is_named_looks_at_the_gate_and_operates_it_by_a_client_of_mysql() {
    let lines =
        ["connections = 2", "queue_timeout = \"1h\"", "admin_users = \"boss\"", "stats_users = \"eye\""];
    let stage = Stage::over_tcp(&lines, "\"boss\" \"secret\"\n\"eye\" \"open\"\n");
    let (boss, eye) = (("boss", "secret"), ("eye", "open"));
    let show = |list: &str| run(&stage, eye, &format!("SHOW {list}")).unwrap();
    let mut session = stage.client();
    session.query("SET @mine = 5");
    assert_eq!(session.query("SELECT @mine").rows(), "5");
    let own = stage.server.user().to_owned();
    assert_eq!(column(&show("POOLS"), "user"), [own.as_str()]);
    assert_eq!(column(&show("POOLS"), "database"), ["witness"]);
    assert_eq!(column(&show("POOLS"), "sv_active"), ["1"]);
    assert_eq!(column(&show("CLIENTS"), "application_name"), ["wire"]);
    let thread = session.query("SELECT CONNECTION_ID()").rows();
    assert_eq!(column(&show("SERVERS"), "remote_pid"), [thread.as_str()]);
    // The server tells of another change of state, too.
    assert_eq!(column(&show("PINNED"), "reasons"), ["user variable, other state"]);
    assert_eq!(column(&show("DATABASES"), "name"), ["witness"]);
    let types = column(&show("TYPES"), "type");
    assert!(types.iter().any(|name| name.starts_with("witness: select @mine")), "{types:?}");
    let queries = |stage: &Stage| column(&run(stage, eye, "SHOW STATS").unwrap(), "total_query_count");
    assert_eq!(queries(&stage), ["3"]);
    session.query("CREATE DATABASE IF NOT EXISTS shown");
    session.query("USE shown");
    stage
        .until_holds("it shows the session's database", || column(&show("CLIENTS"), "database") == ["shown"]);
    assert!(column(&show("CONFIG"), "key").contains(&"admin_users".to_owned()));
    assert_eq!(column(&show("STATE"), "value"), ["yes", "no", "no"]);
    // Several commands, and what drivers say of their own accord.
    let several = run(&stage, eye, "SET NAMES utf8mb4; SHOW VERSION; SHOW USERS").unwrap();
    assert!(several.contains("gatekeeper ") && several.contains(&own), "{several}");

    let told = run(&stage, eye, "PAUSE").unwrap_err();
    assert!(told.contains("ERROR 1227") && told.contains("admin_users"), "{told}");
    let told = run(&stage, boss, "SELECT 1").unwrap_err();
    assert!(told.contains("ERROR 1064") && told.contains("SHOW HELP"), "{told}");
    run(&stage, boss, "PAUSE").unwrap();
    assert_eq!(column(&show("STATE"), "value"), ["no", "yes", "no"]);
    let mut other = stage_client_in_background(&stage);
    stage.until("queued", 1);
    assert_eq!(column(&show("QUEUE"), "position"), ["1"]);
    assert_eq!(column(&show("QUEUE"), "user"), [own.as_str()], "a login waits, and its user is known");
    assert!(column(&show("CLIENTS"), "user").iter().all(|user| *user == own));
    assert!(run(&stage, boss, "PAUSE").unwrap_err().contains("already paused"));
    run(&stage, boss, "RESUME").unwrap();
    other.wait().unwrap();
    let id = column(&show("CLIENTS"), "id")[0].clone();
    assert!(run(&stage, boss, "KILL 7").unwrap_err().contains("there is no client 7"));
    run(&stage, boss, &format!("KILL {id}")).unwrap();
    stage.until("clients_connected", 0);
    assert!(run(&stage, boss, "RELOAD").is_ok());

    let told = run(&stage, (&own, stage.server.password()), "SHOW POOLS").unwrap_err();
    assert!(told.contains("ERROR 1044") && told.contains("stats_users"), "{told}");
    let told = run(&stage, ("boss", "wrong"), "SHOW POOLS").unwrap_err();
    assert!(told.contains("ERROR 1045"), "{told}");
}

/// A client that asks the server something, which takes its turn.
fn stage_client_in_background(stage: &Stage) -> std::process::Child {
    let (user, password) = (stage.server.user().to_owned(), stage.server.password().to_owned());
    client(stage, (&user, &password), &["--database", "witness", "--execute", "SELECT 1"]).spawn().unwrap()
}

#[test]
fn a_pause_is_taken_back_with_its_client_and_a_session_that_is_killed_stops_its_statement() {
    let stage = Stage::over_tcp(&["connections = 2", "admin_users = \"boss\""], "\"boss\" \"secret\"\n");
    let boss = ("boss", "secret");
    let mut session = stage.client();
    let thread = session.query("SELECT CONNECTION_ID()").rows();
    session.query("CREATE OR REPLACE TABLE console_pause (v INT)");
    session.query("BEGIN");
    session.query("INSERT INTO console_pause VALUES (1)").ok(capabilities());
    let mut pause = client(&stage, boss, &["--execute", "PAUSE"]).spawn().unwrap();
    stage.until_holds("it is held up", || stage.gate.status()["paused"] == serde_json::json!(["*"]));
    pause.kill().unwrap();
    pause.wait().unwrap();
    stage.until_holds("it is taken back", || stage.gate.status()["paused"] == serde_json::json!([]));
    let id = column(&run(&stage, boss, "SHOW CLIENTS").unwrap(), "id").remove(0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            session.send(b"\x12\0\0\0\x03SELECT SLEEP(600)");
            // The gate closes the connection.
            let mut left = Vec::new();
            let _ = std::io::Read::read_to_end(&mut session.stream, &mut left);
        });
        let running = || run(&stage, boss, "SHOW CLIENTS").unwrap();
        stage.until_holds("it runs", || column(&running(), "state") == ["active"]);
        let mut witness = stage.direct();
        let asked = format!(
            "SELECT COUNT(*) FROM information_schema.processlist WHERE id = {thread} AND info LIKE '%SLEEP%'"
        );
        stage.until_holds("the server runs it", || witness.query(&asked).rows() == "1");
        run(&stage, boss, &format!("KILL {id}")).unwrap();
        stage.until_holds("it is stopped", || witness.query(&asked).rows() == "0");
    });
    stage.until("clients_connected", 0);
}

#[test]
fn a_full_gate_and_a_server_that_is_down_let_the_operator_in() {
    let server = PrivateMariadb::start(&[]).unwrap();
    let own = server.user().to_owned();
    let admins = format!("admin_users = {own:?}");
    let mut stage = Stage::in_front_of(server, &["max_clients = 1", &admins]);
    let held = stage.client();
    // A process of the gatekeeper's own user isn't asked.
    let show = |stage: &Stage| run(stage, (&own, "not the password"), "SHOW LISTS");
    assert!(show(&stage).is_ok());
    assert!(stage.login(&own, stage.server.password()).is_err_and(|told| told.code == 1040));
    Arc::get_mut(&mut stage.server).unwrap().kill().unwrap();
    drop(held);
    assert!(show(&stage).is_ok());
}
