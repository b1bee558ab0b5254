//! How long classes miss their goals after a change, and how far their shares swing meanwhile.
//!
//! A change is settled at the first tick from which both classes keep their goals: over the next
//! [`SPAN`] ticks, and over all until the next change. A goal is kept by a mean of at most [`KEPT`] times it.
//!
//! Shares only decide which class waits, not for how long both do (Kleinrock's conservation law). Where both
//! together waited for longer than both goals allow, no shares could have kept them. Then the best shares
//! are those that have both miss alike, and a goal is kept by [`KEPT`] times that.

use std::ops::Range;

use super::{Experiment, Seen};

/// A delay keeps a goal if it is at most this multiple.
pub const KEPT: f64 = 1.1;
/// The number of ticks over which a delay is taken.
pub const SPAN: usize = 40;

/// Where requests of an experiment wait for one another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resource {
    /// At the processor.
    Processor,
    /// At the queue before the workers.
    Queue,
}

/// A change of goals, or of the load while there are goals.
#[derive(Clone, Debug, PartialEq)]
pub struct Change {
    /// From which tick on, and until which: that of the next change or the end.
    pub ticks: Range<usize>,
    /// The goals of both classes, in seconds.
    pub goals: [f64; 2],
    /// Where the classes meet.
    pub resource: Resource,
}

impl Experiment {
    /// Its changes, in order of time.
    pub fn changes(&self) -> Vec<Change> {
        let mut at: Vec<u32> = self.goals.iter().map(|goal| goal.0).collect();
        at.extend(self.load.iter().map(|load| load.0));
        at.sort_unstable();
        at.dedup();
        let ends = at.iter().skip(1).copied().chain([self.ticks]);
        let change = |(from, to): (u32, u32)| {
            let (_, goals) = *self.goals.iter().rev().find(|(begins, _)| *begins <= from)?;
            let (_, ssl, _) = self.load.iter().rev().find(|(begins, ..)| *begins <= from)?;
            let resource = if ssl[0] > 0.0 { Resource::Processor } else { Resource::Queue };
            Some(Change { ticks: from as usize..to as usize, goals, resource })
        };
        at.iter().copied().zip(ends).filter_map(change).collect()
    }

    /// The experiment with other times: the first change after `lead` ticks, and `phase` ticks from each to
    /// the next.
    #[must_use]
    pub fn paced(&self, lead: u32, phase: u32) -> Self {
        let mut at: Vec<u32> = self.goals.iter().map(|goal| goal.0).collect();
        at.extend(self.load.iter().map(|load| load.0));
        at.retain(|&tick| tick > 0);
        at.sort_unstable();
        at.dedup();
        let moved = |tick: u32| at.binary_search(&tick).map_or(0, |place| lead + phase * place as u32);
        let mut paced = self.clone();
        paced.goals.iter_mut().for_each(|goal| goal.0 = moved(goal.0));
        paced.load.iter_mut().for_each(|load| load.0 = moved(load.0));
        paced.ticks = lead + phase * at.len() as u32;
        paced
    }
}

impl Change {
    fn delays(&self, seen: &Seen) -> [(f64, f64); 2] {
        if self.resource == Resource::Processor { seen.processor } else { seen.queue }
    }

    /// Of each class in these ticks of all runs: how many requests ended, and their delays together.
    fn sums(&self, runs: &[Vec<Seen>], ticks: Range<usize>) -> ([f64; 2], [f64; 2]) {
        let (mut count, mut sum) = ([0.0_f64; 2], [0.0; 2]);
        for seen in runs.iter().flat_map(|run| &run[ticks.start..ticks.end.min(run.len())]) {
            for (place, (requests, seconds)) in self.delays(seen).into_iter().enumerate() {
                count[place] += requests;
                sum[place] += seconds;
            }
        }
        (count, sum)
    }

    /// The mean delay of each class in these ticks of all runs, in seconds.
    pub fn mean(&self, runs: &[Vec<Seen>], ticks: Range<usize>) -> [f64; 2] {
        let (count, sum) = self.sums(runs, ticks);
        [0, 1].map(|place| sum[place] / count[place].max(1.0))
    }

    /// The delays of both classes together, over what their goals allow them. Beyond 1 no shares keep both.
    pub fn needed(&self, runs: &[Vec<Seen>], ticks: Range<usize>) -> f64 {
        let (count, sum) = self.sums(runs, ticks);
        let allowed: f64 = (0..2).map(|place| count[place] * self.goals[place]).sum();
        sum.iter().sum::<f64>() / allowed.max(1e-9)
    }

    /// After how many ticks the gate told that a goal is out of reach, in the first run.
    pub fn told(&self, runs: &[Vec<Seen>]) -> Option<usize> {
        let run = runs.first()?;
        let mut seen = run[self.ticks.start..self.ticks.end.min(run.len())].iter();
        seen.position(|seen| seen.out_of_reach.contains(&true))
    }

    /// After how many ticks both classes keep their goals; `None` if they don't before the next change.
    pub fn settles(&self, runs: &[Vec<Seen>]) -> Option<usize> {
        let is_kept = |ticks: Range<usize>| {
            let found = self.mean(runs, ticks.clone());
            let at_best = KEPT * self.needed(runs, ticks).max(1.0);
            (0..2).all(|place| found[place] <= at_best * self.goals[place])
        };
        let mut ticks = self.ticks.start..self.ticks.end.saturating_sub(SPAN);
        ticks
            .find(|&at| is_kept(at..at + SPAN) && is_kept(at..self.ticks.end))
            .map(|at| at - self.ticks.start)
    }

    /// How far the first class's share goes back on its way from the first tick to the last, on average.
    pub fn swings(&self, runs: &[Vec<Seen>]) -> f64 {
        let swing = |run: &Vec<Seen>| {
            let share = |seen: &Seen| match self.resource {
                Resource::Processor => seen.processor_share,
                Resource::Queue => seen.queue_share,
            };
            let shares = || run[self.ticks.start + 1..self.ticks.end.min(run.len())].iter().map(share);
            let way = shares().next_back().unwrap_or_default() - shares().next().unwrap_or_default();
            let (mut most, mut back) = (f64::NEG_INFINITY, 0.0_f64);
            for share in shares() {
                let along = share * way.signum();
                most = most.max(along);
                back = back.max(most - along);
            }
            back
        };
        runs.iter().map(swing).sum::<f64>() / runs.len() as f64
    }
}

#[cfg(test)]
mod tests {
    use super::super::experiments;
    use super::*;

    #[test]
    fn a_change_lasts_until_the_next_and_knows_where_classes_meet() {
        let of = |name: &str| {
            let experiment = experiments().into_iter().find(|one| one.name == name).unwrap();
            let found = experiment.changes().into_iter();
            found.map(|change| (change.ticks, change.resource)).collect::<Vec<_>>()
        };
        use Resource::{Processor, Queue};
        assert_eq!(of("Fig. 7"), [(400..900, Queue), (900..1_400, Queue)]);
        assert_eq!(of("Fig. 8"), [(100..400, Processor), (400..800, Queue), (800..1_200, Processor)]);
    }

    #[test]
    fn another_pace_keeps_the_order_of_changes() {
        let paced = experiments()[4].paced(10, 50);
        let ticks: Vec<_> = paced.changes().into_iter().map(|change| change.ticks).collect();
        assert_eq!((ticks, paced.ticks, paced.load[0].0), (vec![10..60, 60..110, 110..160], 160, 0));
    }

    #[test]
    fn a_change_is_settled_once_both_goals_are_kept_for_good() {
        let change = Change { ticks: 0..200, goals: [0.1, 0.3], resource: Resource::Processor };
        let seen = |tick: u32| Seen {
            tick,
            processor: [(10.0, if tick < 30 { 20.0 } else { 1.0 }), (10.0, 2.0)],
            processor_share: if tick == 50 { 0.9 } else { 0.5 + f64::from(tick) / 1e3 },
            ..Seen::default()
        };
        let run: Vec<Seen> = (0..200).map(seen).collect();
        assert_eq!(change.settles(std::slice::from_ref(&run)), Some(30));
        assert!((change.swings(&[run]) - 0.349).abs() < 1e-9);
        let never = Change { goals: [0.05, 0.3], ..change };
        assert_eq!(never.settles(&[(0..200).map(seen).collect()]), None);
    }

    #[test]
    fn goals_beyond_what_both_need_are_kept_by_missing_them_alike() {
        let change = Change { ticks: 0..100, goals: [0.1, 0.2], resource: Resource::Queue };
        let run = |delays: [f64; 2]| {
            let queue = delays.map(|delay| (10.0, 10.0 * delay));
            vec![(0..100).map(|tick| Seen { tick, queue, ..Seen::default() }).collect::<Vec<_>>()]
        };
        let (alike, one_pays) = (run([0.15, 0.3]), run([0.1, 0.35]));
        for runs in [&alike, &one_pays] {
            assert!((change.needed(runs, 0..100) - 1.5).abs() < 1e-9);
        }
        assert_eq!((change.settles(&alike), change.settles(&one_pays)), (Some(0), None));
    }
}
