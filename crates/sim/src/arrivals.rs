//! When requests arrive: open loops, whose clients don't wait for answers, and closed ones, whose clients do.
//!
//! A rate that changes in steps is met exactly: a gap is an amount of expected arrivals (exponential of
//! mean 1, or just 1), used up at the rate of the moment. So a variant with another rate meets the same
//! gaps, stretched.

use std::sync::Arc;

use admission::{Duration, Instant};

use crate::chance::{Chance, Purpose};
use crate::distribution::{Distribution, Sampler};

/// How requests come.
#[derive(Clone, Debug, PartialEq)]
pub enum Arrivals {
    /// An open loop: a Poisson process.
    Poisson(Rate),
    /// An open loop: at regular intervals.
    Regular(Rate),
    /// An open loop that alternates between two rates, Poisson within each.
    OnOff {
        /// The first phase.
        on: Phase,
        /// The other one.
        off: Phase,
    },
    /// Requests as they were recorded, in order of time (counted from the source's beginning).
    Replayed(Arc<[Arrival]>),
    /// A closed loop: each client thinks, sends a request, waits for its end, thinks.
    Closed {
        /// How many clients.
        clients: u32,
        /// How long each client thinks.
        think: Distribution,
        /// The longest time that a client thinks.
        think_max: Option<Duration>,
    },
}

/// Requests per second, in steps.
#[derive(Clone, Debug, PartialEq)]
pub struct Rate(Vec<(Duration, f64)>);

impl Rate {
    /// Always the same.
    pub fn constant(per_second: f64) -> Self {
        Self(vec![(Duration::ZERO, per_second)])
    }

    /// From each time on (in order, counted from the source's beginning) so many; none before the first.
    pub fn steps(steps: impl Into<Vec<(Duration, f64)>>) -> Self {
        Self(steps.into())
    }

    /// The rate times a factor.
    #[must_use]
    pub fn times(&self, factor: f64) -> Self {
        Self(self.0.iter().map(|&(at, rate)| (at, rate * factor)).collect())
    }

    fn fault(&self) -> Option<&'static str> {
        if self.0.iter().any(|(_, rate)| !(rate.is_finite() && *rate >= 0.0)) {
            return Some("a rate must be a number from 0");
        }
        (!self.0.is_sorted_by(|a, b| a.0 < b.0)).then_some("the steps of a rate must be in order of time")
    }
}

/// A phase of an on/off process.
#[derive(Clone, Debug, PartialEq)]
pub struct Phase {
    /// Requests per second.
    pub rate: f64,
    /// How long it lasts.
    pub lasts: Distribution,
}

/// A recorded request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrival {
    /// When, from the source's beginning.
    pub at: Duration,
    /// Its type, an index into the scenario's types.
    pub kind: u32,
    /// What it takes alone; drawn from its type if it wasn't recorded.
    pub service_time: Option<Duration>,
}

impl Arrivals {
    /// What is wrong with it, given how many types there are.
    pub(crate) fn fault(&self, types: usize) -> Option<&'static str> {
        let positive = |phase: &Phase| phase.rate.is_finite() && phase.rate >= 0.0;
        match self {
            Self::Poisson(rate) | Self::Regular(rate) => rate.fault(),
            Self::OnOff { on, off } if !(positive(on) && positive(off)) => {
                Some("a rate must be a number from 0")
            }
            Self::OnOff { on, off } if on.lasts.mean() + off.lasts.mean() <= 0.0 => {
                Some("the phases must last for some time")
            }
            Self::OnOff { on, off } => on.lasts.fault().or(off.lasts.fault()),
            Self::Replayed(arrivals) if !arrivals.is_sorted_by_key(|arrival| arrival.at) => {
                Some("recorded requests must be in order of time")
            }
            Self::Replayed(arrivals) if arrivals.iter().any(|arrival| arrival.kind as usize >= types) => {
                Some("a recorded request is of a type that isn't there")
            }
            Self::Replayed(_) => None,
            Self::Closed { think, .. } => think.fault(),
        }
    }
}

/// The instants at which an open loop's requests arrive.
#[derive(Debug)]
pub(crate) struct Pace {
    chance: Chance,
    poisson: bool,
    segments: Segments,
    /// Where it is, in nanoseconds.
    at: f64,
    /// Until when the rate of now holds.
    until: f64,
    /// Arrivals per second.
    rate: f64,
}

#[derive(Debug)]
enum Segments {
    Steps { steps: Vec<(Duration, f64)>, next: usize, origin: f64 },
    Phases { rates: [f64; 2], lasts: [Sampler; 2], chance: Chance, next: usize },
}

impl Segments {
    /// From now on: arrivals per second, and until when. `None`: never again.
    fn next(&mut self, now: f64) -> Option<(f64, f64)> {
        match self {
            Self::Steps { steps, next, origin } => {
                let at = *next;
                *next += 1;
                let until = steps.get(at).map_or(f64::INFINITY, |step| *origin + step.0.as_nanos() as f64);
                let rate = if at == 0 { 0.0 } else { steps.get(at - 1)?.1 };
                Some((rate, until))
            }
            Self::Phases { rates, lasts, chance, next } => {
                let at = *next;
                *next = 1 - at;
                Some((rates[at], now + lasts[at].sample(chance) as f64))
            }
        }
    }
}

/// The most phases without arrivals that are skipped at once. No process with a positive rate has more.
const SILENT_PHASES_MAX: usize = 1_000_000;

impl Pace {
    /// `index` tells the sources apart. (Nothing arrives by a rate in a closed loop or a replay.)
    pub(crate) fn new(arrivals: &Arrivals, from: Instant, seed: u64, index: u64) -> Self {
        let origin = from.as_nanos() as f64;
        let steps = |rate: &Rate| Segments::Steps { steps: rate.0.clone(), next: 0, origin };
        let segments = match arrivals {
            Arrivals::Poisson(rate) | Arrivals::Regular(rate) => steps(rate),
            Arrivals::OnOff { on, off } => Segments::Phases {
                rates: [on.rate, off.rate],
                lasts: [on.lasts.sampler(), off.lasts.sampler()],
                chance: Chance::new(seed, Purpose::Arrivals, index + (1 << 32)),
                next: 0,
            },
            Arrivals::Replayed(_) | Arrivals::Closed { .. } => steps(&Rate(Vec::new())),
        };
        let poisson = !matches!(arrivals, Arrivals::Regular(_));
        let chance = Chance::new(seed, Purpose::Arrivals, index);
        Self { chance, poisson, segments, at: origin, until: origin, rate: 0.0 }
    }

    /// The next arrival, in nanoseconds.
    pub(crate) fn next(&mut self) -> Option<u64> {
        let mut needed = if self.poisson { self.chance.exponential() } else { 1.0 };
        for _ in 0..SILENT_PHASES_MAX {
            let gap = needed * 1e9 / self.rate;
            if self.rate > 0.0 && self.at + gap <= self.until {
                self.at += gap;
                return Some(libm::round(self.at) as u64);
            }
            if self.until > self.at {
                needed -= self.rate * ((self.until - self.at) * 1e-9);
                self.at = self.until;
            }
            if self.at.is_infinite() {
                return None;
            }
            (self.rate, self.until) = self.segments.next(self.at)?;
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pace(arrivals: &Arrivals) -> Pace {
        Pace::new(arrivals, Instant::ZERO, 5, 0)
    }

    fn until(pace: &mut Pace, seconds: u64) -> Vec<u64> {
        std::iter::from_fn(|| pace.next()).take_while(|&at| at < seconds * 1_000_000_000).collect()
    }

    #[test]
    fn regular_arrivals_follow_the_steps_of_their_rate() {
        let second = Duration::from_secs(1);
        let rate = Rate::steps([(Duration::ZERO, 2.0), (second, 0.0), (2 * second, 4.0), (3 * second, 0.0)]);
        let arrivals: Vec<_> = until(&mut pace(&Arrivals::Regular(rate)), 10);
        let millis: Vec<_> = arrivals.iter().map(|at| at / 1_000_000).collect();
        assert_eq!(millis, [500, 1000, 2250, 2500, 2750, 3000]);
    }

    #[test]
    fn a_poisson_process_has_its_rate_and_an_index_of_dispersion_of_one() {
        let mut pace = pace(&Arrivals::Poisson(Rate::constant(100.0)));
        let arrivals = until(&mut pace, 1_000);
        let mut counts = vec![0.0; 1_000];
        for at in arrivals {
            counts[(at / 1_000_000_000) as usize] += 1.0;
        }
        let mean = counts.iter().sum::<f64>() / 1e3;
        let variance = counts.iter().map(|count| (count - mean) * (count - mean)).sum::<f64>() / 1e3;
        assert!((mean - 100.0).abs() < 1.5, "{mean}");
        assert!((variance / mean - 1.0).abs() < 0.15, "{variance}");
    }

    #[test]
    fn an_on_off_process_alternates_and_silence_is_skipped() {
        let phase = |rate, seconds| Phase { rate, lasts: Distribution::Fixed(Duration::from_secs(seconds)) };
        let mut pace = pace(&Arrivals::OnOff { on: phase(50.0, 1), off: phase(0.0, 3) });
        let arrivals = until(&mut pace, 400);
        assert!(arrivals.iter().all(|at| at / 1_000_000_000 % 4 == 0));
        assert!((arrivals.len() as f64 / 5_000.0 - 1.0).abs() < 0.05, "{}", arrivals.len());
    }

    #[test]
    fn nothing_arrives_at_a_rate_of_zero_or_between_phases_that_are_both_silent() {
        assert_eq!(pace(&Arrivals::Poisson(Rate::constant(0.0))).next(), None);
        let phase = Phase { rate: 0.0, lasts: Distribution::Fixed(Duration::from_secs(1)) };
        assert_eq!(pace(&Arrivals::OnOff { on: phase.clone(), off: phase }).next(), None);
    }
}
