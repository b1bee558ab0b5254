//! Requests that have waited for so long that their clients would leave in service: the gate's part.
//!
//! A request's wait is checked when its turn has come. If it is too long, the request goes to the late
//! lines of its class (`gate/stalls.rs`), once, and the next request is checked. A late request goes when
//! no newcomer could; unlike after a stall nothing else holds it back, since the service is as it was. Scouts
//! of unknown types go in any case, since others stand behind them. What is known of leavers is kept for each
//! line, because short and long requests wait apart and are in service for different times. It counts for the
//! line in which a request waited, whatever the lane of its type is by now. Under FIFO nobody overtakes.

use super::Gate;
use crate::leavers::Leavers;
use crate::tickets::{Line, Place};
use crate::time::Instant;
use crate::without::Mechanism;

/// The most late requests of a class that are checked, those that have waited for longest first. The first of
/// them may wait for something else.
const LOOK: usize = 8;

impl Gate {
    /// What is known of the leavers of a line.
    pub(super) fn leavers(&self, line: Line) -> &Leavers {
        if is_long(line) { &self.long_leavers } else { &self.leavers }
    }

    pub(super) fn leavers_mut(&mut self, line: Line) -> &mut Leavers {
        if is_long(line) { &mut self.long_leavers } else { &mut self.leavers }
    }

    /// A client has left while its request was in flight.
    pub(super) fn has_left_in_service(&mut self, now: Instant, slot: u32) {
        self.left += 1;
        let record = self.tickets.at(slot);
        let (arrived, started, kind) = (record.arrived, record.dispatched, record.kind);
        let leavers = self.leavers_mut(record.line);
        leavers.left(now.since(arrived));
        leavers.left_in_service(now, started.since(arrived), started);
        if !self.policy.without.has(Mechanism::Leavers) {
            self.types.at_mut(kind).lost.left(now);
            self.relane(kind);
        }
    }

    /// A request was answered to a client that is still there.
    pub(super) fn has_been_answered(&mut self, now: Instant, slot: u32, in_flight: u32) {
        let record = self.tickets.at(slot);
        let (waited, started) = (record.dispatched.since(record.arrived), record.dispatched);
        let (kind, line) = (record.kind, record.line);
        let beside = if is_long(line) { self.lanes.in_flight() } else { in_flight };
        self.leavers_mut(line).answered(now, waited, started, beside);
        self.types.at_mut(kind).lost.answered(now, waited > now.since(started));
    }

    /// Whether a request whose turn has come has waited for too long. It joins the late requests instead.
    pub(super) fn has_stepped_back(&mut self, slot: u32) -> bool {
        let record = self.tickets.at(slot);
        let Place::Waiting(line @ (Line::Short | Line::Long)) = record.place else { return false };
        let may = self.leavers(line).is_known()
            && !self.policy.without.has(Mechanism::Leavers)
            && !self.is_late(slot)
            && !self.is_unknown(record.kind)
            && !self.policy.order.is_fifo();
        let (now, waited) = (self.now, self.now.since(record.arrived));
        if !may || !self.leavers_mut(line).is_too_long(now, waited) {
            return false;
        }
        self.leave(slot);
        self.tickets.at_mut(slot).stepped_back = true;
        self.enter(slot, line);
        true
    }

    /// Of the late requests of a class, one that has more patience than others and goes before them now.
    pub(super) fn patient(&self, class: u8) -> Option<u32> {
        let aging = self.policy.order.aging();
        if aging <= 0.0 || !(self.leavers.is_known() || self.long_leavers.is_known()) {
            return None;
        }
        let waiting = &self.classes.at(class).waiting;
        self.tickets.walk(waiting).take(LOOK).find(|&slot| {
            let record = self.tickets.at(slot);
            let Place::Waiting(line @ (Line::Short | Line::Long)) = record.place else { return false };
            let open = if is_long(line) {
                self.connections.open_to_longs()
            } else {
                self.connections.open_to_shorts()
            };
            record.stepped_back
                && self.leavers(line).is_patient(self.now, self.now.since(record.arrived))
                && (!is_long(line) || self.lanes.has_room())
                && open.contains(self.class_of(slot, line))
                && self.full_group_of(slot).is_none()
                && self.fits(slot)
        })
    }

    /// Starts a request whose client is patient; others have their turns for a while.
    pub(super) fn let_patient_go(&mut self, slot: u32) {
        let record = self.tickets.at(slot);
        let (line, work) = (record.line, record.meter.work);
        let (now, aging) = (self.now, self.policy.order.aging());
        self.leavers_mut(line).rest(now, work, aging);
    }
}

const fn is_long(line: Line) -> bool {
    matches!(line, Line::Long | Line::AsideLong(_))
}
