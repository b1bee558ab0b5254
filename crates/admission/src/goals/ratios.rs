//! The method: shares move by ratios of delays, as soon as a difference is beyond chance.
//!
//! **Idea.** Shares can't change how long all wait together, only which class waits (`goals/law.rs`). What
//! the load of the moment adds to the delays of all classes therefore says nothing of the shares, and is
//! most of what one sees near saturation. So this method compares the class that misses its goal with those
//! that give to it, and doubts that comparison by how it varies from tick to tick. Requests that arrived
//! under former shares don't count, so there is nothing to wait for until a change settles.
//!
//! **Formula.** With e = ln(d/D) of each class, i the class with the greatest e above [`BAND`] among the
//! most important, and J the donors:
//!
//! ```text
//! wanted: y falls by min(e_i − e_J, 2(e_i + BAND/2))          y = ln d_i − Σ_J α_j ln d_j
//! step:   x rises by that / s, at most STEP_MAX               x = ln w_i − ln Σ_J w_j
//! s := √(s · |Δy/Δx|)                                          after each step, between S_MIN and S_MAX
//! ```
//!
//! A donor has no goal, is less important than i, or has an e less than e_i by twice the band. One more
//! important than i gives until its own e would be zero; one less important counts with at most e = 0. α_j is
//! its part of what is given. A step is made when e_i exceeds [`DOUBTS`] standard errors, after an interval
//! one. Classes without a goal get back what others don't need, up to the shares of their weights, if every
//! goal is kept with [`SPARE`] to spare.
//!
//! **Parameters.** They were chosen by simulation (`sim/tests/goals.rs`).
//! **When it fails.** Where waits are rare, the share hardly matters and goes to its ceiling in steps.

use alloc::vec::Vec;

use super::{ERROR_MAX, LEAST, Member, Plan, Standing};

/// Half the band in which a goal counts as kept, in logarithms.
const BAND: f64 = 0.1;
/// The elasticity before anything is known.
pub(super) const ELASTICITY: f64 = 2.0;
/// The least elasticity.
const S_MIN: f64 = 0.7;
/// The greatest elasticity.
const S_MAX: f64 = 12.0;
/// The largest step, as a logarithm of the ratio of shares.
const STEP_MAX: f64 = 0.8;
/// The number of standard errors by which a miss must exceed the band's middle.
const DOUBTS: f64 = 2.0;
/// The least number of requests that a class is judged by.
const LEAST_COUNT: f64 = 16.0;
/// The number of ticks that have to pass between two steps.
const LEAST_TICKS: u32 = 3;
/// What every class has to spare before any gives to those without a goal.
const SPARE: f64 = 0.35;

/// A step that was made, to learn from.
#[derive(Clone, Debug)]
struct Step {
    to: usize,
    /// The places and parts of those that gave.
    from: Vec<(usize, f64)>,
    y: f64,
    dx: f64,
}

/// What the method remembers of all classes.
#[derive(Clone, Debug, Default)]
pub(super) struct Ratios {
    last: Option<Step>,
}

/// How long the present shares have been in force, and an interval, in ticks.
#[derive(Clone, Copy, Debug)]
pub(super) struct Judged {
    pub(super) ticks: u32,
    pub(super) interval: u32,
}

/// Notes, for each class, how this tick's mean differs from those of all classes.
pub(super) fn note(members: &mut [Member]) {
    let logs: Vec<Option<f64>> = members
        .iter()
        .map(|member| member.window.tick_mean().map(|mean| libm::log(mean.max(LEAST))))
        .collect();
    let seen = logs.iter().flatten().count();
    if seen == 0 {
        return;
    }
    let middle = if seen > 1 { logs.iter().flatten().sum::<f64>() / seen as f64 } else { 0.0 };
    for (member, log) in members.iter_mut().zip(logs) {
        if let Some(log) = log {
            member.window.note(log - middle);
        }
    }
}

impl Ratios {
    /// The step to make now, if any.
    pub(super) fn plan(&mut self, members: &mut [Member], judged: Judged) -> Option<Plan> {
        if judged.ticks < LEAST_TICKS {
            return None;
        }
        let errors: Vec<Option<f64>> = members.iter().map(error).collect();
        let Some(to) = most_missed(members, &errors, judged) else {
            return self.give_back(members, &errors, judged);
        };
        let e = errors[to]?;
        let donors = donors(members, &errors, to, e);
        let given: f64 = donors.iter().map(|(_, part, _)| part).sum();
        if given <= 0.0 {
            return None;
        }
        let from: Vec<(usize, f64)> = donors.iter().map(|&(at, part, _)| (at, part / given)).collect();
        let e_donors: f64 = donors.iter().map(|&(_, part, error)| part / given * error).sum();
        self.learn(members, judged);
        let falls = (e - e_donors).min(2.0 * (e + BAND / 2.0));
        let dx = (falls / members[to].elasticity).min(STEP_MAX);
        self.step(members, to, from, dx)
    }

    /// Learns the elasticity from the last step, if that can be seen by now.
    fn learn(&mut self, members: &mut [Member], judged: Judged) {
        let Some(step) = self.last.take() else { return };
        let Some(y) = contrast(members, step.to, &step.from) else { return };
        let found = (step.y - y) / step.dx;
        // After an interval other things have changed, too.
        if judged.ticks > judged.interval {
            return;
        }
        for place in step.from.iter().map(|&(place, _)| place).chain([step.to]) {
            let known = &mut members[place].elasticity;
            *known = libm::sqrt(*known * found.clamp(S_MIN, S_MAX));
        }
    }

    /// Moves shares so that the logarithm of the ratio of the one's to the donors' rises by `dx`.
    fn step(&mut self, members: &[Member], to: usize, from: Vec<(usize, f64)>, dx: f64) -> Option<Plan> {
        let mut shares: Vec<f64> = members.iter().map(|member| member.share).collect();
        let own = shares[to];
        let others: f64 = from.iter().map(|&(place, _)| shares[place]).sum();
        let ratio = own / others * libm::exp(dx);
        let wanted = ((own + others) * ratio / (1.0 + ratio)).min(members[to].ceiling()) - own;
        let mut given = 0.0;
        for &(place, part) in &from {
            let gives = (wanted * part).clamp(0.0, members[place].spare(members[to].promised.importance));
            shares[place] -= gives;
            given += gives;
        }
        if given < 5e-4 {
            return None;
        }
        shares[to] += given;
        let (donor, _) = *from.iter().max_by(|a, b| a.1.total_cmp(&b.1))?;
        let left: f64 = from.iter().map(|&(place, _)| shares[place]).sum();
        let dx = libm::log(shares[to] / own) - libm::log(left / others);
        let y = contrast(members, to, &from);
        self.last = y.filter(|_| dx > 0.02).map(|y| Step { to, from, y, dx });
        Some(Plan { to, donor, shares })
    }

    /// Gives to classes without a goal what the others don't need.
    fn give_back(&mut self, members: &[Member], errors: &[Option<f64>], judged: Judged) -> Option<Plan> {
        let all_spare = errors.iter().flatten().all(|&error| error < -SPARE);
        if !all_spare || judged.ticks < judged.interval {
            return None;
        }
        let asks = |member: &Member| member.standing != Standing::Idle;
        let asking = members.iter().filter(|member| asks(member));
        let sum: f64 = asking.map(|member| member.promised.weight).sum();
        let lacks = |member: &Member| member.promised.weight / sum - member.share;
        let without =
            members.iter().enumerate().filter(|(_, member)| asks(member) && member.error().is_none());
        let to = without.filter(|(_, member)| lacks(member) > 0.01);
        let (to, _) = to.max_by(|a, b| lacks(a.1).total_cmp(&lacks(b.1)))?;
        let with = errors.iter().enumerate().filter_map(|(place, error)| Some((place, (*error)?)));
        let above = with.filter(|&(place, _)| lacks(&members[place]) < 0.0);
        let (donor, error) = above.min_by(|a, b| a.1.total_cmp(&b.1))?;
        let dx = (-error - BAND) / 2.0 / members[donor].elasticity;
        self.step(members, to, [(donor, 1.0)].to_vec(), dx.min(STEP_MAX / 2.0))
    }
}

/// The error of a class that was seen often enough.
fn error(member: &Member) -> Option<f64> {
    let is_rate = matches!(member.promised.goal, Some(super::ClassGoal::Throughput { .. }));
    (is_rate || member.window.count() >= LEAST_COUNT).then(|| member.error()).flatten()
}

/// The class that misses its goal by the most, among the most important that miss theirs beyond doubt.
fn most_missed(members: &[Member], errors: &[Option<f64>], judged: Judged) -> Option<usize> {
    let is_missed = |&(place, error): &(usize, f64)| {
        let doubt = members[place].window.standard_error().unwrap_or(ERROR_MAX);
        let is_late = judged.ticks >= judged.interval;
        error > BAND && error > if is_late { doubt } else { DOUBTS * doubt }
    };
    let known = errors.iter().enumerate().filter_map(|(place, error)| Some((place, (*error)?)));
    let order = |&(place, error): &(usize, f64)| (members[place].promised.importance, error);
    let missed =
        known.filter(is_missed).filter(|&(place, _)| members[place].share < members[place].ceiling() - 1e-3);
    let most = missed.max_by(|a, b| {
        let ((one, error), (other, other_error)) = (order(a), order(b));
        one.cmp(&other).then(error.total_cmp(&other_error))
    });
    most.map(|(place, _)| place)
}

/// The classes that may give to this one: place, how much each gives in proportion, and its error.
fn donors(members: &[Member], errors: &[Option<f64>], to: usize, e: f64) -> Vec<(usize, f64, f64)> {
    let importance = members[to].promised.importance;
    let all = members.iter().enumerate().filter(|&(place, _)| place != to);
    let could = all.filter(|(_, it)| it.share > it.floor() + 1e-3 && it.standing != Standing::Idle);
    could
        .filter_map(|(place, member)| {
            let has_goal = member.promised.goal.is_some() && member.standing != Standing::GivenUp;
            if !has_goal {
                return (member.window.count() > 0.0).then_some((place, member.share * e, -ERROR_MAX));
            }
            let is_less = member.promised.importance < importance;
            let error = if is_less { errors[place].map_or(0.0, |e| e.min(0.0)) } else { errors[place]? };
            let is_more = member.promised.importance > importance;
            let may = is_less || (error < e - 2.0 * BAND && (error < -BAND || !is_more));
            may.then_some((place, member.share * (e - error), error))
        })
        .collect()
}

/// How the logarithm of one class's delay differs from those of others.
fn contrast(members: &[Member], to: usize, from: &[(usize, f64)]) -> Option<f64> {
    let log = |place: usize| Some(libm::log(members[place].window.mean()?.max(LEAST)));
    let mut y = log(to)?;
    for &(place, part) in from {
        y -= part * log(place)?;
    }
    Some(y)
}
