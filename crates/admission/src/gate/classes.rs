//! Service classes in the gate: whose lines are looked at, and which class bears a refusal.
//!
//! Within a class everything is as in a gate without classes: the lanes, aging, stepping aside. The limits
//! are the gate's: capacity, connections, seats in the long lane, groups. So are the rules for refusing.
//! Where a rule says that one request is too many, and a class has more than its share, a request of the
//! class furthest above its share is refused: the newcomer if it is of that class, else the newest that waits
//! there. For a type's own target the refused request must be of the type; the newcomer is refused if no such
//! request waits.
//!
//! Weights are adapted to goals (`goals.rs`) at the beginning of the first call after a tick. Nothing can
//! start by that alone, so no alarm is needed.

use alloc::vec::Vec;

use super::Gate;
use crate::action::Reason;
use crate::classes::{Set, Surplus};
use crate::event::Event;
use crate::goals::{Adaptation, Adapter, Served};
use crate::policy::ServiceClass;
use crate::rejection::TooMany;
use crate::request::Entry;
use crate::snapshot::ClassSnapshot;
use crate::tenants::Queue;
use crate::tickets::{Line, Place};
use crate::time::{Duration, Instant};
use crate::work::Work;

/// Among so many is looked for one that has more than its class's share of what a type's target allows:
/// about as many as are present where a target is held. A walk over all that wait would cost every arrival
/// of an overload.
const LOOKED_AT: usize = 64;

/// The next request of one class that may start.
pub(super) enum Turn {
    /// No waiting request could start now.
    Nobody,
    /// The next request has to wait for room, and all behind it wait with it.
    Blocked,
    /// The request in this slot starts.
    Starts(u32),
}

impl Turn {
    /// The turn of the request in this slot: it starts if it fits.
    pub(super) fn of(slot: u32, fits: bool) -> Self {
        if fits { Self::Starts(slot) } else { Self::Blocked }
    }
}

/// What becomes of who comes where one is too many.
pub(super) enum Settled {
    /// It is refused.
    Refused(Reason),
    /// It isn't, but this one, in its stead, once it has found its place.
    Replaces(u32),
    /// It isn't, and nobody waits who could be in its stead: what is over its share is in flight.
    Spared,
}

impl Gate {
    /// The next that may start now.
    pub(super) fn next(&mut self) -> Option<u32> {
        if self.classes.waiting() == 0 {
            return None;
        }
        if let Some(slot) = self.immediate.first(self.connections.open_to_immediate()) {
            return Some(slot);
        }
        let mut left = self.classes.waits();
        while let Some(class) = self.classes.next_of(&mut left) {
            // Behind a background class there are only others of its kind.
            if self.yields(class) {
                return None;
            }
            match self.next_of(class) {
                Turn::Nobody => {}
                Turn::Blocked => return None,
                Turn::Starts(slot) => return Some(slot),
            }
        }
        None
    }

    /// Whether a background class leaves the service to others. A request may start if the service is idle,
    /// or if a quarter of its places stay free: then the next request is served as fast as without it. It
    /// doesn't start beside as many long requests as there are cores: these keep all cores busy.
    pub(super) fn yields(&self, class: u8) -> bool {
        let busy = self.ledger.busy_count();
        let no_core_is_free = self.lanes.cores().is_some_and(|cores| self.lanes.in_flight() >= cores);
        let no_place_is_free = 4 * (busy + 1) > 3 * self.places();
        self.classes.at(class).is_background() && busy > 0 && (no_core_is_free || no_place_is_free)
    }

    /// Whether in another class somebody waits who could start if it fits: whose turn it is, then, the tags
    /// say. A background class has no turn before others.
    pub(super) fn others_could_start(&self, class: u8) -> bool {
        let is_background = |class: u8| self.classes.at(class).is_background();
        let before = |&other: &u8| other != class && (is_background(class) || !is_background(other));
        let mut others = self.classes.waits().filter(before);
        others.any(|other| {
            self.aside_head(other).is_some()
                || self.head(other).is_some()
                || self.next_tenant(other).is_some()
        })
    }

    /// Settles which request is refused where a newcomer makes one too many.
    pub(super) fn settle(&self, slot: u32, too_many: TooMany, reason: Reason) -> Settled {
        let record = self.tickets.at(slot);
        let surplus = self.classes.surplus(record.class, reason);
        let instead = match (surplus, too_many) {
            (Surplus::Other(class), TooMany::OfAll) => {
                return self.newest(class).map_or(Settled::Spared, Settled::Replaces);
            }
            (Surplus::Other(class), TooMany::OfItsOwn) => self.newest_held_with(slot, class),
            (_, TooMany::OfItsOwn) => None,
            // A tenant that has more bears it instead.
            (_, TooMany::OfAll) => record.request.tenant.and_then(|_| {
                let tenants = &self.classes.at(record.class).tenants;
                tenants.surplus(Some(record.queue.shard))
            }),
        };
        let reason = if surplus == Surplus::Own { Reason::OverShare } else { reason };
        instead.map_or(Settled::Refused(reason), Settled::Replaces)
    }

    /// The newest of those of a class that wait and may be made to.
    fn newest(&self, class: u8) -> Option<u32> {
        self.classes.at(class).tenants.surplus(None).or_else(|| self.newest_first(class).next())
    }

    /// The newest of those that are held to the same target as this one, among the last that came.
    fn newest_held_with(&self, slot: u32, class: u8) -> Option<u32> {
        let own = self.tickets.at(slot).request.request_type;
        let is_alike =
            |&other: &u32| self.refusal.are_held_together(own, self.tickets.at(other).request.request_type);
        self.newest_first(class).take(LOOKED_AT).find(is_alike)
    }

    /// Those of a class that wait and may be made to, the newest first.
    fn newest_first(&self, class: u8) -> impl Iterator<Item = u32> + '_ {
        let waiting = &self.classes.at(class).waiting;
        let all = core::iter::successors(waiting.last(), move |&slot| self.tickets.before(waiting, slot));
        all.filter(move |&slot| self.tickets.at(slot).request.entry != Entry::Immediate)
    }

    /// Of all that wait the first that arrived.
    pub(super) fn first_waiting(&self) -> Option<u32> {
        let firsts = self.classes.waits().filter_map(|class| self.classes.at(class).waiting.first());
        firsts.min_by_key(|&slot| self.tickets.at(slot).sequence)
    }

    /// All that wait, in order of arrival.
    pub(super) fn all_waiting(&self) -> Vec<u32> {
        let of = |class: u8| self.tickets.all(&self.classes.at(class).waiting);
        let mut classes: Set = self.classes.waits();
        let Some(first) = classes.next() else { return Vec::new() };
        let mut slots = of(first);
        let before = slots.len();
        slots.extend(classes.flat_map(of));
        if slots.len() > before {
            slots.sort_unstable_by_key(|&slot| self.tickets.at(slot).sequence);
        }
        slots
    }

    /// Other classes from now on. Those of a class that is gone belong to the default one.
    pub(super) fn change_classes(&mut self, chosen: &[ServiceClass]) {
        if self.classes.reweigh(chosen) {
            return;
        }
        let slots = self.all_waiting();
        for &slot in &slots {
            if self.tickets.at(slot).place != Place::Waiting(Line::Immediate) {
                self.leave(slot);
            }
            let class = self.tickets.at(slot).class;
            self.tickets.unlink(&mut self.classes.at_mut(class).waiting, slot);
            self.classes.stop_waiting(class);
        }
        let places = self.classes.change(chosen);
        for slot in self.tickets.slots() {
            let record = self.tickets.at_mut(slot);
            record.class = places[usize::from(record.class)];
        }
        for &slot in &slots {
            self.enlist(slot);
        }
        for &slot in &slots {
            if self.tickets.at(slot).place == Place::Waiting(Line::Nowhere) {
                self.join(slot, self.line_of(slot));
            }
        }
    }

    /// Adds a request to those of its class that wait.
    pub(super) fn enlist(&mut self, slot: u32) {
        let class = self.tickets.at(slot).class;
        self.classes.come(class);
        self.tickets.append(&mut self.classes.at_mut(class).waiting, slot);
        self.classes.wait(class);
    }

    /// A request has ended that took so much work, and so long upstream.
    pub(super) fn observe_class(&mut self, slot: u32, work: Work, service: Duration) {
        let Some(adapter) = &mut self.adapter else { return };
        let record = self.tickets.at(slot);
        // It has no share of the others' weights.
        if self.classes.at(record.class).is_background() {
            return;
        }
        let wait = record.dispatched.since(record.arrived);
        adapter.observe(usize::from(record.class), Served { arrived: record.arrived, wait, service, work });
    }

    /// Adapts the weights if a tick has ended.
    pub(super) fn adapt_weights(&mut self, now: Instant) {
        let Some(adapter) = self.adapter.as_mut().filter(|adapter| adapter.is_due(now)) else { return };
        let waits = self.classes.waits().filter(|&place| !self.classes.at(place).is_background());
        let waits: u64 = waits.fold(0, |waits, place| waits | 1 << place);
        if adapter.pass(now, |place| waits >> place & 1 == 1) {
            self.classes.adapt(|place| adapter.share(place));
        }
        while let Some(news) = self.adapter.as_mut().and_then(Adapter::poll_news) {
            self.report(Event::ClassGoal(news));
        }
    }

    /// The classes or the way of adapting have changed. A class with the weight of before keeps its share.
    pub(super) fn change_goals(&mut self, now: Instant, adaptation: Adaptation) {
        match (self.classes.promised(), &mut self.adapter) {
            (None, adapter) => return *adapter = None,
            (Some(promised), Some(adapter)) => adapter.change(now, adaptation, &promised),
            (Some(promised), none) => *none = Some(Adapter::new(now, adaptation, &promised)),
        }
        if let Some(adapter) = &self.adapter {
            self.classes.adapt(|place| adapter.share(place));
        }
    }

    pub(super) fn snapshot_of_classes(&self) -> Vec<ClassSnapshot> {
        let mut classes = self.classes.snapshot();
        if let Some(adapter) = &self.adapter {
            for (place, class) in classes.iter_mut().enumerate() {
                class.observed = adapter.reached(place).map(|reached| reached.observed);
                class.standing = adapter.standing(place);
            }
        }
        classes
    }
}

/// Tenants (`tenants.rs`). A request with a tenant waits in its shard, and joins its class's lines when its
/// shard's turn has come and it could start. From then on it is as any other of its class. Where one is too
/// many, the newest of the class's fullest shard goes instead of one whose shard has fewer.
impl Gate {
    /// A request has come: deals it a shard of its class.
    pub(super) fn deal(&mut self, slot: u32) {
        let record = self.tickets.at(slot);
        if let Some(tenant) = record.request.tenant {
            let shard = self.classes.at(record.class).tenants.shard_of(tenant);
            self.tickets.at_mut(slot).queue.shard = shard;
        }
    }

    /// Charges the shard of a request that starts or joins its class's lines.
    pub(super) fn charge_tenant(&mut self, slot: u32) {
        let record = self.tickets.at(slot);
        let (class, shard, work) = (record.class, record.queue.shard, record.meter.work);
        if record.request.tenant.is_some() {
            self.classes.at_mut(class).tenants.charge(shard, work);
        }
    }

    /// Joins a line, or waits in its shard for its turn to join it.
    pub(super) fn join(&mut self, slot: u32, line: Line) {
        let record = self.tickets.at(slot);
        if record.request.tenant.is_none() || !matches!(line, Line::Short | Line::Long) {
            return self.enter(slot, line);
        }
        let (class, sequence) = (record.class, record.sequence);
        let (shard, is_long) = (record.queue.shard, line == Line::Long);
        let queue = Queue { shard, is_long, class: self.class_of(slot, line) };
        self.classes.at_mut(class).tenants.park(queue, sequence, slot);
        let record = self.tickets.at_mut(slot);
        (record.place, record.line, record.queue) = (Place::Waiting(Line::Shard), line, queue);
    }

    /// The one of a class's shards that joins its lines next, and whether its turn has come.
    pub(super) fn next_tenant(&self, class: u8) -> Option<(u32, bool)> {
        let could_start = |Queue { is_long, class, .. }| {
            if is_long {
                self.lanes.has_room() && self.connections.open_to_longs().contains(class)
            } else {
                self.connections.open_to_shorts().contains(class)
            }
        };
        self.classes.at(class).tenants.next(could_start)
    }

    /// Moves a request from its tenant's shard to its class's lines.
    pub(super) fn take_turn_of_tenant(&mut self, slot: u32) {
        self.leave(slot);
        let line = self.line_of(slot);
        if line != Line::Type {
            self.charge_tenant(slot);
        }
        self.enter(slot, line);
    }
}
