//! Figures of values: the one definition of a percentile, the mean, medians of rounds, Little's law.

use std::time::Duration;

/// The `fraction` (0 to 1) percentile of unsorted values, linearly interpolated; zero if there are none.
pub fn percentile(values: &[f64], fraction: f64) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let Some(last) = sorted.len().checked_sub(1) else { return 0.0 };
    let position = fraction.clamp(0.0, 1.0) * last as f64;
    let below = position.floor() as usize;
    let above = (below + 1).min(last);
    sorted[below] + (sorted[above] - sorted[below]) * (position - below as f64)
}

/// The percentile of times; zero if there are none.
pub fn percentile_of_times(times: &[Duration], fraction: f64) -> Duration {
    let seconds: Vec<f64> = times.iter().map(Duration::as_secs_f64).collect();
    Duration::from_secs_f64(percentile(&seconds, fraction))
}

/// The arithmetic mean; zero if there are no values.
pub fn mean(values: &[f64]) -> f64 {
    if values.is_empty() { 0.0 } else { values.iter().sum::<f64>() / values.len() as f64 }
}

/// A figure over several rounds.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize)]
pub struct Rounds {
    /// The middle one.
    pub median: f64,
    /// The smallest.
    pub low: f64,
    /// The largest.
    pub high: f64,
}

impl Rounds {
    /// Summarizes one value per round; all zero if there was no round.
    pub fn of(values: &[f64]) -> Self {
        Self { median: percentile(values, 0.5), low: percentile(values, 0.0), high: percentile(values, 1.0) }
    }
}

/// Clients that finished nothing in the window, in a closed loop.
///
/// Little's law says N = X · R. Where N − X · R is not near zero, the mean response time covers only the
/// survivors and understates the truth.
pub fn little_residual(clients: f64, throughput: f64, mean_response_seconds: f64) -> f64 {
    clients - throughput * mean_response_seconds
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn littles_law_accounts_for_every_client_that_finishes_something() {
        assert_eq!(little_residual(10.0, 100.0, 0.1), 0.0);
        assert_eq!(little_residual(600.0, 100.0, 2.0), 400.0);
    }

    #[test]
    fn percentiles_are_interpolated_and_empty_is_zero() {
        assert_eq!(percentile(&[4.0, 1.0, 3.0, 2.0], 0.5), 2.5);
        assert_eq!(percentile(&[1.0, 2.0], 1.0), 2.0);
        assert_eq!(percentile(&[], 0.5), 0.0);
        assert_eq!(mean(&[]), 0.0);
    }

    #[test]
    fn rounds_show_the_median_and_the_spread() {
        assert_eq!(Rounds::of(&[3.0, 1.0, 2.0]), Rounds { median: 2.0, low: 1.0, high: 3.0 });
    }
}
