//! Who has waited for so long that its client would leave in service, in the gate.
//!
//! It is looked at when its turn has come: then it goes to the late ones of its class (`gate/stalls.rs` has their lines), once,
//! and the next is looked at. There it goes when no newcomer could; it isn't held back as after a stall, since the
//! service is as it was. Those who find out what a type costs go in any case, since others stand behind them, and longs have
//! a rule of their own (`lanes.rs`). Under FIFO nobody overtakes.

use super::Gate;
use crate::tickets::{Line, Place};
use crate::time::Instant;

/// So many of those of a class that have waited for longest are looked at: the first may wait for something else.
const LOOK: usize = 8;

impl Gate {
    /// A client has left while its request was in flight.
    pub(super) fn has_left_in_service(&mut self, now: Instant, slot: u32) {
        let record = self.tickets.at(slot);
        let (arrived, started) = (record.arrived, record.dispatched);
        self.leavers.left(now.since(arrived));
        self.leavers.left_in_service(now, started.since(arrived), started);
    }

    /// A request was answered to a client that is still there.
    pub(super) fn has_been_answered(&mut self, now: Instant, slot: u32, in_flight: u32) {
        let record = self.tickets.at(slot);
        let waited = record.dispatched.since(record.arrived);
        self.leavers.answered(now, waited, record.dispatched, in_flight);
    }

    /// Whether one whose turn it is has waited for too long, and goes to the late ones instead.
    pub(super) fn has_stepped_back(&mut self, slot: u32) -> bool {
        let record = self.tickets.at(slot);
        let may = self.leavers.is_known()
            && record.place == Place::Waiting(Line::Short)
            && !self.is_late(slot)
            && !self.is_unknown(record.kind)
            && !self.policy.order.is_fifo();
        if !may || !self.leavers.is_too_long(self.now, self.now.since(record.arrived)) {
            return false;
        }
        self.leave(slot);
        self.tickets.at_mut(slot).stepped_back = true;
        self.join(slot, Line::Short);
        true
    }

    /// Of the late ones of a class, one that has more patience than others and goes before them now.
    pub(super) fn patient(&self, class: u8) -> Option<u32> {
        let aging = self.policy.order.aging();
        if !self.leavers.is_known() || aging <= 0.0 {
            return None;
        }
        let waiting = &self.classes.at(class).waiting;
        let open = self.connections.open_to_shorts();
        let firsts = core::iter::successors(waiting.first(), |&slot| self.tickets.after(waiting, slot));
        firsts.take(LOOK).find(|&slot| {
            let record = self.tickets.at(slot);
            record.stepped_back
                && record.place == Place::Waiting(Line::Short)
                && self.leavers.is_patient(self.now, self.now.since(record.arrived))
                && open.contains(self.class_of(slot, Line::Short))
                && self.full_group_of(slot).is_none()
                && self.fits(slot)
        })
    }

    /// It goes now; others have their turns for a while.
    pub(super) fn let_patient_go(&mut self, slot: u32) {
        let work = self.tickets.at(slot).meter.work;
        self.leavers.rest(self.now, work, self.policy.order.aging());
    }
}
