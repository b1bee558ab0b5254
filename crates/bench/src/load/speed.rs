//! How fast a processor is while something else is measured on it.
//!
//! A shared machine does a fifth more or less from one minute to the next, and a figure doesn't tell
//! whether it is the server's or the machine's. So twice a second a thread on the same processor does a
//! fixed computation, and takes the processor time that it needs for it: not the time on the clock, which
//! says how many others want the processor. The computation goes from place to place in a table larger than
//! the innermost cache, as databases do. It takes less than a hundredth of the processor.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

use testbed::process::pin_to_cpus;

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
    /// Both at once, so that nobody is told half of a look.
    done: Mutex<Done>,
}

/// Steps, and the nanoseconds that they took.
#[derive(Clone, Copy, Debug, Default)]
struct Done {
    steps: u64,
    nanos: u64,
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
        let Done { steps, nanos } = *self.shared.done.lock().unwrap_or_else(PoisonError::into_inner);
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
            let mut done = shared.done.lock().unwrap_or_else(PoisonError::into_inner);
            *done = Done { steps: done.steps + u64::from(STEPS), nanos: done.nanos.saturating_add(nanos) };
        }
        std::thread::sleep(PAUSE);
    }
}

/// One cycle through all places, without an order that a processor could foresee.
fn table() -> Vec<u32> {
    // A full-period generator modulo a power of two: the multiplier is 1 modulo 4, the increment odd (Hull
    // and Dobell).
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
    use std::time::Instant;

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
        let cpu = testbed::process::allowed_cpus()[0];
        let meter = SpeedMeter::start(cpu);
        // A bound that only a hang reaches, or a thread that couldn't be pinned.
        let bound = Instant::now() + Duration::from_secs(60);
        let speed = loop {
            if let Some(speed) = meter.speed() {
                break speed;
            }
            assert!(Instant::now() < bound, "nobody has looked");
            std::thread::yield_now();
        };
        // From a tenth of a nanosecond to a microsecond for a step: a processor, and the right unit.
        assert!((1.0..10_000.0).contains(&speed), "{speed}");
    }
}
