//! Ours, the default: trials in alternation, near saturation only, judged by the work that is completed.
//!
//! **Idea.** Neither a response time nor the processor's utilization says that a service does too much at
//! once: any mix of short and long requests looks like a queue, a deadlock idles the processor and a hot
//! row burns it. What matters is how much work is completed, and whether another bound would complete more
//! can be seen only by trying. So the controller compares (`trial.rs`): a stretch of time under the present
//! bound A, one under another B, A again, B again, until the difference is beyond chance. What is compared
//! are neighbors in time, so that there is no ideal to drift, and work, not requests: each completion
//! counts for its type's mean, held still within a trial, so that a change of the mix doesn't count.
//!
//! **When.** Only while requests wait for room nearly all the time, or are refused where much is given up
//! (`conflicts.rs`). Below saturation nothing is tried and nothing moves.
//!
//! **From where.** It begins at its *home*: the budget of connections, at most [`HOME`], or twice as many
//! as the service is seen to work on at once (`pace.rs`), if that is more: with 64 cores each of 20 is as
//! fast as alone, so that 20 bound nothing but the throughput, and that shows at once. Home is more than a
//! service below saturation has in flight, so that a cold start makes nobody wait, and few enough to be far
//! from where memory ends. Beyond home it goes only for a gain, and a small one has to be seen in two
//! trials ([`SURE`]); below home only for a gain as well; and home again as soon as nothing is lost by it.
//! So that on a plateau it stays where it is, and what no trial could take back (a cliff of memory) is not
//! tried: close to home there was nothing to gain.
//!
//! **How far.** The first trial is a quarter of home, because a collapse (locks, deadlocks) is by then deep
//! and its cure small, but not fewer than the service was seen to need; where that ends a collapse it isn't
//! gone back to, since what waits for one another would have to drain once more, and the next step is as
//! large (20, 5, 1), or half where the service was seen to need more. Upwards a quarter more. A gain is
//! followed in the same direction with larger steps; a loss halves the step (in logarithms); when neither
//! direction gains with the smallest step, both rest, twice as long each time, up to [`REST_MAX`], and wake
//! when requests are completed at another pace (`pace.rs`). Where the service gives requests up for others
//! in flight, it is looked as far down as cores work, and for longer (`conflicts.rs`).
//!
//! | constant | | why |
//! |---|---|---|
//! | [`HOME`] | 20 | what poolers give by default; 0.9²⁰ = 12 % of the time a single processor at ρ = 0.9 has more |
//! | [`PER_WORKED_ON`] | 2 | the same on more than ten cores |
//! | [`DOWN`] | 4 | a collapse is found in one trial |
//! | [`UP`] | 1.25 | a cliff that close to home would be met by chance as well |
//! | [`STEP_MIN`] | 1.19 | the fourth root of 2: a peak is flat, the loss of 10 % beside it is below 1 % |
//! | [`DRAINED`], [`DRAINED_AT_LAST`] | 10 s, 60 s | twenty transactions that deadlock are freed by three a second, in some runs by one; while long requests end, short ones are held up |
//! | [`REST_MIN`], [`REST_MAX`] | 2 s, 60 s | trials beside a sharp peak cost what they lose, here 1 or 2 % of the time |
//! | [`WORTH`], [`REST_LONGEST`] | 50, 300 s | beside a cliff they lose all: two that deadlock complete next to nothing for seconds |
//!
//! **When it fails.** Stretches need some ten completions each: with less than a few requests a second it
//! stays where it is. A service whose speed swings by itself with the rhythm of the alternation deceives
//! it. A cliff between home and home · 1.25 is met. What contends only among themselves should have a bound
//! of their own.

mod conflicts;
mod pace;
mod side;
mod stretch;
#[cfg(test)]
mod tests;
mod trial;

use crate::outside::{Control, Sample};
use crate::time::{Duration, Instant};
use conflicts::Conflicts;
use pace::Pace;
use side::{Direction, REST_MIN, Side};
use stretch::{Stretch, Yield};
use trial::{Pairs, Parts, RESCUE, Verdict, Yields};

/// The bound with which the search begins, and to which it returns.
const HOME: u32 = 20;
/// Home is this multiple of the number at which the service is nearly fastest, if that exceeds [`HOME`].
const PER_WORKED_ON: u32 = 2;
/// The first step down.
const DOWN: f64 = 4.0;
/// The first step up.
const UP: f64 = 1.25;
/// The smallest step.
const STEP_MIN: f64 = 1.19;
/// The largest step after a gain.
const STEP_MAX: f64 = 2.0;
/// Beyond home a gain that is smaller than this is to be seen in two trials: one in a hundred sees it by
/// chance, and what is beyond may be the end of memory.
const SURE: f64 = 0.5;
/// A change of the bound has settled after this time at the latest. Before, it settles with as many
/// completions as were in flight, or may be, whichever is more.
const SETTLED: Duration = Duration::from_secs(3);
/// The time limit for a trial to drain while it completes less than before; then the trial is put off.
const DRAINED: Duration = Duration::from_secs(10);
/// The time limit for a trial to drain while it completes as much as before. Requests that wait for one
/// another are freed one by one.
const DRAINED_AT_LAST: Duration = Duration::from_secs(60);
/// Where only some types are bounded, the measurement begins after this time, drained or not.
const DRAINED_OF_SOME: Duration = Duration::from_secs(5);
/// A rate of at least this part of the earlier rate counts as unchanged. With a few completions a second a
/// smaller change can't be seen.
const AS_MUCH: f64 = 0.7;

/// Of some types this part of what may be in flight is in flight, or it isn't their bound that is compared.
const THERE: f64 = 0.5;
/// Where requests wait for room at least this part of what may be in flight is.
const FULL: f64 = 0.75;

/// What it does.
#[derive(Debug)]
enum Stage {
    /// Waits until what was begun under another bound is gone.
    Settling { since: Instant, left: u32, meanwhile: Stretch },
    /// Measures.
    Measuring(Stretch),
}

/// The state of the search.
#[derive(Debug)]
pub(crate) struct Auto {
    home: u32,
    /// The home, if there are connections enough for it.
    usual: u32,
    /// The number in flight with which the service is nearly at its fastest, as far as was seen.
    works_on: u32,
    top: u32,
    base: u32,
    /// The other bound, while it is in force.
    other: u32,
    in_force: u32,
    trial: Option<(Direction, Pairs)>,
    /// Since when the bound in force is in force, and how long the other one was in this trial.
    put: Instant,
    away: Duration,
    trials: u64,
    /// How many of them have ended.
    ended: u64,
    /// Whether any of them said anything.
    has_judged: bool,
    /// Whether it bounds some types only.
    partly: bool,
    /// What the work of those counts for, beside that of the others.
    weight: f64,
    /// Others wait that will have their room.
    crowded: bool,
    held: bool,
    down: Side,
    up: Side,
    /// Since it came to the present bound, or rested there, no far step down was tried.
    looks_far: bool,
    /// The step down that is tried, or is to be, is a far one. What it would be otherwise is kept: if this
    /// one gains nothing, it goes on there.
    is_far: bool,
    /// The bound beyond home in which one trial has seen a small gain.
    seen_once: Option<u32>,
    conflicts: Conflicts,
    /// How many there are to be fewer of: the present bound, or what is in flight where another rule lets
    /// in far fewer.
    level: u32,
    stage: Stage,
    in_flight: u32,
    waited_for: bool,
    until: Instant,
    /// What is usual under the present bound.
    pace: Pace,
    /// By which share more is completed since the last move, if that was why.
    gain: Option<f64>,
}

impl Auto {
    /// Up to `top`.
    #[cfg(test)]
    pub(crate) fn new(top: u32) -> Self {
        Self::at(Instant::ZERO, top.min(HOME), top)
    }

    /// For some of the types, of which so many are in flight now: that is home, and as far as it looks. It
    /// tries `first` to begin with.
    pub(crate) fn of_some(now: Instant, home: u32, first: u32) -> Self {
        let mut auto = Self::at(now, home, home);
        auto.partly = true;
        auto.down.step = f64::from(home) / f64::from(first.max(1));
        auto
    }

    fn at(now: Instant, home: u32, top: u32) -> Self {
        Self {
            home,
            usual: HOME,
            works_on: 1,
            top,
            base: home,
            other: home,
            in_force: home,
            trial: None,
            put: now,
            away: Duration::ZERO,
            trials: 0,
            ended: 0,
            has_judged: false,
            partly: false,
            weight: 1.0,
            crowded: false,
            held: false,
            down: Side::new(DOWN),
            up: Side::new(UP),
            looks_far: true,
            is_far: false,
            seen_once: None,
            conflicts: Conflicts::new(now, home),
            level: home,
            stage: Stage::Measuring(Stretch::new(now)),
            in_flight: 0,
            waited_for: false,
            until: now,
            pace: Pace::default(),
            gain: None,
        }
    }

    fn pass(&mut self, now: Instant) {
        if let Stage::Measuring(stretch) = &mut self.stage {
            let passed = now.since(self.until);
            stretch.fly(passed, self.in_flight);
            if self.waited_for {
                stretch.wait(passed);
            }
        }
        self.until = now;
    }

    /// Ends what is over.
    fn look(&mut self, now: Instant) {
        match &self.stage {
            Stage::Settling { since, left, meanwhile } => {
                let (waited, drained) = (now.since(*since), self.in_flight <= self.in_force);
                let is_there = drained || self.partly && waited >= DRAINED_OF_SOME;
                if *left == 0 && drained && !self.crowded || waited >= self.settled_after() && is_there {
                    self.stage = Stage::Measuring(Stretch::new(now));
                } else if waited >= DRAINED_AT_LAST || waited >= DRAINED && self.loses(&meanwhile.end(now)) {
                    self.put_off(now);
                }
            }
            Stage::Measuring(stretch) => {
                if stretch.is_over(now, self.in_force, self.partly, self.conflicts.stretch(now)) {
                    let (all, own) = (stretch.end(now), self.partly.then(|| stretch.end_of_own(now)));
                    self.end(now, Yields { all, own });
                }
            }
        }
    }

    /// A stretch has ended.
    fn end(&mut self, now: Instant, end: Yields) {
        let trying = self.in_force != self.base;
        let Some((direction, trial)) = &mut self.trial else {
            return self.watch(now, end);
        };
        if trying {
            trial.add(end);
            if let Some(gain) = trial.rescue().filter(|_| *direction == Direction::Down && !self.partly) {
                return self.conclude(now, Direction::Down, Verdict::Better(gain));
            }
            return self.put(now, self.base);
        }
        let hardly_there = self.partly && end.all.in_flight < THERE * f64::from(self.base);
        if !end.all.saturated || hardly_there {
            // Whether nobody waits because of the other bound or of the hour: there is nothing to find any
            // more.
            return self.stop(now);
        }
        trial.add(end);
        let is_new = trial.is_new();
        let (direction, verdict) = (*direction, trial.verdict(*direction == Direction::Down, self.weight));
        match verdict {
            None => {
                // Much may have been given up since it was chosen.
                if is_new && direction == Direction::Down {
                    self.consider_far(now);
                    if self.is_far {
                        self.other = self.beside(direction);
                    }
                }
                self.put(now, self.other);
            }
            Some(verdict) => self.conclude(now, direction, verdict),
        }
    }

    /// A stretch without a trial has ended.
    fn watch(&mut self, now: Instant, end: Yields) {
        self.stage = Stage::Measuring(Stretch::new(now));
        if !end.all.saturated {
            return;
        }
        if self.pace.has_changed(end.own.unwrap_or(end.all).pace) {
            self.down = Side::new(STEP_MAX);
            if !self.partly {
                self.up = Side::new(UP);
            }
        }
        let is_full = self.partly || end.all.in_flight >= FULL * f64::from(self.base);
        self.level = if is_full { self.base } else { libm::round(end.all.in_flight) as u32 };
        self.is_far = false;
        self.consider_far(now);
        if let Some(direction) = self.due(now).filter(|_| !self.held) {
            self.trials += 1;
            self.away = Duration::ZERO;
            self.other = self.beside(direction);
            // What the types count for is fixed from now on, so that this stretch isn't one of those that
            // are compared.
            self.trial = Some((direction, Pairs::after(end.all.pace)));
        }
    }

    /// Makes the step down a far one, if one is to be.
    fn consider_far(&mut self, now: Instant) {
        if self.looks_far && self.down.due <= now && !self.held && self.conflicts.are_many() {
            self.looks_far = false;
            let near = self.beside(Direction::Down);
            self.is_far = true;
            // Where cores would stand still, or the next step is as far anyway, it is no other.
            self.is_far = self.beside(Direction::Down) < near;
        }
    }

    /// The direction that is to be tried now, if one is.
    fn due(&self, now: Instant) -> Option<Direction> {
        let is_due = |side: &Side, direction| side.due <= now && self.beside(direction) != self.base;
        let (down, up) = (is_due(&self.down, Direction::Down), is_due(&self.up, Direction::Up));
        match (down, up) {
            (true, true) if self.up.step > self.step(Direction::Down) => Some(Direction::Up),
            (true, _) => Some(Direction::Down),
            (false, true) => Some(Direction::Up),
            (false, false) => None,
        }
    }

    /// The bound beside the present one.
    fn beside(&self, direction: Direction) -> u32 {
        match direction {
            Direction::Down => {
                let level = f64::from(self.level);
                // The first step is far, but not to where cores would stand still. Below home it was seen
                // that fewer complete more: what the service seemed to work on there is no reason to stay.
                let least = if self.base < self.home { STEP_MAX } else { STEP_MIN };
                let seen = (level / f64::from(self.works_on)).max(least);
                let step = self.step(direction);
                let step = if step >= DOWN { step.min(seen) } else { step };
                (libm::round(level / step) as u32).min(self.base - 1).max(1)
            }
            Direction::Up => {
                let base = f64::from(self.base);
                (libm::round(base * self.step(direction)) as u32).max(self.base + 1).min(self.top)
            }
        }
    }

    /// How far it goes.
    fn step(&self, direction: Direction) -> f64 {
        match direction {
            Direction::Down if self.is_far => f64::from(self.level).max(DOWN),
            Direction::Down => self.down.step,
            Direction::Up => self.up.step,
        }
    }

    fn settled_after(&self) -> Duration {
        if self.partly { SETTLED / 2 } else { SETTLED }
    }

    fn side(&mut self, direction: Direction) -> &mut Side {
        match direction {
            Direction::Down => &mut self.down,
            Direction::Up => &mut self.up,
        }
    }

    fn leads_home(&self, direction: Direction) -> bool {
        match direction {
            Direction::Down => self.base > self.home,
            Direction::Up => self.base < self.home,
        }
    }

    fn conclude(&mut self, now: Instant, direction: Direction, verdict: Verdict) {
        let gain = match verdict {
            Verdict::Better(gain) => Some(gain),
            Verdict::NoWorse | Verdict::Worse | Verdict::Same => None,
        };
        if direction == Direction::Up && self.base >= self.home {
            let is_small = gain.is_some_and(|gain| gain < SURE);
            let seen_before = self.seen_once.take() == Some(self.other);
            if is_small && !seen_before {
                self.seen_once = Some(self.other);
                self.up.due = now;
                return self.stop(now);
            }
        }
        let (lost, part) = self
            .trial
            .as_ref()
            .map_or((Parts::default(), 0.0), |(_, pairs)| (pairs.lost(), pairs.loss(self.weight)));
        // Where some types are bounded, most of the difference is what the others bring along.
        let forgone = if self.partly { Duration::ZERO } else { self.away.mul_f64(part) };
        // Where others are given up, more in flight aren't home.
        let loses_others = direction == Direction::Up && lost.other >= conflicts::MANY;
        let is_as_good = verdict == Verdict::NoWorse && !loses_others;
        let accepted = gain.is_some() || is_as_good && self.leads_home(direction);
        let is_neighbor = self.base.abs_diff(self.other) <= 1;
        // Where so few complete so much more, it may be fewer still, and each step costs another drain.
        let ends_collapse =
            direction == Direction::Down && !self.partly && gain.is_some_and(|gain| gain >= RESCUE - 1.0);
        self.trial = None;
        self.ended += 1;
        self.has_judged = true;
        if accepted {
            (self.base, self.gain) = (self.other, gain);
            self.looks_far = true;
            self.conflicts.begin(now, self.base, lost.other);
            self.pace = Pace::default();
            let step = self.step(direction);
            let side = self.side(direction);
            side.step = (step * step).min(if ends_collapse { DOWN } else { STEP_MAX });
            (side.due, side.rest) = (now, REST_MIN);
            let back = self.side(match direction {
                Direction::Down => Direction::Up,
                Direction::Up => Direction::Down,
            });
            // From there it came.
            back.step = libm::sqrt(back.step).max(STEP_MIN);
            // From where others were lost it is known why, and each look back costs some more.
            back.rest = if lost.present >= conflicts::MANY { REST_MIN * conflicts::RESTS } else { REST_MIN };
            back.due = now.after(back.rest);
        } else if !self.is_far {
            let side = self.side(direction);
            if side.step <= STEP_MIN || is_neighbor {
                let times = if lost.other >= conflicts::MANY { conflicts::RESTS } else { 2 };
                side.rest(now, forgone, times);
                self.looks_far |= direction == Direction::Down;
            }
            let side = self.side(direction);
            side.step = libm::sqrt(side.step).max(STEP_MIN);
        }
        self.is_far = false;
        self.put(now, self.base);
    }

    /// Whether less is completed while a bound is put in force than before: less work, or fewer requests.
    fn loses(&self, meanwhile: &Yield) -> bool {
        let before = self.trial.as_ref().and_then(|(_, pairs)| pairs.last());
        before.is_none_or(|before| {
            meanwhile.rate < AS_MUCH * before.rate || meanwhile.pace < AS_MUCH * before.pace
        })
    }

    /// Ends a trial of a bound that couldn't be put in force.
    fn put_off(&mut self, now: Instant) {
        if let Some((direction, _)) = self.trial {
            self.side(direction).rest(now, Duration::ZERO, 2);
        }
        self.is_far = false;
        self.stop(now);
    }

    /// Ends a trial that leads to nothing.
    fn stop(&mut self, now: Instant) {
        self.trial = None;
        self.ended += 1;
        // A far look that wasn't done is still to be.
        self.looks_far |= self.is_far;
        self.put(now, self.base);
    }

    /// Puts a bound in force, and waits until the change has settled.
    fn put(&mut self, now: Instant, most: u32) {
        if most == self.in_force {
            self.stage = Stage::Measuring(Stretch::new(now));
            return;
        }
        if self.in_force != self.base {
            self.away += now.since(self.put);
        }
        (self.in_force, self.put) = (most, now);
        let left = self.in_flight.max(most);
        self.stage = Stage::Settling { since: now, left, meanwhile: Stretch::new(now) };
    }
}

impl Control for Auto {
    fn most(&self) -> u32 {
        self.in_force
    }

    fn observe(&mut self, now: Instant, in_flight: u32, waited_for: bool) {
        self.pass(now);
        (self.in_flight, self.waited_for) = (in_flight, waited_for || self.conflicts.keep_others_out(now));
        self.look(now);
    }

    fn refuse(&mut self, now: Instant) {
        self.conflicts.refuse(now);
    }

    fn complete(&mut self, now: Instant, sample: &Sample) {
        self.pass(now);
        let at_present = matches!(self.stage, Stage::Measuring(_)) && self.in_force == self.base;
        self.conflicts.see(now, sample, at_present);
        match &mut self.stage {
            Stage::Settling { left, meanwhile, .. } => {
                *left = left.saturating_sub(u32::from(sample.own));
                meanwhile.complete(sample);
            }
            Stage::Measuring(stretch) => stretch.complete(sample),
        }
    }

    fn suit(&mut self, works_on: u32, surely: u32) {
        self.works_on = works_on;
        let usual = surely.saturating_mul(PER_WORKED_ON);
        // What is learned wanders; home needn't wander with it, nor where nobody waits, nor while two
        // numbers are compared.
        let grows = f64::from(usual) >= UP * f64::from(self.usual);
        if grows && self.waited_for && self.trial.is_none() {
            let base = self.base;
            self.usual = usual;
            self.set_top(self.top);
            if self.base > base {
                // Nothing is known of so many: if the service collapses there, one trial finds that.
                (self.down, self.up) = (Side::new(DOWN), Side::new(UP));
            }
        }
    }

    fn set_top(&mut self, top: u32) {
        let was_home = self.base == self.home;
        self.top = top;
        self.home = top.min(self.usual);
        let base = if was_home { self.home } else { self.base.min(top) };
        if base != self.base || self.in_force > top {
            (self.base, self.in_force, self.gain) = (base, base, None);
            self.conflicts.begin(self.until, base, 0.0);
            self.trial = None;
            self.stage = Stage::Measuring(Stretch::new(self.until));
        }
    }

    fn found(&self) -> u32 {
        self.base
    }

    fn gain(&self) -> Option<f64> {
        self.gain
    }

    fn hold(&mut self, held: bool) {
        self.held = held;
    }

    fn is_comparing(&self) -> bool {
        self.trial.is_some()
    }

    fn trial(&self) -> u64 {
        self.trials
    }
}

impl Auto {
    /// Where it is without reasons.
    pub(crate) fn home(&self) -> u32 {
        self.home
    }

    /// What the work of those that it bounds counts for, beside that of the others.
    pub(crate) fn weigh(&mut self, weight: f64) {
        self.weight = weight;
    }

    /// Whether enough other requests wait to fill a measurement alone. A lower bound leaves them room. Its
    /// effect shows only when they have gone through.
    pub(crate) fn crowd(&mut self, others_wait: bool) {
        self.crowded = others_wait && self.in_force < self.base;
    }

    /// How many comparisons have ended.
    pub(crate) fn ended(&self) -> u64 {
        self.ended
    }

    /// Whether any of them said anything.
    pub(crate) fn has_judged(&self) -> bool {
        self.has_judged
    }

    /// Whether it measures now, and then whether under another bound than the present one.
    pub(crate) fn measures_other(&self) -> Option<bool> {
        matches!(self.stage, Stage::Measuring(_)).then_some(self.in_force != self.base)
    }
}
