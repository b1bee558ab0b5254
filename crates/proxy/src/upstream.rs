//! The protected service's side: where it is, and the connections to it.

pub(crate) mod endpoint;
pub(crate) mod pool;
