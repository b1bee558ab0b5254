//! Prometheus beside the gate: its tools check the metrics and the alert rules, a real server scrapes a gate
//! under load, and every panel of the Grafana board shows something.

// Helpers of tests panic as tests do; clippy only knows functions marked as tests.
#![allow(clippy::panic)]

#[path = "support/prometheus.rs"]
mod prometheus;
mod support;

use std::collections::BTreeSet;
use std::io::Write as _;
use std::process::{Command, Stdio};

use prometheus::{Prometheus, alerts, packaging};
use serde_json::Value;
use support::origin::{Origin, ask};
use support::{Gate, server, session, until};
use testbed::postgres::free_port;

fn board() -> Value {
    let text = std::fs::read_to_string(packaging("grafana/gatekeeper.json")).expect("the board is there");
    serde_json::from_str(&text).expect("it is JSON")
}

/// The queries of the board, each with its panel's title.
fn queries() -> Vec<(String, String)> {
    let text = |value: &Value| value.as_str().expect("a text").to_owned();
    let board = board();
    let panels = board["panels"].as_array().expect("panels");
    // A row has no queries.
    let of_panel = |panel: &Value| {
        let targets = panel["targets"].as_array().cloned().unwrap_or_default();
        let title = text(&panel["title"]);
        targets.into_iter().map(move |target| (title.clone(), text(&target["expr"])))
    };
    panels.iter().flat_map(of_panel).collect()
}

/// `promtool` with these arguments and this input must be content.
fn promtool(arguments: &[&str], input: &str) {
    let mut child = Command::new("promtool")
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("promtool runs; scripts/setup prometheus installs it");
    child.stdin.take().expect("its input").write_all(input.as_bytes()).expect("it reads");
    let output = child.wait_with_output().expect("it ends");
    let said =
        String::from_utf8_lossy(&output.stderr).into_owned() + &String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}");
}

#[test]
fn promtool_takes_the_alert_rules() {
    assert!(alerts().len() > 10, "{} alerts", alerts().len());
    let rules = packaging("prometheus/gatekeeper.rules.yml");
    promtool(&["check", "rules", rules.to_str().expect("a text")], "");
}

/// A gate for HTTP with two classes, so that their panel has something to show.
fn gate_with_classes() -> Gate {
    let lines = [
        "protocol = \"http\"",
        "name = \"site\"",
        "[[gate.class]]\nname = \"buyers\"\nweight = 3\npath = \"/buy/*\"",
        "[[gate.class]]\nname = \"default\"",
    ];
    let (listen, upstream) = (free_port().expect("a port"), free_port().expect("a port"));
    let at = |port: u16| format!("127.0.0.1:{port}");
    Gate::start_between(&at(listen), &at(upstream), &lines.map(str::to_owned))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_real_prometheus_fills_every_panel() {
    let server = server();
    let settings = ["name = \"shop\"", "connections = 2", "queue_max = 2"].map(str::to_owned);
    let gate = Gate::start(server.port(), &settings);
    let site = gate_with_classes();
    let prometheus = Prometheus::start(&[gate.admin_address(), site.admin_address()]);
    let client = session(&server, &gate).await;
    assert!(queries().len() > 30, "{} queries", queries().len());
    // What a gate learns only in time: load goes on until each panel has something.
    for (title, query) in queries() {
        let query = query.replace("$__rate_interval", "10s").replace("$gate", ".*");
        let shows = async || {
            client.batch_execute("SELECT 1").await.expect("it runs");
            client.batch_execute("SELECT pg_sleep(0.005)").await.expect("it runs");
            !prometheus.query(&query).is_empty()
        };
        until(&format!("{title}: {query}\n{}", prometheus.log()), shows).await;
    }

    let mut request =
        ureq::get(format!("http://{}/metrics", gate.admin_address())).header("Accept", "text/plain").call();
    let text = request.as_mut().expect("metrics").body_mut().read_to_string().expect("a text");
    promtool(&["check", "metrics"], &text);
}

/// The names and labels of all series, without those of types and groups, which are new things.
fn series(gate: &Gate) -> BTreeSet<String> {
    let lines = gate.metrics();
    let lines = lines.lines().filter(|line| !line.starts_with('#'));
    let names = lines.filter_map(|line| line.rsplit_once(' ')).map(|(name, _)| name.to_owned());
    names.filter(|name| !["type=\"", "group=\""].iter().any(|label| name.contains(label))).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn series_of_a_gate_for_a_site_neither_come_nor_go_with_the_load() {
    let origin = Origin::start("site").await;
    let settings = [
        "protocol = \"http\"",
        "connections = 2",
        "queue_max = 4",
        "contention = \"auto\"",
        "target = \"50ms\"",
        "uplink = \"auto\"",
        "[[gate.type]]\nname = \"/held\"\ntarget = \"1ms\"",
        "[[gate.class]]\nname = \"buyers\"\ngoal = \"20ms\"\npath = \"/buy/*\"",
        "[[gate.class]]\nname = \"default\"",
        "[[gate.route]]\npath = \"/held\"",
    ];
    let gate = Gate::start(origin.address.port(), &settings.map(str::to_owned));
    let told = |line: &str| assert!(gate.metrics().contains(line), "{line}\n{}", gate.metrics());
    let idle = series(&gate);
    told("gatekeeper_present_bound{gate=\"http\"} +Inf\n");
    told("gatekeeper_parallelism_requests{gate=\"http\"} NaN\n");
    told("gatekeeper_uplink_rate_bytes{gate=\"http\"} NaN\n");
    told("gatekeeper_backlog_bound{gate=\"http\"} +Inf\n");
    told("gatekeeper_class_goal_ratio{gate=\"http\",class=\"buyers\"} NaN\n");
    let port = gate.port();
    let ask_all = |path: &'static str| {
        (0..8).map(move |_| tokio::task::spawn_blocking(move || ask(port, path, &[]))).collect::<Vec<_>>()
    };
    for one in ask_all("/buy/it").into_iter().chain(ask_all("/slow")) {
        one.await.expect("no panic").expect("an answer");
    }
    let held = ask_all("/held");
    let none_refused = "gatekeeper_requests_total{gate=\"http\",outcome=\"rejected\"} 0\n";
    until("some are refused and some in flight", async || {
        !gate.metrics().contains(none_refused) && gate.status()["in_flight"] != 0
    })
    .await;
    let busy = series(&gate);
    assert_eq!(idle.symmetric_difference(&busy).collect::<Vec<_>>(), Vec::<&String>::new());
    origin.let_go(held.len());
    for one in held {
        one.await.expect("no panic").expect("an answer");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn series_of_a_gate_for_a_database_neither_come_nor_go_with_the_load() {
    let server = server();
    let gate = Gate::start(server.port(), &["queue_max = 0", "metrics_types_max = 1"].map(str::to_owned));
    let [one, two] = [session(&server, &gate).await, session(&server, &gate).await];
    one.batch_execute("SELECT 1").await.expect("it runs");
    until("it is idle", async || gate.status()["in_flight"] == 0).await;
    let idle = series(&gate);
    for _ in 0..50 {
        let statements =
            ["SELECT pg_sleep(0.005)", "SELECT 1, 2", "SELECT sum(n) FROM generate_series(1, 9999) n"];
        for statement in statements {
            two.batch_execute(statement).await.expect("it runs");
        }
    }
    one.batch_execute("BEGIN; SELECT 1").await.expect("it runs");
    let busy = series(&gate);
    assert_eq!(idle.symmetric_difference(&busy).collect::<Vec<_>>(), Vec::<&String>::new());

    // One type has series of its own, whatever comes, and the others are `other` together.
    let metrics = gate.metrics();
    let infos: Vec<_> = metrics.lines().filter(|line| line.starts_with("gatekeeper_type_info{")).collect();
    assert!(infos.len() == 2 && infos.iter().any(|line| line.contains("type=\"other\"")), "{infos:?}");
    let count = |line: &str| line.rsplit_once(' ').and_then(|(_, count)| count.parse::<u64>().ok());
    let succeeded = |name: &str| {
        let own =
            metrics.lines().filter(|line| line.starts_with(name) && line.contains("outcome=\"success\""));
        own.filter_map(count).sum::<u64>()
    };
    assert_eq!(succeeded("gatekeeper_type_requests_total{"), succeeded("gatekeeper_requests_total{"));
}
