//! The bound of a group: how many of its requests may be in flight, found by trials in alternation.
//!
//! **Idea.** Whether another bound would complete more can be seen only by trying. So the present bound A is
//! compared with another one B (`trial.rs`): a stretch of time under A, one under B, A again, B again, until
//! the difference is beyond chance. What is compared are neighbors in time, so that there is no ideal to
//! drift, and work, not requests: each completion counts for its type's mean, held still within a trial.
//!
//! **From where.** Home is the number in flight when the group was suspected: there it bounds nothing. The
//! first step goes down to a few, because where locks are hot every small number is near the best. A gain is
//! followed in the same direction with larger steps; a loss halves the step (in logarithms). When neither
//! direction gains with the smallest step, both rest, twice as long each time, and wake when requests are
//! completed at another pace (`pace.rs`). It returns home as soon as nothing is lost by that.
//!
//! **When it fails.** Stretches need some ten completions each: with less than a few requests a second it
//! stays where it is. A service whose speed swings in the rhythm of the alternation deceives it.

mod pace;
mod side;
mod stretch;
mod trial;

use crate::outside::Sample;
use crate::time::{Duration, Instant};
use pace::Pace;
use side::{Direction, REST_MIN, Side};
use stretch::{Stretch, Yield};
use trial::{Pairs, Verdict, Yields};

/// The first step up, and the first step back after a change of the pace.
const UP: f64 = 1.25;
/// The smallest step: the fourth root of 2. A peak is flat, the loss of 10 % beside it is below 1 %.
const STEP_MIN: f64 = 1.19;
/// The largest step after a gain.
const STEP_MAX: f64 = 2.0;
/// A change of the bound has settled after this time at the latest. Before, it settles with as many
/// completions as were in flight, or may be, whichever is more.
const SETTLED: Duration = Duration::from_millis(1_500);
/// The measurement begins after this time, drained or not.
const DRAINED_LATE: Duration = Duration::from_secs(5);
/// The time limit for a trial to drain while it completes less than before; then the trial is put off.
const DRAINED: Duration = Duration::from_secs(10);
/// The time limit for a trial to drain while it completes as much as before. Requests that wait for one
/// another are freed one by one.
const DRAINED_AT_LAST: Duration = Duration::from_secs(60);
/// A rate of at least this part of the earlier rate counts as unchanged. With a few completions a second a
/// smaller change can't be seen.
const AS_MUCH: f64 = 0.7;
/// This part of what may be in flight is in flight, or it isn't this bound that is compared.
const THERE: f64 = 0.5;

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
pub(super) struct Bound {
    home: u32,
    base: u32,
    /// The other bound, while it is in force.
    other: u32,
    in_force: u32,
    trial: Option<(Direction, Pairs)>,
    /// How many trials have ended.
    ended: u64,
    /// Whether any of them said anything.
    has_judged: bool,
    /// What the work of the group counts for, beside that of the others.
    weight: f64,
    /// Others wait that will have their room.
    crowded: bool,
    held: bool,
    down: Side,
    up: Side,
    stage: Stage,
    in_flight: u32,
    waited_for: bool,
    until: Instant,
    /// What is usual under the present bound.
    pace: Pace,
    /// By which share more is completed since the last move, if that was why.
    gain: Option<f64>,
}

impl Bound {
    /// A bound with `home` requests in flight now, its farthest look. The first trial is of `first`.
    pub(super) fn new(now: Instant, home: u32, first: u32) -> Self {
        Self {
            home,
            base: home,
            other: home,
            in_force: home,
            trial: None,
            ended: 0,
            has_judged: false,
            weight: 1.0,
            crowded: false,
            held: false,
            down: Side::new(f64::from(home) / f64::from(first.max(1))),
            up: Side::new(UP),
            stage: Stage::Measuring(Stretch::new(now)),
            in_flight: 0,
            waited_for: false,
            until: now,
            pace: Pace::default(),
            gain: None,
        }
    }

    /// The most that may be in flight now.
    pub(super) fn most(&self) -> u32 {
        self.in_force
    }

    /// The number that it has found. [`Bound::most`] differs while another number is tried.
    pub(super) fn found(&self) -> u32 {
        self.base
    }

    /// Where it is without reasons.
    pub(super) fn home(&self) -> u32 {
        self.home
    }

    /// The share by which more is completed since the last move, if that was the reason for it.
    pub(super) fn gain(&self) -> Option<f64> {
        self.gain
    }

    /// Begins no comparison while it is held: two comparisons at a time would disturb each other.
    pub(super) fn hold(&mut self, held: bool) {
        self.held = held;
    }

    /// Whether it compares two numbers now.
    pub(super) fn is_comparing(&self) -> bool {
        self.trial.is_some()
    }

    /// What the work of those that it bounds counts for, beside that of the others.
    pub(super) fn weigh(&mut self, weight: f64) {
        self.weight = weight;
    }

    /// Whether enough other requests wait to fill a measurement alone. A lower bound leaves them room. Its
    /// effect shows only when they have gone through.
    pub(super) fn crowd(&mut self, others_wait: bool) {
        self.crowded = others_wait && self.in_force < self.base;
    }

    /// How many comparisons have ended.
    pub(super) fn ended(&self) -> u64 {
        self.ended
    }

    /// Whether any of them said anything.
    pub(super) fn has_judged(&self) -> bool {
        self.has_judged
    }

    /// Whether it measures now, and then whether under another bound than the present one.
    pub(super) fn measures_other(&self) -> Option<bool> {
        matches!(self.stage, Stage::Measuring(_)).then_some(self.in_force != self.base)
    }

    /// From `now` on so many of the group are in flight, and others of it wait or not.
    pub(super) fn observe(&mut self, now: Instant, in_flight: u32, waited_for: bool) {
        self.pass(now);
        (self.in_flight, self.waited_for) = (in_flight, waited_for);
        self.look(now);
    }

    /// A request has ended, of the group or of others.
    pub(super) fn complete(&mut self, now: Instant, sample: &Sample) {
        self.pass(now);
        match &mut self.stage {
            Stage::Settling { left, meanwhile, .. } => {
                *left = left.saturating_sub(u32::from(sample.own));
                meanwhile.complete(sample);
            }
            Stage::Measuring(stretch) => stretch.complete(sample),
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
                let is_there = drained || waited >= DRAINED_LATE;
                if *left == 0 && drained && !self.crowded || waited >= SETTLED && is_there {
                    self.stage = Stage::Measuring(Stretch::new(now));
                } else if waited >= DRAINED_AT_LAST || waited >= DRAINED && self.loses(&meanwhile.end(now)) {
                    self.put_off(now);
                }
            }
            Stage::Measuring(stretch) => {
                if stretch.is_over(now, self.in_force) {
                    self.end(now, Yields { all: stretch.end(now), own: stretch.end_of_own(now) });
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
            return self.put(now, self.base);
        }
        if !end.all.saturated || end.all.in_flight < THERE * f64::from(self.base) {
            // Whether nobody waits because of the other bound or of the hour: there is nothing to find any
            // more.
            return self.stop(now);
        }
        trial.add(end);
        let direction = *direction;
        match trial.verdict(direction == Direction::Down, self.weight) {
            None => self.put(now, self.other),
            Some(verdict) => self.conclude(now, direction, verdict),
        }
    }

    /// A stretch without a trial has ended.
    fn watch(&mut self, now: Instant, end: Yields) {
        self.stage = Stage::Measuring(Stretch::new(now));
        if !end.all.saturated {
            return;
        }
        if self.pace.has_changed(end.own.pace) {
            self.down = Side::new(STEP_MAX);
        }
        if let Some(direction) = self.due(now).filter(|_| !self.held) {
            self.other = self.beside(direction);
            // What the types count for is fixed from now on, so that this stretch isn't one of those that
            // are compared.
            self.trial = Some((direction, Pairs::default()));
        }
    }

    /// The direction that is to be tried now, if one is.
    fn due(&self, now: Instant) -> Option<Direction> {
        let is_due = |side: &Side, direction| side.due <= now && self.beside(direction) != self.base;
        let (down, up) = (is_due(&self.down, Direction::Down), is_due(&self.up, Direction::Up));
        match (down, up) {
            (true, true) if self.up.step > self.down.step => Some(Direction::Up),
            (true, _) => Some(Direction::Down),
            (false, true) => Some(Direction::Up),
            (false, false) => None,
        }
    }

    /// The bound beside the present one.
    fn beside(&self, direction: Direction) -> u32 {
        let base = f64::from(self.base);
        match direction {
            Direction::Down => (libm::round(base / self.down.step) as u32).min(self.base - 1).max(1),
            Direction::Up => (libm::round(base * self.up.step) as u32).max(self.base + 1).min(self.home),
        }
    }

    fn side(&mut self, direction: Direction) -> &mut Side {
        match direction {
            Direction::Down => &mut self.down,
            Direction::Up => &mut self.up,
        }
    }

    fn conclude(&mut self, now: Instant, direction: Direction, verdict: Verdict) {
        let gain = match verdict {
            Verdict::Better(gain) => Some(gain),
            Verdict::NoWorse | Verdict::Worse | Verdict::Same => None,
        };
        let accepted = gain.is_some() || verdict == Verdict::NoWorse && direction == Direction::Up;
        let is_neighbor = self.base.abs_diff(self.other) <= 1;
        self.trial = None;
        self.ended += 1;
        self.has_judged = true;
        if accepted {
            (self.base, self.gain) = (self.other, gain);
            self.pace = Pace::default();
            let side = self.side(direction);
            side.step = (side.step * side.step).min(STEP_MAX);
            (side.due, side.rest) = (now, REST_MIN);
            let back = self.side(match direction {
                Direction::Down => Direction::Up,
                Direction::Up => Direction::Down,
            });
            // From there it came.
            back.step = libm::sqrt(back.step).max(STEP_MIN);
            (back.rest, back.due) = (REST_MIN, now.after(REST_MIN));
        } else {
            let side = self.side(direction);
            if side.step <= STEP_MIN || is_neighbor {
                side.rest(now);
            }
            side.step = libm::sqrt(side.step).max(STEP_MIN);
        }
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
            self.side(direction).rest(now);
        }
        self.stop(now);
    }

    /// Ends a trial that leads to nothing.
    fn stop(&mut self, now: Instant) {
        self.trial = None;
        self.ended += 1;
        self.put(now, self.base);
    }

    /// Puts a bound in force, and waits until the change has settled.
    fn put(&mut self, now: Instant, most: u32) {
        if most == self.in_force {
            self.stage = Stage::Measuring(Stretch::new(now));
            return;
        }
        self.in_force = most;
        let left = self.in_flight.max(most);
        self.stage = Stage::Settling { since: now, left, meanwhile: Stretch::new(now) };
    }
}
