//! What happens when a type becomes known or changes its lane, and how its requests in flight count meanwhile.
//!
//! A type not yet known sends one request at a time, its scout, among the shorts and past the lane's limit; the others
//! wait behind it. It becomes known when the scout has succeeded, when several have failed, or when one has been busy for
//! so long that it is called long. Those that waited then join the line of their type's lane in order of arrival, and
//! only then is their work fixed. Later changes of the lane don't move those that wait; those in flight count anew.

use alloc::vec::Vec;

use super::Gate;
use crate::event::{Event, Lane};
use crate::learned::Learned;
use crate::request::Connection;
use crate::tickets::{Line, Place, Seat};
use crate::time::Instant;
use crate::work::Work;

impl Gate {
    /// The expected work of a request of this type, if it arrived now.
    pub(super) fn expected(&self, now: Instant, kind: u32) -> Work {
        let known = self.types.at(kind);
        known.estimate.expected(now, &known.overdue, self.lanes.mean())
    }

    /// What is to be kept across restarts.
    pub fn learned(&self) -> Learned {
        Learned { mean: self.lanes.mean(), requests: self.lanes.requests(), types: self.types.learned() }
    }

    /// Knows from now on what another gate had learned, as far as it doesn't know it itself. Of more types than there
    /// may be, the most recently used are taken; what can't have been learned is left out.
    pub fn recall(&mut self, now: Instant, learned: &Learned) {
        let now = self.advance(now);
        self.lanes.recall(learned.mean, learned.requests);
        let room = self.policy.types_max.min(learned.types.len());
        for known in &learned.types[learned.types.len() - room..] {
            if let Some(kind) = self.types.recall(known, now) {
                self.relane(now, kind);
            }
        }
        self.dispatch(now);
    }

    /// Puts a type in the lane where it belongs now. Whether that is another.
    pub(super) fn relane(&mut self, now: Instant, kind: u32) -> bool {
        let work = self.expected(now, kind);
        let known = self.types.at(kind);
        let already = matches!(known.lane, Lane::Long | Lane::Variable);
        let long = known.estimate.is_called() || self.lanes.is_long(work, already);
        let lane = match long {
            _ if !known.estimate.is_known() => Lane::Unknown,
            false => Lane::Short,
            true if known.estimate.is_variable() => Lane::Variable,
            true => Lane::Long,
        };
        let before = known.lane;
        if lane == before {
            return false;
        }
        let (key, in_flight) = (known.key, known.in_flight);
        self.types.at_mut(kind).lane = lane;
        if let Some(request_type) = key {
            self.report(Event::LaneChanged { request_type, lane, work });
        }
        for slot in self.tickets.all(&in_flight) {
            self.reseat(slot);
            if before == Lane::Unknown {
                self.clear_age_alarm(slot);
                self.set_age_alarm(slot);
            }
        }
        if before == Lane::Unknown {
            self.let_go(work, kind);
        }
        true
    }

    /// The type is known: those that waited for that join the line of its lane.
    fn let_go(&mut self, work: Work, kind: u32) {
        let known = self.types.at(kind);
        let mut slots: Vec<u32> = known.scout.into_iter().collect();
        slots.extend(self.tickets.all(&known.held_back));
        slots.sort_unstable_by_key(|&slot| self.tickets.at(slot).sequence);
        for slot in slots {
            self.leave(slot);
            self.tickets.at_mut(slot).meter.work = work;
            let line = self.line_of(slot);
            self.join(slot, line);
        }
    }

    /// If a type is still unknown and its scout is gone, the next one goes.
    pub(super) fn send_scout(&mut self, now: Instant, kind: u32) {
        let known = self.types.at(kind);
        if known.lane != Lane::Unknown || known.is_scouting() {
            return;
        }
        if let Some(slot) = known.held_back.first() {
            let work = self.expected(now, kind);
            self.leave(slot);
            self.tickets.at_mut(slot).meter.work = work;
            self.join(slot, Line::Short);
        }
    }

    /// All that wait join their lines anew, in order of arrival.
    pub(super) fn line_up_anew(&mut self) {
        let slots = self.tickets.all(&self.waiting);
        for &slot in &slots {
            if self.tickets.at(slot).place != Place::Waiting(Line::Immediate) {
                self.leave(slot);
            }
        }
        for &slot in &slots {
            if self.tickets.at(slot).place == Place::Waiting(Line::Nowhere) {
                self.join(slot, self.line_of(slot));
            }
        }
        for slot in self.tickets.slots() {
            if self.tickets.at(slot).place == Place::InFlight {
                self.reseat(slot);
            }
        }
    }

    /// Counts a request in flight as what it is now.
    pub(super) fn reseat(&mut self, slot: u32) {
        let record = self.tickets.at(slot);
        let seat = match self.types.at(record.kind).lane {
            _ if !self.lanes.is_on() => Seat::Free,
            Lane::Unknown => Seat::Fresh,
            Lane::Long => Seat::Long,
            Lane::Short if record.outlived => Seat::Long,
            Lane::Short | Lane::Variable => Seat::Free,
        };
        self.take_seat(slot, seat);
    }

    /// A seat in the lane is for the time that a request does work; a connection is held until it ends, and a pinned one
    /// isn't for others anyway.
    pub(super) fn take_seat(&mut self, slot: u32, seat: Seat) {
        let record = self.tickets.at(slot);
        let was_seated = record.seated;
        let seated = seat == Seat::Long && !record.suspended;
        let was_heavy = record.heavy;
        let owns = record.request.connection == Connection::Needed && !record.pinned;
        // A client that thinks is no evidence: only types that were seen to complete, and to be long, hold for long then.
        let proven = !record.thinking || !self.types.at(record.kind).is_guessed();
        let heavy = owns && seat != Seat::Free && proven;
        let pool = record.request.pool;
        let record = self.tickets.at_mut(slot);
        record.heavy = heavy;
        record.seated = seated;
        match (was_seated, seated) {
            (false, true) => self.lanes.enter(),
            (true, false) => self.lanes.leave(),
            _ => {}
        }
        match (was_heavy, heavy) {
            (false, true) => self.connections.add_heavy(pool),
            (true, false) => self.connections.remove_heavy(pool),
            _ => {}
        }
    }
}
