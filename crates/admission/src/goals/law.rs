//! Finds goals that no shares can meet together, and which class loses its goal then.
//!
//! **Idea.** Shares only decide which class waits. Under every order that never idles, doesn't interrupt
//! and doesn't look at sizes, Σ ρᵢWᵢ is the same, ρ being a class's part of the work and W its mean wait.
//! So what was observed under today's shares tells the sum under any others, for any arrivals and service
//! times. Goals whose sum Σ ρᵢDᵢ is less can't all be met.
//!
//! **Formula.** Over an interval, with the work of each class as ρ: the goals are out of reach if
//! Σ ρᵢDᵢ < (1 − [`BAND`]) Σ ρᵢWᵢ over the classes with delay goals, and one of them misses its goal. A class
//! without a goal may wait for as long as it takes: beside it the sum is least where it has its floor, and
//! only then goals are too much. A goal for responses leaves D less the mean service time for waiting, a
//! percentile as much of the mean as was observed of both. Goals are out of reach, too, if every class that
//! was seen misses its own. A single goal is out of reach if its class misses it with the largest share that
//! it can get, and after one interval already if the service alone takes longer.
//!
//! **What follows.** After [`PROOFS`] such intervals the classes of the least importance lose their goals:
//! they aren't pursued, and their shares may be taken. Among classes of one importance nobody loses the
//! goal; all are told to be out of reach. The goals come back after as many intervals in which
//! Σ ρᵢDᵢ ≥ Σ ρᵢWᵢ for all of them.
//!
//! **Source.** Kleinrock, "A conservation law for a wide class of queueing disciplines", 1965.
//!
//! **When it fails.** An order by size within a class makes the sum smaller, the more of them wait.

use alloc::vec::Vec;

use super::{ClassGoal, Measure, Member, Served, Standing, Statistic};

/// The sum of the goals is less than what is observed by at least this part.
const BAND: f64 = 0.1;
/// The number of intervals in a row that have to agree.
const PROOFS: u32 = 2;
/// The classes with fewer requests in an interval aren't judged.
const LEAST_COUNT: f64 = 8.0;
/// A share so near a bound counts as at it.
const AT_BOUND: f64 = 0.005;

/// What the law is told of one class in an interval.
#[derive(Clone, Copy, Debug, Default)]
struct Sums {
    count: f64,
    work: f64,
    wait: f64,
    service: f64,
    /// How many took longer in the service alone than their goal allows.
    late: f64,
    /// How many took longer in all than their goal allows, by more than the band.
    missed: f64,
}

impl Sums {
    /// Whether no share can keep the goal, since the service alone takes longer.
    fn is_too_long_for(&self, goal: Option<ClassGoal>) -> bool {
        let Some(ClassGoal::Delay { measure: Measure::Response, statistic, most }) = goal else {
            return false;
        };
        let is_too_long = match statistic {
            Statistic::Mean => self.service > most.as_secs_f64() * self.count,
            Statistic::Percentile(part) => self.late > self.count * (1.0 - f64::from(part) / 100.0),
        };
        self.count >= LEAST_COUNT && is_too_long
    }

    /// Whether the goal was missed over the interval, whichever shares were in force.
    fn miss(&self, member: &Member, goal: ClassGoal) -> bool {
        match goal {
            ClassGoal::Delay { statistic: Statistic::Percentile(part), .. } => {
                self.missed > self.count * (1.0 - f64::from(part) / 100.0)
            }
            ClassGoal::Delay { measure, statistic: Statistic::Mean, most } => {
                let service = if measure == Measure::Wait { 0.0 } else { self.service };
                self.wait + service > most.as_secs_f64() * (1.0 + BAND) * self.count
            }
            ClassGoal::Throughput { .. } => {
                let time = member.window.observed(goal);
                time.is_some_and(|time| time > super::wanted(goal) * (1.0 + BAND))
            }
        }
    }
}

/// How many intervals in a row have shown what.
#[derive(Clone, Copy, Debug, Default)]
struct Proofs {
    short: u32,
    enough: u32,
}

impl Proofs {
    fn note(&mut self, is_short: bool, is_enough: bool) {
        self.short = if is_short { self.short + 1 } else { 0 };
        self.enough = if is_enough { self.enough + 1 } else { 0 };
    }
}

/// Watches the goals of all classes.
#[derive(Clone, Debug, Default)]
pub(super) struct Law {
    ticks: u32,
    sums: Vec<Sums>,
    all: Proofs,
    each: Vec<Proofs>,
}

impl Law {
    pub(super) fn observe(&mut self, place: usize, served: &Served, goal: Option<ClassGoal>) {
        if place >= self.sums.len() {
            self.sums.resize(place + 1, Sums::default());
        }
        let sums = &mut self.sums[place];
        sums.count += 1.0;
        sums.work += served.work.as_nanos() as f64 * 1e-9;
        sums.wait += served.wait.as_secs_f64();
        sums.service += served.service.as_secs_f64();
        let is_late = matches!(goal, Some(ClassGoal::Delay { most, .. }) if served.service > most);
        sums.late += f64::from(u8::from(is_late));
        let is_missed = matches!(goal, Some(ClassGoal::Delay { most, .. })
            if super::window::time_of(served, goal) > most.as_secs_f64() * (1.0 + BAND));
        sums.missed += f64::from(u8::from(is_missed));
    }

    /// Ticks have ended. At the end of an interval: how each class stands from now on.
    pub(super) fn look(&mut self, ended: u32, interval: u32, members: &[Member]) -> Option<Vec<Standing>> {
        self.ticks = self.ticks.saturating_add(ended);
        if self.ticks < interval {
            return None;
        }
        self.ticks = 0;
        let mut sums = core::mem::take(&mut self.sums);
        sums.resize(members.len(), Sums::default());
        self.each.resize(members.len(), Proofs::default());
        let (is_short, is_enough) = judge_all(&sums, members);
        self.all.note(is_short, is_enough);
        for (place, proofs) in self.each.iter_mut().enumerate() {
            let error = members[place].error();
            let is_missed = error.is_some_and(|error| error > BAND);
            let is_kept = error.is_some_and(|error| error < 0.0);
            proofs.note(is_missed && is_at_most(members, place), is_kept);
            if sums[place].is_too_long_for(members[place].promised.goal) {
                *proofs = Proofs { short: PROOFS, enough: 0 };
            }
        }
        Some((0..members.len()).map(|place| self.standing(members, place)).collect())
    }

    fn standing(&self, members: &[Member], place: usize) -> Standing {
        let member = &members[place];
        if member.promised.goal.is_none() || member.standing == Standing::Idle {
            return member.standing;
        }
        let of_kept = members.iter().filter(|it| it.promised.goal.is_some() && it.standing.is_pursued());
        let importances = || of_kept.clone().map(|it| it.promised.importance);
        let (least, most) = (importances().min(), importances().max());
        // Those of the next importance are given up only after as many further intervals.
        if self.all.short > 0 && self.all.short % PROOFS == 0 {
            let loses = least < most && Some(member.promised.importance) == least;
            return match member.standing {
                Standing::GivenUp => Standing::GivenUp,
                _ if loses => Standing::GivenUp,
                // More important goals remain possible until they are missed without those that are gone.
                standing if least < most => standing,
                _ if self.all.short > PROOFS && member.error().is_none_or(|error| error <= BAND) => {
                    member.standing
                }
                _ => Standing::OutOfReach,
            };
        }
        match member.standing {
            _ if self.all.enough >= PROOFS && self.each[place].short == 0 => Standing::InReach,
            Standing::InReach if self.each[place].short >= PROOFS => Standing::OutOfReach,
            Standing::OutOfReach if self.each[place].enough >= PROOFS => Standing::InReach,
            standing => standing,
        }
    }
}

/// Whether all goals together are too much for what was observed, and whether they surely aren't.
fn judge_all(sums: &[Sums], members: &[Member]) -> (bool, bool) {
    let (mut observed, mut wanted, mut missed, mut seen) = (0.0, 0.0, 0, 0);
    let (mut is_least, mut is_needed) = (true, false);
    for (sums, member) in sums.iter().zip(members) {
        if sums.count < LEAST_COUNT {
            continue;
        }
        let Some(goal) = member.promised.goal else {
            is_least &= member.share <= member.floor() + AT_BOUND;
            continue;
        };
        seen += 1;
        let is_missed = sums.miss(member, goal);
        is_needed |= member.standing.is_pursued() && is_missed;
        missed += u32::from(is_missed);
        let Some(longest) = longest_wait(sums, member, goal) else {
            // A throughput has no place in the law.
            wanted = f64::INFINITY;
            continue;
        };
        observed += sums.work * sums.wait / sums.count;
        wanted += sums.work * longest;
    }
    let all_miss = seen > 1 && missed == seen;
    let is_short = wanted < observed * (1.0 - BAND) || all_miss;
    (seen > 1 && is_least && is_needed && is_short, wanted >= observed && !all_miss)
}

/// The mean wait that a goal allows.
fn longest_wait(sums: &Sums, member: &Member, goal: ClassGoal) -> Option<f64> {
    let ClassGoal::Delay { measure, statistic, most } = goal else { return None };
    let (wait, service) = (sums.wait / sums.count, sums.service / sums.count);
    let (mean, fixed) = match measure {
        Measure::Wait => (wait, 0.0),
        Measure::Response => (wait + service, service),
    };
    let time = member.window.observed(goal).unwrap_or(mean);
    let part = match statistic {
        Statistic::Percentile(_) if time > 0.0 => mean / time,
        _ => 1.0,
    };
    Some((most.as_secs_f64() * part - fixed).max(0.0))
}

/// Whether a class has the largest share that it can get.
fn is_at_most(members: &[Member], place: usize) -> bool {
    let others = members.iter().enumerate().filter(|&(other, _)| other != place);
    let asking = others.filter(|(_, member)| member.standing != Standing::Idle);
    let floors: f64 = asking.map(|(_, member)| member.floor()).sum();
    members[place].share >= members[place].ceiling().min(1.0 - floors) - AT_BOUND
}
