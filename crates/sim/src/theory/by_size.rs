//! Response times by size, below saturation and beyond: what referees the uplink's scheduler.
//!
//! ρ(x) is the utilization by requests of at most x. Beyond saturation the critical size is where ρ(x) = 1:
//!
//! * A smaller request never meets those above the critical size, which are served only where nothing
//!   smaller is there. It has the response time of a system without them (Bansal and Harchol-Balter,
//!   CMU-CS-01-134, 2001).
//! * A larger one waits until the overload is over and what is as small as itself has been worked off. An
//!   overload of length τ leaves (ρ(x) − 1)τ of that, which a load of ρ′(x) lets end after (ρ(x) − 1)τ / (1
//!   − ρ′(x)): the busy period that begins with that work.

use super::{POINTS, cumulative};

/// A distribution of sizes and a rate of arrivals.
#[derive(Clone, Debug)]
pub struct BySize {
    rate: f64,
    sizes: Vec<f64>,
    /// The part of requests up to each size, and the first and second moments of those.
    below: Vec<f64>,
    first: Vec<f64>,
    second: Vec<f64>,
}

impl BySize {
    /// Sizes of this density on [`least`, `most`] (any multiple of it will do), at this rate.
    pub fn new(rate: f64, least: f64, most: f64, density: impl Fn(f64) -> f64) -> Self {
        let step = libm::log(most / least) / (POINTS - 1) as f64;
        let sizes: Vec<f64> = (0..POINTS).map(|point| least * libm::exp(step * point as f64)).collect();
        let total = cumulative(&sizes, |at| density(sizes[at]))[POINTS - 1];
        let weight = |at: usize| density(sizes[at]) / total;
        Self {
            rate,
            below: cumulative(&sizes, weight),
            first: cumulative(&sizes, |at| sizes[at] * weight(at)),
            second: cumulative(&sizes, |at| sizes[at] * sizes[at] * weight(at)),
            sizes,
        }
    }

    /// The mean size.
    pub fn mean(&self) -> f64 {
        self.first[POINTS - 1]
    }

    /// The point of the grid at a size.
    fn point(&self, size: f64) -> usize {
        self.sizes.partition_point(|&known| known <= size).clamp(1, POINTS) - 1
    }

    fn load(&self, at: usize) -> f64 {
        self.rate * self.first[at]
    }

    /// The utilization by requests of at most this size.
    pub fn load_below(&self, size: f64) -> f64 {
        self.load(self.point(size))
    }

    /// The size below which requests alone would use the service wholly, if there is one.
    pub fn critical(&self) -> Option<f64> {
        let at = self.first.partition_point(|&first| self.rate * first < 1.0);
        self.sizes.get(at).copied()
    }

    /// Mean response time of a request of this size under the shortest remaining first; below the critical
    /// size also where the service is overloaded.
    pub fn shortest_remaining(&self, size: f64) -> f64 {
        let at = self.point(size);
        let last = self.critical().map_or(POINTS - 1, |critical| self.point(critical));
        let idle = 1.0 - self.load(at);
        if idle <= 0.0 || at >= last && last < POINTS - 1 {
            return f64::INFINITY;
        }
        // Only those below the critical size come down to this one.
        let moment = self.second[at] + self.sizes[at] * self.sizes[at] * (self.below[last] - self.below[at]);
        let residence: f64 = (1..=at)
            .map(|point| (self.sizes[point] - self.sizes[point - 1]) / (1.0 - self.load(point - 1)))
            .sum();
        self.rate * moment / 2.0 / (idle * idle) + self.sizes[0] + residence
    }

    /// The mean over all of the response time under least attained service, where sizes are unknown.
    pub fn least_attained(&self) -> f64 {
        let of = |at: usize| {
            let (size, above) = (self.sizes[at], 1.0 - self.below[at]);
            let first = self.first[at] + size * above;
            let second = self.second[at] + size * size * above;
            let idle = 1.0 - self.rate * first;
            self.rate * second / 2.0 / (idle * idle) + size / idle
        };
        (1..POINTS).map(|at| (self.below[at] - self.below[at - 1]) * f64::midpoint(of(at), of(at - 1))).sum()
    }

    /// Mean response time under the shortest remaining first of a request above the critical size that comes
    /// at any time in an overload of this length, if from then on the arrivals are `after` times as many.
    pub fn beyond_overload(&self, size: f64, lasts: f64, after: f64) -> f64 {
        let load = self.load_below(size);
        let left = (load - 1.0).max(0.0) * lasts;
        lasts / 2.0 + left / (1.0 - after * load)
    }
}
