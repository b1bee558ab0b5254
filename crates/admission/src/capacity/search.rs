//! Ours, the default: a free rise in bursts, and comparisons where saturation lasts.
//!
//! **Idea.** Neither a response time nor a processor's utilization shows that a service does too much at
//! once. What counts is the work of the requests that are answered in a second. An answer to a client that
//! has left counts as nothing. There are two cases:
//!
//! * *A burst.* Requests wait, but not yet for [`LASTS`] and [`MANY`] answers. The bound rises after each
//!   stretch: twofold while each step gains half of what it could, else by [`CLIMB`]. A rise needs no
//!   proof, up to [`FAR`] times the number that no larger one has surely beaten; then it falls back to
//!   [`NEAR`] times. Only a huge loss against the best stretch ends it, in work as well as in answers,
//!   and the bound returns to where the best was. That number is a ceiling until the loss is made up for.
//! * *Saturation that lasts.* The bound A is compared with one other number B at a time, in stretches A B A
//!   B … Each pair gives ln B − (ln A + ln A′)/2, and the mean of the pairs is judged. Its error is the
//!   larger of two: the spread of the pairs, and the noise of the counts. A larger number must gain 2 % at
//!   three errors. A smaller one also stands if all steps down together lose less than 2 %, at an error
//!   below 2 %: the order of the queue has more to choose from then. A huge difference is believed at once.
//!   The other number is the one from before the burst, or a step of [`STEP`] down or up, or at times a
//!   short look at 2, 4, 8 … or 1. A look crosses valleys, and frees a service that recovers only when it
//!   has little to do. The number from before the burst follows it at once: what is free now may serve that.
//!
//! A request that is refused for a target counts as one that waits. The search then starts from the number
//! in flight, since the bound isn't reached.
//!
//! **When it fails.** A burst may reach a cliff from which no smaller number leads back, within [`FAR`].
//! A peak narrower than a factor of two behind a valley is missed. A service whose speed swings in the
//! rhythm of the comparison deceives it. At a few requests a second a comparison takes minutes. Where
//! fewer than [`UNIT`] requests end, as where all are long, nothing rises.

mod stretch;

use crate::moments::Moments;
use crate::outside::{Control, Sample};
use crate::time::{Duration, Instant};
use stretch::{HUGE, SURE, Stretch, Yield};

/// The search begins with this bound.
const START: u32 = 8;
/// A stretch has at least this many completions, and at least as many as may be in flight.
const UNIT: u32 = 16;
/// A look is worth a move if it gains this logarithm (a factor of 1.2).
const LOOK: f64 = 0.18;
/// Two numbers are alike if this logarithm is more than the loss, and more than its error.
const ALIKE: f64 = 0.02;
/// Saturation counts as lasting when requests have waited for this many seconds, with [`MANY`] answers
/// meanwhile.
const LASTS: f64 = 3.0;
/// Saturation counts as lasting only if this many requests were answered while others waited.
const MANY: u32 = 200;
/// A step of the search is by this factor, and every other time by its root.
const STEP: f64 = 1.5;
/// A burst whose last step gained little goes on by this factor.
const CLIMB: f64 = 1.25;
/// A stretch of a burst is better than the best one beyond this many standard errors.
const BETTER: f64 = 2.0;
/// A burst rises up to this multiple of the number that no larger one has surely beaten.
const FAR: u32 = 4;
/// From there it falls back to this multiple.
const NEAR: u32 = 2;
/// A comparison has at most this many pairs.
const PAIRS_MAX: f64 = 24.0;
/// The stretches of a comparison become at most this many times as long as the first.
const GROWTH_MAX: u32 = 16;
/// A kind of step that gained nothing rests for this time at first, and for twice as long each time.
const REST: Duration = Duration::from_secs(1);
/// No rest is longer than this.
const REST_MAX: Duration = Duration::from_secs(120);
/// A rest makes up for what the step lost this many times, so that looks lose 2 % of what is answered.
const WORTH: u32 = 50;
/// A bound counts as in force, a wait as saturation, and a burst as a new one after this time at the latest.
const LATEST: Duration = Duration::from_secs(10);
/// A comparison's stretch with few completions ends after this time, or a multiple of it.
const SLOW: Duration = Duration::from_nanos(LATEST.as_nanos() as u64 / 3);
/// No stretch of a comparison is shorter than this.
const SHORTEST: Duration = Duration::from_millis(100);

/// The other number of a comparison: the one from before the burst, few for a moment, or a step away.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Way {
    #[default]
    Former,
    Look,
    Down,
    Up,
}

/// A comparison of the bound with another number.
#[derive(Clone, Debug, Default)]
struct Trial {
    way: Way,
    other: u32,
    /// The last stretch under the bound, and the one under the other number since.
    before: Yield,
    there: Option<Yield>,
    /// The differences of the pairs, and the sum of their noise.
    differences: Moments,
    noise: f64,
    /// How long the other number was in force.
    away: Duration,
}

impl Trial {
    /// A pair of stretches ends with `here`, under the bound.
    fn add(&mut self, there: Yield, here: Yield) {
        let before = core::mem::replace(&mut self.before, here);
        self.differences.add(there.rate - f64::midpoint(before.rate, here.rate));
        self.noise += there.noise + (before.noise + here.noise) / 4.0;
    }

    /// The mean difference, its error by the noise of the counts, and by the spread of three pairs or more.
    fn result(&self) -> (f64, f64, Option<f64>) {
        let Moments { count, sum, .. } = self.differences;
        (sum / count, libm::sqrt(self.noise) / count, (count >= 3.0).then(|| self.differences.error()))
    }
}

/// The best stretch of a burst.
#[derive(Clone, Copy, Debug)]
struct Best {
    bound: u32,
    end: Yield,
    /// The longest turn of a best stretch so far ([`Stretch::turn`]).
    turn: f64,
    at: Instant,
}

#[derive(Clone, Debug, Default)]
enum Phase {
    /// A burst: its best and its last stretch, and the factor of the last step.
    Rising {
        best: Option<Best>,
        last: Option<Yield>,
        step: f64,
    },
    /// Saturation lasts, and the bound is measured before a comparison.
    #[default]
    Watching,
    Trying(Trial),
}

const RISING: Phase = Phase::Rising { best: None, last: None, step: 2.0 };

/// When a kind of step is due again.
#[derive(Clone, Copy, Debug, Default)]
struct Due {
    at: Instant,
    tries: u32,
}

impl Due {
    fn now(now: Instant) -> Self {
        Self { at: now, tries: 0 }
    }

    /// The step gained nothing, and `lost` is the time that it cost.
    fn rest(&mut self, now: Instant, lost: Duration) {
        let rest = REST.saturating_mul(1 << self.tries.min(10));
        self.at = now.after(rest.max(lost.saturating_mul(WORTH)).min(REST_MAX));
        self.tries += 1;
    }

    fn step(&self) -> f64 {
        if self.tries % 2 == 0 { STEP } else { libm::sqrt(STEP) }
    }
}

/// The state of the search.
#[derive(Debug, Default)]
pub(crate) struct Search {
    top: u32,
    /// The number found, the number that is in force now, and the number found before the burst.
    bound: u32,
    in_force: u32,
    former: u32,
    phase: Phase,
    stretch: Stretch,
    /// For how many seconds requests have waited (at most [`LATEST`]), and how many were answered meanwhile.
    waited: f64,
    answered: u32,
    /// When a burst may rise beyond `ceiling` again, and when each kind of comparison is due.
    rise: Due,
    ceiling: u32,
    look: Due,
    down: Due,
    up: Due,
    /// The last look was at 2 to this power.
    octave: u32,
    /// The logarithm that steps down have lost since the last gain.
    given_up: f64,
    trials: u64,
    now: Instant,
    in_flight: u32,
    waits: bool,
    /// When a request was refused last for a target.
    refused: Option<Instant>,
    gain: Option<f64>,
    held: bool,
}

impl Search {
    /// Up to `top`.
    pub(crate) fn new(top: u32) -> Self {
        let start = START.min(top);
        let numbers =
            Self { top, bound: start, in_force: start, former: start, ceiling: top, ..Self::default() };
        Self { phase: RISING, stretch: Stretch::new(Instant::ZERO, 0), ..numbers }
    }

    fn pass(&mut self, now: Instant) {
        let passed = now.since(self.now).as_secs_f64();
        self.now = now;
        if self.waits {
            self.waited = (self.waited + passed).min(LATEST.as_secs_f64());
            if self.stretch.unsettled == 0 {
                self.stretch.seconds += passed;
                self.stretch.in_flight += passed * f64::from(self.in_flight);
            }
        } else if self.waited > 0.0 {
            self.waited -= 4.0 * passed;
            if self.waited <= 0.0 {
                self.calm_down(now);
            }
        }
    }

    /// Saturation is over, and the next burst may rise. It knows the best of a burst a moment ago.
    fn calm_down(&mut self, now: Instant) {
        (self.waited, self.answered, self.octave) = (0.0, 0, 0);
        if let Phase::Trying(Trial { way: Way::Up, other, .. }) = self.phase
            && self.in_force == other
        {
            self.bound = other;
        }
        self.phase = match self.phase {
            Phase::Rising { best: Some(best), .. } if now.since(best.at) < LATEST => {
                Phase::Rising { best: Some(best), last: Some(best.end), step: 2.0 }
            }
            _ => RISING,
        };
        self.put(now, self.bound);
    }

    fn put(&mut self, now: Instant, most: u32) {
        let unsettled = if most == self.in_force { 0 } else { most };
        self.in_force = most;
        self.stretch = Stretch::new(now, unsettled);
    }

    fn step(&mut self, now: Instant) {
        if self.stretch.unsettled > 0 {
            let since = now.since(self.stretch.began);
            if since >= LATEST || since >= SLOW && self.in_flight <= self.in_force {
                self.stretch = Stretch::new(now, 0);
            }
            return;
        }
        if !self.waits {
            return;
        }
        let lasts = self.waited >= LASTS && self.answered >= MANY || self.waited >= LATEST.as_secs_f64();
        match &self.phase {
            Phase::Rising { .. } if lasts => {
                self.phase = Phase::Watching;
                self.stretch = Stretch::new(now, 0);
            }
            Phase::Rising { .. } => self.rise(now),
            Phase::Watching if self.is_over(now, 1) => self.choose(now),
            Phase::Trying(trial) if self.is_over(now, trial.differences.count as u32 + 1) => {
                self.compare(now);
            }
            Phase::Watching | Phase::Trying(_) => {}
        }
    }

    /// Whether a stretch of `times` the usual length is over.
    fn is_over(&self, now: Instant, times: u32) -> bool {
        let times = times.min(GROWTH_MAX);
        let long = now.since(self.stretch.began);
        let enough = UNIT.max(self.in_force).saturating_mul(times);
        self.stretch.answers.count >= f64::from(enough) && long >= SHORTEST
            || long >= SLOW.saturating_mul(times)
    }

    /// A burst goes on when its stretch is over. A huge loss ends it as soon as a turn would have ended.
    fn rise(&mut self, now: Instant) {
        let Phase::Rising { best, last, step } = &mut self.phase else { return };
        let Stretch { busy, seconds, began, .. } = self.stretch;
        let enough = if *step >= 2.0 { UNIT.max(self.in_force) } else { (4 * UNIT).max(2 * self.in_force) };
        let are_few = busy.count < f64::from(enough);
        // What began together ends together: a stretch lasts until what was in flight in it makes up for what
        // ended (Little), or it would show too much.
        let is_short = busy.sum > self.stretch.in_flight;
        let is_late =
            best.is_some_and(|best| seconds >= best.turn * f64::from(self.bound) / f64::from(best.bound));
        if self.in_flight < self.in_force || (are_few || is_short) && !is_late {
            return;
        }
        let here = self.stretch.measure();
        if let Some(best) = *best
            && self.bound > best.bound
            && here.is_hugely_below(&best.end)
        {
            return self.fall_back(now, best, best.bound, now.since(began));
        }
        if are_few {
            return;
        }
        let error = |best: &Best| libm::sqrt(here.noise + best.end.noise);
        if best.is_none_or(|best| here.rate - best.end.rate > BETTER * error(&best)) {
            let turn = best.map_or(0.0, |best| best.turn).max(self.stretch.turn());
            *best = Some(Best { bound: self.bound, end: here, turn, at: now });
        }
        // Half of what the step would gain if each more were served beside the others.
        let gains = last.is_none_or(|last| here.rate - last.rate > libm::log(*step) / 2.0);
        (*last, *step) = (Some(here), if gains { 2.0 } else { CLIMB });
        if self.bound > 2 * self.ceiling {
            self.rise = Due::now(now);
        }
        let far = best.map_or(self.top, |best| best.bound.saturating_mul(FAR));
        if let Some(best) = *best
            && self.bound >= far
        {
            return self.fall_back(now, best, best.bound.saturating_mul(NEAR), Duration::ZERO);
        }
        let most = if now < self.rise.at { self.ceiling.max(self.bound) } else { self.top };
        self.bound = larger(self.bound, *step).min(most).min(far).min(self.top);
        self.in_force = self.bound;
        // The next stretch begins at once: if the service becomes slower, that is seen soon enough.
        self.stretch = Stretch::new(now, 0);
    }

    /// A rise ends, and `bound` is its ceiling for a while.
    fn fall_back(&mut self, now: Instant, best: Best, bound: u32, lost: Duration) {
        (self.bound, self.ceiling) = (bound, bound);
        self.rise.rest(now, lost);
        self.phase = Phase::Rising { best: Some(best), last: Some(best.end), step: CLIMB };
        self.put(now, self.bound);
    }

    /// Saturation lasts, and the bound was measured: it is compared with another number if one is due.
    fn choose(&mut self, now: Instant) {
        let before = self.stretch.measure();
        let mean = self.stretch.in_flight / self.stretch.seconds.max(1e-9);
        let is_reached = mean >= 0.75 * f64::from(self.bound);
        let level = if is_reached { self.bound } else { (libm::round(mean) as u32).max(1) };
        self.stretch = Stretch::new(now, 0);
        if self.held {
            return;
        }
        let lower = smaller(level, self.down.step());
        let higher = larger(self.bound, self.up.step()).min(self.top);
        let (way, other) = if self.look.at <= now && level > 2 {
            // The first look is at two: what is freed by few is mostly freed by two.
            let octaves = 31 - (level - 1).leading_zeros();
            self.octave = (self.octave + 1) % octaves;
            (Way::Look, 1 << self.octave)
        } else if self.former < level {
            (Way::Former, self.former)
        } else if self.down.at <= now && lower < level {
            (Way::Down, lower)
        } else if self.up.at <= now && higher > self.bound && level == self.bound {
            (Way::Up, higher)
        } else {
            return;
        };
        self.begin(way, other, before);
    }

    fn begin(&mut self, way: Way, other: u32, before: Yield) {
        self.trials += 1;
        self.phase = Phase::Trying(Trial { way, other, before, ..Trial::default() });
    }

    /// A stretch of a comparison has ended.
    fn compare(&mut self, now: Instant) {
        let here = self.stretch.measure();
        let bound = self.bound;
        let Phase::Trying(trial) = &mut self.phase else { return };
        let other = trial.other;
        if self.in_force == other {
            trial.away = trial.away.saturating_add(now.since(self.stretch.began));
            let difference = here.rate - trial.before.rate;
            let error = libm::sqrt(here.noise + trial.before.noise);
            if trial.way == Way::Look {
                let (before, gains) = (trial.before, difference > LOOK.max(2.0 * error));
                self.conclude(now, gains, difference);
                // Few may have freed the service for the number from before the burst.
                if !gains && (other + 1..bound).contains(&self.former) {
                    self.begin(Way::Former, self.former, before);
                    self.put(now, self.former);
                }
                return;
            }
            if difference.abs() > HUGE.max(SURE * error) {
                return self.conclude(now, difference > 0.0, difference);
            }
            trial.there = Some(here);
            return self.put(now, bound);
        }
        let Some(there) = trial.there.take() else {
            trial.before = here;
            return self.put(now, other);
        };
        trial.add(there, here);
        let (mean, chance, spread) = trial.result();
        let error = spread.map_or(f64::INFINITY, |spread| spread.max(chance));
        let is_lower = other < bound;
        let is_over = mean.abs() > HUGE.max(SURE * chance)
            || mean.abs() > SURE * error && (mean.abs() > ALIKE || is_lower)
            || error < ALIKE
            || trial.differences.count >= PAIRS_MAX;
        if !is_over {
            return self.put(now, other);
        }
        // A step up behind one that gained is likely to gain as well.
        let sure = if trial.way == Way::Up && self.up.tries == 0 { BETTER } else { SURE };
        let gains = mean > ALIKE && mean > sure * chance.max(spread.unwrap_or(0.0));
        let is_alike = is_lower && error < ALIKE && mean > self.given_up - ALIKE;
        if gains {
            self.given_up = 0.0;
        } else if is_alike {
            self.given_up += (-mean).max(0.0);
        }
        self.conclude(now, gains || is_alike, mean);
    }

    fn conclude(&mut self, now: Instant, accepted: bool, difference: f64) {
        let Phase::Trying(trial) = core::mem::replace(&mut self.phase, Phase::Watching) else { return };
        if accepted {
            self.bound = trial.other;
            self.gain = Some(libm::exp(difference) - 1.0);
            (self.down, self.up) = (Due::now(now), Due::now(now));
            match trial.way {
                Way::Up => self.down.at = now.after(REST),
                Way::Down | Way::Former => self.up.at = now.after(REST),
                Way::Look => self.given_up = 0.0,
            }
        } else {
            let lost = trial.away.mul_f64((1.0 - libm::exp(difference)).clamp(0.0, 1.0));
            match trial.way {
                Way::Up => self.up.rest(now, lost),
                Way::Down => self.down.rest(now, lost),
                Way::Look => self.look.rest(now, lost),
                Way::Former => {}
            }
        }
        if trial.way != Way::Look || accepted {
            self.former = self.bound;
        }
        self.put(now, self.bound);
    }
}

fn larger(bound: u32, step: f64) -> u32 {
    (libm::round(f64::from(bound) * step) as u32).max(bound + 1)
}

fn smaller(bound: u32, step: f64) -> u32 {
    (libm::round(f64::from(bound) / step) as u32).min(bound.saturating_sub(1)).max(1)
}

impl Control for Search {
    fn most(&self) -> u32 {
        self.in_force
    }

    fn observe(&mut self, now: Instant, in_flight: u32, waited_for: bool) {
        self.pass(now);
        let refused = self.refused.is_some_and(|at| now.since(at) < REST);
        (self.in_flight, self.waits) = (in_flight, waited_for || refused);
        self.step(now);
    }

    fn complete(&mut self, now: Instant, sample: &Sample) {
        self.pass(now);
        let stretch = &mut self.stretch;
        if stretch.unsettled > 0 {
            // A lower bound isn't in force before enough of those begun under another one have ended.
            if sample.in_flight <= self.in_force {
                stretch.unsettled -= 1;
                if stretch.unsettled == 0 {
                    *stretch = Stretch::new(now, 0);
                }
            }
        } else if self.waits {
            stretch.last = sample.work;
            stretch.busy.add(sample.upstream_time.as_secs_f64());
            if sample.answered {
                self.answered = self.answered.saturating_add(1);
                stretch.answers.add(sample.work);
            }
        }
    }

    fn refuse(&mut self, now: Instant) {
        self.refused = Some(now);
    }

    fn begin_with(&mut self, found: u32) {
        let found = found.clamp(1, self.top);
        (self.bound, self.in_force, self.former) = (found, found, found);
    }

    fn set_top(&mut self, top: u32) {
        self.top = top;
        if self.bound > top || self.in_force > top {
            self.bound = self.bound.min(top);
            self.former = self.former.min(top);
            self.phase = RISING;
            self.put(self.now, self.bound);
        }
    }

    fn found(&self) -> u32 {
        self.bound
    }

    fn gain(&self) -> Option<f64> {
        self.gain
    }

    fn hold(&mut self, held: bool) {
        self.held = held;
    }

    fn is_comparing(&self) -> bool {
        matches!(self.phase, Phase::Trying(_))
    }

    fn trial(&self) -> u64 {
        self.trials
    }
}
