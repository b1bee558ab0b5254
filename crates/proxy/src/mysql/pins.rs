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
    _pinned: Pinned,
}

impl Counts {
    fn of(&self, pin: Pin) -> &AtomicU32 {
        let place = Pin::ALL.iter().position(|known| *known == pin).unwrap_or(Pin::ALL.len() - 1);
        &self.0[place]
    }

    pub(super) fn snapshot(&self) -> Vec<(&'static str, u32)> {
        Pin::ALL.iter().map(|pin| (pin.name(), self.of(*pin).load(Ordering::Relaxed))).collect()
    }
}

impl Kept {
    pub(super) fn new(counts: &Arc<Counts>, pin: Pin, pinned: Pinned) -> Self {
        counts.of(pin).fetch_add(1, Ordering::Relaxed);
        let mut kept = Self { counts: Arc::clone(counts), pin, entry: Entry::Queued, _pinned: pinned };
        kept.note(pin);
        kept
    }

    /// There is another reason, too. A request of a session that holds locks isn't made to wait.
    pub(super) fn note(&mut self, pin: Pin) {
        if pin.holds_locks() {
            self.entry = Entry::Immediate;
        }
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        self.counts.of(self.pin).fetch_sub(1, Ordering::Relaxed);
    }
}
