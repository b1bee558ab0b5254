//! One group of types that contend: how many of its requests may be in flight, and the evidence for it.
//!
//! `contention/bound.rs` finds the number. Its home is the number in flight when the group was suspected:
//! there it bounds nothing. It observes the group's own requests, and judges by the work that all types
//! complete and by what the group's types complete.
//!
//! **Evidence** that these types contend with one another is collected within the first trial, in which the
//! group has n and k in flight in turn. How much does the time of its requests fall, and how much that of
//! the others? On a service that shares its resources both fall alike, so each time is divided by the number
//! in flight beside it. Plain times would mislead: a short request is served while few are in flight, a long
//! one while many are.
//!
//! The trial ends without a verdict when less than half of the group's number is in flight under the present
//! bound, as under shortest first when others take the room. The types are suspected again seconds later.
//!
//! * The group's time falls by more than twice as much ([`MORE`]): its types contend. A member whose own time
//!   fell by less than half of that (in logarithms) leaves. So does a member of which too few were seen:
//!   shortest first hardly serves a long type beside a hot row, and in the group it would wait as long as
//!   the row is hot. A member that contends after all is suspected again.
//! * Too few of the others are served to compare, or their time falls as much. Then the group is held only if
//!   it is nearly all of what is in flight ([`MOST`]) and a quarter more is completed.
//!
//! Where no others are ever seen there is no group: the capacity bounds how many of all may be in flight.

use alloc::boxed::Box;
use alloc::vec::Vec;

use super::bound::Bound;
use super::{KINDS_MAX, Type};
use crate::classes::Lines;
use crate::outside::Sample;
use crate::request::RequestType;
use crate::time::{Duration, Instant};

/// The group's own time falls by more than so many times what the others' does.
const MORE: f64 = 2.0;
/// Nearly all of what is in flight.
const MOST: f64 = 2.0 / 3.0;
/// What a trial must gain if only the numbers in flight speak for the group.
const LARGE: f64 = 0.25;
/// Fewer completions say nothing of a time.
const FEW: u32 = 6;
/// The first bound that is tried is a quarter of what is in flight, at most this: where locks are hot
/// nearly every small number is near the best, and every large one far.
const FIRST: u32 = 4;
/// The place of the others among the times.
const OTHERS: usize = KINDS_MAX;

/// What bounds a group.
#[derive(Debug)]
pub(super) enum Hold {
    /// A fixed number of requests, set by the operator of an experiment.
    Fixed(u32),
    /// A number of requests that a search finds.
    Found(Box<Bound>),
    /// Nothing any more: those that wait aside go on, then the group is gone.
    Released,
}

/// A group.
#[derive(Debug)]
pub(crate) struct Group {
    /// Never used twice.
    pub(crate) number: u64,
    /// Its types: their places and their keys.
    pub(crate) kinds: Vec<(u32, RequestType)>,
    pub(super) hold: Hold,
    /// Requests of it in flight, without the suspended ones.
    pub(crate) in_flight: u32,
    /// Those that had their turn and wait for room in the group, by class.
    aside: Vec<Lines>,
    /// Whether a trial has spoken for it.
    pub(crate) formed: bool,
    pub(crate) began: Instant,
    /// Since when it is counted for how long its requests waited, and for how long they did.
    pub(crate) counted_since: Instant,
    pub(crate) waited: Duration,
    waits: bool,
    until: Instant,
    /// What was told of its bound last.
    pub(crate) told: u32,
    evidence: Evidence,
}

/// What was seen under the present bound, and under the other.
#[derive(Debug, Default)]
struct Evidence {
    phases: [Phase; 2],
    under_way: Option<usize>,
    since: Instant,
    in_flight: [u32; 2],
}

#[derive(Debug, Default)]
struct Phase {
    /// Sums of logarithms of times, of each member and of the others.
    logs: [f64; KINDS_MAX + 1],
    counts: [u32; KINDS_MAX + 1],
    /// Integrals of what was in flight, in nanoseconds: of the group, of all.
    in_flight: [f64; 2],
    time: f64,
}

impl Group {
    pub(super) fn new(now: Instant, number: u64, kinds: Vec<(u32, RequestType)>, hold: Hold) -> Self {
        Self {
            number,
            kinds,
            formed: matches!(hold, Hold::Fixed(_)),
            told: match hold {
                Hold::Fixed(most) => most,
                Hold::Found(_) | Hold::Released => u32::MAX,
            },
            hold,
            in_flight: 0,
            aside: Vec::new(),
            began: now,
            counted_since: now,
            waited: Duration::ZERO,
            waits: false,
            until: now,
            evidence: Evidence::default(),
        }
    }

    /// A group of which so many are in flight, to be found out.
    pub(super) fn suspected(
        now: Instant,
        number: u64,
        kinds: Vec<(u32, RequestType)>,
        in_flight: u32,
    ) -> Self {
        let first = (in_flight / 4).clamp(1, FIRST);
        Self::new(now, number, kinds, Hold::Found(Box::new(Bound::new(now, in_flight, first))))
    }

    /// The most of its requests that may be in flight.
    pub(crate) fn most(&self) -> u32 {
        match &self.hold {
            Hold::Fixed(most) => *most,
            Hold::Found(bound) => bound.most(),
            Hold::Released => u32::MAX,
        }
    }

    /// What was found.
    pub(crate) fn found(&self) -> u32 {
        match &self.hold {
            Hold::Found(bound) => bound.found(),
            Hold::Fixed(_) | Hold::Released => self.most(),
        }
    }

    /// Whether one more may start.
    pub(crate) fn has_room(&self) -> bool {
        self.in_flight < self.most()
    }

    /// How many wait for room in it.
    pub(crate) fn waiting(&self) -> usize {
        self.aside.iter().map(Lines::len).sum()
    }

    /// Those of one class that wait for room in it.
    pub(crate) fn aside(&self, class: u8) -> Option<&Lines> {
        self.aside.get(usize::from(class))
    }

    /// The mutable lines of one class that wait for room in this group, created if missing.
    pub(crate) fn aside_mut(&mut self, class: u8) -> &mut Lines {
        while self.aside.len() <= usize::from(class) {
            self.aside.push(Lines::new());
        }
        &mut self.aside[usize::from(class)]
    }

    /// Whether nothing is bounded by it any more.
    pub(crate) fn is_released(&self) -> bool {
        matches!(self.hold, Hold::Released)
    }

    pub(super) fn bound(&self) -> Option<&Bound> {
        match &self.hold {
            Hold::Found(bound) => Some(bound),
            Hold::Fixed(_) | Hold::Released => None,
        }
    }

    pub(super) fn bound_mut(&mut self) -> Option<&mut Bound> {
        match &mut self.hold {
            Hold::Found(bound) => Some(bound),
            Hold::Fixed(_) | Hold::Released => None,
        }
    }

    /// Whether a trial of it has come to an end that says anything.
    pub(crate) fn is_judged(&self) -> bool {
        self.bound().is_some_and(Bound::has_judged)
    }

    /// Whether it compares two bounds now.
    pub(crate) fn is_comparing(&self) -> bool {
        self.bound().is_some_and(Bound::is_comparing)
    }

    /// Records what is in flight from now on, of this group and of all types. `waits` and `others_wait` say
    /// whether requests of this group, and other requests, wait.
    pub(crate) fn observe(&mut self, now: Instant, all: u32, waits: bool, others_wait: bool) {
        if self.waits {
            self.waited += now.since(self.until);
        }
        (self.waits, self.until) = (waits, now);
        let (in_flight, weight) = (self.in_flight, self.weight());
        if let Some(bound) = self.bound_mut() {
            bound.weigh(weight);
            bound.crowd(others_wait);
            bound.observe(now, in_flight, waits);
        }
        if !self.formed {
            let phase = self.bound().and_then(Bound::measures_other).map(usize::from);
            self.evidence.pass(now, phase, in_flight, all);
        }
    }

    /// A request has ended, of the type in this place, after this time.
    pub(crate) fn complete(&mut self, now: Instant, kind: u32, sample: &Sample, beside: f64) {
        let member = self.kinds.iter().position(|&(member, _)| member == kind);
        let own = member.is_some();
        if !self.formed && sample.success {
            let share = sample.upstream_time.as_secs_f64() / beside;
            let log = libm::log((share / sample.work.max(1e-9)).max(1e-9));
            self.evidence.add(member.unwrap_or(OTHERS), log);
        }
        if let Some(bound) = self.bound_mut() {
            bound.complete(now, &Sample { own, ..*sample });
        }
    }

    /// What the work of its requests counts for. An upstream time is no work for who spends it waiting for
    /// one another: before it is known what they take, by how much more than the others' their time fell;
    /// then a part for each of those that are in flight together.
    pub(super) fn weight(&self) -> f64 {
        if self.formed {
            return 1.0;
        }
        match (self.evidence.fell_by(0..OTHERS), self.evidence.fell_by(OTHERS..OTHERS + 1)) {
            (Some(own), Some(others)) if own > others => libm::exp(others - own),
            (Some(own), None) if own > 0.0 => libm::exp(-own),
            _ => 1.0,
        }
    }

    /// What an upstream time of one of its requests is divided by to have the work in it.
    pub(crate) fn share(&self) -> f64 {
        if self.formed { f64::from(self.found()) } else { 1.0 }
    }

    /// Whether what was seen in the trial, which gained so much, says that these types contend with one
    /// another.
    pub(super) fn is_evident(&self, gain: f64) -> bool {
        let Evidence { phases: [present, other], .. } = &self.evidence;
        let [own, all] = [0, 1].map(|which| present.in_flight[which] / present.time.max(1.0));
        let fell_by = |places: core::ops::Range<usize>| self.evidence.fell_by(places);
        let by_itself = match (fell_by(0..OTHERS), fell_by(OTHERS..OTHERS + 1)) {
            (Some(own), Some(others)) => own - others > libm::log(MORE),
            _ => false,
        };
        // A group of all is none: how many of all may be in flight is the capacity's.
        if other.counts[OTHERS] < FEW {
            return false;
        }
        by_itself || own >= MOST * all && gain >= LARGE
    }

    /// The members whose time hardly fell, or of whom too few were seen to say, which the group lets go.
    /// Never all.
    pub(super) fn strangers(&self) -> Vec<u32> {
        let others = self.evidence.fell_by(OTHERS..OTHERS + 1).unwrap_or(0.0);
        let Some(own) = self.evidence.fell_by(0..OTHERS) else { return Vec::new() };
        let hardly = |&at: &usize| {
            self.evidence.fell_by(at..at + 1).is_none_or(|by| by - others < 0.5 * (own - others))
        };
        let strangers: Vec<u32> = (0..self.kinds.len()).filter(hardly).map(|at| self.kinds[at].0).collect();
        if strangers.len() < self.kinds.len() { strangers } else { Vec::new() }
    }

    /// Releases a type from the group.
    pub(super) fn let_go(&mut self, kind: u32) {
        self.kinds.retain(|&(member, _)| member != kind);
    }
}

impl Evidence {
    fn pass(&mut self, now: Instant, phase: Option<usize>, own: u32, all: u32) {
        if let Some(before) = self.under_way {
            let time = now.since(self.since).as_nanos() as f64;
            let seen = &mut self.phases[before];
            seen.time += time;
            for which in 0..2 {
                seen.in_flight[which] += time * f64::from(self.in_flight[which]);
            }
        }
        (self.under_way, self.since, self.in_flight) = (phase, now, [own, all]);
    }

    fn add(&mut self, place: usize, log: f64) {
        if let Some(phase) = self.under_way {
            self.phases[phase].logs[place] += log;
            self.phases[phase].counts[place] += 1;
        }
    }

    /// By how much the mean logarithm of the times of these was lower under the other bound.
    fn fell_by(&self, places: core::ops::Range<usize>) -> Option<f64> {
        let mean = |phase: &Phase| {
            let count: u32 = phase.counts[places.clone()].iter().sum();
            (count >= FEW).then(|| phase.logs[places.clone()].iter().sum::<f64>() / f64::from(count))
        };
        Some(mean(&self.phases[0])? - mean(&self.phases[1])?)
    }
}

/// Whether this type is (still) one of this group's.
pub(super) fn is_member(known: &Type, key: RequestType, place: usize) -> bool {
    known.key == Some(key) && known.contends.group == Some(place as u8)
}
