//! Fuzzes the target `idle_server`; its body is in `crates/targets`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| targets::run("idle_server", data));
