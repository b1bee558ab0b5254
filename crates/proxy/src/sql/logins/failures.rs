//! Failed logins by address: how many one address may have before it has to wait.
//!
//! A bucket for each address holds `limit` failures and leaks `limit` a minute; while it is full, nobody
//! from there may try. So a program with an old password, or an attacker's guesses, cost the server at most
//! `limit` logins a minute. Successful logins cost nothing, however many.
//!
//! The map is bounded: it forgets the address that has been quiet for longest, which an attacker with more
//! addresses than [`ADDRESSES_MAX`] can bring about; then nothing but `logins_max` bounds him. What an
//! address is says [`Source`].

use std::num::NonZeroUsize;
use std::time::Duration;

use lru::LruCache;
use parking_lot::Mutex;
use tokio::time::Instant;

use crate::source::Source;
use crate::stream::Peer;

/// The most addresses that are remembered; each takes about 100 bytes.
pub(crate) const ADDRESSES_MAX: usize = 10_000;
/// The time in which a full bucket leaks empty.
const PERIOD: Duration = Duration::from_secs(60);

/// What is in a bucket, as of a moment.
#[derive(Clone, Copy, Debug)]
struct Bucket {
    failures: f64,
    at: Instant,
}

impl Bucket {
    fn level(self, now: Instant, limit: u32) -> f64 {
        let leaked = now.duration_since(self.at).as_secs_f64() / PERIOD.as_secs_f64() * f64::from(limit);
        (self.failures - leaked).max(0.0)
    }
}

/// The failures of all addresses.
pub(crate) struct Failures {
    buckets: Mutex<LruCache<Source, Bucket>>,
}

impl std::fmt::Debug for Failures {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Failures").field("addresses", &self.buckets.lock().len()).finish()
    }
}

impl Default for Failures {
    fn default() -> Self {
        let bound = NonZeroUsize::new(ADDRESSES_MAX).unwrap_or(NonZeroUsize::MIN);
        // Grows with what it holds: most gates never see a failure.
        let mut buckets = LruCache::unbounded();
        buckets.resize(bound);
        Self { buckets: Mutex::new(buckets) }
    }
}

impl Failures {
    /// Whether somebody from there may try to log in. `None`: there is no limit.
    pub(crate) fn may_try(&self, now: Instant, peer: Peer, limit: Option<u32>) -> bool {
        let Some(limit) = limit else { return true };
        let buckets = self.buckets.lock();
        let level = buckets.peek(&peer.into()).map_or(0.0, |bucket| bucket.level(now, limit));
        level + 1.0 <= f64::from(limit)
    }

    /// Somebody from there has failed.
    pub(crate) fn note(&self, now: Instant, peer: Peer, limit: Option<u32>) {
        let Some(limit) = limit else { return };
        let mut buckets = self.buckets.lock();
        let bucket = buckets.get_or_insert_mut(peer.into(), || Bucket { failures: 0.0, at: now });
        let failures = (bucket.level(now, limit) + 1.0).min(f64::from(limit));
        *bucket = Bucket { failures, at: now };
    }
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use super::*;

    fn peer(text: &str) -> Peer {
        Peer::Inet(text.parse().unwrap())
    }

    const LIMIT: Option<u32> = Some(3);

    #[test]
    fn an_address_waits_after_its_failures_and_others_do_not() {
        let (failures, now) = (Failures::default(), Instant::now());
        let (bad, good) = (peer("192.0.2.1:1"), peer("192.0.2.2:1"));
        for _ in 0..3 {
            assert!(failures.may_try(now, bad, LIMIT));
            failures.note(now, bad, LIMIT);
        }
        assert!(!failures.may_try(now, peer("192.0.2.1:2"), LIMIT));
        assert!(failures.may_try(now, good, LIMIT) && failures.may_try(now, Peer::Unix, LIMIT));
        assert!(failures.may_try(now, bad, None));
        // A third of a minute lets one through, a minute all.
        assert!(!failures.may_try(now + PERIOD / 4, bad, LIMIT));
        let later = now + PERIOD / 3 + Duration::from_millis(1);
        assert!(failures.may_try(later, bad, LIMIT));
        failures.note(later, bad, LIMIT);
        assert!(!failures.may_try(later, bad, LIMIT));
        assert!(failures.may_try(later + PERIOD, bad, LIMIT));
    }

    #[test]
    fn a_network_of_ipv6_is_one_address() {
        let (failures, now) = (Failures::default(), Instant::now());
        failures.note(now, peer("[2001:db8:0:1::1]:1"), Some(1));
        assert!(!failures.may_try(now, peer("[2001:db8:0:1:ffff::]:1"), Some(1)));
        assert!(failures.may_try(now, peer("[2001:db8:0:2::1]:1"), Some(1)));
        failures.note(now, peer("[::ffff:192.0.2.1]:1"), Some(1));
        assert!(!failures.may_try(now, peer("192.0.2.1:1"), Some(1)));
        assert!(failures.may_try(now, peer("[::ffff:192.0.2.2]:1"), Some(1)));
    }

    #[test]
    fn the_memory_of_addresses_is_bounded() {
        let (failures, now) = (Failures::default(), Instant::now());
        for number in 0..2 * ADDRESSES_MAX {
            let ip = IpAddr::from(u32::try_from(number).unwrap().to_be_bytes());
            failures.note(now, Peer::Inet((ip, 1).into()), Some(1));
        }
        assert_eq!(failures.buckets.lock().len(), ADDRESSES_MAX);
        assert!(failures.may_try(now, peer("0.0.0.1:1"), Some(1)));
        let last = IpAddr::from(u32::try_from(2 * ADDRESSES_MAX - 1).unwrap().to_be_bytes());
        assert!(!failures.may_try(now, Peer::Inet((last, 1).into()), Some(1)));
    }
}
