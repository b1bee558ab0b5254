//! Runs cases on all cores, and keeps of each what the page shows.

use std::num::NonZeroUsize;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use super::Plan;
use admission::Duration;
use sim::uplink::{Demand, Download, Phases, Second, Served, Setup, serve};

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

/// What the page shows of a run.
#[derive(Clone, Debug, Default)]
pub(crate) struct Digest {
    pub(crate) mean: f64,
    pub(crate) squared_variation: f64,
    pub(crate) deviation: f64,
    pub(crate) first_byte: f64,
    /// The times that half, 90, 99 and 99.9 % of the responses keep.
    pub(crate) quantiles: [f64; 4],
    /// The mean of the largest hundredth, and the size and time of the largest.
    pub(crate) largest: f64,
    pub(crate) very_largest: (u64, f64),
    pub(crate) incomplete: f64,
    /// The mean of those that were sent in each second, and that of their first bytes; only what ended before
    /// the last request.
    pub(crate) over_time: Vec<[f64; 2]>,
    pub(crate) seconds: Vec<Second>,
    /// Of the largest hundredth: size and time, in the order of requests; only where that was asked for.
    pub(crate) of_largest: Vec<Option<f64>>,
}

impl Digest {
    fn of(served: &Served, length: Duration) -> Self {
        let mut times: Vec<f64> = served.times().collect();
        times.sort_by(f64::total_cmp);
        let at = |part: f64| {
            times.get(((times.len() as f64 * part) as usize).min(times.len().saturating_sub(1))).copied()
        };
        let first = served.responses.iter().filter_map(|one| one.first_byte);
        let (sum, count) = first.fold((0.0, 0.0), |(sum, count), time| (sum + time, count + 1.0));
        let end = length.as_secs_f64();
        let mut over_time = vec![[0.0; 3]; length.as_secs() as usize + 1];
        for one in &served.responses {
            if let (Some(first), Some(time)) = (one.first_byte, one.response)
                && one.at + time <= end
            {
                let slot = &mut over_time[(one.at as usize).min(length.as_secs() as usize)];
                *slot = [slot[0] + time, slot[1] + first, slot[2] + 1.0];
            }
        }
        let mut by_size: Vec<_> = served.responses.iter().collect();
        by_size.sort_by_key(|one| std::cmp::Reverse(one.bytes));
        by_size.truncate(by_size.len() / 100);
        let mean = served.mean();
        Self {
            mean,
            squared_variation: served.squared_variation(),
            deviation: mean * served.squared_variation().max(0.0).sqrt(),
            first_byte: sum / count,
            quantiles: [0.5, 0.9, 0.99, 0.999].map(|part| at(part).unwrap_or(f64::NAN)),
            largest: served.mean_of_largest(0.01),
            very_largest: served.largest(0.0).first().copied().unwrap_or_default(),
            incomplete: served.incomplete(),
            over_time: over_time.iter().map(|&[time, first, count]| [time / count, first / count]).collect(),
            seconds: served.seconds.clone(),
            of_largest: by_size.iter().map(|one| one.response).collect(),
        }
    }

    pub(crate) fn connections(&self) -> usize {
        self.seconds.iter().map(|second| second.connections).max().unwrap_or_default()
    }

    /// The state after so many seconds.
    pub(crate) fn after(&self, seconds: u64) -> Second {
        let at = (seconds as usize).clamp(1, self.seconds.len().max(1)) - 1;
        self.seconds.get(at).copied().unwrap_or_default()
    }
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
