//! A stretch of time under one bound while others wait, and what it shows.

use crate::moments::Moments;
use crate::time::Instant;

/// A difference of this logarithm (a factor of 1.6) is believed after one stretch.
pub(super) const HUGE: f64 = 0.47;
/// A difference of this many standard errors is no chance.
pub(super) const SURE: f64 = 3.0;

/// What ends under one bound while others wait.
#[derive(Clone, Debug, Default)]
pub(super) struct Stretch {
    pub(super) began: Instant,
    /// How many of those begun under another bound are still to end before this one is measured.
    pub(super) unsettled: u32,
    /// How long others have waited in it.
    pub(super) seconds: f64,
    /// The work of the answers.
    pub(super) answers: Moments,
    /// The work of the request that ended last.
    pub(super) last: f64,
    /// The number in flight, integrated over `seconds`.
    pub(super) in_flight: f64,
    /// For how many seconds the service was busy with each that ended.
    pub(super) busy: Moments,
}

/// The logarithms of the work answered in a second and of the answers, and the variances that they have by
/// chance.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Yield {
    pub(super) rate: f64,
    pub(super) noise: f64,
    pub(super) answers: f64,
    pub(super) answers_noise: f64,
}

impl Yield {
    /// Whether hugely less is answered than `before`, in work as well as in number. A stretch that by chance
    /// has many long requests answers fewer, one that has few of them answers less work.
    pub(super) fn is_hugely_below(&self, before: &Self) -> bool {
        let is_huge = |lost: f64, noise: f64| lost > HUGE.max(SURE * libm::sqrt(noise));
        is_huge(before.rate - self.rate, before.noise + self.noise)
            && is_huge(before.answers - self.answers, before.answers_noise + self.answers_noise)
    }
}

impl Stretch {
    pub(super) fn new(began: Instant, unsettled: u32) -> Self {
        Self { began, unsettled, last: 1e-3, ..Self::default() }
    }

    /// For how long a place is taken, in seconds: the mean over time, not over requests. Within less none of
    /// those that began together may end.
    pub(super) fn turn(&self) -> f64 {
        if self.busy.sum > 0.0 { self.busy.squares / self.busy.sum } else { 0.0 }
    }

    /// Half an answer more than there were counts, so that none at all has a logarithm as well.
    pub(super) fn measure(&self) -> Yield {
        let mean = self.answers.mean().unwrap_or(self.last);
        let work = self.answers.sum + mean / 2.0;
        let (seconds, answered) = (self.seconds.max(1e-9), self.answers.count + 0.5);
        Yield {
            rate: libm::log(work / seconds),
            noise: (self.answers.squares + mean * mean) / (work * work),
            answers: libm::log(answered / seconds),
            answers_noise: 1.0 / answered,
        }
    }
}
