//! What browsers tell of their visits, as figures of a cell.

use serde::Deserialize;

use super::cell::{Figures, Measured, TypeFigures};
use super::plan::Place;
use super::schedule::{self, Moment};

/// What `bookstore browse --json` tells, as far as it is of use here. Times are in seconds.
#[derive(Debug, Deserialize)]
pub(super) struct Told {
    total: Total,
    phases: Vec<ToldOfPhase>,
    seconds: Vec<ToldOfSecond>,
}

#[derive(Debug, Deserialize)]
struct ToldOfPhase {
    is_counted: bool,
    #[serde(flatten)]
    total: Total,
}

#[derive(Debug, Deserialize)]
struct ToldOfSecond {
    counts: Counts,
    busy: u64,
    response: f64,
    present: usize,
}

#[derive(Debug, Deserialize)]
struct Total {
    wips: f64,
    counts: Counts,
    busy: u64,
    sums: Sums,
    response: Percentiles,
    all_requests: Percentiles,
    interactions: Vec<Page>,
    little: Little,
    client: ToldOfClient,
}

#[derive(Clone, Copy, Debug, Deserialize)]
struct Counts {
    done: u64,
    rejected: u64,
    timed_out: u64,
    failed: u64,
    wrong: u64,
    unfinished: u64,
}

#[derive(Debug, Deserialize)]
struct Sums {
    done: f64,
    timed_out: f64,
    failed: f64,
    wrong: f64,
}

#[derive(Debug, Deserialize)]
struct Percentiles {
    mean: f64,
    p50: f64,
    p95: f64,
    p99: f64,
}

#[derive(Debug, Deserialize)]
struct Page {
    code: String,
    counts: Counts,
    response: Percentiles,
}

#[derive(Debug, Deserialize)]
struct Little {
    residual: f64,
}

#[derive(Debug, Deserialize)]
struct ToldOfClient {
    lateness: Percentiles,
}

impl Told {
    /// With what was measured meanwhile.
    pub(super) fn beside(&self, used: Measured, place: Place) -> Measured {
        self.total.beside(used, place)
    }

    /// Figures of a schedule, with its phases and seconds.
    pub(super) fn scheduled(&self, used: Measured, place: Place) -> Measured {
        let whole = self.total.beside(used, place);
        let counted = self.phases.iter().filter(|phase| phase.is_counted);
        let phases = counted.map(|phase| phase.total.beside(Measured::default(), place)).collect();
        let seconds = self.seconds.iter().take(schedule::LASTS_MAX.as_secs() as usize);
        Measured { phases, moments: seconds.map(ToldOfSecond::moment).collect(), ..whole }
    }
}

impl ToldOfSecond {
    fn moment(&self) -> Moment {
        let Counts { done, rejected, timed_out, failed, wrong, .. } = self.counts;
        let (refused, own) = (rejected.saturating_sub(self.busy), self.busy.min(rejected));
        let lost = timed_out + failed + wrong + own;
        Moment { done, refused, lost, response: self.response, present: self.present, answered: 0 }
    }
}

impl Total {
    fn beside(&self, used: Measured, place: Place) -> Measured {
        let Self { wips, counts, busy, sums, response, all_requests, interactions, little, client } = self;
        let count = |number: u64| usize::try_from(number).unwrap_or(usize::MAX);
        let all =
            [counts.done, counts.rejected, counts.timed_out, counts.failed, counts.wrong, counts.unfinished];
        let types = interactions.iter().filter(|page| page.counts.done > 0).map(|page| TypeFigures {
            name: page.code.clone(),
            completed: page.counts.done,
            in_time_seconds: page.response.mean,
        });
        // Before a site, the gate's refusals are told apart from the site's own. Before its database they
        // become the site's.
        let own = match place {
            Place::Database => 0,
            Place::Site => (*busy).min(counts.rejected),
        };
        let let_in = counts.done + counts.timed_out + counts.failed + counts.wrong;
        let let_in_sum = sums.done + sums.timed_out + sums.failed + sums.wrong;
        Measured {
            clients: Figures {
                p95_let_in_seconds: None,
                throughput: *wips,
                in_time_seconds: response.mean,
                all_seconds: all_requests.mean,
                p50_seconds: all_requests.p50,
                p95_seconds: all_requests.p95,
                p99_seconds: all_requests.p99,
                under_way: all.into_iter().map(count).sum(),
                timed_out: count(counts.timed_out),
                let_in_seconds: (place == Place::Site && let_in > 0).then(|| let_in_sum / let_in as f64),
                refused: count(counts.rejected - own),
                failed: count(counts.failed + counts.wrong + own),
                retries: 0,
                residual: Some(little.residual),
            },
            types: types.collect(),
            late_seconds: client.lateness.p99,
            alive: true,
            ..used
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// Ten requests: five right pages, one too late, and four rejected, one of them by the shop itself.
    fn total() -> serde_json::Value {
        let times = json!({ "mean": 0.5, "p50": 0.1, "p95": 1.0, "p99": 2.0 });
        let counts =
            json!({ "done": 5, "rejected": 4, "timed_out": 1, "failed": 0, "wrong": 0, "unfinished": 0 });
        json!({
            "is_counted": true, "wips": 2.5, "counts": counts, "busy": 1,
            "sums": { "done": 2.5, "rejected": 0.1, "timed_out": 10.0, "failed": 0.0, "wrong": 0.0 },
            "response": times, "all_requests": times, "little": { "residual": 0.01 },
            "interactions": [{ "code": "HOME", "counts": counts, "response": times }],
            "client": { "lateness": times },
        })
    }

    fn told() -> Told {
        let mut settling = total();
        settling["is_counted"] = json!(false);
        let second = json!({ "counts": total()["counts"], "busy": 1, "response": 0.5, "present": 7 });
        let told = json!({ "total": total(), "phases": [settling, total()], "seconds": [second, second] });
        serde_json::from_value(told).unwrap()
    }

    #[test]
    fn before_a_site_the_gates_refusals_are_told_from_the_sites_own() {
        let found = told().beside(Measured::default(), Place::Site).clients;
        assert_eq!((found.refused, found.failed, found.timed_out, found.under_way), (3, 1, 1, 10));
        // 12.5 s of six that were let in.
        assert!((found.let_in_seconds.unwrap() - 12.5 / 6.0).abs() < 1e-9);
        let found = told().beside(Measured::default(), Place::Database).clients;
        assert_eq!((found.refused, found.failed, found.let_in_seconds), (4, 0, None));
    }

    #[test]
    fn a_schedule_tells_what_counts_of_each_phase_and_every_second() {
        let steady = told().beside(Measured::default(), Place::Site);
        assert!(steady.phases.is_empty() && steady.moments.is_empty());
        let scheduled = told().scheduled(Measured::default(), Place::Site);
        assert_eq!(scheduled.phases.len(), 1);
        assert_eq!((scheduled.phases[0].clients.refused, scheduled.phases[0].types.len()), (3, 1));
        let second = Moment { done: 5, refused: 3, lost: 2, response: 0.5, present: 7, answered: 0 };
        assert_eq!(scheduled.moments, [second, second]);
    }
}
