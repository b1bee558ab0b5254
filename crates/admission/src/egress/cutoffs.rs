//! The bands of the paper: where one ends and the next begins.
//!
//! Fixed, or learned from the sizes of the last few thousand responses by the paper's rules (section 3.2):
//! half of the responses below the first cutoff, 0.5 to 1 % above the last, logarithmic spacing between.
//! Until [`KNOWN`] sizes were seen the paper's own cutoffs hold. Sizes are counted in [`BUCKETS`] buckets,
//! eight for each doubling, so that a cutoff is wrong by at most 9 %. The counts are halved whenever there
//! are [`WINDOW`], so that a changed site is followed.

use alloc::vec::Vec;

use super::Cutoffs;

/// The cutoffs of the paper's experiments, in bytes.
pub(super) const PUBLISHED: [u64; 4] = [1_000, 2_000, 5_000, 50_000];

/// The part of responses below the first cutoff.
const BELOW_FIRST: f64 = 0.5;
/// The part below the last.
const BELOW_LAST: f64 = 0.9925;
/// Nothing is learned from fewer sizes than this.
const KNOWN: u32 = 256;
/// How often cutoffs are learned anew, in responses.
const PERIOD: u32 = 64;
/// How many sizes count.
const WINDOW: u32 = 16_384;
/// Buckets for each doubling.
const PER_OCTAVE: f64 = 8.0;
/// Up to a terabyte.
const BUCKETS: usize = 40 * 8;

#[derive(Debug)]
pub(super) struct Bands {
    cutoffs: Vec<u64>,
    learned: Option<Counts>,
}

#[derive(Debug)]
struct Counts {
    buckets: Vec<u32>,
    total: u32,
    since: u32,
}

impl Bands {
    pub(super) fn new(fixed: Option<&[u64]>) -> Self {
        match fixed {
            Some(cutoffs) => {
                let mut cutoffs: Vec<u64> = cutoffs.iter().copied().take(Cutoffs::MAX).collect();
                cutoffs.sort_unstable();
                Self { cutoffs, learned: None }
            }
            None => {
                let counts = Counts { buckets: alloc::vec![0; BUCKETS], total: 0, since: 0 };
                Self { cutoffs: PUBLISHED.to_vec(), learned: Some(counts) }
            }
        }
    }

    /// The band of a response with `remaining` bytes left; band 0 goes first.
    pub(super) fn of(&self, remaining: u64) -> u64 {
        self.cutoffs.partition_point(|&cutoff| cutoff <= remaining) as u64
    }

    /// A response of this size came.
    pub(super) fn observe(&mut self, size: u64) {
        let Some(counts) = &mut self.learned else { return };
        let bucket = (libm::log2(size.max(1) as f64) * PER_OCTAVE) as usize;
        counts.buckets[bucket.min(BUCKETS - 1)] += 1;
        counts.total += 1;
        counts.since += 1;
        if counts.total >= KNOWN && counts.since >= PERIOD {
            counts.since = 0;
            let (first, last) = (counts.below(BELOW_FIRST), counts.below(BELOW_LAST));
            let step = libm::pow(last / first, 1.0 / (PUBLISHED.len() - 1) as f64);
            for (at, cutoff) in self.cutoffs.iter_mut().enumerate() {
                *cutoff = (first * libm::pow(step, at as f64)) as u64;
            }
        }
        if counts.total >= WINDOW {
            counts.buckets.iter_mut().for_each(|count| *count /= 2);
            counts.total = counts.buckets.iter().sum();
        }
    }
}

impl Counts {
    /// The size below which this part of all is.
    fn below(&self, part: f64) -> f64 {
        let wanted = f64::from(self.total) * part;
        let mut seen = 0.0;
        for (bucket, &count) in self.buckets.iter().enumerate() {
            let within = wanted - seen;
            seen += f64::from(count);
            if seen >= wanted {
                let part = within / f64::from(count.max(1));
                return libm::exp2((bucket as f64 + part) / PER_OCTAVE);
            }
        }
        libm::exp2(BUCKETS as f64 / PER_OCTAVE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_band_ends_before_its_cutoff() {
        let bands = Bands::new(Some(&PUBLISHED));
        assert_eq!([0, 999, 1_000, 4_999, 5_000, 50_000].map(|size| bands.of(size)), [0, 0, 1, 2, 3, 4]);
    }

    #[test]
    fn learned_cutoffs_have_half_below_the_first_and_less_than_one_percent_above_the_last() {
        let mut bands = Bands::new(None);
        assert_eq!(bands.cutoffs, PUBLISHED);
        // Sizes uniform in the logarithm, from 100 bytes to 100 MB, in an order that mixes them.
        let sizes: Vec<f64> =
            (0..10_000_u32).map(|at| libm::exp10(2.0 + 6.0 * f64::from(at * 7_919 % 10_000) / 1e4)).collect();
        sizes.iter().for_each(|&size| bands.observe(size as u64));
        let above = |cutoff: u64| sizes.iter().filter(|&&size| size >= cutoff as f64).count();
        let cutoffs = &bands.cutoffs;
        assert!((4_800..=5_200).contains(&above(cutoffs[0])), "{cutoffs:?}");
        assert!((50..=100).contains(&above(cutoffs[3])), "{cutoffs:?}");
        let steps = cutoffs.windows(2).map(|pair| pair[1] as f64 / pair[0] as f64);
        assert!(
            steps.clone().all(|step| (step / (cutoffs[1] as f64 / cutoffs[0] as f64) - 1.0).abs() < 0.01)
        );
    }

    #[test]
    fn learned_cutoffs_follow_a_site_that_changes() {
        let mut bands = Bands::new(None);
        (0..20_000).for_each(|_| bands.observe(1_000));
        (0..40_000).for_each(|_| bands.observe(1_000_000));
        assert!(bands.cutoffs[0] > 900_000, "{:?}", bands.cutoffs);
    }
}
