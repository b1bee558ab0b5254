//! A trace: what a running gate was asked and did, in a compact file, so that it can be replayed in the laboratory.
//!
//! ```text
//! file    = "GKTRACE" version(1 byte) block*          the first block holds the header, as JSON
//! block   = length(u32) checksum(u32) payload          little-endian; the checksum is XXH3 of the payload
//! payload = item*                                      of the others; times and tickets relative to the item before
//! item    = tag(1 byte) field*                         fields are LEB128 numbers; signed ones in zigzag
//! ```
//!
//! Two or three items for each request, some ten bytes each: when it arrived, of which type, from which pool; when it was let
//! in; how it ended, and how long the service was busy with it. Types have names, which are shapes of statements and never
//! hold a literal. Each block can be read without those before it. A file that is cut off or damaged is read up to there
//! and then said to be so, with the offset; no input panics, and nothing is allocated by a length that was only claimed.
//!
//! `recorder` writes it while the gate runs, [`TraceReader`] reads it.

use std::io::{self, Read};

use admission::{Duration, Instant, Outcome, PoolId, Reason, RequestType, Work};
use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::xxh3_64;

use crate::observe::REASONS;

mod recorder;

pub use recorder::{Full, Recorder, Recording, TraceFile, record};

/// What a trace begins with.
const MAGIC: &[u8; 7] = b"GKTRACE";
/// Raised when the items mean something else.
const VERSION: u8 = 1;
/// The longest block that is read, in bytes; those that are written are shorter.
pub const BLOCK_BYTES_MAX: usize = 1 << 20;
/// The longest name of a type, in bytes; a longer one is cut.
pub const LABEL_BYTES_MAX: usize = 4_096;
/// So much of a file is read ahead before more room is made for it.
const CHUNK: u64 = 64 << 10;

const TYPE: u8 = 1;
const ARRIVED: u8 = 2;
const DISPATCHED: u8 = 3;
const COMPLETED: u8 = 4;
const REJECTED: u8 = 5;
const LEFT: u8 = 6;
const SUSPENDED: u8 = 7;
const RESUMED: u8 = 8;
const LOST: u8 = 9;
const LONG_LIMIT: u8 = 10;

/// What a trace is of.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Header {
    /// The version of the program that wrote it.
    pub gatekeeper: String,
    /// The gate.
    pub gate: String,
    /// `enforce` or `observe`.
    pub mode: String,
    /// The gate's configuration, as TOML.
    pub configuration: String,
    /// When the gate's clock began, in seconds since 1970.
    pub began_unix_seconds: u64,
}

/// One thing in a trace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Item {
    /// A type has this name.
    Type {
        /// Which.
        request_type: RequestType,
        /// Its name.
        label: String,
    },
    /// Something happened to a request.
    Entry(Entry),
    /// So many entries are missing here, because the file was not written fast enough.
    Lost(u64),
    /// The long lane's limit in force from here on; `None`: no lane.
    LongLimit(Option<u32>),
}

/// What happened to a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// When, by the gate's clock.
    pub at: Instant,
    /// Which: how many had arrived before it.
    pub sequence: u64,
    /// What.
    pub what: What,
}

/// What happened to a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    /// It arrived.
    Arrived {
        /// Its type.
        request_type: RequestType,
        /// Its pool.
        pool: PoolId,
        /// Whether its session held a connection already.
        held: bool,
        /// Whether it could not be made to wait.
        immediate: bool,
        /// How long after that it would be of no use any more.
        deadline: Option<Duration>,
    },
    /// It was let in.
    Dispatched {
        /// What it was expected to take.
        work: Work,
    },
    /// It ended upstream.
    Completed {
        /// How.
        outcome: Outcome,
        /// How long the service was busy with it.
        upstream_time: Duration,
    },
    /// It was refused.
    Rejected(Reason),
    /// It left the queue by itself.
    Left,
    /// Its transaction gave its work back.
    Suspended,
    /// Its transaction is charged again.
    Resumed,
}

/// Why a trace can't be read on, and where.
#[derive(Debug, thiserror::Error)]
#[error("byte {offset}: {fault}")]
pub struct TraceError {
    /// From the beginning of the file.
    pub offset: u64,
    /// What is wrong there.
    pub fault: Fault,
}

/// What is wrong with a trace.
#[derive(Debug, thiserror::Error)]
pub enum Fault {
    /// It can't be read.
    #[error("cannot be read: {0}")]
    Io(#[from] io::Error),
    /// It is something else.
    #[error("is no trace of a gatekeeper")]
    Foreign,
    /// It may be written otherwise.
    #[error("is a trace of version {0}, and {VERSION} is understood")]
    Version(u8),
    /// It ends within a block.
    #[error("is cut off here, within a block")]
    Truncated,
    /// Its checksum is another.
    #[error("is damaged: a checksum isn't right")]
    Checksum,
    /// It makes no sense.
    #[error("is damaged: {0}")]
    Malformed(&'static str),
}

/// Writes items into the payload of a block.
#[derive(Debug, Default)]
pub struct Encoder {
    payload: Vec<u8>,
    at: u64,
    sequence: u64,
}

impl Encoder {
    /// How long the payload is, in bytes.
    pub fn len(&self) -> usize {
        self.payload.len()
    }

    /// Whether there is nothing in it.
    pub fn is_empty(&self) -> bool {
        self.payload.is_empty()
    }

    /// The whole payload; the next item begins another one.
    pub fn take(&mut self) -> Vec<u8> {
        (self.at, self.sequence) = (0, 0);
        std::mem::take(&mut self.payload)
    }

    /// Adds an item.
    pub fn push(&mut self, item: &Item) {
        match item {
            Item::Type { request_type, label } => {
                let mut length = label.len().min(LABEL_BYTES_MAX);
                while !label.is_char_boundary(length) {
                    length -= 1;
                }
                self.payload.push(TYPE);
                self.number(request_type.0);
                self.number(length as u64);
                self.payload.extend_from_slice(&label.as_bytes()[..length]);
            }
            Item::Entry(entry) => self.entry(entry),
            Item::Lost(count) => {
                self.payload.push(LOST);
                self.number(*count);
            }
            Item::LongLimit(limit) => {
                self.payload.push(LONG_LIMIT);
                self.number(limit.map_or(0, |limit| u64::from(limit) + 1));
            }
        }
    }

    fn entry(&mut self, entry: &Entry) {
        let tag = match entry.what {
            What::Arrived { .. } => ARRIVED,
            What::Dispatched { .. } => DISPATCHED,
            What::Completed { .. } => COMPLETED,
            What::Rejected(_) => REJECTED,
            What::Left => LEFT,
            What::Suspended => SUSPENDED,
            What::Resumed => RESUMED,
        };
        self.payload.push(tag);
        let at = entry.at.as_nanos();
        self.number(zigzag(at.wrapping_sub(self.at)));
        self.number(zigzag(entry.sequence.wrapping_sub(self.sequence)));
        (self.at, self.sequence) = (at, entry.sequence);
        match entry.what {
            What::Arrived { request_type, pool, held, immediate, deadline } => {
                self.number(request_type.0);
                let flags = u64::from(held) | u64::from(immediate) << 1 | u64::from(deadline.is_some()) << 2;
                self.number((pool.index() as u64) << 3 | flags);
                if let Some(deadline) = deadline {
                    self.number(nanos(deadline));
                }
            }
            What::Dispatched { work } => self.number(work.as_nanos()),
            What::Completed { outcome, upstream_time } => {
                let outcome = match outcome {
                    Outcome::Success => 0,
                    Outcome::Failure => 1,
                    Outcome::Canceled => 2,
                };
                self.number(outcome);
                self.number(nanos(upstream_time));
            }
            What::Rejected(reason) => {
                let place = REASONS.iter().position(|known| *known == reason);
                self.number(place.unwrap_or(0) as u64);
            }
            What::Left | What::Suspended | What::Resumed => {}
        }
    }

    fn number(&mut self, mut number: u64) {
        while number >= 0x80 {
            self.payload.push(number as u8 | 0x80);
            number >>= 7;
        }
        self.payload.push(number as u8);
    }
}

/// Reads items out of the payload of a block.
#[derive(Clone, Debug)]
pub struct Decoder<'a> {
    payload: &'a [u8],
    place: usize,
    at: u64,
    sequence: u64,
}

type Decoded<T> = Result<T, &'static str>;

impl<'a> Decoder<'a> {
    /// At the beginning of a payload.
    pub fn new(payload: &'a [u8]) -> Self {
        Self { payload, place: 0, at: 0, sequence: 0 }
    }

    /// Where it is, in bytes from the beginning of the payload.
    pub fn place(&self) -> usize {
        self.place
    }

    /// The next item; `None` at the end.
    ///
    /// # Errors
    /// What makes no sense. Nothing can be read behind it.
    pub fn next_item(&mut self) -> Decoded<Option<Item>> {
        let Some(&tag) = self.payload.get(self.place) else { return Ok(None) };
        self.place += 1;
        let item = match tag {
            TYPE => {
                let request_type = RequestType(self.number()?);
                let length = usize::try_from(self.number()?).unwrap_or(usize::MAX);
                if length > LABEL_BYTES_MAX {
                    return Err("a name is too long");
                }
                let end = self.place.saturating_add(length);
                let label = self.payload.get(self.place..end).ok_or("a name is cut off")?;
                self.place = end;
                let label = std::str::from_utf8(label).map_err(|_| "a name isn't UTF-8")?;
                Item::Type { request_type, label: label.to_owned() }
            }
            LOST => Item::Lost(self.number()?),
            LONG_LIMIT => {
                let limit = u32::try_from(self.number()?).map_err(|_| "a limit is too large")?;
                Item::LongLimit(limit.checked_sub(1))
            }
            ARRIVED..=RESUMED => Item::Entry(self.entry(tag)?),
            _ => return Err("there is no such item"),
        };
        Ok(Some(item))
    }

    fn entry(&mut self, tag: u8) -> Decoded<Entry> {
        self.at = self.at.wrapping_add(unzigzag(self.number()?));
        self.sequence = self.sequence.wrapping_add(unzigzag(self.number()?));
        let what = match tag {
            ARRIVED => {
                let request_type = RequestType(self.number()?);
                let flags = self.number()?;
                let pool =
                    u8::try_from(flags >> 3).ok().and_then(PoolId::new).ok_or("there is no such pool")?;
                let deadline =
                    (flags & 4 != 0).then(|| self.number().map(Duration::from_nanos)).transpose()?;
                What::Arrived {
                    request_type,
                    pool,
                    held: flags & 1 != 0,
                    immediate: flags & 2 != 0,
                    deadline,
                }
            }
            DISPATCHED => What::Dispatched { work: Work::from_nanos(self.number()?) },
            COMPLETED => {
                let outcome = match self.number()? {
                    0 => Outcome::Success,
                    1 => Outcome::Failure,
                    2 => Outcome::Canceled,
                    _ => return Err("there is no such outcome"),
                };
                What::Completed { outcome, upstream_time: Duration::from_nanos(self.number()?) }
            }
            REJECTED => {
                let place = usize::try_from(self.number()?).unwrap_or(usize::MAX);
                What::Rejected(*REASONS.get(place).ok_or("there is no such reason")?)
            }
            LEFT => What::Left,
            SUSPENDED => What::Suspended,
            _ => What::Resumed,
        };
        Ok(Entry { at: Instant::from_nanos(self.at), sequence: self.sequence, what })
    }

    fn number(&mut self) -> Decoded<u64> {
        let mut number = 0u64;
        for shift in (0..64).step_by(7) {
            let byte = *self.payload.get(self.place).ok_or("an item is cut off")?;
            self.place += 1;
            let bits = u64::from(byte & 0x7f);
            // The tenth byte has room for one bit.
            if shift == 63 && bits > 1 {
                return Err("a number is too large");
            }
            number |= bits << shift;
            if byte & 0x80 == 0 {
                return Ok(number);
            }
        }
        Err("a number is too long")
    }
}

/// The beginning of a trace.
pub fn begin(header: &Header) -> io::Result<Vec<u8>> {
    let mut bytes = MAGIC.to_vec();
    bytes.push(VERSION);
    bytes.extend(block(&serde_json::to_vec(header)?));
    Ok(bytes)
}

/// A payload as a block.
pub fn block(payload: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(payload.len() + 8);
    bytes.extend_from_slice(&(payload.len() as u32).to_le_bytes());
    bytes.extend_from_slice(&checksum(payload).to_le_bytes());
    bytes.extend_from_slice(payload);
    bytes
}

/// Reads a trace.
#[derive(Debug)]
pub struct TraceReader<R> {
    source: R,
    header: Header,
    /// Of the block that is to be read next.
    offset: u64,
    /// The items of the present block.
    items: std::vec::IntoIter<Item>,
}

impl<R: Read> TraceReader<R> {
    /// Reads the beginning.
    ///
    /// # Errors
    /// What is no trace, or not one that is understood.
    pub fn new(mut source: R) -> Result<Self, TraceError> {
        let at = |offset, fault| TraceError { offset, fault };
        let mut start = Vec::new();
        source.by_ref().take(8).read_to_end(&mut start).map_err(|error| at(0, error.into()))?;
        let (magic, version) = start.split_at(start.len().min(MAGIC.len()));
        if magic != MAGIC {
            return Err(at(0, Fault::Foreign));
        }
        match version {
            [VERSION] => {}
            [other] => return Err(at(7, Fault::Version(*other))),
            _ => return Err(at(7, Fault::Truncated)),
        }
        let mut offset = 8;
        let payload = payload(&mut source, &mut offset)?.ok_or_else(|| at(8, Fault::Truncated))?;
        let header = serde_json::from_slice(&payload)
            .map_err(|_| at(16, Fault::Malformed("its header can't be read")))?;
        Ok(Self { source, header, offset, items: Vec::new().into_iter() })
    }

    /// What the trace is of.
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// The next item; `None` at the end.
    ///
    /// # Errors
    /// What is cut off or damaged. Nothing can be read behind it.
    pub fn next_item(&mut self) -> Result<Option<Item>, TraceError> {
        loop {
            if let Some(item) = self.items.next() {
                return Ok(Some(item));
            }
            let before = self.offset;
            let Some(payload) = payload(&mut self.source, &mut self.offset)? else { return Ok(None) };
            let mut decoder = Decoder::new(&payload);
            let mut items = Vec::new();
            loop {
                let place = before + 8 + decoder.place() as u64;
                match decoder.next_item() {
                    Ok(Some(item)) => items.push(item),
                    Ok(None) => break,
                    Err(why) => return Err(TraceError { offset: place, fault: Fault::Malformed(why) }),
                }
            }
            self.items = items.into_iter();
        }
    }

    /// How much of the file was read, in bytes.
    pub fn offset(&self) -> u64 {
        self.offset
    }
}

/// The payload of the next block; `None` at the end of the file.
fn payload(source: &mut impl Read, offset: &mut u64) -> Result<Option<Vec<u8>>, TraceError> {
    let begin = *offset;
    let at = |fault| TraceError { offset: begin, fault };
    let mut head = Vec::with_capacity(8);
    source.by_ref().take(8).read_to_end(&mut head).map_err(|error| at(error.into()))?;
    if head.is_empty() {
        return Ok(None);
    }
    let Ok(head) = <[u8; 8]>::try_from(head) else { return Err(at(Fault::Truncated)) };
    let [a, b, c, d, e, f, g, h] = head;
    let (length, sum) = (u32::from_le_bytes([a, b, c, d]), u32::from_le_bytes([e, f, g, h]));
    if length as usize > BLOCK_BYTES_MAX {
        return Err(at(Fault::Malformed("a block is too long")));
    }
    // A length may be damaged: room is made for what is really there.
    let mut payload = Vec::with_capacity(u64::from(length).min(CHUNK) as usize);
    source.by_ref().take(length.into()).read_to_end(&mut payload).map_err(|error| at(error.into()))?;
    if payload.len() < length as usize {
        return Err(at(Fault::Truncated));
    }
    if checksum(&payload) != sum {
        return Err(at(Fault::Checksum));
    }
    *offset += 8 + u64::from(length);
    Ok(Some(payload))
}

fn checksum(payload: &[u8]) -> u32 {
    xxh3_64(payload) as u32
}

fn zigzag(difference: u64) -> u64 {
    let signed = difference as i64;
    (signed << 1 ^ signed >> 63) as u64
}

fn unzigzag(number: u64) -> u64 {
    number >> 1 ^ (number & 1).wrapping_neg()
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests;
