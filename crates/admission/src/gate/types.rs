//! What happens when a type becomes known or changes its lane, and how its requests in flight count
//! meanwhile.
//!
//! A type not yet known sends one request at a time, its scout, among the shorts and past the lane's limit;
//! the others wait behind it. It becomes known when the scout has succeeded, when several have failed, or
//! when one has been busy for so long that it is called long. Those that waited then join the line of their
//! type's lane in order of arrival, and only then is their work fixed. Later changes of the lane don't move
//! those that wait; those in flight count anew.

use alloc::vec::Vec;

use super::Gate;
use crate::event::{Event, Lane};
use crate::goals::Adapter;
use crate::lanes::Readings;
use crate::learned::Learned;
use crate::pace::Done;
use crate::policy::Cost;
use crate::request::{Completion, Outcome, Ticket};
use crate::tickets::{Alarm, Client, Evidence, Hold, Line, Place, Seat};
use crate::time::Instant;
use crate::without::Mechanism;
use crate::work::Work;

/// A type has changed when its requests in flight raise its expected work by this factor.
const OUTLIVED: u64 = 2;

/// The most waiting requests of a type that are searched for one of a class without a scout. A request of
/// such a class becomes a scout when it arrives. So only requests that a failed scout leaves behind are
/// searched for.
const LOOKED_AT: usize = 64;

impl Gate {
    /// The expected work of a request of this type, if it arrived now.
    pub(super) fn expected(&self, kind: u32) -> Work {
        let known = self.types.at(kind);
        known.estimate.expected(self.pace.reading(), &known.overdue, self.lanes.mean())
    }

    /// What is to be kept across restarts.
    pub fn learned(&self) -> Learned {
        Learned {
            mean: self.lanes.mean(),
            requests: self.lanes.requests(),
            types: self.types.learned(),
            speeds: self.pace.learned(),
            capacity: self.room.found_requests(),
            width: self.lanes.width.found(),
            shares: self.adapter.as_ref().map(Adapter::learned).unwrap_or_default(),
        }
    }

    /// Knows from now on what another gate had learned, as far as it doesn't know it itself. Of more types
    /// than there may be, the most recently used are taken; what can't have been learned is left out.
    pub fn recall(&mut self, now: Instant, learned: &Learned) {
        let now = self.advance(now);
        self.lanes.recall(learned.mean, learned.requests);
        self.pace.recall(&learned.speeds);
        if let (Some(found), Some(capacity)) = (self.room.found(), learned.capacity) {
            found.begin_with(capacity);
        }
        if let Some(width) = learned.width {
            self.lanes.recall_width(width);
        }
        if let Some(adapter) = &mut self.adapter {
            adapter.recall(&learned.shares);
            self.classes.adapt(|place| adapter.share(place));
        }
        let room = self.policy.types_max.min(learned.types.len());
        for known in &learned.types[learned.types.len() - room..] {
            if let Some(kind) = self.types.recall(known, now) {
                self.relane(kind);
            }
        }
        self.dispatch(now);
    }

    /// A request in flight will end for the gate before its end: how long that takes nobody will see, and
    /// it teaches nothing. Of a type of which nothing is known it has to, or others would wait for what
    /// never comes.
    pub fn cut_short(&mut self, ticket: Ticket) {
        let is_known = |&slot: &u32| self.types.at(self.tickets.at(slot).kind).estimate.is_known();
        if let Some(slot) = self.in_flight(ticket).filter(is_known) {
            self.tickets.at_mut(slot).evidence = Evidence::Void;
        }
    }

    /// A request has ended: its type learns from it, and the pace from what its type is known for. What it
    /// counts for.
    pub(super) fn teach(&mut self, slot: u32, completion: &Completion) -> Work {
        let record = self.tickets.at_mut(slot);
        let (kind, teaches) = (record.kind, !record.canceled && record.evidence != Evidence::Void);
        let expected = (record.evidence == Evidence::Bounded).then_some(record.meter.work);
        let readings = record.flight.take().map(|flight| self.lanes.width.end(flight));
        let Some(lap) = record.lap.take() else { return completion.upstream_time.into() };
        let known = self.types.at_mut(kind);
        let is_steady = self.policy.cost == Cost::Steady;
        let counts = match completion.outcome {
            Outcome::Success if teaches => {
                // What shares a record with others isn't alike, and teaches nothing of the service.
                let Done { amount, trust } = match known.key {
                    Some(_) => self.pace.learn(lap, &mut known.center),
                    None => self.pace.done(lap),
                };
                known.modes.learn(amount);
                known.has_done(amount);
                let took = if is_steady {
                    known.estimate.believed((amount * self.pace.unit()) as u64, trust)
                } else {
                    completion.upstream_time.into()
                };
                let sample = known.estimate.learn(took, expected);
                // An outlier counts for as much less in what was busy as in what is learned.
                let share = (sample.as_nanos() as f64 / took.as_nanos().max(1) as f64).min(1.0);
                let busy = completion.upstream_time.as_nanos() as f64 * share;
                self.learn(slot, sample, busy, readings);
                if let Some(change) = self.pace.take_change().filter(|_| is_steady) {
                    self.types.rescale(change);
                    self.lanes.rescale(change);
                }
                sample
            }
            Outcome::Failure | Outcome::Conflict if teaches => {
                let took = if is_steady {
                    Work::from_nanos(self.pace.progress(lap) as u64)
                } else {
                    completion.upstream_time.into()
                };
                known.estimate.fail(took);
                took
            }
            _ if is_steady => Work::from_nanos(self.pace.progress(lap) as u64),
            _ => completion.upstream_time.into(),
        };
        self.pace.let_go(lap);
        counts
    }

    /// Puts a type in the lane where it belongs now. Whether that is another.
    pub(super) fn relane(&mut self, kind: u32) -> bool {
        let work = self.expected(kind);
        let known = self.types.at(kind);
        let already = matches!(known.lane, Lane::Long | Lane::Variable);
        let long = known.estimate.is_called() || self.is_long(kind, work, already);
        let known = self.types.at_mut(kind);
        let lane = match long {
            _ if !known.estimate.is_known() => Lane::Unknown,
            false => Lane::Short,
            true if known.goes_unlimited() => Lane::Variable,
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

    /// Whether the work of its requests makes a type long. Their time in service rises with the load, for
    /// some types sooner than for others. It counts only while nothing better is known, or while requests in
    /// flight have outlived their expected work so far that the type must have become another.
    fn is_long(&self, kind: u32, work: Work, already: bool) -> bool {
        let known = self.types.at(kind);
        let usual = known.estimate.mean().map_or(work, |mean| mean.max(Work::from_nanos(1)));
        let outlived = work.as_nanos() >= usual.as_nanos().saturating_mul(OUTLIVED);
        match known.estimate.demand() {
            Some(demand) if !outlived => self.lanes.is_long_by_demand(demand, already),
            _ => self.lanes.is_long(work, already),
        }
    }

    /// A request has succeeded: the lanes learn what it counts for, and what it took of the service of the
    /// nanoseconds that this was busy with it.
    fn learn(&mut self, slot: u32, sample: Work, busy: f64, readings: Option<Readings>) {
        let kind = self.tickets.at(slot).kind;
        // The shortest of those who waited through a stall go first: they would make the mean fall.
        let is_late = self.is_late(slot);
        let known = self.types.at_mut(kind);
        let settled = known.estimate.is_settled();
        if settled && !is_late {
            self.lanes.learn(sample);
        } else if !settled {
            self.lanes.learn_first(sample);
        }
        let Some(readings) = readings else {
            return known.estimate.vary(busy, busy);
        };
        self.lanes.width.learn(&mut known.usual, &readings);
        let demand = busy * self.lanes.width.share(&readings);
        known.estimate.vary(demand, busy);
        if settled && !is_late {
            self.lanes.learn_demand(demand);
        }
        if let Some((from, to)) = self.lanes.follow() {
            let parallelism = self.pace.parallelism().map(|learned| learned.requests);
            self.report(Event::LongLimitMoved { from, to, parallelism });
        }
    }

    /// The type is known: those that waited for that join the line of its lane.
    fn let_go(&mut self, work: Work, kind: u32) {
        let known = self.types.at(kind);
        let is_parked = |slot: u32| self.tickets.at(slot).place == Place::Waiting(Line::Shard);
        let waits_for_it =
            |slot: &u32| known.scouts.contains(slot) || self.is_held_back(*slot) || is_parked(*slot);
        let slots: Vec<u32> = self.tickets.walk(&known.waiting).filter(waits_for_it).collect();
        for slot in slots {
            self.leave(slot);
            self.tickets.at_mut(slot).meter.work = work;
            let line = self.line_of(slot);
            self.join(slot, line);
        }
    }

    /// If a type is still unknown and its scout is gone, the next one goes.
    pub(super) fn send_scout(&mut self, kind: u32) {
        let known = self.types.at(kind);
        if known.lane != Lane::Unknown {
            return;
        }
        while let Some(slot) = self.next_scout(kind) {
            let work = self.expected(kind);
            self.leave(slot);
            self.tickets.at_mut(slot).meter.work = work;
            self.enter(slot, Line::Short);
        }
    }

    /// The next request that is to measure the cost of its type. Each class has a scout of its own, so that
    /// no class waits for another's turn.
    fn next_scout(&self, kind: u32) -> Option<u32> {
        let known = self.types.at(kind);
        if known.is_out() {
            return None;
        }
        let mut firsts = self.tickets.walk(&known.waiting).take(LOOKED_AT);
        firsts.find(|&slot| self.is_held_back(slot) && !self.has_scout(slot))
    }

    fn is_held_back(&self, slot: u32) -> bool {
        self.tickets.at(slot).place == Place::Waiting(Line::Type)
    }

    /// All that wait join their lines anew, in order of arrival.
    pub(super) fn line_up_anew(&mut self) {
        let slots = self.all_waiting();
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
            // Without a limit of their own, but they leave the last connections to others.
            Lane::Unknown if self.policy.without.has(Mechanism::Scouts) => Seat::Free,
            Lane::Short if record.age_alarm != Alarm::OVER => Seat::Free,
            // A seat in the lane is for the time that a request does work.
            Lane::Long | Lane::Short if !record.is_suspended() => Seat::Long,
            _ => Seat::Sparing,
        };
        self.take_seat(slot, seat);
    }

    /// A connection is held until the request ends, and a pinned one isn't for others anyway.
    pub(super) fn take_seat(&mut self, slot: u32, seat: Seat) {
        let record = self.tickets.at_mut(slot);
        match (core::mem::replace(&mut record.seat, seat), seat) {
            (Seat::Long, Seat::Long) => {}
            (Seat::Long, _) => self.lanes.leave(),
            (_, Seat::Long) => self.lanes.enter(),
            _ => {}
        }
        if record.owns_connection() {
            // A client that thinks is no evidence: only types that were seen to complete, and to be long,
            // hold for long then.
            let proven = record.client == Client::Waits || !self.types.at(record.kind).is_guessed();
            self.hold(slot, if proven && seat != Seat::Free { Hold::Heavy } else { Hold::Light });
        }
    }

    /// A request in flight holds its connection so from now on.
    pub(super) fn hold(&mut self, slot: u32, hold: Hold) {
        let record = self.tickets.at_mut(slot);
        let pool = record.request.pool;
        match (core::mem::replace(&mut record.hold, hold), hold) {
            (Hold::Heavy, Hold::Heavy) => {}
            (Hold::Heavy, _) => self.connections.remove_heavy(pool),
            (_, Hold::Heavy) => self.connections.add_heavy(pool),
            _ => {}
        }
    }
}
