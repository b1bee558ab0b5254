//! Whether a gate keeps up with its own clients, and what it does when it doesn't.
//!
//! A gate that lacks processor time reads requests that have waited too long, and answers clients that have
//! gone. Refusing doesn't help: reading a head and answering it takes half of the time of passing it on. So
//! what can't be served must cost nearly nothing:
//!
//! - Newcomers stay in the kernel's queue. The gate shortens that queue, and the kernel turns the rest away.
//! - Some connected clients get their last answer and become newcomers.
//! - If clients ask for far too much, connections are closed unread. One for every [`ANSWERED`] that are
//!   served is answered instead.
//! - A gate for PostgreSQL closes no session. It refuses what begins outside of a transaction.
//!
//! `stamp` measures and `controller` decides. The state here is shared by the listener and all connections of
//! a gate, without a lock on the way of requests.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::{Instant, MissedTickBehavior, interval};

mod controller;
mod stamp;

pub(crate) use stamp::Stamp;

use controller::{Controller, Seen};

use crate::clock::Clock;

/// How often the gate looks at itself: the kernel's usual period of a quota.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// Requests that are served for each unserved one that is answered. An answer takes about half of the time of
/// passing a request on, so these answers take a twentieth of the processor.
const ANSWERED: u64 = 10;
/// The log has at most one line in this time. A gate is in time again once it was in time for that long.
const LOG_PERIOD: Duration = Duration::from_secs(10);

/// What becomes of a client's request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Turn {
    /// The request is read and served.
    Served,
    /// The request is read and served, and its connection ends with the answer.
    Last,
    /// The request is read, and its answer says that the gate is late.
    Refused,
    /// The request isn't read, and its connection is closed.
    Closed,
}

/// How late a gate is.
#[derive(Debug)]
pub(crate) struct Lateness {
    clock: Clock,
    asked: AtomicU64,
    waited_nanos: AtomicU64,
    came: AtomicU64,
    left: AtomicU64,
    was_empty: AtomicBool,
    /// What the controller said last.
    is_late: AtomicBool,
    is_shut: AtomicBool,
    /// How many newcomers the kernel keeps, or [`UNBOUNDED`].
    backlog: AtomicU32,
    /// The part of the responses that end their connections, of 2³².
    ending: AtomicU32,
    /// The part that is left out, of 2³².
    left_out: AtomicU32,
    mean_nanos: AtomicU64,
    /// How long the gate was late, in all.
    late_nanos: AtomicU64,
    /// Answers that may still be given to what is left out.
    answers: AtomicU64,
    counts: [AtomicU64; 4],
    looked: Notify,
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    controller: Controller,
    /// When the gate was last late, if the log said so.
    said: Option<Instant>,
    was_late: Option<Instant>,
    looked: Option<Instant>,
}

/// The figures of lateness that are shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LatenessView {
    /// Whether the gate is late: clients that asked lately had to wait for longer than 20 ms on average until
    /// they were read.
    pub is_late: bool,
    /// How long the gate was late, in all.
    pub late_for: Duration,
    /// How long clients that asked lately waited until they were read, on average.
    pub delay: Duration,
    /// How many newcomers the kernel keeps meanwhile, before it turns them away.
    pub backlog: Option<u32>,
    /// Connections that ended with an answer because the gate was late.
    pub ended: u64,
    /// Requests answered with 503 (HTTP) or refused with 53300 (PostgreSQL) because the gate was late.
    pub refused: u64,
    /// Connections closed unread because the gate was late.
    pub closed: u64,
    /// Connections that their clients had left before they were read.
    pub gone: u64,
}

/// No bound of the kernel's queue beside the usual one.
const UNBOUNDED: u32 = u32::MAX;
/// How many newcomers are let in at once, before the clients that are already there have a turn.
const AT_ONCE: u32 = 4;

/// Places in `counts`.
const ENDED: usize = 0;
const REFUSED: usize = 1;
const CLOSED: usize = 2;
const GONE: usize = 3;

impl Lateness {
    /// Of a gate that has served nobody.
    pub(crate) fn new(clock: Clock) -> Self {
        Self {
            clock,
            asked: AtomicU64::new(0),
            waited_nanos: AtomicU64::new(0),
            came: AtomicU64::new(0),
            left: AtomicU64::new(0),
            was_empty: AtomicBool::new(true),
            is_late: AtomicBool::new(false),
            is_shut: AtomicBool::new(false),
            backlog: AtomicU32::new(UNBOUNDED),
            ending: AtomicU32::new(0),
            left_out: AtomicU32::new(0),
            mean_nanos: AtomicU64::new(0),
            late_nanos: AtomicU64::new(0),
            answers: AtomicU64::new(0),
            counts: Default::default(),
            looked: Notify::new(),
            inner: Mutex::default(),
        }
    }

    /// A stamp that notes when one connection's task is called.
    pub(crate) fn stamp(&self) -> Stamp {
        Stamp::new(self.clock)
    }

    /// A client that had sent something waited for so long until its task ran.
    pub(crate) fn ran(&self, delay: Duration) {
        self.asked.fetch_add(1, Ordering::Relaxed);
        self.waited_nanos.fetch_add(nanos(delay), Ordering::Relaxed);
    }

    /// Decides about a request that has arrived and isn't read yet.
    pub(crate) fn turn(&self) -> Turn {
        let chosen = |part: &AtomicU32| {
            let part = part.load(Ordering::Relaxed);
            part != 0 && rand::random::<u32>() < part
        };
        if !chosen(&self.left_out) {
            return if chosen(&self.ending) { self.count(Turn::Last, ENDED) } else { Turn::Served };
        }
        let may_answer = self
            .answers
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |answers| answers.checked_sub(1))
            .is_ok();
        if may_answer { self.count(Turn::Refused, REFUSED) } else { self.count(Turn::Closed, CLOSED) }
    }

    /// Whether a request is answered with an error instead of being passed on, where its connection is too
    /// dear to be closed: a client that loses a session of a database logs in again, which costs more than
    /// the request.
    pub(crate) fn refuses(&self) -> bool {
        let part = self.left_out.load(Ordering::Relaxed);
        let refuses = part != 0 && rand::random::<u32>() < part;
        if refuses {
            self.counts[REFUSED].fetch_add(1, Ordering::Relaxed);
        }
        refuses
    }

    fn count(&self, turn: Turn, place: usize) -> Turn {
        self.counts[place].fetch_add(1, Ordering::Relaxed);
        turn
    }

    /// A client had gone before it was read.
    pub(crate) fn gone(&self) {
        self.counts[GONE].fetch_add(1, Ordering::Relaxed);
    }

    /// A newcomer is let in.
    pub(crate) fn came(&self) {
        self.came.fetch_add(1, Ordering::Relaxed);
    }

    /// A newcomer had gone before it was let in.
    pub(crate) fn left(&self) {
        self.left.fetch_add(1, Ordering::Relaxed);
        self.gone();
    }

    /// No newcomer is waiting.
    pub(crate) fn has_no_newcomers(&self) {
        self.was_empty.store(true, Ordering::Relaxed);
    }

    /// How many newcomers may be let in, one after another, before the clients that are already there have a
    /// turn.
    pub(crate) fn at_once(&self) -> u32 {
        if self.backlog().is_some() { 1 } else { AT_ONCE }
    }

    /// Whether anybody may be let in.
    pub(crate) fn is_open(&self) -> bool {
        !self.is_shut.load(Ordering::Relaxed)
    }

    /// How many newcomers the kernel shall keep; `None`: as many as ever.
    pub(crate) fn backlog(&self) -> Option<u32> {
        Some(self.backlog.load(Ordering::Relaxed)).filter(|backlog| *backlog != UNBOUNDED)
    }

    /// Resolves after a look.
    pub(crate) async fn looked(&self) {
        self.looked.notified().await;
    }

    /// What is shown of it.
    pub(crate) fn view(&self) -> LatenessView {
        let count = |place: usize| self.counts[place].load(Ordering::Relaxed);
        LatenessView {
            is_late: self.is_late.load(Ordering::Relaxed),
            late_for: Duration::from_nanos(self.late_nanos.load(Ordering::Relaxed)),
            delay: Duration::from_nanos(self.mean_nanos.load(Ordering::Relaxed)),
            backlog: self.backlog(),
            ended: count(ENDED),
            refused: count(REFUSED),
            closed: count(CLOSED),
            gone: count(GONE),
        }
    }

    /// Looks once a period, until the task is dropped.
    pub(crate) async fn watch(&self, gate: &str, connected: impl Fn() -> usize) {
        let mut ticks = interval(LOOK_EVERY);
        // A look that was late itself isn't repeated at once: it would see the same.
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            self.look(gate, connected());
        }
    }

    pub(crate) fn look(&self, gate: &str, connected: usize) {
        let taken = |count: &AtomicU64| count.swap(0, Ordering::Relaxed);
        let seen = Seen {
            asked: taken(&self.asked),
            waited: Duration::from_nanos(taken(&self.waited_nanos)),
            came: taken(&self.came),
            gone: taken(&self.left),
            was_empty: self.was_empty.swap(false, Ordering::Relaxed),
        };
        let mut inner = self.inner.lock();
        let course = inner.controller.look(&seen);
        let mean = seen.mean();
        self.mean_nanos.store(nanos(mean), Ordering::Relaxed);
        let now = Instant::now();
        let since = inner.looked.replace(now).map_or(Duration::ZERO, |looked| now - looked);
        if course.is_late {
            self.late_nanos.fetch_add(nanos(since), Ordering::Relaxed);
        }
        self.is_late.store(course.is_late, Ordering::Relaxed);
        self.is_shut.store(course.is_shut, Ordering::Relaxed);
        self.backlog.store(course.backlog.unwrap_or(UNBOUNDED), Ordering::Relaxed);
        // Floats saturate in this conversion.
        let share = |part: f64| (part * f64::from(u32::MAX)) as u32;
        self.ending.store(share(course.ending), Ordering::Relaxed);
        self.left_out.store(share(course.left_out), Ordering::Relaxed);
        let served = seen.asked as f64 * (1.0 - course.left_out);
        self.answers.store(served as u64 / ANSWERED, Ordering::Relaxed);
        if course.backlog.is_some() {
            inner.say_late(gate, mean, connected);
        } else {
            inner.say_in_time(gate);
        }
        drop(inner);
        self.looked.notify_one();
    }
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

impl Inner {
    fn say_late(&mut self, gate: &str, delay: Duration, clients: usize) {
        let now = Instant::now();
        self.was_late = Some(now);
        if self.said.is_none() {
            self.said = Some(now);
            tracing::warn!(
                gate,
                delay_seconds = delay.as_secs_f64(),
                clients,
                "this gate's own processor is short: clients wait for it, and newcomers are turned away; give it more processor \
                 time (a higher quota, another core), or less to do"
            );
        }
    }

    fn say_in_time(&mut self, gate: &str) {
        if self.said.is_some() && self.was_late.is_none_or(|late| late.elapsed() >= LOG_PERIOD) {
            self.said = None;
            tracing::info!(gate, "this gate keeps up with its clients again");
        }
    }
}

#[cfg(test)]
impl Lateness {
    /// Of a gate that is an hour late.
    pub(crate) fn by_an_hour() -> std::sync::Arc<Self> {
        let lateness = Self::new(Clock::start());
        lateness.make_late();
        std::sync::Arc::new(lateness)
    }

    /// Clients have waited for an hour until they were read.
    pub(crate) fn make_late(&self) {
        for _ in 0..controller::STANDING {
            (0..100).for_each(|_| self.ran(Duration::from_secs(3_600)));
            self.look("late", 100);
        }
    }

    /// How many clients were read since the last look.
    pub(crate) fn asked(&self) -> u64 {
        self.asked.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(lateness: &Lateness, times: u32, delay: Duration) {
        (0..times).for_each(|_| lateness.ran(delay));
    }

    #[test]
    fn of_what_is_left_out_one_in_ten_served_is_answered_and_the_rest_closed_unread() {
        let (lateness, delay) = (Lateness::new(Clock::start()), Duration::from_millis(800));
        for _ in 0..controller::STANDING {
            asked(&lateness, 1_000, delay);
            lateness.look("a", 500);
        }
        let mut turns = [0_u32; 4];
        (0..1_000).for_each(|_| turns[lateness.turn() as usize] += 1);
        let [served, last, refused, closed] = turns;
        // A quarter can be served within the limit, so a tenth of a quarter is answered.
        assert!((180..320).contains(&(served + last)) && refused == 25 && closed > 600, "{turns:?}");
        assert!(served.abs_diff(last) < served, "{turns:?}");
        let view = lateness.view();
        assert_eq!((view.is_late, view.delay, view.backlog), (true, delay, Some(64)));
        assert_eq!((view.ended, view.refused, view.closed), (last.into(), 25, closed.into()));
        assert!(!lateness.is_open() && lateness.at_once() == 1);
        asked(&lateness, 1_000, Duration::from_millis(1));
        lateness.look("a", 100);
        assert!((0..1_000).all(|_| lateness.turn() == Turn::Served) && lateness.is_open());
    }

    #[test]
    fn newcomers_of_whom_there_are_always_some_are_kept_out_by_the_kernel() {
        let lateness = Lateness::new(Clock::start());
        let look = || {
            (0..100).for_each(|_| lateness.came());
            lateness.look("a", 0);
            lateness.backlog()
        };
        // Before the first of them there was nobody.
        let backlogs: Vec<_> = (0..=controller::STANDING).map(|_| look()).collect();
        assert_eq!(backlogs, [None, None, None, None, None, Some(128)]);
        assert!(!lateness.view().is_late && lateness.is_open());
    }

    #[test]
    fn ten_thousand_idle_clients_and_few_who_ask_are_never_turned_away() {
        let lateness = Lateness::new(Clock::start());
        for _ in 0..100 {
            asked(&lateness, 3, Duration::from_secs(1));
            asked(&lateness, 300, Duration::from_millis(10));
            lateness.look("a", 10_000);
            assert!(lateness.is_open() && lateness.backlog().is_none() && lateness.turn() == Turn::Served);
        }
    }
}
