//! What one variant gave at one load in one round.

use std::ops::Range;

use serde::{Deserialize, Serialize};

use super::PATIENCE;
use crate::http::OpenRuns;
use crate::http::pages::is_short;
use crate::load::{Outcome, Record};
use crate::stats::{mean, percentile};
use crate::table::{ratio, seconds};

/// Figures of a turn, of the part that counts.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
pub struct Turned {
    /// Requests that arrived.
    pub arrived: usize,
    /// Work of those that were answered in time, as a part of the peak.
    pub goodput: f64,
    /// Mean response time of those that weren't refused, in seconds; one that wasn't answered in
    /// time, or failed, is charged the whole patience.
    pub mean: f64,
    /// Mean response time of the short pages that weren't refused, in seconds. A page that wasn't answered in
    /// time, or failed, counts with the whole patience.
    pub short_mean: f64,
    /// 95th percentile of the response times in `short_mean`, in seconds.
    pub short_p95: f64,
    /// The part of the short pages that was answered in time.
    pub short_answered: f64,
    /// The part of all that was refused.
    pub refused: f64,
    /// How long those had waited for it on average, in seconds.
    pub refused_after: f64,
    /// The part of all that wasn't answered in time, or failed.
    pub lost: f64,
    /// How late requests were sent, in seconds: the 99th percentile. The client's own fault.
    pub late: f64,
    /// What the first that failed met.
    pub failure: Option<String>,
}

impl Turned {
    /// Of the requests of this work that were due within `counted` (in seconds), with this peak.
    pub(super) fn of(outcome: &OpenRuns, work: &[f64], peak: f64, counted: Range<f64>) -> Self {
        let due: Vec<&Record> = outcome
            .records
            .iter()
            .map(|(record, _)| record)
            .filter(|record| counted.contains(&record.due.as_secs_f64()))
            .collect();
        let part = |all: &[&Record], which: &[Outcome]| {
            let those = all.iter().filter(|record| which.contains(&record.outcome)).count();
            those as f64 / all.len().max(1) as f64
        };
        let charged = |all: &[&Record]| -> Vec<f64> {
            let served = all.iter().filter(|record| record.outcome != Outcome::Rejected);
            served.map(|record| record.charged(PATIENCE).as_secs_f64()).collect()
        };
        let ended: f64 = outcome
            .records
            .iter()
            .filter(|(record, _)| {
                record.outcome == Outcome::Completed && counted.contains(&record.end().as_secs_f64())
            })
            .map(|(_, number)| work[*number])
            // A sum of nothing would be minus zero.
            .fold(0.0, |sum, work| sum + work);
        let short: Vec<&Record> =
            due.iter().copied().filter(|record| is_short(record.request_type)).collect();
        let refused: Vec<f64> = due
            .iter()
            .filter(|record| record.outcome == Outcome::Rejected)
            .map(|record| record.response.as_secs_f64())
            .collect();
        Self {
            arrived: due.len(),
            goodput: ended / (counted.end - counted.start) / peak,
            mean: mean(&charged(&due)),
            short_mean: mean(&charged(&short)),
            short_p95: percentile(&charged(&short), 0.95),
            short_answered: part(&short, &[Outcome::Completed]),
            refused: part(&due, &[Outcome::Rejected]),
            refused_after: mean(&refused),
            lost: part(&due, &[Outcome::TimedOut, Outcome::Failed]),
            late: outcome.lag_p99.as_secs_f64(),
            failure: outcome.first_failure.clone(),
        }
    }

    pub(super) fn in_a_line(&self) -> String {
        let failure = self.failure.as_ref().map_or(String::new(), |failure| format!("   ({failure})"));
        format!(
            "goodput {}, mean {}, short {} ({:.0} % answered), {:.0} % refused, {:.0} % lost{failure}",
            ratio(self.goodput),
            seconds(self.mean),
            seconds(self.short_mean),
            100.0 * self.short_answered,
            100.0 * self.refused,
            100.0 * self.lost,
        )
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::time::Duration;

    use super::*;
    use crate::http::Connections;

    /// A turn with this goodput and this mean of the short pages.
    pub(in crate::peers) fn turned(goodput: f64, short_mean: f64) -> Turned {
        Turned {
            arrived: 100,
            goodput,
            mean: 2.0 * short_mean,
            short_mean,
            short_p95: 3.0 * short_mean,
            short_answered: 0.5,
            refused: 0.4,
            refused_after: 0.001,
            lost: 0.1,
            late: 0.0,
            failure: None,
        }
    }

    #[test]
    fn who_is_refused_does_not_count_as_fast_and_who_gives_up_is_charged() {
        let millis = Duration::from_millis;
        // Home pages are short (type 0), best sellers are not (2).
        let record = |due, request_type, outcome, response| Record {
            due: millis(due),
            request_type,
            outcome,
            response: millis(response),
            retries: 0,
        };
        let records = vec![
            (record(500, 0, Outcome::Completed, 700), 0),
            (record(1_000, 0, Outcome::Completed, 100), 1),
            (record(1_200, 0, Outcome::Rejected, 40), 2),
            (record(1_300, 2, Outcome::Completed, 300), 3),
            (record(1_400, 0, Outcome::TimedOut, 10_000), 4),
            (record(1_900, 2, Outcome::Completed, 200), 5),
        ];
        let outcome = OpenRuns {
            records,
            used: 0.0,
            metered: 0.0,
            lag_p99: millis(2),
            lag_max: millis(3),
            client_cpu: 0.0,
            first_bytes: Vec::new(),
            connections: Connections::default(),
            first_failure: Some("status 502".to_owned()),
        };
        let turned = Turned::of(&outcome, &[0.1, 0.2, 0.3, 0.4, 0.5, 0.6], 0.5, 1.0..2.0);
        assert_eq!(turned.arrived, 5);
        // What ended within the second, also of requests that came before: 0.1, 0.2 and 0.4 s.
        assert!((turned.goodput - 1.4).abs() < 1e-9, "{turned:?}");
        assert!((turned.mean - (0.1 + 0.3 + 10.0 + 0.2) / 4.0).abs() < 1e-9, "{turned:?}");
        assert!((turned.short_mean - 5.05).abs() < 1e-9, "{turned:?}");
        assert!((turned.short_answered - 1.0 / 3.0).abs() < 1e-9, "{turned:?}");
        assert_eq!((turned.refused, turned.refused_after, turned.lost), (0.2, 0.04, 0.2));
        assert!(turned.in_a_line().ends_with("20 % lost   (status 502)"), "{}", turned.in_a_line());
    }
}
