//! The fair system beside the real one: when a response would have been sent if all shared the uplink alike.
//!
//! The clock counts the bytes that one fair share has sent since the beginning (the virtual time of fair
//! queueing, Demers, Keshav and Shenker, 1989). It advances by the bytes that were really sent, divided by
//! the number of responses that the fair system serves. A response of `n` bytes that begins at `v` ends there
//! at `v + n`, whatever comes later.
//!
//! Both systems send the same number of bytes, so no rate has to be known. The clock stops while nothing is
//! sent. At most `ghosts_max` responses are in the fair system; beyond, the one that would end last leaves,
//! which makes the clock faster and so lets others count as overdue too early, never too late.

use alloc::collections::{BTreeMap, BTreeSet};

use super::Stream;

/// Fraction bits of the clock.
const FRACTION: u32 = 32;

/// Bytes on the fair clock.
pub(super) fn units(bytes: u64) -> u128 {
    u128::from(bytes) << FRACTION
}

/// When a response leaves the fair system, and when it counts as overdue.
#[derive(Clone, Copy, Debug)]
struct Dates {
    ends: u128,
    overdue: u128,
}

#[derive(Debug)]
pub(super) struct FairClock {
    /// How many times its fair service makes a response overdue.
    aging: Option<f64>,
    ghosts_max: usize,
    now: u128,
    /// By their end.
    served: BTreeSet<(u128, Stream)>,
    /// By when they are overdue.
    awaited: BTreeSet<(u128, Stream)>,
    dates: BTreeMap<Stream, Dates>,
}

impl FairClock {
    pub(super) fn new(aging: Option<f64>, ghosts_max: usize) -> Self {
        Self {
            aging,
            ghosts_max: ghosts_max.max(1),
            now: 0,
            served: BTreeSet::new(),
            awaited: BTreeSet::new(),
            dates: BTreeMap::new(),
        }
    }

    pub(super) fn now(&self) -> u128 {
        self.now
    }

    /// Serves a response that was served before for `served`, and returns since when it would have been
    /// served.
    pub(super) fn serve(&mut self, stream: Stream, served: u128, bytes: u64) -> u128 {
        self.forget(stream);
        let size = units(bytes);
        let since = self.now.saturating_sub(served);
        let aging = self.aging.unwrap_or(1.0);
        let more = units((bytes as f64 * (aging - 1.0)) as u64);
        let ends = since.saturating_add(size).max(self.now);
        let dates = Dates { ends, overdue: since.saturating_add(size).saturating_add(more).max(self.now) };
        self.served.insert((dates.ends, stream));
        self.awaited.insert((dates.overdue, stream));
        self.dates.insert(stream, dates);
        self.bound();
        since
    }

    fn bound(&mut self) {
        while self.served.len() > self.ghosts_max {
            self.served.pop_last();
        }
        while self.dates.len() > self.ghosts_max {
            let Some((_, stream)) = self.awaited.pop_last() else { return };
            self.forget(stream);
        }
    }

    /// Takes a response out.
    pub(super) fn forget(&mut self, stream: Stream) {
        if let Some(dates) = self.dates.remove(&stream) {
            self.served.remove(&(dates.ends, stream));
            self.awaited.remove(&(dates.overdue, stream));
        }
    }

    /// The uplink has really sent these bytes.
    pub(super) fn advance(&mut self, bytes: u64) {
        let mut left = units(bytes);
        while let Some(&(ends, stream)) = self.served.first() {
            let count = self.served.len() as u128;
            let needed = ends.saturating_sub(self.now).saturating_mul(count);
            if needed > left {
                self.now = self.now.saturating_add(left / count);
                return;
            }
            left -= needed;
            self.now = self.now.max(ends);
            self.served.remove(&(ends, stream));
        }
    }

    /// One that has become overdue, and when.
    pub(super) fn next_overdue(&mut self) -> Option<(Stream, u128)> {
        let &(at, stream) = self.awaited.first()?;
        if at > self.now {
            return None;
        }
        self.forget(stream);
        Some((stream, at))
    }
}
