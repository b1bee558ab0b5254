//! Runs cases on all cores, and keeps a digest of each.

use std::num::NonZeroUsize;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use super::Plan;
use admission::Duration;
use sim::uplink::{Demand, Digest, Download, Phases, Setup, serve};

/// How long a run goes on behind its last request, so that what waits can end.
const DRAIN: Duration = Duration::from_secs(300);

/// One run.
#[derive(Clone, Debug)]
pub(crate) struct Case<'a> {
    pub(crate) setup: Setup,
    pub(crate) phases: Phases,
    pub(crate) trace: &'a [Download],
    pub(crate) length: Duration,
}

/// Runs the cases, and returns what came out in their order.
pub(crate) fn play(plan: &Plan, cases: &[Case<'_>]) -> Vec<Digest> {
    plan.progress.begin("the uplink's next figure", cases.iter().map(|case| case.length.as_secs()).sum());
    let next = AtomicUsize::new(0);
    let done = Mutex::new(vec![Digest::default(); cases.len()]);
    let threads = thread::available_parallelism().map_or(1, NonZeroUsize::get);
    thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while let Some((at, case)) = {
                    let at = next.fetch_add(1, Ordering::Relaxed);
                    cases.get(at).map(|case| (at, case))
                } {
                    let requests = case.phases.replay(&case.setup, case.trace, case.length);
                    let served = serve(&case.setup, &Demand::Open(requests), case.length + DRAIN, 1);
                    plan.progress.advance(case.length.as_secs());
                    let digest = Digest::of(&served, case.length);
                    if let Ok(mut done) = done.lock() {
                        done[at] = digest;
                    }
                }
            });
        }
    });
    done.into_inner().unwrap_or_default()
}
