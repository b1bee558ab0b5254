//! The driver of one gate.

use std::sync::Arc;

use admission::{Policy, PoolId};

/// Runs an `admission::Gate` in real time.
#[derive(Debug)]
pub struct Driver;

impl Driver {
    /// A gate with this policy.
    pub fn new(_name: impl Into<String>, _policy: Policy, _seed: u64) -> Arc<Self> {
        Arc::new(Self)
    }

    /// A pool has that many connections now.
    pub fn set_pool(&self, _pool: PoolId, _connections: u32) {}

    /// Replaces the policy.
    pub fn update_policy(&self, _update: impl FnOnce(&mut Policy)) {}
}
