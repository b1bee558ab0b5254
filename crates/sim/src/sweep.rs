//! Many runs on all cores, with results in the order of the scenarios, whatever order they end in.

use std::num::NonZero;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use crate::engine::{Observer, run_with};
use crate::error::Error;
use crate::result::Run;
use crate::scenario::Scenario;

/// Runs all scenarios on so many threads (`None`: as many as there are cores) and gives what `digest` makes
/// of each, in their order. A digest keeps what is wanted of a run, since the rows of many would fill the
/// memory.
pub fn sweep<T: Send>(
    scenarios: &[Scenario],
    threads: Option<NonZero<usize>>,
    digest: impl Fn(usize, Result<Run, Error>) -> T + Sync,
) -> Vec<T> {
    sweep_with(scenarios, threads, |_| (), |index, run, ()| digest(index, run))
}

/// Runs all scenarios, each with an observer of its own. `digest` gets the observer back.
pub fn sweep_with<O: Observer, T: Send>(
    scenarios: &[Scenario],
    threads: Option<NonZero<usize>>,
    observer: impl Fn(usize) -> O + Sync,
    digest: impl Fn(usize, Result<Run, Error>, O) -> T + Sync,
) -> Vec<T> {
    let threads = threads.or_else(|| thread::available_parallelism().ok()).map_or(1, NonZero::get);
    let next = AtomicUsize::new(0);
    let results: Vec<Mutex<Option<T>>> = scenarios.iter().map(|_| Mutex::new(None)).collect();
    thread::scope(|scope| {
        for _ in 0..threads.min(scenarios.len()) {
            scope.spawn(|| {
                loop {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    let Some(scenario) = scenarios.get(index) else { return };
                    let mut watches = observer(index);
                    let run = run_with(scenario, &mut watches);
                    let result = digest(index, run, watches);
                    if let Ok(mut place) = results[index].lock() {
                        *place = Some(result);
                    }
                }
            });
        }
    });
    // A digest that panicked has ended the scope with its panic already, so every place is filled.
    results.into_iter().filter_map(|place| place.into_inner().ok().flatten()).collect()
}
