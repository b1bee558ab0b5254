//! A trace of a real gatekeeper in front of a real PostgreSQL, replayed by the real binary.

// Helpers of tests panic as tests do; clippy only knows functions marked as tests.
#![allow(clippy::panic)]

mod support;

use std::collections::HashMap;
use std::ffi::OsStr;
use std::path::Path;
use std::process::Command;

use admission::ClassId;
use proxy::trace::{Entry, Item, TraceReader, What};
use support::origin::Origin;
use support::{Gate, server, session, until};

/// Exit status, standard output, standard error.
fn replay(trace: &Path, flags: &[&str]) -> (Option<i32>, String, String) {
    asked("replay", trace.as_os_str(), flags)
}

fn asked(command: &str, of: &OsStr, flags: &[&str]) -> (Option<i32>, String, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_gatekeeper"))
        .arg(command)
        .arg(of)
        .args(flags)
        .output()
        .expect("it runs");
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("it is text");
    (output.status.code(), text(output.stdout), text(output.stderr))
}

/// Requests over HTTP that never have company, as many as an advice takes.
async fn ask_in_turn(gate: &Gate) {
    let url = format!("http://127.0.0.1:{}/", gate.port());
    let asking = tokio::task::spawn_blocking(move || {
        let agent = ureq::agent();
        (0..1_100).for_each(|_| drop(agent.get(&url).call().expect("an answer").body_mut().read_to_vec()));
    });
    asking.await.expect("no panic");
}

/// The requests of each type in the table, by the beginning of its name.
fn requests(table: &str) -> HashMap<String, u64> {
    let rows = table.lines().skip_while(|line| !line.starts_with("wait + upstream time of")).skip(1);
    let row = |line: &str| {
        let (name, cells) = line.split_at(line.char_indices().nth(41).expect("a row is long").0);
        let count = cells.split_whitespace().next().expect("a count").parse().expect("a number");
        (name.trim_end_matches([' ', '…']).to_owned(), count)
    };
    rows.take_while(|line| !line.is_empty()).map(row).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_recorded_is_replayed_with_each_request_of_each_type() {
    let (server, directory) = (server(), tempfile::tempdir().expect("a temporary directory"));
    let trace = directory.path().join("shop.trace");
    let settings = [
        "connections = 3".to_owned(),
        "queue_max = 50".to_owned(),
        format!("trace_file = {:?}", trace.display().to_string()),
    ];
    let mut gate = Gate::start(server.port(), &settings);
    let mut clients = Vec::new();
    for number in 0..6 {
        let client = session(&server, &gate).await;
        clients.push(tokio::spawn(async move {
            for _ in 0..10 {
                client.batch_execute("SELECT 471108150042, 'a secret'").await.expect("it runs");
                client
                    .batch_execute("SELECT sum(n) FROM generate_series(1, 20000) n")
                    .await
                    .expect("it runs");
            }
            if number == 0 {
                client.batch_execute("SELECT 1 / 0").await.expect_err("it fails");
                client.batch_execute("BEGIN; SELECT 1; SELECT 2; COMMIT").await.expect("it runs");
            }
        }));
    }
    for client in clients {
        client.await.expect("no client failed");
    }
    let types = gate.types();
    gate.signal("TERM");
    assert_eq!(gate.wait().code(), Some(0));
    let bytes = std::fs::read(&trace).expect("there is a trace");
    let found = |text: &str| bytes.windows(text.len()).any(|window| window == text.as_bytes());
    assert!(found("generate_series") && !found("secret") && !found("471108150042"), "no literal is written");

    let output = directory.path().join("replay");
    let flags = [
        "--cores",
        "2",
        "--order",
        "fifo",
        "--connections",
        "1",
        "--queue-max",
        "1000",
        "--output",
        output.to_str().expect("Unicode"),
    ];
    let (code, table, said) = replay(&trace, &flags);
    assert_eq!(code, Some(0), "{said}\n{}", gate.log_tail());
    let first = |table: &str| table.lines().next().unwrap_or_default().to_owned();
    assert!(first(&table).ends_with("a service that shares 2 cores"), "{table}");
    let (_, of_gate, _) = replay(&trace, &[]);
    assert!(first(&of_gate).ends_with("cores, as the gate had learned"), "{of_gate}");
    // Each type with as many requests as the gate has counted.
    let replayed = requests(&table);
    let counted = types.as_array().expect("types");
    assert_eq!(replayed.len(), counted.len(), "{table}");
    let mut all = 0;
    for known in counted {
        let label = known["type"].as_str().expect("a label");
        let count = |what: &str| known["requests"][what].as_u64().expect("a number");
        let ended = count("succeeded_total")
            + count("failed_total")
            + count("conflicted_total")
            + count("canceled_total");
        // Long names are cut, and one may begin like another one.
        let names = replayed.keys().filter(|name| label.starts_with(name.as_str()));
        let name = names.max_by_key(|name| name.len());
        let name = name.unwrap_or_else(|| panic!("{label} in\n{table}"));
        assert_eq!(replayed[name], ended, "{label}\n{table}");
        all += ended;
    }
    // Every gate met all of them, and so the rows say.
    for gate in ["recorded", "replayed", "with the flags", "without a gate"] {
        let row = table
            .lines()
            .find_map(|line| line.strip_prefix(gate))
            .unwrap_or_else(|| panic!("{gate}\n{table}"));
        let counts: Vec<&str> = row.split_whitespace().take(3).collect();
        assert_eq!(counts, [all.to_string().as_str(), all.to_string().as_str(), "0"], "{table}");
    }
    assert!(std::fs::read_to_string(output.join("plot.svg")).expect("a plot").contains("<polyline"));
    let rows = std::fs::read_to_string(output.join("rows-replayed-1.csv")).expect("rows");
    assert_eq!(rows.lines().count() as u64, all + 1);

    // One that is cut off is said to be, and is replayed as far as it goes if that is asked for.
    let cut = directory.path().join("cut.trace");
    std::fs::write(&cut, &bytes[..bytes.len() - 1]).expect("it is written");
    let (code, _, said) = replay(&cut, &[]);
    assert_eq!(code, Some(2));
    assert!(said.contains("is cut off here, within a block") && said.contains("--partial"), "{said}");
    let (code, _, said) = replay(&trace, &["--connections", "many"]);
    assert_eq!(code, Some(2));
    assert!(said.contains("--connections \"many\""), "{said}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_request_is_recorded_with_its_class() {
    let (server, directory) = (server(), tempfile::tempdir().expect("a temporary directory"));
    let path = directory.path().join("shop.trace");
    let settings = [
        format!("trace_file = {:?}", path.display().to_string()),
        "[[gate.class]]\nname = \"reports\"\napplication = \"reports\"".to_owned(),
    ];
    let mut gate = Gate::start(server.port(), &settings);
    for (application, requests) in [("reports", 3), ("shop", 2)] {
        let dsn = format!("{} application_name={application}", server.dsn_through(gate.port()));
        let (client, connection) =
            tokio_postgres::connect(&dsn, tokio_postgres::NoTls).await.expect("the login succeeds");
        tokio::spawn(connection);
        for _ in 0..requests {
            client.batch_execute("SELECT 1").await.expect("it runs");
        }
    }
    gate.signal("TERM");
    assert_eq!(gate.wait().code(), Some(0));
    let mut trace = TraceReader::new(std::fs::File::open(&path).expect("a trace")).expect("it begins well");
    let mut classes: HashMap<ClassId, u64> = HashMap::new();
    while let Some(item) = trace.next_item().expect("it is whole") {
        if let Item::Entry(Entry { what: What::Arrived { class, .. }, .. }) = item {
            *classes.entry(class).or_default() += 1;
        }
    }
    assert_eq!(classes, HashMap::from([(ClassId::named("reports"), 3), (ClassId::DEFAULT, 2)]));
    let (code, table, said) = replay(&path, &["--cores", "1"]);
    assert_eq!(code, Some(0), "{said}");
    let replayed = table.lines().find_map(|line| line.strip_prefix("replayed")).expect("a row");
    assert_eq!(replayed.split_whitespace().take(2).collect::<Vec<_>>(), ["5", "5"], "{table}");
}

#[tokio::test(flavor = "multi_thread")]
async fn cores_that_nobody_knows_are_a_guess_on_the_first_line_of_all_that_follows_from_them() {
    let (origin, directory) = (Origin::start("site").await, tempfile::tempdir().expect("a directory"));
    let path = directory.path().join("site.trace");
    let settings = [
        "protocol = \"http\"".to_owned(),
        "mode = \"observe\"".to_owned(),
        format!("trace_file = {:?}", path.display().to_string()),
    ];
    let mut gate = Gate::start(origin.address.port(), &settings);
    ask_in_turn(&gate).await;
    let admin = gate.admin_address();
    let observed = |more: &[&str]| {
        let told = asked("observe", "--admin".as_ref(), &[&[&*admin], more].concat()).1;
        told.lines().find(|line| line.contains("In the last ")).unwrap_or_default().to_owned()
    };
    let guess = "The service's 4 cores are a guess (name them with --cores). In the last ";
    until("enough are kept to tell what would be saved", async || observed(&[]).starts_with(guess)).await;
    assert!(observed(&["--cores", "4"]).starts_with("In the last "));
    gate.signal("TERM");
    assert_eq!(gate.wait().code(), Some(0));

    let first = |command: &str, more: &[&str]| {
        let (code, told, said) = asked(command, path.as_os_str(), more);
        // On a busy machine a replay may not fit.
        assert!(code == Some(0) || code == Some(3) && told.contains("does not fit"), "{told}{said}");
        told.lines().next().unwrap_or_default().to_owned()
    };
    let replayed = first("replay", &[]);
    assert!(replayed.ends_with("shares 4 cores: a guess, so name them with --cores"), "{replayed}");
    let advised = first("advise", &[]);
    assert!(advised.starts_with(guess), "{advised}");
    assert!(first("replay", &["--cores", "4"]).ends_with("shares 4 cores"));
    assert!(first("advise", &["--cores", "4"]).starts_with("In the last "));
}

#[tokio::test(flavor = "multi_thread")]
async fn advice_is_one_line_where_nothing_helps() {
    let (origin, directory) = (Origin::start("site").await, tempfile::tempdir().expect("a directory"));
    let path = directory.path().join("site.trace");
    let trace = format!("trace_file = {:?}", path.display().to_string());
    let mut gate = Gate::start(origin.address.port(), &["protocol = \"http\"".to_owned(), trace]);
    ask_in_turn(&gate).await;
    gate.signal("TERM");
    assert_eq!(gate.wait().code(), Some(0));
    let (code, told, said) = asked("advise", path.as_os_str(), &["--cores", "4"]);
    assert_eq!(code, Some(0), "{said}");
    assert!(told.lines().count() == 1 && told.starts_with("None of the "), "{told}");
}

#[test]
fn what_is_no_trace_is_refused_with_the_byte_where() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let path = directory.path().join("foreign");
    std::fs::write(&path, "something else").expect("it is written");
    let (code, table, said) = replay(&path, &[]);
    assert_eq!((code, table.as_str()), (Some(2), ""));
    assert_eq!(said, format!("{}: byte 0: is no trace of a gatekeeper\n", path.display()));
    let (code, _, said) = replay(&directory.path().join("none"), &[]);
    assert!(code == Some(2) && said.contains("No such file"), "{said}");
}
