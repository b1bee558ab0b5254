//! How a type's upstream time grows with its own number in flight, and with all that is.
//!
//! ln T = a + own · ln n + all · ln m, by least squares with exponentially falling weights, where n is how
//! many of the type were in flight on average while a request was, and m how many of all. On a service that
//! shares its processor T follows m alone, whatever the type (own = 0, all ≤ 1). Where a type's requests
//! wait for one another T follows n at least in proportion (own ≥ 1).
//!
//! | constant | | why |
//! |---|---|---|
//! | [`MEMORY`] | 2048 executions | 17 that overlap tell as much as one; 120 such give a slope to ± 0.3 |
//! | [`SAMPLES`] | 64 | fewer say nothing of their spread |
//! | [`OWN_DOUBT`], [`ALL_DOUBT`] | 1, 0.25 | a ridge: where n and m always move together, m is believed |
//!
//! It fails where neither varies: then only a trial tells (`contention.rs`).

/// The mean age of a sample, in samples.
const MEMORY: f64 = 2048.0;
/// Fewer samples have no slope.
const SAMPLES: f64 = 64.0;
/// The ridge, in samples of variance 1.
const OWN_DOUBT: f64 = 1.0;
const ALL_DOUBT: f64 = 0.25;

/// Sums with exponentially falling weights.
#[derive(Clone, Debug, Default)]
pub(crate) struct Slope {
    weight: f64,
    x: [f64; 2],
    y: f64,
    /// Own², own · all, all².
    xx: [f64; 3],
    xy: [f64; 2],
    yy: f64,
}

/// The two slopes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Fit {
    /// By the own number.
    pub(crate) own: f64,
    /// By the number of all.
    pub(crate) all: f64,
    /// The standard error of `own`.
    pub(crate) own_error: f64,
    /// The standard error of `own + all`, which is smaller where the two move together.
    pub(crate) sum_error: f64,
}

impl Slope {
    /// Learns that a request took `took`, with `own` requests of its type and `all` requests in flight.
    pub(crate) fn learn(&mut self, own: f64, all: f64, took: f64) {
        let (own, all, took) = (libm::log(own.max(1.0)), libm::log(all.max(1.0)), libm::log(took.max(1.0)));
        let keep = 1.0 - 1.0 / MEMORY;
        self.weight = self.weight * keep + 1.0;
        self.x = [self.x[0] * keep + own, self.x[1] * keep + all];
        self.y = self.y * keep + took;
        self.xx =
            [self.xx[0] * keep + own * own, self.xx[1] * keep + own * all, self.xx[2] * keep + all * all];
        self.xy = [self.xy[0] * keep + own * took, self.xy[1] * keep + all * took];
        self.yy = self.yy * keep + took * took;
    }

    /// The slopes, where each of so many requests that overlap tells as much as a part of one.
    pub(crate) fn fit(&self, overlap: f64) -> Option<Fit> {
        if self.weight < SAMPLES {
            return None;
        }
        let mean = |sum: f64| sum / self.weight;
        let (own, all, y) = (mean(self.x[0]), mean(self.x[1]), mean(self.y));
        let spread = [
            mean(self.xx[0]) - own * own + OWN_DOUBT / self.weight,
            mean(self.xx[1]) - own * all,
            mean(self.xx[2]) - all * all + ALL_DOUBT / self.weight,
        ];
        let with = [mean(self.xy[0]) - own * y, mean(self.xy[1]) - all * y];
        let determinant = spread[0] * spread[2] - spread[1] * spread[1];
        if determinant <= 0.0 {
            return None;
        }
        let inverse = [spread[2] / determinant, -spread[1] / determinant, spread[0] / determinant];
        let slopes =
            [inverse[0] * with[0] + inverse[1] * with[1], inverse[1] * with[0] + inverse[2] * with[1]];
        let left = mean(self.yy) - y * y - slopes[0] * with[0] - slopes[1] * with[1];
        let each = left.max(0.0) * overlap.max(1.0) / self.weight;
        Some(Fit {
            own: slopes[0],
            all: slopes[1],
            own_error: libm::sqrt(each * inverse[0]),
            sum_error: libm::sqrt(each * (inverse[0] + 2.0 * inverse[1] + inverse[2]).max(0.0)),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A number that wanders evenly between two others.
    fn wander(turn: u32, period: u32, low: f64, high: f64) -> f64 {
        low + (high - low) * f64::from(turn * 7 % period) / f64::from(period)
    }

    fn learned(took: impl Fn(f64, f64) -> f64) -> Fit {
        let mut slope = Slope::default();
        for turn in 0..1_000 {
            let own = wander(turn, 11, 3.0, 12.0);
            let all = own + wander(turn, 13, 2.0, 20.0);
            let noise = wander(turn, 17, 0.7, 1.3);
            slope.learn(own, all, 1e6 * noise * took(own, all));
        }
        slope.fit(10.0).expect("enough samples")
    }

    #[test]
    fn a_processor_that_is_shared_slows_by_all_that_is_in_flight() {
        let fit = learned(|_, all| all / 4.0);
        assert!(fit.own.abs() < 0.1 && (fit.all - 1.0).abs() < 0.1, "{fit:?}");
    }

    #[test]
    fn a_lock_slows_by_those_that_need_it() {
        let fit = learned(|own, _| own * (1.0 + 0.05 * (own - 1.0)));
        assert!(fit.own - 2.0 * fit.own_error > 0.5 && fit.all.abs() < 0.1, "{fit:?}");
    }

    #[test]
    fn few_samples_say_nothing() {
        let mut slope = Slope::default();
        (0..63).for_each(|turn| slope.learn(f64::from(turn), f64::from(turn), 1.0));
        assert_eq!(slope.fit(1.0), None);
    }

    #[test]
    fn where_both_move_together_it_is_the_number_of_all() {
        let mut slope = Slope::default();
        (0..1_000).for_each(|turn| {
            let all = wander(turn, 11, 3.0, 30.0);
            slope.learn(all, all, all * 1e6);
        });
        let fit = slope.fit(1.0).expect("enough samples");
        assert!(fit.all > 3.0 * fit.own && (fit.own + fit.all - 1.0).abs() < 0.05, "{fit:?}");
    }
}
