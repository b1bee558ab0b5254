//! The comparison of another bound with the present one: stretches of the two in alternation, A B A B … A.
//!
//! Each B is compared with the mean of the As around it, so that a drift of the service's speed cancels.
//! What is judged is d = ln(rate of B / rate of A):
//!
//! * At any time an effect that is large ([`LARGE`]), far beyond chance, and there against each of the
//!   neighbors: a service that stood still during one of them deceives a mean.
//! * From four pairs on, by the spread of the pairs themselves (Student's t): the noise that each
//!   completion would make by itself is far too pessimistic where the service is busy all the time. A gain
//!   must exceed that noise once, all the same, since the spread is looked at after each pair.
//!
//! It ends undecided after [`PAIRS_MAX`] pairs.

use alloc::vec::Vec;

use super::stretch::Yield;
use crate::moments::Moments;

/// The most pairs.
pub(super) const PAIRS_MAX: usize = 10;
/// The logarithm of a ratio of rates that needs no further pairs.
const LARGE: f64 = 0.4;
/// The number of standard errors beyond which a difference isn't chance.
const BEYOND_CHANCE: f64 = 4.0;
/// What a move must gain at least, for more is asked of the numbers than of the eye.
const GAIN: f64 = 0.02;
/// What may be lost by one that needs no gain.
const LOSS: f64 = 0.02;
/// The standard error is never taken for less.
const ERROR_MIN: f64 = 0.002;
/// Pairs with fewer completions tell nothing by their spread: a service that stands still looks steady.
const COMPLETIONS: u32 = 16;
/// Fewer pairs may lie close together by chance.
const SPREAD: f64 = 4.0;
/// Student's t for 99 % on two sides, by degrees of freedom from 1.
const STUDENT: [f64; 9] = [63.7, 9.92, 5.84, 4.60, 4.03, 3.71, 3.50, 3.36, 3.25];

/// What a trial says of the other bound.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Verdict {
    /// More is completed, by this share.
    Better(f64),
    /// Nothing that matters is lost.
    NoWorse,
    /// Less is completed.
    Worse,
    /// There is no difference that could be seen.
    Same,
}

/// What came of a stretch: of all, and of those that are bounded.
#[derive(Clone, Copy, Debug)]
pub(super) struct Yields {
    pub(super) all: Yield,
    pub(super) own: Yield,
}

/// A trial of a bound on some types: what all complete, and beside it what those complete that are bounded.
///
/// What the others complete follows what arrives for them, whose chance hides a change in the few that are
/// bounded. But who completes more when fewer of it are in flight takes nothing from anybody, so that a
/// gain of its own is a gain. What its work counts for may become known during the trial, so that the
/// stretches are kept, and judged anew each time.
#[derive(Debug, Default)]
pub(super) struct Pairs {
    /// A B A B … A
    stretches: Vec<Yields>,
}

impl Pairs {
    /// Another stretch has ended, under the other bound or, in turn, under the present one.
    pub(super) fn add(&mut self, stretch: Yields) {
        self.stretches.push(stretch);
    }

    /// What came of the last one.
    pub(super) fn last(&self) -> Option<Yield> {
        self.stretches.last().map(|yields| yields.all)
    }

    /// What can be said by now of a bound that is lower than the present one, or not; `None`: go on. The
    /// work of those that are bounded counts for `weight` of what it is said to be.
    pub(super) fn verdict(&self, lower: bool, weight: f64) -> Option<Verdict> {
        let all = self.trial(|yields| yields.weighed(weight))?;
        let own = self.trial(|yields| yields.own)?;
        match (all.verdict(), own.verdict()) {
            // More room for those that contend helps nobody else: then it is chance, or a backlog.
            (Some(Verdict::Better(_)), Some(Verdict::Worse)) if !lower => Some(Verdict::Worse),
            (Some(Verdict::Better(gain)), _) => Some(Verdict::Better(gain)),
            (Some(Verdict::Worse), _) => Some(Verdict::Worse),
            (_, Some(Verdict::Better(_))) if lower => Some(Verdict::Better(all.gain())),
            (_, Some(Verdict::Worse)) => Some(Verdict::Worse),
            (Some(Verdict::NoWorse), Some(Verdict::NoWorse | Verdict::Better(_))) => Some(Verdict::NoWorse),
            (Some(_), Some(_)) => Some(Verdict::Same),
            (None, _) | (_, None) => None,
        }
    }

    fn trial(&self, of: impl Fn(&Yields) -> Yield) -> Option<Trial> {
        let mut trial = Trial::new(of(self.stretches.first()?));
        for pair in self.stretches[1..].chunks_exact(2) {
            trial.tried(of(&pair[0]));
            trial.returned(of(&pair[1]));
        }
        Some(trial)
    }
}

impl Yields {
    /// What all completed, if the work of those that are bounded counts for so much of what it is said to be.
    fn weighed(&self, weight: f64) -> Yield {
        let own = self.own;
        let rate = self.all.rate - (1.0 - weight) * own.rate;
        if weight >= 1.0 || rate <= 0.0 {
            return self.all;
        }
        // Variances of work a second: what is taken off the own part is taken off its variance squared.
        let variance = |one: &Yield| one.noise * one.rate * one.rate;
        let left = variance(&self.all) - (1.0 - weight * weight) * variance(&own);
        Yield { rate, noise: left.max(0.0) / (rate * rate), ..self.all }
    }
}

/// The pairs so far.
#[derive(Debug)]
pub(super) struct Trial {
    /// The last stretch under the present bound, and the one under the other since.
    last: Yield,
    other: Option<Yield>,
    differences: Moments,
    /// The sum of logarithms in which each B is compared with only the better of the two stretches around it.
    /// `against_worse` is the sum for the worse one.
    against_better: f64,
    against_worse: f64,
    noise: f64,
    /// Of those with enough completions.
    told: bool,
}

impl Trial {
    /// Begins with a stretch under the present bound.
    pub(super) fn new(first: Yield) -> Self {
        Self {
            last: first,
            other: None,
            differences: Moments::default(),
            against_better: 0.0,
            against_worse: 0.0,
            noise: 0.0,
            told: true,
        }
    }

    /// A stretch under the other bound has ended.
    pub(super) fn tried(&mut self, other: Yield) {
        self.other = Some(other);
    }

    /// A stretch under the present bound has ended, and with it a pair.
    pub(super) fn returned(&mut self, present: Yield) {
        let before = core::mem::replace(&mut self.last, present);
        let Some(other) = self.other.take() else {
            return;
        };
        self.differences.add(libm::log(2.0 * other.rate / (before.rate + present.rate)));
        self.against_better += libm::log(other.rate / before.rate.max(present.rate));
        self.against_worse += libm::log(other.rate / before.rate.min(present.rate));
        self.noise += other.noise + (before.noise + present.noise) / 4.0;
        self.told &= other.completions + present.completions >= COMPLETIONS;
    }

    /// By which share more is completed, on the mean of the pairs.
    fn gain(&self) -> f64 {
        libm::exp(self.differences.mean().unwrap_or(0.0)) - 1.0
    }

    /// What can be said by now; `None`: go on.
    pub(super) fn verdict(&self) -> Option<Verdict> {
        let mean = self.differences.mean()?;
        let pairs = self.differences.count;
        let by_chance = libm::sqrt(self.noise) / pairs;
        let at_once = LARGE.max(BEYOND_CHANCE * by_chance);
        if self.against_better / pairs > at_once {
            return Some(Verdict::Better(libm::exp(mean) - 1.0));
        }
        if self.against_worse / pairs < -at_once {
            return Some(Verdict::Worse);
        }
        let undecided = (pairs >= PAIRS_MAX as f64).then_some(Verdict::Same);
        if pairs < SPREAD || !self.told {
            return undecided;
        }
        let student = STUDENT[(pairs as usize - 2).min(STUDENT.len() - 1)];
        let error = self.differences.error().max(ERROR_MIN) * student;
        let (low, high) = (mean - error, mean + error);
        if low > 0.0 && mean > GAIN.max(by_chance) {
            Some(Verdict::Better(libm::exp(mean) - 1.0))
        } else if low > -LOSS {
            Some(Verdict::NoWorse)
        } else if high < 0.0 {
            Some(Verdict::Worse)
        } else {
            undecided
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn a(rate: f64) -> Yield {
        Yield { rate, noise: 0.03, completions: 32, pace: rate, saturated: true, in_flight: 20.0 }
    }

    /// The verdict after `pairs` pairs with these rates.
    fn after_pairs(pairs: usize, present: f64, other: f64) -> Option<Verdict> {
        let mut trial = Trial::new(a(present));
        for turn in 0..pairs {
            // A spread of 1 %, and a drift of 2 % a pair, which the neighbors cancel.
            let (swing, drift) = (if turn % 2 == 0 { 1.01 } else { 0.99 }, libm::pow(1.02, turn as f64));
            trial.tried(a(other * swing * drift * libm::sqrt(1.02)));
            trial.returned(a(present * drift * 1.02));
        }
        trial.verdict()
    }

    #[test]
    fn what_is_twice_as_good_or_half_as_good_is_told_at_once() {
        assert!(matches!(after_pairs(1, 100.0, 250.0), Some(Verdict::Better(gain)) if gain > 1.0));
        assert_eq!(after_pairs(1, 100.0, 40.0), Some(Verdict::Worse));
        assert_eq!(after_pairs(1, 100.0, 110.0), None);
    }

    #[test]
    fn a_small_gain_is_told_by_the_spread_of_the_pairs() {
        assert!(matches!(after_pairs(6, 100.0, 110.0), Some(Verdict::Better(_))));
        assert_eq!(after_pairs(6, 100.0, 90.0), Some(Verdict::Worse));
        assert_eq!(after_pairs(6, 100.0, 100.0), Some(Verdict::NoWorse));
    }

    #[test]
    fn a_service_that_stood_still_during_one_stretch_deceives_nobody() {
        let mut trial = Trial::new(a(1.0));
        trial.tried(a(100.0));
        trial.returned(a(100.0));
        assert_eq!(trial.verdict(), None);
    }

    #[test]
    fn where_next_to_nothing_completes_nothing_is_told() {
        let still = Yield { completions: 0, noise: 2.0, ..a(0.05) };
        let mut trial = Trial::new(still);
        for _ in 0..PAIRS_MAX {
            assert_eq!(trial.verdict(), None);
            trial.tried(still);
            trial.returned(still);
        }
        assert_eq!(trial.verdict(), Some(Verdict::Same));
    }
}
