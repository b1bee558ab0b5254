//! The numbers in flight at which a speed is kept: 1, 2, 3, 4, 6, 8, 12, 16, 24, … up to 1024, each 1½ or
//! 1⅓ times the one before. Between two of them speeds are interpolated, linearly in the number in flight:
//! c cores shared equally have min(n, c), which is a line on both sides of c.

/// How many levels there are.
pub(crate) const LEVELS: usize = 20;

/// The speed of the service with more requests in flight than this is taken to be the speed at this number.
pub(crate) const TOP: u32 = 1024;

/// A number of requests in flight, as shares of two neighboring levels.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Between {
    /// The lower level; the upper one is the next.
    pub(crate) below: usize,
    /// The lower level's share.
    pub(crate) lower: f64,
    /// The upper level's share; 0 at the last level.
    pub(crate) upper: f64,
}

/// How many are in flight at this level.
pub(crate) const fn at(level: usize) -> u32 {
    match level {
        0 => 1,
        _ if level % 2 == 1 => 1 << level.div_ceil(2),
        _ => 3 << (level / 2 - 1),
    }
}

/// The two levels around `count` requests in flight.
pub(crate) fn between(count: u32) -> Between {
    BETWEEN[count.clamp(1, TOP) as usize]
}

/// By number in flight: it is asked for twice for each request.
static BETWEEN: [Between; TOP as usize + 1] = {
    let mut table = [Between { below: 0, lower: 1.0, upper: 0.0 }; TOP as usize + 1];
    let mut count = 1;
    while count <= TOP {
        table[count as usize] = computed(count);
        count += 1;
    }
    table
};

const fn computed(count: u32) -> Between {
    let power = count.ilog2() as usize;
    let below = match power {
        0 => 0,
        _ => 2 * power - 1 + (count >= 3 << (power - 1)) as usize,
    };
    if at(below) == count {
        return Between { below, lower: 1.0, upper: 0.0 };
    }
    let (from, to) = (at(below), at(below + 1));
    let upper = (count - from) as f64 / (to - from) as f64;
    Between { below, lower: 1.0 - upper, upper }
}

impl Between {
    /// The interpolated value of what is kept by level.
    pub(crate) fn of(self, values: &[f64; LEVELS]) -> f64 {
        let above = if self.upper > 0.0 { self.upper * values[self.below + 1] } else { 0.0 };
        self.lower * values[self.below] + above
    }

    /// Both levels with their shares.
    pub(crate) fn shares(self) -> impl Iterator<Item = (usize, f64)> {
        [(self.below, self.lower), (self.below + 1, self.upper)].into_iter().filter(|&(_, share)| share > 0.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec::Vec;

    #[test]
    fn levels_are_powers_of_two_and_their_halves_between() {
        let levels: Vec<u32> = (0..LEVELS).map(at).collect();
        assert_eq!(levels[..8], [1, 2, 3, 4, 6, 8, 12, 16]);
        assert_eq!(levels[LEVELS - 1], TOP);
    }

    #[test]
    fn every_number_in_flight_is_its_own_interpolation() {
        let values: [f64; LEVELS] = core::array::from_fn(|level| f64::from(at(level)));
        for count in 1..=TOP {
            assert!((between(count).of(&values) - f64::from(count)).abs() < 1e-9, "{count}");
        }
        assert_eq!(between(0), between(1));
        assert_eq!(between(u32::MAX), between(TOP));
    }
}
