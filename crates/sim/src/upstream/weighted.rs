//! Processor sharing by weights: each source has its part of the cores, shared equally by its requests.
//!
//! As hierarchical start-time fair queueing and control groups do, in the limit of small quanta. A source
//! without requests leaves its part to the others, in proportion to their weights. Each source has a clock.
//! With few requests on several cores the limit of one
//! core for each request is ignored: for one core.

use super::clock::{self, Clock};

/// Cores that are shared by weights.
#[derive(Debug)]
pub(super) struct Weighted {
    cores: f64,
    factor: f64,
    /// The weight of each source, and its clock.
    weights: Vec<f64>,
    clocks: Vec<Clock>,
    /// The source of each handle.
    source_of: Vec<usize>,
}

impl Weighted {
    pub(super) fn new(cores: u32) -> Self {
        let (weights, clocks, source_of) = Default::default();
        Self { cores: cores.into(), factor: 1.0, weights, clocks, source_of }
    }

    fn reach(&mut self, source: usize) {
        while self.clocks.len() <= source {
            self.weights.push(1.0);
            self.clocks.push(Clock::default());
        }
    }

    /// Another weight of a source from now on.
    pub(super) fn weigh(&mut self, source: usize, weight: f64) {
        self.reach(source);
        self.weights[source] = weight.max(1e-6);
        self.set_rates();
    }

    pub(super) fn start(&mut self, handle: u32, source: usize, work: f64) {
        self.reach(source);
        let index = handle as usize;
        if index >= self.source_of.len() {
            self.source_of.resize(index + 1, 0);
        }
        self.source_of[index] = source;
        self.clocks[source].start(handle, work);
        self.set_rates();
    }

    /// How long until the next one ends.
    pub(super) fn left(&self) -> Option<f64> {
        clock::next(&self.clocks).map(|(left, _)| left)
    }

    /// Takes out the one that ends first, and how far its clock is beyond its end.
    pub(super) fn finish(&mut self) -> Option<(u32, f64)> {
        let (_, handle) = clock::next(&self.clocks)?;
        let left = self.stop(handle);
        Some((handle, -left))
    }

    /// Takes a request out. Returns the service time that was left of it.
    pub(super) fn stop(&mut self, handle: u32) -> f64 {
        let left = self.clocks[self.source_of[handle as usize]].stop(handle);
        self.set_rates();
        left
    }

    pub(super) fn set_speed(&mut self, factor: f64) {
        self.factor = factor;
        self.set_rates();
    }

    fn set_rates(&mut self) {
        let busy = self.clocks.iter().zip(&self.weights).filter(|(clock, _)| clock.len() > 0);
        let sum: f64 = busy.map(|(_, weight)| weight).sum();
        let speed = self.cores * self.factor;
        for (clock, weight) in self.clocks.iter_mut().zip(&self.weights) {
            let count = clock.len();
            clock.rate = if count == 0 { 0.0 } else { speed * weight / sum / count as f64 };
        }
    }

    /// Advances all clocks by `passed`. Returns the work done in that time.
    pub(super) fn advance(&mut self, passed: f64) -> f64 {
        clock::advance(&mut self.clocks, passed)
    }
}
