//! Writes a trace while its gate runs, without ever holding the gate up.
//!
//! The gate's driver hands each entry to a bounded channel, with its lock held: what doesn't fit is counted
//! and left out, and the file says where. A thread of its own takes them out, gathers them into blocks and
//! writes a block once a second, or when it is full. A file has a maximum: then it stops, or goes to
//! `FILE.1` while another one begins. A gate that only observes keeps its last hour in memory as well
//! (`trace/kept.rs`).

use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use admission::{Connection, Entry as Admission, Event, LongLimit, Request, RequestType, Ticket};

use super::{Encoder, Entry, Header, Item, Kept, What, begin, block};
use crate::gate::Driver;

/// The most entries between the gate and the thread: 4 MB, or some seconds of a busy gate.
const ENTRIES_MAX: usize = 65_536;
/// A block is written when it has so many bytes,
const BLOCK_BYTES: usize = 64 << 10;
/// or when it is so old.
const BLOCK_AGE: Duration = Duration::from_secs(1);
/// How long the thread waits for an entry before it looks at the time.
const WAIT: Duration = Duration::from_millis(100);
/// How often types are looked at that have another name than before: a path gets one of its own once enough
/// have asked for it.
const RENAMED_EVERY: Duration = Duration::from_secs(10);
/// The most types that are remembered as named; beyond that they are named again.
const NAMED_MAX: usize = 65_536;

/// Where a trace goes, and how much of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TraceFile {
    /// The file. One that is there goes to `FILE.1`.
    pub path: PathBuf,
    /// The most bytes of a file.
    pub bytes_max: u64,
    /// What happens then.
    pub full: Full,
}

/// What happens when a file is full.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Full {
    /// Nothing more is recorded.
    Stop,
    /// It goes to `FILE.1`, in place of the one before it, and another one begins.
    Rotate,
}

/// The gate's end of it.
#[derive(Debug)]
pub struct Recorder {
    entries: SyncSender<Entry>,
    shared: Arc<Shared>,
    kept: Option<Arc<Kept>>,
}

#[derive(Debug, Default)]
struct Shared {
    lost: AtomicU64,
    /// Nothing more is recorded.
    ended: AtomicBool,
    /// The thread is to write what there is, and end.
    stop: AtomicBool,
}

impl Recorder {
    /// How many entries were left out because the thread did not keep up.
    pub fn lost(&self) -> u64 {
        self.shared.lost.load(Ordering::Relaxed)
    }

    /// What is kept in memory, of a gate that only observes.
    pub(crate) fn kept(&self) -> Option<Arc<Kept>> {
        self.kept.clone()
    }

    /// A request arrives.
    pub(crate) fn arrived(&self, now: admission::Instant, ticket: Ticket, request: &Request) {
        let what = What::Arrived {
            request_type: request.request_type,
            class: request.class,
            pool: request.pool,
            held: request.connection == Connection::Held,
            immediate: request.entry == Admission::Immediate,
            deadline: request.deadline.map(|deadline| deadline.since(now)),
        };
        self.note(Entry { at: now, sequence: ticket.sequence(), what });
    }

    /// The gate reports something.
    pub(crate) fn happened(&self, now: admission::Instant, event: &Event) {
        let (ticket, what) = match *event {
            Event::Dispatched { ticket, work, .. } => (ticket, What::Dispatched { work }),
            Event::Completed { ticket, outcome, upstream_time, .. } => {
                (ticket, What::Completed { outcome, upstream_time })
            }
            Event::Rejected { ticket, reason, .. } => (ticket, What::Rejected(reason)),
            Event::Left { ticket, .. } => (ticket, What::Left),
            Event::Suspended { ticket } => (ticket, What::Suspended),
            Event::Resumed { ticket } => (ticket, What::Resumed),
            _ => return,
        };
        self.note(Entry { at: now, sequence: ticket.sequence(), what });
    }

    fn note(&self, entry: Entry) {
        if self.shared.ended.load(Ordering::Relaxed) {
            return;
        }
        if self.entries.try_send(entry).is_err() {
            self.shared.lost.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// A trace that is being written.
#[derive(Debug)]
pub struct Recording {
    shared: Arc<Shared>,
    thread: JoinHandle<()>,
}

impl Recording {
    /// Writes what there is, and ends.
    pub fn finish(self) {
        self.shared.stop.store(true, Ordering::Release);
        if self.thread.join().is_err() {
            tracing::error!("the thread that writes the trace has failed");
        }
    }
}

/// Records what this gate is asked and does from now on, once for each gate: to a file, and of a gate that
/// only observes in memory.
///
/// # Errors
/// If the file can't be made.
pub fn record(driver: &Arc<Driver>, header: Header, file: Option<TraceFile>) -> io::Result<Recording> {
    let shared = Arc::new(Shared::default());
    let (entries, received) = sync_channel(ENTRIES_MAX);
    let kept = driver.only_watches().then(|| Arc::new(Kept::new(header.clone())));
    let out = file.map(|file| Out::open(header, file)).transpose()?;
    let writer = Writer {
        driver: Arc::downgrade(driver),
        shared: Arc::clone(&shared),
        out,
        kept: kept.clone(),
        encoder: Encoder::default(),
        since: Instant::now(),
        named: HashMap::new(),
        looked: Instant::now(),
        long_limit: None,
        lost: 0,
    };
    let thread = std::thread::Builder::new().name("trace".to_owned()).spawn(move || writer.run(&received))?;
    driver.set_recorder(Recorder { entries, shared: Arc::clone(&shared), kept });
    Ok(Recording { shared, thread })
}

/// The thread's end.
struct Writer {
    driver: Weak<Driver>,
    shared: Arc<Shared>,
    /// The file, as long as it takes more.
    out: Option<Out>,
    kept: Option<Arc<Kept>>,
    encoder: Encoder,
    /// When the block was begun.
    since: Instant,
    /// The names that types have in this file.
    named: HashMap<RequestType, Arc<str>>,
    /// When names were compared last.
    looked: Instant,
    /// What the file says of it.
    long_limit: Option<Option<u32>>,
    /// How many lost entries the file tells of.
    lost: u64,
}

impl Writer {
    fn run(mut self, entries: &Receiver<Entry>) {
        while self.out.is_some() || self.kept.is_some() {
            // Asked before the channel is: what was sent before the order to stop is still written.
            let stop = self.shared.stop.load(Ordering::Acquire);
            match entries.recv_timeout(if stop { Duration::ZERO } else { WAIT }) {
                Ok(entry) => self.push(entry),
                Err(RecvTimeoutError::Timeout) if !stop => {}
                Err(_) => {
                    self.rename();
                    self.flush();
                    break;
                }
            }
            if self.looked.elapsed() >= RENAMED_EVERY {
                self.rename();
            }
            if self.encoder.len() >= BLOCK_BYTES || self.since.elapsed() >= BLOCK_AGE {
                self.flush();
            }
        }
        self.shared.ended.store(true, Ordering::Relaxed);
    }

    fn push(&mut self, entry: Entry) {
        if let What::Arrived { request_type, .. } = entry.what
            && !self.named.contains_key(&request_type)
        {
            if self.named.len() >= NAMED_MAX {
                self.named.clear();
            }
            let label = self.driver.upgrade().and_then(|driver| driver.label(request_type));
            let label = label.unwrap_or_else(|| format!("#{:016x}", request_type.0).into());
            self.encoder.push(&Item::Type { request_type, label: label.to_string() });
            self.named.insert(request_type, label);
        }
        self.encoder.push(&Item::Entry(entry));
    }

    /// Types that have got another name are named again: readers take the last one.
    fn rename(&mut self) {
        self.looked = Instant::now();
        let labels = self.driver.upgrade().map_or_else(Vec::new, |driver| driver.labels());
        for (request_type, label) in labels {
            if let Some(named) = self.named.get_mut(&request_type)
                && *named != label
            {
                self.encoder.push(&Item::Type { request_type, label: label.to_string() });
                *named = label;
            }
        }
    }

    /// Writes the block, and what else is to be known at its end.
    fn flush(&mut self) {
        self.since = Instant::now();
        let lost = self.shared.lost.load(Ordering::Relaxed);
        if lost > self.lost {
            self.encoder.push(&Item::Lost(lost - self.lost));
            self.lost = lost;
        }
        let limit = self.driver.upgrade().map(|driver| long_limit(&driver));
        if limit.is_some() && limit != self.long_limit {
            self.encoder.push(&Item::LongLimit(limit.flatten()));
            self.long_limit = limit;
        }
        if self.encoder.is_empty() {
            return;
        }
        let block = block(&self.encoder.take());
        if let Some(out) = &mut self.out {
            let written = out.write(&block);
            let path = out.file.path.display();
            match written {
                Ok(Room::Left) => {}
                Ok(Room::Another) => {
                    self.named.clear();
                    self.long_limit = None;
                }
                Ok(Room::None) => {
                    tracing::warn!(trace = %path, "the trace is as long as it may be and ends here");
                    self.out = None;
                }
                Err(error) => {
                    tracing::error!(trace = %path, %error, "the trace can't be written and ends here");
                    self.out = None;
                }
            }
        }
        if let Some(kept) = &self.kept {
            kept.push(block);
        }
    }
}

/// The limit of the long lane that a replay begins with.
pub(super) fn long_limit(driver: &Driver) -> Option<u32> {
    match driver.policy().long_limit {
        Some(LongLimit::Fixed(limit)) => Some(limit),
        // What was told; what is found, a replay finds again.
        Some(LongLimit::Found { cores }) => cores,
        None => None,
    }
}

/// What is left of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Room {
    Left,
    /// Another file has begun.
    Another,
    None,
}

/// The file.
struct Out {
    header: Header,
    file: TraceFile,
    open: File,
    bytes: u64,
}

impl Out {
    fn open(header: Header, file: TraceFile) -> io::Result<Self> {
        let (open, bytes) = begun(&header, &file.path)?;
        Ok(Self { header, file, open, bytes })
    }

    fn write(&mut self, block: &[u8]) -> io::Result<Room> {
        self.open.write_all(block)?;
        self.bytes += block.len() as u64;
        // One more block must fit, whatever is in it.
        if self.bytes + 2 * BLOCK_BYTES as u64 <= self.file.bytes_max {
            return Ok(Room::Left);
        }
        match self.file.full {
            Full::Stop => Ok(Room::None),
            Full::Rotate => {
                (self.open, self.bytes) = begun(&self.header, &self.file.path)?;
                Ok(Room::Another)
            }
        }
    }
}

/// A new file with its beginning; one that was there goes to `FILE.1`.
fn begun(header: &Header, path: &Path) -> io::Result<(File, u64)> {
    let mut before = path.as_os_str().to_owned();
    before.push(".1");
    match std::fs::rename(path, PathBuf::from(before)) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut open = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    let start = begin(header)?;
    open.write_all(&start)?;
    Ok((open, start.len() as u64))
}
