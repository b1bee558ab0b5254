//! Sessions that keep their connections, and why.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use admission::Entry;

use super::classify::Pin;
use crate::gate::Pinned;

/// How many sessions keep a connection now, by the reason that came first.
#[derive(Debug, Default)]
pub(super) struct Counts([AtomicU32; Pin::ALL.len()]);

/// A session keeps its connection while this is held.
pub(super) struct Kept {
    counts: Arc<Counts>,
    pin: Pin,
    /// How its requests enter the gate.
    pub(super) entry: Entry,
    /// Where a console reads the reasons: a bit for each of [`Pin::ALL`].
    shown: Arc<AtomicU32>,
    _pinned: Pinned,
}

fn place(pin: Pin) -> usize {
    Pin::ALL.iter().position(|known| *known == pin).unwrap_or(Pin::ALL.len() - 1)
}

/// The names of the reasons of one session, as others read them.
pub(super) fn names(shown: &AtomicU32) -> Vec<&'static str> {
    let bits = shown.load(Ordering::Relaxed);
    Pin::ALL.iter().filter(|pin| bits & (1 << place(**pin)) != 0).map(|pin| pin.name()).collect()
}

impl Counts {
    fn of(&self, pin: Pin) -> &AtomicU32 {
        &self.0[place(pin)]
    }

    pub(super) fn snapshot(&self) -> Vec<(&'static str, u32)> {
        Pin::ALL.iter().map(|pin| (pin.name(), self.of(*pin).load(Ordering::Relaxed))).collect()
    }
}

impl Kept {
    pub(super) fn new(counts: &Arc<Counts>, shown: &Arc<AtomicU32>, pin: Pin, pinned: Pinned) -> Self {
        counts.of(pin).fetch_add(1, Ordering::Relaxed);
        let (counts, shown) = (Arc::clone(counts), Arc::clone(shown));
        let mut kept = Self { counts, pin, entry: Entry::Queued, shown, _pinned: pinned };
        kept.note(pin);
        kept
    }

    /// There is another reason, too. A request of a session that holds locks isn't made to wait.
    pub(super) fn note(&mut self, pin: Pin) {
        self.shown.fetch_or(1 << place(pin), Ordering::Relaxed);
        if pin.holds_locks() {
            self.entry = Entry::Immediate;
        }
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        self.counts.of(self.pin).fetch_sub(1, Ordering::Relaxed);
        self.shown.store(0, Ordering::Relaxed);
    }
}
