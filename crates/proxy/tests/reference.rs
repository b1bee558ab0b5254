//! The page of metrics, the board and the alert rules on disk are what the declarations generate.

use std::path::Path;

use proxy::metrics;

/// Compares a file of the project with what is generated, or writes it.
fn is_up_to_date(file: &str, generated: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(file);
    if std::env::var_os("UPDATE_REFERENCE").is_some() {
        std::fs::write(&path, generated).expect("it is written");
    }
    let on_disk = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        on_disk == generated,
        "{file} is out of date: run `UPDATE_REFERENCE=1 cargo test -p proxy --test reference`"
    );
}

#[test]
fn the_page_of_metrics_is_up_to_date() {
    is_up_to_date("docs/reference/metrics.md", &metrics::reference());
}

#[test]
fn the_board_and_the_rules_are_up_to_date() {
    is_up_to_date("packaging/grafana/gatekeeper.json", &metrics::board().unwrap());
    is_up_to_date("packaging/prometheus/gatekeeper.rules.yml", &metrics::rules().unwrap());
}
