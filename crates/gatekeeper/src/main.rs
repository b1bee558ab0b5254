//! The `gatekeeper` program.
fn main() {}
