//! The protected service's side: where it is, and the connections to it.

pub(crate) mod address;
pub(crate) mod dial;
pub(crate) mod health;
pub(crate) mod pool;
pub(crate) mod resolver;
