//! Figures from records: throughput, goodput, backlog, response times over *all* requests, medians of rounds.

use std::time::Duration;

use crate::load::{OpenOutcome, Outcome, Record};

/// A request answered within this time counts towards goodput: beyond a second people notice waiting.
pub const GOODPUT_BOUND: Duration = Duration::from_secs(1);

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

/// Response times of one request type, or of all, in one round. Requests that weren't answered are charged
/// the full time-out.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize)]
pub struct Responses {
    /// Requests that arrived.
    pub arrived: usize,
    /// Requests answered without an error.
    pub completed: usize,
    /// Requests given up by the client.
    pub timed_out: usize,
    /// Requests refused for want of room.
    pub rejected: usize,
    /// Requests that failed otherwise.
    pub failed: usize,
    /// Mean, in seconds.
    pub mean_seconds: f64,
    /// Median, in seconds.
    pub p50_seconds: f64,
    /// 95th percentile, in seconds.
    pub p95_seconds: f64,
    /// 99th percentile, in seconds.
    pub p99_seconds: f64,
}

/// One round of one variant.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub struct Summary {
    /// Requests that arrived, per second.
    pub offered: f64,
    /// Requests answered while others were arriving, per second.
    pub throughput: f64,
    /// Requests answered within [`GOODPUT_BOUND`] of their arrival, per second of the window.
    pub goodput: f64,
    /// Requests that had arrived but not ended when the last one arrived.
    pub backlog_end: usize,
    /// The most requests that had arrived but not ended at any time.
    pub backlog_max: usize,
    /// Over all types.
    pub overall: Responses,
    /// Per type, in the mix's order.
    pub types: Vec<Responses>,
}

impl Summary {
    /// Judges one run of a mix of `types` request types.
    pub fn of(outcome: &OpenOutcome, types: usize) -> Self {
        let seconds = outcome.window.as_secs_f64();
        let completed = || outcome.records.iter().filter(|record| record.outcome == Outcome::Completed);
        let in_window = completed().filter(|record| record.end() <= outcome.window).count();
        let in_time = completed().filter(|record| record.response <= GOODPUT_BOUND).count();
        let of_type =
            |number: usize| responses(outcome, |record: &Record| usize::from(record.request_type) == number);
        Self {
            offered: outcome.records.len() as f64 / seconds,
            throughput: in_window as f64 / seconds,
            goodput: in_time as f64 / seconds,
            backlog_end: backlog_at(&outcome.records, outcome.window),
            backlog_max: backlog_max(&outcome.records),
            overall: responses(outcome, |_| true),
            types: (0..types).map(of_type).collect(),
        }
    }
}

fn responses(outcome: &OpenOutcome, belongs: impl Fn(&Record) -> bool) -> Responses {
    let records: Vec<&Record> = outcome.records.iter().filter(|record| belongs(record)).collect();
    let count = |wanted| records.iter().filter(|record| record.outcome == wanted).count();
    let charged: Vec<f64> =
        records.iter().map(|record| record.charged(outcome.timeout).as_secs_f64()).collect();
    Responses {
        arrived: records.len(),
        completed: count(Outcome::Completed),
        timed_out: count(Outcome::TimedOut),
        rejected: count(Outcome::Rejected),
        failed: count(Outcome::Failed),
        mean_seconds: mean(&charged),
        p50_seconds: percentile(&charged, 0.50),
        p95_seconds: percentile(&charged, 0.95),
        p99_seconds: percentile(&charged, 0.99),
    }
}

/// Requests that had arrived but not ended at `time`.
fn backlog_at(records: &[Record], time: Duration) -> usize {
    records.iter().filter(|record| record.due <= time && record.end() > time).count()
}

fn backlog_max(records: &[Record]) -> usize {
    let mut events: Vec<(Duration, i64)> =
        records.iter().flat_map(|record| [(record.due, 1), (record.end(), -1)]).collect();
    // At the same instant ends come first, so that nobody is counted twice.
    events.sort_unstable();
    let mut backlog = 0;
    let mut most = 0;
    for (_, change) in events {
        backlog += change;
        most = most.max(backlog);
    }
    usize::try_from(most).unwrap_or(0)
}

/// Curves of one run, one point per `step`.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub struct Curves {
    /// Middle of each step, in seconds since the start.
    pub seconds: Vec<f64>,
    /// Requests that have arrived but not ended, at the middle of the step.
    pub backlog: Vec<f64>,
    /// Completions per second in the step.
    pub throughput: Vec<f64>,
    /// Mean response of the requests of one type that arrived in the step, in seconds; none if there were
    /// none.
    pub response_seconds: Vec<Option<f64>>,
}

impl Curves {
    /// Draws the curves of the window in which requests arrived; the responses are those of `request_type`.
    pub fn of(outcome: &OpenOutcome, request_type: u16, step: Duration) -> Self {
        let steps = (outcome.window.as_secs_f64() / step.as_secs_f64()).floor() as usize;
        let mut curves =
            Self { seconds: vec![], backlog: vec![], throughput: vec![], response_seconds: vec![] };
        for number in 0..u32::try_from(steps).unwrap_or(u32::MAX) {
            let (from, to) = (step * number, step * (number + 1));
            let inside = |time: Duration| from <= time && time < to;
            let arrived: Vec<f64> = outcome
                .records
                .iter()
                .filter(|record| record.request_type == request_type && inside(record.due))
                .map(|record| record.charged(outcome.timeout).as_secs_f64())
                .collect();
            let ended = |record: &&Record| record.outcome == Outcome::Completed && inside(record.end());
            let completed = outcome.records.iter().filter(ended).count();
            curves.seconds.push((from + step / 2).as_secs_f64());
            curves.backlog.push(backlog_at(&outcome.records, from + step / 2) as f64);
            curves.throughput.push(completed as f64 / step.as_secs_f64());
            curves.response_seconds.push((!arrived.is_empty()).then(|| mean(&arrived)));
        }
        curves
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(due: u64, response: u64, outcome: Outcome) -> Record {
        Record {
            due: Duration::from_millis(due),
            request_type: 0,
            outcome,
            response: Duration::from_millis(response),
            retries: 0,
        }
    }

    fn outcome(records: Vec<Record>) -> OpenOutcome {
        OpenOutcome {
            records,
            window: Duration::from_secs(1),
            timeout: Duration::from_secs(4),
            lag_p99: Duration::ZERO,
            client_cpu: 0.0,
            reopened: 0,
            first_failure: None,
            waits: Vec::new(),
        }
    }

    #[test]
    fn percentiles_are_interpolated_and_empty_is_zero() {
        assert_eq!(percentile(&[4.0, 1.0, 3.0, 2.0], 0.5), 2.5);
        assert_eq!(percentile(&[1.0, 2.0], 1.0), 2.0);
        assert_eq!(percentile(&[], 0.5), 0.0);
        assert_eq!(mean(&[]), 0.0);
    }

    #[test]
    fn a_request_without_an_answer_is_charged_the_full_time_out() {
        let records = vec![
            record(0, 1000, Outcome::Completed),
            record(0, 1, Outcome::Rejected),
            record(0, 2, Outcome::Failed),
        ];
        let summary = Summary::of(&outcome(records), 1);
        assert_eq!(summary.overall.mean_seconds, 3.0);
        assert_eq!((summary.overall.rejected, summary.overall.failed), (1, 1));
    }

    #[test]
    fn throughput_counts_what_ended_in_the_window_and_goodput_what_was_in_time() {
        let records = vec![
            record(100, 100, Outcome::Completed),
            record(900, 200, Outcome::Completed),
            record(0, 1500, Outcome::Completed),
            record(0, 4000, Outcome::TimedOut),
        ];
        let summary = Summary::of(&outcome(records), 1);
        assert_eq!((summary.offered, summary.throughput, summary.goodput), (4.0, 1.0, 2.0));
        assert_eq!((summary.backlog_end, summary.backlog_max), (3, 3));
    }

    #[test]
    fn ends_come_before_arrivals_of_the_same_instant() {
        let records = vec![record(0, 10, Outcome::Completed), record(10, 10, Outcome::Completed)];
        assert_eq!(Summary::of(&outcome(records), 1).backlog_max, 1);
    }

    #[test]
    fn curves_follow_arrivals_ends_and_backlog() {
        let records = vec![record(0, 600, Outcome::Completed), record(100, 100, Outcome::Completed)];
        let curves = Curves::of(&outcome(records), 0, Duration::from_millis(500));
        assert_eq!(curves.seconds, [0.25, 0.75]);
        assert_eq!(curves.backlog, [1.0, 0.0]);
        assert_eq!(curves.throughput, [2.0, 2.0]);
        assert_eq!(curves.response_seconds, [Some(0.35), None]);
    }

    #[test]
    fn rounds_show_the_median_and_the_spread() {
        assert_eq!(Rounds::of(&[3.0, 1.0, 2.0]), Rounds { median: 2.0, low: 1.0, high: 3.0 });
    }
}
