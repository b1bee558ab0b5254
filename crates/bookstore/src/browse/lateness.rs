//! Whether the client itself was the bottleneck. Then the run says little about the site.
//!
//! Browsers have nothing to do but to wait, so a browser that goes on late had no processor. How late it
//! goes on is also how late it notices answers: what it adds to response times is about the mean. The
//! bounds: a mean of 5 ms (the runtime's timer alone is up to 1 ms late) or a twentieth of what requests
//! took, and a 99th percentile of 50 ms or half of what they took, whichever is more; and 85 % of the
//! processor time that its threads could have. An open loop that turned visits away wasn't open.

use std::time::Duration;

use super::record::PhaseRecord;

/// How late browsers may be on average, whatever requests took.
pub const MEAN_BOUND: Duration = Duration::from_millis(5);
/// How late they may be on average, as a share of what requests took on average, however they ended.
pub const MEAN_SHARE: f64 = 0.05;
/// How late 99 of 100 may be at most, whatever requests took.
pub const P99_BOUND: Duration = Duration::from_millis(50);
/// How late they may be, as a share of what requests took on average.
pub const P99_SHARE: f64 = 0.5;
/// The share of its threads' processor time that the client may use.
pub const PROCESSOR_BOUND: f64 = 0.85;

/// Why the client was the bottleneck in a phase; empty if it wasn't.
pub(super) fn reasons(phase: &PhaseRecord, threads: usize) -> Vec<String> {
    let mut reasons = Vec::new();
    let share = processor_share(phase, threads);
    if share > PROCESSOR_BOUND {
        reasons.push(format!("it used {:.0} % of its processor time", share * 100.0));
    }
    let mean = phase.lag.mean();
    let took = phase.all.mean();
    if mean > MEAN_BOUND.max(took.mul_f64(MEAN_SHARE)) {
        reasons.push(format!("browsers were {:.1} ms late on average", mean.as_secs_f64() * 1e3));
    }
    let p99 = Duration::from_micros(phase.lag.histogram.value_at_quantile(0.99));
    if p99 > P99_BOUND.max(took.mul_f64(P99_SHARE)) {
        reasons.push(format!("one browser of a hundred was more than {} ms late", p99.as_millis()));
    }
    if phase.turned_away > 0 {
        reasons.push(format!("{} visits were turned away, because too many were present", phase.turned_away));
    }
    reasons
}

/// The share of the processor time of so many threads that was used.
pub(super) fn processor_share(phase: &PhaseRecord, threads: usize) -> f64 {
    phase.processor.as_secs_f64() / (phase.duration.as_secs_f64() * threads.max(1) as f64).max(1e-9)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn phase(lags: &[u64], processor: Duration, turned_away: u64) -> PhaseRecord {
        let mut phase = PhaseRecord::new();
        (phase.duration, phase.processor, phase.turned_away) =
            (Duration::from_secs(10), processor, turned_away);
        lags.iter().for_each(|&lag| phase.lag.add(Duration::from_millis(lag)));
        phase
    }

    #[test]
    fn a_client_with_time_to_spare_is_no_bottleneck() {
        let calm = phase(&[1; 100], Duration::from_secs(8), 0);
        assert_eq!(reasons(&calm, 1), Vec::<String>::new());
        assert_eq!(reasons(&phase(&[], Duration::ZERO, 0), 1), Vec::<String>::new());
    }

    #[test]
    fn lateness_that_is_little_beside_what_requests_took_is_allowed() {
        let mut slow = phase(&[6; 100], Duration::ZERO, 0);
        slow.lag.add(Duration::from_millis(90));
        slow.lag.add(Duration::from_millis(90));
        assert_eq!(reasons(&slow, 1).len(), 2);
        slow.all.add(Duration::from_millis(300));
        assert!(reasons(&slow, 1).is_empty());
    }

    #[test]
    fn each_bound_is_told_by_itself() {
        let busy = Duration::from_secs(9);
        assert!(reasons(&phase(&[1; 100], busy, 0), 1)[0].contains("90 % of its processor"));
        assert!(reasons(&phase(&[1; 100], busy, 0), 2).is_empty());
        assert!(reasons(&phase(&[6; 100], Duration::ZERO, 0), 1)[0].contains("late on average"));
        let mut lags = vec![1; 98];
        lags.extend([60, 60]);
        assert!(reasons(&phase(&lags, Duration::ZERO, 0), 1)[0].contains("one browser of a hundred"));
        assert!(reasons(&phase(&[1; 100], Duration::ZERO, 3), 1)[0].contains("3 visits were turned away"));
    }
}
