//! The table of request types: bounded, the least recently used makes room.
//!
//! A type with requests that wait or are in flight is never forgotten; when all are busy, a new one shares
//! the record `other`. What a forgotten type had learned counts for `other` as one sample.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use crate::cost::{Estimate, Modes};
use crate::event::Lane;
use crate::lanes::Usual;
use crate::learned::LearnedType;
use crate::leavers::Lost;
use crate::ledger::Growing;
use crate::pace::Center;
use crate::policy::Cost;
use crate::request::RequestType;
use crate::suspicion::Contends;
use crate::tickets::{List, Through};
use crate::time::Instant;
use crate::work::Work;

/// The place of `other` in the table.
pub(crate) const OTHER: u32 = 0;

const NONE: u32 = u32::MAX;

/// The number of requests over which the mean is taken that a type counts by.
const DONE_MEMORY: u32 = 256;

/// See [`Type::goes_unlimited`].
const PROVEN: u64 = 4;

/// One request type.
#[derive(Debug)]
pub(crate) struct Type {
    /// `None`: `other`.
    pub(crate) key: Option<RequestType>,
    pub(crate) estimate: Estimate,
    /// What is typical of it, for the pace.
    pub(crate) center: Center,
    pub(crate) modes: Modes,
    /// What the clocks of the service's parallelism usually show for it.
    pub(crate) usual: Usual,
    pub(crate) lane: Lane,
    /// How many of its clients leave in service.
    pub(crate) lost: Lost,
    /// The number of samples below which the variation of the type isn't believed.
    doubted: u64,
    /// Its requests in flight that have used more than was expected.
    pub(crate) overdue: Growing,
    /// Its requests in flight.
    pub(crate) in_flight: List,
    /// How many of those have a client that thinks.
    pub(crate) thinking: u32,
    /// Its requests that wait, in order of arrival.
    pub(crate) waiting: List,
    /// While the type is unknown: its scouts that wait among the shorts, at most one of each class.
    pub(crate) scouts: Vec<u32>,
    /// The work by which its waiting requests are put in order.
    pub(crate) rank: Work,
    /// Whether it contends with others, as far as that is known.
    pub(crate) contends: Contends,
    /// The mean of what its requests did, and of how many.
    did: (f64, u32),
    /// What its requests count for, and in which comparison.
    counted: f64,
    counted_in: Option<u64>,
    idle_before: u32,
    idle_after: u32,
}

impl Type {
    fn new(key: Option<RequestType>, cost: Cost) -> Self {
        Self {
            key,
            estimate: Estimate::new(cost),
            center: Center::default(),
            modes: Modes::default(),
            usual: Usual::default(),
            lane: Lane::Unknown,
            lost: Lost::default(),
            doubted: 0,
            overdue: Growing::default(),
            in_flight: List::new(Through::Type),
            thinking: 0,
            waiting: List::new(Through::Type),
            scouts: Vec::new(),
            rank: Work::ZERO,
            contends: Contends::default(),
            did: (0.0, 0),
            counted: 0.0,
            counted_in: None,
            idle_before: NONE,
            idle_after: NONE,
        }
    }

    /// Whether one of its requests is out to find what it costs. One whose client thinks
    /// occupies nothing but its connection, and may do so for hours: the next one goes.
    pub(crate) fn is_out(&self) -> bool {
        self.in_flight.len() > self.thinking
    }

    /// Whether it goes without a limit because it varies too much.
    ///
    /// Little is needed to call a type variable, since that does no harm below saturation. In overload all
    /// requests of a type that doesn't vary would then be in service at once, each for longer than its client
    /// waits. A request without an answer teaches nothing. So a type is limited once more of its requests are
    /// in service than it has samples, until it has [`PROVEN`] times as many.
    pub(crate) fn goes_unlimited(&mut self) -> bool {
        if !self.estimate.is_variable() {
            return false;
        }
        let (samples, busy) = (self.estimate.samples(), self.in_flight.len().saturating_sub(self.thinking));
        if samples >= self.doubted && u64::from(busy) > samples {
            self.doubted = samples.saturating_mul(PROVEN);
        }
        samples >= self.doubted && !self.lost.is_much()
    }

    /// The work by which a request that joins a line is put in order: its type's mean over a longer time
    /// (its own `work` while there is none); and those of one type rank alike while some of them wait,
    /// unless that mean has at least doubled or halved.
    ///
    /// An estimate wanders from arrival to arrival, in overload by a factor. Put in order by it, requests
    /// of one type would overtake one another for nothing, and use up the allowance that aging grants them
    /// for shorter ones.
    pub(crate) fn rank(&mut self, work: Work) -> Work {
        let work = self.estimate.rank().unwrap_or(work);
        let (rank, work_now) = (self.rank.as_nanos(), work.as_nanos());
        let has_moved = work_now >= rank.saturating_mul(2) || work_now <= rank / 2;
        if self.waiting.len() <= 1 || has_moved {
            self.rank = work;
        }
        self.rank
    }

    /// One of its requests has succeeded that did so much.
    pub(crate) fn has_done(&mut self, amount: f64) {
        let (mean, count) = self.did;
        let count = count.saturating_add(1).min(DONE_MEMORY);
        self.did = (mean + (amount - mean) / f64::from(count), count);
    }

    /// What one of its requests counts for in a comparison of throughputs: what those of its type do on
    /// average, as it was when this comparison began, in seconds. Not what is estimated: upstream times are
    /// those of the load under which they were taken, and a type that is rarely served under another order
    /// or bound would count for what it took in a collapse. Those that wait for one another share their
    /// time: `share` of them at once.
    pub(crate) fn counts_for(&mut self, comparison: u64, share: f64) -> f64 {
        if self.counted_in != Some(comparison) {
            self.counted_in = Some(comparison);
            let did = if self.did.1 > 0 { self.did.0 * 1e-9 } else { 1e-3 };
            self.counted = did / share;
        }
        self.counted
    }

    /// Whether no request of it was ever seen to succeed: it is unknown, or called long by an age alone.
    pub(crate) fn is_guessed(&self) -> bool {
        self.estimate.samples() == 0
    }

    fn is_idle(&self) -> bool {
        self.waiting.is_empty() && self.in_flight.is_empty()
    }
}

/// All types.
#[derive(Debug)]
pub(crate) struct Types {
    records: Vec<Type>,
    by_key: BTreeMap<RequestType, u32>,
    free: Vec<u32>,
    most: usize,
    cost: Cost,
    /// Types without any request, the least recently used first.
    idle_first: u32,
    idle_last: u32,
}

impl Types {
    /// At most `most` types beside `other`.
    pub(crate) fn new(most: usize, cost: Cost) -> Self {
        let records = alloc::vec![Type::new(None, cost)];
        Self {
            records,
            by_key: BTreeMap::new(),
            free: Vec::new(),
            most,
            cost,
            idle_first: NONE,
            idle_last: NONE,
        }
    }

    pub(crate) fn at(&self, kind: u32) -> &Type {
        &self.records[kind as usize]
    }

    pub(crate) fn at_mut(&mut self, kind: u32) -> &mut Type {
        &mut self.records[kind as usize]
    }

    /// The place of a type, which becomes busy, and the type that was forgotten for it.
    pub(crate) fn find(&mut self, key: RequestType, now: Instant) -> (u32, Option<RequestType>) {
        if let Some(&kind) = self.by_key.get(&key) {
            self.wake(kind);
            return (kind, None);
        }
        let forgotten = if self.by_key.len() >= self.most { self.forget(now) } else { None };
        if self.by_key.len() >= self.most {
            return (OTHER, forgotten);
        }
        let record = Type::new(Some(key), self.cost);
        let kind = match self.free.pop() {
            Some(kind) => {
                self.records[kind as usize] = record;
                kind
            }
            None => {
                self.records.push(record);
                (self.records.len() - 1) as u32
            }
        };
        self.by_key.insert(key, kind);
        (kind, forgotten)
    }

    /// The place of a type that is known.
    pub(crate) fn known(&self, key: RequestType) -> Option<u32> {
        self.by_key.get(&key).copied()
    }

    /// Forgets the least recently used type without any request.
    pub(crate) fn forget(&mut self, now: Instant) -> Option<RequestType> {
        let kind = self.idle_first;
        if kind == NONE {
            return None;
        }
        self.wake(kind);
        let gone = &self.records[kind as usize];
        let key = gone.key?;
        if gone.estimate.samples() > 0 {
            let work = gone.estimate.expected(now, &gone.overdue, Work::ZERO);
            self.records[OTHER as usize].estimate.learn(work, None);
        }
        self.by_key.remove(&key);
        self.free.push(kind);
        Some(key)
    }

    /// What is to be kept across restarts, the least recently used first.
    pub(crate) fn learned(&self) -> Vec<LearnedType> {
        let linked = |kind| Some(kind).filter(|&kind| kind != NONE);
        let idle = core::iter::successors(linked(self.idle_first), |&kind| linked(self.at(kind).idle_after));
        let busy = self.by_key.values().copied().filter(|&kind| !self.is_resting(kind));
        let learned = |kind| {
            let known = self.at(kind);
            known.estimate.to_keep(known.key?)
        };
        idle.chain(busy).filter_map(learned).collect()
    }

    /// Knows a type as it was learned, if it isn't known and there is room for it. Its place.
    pub(crate) fn recall(&mut self, learned: &LearnedType, now: Instant) -> Option<u32> {
        let is_new = !self.by_key.contains_key(&learned.request_type);
        if !is_new || self.by_key.len() >= self.most || !learned.is_possible() {
            return None;
        }
        let (kind, _) = self.find(learned.request_type, now);
        self.at_mut(kind).estimate = Estimate::recalled(learned, self.cost);
        self.rest(kind);
        Some(kind)
    }

    /// A request of this type has ended: if it was the last, the type may be forgotten from now on.
    pub(crate) fn rest(&mut self, kind: u32) {
        if kind == OTHER || !self.at(kind).is_idle() || self.is_resting(kind) {
            return;
        }
        let last = self.idle_last;
        let record = self.at_mut(kind);
        record.idle_before = last;
        record.idle_after = NONE;
        if last == NONE {
            self.idle_first = kind;
        } else {
            self.at_mut(last).idle_after = kind;
        }
        self.idle_last = kind;
    }

    fn is_resting(&self, kind: u32) -> bool {
        self.idle_first == kind || self.at(kind).idle_before != NONE
    }

    /// A type isn't idle any more.
    fn wake(&mut self, kind: u32) {
        if kind == OTHER || !self.is_resting(kind) {
            return;
        }
        let (before, after) = (self.at(kind).idle_before, self.at(kind).idle_after);
        if before == NONE {
            self.idle_first = after;
        } else {
            self.at_mut(before).idle_after = after;
        }
        if after == NONE {
            self.idle_last = before;
        } else {
            self.at_mut(after).idle_before = before;
        }
        let record = self.at_mut(kind);
        (record.idle_before, record.idle_after) = (NONE, NONE);
    }

    /// The policy has changed.
    pub(crate) fn change(&mut self, most: usize, cost: Cost) {
        self.most = most;
        if self.cost != cost {
            self.cost = cost;
            for record in &mut self.records {
                record.estimate.change(cost);
            }
        }
    }

    /// Converts all work to another unit: one old unit is `change` new ones.
    pub(crate) fn rescale(&mut self, change: f64) {
        for record in &mut self.records {
            record.estimate.rescale(change);
            record.rank = record.rank.times(change);
        }
    }

    /// Whether there are more types than there may be.
    pub(crate) fn is_over(&self) -> bool {
        self.by_key.len() > self.most
    }

    /// The places of all types in the order of their keys, `other` last.
    pub(crate) fn kinds(&self) -> impl Iterator<Item = u32> + '_ {
        self.by_key.values().copied().chain(core::iter::once(OTHER))
    }
}
