//! CoDel (Nichols and Jacobson, "Controlling Queue Delay", ACM Queue 10(5), 2012; RFC 8289).
//!
//! **Idea.** A queue that is long for a moment absorbs a burst and is good. A queue that stays is only
//! delay. So what counts is the *least* queue wait within an interval. While it stays above the target,
//! requests are refused from the head of the queue, one by one, at instants that come closer and closer.
//!
//! **Formula.** A request is next whose queue wait is at least `target`, as all waits have been for an
//! `interval`: it is refused, and count = 1. While the waits stay above, the next one is refused after
//! interval/√count, and count grows by 1. The first wait below `target` ends the stretch. A stretch that
//! begins within 16 intervals goes on near the rate of the last one: count is what the last one added, if
//! that is more than 1 (RFC 8289, section 5.4; the constant in its section 5.5).
//!
//! **Parameters.** The published target is 5 ms, the interval 100 ms: the interval is about the longest
//! round trip of the internet, the target 5 to 10 % of it. For requests the interval is the time within
//! which clients react. Where requests take longer than 5 ms, both should be as many times longer.
//!
//! **Requests instead of packets.** Whatever would be dispatched next, in the gate's own order, is refused
//! by its own wait, though others may have overtaken it. "Less than one packet is queued" becomes "nobody
//! waits behind it": the last one is never refused. Clients that wait for their place (`COMMIT PREPARED`)
//! aren't refused.
//!
//! **When it fails.** CoDel was made for TCP, which slows down when a packet is lost; requests of an open
//! loop don't. The square root raises the refusals by only one in an interval². At twice the capacity a
//! backlog then grows for minutes, and what is served has waited for seconds. CoDel sees only the gate's
//! queue: where connections are plenty, all waiting is in the service, and nobody is refused. Under shortest
//! first the short ones keep the least wait low while the long ones wait.

use admission::{Duration, Instant, Refuse, Refusing};

/// A stretch of refusals is remembered for this many intervals.
const REMEMBERED: u32 = 16;

/// The state of the algorithm, by the names of RFC 8289.
#[derive(Debug)]
pub(super) struct Codel {
    target: Duration,
    interval: Duration,
    /// From when on all waits will have been above the target for an interval.
    first_above: Option<Instant>,
    dropping: bool,
    drop_next: Instant,
    count: u32,
    last_count: u32,
    last_wait: Duration,
}

impl Codel {
    pub(super) fn new(target: Duration, interval: Duration) -> Self {
        Self {
            target,
            interval,
            first_above: None,
            dropping: false,
            drop_next: Instant::ZERO,
            count: 0,
            last_count: 0,
            last_wait: Duration::ZERO,
        }
    }

    /// Whether the wait has stayed above the target for an interval.
    fn has_stayed_above(&mut self, now: Instant, waited: Duration, others_wait: bool) -> bool {
        if waited < self.target || !others_wait {
            self.first_above = None;
            return false;
        }
        let first_above = *self.first_above.get_or_insert(now.after(self.interval));
        now >= first_above
    }

    /// When the one after is refused.
    fn after(&self, from: Instant) -> Instant {
        from.after(self.interval.div_f64(libm::sqrt(f64::from(self.count.max(1)))))
    }

    fn begin(&mut self, now: Instant) {
        self.dropping = true;
        let added = self.count.saturating_sub(self.last_count);
        let recent = now.since(self.drop_next) < self.interval * REMEMBERED;
        self.count = if added > 1 && recent { added } else { 1 };
        self.last_count = self.count;
        self.drop_next = self.after(now);
    }
}

impl Refuse for Codel {
    fn refuses(&mut self, now: Instant, waited: Duration, others_wait: bool) -> bool {
        self.last_wait = waited;
        let above = self.has_stayed_above(now, waited, others_wait);
        if !above {
            self.dropping = false;
            return false;
        }
        if !self.dropping {
            self.begin(now);
        } else if now >= self.drop_next {
            self.count = self.count.saturating_add(1);
            self.drop_next = self.after(self.drop_next);
        } else {
            return false;
        }
        true
    }

    fn state(&self) -> Refusing {
        Refusing { measured: Some(self.last_wait), ..Refusing::default() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    fn codel() -> Codel {
        Codel::new(Duration::from_millis(5), Duration::from_millis(100))
    }

    /// The milliseconds at which requests are refused that all have waited for `wait`, one being next in
    /// each.
    fn refused(codel: &mut Codel, from: u64, to: u64, wait: u64) -> Vec<u64> {
        let is_refused =
            |ms: &u64| codel.refuses(Instant::from_nanos(*ms * MS), Duration::from_millis(wait), true);
        (from..to).filter(is_refused).collect()
    }

    #[test]
    fn refusals_follow_the_law_of_the_square_root() {
        // After an interval above the target; then after 100, 100/√2, 100/√3 … more.
        assert_eq!(refused(&mut codel(), 0, 500, 6), [100, 200, 271, 329, 379, 424, 464]);
    }

    /// One request is served at a time, for 10 ms, and 40 have come at once.
    #[test]
    fn the_head_of_a_queue_that_stays_is_refused() {
        let mut codel = codel();
        let mut refused = Vec::new();
        let mut next = 0;
        for round in 1..=30_u64 {
            let now = Instant::from_nanos(round * 10 * MS);
            while codel.refuses(now, now.since(Instant::ZERO), next < 39) {
                refused.push(next);
                next += 1;
            }
            next += 1;
        }
        // The first wait is 10 ms; an interval later the next is refused, then one after 100 and 71 ms.
        assert_eq!(refused, [10, 21, 30]);
    }

    #[test]
    fn waits_below_the_target_are_nobodys_fault() {
        assert!(refused(&mut codel(), 0, 1_000, 4).is_empty());
    }

    #[test]
    fn one_short_wait_ends_it_and_it_resumes_near_its_rate() {
        let mut codel = codel();
        assert_eq!(refused(&mut codel, 0, 500, 6).len(), 7);
        assert!(refused(&mut codel, 500, 501, 1).is_empty());
        // Six were added in the last stretch: after the interval it goes on with 100/√6 = 40 ms.
        assert_eq!(refused(&mut codel, 501, 690, 6), [601, 642, 680]);
    }

    #[test]
    fn the_last_one_is_never_refused() {
        let mut codel = codel();
        for ms in 0..1_000 {
            let now = Instant::from_nanos(ms * MS);
            assert!(!codel.refuses(now, Duration::from_secs(9), false));
        }
    }
}
