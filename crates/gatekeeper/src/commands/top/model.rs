//! What `gatekeeper top` knows: gates, samples, types and events, made from the frames of the page's stream.
//!
//! **Bounds.** [`SAMPLES_MAX`] samples a gate, [`EVENTS_MAX`] events, [`POINTS_MAX`] points a type, and as
//! many types as the gate itself knows.

use std::collections::{BTreeMap, HashMap, VecDeque};

use proxy::admin::GateStatus;
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::Value;

use crate::Failure;
use crate::commands::table::clean;

/// The most samples of a gate: ten minutes.
pub(super) const SAMPLES_MAX: usize = 600;
/// The most events.
const EVENTS_MAX: usize = 200;
/// The shortest time between two points of a type, in seconds.
const STEP: f64 = 5.0;
/// The most points of a type: a minute and a little.
const POINTS_MAX: usize = 14;
/// The time over which rates are told, in seconds.
const RECENT: f64 = 60.0;
/// The type that stands for all that have no place of their own.
const OTHER: &str = "other";

/// What comes once a second; `Hello` has everything, later frames what has changed.
#[derive(Debug, Deserialize)]
pub(super) struct Frame {
    version: Option<String>,
    phase: String,
    uptime_seconds: u64,
    gates: Vec<GateFrame>,
    events: Vec<Event>,
}

#[derive(Debug, Deserialize)]
struct GateFrame {
    status: GateStatus,
    types_known: usize,
    types: Vec<Row>,
    waiting: Vec<Waiting>,
    samples: Vec<Sample>,
}

/// One type; an array in the stream, as the next ones.
#[derive(Debug, Deserialize)]
struct Row {
    id: String,
    label: Option<String>,
    lane: String,
    work: Work,
    counts: Counts,
    upstream: Times,
    wait: Times,
}

/// The work expected of the next one, and of all since the start, in microseconds.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
pub(super) struct Work {
    pub(super) expected: u64,
    pub(super) all: u64,
}

/// Requests since the start, by how they ended.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
pub(super) struct Counts {
    pub(super) completed: u64,
    pub(super) failed: u64,
    pub(super) refused: u64,
    pub(super) left: u64,
}

/// Durations since the start, in microseconds.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
pub(super) struct Times {
    pub(super) count: u64,
    pub(super) sum: u64,
    pub(super) p50: u64,
    pub(super) p95: u64,
}

/// The requests of one type that wait.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct Waiting {
    pub(super) label: String,
    pub(super) lane: String,
    pub(super) requests: usize,
    pub(super) longest_ms: u64,
}

/// One second of a gate.
#[derive(Clone, Debug, Default, Deserialize)]
pub(super) struct Sample {
    _at: IgnoredAny,
    pub(super) served: f64,
    pub(super) refused: f64,
    _left: IgnoredAny,
    pub(super) times: SampleTimes,
    _queued: IgnoredAny,
    _in_flight: IgnoredAny,
    pub(super) bound: u64,
    pub(super) reasons: Vec<(String, u64)>,
}

/// Mean and 95th percentile, in microseconds.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
pub(super) struct SampleTimes {
    _wait_mean: IgnoredAny,
    pub(super) wait_p95: u64,
    _upstream_mean: IgnoredAny,
    pub(super) upstream_p95: u64,
}

/// An entry of the timeline.
#[derive(Clone, Debug, Default, Deserialize)]
pub(super) struct Event {
    pub(super) id: u64,
    pub(super) last_ms: u64,
    pub(super) level: String,
    pub(super) text: String,
    pub(super) gate: Option<String>,
    pub(super) facts: Vec<(String, String)>,
    pub(super) lines: u64,
}

/// A running gatekeeper as it was last heard of.
#[derive(Debug, Default)]
pub(super) struct World {
    pub(super) version: String,
    pub(super) phase: String,
    pub(super) uptime_seconds: u64,
    pub(super) gates: Vec<Gate>,
    pub(super) events: BTreeMap<u64, Event>,
}

/// A gate.
#[derive(Debug)]
pub(super) struct Gate {
    pub(super) status: GateStatus,
    pub(super) waiting: Vec<Waiting>,
    pub(super) samples: VecDeque<Sample>,
    types: HashMap<String, Type>,
    /// Counts the rows that came, to tell which type was used last.
    rows: u64,
}

#[derive(Debug)]
struct Type {
    label: String,
    lane: String,
    now: Point,
    expected: u64,
    p50: u64,
    p95: u64,
    counts: Counts,
    used: u64,
    points: VecDeque<Point>,
}

/// Counts of a type at some time, in seconds and microseconds.
#[derive(Clone, Copy, Debug, Default)]
struct Point {
    at: f64,
    completed: u64,
    refused: u64,
    work: u64,
    upstream: (u64, u64),
    wait: (u64, u64),
}

/// What a type did in the last minute, or since it is known.
#[derive(Clone, Debug)]
pub(super) struct Recent {
    pub(super) id: String,
    pub(super) label: String,
    pub(super) lane: String,
    pub(super) rate: f64,
    /// Requests refused in that time.
    pub(super) refused: u64,
    /// Times in seconds.
    pub(super) mean: f64,
    /// Since the start, as the next two.
    pub(super) p95: f64,
    pub(super) p50: f64,
    pub(super) counts: Counts,
    pub(super) expected: f64,
    pub(super) wait: f64,
    /// Part of all work, from 0 to 1.
    pub(super) share: f64,
}

/// Reads a frame. Every text in it comes from strangers, and is cleaned before anything else sees it.
pub(super) fn read(json: &str) -> Result<Frame, Failure> {
    let told =
        |error: serde_json::Error| Failure::Runtime(format!("it doesn't speak like a gatekeeper: {error}"));
    let mut value: Value = serde_json::from_str(json).map_err(told)?;
    clean_all(&mut value);
    serde_json::from_value(value).map_err(told)
}

fn clean_all(value: &mut Value) {
    match value {
        Value::String(text) => *text = clean(text),
        Value::Array(values) => values.iter_mut().for_each(clean_all),
        Value::Object(fields) => {
            let names = std::mem::take(fields).into_iter();
            *fields = names
                .map(|(name, mut value)| {
                    clean_all(&mut value);
                    (clean(&name), value)
                })
                .collect();
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

impl World {
    /// Takes a frame that came at some time, in seconds since this process began.
    pub(super) fn take(&mut self, frame: Frame, at: f64) {
        if let Some(version) = frame.version {
            // A stream that begins anew tells everything again; the figures of types go on where they were.
            if frame.uptime_seconds < self.uptime_seconds {
                (self.gates, self.events) = (Vec::new(), BTreeMap::new());
            }
            self.version = version;
            self.gates.iter_mut().for_each(|gate| gate.samples.clear());
            let is_there = |name: &str| frame.gates.iter().any(|it| it.status.name == name);
            self.gates.retain(|gate| is_there(&gate.status.name));
        }
        (self.phase, self.uptime_seconds) = (frame.phase, frame.uptime_seconds);
        for told in frame.gates {
            match self.gates.iter_mut().find(|gate| gate.status.name == told.status.name) {
                Some(gate) => gate.take(told, at),
                None => {
                    let mut gate = Gate::new(told.status.clone());
                    gate.take(told, at);
                    self.gates.push(gate);
                }
            }
        }
        self.events.extend(frame.events.into_iter().map(|event| (event.id, event)));
        while self.events.len() > EVENTS_MAX {
            self.events.pop_first();
        }
    }
}

impl Gate {
    fn new(status: GateStatus) -> Self {
        Self { status, waiting: Vec::new(), samples: VecDeque::new(), types: HashMap::new(), rows: 0 }
    }

    fn take(&mut self, frame: GateFrame, at: f64) {
        (self.status, self.waiting) = (frame.status, frame.waiting);
        self.samples.extend(frame.samples);
        self.samples.drain(..self.samples.len().saturating_sub(SAMPLES_MAX));
        // The last used come first.
        for row in frame.types.into_iter().rev() {
            self.rows += 1;
            let (id, used) = (row.id.clone(), self.rows);
            match self.types.get_mut(&id) {
                Some(known) => known.take(row, at, used),
                None => _ = self.types.insert(id, Type::new(row, at, used)),
            }
        }
        self.forget(frame.types_known + usize::from(self.types.contains_key(OTHER)));
    }

    /// Keeps so many types: those used last, as the gate does.
    fn forget(&mut self, most: usize) {
        let surplus = self.types.len().saturating_sub(most);
        if surplus == 0 {
            return;
        }
        let others = self.types.iter().filter(|(id, _)| *id != OTHER);
        let mut oldest: Vec<_> = others.map(|(id, it)| (it.used, id.clone())).collect();
        oldest.sort_unstable();
        for (_, id) in oldest.into_iter().take(surplus) {
            self.types.remove(&id);
        }
    }

    /// Every type with its figures of the last minute before `at`.
    pub(super) fn recent(&self, at: f64) -> Vec<Recent> {
        let mut rows: Vec<_> = self.types.iter().map(|(id, it)| (it, it.recent(id, at))).collect();
        let (mut lately, mut ever) = (0.0, 0.0);
        for (known, (_, work)) in &rows {
            lately += *work as f64;
            ever += known.now.work as f64;
        }
        rows.drain(..)
            .map(|(known, (mut row, work))| {
                let (part, whole) =
                    if lately > 0.0 { (work as f64, lately) } else { (known.now.work as f64, ever) };
                row.share = if whole > 0.0 { part / whole } else { 0.0 };
                row
            })
            .collect()
    }

    /// The last `seconds` samples.
    pub(super) fn last(&self, seconds: usize) -> impl Iterator<Item = &Sample> + Clone {
        self.samples.iter().skip(self.samples.len().saturating_sub(seconds))
    }

    /// Requests refused in the last ten minutes by reason, most first.
    pub(super) fn refused(&self) -> Vec<(&str, u64)> {
        let mut sums: BTreeMap<&str, u64> = BTreeMap::new();
        for (reason, count) in self.samples.iter().flat_map(|sample| &sample.reasons) {
            *sums.entry(reason).or_default() += count;
        }
        let mut sums: Vec<_> = sums.into_iter().collect();
        sums.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
        sums
    }
}

impl Type {
    fn new(row: Row, at: f64, used: u64) -> Self {
        let now = Point::of(&row, at);
        let points = VecDeque::from([now]);
        let (expected, counts) = (row.work.expected, row.counts);
        let Times { p50, p95, .. } = row.upstream;
        let label = row.label.unwrap_or(row.id);
        Self { label, lane: row.lane, now, expected, p50, p95, counts, used, points }
    }

    fn take(&mut self, row: Row, at: f64, used: u64) {
        let before = self.now;
        self.now = Point::of(&row, at);
        if self.now.completed < before.completed {
            self.points = VecDeque::from([self.now]);
        } else if self.points.back().is_none_or(|last| at - last.at >= STEP) {
            // Until this frame nothing had changed.
            self.points.push_back(Point { at: at - 1.0, ..before });
            self.points.drain(..self.points.len().saturating_sub(POINTS_MAX));
        }
        (self.expected, self.lane) = (row.work.expected, row.lane);
        (self.p50, self.p95) = (row.upstream.p50, row.upstream.p95);
        (self.counts, self.used) = (row.counts, used);
        if let Some(label) = row.label {
            self.label = label;
        }
    }

    /// The figures of the last minute, and the work done in it.
    fn recent(&self, id: &str, at: f64) -> (Recent, u64) {
        let edge = at - RECENT;
        let now = self.now;
        let within = self.points.iter().find(|point| point.at >= edge);
        let idle = Point { at: edge, ..now };
        let first =
            *within.unwrap_or(if now.at < edge { &idle } else { self.points.back().unwrap_or(&idle) });
        let mean = |(count, sum): (u64, u64), (counted, summed): (u64, u64)| {
            let count = count.saturating_sub(counted);
            if count == 0 { 0.0 } else { sum.saturating_sub(summed) as f64 / count as f64 / 1e6 }
        };
        let lately = mean(now.upstream, first.upstream);
        let row = Recent {
            id: id.to_owned(),
            label: self.label.clone(),
            lane: self.lane.clone(),
            rate: now.completed.saturating_sub(first.completed) as f64 / (at - first.at).max(1.0),
            refused: now.refused.saturating_sub(first.refused),
            mean: if lately > 0.0 { lately } else { mean(now.upstream, (0, 0)) },
            p95: self.p95 as f64 / 1e6,
            p50: self.p50 as f64 / 1e6,
            counts: self.counts,
            expected: self.expected as f64 / 1e6,
            wait: mean(now.wait, first.wait),
            share: 0.0,
        };
        (row, now.work.saturating_sub(first.work))
    }
}

impl Point {
    fn of(row: &Row, at: f64) -> Self {
        Self {
            at,
            completed: row.counts.completed,
            refused: row.counts.refused,
            work: row.work.all,
            upstream: (row.upstream.count, row.upstream.sum),
            wait: (row.wait.count, row.wait.sum),
        }
    }
}
