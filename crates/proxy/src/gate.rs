//! The driver of one gate.

use admission::PoolId;

/// Runs an `admission::Gate` in real time.
#[derive(Debug, Default)]
pub struct Driver;

impl Driver {
    /// A pool has that many connections now.
    pub fn set_pool(&self, _pool: PoolId, _connections: u32) {}

    /// The server's machine has that many cores.
    pub fn set_cores(&self, _cores: u32) {}
}
