//! Whether a type is several in one: a statement that finds its rows in memory or on disk, a page that is
//! cached or not.
//!
//! A histogram of what executions did, by half octaves (a factor of √2 each), halved when it holds
//! [`MOST`], so that it tells of the last thousand, nearly. What is counted is in the pace's unit, so that
//! neither the load nor a change of the service's speed makes a mode. A mode is a peak of the histogram
//! (smoothed 1:2:1) with a valley of at most half its height on the way to any higher one, and at least
//! [`LEAST`] of all executions around it: lognormal executions of any coefficient of variation have one.
//!
//! It only reports. What is expected of a type with two modes is their mean; the variation says that this
//! isn't worth much, and lifts the limit of the long lane. 132 bytes a type. It fails to part modes closer
//! than a factor of three, or so.

use alloc::vec::Vec;

use crate::snapshot::Mode;
use crate::work::Work;

/// Half octaves from 2^10 ns (1 µs) to 2^42 ns (73 minutes).
const BUCKETS: usize = 64;
const FIRST: u32 = 10;
/// The most executions that are remembered.
const MOST: u16 = 1024;
/// With fewer executions than this there are no modes.
const FEWEST: u16 = 64;
/// A mode holds at least this part of all executions.
const LEAST: f64 = 0.05;
/// The most modes that are told.
const MODES_MAX: usize = 4;

/// How often a type's executions did how much.
#[derive(Clone, Debug)]
pub(crate) struct Modes {
    counts: [u16; BUCKETS],
    total: u16,
}

impl Default for Modes {
    fn default() -> Self {
        Self { counts: [0; BUCKETS], total: 0 }
    }
}

impl Modes {
    /// Learns the work of an execution.
    pub(crate) fn learn(&mut self, amount: f64) {
        let nanos = (amount as u64).max(1);
        let octave = nanos.ilog2();
        // The square of x is beyond 2^(2k+1) from √2 · 2^k on.
        let upper = u128::from(nanos) * u128::from(nanos) >= 1 << (2 * octave + 1);
        let bucket = (2 * octave + u32::from(upper)).saturating_sub(2 * FIRST) as usize;
        self.counts[bucket.min(BUCKETS - 1)] += 1;
        self.total += 1;
        if self.total >= MOST {
            self.counts.iter_mut().for_each(|count| *count /= 2);
            self.total = self.counts.iter().sum();
        }
    }

    /// The modes, the least work first; `unit` turns what was done into work. None while little is known.
    pub(crate) fn told(&self, unit: f64) -> Vec<Mode> {
        if self.total < FEWEST {
            return Vec::new();
        }
        let at = |bucket: usize| self.counts.get(bucket).map_or(0.0, |&count| f64::from(count));
        let smooth: Vec<f64> = (0..BUCKETS)
            .map(|bucket| at(bucket.wrapping_sub(1)) + 2.0 * at(bucket) + at(bucket + 1))
            .collect();
        let mut modes: Vec<Mode> = Vec::new();
        let mut from = 0;
        for to in borders(&smooth) {
            let (mut count, mut octaves) = (0.0, 0.0);
            for bucket in from..to {
                count += at(bucket);
                octaves += at(bucket) * (f64::from(FIRST) + (bucket as f64 + 0.5) / 2.0);
            }
            let share = count / f64::from(self.total);
            if share >= LEAST && modes.len() < MODES_MAX {
                let work = Work::from_nanos((libm::exp2(octaves / count) * unit) as u64);
                modes.push(Mode { work, share });
            }
            from = to;
        }
        modes
    }
}

/// Where one peak ends and the next begins: at the bottom of each valley of at most half the height of the
/// peaks on both sides of it; and the end.
fn borders(smooth: &[f64]) -> Vec<usize> {
    let mut borders = Vec::new();
    // The highest since the last border, and the lowest since that and where.
    let (mut peak, mut valley, mut bottom) = (0.0_f64, f64::INFINITY, 0);
    for (bucket, &height) in smooth.iter().enumerate() {
        if height > 2.0 * valley && peak > 2.0 * valley && height >= 4.0 {
            borders.push(bottom);
            (peak, valley) = (height, height);
        } else if height >= peak {
            (peak, valley) = (height, height);
        }
        if height < valley {
            (valley, bottom) = (height, bucket);
        }
    }
    borders.push(smooth.len());
    borders
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: f64 = 1e6;

    /// Executions around these amounts, each as likely as its share says, varying by a factor of two.
    fn modes(of: &[(f64, u32)]) -> Vec<Mode> {
        let mut modes = Modes::default();
        for round in 0..40 {
            for &(amount, times) in of {
                for turn in 0..times {
                    let varies = f64::from((round * 7 + turn * 3) % 11) / 10.0;
                    modes.learn(amount * libm::exp2(varies - 0.5));
                }
            }
        }
        modes.told(1.0)
    }

    #[test]
    fn executions_of_one_kind_have_one_mode() {
        let told = modes(&[(3.0 * MS, 10)]);
        assert!(matches!(told[..], [Mode { share: 1.0, .. }]), "{told:?}");
        assert!((2.5..3.6).contains(&told[0].work.as_millis_f64()), "{told:?}");
    }

    #[test]
    fn what_is_cached_and_what_is_not_are_told_apart() {
        let told = modes(&[(1.0 * MS, 9), (50.0 * MS, 1)]);
        assert_eq!(told.len(), 2, "{told:?}");
        assert!((0.85..1.2).contains(&told[0].work.as_millis_f64()), "{told:?}");
        assert!((40.0..62.0).contains(&told[1].work.as_millis_f64()), "{told:?}");
        assert!((told[1].share - 0.1).abs() < 0.02, "{told:?}");
    }

    #[test]
    fn at_most_four_are_told_and_single_outliers_are_none() {
        let many: Vec<(f64, u32)> =
            (0..6).map(|power| (MS * libm::exp2(3.0 * f64::from(power)), 4)).collect();
        assert_eq!(modes(&many).len(), MODES_MAX);
        let told = modes(&[(1.0 * MS, 40), (900.0 * MS, 1)]);
        assert_eq!(told.len(), 1, "{told:?}");
    }

    #[test]
    fn little_says_nothing_and_the_oldest_is_forgotten() {
        let mut modes = Modes::default();
        for _ in 0..FEWEST - 1 {
            modes.learn(MS);
        }
        assert!(modes.told(1.0).is_empty());
        for amount in [0.0, 1.0, 1e300] {
            modes.learn(amount);
        }
        for _ in 0..20 * MOST {
            modes.learn(9.0 * MS);
        }
        assert_eq!(modes.told(1.0).len(), 1);
        assert!(modes.total < MOST);
    }
}
