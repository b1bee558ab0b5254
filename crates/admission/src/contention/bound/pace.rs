//! Whether the service completes as many requests as it is used to.
//!
//! Two exponential means of the logarithm of completions a second, over stretches of time: a slow one that
//! is usual, and a fast one that is now. They part when the service's speed changes, or the mix: not why,
//! but that what was found may not be right any more. They must be apart by [`CHANGED`], and by what the
//! stretches' own spread explains.

/// The weight of the newest stretch in the fast mean.
const FAST: f64 = 0.3;
/// The weight of the newest stretch in the slow mean.
const SLOW: f64 = 0.03;
/// The pace has changed only if the two means differ by more than this, in logarithms: a quarter.
const CHANGED: f64 = 0.25;
/// The two means must also differ by this many standard deviations of a stretch. A fast mean alone has 0.42
/// of them.
const BEYOND_CHANCE: f64 = 2.0;
/// With fewer stretches than this their spread isn't known.
const STRETCHES: u32 = 8;

/// The two means.
#[derive(Debug, Default)]
pub(super) struct Pace {
    stretches: u32,
    fast: f64,
    slow: f64,
    variance: f64,
}

impl Pace {
    /// Takes the completions a second of one more stretch. Whether the pace has changed; if so, the
    /// slow mean begins anew at the fast one.
    pub(super) fn has_changed(&mut self, per_second: f64) -> bool {
        let now = libm::log(per_second.max(1e-9));
        self.stretches = self.stretches.saturating_add(1);
        let even = 1.0 / f64::from(self.stretches);
        let distance = now - self.fast;
        self.fast += FAST.max(even) * distance;
        self.slow += SLOW.max(even) * (now - self.slow);
        if self.stretches > 1 {
            self.variance += SLOW.max(even) * (distance * distance - self.variance);
        }
        let apart = (self.fast - self.slow).abs();
        let changed = self.stretches >= STRETCHES
            && apart > CHANGED
            && apart > BEYOND_CHANCE * libm::sqrt(self.variance);
        if changed {
            *self = Self { stretches: 1, fast: self.fast, slow: self.fast, variance: self.variance };
        }
        changed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_the_pace_is_another_one_and_then_the_usual() {
        let mut pace = Pace::default();
        assert!((0..50).all(|turn| !pace.has_changed(if turn % 2 == 0 { 110.0 } else { 90.0 })));
        assert!((0..10).any(|_| pace.has_changed(50.0)));
        assert!((0..50).all(|_| !pace.has_changed(50.0)));
    }

    #[test]
    fn a_pace_that_swings_by_itself_does_not_change() {
        let mut pace = Pace::default();
        assert!((0..200).all(|turn| !pace.has_changed(if turn % 2 == 0 { 200.0 } else { 50.0 })));
    }
}
