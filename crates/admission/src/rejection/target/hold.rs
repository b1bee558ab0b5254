//! Holding one target, of all requests or of some: how many of them may be present now.
//!
//! The law is in [`super`]; here are its state and its parameters, each with its reason.

use super::model;
use super::offered::Offered;
use crate::policy::Goal;
use crate::rejection::drain::Drain;
use crate::rejection::{Asked, Place};
use crate::time::{Duration, Instant};

/// The time constant of the feedback, in seconds: a debt is paid back in it, so that a step has settled
/// within five; much shorter, and what varies by itself is held down, which leaves the service idle.
const PATIENCE: f64 = 4.0;
/// The feedback multiplies the model's number by at most this. It is the credit of a calm time: near a load
/// of 1 calm and busy seconds must make the target together.
const TRIM_UP: f64 = 6.0;
/// The feedback divides the model's number by at most this. That is enough for a service at a third of its
/// speed until the drain rate has followed. After a stall little remains to be paid back.
const TRIM_DOWN: f64 = 3.0;
/// The fewest completions from which the drain rate is taken. Where a few pages take most of the work the
/// rate is within 13 % of the truth (with a coefficient of variation of 4 in the mix).
const REMEMBERED: f64 = 1_000.0;
/// The fewest seconds from which the drain rate is taken. Where long requests fill the place, short ones are
/// refused for seconds, and few complete. A rate that followed would refuse even more. Faster changes are for
/// the feedback.
const MEMORY: f64 = 10.0;
/// The number of arrivals from which the mean work is taken.
const MIX: f64 = 1_000.0;
/// How long after a refusal the target counts as what limits. Without one, too few late requests say nothing.
const LIMITS: Duration = Duration::from_secs(5);
/// A target is out of reach when its bound was too low for so long: the feedback has settled by then.
const SETTLES: Duration = Duration::from_secs(5 * PATIENCE as u64);
/// The initial ratio of the p95 to the mean. In a queue in order of arrival it is 1.2, for exponential times
/// 3.
const SPREAD: f64 = 2.0;
/// The ratio of the p95 to the mean may rise to this multiple of [`SPREAD`]. Where as many requests are long
/// as may be late, a few of the long ones must be in time. For these two or three present are too many.
const SPREAD_UP: f64 = 8.0;
/// The ratio of the p95 to the mean may fall to [`SPREAD`] divided by this, which is 1. With a mean above the
/// p95 a few requests would pay for all.
const SPREAD_DOWN: f64 = 2.0;
/// The share of late ones that is held, a twentieth below the 5 % that a p95 allows. Over a minute of 50
/// answers a second it varies by 0.2 %, and where few take a time near the target the p95 jumps with it.
const LATE: f64 = 0.0475;
/// How far one late request moves the logarithm of the spread at most. As long as all long ones are late,
/// fewer present change nothing, and what goes by in such a time is a credit of late ones: less of it with
/// larger steps. With 0.05 the share over a minute varies by 0.35 %, with 0.4 it swings.
const LATE_STEP: f64 = 0.15;
/// The most by which all answers of a second move the logarithm of the spread, for services that are fast.
const LATE_PACE: f64 = 7.5;
/// The p95 can't lower the bound so far that, by the model, the service idles for more than this part of the
/// time. This holds only while that many requests fit into half of the p95. At 1.2 times the service's
/// capacity, with as many long requests as may be late, a stricter bound would refuse a tenth of the work.
const IDLE: f64 = 0.1;
/// The model is asked anew when the offered load or what is asked has changed by this part.
const STALE: f64 = 0.05;

/// The requests whose target is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scope {
    /// All requests.
    All,
    /// Some of the requests, such as those of a type. If refusing these isn't enough, others are refused,
    /// too.
    Group,
}

/// The state of one target.
#[derive(Clone, Debug)]
pub(crate) struct Hold {
    scope: Scope,
    /// In seconds.
    mean: Option<f64>,
    p95: Option<f64>,
    drain: Drain,
    offered: Offered,
    /// The mean work of those that arrive, refused or not, in nanoseconds; and of how many.
    usual: f64,
    seen: f64,
    until: Instant,
    /// When a request was refused last.
    refused: Option<Instant>,
    /// When a request that is held to another target was last refused for this one.
    others_refused: Option<Instant>,
    /// Since when without a pause, and when last, the bound was below the number that the service works on at
    /// once. To refuse then is in vain.
    vain: Option<(Instant, Instant)>,
    /// Whether the target was out of reach when that was asked last.
    was_out: bool,
    /// When requests last took longer than the mean target on average.
    missed: Option<Instant>,
    /// By how much the response times of late are above the target, in request-seconds.
    debt: f64,
    /// The logarithm of how many times [`SPREAD`] the p95 is of the mean.
    spread: f64,
    answers: [Answer; 2],
    /// How many might be present when that was asked last.
    bound: f64,
}

/// One target by its mean.
#[derive(Clone, Copy, Debug)]
struct Held {
    /// A mean response time, in seconds.
    target: f64,
    /// How many requests would be present on average.
    allowed: f64,
    /// The logarithm of the divisor that the feedback applies to `allowed`.
    strain: f64,
}

impl Held {
    /// A request that adds less than this to the response times of all isn't refused. It falls to nothing at
    /// the largest debt: estimates may be wrong, and then only refusing pays the debt back.
    fn spared(&self) -> f64 {
        self.target * (1.0 - self.strain.max(0.0) / libm::log(TRIM_DOWN))
    }
}

/// What the model has said, and of what.
#[derive(Clone, Copy, Debug, Default)]
struct Answer {
    offered: f64,
    times: f64,
    per_time: f64,
}

impl Answer {
    fn ask(&mut self, offered: f64, times: f64) -> f64 {
        if !times.is_finite() {
            return times;
        }
        let is_near = |now: f64, then: f64| (now - then).abs() <= STALE * then;
        if !(is_near(offered, self.offered) && is_near(times, self.times)) {
            *self = Self { offered, times, per_time: model::bound(offered, times) / times.max(1e-9) };
        }
        self.per_time * times
    }
}

impl Hold {
    pub(crate) fn new(goal: Goal, scope: Scope, now: Instant) -> Self {
        Self {
            scope,
            mean: goal.mean.map(|mean| mean.as_secs_f64()),
            p95: goal.p95.map(|p95| p95.as_secs_f64()),
            drain: Drain::remembering(now, REMEMBERED, MEMORY),
            offered: Offered::new(now),
            usual: 0.0,
            seen: 0.0,
            until: now,
            refused: None,
            others_refused: None,
            vain: None,
            was_out: false,
            missed: None,
            debt: 0.0,
            spread: 0.0,
            answers: [Answer::default(); 2],
            bound: f64::INFINITY,
        }
    }

    /// Another target of the same requests, or of others much like them: what was seen of these stays; and
    /// if the target is the same, what they owe.
    pub(crate) fn with(self, goal: Goal, scope: Scope) -> Self {
        let new = Self::new(goal, scope, self.until);
        if (new.scope, new.mean, new.p95) == (self.scope, self.mean, self.p95) {
            return self;
        }
        let Self { drain, offered, usual, seen, .. } = self;
        Self { drain, offered, usual, seen, ..new }
    }

    /// Until now, `present` requests were present.
    pub(crate) fn pass(&mut self, now: Instant, present: u32) {
        self.drain.pass(now, present);
        let passed = now.since(self.until).as_secs_f64();
        self.until = now;
        self.owe(f64::from(present) * passed);
    }

    /// One was served in so long; whether that was late is told already, or not.
    pub(crate) fn complete(&mut self, now: Instant, response: Duration, judged: bool) {
        self.drain.complete(now);
        self.owe(-self.mean.unwrap_or(0.0));
        if let Some(p95) = self.p95.filter(|_| !judged) {
            self.spread(now, response.as_secs_f64() > p95);
        }
    }

    /// The age at which one who is present is late.
    pub(crate) fn late_after(&self) -> Option<Duration> {
        self.p95.and_then(|p95| Duration::try_from_secs_f64(p95).ok())
    }

    /// One who is present is late from now on.
    pub(crate) fn be_late(&mut self, now: Instant) {
        if self.p95.is_some() {
            self.spread(now, true);
        }
    }

    /// Time was spent by those who are present; or one has ended, for whom so much was allowed.
    fn owe(&mut self, seconds: f64) {
        let Some(mean) = self.mean else { return };
        let allowed = (self.drain.rate(self.until) * mean).max(1.0);
        let most = match self.scope {
            Scope::All => libm::log(TRIM_DOWN),
            Scope::Group => libm::log(TRIM_DOWN * allowed),
        };
        let unit = PATIENCE * allowed;
        self.debt = (self.debt + seconds).clamp(-unit * libm::log(TRIM_UP), unit * most);
        if self.debt > 0.0 {
            self.missed = Some(self.until);
        }
    }

    /// One was late, or not.
    fn spread(&mut self, now: Instant, late: bool) {
        let step = LATE_STEP.min(LATE_PACE / self.drain.rate(now));
        let moved = match late {
            true => step * (1.0 - LATE),
            false if self.limits(now) || is_recent(self.others_refused, now) => -step * LATE,
            false => 0.0,
        };
        self.spread = (self.spread + moved).clamp(-libm::log(SPREAD_DOWN), libm::log(SPREAD_UP));
    }

    fn limits(&self, now: Instant) -> bool {
        is_recent(self.refused, now)
    }

    /// Somebody who is held to another target is refused for this one: too few late ones are news then, too.
    pub(crate) fn refuse_another(&mut self, now: Instant, place: Place) {
        self.others_refused = Some(now);
        self.note_below(now, place);
    }

    /// The bound is below the number that is present, where the service has this room.
    fn note_below(&mut self, now: Instant, place: Place) {
        if place == Place::Own {
            let since = self.vain.filter(|&(_, last)| is_recent(Some(last), now));
            self.vain = Some((since.map_or(now, |(since, _)| since), now));
        }
    }

    /// One arrives that is expected to take so much. Whether it may join so many; `dither` is uniform from
    /// 0 to 1, so that a bound between two numbers is met on average.
    pub(crate) fn admits(&mut self, now: Instant, it: Asked, present: u32, dither: f64) -> bool {
        self.seen = (self.seen + 1.0).min(MIX);
        self.usual += (it.work.as_nanos() as f64 - self.usual) / self.seen;
        self.offered.arrive(now);
        let usual = self.drain.rate(now) * self.mean.or(self.p95).unwrap_or(f64::INFINITY);
        if f64::from(present) > usual && self.offered.surges() && !self.limits(now) {
            // Credit is for the bursts of a calm time.
            self.debt = self.debt.max(0.0);
        }
        if f64::from(present) + dither < self.bound(now).max(1.0) {
            return true;
        }
        let [mean, _] = self.held(self.drain.rate(now));
        let mean = mean.filter(|_| self.scope == Scope::All && self.p95.is_none());
        self.note_below(now, it.place);
        let lowers = |held: Held| it.place != Place::Taken || it.adds < held.spared();
        let admits = mean.is_some_and(lowers);
        if !admits {
            self.refused = Some(now);
        }
        admits
    }

    /// Whether fewer requests than the service works on at once are too many for the target. Fewer of them
    /// would take as long.
    pub(crate) fn is_out_of_reach(&self) -> bool {
        let lasts = |(since, last): (Instant, Instant)| last.since(since) >= SETTLES;
        self.vain.is_some_and(|vain| is_recent(Some(vain.1), self.until) && lasts(vain))
    }

    /// Whether it is, if that has changed since this was asked.
    pub(crate) fn has_changed_reach(&mut self) -> Option<bool> {
        let is_out = self.is_out_of_reach();
        (core::mem::replace(&mut self.was_out, is_out) != is_out).then_some(is_out)
    }

    /// How many requests may be present.
    pub(crate) fn bound(&mut self, now: Instant) -> f64 {
        self.bound = self.ask(now);
        self.bound
    }

    /// Whether requests take longer than the mean target on average, or did lately.
    pub(crate) fn is_missed(&self) -> bool {
        is_recent(self.missed, self.until)
    }

    /// The result of the last call of `bound`; infinite before the first.
    pub(crate) const fn last_bound(&self) -> f64 {
        self.bound
    }

    fn ask(&mut self, now: Instant) -> f64 {
        let rate = self.drain.rate(now);
        if !rate.is_finite() {
            return f64::INFINITY;
        }
        let offered = self.offered.rate(now) / rate;
        let times =
            |held: Option<Held>| held.map_or(f64::INFINITY, |held| held.allowed * libm::exp(-held.strain));
        let held = self.held(rate);
        let least = held[1].map_or(0.0, |held| model::busy(offered, IDLE).min(held.allowed));
        let [mean, p95] = held.map(times);
        let [by_mean, by_p95] = &mut self.answers;
        by_mean.ask(offered, mean).min(by_p95.ask(offered, p95).max(least))
    }

    /// The targets at this drain rate: by the mean, and by the p95.
    fn held(&self, rate: f64) -> [Option<Held>; 2] {
        let mean = self.mean.map(|mean| {
            let allowed = rate * mean;
            Held { target: mean, allowed, strain: self.debt / (PATIENCE * allowed.max(1.0)) }
        });
        let p95 = self.p95.map(|p95| {
            let target = p95 / SPREAD;
            Held { target, allowed: rate * target, strain: self.spread }
        });
        [mean, p95]
    }

    /// How many of *all* requests, whose state is `all`, may be present for the sake of this group's target.
    /// While refusing requests of the group is enough, this is many times what the model says. It comes
    /// nearer to that as the group's own bound nears one.
    pub(crate) fn bound_on_all(&self, now: Instant, all: &Self) -> f64 {
        let (own, rate) = (self.drain.rate(now), all.drain.rate(now));
        if !(own.is_finite() && rate.is_finite()) || self.usual <= 0.0 {
            return f64::INFINITY;
        }
        let offered = all.offered.rate(now) / rate;
        let bound = |held: Option<Held>| {
            held.map_or(f64::INFINITY, |held| {
                let alike = rate * held.target * all.usual / self.usual;
                model::bound(offered, alike * held.allowed.max(1.0) * libm::exp(-held.strain))
            })
        };
        let [mean, p95] = self.held(own);
        bound(mean).min(bound(p95))
    }
}

fn is_recent(refused: Option<Instant>, now: Instant) -> bool {
    refused.is_some_and(|refused| now.since(refused) <= LIMITS)
}

#[cfg(test)]
impl Hold {
    pub(super) fn drain_rate(&self, now: Instant) -> f64 {
        self.drain.rate(now)
    }

    pub(super) const fn owed(&self) -> f64 {
        self.debt
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::RequestType;
    use crate::work::Work;

    const MS: u64 = 1_000_000;
    const ASKED: Asked = Asked {
        request_type: RequestType(1),
        work: Work::from_nanos(20 * MS),
        place: Place::Taken,
        adds: f64::INFINITY,
        judged: false,
    };

    /// One server that takes 20 ms for each, in front of which a hold of this goal stands.
    struct Site {
        hold: Hold,
        now: u64,
        present: u32,
        /// When the one in service ends.
        ends: Option<u64>,
        arrived: std::collections::VecDeque<u64>,
        responses: std::vec::Vec<u64>,
        refused: u32,
    }

    impl Site {
        fn new(goal: Goal) -> Self {
            let hold = Hold::new(goal, Scope::All, Instant::ZERO);
            let (arrived, responses) = Default::default();
            Self { hold, now: 0, present: 0, ends: None, arrived, responses, refused: 0 }
        }

        fn pass_to(&mut self, now: u64) {
            self.hold.pass(Instant::from_nanos(now), self.present);
            self.now = now;
        }

        /// For so long, one arriving every so often.
        fn run(&mut self, millis: u64, gap: u64) {
            let end = self.now + millis * MS;
            let mut next = self.now + gap;
            while next < end {
                while let Some(ends) = self.ends.filter(|&ends| ends <= next) {
                    self.pass_to(ends);
                    let arrived = self.arrived.pop_front().expect("one in service");
                    self.present -= 1;
                    self.responses.push(ends - arrived);
                    self.hold.complete(
                        Instant::from_nanos(ends),
                        Duration::from_nanos(ends - arrived),
                        false,
                    );
                    self.ends = (self.present > 0).then_some(ends + 20 * MS);
                }
                self.pass_to(next);
                if self.hold.admits(Instant::from_nanos(next), ASKED, self.present, 0.5) {
                    self.present += 1;
                    self.arrived.push_back(next);
                    self.ends = self.ends.or(Some(next + 20 * MS));
                } else {
                    self.refused += 1;
                }
                next += gap;
            }
        }

        fn mean(&self, from: usize) -> f64 {
            let of = &self.responses[from..];
            of.iter().sum::<u64>() as f64 / of.len() as f64 / MS as f64
        }
    }

    fn mean(ms: u64) -> Goal {
        Goal { mean: Some(Duration::from_millis(ms)), p95: None }
    }

    #[test]
    fn a_step_to_ten_times_is_held_from_the_beginning() {
        let mut site = Site::new(mean(150));
        site.run(20_000, 40 * MS);
        assert_eq!(site.refused, 0);
        let before = site.responses.len();
        site.run(5_000, 2 * MS);
        assert!((site.mean(before) / 150.0 - 1.0).abs() < 0.3, "{}", site.mean(before));
        let settled = site.responses.len();
        site.run(60_000, 2 * MS);
        assert!((site.mean(settled) / 150.0 - 1.0).abs() < 0.05, "{}", site.mean(settled));
        let most = site.responses[before..].iter().max().expect("some") / MS;
        assert!(most < 600, "no overshoot: {most} ms");
    }

    #[test]
    fn credit_and_debt_are_bounded() {
        let mut site = Site::new(mean(150));
        site.run(3_600_000, 40 * MS);
        let allowed = site.hold.drain.rate(Instant::from_nanos(site.now)) * 0.15;
        assert!(site.hold.debt >= -PATIENCE * allowed * 1.9, "{} after an hour", site.hold.debt);
        site.pass_to(site.now + 3_600_000 * MS);
        site.hold.pass(Instant::from_nanos(site.now + 3_600_000 * MS), 8);
        assert!(site.hold.debt <= PATIENCE * 1.2 * allowed, "{} after a stall", site.hold.debt);
    }

    #[test]
    fn a_p95_is_held_by_the_share_of_late_ones() {
        let p95 = Duration::from_millis(150);
        let mut site = Site::new(Goal { mean: None, p95: Some(p95) });
        site.run(20_000, 3 * MS);
        let settled = site.responses.len();
        site.run(60_000, 3 * MS);
        let late = site.responses[settled..].iter().filter(|&&took| took > 150 * MS).count() as f64
            / (site.responses.len() - settled) as f64;
        assert!((0.02..0.08).contains(&late), "{late}");
    }

    #[test]
    fn nobody_is_refused_where_nobody_is() {
        let mut hold = Hold::new(mean(1), Scope::All, Instant::ZERO);
        hold.pass(Instant::from_nanos(1_000 * MS), 5);
        assert!(!hold.admits(Instant::from_nanos(1_000 * MS), ASKED, 1, 0.999));
        assert!(hold.admits(Instant::from_nanos(1_000 * MS), ASKED, 0, 0.999));
    }
}
