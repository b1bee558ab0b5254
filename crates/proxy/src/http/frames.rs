//! What a connection of HTTP/2 has brought and nobody has taken yet: the bytes of bodies, and a frame or a
//! head that is incomplete.
//!
//! h2 holds them and doesn't say how many there are. So this follows the frames on their way to it (RFC 9113,
//! sections 4.1 and 6), and requests tell what they take of their bodies.
//!
//! **When it fails.** What h2 drops of a stream that has ended early, and padding, count until no request is
//! under way. [`DATA_MAX`] bounds that: a connection that never rests may seem to hold 8 MiB.

use crate::memory::{Full, Held};

/// What a client may send on one connection of HTTP/2 before the service has taken any of it. The window has
/// room for several bodies whose requests wait. Half of it also bounds the small frames that h2 lets wait.
/// With more of them h2 sees an attack and ends the connection.
pub(super) const CONNECTION_WINDOW: u32 = 4 * 1024 * 1024;
/// What a frame takes beside its bytes.
pub(super) const FRAME: usize = 128;
/// hyper's buffer of HTTP/1 has room for about twice as much as has come.
pub(super) const ROOM: usize = 2;

/// How a connection of HTTP/2 begins.
pub(super) const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
const FRAME_HEAD: usize = 9;
const DATA: u8 = 0;
const HEADERS: u8 = 1;
const CONTINUATION: u8 = 9;
/// The flag of the last frame of a head.
const END_HEADERS: u8 = 4;
/// Bodies count for so much at most, what their frames take beside their bytes included.
const DATA_MAX: usize = 2 * CONNECTION_WINDOW as usize;

/// What was brought, and what of it is there.
#[derive(Debug, Default)]
pub(super) struct Unread {
    /// The head of the present frame, and how much of it has come.
    head: [u8; FRAME_HEAD],
    filled: usize,
    /// What has to come of the present frame.
    rest: usize,
    /// The last stream that was opened, and how many were.
    last: u32,
    opened: usize,
    /// Bytes of bodies.
    data: usize,
    /// Bytes of the head or of another frame that is incomplete.
    incomplete: usize,
    held: Held,
}

impl Unread {
    /// More has come, behind the preface.
    ///
    /// # Errors
    /// There is no room for it.
    pub(super) fn read(&mut self, mut bytes: &[u8]) -> Result<(), Full> {
        while !bytes.is_empty() {
            if self.rest == 0 {
                let taken = bytes.len().min(FRAME_HEAD - self.filled);
                self.head[self.filled..][..taken].copy_from_slice(&bytes[..taken]);
                self.filled += taken;
                bytes = &bytes[taken..];
                if self.filled == FRAME_HEAD {
                    self.filled = 0;
                    self.begin();
                }
                continue;
            }
            let taken = bytes.len().min(self.rest);
            bytes = &bytes[taken..];
            self.rest -= taken;
            let sort = if self.kind() == DATA { &mut self.data } else { &mut self.incomplete };
            *sort += taken;
            self.end_frame();
        }
        self.count()
    }

    fn kind(&self) -> u8 {
        self.head[3]
    }

    fn begin(&mut self) {
        let [a, b, c, kind, _, stream @ ..] = self.head;
        self.rest = u32::from_be_bytes([0, a, b, c]) as usize;
        let stream = u32::from_be_bytes(stream);
        if kind == HEADERS && stream > self.last {
            (self.last, self.opened) = (stream, self.opened + 1);
        }
        if kind == DATA && self.rest > 0 {
            self.data += FRAME;
        }
        self.end_frame();
    }

    fn end_frame(&mut self) {
        let is_last = self.head[4] & END_HEADERS != 0 || !matches!(self.kind(), HEADERS | CONTINUATION);
        if self.rest == 0 && is_last {
            self.incomplete = 0;
        }
    }

    fn count(&mut self) -> Result<(), Full> {
        self.data = self.data.min(DATA_MAX);
        self.held.set(self.data + self.incomplete)
    }

    /// A request has taken a frame of so many bytes of its body.
    pub(super) fn take(&mut self, bytes: usize) {
        if bytes > 0 {
            self.data = self.data.saturating_sub(bytes + FRAME);
            // Less has room.
            let _ = self.count();
        }
    }

    /// No request is under way, and so many have begun.
    pub(super) fn rest(&mut self, begun: usize) {
        if begun >= self.opened {
            self.data = 0;
            let _ = self.count();
        }
    }

    /// What it counts for.
    pub(super) fn held(&self) -> &Held {
        &self.held
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(kind: u8, flags: u8, stream: u32, length: usize) -> Vec<u8> {
        let length_bytes = (length as u32).to_be_bytes();
        let mut bytes = [&length_bytes[1..], &[kind, flags], &stream.to_be_bytes()].concat();
        bytes.resize(bytes.len() + length, b'x');
        bytes
    }

    #[test]
    fn what_is_incomplete_or_not_taken_counts_however_it_is_cut() {
        let ping = frame(6, 0, 0, 8);
        let body = frame(DATA, 0, 1, 10_000);
        let all = [
            frame(HEADERS, 0, 1, 3_000),
            frame(CONTINUATION, END_HEADERS, 1, 3_000),
            ping,
            frame(DATA, 1, 1, 0),
            body.clone(),
            // A field behind the body opens no stream.
            frame(HEADERS, END_HEADERS, 1, 5),
            frame(HEADERS, 0, 3, 6_000),
        ]
        .concat();
        for size in [1, 7, 4_096, all.len()] {
            let mut unread = Unread::default();
            for part in all.chunks(size) {
                unread.read(part).unwrap();
            }
            assert_eq!((unread.opened, unread.data, unread.incomplete), (2, 10_000 + FRAME, 6_000), "{size}");
            unread.take(10_000);
            assert_eq!(unread.data, 0);
            // One of the two has not begun.
            unread.read(&frame(CONTINUATION, END_HEADERS, 3, 1)).unwrap();
            unread.read(&body).unwrap();
            unread.rest(1);
            assert_eq!((unread.data, unread.incomplete), (10_000 + FRAME, 0));
            unread.rest(2);
            assert_eq!(unread.data, 0);
        }
    }

    #[test]
    fn no_more_counts_than_the_window_lets_in() {
        let mut unread = Unread::default();
        for _ in 0..2 * DATA_MAX / 16_384 {
            unread.read(&frame(DATA, 0, 1, 16_384)).unwrap();
        }
        assert_eq!(unread.data, DATA_MAX);
    }
}
