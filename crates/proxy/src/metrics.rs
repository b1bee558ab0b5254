//! The metrics: declared once, each with its name, labels, unit, meaning and where its value comes from.
//!
//! `/metrics` reads the state of every gate once per scrape and writes it through these declarations, so
//! nothing is counted twice and a request pays for no metric. `docs/reference/metrics.md`, the board for
//! Grafana and the alert rules for Prometheus are generated from them.
//!
//! **Bounds.** At most `metrics_types_max` types have series of their own (`metrics/shown.rs`), under a
//! short id. The others count for `other`, so that all add up.
//!
//! **Series stay.** A metric is absent where the configuration lacks what it tells of, and never for the load
//! of the moment: what isn't known yet is NaN, and a bound that isn't in force +Inf. Only new things bring
//! new series: types, groups, pools, addresses.

use std::collections::HashSet;
use std::fmt::{self, Write as _};

use prometheus_client::collector::Collector;
use prometheus_client::encoding::text::encode as encode_registry;
use prometheus_client::encoding::{DescriptorEncoder, MetricEncoder};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::{Registry, Unit};

mod alerts;
mod board;
mod class;
mod declarations;
mod declared;
mod pool;
mod process;
mod samples;
mod scrape;
pub(crate) mod shown;
mod types;

pub use alerts::rules;
pub use board::board;
use class::CLASS;
pub use declarations::Undeclared;
use declared::GATE;
use pool::POOL;
use process::{PROCESS, SYSTEM};
use samples::Samples;
use scrape::GateScrape;
pub(crate) use scrape::{ProcessScrape, ReloadsView, Scrape};
use types::TYPES;

/// The media type of `/metrics`.
pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// The older format, for those who take nothing else, such as `promtool check metrics`.
pub const PLAIN_CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

const PREFIX: &str = "gatekeeper";

/// A text of OpenMetrics in the older format, where a counter's family is named as its samples are.
pub(crate) fn plain(text: &str) -> String {
    let counters: HashSet<&str> =
        text.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.strip_suffix(" counter")).collect();
    let line = |line: &str| {
        let named = line.strip_prefix("# ").and_then(|rest| rest.split_once(' '));
        match named {
            None if line == "# EOF" => None,
            None => Some(line.to_owned()),
            Some(("UNIT", _)) => None,
            Some((kind, rest)) => {
                let (name, what) = rest.split_once(' ').unwrap_or((rest, ""));
                let end = if counters.contains(name) { "_total" } else { "" };
                Some(format!("# {kind} {name}{end} {what}"))
            }
        }
    };
    text.lines().filter_map(line).map(|line| line + "\n").collect()
}

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

/// All that are read from a gate.
fn of_gates() -> impl Iterator<Item = &'static Metric<GateScrape>> {
    GATE.iter().chain(POOL).chain(TYPES).chain(CLASS)
}

/// Whether a metric is a time or an amount of work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Seconds {
    Yes,
    No,
}

impl<S> Metric<S> {
    /// Its name behind this prefix, if there is one.
    fn full_name(&self, prefix: &str) -> String {
        let unit = if self.in_seconds == Seconds::Yes { "_seconds" } else { "" };
        let total = if self.kind == Kind::Counter { "_total" } else { "" };
        let behind = if prefix.is_empty() { "" } else { "_" };
        format!("{prefix}{behind}{}{unit}{total}", self.name)
    }

    const fn metric_type(&self) -> MetricType {
        match self.kind {
            Kind::Counter => MetricType::Counter,
            Kind::Gauge => MetricType::Gauge,
            Kind::Histogram => MetricType::Histogram,
        }
    }
}

/// What `/metrics` answers.
///
/// # Errors
/// Never in practice: the encoder writes to a string.
pub(crate) fn encode(scrape: Scrape) -> Result<String, fmt::Error> {
    let mut registry = Registry::default();
    registry.register_collector(Box::new(process::Figures::now()));
    registry.sub_registry_with_prefix(PREFIX).register_collector(Box::new(scrape));
    let mut text = String::new();
    encode_registry(&mut text, &registry)?;
    // As the format has it: the encoder writes Rust's word.
    Ok(text.replace(" inf\n", " +Inf\n"))
}

/// The declarations as a page of documentation.
pub fn reference() -> String {
    let mut page = String::from(
        "# Metrics\n\n\
         <!-- Generated from crates/proxy/src/metrics/. To write it anew: `UPDATE_REFERENCE=1 cargo test -p proxy --test reference` -->\n\n\
         Served by the admin listener at `/metrics` in the text format of Prometheus (OpenMetrics 1.0), in base units. Every\n\
         metric of a gate has the label `gate`; the table names the others.\n\n",
    );
    // Writing to a string cannot fail.
    let _ = writeln!(
        page,
        "The label `type` is the short id of a request type; `gatekeeper_type_info` has its text, and so has `/types`. At \
         most\n`metrics_types_max` types have series of their own, and keep them until they are forgotten. All others \
         count for the\ntype `other`, so that the series add up. The label `class` names a service class.\n"
    );
    let _ = writeln!(page, "| metric | type | labels | meaning |\n|---|---|---|---|");
    PROCESS.iter().for_each(|metric| describe(&mut page, PREFIX, metric));
    of_gates().for_each(|metric| describe(&mut page, PREFIX, metric));
    SYSTEM.iter().for_each(|metric| describe(&mut page, "", metric));
    page
}

fn describe<S>(page: &mut String, prefix: &str, metric: &Metric<S>) {
    let labels: Vec<_> = metric.labels.iter().map(|label| format!("`{label}`")).collect();
    let (name, kind, labels) = (metric.full_name(prefix), metric.metric_type(), labels.join(", "));
    let _ = writeln!(page, "| `{name}` | {} | {labels} | {} |", kind.as_str(), metric.help);
}

impl Collector for process::Figures {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        for metric in SYSTEM {
            let unit = unit(metric);
            let mut encoder = describe_to(&mut encoder, metric, unit.as_ref())?;
            let mut samples = Samples { encoder: &mut encoder, names: metric.labels, gate: None };
            (metric.read)(self, &mut samples)?;
        }
        Ok(())
    }
}

impl Collector for Scrape {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        for metric in PROCESS {
            let unit = unit(metric);
            let mut encoder = describe_to(&mut encoder, metric, unit.as_ref())?;
            let mut samples = Samples { encoder: &mut encoder, names: metric.labels, gate: None };
            (metric.read)(&self.process, &mut samples)?;
        }
        for metric in of_gates() {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metric_names_are_unique_and_in_base_units() {
        let mut names: Vec<_> = PROCESS.iter().map(|metric| metric.full_name(PREFIX)).collect();
        names.extend(of_gates().map(|metric| metric.full_name(PREFIX)));
        let count = names.len();
        assert!(names.iter().all(|name| !name.contains("_ms") && name.starts_with("gatekeeper_")));
        names.sort();
        names.dedup();
        assert_eq!(names.len(), count);
    }
}
