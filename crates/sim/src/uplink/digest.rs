//! The figures of a run, simulated or measured.

use admission::Duration;

use super::{Second, Served};

/// The figures of a run.
#[derive(Clone, Debug, Default)]
pub struct Digest {
    /// The mean response time.
    pub mean: f64,
    /// The squared coefficient of variation of response times.
    pub squared_variation: f64,
    /// The standard deviation of response times.
    pub deviation: f64,
    /// The mean time to the first byte.
    pub first_byte: f64,
    /// The times that half, 90, 99 and 99.9 % of the responses keep.
    pub quantiles: [f64; 4],
    /// The mean of the largest hundredth.
    pub largest: f64,
    /// The size and time of the largest.
    pub very_largest: (u64, f64),
    /// The part of requests that never came whole.
    pub incomplete: f64,
    /// The mean of those that were sent in each second, and that of their first bytes; only what ended before
    /// the last request.
    pub over_time: Vec<[f64; 2]>,
    /// The state after each second.
    pub seconds: Vec<Second>,
    /// The times of the largest hundredth of all requests, the largest first.
    pub of_largest: Vec<Option<f64>>,
}

impl Digest {
    /// The figures of a run whose requests were sent within a time.
    pub fn of(served: &Served, length: Duration) -> Self {
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

    /// The most connections at workers.
    pub fn connections(&self) -> usize {
        self.seconds.iter().map(|second| second.connections).max().unwrap_or_default()
    }

    /// The state after so many seconds.
    pub fn after(&self, seconds: u64) -> Second {
        let at = (seconds as usize).clamp(1, self.seconds.len().max(1)) - 1;
        self.seconds.get(at).copied().unwrap_or_default()
    }
}
