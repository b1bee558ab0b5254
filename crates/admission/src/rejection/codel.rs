//! CoDel (Nichols and Jacobson, "Controlling Queue Delay", ACM Queue 10(5), 2012; RFC 8289): for comparison.
//!
//! **Idea.** A queue that is long for a moment absorbs a burst and is good; one that stays is only delay. So what counts
//! is the *least* queue wait within an interval: while it stays above the target, refuse from the head of the queue, one
//! by one, at instants that come closer and closer.
//!
//! **Formula.** When a request would be dispatched whose queue wait is at least `target`, as all have been for an
//! `interval`, it is refused, and count = 1. While the waits stay above, the next one is refused after
//! interval/√count, and count grows by 1. The first wait below `target` ends it. If it begins again within 16
//! intervals, it goes on near the rate where it was: count = what was added in the last stretch, if more than 1 (RFC 8289,
//! section 5.4; the constant in its section 5.5).
//!
//! **Parameters.** target 5 ms, interval 100 ms, as published: the interval is about the longest round trip of the internet,
//! the target 5 to 10 % of it. For requests the interval is the time within which clients react; a service whose requests
//! take longer than 5 ms should have a target of 5 % of an interval that is as many times longer.
//!
//! **Requests instead of packets.** What is refused is whoever would be dispatched next, in the gate's own order: its wait
//! is its own, though others may have overtaken it. "Less than one packet is queued" becomes "nobody waits behind it":
//! the last one is never refused. Clients that wait for their place (`COMMIT PREPARED`) aren't refused.
//!
//! **When it fails.** It was made for TCP, which slows down when a packet is lost; requests of an open loop don't. The
//! square root raises the refusals by one in an interval² only, so that at twice the capacity a backlog grows for minutes,
//! and what is served has waited for seconds. And it sees only the gate's queue: where connections are plenty, all the
//! waiting is in the service, and CoDel refuses nobody. Under shortest first the short ones keep the least wait low while
//! the long ones wait.

use crate::action::Reason;
use crate::snapshot::Refusing;
use crate::time::{Duration, Instant};

use super::Refuse;

/// How many intervals a stretch of refusals is remembered for.
const REMEMBERED: u32 = 16;

/// The state of the algorithm, by the names of RFC 8289.
#[derive(Debug)]
pub(crate) struct Codel {
    target: Duration,
    interval: Duration,
    /// When all waits will have been above the target for an interval.
    first_above: Option<Instant>,
    dropping: bool,
    drop_next: Instant,
    count: u32,
    last_count: u32,
    last_wait: Duration,
}

impl Codel {
    pub(crate) fn new(target: Duration, interval: Duration) -> Self {
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
    fn dispatch(&mut self, now: Instant, waited: Duration, others_wait: bool) -> Option<Reason> {
        self.last_wait = waited;
        let above = self.has_stayed_above(now, waited, others_wait);
        if !above {
            self.dropping = false;
            return None;
        }
        if !self.dropping {
            self.begin(now);
        } else if now >= self.drop_next {
            self.count = self.count.saturating_add(1);
            self.drop_next = self.after(self.drop_next);
        } else {
            return None;
        }
        Some(Reason::QueueDelay)
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

    /// When requests that all waited so long are refused, one being dispatched every millisecond.
    fn refused(codel: &mut Codel, from: u64, to: u64, wait: u64) -> std::vec::Vec<u64> {
        let is_refused = |ms: &u64| {
            codel.dispatch(Instant::from_nanos(*ms * MS), Duration::from_millis(wait), true).is_some()
        };
        (from..to).filter(is_refused).collect()
    }

    #[test]
    fn refusals_follow_the_law_of_the_square_root() {
        // After an interval above the target; then after 100, 100/√2, 100/√3 … more.
        assert_eq!(refused(&mut codel(), 0, 500, 6), [100, 200, 271, 329, 379, 424, 464]);
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
            assert_eq!(codel.dispatch(now, Duration::from_secs(9), false), None);
        }
    }
}
