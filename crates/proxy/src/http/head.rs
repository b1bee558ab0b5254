//! What a client's connection counts for in the process's budget: over HTTP/1 the head of a request, from its
//! first byte until the next request's; over HTTP/2 what [`Unread`](super::frames::Unread) knows.

use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::Ordering;
use std::task::Context;

use super::frames::{PREFACE, ROOM};
use super::socket::Talk;
use crate::memory::{Full, Held};

/// What a client hears whose head has no room.
pub(super) const NO_ROOM: &[u8] =
    b"HTTP/1.1 503 Service Unavailable\r\nretry-after: 1\r\nconnection: close\r\n\
    content-type: text/plain; charset=utf-8\r\ncontent-length: 46\r\n\r\n\
    The gate has no room for this request's head.\n";

/// What a client of HTTP/2 hears then: GOAWAY with ENHANCE_YOUR_CALM. Any of its streams may have been
/// served.
pub(super) const GO_AWAY: &[u8] = b"\0\0\x46\x07\0\0\0\0\0\x7f\xff\xff\xff\0\0\0\x0b\
    The gate has no room in memory for what this connection holds.";

const _: () = assert!(GO_AWAY.len() == 9 + 0x46, "a frame tells its length");

/// What hyper keeps of a connection that lingers: its buffer.
const LINGERING: usize = 64 * 1024;

/// The version of HTTP that a connection speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Version {
    /// This many bytes have come, all of the preface of HTTP/2.
    Unknown(usize),
    Http1,
    Http2,
}

impl Version {
    /// More has come; returns what of it stands behind the preface.
    fn read<'a>(&mut self, bytes: &'a [u8]) -> &'a [u8] {
        let Self::Unknown(come) = *self else { return bytes };
        let expected = &PREFACE[come..];
        let length = bytes.len().min(expected.len());
        *self = match (bytes[..length] == expected[..length], length == expected.len()) {
            (false, _) => Self::Http1,
            (true, false) => Self::Unknown(come + length),
            (true, true) => Self::Http2,
        };
        if *self == Self::Http2 { &bytes[length..] } else { bytes }
    }
}

/// The head that a connection has read, or reads.
pub(super) struct Head {
    bytes: usize,
    held: Held,
    /// How many requests had begun when it began.
    begun: usize,
    told: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
    /// The class of sizes that is told.
    class: usize,
    version: Version,
}

impl Default for Head {
    fn default() -> Self {
        let version = Version::Unknown(0);
        Self { bytes: 0, held: Held::default(), begun: 0, told: None, class: 0, version }
    }
}

impl std::fmt::Debug for Head {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Head").field("bytes", &self.bytes).finish_non_exhaustive()
    }
}

impl Head {
    /// Whether the connection speaks HTTP/2.
    pub(super) fn is_http2(&self) -> bool {
        self.version == Version::Http2
    }

    /// More has come over the connection.
    ///
    /// # Errors
    /// There is no room for it.
    pub(super) fn read(&mut self, bytes: &[u8], talk: &Talk) -> Result<(), Full> {
        self.told = None;
        let bytes = self.version.read(bytes);
        if self.is_http2() {
            // The preface has been read.
            self.held.set(0)?;
            return talk.unread.lock().read(bytes);
        }
        let begun = talk.begun.load(Ordering::Relaxed);
        if begun != self.begun {
            (self.begun, self.bytes) = (begun, 0);
        }
        // What comes while a request is served is most likely its body.
        if talk.under_way.load(Ordering::Relaxed) == 0 && !talk.shared.load(Ordering::Relaxed) {
            self.bytes += bytes.len();
        }
        self.held.set(self.bytes * ROOM)
    }

    /// Whether there is room for a connection that only waits until its client has heard its last word.
    pub(super) fn may_linger(&mut self) -> bool {
        self.held.set_if_free(LINGERING)
    }

    /// Whether it is told to give up its room.
    pub(super) fn is_told(&mut self, context: &mut Context<'_>, talk: &Talk) -> bool {
        if !self.is_http2() && talk.begun.load(Ordering::Relaxed) != self.begun {
            // It has been served; nothing of the next has come.
            let _ = self.read(&[], talk);
        }
        let unread = self.is_http2().then(|| talk.unread.lock());
        let held = unread.as_ref().map_or(&self.held, |unread| unread.held());
        if self.told.is_none() || self.class != held.class() {
            (self.told, self.class) = (held.told(), held.class());
        }
        drop(unread);
        self.told.as_mut().is_some_and(|told| told.as_mut().poll(context).is_ready())
    }
}
