//! A trace as it is read: block by block, up to where it is cut off or damaged.

use std::io::{self, Read};

use admission::{ClassId, Duration, Instant, Outcome, PoolId, RequestType, Work};

use super::{
    ARRIVED, ARRIVED_OF_CLASS, BLOCK_BYTES_MAX, COMPLETED, DISPATCHED, Entry, Header, Item, LABEL_BYTES_MAX,
    LEFT, LONG_LIMIT, LOST, MAGIC, REJECTED, RESUMED, SUSPENDED, TYPE, VERSION, What, checksum,
};
use crate::observe::REASONS;

/// How much of a file is read ahead before more room is made for it.
const CHUNK: u64 = 64 << 10;

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

/// Reads items out of the payload of a block.
#[derive(Clone, Debug)]
pub struct Decoder<'a> {
    payload: &'a [u8],
    place: usize,
    at: u64,
    sequence: u64,
    /// The classes that the block has told of.
    classes: Vec<ClassId>,
}

type Decoded<T> = Result<T, &'static str>;

impl<'a> Decoder<'a> {
    /// At the beginning of a payload.
    pub fn new(payload: &'a [u8]) -> Self {
        Self { payload, place: 0, at: 0, sequence: 0, classes: Vec::new() }
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
            ARRIVED..=RESUMED | ARRIVED_OF_CLASS => Item::Entry(self.entry(tag)?),
            _ => return Err("there is no such item"),
        };
        Ok(Some(item))
    }

    fn entry(&mut self, tag: u8) -> Decoded<Entry> {
        self.at = self.at.wrapping_add(unzigzag(self.number()?));
        self.sequence = self.sequence.wrapping_add(unzigzag(self.number()?));
        let what = match tag {
            ARRIVED | ARRIVED_OF_CLASS => {
                let request_type = RequestType(self.number()?);
                let flags = self.number()?;
                let pool =
                    u8::try_from(flags >> 3).ok().and_then(PoolId::new).ok_or("there is no such pool")?;
                let deadline =
                    (flags & 4 != 0).then(|| self.number().map(Duration::from_nanos)).transpose()?;
                let class = if tag == ARRIVED { ClassId::DEFAULT } else { self.class()? };
                What::Arrived {
                    request_type,
                    class,
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
                    3 => Outcome::Conflict,
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

    fn class(&mut self) -> Decoded<ClassId> {
        let place = usize::try_from(self.number()?).unwrap_or(usize::MAX);
        if place == self.classes.len() {
            let class = ClassId(self.number()?);
            self.classes.push(class);
        }
        self.classes.get(place).copied().ok_or("there is no such class")
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

fn unzigzag(number: u64) -> u64 {
    number >> 1 ^ (number & 1).wrapping_neg()
}
