//! Chance from a seed: SplitMix64 (Steele, Lea and Flood, OOPSLA 2014), the same numbers on every machine.

/// A stream of random numbers.
#[derive(Clone, Debug)]
pub(crate) struct Chance {
    state: u64,
}

impl Chance {
    /// The stream of this seed.
    pub(crate) const fn new(seed: u64) -> Self {
        Self { state: seed }
    }

    /// A number from 0, below 1.
    pub(crate) fn unit(&mut self) -> f64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.state ^ (self.state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((mixed ^ (mixed >> 31)) >> 11) as f64 * (1.0 / (1_u64 << 53) as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_are_uniform_and_those_of_the_seed() {
        let mut chance = Chance::new(7);
        let units: std::vec::Vec<f64> = (0..100_000).map(|_| chance.unit()).collect();
        let mean = units.iter().sum::<f64>() / 1e5;
        let below = units.iter().filter(|&&unit| unit < 0.1).count();
        assert!((mean - 0.5).abs() < 0.005, "{mean}");
        assert!((9_500..10_500).contains(&below), "{below}");
        assert!(units.iter().all(|unit| (0.0..1.0).contains(unit)));
        let mut again = Chance::new(7);
        assert!(units.iter().all(|&unit| again.unit() == unit));
    }
}
