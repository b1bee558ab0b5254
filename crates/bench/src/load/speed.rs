//! How fast a processor is while something else is measured on it.
//!
//! A shared machine does a fifth more or less from one minute to the next, and a figure doesn't tell whether it is the server's or
//! the machine's. So twice a second a thread on the same processor does a fixed computation, and takes the processor time that it
//! needs for it: not the time on the clock, which says how many others want the processor. The computation goes from place to place in a
//! table larger than the innermost cache, as databases do. It takes less than a hundredth of the processor.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

use crate::process::pin_to_cpus;

/// How often it is looked.
const PAUSE: Duration = Duration::from_millis(500);
/// Places of the table; 256 KiB.
const PLACES: usize = 1 << 16;
/// Steps of one look: about two milliseconds.
const STEPS: u32 = 200_000;
/// Steps beforehand, which bring the table back into the caches.
const WARM_UP: u32 = PLACES as u32;

/// Measures how fast a processor is, until it is dropped.
#[derive(Debug)]
pub struct SpeedMeter {
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    is_over: AtomicBool,
    steps: AtomicU64,
    nanos: AtomicU64,
}

impl SpeedMeter {
    /// Starts measuring processor `cpu`.
    pub fn start(cpu: usize) -> Self {
        let shared = Arc::new(Shared::default());
        let of_thread = Arc::clone(&shared);
        // Without a thread there is nothing to tell, and the experiment goes on.
        let _ = std::thread::Builder::new().name("speed".to_owned()).spawn(move || {
            if pin_to_cpus(&[cpu]).is_ok() {
                look(&of_thread);
            }
        });
        Self { shared }
    }

    /// Millions of steps in a second of processor time; none before the first look.
    pub fn speed(&self) -> Option<f64> {
        let (steps, nanos) =
            (self.shared.steps.load(Ordering::Relaxed), self.shared.nanos.load(Ordering::Relaxed));
        (nanos > 0).then(|| steps as f64 / nanos as f64 * 1e3)
    }
}

impl Drop for SpeedMeter {
    fn drop(&mut self) {
        self.shared.is_over.store(true, Ordering::Relaxed);
    }
}

fn look(shared: &Shared) {
    let table = table();
    let mut place = 0;
    while !shared.is_over.load(Ordering::Relaxed) {
        place = walk(&table, place, WARM_UP);
        let before = processor_time();
        place = walk(&table, place, STEPS);
        let took = processor_time().saturating_sub(before);
        // What the walk came to is used, so that it can't be left out.
        if place < table.len() {
            let nanos = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
            shared.nanos.fetch_add(nanos, Ordering::Relaxed);
            shared.steps.fetch_add(u64::from(STEPS), Ordering::Relaxed);
        }
        std::thread::sleep(PAUSE);
    }
}

/// One cycle through all places, without an order that a processor could foresee.
fn table() -> Vec<u32> {
    // A full-period generator modulo a power of two: the multiplier is 1 modulo 4, the increment odd (Hull and Dobell).
    (0..PLACES as u32).map(|at| (at.wrapping_mul(20_077) + 12_345) % PLACES as u32).collect()
}

fn walk(table: &[u32], from: usize, steps: u32) -> usize {
    (0..steps).fold(from, |place, _| table[place] as usize)
}

/// Processor time that this thread has used.
fn processor_time() -> Duration {
    Duration::try_from(clock_gettime(ClockId::ThreadCPUTime)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_walk_comes_to_every_place_and_back() {
        let table = table();
        let mut seen = vec![false; PLACES];
        let mut place = 0;
        for _ in 0..PLACES {
            assert!(!std::mem::replace(&mut seen[place], true), "twice at {place}");
            place = walk(&table, place, 1);
        }
        assert_eq!(place, 0);
    }

    #[test]
    fn a_processor_has_a_speed_once_it_was_looked() {
        let cpu = crate::process::allowed_cpus()[0];
        let meter = SpeedMeter::start(cpu);
        while meter.speed().is_none() {
            std::thread::sleep(Duration::from_millis(1));
        }
        // From a tenth of a nanosecond to a microsecond for a step: a processor, and the right unit.
        let speed = meter.speed().unwrap();
        assert!((1.0..10_000.0).contains(&speed), "{speed}");
    }
}
