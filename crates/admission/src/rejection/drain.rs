//! The real drain rate: completions per second while there was something to complete.
//!
//! ```text
//! rate = (completions + under way) / (busy time + time since the last completion)
//! ```
//!
//! Both sums forget: each completion takes Δ/(τ + Δ) of them off, Δ being the time that it took and τ the
//! longer of [`MEMORY`] and what [`COMPLETIONS`] of them take (or what a controller asks for), so that the
//! rate is within about 1/√64 = 12 % however slow the service is. One completion is under way: when the
//! service stalls the rate falls while it lasts. Of the first [`SETTLED`] completions all that haven't come
//! count as under way: a service that works on many at once completes none for a while, and then many. A
//! single gap counts for at most [`GAP_MAX`] mean ones, so that a stall is forgotten within seconds of its
//! end.
//!
//! When it fails: measured while fewer requests are present than the service could do at once, it is what
//! they ask for rather than what the service could do: a lower bound, which rises as soon as more are let
//! in.

use crate::time::{Duration, Instant};

/// For how long a completion is remembered at least, in seconds. Long enough for the noise, short enough to
/// notice a service at half of its speed within two of them.
const MEMORY: f64 = 1.0;
/// How many completions are remembered at least.
const COMPLETIONS: f64 = 64.0;
/// A gap counts for at most this many mean gaps. The longest request of the TPC-W mix is 32 means.
const GAP_MAX: f64 = 100.0;
/// Of so many completions the first ones count as under way until they come. A deadline is judged only after
/// them.
const SETTLED: u64 = 32;
/// The shortest time after which a refused client may try again.
const RETRY_MIN: Duration = Duration::from_secs(1);
/// The longest time after which a refused client is asked to try again.
const RETRY_MAX: Duration = Duration::from_secs(60);

/// The drain rate of a gate.
#[derive(Clone, Debug)]
pub(crate) struct Drain {
    completions: f64,
    /// In seconds.
    busy: f64,
    seen: u64,
    /// Since when something could have completed and nothing has.
    since: Option<Instant>,
    until: Instant,
    /// The fewest completions that are remembered.
    remembered: f64,
    /// The shortest time that is remembered, in seconds.
    memory: f64,
}

impl Drain {
    pub(crate) fn new(now: Instant) -> Self {
        Self::remembering(now, COMPLETIONS, MEMORY)
    }

    /// One that remembers so many completions and seconds at least.
    pub(crate) fn remembering(now: Instant, completions: f64, memory: f64) -> Self {
        Self {
            completions: 0.0,
            busy: 0.0,
            seen: 0,
            since: None,
            until: now,
            remembered: completions,
            memory,
        }
    }

    /// Until now, `present` requests were present.
    pub(crate) fn pass(&mut self, now: Instant, present: u32) {
        if now == self.until {
            return;
        }
        match present {
            0 => self.since = None,
            _ => self.since = self.since.or(Some(self.until)),
        }
        self.until = now;
    }

    /// One has completed.
    pub(crate) fn complete(&mut self, now: Instant) {
        let gap = self.since.map_or(0.0, |since| now.since(since).as_secs_f64());
        let mean = if self.completions > 0.0 { self.busy / self.completions } else { gap };
        let gap = if self.is_settled() { gap.min(GAP_MAX * mean) } else { gap };
        let memory = (self.remembered * mean).max(self.memory);
        let kept = memory / (memory + gap);
        self.completions = self.completions * kept + 1.0;
        self.busy = self.busy * kept + gap;
        self.seen += 1;
        self.since = Some(now);
    }

    /// Whether there were enough completions to refuse by.
    pub(crate) fn is_settled(&self) -> bool {
        self.seen >= SETTLED
    }

    /// Completions per second, infinite while nothing was observed at all.
    pub(crate) fn rate(&self, now: Instant) -> f64 {
        let since = self.since.map_or(0.0, |since| now.since(since).as_secs_f64());
        let under_way = SETTLED.saturating_sub(self.seen).max(1);
        (self.completions + under_way as f64) / (self.busy + since)
    }

    /// When so many will have been drained, as far as it is good to say so.
    pub(crate) fn retry_after(&self, now: Instant, queued: usize) -> Duration {
        let seconds = if self.seen == 0 { 0.0 } else { queued as f64 / self.rate(now) };
        Duration::try_from_secs_f64(seconds).map_or(RETRY_MAX, |after| after.clamp(RETRY_MIN, RETRY_MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    fn at(ms: u64) -> Instant {
        Instant::from_nanos(ms * MS)
    }

    /// One after another, each taking so long, with pauses in between.
    fn drained(count: u64, took: u64, pause: u64) -> (Drain, u64) {
        let mut drain = Drain::new(at(0));
        let mut now = 0;
        for _ in 0..count {
            drain.pass(at(now), 0);
            now += took;
            drain.pass(at(now), 1);
            drain.complete(at(now));
            drain.pass(at(now), 0);
            now += pause;
            drain.pass(at(now), 0);
        }
        (drain, now)
    }

    #[test]
    fn pauses_without_requests_do_not_count() {
        for pause in [0, 90] {
            let (drain, now) = drained(1_000, 10, pause);
            let rate = drain.rate(at(now));
            assert!((rate - 100.0).abs() < 3.0, "{rate} with pauses of {pause} ms");
        }
    }

    #[test]
    fn before_the_first_completions_all_that_settle_the_rate_are_under_way() {
        let mut drain = Drain::new(at(0));
        assert!(drain.rate(at(0)).is_infinite() && drain.retry_after(at(0), 1_000) == RETRY_MIN);
        drain.pass(at(0), 1);
        drain.pass(at(100), 1);
        assert!((drain.rate(at(100)) - 320.0).abs() < 1e-9);
        for ended in 1..=40 {
            drain.complete(at(100 + 10 * ended));
        }
        // From then on it is known: 40 in 500 ms, of which the first 100 are forgotten by and by.
        assert!((80.0..100.0).contains(&drain.rate(at(500))), "{}", drain.rate(at(500)));
    }

    #[test]
    fn a_stall_lowers_the_rate_while_it_lasts_and_is_forgotten_soon_after() {
        let (mut drain, now) = drained(1_000, 10, 0);
        drain.pass(at(now), 5);
        drain.pass(at(now + 60_000), 5);
        assert!(drain.rate(at(now + 60_000)) < 3.0);
        let mut now = now + 60_000;
        for _ in 0..300 {
            drain.complete(at(now));
            now += 10;
            drain.pass(at(now), 5);
        }
        assert!(drain.rate(at(now)) > 90.0, "{}", drain.rate(at(now)));
    }

    #[test]
    fn who_is_refused_may_come_back_when_the_queue_has_drained() {
        let (drain, now) = drained(1_000, 10, 0);
        let seconds = drain.retry_after(at(now), 1_000).as_secs_f64();
        assert!((9.5..10.5).contains(&seconds), "{seconds}");
        assert_eq!(drain.retry_after(at(now), 3), RETRY_MIN);
        assert_eq!(drain.retry_after(at(now), 1_000_000), RETRY_MAX);
    }
}
