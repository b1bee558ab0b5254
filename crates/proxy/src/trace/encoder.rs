//! A trace as it is written: items into the payload of a block, blocks behind one another.

use std::io;

use admission::{ClassId, Duration, Outcome};

use super::{
    ARRIVED, ARRIVED_OF_CLASS, COMPLETED, DISPATCHED, Entry, Header, Item, LABEL_BYTES_MAX, LEFT, LONG_LIMIT,
    LOST, MAGIC, REJECTED, RESUMED, SUSPENDED, TYPE, VERSION, What, checksum,
};
use crate::observe::REASONS;

/// Writes items into the payload of a block.
#[derive(Debug, Default)]
pub struct Encoder {
    payload: Vec<u8>,
    at: u64,
    sequence: u64,
    /// The classes that the block has told of.
    classes: Vec<ClassId>,
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
        self.classes.clear();
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
            What::Arrived { class: ClassId::DEFAULT, .. } => ARRIVED,
            What::Arrived { .. } => ARRIVED_OF_CLASS,
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
            What::Arrived { request_type, class, pool, held, immediate, deadline } => {
                self.number(request_type.0);
                let flags = u64::from(held) | u64::from(immediate) << 1 | u64::from(deadline.is_some()) << 2;
                self.number((pool.index() as u64) << 3 | flags);
                if let Some(deadline) = deadline {
                    self.number(nanos(deadline));
                }
                if class != ClassId::DEFAULT {
                    self.class(class);
                }
            }
            What::Dispatched { work } => self.number(work.as_nanos()),
            What::Completed { outcome, upstream_time } => {
                let outcome = match outcome {
                    Outcome::Success => 0,
                    Outcome::Failure => 1,
                    Outcome::Canceled => 2,
                    Outcome::Conflict => 3,
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

    fn class(&mut self, class: ClassId) {
        let place = self.classes.iter().position(|known| *known == class);
        self.number(place.unwrap_or(self.classes.len()) as u64);
        if place.is_none() {
            self.classes.push(class);
            self.number(class.0);
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

fn zigzag(difference: u64) -> u64 {
    let signed = difference as i64;
    (signed << 1 ^ signed >> 63) as u64
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
