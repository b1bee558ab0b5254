//! What a site's pages take alone and how much of that work it does at most: what its throughput is
//! measured by.
//!
//! Pages differ by a factor of a hundred in what they take. A gate that refuses the large ones serves more of
//! them a second; so what a gate lets through is told as work, each page counted by what it takes a single
//! visitor who doesn't think. The most work that was seen, with browsers enough to keep the site busy and
//! few enough not to overload it, is what it can do.
//!
//! A shared machine isn't equally fast in all cells. Of each cell it is known what the server's processor
//! did of a fixed computation meanwhile, in a second of processor time; of what that processor bounds, half
//! the speed is half the work.
//!
//! The same says what capacity a shared processor would have (*Yaksha*, IWQoS 2004, section V-A and Fig.
//! 6): of an M/GI/1 queue with processor sharing T = E\[X\]/(1 − λ/μ), so μ = λ/(1 − E\[X\]/T). E\[X\] is
//! that of the pages that were served.

use std::collections::BTreeMap;

use super::cell::{Measured, TypeFigures};
use super::complaint::Judge;
use super::plan::{Metric, Plan, Who};
use super::results::{Line, Results};
use crate::stats::percentile;

/// What a site is measured by; empty for an experiment that has no such thing.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Yardstick {
    /// What each page takes alone, in seconds.
    alone: BTreeMap<String, f64>,
    /// The mean of those, for a page that didn't come up.
    mean: f64,
    /// The most work that was done, in seconds of it per second.
    pub(super) most: Option<f64>,
    /// How fast the server's processor usually was: see [`usual`].
    pub(super) usual_speed: Option<f64>,
}

impl Yardstick {
    /// Of these results.
    pub(super) fn of(results: &Results) -> Self {
        let watched = results.cells().filter(|(_, measured)| measured.server_cpu.is_some());
        let usual_speed = usual(&watched.map(|(_, measured)| measured.speed).collect::<Vec<_>>());
        let mut yardstick = Self { usual_speed, ..Self::default() };
        for line in &results.lines {
            if let Line::Alone { types } = line {
                let count: u64 = types.iter().map(|page| page.completed).sum();
                let sum: f64 = types.iter().map(|page| page.in_time_seconds * page.completed as f64).sum();
                yardstick.alone =
                    types.iter().map(|page| (page.name.clone(), page.in_time_seconds)).collect();
                yardstick.mean = sum / count.max(1) as f64;
            }
        }
        let busy = results.lines.iter().filter_map(|line| match line {
            Line::Busy { throughput, types, .. } => Some(throughput * yardstick.takes(types)?),
            _ => None,
        });
        yardstick.most = busy.max_by(f64::total_cmp);
        yardstick
    }

    /// What a page of these takes alone on average, in seconds; none if that isn't known.
    fn takes(&self, types: &[TypeFigures]) -> Option<f64> {
        let count: u64 = types.iter().map(|page| page.completed).sum();
        if self.alone.is_empty() || count == 0 {
            return None;
        }
        let one = |page: &TypeFigures| self.alone.get(&page.name).copied().unwrap_or(self.mean);
        let sum: f64 = types.iter().map(|page| one(page) * page.completed as f64).sum();
        Some(sum / count as f64)
    }

    /// A figure of what was measured; none if there is no such figure of it.
    pub(super) fn figure(&self, measured: &Measured, metric: Metric, who: Who) -> Option<f64> {
        let clients = measured.clients;
        match metric {
            Metric::Goodput => {
                let most = self.most.filter(|&most| most > 0.0)?;
                // Where nothing was served there is no work, and nothing to take its mean of.
                let takes = if measured.types.is_empty() { Some(0.0) } else { self.takes(&measured.types) };
                Some(clients.throughput * takes? / most)
            }
            Metric::GoodputAtUsualSpeed => {
                let speed = measured.speed.filter(|&speed| speed > 0.0)?;
                Some(self.figure(measured, Metric::Goodput, who)? * self.usual_speed? / speed)
            }
            Metric::EstimatedCapacity => {
                let part = self.takes(&measured.types)? / clients.in_time_seconds;
                (part < 1.0).then(|| clients.throughput / (1.0 - part))
            }
            _ => measured.figure(metric, who),
        }
    }
}

/// The median of how fast the server's processor was. None where it wasn't measured in one of the cells, or
/// the median would be of whichever were run anew; nor of two, of which each would be as far from it as the
/// other.
fn usual(speeds: &[Option<f64>]) -> Option<f64> {
    let speeds = speeds.iter().copied().collect::<Option<Vec<f64>>>()?;
    Some(percentile(&speeds, 0.5)).filter(|median| speeds.len() > 2 && *median > 0.0)
}

/// What a goal's metric needs.
pub(super) fn check(plan: &Plan, path: &str, metric: Metric, judge: &mut Judge<'_>) {
    if !metric.is_by_yardstick() {
        return;
    }
    let has_pages = plan.workload.site.is_some() || plan.workload.origin.is_some();
    if !has_pages || plan.full.calibrate.is_none() {
        let hint = "write calibrate = { variant = \"direct\", clients = [60] } in the full form of a plan with a site";
        judge.complain(path, "needs to know what pages take alone", Some(hint));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::cell::{Cell, Figures};
    use crate::experiment::plan::Load;

    fn page(name: &str, completed: u64, in_time_seconds: f64) -> TypeFigures {
        TypeFigures { name: name.to_owned(), completed, in_time_seconds }
    }

    /// Alone, HOME takes 10 ms and BESS 200 ms; at most the site does 40 pages a second of which a tenth
    /// are BESS.
    fn yardstick() -> Yardstick {
        let alone = vec![page("HOME", 90, 0.01), page("BESS", 10, 0.2)];
        let busy = |throughput| Line::Busy {
            clients: 60,
            throughput,
            types: vec![page("HOME", 9, 1.0), page("BESS", 1, 3.0)],
        };
        Yardstick::of(&Results { lines: vec![busy(30.0), Line::Alone { types: alone }, busy(40.0)] })
    }

    fn measured(throughput: f64, in_time_seconds: f64, types: Vec<TypeFigures>) -> Measured {
        let clients = Figures { throughput, in_time_seconds, ..Figures::default() };
        Measured { clients, types, ..Measured::default() }
    }

    #[test]
    fn pages_count_by_what_they_take_alone() {
        let yardstick = yardstick();
        // 0.9 × 10 ms + 0.1 × 200 ms = 29 ms for a page, 40 of them a second.
        assert!((yardstick.most.unwrap() - 1.16).abs() < 1e-9);
        let goodput =
            |measured: &Measured| yardstick.figure(measured, Metric::Goodput, Who::Clients).unwrap();
        // Twice as many pages, and none of the large ones: not more work, but less.
        let only_small = measured(80.0, 0.1, vec![page("HOME", 800, 0.1)]);
        assert!((goodput(&only_small) - 0.8 / 1.16).abs() < 1e-9);
        assert_eq!(goodput(&measured(0.0, 0.0, Vec::new())), 0.0);
        // A page that nobody saw alone counts as the mean, 29 ms.
        assert!((goodput(&measured(40.0, 0.1, vec![page("ADMC", 5, 0.1)])) - 1.0).abs() < 1e-9);
    }

    #[test]
    fn at_the_usual_speed_a_slow_hour_counts_for_no_less() {
        let types = || vec![page("HOME", 9, 0.1), page("BESS", 1, 0.1)];
        // The same mix; the third cell had a processor half as fast, and did half as much.
        let cells = [(20.0, 240.0), (20.0, 240.0), (10.0, 120.0)].map(|(throughput, speed)| Measured {
            speed: Some(speed),
            server_cpu: Some(1.0),
            ..measured(throughput, 0.1, types())
        });
        let mut lines = vec![
            Line::Alone { types: types() },
            Line::Busy { clients: 60, throughput: 40.0, types: types() },
        ];
        lines.extend((0..).zip(&cells).map(|(repetition, measured)| {
            let cell = Cell { variant: "gate".to_owned(), load: Load::Clients(60), repetition };
            Line::Cell { cell, measured: Box::new(measured.clone()) }
        }));
        let yardstick = Yardstick::of(&Results { lines });
        let figures = |metric| cells.each_ref().map(|cell| yardstick.figure(cell, metric, Who::Clients));
        assert_eq!(figures(Metric::Goodput), [Some(0.5), Some(0.5), Some(0.25)]);
        assert_eq!(figures(Metric::GoodputAtUsualSpeed), [Some(0.5); 3]);
    }

    #[test]
    fn what_is_usual_of_a_machine_is_said_where_all_cells_tell_and_they_are_more_than_two() {
        assert_eq!(usual(&[Some(90.0), Some(100.0), Some(130.0)]), Some(100.0));
        assert_eq!(usual(&[Some(90.0), None, Some(100.0), Some(130.0)]), None, "one was measured before");
        assert_eq!(usual(&[Some(90.0), Some(100.0)]), None, "two");
        assert_eq!(usual(&[]), None);
        assert_eq!(usual(&[Some(0.0); 3]), None, "nothing can be told as a part of nothing");
    }

    #[test]
    fn a_shared_processor_tells_its_capacity() {
        let yardstick = yardstick();
        // E[X] = 20 ms, μ = 50/s: at 40/s T = 20 ms/(1 − 0.8) = 100 ms.
        let types = vec![page("HOME", 180, 0.1), page("BESS", 10, 0.1)];
        let found = |response| {
            yardstick.figure(
                &measured(40.0, response, types.clone()),
                Metric::EstimatedCapacity,
                Who::Clients,
            )
        };
        assert!((found(0.1).unwrap() - 50.0).abs() < 1e-9);
        assert_eq!(found(0.019), None);
    }

    #[test]
    fn without_a_yardstick_there_are_only_the_cells_own_figures() {
        let nothing = Yardstick::of(&Results::default());
        let one = measured(40.0, 0.1, vec![page("HOME", 1, 0.1)]);
        let figure = |metric| nothing.figure(&one, metric, Who::Clients);
        assert_eq!(figure(Metric::Throughput), Some(40.0));
        assert_eq!((figure(Metric::Goodput), figure(Metric::EstimatedCapacity)), (None, None));
        assert_eq!(figure(Metric::GoodputAtUsualSpeed), None);
    }
}
