//! The board for Grafana, generated from the declared metrics.
//!
//! A panel names metrics. The kind of a metric says how it is drawn: a counter as its rate, a gauge as it is,
//! a histogram as its 95th percentile and its mean. Of a metric of types the ten largest are drawn, with
//! their texts. The labels of a metric are its legend.

use serde_json::{Value, json};

use super::declarations::{Declared, Source, Undeclared, find};
use super::{Kind, Seconds};

/// A group of panels and its title.
struct Row {
    title: &'static str,
    panels: &'static [Panel],
}

struct Panel {
    title: &'static str,
    /// Metrics and what the legend says of each.
    metrics: &'static [(&'static str, &'static str)],
}

const fn panel(title: &'static str, metrics: &'static [(&'static str, &'static str)]) -> Panel {
    Panel { title, metrics }
}

const BOARD: &[Row] = &[
    Row {
        title: "Is it well?",
        panels: &[
            panel("Requests a second", &[("gatekeeper_requests_total", "")]),
            panel("Refused a second, by reason", &[("gatekeeper_rejections_total", "")]),
            panel("Wait in the queue", &[("gatekeeper_queue_wait_seconds", "")]),
            panel("Time in the service", &[("gatekeeper_upstream_time_seconds", "")]),
            panel("Upstreams that are up", &[("gatekeeper_upstream_up", "")]),
            panel(
                "Left without an answer",
                &[
                    ("gatekeeper_left_in_flight", "in flight for clients that have left"),
                    ("gatekeeper_upstream_failures_total", "failures a second"),
                ],
            ),
        ],
    },
    Row {
        title: "What the gate found",
        panels: &[
            panel(
                "Requests present",
                &[
                    ("gatekeeper_queue_length", "waiting"),
                    ("gatekeeper_in_flight", "in flight"),
                    ("gatekeeper_capacity_requests", "bound"),
                ],
            ),
            panel(
                "Long lane",
                &[("gatekeeper_long_in_flight", "in flight"), ("gatekeeper_long_limit", "limit")],
            ),
            panel(
                "Moves a second",
                &[
                    ("gatekeeper_capacity_moves_total", "of the bound"),
                    ("gatekeeper_groups_formed_total", "groups of types that contend"),
                    ("gatekeeper_stalls_total", "stalls of the service"),
                ],
            ),
            panel(
                "Work",
                &[("gatekeeper_load_seconds", "in flight"), ("gatekeeper_work_seconds_total", "done")],
            ),
        ],
    },
    Row {
        title: "Types of requests",
        panels: &[
            panel("Types with most work", &[("gatekeeper_type_work_seconds_total", "")]),
            panel("Types with most requests", &[("gatekeeper_type_requests_total", "")]),
            panel("Slowest types, in the service", &[("gatekeeper_type_upstream_time_seconds", "")]),
            panel("Longest waits by type", &[("gatekeeper_type_queue_wait_seconds", "")]),
        ],
    },
    Row {
        title: "Clients and connections",
        panels: &[
            panel(
                "Server connections",
                &[
                    ("gatekeeper_connections_in_use", "in use"),
                    ("gatekeeper_connections", "budget"),
                    ("gatekeeper_connections_pinned", "kept by sessions"),
                ],
            ),
            panel("Why sessions keep connections", &[("gatekeeper_pinned_sessions", "")]),
            panel("Changes of session a second", &[("gatekeeper_pool_session_changes_total", "")]),
            panel("Clients", &[("gatekeeper_clients", "")]),
            panel("Logins a second", &[("gatekeeper_logins_total", "")]),
        ],
    },
    Row {
        title: "Service classes",
        panels: &[
            panel("Weights", &[("gatekeeper_class_weight", "")]),
            panel("Waiting, by class", &[("gatekeeper_class_queued", "")]),
            panel("Work, by class", &[("gatekeeper_class_work_seconds_total", "")]),
            panel("Refused a second, by class", &[("gatekeeper_class_rejected_total", "")]),
        ],
    },
    Row {
        title: "The gate itself",
        panels: &[
            panel("Processor", &[("process_cpu_seconds_total", "")]),
            panel(
                "Memory",
                &[
                    ("process_resident_memory_bytes", "resident"),
                    ("gatekeeper_memory_held_bytes", "clients' messages"),
                ],
            ),
            panel("Wait until clients are read", &[("gatekeeper_read_delay_seconds", "")]),
            panel("Open files", &[("process_open_fds", "open"), ("process_max_fds", "most")]),
        ],
    },
];

/// A query and its legend.
type Query = (String, String);

/// The board as a file that Grafana imports.
///
/// # Errors
/// A panel names a metric that isn't declared.
pub fn board() -> Result<String, Undeclared> {
    let mut panels = Vec::new();
    let mut y = 0;
    for row in BOARD {
        panels.push(json!({
            "id": panels.len() + 1,
            "type": "row",
            "title": row.title,
            "gridPos": {"x": 0, "y": y, "w": 24, "h": 1},
            "panels": [],
        }));
        y += 1;
        for (at, panel) in row.panels.iter().enumerate() {
            let (line, side) = (at / 2, at % 2);
            let place = json!({"x": side * 12, "y": y + line * 8, "w": 12, "h": 8});
            panels.push(drawn(panel, panels.len() + 1, &place)?);
        }
        y += row.panels.len().div_ceil(2) * 8;
    }
    let gate = "label_values(gatekeeper_mode_info, gate)";
    let board = json!({
        "title": "Gatekeeper",
        "uid": "gatekeeper",
        "tags": ["gatekeeper"],
        "schemaVersion": 39,
        "version": 1,
        "editable": true,
        "refresh": "10s",
        "time": {"from": "now-1h", "to": "now"},
        "templating": {"list": [
            {"name": "datasource", "type": "datasource", "query": "prometheus", "label": "Data source"},
            {
                "name": "gate",
                "type": "query",
                "datasource": data_source(),
                "query": {"query": gate, "refId": "gate"},
                "definition": gate,
                "includeAll": true,
                "multi": true,
                "allValue": ".*",
                "current": {"text": "All", "value": "$__all"},
                "refresh": 2,
            },
        ]},
        "panels": panels,
    });
    Ok(format!("{board:#}\n"))
}

fn data_source() -> Value {
    json!({"type": "prometheus", "uid": "${datasource}"})
}

fn drawn(panel: &Panel, id: usize, place: &Value) -> Result<Value, Undeclared> {
    let mut queries = Vec::new();
    let mut units = Vec::new();
    for (name, words) in panel.metrics {
        let metric = find(name)?;
        units.push(unit(&metric));
        queries.extend(drawn_as(&metric, words));
    }
    let unit = if units.iter().all(|other| *other == units[0]) { units[0] } else { "none" };
    let targets: Vec<_> = queries
        .into_iter()
        .zip('A'..='Z')
        .map(|((query, legend), letter)| {
            json!({
                "refId": letter,
                "datasource": data_source(),
                "expr": query,
                "legendFormat": legend,
            })
        })
        .collect();
    Ok(json!({
        "id": id,
        "title": panel.title,
        "type": "timeseries",
        "datasource": data_source(),
        "gridPos": place,
        "fieldConfig": {"defaults": {"unit": unit, "min": 0}, "overrides": []},
        "options": {
            "legend": {"displayMode": "table", "placement": "bottom", "calcs": ["lastNotNull"]},
            "tooltip": {"mode": "multi", "sort": "desc"},
        },
        "targets": targets,
    }))
}

/// The unit of what is drawn, by Grafana's names.
fn unit(metric: &Declared) -> &'static str {
    match (metric.kind, metric.in_seconds) {
        (Kind::Counter, Seconds::Yes) => "percentunit",
        (Kind::Counter, Seconds::No) => "ops",
        (Kind::Gauge | Kind::Histogram, Seconds::Yes) => "s",
        _ if metric.name.ends_with("_bytes") => "bytes",
        (Kind::Gauge | Kind::Histogram, Seconds::No) => "none",
    }
}

/// The queries of a metric. Those of the process have the label `instance` in the place of `gate`.
fn drawn_as(metric: &Declared, words: &str) -> Vec<Query> {
    let Declared { name, kind, labels, .. } = metric;
    if labels.first() == Some(&"type") {
        return vec![largest(metric)];
    }
    let (whose, chosen) = match metric.of {
        Source::Gate => ("gate", "{gate=~\"$gate\"}"),
        Source::Process => ("instance", "{job=\"gatekeeper\"}"),
    };
    let by = [&[whose], *labels].concat().join(", ");
    let mut legend: Vec<_> =
        [&[whose], *labels].concat().iter().map(|label| format!("{{{{{label}}}}}")).collect();
    legend.extend((!words.is_empty()).then(|| words.to_owned()));
    let legend = legend.join(" ");
    let rate = |part: &str| format!("rate({name}{part}{chosen}[$__rate_interval])");
    match kind {
        Kind::Gauge => vec![(format!("{name}{chosen}"), legend)],
        Kind::Counter => vec![(format!("sum by ({by}) ({})", rate("")), legend)],
        Kind::Histogram => {
            let p95 = format!("histogram_quantile(0.95, sum by (le, {by}) ({}))", rate("_bucket"));
            let sum = |part| format!("sum by ({by}) ({})", rate(part));
            let mean = format!("{} / {}", sum("_sum"), sum("_count"));
            vec![(p95, format!("{legend} p95")), (mean, format!("{legend} mean"))]
        }
    }
}

/// The ten largest of a metric of types, by their texts.
fn largest(metric: &Declared) -> Query {
    let Declared { name, kind, .. } = metric;
    let chosen = "{gate=~\"$gate\"}[$__rate_interval]";
    let by = "instance, gate, type";
    let of_each = match kind {
        Kind::Gauge => format!("{name}{{gate=~\"$gate\"}}"),
        Kind::Counter => format!("sum by ({by}) (rate({name}{chosen}))"),
        // What nobody has asked for lately is no number, which would be the largest.
        Kind::Histogram => {
            format!("histogram_quantile(0.95, sum by (le, {by}) (rate({name}_bucket{chosen}))) >= 0")
        }
    };
    let with_text = format!("topk(10, {of_each}) * on ({by}) group_left (text) gatekeeper_type_info");
    (with_text, "{{text}}".to_owned())
}
