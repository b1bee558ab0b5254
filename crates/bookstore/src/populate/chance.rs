//! Random numbers from a seed: the same rows on every machine and with every version of a library.
//!
//! SplitMix64 (Steele, Lea and Flood 2014). Every row of every table has a stream of its own. So rows can be
//! made in any order, and made again where another table needs them: an order's total needs its lines.

/// What a stream is for. Streams of different purposes are independent.
#[derive(Clone, Copy, Debug)]
#[repr(u64)]
pub(crate) enum Purpose {
    /// A book, and its covers.
    Book = 1,
    /// An author.
    Author,
    /// A customer.
    Customer,
    /// An address.
    Address,
    /// An order with its lines and its payment.
    Order,
    /// The columns of an order that no amount depends on: comments, numbers of cards.
    Trimmings,
    /// The look of a cover.
    Cover,
}

/// A stream of random numbers.
#[derive(Clone, Debug)]
pub(crate) struct Chance(u64);

/// The increment of SplitMix64: 2^64 divided by the golden ratio.
const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

impl Chance {
    /// The stream of one row.
    pub(crate) fn of(seed: u64, purpose: Purpose, row: u32) -> Self {
        let mut chance = Self(seed ^ (purpose as u64).wrapping_mul(0xd1b5_4a32_d192_ed03));
        let base = chance.next();
        Self(base ^ u64::from(row).wrapping_mul(GOLDEN))
    }

    /// The next number.
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(GOLDEN);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `bound`, or 0 if `bound` is 0. The bias of the multiplication is below 2^-32.
    pub(crate) fn below(&mut self, bound: u32) -> u32 {
        (((self.next() >> 32) * u64::from(bound)) >> 32) as u32
    }

    /// A number from `low` to `high`, both included.
    pub(crate) fn between(&mut self, low: i32, high: i32) -> i32 {
        low + self.below((high - low + 1).unsigned_abs()) as i32
    }

    /// One of several.
    pub(crate) fn choose<'a, T: ?Sized>(&mut self, from: &[&'a T]) -> &'a T {
        from[self.below(from.len() as u32) as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_has_the_same_stream_always_and_no_other_row_has_it() {
        let first = |seed, purpose, row| Chance::of(seed, purpose, row).next();
        assert_eq!(first(1, Purpose::Book, 1), first(1, Purpose::Book, 1));
        let mut seen = std::collections::HashSet::new();
        for seed in 0..10 {
            for row in 0..1_000 {
                assert!(seen.insert(first(seed, Purpose::Book, row)));
                assert!(seen.insert(first(seed, Purpose::Author, row)));
            }
        }
    }

    #[test]
    fn numbers_are_spread_evenly() {
        let mut counts = [0; 5];
        for row in 0..10_000 {
            counts[Chance::of(7, Purpose::Order, row).between(1, 5) as usize - 1] += 1;
        }
        assert!(counts.iter().all(|count| (1_850..2_150).contains(count)), "{counts:?}");
    }
}
