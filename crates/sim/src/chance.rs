//! Chance: numbers that look random and are the same on every machine, one stream for each purpose.
//!
//! Two variants of a scenario meet the same arrivals and the same service times (common random numbers),
//! because each purpose draws from a stream of its own: what one draws more or less of moves no other. The
//! generator is xoshiro256++ (Blackman and Vigna, 2021), its state filled by `SplitMix64` from the seed,
//! the purpose and an index. It is written out here since a trace must stay the same for years, which a
//! library's "standard" generator doesn't promise.

/// What a stream is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// When requests arrive.
    Arrivals = 1,
    /// What they are.
    Types = 2,
    /// How long they take alone.
    ServiceTimes = 3,
    /// What one client of a closed loop does.
    Client = 4,
    /// How long clients wait before they try again.
    Retries = 5,
    /// What the gate draws.
    Gate = 6,
    /// What the service gives up.
    Conflicts = 7,
    /// The service times of a visit's later requests.
    Visit = 8,
}

/// A stream of random numbers.
#[derive(Clone, Debug)]
pub struct Chance {
    state: [u64; 4],
}

impl Chance {
    /// The stream for a purpose; `index` tells several of one purpose apart.
    pub fn new(seed: u64, purpose: Purpose, index: u64) -> Self {
        let mut source = mix(mix(seed).wrapping_add(purpose as u64)).wrapping_add(index);
        let state = core::array::from_fn(|_| {
            source = source.wrapping_add(0x9e37_79b9_7f4a_7c15);
            mix(source)
        });
        Self { state }
    }

    /// The next 64 bits.
    pub fn bits(&mut self) -> u64 {
        let [a, b, c, d] = &mut self.state;
        let result = a.wrapping_add(*d).rotate_left(23).wrapping_add(*a);
        let shifted = *b << 17;
        *c ^= *a;
        *d ^= *b;
        *b ^= *c;
        *a ^= *d;
        *c ^= shifted;
        *d = d.rotate_left(45);
        result
    }

    /// A number in (0, 1), never an end of it.
    pub fn unit(&mut self) -> f64 {
        ((self.bits() >> 11) as f64 + 0.5) * (1.0 / (1u64 << 53) as f64)
    }

    /// An exponential number of mean 1.
    pub fn exponential(&mut self) -> f64 {
        -libm::log(self.unit())
    }

    /// A standard normal number (Box and Muller; two draws each, so that streams stay in step).
    pub fn normal(&mut self) -> f64 {
        let radius = libm::sqrt(2.0 * self.exponential());
        radius * libm::cos(core::f64::consts::TAU * self.unit())
    }
}

/// `SplitMix64`'s output function.
fn mix(value: u64) -> u64 {
    let value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_stream_of_a_seed_never_changes() {
        let mut chance = Chance::new(1, Purpose::Arrivals, 0);
        let drawn: Vec<_> = (0..3).map(|_| chance.bits()).collect();
        assert_eq!(drawn, FIRST, "traces of older versions could not be reproduced");
    }

    const FIRST: [u64; 3] =
        [15_214_791_934_562_887_077, 15_763_073_488_764_706_583, 13_003_654_366_676_786_789];

    #[test]
    fn streams_differ_by_seed_purpose_and_index() {
        let first = |seed, purpose, index| Chance::new(seed, purpose, index).bits();
        let all = [
            first(1, Purpose::Arrivals, 0),
            first(2, Purpose::Arrivals, 0),
            first(1, Purpose::Types, 0),
            first(1, Purpose::Arrivals, 1),
            first(0, Purpose::Arrivals, 0),
        ];
        let mut distinct = all.to_vec();
        distinct.sort_unstable();
        distinct.dedup();
        assert_eq!(distinct.len(), all.len());
    }

    #[test]
    fn moments_are_those_of_the_distributions() {
        let mut chance = Chance::new(7, Purpose::Types, 0);
        let count = 200_000;
        let (mut unit, mut exponential, mut normal, mut square) = (0.0, 0.0, 0.0, 0.0);
        for _ in 0..count {
            unit += chance.unit();
            exponential += chance.exponential();
            let number = chance.normal();
            normal += number;
            square += number * number;
        }
        let mean = |sum: f64| sum / f64::from(count);
        assert!((mean(unit) - 0.5).abs() < 0.005);
        assert!((mean(exponential) - 1.0).abs() < 0.01);
        assert!(mean(normal).abs() < 0.01);
        assert!((mean(square) - 1.0).abs() < 0.01);
    }
}
