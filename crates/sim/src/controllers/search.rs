//! Ours, in the laboratory only so far: in a burst the bound rises freely, and where saturation lasts numbers are compared.
//! It is to replace `auto` (`auto.rs`); decision 0238 says what it reaches and what it lacks.
//!
//! **Idea.** Neither a response time nor a processor's utilization tells that a service does too much at once. What counts is
//! the work of requests that are answered in a second; an answer to a client that has left counts as nothing. Two questions:
//!
//! * *A burst.* Requests wait, but not yet for [`LASTS`] and [`MANY`] completions. The bound rises after each stretch: twofold
//!   while each step gains half of what it could, else by [`CLIMB`]. Nothing has to be proved. Only a huge loss against the
//!   best stretch ends the rise: the bound returns there, which is then a ceiling until the loss is made up for [`WORTH`] times.
//! * *Saturation that lasts.* The bound is compared with one other number at a time, A B A B … A (A is the bound). The mean of
//!   ln B − (ln A + ln A′)/2 over the pairs is judged. Its error is the larger of the pairs' spread and of the counts' noise.
//!   A larger number must gain 2 % at three errors. A smaller one also stands if all of its steps together lose less than 2 %
//!   at an error below 2 %: the order of the queue has more to choose from then. A huge difference is believed at once.
//!   The numbers are: what stood before the burst, a step of [`STEP`] down or up, and a short look at 2, 4, 8 …, 1 in turn.
//!   A look crosses valleys, and frees a service that recovers only when it has little to do.
//!
//! Refused for a target counts as waiting. Then the search starts from what is in flight, as the bound isn't reached.
//!
//! **When it fails.** A cliff from which no smaller number leads back is met by a burst that reaches it. A peak narrower than a
//! factor of two behind a valley is missed. A speed that swings with the comparison's rhythm deceives it. With fewer than
//! some requests a second a comparison takes minutes. Where fewer than [`UNIT`] end, as where all are long, nothing rises.

use admission::{Control, Duration, Instant, Sample};

/// Where it begins.
const START: u32 = 8;
/// A stretch has so many completions at least, or as many as may be in flight.
const UNIT: u32 = 16;
/// ln 1.6: a loss or a gain that is believed after one stretch.
const HUGE: f64 = 0.47;
/// So many standard errors are beyond chance.
const SURE: f64 = 3.0;
/// What may be lost, and an error that tells so.
const ALIKE: f64 = 0.02;
/// Saturation lasts when requests have waited for so long, and so many were completed meanwhile.
const LASTS: f64 = 3.0;
const MANY: u32 = 200;
/// A step of the search.
const STEP: f64 = 1.5;
/// A burst that gains nothing goes on in steps of this.
const CLIMB: f64 = 1.25;
/// The most pairs of a comparison; and so many times as long as the first a stretch may become.
const PAIRS_MAX: u32 = 24;
const GROWTH_MAX: u32 = 16;
/// What nothing came of rests for so long at first, twice as long each time, until
const REST: Duration = Duration::from_secs(1);
const REST_MAX: Duration = Duration::from_secs(120);
/// What a look lost is made up for so many times, so that looks lose 2 %.
const WORTH: u32 = 50;
/// A bound is put in force, and a stretch ends, after this time at the latest.
const LATEST: Duration = Duration::from_secs(10);
const SHORTEST: Duration = Duration::from_millis(100);

/// What is completed under one bound, while others wait.
#[derive(Clone, Debug)]
struct Stretch {
    began: Instant,
    /// So many are still to end before it is measured.
    left: u32,
    seconds: f64,
    count: u32,
    ended: u32,
    work: f64,
    squares: f64,
    /// What the last one would count for.
    last: f64,
    in_flight: f64,
}

#[derive(Clone, Copy, Debug)]
struct Yield {
    rate: f64,
    noise: f64,
}

impl Stretch {
    fn new(now: Instant, left: u32) -> Self {
        Self {
            began: now,
            left,
            seconds: 0.0,
            count: 0,
            ended: 0,
            work: 0.0,
            squares: 0.0,
            last: 1e-3,
            in_flight: 0.0,
        }
    }

    /// The logarithm of the work completed in a second, and its variance by chance. Half a completion more than there were, so
    /// that none at all has a logarithm, too.
    fn end(&self) -> Yield {
        let mean = if self.count > 0 { self.work / f64::from(self.count) } else { self.last };
        let work = self.work + mean / 2.0;
        Yield {
            rate: libm::log(work / self.seconds.max(1e-9)),
            noise: (self.squares + mean * mean) / (work * work),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Former,
    Look,
    Down,
    Up,
}

#[derive(Clone, Debug)]
struct Trial {
    way: Way,
    other: u32,
    before: Yield,
    there: Option<Yield>,
    pairs: u32,
    sum: f64,
    squares: f64,
    noise: f64,
    away: Duration,
}

#[derive(Clone, Debug)]
enum Phase {
    /// A burst: the bound rises. The best of it so far; the last stretch; by which factor the bound has risen since.
    Rising {
        best: Option<Best>,
        last: Option<Yield>,
        step: f64,
    },
    Watching,
    Trying(Trial),
}

#[derive(Clone, Copy, Debug)]
struct Best {
    bound: u32,
    end: Yield,
    /// Requests that ended in a second.
    pace: f64,
    at: Instant,
}

#[derive(Clone, Copy, Debug)]
struct Due {
    at: Instant,
    rest: Duration,
    tries: u32,
}

impl Due {
    fn now(now: Instant) -> Self {
        Self { at: now, rest: REST, tries: 0 }
    }
    fn rest(&mut self, now: Instant, lost: Duration) {
        self.at = now.after(self.rest.max(lost.saturating_mul(WORTH).min(REST_MAX)));
        self.rest = (self.rest * 2).min(REST_MAX);
        self.tries += 1;
    }
    fn step(&self) -> f64 {
        if self.tries % 2 == 0 { STEP } else { libm::sqrt(STEP) }
    }
}

#[derive(Debug)]
pub(super) struct Search {
    top: u32,
    bound: u32,
    in_force: u32,
    former: u32,
    phase: Phase,
    stretch: Stretch,
    spell: f64,
    served: u32,
    rise: Due,
    ceiling: u32,
    look: Due,
    down: Due,
    up: Due,
    octave: u32,
    given_up: f64,
    trials: u64,
    now: Instant,
    in_flight: u32,
    waits: bool,
    refused: Option<Instant>,
    gain: Option<f64>,
    held: bool,
}

const RISING: Phase = Phase::Rising { best: None, last: None, step: 2.0 };

impl Search {
    pub(super) fn new(top: u32) -> Self {
        let start = START.min(top);
        let due = Due::now(Instant::ZERO);
        Self {
            top,
            bound: start,
            in_force: start,
            former: start,
            phase: RISING,
            stretch: Stretch::new(Instant::ZERO, 0),
            spell: 0.0,
            served: 0,
            rise: due,
            ceiling: top,
            look: due,
            down: due,
            up: due,
            octave: 0,
            given_up: 0.0,
            trials: 0,
            now: Instant::ZERO,
            in_flight: 0,
            waits: false,
            refused: None,
            gain: None,
            held: false,
        }
    }

    fn pass(&mut self, now: Instant) {
        let passed = now.since(self.now).as_secs_f64();
        self.now = now;
        if self.waits {
            self.spell = (self.spell + passed).min(LATEST.as_secs_f64());
            if self.stretch.left == 0 {
                self.stretch.seconds += passed;
                self.stretch.in_flight += passed * f64::from(self.in_flight);
            }
        } else if self.spell > 0.0 {
            self.spell -= 4.0 * passed;
            if self.spell <= 0.0 {
                self.end_spell(now);
            }
        }
    }

    /// Nobody waits any more.
    fn end_spell(&mut self, now: Instant) {
        (self.spell, self.served) = (0.0, 0);
        if let Phase::Trying(trial) = &self.phase
            && self.in_force == trial.other
            && trial.way == Way::Up
        {
            self.bound = trial.other;
        }
        self.phase = match &self.phase {
            &Phase::Rising { best: Some(best), .. } if now.since(best.at) < LATEST => {
                Phase::Rising { best: Some(best), last: Some(best.end), step: 2.0 }
            }
            _ => RISING,
        };
        self.put(now, self.bound);
    }

    fn put(&mut self, now: Instant, most: u32) {
        let left = if most == self.in_force { 0 } else { most };
        self.in_force = most;
        self.stretch = Stretch::new(now, left);
    }

    fn lasts(&self) -> bool {
        let longest = LATEST.as_secs_f64();
        self.spell >= LASTS && self.served >= MANY || self.spell >= longest
    }

    fn step(&mut self, now: Instant) {
        if self.stretch.left > 0 {
            let waited = now.since(self.stretch.began);
            let there = self.in_flight <= self.in_force;
            if waited >= LATEST || there && waited >= LATEST / 3 {
                self.stretch = Stretch::new(now, 0);
            }
            return;
        }
        if !self.waits {
            return;
        }
        let lasts = self.lasts();
        match &self.phase {
            Phase::Rising { .. } if lasts => {
                self.phase = Phase::Watching;
                self.stretch = Stretch::new(now, 0);
            }
            Phase::Rising { best, step, .. } => {
                let full = self.in_flight >= self.in_force;
                let enough =
                    if *step >= 2.0 { UNIT.max(self.in_force) } else { (4 * UNIT).max(2 * self.in_force) };
                let late = best.is_some_and(|best| self.stretch.seconds * best.pace >= f64::from(enough));
                if full && (self.stretch.ended >= enough || late) {
                    self.rise(now, self.stretch.ended >= enough);
                }
            }
            Phase::Watching if self.is_over(now, 1) => {
                self.choose(now);
            }
            Phase::Trying(trial) if self.is_over(now, trial.pairs + 1) => self.compare(now),
            Phase::Watching | Phase::Trying(_) => {}
        }
    }

    fn is_over(&self, now: Instant, times: u32) -> bool {
        let enough = UNIT.max(self.in_force).saturating_mul(times.min(GROWTH_MAX));
        let long = now.since(self.stretch.began);
        self.stretch.count >= enough && long >= SHORTEST
            || long >= (LATEST / 3).saturating_mul(times.min(GROWTH_MAX))
    }

    /// A burst: a stretch under the bound in force is over, or would be at the best pace.
    fn rise(&mut self, now: Instant, is_over: bool) {
        let Phase::Rising { best, last, step } = &mut self.phase else { return };
        let here = self.stretch.end();
        if let Some(best) = best
            && self.bound > best.bound
            && self.stretch.seconds * best.pace > libm::exp(HUGE) * f64::from(self.stretch.ended)
            && best.end.rate - here.rate > HUGE.max(SURE * libm::sqrt(best.end.noise + here.noise))
        {
            (self.bound, self.ceiling) = (best.bound, best.bound);
            let lost = now.since(self.stretch.began);
            self.rise.rest(now, lost);
            self.phase = Phase::Rising { best: Some(*best), last: Some(best.end), step: CLIMB };
            return self.put(now, self.bound);
        }
        if !is_over {
            return;
        }
        if best.is_none_or(|best| here.rate > best.end.rate) {
            let pace = f64::from(self.stretch.ended) / self.stretch.seconds.max(1e-9);
            *best = Some(Best { bound: self.bound, end: here, pace, at: now });
        }
        // Half of what it would gain if each more were served beside the others.
        let gains = last.is_none_or(|last| here.rate - last.rate > libm::log(*step) / 2.0);
        (*last, *step) = (Some(here), if gains { 2.0 } else { CLIMB });
        if self.bound > 2 * self.ceiling {
            self.rise = Due::now(now);
        }
        let most = if now < self.rise.at { self.ceiling.max(self.bound) } else { self.top };
        self.bound = larger(self.bound, *step).min(most).min(self.top);
        self.in_force = self.bound;
        // No settling: what is slower there is seen soon enough.
        self.stretch = Stretch::new(now, 0);
    }

    /// Saturation lasts. What is compared with the present bound now.
    fn choose(&mut self, now: Instant) {
        let before = self.stretch.end();
        let mean = self.stretch.in_flight / self.stretch.seconds.max(1e-9);
        let level =
            if mean < 0.75 * f64::from(self.bound) { (libm::round(mean) as u32).max(1) } else { self.bound };
        self.stretch = Stretch::new(now, 0);
        if self.held {
            return;
        }
        let lower = smaller(level, self.down.step());
        let higher = larger(self.bound, self.up.step()).min(self.top);
        let (way, other) = if self.look.at <= now && level > 2 {
            let octaves = 31 - (level - 1).leading_zeros();
            self.octave = (self.octave + 1) % octaves.max(1);
            // The second first: what is freed by few is mostly freed by two.
            (Way::Look, 1 << ((self.octave) % octaves.max(1)))
        } else if self.former < level {
            (Way::Former, self.former)
        } else if self.down.at <= now && lower < level {
            (Way::Down, lower)
        } else if self.up.at <= now && higher > self.bound && level == self.bound {
            (Way::Up, higher)
        } else {
            return;
        };
        self.trials += 1;
        self.phase = Phase::Trying(Trial {
            way,
            other,
            before,
            there: None,
            pairs: 0,
            sum: 0.0,
            squares: 0.0,
            noise: 0.0,
            away: Duration::ZERO,
        });
    }

    /// A stretch of a comparison has ended.
    fn compare(&mut self, now: Instant) {
        let here = self.stretch.end();
        let (took, in_force, bound) = (now.since(self.stretch.began), self.in_force, self.bound);
        let Phase::Trying(trial) = &mut self.phase else { return };
        if in_force == trial.other {
            trial.away = trial.away.saturating_add(took);
            let difference = here.rate - trial.before.rate;
            let error = libm::sqrt(here.noise + trial.before.noise);
            let huge = difference.abs() > HUGE.max(SURE * error);
            let way = trial.way;
            if way == Way::Look {
                return self.conclude(now, difference > 0.18_f64.max(2.0 * error), difference);
            }
            if huge {
                return self.conclude(now, difference > 0.0, difference);
            }
            trial.there = Some(here);
            return self.put(now, bound);
        }
        let before = core::mem::replace(&mut trial.before, here);
        let Some(there) = trial.there.take() else {
            let other = trial.other;
            return self.put(now, other);
        };
        let difference = there.rate - f64::midpoint(before.rate, here.rate);
        trial.pairs += 1;
        trial.sum += difference;
        trial.squares += difference * difference;
        trial.noise += there.noise + (before.noise + here.noise) / 4.0;
        let pairs = f64::from(trial.pairs);
        let mean = trial.sum / pairs;
        let chance = libm::sqrt(trial.noise) / pairs;
        let spread = if trial.pairs < 3 {
            f64::INFINITY
        } else {
            libm::sqrt(((trial.squares - trial.sum * mean) / (pairs - 1.0)).max(0.0) / pairs)
        };
        let error = spread.max(chance);
        let lower = trial.other < bound;
        let over = mean.abs() > HUGE.max(SURE * chance)
            || mean.abs() > SURE * error && (mean.abs() > ALIKE || lower)
            || error < ALIKE
            || trial.pairs >= PAIRS_MAX;
        if !over {
            let other = trial.other;
            return self.put(now, other);
        }
        let proved = mean > ALIKE && mean > SURE * chance.max(if spread.is_finite() { spread } else { 0.0 });
        let alike = lower && error < ALIKE && mean > self.given_up - ALIKE;
        if alike && !proved {
            self.given_up += (-mean).max(0.0);
        } else if proved {
            self.given_up = 0.0;
        }
        self.conclude(now, proved || alike, mean);
    }

    fn conclude(&mut self, now: Instant, accepted: bool, difference: f64) {
        let Phase::Trying(trial) = core::mem::replace(&mut self.phase, Phase::Watching) else { return };
        let way = trial.way;
        let lost = trial.away.mul_f64((1.0 - libm::exp(difference)).clamp(0.0, 1.0));
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
            match trial.way {
                Way::Up => self.up.rest(now, lost),
                Way::Down => self.down.rest(now, lost),
                Way::Look => self.look.rest(now, lost),
                Way::Former => {}
            }
        }
        if way != Way::Look || accepted {
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
        if stretch.left > 0 {
            // Those begun under another bound don't count; a lower one isn't in force before they have ended.
            if sample.in_flight <= self.in_force {
                stretch.left -= 1;
                if stretch.left == 0 {
                    *stretch = Stretch::new(now, 0);
                }
            }
        } else if self.waits {
            stretch.ended += 1;
            stretch.last = sample.work;
            if sample.answered {
                self.served = self.served.saturating_add(1);
                stretch.count += 1;
                stretch.work += sample.work;
                stretch.squares += sample.work * sample.work;
            }
        }
    }

    fn refuse(&mut self, now: Instant) {
        self.refused = Some(now);
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
