//! Fuzzes the target `parameters`; its body is in `crates/targets`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| targets::run("parameters", data));
