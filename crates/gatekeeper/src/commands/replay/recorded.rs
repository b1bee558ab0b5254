//! A trace read back: each request with what became of it.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, BufReader, IsTerminal as _};
use std::path::Path;
use std::time::Duration;

use admission::{ClassId, Outcome, RequestType, Work};
use config::{LongLimit, World};
use indicatif::{ProgressBar, ProgressStyle};
use proxy::trace::{Entry, Fault, Header, Item, TraceError, TraceReader, What};
use sim::Sample;

use crate::Failure;

/// The most requests that are replayed: two gigabytes of them.
const REQUESTS_MAX: usize = 20_000_000;
/// The most types; what the laboratory takes.
const TYPES_MAX: usize = 65_536;

/// The most classes: more than a gate has at once, for those that reloads have brought.
const CLASSES_MAX: usize = 255;

/// What became of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// It was served, or failed.
    Completed,
    /// Its client had gone while it was in flight.
    Canceled,
    /// The gate refused it.
    Rejected,
    /// It left the queue by itself.
    Left,
    /// The trace ended before it did.
    Unfinished,
}

/// One request. Times are nanoseconds of the gate's clock.
#[derive(Clone, Copy, Debug)]
pub(super) struct Request {
    pub(super) kind: u32,
    /// Its class, by number.
    pub(super) class: u8,
    pub(super) arrived: u64,
    pub(super) dispatched: Option<u64>,
    pub(super) ended: Option<u64>,
    /// How long the service was busy with it.
    pub(super) upstream: u64,
    pub(super) end: End,
}

/// A whole trace.
#[derive(Debug)]
pub(super) struct Recorded {
    /// Where it was read from.
    pub(super) name: String,
    pub(super) header: Header,
    /// The names of the types, by kind.
    pub(super) labels: Vec<String>,
    /// The classes, by number.
    pub(super) classes: Vec<ClassId>,
    /// In order of arrival.
    pub(super) requests: Vec<Request>,
    /// The long lane's limit that was in force last.
    pub(super) long_limit: Option<u32>,
    /// Entries that the gate could not write down.
    pub(super) lost: u64,
    /// When the first one arrived.
    pub(super) from: u64,
    /// Whether the file ends within a block.
    pub(super) truncated: bool,
}

/// A trace being read.
#[derive(Default)]
struct Reading {
    labels: Vec<String>,
    kinds: HashMap<RequestType, u32>,
    classes: Vec<ClassId>,
    requests: Vec<Request>,
    /// Which requests haven't ended, by their numbers.
    open: HashMap<u64, usize>,
    long_limit: Option<u32>,
    lost: u64,
}

impl Recorded {
    /// Reads a file; one that is cut off only if `partial`.
    pub(super) fn read(path: &Path, partial: bool) -> Result<Self, Failure> {
        let file =
            File::open(path).map_err(|error| Failure::Usage(format!("{}: {error}", path.display())))?;
        let length = file.metadata().map_or(0, |metadata| metadata.len());
        let recorded = Self::read_from(BufReader::new(file), (path.display().to_string(), length), partial)?;
        if recorded.requests.is_empty() {
            return Err(Failure::Usage(format!("{}: there is no request in it", path.display())));
        }
        Ok(recorded)
    }

    /// Reads a trace from elsewhere, which has a name and a length.
    pub(super) fn read_from(
        source: impl io::Read,
        (name, length): (String, u64),
        partial: bool,
    ) -> Result<Self, Failure> {
        let said = |error: &dyn std::fmt::Display| format!("{name}: {error}");
        let damaged = |error: TraceError| Failure::Usage(said(&error));
        let mut reader = TraceReader::new(source).map_err(damaged)?;
        let mut reading = Reading::default();
        let bar = progress(length);
        let mut truncated = false;
        loop {
            match reader.next_item() {
                Ok(Some(item)) => reading.take(item).map_err(|why| Failure::Usage(said(&why)))?,
                Ok(None) => break,
                Err(TraceError { fault: Fault::Truncated, .. }) if partial => {
                    truncated = true;
                    break;
                }
                Err(error @ TraceError { fault: Fault::Truncated, .. }) => {
                    let whole = reading.requests.len();
                    return Err(Failure::Usage(said(&format!(
                        "{error}; before it are {whole} requests, which --partial replays"
                    ))));
                }
                Err(error) => return Err(damaged(error)),
            }
            bar.set_position(reader.offset());
        }
        bar.finish_and_clear();
        let header = reader.header().clone();
        Ok(reading.done(name, header, truncated))
    }

    /// What was recorded, in the same steps as these samples of a replay.
    pub(super) fn samples(&self, like: &[Sample]) -> Vec<Sample> {
        let since = |at: u64| at.saturating_sub(self.from);
        let mut arrived: Vec<u64> = Vec::new();
        let (mut dispatched, mut landed, mut left) = (Vec::new(), Vec::new(), Vec::new());
        let mut served: Vec<(u64, u64)> = Vec::new();
        for request in &self.requests {
            arrived.push(since(request.arrived));
            left.extend(request.dispatched.or(request.ended).map(since));
            dispatched.extend(request.dispatched.map(since));
            landed.extend(request.ended.filter(|_| request.dispatched.is_some()).map(since));
            let ended = request.ended.filter(|_| request.end == End::Completed);
            served.extend(ended.map(|ended| (since(ended), ended - request.arrived)));
        }
        served.sort_unstable();
        for instants in [&mut arrived, &mut dispatched, &mut landed, &mut left] {
            instants.sort_unstable();
        }
        let until = |instants: &[u64], at: u64| instants.partition_point(|instant| *instant <= at);
        let sample = |like: &Sample| {
            let at = like.at.as_nanos();
            let began = at - u64::try_from(like.since.as_nanos()).unwrap_or(at).min(at);
            let within = |at| served.partition_point(|(ended, _)| *ended <= at);
            let here = &served[within(began)..within(at)];
            let times: u64 = here.iter().map(|(_, response)| response).sum();
            Sample {
                load: Work::ZERO,
                capacity: None,
                capacity_found: None,
                queued: until(&arrived, at).saturating_sub(until(&left, at)),
                in_flight: until(&dispatched, at).saturating_sub(until(&landed, at)),
                arrived: (until(&arrived, at) - until(&arrived, began)) as u64,
                completed: here.len() as u64,
                response_time: Duration::from_nanos(times.checked_div(here.len() as u64).unwrap_or(0)),
                rejected: 0,
                timed_out: 0,
                useful_work: Work::ZERO,
                ..*like
            }
        };
        like.iter().map(sample).collect()
    }

    /// How many cores the service has, if the trace tells: where the server was asked for them, they are
    /// the limit.
    pub(super) fn cores(&self, world: &World) -> Option<u32> {
        let gate = world.gates.first()?;
        self.long_limit.filter(|_| gate.long_limit == LongLimit::Auto)
    }
}

impl Reading {
    fn take(&mut self, item: Item) -> Result<(), &'static str> {
        match item {
            Item::Type { request_type, label } => {
                let kind = self.kind(request_type)?;
                self.labels[kind as usize] = label;
            }
            Item::Lost(count) => self.lost = self.lost.saturating_add(count),
            Item::LongLimit(limit) => self.long_limit = limit,
            Item::Entry(entry) => self.entry(entry)?,
        }
        Ok(())
    }

    fn entry(&mut self, Entry { at, sequence, what }: Entry) -> Result<(), &'static str> {
        let at = at.as_nanos();
        if let What::Arrived { request_type, class, .. } = what {
            if self.requests.len() >= REQUESTS_MAX {
                return Err("there are more than 20 million requests in it");
            }
            let kind = self.kind(request_type)?;
            self.open.insert(sequence, self.requests.len());
            let class = self.class(class)?;
            self.requests.push(Request {
                kind,
                class,
                arrived: at,
                dispatched: None,
                ended: None,
                upstream: 0,
                end: End::Unfinished,
            });
            return Ok(());
        }
        // One whose arrival is missing says nothing.
        let Some(&place) = self.open.get(&sequence) else { return Ok(()) };
        let request = &mut self.requests[place];
        let end = match what {
            What::Dispatched { .. } => {
                request.dispatched = Some(at.max(request.arrived));
                return Ok(());
            }
            What::Completed { outcome, upstream_time } => {
                request.upstream = u64::try_from(upstream_time.as_nanos()).unwrap_or(u64::MAX);
                if outcome == Outcome::Canceled { End::Canceled } else { End::Completed }
            }
            What::Rejected(_) => End::Rejected,
            What::Left => End::Left,
            What::Suspended | What::Resumed | What::Arrived { .. } => return Ok(()),
        };
        request.end = end;
        request.ended = Some(at.max(request.dispatched.unwrap_or(request.arrived)));
        self.open.remove(&sequence);
        Ok(())
    }

    fn kind(&mut self, request_type: RequestType) -> Result<u32, &'static str> {
        if let Some(kind) = self.kinds.get(&request_type) {
            return Ok(*kind);
        }
        if self.labels.len() >= TYPES_MAX {
            return Err("there are more than 65536 types in it");
        }
        let kind = self.labels.len() as u32;
        self.labels.push(format!("#{:016x}", request_type.0));
        self.kinds.insert(request_type, kind);
        Ok(kind)
    }

    fn class(&mut self, class: ClassId) -> Result<u8, &'static str> {
        if let Some(known) = self.classes.iter().position(|known| *known == class) {
            return Ok(known as u8);
        }
        if self.classes.len() >= CLASSES_MAX {
            return Err("there are more than 255 classes in it");
        }
        self.classes.push(class);
        Ok(self.classes.len() as u8 - 1)
    }

    fn done(mut self, name: String, header: Header, truncated: bool) -> Recorded {
        // Entries of two threads may change places by some microseconds.
        self.requests.sort_by_key(|request| request.arrived);
        let from = self.requests.first().map_or(0, |request| request.arrived);
        Recorded {
            name,
            header,
            labels: self.labels,
            classes: self.classes,
            requests: self.requests,
            long_limit: self.long_limit,
            lost: self.lost,
            from,
            truncated,
        }
    }
}

fn progress(bytes: u64) -> ProgressBar {
    let bar = if io::stderr().is_terminal() { ProgressBar::new(bytes) } else { ProgressBar::hidden() };
    if let Ok(style) = ProgressStyle::with_template("{wide_bar} {percent} % of the trace read, {eta} left") {
        bar.set_style(style);
    }
    bar
}
