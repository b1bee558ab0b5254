//! A service that stands still: how a stall is noticed, how little is sent meanwhile, and when it is over.
//!
//! **Idea.** A request that is sent to a stalled service delays all later ones. When the service goes on,
//! the waiting requests, served in order of arrival, delay all that come in the next 60 s × ρ / (1 − ρ). So
//! no more than usual is sent during a stall, but for a probe now and then, since only an answer tells that
//! it is over. Requests that waited through it go after newcomers, as many at a time as the service works on.
//!
//! The time that a request in flight spent in the stall teaches nothing: it counts from the end of the stall
//! on. Otherwise every short type would seem to have become long.
//!
//! **What is a stall.** A request is evidence if its type is well known, it has taken [`TIMES`] times its
//! expected work and at least [`SILENCE`], and nothing of any type was answered since it was sent. So neither
//! a long report nor a lock that others don't wait for is a stall. After a stall of [`LONG`] or more, those
//! who waited yield. After a shorter one, in order of arrival, nobody waits for longer than it lasted.
//!
//! **Formula.** Evidence comes due at min over what was sent since the last answer of (sent +
//! max([`SILENCE`], [`TIMES`] × work)). From then on at most max([`LEAST`], 2 × peak) are in flight, the
//! peak being the most that were busy at an answer, forgotten by 1/[`MEMORY`] each. Probes go when the
//! stall has lasted for [`SILENCE`] more, and each time it has doubled since.
//!
//! **Source.** Ours, after "adaptive LIFO" (Maurer, "Fail at Scale", ACM Queue 13(8), 2015).
//!
//! **When it fails.** Repeated stalls below [`LONG`] leave backlogs in order of arrival. In overload those
//! who waited through a stall are never served: they leave by `queue_timeout`.

use crate::time::{Duration, Instant};
use crate::work::Work;

/// Nothing is a stall that is shorter: pauses of garbage collectors and checkpoints.
const SILENCE: Duration = Duration::from_secs(1);
/// A request is evidence of a stall when it takes this multiple of its expected work while nothing is
/// answered.
const TIMES: u64 = 100;
/// After a stall of at least this length the requests that waited through it go behind newcomers. Few clients
/// still wait for them (`docs/decisions/queue.md`, finding 11).
const LONG: Duration = Duration::from_secs(5);
/// A request is a newcomer if it arrived within this time before the first answer. The service takes some
/// time to answer.
const RECENT: Duration = Duration::from_millis(250);
/// The number of requests that may be in flight in any stall.
const LEAST: u32 = 4;
/// After this many answers the peak has decayed to about a third.
const MEMORY: f64 = 256.0;
/// Before this many answers the usual number in flight isn't known.
const KNOWN: u32 = 32;

/// What is known of a service that may stand still.
#[derive(Clone, Debug)]
pub(crate) struct Stalls {
    is_on: bool,
    answers: u32,
    peak: f64,
    /// The moment from which requests sent since the last answer are evidence of a stall.
    evidence: Option<Instant>,
    /// When the first of the requests that are evidence was sent.
    since: Instant,
    /// When the next probe goes, in a stall.
    probe: Instant,
}

impl Stalls {
    /// Nothing was sent yet.
    pub(crate) fn new(is_on: bool) -> Self {
        let (since, probe) = (Instant::ZERO, Instant::ZERO);
        Self { is_on, answers: 0, peak: 0.0, evidence: None, since, probe }
    }

    /// Whether it looks for stalls from now on.
    pub(crate) fn set(&mut self, is_on: bool) {
        self.is_on = is_on;
        self.evidence = self.evidence.filter(|_| is_on);
    }

    /// Whether the service stands still.
    pub(crate) fn is_stalled(&self, now: Instant) -> bool {
        self.evidence.is_some_and(|due| due <= now)
    }

    /// A request is sent; of so much work, if that is well known.
    pub(crate) fn sent(&mut self, now: Instant, work: Option<Work>) {
        if self.is_stalled(now) {
            self.put_off_probe(now);
        } else if let Some(work) = work.filter(|_| self.is_on && self.answers >= KNOWN) {
            let patience = Duration::from_nanos(work.as_nanos().saturating_mul(TIMES)).max(SILENCE);
            let due = now.after(patience);
            if self.evidence.is_none() {
                self.since = now;
            }
            if self.evidence.is_none_or(|evidence| due < evidence) {
                self.evidence = Some(due);
                self.probe = due.after(SILENCE);
            }
        }
    }

    /// The service has answered, while it was busy with so many. How long a stall has lasted, if that ends
    /// one.
    pub(crate) fn answered(&mut self, now: Instant, busy: u32) -> Option<Duration> {
        let was_stalled = self.is_stalled(now);
        self.evidence = None;
        self.answers = self.answers.saturating_add(1);
        if !was_stalled {
            self.peak = (self.peak * (1.0 - 1.0 / MEMORY)).max(f64::from(busy));
        }
        was_stalled.then(|| now.since(self.since))
    }

    /// The service has no more requests, and none wait. The next request finds out anew whether the service
    /// answers.
    pub(crate) fn rest(&mut self) {
        self.evidence = None;
    }

    /// The arrival time before which requests go behind newcomers, after a stall that ends now. `None` if it
    /// was too short.
    pub(crate) fn yields(now: Instant, lasted: Duration) -> Option<Instant> {
        let recent = Instant::from_nanos(now.as_nanos().saturating_sub(RECENT.as_nanos() as u64));
        (lasted >= LONG).then_some(recent)
    }

    /// Whether nothing more is sent now.
    pub(crate) fn holds(&self, now: Instant, in_flight: u32) -> bool {
        self.is_stalled(now) && f64::from(in_flight) >= self.most() && now < self.probe
    }

    /// The most in flight in a stall.
    fn most(&self) -> f64 {
        (2.0 * self.peak).max(f64::from(LEAST))
    }

    /// When somebody may be sent to probe, if the service stands still.
    pub(crate) fn next_probe(&self, now: Instant) -> Option<Instant> {
        self.is_stalled(now).then_some(self.probe)
    }

    /// The next probe goes when the stall has doubled.
    pub(crate) fn put_off_probe(&mut self, now: Instant) {
        self.probe = now.after(now.since(self.since).max(SILENCE));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Work = Work::from_nanos(1_000_000);

    fn at(ms: u64) -> Instant {
        Instant::ZERO.after(Duration::from_millis(ms))
    }

    /// A service that has answered `KNOWN` times, one by one, until 1 s.
    fn known() -> Stalls {
        let mut stalls = Stalls::new(true);
        for _ in 0..KNOWN {
            stalls.sent(at(999), Some(MS));
            assert_eq!(stalls.answered(at(1_000), 1), None);
        }
        stalls
    }

    #[test]
    fn what_is_sent_and_not_answered_for_long_is_a_stall() {
        let mut stalls = known();
        stalls.sent(at(2_000), Some(MS));
        assert!(!stalls.is_stalled(at(2_999)) && stalls.is_stalled(at(3_000)));
        assert!(!stalls.holds(at(3_000), LEAST - 1) && stalls.holds(at(3_000), LEAST));
        assert_eq!(stalls.answered(at(7_500), 1), Some(Duration::from_millis(5_500)), "since it was sent");
        assert!(!stalls.is_stalled(at(8_000)));
    }

    #[test]
    fn a_short_one_ends_and_nobody_yields() {
        let mut stalls = known();
        stalls.sent(at(2_000), Some(MS));
        let lasted = stalls.answered(at(5_000), 1).expect("one has ended");
        assert_eq!(Stalls::yields(at(5_000), lasted), None);
        assert_eq!(Stalls::yields(at(9_000), LONG), Some(at(8_750)));
    }

    #[test]
    fn what_is_expected_to_take_long_or_not_well_known_is_no_evidence() {
        let mut stalls = known();
        stalls.sent(at(2_000), Some(Work::from_nanos(5_000_000_000)));
        stalls.sent(at(2_000), None);
        assert!(!stalls.is_stalled(at(500_000)) && stalls.is_stalled(at(502_000)));
        let mut new = Stalls::new(true);
        new.sent(at(0), Some(MS));
        assert!(!new.is_stalled(at(100_000)), "who knows what is usual?");
        let mut off = known();
        off.set(false);
        off.sent(at(2_000), Some(MS));
        assert!(!off.is_stalled(at(100_000)));
        let mut stopped = known();
        stopped.sent(at(2_000), Some(MS));
        stopped.set(false);
        assert!(!stopped.is_stalled(at(100_000)), "nobody is held back for it any more");
    }

    #[test]
    fn whatever_is_answered_is_no_stall() {
        let mut stalls = known();
        stalls.sent(at(2_000), Some(MS));
        assert_eq!(stalls.answered(at(2_900), 2), None);
        assert!(!stalls.is_stalled(at(10_000)), "what was sent before that is slow, and others aren't");
    }

    #[test]
    fn as_many_as_twice_the_peak_are_in_flight_and_probes_go_when_it_has_doubled() {
        let mut stalls = known();
        stalls.sent(at(1_500), Some(MS));
        stalls.answered(at(1_501), 10);
        stalls.sent(at(2_000), Some(MS));
        assert!(!stalls.holds(at(3_000), 19) && stalls.holds(at(3_000), 20));
        let mut probes = std::vec::Vec::new();
        let mut now = 3_000;
        while now < 62_000 {
            now += 1;
            if !stalls.holds(at(now), 20) {
                probes.push(now / 1_000);
                stalls.sent(at(now), Some(MS));
            }
        }
        assert_eq!(probes, [4, 6, 10, 18, 34], "after 1 s, and each time it has lasted twice as long");
    }
}
