//! The protected service's side: where it is, how it is reached, and whether it is there.

pub(crate) mod address;
pub(crate) mod dial;
pub(crate) mod health;
pub(crate) mod resolver;
