//! Ours: holds a response time, its mean or its p95, by bounding how many are present.
//!
//! **Idea.** Present are the requests that wait and those that the service is busy with. By Little's law
//! their number is the rate of completions times the mean response time, whatever the order of service: T =
//! N/X. So to bound N is to hold T, and N is known now, where response times are known when it is too late.
//! One too many is refused on arrival. Refusing the most expensive first would hold the mean with fewer
//! refusals, and starve the clients that ask for it; a type that may take longer gets a target of its own.
//!
//! **Formula.** N ≤ K = K(ρ, X T_ref e^(−d)), with a fraction of a place granted by chance.
//!
//! * *Feed-forward*: K(ρ, r) is how many an M/GI/1 processor-sharing queue may hold so that the mean
//!   response is r service times (`model.rs`); X is the drain rate while there is something to drain, ρ =
//!   λ/X the offered load, of refused ones too, which sees a step within 24 arrivals (`offered.rs`). Below
//!   saturation K is far away.
//! * *Feedback*: d = D/(4 s · X T_ref), where the debt
//!
//! ```text
//! D = ∫ N dt − T_ref · (completions)
//! ```
//!
//!   is the sum, over all requests, of what their response times are above the target, *those who haven't
//!   ended included with their age*: the integral of the error, exact and without delay. Held bounded, it
//!   makes the mean the target's.
//! * *Anti-windup*: D is within −ln 6 and +ln 3 (times 4 s · X T_ref): the credit of a calm night lasts for
//!   seconds of a burst, the debt of a stall is paid back in seconds. A surge takes the credit away at
//!   once.
//! * *p95*: K(ρ, X T_95/q); each late one raises ln q by 0.9525 steps, each answer in time lowers it by
//!   0.0475, so that it stands still where 4.75 % are late, a twentieth fewer than are allowed. A request
//!   is late as soon as its age is T_95, waiting or in service, and not when it ends: behind a long lane
//!   each request in it may be late while short ones pass. q is from 1 to 16; but K isn't below what keeps
//!   the service busy for nine tenths of the time by the model, as far as that fits into half of T_95. With
//!   a mean, too, the smaller bound holds.
//!
//! **Order before refusing** (the gate's mean). While the target is missed, or was in the last five seconds,
//! a found capacity is at most twice what the service works on at once: the queue's order helps. A request
//! isn't refused if it lowers the mean: its own time and the delay of others are below T_ref (1 − d/ln 3),
//! d above 0, so that wrong estimates can't miss the target for good. Nor is it while fewer are present.
//!
//! **Targets of types.** The requests of a type that has a target of its own are a group, and all others
//! are one, held to the gate's target if it has one: a type's target takes the place of the gate's, the
//! mean and the p95. Each group is held as above, with its own N, X, λ and D: first its own are refused.
//! Where others take the service's time that isn't enough: its own bound nears one, and its debt grows. So
//! each group also bounds everybody, by what the model says of all if they are slowed down alike (T_ref
//! times their mean work over its own), times X T_ref e^(−d) of the group itself: far away while its own
//! bound is large, and binding as that nears one. A type's target is the most that it takes; one who shares
//! the service with a stricter one stays below its own. No group holds another's: a request is late, or
//! adds to a debt, for its own group alone; while others are refused for a group, too few late ones of its
//! own are news, as while its own are refused. Other targets (a reload) take over what was observed of who
//! is in them.
//!
//! **Source.** Ours. The model and p* = (1 − E\[X\]/T_ref)/(λ E\[X\]) are Yaksha's; refusing beyond a bound
//! instead of at random keeps the service busy for nearly all of the time, where random refusal leaves it
//! idle for E\[X\]/T_ref of it.
//!
//! **Parameters** stand in `hold.rs` and `offered.rs`, each with its reason; the operator states a target.
//!
//! **When it fails.** A p95 below what an idle service takes refuses everybody but one. What varies for
//! longer than the credit lasts looks like overload: up to 0.6 % are refused at a load of 0.7. A target of
//! less than about five service times can't be held with a busy service at loads near 1. The mean may hide
//! the price: under shortest first a long request waits for seconds within a mean of 150 ms. Where about as
//! many requests are long as may be late, the p95 of a minute jumps between what the short ones take and
//! what the long ones take; it is hardly ever far above the target, and mostly below. A type that is given
//! a target while the service is overloaded begins with no drain rate of its own. It is let in too freely,
//! or too little, for some seconds. A transaction whose client thinks is not present meanwhile.

mod hold;
mod model;
mod offered;

use alloc::collections::{BTreeMap, BTreeSet};

use super::{Asked, Reach, Rule, TooMany};
use crate::chance::Chance;
use crate::outside::Refusing;
use crate::policy::{Goal, Rejection, Targets};
use crate::request::RequestType;
use crate::snapshot::HeldTarget;
use crate::time::{Duration, Instant};
use hold::{Hold, Scope};

/// The target of a group binds other requests until this long after the group's last event.
const BINDS: Duration = Duration::from_secs(5);

/// The requests that are held together: those of one type, or (`None`) all whose type has no target of its
/// own.
type Whose = Option<RequestType>;

/// The targets in force.
#[derive(Debug)]
pub(crate) struct Target {
    /// All requests: held to the gate's target where no type has one of its own, else only looked at.
    all: Hold,
    /// Those of types without a target of their own, where others have one and the gate has one, too.
    rest: Option<Group>,
    types: BTreeMap<RequestType, Group>,
    /// The bounds that groups put on all, in thousandths of a request, the least first.
    bounds: BTreeSet<(u64, Whose)>,
    bound: f64,
}

/// Requests that are held to one target.
#[derive(Debug)]
struct Group {
    goal: Goal,
    hold: Hold,
    present: u32,
    /// What it puts on all, as in [`Target::bounds`].
    bound: u64,
    told: Instant,
}

impl Group {
    fn new(goal: Goal, before: Option<Hold>, now: Instant) -> Self {
        let hold = match before {
            Some(before) => before.with(goal, Scope::Group),
            None => Hold::new(goal, Scope::Group, now),
        };
        Self { goal, hold, present: 0, bound: u64::MAX, told: now }
    }

    fn pass(&mut self, now: Instant) {
        self.hold.pass(now, self.present);
    }

    /// What was observed until now.
    fn end(mut self, now: Instant) -> Hold {
        self.pass(now);
        self.hold
    }
}

impl Target {
    pub(crate) fn new(targets: &Targets, now: Instant) -> Self {
        let (all, rest) = goals(targets);
        Self {
            all: Hold::new(all, Scope::All, now),
            rest: rest.map(|goal| Group::new(goal, None, now)),
            types: targets.types.iter().map(|(&key, &goal)| (key, Group::new(goal, None, now))).collect(),
            bounds: BTreeSet::new(),
            bound: f64::INFINITY,
        }
    }

    /// Those who are held together with a request of this type, if anybody holds them beside the gate as a
    /// whole.
    fn group(&mut self, request_type: RequestType) -> Option<&mut Group> {
        self.types.get_mut(&request_type).or(self.rest.as_mut())
    }

    /// What the group of this type puts on all is told anew.
    fn tell(&mut self, now: Instant, request_type: RequestType) {
        let (whose, group) = match (self.types.get_mut(&request_type), &mut self.rest) {
            (Some(group), _) => (Some(request_type), group),
            (None, Some(group)) => (None, group),
            (None, None) => return,
        };
        let bound = (group.hold.bound_on_all(now, &self.all) * 1e3) as u64;
        self.bounds.remove(&(group.bound, whose));
        self.bounds.insert((bound, whose));
        (group.bound, group.told) = (bound, now);
    }

    /// The least bound that a group puts on all, and which that is. Groups that are gone for long put none.
    fn bound_by_groups(&mut self, now: Instant) -> Option<(f64, Whose)> {
        while let Some(&(bound, whose)) = self.bounds.first() {
            let binds = |group: &Group| group.present > 0 || now.since(group.told) <= BINDS;
            let group = match whose {
                Some(request_type) => self.types.get(&request_type),
                None => self.rest.as_ref(),
            };
            if group.is_some_and(binds) {
                return Some((bound as f64 / 1e3, whose));
            }
            self.bounds.pop_first();
        }
        None
    }
}

/// Whom the gate's own target is of: all, or those that are left where types have targets of their own.
fn goals(targets: &Targets) -> (Goal, Option<Goal>) {
    if targets.types.is_empty() {
        (targets.all, None)
    } else {
        (Goal::default(), Some(targets.all).filter(|goal| !goal.is_none()))
    }
}

impl Rule for Target {
    fn pass(&mut self, now: Instant, present: u32) {
        self.all.pass(now, present);
    }

    fn enter(&mut self, now: Instant, request_type: RequestType) {
        if let Some(group) = self.group(request_type) {
            group.pass(now);
            group.present += 1;
        }
    }

    fn leave(&mut self, now: Instant, request_type: RequestType) {
        if let Some(group) = self.group(request_type) {
            group.pass(now);
            group.present = group.present.saturating_sub(1);
        }
    }

    fn arrive(&mut self, now: Instant, it: Asked, present: u32, chance: &mut Chance) -> Option<TooMany> {
        let dither = chance.unit();
        let mut too_many = (!self.all.admits(now, it, present, dither)).then_some(TooMany::OfAll);
        if let Some(group) = self.group(it.request_type) {
            group.pass(now);
            let admits = group.hold.admits(now, it, group.present, dither);
            self.tell(now, it.request_type);
            too_many = (!admits).then_some(TooMany::OfItsOwn);
        }
        let (by_groups, whose) = match self.bound_by_groups(now) {
            Some((bound, whose)) => (bound.max(1.0), whose),
            None => (f64::INFINITY, None),
        };
        let of_all = match &mut self.rest {
            Some(rest) => rest.hold.bound(now),
            None => self.all.bound(now),
        };
        self.bound = of_all.min(by_groups);
        if too_many.is_none() && f64::from(present) + dither >= by_groups {
            let binding = whose.map_or(self.rest.as_mut(), |request_type| self.types.get_mut(&request_type));
            if let Some(group) = binding {
                group.hold.refuse_another(now, it.place);
            }
            too_many = Some(TooMany::OfAll);
        }
        too_many
    }

    fn are_held_together(&self, one: RequestType, other: RequestType) -> bool {
        one == other || !(self.types.contains_key(&one) || self.types.contains_key(&other))
    }

    fn complete(&mut self, now: Instant, it: Asked, response: Duration) {
        self.all.complete(now, response, it.judged);
        if let Some(group) = self.group(it.request_type) {
            group.pass(now);
            group.hold.complete(now, response, it.judged);
            self.tell(now, it.request_type);
        }
    }

    fn late_after(&self, request_type: RequestType) -> Option<Duration> {
        let group = self.types.get(&request_type).or(self.rest.as_ref());
        group.map_or(&self.all, |group| &group.hold).late_after()
    }

    fn be_late(&mut self, now: Instant, request_type: RequestType) {
        match self.group(request_type) {
            Some(group) => group.hold.be_late(now),
            None => self.all.be_late(now),
        }
    }

    fn is_missed(&self) -> bool {
        self.all.is_missed()
    }

    fn state(&self) -> Refusing {
        let hold = self.rest.as_ref().map_or(&self.all, |group| &group.hold);
        let bound = self.bound.is_finite().then_some(self.bound);
        Refusing { bound, is_out_of_reach: hold.is_out_of_reach(), ..Refusing::default() }
    }

    fn reach(&mut self, request_type: RequestType) -> Option<Reach> {
        let of = self.types.contains_key(&request_type).then_some(request_type);
        let changed = match self.group(request_type) {
            Some(group) => group.hold.has_changed_reach(),
            None => self.all.has_changed_reach(),
        };
        changed.map(|is_out| Reach { of, is_out })
    }

    fn target_of(&self, request_type: RequestType) -> Option<HeldTarget> {
        let group = self.types.get(&request_type)?;
        let bound = group.hold.last_bound();
        let bound = bound.is_finite().then_some(bound);
        let is_out_of_reach = group.hold.is_out_of_reach();
        Some(HeldTarget { goal: group.goal, present: group.present, bound, is_out_of_reach })
    }

    fn change(&mut self, policy: &Rejection, now: Instant) -> bool {
        let Rejection::Target(targets) = policy else { return false };
        let Self { all: before, rest, types, .. } = core::mem::replace(self, Self::new(targets, now));
        let (all, others) = goals(targets);
        // Those without a target of their own are mostly all, where nothing is known of them alone.
        let rest = rest.map_or_else(|| before.clone(), |group| group.end(now));
        self.rest = others.map(|goal| Group::new(goal, Some(rest), now));
        for (key, group) in types {
            if let Some(&goal) = targets.types.get(&key) {
                self.types.insert(key, Group::new(goal, Some(group.end(now)), now));
            }
        }
        self.all = before.with(all, Scope::All);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rejection::Place;
    use crate::work::Work;

    const MS: u64 = 1_000_000;
    const OWN: RequestType = RequestType(1);
    const OTHER: RequestType = RequestType(2);

    fn ms(ms: u64) -> Option<Duration> {
        Some(Duration::from_millis(ms))
    }

    fn targets(all: Goal, own: Goal) -> Targets {
        Targets { all, types: BTreeMap::from([(OWN, own)]) }
    }

    /// One after another is served in 10 ms each, of both types by turns.
    fn served(targets: &Targets, count: u64) -> (Target, Instant) {
        let mut target = Target::new(targets, Instant::ZERO);
        let mut now = Instant::ZERO;
        for at in 0..count {
            let request_type = [OWN, OTHER][at as usize % 2];
            let it = Asked {
                request_type,
                work: Work::from_nanos(10 * MS),
                place: Place::Taken,
                adds: f64::INFINITY,
                judged: false,
            };
            assert_eq!(target.arrive(now, it, 0, &mut Chance::new(at)), None);
            target.enter(now, request_type);
            now = Instant::from_nanos(now.as_nanos() + 10 * MS);
            target.pass(now, 1);
            target.complete(now, it, Duration::from_millis(10));
            target.leave(now, request_type);
        }
        (target, now)
    }

    #[test]
    fn a_type_with_a_target_of_its_own_is_out_of_the_gates() {
        let p95 = |time| Goal { mean: None, p95: ms(time) };
        let late_after = |own: Goal| {
            let target = Target::new(&targets(p95(100), own), Instant::ZERO);
            [OWN, OTHER].map(|request_type| target.late_after(request_type))
        };
        assert_eq!(late_after(p95(900)), [ms(900), ms(100)]);
        assert_eq!(late_after(Goal { mean: ms(50), p95: None }), [None, ms(100)]);
        let alone = Target::new(&Targets::p95(Duration::from_millis(100)), Instant::ZERO);
        assert_eq!([OWN, OTHER].map(|request_type| alone.late_after(request_type)), [ms(100), ms(100)]);
        assert!(alone.rest.is_none(), "without such a type the gate's target is of all");
    }

    #[test]
    fn who_is_held_together_is_of_one_type_or_has_no_target_of_its_own() {
        let goal = Goal { mean: ms(50), p95: None };
        let mut targets = targets(goal, goal);
        targets.types.insert(RequestType(3), goal);
        let target = Target::new(&targets, Instant::ZERO);
        let together = |one, other| target.are_held_together(RequestType(one), RequestType(other));
        assert!(together(1, 1) && together(2, 4));
        assert!(!(together(1, 3) || together(1, 2) || together(2, 3)));
    }

    #[test]
    fn other_targets_go_on_with_what_was_seen_and_owe_nothing() {
        let mean = |time| Goal { mean: ms(time), p95: None };
        let (mut target, now) = served(&targets(mean(150), mean(1)), 200);
        let drain = |target: &Target| {
            let groups = [&target.types[&OWN], target.rest.as_ref().expect("a target of the others")];
            groups.map(|group| group.hold.drain_rate(now))
        };
        let (before, owed) = (drain(&target), target.types[&OWN].hold.owed());
        let is_alike = |rates: [f64; 2]| rates.iter().all(|rate| (rate / 100.0 - 1.0).abs() < 0.05);
        assert!(is_alike(before), "{before:?}");
        assert!(owed > 0.0, "each took ten times its target");
        target.enter(now, OWN);
        assert!(target.change(&Rejection::Target(targets(mean(300), mean(1))), now));
        assert_eq!(target.types[&OWN].hold.owed(), owed, "the same target is owed the same");
        assert!(target.change(&Rejection::Target(targets(mean(300), mean(20))), now));
        assert!(is_alike(drain(&target)), "{:?}", drain(&target));
        assert_eq!(target.types[&OWN].hold.owed(), 0.0);
        assert_eq!(target.types[&OWN].present, 0, "who is present is told anew");
        assert!(target.change(&Rejection::Target(Targets { all: mean(300), types: BTreeMap::new() }), now));
        assert!(target.rest.is_none() && target.types.is_empty());
        assert!(!target.change(&Rejection::Nobody, now));
    }
}
