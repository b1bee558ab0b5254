//! A service that stands still, in the gate: which requests wait for it, and which come after newcomers then.
//!
//! A request that arrived before the watermark is late. Each class has its lines twice; late requests wait in
//! the second pair, in which the policy's order holds as well. Aging doesn't bind between late requests and
//! newcomers. A late request goes when no newcomer of its class could, and only while the service is busy
//! with fewer requests than it works on at once: with what would lie idle. (Beside newcomers, late requests
//! would take a share of a core all the time, and a long newcomer three times as long.)
//!
//! When a stall ends, all that waits becomes late in one step: the pairs are swapped, and the watermark
//! moves. (Where late requests of an earlier stall or of `gate/leavers.rs` are left, the others join them one
//! by one.) Requests of an unknown type stand behind their scout, and are late when they come to their line.
//! Requests aside for their group stay there.

use alloc::vec::Vec;

use super::Gate;
use crate::event::Event;
use crate::request::Entry;
use crate::stalls::Stalls;
use crate::tickets::{Alarm, Evidence, Line, Place};
use crate::time::Instant;
use crate::without::Mechanism;

impl Gate {
    /// Whether it waits behind newcomers, or would.
    pub(super) fn is_late(&self, slot: u32) -> bool {
        let record = self.tickets.at(slot);
        record.stepped_back || record.sequence < self.late_before
    }

    /// The service has answered. If that ends a stall, what is in flight counts from now on, and who waited
    /// through it yields.
    pub(super) fn has_answered(&mut self, now: Instant) {
        let Some(lasted) = self.stalls.answered(now, self.ledger.busy_count()) else { return };
        for slot in self.tickets.slots() {
            self.forgive(slot);
        }
        if let Some(before) = Stalls::yields(now, lasted)
            && !self.policy.without.has(Mechanism::NewcomersFirst)
        {
            self.make_late(before);
        }
        self.report(Event::Stalled { lasted, late: self.classes.late() });
    }

    /// A request in flight counts from now on, and its type learns nothing from it.
    fn forgive(&mut self, slot: u32) {
        let record = self.tickets.at(slot);
        if record.place != Place::InFlight || !record.meter.is_busy() {
            return;
        }
        self.stop_clocks(slot);
        let record = self.tickets.at_mut(slot);
        (record.evidence, record.age_alarm) = (Evidence::Void, Alarm::NONE);
        self.ledger.off(self.pace.reading(), &mut record.meter);
        record.meter.forgive();
        self.run(slot);
        self.relane(self.tickets.at(slot).kind);
        self.reseat(slot);
    }

    /// Waiting requests that came before that instant wait behind newcomers from now on.
    fn make_late(&mut self, before: Instant) {
        let recent = self.recent(before);
        let watermark = recent.iter().map(|&slot| self.tickets.at(slot).sequence).min();
        let watermark = watermark.unwrap_or(self.tickets.arrivals());
        if self.classes.late() > 0 {
            let becomes = |&slot: &u32| !self.is_late(slot) && self.tickets.at(slot).sequence < watermark;
            let slots = self.all_waiting().into_iter().filter(becomes).collect();
            return self.step_over(slots, |gate| gate.late_before = watermark);
        }
        self.step_over(recent, |gate| {
            for class in gate.classes.waits() {
                let its = gate.classes.at_mut(class);
                core::mem::swap(&mut its.lines, &mut its.late);
                its.patience.forget();
            }
            gate.late_before = watermark;
        });
    }

    /// Those that wait and came after that instant.
    fn recent(&self, before: Instant) -> Vec<u32> {
        let mut recent = Vec::new();
        for class in self.classes.waits() {
            let waiting = &self.classes.at(class).waiting;
            let mut last = waiting.last();
            while let Some(slot) = last.filter(|&slot| self.tickets.at(slot).arrived > before) {
                recent.push(slot);
                last = self.tickets.before(waiting, slot);
            }
        }
        recent.sort_unstable_by_key(|&slot| self.tickets.at(slot).sequence);
        recent
    }

    /// These leave their class's lines while those change, and join them again.
    fn step_over(&mut self, mut slots: Vec<u32>, change: impl FnOnce(&mut Self)) {
        slots.retain(|&slot| matches!(self.tickets.at(slot).place, Place::Waiting(Line::Short | Line::Long)));
        for &slot in &slots {
            self.leave(slot);
        }
        change(self);
        for slot in slots {
            self.enter(slot, self.line_of(slot));
        }
    }

    /// The first late one of a class that could start if it fits.
    pub(super) fn late_head(&self, class: u8) -> Option<u32> {
        let late = &self.classes.at(class).late;
        if late.len() == 0 {
            return None;
        }
        let short = late.short.first(self.connections.open_to_shorts());
        let long = || late.long.first(self.connections.open_to_longs()).filter(|_| self.lanes.has_room());
        let head = match (short, self.policy.order.is_fifo()) {
            (Some(short), true) => {
                Some(long().filter(|&long| self.arrived_first(long, short)).unwrap_or(short))
            }
            (Some(short), false) => Some(short),
            (None, _) => long(),
        };
        let is_idle = || self.ledger.busy_count() < self.places();
        head.filter(|&slot| self.tickets.at(slot).stepped_back || is_idle())
    }

    /// Of those of its class that wait the one that came first, if it is late: it goes when there is no
    /// place for a newcomer.
    pub(super) fn first_late(&self, newcomer: u32) -> Option<u32> {
        let class = self.classes.at(self.tickets.at(newcomer).class);
        class
            .waiting
            .first()
            .filter(|&slot| self.is_late(slot) && self.tickets.at(slot).request.entry == Entry::Queued)
    }

    /// When the next may be sent to a service that stands still, if anybody waits for that.
    pub(super) fn next_probe(&self) -> Option<Instant> {
        self.stalls.next_probe(self.now).filter(|_| self.classes.waiting() > 0)
    }

    /// Whether it is time for that. If nobody can go then, it is again when the stall has doubled.
    pub(super) fn may_probe(&mut self, now: Instant) -> bool {
        self.next_probe().is_some_and(|probe| probe <= now)
    }
}
