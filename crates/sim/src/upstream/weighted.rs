//! Processor sharing by weights: each source has its part of the cores, shared equally by its requests.
//!
//! As hierarchical start-time fair queueing and control groups do, in the limit of small quanta. A source
//! without requests leaves its part to the others, in proportion to their weights. Each source has a clock
//! that shows what each of its requests has been given. With few requests on several cores the limit of one
//! core for each request is ignored: for one core.

use super::heap::Heap;

#[derive(Debug)]
struct Part {
    weight: f64,
    shows: f64,
    rate: f64,
    ends: Heap,
}

/// Cores that are shared by weights.
#[derive(Debug)]
pub(super) struct Weighted {
    cores: f64,
    factor: f64,
    parts: Vec<Part>,
    /// The part of each handle.
    part_of: Vec<usize>,
}

impl Weighted {
    pub(super) fn new(cores: u32) -> Self {
        Self { cores: cores.into(), factor: 1.0, parts: Vec::new(), part_of: Vec::new() }
    }

    fn reach(&mut self, source: usize) {
        while self.parts.len() <= source {
            self.parts.push(Part { weight: 1.0, shows: 0.0, rate: 0.0, ends: Heap::default() });
        }
    }

    /// Another weight of a source from now on.
    pub(super) fn weigh(&mut self, source: usize, weight: f64) {
        self.reach(source);
        self.parts[source].weight = weight.max(1e-6);
        self.set_rates();
    }

    pub(super) fn start(&mut self, handle: u32, source: usize, work: f64) {
        self.reach(source);
        let index = handle as usize;
        if index >= self.part_of.len() {
            self.part_of.resize(index + 1, 0);
        }
        self.part_of[index] = source;
        let part = &mut self.parts[source];
        if part.ends.is_empty() {
            part.shows = 0.0;
        }
        part.ends.insert(handle, part.shows + work);
        self.set_rates();
    }

    /// How long until the next one ends.
    pub(super) fn left(&self) -> Option<f64> {
        self.parts.iter().filter_map(Part::left).min_by(f64::total_cmp)
    }

    /// Takes out the one that ends first, and how far its clock is beyond its end.
    pub(super) fn finish(&mut self) -> Option<(u32, f64)> {
        let first = self.parts.iter().filter_map(|part| Some((part.left()?, part.ends.first()?.1)));
        let (_, handle) = first.min_by(|a, b| a.0.total_cmp(&b.0))?;
        let left = self.stop(handle);
        Some((handle, -left))
    }

    /// Takes one out. What was left of it.
    pub(super) fn stop(&mut self, handle: u32) -> f64 {
        let part = &mut self.parts[self.part_of[handle as usize]];
        let end = part.ends.remove(handle).unwrap_or(part.shows);
        let left = end - part.shows;
        self.set_rates();
        left
    }

    pub(super) fn set_speed(&mut self, factor: f64) {
        self.factor = factor;
        self.set_rates();
    }

    fn set_rates(&mut self) {
        let busy = self.parts.iter().filter(|part| !part.ends.is_empty());
        let sum: f64 = busy.map(|part| part.weight).sum();
        let speed = self.cores * self.factor;
        for part in &mut self.parts {
            let count = part.ends.len();
            part.rate = if count == 0 { 0.0 } else { speed * part.weight / sum / count as f64 };
        }
    }

    /// Advances all clocks by `passed`. Returns the work done in that time.
    pub(super) fn advance(&mut self, passed: f64) -> f64 {
        let mut done = 0.0;
        for part in &mut self.parts {
            let given = part.rate * passed;
            part.shows += given;
            done += given * part.ends.len() as f64;
        }
        done
    }
}

impl Part {
    fn left(&self) -> Option<f64> {
        let (end, _) = self.ends.first().filter(|_| self.rate > 0.0)?;
        Some((end - self.shows) / self.rate)
    }
}
