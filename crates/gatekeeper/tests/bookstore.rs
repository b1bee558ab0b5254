//! A whole site between two gates: browsers, a gate for HTTP, the bookstore, a gate for PostgreSQL, the
//! database.

// Helpers of tests panic as tests do; clippy only knows functions marked as tests.
#![allow(clippy::panic)]

mod support;

use std::collections::BTreeSet;

use bookstore::browse::Summary;
use bookstore::{browse, check, populate, site};
use clap::Parser;

use support::{Gate, server, until};

#[derive(Debug, Parser)]
enum Bookstore {
    Populate(populate::Options),
    Serve(site::Options),
    Check(check::Options),
    Browse(Box<browse::Options>),
}

/// What the program does with these arguments.
async fn bookstore(arguments: &[&str]) {
    let arguments = [&["bookstore"], arguments].concat();
    let done = match Bookstore::try_parse_from(arguments).expect("flags that fit") {
        Bookstore::Populate(options) => populate::run(options).await,
        Bookstore::Serve(options) => site::run(options).await,
        Bookstore::Check(options) => check::run(options).await,
        // The client may well be the bottleneck on a busy machine; what matters is in the file.
        Bookstore::Browse(options) => browse::run(*options).await.map(|_| ()),
    };
    done.expect("it does what it was told");
}

/// The names of a gate's types.
fn names(gate: &Gate) -> BTreeSet<String> {
    let types = gate.types();
    let types = types.as_array().expect("types");
    types.iter().filter_map(|known| known["type"].as_str()).map(str::to_owned).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_bookstore_between_two_gates_is_served_right_and_both_know_its_pages() {
    let server = server();
    let filled = server.url();
    bookstore(&[
        "populate",
        "--quiet",
        "--no-images",
        "--database",
        &filled,
        "--browsers",
        "1",
        "--items",
        "200",
    ])
    .await;
    let before_database = Gate::start(server.port(), &["connections = 4".to_owned()]);
    let port = testbed::postgres::free_port().expect("a free port").to_string();
    let (through, listen) = (server.url_through(before_database.port()), format!("127.0.0.1:{port}"));
    let serving = tokio::spawn(async move {
        bookstore(&["serve", "--database", &through, "--listen", &listen, "--connection-timeout", "120s"])
            .await;
    });
    let healthy = format!("http://127.0.0.1:{port}/healthz");
    until("the site listens", async || ureq::get(&healthy).call().is_ok()).await;
    let lines = ["protocol = \"http\"", "connections = 8"].map(str::to_owned);
    let before_site = Gate::start(port.parse().expect("a port"), &lines);

    let directory = tempfile::tempdir().expect("a temporary directory");
    let json = directory.path().join("told.json");
    let (address, json_path) =
        (format!("http://127.0.0.1:{}", before_site.port()), json.display().to_string());
    let wanted = ["/", "/new", "/best", "/search/results", "/cart"];
    let missing = || {
        let known = [names(&before_site), names(&before_database)];
        wanted.into_iter().find(|route| known.iter().any(|names| !names.iter().any(|it| it.ends_with(route))))
    };
    // A busy machine serves few pages in a round.
    for seed in 1..=60 {
        let seed = seed.to_string();
        let who = ["browse", "--site", &address, "--browsers", "40", "--seed", &seed, "--json", &json_path];
        let how = [
            "--think-scale",
            "0.01",
            "--warm-up",
            "0s",
            "--duration",
            "3s",
            "--timeout",
            "120s",
            "--allow-errors",
        ];
        bookstore(&[&who[..], &how].concat()).await;
        let told: Summary =
            serde_json::from_slice(&std::fs::read(&json).expect("a file")).expect("a summary");
        let counts = told.total.counts;
        let amiss = [counts.rejected, counts.timed_out, counts.failed, counts.wrong];
        assert_eq!(amiss, [0; 4], "{:?}\n{}", told.complaints, before_database.log_tail());
        if missing().is_none() {
            break;
        }
    }
    bookstore(&["check", "--database", &filled]).await;
    assert_eq!(missing(), None, "{:?}, {:?}", names(&before_site), names(&before_database));
    serving.abort();
}
