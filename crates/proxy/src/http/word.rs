//! The first byte of a response, said before the response is there: whether a client that has closed its side
//! still listens.
//!
//! The end of a client's stream says two things that look alike: the client has sent its request and waits
//! for the answer, or it has left. Only what is sent to it tells them apart: the system of a client that has
//! left answers with a reset. Every response of HTTP/1 begins with the same letter, so this letter can go
//! ahead of it, and is left out of the response later. An interim response would tell as much, but clients of
//! HTTP/1.0 know none, and not all others read one that they didn't ask for.
//!
//! ```text
//! Unsaid ── the stream has ended ──► Wanted ── it is written ──► Said
//!   ▲  ▲                                │                          │
//!   │  └──── the response has begun ────┘                          │
//!   └──────── the response is written, but for its first byte ─────┘
//! ```
//!
//! It is wanted by a request, and written by its connection's socket, when hyper flushes: nothing is half
//! written then. Both are one task.

use std::sync::atomic::{AtomicU8, Ordering};

/// The letter.
pub(crate) const FIRST: &[u8] = b"H";

const UNSAID: u8 = 0;
const WANTED: u8 = 1;
const SAID: u8 = 2;

/// What becomes of the first byte of the next response on a connection.
#[derive(Debug, Default)]
pub(crate) struct Word(AtomicU8);

impl Word {
    /// The client's stream has ended, and nothing of the response is there.
    pub(crate) fn want(&self) {
        self.change(UNSAID, WANTED);
    }

    /// Whether it is to be written now.
    pub(crate) fn is_wanted(&self) -> bool {
        self.0.load(Ordering::Relaxed) == WANTED
    }

    /// The first byte is written.
    pub(crate) fn is_said(&self) {
        self.change(WANTED, SAID);
    }

    /// The response is there, and begins with it.
    pub(crate) fn give_way(&self) {
        self.change(WANTED, UNSAID);
    }

    /// Whether the first byte of what is written now has been written before. Only once.
    pub(crate) fn take_said(&self) -> bool {
        self.0.load(Ordering::Relaxed) == SAID && self.change(SAID, UNSAID)
    }

    fn change(&self, from: u8, to: u8) -> bool {
        self.0.compare_exchange(from, to, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }
}
