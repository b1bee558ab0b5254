//! How large responses of a type are: a moving mean, for those that come without their length.

use alloc::collections::BTreeMap;

use crate::request::RequestType;

/// The last response weighs at least one part in so many.
const MEMORY: u64 = 64;

/// What was learned of one type.
#[derive(Clone, Copy, Debug, Default)]
struct Mean {
    count: u64,
    bytes: f64,
}

/// What was learned of all types. A type beyond the bound isn't learned.
#[derive(Debug)]
pub(super) struct Sizes {
    types: BTreeMap<RequestType, Mean>,
    types_max: usize,
}

impl Sizes {
    pub(super) fn new(types_max: usize) -> Self {
        Self { types: BTreeMap::new(), types_max }
    }

    /// What a response of this type takes, if any was seen.
    pub(super) fn of(&self, kind: RequestType) -> Option<u64> {
        self.types.get(&kind).map(|mean| libm::round(mean.bytes) as u64)
    }

    /// A response of this type took so many bytes.
    pub(super) fn learn(&mut self, kind: RequestType, bytes: u64) {
        if self.types.len() >= self.types_max && !self.types.contains_key(&kind) {
            return;
        }
        let mean = self.types.entry(kind).or_default();
        mean.count = (mean.count + 1).min(MEMORY);
        mean.bytes += (bytes as f64 - mean.bytes) / mean.count as f64;
    }
}
