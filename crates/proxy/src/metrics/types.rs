//! The metrics of request types: of those that have series of their own, and how many there are.

use std::fmt;

use admission::HeldTarget;

use super::declared::{outcomes, work_seconds};
use super::samples::Samples;
use super::scrape::GateScrape;
use super::shown::Series;
use super::{Kind, Metric, Seconds};

pub(super) const TYPES: &[Metric<GateScrape>] = &[
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
        name: "type_info",
        in_seconds: Seconds::No,
        kind: Kind::Gauge,
        labels: &["type", "text"],
        help: "Always 1; the label has the type's text",
        read: |gate, out| gate.types.iter().try_for_each(|row| out.gauge(&[&row.id, &row.text], 1.0)),
    },
    Metric {
        name: "type_requests",
        in_seconds: Seconds::No,
        kind: Kind::Counter,
        labels: &["type", "outcome"],
        help: "Requests of a type that ended, as in gatekeeper_requests_total",
        read: |gate, out| {
            gate.types.iter().try_for_each(|row| outcomes(&row.figures.counts, &[&row.id], out))
        },
    },
    Metric {
        name: "type_expected_work",
        in_seconds: Seconds::Yes,
        kind: Kind::Gauge,
        labels: &["type"],
        help: "What the latest request of a type was expected to take",
        read: |gate, out| gate.types.iter().try_for_each(|row| out.gauge(&[&row.id], work_seconds(row.work))),
    },
    Metric {
        name: "type_work",
        in_seconds: Seconds::Yes,
        kind: Kind::Counter,
        labels: &["type"],
        help: "Expected work of the completed requests of a type",
        read: |gate, out| {
            let work = |row: &Series| work_seconds(row.figures.counts.work);
            gate.types.iter().try_for_each(|row| out.counter_seconds(&[&row.id], work(row)))
        },
    },
    Metric {
        name: "type_upstream_time",
        in_seconds: Seconds::Yes,
        kind: Kind::Histogram,
        labels: &["type"],
        help: "Upstream time of the completed requests of a type",
        read: |gate, out| {
            gate.types.iter().try_for_each(|row| out.histogram(&[&row.id], &row.figures.upstream_time))
        },
    },
    Metric {
        name: "type_queue_wait",
        in_seconds: Seconds::Yes,
        kind: Kind::Histogram,
        labels: &["type"],
        help: "Queue wait of the requests of a type, however it ended",
        read: |gate, out| {
            gate.types.iter().try_for_each(|row| out.histogram(&[&row.id], &row.figures.queue_wait))
        },
    },
    Metric {
        name: "type_present",
        in_seconds: Seconds::No,
        kind: Kind::Gauge,
        labels: &["type"],
        help: "Requests of a type with a target of its own that wait or are in flight",
        read: |gate, out| own_targets(gate, out, |target| f64::from(target.present)),
    },
    Metric {
        name: "type_present_bound",
        in_seconds: Seconds::No,
        kind: Kind::Gauge,
        labels: &["type"],
        help: "The most such requests before the next is refused to hold the type's target; +Inf while nothing limits them",
        read: |gate, out| own_targets(gate, out, |target| target.bound.unwrap_or(f64::INFINITY)),
    },
];

fn own_targets(
    gate: &GateScrape,
    out: &mut Samples<'_, '_>,
    read: impl Fn(&HeldTarget) -> f64,
) -> fmt::Result {
    for known in gate.snapshot.types.iter().filter(|known| known.target.is_some()) {
        let row = gate.types.iter().find(|row| row.key.is_some() && row.key == known.request_type);
        if let (Some(row), Some(value)) = (row, known.target.as_ref().map(&read)) {
            out.gauge(&[&row.id], value)?;
        }
    }
    Ok(())
}
