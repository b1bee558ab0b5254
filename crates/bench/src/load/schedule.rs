//! What arrives when: drawn before the run, so that every variant meets the same arrivals.

use std::time::Duration;

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use super::mix::Mix;
use crate::Error;

/// The most arrivals that one schedule may hold: 24 bytes each, and no experiment here comes near it.
pub const ARRIVALS_MAX: usize = 10_000_000;

/// One scheduled request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrival {
    /// When, since the start of the run.
    pub due: Duration,
    /// Index of its type in the mix.
    pub request_type: u16,
    /// What its parameters are drawn from.
    pub seed: u64,
}

/// The arrivals of one run, in order of time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Schedule {
    arrivals: Vec<Arrival>,
    window: Duration,
}

impl Schedule {
    /// Poisson arrivals at `rate` per second for `window`, types by the mix's weights.
    ///
    /// # Errors
    /// If the rate isn't positive or there would be more than [`ARRIVALS_MAX`].
    pub fn poisson(mix: &Mix, rate: f64, window: Duration, seed: u64) -> Result<Self, Error> {
        let expected = rate * window.as_secs_f64();
        if !(rate.is_finite() && rate > 0.0 && expected < 0.9 * ARRIVALS_MAX as f64) {
            return Err(Error::Experiment(format!(
                "{rate} arrivals per second for {window:?}: out of range"
            )));
        }
        let mut random = StdRng::seed_from_u64(seed);
        let mut arrivals = Vec::with_capacity(expected as usize + 64);
        let mut due = 0.0;
        loop {
            // 1 - u is never zero, so the logarithm is finite.
            due -= (1.0 - random.random::<f64>()).ln() / rate;
            if due >= window.as_secs_f64() || arrivals.len() >= ARRIVALS_MAX {
                return Ok(Self { arrivals, window });
            }
            arrivals.push(Arrival {
                due: Duration::from_secs_f64(due),
                request_type: mix.choose(&mut random),
                seed: random.random(),
            });
        }
    }

    /// The arrivals, in order of time.
    pub fn arrivals(&self) -> &[Arrival] {
        &self.arrivals
    }

    /// How long requests keep arriving.
    pub const fn window(&self) -> Duration {
        self.window
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::{RequestType, Unit};

    fn mix() -> Mix {
        let request_type =
            |name, weight| RequestType::new(name, weight, Unit::Statements, &[], &["SELECT 1"]).unwrap();
        Mix::new(vec![request_type("often", 9.0), request_type("seldom", 1.0)]).unwrap()
    }

    #[test]
    fn the_same_seed_gives_the_same_arrivals_and_another_seed_others() {
        let draw = |seed| Schedule::poisson(&mix(), 1000.0, Duration::from_secs(2), seed).unwrap();
        assert_eq!(draw(1), draw(1));
        assert_ne!(draw(1), draw(2));
    }

    #[test]
    fn arrivals_are_ordered_inside_the_window_and_as_many_and_as_mixed_as_asked() {
        let window = Duration::from_secs(20);
        let schedule = Schedule::poisson(&mix(), 1000.0, window, 3).unwrap();
        let arrivals = schedule.arrivals();
        assert!(arrivals.is_sorted_by_key(|arrival| arrival.due));
        assert!(arrivals.last().unwrap().due < window);
        // 20 000 expected; five standard deviations are 700.
        assert!((19_300..20_700).contains(&arrivals.len()), "{}", arrivals.len());
        let seldom = arrivals.iter().filter(|arrival| arrival.request_type == 1).count();
        assert!((1_800..2_200).contains(&seldom), "{seldom}");
    }

    #[test]
    fn the_gaps_vary_as_a_poisson_process_does() {
        let schedule = Schedule::poisson(&mix(), 1000.0, Duration::from_secs(20), 4).unwrap();
        let gaps: Vec<f64> =
            schedule.arrivals().windows(2).map(|pair| (pair[1].due - pair[0].due).as_secs_f64()).collect();
        let mean = gaps.iter().sum::<f64>() / gaps.len() as f64;
        let variance = gaps.iter().map(|gap| (gap - mean).powi(2)).sum::<f64>() / gaps.len() as f64;
        let variation = variance.sqrt() / mean;
        assert!((0.95..1.05).contains(&variation), "coefficient of variation {variation}");
    }

    #[test]
    fn a_schedule_beyond_the_bound_is_refused() {
        let day = Duration::from_secs(86_400);
        assert!(Schedule::poisson(&mix(), 1_000.0, day, 1).is_err());
        assert!(Schedule::poisson(&mix(), 0.0, day, 1).is_err());
    }
}
