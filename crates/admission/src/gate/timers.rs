//! What happens by the clock alone, and the clocks of one request.
//!
//! Two kinds of instants. Some need the shell to call at them, because something may start or must be
//! refused then: queue timeouts, deadlines, suspension, probes of a service that stands still, the end of
//! making way, and the age at which the one request of an unknown type is called long (those behind it then
//! move on). The others only ever make the gate stricter (a request becomes overdue, and is charged by the
//! clock; a request in flight outlives the long cutoff, and takes a seat in the lane; one that is present
//! is late, `lateness.rs`), so nothing can start at them, and it is exact to apply them at the beginning of
//! the next call, whatever that is. A request of 0.4 ms costs no timer.
//!
//! Every alarm either goes off for good or is set again for a later instant, so that a shell that calls at
//! `next_timeout` makes progress each time.

use super::Gate;
use crate::action::Reason;
use crate::event::{Event, Lane};
use crate::tickets::{Alarm, Client, Place};
use crate::time::Instant;
use crate::without::Mechanism;
use crate::work::Work;

impl Gate {
    /// Brings the gate to this instant (or the latest it knows, if the shell's clock went back), which it
    /// returns. Nothing that could start waits afterwards.
    pub(super) fn advance(&mut self, now: Instant) -> Instant {
        self.now = self.now.max(now);
        let now = self.now;
        self.pace.advance(now);
        self.refusal.pass(now, self.present());
        self.adapt_weights(now);
        self.charge_overdue();
        self.look_who_is_late(now);
        let changed = [
            self.expire(now),
            self.suspend_idle(now),
            self.look_at_ages(),
            self.may_probe(now),
            self.release(now),
        ];
        if changed.contains(&true) {
            self.dispatch(now);
        }
        if self.may_probe(now) {
            self.stalls.put_off_probe(now);
        }
        now
    }

    /// The next instant at which something may start or must be refused.
    pub(super) fn next_alarm(&self) -> Option<Instant> {
        let timeout = self.first_waiting().map(|slot| self.times_out(slot));
        let deadline = self.deadlines.next().map(|(deadline, _)| deadline);
        let suspension = self.idle.first().map(|&(since, _)| since.after(self.policy.suspend_after));
        let scout = self.scouts.first().map(|&(alarm, _)| self.pace.when(alarm));
        let probe = self.next_probe();
        let release = self.next_release();
        [timeout, deadline, suspension, scout, probe, release].into_iter().flatten().min()
    }

    fn times_out(&self, slot: u32) -> Instant {
        self.tickets.at(slot).arrived.after(self.policy.queue_timeout)
    }

    fn charge_overdue(&mut self) {
        if self.policy.without.has(Mechanism::Overruns) {
            return;
        }
        let reading = self.pace.reading();
        while let Some(&(due, slot)) = self.overdue.first()
            && due <= reading
        {
            self.overdue.pop_first();
            let record = self.tickets.at_mut(slot);
            self.ledger.overdue(&mut record.meter);
            let (kind, meter) = (record.kind, record.meter);
            self.types.at_mut(kind).overdue.add(&meter);
        }
    }

    fn expire(&mut self, now: Instant) -> bool {
        let mut any = false;
        while let Some(slot) = self.first_waiting().filter(|&slot| self.times_out(slot) <= now) {
            self.reject(now, slot, Reason::QueueTimeout);
            any = true;
        }
        while let Some((_, slot)) = self.deadlines.next().filter(|&(deadline, _)| deadline <= now) {
            self.reject(now, slot, Reason::Deadline);
            any = true;
        }
        any
    }

    fn suspend_idle(&mut self, now: Instant) -> bool {
        let mut any = false;
        while let Some(&(since, slot)) = self.idle.first()
            && since.after(self.policy.suspend_after) <= now
        {
            self.give_work_back(slot);
            any = true;
        }
        any
    }

    /// Suspends a request in flight.
    pub(super) fn give_work_back(&mut self, slot: u32) {
        let since = match self.tickets.at(slot).client {
            Client::Waits => self.now,
            Client::Thinks(since) => since,
            Client::Suspended(_) => return,
        };
        self.stop_clocks(slot);
        self.watch_age_no_more(slot);
        self.leave_group(slot);
        let record = self.tickets.at_mut(slot);
        self.ledger.off(self.pace.reading(), &mut record.meter);
        let kind = record.kind;
        self.set_client(slot, Client::Suspended(since));
        self.reseat(slot);
        let ticket = self.tickets.ticket(slot);
        self.report(Event::Suspended { ticket });
        self.send_scout(kind);
    }

    /// Notes what the client does. A request of an unknown type whose client thinks shows nothing of its
    /// cost, so that it neither holds its type back nor counts among those that could fill the connections.
    pub(super) fn set_client(&mut self, slot: u32, client: Client) {
        let record = self.tickets.at_mut(slot);
        let before = core::mem::replace(&mut record.client, client);
        let kind = self.types.at_mut(record.kind);
        let was_thinking = match before {
            Client::Waits => false,
            Client::Thinks(since) => self.idle.remove(&(since, slot)),
            Client::Suspended(since) => self.suspended.remove(&(since, slot)),
        };
        let is_thinking = match client {
            Client::Waits => false,
            Client::Thinks(since) => self.idle.insert((since, slot)),
            Client::Suspended(since) => self.suspended.insert((since, slot)),
        };
        match (was_thinking, is_thinking) {
            (false, true) => kind.thinking += 1,
            (true, false) => kind.thinking -= 1,
            _ => return,
        }
        if kind.is_guessed() {
            self.reseat(slot);
        }
    }

    fn look_at_ages(&mut self) -> bool {
        let reading = self.pace.reading();
        let mut any = false;
        loop {
            let alarm = [self.ages.first(), self.scouts.first()].into_iter().flatten().min().copied();
            let Some((_, slot)) = alarm.filter(|&(due, _)| due <= reading) else {
                return any;
            };
            any |= self.look_at_age(slot);
        }
    }

    /// A busy request may have outlived the long cutoff. Whether its type is known by that.
    fn look_at_age(&mut self, slot: u32) -> bool {
        self.clear_age_alarm(slot);
        let record = self.tickets.at_mut(slot);
        let used = record.meter.used(self.pace.reading());
        if used < self.lanes.age_cutoff() {
            self.set_age_alarm(slot);
            return false;
        }
        record.age_alarm = Alarm::OVER;
        let kind = record.kind;
        let unknown = self.types.at(kind).lane == Lane::Unknown;
        if unknown {
            self.types.at_mut(kind).estimate.call(used);
            self.relane(kind);
        }
        self.reseat(slot);
        unknown
    }

    /// The service is busy with this request from now on.
    pub(super) fn run(&mut self, slot: u32) {
        let record = self.tickets.at_mut(slot);
        match record.lap {
            Some(lap) => self.pace.go_on(lap),
            None => record.lap = Some(self.pace.start()),
        }
        match record.flight {
            Some(flight) => self.lanes.width.resume(self.now, flight),
            None if self.lanes.is_on() && record.meter.used(self.pace.reading()) == Work::ZERO => {
                record.flight = Some(self.lanes.width.begin(self.now));
            }
            None => {}
        }
        self.ledger.busy(self.pace.reading(), &mut record.meter);
        self.refusal.enter(self.now, record.request.request_type);
        self.classes.at_mut(record.class).busy += 1;
        let meter = record.meter;
        if meter.is_overdue() {
            let kind = record.kind;
            self.types.at_mut(kind).overdue.add(&meter);
        } else {
            self.overdue.insert((meter.reaches(meter.work), slot));
        }
        self.set_age_alarm(slot);
    }

    /// The service is no longer busy with it; the client thinks.
    pub(super) fn pause(&mut self, slot: u32) {
        self.stop_clocks(slot);
        self.watch_age_no_more(slot);
        self.ledger.idle(self.pace.reading(), &mut self.tickets.at_mut(slot).meter);
    }

    /// A busy request stops being one: its alarms go, and its type no longer learns from its age.
    pub(super) fn stop_clocks(&mut self, slot: u32) {
        let record = self.tickets.at(slot);
        let (kind, meter) = (record.kind, record.meter);
        if meter.is_busy() {
            self.refusal.leave(self.now, record.request.request_type);
            self.classes.at_mut(record.class).busy -= 1;
        }
        if let Some(lap) = record.lap.filter(|_| meter.is_busy()) {
            self.pace.stop(lap);
        }
        if let Some(flight) = record.flight.filter(|_| meter.is_busy()) {
            self.lanes.width.pause(self.now, flight);
        }
        if meter.is_overdue() {
            self.types.at_mut(kind).overdue.remove(&meter);
        } else if meter.is_busy() {
            self.overdue.remove(&(meter.reaches(meter.work), slot));
        }
        self.clear_age_alarm(slot);
    }

    /// Looks at the age of a busy request again when it reaches the cutoff that holds now.
    pub(super) fn set_age_alarm(&mut self, slot: u32) {
        let cutoff: Work = self.lanes.age_cutoff();
        let record = self.tickets.at_mut(slot);
        if record.age_alarm == Alarm::OVER || record.place != Place::InFlight || !record.meter.is_busy() {
            return;
        }
        record.age_alarm = Alarm::at(record.meter.reaches(cutoff));
        let unknown = self.types.at(record.kind).lane == Lane::Unknown;
        let alarms = if unknown { &mut self.scouts } else { &mut self.ages };
        alarms.extend(record.age_alarm.get().map(|at| (at, slot)));
    }

    /// Doesn't look at it any more.
    pub(super) fn clear_age_alarm(&mut self, slot: u32) {
        if let Some(alarm) = self.tickets.at_mut(slot).age_alarm.take()
            && !self.ages.remove(&(alarm, slot))
        {
            self.scouts.remove(&(alarm, slot));
        }
    }
}
