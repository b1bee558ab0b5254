//! SQL as applications and drivers send it: statements, effects, shapes and tags; and whatever bytes there
//! are.

// Helpers of tests are outside of `#[test]` functions, where clippy.toml's allowances don't reach.
#![allow(clippy::unwrap_used, clippy::panic)]

mod comments;
mod fingerprints;
mod garbage;
mod mysql;
mod statements;
