//! The protocol of MySQL byte for byte, cut short at every byte, and as garbage.

// Helpers of tests are outside of `#[test]` functions, where clippy.toml's allowances don't reach.
#![allow(clippy::unwrap_used, clippy::panic)]

mod answers;
mod garbage;
mod messages;
mod scrambles;
