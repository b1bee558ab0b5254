//! The metrics: declared once, each with its name, labels, unit, meaning and where its value comes from.
//!
//! `/metrics` reads the state of every gate once per scrape and writes it through these declarations, so nothing is
//! counted twice and a request pays for no metric. The page `docs/reference/metrics.md` is generated from them.
//!
//! **Bounds.** Labels with the name of a type appear for the [`TYPES_SHOWN_MAX`] types with most work only (`other` among
//! them, if it did anything). What falls out is not added to `other`, since a counter must never fall.

use std::fmt::{self, Write as _};

use admission::{GroupSnapshot, Work};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::text::encode as encode_registry;
use prometheus_client::encoding::{DescriptorEncoder, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::{Registry, Unit};

use crate::admin::{Admin, PoolView};
use crate::observe::{BOUNDS_SECONDS, Buckets, Counts, REASONS, TypeRow};

mod scrape;

use scrape::{GateScrape, ProcessScrape, Scrape};

/// The most types that have metrics of their own.
pub const TYPES_SHOWN_MAX: usize = 200;

/// The media type of `/metrics`.
pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

const PREFIX: &str = "gatekeeper";

/// What kind of metric it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Counter,
    Gauge,
    Histogram,
}

/// One metric: `gatekeeper_`, its name, its unit, and `_total` for a counter. `S` is what it is read from.
struct Metric<S> {
    name: &'static str,
    in_seconds: Seconds,
    kind: Kind,
    /// The labels beside `gate`.
    labels: &'static [&'static str],
    help: &'static str,
    read: fn(&S, &mut Samples<'_, '_>) -> fmt::Result,
}

/// Whether a metric is a time or an amount of work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Seconds {
    Yes,
    No,
}

impl<S> Metric<S> {
    fn full_name(&self) -> String {
        let unit = if self.in_seconds == Seconds::Yes { "_seconds" } else { "" };
        let total = if self.kind == Kind::Counter { "_total" } else { "" };
        format!("{PREFIX}_{}{unit}{total}", self.name)
    }

    const fn metric_type(&self) -> MetricType {
        match self.kind {
            Kind::Counter => MetricType::Counter,
            Kind::Gauge => MetricType::Gauge,
            Kind::Histogram => MetricType::Histogram,
        }
    }
}

const PROCESS: &[Metric<ProcessScrape>] = &[
    Metric {
        name: "build_info",
        in_seconds: Seconds::No,
        kind: Kind::Gauge,
        labels: &["version"],
        help: "Always 1; the label says which version runs",
        read: |process, out| out.gauge(&[process.version], 1.0),
    },
    Metric {
        name: "ready",
        in_seconds: Seconds::No,
        kind: Kind::Gauge,
        labels: &[],
        help: "1 while clients are served; 0 before the gates listen and while they drain",
        read: |process, out| out.gauge(&[], f64::from(u8::from(process.ready))),
    },
    Metric {
        name: "uptime",
        in_seconds: Seconds::Yes,
        kind: Kind::Gauge,
        labels: &[],
        help: "Time since the process started",
        read: |process, out| out.gauge(&[], process.uptime_seconds),
    },
];

const GATE: &[Metric<GateScrape>] = &[
    Metric {
        name: "mode_info",
        in_seconds: Seconds::No,
        kind: Kind::Gauge,
        labels: &["mode"],
        help: "Always 1; with mode observe, every other metric of the gate is what would have been decided",
        read: |gate, out| out.gauge(&[gate.mode], 1.0),
    },
    Metric {
        name: "requests",
        in_seconds: Seconds::No,
        kind: Kind::Counter,
        labels: &["outcome"],
        help: "Requests that ended: success, failure or canceled upstream; rejected by the gate; left the queue by themselves",
        read: |gate, out| outcomes(&gate.totals.counts, &[], out),
    },
    Metric {
        name: "rejections",
        in_seconds: Seconds::No,
        kind: Kind::Counter,
        labels: &["reason"],
        help: "Requests that the gate refused",
        read: |gate, out| {
            let counts = REASONS.iter().zip(gate.totals.counts.rejected);
            counts.into_iter().try_for_each(|(reason, count)| out.counter(&[reason.as_str()], count))
        },
    },
    Metric {
        name: "dispatches",
        in_seconds: Seconds::No,
        kind: Kind::Counter,
        labels: &[],
        help: "Requests sent upstream",
        read: |gate, out| out.counter(&[], gate.totals.counts.dispatched),
    },
    Metric {
        name: "queue_wait",
        in_seconds: Seconds::Yes,
        kind: Kind::Histogram,
        labels: &["end"],
        help: "From arrival to the end of the wait, by how it ended: dispatched, rejected or left",
        read: |gate, out| {
            out.histogram(&["dispatched"], &gate.totals.queue_wait_dispatched)?;
            out.histogram(&["rejected"], &gate.totals.queue_wait_rejected)?;
            out.histogram(&["left"], &gate.totals.queue_wait_left)
        },
    },
    Metric {
        name: "upstream_time",
        in_seconds: Seconds::Yes,
        kind: Kind::Histogram,
        labels: &[],
        help: "How long the service was busy with a request, without the client's own pauses",
        read: |gate, out| out.histogram(&[], &gate.totals.upstream_time),
    },
    Metric {
        name: "work",
        in_seconds: Seconds::Yes,
        kind: Kind::Counter,
        labels: &[],
        help: "Expected work of the completed requests",
        read: |gate, out| out.counter_seconds(&[], work_seconds(gate.totals.counts.work)),
    },
    Metric {
        name: "load",
        in_seconds: Seconds::Yes,
        kind: Kind::Gauge,
        labels: &[],
        help: "Work in flight",
        read: |gate, out| out.gauge(&[], work_seconds(gate.snapshot.load)),
    },
    Metric {
        name: "capacity",
        in_seconds: Seconds::Yes,
        kind: Kind::Gauge,
        labels: &[],
        help: "The most work that may be in flight; absent without such a limit",
        read: |gate, out| match gate.snapshot.capacity {
            Some(capacity) => out.gauge(&[], work_seconds(capacity)),
            None => Ok(()),
        },
    },
    Metric {
        name: "capacity_requests",
        in_seconds: Seconds::No,
        kind: Kind::Gauge,
        labels: &[],
        help: "The most requests that may be in flight, where a controller finds that; absent where none does",
        read: |gate, out| match gate.snapshot.capacity_found {
            Some(capacity) => out.gauge(&[], f64::from(capacity)),
            None => Ok(()),
        },
    },
    Metric {
        name: "parallelism_requests",
        in_seconds: Seconds::No,
        kind: Kind::Gauge,
        labels: &[],
        help: "On how many requests the server works at once, about its cores; absent until that was seen",
        read: |gate, out| match gate.snapshot.parallelism {
            Some(learned) => out.gauge(&[], f64::from(learned.requests)),
            None => Ok(()),
        },
    },
    Metric {
        name: "trace_lost",
        in_seconds: Seconds::No,
        kind: Kind::Counter,
        labels: &[],
        help: "Entries of the trace that were left out because the disk did not keep up; absent without a trace",
        read: |gate, out| match gate.trace_lost {
            Some(lost) => out.counter(&[], lost),
            None => Ok(()),
        },
    },
    Metric {
        name: "capacity_moves",
        in_seconds: Seconds::No,
        kind: Kind::Counter,
        labels: &[],
        help: "How often a controller found another capacity",
        read: |gate, out| out.counter(&[], gate.totals.capacity_moves),
    },
    Metric {
        name: "rejection_probability",
        in_seconds: Seconds::No,
        kind: Kind::Gauge,
        labels: &[],
        help: "With which probability a request is refused on arrival, where that is by chance; absent where it isn't",
        read: |gate, out| match gate.snapshot.refusing.probability {
            Some(probability) => out.gauge(&[], probability),
            None => Ok(()),
        },
    },
    Metric {
        name: "present_bound",
        in_seconds: Seconds::No,
        kind: Kind::Gauge,
        labels: &[],
        help: "How many requests may wait or be in flight before the next is refused, to hold a target; absent without one",
        read: |gate, out| match gate.snapshot.refusing.bound {
            Some(bound) => out.gauge(&[], bound),
            None => Ok(()),
        },
    },
    Metric {
        name: "retry_after",
        in_seconds: Seconds::Yes,
        kind: Kind::Gauge,
        labels: &[],
        help: "In how long the queue will have drained, from a second to a minute: what somebody who is refused is told",
        read: |gate, out| out.gauge(&[], gate.snapshot.retry_after.as_secs_f64()),
    },
    Metric {
        name: "group_limit",
        in_seconds: Seconds::No,
        kind: Kind::Gauge,
        labels: &["group"],
        help: "The most requests in flight of a group of types that contend with one another; absent without one. A group's number is never used twice, and there are at most 8 at a time",
        read: |gate, out| groups(gate, out, |group| f64::from(group.most)),
    },
    Metric {
        name: "group_in_flight",
        in_seconds: Seconds::No,
        kind: Kind::Gauge,
        labels: &["group"],
        help: "Requests in flight of such a group",
        read: |gate, out| groups(gate, out, |group| f64::from(group.in_flight)),
    },
    Metric {
        name: "group_waiting",
        in_seconds: Seconds::No,
        kind: Kind::Gauge,
        labels: &["group"],
        help: "Requests that had their turn and wait for room in such a group",
        read: |gate, out| groups(gate, out, |group| group.aside as f64),
    },
    Metric {
        name: "groups_formed",
        in_seconds: Seconds::No,
        kind: Kind::Counter,
        labels: &[],
        help: "How often types that contend with one another were found",
        read: |gate, out| out.counter(&[], gate.totals.groups_formed),
    },
    Metric {
        name: "group_moves",
        in_seconds: Seconds::No,
        kind: Kind::Counter,
        labels: &[],
        help: "How often the bound of such a group was moved",
        read: |gate, out| out.counter(&[], gate.totals.group_moves),
    },
    Metric {
        name: "queue_length",
        in_seconds: Seconds::No,
        kind: Kind::Gauge,
        labels: &[],
        help: "Requests that wait",
        read: |gate, out| out.gauge(&[], gate.snapshot.queued as f64),
    },
    Metric {
        name: "in_flight",
        in_seconds: Seconds::No,
        kind: Kind::Gauge,
        labels: &[],
        help: "Requests in flight, suspended ones included",
        read: |gate, out| out.gauge(&[], gate.snapshot.in_flight as f64),
    },
    Metric {
        name: "suspended",
        in_seconds: Seconds::No,
        kind: Kind::Gauge,
        labels: &[],
        help: "Transactions in flight that are idle and have given their work back",
        read: |gate, out| out.gauge(&[], gate.snapshot.suspended as f64),
    },
    Metric {
        name: "long_in_flight",
        in_seconds: Seconds::No,
        kind: Kind::Gauge,
        labels: &[],
        help: "Long requests in flight",
        read: |gate, out| out.gauge(&[], f64::from(gate.snapshot.long_in_flight)),
    },
    Metric {
        name: "long_limit",
        in_seconds: Seconds::No,
        kind: Kind::Gauge,
        labels: &[],
        help: "The most long requests in flight; absent without a long lane",
        read: |gate, out| match gate.snapshot.long_limit {
            Some(limit) => out.gauge(&[], f64::from(limit)),
            None => Ok(()),
        },
    },
    Metric {
        name: "connections",
        in_seconds: Seconds::No,
        kind: Kind::Gauge,
        labels: &[],
        help: "The budget of server connections",
        read: |gate, out| out.gauge(&[], f64::from(gate.snapshot.connections)),
    },
    Metric {
        name: "connections_in_use",
        in_seconds: Seconds::No,
        kind: Kind::Gauge,
        labels: &[],
        help: "Server connections in use: by a request in flight, or kept by a session",
        read: |gate, out| out.gauge(&[], f64::from(gate.snapshot.connections_in_use)),
    },
    Metric {
        name: "connections_pinned",
        in_seconds: Seconds::No,
        kind: Kind::Gauge,
        labels: &[],
        help: "Server connections kept by sessions whose state can't be shared",
        read: |gate, out| out.gauge(&[], f64::from(gate.snapshot.pinned)),
    },
    Metric {
        name: "pinned_sessions",
        in_seconds: Seconds::No,
        kind: Kind::Gauge,
        labels: &["reason"],
        help: "Sessions that keep a server connection, by reason; a session may have several",
        read: |gate, out| {
            gate.pins.iter().try_for_each(|(reason, sessions)| out.gauge(&[reason], f64::from(*sessions)))
        },
    },
    Metric {
        name: "pool_connections",
        in_seconds: Seconds::No,
        kind: Kind::Gauge,
        labels: &["user", "database", "state"],
        help: "Server connections that exist, by pool, idle or busy",
        read: |gate, out| {
            gate.pools.iter().try_for_each(|PoolView { user, database, connections, idle }| {
                out.gauge(&[user, database, "idle"], f64::from(*idle))?;
                out.gauge(&[user, database, "busy"], f64::from(connections.saturating_sub(*idle)))
            })
        },
    },
    Metric {
        name: "clients",
        in_seconds: Seconds::No,
        kind: Kind::Gauge,
        labels: &[],
        help: "Clients connected",
        read: |gate, out| out.gauge(&[], gate.clients.connected as f64),
    },
    Metric {
        name: "logins",
        in_seconds: Seconds::No,
        kind: Kind::Counter,
        labels: &["outcome"],
        help: "Logins that ended: success or failure; or refused, because max_clients were connected",
        read: |gate, out| {
            out.counter(&["success"], gate.clients.logins_succeeded)?;
            out.counter(&["failure"], gate.clients.logins_failed)?;
            out.counter(&["refused"], gate.clients.refused)
        },
    },
    Metric {
        name: "login_failures",
        in_seconds: Seconds::No,
        kind: Kind::Counter,
        labels: &["reason"],
        help: "Failed logins, for three of the reasons: denied by the gate's own authentication (wrong password, unknown user); limited, because of too many failures of the address; timeout",
        read: |gate, out| {
            out.counter(&["denied"], gate.clients.denied)?;
            out.counter(&["limited"], gate.clients.limited)?;
            out.counter(&["timeout"], gate.clients.late)
        },
    },
    Metric {
        name: "connections_unfinished",
        in_seconds: Seconds::No,
        kind: Kind::Gauge,
        labels: &[],
        help: "Client connections that have not become sessions yet",
        read: |gate, out| out.gauge(&[], gate.clients.unfinished as f64),
    },
    Metric {
        name: "auth_queries",
        in_seconds: Seconds::No,
        kind: Kind::Counter,
        labels: &["outcome"],
        help: "Questions of auth_query: found a user; unknown; failed, because the server could not be asked",
        read: |gate, out| {
            out.counter(&["found"], gate.clients.auth_queries_found)?;
            out.counter(&["unknown"], gate.clients.auth_queries_unknown)?;
            out.counter(&["failed"], gate.clients.auth_queries_failed)
        },
    },
    Metric {
        name: "pool_refills",
        in_seconds: Seconds::No,
        kind: Kind::Counter,
        labels: &["outcome"],
        help: "Server connections that the gate opened by itself because a pool had too few: success or failure",
        read: |gate, out| {
            out.counter(&["success"], gate.clients.openings_succeeded)?;
            out.counter(&["failure"], gate.clients.openings_failed)
        },
    },
    Metric {
        name: "types",
        in_seconds: Seconds::No,
        kind: Kind::Gauge,
        labels: &[],
        help: "Request types known",
        read: |gate, out| out.gauge(&[], gate.snapshot.types.len() as f64),
    },
    Metric {
        name: "types_forgotten",
        in_seconds: Seconds::No,
        kind: Kind::Counter,
        labels: &[],
        help: "Request types forgotten because types_max were known",
        read: |gate, out| out.counter(&[], gate.totals.types_forgotten),
    },
    Metric {
        name: "type_requests",
        in_seconds: Seconds::No,
        kind: Kind::Counter,
        labels: &["type", "outcome"],
        help: "Requests of a type that ended, as in gatekeeper_requests_total",
        read: |gate, out| gate.types.iter().try_for_each(|row| outcomes(&row.counts, &[&row.label], out)),
    },
    Metric {
        name: "type_expected_work",
        in_seconds: Seconds::Yes,
        kind: Kind::Gauge,
        labels: &["type"],
        help: "What the latest request of a type was expected to take",
        read: |gate, out| {
            gate.types.iter().try_for_each(|row| out.gauge(&[&row.label], work_seconds(row.work)))
        },
    },
    Metric {
        name: "type_work",
        in_seconds: Seconds::Yes,
        kind: Kind::Counter,
        labels: &["type"],
        help: "Expected work of the completed requests of a type",
        read: |gate, out| {
            let work = |row: &TypeRow| work_seconds(row.counts.work);
            gate.types.iter().try_for_each(|row| out.counter_seconds(&[&row.label], work(row)))
        },
    },
    Metric {
        name: "type_upstream_time",
        in_seconds: Seconds::Yes,
        kind: Kind::Counter,
        labels: &["type"],
        help: "Upstream time of the completed requests of a type",
        read: |gate, out| {
            let time = |row: &TypeRow| row.upstream_time.sum.as_secs_f64();
            gate.types.iter().try_for_each(|row| out.counter_seconds(&[&row.label], time(row)))
        },
    },
    Metric {
        name: "type_queue_wait",
        in_seconds: Seconds::Yes,
        kind: Kind::Counter,
        labels: &["type"],
        help: "Queue wait of the requests of a type, however it ended",
        read: |gate, out| {
            let wait = |row: &TypeRow| row.queue_wait.sum.as_secs_f64();
            gate.types.iter().try_for_each(|row| out.counter_seconds(&[&row.label], wait(row)))
        },
    },
];

/// What `/metrics` answers.
///
/// # Errors
/// Never in practice: the encoder writes to a string.
pub fn encode(admin: &Admin) -> Result<String, fmt::Error> {
    let mut registry = Registry::with_prefix(PREFIX);
    registry.register_collector(Box::new(Scrape::of(admin)));
    let mut text = String::new();
    encode_registry(&mut text, &registry)?;
    Ok(text)
}

/// The declarations as a page of documentation.
pub fn reference() -> String {
    let mut page = String::from(
        "# Metrics\n\n\
         <!-- Generated from crates/proxy/src/metrics.rs. To write it anew: `UPDATE_REFERENCE=1 cargo test -p proxy --test reference` -->\n\n\
         Served by the admin listener at `/metrics` in the text format of Prometheus (OpenMetrics 1.0), in base units. Every\n\
         metric of a gate has the label `gate`; the table names the others.\n\n",
    );
    // Writing to a string cannot fail.
    let _ = writeln!(
        page,
        "The label `type` names a request type; the {TYPES_SHOWN_MAX} types with most work are shown. Types that were \
         forgotten\n(`types_max`) count for the type `other`.\n"
    );
    let _ = writeln!(page, "| metric | type | labels | meaning |\n|---|---|---|---|");
    PROCESS.iter().for_each(|metric| describe(&mut page, metric));
    GATE.iter().for_each(|metric| describe(&mut page, metric));
    page
}

fn describe<S>(page: &mut String, metric: &Metric<S>) {
    let labels: Vec<_> = metric.labels.iter().map(|label| format!("`{label}`")).collect();
    let (name, kind, labels) = (metric.full_name(), metric.metric_type(), labels.join(", "));
    let _ = writeln!(page, "| `{name}` | {} | {labels} | {} |", kind.as_str(), metric.help);
}

impl Collector for Scrape {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        for metric in PROCESS {
            let unit = unit(metric);
            let mut encoder = describe_to(&mut encoder, metric, unit.as_ref())?;
            let mut samples = Samples { encoder: &mut encoder, names: metric.labels, gate: None };
            (metric.read)(&self.process, &mut samples)?;
        }
        for metric in GATE {
            let unit = unit(metric);
            let mut encoder = describe_to(&mut encoder, metric, unit.as_ref())?;
            for gate in &self.gates {
                let mut samples =
                    Samples { encoder: &mut encoder, names: metric.labels, gate: Some(&gate.name) };
                (metric.read)(gate, &mut samples)?;
            }
        }
        Ok(())
    }
}

fn unit<S>(metric: &Metric<S>) -> Option<Unit> {
    (metric.in_seconds == Seconds::Yes).then_some(Unit::Seconds)
}

fn describe_to<'e, S>(
    encoder: &'e mut DescriptorEncoder<'_>,
    metric: &Metric<S>,
    unit: Option<&'e Unit>,
) -> Result<MetricEncoder<'e>, fmt::Error> {
    encoder.encode_descriptor(metric.name, metric.help, unit, metric.metric_type())
}

/// Where the values of one metric go.
struct Samples<'a, 'e> {
    encoder: &'a mut MetricEncoder<'e>,
    /// The labels beside `gate`.
    names: &'static [&'static str],
    gate: Option<&'a str>,
}

impl Samples<'_, '_> {
    fn gauge(&mut self, labels: &[&str], value: f64) -> fmt::Result {
        let labels = self.labels(labels);
        if labels.is_empty() {
            return self.encoder.encode_gauge(&value);
        }
        self.encoder.encode_family(&labels)?.encode_gauge(&value)
    }

    fn counter(&mut self, labels: &[&str], value: u64) -> fmt::Result {
        let labels = self.labels(labels);
        self.encoder.encode_family(&labels)?.encode_counter::<NoLabelSet, _, f64>(&value, None)
    }

    fn counter_seconds(&mut self, labels: &[&str], value: f64) -> fmt::Result {
        let labels = self.labels(labels);
        self.encoder.encode_family(&labels)?.encode_counter::<NoLabelSet, _, f64>(&value, None)
    }

    fn histogram(&mut self, labels: &[&str], value: &Buckets) -> fmt::Result {
        let labels = self.labels(labels);
        let bounds = BOUNDS_SECONDS.into_iter().chain([f64::INFINITY]);
        let buckets: Vec<_> = bounds.zip(value.counts).collect();
        let (sum, count) = (value.sum.as_secs_f64(), value.count());
        self.encoder.encode_family(&labels)?.encode_histogram::<NoLabelSet>(sum, count, &buckets, None)
    }

    fn labels(&self, values: &[&str]) -> Vec<(&'static str, String)> {
        debug_assert_eq!(self.names.len(), values.len());
        let gate = self.gate.map(|gate| ("gate", gate));
        let others = self.names.iter().copied().zip(values.iter().copied());
        gate.into_iter().chain(others).map(|(name, value)| (name, value.to_owned())).collect()
    }
}

fn groups(gate: &GateScrape, out: &mut Samples<'_, '_>, read: impl Fn(&GroupSnapshot) -> f64) -> fmt::Result {
    for group in &gate.snapshot.groups {
        out.gauge(&[&group.number.to_string()], read(group))?;
    }
    Ok(())
}

fn outcomes(counts: &Counts, labels: &[&str], out: &mut Samples<'_, '_>) -> fmt::Result {
    let outcomes = [
        ("success", counts.succeeded),
        ("failure", counts.failed),
        ("canceled", counts.canceled),
        ("rejected", counts.refused()),
        ("left", counts.left),
    ];
    for (outcome, count) in outcomes {
        let labels: Vec<_> = labels.iter().copied().chain([outcome]).collect();
        out.counter(&labels, count)?;
    }
    Ok(())
}

fn work_seconds(work: Work) -> f64 {
    work.as_millis_f64() / 1e3
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metric_names_are_unique_and_in_base_units() {
        let mut names: Vec<_> = PROCESS.iter().map(Metric::full_name).collect();
        names.extend(GATE.iter().map(Metric::full_name));
        let count = names.len();
        assert!(names.iter().all(|name| !name.contains("_ms") && name.starts_with("gatekeeper_")));
        names.sort();
        names.dedup();
        assert_eq!(names.len(), count);
    }
}
