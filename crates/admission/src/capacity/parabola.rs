//! Parabola approximation (Heiss and Wagner, *Adaptive Load Control in Transaction Processing Systems*, VLDB
//! 1991), for the papers' experiments.
//!
//! Throughput as a function of the number in flight is taken for a parabola near its peak,
//! `P(n) = a₀ + a₁ n + a₂ n²`. It is fitted by least squares with exponentially fading memory (recursive
//! least squares in normal form; each interval keeps α of the past). Where the parabola opens downwards
//! the bound goes to its apex, `n* = −a₁ / 2a₂`. Elsewhere it takes a step in the direction of the slope.
//! The bound swings to both sides, interval by interval, or there would be nothing to fit.
//!
//! When it fails: a cliff behind a plateau is no parabola, and the fit's apex lies somewhere on the plateau
//! at best. Noise on a plateau makes the sign of a₂ chance, so that the bound jumps. Drift of the service's
//! speed tilts the parabola.

use super::interval::Interval;
use crate::outside::{Control, Sample};
use crate::time::Instant;

/// The first bound: enough in flight for a slope, and few enough to harm no service.
const START: f64 = 20.0;
/// α, so that about ten intervals are remembered.
const MEMORY: f64 = 0.9;
/// The swing, as a share of the bound; at least 1.
const SWING: f64 = 0.1;
/// The farthest that the bound goes at once, as a share of it.
const STEP_MAX: f64 = 0.5;

/// The state of the fit.
#[derive(Debug)]
pub(crate) struct Parabola {
    bound: f64,
    /// Whether the next swing goes above the bound.
    up: bool,
    /// Faded sums of nᵏ, k = 0 … 4, and of P nᵏ, k = 0 … 2.
    powers: [f64; 5],
    products: [f64; 3],
    top: f64,
    interval: Interval,
}

impl Parabola {
    /// Creates a bound of at most `top`.
    pub(crate) fn new(top: u32) -> Self {
        let top = f64::from(top);
        Self {
            bound: START.min(top),
            up: true,
            powers: [0.0; 5],
            products: [0.0; 3],
            top,
            interval: Interval::default(),
        }
    }

    fn step(&mut self, throughput: f64, in_flight: f64) {
        let mut power = 1.0;
        for k in 0..5 {
            self.powers[k] = MEMORY * self.powers[k] + power;
            if let Some(product) = self.products.get_mut(k) {
                *product = MEMORY * *product + throughput * power;
            }
            power *= in_flight;
        }
        let reach = (STEP_MAX * self.bound).max(1.0);
        let target = match self.fit() {
            Some((slope, bend)) if bend < 0.0 => -slope / (2.0 * bend),
            Some((slope, bend)) if slope + 2.0 * bend * self.bound < 0.0 => self.bound - reach,
            Some(_) => self.bound + reach,
            None => self.bound,
        };
        self.bound = target.clamp(self.bound - reach, self.bound + reach).clamp(1.0, self.top);
        self.up = !self.up;
    }

    /// Finds a₁ and a₂ by Cramer's rule, if the observations determine them.
    fn fit(&self) -> Option<(f64, f64)> {
        let [s0, s1, s2, s3, s4] = self.powers;
        let [p0, p1, p2] = self.products;
        let determinant = s0 * (s2 * s4 - s3 * s3) - s1 * (s1 * s4 - s2 * s3) + s2 * (s1 * s3 - s2 * s2);
        // Relative to the product of the diagonal: below it there is no more than rounding.
        if determinant.abs() <= 1e-9 * (s0 * s2 * s4).abs() {
            return None;
        }
        let slope = s0 * (p1 * s4 - p2 * s3) - p0 * (s1 * s4 - s3 * s2) + s2 * (s1 * p2 - s2 * p1);
        let bend = s0 * (s2 * p2 - s3 * p1) - s1 * (s1 * p2 - p1 * s2) + p0 * (s1 * s3 - s2 * s2);
        Some((slope / determinant, bend / determinant))
    }
}

impl Control for Parabola {
    fn most(&self) -> u32 {
        let swing = (SWING * self.bound).max(1.0);
        let most = if self.up { self.bound + swing } else { self.bound - swing };
        most.clamp(1.0, self.top) as u32
    }

    fn found(&self) -> u32 {
        self.bound as u32
    }

    fn observe(&mut self, now: Instant, in_flight: u32, _waited_for: bool) {
        self.interval.observe(now, in_flight);
    }

    fn complete(&mut self, now: Instant, sample: &Sample) {
        if sample.success
            && let Some(observation) = self.interval.complete(now)
        {
            self.step(observation.throughput, observation.in_flight);
        }
    }

    fn set_top(&mut self, top: u32) {
        self.top = f64::from(top);
        self.bound = self.bound.min(self.top);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_parabola_is_fitted_exactly_and_its_apex_found() {
        let mut parabola = Parabola::new(1_000);
        for in_flight in [4.0, 8.0, 12.0, 16.0] {
            parabola.step(100.0 + 20.0 * in_flight - in_flight * in_flight / 2.0, in_flight);
        }
        let (slope, bend) = parabola.fit().expect("four different points");
        assert!((slope - 20.0).abs() < 1e-6 && (bend + 0.5).abs() < 1e-6);
        assert!((parabola.bound - 20.0).abs() < 1e-6, "{}", parabola.bound);
    }

    #[test]
    fn one_point_tells_nothing() {
        let mut parabola = Parabola::new(1_000);
        for _ in 0..5 {
            parabola.step(100.0, 20.0);
        }
        assert_eq!(parabola.fit(), None);
        assert!((parabola.bound - 20.0).abs() < 1e-9);
    }
}
