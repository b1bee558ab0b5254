//! How a service loses speed when too much is in flight: its total speed as a function of what is.
//!
//! Measured on databases of today (`docs/decisions/laboratory.md`): locks are the real collapse, memory is
//! a cliff, and many a service doesn't collapse at all. What is in flight is counted by *weight*: a type of
//! weight 3 counts as three requests. Speeds are in requests' work per time, so that 1 is one core.

/// How a service that shares its cores collapses.
#[derive(Clone, Debug, PartialEq)]
pub enum Collapse {
    /// It doesn't: n in flight on c cores have min(n, c) together.
    None,
    /// A plateau, then a cliff: full speed up to some weight in flight, then a part of it.
    Cliff {
        /// The most weight in flight at full speed.
        plateau: u32,
        /// The part of the speed that is left beyond.
        after: f64,
    },
    /// Like deadlocks that a time-out dissolves: best up to a few, then worse by the same factor for each
    /// more, down to a bottom.
    Deadlocks {
        /// The weight in flight up to which there are no deadlocks.
        best: u32,
        /// The weight in flight from which the speed falls no further.
        worst: u32,
        /// The factor by which the service is slower from `worst` on.
        factor: f64,
    },
    /// Types that name a lock run one at a time for each lock, and those that wait for it burn processor
    /// time that all others lack.
    Locks {
        /// How much each one that waits slows handing the lock over: speed 1 / (1 + handover × waiting).
        handover: f64,
        /// The part of a core that each one that waits burns.
        burn: f64,
    },
    /// Memory runs out: beyond a limit the service keeps only a part of its speed, and that is not undone
    /// by having less in flight, or only by having much less.
    Memory {
        /// The most weight in flight that memory holds.
        limit: u32,
        /// The part of the speed that is left afterwards.
        after: f64,
        /// It recovers when less than this is in flight; `None`: never.
        recovers_below: Option<u32>,
    },
    /// The measured speed at some weights in flight. It is interpolated linearly between them, and constant
    /// before the first and beyond the last.
    Measured {
        /// Each weight in flight, and the factor on the speed of the cores there; in order.
        points: Vec<(u32, f64)>,
    },
    /// Thrashing with a smooth peak. The cost of more requests gradually outweighs what they gain by keeping
    /// cores busy. The factor is c·(1 − (1 − 1/c)ⁿ) / (1 + (n / half)^power).
    Thrashing {
        /// The weight in flight at which half of the speed is lost.
        half: f64,
        /// How steeply.
        power: u32,
    },
}

impl Collapse {
    /// (i) A plateau for 1 to 64 in flight, then a cliff.
    pub const CLIFF: Self = Self::Cliff { plateau: 64, after: 0.2 };
    /// (ii) Best at 2, forty times worse at 8.
    pub const DEADLOCKS: Self = Self::Deadlocks { best: 2, worst: 8, factor: 40.0 };
    /// (iii) Contention for locks that also burns the processor.
    pub const LOCKS: Self = Self::Locks { handover: 0.05, burn: 0.2 };
    /// (iv) An irreversible memory cliff.
    pub const MEMORY: Self = Self::Memory { limit: 64, after: 0.1, recovers_below: None };
    /// (v) Thrashing with a smooth peak.
    pub const THRASHING: Self = Self::Thrashing { half: 40.0, power: 2 };

    /// What is wrong with its parameters.
    pub(crate) fn fault(&self) -> Option<&'static str> {
        let part = |part: f64| part > 0.0 && part <= 1.0;
        if let Self::Measured { points } = self {
            let is_speed = |&(_, speed): &(u32, f64)| speed.is_finite() && speed > 0.0;
            return if points.is_empty() {
                Some("a measured curve needs at least one point")
            } else if !points.iter().all(is_speed) {
                Some("a measured speed must be a number above 0")
            } else if !points.is_sorted_by(|a, b| a.0 < b.0) {
                Some("the points of a measured curve must be in order of what is in flight")
            } else {
                None
            };
        }
        match *self {
            Self::Cliff { after, .. } | Self::Memory { after, .. } if !part(after) => {
                Some("the part of the speed that is left must be above 0 and at most 1")
            }
            Self::Deadlocks { best, worst, .. } if best >= worst => {
                Some("deadlocks are best below where they are worst")
            }
            Self::Deadlocks { factor, .. } if !(factor.is_finite() && factor >= 1.0) => {
                Some("a factor by which it is slower is at least 1")
            }
            Self::Locks { handover, burn }
                if !(handover.is_finite() && handover >= 0.0 && burn.is_finite() && burn >= 0.0) =>
            {
                Some("handover and burn must be numbers from 0")
            }
            Self::Thrashing { half, .. } if !(half.is_finite() && half > 0.0) => {
                Some("half must be a number above 0")
            }
            _ => None,
        }
    }
}

/// Beyond this in flight the speed is what it is here.
const TABLE_MAX: usize = 4096;

/// A collapse, ready to be asked for every change of what is in flight.
#[derive(Debug)]
pub(crate) struct Efficiency {
    /// By how many are in flight: how many cores they keep busy.
    cores: Vec<f64>,
    /// By their weight: which part of the speed is left.
    left: Vec<f64>,
    memory: Option<Memory>,
}

#[derive(Debug)]
struct Memory {
    limit: u64,
    after: f64,
    recovers_below: u64,
    fallen: bool,
}

impl Efficiency {
    pub(crate) fn new(cores: u32, collapse: &Collapse) -> Self {
        let most = f64::from(cores);
        let busy = |count: usize| match collapse {
            Collapse::Thrashing { .. } => most * (1.0 - libm::pow(1.0 - 1.0 / most, count as f64)),
            _ => most.min(count as f64),
        };
        let left = |weight: usize| match *collapse {
            Collapse::Measured { ref points } => interpolated(points, weight as f64),
            Collapse::Cliff { plateau, after } if weight > plateau as usize => after,
            Collapse::Deadlocks { best, worst, factor } => {
                let weight = (weight as f64).clamp(f64::from(best), f64::from(worst));
                let way = (weight - f64::from(best)) / f64::from(worst - best);
                libm::pow(factor, -way)
            }
            Collapse::Thrashing { half, power } => {
                1.0 / (1.0 + libm::pow(weight as f64 / half, f64::from(power)))
            }
            _ => 1.0,
        };
        let memory = match *collapse {
            Collapse::Memory { limit, after, recovers_below } => Some(Memory {
                limit: limit.into(),
                after,
                recovers_below: recovers_below.map_or(0, u64::from),
                fallen: false,
            }),
            _ => None,
        };
        Self { cores: (0..=TABLE_MAX).map(busy).collect(), left: (0..=TABLE_MAX).map(left).collect(), memory }
    }

    /// The speed of so many requests of so much weight together.
    pub(crate) fn speed(&mut self, count: usize, weight: u64) -> f64 {
        let weighed = usize::try_from(weight).unwrap_or(TABLE_MAX).min(TABLE_MAX);
        let speed = self.cores[count.min(TABLE_MAX)] * self.left[weighed];
        match &mut self.memory {
            None => speed,
            Some(memory) => {
                memory.fallen = weight > memory.limit || (memory.fallen && weight >= memory.recovers_below);
                if memory.fallen { speed * memory.after } else { speed }
            }
        }
    }
}

/// What a curve of straight lines is at this weight.
pub(super) fn interpolated(points: &[(u32, f64)], weight: f64) -> f64 {
    let at = points.partition_point(|point| f64::from(point.0) <= weight);
    match (at.checked_sub(1).and_then(|before| points.get(before)), points.get(at)) {
        (Some(&(from, low)), Some(&(to, high))) => {
            low + (high - low) * (weight - f64::from(from)) / f64::from(to - from)
        }
        (Some(&(_, speed)), None) | (None, Some(&(_, speed))) => speed,
        (None, None) => 1.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn speeds(cores: u32, collapse: &Collapse, counts: &[usize]) -> Vec<f64> {
        let mut efficiency = Efficiency::new(cores, collapse);
        counts.iter().map(|&count| efficiency.speed(count, count as u64)).collect()
    }

    #[test]
    fn without_collapse_the_cores_are_shared() {
        assert_eq!(speeds(4, &Collapse::None, &[0, 1, 4, 10_000]), [0.0, 1.0, 4.0, 4.0]);
    }

    #[test]
    fn the_plateau_ends_in_a_cliff() {
        assert_eq!(speeds(1, &Collapse::CLIFF, &[1, 2, 64, 65, 10_000]), [1.0, 1.0, 1.0, 0.2, 0.2]);
    }

    #[test]
    fn deadlocks_are_best_at_two_and_forty_times_worse_at_eight() {
        let speeds = speeds(2, &Collapse::DEADLOCKS, &[1, 2, 8, 100]);
        assert_eq!(speeds[..2], [1.0, 2.0]);
        assert!((speeds[2] - 2.0 / 40.0).abs() < 1e-12 && (speeds[3] - speeds[2]).abs() < 1e-12);
    }

    #[test]
    fn a_measured_curve_is_straight_between_its_points_and_level_outside() {
        let measured = Collapse::Measured { points: vec![(2, 1.2), (4, 0.8), (10, 0.2)] };
        assert_eq!(measured.fault(), None);
        let found = speeds(1, &measured, &[0, 1, 2, 3, 4, 7, 10, 5000]);
        for (found, expected) in found.iter().zip([0.0, 1.2, 1.2, 1.0, 0.8, 0.5, 0.2, 0.2]) {
            assert!((found - expected).abs() < 1e-12, "{found} {expected}");
        }
        for points in [vec![], vec![(1, 0.0)], vec![(2, 1.0), (2, 0.5)]] {
            assert!(Collapse::Measured { points }.fault().is_some());
        }
    }

    #[test]
    fn memory_that_ran_out_stays_slow() {
        let counts = [64, 65, 1, 0, 64];
        assert_eq!(speeds(1, &Collapse::MEMORY, &counts), [1.0, 0.1, 0.1, 0.0, 0.1]);
        let recovers = Collapse::Memory { limit: 64, after: 0.1, recovers_below: Some(10) };
        assert_eq!(speeds(1, &recovers, &[64, 65, 10, 9, 64]), [1.0, 0.1, 0.1, 1.0, 1.0]);
    }

    #[test]
    fn thrashing_has_one_smooth_peak() {
        let counts: Vec<_> = (1..200).collect();
        let speeds = speeds(8, &Collapse::THRASHING, &counts);
        let peak = (0..speeds.len()).max_by(|&a, &b| speeds[a].total_cmp(&speeds[b])).unwrap();
        assert!((8..24).contains(&peak), "{peak}");
        assert!(speeds[..peak].is_sorted() && speeds[peak..].iter().rev().is_sorted());
        assert!(speeds[198] < speeds[peak] / 5.0);
    }
}
