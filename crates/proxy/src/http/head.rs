//! What the head of a request counts for in the process's budget, from its first byte until the next
//! request's.

use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::Ordering;
use std::task::Context;

use super::socket::Talk;
use crate::memory::{Full, Held};

/// What a client hears whose head has no room.
pub(super) const NO_ROOM: &[u8] =
    b"HTTP/1.1 503 Service Unavailable\r\nretry-after: 1\r\nconnection: close\r\n\
    content-type: text/plain; charset=utf-8\r\ncontent-length: 46\r\n\r\n\
    The gate has no room for this request's head.\n";

/// hyper's buffer has room for about twice as much as has come.
const ROOM: usize = 2;

/// How HTTP/2 begins.
const PREFACE: &[u8] = b"PRI";

/// The head that a connection has read, or reads.
#[derive(Default)]
pub(super) struct Head {
    bytes: usize,
    held: Held,
    /// How many requests had begun when it began.
    begun: usize,
    told: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
    pub(super) is_http2: bool,
}

impl std::fmt::Debug for Head {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Head").field("bytes", &self.bytes).finish_non_exhaustive()
    }
}

impl Head {
    /// More has come over the connection.
    ///
    /// # Errors
    /// There is no room for it.
    pub(super) fn read(&mut self, bytes: &[u8], talk: &Talk) -> Result<(), Full> {
        self.told = None;
        let begun = talk.begun.load(Ordering::Relaxed);
        if begun != self.begun {
            (self.begun, self.bytes) = (begun, 0);
        }
        self.is_http2 |= begun == 0 && self.bytes == 0 && bytes.starts_with(PREFACE);
        // What comes while a request is served is most likely its body.
        if talk.under_way.load(Ordering::Relaxed) == 0 && !talk.shared.load(Ordering::Relaxed) {
            self.bytes += bytes.len();
        }
        self.held.set(self.bytes * ROOM)
    }

    /// Whether it is told to give up its room.
    pub(super) fn is_told(&mut self, context: &mut Context<'_>, talk: &Talk) -> bool {
        if talk.begun.load(Ordering::Relaxed) != self.begun {
            // It has been served; nothing of the next has come.
            let _ = self.read(&[], talk);
        }
        if self.told.is_none() {
            self.told = self.held.told();
        }
        self.told.as_mut().is_some_and(|told| told.as_mut().poll(context).is_ready())
    }
}
