//! Types that contend with one another, found by observation, and held back together.
//!
//! **Idea.** Requests that need the same row or lock run one after the other, however many are let in;
//! those that wait for it inside the service take connections, memory and often the processor from all
//! others. Measured on databases that is the real collapse (3 to 20 times less is completed), while a bound
//! on everything holds back requests of other types, too. So types that contend get a bound of their own
//! (`group.rs`), inside the gate's, and the others pass.
//!
//! **Suspicion.** Cheap, and may be wrong:
//!
//! * A type of which [`SEVERAL`] or more are in flight, and whose upstream time grows with its own number
//!   in flight rather than with that of all (`slope.rs`), by an elasticity of more than [`STEEP`] beyond
//!   what the others have. All such types are suspected together.
//! * Where that says nothing (a gate that starts into an overload sees no small numbers): after
//!   [`PATIENCE`] of waiting, the types that most of what is in flight is of, if together they make up half
//!   of it. A type whose times surely grow by less isn't among them.
//!
//! **Trial.** A suspected group is tried by a search of its own (`contention/bound.rs`): as many as
//! are in flight now and few of them in alternation, by the work that is completed. It becomes a group only
//! if more is completed with fewer of it, and if its own time fell and not only all times alike
//! (`group.rs`). Otherwise these types rest, from [`REST_MIN`] to [`REST_MAX`]. If nothing could be
//! compared they may be tried again [`AFTERWARDS`], twice as late each time, and the first times
//! ([`AGAIN`]) the capacity lets them go first.
//!
//! **Life.** The bound is moved by further trials, up as well as down. It is forgotten when nothing is lost
//! by a bound as high as before the group was formed, or when its requests hardly had to wait for
//! [`FORGOTTEN`].
//!
//! **Waiting.** All requests queue in the gate's lines by the gate's order. One that comes to the head of
//! its line while its group is full steps aside, into the group's own line, so that it blocks nobody; when
//! the group has room it goes on where it stood: before who arrived later (`gate/contention.rs`).
//!
//! One comparison at a time, of groups before that of the gate's capacity, since both are judged by what
//! all complete.
//!
//! **When it fails.** With less than a few dozens of requests a second nothing is seen. Where a gate's
//! bound is so low that no type has [`SEVERAL`] in flight, no group is found. Of two locks that get hot at
//! the same instant the types are held back together, unless the trial tells them apart. Requests that
//! contend only for some values of their parameters are one type, and held back as one.

mod bound;
mod group;

use alloc::vec::Vec;

use bound::Bound;
pub(crate) use group::Group;
use group::{Hold, is_member};

use crate::outside::Sample;
use crate::policy;
use crate::request::RequestType;
use crate::suspicion::{Contends, Fit, Flying, Slope};
use crate::time::{Duration, Instant};
use crate::types::{Type, Types};
use crate::work::Work;

/// The most groups at a time.
pub(crate) const GROUPS_MAX: usize = 8;
/// The most types of a group.
pub(crate) const KINDS_MAX: usize = 8;
/// How often suspicion is looked at.
const LOOK: Duration = Duration::from_millis(100);
/// A group is suspected only if at least this many of its requests are in flight, on average.
const SEVERAL: f64 = 3.0;
/// The elasticity above the other types' that makes a type suspect. With a lock it is 1 or more, on a shared
/// processor 0.
const STEEP: f64 = 0.5;
/// The number of standard errors by which the elasticity must exceed [`STEEP`].
const BEYOND_CHANCE: f64 = 2.0;
/// How long requests must have waited before a type is suspected by its number in flight alone.
const PATIENCE: Duration = Duration::from_secs(1);
/// A type is suspected by its number in flight if that is at least this part of the largest one.
const LIKE: f64 = 0.25;
/// With this many requests in flight the service counts as saturated, even if no request waits.
const MANY: f64 = 64.0;
/// Requests must have waited during at least this part of a look for it to count as saturated.
const SATURATED: f64 = 0.8;
/// The first rest of a type that was suspected wrongly. Each further rest is three times as long.
const REST_MIN: Duration = Duration::from_secs(10);
const REST_MAX: Duration = Duration::from_secs(600);
/// How long no type is suspected after a wrong suspicion, at first. It is twice as long each time. Meanwhile
/// the capacity has its turn.
const PAUSE_MIN: Duration = Duration::from_secs(30);
/// How many times in a row the capacity waits for [`AFTERWARDS`] after a trial without a result.
const AGAIN: u32 = 2;
/// A trial that hasn't begun after this time is given up.
const UNDECIDED: Duration = Duration::from_secs(15);
/// Nothing else is compared, and no other type suspected, for so long after something became of a group:
/// what was learned of times holds no more, and those that had to wait because of it go first.
const AFTERWARDS: Duration = Duration::from_secs(5);
/// A group that was just formed isn't moved before: who had to wait because of it goes through first.
const SETTLED: Duration = Duration::from_secs(2);
/// A group is forgotten when its requests waited for less than this part of so long a time.
const FORGOTTEN: Duration = Duration::from_secs(30);
const NEEDED: f64 = 0.1;

/// The integrals when a request was dispatched.
#[derive(Clone, Copy, Debug, Default)]
struct Mark {
    own: u64,
    all: u64,
}

/// What a group has come to.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Turn {
    /// It was found to be one, with this bound instead of that.
    Formed { from: u32, to: u32, gain: f64 },
    /// Its bound has moved.
    Moved { from: u32, to: u32, gain: Option<f64> },
    /// It is none (any more), after this bound.
    Over { most: u32 },
}

/// The groups, and what leads to them.
#[derive(Debug)]
pub(crate) struct Contention {
    mode: policy::Contention,
    pub(crate) groups: [Option<Group>; GROUPS_MAX],
    /// How many groups there have been.
    begun: u64,
    /// How many comparisons there have been.
    comparisons: u64,
    all: Flying,
    /// By the slot of a request.
    marks: Vec<Mark>,
    looked_at: Instant,
    looked: u64,
    next_look: Instant,
    waits: bool,
    until: Instant,
    waited: Duration,
    saturated_since: Option<Instant>,
    /// When something became of a group last.
    turned: Option<Instant>,
    /// When a trial said that one is none last.
    failed: Option<Instant>,
    /// For how long nothing is suspected after that.
    pause: Duration,
    /// How many trials in a row said nothing.
    unjudged: u32,
}

impl Contention {
    pub(crate) fn new(mode: policy::Contention, now: Instant) -> Self {
        let mut contention = Self {
            mode,
            groups: core::array::from_fn(|_| None),
            begun: 0,
            comparisons: 0,
            all: Flying::default(),
            marks: Vec::new(),
            looked_at: now,
            looked: 0,
            next_look: now,
            waits: false,
            until: now,
            waited: Duration::ZERO,
            saturated_since: None,
            turned: None,
            failed: None,
            pause: Duration::ZERO,
            unjudged: 0,
        };
        if let policy::Contention::Given(given) = contention.mode.clone() {
            for (place, group) in given.iter().take(GROUPS_MAX).enumerate() {
                contention.begun += 1;
                let hold = Hold::Fixed(group.most.max(1));
                contention.groups[place] = Some(Group::new(now, contention.begun, Vec::new(), hold));
            }
        }
        contention
    }

    /// Whether anything is to be observed.
    pub(crate) fn is_on(&self) -> bool {
        self.mode != policy::Contention::None
    }

    /// Whether groups are looked for.
    pub(crate) fn looks(&self) -> bool {
        self.mode == policy::Contention::Auto
    }

    /// Whether that is how it goes about it.
    pub(crate) fn is(&self, mode: &policy::Contention) -> bool {
        self.mode == *mode
    }

    /// Whether there is no group.
    pub(crate) fn is_empty(&self) -> bool {
        self.groups.iter().all(Option::is_none)
    }

    /// What names the comparisons so far, for what a type counts for.
    pub(crate) fn comparisons(&self) -> u64 {
        self.comparisons
    }

    /// The group in this place.
    pub(crate) fn group(&self, place: u8) -> Option<&Group> {
        self.groups.get(usize::from(place))?.as_ref()
    }

    pub(crate) fn group_mut(&mut self, place: u8) -> Option<&mut Group> {
        self.groups.get_mut(usize::from(place))?.as_mut()
    }

    /// The places of the groups.
    pub(crate) fn places(&self) -> impl Iterator<Item = u8> + use<> {
        let taken: [bool; GROUPS_MAX] = core::array::from_fn(|place| self.groups[place].is_some());
        (0..GROUPS_MAX).filter(move |&place| taken[place]).map(|place| place as u8)
    }

    /// The group that the operator of an experiment has given to this type.
    pub(crate) fn given_to(&self, key: RequestType) -> Option<u8> {
        let policy::Contention::Given(given) = &self.mode else { return None };
        let place = given.iter().take(GROUPS_MAX).position(|group| group.types.contains(&key))?;
        Some(place as u8)
    }

    /// A request of this type is in flight from now on.
    pub(crate) fn take_off(&mut self, now: Instant, slot: u32, known: &mut Contends) {
        known.flying.add(now);
        self.all.add(now);
        let slot = slot as usize;
        if slot >= self.marks.len() {
            self.marks.resize(slot + 1, Mark::default());
        }
        self.marks[slot] = Mark { own: known.flying.sum(now), all: self.all.sum(now) };
    }

    /// A request of a type is no longer in flight.
    pub(crate) fn land(&mut self, now: Instant, known: &mut Contends) {
        known.flying.remove(now);
        self.all.remove(now);
    }

    /// How many were in flight on average while this one was, since then.
    pub(crate) fn beside(&self, now: Instant, slot: u32, since: Instant) -> f64 {
        let life = now.since(since).as_nanos() as f64;
        let Some(mark) = self.marks.get(slot as usize).filter(|_| life > 0.0) else { return 1.0 };
        (self.all.sum(now).wrapping_sub(mark.all) as f64 / life).max(1.0)
    }

    /// A request has succeeded that was in flight since then, all the time.
    pub(crate) fn learn(&self, now: Instant, slot: u32, since: Instant, took: Work, known: &mut Contends) {
        let life = now.since(since).as_nanos() as f64;
        let Some(mark) = self.marks.get(slot as usize).filter(|_| life > 0.0) else { return };
        let own = known.flying.sum(now).wrapping_sub(mark.own) as f64 / life;
        let all = self.all.sum(now).wrapping_sub(mark.all) as f64 / life;
        known.slope.learn(own, all, took.as_nanos() as f64);
    }

    /// A request has ended, of the type in this place.
    pub(crate) fn complete(&mut self, now: Instant, kind: u32, sample: &Sample, beside: f64) {
        for group in self.groups.iter_mut().flatten() {
            group.complete(now, kind, sample, beside);
        }
    }

    /// Requests wait from now on (or don't). Whether it is time to look.
    pub(crate) fn observe(&mut self, now: Instant, waits: bool) -> bool {
        if self.waits {
            self.waited += now.since(self.until);
        }
        (self.waits, self.until) = (waits, now);
        now >= self.next_look
    }

    /// Lets each group observe, and says what has become of one of them, if anything has.
    /// `capacity_compares`: the gate's own controller is at it.
    pub(crate) fn watch(
        &mut self,
        now: Instant,
        types: &Types,
        waiting: u32,
        capacity_compares: bool,
    ) -> Option<(u8, Turn)> {
        let compares = self.groups.iter().flatten().position(Group::is_comparing).is_some();
        let all = self.all.count;
        for place in 0..GROUPS_MAX {
            let Some(group) = &mut self.groups[place] else { continue };
            let own: u32 = group.kinds.iter().map(|&(kind, _)| types.at(kind).waiting.len()).sum();
            let (was_comparing, ended) = (group.is_comparing(), group.bound().map_or(0, Bound::ended));
            let settles = group.formed && now.since(group.began) < SETTLED;
            let held = settles || capacity_compares || compares && !was_comparing;
            if let Some(bound) = group.bound_mut() {
                bound.hold(held);
            }
            group.observe(now, all, own > 0, waiting > own);
            self.comparisons += u64::from(group.is_comparing() && !was_comparing);
            let concluded = group.bound().is_some_and(|bound| bound.ended() > ended);
            if let Some(turn) = group.turn(now, concluded) {
                // Who was suspected wrongly leaves the turn to the capacity.
                match (group.formed, turn) {
                    (false, Turn::Over { .. }) => {
                        let judged = group.is_judged();
                        let least = if judged { PAUSE_MIN } else { AFTERWARDS };
                        self.unjudged = if judged { 0 } else { self.unjudged + 1 };
                        self.failed = Some(now);
                        self.pause = (self.pause * 2).clamp(least, REST_MAX);
                    }
                    _ => (self.turned, self.pause, self.unjudged) = (Some(now), Duration::ZERO, 0),
                }
                return Some((place as u8, turn));
            }
        }
        None
    }

    /// Whether the gate's own controller is to wait: a group compares, or is about to.
    pub(crate) fn holds_capacity(&self, now: Instant) -> bool {
        let about_to = |group: &Group| !group.formed && !group.is_released();
        let again = (1..=AGAIN).contains(&self.unjudged)
            && self.failed.is_some_and(|failed| now.since(failed) < AFTERWARDS + LOOK);
        self.groups.iter().flatten().any(|group| group.is_comparing() || about_to(group))
            || again
            || self.turned.is_some_and(|turned| now.since(turned) < AFTERWARDS)
            || self.saturated_since.is_none_or(|since| now.since(since) < PATIENCE + LOOK)
    }

    /// A new group, if types are suspected: its place.
    pub(crate) fn look(&mut self, now: Instant, types: &mut Types, capacity_compares: bool) -> Option<u8> {
        self.next_look = now.after(LOOK);
        let passed = now.since(self.looked_at).as_nanos() as f64;
        if passed <= 0.0 {
            return None;
        }
        let all = self.all.sum(now);
        let in_flight = all.wrapping_sub(self.looked) as f64 / passed;
        let saturated = self.waited.as_nanos() as f64 >= SATURATED * passed || in_flight >= MANY;
        (self.looked, self.looked_at, self.waited) = (all, now, Duration::ZERO);
        let kinds: Vec<u32> = types.kinds().collect();
        for &kind in &kinds {
            types.at_mut(kind).contends.look(now, passed);
        }
        self.purge(types);
        self.saturated_since = if saturated { self.saturated_since.or(Some(now)) } else { None };
        let busy = capacity_compares
            || self.groups.iter().flatten().any(|group| group.is_comparing() || !group.formed);
        if busy || in_flight < SEVERAL {
            return None;
        }
        let suspects = self.suspects(now, types, &kinds, in_flight);
        let mean = |&kind: &u32| types.at(kind).contends.mean;
        let count = libm::round(suspects.iter().map(mean).sum()) as u32;
        if suspects.is_empty() || count < SEVERAL as u32 {
            return None;
        }
        self.begin(now, types, &suspects, count)
    }

    /// A group of these is tried from now on: its place.
    fn begin(&mut self, now: Instant, types: &mut Types, suspects: &[u32], count: u32) -> Option<u8> {
        let free = self.groups.iter().position(Option::is_none)?;
        // A group of all types is none: how many of all may be in flight is the capacity's.
        let is_left = |kind: u32| {
            let known = types.at(kind);
            !suspects.contains(&kind) && (!known.waiting.is_empty() || !known.in_flight.is_empty())
        };
        if !types.kinds().any(is_left) {
            return None;
        }
        let named: Vec<(u32, RequestType)> =
            suspects.iter().filter_map(|&kind| Some((kind, types.at(kind).key?))).collect();
        for &(kind, _) in &named {
            types.at_mut(kind).contends.group = Some(free as u8);
        }
        self.begun += 1;
        self.comparisons += 1;
        self.groups[free] = Some(Group::suspected(now, self.begun, named, count));
        Some(free as u8)
    }

    /// A group that was just formed lets those go that don't contend with it.
    pub(crate) fn let_strangers_go(&mut self, place: u8) -> Vec<u32> {
        let Some(group) = self.group_mut(place) else { return Vec::new() };
        let strangers = group.strangers();
        for &kind in &strangers {
            group.let_go(kind);
        }
        strangers
    }

    /// The types that are suspected, together.
    fn suspects(&self, now: Instant, types: &Types, kinds: &[u32], in_flight: f64) -> Vec<u32> {
        let fits: Vec<(u32, Fit)> = kinds
            .iter()
            .filter_map(|&kind| {
                let known = &types.at(kind).contends;
                Some((kind, known.slope.fit(known.mean)?))
            })
            .collect();
        if self.turned.is_some_and(|turned| now.since(turned) < AFTERWARDS)
            || self.failed.is_some_and(|failed| now.since(failed) < self.pause)
        {
            return Vec::new();
        }
        let may_be = |kind: u32| {
            let known = types.at(kind);
            known.key.is_some() && known.contends.group.is_none() && known.contends.due <= now
        };
        // Whether its times grow with its own number, with so many errors added to what was seen.
        let grows = |&(kind, fit): &(u32, Fit), errors: f64| {
            let others: Vec<f64> =
                fits.iter().filter(|(other, _)| *other != kind).map(|(_, fit)| fit.all).collect();
            let usual = others.iter().sum::<f64>() / others.len().max(1) as f64;
            let beyond = fit.own + fit.all - usual.clamp(0.0, 1.5);
            fit.own + errors * fit.own_error > STEEP
                || !others.is_empty() && beyond + errors * fit.sum_error > STEEP
        };
        let mean = |kind: u32| types.at(kind).contends.mean;
        let suspects: Vec<u32> = fits
            .iter()
            .filter(|known| may_be(known.0) && mean(known.0) >= 1.0 && grows(known, -BEYOND_CHANCE))
            .map(|(kind, _)| *kind)
            .collect();
        let sum = |kinds: &[u32]| kinds.iter().map(|&kind| mean(kind)).sum::<f64>();
        let waited = self.saturated_since.is_some_and(|since| now.since(since) >= PATIENCE);
        if sum(&suspects) < SEVERAL && !waited {
            return Vec::new();
        }
        let largest = kinds.iter().map(|&kind| mean(kind)).fold(0.0, f64::max);
        let is_cleared = |kind: u32| fits.iter().any(|fit| fit.0 == kind && !grows(fit, BEYOND_CHANCE));
        let alike = |kind: u32| mean(kind) >= LIKE * largest && may_be(kind) && !is_cleared(kind);
        let mut many: Vec<u32> =
            kinds.iter().copied().filter(|kind| suspects.contains(kind) || alike(*kind)).collect();
        many.sort_by(|&a, &b| mean(b).total_cmp(&mean(a)));
        many.truncate(KINDS_MAX);
        if sum(&suspects) >= SEVERAL || sum(&many) >= in_flight / 2.0 { many } else { Vec::new() }
    }

    /// Types that were forgotten are no members any more.
    pub(crate) fn purge(&mut self, types: &Types) {
        for (place, group) in self.groups.iter_mut().enumerate() {
            if let Some(group) = group {
                group.kinds.retain(|&(kind, key)| is_member(types.at(kind), key, place));
            }
        }
    }

    /// These types aren't suspected for a while: they were wrongly.
    pub(crate) fn rest(now: Instant, known: &mut Contends) {
        known.rest = if known.rest.is_zero() { REST_MIN } else { (known.rest * 3).min(REST_MAX) };
        known.due = now.after(known.rest);
        known.slope = Slope::default();
    }

    /// Forgets that these types were suspected wrongly: they may be suspected again.
    pub(crate) fn forgive(known: &mut Contends) {
        known.rest = Duration::ZERO;
        known.slope = Slope::default();
    }
}

impl Group {
    /// Ends the group's bound. Returns the types that were in it.
    pub(crate) fn release(&mut self) -> Vec<(u32, RequestType)> {
        self.hold = Hold::Released;
        core::mem::take(&mut self.kinds)
    }

    /// What has become of it; `concluded`: a comparison has just ended.
    fn turn(&mut self, now: Instant, concluded: bool) -> Option<Turn> {
        let bound = self.bound()?;
        let (most, gain) = (bound.found(), bound.gain());
        let is_home = most >= bound.home();
        if !self.formed {
            let late = now.since(self.began) >= UNDECIDED && !self.is_comparing();
            return match gain {
                Some(gain) if concluded && !is_home && self.is_evident(gain) => {
                    (self.formed, self.began) = (true, now);
                    let from = self.bound()?.home();
                    self.told = most;
                    Some(Turn::Formed { from, to: most, gain })
                }
                _ if concluded || late => Some(Turn::Over { most }),
                _ => None,
            };
        }
        let counted = now.since(self.counted_since);
        let needed = counted < FORGOTTEN || self.waited.as_secs_f64() >= NEEDED * counted.as_secs_f64();
        if self.kinds.is_empty() || is_home || !needed {
            return Some(Turn::Over { most });
        }
        if counted >= FORGOTTEN {
            (self.counted_since, self.waited) = (now, Duration::ZERO);
        }
        let from = core::mem::replace(&mut self.told, most);
        (from != most).then_some(Turn::Moved { from, to: most, gain })
    }
}
