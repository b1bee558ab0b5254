//! Clients that leave in service: after how long a wait it is no longer worth to start a request.
//!
//! **Idea.** In overload a line in order of arrival always gives its turn to the request that has waited for
//! longest. Where the patience of clients is bounded, the client of that request is about to leave. It leaves
//! in service, before the answer, and so does the next client: the service is busy, and answers nobody. So
//! the gate looks at requests whose clients leave in service after a wait longer than the service. Where
//! these are a part of what ends, the gate finds the longest wait after which answers still come in time. A
//! request that has waited for longer goes when no other could.
//!
//! **Formula.** s is the share of such leavers among the requests that ended after a wait of at least half
//! the leavers' usual age (others would have been answered anyway, and may be nine of ten), weighed by
//! 1/[`MEMORY`], of longs 1/[`LONG_MEMORY`]. When s reaches [`WASTE`] the limit is 1 − 1/[`CUT`] of what the
//! last of them had waited, and each time that it does so again among those started since, so much lower;
//! when leavers have less patience than the limit by now, it begins anew at theirs. Each answer after a wait
//! of at least half the limit raises it by 1 part in [`RISE`] × (in flight + [`FEW`]): what is in flight when
//! the limit has become too high is lost, and may be a thirtieth of all at most. So neither a patience nor
//! the time that the service takes needs to be known.
//!
//! **No request starves.** A client that waits for a quarter longer than nine of ten of the leaving clients
//! has more patience than they. Its request goes before others, one at a time. Then others have the service
//! for `aging` times its work (as for longs, `lanes.rs`).
//!
//! **Source.** Ours. With order of arrival replaced by its opposite in any overload it is Facebook's adaptive
//! LIFO (Maurer, "Fail at Scale", ACM Queue 13(8), 2015); here requests that can still be answered keep their
//! order.
//!
//! **When it fails.** Where the service alone takes more than half of the patience: then fewer have to be
//! in flight, not younger ones. For a type that varies too much to be limited there is [`Lost`]; what was
//! started before that is known, and goes on without its clients, has to be done first. Clients whose
//! patience has no end in common (any moment as likely as another) leave in service whatever their wait; if
//! those are many the limit falls to what they are served for, and newcomers go first, which costs no
//! answers.

use crate::time::{Duration, Instant};
use crate::work::Work;

/// The share of waste at which the limit falls: an eighth. Waste is what ends in service because its client
/// had waited for too long.
const WASTE: f64 = 0.125;
/// After this many ends a share of waste has decayed to about a third.
const MEMORY: f64 = 32.0;
/// The memory for the long lane, and for one type: each of their requests takes many times as much.
const LONG_MEMORY: f64 = 16.0;
/// A variable type is limited when this share of its requests is waste.
const LOST: f64 = WASTE;
/// The limit falls by one part in this number.
const CUT: u64 = 8;
/// With an answer the limit rises by one part in this number, divided by the requests in flight. It has risen
/// by what it fell after 34 times what is in flight.
const RISE: u64 = 256;
/// This many are added to the requests in flight when the limit rises. With hardly any in flight few ends are
/// weak evidence.
const FEW: u64 = 8;
/// A limit is forgotten when no request had to wait for this long.
const FORGET: Duration = Duration::from_secs(60);
/// The age by which nine of ten clients have left rises by one part in this number with each older one.
const USUAL_RISE: u64 = 18;
/// The age by which nine of ten clients have left falls by one part in this number with each younger one.
const USUAL_FALL: u64 = 160;

/// What is known of clients that leave in service.
#[derive(Clone, Debug)]
pub(crate) struct Leavers {
    /// After this many ends the share has decayed to about a third.
    memory: f64,
    /// The share s of what ends in service because its client had waited for too long.
    share: f64,
    /// In nanoseconds; `None`: nobody has waited for too long.
    limit: Option<u64>,
    /// Since when the limit is what it is: who was started before says nothing of it.
    moved: Instant,
    /// When it was too long for somebody last.
    needed: Instant,
    /// The age by which most leavers have left, in nanoseconds.
    usual: u64,
    /// Nobody goes for being more patient until then.
    rests_until: Instant,
}

impl Leavers {
    /// Short requests that no client has left.
    pub(crate) fn new() -> Self {
        Self::with(MEMORY)
    }

    /// Long requests that no client has left.
    pub(crate) fn of_longs() -> Self {
        Self::with(LONG_MEMORY)
    }

    fn with(memory: f64) -> Self {
        Self {
            memory,
            share: 0.0,
            limit: None,
            moved: Instant::ZERO,
            needed: Instant::ZERO,
            usual: 0,
            rests_until: Instant::ZERO,
        }
    }

    /// A client has left, `age` after its request arrived.
    pub(crate) fn left(&mut self, age: Duration) {
        let age = nanos(age);
        if self.usual == 0 {
            self.usual = age;
        } else if age > self.usual {
            self.usual = self.usual.saturating_add(self.usual / USUAL_RISE + 1);
        } else {
            self.usual -= self.usual / USUAL_FALL;
        }
    }

    /// Its request was in flight, since then, after so long a wait.
    pub(crate) fn left_in_service(&mut self, now: Instant, waited: Duration, started: Instant) {
        let served = now.since(started);
        if served > waited || !self.is_evidence(waited, started) {
            return;
        }
        self.share += (1.0 - self.share) / self.memory;
        if self.share >= WASTE {
            let limit = self.limit.filter(|&limit| limit <= self.usual).unwrap_or(nanos(waited));
            self.limit = Some(limit - limit / CUT);
            (self.share, self.moved, self.needed) = (0.0, now, now);
        }
    }

    /// A request was answered, started then after so long a wait, while so many were in flight.
    pub(crate) fn answered(&mut self, now: Instant, waited: Duration, started: Instant, in_flight: u32) {
        if self.limit.is_some() && now.since(self.needed) >= FORGET {
            (self.limit, self.share) = (None, 0.0);
        }
        if !self.is_evidence(waited, started) {
            return;
        }
        self.share -= self.share / self.memory;
        if let Some(limit) = &mut self.limit {
            *limit = limit.saturating_add(*limit / (RISE * (u64::from(in_flight) + FEW)) + 1);
        }
    }

    /// Whether what became of it says something of the limit.
    fn is_evidence(&self, waited: Duration, started: Instant) -> bool {
        let waited = nanos(waited);
        match self.limit {
            None => waited >= self.usual / 2,
            // Where clients leave before they have waited for half of it, the limit is of others who had
            // more patience.
            Some(limit) => started >= self.moved && waited <= limit && waited >= limit.min(self.usual) / 2,
        }
    }

    /// Whether it is known that some wait is too long.
    pub(crate) fn is_known(&self) -> bool {
        self.limit.is_some()
    }

    /// Whether it isn't worth to start one that has waited for so long, if another can go.
    pub(crate) fn is_too_long(&mut self, now: Instant, waited: Duration) -> bool {
        let is_too_long = self.limit.is_some_and(|limit| nanos(waited) > limit);
        if is_too_long {
            self.needed = now;
        }
        is_too_long
    }

    /// Whether one that has waited for so long has more patience than others, and may go before them now.
    pub(crate) fn is_patient(&self, now: Instant, waited: Duration) -> bool {
        self.limit.is_some()
            && now >= self.rests_until
            && nanos(waited) > self.usual.saturating_add(self.usual / 4)
    }

    /// One has gone for that reason; others have the service for so many times its work.
    pub(crate) fn rest(&mut self, now: Instant, work: Work, times: f64) {
        let rest = work.as_nanos() as f64 * (1.0 + times);
        self.rests_until = now.after(Duration::from_nanos(rest as u64));
    }
}

/// How many clients of one type leave in service, whatever their wait.
///
/// A type that varies too much to be limited may fill the service with requests that each take longer there
/// than their clients have patience, and then nobody is answered. When [`LOST`] of its requests in flight
/// end so, it is limited all the same (`lanes.rs`), until for [`FORGET`] none of it had to wait for longer
/// than it was served.
#[derive(Clone, Debug, Default)]
pub(crate) struct Lost {
    share: f64,
    /// Since when nobody needs it any more; `None`: it isn't much.
    needed: Option<Instant>,
}

impl Lost {
    /// A client has left in service.
    pub(crate) fn left(&mut self, now: Instant) {
        self.share += (1.0 - self.share) / LONG_MEMORY;
        if self.share >= LOST {
            self.needed = Some(now);
        }
    }

    /// One was answered after it had waited for longer than it was served, or not.
    pub(crate) fn answered(&mut self, now: Instant, has_waited: bool) {
        self.share -= self.share / LONG_MEMORY;
        let Some(needed) = self.needed else { return };
        if has_waited {
            self.needed = Some(now);
        } else if now.since(needed) >= FORGET {
            self.needed = None;
        }
    }

    /// Whether many do, or did and would again.
    pub(crate) fn is_much(&self) -> bool {
        self.needed.is_some()
    }
}

/// Saturates: nobody waits for longer than there are nanoseconds.
fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: Duration = Duration::from_secs(1);

    fn at(seconds: u64) -> Instant {
        Instant::ZERO.after(S * seconds as u32)
    }

    /// Those who were started in this second have waited for nine seconds and leave a second later.
    fn all_leave(leavers: &mut Leavers, second: u64, count: usize) {
        for _ in 0..count {
            leavers.left(10 * S);
            leavers.left_in_service(at(second + 1), 9 * S, at(second));
        }
    }

    #[test]
    fn when_clients_leave_in_service_who_has_waited_for_as_long_goes_last() {
        let mut leavers = Leavers::new();
        all_leave(&mut leavers, 20, 4);
        assert!(!leavers.is_known(), "four say nothing");
        all_leave(&mut leavers, 20, 20);
        assert!(leavers.is_too_long(at(21), 9 * S) && !leavers.is_too_long(at(21), 7 * S));
        assert_eq!(leavers.limit, Some(7_875_000_000), "those started before say nothing of it");
    }

    #[test]
    fn few_leavers_and_those_who_were_served_for_longer_than_they_waited_change_nothing() {
        let mut leavers = Leavers::new();
        for round in 0..1_000 {
            all_leave(&mut leavers, round, 1);
            for _ in 0..19 {
                leavers.answered(at(round), 9 * S, at(round), 20);
            }
            for _ in 0..10 {
                leavers.left_in_service(at(round + 2), S, at(round));
            }
        }
        assert!(!leavers.is_known());
    }

    #[test]
    fn when_clients_come_who_have_less_patience_the_limit_becomes_theirs() {
        let mut leavers = Leavers::new();
        all_leave(&mut leavers, 20, 20);
        assert!(leavers.limit.is_some_and(|limit| limit > 7_000_000_000));
        for second in 30..35 {
            for _ in 0..100 {
                leavers.left(S);
                leavers.left_in_service(at(second), S * 9 / 10, at(second));
            }
        }
        assert!(leavers.limit.is_some_and(|limit| limit < 900_000_000), "{:?}", leavers.limit);
    }

    #[test]
    fn the_limit_rises_slowly_while_answers_come_and_falls_again() {
        let mut leavers = Leavers::new();
        all_leave(&mut leavers, 20, 5);
        let found = leavers.limit.expect("it is found");
        for _ in 0..500 {
            leavers.answered(at(30), Duration::from_nanos(found - 1), at(30), 20);
        }
        let risen = leavers.limit.expect("it is needed");
        assert!(risen > found + found / 20 && risen < found + found / 10, "{found} {risen}");
        for _ in 0..5 {
            leavers.left_in_service(at(31), Duration::from_nanos(found), at(30));
        }
        assert_eq!(leavers.limit, Some(risen - risen / CUT));
    }

    #[test]
    fn what_nobody_needs_any_more_is_forgotten() {
        let mut leavers = Leavers::new();
        all_leave(&mut leavers, 20, 5);
        leavers.answered(at(80), S, at(80), 1);
        assert!(leavers.is_known() && leavers.is_too_long(at(80), 9 * S));
        leavers.answered(at(139), S, at(139), 1);
        assert!(leavers.is_known(), "needed a minute ago");
        leavers.answered(at(140), S, at(140), 1);
        assert!(!leavers.is_known());
    }

    #[test]
    fn who_waits_for_longer_than_others_do_is_patient_and_has_its_turn() {
        let mut leavers = Leavers::new();
        all_leave(&mut leavers, 20, 100);
        assert!(leavers.is_patient(at(30), 14 * S) && !leavers.is_patient(at(30), 11 * S));
        leavers.rest(at(30), Work::from_nanos(1_000_000_000), 3.0);
        assert!(!leavers.is_patient(at(33), 14 * S) && leavers.is_patient(at(34), 14 * S));
    }

    #[test]
    fn those_who_hardly_wait_say_nothing_of_who_waits_for_long() {
        let mut leavers = Leavers::new();
        for _ in 0..10 {
            all_leave(&mut leavers, 20, 1);
            for _ in 0..1_000 {
                leavers.answered(at(21), S / 100, at(21), 20);
            }
        }
        assert!(leavers.is_too_long(at(21), 9 * S));
    }

    #[test]
    fn a_type_whose_clients_leave_in_service_is_limited_until_nobody_waits() {
        let mut lost = Lost::default();
        for _ in 0..2 {
            lost.left(at(10));
        }
        assert!(!lost.is_much(), "two of sixteen are less than an eighth of what is remembered");
        lost.left(at(10));
        assert!(lost.is_much());
        for second in 11..200 {
            lost.answered(at(second), true);
        }
        assert!(lost.is_much(), "others wait, and would leave as well");
        lost.answered(at(258), false);
        assert!(lost.is_much());
        lost.answered(at(259), false);
        assert!(!lost.is_much());
    }
}
