//! Requests that the service gave up for others: deadlocks, and transactions that can't be serialized.
//!
//! They are the one thing that says by itself that too many are in flight: alone none is given up. But not
//! how many fewer are best, which is for trials to find; so all that follows of them is where and how it is
//! looked for:
//!
//! * Where they take [`MANY`] of the service's time, the next step down is a far one, once at each bound
//!   and after each rest: to one alone, or to as many as the service was seen to work on. With three to six
//!   in flight as much may be completed by each, since somebody always waits for a deadlock to be found,
//!   and three times as much by one alone. If nothing is gained by it, the search goes on where it was.
//! * A higher bound under which they do so is not home: nothing is lost by it only if much is gained.
//! * A stretch is [`TIMES`] as long as one of them takes: PostgreSQL looks for a deadlock after a second,
//!   so that in most tenths of a second there is none, and two in flight seem to be better than one.
//! * Where they were many it is looked less often: rests grow by [`RESTS`].
//! * Where a rule refuses by a response time nobody may ever wait for room: it lets in no more than are
//!   served in time, which are few because so much is lost. While some are refused ([`REFUSES`] ago at
//!   most) and they are many it is as if somebody waited, and the step down is one from what is in flight.
//!
//! One that is rare changes nothing. Which part they take is counted over [`MEMORY`], as a decaying mean
//! that begins with a service that gave up none, or with what the trial saw that led to the bound: a
//! deadlock of a second is a twelfth of a stretch of 0.6 s with twenty in flight, and 0.2 % of these 30 s.
//! In a trial, which is shorter, [`SEVERAL`] of them are asked for.

use crate::outside::Sample;
use crate::time::{Duration, Instant};

/// Conflicts are many if this part of the service's time is lost by them. Then a far lower bound may be
/// better.
pub(super) const MANY: f64 = 0.05;
/// The time constant with which the weight of older conflicts decays.
const MEMORY: Duration = Duration::from_secs(30);
/// With fewer conflicts than this in a trial, their number may be chance.
const SEVERAL: u32 = 3;
/// While conflicts were recently many, a stretch lasts at least this multiple of the time that one conflict
/// takes.
const TIMES: u32 = 2;
/// After this time without many conflicts the length of a stretch no longer depends on them.
const FORGOTTEN: Duration = Duration::from_secs(300);
/// The rest of a direction in which conflicts are many grows by this factor after each look, instead of by 2.
pub(super) const RESTS: u32 = 4;
/// For this long after a refusal by response time the controller acts as if a request waited for room.
const REFUSES: Duration = Duration::from_secs(1);
/// The mean time of a conflict moves by one part in this number with each new one.
const WEIGHT: u32 = 4;

/// What is known of them.
#[derive(Debug)]
pub(super) struct Conflicts {
    /// The part lost to conflicts under the present bound.
    present: Lately,
    /// The part lost to conflicts under all bounds that are tried.
    all: Lately,
    /// How long they take, on average.
    took: Option<Duration>,
    /// When they were many last.
    many: Option<Instant>,
    /// When somebody was refused last who would have waited.
    refused: Option<Instant>,
}

impl Conflicts {
    /// No conflicts so far, with `in_flight` requests in flight.
    pub(super) fn new(now: Instant, in_flight: u32) -> Self {
        let none = Lately::of(now, in_flight, 0.0);
        Self { present: none, all: none, took: None, many: None, refused: None }
    }

    /// Another bound is the present one, of which it is known so far that this part was given up under it.
    pub(super) fn begin(&mut self, now: Instant, bound: u32, part: f64) {
        self.present = Lately::of(now, bound, part);
    }

    /// A request has ended, under the present bound or another.
    pub(super) fn see(&mut self, now: Instant, sample: &Sample, at_present: bool) {
        if !sample.own {
            return;
        }
        self.all.add(now, sample);
        if at_present {
            self.present.add(now, sample);
        }
        if sample.conflict {
            let usual = self.took.unwrap_or(sample.upstream_time);
            let sum = usual.saturating_mul(WEIGHT - 1).saturating_add(sample.upstream_time);
            self.took = Some(sum / WEIGHT);
            if self.all.is_large() {
                self.many = Some(now);
            }
        }
    }

    /// Whether they are many under the present bound.
    pub(super) fn are_many(&self) -> bool {
        self.present.is_large()
    }

    /// Somebody is refused for the time that it would take.
    pub(super) fn refuse(&mut self, now: Instant) {
        self.refused = Some(now);
    }

    /// Whether others are kept out because so much is lost by them.
    pub(super) fn keep_others_out(&self, now: Instant) -> bool {
        self.are_many() && self.refused.is_some_and(|refused| now.since(refused) < REFUSES)
    }

    /// How long a stretch is to be at least.
    pub(super) fn stretch(&self, now: Instant) -> Duration {
        match (self.took, self.many) {
            (Some(took), Some(many)) if now.since(many) < FORGOTTEN => took.saturating_mul(TIMES),
            _ => Duration::ZERO,
        }
    }
}

/// Which part of the service's time they took lately.
#[derive(Clone, Copy, Debug)]
struct Lately {
    lost: Lost,
    until: Instant,
}

impl Lately {
    /// The state after `in_flight` requests were in flight for a long time, of which `part` was lost to
    /// conflicts. With a `part` of zero the first conflict alone isn't many.
    fn of(now: Instant, in_flight: u32, part: f64) -> Self {
        let spent = f64::from(in_flight) * MEMORY.as_secs_f64();
        Self { lost: Lost { spent, lost: part * spent, conflicts: 0 }, until: now }
    }

    fn add(&mut self, now: Instant, sample: &Sample) {
        if self.lost.lost <= 0.0 {
            // Until the first it stays what it began with: who is never given up takes no time to count.
            if !sample.conflict {
                return;
            }
            self.until = now;
        }
        let kept = libm::exp(-now.since(self.until).as_secs_f64() / MEMORY.as_secs_f64());
        self.until = now;
        self.lost.spent *= kept;
        self.lost.lost *= kept;
        self.lost.add(sample);
    }

    fn is_large(&self) -> bool {
        self.lost.lost > 0.0 && self.lost.lost >= MANY * self.lost.spent
    }
}

/// What was given up in some time.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Lost {
    /// How long the service was busy with requests that it served or gave up, in seconds.
    spent: f64,
    /// How long the service was busy with requests that it gave up, in seconds.
    lost: f64,
    conflicts: u32,
}

impl Lost {
    /// A request has ended.
    pub(super) fn add(&mut self, sample: &Sample) {
        let took = sample.upstream_time.as_secs_f64();
        if sample.success || sample.conflict {
            self.spent += took;
        }
        if sample.conflict {
            self.lost += took;
            self.conflicts = self.conflicts.saturating_add(1);
        }
    }

    /// In both times.
    pub(super) fn with(self, other: Self) -> Self {
        Self {
            spent: self.spent + other.spent,
            lost: self.lost + other.lost,
            conflicts: self.conflicts.saturating_add(other.conflicts),
        }
    }

    /// Which part of the service's time they took; nothing if they were too few to say.
    pub(super) fn part(self) -> f64 {
        if self.conflicts < SEVERAL { 0.0 } else { self.lost / self.spent.max(1e-9) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Instant {
        Instant::ZERO.after(Duration::from_millis(millis))
    }

    fn ended(took: Duration, conflict: bool) -> Sample {
        Sample {
            work: 1.0,
            upstream_time: took,
            success: !conflict,
            answered: !conflict,
            conflict,
            in_flight: 1,
            own: true,
        }
    }

    /// Twenty in flight that take a fifth of a second each, of which every `nth` is given up after so long.
    fn seen(conflicts: &mut Conflicts, from: u64, until: u64, nth: u64, took: Duration) {
        for number in from * 100..until * 100 {
            let conflict = number % nth == nth - 1;
            let took = if conflict { took } else { Duration::from_millis(200) };
            conflicts.see(at(number * 10), &ended(took, conflict), true);
        }
    }

    #[test]
    fn one_in_ten_seconds_is_not_many_and_ten_are_soon() {
        let second = Duration::from_secs(1);
        let mut conflicts = Conflicts::new(at(0), 20);
        // 0.5 % of the time, for ten minutes.
        seen(&mut conflicts, 0, 600, 1_000, second);
        assert!(!conflicts.are_many() && conflicts.stretch(at(600_000)).is_zero());
        // One in a second would be 5 %. Of two it is known before the memory has passed.
        seen(&mut conflicts, 600, 625, 50, second);
        assert!(conflicts.are_many());
        assert_eq!(conflicts.stretch(at(625_000)), 2 * second);
        // Another bound begins with what is known of it, and for a while it is known how long they take.
        conflicts.begin(at(625_000), 5, 0.1);
        assert!(conflicts.are_many());
        conflicts.begin(at(625_000), 5, 0.0);
        assert!(!conflicts.are_many());
        assert_eq!(conflicts.stretch(at(900_000)), 2 * second);
        assert_eq!(conflicts.stretch(at(930_000)), Duration::ZERO);
    }

    #[test]
    fn the_first_ones_are_not_many_before_they_have_lost_much() {
        let mut conflicts = Conflicts::new(at(0), 4);
        conflicts.see(at(1_000), &ended(Duration::from_secs(1), true), true);
        assert!(!conflicts.are_many(), "a second of 120");
        for number in 1..8 {
            conflicts.see(at(1_000 + number), &ended(Duration::from_secs(1), true), true);
        }
        assert!(conflicts.are_many());
    }

    #[test]
    fn others_are_kept_out_while_they_are_refused_and_much_is_lost() {
        let mut conflicts = Conflicts::new(at(0), 4);
        conflicts.refuse(at(0));
        assert!(!conflicts.keep_others_out(at(0)), "nothing is lost");
        conflicts.begin(at(0), 4, 0.1);
        assert!(conflicts.keep_others_out(at(999)));
        assert!(!conflicts.keep_others_out(at(1_000)), "nobody is refused any more");
    }

    #[test]
    fn a_stretch_is_twice_as_long_as_what_was_given_up_until_that_is_forgotten() {
        let mut conflicts = Conflicts::new(at(0), 1);
        assert_eq!(conflicts.stretch(at(0)), Duration::ZERO);
        for (millis, seconds) in [(1_000, 1), (2_000, 5)] {
            conflicts.see(at(millis), &ended(Duration::from_secs(seconds), true), false);
        }
        assert_eq!(conflicts.stretch(at(301_000)), Duration::from_secs(4));
        assert_eq!(conflicts.stretch(at(302_000)), Duration::ZERO);
    }

    #[test]
    fn a_part_of_a_trial_takes_several_to_be_told() {
        let of = |conflicts: u32| {
            let mut lost = Lost::default();
            lost.add(&ended(Duration::from_secs(7), false));
            (0..conflicts).for_each(|_| lost.add(&ended(Duration::from_secs(1), true)));
            lost
        };
        assert_eq!((of(2).part(), of(3).part(), of(1).with(of(2)).part()), (0.0, 0.3, 3.0 / 17.0));
    }
}
