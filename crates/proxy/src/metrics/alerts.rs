//! The alert rules for Prometheus. Their expressions name declared metrics only.

use std::fmt::Write as _;

use super::declarations::{Undeclared, find};

/// How soon somebody should look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Severity {
    /// Nobody is served.
    Critical,
    Warning,
}

struct Alert {
    name: &'static str,
    /// True while something is wrong.
    expression: &'static str,
    /// Minutes for which this must hold.
    minutes: u32,
    severity: Severity,
    summary: &'static str,
}

const fn warning(name: &'static str, expression: &'static str, minutes: u32, summary: &'static str) -> Alert {
    Alert { name, expression, minutes, severity: Severity::Warning, summary }
}

const ALERTS: &[Alert] = &[
    Alert {
        name: "Down",
        expression: "up{job=\"gatekeeper\"} == 0",
        minutes: 1,
        severity: Severity::Critical,
        summary: "Gatekeeper at {{ $labels.instance }} can't be scraped",
    },
    Alert {
        name: "UpstreamDown",
        expression: "gatekeeper_upstream_up == 0",
        minutes: 1,
        severity: Severity::Critical,
        summary: "gate {{ $labels.gate }}: {{ $labels.upstream }} is down",
    },
    warning(
        "Refuses",
        "sum by (instance, gate, reason) (rate(gatekeeper_rejections_total[5m])) > 0.1",
        5,
        "gate {{ $labels.gate }} refuses {{ $value | humanize }} requests a second: {{ $labels.reason }}",
    ),
    warning(
        "QueueSlow",
        "histogram_quantile(0.95, sum by (le, instance, gate) (rate(gatekeeper_queue_wait_seconds_bucket[5m]))) > 1",
        10,
        "gate {{ $labels.gate }}: one request in twenty waits longer than {{ $value | humanizeDuration }}",
    ),
    warning(
        "ConnectionsPinned",
        "gatekeeper_connections_pinned / gatekeeper_connections > 0.4",
        10,
        "gate {{ $labels.gate }}: sessions keep {{ $value | humanizePercentage }} of the connections",
    ),
    warning(
        "Late",
        "rate(gatekeeper_late_seconds_total[5m]) > 0.1",
        5,
        "gate {{ $labels.gate }}: the gate itself is short of processor time",
    ),
    warning(
        "LoginsFail",
        "sum by (instance, gate) (rate(gatekeeper_logins_total{outcome!=\"success\"}[5m])) > 0.1",
        5,
        "gate {{ $labels.gate }}: {{ $value | humanize }} logins a second fail",
    ),
    warning(
        "Conflicts",
        "sum by (instance, gate) (rate(gatekeeper_requests_total{outcome=\"conflict\"}[5m])) / sum by (instance, gate) (rate(gatekeeper_requests_total[5m])) > 0.05",
        10,
        "gate {{ $labels.gate }}: {{ $value | humanizePercentage }} of the requests end in deadlocks or serialization failures",
    ),
    warning(
        "LeftBehind",
        "gatekeeper_left_in_flight / gatekeeper_in_flight > 0.5 and gatekeeper_in_flight > 4",
        5,
        "gate {{ $labels.gate }}: the server works for clients that have left",
    ),
    warning(
        "TargetOutOfReach",
        "gatekeeper_target_out_of_reach == 1",
        10,
        "gate {{ $labels.gate }}: requests take longer than its target even where none waits",
    ),
    warning(
        "GoalOutOfReach",
        "gatekeeper_class_goal_out_of_reach == 1",
        10,
        "gate {{ $labels.gate }}: no shares of the classes keep the goal of class {{ $labels.class }}",
    ),
    warning("Paused", "gatekeeper_paused == 1", 15, "gate {{ $labels.gate }} is paused"),
    warning(
        "PassesEverything",
        "gatekeeper_passes_everything == 1",
        15,
        "gate {{ $labels.gate }} decides nothing: an operator lets everything pass",
    ),
    warning(
        "ReloadFailed",
        "gatekeeper_last_reload_successful == 0",
        0,
        "{{ $labels.instance }}: the file on disk isn't the configuration in force",
    ),
    warning(
        "MemoryFull",
        "rate(gatekeeper_memory_refusals_total[5m]) > 0",
        5,
        "{{ $labels.instance }} refuses messages for want of memory (memory_max)",
    ),
    warning(
        "FilesShort",
        "process_open_fds{job=\"gatekeeper\"} / process_max_fds{job=\"gatekeeper\"} > 0.9",
        5,
        "{{ $labels.instance }} has nearly as many files open as it may",
    ),
];

/// The rules as a file that Prometheus reads.
///
/// # Errors
/// A rule names a metric that isn't declared.
pub fn rules() -> Result<String, Undeclared> {
    let mut file = String::from(
        "# Alerts for Prometheus. The job that scrapes the admin listener's /metrics is named gatekeeper.\n\
         # Generated from crates/proxy/src/metrics/alerts.rs.\n\
         groups:\n  - name: gatekeeper\n    rules:\n",
    );
    for Alert { name, expression, minutes, severity, summary } in ALERTS {
        metrics_of(expression).try_for_each(declared)?;
        let severity = match severity {
            Severity::Critical => "critical",
            Severity::Warning => "warning",
        };
        // Writing to a string cannot fail.
        let _ = write!(
            file,
            "      - alert: Gatekeeper{name}\n        expr: {expression}\n        for: {minutes}m\n        \
             labels: {{severity: {severity}}}\n        annotations:\n          summary: \"{summary}\"\n"
        );
    }
    Ok(file)
}

/// The names of the gate's own metrics in an expression.
fn metrics_of(expression: &str) -> impl Iterator<Item = &str> {
    let words = expression.split(|end: char| !(end.is_ascii_lowercase() || end == '_'));
    words.filter(|word| word.starts_with("gatekeeper_") || word.starts_with("process_"))
}

/// Whether a metric or the histogram of these buckets is declared.
fn declared(name: &str) -> Result<(), Undeclared> {
    find(name.strip_suffix("_bucket").unwrap_or(name)).map(|_| ())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_metric_that_is_not_declared_is_told() {
        let names: Vec<_> =
            metrics_of("rate(gatekeeper_late_seconds_total[5m]) > process_open_fds").collect();
        assert_eq!(names, ["gatekeeper_late_seconds_total", "process_open_fds"]);
        let missing = declared("gatekeeper_late_minutes").unwrap_err();
        assert!(missing.to_string().contains("no metric gatekeeper_late_minutes"), "{missing}");
        assert_eq!(declared("gatekeeper_queue_wait_seconds_bucket"), Ok(()));
    }
}
