//! Decides what a late gate accepts, leaves unread, and closes.
//!
//! The idea is that of CoDel (RFC 8289): a delay that comes and goes is a burst, one that stays is a queue.
//! Looked at is how long clients that have sent something wait until they are read; not how long the
//! service takes, nor how long the process stood still before it was told of them. If the mean `d` of one
//! look is above [`BOUND`], the gate is late. By Little's law those that it serves within a time are in
//! proportion to that time. So from the fifth look in a row on (until then it may be a burst: whose
//! connections end connects again, which costs as much as two requests, and that would make of a burst an
//! overload that stays) too many are there by `1 − BOUND / d`, and half of that part of the responses end
//! their connections, since a look shows only a part of what the last one did. Nobody loses anything, and
//! clients that ask again are newcomers. Newcomers come in one at a time, each behind all that is ready. Only
//! where that isn't enough, because the clients that are there ask for far more than it can do, nobody is
//! let in and `1 − LIMIT / d` of what is asked next is left out.
//!
//! Newcomers wait in the kernel's queue, in order of arrival. A queue in which most have gone when it is
//! their turn is stale, and it stays so, because those behind them wait as long. A gate that lets in only
//! as many as it can serve isn't late for those, however long they have waited in that queue: at the load
//! that it can just bear, 0.9 s, until they gave up. So the queue is also looked at itself: one that was
//! never empty from one look to the next, five times in a row, stands. It is kept short while it stands,
//! while the gate is late (both from the fifth look on) or goes on to find newcomers that have gone, and
//! for [`CALM`] looks after: room for the power of two above what came in with one look, so that nobody
//! waits there for much longer than two looks. The rest the kernel turns away without asking us.
//!
//! | parameter | value | reason |
//! |---|---|---|
//! | `BOUND` | 20 ms | a request meets the delay about three times; so many clients keep the gate busy |
//! | `STANDING` | 5 looks | with two, a fifth to a third of half the load was lost for as long as it lasted |
//! | `LIMIT` | 200 ms | three times that is in time for most clients |
//! | `ASKED_MIN` | 8 | fewer say nothing; a gate that has so little to do turns nobody away |
//! | `GENTLE` | ½ | with all, too many go before the effect shows; with a quarter, too few |
//! | `BACKLOG_MIN` | 64 | a burst of some browsers |
//! | `CALM` | 50 looks | an overload is rarely over at once |
//!
//! It fails where most delays are short and few are very long: those are left to their clients' patience.

use std::time::Duration;

/// What clients that ask are read within on average, in a gate that isn't late.
const BOUND: Duration = Duration::from_millis(20);
/// With this many looks in a row, a burst counts as a queue.
pub(super) const STANDING: u32 = 5;
/// A mean delay beyond which not all that is asked can be answered in time.
const LIMIT: Duration = Duration::from_millis(200);
/// The fewest clients that must have asked, or gone, for a look to say anything.
const ASKED_MIN: u64 = 8;
/// Which part of what is too much ends with one look.
const GENTLE: f64 = 0.5;
/// The fewest newcomers that the kernel keeps.
const BACKLOG_MIN: u64 = 64;
/// Looks for which the kernel's queue stays short.
const CALM: u32 = 50;

/// What was seen since the last look.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Seen {
    /// Clients that sent something and were read.
    pub(crate) asked: u64,
    /// How long they waited, all together.
    pub(crate) waited: Duration,
    /// Newcomers that were let in.
    pub(crate) came: u64,
    /// Newcomers that had gone before they were.
    pub(crate) gone: u64,
    /// Whether there was a moment in which no newcomer waited.
    pub(crate) was_empty: bool,
}

impl Seen {
    /// Of all clients that asked.
    pub(crate) fn mean(&self) -> Duration {
        let mean = self.waited.as_nanos().checked_div(u128::from(self.asked)).unwrap_or(0);
        Duration::from_nanos(u64::try_from(mean).unwrap_or(u64::MAX))
    }

    fn is_late(&self) -> bool {
        self.asked >= ASKED_MIN && self.mean() > BOUND
    }

    fn is_stale(&self) -> bool {
        self.gone >= ASKED_MIN && self.gone * 4 > self.came
    }

    /// Whether there were always newcomers, those included that had gone: a queue of nobody else is the
    /// worst.
    fn is_besieged(&self) -> bool {
        !self.was_empty && self.came + self.gone >= ASKED_MIN
    }
}

/// What follows from a look.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Course {
    /// Whether it is late.
    pub(crate) is_late: bool,
    /// Whether nobody is let in.
    pub(crate) is_shut: bool,
    /// How many newcomers the kernel keeps; `None`: as many as ever.
    pub(crate) backlog: Option<u32>,
    /// Which part of the responses ends its connection, from 0 to 1.
    pub(crate) ending: f64,
    /// Which part of what is asked next is left out, from 0 to 1.
    pub(crate) left_out: f64,
}

/// Follows the looks.
#[derive(Debug, Default)]
pub(crate) struct Controller {
    /// Looks in a row that found it late.
    late: u32,
    /// Looks in a row that always found newcomers.
    besieged: u32,
    /// Looks for which the queue is still kept short.
    short: u32,
    /// Newcomers at a look: the most lately, which fades.
    came: u64,
}

impl Controller {
    /// Looks at what was seen.
    pub(crate) fn look(&mut self, seen: &Seen) -> Course {
        let is_late = seen.is_late();
        let in_a_row = |looks: u32, again: bool| if again { looks.saturating_add(1) } else { 0 };
        self.late = in_a_row(self.late, is_late);
        self.besieged = in_a_row(self.besieged, seen.is_besieged());
        let is_standing = self.late >= STANDING;
        let stays_stale = self.short > 0 && seen.is_stale();
        let shortens = is_standing || self.besieged >= STANDING || stays_stale;
        self.short = if shortens { CALM } else { self.short.saturating_sub(1) };
        self.came = seen.came.max(self.came - self.came.div_ceil(4));
        let too_much = |within: Duration| {
            let part = within.as_secs_f64() / seen.mean().as_secs_f64();
            if is_standing { (1.0 - part).max(0.0) } else { 0.0 }
        };
        let left_out = too_much(LIMIT);
        let kept = self.came.max(BACKLOG_MIN).next_power_of_two();
        Course {
            is_late,
            is_shut: left_out > 0.0,
            backlog: (self.short > 0).then(|| u32::try_from(kept).unwrap_or(u32::MAX)),
            ending: too_much(BOUND) * GENTLE,
            left_out,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fmt::Write as _;

    use super::*;

    fn seen(asked: u64, delay: u64) -> Seen {
        let waited = Duration::from_millis(delay) * u32::try_from(asked).unwrap();
        Seen { asked, waited, was_empty: true, ..Seen::default() }
    }

    /// Clients that ask again as soon as they are answered, before a gate that answers `rate` of them
    /// between two looks (100 ms); a third of the time of each request is the delay of its first reading.
    /// Clients that are left out or whose connection ends are newcomers; 20 come in between two looks.
    fn closed_loop(rate: u64, begin: usize, looks: usize) -> Vec<(usize, u64, Course)> {
        let (mut controller, mut connected, mut all) = (Controller::default(), begin, Vec::new());
        for _ in 0..looks {
            let delay = 100 * connected as u64 / rate / 3;
            let course = controller.look(&Seen { came: 20, ..seen(rate, delay) });
            all.push((connected, delay, course));
            let asked = rate.min(connected as u64) as f64;
            connected -= (asked * course.ending.max(course.left_out)) as usize;
            connected += if course.is_shut { 0 } else { 20 };
        }
        all
    }

    fn text(all: &[(usize, u64, Course)]) -> String {
        let mut text = String::new();
        for (connected, delay, course) in all {
            let Course { is_shut, ending, left_out, .. } = course;
            let door = if *is_shut { "shut" } else { "open" };
            writeln!(text, "{connected:>4} {delay:>4} ms {door} {ending:.2} {left_out:.2}").unwrap();
        }
        text
    }

    #[test]
    fn as_many_are_kept_as_it_reads_in_time() {
        let all = closed_loop(400, 200, 60);
        let shown = text(&all);
        let late = all.iter().position(|(.., course)| course.is_late).unwrap();
        assert_eq!(all[late].0, 260, "{shown}");
        assert!(all[late..].iter().all(|(connected, ..)| (260..=340).contains(connected)), "{shown}");
        assert!(all.iter().all(|(.., course)| course.left_out == 0.0 && !course.is_shut), "{shown}");
    }

    #[test]
    fn of_those_who_are_there_already_so_many_are_left_out_that_the_rest_is_served() {
        let all = closed_loop(400, 4_000, 100);
        let course = "\
4000  333 ms open 0.00 0.00
4020  335 ms open 0.00 0.00
4040  336 ms open 0.00 0.00
4060  338 ms open 0.00 0.00
4080  340 ms shut 0.47 0.41
3892  324 ms shut 0.47 0.38
3705  308 ms shut 0.47 0.35
";
        assert_eq!(text(&all[..7]), course);
        let last = all.last().unwrap();
        assert!(last.0 < 600 && !last.2.is_shut && last.2.left_out == 0.0, "{}", text(&all));
    }

    #[test]
    fn few_who_ask_are_never_too_many_and_the_pauses_of_a_quota_are_no_queue() {
        let mut controller = Controller::default();
        for _ in 0..100 {
            assert_eq!(controller.look(&seen(ASKED_MIN - 1, 5_000)), Course::default());
            // Each time a fifth of them met a pause of the whole process when their turn had nearly come.
            let paused = Seen { asked: 300, waited: Duration::from_millis(90) * 60, ..Seen::default() };
            assert_eq!(controller.look(&paused), Course::default());
        }
    }

    #[test]
    fn a_queue_of_newcomers_that_was_made_short_stays_so_while_they_have_gone_and_long_after() {
        let mut controller = Controller::default();
        let look = |came, gone| Seen { came, gone, ..seen(100, 1) };
        assert_eq!(controller.look(&look(100, 100)).backlog, None, "a gate that is in time keeps it long");
        for _ in 0..STANDING - 1 {
            assert_eq!(controller.look(&Seen { came: 100, ..seen(100, 30) }).backlog, None, "a burst");
        }
        assert_eq!(controller.look(&Seen { came: 100, ..seen(100, 30) }).backlog, Some(128));
        for _ in 0..2 * CALM {
            assert_eq!(controller.look(&look(100, 26)).backlog, Some(128));
        }
        let backlogs: Vec<_> = (0..CALM).map(|_| controller.look(&look(0, 7)).backlog).collect();
        assert_eq!(backlogs[0..3], [Some(128), Some(64), Some(64)], "seven say nothing");
        assert_eq!(backlogs[48..50], [Some(64), None]);
    }

    #[test]
    fn a_queue_of_newcomers_that_is_never_empty_is_made_short_though_those_let_in_are_served_at_once() {
        let mut controller = Controller::default();
        let full = |came| Seen { came, was_empty: false, ..seen(1_000, 1) };
        for _ in 0..STANDING - 1 {
            assert_eq!(controller.look(&full(300)), Course::default(), "a burst");
        }
        assert_eq!(controller.look(&full(300)), Course { backlog: Some(512), ..Course::default() });
        assert_eq!(controller.look(&full(300)).backlog, Some(512));

        let mut controller = Controller::default();
        for look in 0..100 {
            let seen = Seen { was_empty: look % STANDING == 0, ..full(300) };
            assert_eq!(
                controller.look(&seen),
                Course::default(),
                "a moment without newcomers begins it anew"
            );
        }
        for _ in 0..100 {
            assert_eq!(controller.look(&full(ASKED_MIN - 1)), Course::default(), "so few are no queue");
        }
    }

    #[test]
    fn a_queue_of_newcomers_who_have_all_gone_when_it_is_their_turn_is_made_short() {
        let mut controller = Controller::default();
        let stale = Seen { came: 2, gone: 180, was_empty: false, ..seen(150, 1) };
        let backlogs: Vec<_> = (0..STANDING).map(|_| controller.look(&stale).backlog).collect();
        assert_eq!(backlogs, [None, None, None, None, Some(64)]);
    }

    #[test]
    fn a_burst_turns_nobody_away() {
        let mut controller = Controller::default();
        for _ in 0..100 {
            for _ in 0..STANDING - 1 {
                let course = controller.look(&seen(100, 900));
                assert_eq!(course, Course { is_late: true, ..Course::default() });
            }
            assert_eq!(controller.look(&seen(100, 10)), Course::default());
        }
    }

    #[test]
    fn somebody_is_always_served() {
        let mut controller = Controller::default();
        for _ in 0..100 {
            assert!(controller.look(&seen(100, 60_000)).left_out < 1.0);
        }
    }
}
