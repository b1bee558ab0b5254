//! The last dispatches of a gate in their order: which request went before which.

use std::collections::HashMap;

use admission::RequestType;

/// How many dispatches are remembered: 16 bytes each.
const PASSED_MAX: usize = 16_384;

/// How many types are told apart.
const TYPES_TOLD: usize = 5;

/// The last dispatches.
#[derive(Debug, Default)]
pub(super) struct Passed {
    /// The arrival number and the type of each. The place is the dispatch's number, modulo the size.
    last: Vec<(u64, RequestType)>,
    count: u64,
}

/// Requests that went before one that had arrived earlier.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Overtaken {
    /// How many.
    pub(crate) count: u32,
    /// Some of the dispatches had been forgotten when they were counted: there were more.
    pub(crate) is_partial: bool,
    /// Those types that did so most, and how often each.
    pub(crate) by_type: Vec<(RequestType, u32)>,
}

impl Passed {
    /// How many dispatches there were.
    pub(super) fn count(&self) -> u64 {
        self.count
    }

    /// A request was dispatched. Returns the number of its dispatch.
    pub(super) fn dispatched(&mut self, sequence: u64, request_type: RequestType) -> u64 {
        let number = self.count;
        self.count += 1;
        if self.last.len() < PASSED_MAX {
            self.last.push((sequence, request_type));
        } else {
            self.last[(number % PASSED_MAX as u64) as usize] = (sequence, request_type);
        }
        number
    }

    /// Of the dispatches from one number to before another, those of requests that arrived after this one.
    pub(super) fn overtaken(&self, sequence: u64, (from, to): (u64, u64)) -> Overtaken {
        let mut by_type: HashMap<RequestType, u32> = HashMap::new();
        for (_, request_type) in self.between(from, to).filter(|(other, _)| *other > sequence) {
            *by_type.entry(request_type).or_default() += 1;
        }
        let count = by_type.values().sum();
        let mut by_type: Vec<_> = by_type.into_iter().collect();
        by_type.sort_unstable_by_key(|&(request_type, count)| (std::cmp::Reverse(count), request_type));
        by_type.truncate(TYPES_TOLD);
        Overtaken { count, is_partial: from < self.first(), by_type }
    }

    /// How many requests that had arrived before this one were dispatched after its dispatch.
    pub(super) fn overtook(&self, sequence: u64, dispatch: u64) -> u32 {
        let later = self.between(dispatch + 1, self.count).filter(|(other, _)| *other < sequence).count();
        u32::try_from(later).unwrap_or(u32::MAX)
    }

    /// The number of the first dispatch that is remembered.
    fn first(&self) -> u64 {
        self.count - self.last.len() as u64
    }

    fn between(&self, from: u64, to: u64) -> impl Iterator<Item = (u64, RequestType)> + '_ {
        let range = from.max(self.first())..to.min(self.count);
        range.map(|number| self.last[(number % PASSED_MAX as u64) as usize])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn those_that_arrived_later_and_went_first_are_counted_by_type() {
        let mut passed = Passed::default();
        // The request number 2 waits while these go.
        for (sequence, request_type) in [(0, 7), (3, 7), (5, 8), (1, 9), (4, 7), (2, 1), (6, 7)] {
            passed.dispatched(sequence, RequestType(request_type));
        }
        let told = passed.overtaken(2, (0, 5));
        let by_type = vec![(RequestType(7), 2), (RequestType(8), 1)];
        assert_eq!(told, Overtaken { count: 3, is_partial: false, by_type });
        // The request number 5 was dispatched third; the numbers 1, 4 and 2 had to wait for longer.
        assert_eq!(passed.overtook(5, 2), 3);
    }

    #[test]
    fn only_the_last_are_remembered_and_that_is_said() {
        let mut passed = Passed::default();
        for sequence in 1..=PASSED_MAX as u64 + 10 {
            passed.dispatched(sequence, RequestType(1));
        }
        assert_eq!(passed.last.len(), PASSED_MAX);
        let all = passed.overtaken(0, (0, passed.count()));
        assert_eq!((all.count as usize, all.is_partial), (PASSED_MAX, true));
        let last = passed.overtaken(0, (20, 30));
        assert_eq!((last.count, last.is_partial), (10, false));
    }
}
