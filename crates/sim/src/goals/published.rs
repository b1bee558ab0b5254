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
//! A tick's delay is the mean over its requests, an interval's the mean over its ticks.
//!
//! **Parameters.** The paper gives neither α, β, ε nor the first slope. α = 0.25 lets an old regime count
//! for a sixteenth after two intervals; β = 0.5 halves a gap at each step; ε = 0.1 is the band that the
//! project's own goals use. The first slope is d/w, that of a delay that is inverse to the share.
//!
//! **When it fails.** With a slope of noise a step is far too large or far too small. A class without a goal
//! is never overweight by the paper's definition; here it has the surplus of its whole share.

/// α: how much of the former average stays.
const MEMORY: f64 = 0.25;
/// β: which part of a donation is committed.
const PART: f64 = 0.5;
/// ε: half the band of a balanced class, as a part of its goal.
const BAND: f64 = 0.1;
/// By what an interval is longer after a change.
const SETTLING: u32 = 2;
/// The least share of a class.
const FLOOR: f64 = 0.01;

/// One class.
#[derive(Clone, Debug)]
struct Member {
    share: f64,
    /// The mean delay that it is promised, in seconds.
    goal: Option<f64>,
    /// In the tick that isn't over: how many requests, and the sum of their delays.
    tick: (f64, f64),
    /// Over the ticks of the interval: how many had requests, and the sum of their means.
    interval: (f64, f64),
    /// The smoothed delay.
    delay: Option<f64>,
    /// |m|, once a change has shown it.
    slope: Option<f64>,
    /// The delay and the share when shares were last moved.
    before: Option<(f64, f64)>,
}

impl Member {
    /// The smoothed delay at the end of an interval.
    fn learn(&mut self) -> Option<f64> {
        let (ticks, sum) = std::mem::take(&mut self.interval);
        if ticks == 0.0 {
            return None;
        }
        let found = sum / ticks;
        let delay = self.delay.map_or(found, |before| MEMORY * before + (1.0 - MEMORY) * found);
        self.delay = Some(delay);
        if let Some((delay_before, share_before)) = self.before.take() {
            let moved = self.share - share_before;
            let slope = (delay - delay_before) / moved;
            // A delay that rises with its share was changed by something else.
            if moved.abs() > 1e-6 && slope < 0.0 {
                self.slope = Some(-slope);
            }
        }
        Some(delay)
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

/// The shares of one resource.
#[derive(Clone, Debug)]
pub struct Published {
    members: Vec<Member>,
    /// Ticks of an interval.
    interval: u32,
    /// Ticks since the last decision.
    ticks: u32,
    /// Whether the last decision moved shares.
    settling: bool,
}

impl Published {
    /// Equal shares of classes without goals.
    pub fn new(classes: usize, interval: u32) -> Self {
        let member = Member {
            share: 1.0 / classes as f64,
            goal: None,
            tick: (0.0, 0.0),
            interval: (0.0, 0.0),
            delay: None,
            slope: None,
            before: None,
        };
        Self { members: vec![member; classes], interval: interval.max(1), ticks: 0, settling: false }
    }

    /// The mean delays that are promised from now on, in seconds.
    pub fn promise(&mut self, goals: &[f64]) {
        for (member, &goal) in self.members.iter_mut().zip(goals) {
            member.goal = Some(goal);
        }
    }

    /// The share of the class in this place.
    pub fn share(&self, place: usize) -> f64 {
        self.members.get(place).map_or(0.0, |member| member.share)
    }

    /// A request of the class in this place was delayed for so many seconds.
    pub fn observe(&mut self, place: usize, delay: f64) {
        if let Some(member) = self.members.get_mut(place) {
            member.tick.0 += 1.0;
            member.tick.1 += delay;
        }
    }

    /// A tick is over. Whether shares have moved.
    pub fn end_tick(&mut self) -> bool {
        for member in &mut self.members {
            let (count, sum) = std::mem::take(&mut member.tick);
            if count > 0.0 {
                member.interval.0 += 1.0;
                member.interval.1 += sum / count;
            }
        }
        self.ticks += 1;
        let longer = if self.settling { SETTLING } else { 1 };
        if self.ticks < self.interval * longer {
            return false;
        }
        self.ticks = 0;
        self.settling = self.decide().is_some();
        self.settling
    }

    /// Moves shares at the end of an interval, if any class needs more.
    fn decide(&mut self) -> Option<()> {
        let seen: Vec<Seen> = self
            .members
            .iter_mut()
            .enumerate()
            .filter_map(|(place, member)| {
                let (goal, delay) = (member.goal?, member.learn()?);
                let slope = member.slope.unwrap_or(delay / member.share).max(1e-6);
                Some(Seen { place, delay, goal, slope })
            })
            .collect();
        let under = seen.iter().filter(|it| it.delay >= (1.0 + BAND) * it.goal);
        let most = under.max_by(|a, b| (a.delay / a.goal).total_cmp(&(b.delay / b.goal)))?;
        let donations = self.donations(&seen, (most.delay - most.goal) / most.slope);
        let mut shares: Vec<f64> = self.members.iter().map(|member| member.share).collect();
        let mut given = 0.0;
        for (place, donation) in donations {
            let donation = (PART * donation).clamp(0.0, (shares[place] - FLOOR).max(0.0));
            shares[place] -= donation;
            given += donation;
        }
        if given <= 0.0 {
            return None;
        }
        shares[most.place] += given;
        for it in &seen {
            let member = &mut self.members[it.place];
            member.before = Some((it.delay, member.share));
        }
        for (member, share) in self.members.iter_mut().zip(shares) {
            member.share = share;
        }
        Some(())
    }

    /// What each overweight class gives of what is needed; a class without a goal could give all.
    fn donations(&self, seen: &[Seen], needed: f64) -> Vec<(usize, f64)> {
        let over = seen.iter().filter(|it| it.delay <= (1.0 - BAND) * it.goal);
        let with_goals = over.map(|it| (it.place, (it.goal - it.delay) / it.slope));
        let without = self.members.iter().enumerate().filter(|(_, member)| member.goal.is_none());
        let surpluses: Vec<(usize, f64)> =
            with_goals.chain(without.map(|(place, member)| (place, member.share))).collect();
        let sum: f64 = surpluses.iter().map(|(_, surplus)| surplus).sum();
        let clamped = |place: usize, donation: f64| {
            let Some(it) = seen.iter().find(|it| it.place == place) else { return donation };
            let most = ((1.0 - BAND) * it.goal - it.delay) / it.slope;
            let misses = it.delay + it.slope * donation >= (1.0 + BAND) * it.goal;
            if misses { donation.min(most) } else { donation }
        };
        surpluses.iter().map(|&(place, surplus)| (place, clamped(place, needed * surplus / sum))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resource(goals: [f64; 2]) -> Published {
        let mut resource = Published::new(2, 1);
        resource.promise(&goals);
        resource
    }

    /// A tick in which each class has a request with this delay.
    fn tick(resource: &mut Published, delays: [f64; 2]) -> bool {
        for (place, delay) in delays.into_iter().enumerate() {
            resource.observe(place, delay);
        }
        resource.end_tick()
    }

    fn assert_shares(resource: &Published, wanted: [f64; 2]) {
        let found = [0, 1].map(|place| resource.share(place));
        let is_close = found.iter().zip(wanted).all(|(found, wanted)| (found - wanted).abs() < 1e-6);
        assert!(is_close, "{found:?} instead of {wanted:?}");
    }

    #[test]
    fn a_step_is_half_of_what_the_slopes_say() {
        let mut resource = resource([0.1, 0.3]);
        // |m| = 0.2/0.5, so (0.2 − 0.1)/0.4 = 0.25 is needed, and half of it is committed.
        assert!(tick(&mut resource, [0.2, 0.1]));
        assert_shares(&resource, [0.625, 0.375]);
        // The interval after a change is twice as long; d = 0.25·0.2 + 0.75·0.16 shows |m| = 0.03/0.125.
        assert!(!tick(&mut resource, [0.16, 0.1]));
        assert!(tick(&mut resource, [0.16, 0.1]));
        assert_shares(&resource, [0.625 + 0.07 / 0.24 / 2.0, 0.375 - 0.07 / 0.24 / 2.0]);
    }

    #[test]
    fn a_donation_ends_where_the_donor_would_miss_its_goal() {
        let mut narrow = resource([0.1, 0.12]);
        assert!(tick(&mut narrow, [0.2, 0.1]));
        // (0.9 · 0.12 − 0.1)/0.2 = 0.04, and half of it.
        assert_shares(&narrow, [0.52, 0.48]);
        let mut balanced = resource([0.19, 0.2]);
        assert!(!tick(&mut balanced, [0.2, 0.1]), "within its band a class wants nothing");
    }

    #[test]
    fn a_share_keeps_its_floor() {
        let mut resource = resource([0.01, 9.0]);
        for _ in 0..200 {
            tick(&mut resource, [1.0, 0.5]);
        }
        assert!(resource.share(1) >= FLOOR - 1e-9 && resource.share(0) > 0.9);
    }
}
