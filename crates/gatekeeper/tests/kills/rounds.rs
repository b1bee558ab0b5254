//! Rounds with seeds; a failed round prints the command that repeats it.

use crate::support::chance::Chance;

/// The rounds of a test: their seeds, from `KILL_SEED` on and `KILL_ROUNDS` of them where these are set.
pub(crate) fn rounds(test: &'static str, count: u64) -> impl Iterator<Item = Round> {
    let given = |name| std::env::var(name).ok().map(|text| text.parse().expect("a number"));
    let first = given("KILL_SEED").unwrap_or(1);
    (first..first + given("KILL_ROUNDS").unwrap_or(count)).map(move |seed| Round { test, seed })
}

/// One round. A panic within it prints the command that begins with it.
pub(crate) struct Round {
    test: &'static str,
    pub(crate) seed: u64,
}

impl Round {
    pub(crate) fn chance(&self) -> Chance {
        Chance::new(self.seed)
    }
}

impl Drop for Round {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let Self { test, seed } = self;
            eprintln!(
                "seed {seed}; again: KILL_SEED={seed} cargo test -p gatekeeper --test {} {test}",
                env!("CARGO_CRATE_NAME")
            );
        }
    }
}
