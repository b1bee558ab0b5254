//! Fuzzes the target that this binary is named after; its body is in `crates/targets`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| targets::run(env!("CARGO_BIN_NAME"), data));
