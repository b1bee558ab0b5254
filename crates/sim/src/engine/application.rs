//! What the engine does with the application before the gate, if there is one.

use admission::Reason;

use super::{Engine, Observer};
use crate::agenda::Due;

impl<O: Observer> Engine<'_, O> {
    /// A request waits in the application: for so long at most.
    pub(super) fn watch(&mut self, number: u32) {
        if let Some(until) = self.inside.as_ref().and_then(|inside| inside.waits_until(number)) {
            self.agenda.add(until, Due::Busy(number));
        }
    }

    /// A request has waited in the application for as long as it may, unless it waits for something else by
    /// now.
    pub(super) fn turn_away(&mut self, number: u32) {
        match self.inside.as_ref().and_then(|inside| inside.waits_until(number)) {
            Some(until) if until <= self.now => self.reject(number, Reason::QueueTimeout),
            _ => self.watch(number),
        }
        self.settle();
    }

    /// The application has nothing more to do with a request: others go on to the gate.
    pub(super) fn left(&mut self, number: u32) {
        let Some(inside) = &mut self.inside else { return };
        for next in inside.leave(self.now, number) {
            self.ask(next);
        }
    }

    /// What was never let in is gone, long after its client.
    pub(super) fn forget(&mut self, number: u32) {
        self.books.abandoned += u128::from(self.now - self.rows[number as usize].ended.as_nanos());
    }
}
