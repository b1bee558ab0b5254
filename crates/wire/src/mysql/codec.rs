//! Packets: where a message starts and ends, from headers of four bytes.
//!
//! A header is the payload's length in three bytes (little endian) and a sequence number. A message of
//! [`MAX_PAYLOAD`] bytes or more is cut: every packet but its last one has exactly that length, and the last
//! one may be empty. Sequence numbers count the packets of both directions from the command on, and wrap from
//! 255 to 0.

use std::borrow::Cow;

use bytes::{Buf as _, BufMut, BytesMut};

use super::Fault;

/// Bytes of a header.
pub const HEADER_LEN: usize = 4;
/// The most bytes of one packet's payload. A packet of this length does not end its message.
pub const MAX_PAYLOAD: usize = 0xff_ffff;
/// The largest message in bytes: the most that a server's `max_allowed_packet` can be.
pub const MAX_MESSAGE: usize = 1 << 30;

/// A packet's sequence number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Sequence(pub u8);

impl Sequence {
    /// The number of the packet after this one.
    #[must_use]
    pub fn next(self) -> Self {
        Self(self.0.wrapping_add(1))
    }

    /// Checks that `packet` has this number, and returns the number that is due after it.
    ///
    /// # Errors
    /// If the packet has another number.
    pub fn check(self, packet: Packet) -> Result<Self, Fault> {
        if packet.sequence == self {
            return Ok(self.next());
        }
        Err(Fault::Sequence { expected: self.0, found: packet.sequence.0 })
    }
}

/// One packet within a buffer that starts with its header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Packet {
    /// Its sequence number.
    pub sequence: Sequence,
    /// Bytes of its payload, at most [`MAX_PAYLOAD`]. The buffer may hold fewer yet.
    pub payload_len: usize,
}

impl Packet {
    /// Bytes of header and payload.
    #[must_use]
    pub fn len(self) -> usize {
        HEADER_LEN + self.payload_len
    }

    /// Whether the payload is empty.
    #[must_use]
    pub fn is_empty(self) -> bool {
        self.payload_len == 0
    }

    /// Whether the message goes on in the next packet.
    #[must_use]
    pub fn continues(self) -> bool {
        self.payload_len == MAX_PAYLOAD
    }

    /// The payload within `buf`, once all of it has arrived.
    #[must_use]
    pub fn payload(self, buf: &[u8]) -> Option<&[u8]> {
        buf.get(HEADER_LEN..self.len())
    }
}

/// The packet that `buf` starts with; `None` while its header is incomplete.
#[must_use]
pub fn packet(buf: &[u8]) -> Option<Packet> {
    let &[a, b, c, sequence] = buf.first_chunk::<HEADER_LEN>()?;
    let payload_len = u32::from_le_bytes([a, b, c, 0]) as usize;
    Some(Packet { sequence: Sequence(sequence), payload_len })
}

/// Where a message within a buffer ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Extent {
    /// The number of its first packet.
    pub sequence: Sequence,
    /// The number that is due after its last packet.
    pub next: Sequence,
    /// Bytes of all its packets.
    pub len: usize,
}

/// How much of a message has arrived.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Arrived {
    /// A part; the headers that have come announce so many bytes at least.
    Part(usize),
    /// All of it.
    Whole(Extent),
}

/// How much has arrived of the message that `buf` starts with.
///
/// # Errors
/// A message whose payload is longer than `max`, as soon as its headers say so; packets that are out of
/// order.
pub fn arrived(buf: &[u8], max: usize) -> Result<Arrived, Fault> {
    let Some(first) = packet(buf) else { return Ok(Arrived::Part(HEADER_LEN)) };
    let (mut at, mut length, mut due) = (0, 0, first.sequence);
    loop {
        let Some(next) = packet(buf.get(at..).unwrap_or_default()) else {
            return Ok(Arrived::Part(at + HEADER_LEN));
        };
        due = due.check(next)?;
        length += next.payload_len;
        if length > max {
            return Err(Fault::TooLong { length, max });
        }
        at += next.len();
        if !next.continues() {
            break;
        }
    }
    if buf.len() < at {
        return Ok(Arrived::Part(at));
    }
    Ok(Arrived::Whole(Extent { sequence: first.sequence, next: due, len: at }))
}

/// The payload of a whole message, joined within its buffer if it came in several packets.
#[must_use]
pub fn payload(mut whole: BytesMut) -> BytesMut {
    if packet(&whole).is_none_or(|first| !first.continues()) {
        whole.advance(HEADER_LEN.min(whole.len()));
        return whole;
    }
    let (mut from, mut to) = (0, 0);
    while let Some(next) = packet(whole.get(from..).unwrap_or_default()) {
        let end = (from + next.len()).min(whole.len());
        let start = (from + HEADER_LEN).min(end);
        whole.copy_within(start..end, to);
        to += end - start;
        from = end;
    }
    whole.truncate(to);
    whole
}

/// A whole message of one or several packets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message<'a> {
    /// The number of its first packet.
    pub sequence: Sequence,
    /// The number that is due after its last packet.
    pub next: Sequence,
    /// Bytes of all its packets.
    pub len: usize,
    /// Its payload, joined if it came in several packets.
    pub payload: Cow<'a, [u8]>,
}

/// The message that `buf` starts with; `None` while it is incomplete.
///
/// # Errors
/// A message whose payload is longer than `max`, as soon as its headers say so; packets that are out of
/// order.
pub fn message(buf: &[u8], max: usize) -> Result<Option<Message<'_>>, Fault> {
    let Arrived::Whole(Extent { sequence, next, len }) = arrived(buf, max)? else { return Ok(None) };
    let whole = buf.get(..len).unwrap_or_default();
    let payload = if packet(buf).is_some_and(Packet::continues) {
        Cow::Owned(payload(BytesMut::from(whole)).to_vec())
    } else {
        Cow::Borrowed(whole.get(HEADER_LEN..).unwrap_or_default())
    };
    Ok(Some(Message { sequence, next, len, payload }))
}

/// Appends `payload` in as many packets as it takes; returns the number that is due next.
pub fn write(out: &mut BytesMut, mut sequence: Sequence, payload: &[u8]) -> Sequence {
    let mut rest = payload;
    loop {
        let (piece, behind) = rest.split_at(rest.len().min(MAX_PAYLOAD));
        // A piece is at most 2^24 − 1 bytes long, so its length has three bytes.
        let [a, b, c, ..] = piece.len().to_le_bytes();
        out.put_slice(&[a, b, c, sequence.0]);
        out.put_slice(piece);
        sequence = sequence.next();
        rest = behind;
        if piece.len() < MAX_PAYLOAD {
            return sequence;
        }
    }
}
