//! Processor sharing: all in flight are served at once, at equal speed.
//!
//! In virtual time: a clock shows the work that each one has been given since it began, so a request ends
//! when the clock shows its reading at the start plus its service time, however the speed changes
//! meanwhile. That makes every event O(log n). Requests that need a lock run at another speed than the
//! others, so each lock has a clock of its own.
//!
//! With `n` requests that need no lock and `nₗ` that need lock l, each request that can run gets a share
//! min(1, c / units) of a core, where units = n + Σ (1 + burn·(nₗ − 1)); those of lock l have together what
//! one gets, divided by 1 + handover·(nₗ − 1).
//!
//! A service may share its cores among so many at most (limited processor sharing; Nair, Wierman and Zwart,
//! Performance Evaluation 2010): the others wait inside, in order of arrival, and count in what makes it
//! collapse.

use super::Load;
use super::clock::{self, Clock};
use super::collapse::{Collapse, Efficiency};
use super::heap::Heap;

/// Cores that all share.
#[derive(Debug)]
pub(super) struct Sharing {
    cores: f64,
    efficiency: Efficiency,
    /// Hand-over and burning, if locks are what collapses it.
    locks: Option<(f64, f64)>,
    loads: Vec<Load>,
    /// The place of each type's clock.
    clock_of: Vec<usize>,
    /// The clocks, the first for requests without a lock.
    clocks: Vec<Clock>,
    /// The type of each handle.
    kinds: Vec<u32>,
    /// The most that are served at once.
    at_once: usize,
    /// The requests that wait inside, in order of arrival. `waiting_work` is the work of each.
    waiting: Heap,
    waiting_work: Vec<f64>,
    came: f64,
    /// How many requests are inside.
    count: usize,
    weight: u64,
    factor: f64,
}

impl Sharing {
    pub(super) fn new(cores: u32, collapse: &Collapse, at_once: Option<u32>, loads: Vec<Load>) -> Self {
        let locks = match *collapse {
            Collapse::Locks { handover, burn } => Some((handover, burn)),
            _ => None,
        };
        let mut known: Vec<u32> = loads.iter().filter_map(|load| load.lock).collect();
        known.sort_unstable();
        known.dedup();
        let clock_of = |load: &Load| {
            let lock = load.lock.filter(|_| locks.is_some());
            lock.and_then(|lock| known.binary_search(&lock).ok()).map_or(0, |at| at + 1)
        };
        Self {
            cores: cores.into(),
            efficiency: Efficiency::new(cores, collapse),
            locks,
            clock_of: loads.iter().map(clock_of).collect(),
            clocks: (0..=known.len()).map(|_| Clock::default()).collect(),
            loads,
            kinds: Vec::new(),
            at_once: at_once.map_or(usize::MAX, |most| most as usize),
            waiting: Heap::default(),
            waiting_work: Vec::new(),
            came: 0.0,
            count: 0,
            weight: 0,
            factor: 1.0,
        }
    }

    pub(super) fn start(&mut self, handle: u32, kind: u32, work: f64) {
        let index = handle as usize;
        if index >= self.kinds.len() {
            self.kinds.resize(index + 1, 0);
            self.waiting_work.resize(index + 1, 0.0);
        }
        self.kinds[index] = kind;
        self.count += 1;
        self.weight += u64::from(self.loads[kind as usize].weight);
        if self.served() > self.at_once {
            self.came += 1.0;
            self.waiting.insert(handle, self.came);
            self.waiting_work[index] = work;
        } else {
            self.serve(handle, work);
        }
        self.set_rates();
    }

    /// How many are being served.
    fn served(&self) -> usize {
        self.count - self.waiting.len()
    }

    fn serve(&mut self, handle: u32, work: f64) {
        self.clocks[self.clock_of[self.kinds[handle as usize] as usize]].start(handle, work);
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
        let kind = self.kinds[handle as usize] as usize;
        self.count -= 1;
        self.weight -= u64::from(self.loads[kind].weight);
        let left = if self.waiting.remove(handle).is_some() {
            self.waiting_work[handle as usize]
        } else {
            let left = self.clocks[self.clock_of[kind]].stop(handle);
            if let Some((_, next)) = self.waiting.first() {
                self.waiting.remove(next);
                self.serve(next, self.waiting_work[next as usize]);
            }
            left
        };
        self.set_rates();
        left
    }

    pub(super) fn set_speed(&mut self, factor: f64) {
        self.factor = factor;
        self.set_rates();
    }

    fn set_rates(&mut self) {
        let served = self.served();
        let speed = self.factor * self.efficiency.speed(served, self.weight);
        let Some((handover, burn)) = self.locks else {
            self.clocks[0].rate = if served == 0 { 0.0 } else { speed / served as f64 };
            return;
        };
        let lengths = self.clocks[1..].iter().map(Clock::len).filter(|&len| len > 0);
        let burning: f64 = lengths.map(|len| 1.0 + burn * (len - 1) as f64).sum();
        let units = self.clocks[0].len() as f64 + burning;
        let share = self.factor * (self.cores / units).min(1.0);
        self.clocks[0].rate = share;
        for clock in &mut self.clocks[1..] {
            let waiting = clock.len().saturating_sub(1) as f64;
            clock.rate = share / (1.0 + handover * waiting) / (1.0 + waiting);
        }
    }

    /// Advances all clocks by `passed`. Returns the work done in that time.
    pub(super) fn advance(&mut self, passed: f64) -> f64 {
        clock::advance(&mut self.clocks, passed)
    }
}
