//! Random histories: always the same ones, unless another seed is asked for; what fails says how to see it
//! again.

#![allow(clippy::panic, reason = "a law that doesn't hold ends its test")]

use admission::PoolId;
use proptest::strategy::Strategy;
use proptest::test_runner::{Config, RngSeed, TestRunner};

#[allow(dead_code, reason = "each test crate uses its part")]
pub(crate) const MS: u64 = 1_000_000;

const SEED: &str = "ADMISSION_SEED";

#[allow(dead_code, reason = "each test crate uses its part")]
pub(crate) fn pool(index: u8) -> PoolId {
    PoolId::new(index).expect("a small index")
}

/// Tries so many histories; `law` panics when it doesn't hold.
pub(crate) fn check<S: Strategy>(cases: u32, histories: S, law: impl Fn(S::Value))
where
    S::Value: std::fmt::Debug,
{
    let seed = std::env::var(SEED).ok().and_then(|text| text.parse().ok()).unwrap_or(2004);
    let config = Config {
        cases,
        rng_seed: RngSeed::Fixed(seed),
        failure_persistence: None,
        max_shrink_iters: 4_000,
        ..Config::default()
    };
    let result = TestRunner::new(config).run(&histories, |history| {
        law(history);
        Ok(())
    });
    if let Err(error) = result {
        panic!("{error}\nreplay: {SEED}={seed} cargo test -p admission");
    }
}
