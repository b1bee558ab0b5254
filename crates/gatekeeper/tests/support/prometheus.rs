//! A real Prometheus with the packaged alert rules.

// Each test binary uses a part of this.
#![allow(dead_code)]

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use regex::Regex;
use serde_json::Value;
use tempfile::TempDir;
use testbed::postgres::free_port;

/// A packaged file.
pub(crate) fn packaging(file: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging").join(file)
}

fn rules() -> String {
    std::fs::read_to_string(packaging("prometheus/gatekeeper.rules.yml")).expect("the rules are there")
}

/// The rules, in which seconds stand for the minutes that a condition must hold, and rates are those of
/// the last 30 seconds.
fn hasty_rules() -> String {
    let hasty = Regex::new(r"\bfor: \d+m").expect("a pattern").replace_all(&rules(), "for: 1s").into_owned();
    hasty.replace("[5m]", "[30s]")
}

/// The expressions of the alerts, by name.
pub(crate) fn alerts() -> Vec<(String, String)> {
    let rule = Regex::new(r"- alert: (\w+)\n\s+expr: (.+)").expect("a pattern");
    rule.captures_iter(&rules()).map(|found| (found[1].to_owned(), found[2].to_owned())).collect()
}

/// A Prometheus that scrapes gates every two seconds; dropping it ends it.
pub(crate) struct Prometheus {
    child: Child,
    port: u16,
    directory: TempDir,
}

impl Prometheus {
    /// Starts one that scrapes these addresses.
    pub(crate) fn start(targets: &[String]) -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let port = free_port().expect("a free port");
        let targets: Vec<_> = targets.iter().map(|target| format!("\"{target}\"")).collect();
        let rules = directory.path().join("rules.yml");
        std::fs::write(&rules, hasty_rules()).expect("they are written");
        let config = format!(
            "global: {{scrape_interval: 2s, evaluation_interval: 1s}}\nrule_files: [\"{}\"]\nscrape_configs:\n  - job_name: gatekeeper\n    static_configs: [{{targets: [{}]}}]\n",
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
    pub(crate) fn query(&self, expression: &str) -> Vec<Value> {
        let url = format!("http://127.0.0.1:{}/api/v1/query", self.port);
        let answer =
            ureq::get(&url).query("query", expression).config().http_status_as_error(false).build().call();
        let Ok(mut answer) = answer else { return Vec::new() };
        let text = answer.body_mut().read_to_string().expect("a text");
        let answer: Value = serde_json::from_str(&text).unwrap_or_default();
        assert_ne!(answer["status"], "error", "{expression}: {answer}");
        answer["data"]["result"].as_array().cloned().unwrap_or_default()
    }

    /// The alerts that are pending or firing, by name, with the address of the gatekeeper that they are of.
    pub(crate) fn alerts(&self, state: &str) -> BTreeSet<(String, String)> {
        let expression = format!("ALERTS{{alertstate=~\"{state}\"}}");
        let label = |alert: &Value, name: &str| alert["metric"][name].as_str().unwrap_or_default().to_owned();
        let found = self.query(&expression);
        found.iter().map(|alert| (label(alert, "alertname"), label(alert, "instance"))).collect()
    }

    /// What it has logged.
    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(self.directory.path().join("log")).unwrap_or_default()
    }
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
