//! The published adaptation: by the slope of a class's delay over its share.
//!
//! **Formula.** Of a class with delay d, goal D, share w and slope m = |Δd/Δw| of the last change:
//!
//! ```text
//! underweight: d ≥ (1 + ε)D          the most underweight class wants Δw = (d − D)/m
//! overweight:  d ≤ (1 − ε)D          a class j of them has the surplus s_j = (D_j − d_j)/m_j
//! donation_j = Δw · s_j / Σ s        clamped to ((1 − ε)D_j − d_j)/m_j if d_j + m_j·donation_j ≥ (1 + ε)D_j
//! ```
//!
//! Only the fraction β of a donation is committed. After a change the next look comes later by a factor.
//! The delay is the mean over the interval's ticks, smoothed: d = α·d_before + (1 − α)·mean.
//!
//! **Parameters.** The paper gives neither α, β, ε nor the first slope. α = 0.25 lets an old regime count
//! for a sixteenth after two intervals; β = 0.5 halves a gap at each step; ε = 0.1 is the band that the
//! project's own goals use. The first slope is d/w, that of a delay that is inverse to the share.
//!
//! **When it fails.** With a slope of noise a step is far too large or far too small. A class without a goal
//! is never overweight by the paper's definition; here it has the surplus of its whole share.

use alloc::vec::Vec;

use super::{Member, Plan, Standing, wanted};

/// The parameters of the published method.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Slopes {
    /// α: how much of the former average stays.
    pub memory: f64,
    /// β: which part of a donation is committed.
    pub part: f64,
    /// ε: half the band of a balanced class, as a part of its goal.
    pub band: f64,
    /// By what an interval is longer after a change.
    pub settling: u32,
}

impl Slopes {
    /// The parameters that the paper leaves open, as chosen above.
    pub const PUBLISHED: Self = Self { memory: 0.25, part: 0.5, band: 0.1, settling: 2 };
}

/// What the method knows of a class.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Slope {
    /// The smoothed delay.
    delay: Option<f64>,
    /// |m|, once a change has shown it.
    slope: Option<f64>,
    /// The delay and the share when shares were last moved.
    before: Option<(f64, f64)>,
}

impl Slope {
    fn learn(&mut self, found: f64, share: f64, memory: f64) -> f64 {
        let delay = self.delay.map_or(found, |before| memory * before + (1.0 - memory) * found);
        self.delay = Some(delay);
        if let Some((delay_before, share_before)) = self.before.take() {
            let (changed, moved) = (delay - delay_before, share - share_before);
            let slope = changed / moved;
            // A delay that rises with its share was changed by something else.
            if moved.abs() > 1e-6 && slope < 0.0 {
                self.slope = Some(-slope);
            }
        }
        delay
    }

    fn of(&self, delay: f64, share: f64) -> f64 {
        self.slope.unwrap_or(delay / share).max(1e-6)
    }
}

/// A class as the method sees it.
#[derive(Clone, Copy, Debug)]
struct Seen {
    place: usize,
    delay: f64,
    goal: f64,
    slope: f64,
}

/// What to move at the end of an interval.
pub(super) fn plan(members: &mut [Member], settings: Slopes) -> Option<Plan> {
    let seen: Vec<Seen> = members
        .iter_mut()
        .enumerate()
        .filter_map(|(place, member)| {
            let goal = member.promised.goal?;
            let found = member.window.take_interval(goal)?;
            let delay = member.slope.learn(found, member.share, settings.memory);
            let slope = member.slope.of(delay, member.share);
            (member.standing != Standing::GivenUp).then_some(Seen { place, delay, goal: wanted(goal), slope })
        })
        .collect();
    let under = seen.iter().filter(|it| it.delay >= (1.0 + settings.band) * it.goal);
    let most = under.max_by(|a, b| (a.delay / a.goal).total_cmp(&(b.delay / b.goal)))?;
    let needed = (most.delay - most.goal) / most.slope;
    let donations = donations(members, &seen, needed, settings);
    let (donor, _) = *donations.iter().max_by(|a, b| a.1.total_cmp(&b.1))?;
    let mut shares: Vec<f64> = members.iter().map(|member| member.share).collect();
    let mut given = 0.0;
    let room = members[most.place].ceiling() - shares[most.place];
    for (place, donation) in donations {
        let spare = (shares[place] - members[place].floor()).max(0.0);
        let donation = (settings.part * donation).min(spare).min(room - given).max(0.0);
        shares[place] -= donation;
        given += donation;
    }
    if given <= 0.0 {
        return None;
    }
    shares[most.place] += given;
    for it in &seen {
        let member = &mut members[it.place];
        member.slope.before = Some((it.delay, member.share));
    }
    Some(Plan { to: most.place, donor, shares })
}

/// What each overweight class gives of what is needed; a class without a pursued goal could give all.
fn donations(members: &[Member], seen: &[Seen], needed: f64, settings: Slopes) -> Vec<(usize, f64)> {
    let over = seen.iter().filter(|it| it.delay <= (1.0 - settings.band) * it.goal);
    let with_goals = over.map(|it| (it.place, (it.goal - it.delay) / it.slope));
    let has_none = |member: &Member| member.promised.goal.is_none() || member.standing == Standing::GivenUp;
    let without = members.iter().enumerate().filter(|(_, member)| has_none(member));
    let surpluses: Vec<(usize, f64)> =
        with_goals.chain(without.map(|(place, member)| (place, member.share))).collect();
    let sum: f64 = surpluses.iter().map(|(_, surplus)| surplus).sum();
    let clamped = |place: usize, donation: f64| {
        let Some(it) = seen.iter().find(|it| it.place == place) else { return donation };
        let predicted = it.delay + it.slope * donation;
        let most = ((1.0 - settings.band) * it.goal - it.delay) / it.slope;
        if predicted >= (1.0 + settings.band) * it.goal { donation.min(most) } else { donation }
    };
    surpluses.iter().map(|&(place, surplus)| (place, clamped(place, needed * surplus / sum))).collect()
}
