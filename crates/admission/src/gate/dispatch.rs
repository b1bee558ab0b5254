//! Dispatching: which request starts now.
//!
//! In this order: immediate requests, as soon as their connection is there; then, of the class whose turn
//! it is (`gate/classes.rs`), the head of the short line and the head of the long line, a head being the
//! first request whose class of connection is free (those skipped aren't overtaken: they wait for something
//! else). The short head goes first, except before one that has lost its patience (`lanes.rs`: a long, or
//! one that varies too much to be limited and waits among the shorts), or under FIFO before a long that
//! arrived earlier. Where longs hoard connections they go first (`gate/hoard.rs`). A head that doesn't fit
//! the capacity blocks all behind it in its line: no backfilling. A short head that doesn't fit also blocks
//! the longs, which would take its room. Where longs fill a number that was found, one short goes beyond it.
//! A head whose group is full steps aside; once its group has room it goes before what arrived later
//! (`gate/contention.rs`). A short head that has waited for too long steps back behind newcomers
//! (`gate/leavers.rs`).

use super::classes::Turn;
use super::{Gate, record_waits};
use crate::action::{Action, Reason};
use crate::capacity::Move;
use crate::event::{Event, Lane};
use crate::order::{Class, UNBOUNDED};
use crate::request::{Connection, Entry};
use crate::tickets::{Evidence, Line, Place, Record, Seat};
use crate::time::Instant;
use crate::without::Mechanism;

/// The most requests of a type, in order of arrival, among which the oldest that may take a place is looked
/// for. Those before it wait in another line, or for another pool.
const LOOKED_AT: usize = 64;

/// The request that is next in its line.
pub(super) struct Head {
    slot: u32,
    fits: bool,
    /// It goes before short requests that could start.
    hurries: bool,
}

impl Gate {
    /// Dispatches all that may start now.
    pub(super) fn dispatch(&mut self, now: Instant) {
        loop {
            while let Some(slot) = self.next() {
                if let Some(reason) = self.refuses_next(now, slot) {
                    self.reject(now, slot, reason);
                } else {
                    self.stop_waiting(slot);
                    self.start(now, slot);
                }
            }
            if !self.has_found_room(now) {
                return;
            }
        }
    }

    /// Why the one that would start now is refused instead, if it is.
    fn refuses_next(&mut self, now: Instant, slot: u32) -> Option<Reason> {
        let record = self.tickets.at(slot);
        if record.place == Place::Waiting(Line::Immediate) || self.is_background(slot) {
            return None;
        }
        self.refusal.dispatch(now, now.since(record.arrived), self.classes.waiting_by_right() > 1)
    }

    /// Shows the controllers what is in flight now. Whether one lets more in than before.
    fn has_found_room(&mut self, now: Instant) -> bool {
        let in_groups = self.contention.looks() && self.have_groups_found_room(now);
        let in_flight = self.ledger.count();
        // A background class waits whatever the bound is: it says nothing of the bound.
        let waits = self.classes.waiting_by_right() as usize > self.aside();
        let held = self.contention.looks() && self.contention.holds_capacity(now);
        let Some(found) = self.room.found() else {
            return in_groups;
        };
        let control = found.control();
        control.hold(held);
        let before = control.most();
        control.observe(now, in_flight, waits && in_flight >= before);
        let (after, moved) = (control.most(), found.take_move());
        if let Some(Move { from, to, gain }) = moved {
            self.report(Event::CapacityMoved { from, to, gain });
        }
        in_groups || after > before && waits
    }

    /// The next request of a class that may start now. A head whose group is full steps aside, and a head
    /// that has waited for too long steps back.
    pub(super) fn next_of(&mut self, class: u8) -> Turn {
        loop {
            self.put_oldest_first(class);
            if let Some(slot) = self.patient(class) {
                self.let_patient_go(slot);
                return Turn::Starts(slot);
            }
            let aside = self.aside_head(class);
            let head = self.head(class);
            if let Some((slot, is_due)) = self.next_tenant(class)
                && (is_due || aside.is_none() && head.is_none())
            {
                self.take_turn_of_tenant(slot);
                continue;
            }
            let earlier = |a: u32, b: u32| self.tickets.at(a).sequence < self.tickets.at(b).sequence;
            match (aside, head) {
                (None, None) => return Turn::Nobody,
                (Some(aside), None) => return Turn::of(aside, self.fits(aside)),
                (Some(aside), Some(head)) if earlier(aside, head.slot) => {
                    return Turn::of(aside, self.fits(aside));
                }
                (_, Some(Head { slot, .. })) if self.has_stepped_back(slot) => {}
                (_, Some(Head { slot, fits, hurries })) => match self.full_group_of(slot) {
                    Some(group) => self.step_aside(slot, group),
                    None => {
                        if fits && hurries {
                            let work = self.tickets.at(slot).meter.work;
                            self.lanes.hurry(self.now, work, self.policy.order.aging());
                        }
                        return Turn::of(slot, fits);
                    }
                },
            }
        }
    }

    /// Lets the oldest request of each head's type be the head: a place belongs to the type. A type that
    /// becomes faster gives newcomers places before older requests.
    fn put_oldest_first(&mut self, class: u8) {
        let (shorts, longs) = (self.connections.open_to_shorts(), self.connections.open_to_longs());
        let (tickets, types) = (&self.tickets, &self.types);
        let own = self.classes.at_mut(class);
        let aside = self.contention.groups.iter_mut().flatten().map(|group| group.aside_mut(class));
        for lines in [&mut own.lines, &mut own.late].into_iter().chain(aside) {
            for (line, open) in [(&mut lines.short, shorts), (&mut lines.long, longs)] {
                let Some(head) = line.first(open) else { continue };
                let of_type = &types.at(tickets.at(head).kind).waiting;
                let needs = |slot| (tickets.at(slot).request.pool, tickets.at(slot).request.connection);
                let is_alike = |&other: &u32| line.contains(other) && needs(other) == needs(head);
                if let Some(oldest) = tickets.walk(of_type).take(LOOKED_AT).find(is_alike) {
                    line.swap(head, oldest);
                }
            }
        }
    }

    /// The head of a class's lines: who goes next of all that didn't step aside.
    pub(super) fn head(&self, class: u8) -> Option<Head> {
        let if_it_fits = |slot| Head { slot, fits: self.fits(slot), hurries: false };
        let open = self.connections.open_to_shorts();
        let short = self.classes.at(class).lines.short.first(open);
        let long = self.long_head(class);
        let hurries = short.is_some();
        if self.is_hoarded(class) {
            if let Some(slot) = long {
                let fits = self.room.most_requests().is_none() || self.fits(slot);
                return Some(Head { slot, fits, hurries: false });
            }
            if self.makes_way() {
                return self.classes.at(class).lines.short.first(open.of_holders()).map(if_it_fits);
            }
        }
        if let Some(long) = long
            && self.has_lost_patience(long)
            && (!hurries || self.lanes.may_hurry(self.now))
        {
            // In work it may never fit beside the shorts, in requests it does when the next one ends.
            let fits = self.room.most_requests().is_none() || self.fits(long);
            return Some(Head { slot: long, fits, hurries });
        }
        if let Some(slot) = self.impatient_among_shorts(class) {
            return Some(Head { slot, fits: self.fits(slot), hurries });
        }
        let Some(long) = long else {
            return short.or_else(|| self.late_head(class)).map(if_it_fits);
        };
        let head = match short {
            Some(short) if self.arrived_first(long, short) => long,
            Some(short) => short,
            None => long,
        };
        Some(if_it_fits(head))
    }

    /// One of a class that varies too much to be limited, has lost its patience among the shorts and could
    /// start if it fits.
    fn impatient_among_shorts(&self, class: u8) -> Option<u32> {
        if self.policy.without.has(Mechanism::Bypass) {
            return None;
        }
        let slot = self.classes.at(class).patience.impatient_among_shorts()?;
        let could = self.connections.open_to_shorts().contains(self.class_of(slot, Line::Short));
        (could && self.lanes.may_hurry_among_shorts(self.now)).then_some(slot)
    }

    /// The first long of a class that could start if it fits.
    fn long_head(&self, class: u8) -> Option<u32> {
        let long = &self.classes.at(class).lines.long;
        if long.is_empty() || !self.lanes.has_room() || self.is_full_of_longs() {
            return None;
        }
        long.first(self.connections.open_to_longs())
    }

    /// Whether a mean target is missed where the gate chooses how much is in flight: the order of the queue
    /// is to help before anybody is refused.
    fn is_narrowed(&self) -> bool {
        self.room.most_requests().is_some() && self.refusal.is_missed()
    }

    pub(super) fn fits(&self, slot: u32) -> bool {
        let work = self.tickets.at(slot).meter.work;
        let in_flight = self.ledger.count();
        let has_room = self.room.admits(|| self.ledger.load(self.pace.reading()), in_flight, work);
        (has_room || self.goes_beside_longs(slot))
            && !self.stalls.holds(self.now, in_flight)
            && !(self.is_narrowed() && in_flight >= self.enough())
    }

    /// Whether longs fill a number that was found. Nothing ends under such a number, so it doesn't move.
    fn is_full_of_longs(&self) -> bool {
        let in_flight = self.ledger.count();
        self.lanes.in_flight() >= in_flight && self.room.most_requests().is_some_and(|most| in_flight >= most)
    }

    /// Whether a short goes beyond a number that longs fill. One at a time does: a short that becomes old
    /// counts as long, and would let another one in.
    fn goes_beside_longs(&self, slot: u32) -> bool {
        self.is_full_of_longs()
            && self.beside_longs.is_none_or(|ticket| self.in_flight(ticket).is_none())
            && matches!(self.types.at(self.tickets.at(slot).kind).lane, Lane::Short | Lane::Unknown)
    }

    /// Under FIFO the lanes' heads go by arrival.
    pub(super) fn arrived_first(&self, long: u32, short: u32) -> bool {
        self.policy.order.is_fifo() && self.tickets.at(long).sequence < self.tickets.at(short).sequence
    }

    /// Whether the longs' head goes first: it has lost its own patience, or one behind it has that could
    /// start as well.
    fn has_lost_patience(&self, head: u32) -> bool {
        if self.policy.order.is_fifo() || self.policy.without.has(Mechanism::Bypass) {
            return false;
        }
        let record = self.tickets.at(head);
        let waiting = &self.classes.at(record.class).patience;
        if waiting.is_out(record.patience) {
            return true;
        }
        waiting.least().is_some_and(|(patience, slot)| {
            waiting.is_out(patience)
                && self.connections.open_to_longs().contains(self.class_of(slot, Line::Long))
        })
    }

    /// Whether a newcomer to this line may start without joining it: nothing that could start is there
    /// before it.
    pub(super) fn is_free_for(&self, slot: u32, line: Line) -> bool {
        let open = self.connections.open_to_shorts();
        let class = self.class_of(slot, line);
        let own = self.tickets.at(slot).class;
        let lines = &self.classes.at(own).lines;
        let free = match line {
            Line::Short => {
                let behind_long = self.policy.order.is_fifo() && self.long_head(own).is_some();
                let makes_way = self.makes_way() && self.is_hoarded(own);
                open.contains(class) && lines.short.first(open).is_none() && !behind_long && !makes_way
            }
            Line::Long => {
                let open_to_longs = self.connections.open_to_longs();
                self.lanes.has_room()
                    && open_to_longs.contains(class)
                    && lines.long.first(open_to_longs).is_none()
                    && lines.short.first(open).is_none()
            }
            Line::Nowhere | Line::Immediate | Line::Shard | Line::Type => false,
            Line::Aside(_) | Line::AsideLong(_) => false,
        };
        free && self.full_group_of(slot).is_none()
            && self.aside_head(own).is_none()
            && self.next_tenant(own).is_none()
            && self.fits(slot)
            && !self.others_could_start(own)
            && !self.yields(own)
    }

    pub(super) fn class_of(&self, slot: u32, line: Line) -> Class {
        let record = self.tickets.at(slot);
        match record.request.connection {
            Connection::Held => Class::held(record.request.pool),
            Connection::Needed if may_scout(line) && self.spares_connections(record.kind) => {
                Class::fresh(record.request.pool)
            }
            Connection::Needed => Class::pooled(record.request.pool),
        }
    }

    pub(super) fn is_unknown(&self, kind: u32) -> bool {
        self.is_laned(kind, Lane::Unknown)
    }

    fn varies(&self, kind: u32) -> bool {
        self.is_laned(kind, Lane::Variable)
    }

    /// Whether a type is in this lane, and the lane matters.
    fn is_laned(&self, kind: u32, lane: Lane) -> bool {
        let matters = lane != Lane::Unknown || !self.policy.without.has(Mechanism::Scouts);
        self.lanes.is_on() && matters && self.types.at(kind).lane == lane
    }

    /// Whether its requests leave the last connections to others although they wait among the shorts.
    fn spares_connections(&self, kind: u32) -> bool {
        self.is_unknown(kind) || self.varies(kind)
    }

    /// Where a request of this type waits.
    pub(super) fn line_of(&self, slot: u32) -> Line {
        let known = self.types.at(self.tickets.at(slot).kind);
        match known.lane {
            _ if !self.lanes.is_on() => Line::Short,
            Lane::Long => Line::Long,
            Lane::Unknown if self.policy.without.has(Mechanism::Scouts) => Line::Short,
            Lane::Unknown if known.is_out() || self.has_scout(slot) => Line::Type,
            Lane::Unknown | Lane::Short | Lane::Variable => Line::Short,
        }
    }

    /// Whether one of its type and class waits among the shorts to find out what the type takes.
    pub(super) fn has_scout(&self, slot: u32) -> bool {
        let record = self.tickets.at(slot);
        self.types.at(record.kind).scouts.iter().any(|&scout| self.tickets.at(scout).class == record.class)
    }

    /// A newcomer waits.
    pub(super) fn wait(&mut self, slot: u32, line: Line) {
        self.enlist(slot);
        let record = self.tickets.at(slot);
        self.refusal.enter(self.now, record.request.request_type);
        let (kind, deadline) = (record.kind, record.request.deadline);
        if line != Line::Immediate {
            self.deadlines.wait(slot, deadline);
        }
        self.tickets.append(&mut self.types.at_mut(kind).waiting, slot);
        self.join(slot, line);
    }

    /// One that waits leaves the queue.
    pub(super) fn stop_waiting(&mut self, slot: u32) {
        self.leave(slot);
        let Record { class, kind, request, .. } = *self.tickets.at(slot);
        self.tickets.unlink(&mut self.classes.at_mut(class).waiting, slot);
        self.tickets.unlink(&mut self.types.at_mut(kind).waiting, slot);
        self.classes.stop_waiting(class);
        self.refusal.leave(self.now, request.request_type);
        self.deadlines.stop_waiting(slot, request.deadline);
    }

    /// Another rule for refusing knows of nobody yet.
    pub(super) fn tell_who_is_present(&mut self, now: Instant) {
        for slot in self.tickets.slots() {
            let record = self.tickets.at(slot);
            if record_waits(record.place) || record.meter.is_busy() {
                self.refusal.enter(now, record.request.request_type);
            }
        }
    }

    /// Joins a line, whose turn it may be among tenants.
    pub(super) fn enter(&mut self, slot: u32, line: Line) {
        let class = self.class_of(slot, line);
        let record = self.tickets.at_mut(slot);
        (record.place, record.line) = (Place::Waiting(line), line);
        let (kind, own, work) = (record.kind, record.class, record.meter.work);
        let work = if !matches!(line, Line::Nowhere | Line::Immediate | Line::Type) {
            self.types.at_mut(kind).rank(work)
        } else {
            work
        };
        let in_flight = self.room.most_requests().unwrap_or(u32::MAX).min(self.policy.connections);
        let [allowance, among_longs] = [in_flight, 0].map(|floors| self.policy.order.allowance(work, floors));
        match line {
            Line::Nowhere | Line::Type | Line::Shard => {}
            Line::Immediate => self.immediate.insert(slot, class, work.as_nanos(), 0),
            Line::Short => {
                if self.is_unknown(kind) {
                    self.types.at_mut(kind).scouts.push(slot);
                }
                let varies = self.varies(kind) && !self.policy.order.is_fifo();
                let is_late = self.is_late(slot);
                let its = self.classes.at_mut(own);
                if is_late {
                    return its.late.short.insert(slot, class, work.as_nanos(), allowance);
                }
                // Nobody stops behind one that varies: when it has been overtaken by that much it goes by
                // itself.
                let bound = if varies { UNBOUNDED } else { allowance };
                its.lines.short.insert(slot, class, work.as_nanos(), bound);
                if varies {
                    let patience = its.patience.wait_among_shorts(slot, allowance);
                    self.tickets.at_mut(slot).patience = patience;
                }
            }
            Line::Long => {
                if self.tickets.at(slot).mixes {
                    self.clients.wait();
                }
                let is_late = self.is_late(slot);
                let its = self.classes.at_mut(own);
                if is_late {
                    return its.late.long.insert(slot, class, work.as_nanos(), among_longs);
                }
                self.tickets.at_mut(slot).patience = its.patience.wait(slot, allowance);
                its.lines.long.insert(slot, class, work.as_nanos(), among_longs);
            }
            Line::Aside(place) => {
                if self.is_unknown(kind) {
                    self.types.at_mut(kind).scouts.push(slot);
                }
                if let Some(group) = self.contention.group_mut(place) {
                    group.aside_mut(own).short.insert(slot, class, work.as_nanos(), allowance);
                }
            }
            Line::AsideLong(place) => {
                if let Some(group) = self.contention.group_mut(place) {
                    group.aside_mut(own).long.insert(slot, class, work.as_nanos(), among_longs);
                }
            }
        }
    }

    /// Leaves its line, but not the queue.
    pub(super) fn leave(&mut self, slot: u32) {
        let record = self.tickets.at_mut(slot);
        let Place::Waiting(line) = record.place else {
            return;
        };
        record.place = Place::Waiting(Line::Nowhere);
        let (kind, own, patience) = (record.kind, record.class, record.patience);
        let is_late = self.is_late(slot);
        match line {
            Line::Nowhere | Line::Type => {}
            Line::Shard => {
                let Record { queue, sequence, .. } = *self.tickets.at(slot);
                self.classes.at_mut(own).tenants.unpark(queue, sequence, slot);
            }
            Line::Immediate => self.immediate.remove(slot),
            Line::Short => {
                let its = self.classes.at_mut(own);
                its.lines_of(is_late).short.remove(slot);
                its.patience.stop_waiting(slot, patience);
                self.types.at_mut(kind).scouts.retain(|&scout| scout != slot);
            }
            Line::Long => {
                if self.tickets.at(slot).mixes {
                    self.clients.stop_waiting();
                }
                let its = self.classes.at_mut(own);
                its.lines_of(is_late).long.remove(slot);
                its.patience.stop_waiting(slot, patience);
            }
            Line::Aside(place) | Line::AsideLong(place) => {
                self.leave_aside(slot, place);
                self.types.at_mut(kind).scouts.retain(|&scout| scout != slot);
            }
        }
    }

    /// Sends a request upstream that waits no longer (or never did).
    pub(super) fn start(&mut self, now: Instant, slot: u32) {
        if self.goes_beside_longs(slot) {
            self.beside_longs = Some(self.tickets.ticket(slot));
        }
        let record = self.tickets.at_mut(slot);
        record.place = Place::InFlight;
        record.dispatched = now;
        let (kind, class, request, work) = (record.kind, record.class, record.request, record.meter.work);
        let queue_wait = now.since(record.arrived);
        match request.entry {
            Entry::Queued => self.classes.take_turn(class, work),
            Entry::Immediate => self.classes.charge(class, work),
        }
        self.classes.start(class, queue_wait);
        if request.connection == Connection::Needed {
            self.connections.take(request.pool);
        }
        self.tickets.append(&mut self.types.at_mut(kind).in_flight, slot);
        self.run(slot);
        self.join_group(slot);
        self.reseat(slot);
        if self.tickets.at(slot).seat == Seat::Long {
            self.make_way(class, slot);
        } else {
            self.classes.at_mut(class).patience.pass(work);
        }
        let record = self.tickets.at(slot);
        self.stalls.sent(now, (record.evidence == Evidence::Bounded).then_some(record.meter.work));
        let ticket = self.tickets.ticket(slot);
        self.actions.push_back(Action::Dispatch(ticket));
        self.report(Event::Dispatched { ticket, request_type: request.request_type, work, queue_wait });
    }
}

/// Whether the one that is out to find what its type costs may stand in this line.
fn may_scout(line: Line) -> bool {
    matches!(line, Line::Short | Line::Aside(_))
}
