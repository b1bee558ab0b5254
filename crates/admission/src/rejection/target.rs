//! Ours: holds a response time, its mean or its p95, by bounding how many are present.
//!
//! **Idea.** Present are those who wait and those whom the service is busy with. By Little's law their number is the rate
//! of completions times the mean response time, whatever the order of service: T = N/X. So to bound N is to hold T, and
//! N is known now, where response times are known when it is too late. Who would be one too many is refused on arrival,
//! whatever it would take itself: every type is refused alike. Refusing what is expensive first would hold the mean with
//! fewer refusals, and starve those who ask for it; a type that should pay for itself gets a target of its own.
//!
//! **Formula.** N ≤ K = K(ρ, X T_ref e^(−d)), with a fraction of a place granted by chance.
//!
//! * *Feed-forward*: K(ρ, r) is how many an M/GI/1 processor-sharing queue may hold so that the mean response is r service
//!   times (`model.rs`); X is the drain rate while there is something to drain, ρ = λ/X the offered load, of refused ones
//!   too, which sees a step within 24 arrivals (`offered.rs`). Below saturation K is far away.
//! * *Feedback*: d = D/(4 s · X T_ref), where the debt
//!
//! ```text
//! D = ∫ N dt − T_ref · (completions)
//! ```
//!
//!   is the sum, over all requests, of what their response times are above the target, *those who haven't ended included
//!   with their age*: the integral of the error, exact and without delay. Held bounded, it makes the mean the target's.
//! * *Anti-windup*: D is within −ln 6 and +ln 3 (times 4 s · X T_ref): the credit of a calm night lasts for seconds of a
//!   burst, the debt of a stall is paid back in seconds. A surge takes the credit away at once.
//! * *p95*: K(ρ, X T_95/q); each late one raises ln q by 0.9525 steps, each answer in time lowers it by 0.0475, so that it
//!   stands still where 4.75 % are late, a twentieth fewer than are allowed. Who waits or is served is late as soon as its
//!   age is T_95, not when it ends, if ever: behind a long lane everybody in it may be late while short ones pass. q
//!   is from 1 to 16; but K isn't below what keeps the service busy for nine tenths of the time by the model, as far as that
//!   fits into half of T_95. With a
//!   mean, too, the smaller bound holds.
//!
//! **Targets of types.** The same, with the type's own N, X, λ and D: first its own are refused. Where others take the
//! service's time that isn't enough: its own bound nears one, and its debt grows. So each type also bounds everybody, by what
//! the model says of all if they are slowed down alike (T_ref times their mean work over its own), times X T_ref e^(−d) of the
//! type itself: far away while its own bound is large, and binding as that nears one. A type's target is the most
//! that it takes; one who shares the service with a stricter one stays below its own.
//!
//! **Source.** Ours. The model and p* = (1 − E\[X\]/T_ref)/(λ E\[X\]) are Yaksha's; refusing beyond a bound instead of at random
//! keeps the service busy for nearly all of the time, where random refusal leaves it idle for E\[X\]/T_ref of it.
//!
//! **Parameters** stand in `hold.rs` and `offered.rs`, each with its reason; the operator states the target alone.
//!
//! **When it fails.** A target below what a service takes when it is idle can't be held: everybody but one is refused. What
//! varies for longer than the credit lasts (pages that take most of the work and come in clusters) looks like overload for
//! seconds, and up to 0.6 % are refused at a load of 0.7 that a patient eye wouldn't refuse (coefficient of
//! variation 4; none at 0.5). Where the target is less than about five service times the service can't be busy and
//! the target be held at loads near 1, by anybody. The mean may hide who pays it: under shortest first a long request
//! waits for seconds within a mean of 150 ms. Where about as many requests are long as may be late, the p95 of a minute jumps
//! between what the short ones take and what the long ones take, with the share of long ones that came; what is held is
//! that it is hardly ever far above the target, and it is mostly below. The p95 of a type is judged when its requests end. A transaction whose client thinks is not present meanwhile.

mod hold;
mod model;
mod offered;

use alloc::collections::{BTreeMap, BTreeSet};

use super::{Asked, Refuse};
use crate::action::Reason;
use crate::chance::Chance;
use crate::policy::Targets;
use crate::request::RequestType;
use crate::snapshot::Refusing;
use crate::time::{Duration, Instant};
use hold::{Hold, Scope};

/// For so long after a type's last event its target binds others.
const BINDS: Duration = Duration::from_secs(5);

/// The targets in force.
#[derive(Debug)]
pub(crate) struct Target {
    all: Hold,
    types: BTreeMap<RequestType, OfType>,
    /// The bounds that types put on all, in thousandths of a request, the least first.
    bounds: BTreeSet<(u64, RequestType)>,
    bound: f64,
}

/// The target of one type.
#[derive(Debug)]
struct OfType {
    hold: Hold,
    present: u32,
    /// What it puts on all, as in [`Target::bounds`].
    bound: u64,
    told: Instant,
}

impl OfType {
    fn pass(&mut self, now: Instant) {
        self.hold.pass(now, self.present);
    }
}

impl Target {
    pub(crate) fn new(targets: &Targets, now: Instant) -> Self {
        let of_type =
            |goal| OfType { hold: Hold::new(goal, Scope::Type, now), present: 0, bound: u64::MAX, told: now };
        Self {
            all: Hold::new(targets.all, Scope::All, now),
            types: targets.types.iter().map(|(&key, &goal)| (key, of_type(goal))).collect(),
            bounds: BTreeSet::new(),
            bound: f64::INFINITY,
        }
    }

    /// What this type puts on all is told anew.
    fn tell(&mut self, now: Instant, request_type: RequestType) {
        let Some(known) = self.types.get_mut(&request_type) else { return };
        let bound = (known.hold.bound_on_all(now, &self.all) * 1e3) as u64;
        self.bounds.remove(&(known.bound, request_type));
        self.bounds.insert((bound, request_type));
        (known.bound, known.told) = (bound, now);
    }

    /// The least bound that a type puts on all. Types that are gone for long put none.
    fn bound_by_types(&mut self, now: Instant) -> f64 {
        while let Some(&(bound, request_type)) = self.bounds.first() {
            let binds = |known: &OfType| known.present > 0 || now.since(known.told) <= BINDS;
            if self.types.get(&request_type).is_some_and(binds) {
                return bound as f64 / 1e3;
            }
            self.bounds.pop_first();
        }
        f64::INFINITY
    }
}

impl Refuse for Target {
    fn pass(&mut self, now: Instant, present: u32) {
        self.all.pass(now, present);
    }

    fn enter(&mut self, now: Instant, request_type: RequestType) {
        if let Some(known) = self.types.get_mut(&request_type) {
            known.pass(now);
            known.present += 1;
        }
    }

    fn leave(&mut self, now: Instant, request_type: RequestType) {
        if let Some(known) = self.types.get_mut(&request_type) {
            known.pass(now);
            known.present = known.present.saturating_sub(1);
        }
    }

    fn arrive(&mut self, now: Instant, it: Asked, present: u32, chance: &mut Chance) -> Option<Reason> {
        let dither = chance.unit();
        let mut admits = self.all.admits(now, it.work, present, dither);
        if let Some(known) = self.types.get_mut(&it.request_type) {
            known.pass(now);
            admits &= known.hold.admits(now, it.work, known.present, dither);
            self.tell(now, it.request_type);
        }
        let by_types = self.bound_by_types(now).max(1.0);
        self.bound = self.all.bound(now).min(by_types);
        admits &= f64::from(present) + dither < by_types;
        (!admits).then_some(Reason::Target)
    }

    fn complete(&mut self, now: Instant, it: Asked, response: Duration) {
        self.all.complete(now, response, it.judged);
        if let Some(known) = self.types.get_mut(&it.request_type) {
            known.pass(now);
            known.hold.complete(now, response, false);
            self.tell(now, it.request_type);
        }
    }

    fn late_after(&self) -> Option<Duration> {
        self.all.late_after()
    }

    fn be_late(&mut self, now: Instant) {
        self.all.be_late(now);
    }

    fn state(&self) -> Refusing {
        Refusing { bound: self.bound.is_finite().then_some(self.bound), ..Refusing::default() }
    }
}
