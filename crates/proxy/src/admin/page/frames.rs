//! What the page is sent, as JSON: everything at first, then once a second what has changed.

use std::collections::HashMap;
use std::collections::VecDeque;

use admission::{Queued, Snapshot};
use serde::{Serialize, Serializer};

use super::history::Sample;
use crate::admin::report::{GateStatus, MemoryStatus};
use crate::admin::timeline::Entry;
use crate::admin::{Admin, GateView};
use crate::gate::Driver;
use crate::memory;
use crate::metrics::shown::id;
use crate::observe::{ChangedRow, ChangedRows, OTHER, TimeSummary, Totals, lane_name};

/// The most waiting requests that are looked at; the oldest are.
const WAITING_MAX: usize = 500;

/// All that a viewer is told at first.
#[derive(Serialize)]
pub(super) struct Hello<'a> {
    version: &'static str,
    #[serde(flatten)]
    frame: Frame<'a>,
}

/// What is told once a second.
#[derive(Serialize)]
pub(super) struct Frame<'a> {
    phase: String,
    uptime_seconds: u64,
    memory: MemoryStatus,
    gates: Vec<GateFrame<'a>>,
    events: Vec<Entry>,
}

/// One gate.
#[derive(Serialize)]
pub(super) struct GateFrame<'a> {
    status: GateStatus,
    types_known: usize,
    types: Vec<Row>,
    waiting: Vec<Waiting>,
    samples: Samples<'a>,
}

/// The samples that a frame tells.
pub(super) enum Samples<'a> {
    All(&'a VecDeque<Sample>),
    Last(Option<&'a Sample>),
}

impl Serialize for Samples<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::All(samples) => samples.serialize(serializer),
            Self::Last(sample) => serializer.collect_seq(sample.iter()),
        }
    }
}

/// One type; an array, because thousands may be sent at once. `model.js` names its places.
struct Row(ChangedRow);

impl Serialize for Row {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let ChangedRow { row, is_new } = &self.0;
        let counts = &row.counts;
        let label = is_new.then_some(&*row.label);
        let figures = (counts.completed(), counts.failed + counts.conflicted, counts.refused(), counts.left);
        let work = (micros_of_work(row.work), micros_of_work(counts.work));
        let (lane, upstream, wait) = (lane_name(row.lane), times(&row.upstream_time), times(&row.queue_wait));
        (id(row.key), label, lane, work, figures, upstream, wait).serialize(serializer)
    }
}

/// The requests of one type that wait.
#[derive(Serialize)]
struct Waiting {
    id: String,
    label: String,
    lane: &'static str,
    requests: usize,
    longest_ms: u64,
}

impl<'a> Hello<'a> {
    pub(super) fn new(admin: &Admin, frame: Frame<'a>) -> Self {
        Self { version: admin.version, frame }
    }
}

impl<'a> Frame<'a> {
    pub(super) fn new(admin: &Admin, gates: Vec<GateFrame<'a>>, events: Vec<Entry>) -> Self {
        Self {
            phase: admin.phase_name().to_owned(),
            uptime_seconds: admin.uptime().as_secs(),
            memory: memory::view().into(),
            gates,
            events,
        }
    }
}

impl<'a> GateFrame<'a> {
    pub(super) fn new(
        (gate, driver): (&dyn GateView, &Driver),
        (snapshot, totals): (&Snapshot, &Totals),
        changed: ChangedRows,
        samples: Samples<'a>,
    ) -> Self {
        Self {
            status: GateStatus::with(gate, snapshot, totals, changed.known),
            types_known: changed.known,
            types: changed.rows.into_iter().map(Row).collect(),
            waiting: waiting(driver, snapshot),
            samples,
        }
    }
}

/// The requests that wait, by type, the longest wait first.
fn waiting(driver: &Driver, snapshot: &Snapshot) -> Vec<Waiting> {
    if snapshot.queued == 0 {
        return Vec::new();
    }
    let now = driver.clock().now();
    let mut types: HashMap<String, Waiting> = HashMap::new();
    for (Queued { request_type, since, lane, .. }, label) in driver.queue(WAITING_MAX) {
        let (id, waited) = (id(Some(request_type)), now.since(since).as_millis());
        let label = label.as_deref().unwrap_or(OTHER);
        let new = || Waiting {
            id: id.clone(),
            label: label.to_owned(),
            lane: lane_name(lane),
            requests: 0,
            longest_ms: 0,
        };
        let known = types.entry(id.clone()).or_insert_with(new);
        known.requests += 1;
        known.longest_ms = known.longest_ms.max(u64::try_from(waited).unwrap_or(u64::MAX));
    }
    let mut all: Vec<_> = types.into_values().collect();
    all.sort_by(|a, b| b.longest_ms.cmp(&a.longest_ms).then_with(|| a.label.cmp(&b.label)));
    all
}

/// Count, sum, median and 95th percentile, in microseconds.
fn times(summary: &TimeSummary) -> (u64, u64, u64, u64) {
    let micros = |time: std::time::Duration| u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
    (summary.count, micros(summary.sum), micros(summary.p50), micros(summary.p95))
}

fn micros_of_work(work: admission::Work) -> u64 {
    work.as_nanos() / 1_000
}
