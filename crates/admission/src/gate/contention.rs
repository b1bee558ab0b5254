//! Groups of types that contend with one another: which requests count in a group, and which step aside for
//! it.
//!
//! A request in flight is counted in the group of its type while it isn't suspended. A request that comes to
//! the head of its line while its group is full steps aside, into the group's line, in which the policy's
//! order holds again. Nobody behind it waits for it. When the group has room, the first request aside goes as
//! if it had stood where it was: before later arrivals. A dissolved group bounds nothing, and is gone when
//! nobody is aside.

use alloc::vec::Vec;

use super::Gate;
use crate::contention::{Contention, GROUPS_MAX, Group, KINDS_MAX, Turn};
use crate::event::Event;
use crate::outside::Sample;
use crate::policy;
use crate::request::{Completion, Outcome};
use crate::snapshot::GroupSnapshot;
use crate::tickets::{Line, Place};
use crate::time::Instant;
use crate::work::Work;

impl Gate {
    /// The group of this request's type, if one more of it may not start.
    pub(super) fn full_group_of(&self, slot: u32) -> Option<u8> {
        let place = self.types.at(self.tickets.at(slot).kind).contends.group?;
        self.contention.group(place).filter(|group| !group.has_room()).map(|_| place)
    }

    /// A head steps aside.
    pub(super) fn step_aside(&mut self, slot: u32, place: u8) {
        let long = self.tickets.at(slot).place == Place::Waiting(Line::Long);
        self.leave(slot);
        self.enter(slot, if long { Line::AsideLong(place) } else { Line::Aside(place) });
    }

    /// How many wait for room in their group. (Those of a group that is dissolved wait as all others do.)
    pub(super) fn aside(&self) -> usize {
        let bounds = |group: &&Group| !group.is_released();
        self.contention.groups.iter().flatten().filter(bounds).map(Group::waiting).sum()
    }

    /// Of those of a class aside that could start if they fit, whose group has room, the first that arrived.
    pub(super) fn aside_head(&self, class: u8) -> Option<u32> {
        let sequence = |&slot: &u32| self.tickets.at(slot).sequence;
        let could_start = |place: u8| {
            let group = self.contention.group(place).filter(|group| group.has_room())?;
            let aside = group.aside(class)?;
            let short = aside.short.first(self.connections.open_to_shorts());
            let long =
                if self.lanes.has_room() { aside.long.first(self.connections.open_to_longs()) } else { None };
            short.into_iter().chain(long).min_by_key(sequence)
        };
        self.contention.places().filter_map(could_start).min_by_key(sequence)
    }

    /// One that is aside leaves the group's line.
    pub(super) fn leave_aside(&mut self, slot: u32, place: u8) {
        let class = self.tickets.at(slot).class;
        let Some(group) = self.contention.group_mut(place) else { return };
        group.aside_mut(class).short.remove(slot);
        group.aside_mut(class).long.remove(slot);
        if group.is_released() && group.waiting() == 0 {
            self.contention.groups[usize::from(place)] = None;
        }
    }

    /// A request in flight is counted from now on.
    pub(super) fn join_group(&mut self, slot: u32) {
        if !self.contention.is_on() {
            return;
        }
        let record = self.tickets.at_mut(slot);
        let known = &mut self.types.at_mut(record.kind).contends;
        self.contention.take_off(self.now, slot, known);
        record.group = known.group;
        if let Some(group) = record.group.and_then(|place| self.contention.group_mut(place)) {
            group.in_flight += 1;
        }
    }

    /// A request is about to end or to be suspended, and is no longer counted in its group.
    pub(super) fn leave_group(&mut self, slot: u32) {
        let record = self.tickets.at_mut(slot);
        if !self.contention.is_on() || record.is_suspended() {
            return;
        }
        self.contention.land(self.now, &mut self.types.at_mut(record.kind).contends);
        if let Some(group) = record.group.take().and_then(|place| self.contention.group_mut(place)) {
            group.in_flight -= 1;
        }
    }

    /// A type that a group was given for joins it.
    pub(super) fn join_given(&mut self, kind: u32) {
        let known = self.types.at(kind);
        let Some(key) = known.key.filter(|_| known.contends.group.is_none()) else { return };
        let Some(place) = self.contention.given_to(key) else { return };
        self.contention.purge(&self.types);
        if let Some(group) = self.contention.group_mut(place)
            && group.kinds.len() < KINDS_MAX
        {
            group.kinds.push((kind, key));
            self.types.at_mut(kind).contends.group = Some(place);
            self.count_anew(kind);
        }
    }

    /// The requests in flight of a type count in the group that it is in now.
    fn count_anew(&mut self, kind: u32) {
        let place = self.types.at(kind).contends.group;
        for slot in self.tickets.all(&self.types.at(kind).in_flight) {
            let record = self.tickets.at_mut(slot);
            let now = place.filter(|_| !record.is_suspended());
            let before = core::mem::replace(&mut record.group, now);
            if let Some(group) = before.and_then(|place| self.contention.group_mut(place)) {
                group.in_flight -= 1;
            }
            if let Some(group) = now.and_then(|place| self.contention.group_mut(place)) {
                group.in_flight += 1;
            }
        }
    }

    /// A request in flight is about to end. What it says of contention, if it was in flight all the time.
    pub(super) fn learn_contention(&mut self, now: Instant, slot: u32, took: Work, outcome: Outcome) {
        let record = self.tickets.at(slot);
        let life = now.since(record.dispatched).as_nanos();
        let is_whole = u128::from(took.as_nanos()) * 2 >= life;
        let counts = self.contention.looks() && outcome == Outcome::Success && !record.canceled;
        if counts && !record.is_suspended() && is_whole {
            let (since, known) = (record.dispatched, &mut self.types.at_mut(record.kind).contends);
            self.contention.learn(now, slot, since, took, known);
        }
    }

    /// Shows all controllers what has ended.
    pub(super) fn show_controllers(&mut self, now: Instant, slot: u32, ended: Completion, in_flight: u32) {
        let kind = self.tickets.at(slot).kind;
        let looks = self.contention.looks() && !self.contention.is_empty();
        let capacity = self.room.found().map(|found| found.control().trial());
        if capacity.is_none() && !looks {
            return;
        }
        let comparison = capacity.unwrap_or(0).wrapping_add(self.contention.comparisons());
        let place = self.types.at(kind).contends.group;
        let share = place.and_then(|place| self.contention.group(place)).map_or(1.0, Group::share);
        let sample = Sample {
            work: self.types.at_mut(kind).counts_for(comparison, share),
            upstream_time: ended.upstream_time,
            success: ended.outcome == Outcome::Success,
            answered: ended.outcome == Outcome::Success && !self.tickets.at(slot).canceled,
            in_flight,
            own: true,
        };
        if let Some(found) = self.room.found() {
            found.control().complete(now, &sample);
        }
        if looks {
            let beside = self.contention.beside(now, slot, self.tickets.at(slot).dispatched);
            self.contention.complete(now, kind, &sample, beside);
        }
    }

    /// Shows the groups what is in flight now, and looks for others. Whether one lets more in than before.
    pub(super) fn have_groups_found_room(&mut self, now: Instant) -> bool {
        let capacity_compares = self.room.found().is_some_and(|found| found.control().is_comparing());
        let mut most = [0; GROUPS_MAX];
        for place in self.contention.places() {
            most[usize::from(place)] = self.contention.group(place).map_or(0, Group::most);
        }
        let waits = self.classes.waiting_by_right() as usize > self.aside();
        if self.contention.observe(now, waits)
            && let Some(place) = self.contention.look(now, &mut self.types, capacity_compares)
        {
            self.count_anew_all(place);
        }
        if !self.contention.is_empty()
            && let Some((place, turn)) =
                self.contention.watch(now, &self.types, self.classes.waiting(), capacity_compares)
        {
            self.turn(now, place, turn);
        }
        let waits_less = |place: u8| {
            let group = self.contention.group(place);
            group.is_some_and(|group| group.most() > most[usize::from(place)] && group.waiting() > 0)
        };
        self.contention.places().any(waits_less)
    }

    fn count_anew_all(&mut self, place: u8) {
        let kinds = self.contention.group(place).map(|group| group.kinds.clone()).unwrap_or_default();
        for (kind, _) in kinds {
            self.count_anew(kind);
        }
    }

    fn turn(&mut self, now: Instant, place: u8, turn: Turn) {
        let Some(group) = self.contention.group(place) else { return };
        let (number, formed) = (group.number, group.formed);
        match turn {
            Turn::Formed { from, to, gain } => {
                self.report(Event::GroupFormed { group: number, from, to, gain });
                for kind in self.contention.let_strangers_go(place) {
                    self.types.at_mut(kind).contends.group = None;
                    self.count_anew(kind);
                }
                let kinds = self.contention.group(place).map(|group| group.kinds.clone());
                for (_, request_type) in kinds.unwrap_or_default() {
                    self.report(Event::GroupJoined { group: number, request_type });
                }
            }
            Turn::Moved { from, to, gain } => {
                self.report(Event::GroupMoved { group: number, from, to, gain });
            }
            Turn::Over { most } => {
                if formed {
                    self.report(Event::GroupDissolved { group: number, most });
                }
                self.dissolve(now, place);
            }
        }
    }

    /// A group is none any more.
    fn dissolve(&mut self, now: Instant, place: u8) {
        let Some(group) = self.contention.group_mut(place) else { return };
        let (formed, judged) = (group.formed, group.is_judged());
        let kinds = group.release();
        let is_gone = group.waiting() == 0;
        for (kind, _) in kinds {
            let known = &mut self.types.at_mut(kind).contends;
            known.group = None;
            if formed {
                Contention::forgive(known);
            } else if judged {
                Contention::rest(now, known);
            }
            self.count_anew(kind);
        }
        if is_gone {
            self.contention.groups[usize::from(place)] = None;
        }
    }

    /// Another way of going about contention from now on: all groups are gone.
    pub(super) fn change_contention(&mut self, now: Instant, mode: &policy::Contention) {
        for place in self.contention.places() {
            self.dissolve(now, place);
        }
        for slot in self.all_waiting() {
            let place = self.tickets.at(slot).place;
            if matches!(place, Place::Waiting(Line::Aside(_) | Line::AsideLong(_))) {
                self.leave(slot);
                self.join(slot, self.line_of(slot));
            }
        }
        let before = core::mem::replace(&mut self.contention, Contention::new(mode.clone(), now));
        drop(before);
        for kind in self.types.kinds().collect::<Vec<_>>() {
            self.types.at_mut(kind).contends = crate::suspicion::Contends::default();
            for slot in self.tickets.all(&self.types.at(kind).in_flight) {
                let record = self.tickets.at_mut(slot);
                record.group = None;
                if !record.is_suspended() {
                    self.join_group(slot);
                }
            }
            self.join_given(kind);
        }
    }

    /// The groups, for an operator who watches.
    pub(super) fn snapshot_of_groups(&self) -> Vec<GroupSnapshot> {
        let formed =
            self.contention.groups.iter().flatten().filter(|group| group.formed && !group.is_released());
        let of = |group: &Group| GroupSnapshot {
            number: group.number,
            types: group.kinds.iter().map(|&(_, key)| key).collect(),
            most: group.most(),
            in_flight: group.in_flight,
            aside: group.waiting(),
        };
        formed.map(of).collect()
    }
}
