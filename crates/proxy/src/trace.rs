//! A trace: what a running gate was asked and did, in a compact file, so that it can be replayed in the
//! laboratory.
//!
//! ```text
//! file    = "GKTRACE" version(1 byte) block*          the first block holds the header, as JSON
//! block   = length(u32) checksum(u32) payload          little-endian; the checksum is XXH3 of the payload
//! payload = item*                                      times and tickets relative to the item before
//! item    = tag(1 byte) field*                         fields are LEB128 numbers; signed ones in zigzag
//! ```
//!
//! Two or three items for each request, some ten bytes each: when it arrived, of which type, from which
//! pool; when it was let in; how it ended, and how long the service was busy with it. Types have names,
//! which are shapes of statements and never hold a literal. Each block can be read without those before it.
//! A file that is cut off or damaged is read up to there and then said to be so, with the offset; no input
//! panics, and nothing is allocated by a length that was only claimed.
//!
//! `recorder` writes it while the gate runs, by `encoder`; `reader` reads it. `kept` is the end of one in
//! memory.

use admission::{ClassId, Duration, Instant, Outcome, PoolId, Reason, RequestType, Work};
use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::xxh3_64;

mod encoder;
mod kept;
mod reader;
mod recorder;

pub use encoder::{Encoder, begin, block};
pub(crate) use kept::Kept;
pub use kept::{KEPT_AGE, KEPT_BYTES_MAX};
pub use reader::{Decoder, Fault, TraceError, TraceReader};
pub use recorder::{Full, Recorder, Recording, TraceFile, record};

/// What a trace begins with.
const MAGIC: &[u8; 7] = b"GKTRACE";
/// Raised when the items mean something else.
const VERSION: u8 = 1;
/// The longest block that is read, in bytes; those that are written are shorter.
pub const BLOCK_BYTES_MAX: usize = 1 << 20;
/// The longest name of a type, in bytes; a longer one is cut.
pub const LABEL_BYTES_MAX: usize = 4_096;
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
/// An arrival in another class than the default one: the fields of [`ARRIVED`], then the place of the class
/// in the block. A class that the block has not told of yet follows its place.
const ARRIVED_OF_CLASS: u8 = 11;

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
    /// The number of entries that are missing here, because the file was not written fast enough.
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
        /// Its class. Older traces have none but the default one.
        class: ClassId,
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

fn checksum(payload: &[u8]) -> u32 {
    xxh3_64(payload) as u32
}

#[cfg(test)]
mod tests;
