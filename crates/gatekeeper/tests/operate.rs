//! `gatekeeper status`, `reload`, `drain`, `pause`, `resume`, `pass` and `enforce` against a gate in
//! front of a real PostgreSQL or a site.

// Helpers of tests panic as tests do; clippy only knows functions marked as tests.
#![allow(clippy::panic)]

mod support;

use std::io::{BufRead as _, BufReader, Read as _};
use std::path::Path;
use std::process::{Command, Stdio};

use support::origin::{Origin, ask};
use support::{Gate, server, session, until};
use testbed::postgres::Stop;

fn gatekeeper(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_gatekeeper"));
    command.args(args).env_remove("GATEKEEPER_ADMIN").stdin(Stdio::null());
    command
}

/// Exit status, standard output, standard error.
fn outcome(command: &mut Command) -> (i32, String, String) {
    let output = command.output().expect("it runs");
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).expect("it is text");
    (output.status.code().expect("it exits"), text(&output.stdout), text(&output.stderr))
}

fn ran(args: &[&str]) -> (i32, String, String) {
    outcome(&mut gatekeeper(args))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn status_says_how_it_is_and_exits_with_3_where_somebody_should_look() {
    let mut server = server();
    let gate = Gate::start(server.port(), &["name = \"shop\"".to_owned(), "connections = 3".to_owned()]);
    let client = session(&server, &gate).await;
    client.batch_execute("SELECT 1").await.expect("it runs");
    // A client has its answer a moment before it is counted.
    until("it is counted", async || gate.status()["requests"]["succeeded_total"] == 1).await;
    let (code, told, said) = ran(&["status", "--admin", &gate.admin_address()]);
    assert_eq!((code, said.as_str()), (0, ""));
    for line in
        ["gate shop (enforce)", "is up since", "of 3 connections in use", "1 client, ", "1 request succeeded"]
    {
        assert!(told.contains(line), "{line}\n{told}");
    }
    let (code, json, _) = ran(&["status", "--json", "--admin", &gate.admin_socket()]);
    let json: serde_json::Value = serde_json::from_str(&json).expect("it is JSON");
    assert_eq!((code, &json["gates"][0]["name"]), (0, &"shop".into()));

    server.stop(Stop::Fast);
    let down = async || gate.status()["upstreams"][0]["state"] == "down";
    until("the server is known to be down", down).await;
    let (code, told, _) = ran(&["status", "--admin", &gate.admin_address()]);
    assert_eq!(code, 3, "{told}");
    assert!(told.contains("not well: gate shop: the service is down"), "{told}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pause_waits_for_the_last_transaction_and_a_client_that_leaves_takes_it_back() {
    let server = server();
    let gate = Gate::start(server.port(), &["connections = 3".to_owned()]);
    let (first, second) = (session(&server, &gate).await, session(&server, &gate).await);
    first.batch_execute("BEGIN; SELECT 1").await.expect("it runs");
    let socket = gate.admin_socket();
    let is_paused = async || gate.status()["paused"] == serde_json::json!(["*"]);

    // An operator who gives up before the transaction has ended takes the pause back.
    let mut pause =
        gatekeeper(&["pause", "--admin", &socket]).stderr(Stdio::null()).spawn().expect("it starts");
    until("it is held up", is_paused).await;
    pause.kill().expect("it ends");
    pause.wait().expect("it has ended");
    until("the pause is taken back", async || gate.status()["paused"] == serde_json::json!([])).await;
    second.batch_execute("SELECT 1").await.expect("requests pass");

    // Another operator resumes while it waits: then it has not come about.
    let pause = gatekeeper(&["pause", "--admin", &socket]).stderr(Stdio::piped()).spawn().expect("it starts");
    until("it is held up", is_paused).await;
    assert_eq!(ran(&["resume", "--admin", &socket]).0, 0);
    let output = pause.wait_with_output().expect("it ends");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code() == Some(1) && said.contains("somebody has resumed it"), "{said}");
    second.batch_execute("SELECT 1").await.expect("requests pass");

    let paused =
        gatekeeper(&["pause", "--admin", &socket]).stdout(Stdio::piped()).spawn().expect("it starts");
    until("it is held up", is_paused).await;
    first.batch_execute("COMMIT").await.expect("the transaction ends");
    let output = paused.wait_with_output().expect("it ends");
    assert!(output.status.success(), "{output:?}");
    assert!(String::from_utf8_lossy(&output.stdout).starts_with("paused: no request is in flight"));
    let (code, told, _) = ran(&["status", "--admin", &socket]);
    for line in [
        "  paused (the whole gate): requests wait until `gatekeeper resume`\n",
        "not well: gate postgres: paused by an operator (the whole gate)\n",
    ] {
        assert!(code == 3 && told.contains(line), "{told}");
    }

    let waits = second.batch_execute("SELECT 2");
    tokio::pin!(waits);
    tokio::select! {
        ended = &mut waits => panic!("it waits: {ended:?}"),
        () = until("it waits", async || gate.status()["queued"] == 1) => {}
    }
    let (code, told, said) = ran(&["pause", "--admin", &socket]);
    assert!(code == 1 && said.contains("already paused"), "{told}{said}");
    let (code, _, said) = ran(&["resume", "--admin", &socket, "--database", "nosuch"]);
    assert!(
        code == 1 && said.contains("\"nosuch\" is not paused by itself: the whole gate is; resume that"),
        "{said}"
    );
    assert!(is_paused().await);
    let (code, told, _) = ran(&["resume", "--admin", &socket]);
    assert_eq!((code, told.as_str()), (0, "resumed: requests pass again\n"));
    waits.await.expect("it passes");
    let (code, _, said) = ran(&["resume", "--admin", &socket]);
    assert!(code == 1 && said.contains("gate postgres: not paused"), "{said}");
    let (code, _, said) = ran(&["pause", "--admin", &socket, "--database", "nowhere"]);
    assert!(code == 1 && said.contains("nobody is connected to a database \"nowhere\""), "{said}");
    let (code, _, said) = ran(&["pause", "--admin", &socket, "--gate", "shop"]);
    assert!(code == 2 && said.contains("there is no gate \"shop\"; there are: postgres"), "{said}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reload_says_what_has_changed_or_what_is_wrong_and_drain_ends_the_process() {
    let server = server();
    let mut gate = Gate::start(server.port(), &["connections = 3".to_owned()]);
    let (socket, address) = (gate.admin_socket(), gate.admin_address());
    gate.reconfigure(&["connections = 4".to_owned()]);
    let (code, told, said) = ran(&["reload", "--admin", &socket]);
    assert_eq!((code, said.as_str()), (0, ""));
    assert!(told.contains("connections = 4 instead of 3"), "{told}");
    gate.reconfigure(&["conections = 5".to_owned()]);
    let (code, _, said) = ran(&["reload", "--admin", &socket]);
    assert_eq!(code, 1, "{said}");
    assert!(said.contains("nothing has changed") && said.contains("did you mean `connections`?"), "{said}");
    // Over TCP without a token.
    for command in ["reload", "drain", "pause", "resume"] {
        let (code, _, said) = ran(&[command, "--admin", &address]);
        assert!(code == 1 && said.contains("token_file"), "{command}: {said}");
    }
    gate.assert_alive();

    let client = session(&server, &gate).await;
    client.batch_execute("BEGIN; SELECT 1").await.expect("it runs");
    let (code, told, _) = ran(&["drain", "--admin", &socket]);
    assert!(code == 0 && told.starts_with("draining: no new clients"), "{told}");
    client.batch_execute("COMMIT").await.expect("the transaction may end");
    drop(client);
    assert_eq!(gate.wait().code(), Some(0));
    let (code, _, said) = ran(&["drain", "--wait", "--admin", &socket]);
    assert!(
        code == 1 && said.contains("no gatekeeper answers at unix:") && said.contains("--admin"),
        "{said}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_waits_for_long_hears_so_once_and_only_where_that_is_asked_for() {
    let server = server();
    for (setting, notices) in [("wait_notice = \"100ms\"", 1), ("wait_notice = \"none\"", 0)] {
        let gate = Gate::start(server.port(), &[setting.to_owned()]);
        let socket = gate.admin_socket();
        let first = session(&server, &gate).await;
        first.batch_execute("SELECT 1").await.expect("it runs");
        assert_eq!(ran(&["pause", "--admin", &socket]).0, 0);
        let mut psql = Command::new(server.binaries().program("psql"));
        psql.args(["-At", "-c", "SELECT 42", &server.dsn_through(gate.port())]);
        let psql = psql.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
        let mut psql = psql.expect("psql starts");
        until("it waits", async || gate.status()["queued"] == 1).await;
        let mut said = BufReader::new(psql.stderr.take().expect("it is piped"));
        let mut told = String::new();
        if notices > 0 {
            said.read_line(&mut told).expect("it is text");
        }
        assert_eq!(ran(&["resume", "--admin", &socket]).0, 0);
        said.read_to_string(&mut told).expect("it is text");
        let output = psql.wait_with_output().expect("it ends");
        assert_eq!(String::from_utf8_lossy(&output.stdout), "42\n", "{told}");
        assert_eq!(
            told.matches("NOTICE:  gatekeeper: the request still waits, for 0.1 s now\n").count(),
            notices,
            "{told}"
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_drain_while_a_gate_is_paused_ends_in_time_and_answers_those_that_wait() {
    let server = server();
    let settings = ["drain_timeout = \"100ms\"", "queue_timeout = \"1h\""].map(str::to_owned);
    let mut gate = Gate::start(server.port(), &settings);
    let (socket, client) = (gate.admin_socket(), session(&server, &gate).await);
    let (code, _, said) = ran(&["pause", "--admin", &socket]);
    assert_eq!(code, 0, "{said}");
    let waits = client.batch_execute("SELECT 1");
    tokio::pin!(waits);
    tokio::select! {
        ended = &mut waits => panic!("it waits: {ended:?}"),
        () = until("it waits", async || gate.status()["queued"] == 1) => {}
    }
    let (code, told, _) = ran(&["drain", "--admin", &socket]);
    assert_eq!(code, 0, "{told}");
    let error = waits.await.expect_err("nothing has run");
    let log = gate.log();
    assert_eq!(error.code().map(tokio_postgres::error::SqlState::code), Some("57P01"), "{error:?}\n{log}");
    assert_eq!(gate.wait().code(), Some(0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_address_comes_from_a_flag_the_environment_or_the_configuration() {
    let server = server();
    let gate = Gate::start(server.port(), &["name = \"shop\"".to_owned()]);
    let socket = gate.admin_socket();
    let directory = Path::new(socket.trim_start_matches("unix:")).parent().expect("its directory").to_owned();
    let is_shop = |(code, told, said): (i32, String, String)| {
        assert!(code == 0 && told.contains("gate shop"), "{told}{said}");
        told
    };
    is_shop(outcome(gatekeeper(&["status"]).env("GATEKEEPER_ADMIN", &socket)));
    // As `run` would find it; the socket comes first, because it takes changes.
    let told = is_shop(outcome(gatekeeper(&["status"]).current_dir(&directory)));
    assert!(told.contains("at unix:"), "{told}");
    let file = directory.join("gatekeeper.toml");
    is_shop(ran(&["status", "--config", file.to_str().expect("it is text")]));
    std::fs::write(directory.join("wrong.toml"), "[[gate]]\n").expect("it is written");
    let wrong = directory.join("wrong.toml");
    let (code, _, said) = ran(&["status", "--config", wrong.to_str().expect("it is text")]);
    assert!(code == 2 && said.contains("upstream"), "{said}");
    for command in ["status", "reload", "drain", "pause", "resume"] {
        let (code, told, _) = ran(&[command, "--help"]);
        assert!(code == 0 && told.contains("Exit status: 0"), "{told}");
    }
}

#[test]
fn the_example_of_pgbouncer_becomes_a_configuration_that_passes_check() {
    use std::os::unix::fs::PermissionsExt as _;
    let directory = tempfile::tempdir().expect("a directory");
    let users = directory.path().join("userlist.txt");
    std::fs::write(&users, "\"ann\" \"secret\"\n").expect("it is written");
    std::fs::set_permissions(&users, std::fs::Permissions::from_mode(0o600)).expect("its mode");
    // Debian's package has it; `make setup` installs that.
    let example =
        std::fs::read_to_string("/usr/share/doc/pgbouncer/examples/pgbouncer.ini").expect("the example");
    let own = users.to_str().expect("it is text");
    let plain = example.replace("/etc/pgbouncer/userlist.txt", own);
    // The same with every setting that it shows in a comment.
    let full: String = plain
        .lines()
        .map(|line| {
            let shown = line.strip_prefix(';').filter(|it| !it.starts_with([';', ' ']) && it.contains('='));
            format!("{}\n", shown.unwrap_or(line))
        })
        .collect();
    for (name, text) in [("plain", plain), ("full", full)] {
        let ini = directory.path().join(name);
        std::fs::write(&ini, &text).expect("it is written");
        let (code, written, said) = ran(&["import", ini.to_str().expect("it is text")]);
        assert_eq!((code, said.as_str()), (0, ""), "{name}");
        let file = directory.path().join("gatekeeper.toml");
        std::fs::write(&file, &written).expect("it is written");
        let (code, _, said) = ran(&["check", file.to_str().expect("it is text")]);
        assert_eq!(code, 0, "{name}: {said}\n{written}");
        if name == "full" {
            println!("{written}");
            // Each setting of the file is told, one way or the other.
            let settings = text
                .lines()
                .skip_while(|line| *line != "[pgbouncer]")
                .filter(|line| !line.starts_with([';', '[']));
            for key in settings.filter_map(|line| line.split_once('=')).map(|(key, _)| key.trim()) {
                let carried = [
                    "listen_addr",
                    "listen_port",
                    "unix_socket_dir",
                    "auth_type",
                    "auth_file",
                    "pool_mode",
                    "max_client_conn",
                    "default_pool_size",
                    "auth_query",
                    "admin_users",
                    "stats_users",
                    "query_wait_timeout",
                    "server_connect_timeout",
                    "client_login_timeout",
                    "dns_max_ttl",
                    "server_tls_sslmode",
                    "client_tls_sslmode",
                    "max_db_connections",
                ];
                let is_file = key.contains("_tls_");
                assert!(
                    carried.contains(&key) || is_file || written.contains(&format!("# {key} = ")),
                    "{key}\n{written}"
                );
            }
        }
    }
    let (code, _, said) = ran(&["import", "/nowhere/pgbouncer.ini"]);
    assert!(code == 2 && said.contains("/nowhere/pgbouncer.ini: cannot be read"), "{said}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn in_an_emergency_everything_passes_until_the_gate_is_told_to_decide_again() {
    let server = server();
    server.psql("CREATE TABLE locked (n int)").expect("a table");
    let settings = ["name = \"shop\"", "connections = 3", "capacity = \"1ms\""].map(str::to_owned);
    let gate = Gate::start(server.port(), &settings);
    let (lock, connection) =
        tokio_postgres::connect(&server.dsn(), tokio_postgres::NoTls).await.expect("a session");
    tokio::spawn(connection);
    lock.batch_execute("BEGIN; LOCK TABLE locked").await.expect("it is locked");
    let mut writers = tokio::task::JoinSet::new();
    for _ in 0..4 {
        let client = session(&server, &gate).await;
        writers.spawn(async move { client.batch_execute("INSERT INTO locked VALUES (1)").await });
        until("the first fills the capacity", async || gate.status()["load_seconds"].as_f64() > Some(0.001))
            .await;
    }
    let are = async |in_flight: u64, queued: u64| {
        let status = gate.status();
        (status["in_flight"].as_u64(), status["queued"].as_u64()) == (Some(in_flight), Some(queued))
    };
    until("one runs and three wait", async || are(1, 3).await).await;

    let (code, told, said) = ran(&["pass", "--admin", &gate.admin_socket()]);
    assert_eq!((code, said.as_str()), (0, ""));
    assert!(told.starts_with("everything passes: no order, bound, target or class holds"), "{told}");
    until("as many run as there are connections", async || are(3, 1).await).await;
    let (code, _, said) = ran(&["pass", "--admin", &gate.admin_socket()]);
    assert!(code == 1 && said.contains("everything passes already"), "{said}");
    let (code, told, _) = ran(&["status", "--admin", &gate.admin_address()]);
    assert!(code == 3 && told.contains("not well: gate shop: everything passes, by an operator"), "{told}");
    assert!(told.contains("decides nothing until `gatekeeper enforce`"), "{told}");
    assert!(gate.metrics().contains("gatekeeper_passes_everything{gate=\"shop\"} 1.0"));

    // A reload changes what will be decided again, and ends nothing.
    gate.reconfigure(&["name = \"shop\"", "connections = 2", "capacity = \"1ms\""].map(str::to_owned));
    assert_eq!(ran(&["reload", "--admin", &gate.admin_socket()]).0, 0);
    assert_eq!(gate.status()["passes_everything"], true);
    assert_eq!(gate.status()["passing_max"], 2);

    let (code, told, said) = ran(&["enforce", "--admin", &gate.admin_socket()]);
    assert_eq!(
        (code, told.as_str(), said.as_str()),
        (0, "the gate decides again, as the configuration says\n", "")
    );
    assert_eq!(ran(&["status", "--admin", &gate.admin_address()]).0, 0);
    lock.batch_execute("COMMIT").await.expect("it is let go");
    while let Some(written) = writers.join_next().await {
        written.expect("it runs").expect("it is written");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn over_http_everything_runs_at_once_in_an_emergency() {
    let origin = Origin::start("site").await;
    let start = |mode: &str| {
        let port = testbed::postgres::free_port().expect("a free port");
        let settings = ["protocol = \"http\"", "connections = 1", mode].map(str::to_owned);
        let gate = Gate::start_between(&format!("127.0.0.1:{port}"), &origin.address.to_string(), &settings);
        (gate, port)
    };
    let (gate, port) = start("mode = \"enforce\"");
    let asked: Vec<_> = (0..5)
        .map(|_| std::thread::spawn(move || ask(port, "/held", &[]).expect("a response").status))
        .collect();
    until("one runs and four wait", async || origin.asked() == 1 && gate.status()["queued"] == 4).await;
    assert_eq!(ran(&["pass", "--admin", &gate.admin_socket()]).0, 0);
    until("all run", async || origin.asked() == 5).await;
    // What is told of connections is what is configured.
    assert_eq!(
        (&gate.status()["connections"], &gate.status()["passing_max"]),
        (&1.into(), &serde_json::Value::Null)
    );
    let (_, told, _) = ran(&["status", "--admin", &gate.admin_address()]);
    assert!(!told.contains("kept by sessions"), "{told}");
    origin.let_go(5);
    for asked in asked {
        assert_eq!(asked.join().expect("it ends"), 200);
    }
    let (gate, _) = start("mode = \"observe\"");
    let (code, _, said) = ran(&["pass", "--admin", &gate.admin_socket()]);
    assert!(code == 1 && said.contains("it only observes, so everything passes"), "{said}");
}
