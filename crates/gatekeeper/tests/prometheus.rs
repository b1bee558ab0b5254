//! Prometheus beside the gate: its tools check the metrics and the alert rules, a real server scrapes a gate
//! under load, every panel of the Grafana board shows something, and alerts follow faults.

// Helpers of tests panic as tests do; clippy only knows functions marked as tests.
#![allow(clippy::panic)]

mod support;

use std::collections::BTreeSet;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use bench::postgres::{Stop, free_port};
use regex::Regex;
use serde_json::Value;
use support::{Gate, server, session, until};
use tempfile::TempDir;

fn packaging(file: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging").join(file)
}

fn board() -> Value {
    let text = std::fs::read_to_string(packaging("grafana/gatekeeper.json")).expect("the board is there");
    serde_json::from_str(&text).expect("it is JSON")
}

/// The queries of the board, each with its panel's title.
fn queries() -> Vec<(String, String)> {
    let text = |value: &Value| value.as_str().expect("a text").to_owned();
    let board = board();
    let panels = board["panels"].as_array().expect("panels");
    let of_panel = |panel: &Value| {
        let targets = panel["targets"].as_array().expect("targets").clone();
        let title = text(&panel["title"]);
        targets.into_iter().map(move |target| (title.clone(), text(&target["expr"])))
    };
    panels.iter().flat_map(of_panel).collect()
}

/// The expressions of the alerts, by name.
fn alerts() -> Vec<(String, String)> {
    let rules =
        std::fs::read_to_string(packaging("prometheus/gatekeeper.rules.yml")).expect("the rules are there");
    let rule = Regex::new(r"- alert: (\w+)\n\s+expr: (.+)").expect("a pattern");
    rule.captures_iter(&rules).map(|found| (found[1].to_owned(), found[2].to_owned())).collect()
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
fn every_metric_of_board_and_rules_is_declared() {
    let reference = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference/metrics.md");
    let reference = std::fs::read_to_string(reference).expect("the reference is there");
    let name = Regex::new(r"\b(?:gatekeeper|process)_[a-z_]+").expect("a pattern");
    let declared: BTreeSet<_> = name.find_iter(&reference).map(|found| found.as_str().to_owned()).collect();
    let (queries, alerts) = (queries(), alerts());
    assert!(queries.len() > 20 && alerts.len() > 10, "{} queries, {} alerts", queries.len(), alerts.len());
    for (of, expression) in queries.iter().chain(&alerts) {
        for found in name.find_iter(expression) {
            let base = ["_bucket", "_sum", "_count"].iter().find_map(|end| found.as_str().strip_suffix(end));
            let is_known =
                declared.contains(found.as_str()) || base.is_some_and(|base| declared.contains(base));
            assert!(is_known, "{of}: there is no metric {}", found.as_str());
        }
    }
    let rules = packaging("prometheus/gatekeeper.rules.yml");
    promtool(&["check", "rules", rules.to_str().expect("a text")], "");
}

/// A Prometheus that scrapes gates every second; dropping it ends it.
struct Prometheus {
    child: Child,
    port: u16,
    directory: TempDir,
}

impl Prometheus {
    fn start(targets: &[String]) -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let port = free_port().expect("a free port");
        let targets: Vec<_> = targets.iter().map(|target| format!("\"{target}\"")).collect();
        let rules = packaging("prometheus/gatekeeper.rules.yml").canonicalize().expect("the rules are there");
        let config = format!(
            "global: {{scrape_interval: 1s, evaluation_interval: 1s}}\nrule_files: [\"{}\"]\nscrape_configs:\n  - job_name: gatekeeper\n    static_configs: [{{targets: [{}]}}]\n",
            rules.display(),
            targets.join(", ")
        );
        let file = directory.path().join("prometheus.yml");
        std::fs::write(&file, config).expect("it is written");
        let log = std::fs::File::create(directory.path().join("log")).expect("a log");
        let child = Command::new("prometheus")
            .arg(format!("--config.file={}", file.display()))
            .arg(format!("--storage.tsdb.path={}", directory.path().join("data").display()))
            .arg(format!("--web.listen-address=127.0.0.1:{port}"))
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .expect("prometheus starts; scripts/setup prometheus installs it");
        Self { child, port, directory }
    }

    /// The result of a query; nothing while it doesn't answer.
    fn query(&self, expression: &str) -> Vec<Value> {
        let url = format!("http://127.0.0.1:{}/api/v1/query", self.port);
        let answer =
            ureq::get(&url).query("query", expression).config().http_status_as_error(false).build().call();
        let Ok(mut answer) = answer else { return Vec::new() };
        let text = answer.body_mut().read_to_string().expect("a text");
        let answer: Value = serde_json::from_str(&text).unwrap_or_default();
        assert_ne!(answer["status"], "error", "{expression}: {answer}");
        answer["data"]["result"].as_array().cloned().unwrap_or_default()
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.directory.path().join("log")).unwrap_or_default()
    }
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
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
async fn a_real_prometheus_fills_every_panel_and_alerts_follow_faults() {
    let mut server = server();
    let settings = ["name = \"shop\"", "connections = 2", "queue_max = 2"].map(str::to_owned);
    let gate = Gate::start(server.port(), &settings);
    let site = gate_with_classes();
    let prometheus = Prometheus::start(&[gate.admin_address(), site.admin_address()]);
    let client = session(&server, &gate).await;
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

    let of_rule = |name: &str| {
        let found = alerts().into_iter().find(|(known, _)| known == name);
        found.unwrap_or_else(|| panic!("no alert {name}")).1
    };
    let is_silent =
        |name: &str| prometheus.query(&of_rule(name)).iter().all(|it| it["metric"]["gate"] == "site");
    for (name, _) in alerts() {
        assert!(is_silent(&name), "{name}: {:?}", prometheus.query(&of_rule(&name)));
    }
    // Faults, one after the other.
    gate.reconfigure(&["conections = 1".to_owned()]);
    gate.signal("HUP");
    until("a failed reload", async || !is_silent("GatekeeperReloadFailed")).await;
    let holder = session(&server, &gate).await;
    let mut crowd = Vec::new();
    for _ in 0..6 {
        crowd.push(session(&server, &gate).await);
    }
    holder.batch_execute("CREATE TEMPORARY TABLE kept (n int)").await.expect("it runs");
    until("a connection is kept", async || !is_silent("GatekeeperConnectionsPinned")).await;
    let mut refused = tokio::task::JoinSet::new();
    for client in crowd {
        refused.spawn(async move {
            loop {
                if client.batch_execute("SELECT pg_sleep(0.05)").await.is_err() {
                    tokio::time::sleep(std::time::Duration::from_millis(10)).await;
                }
            }
        });
    }
    until("requests are refused", async || !is_silent("GatekeeperRefuses")).await;
    drop(refused);
    server.stop(Stop::Fast);
    until("the server is down", async || {
        let _ = client.batch_execute("SELECT 1").await;
        !is_silent("GatekeeperUpstreamDown")
    })
    .await;
    drop(gate);
    until("the gate is down", async || !prometheus.query(&of_rule("GatekeeperDown")).is_empty()).await;
}
