//! What is counted while visitors come: by phase, page and outcome, and second by second.
//!
//! An interaction belongs to the phase and the second in which it ends. One lock guards everything; it is
//! held for the few additions of one interaction.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use hdrhistogram::Histogram;
use tokio::time::Instant;

use super::images::Images;
use crate::interaction::Interaction;

/// Kinds of wrong answers that are told apart; further ones are counted together.
const COMPLAINTS_BOUND: usize = 32;
/// Seconds of which values are kept: a day, and what the last browsers need to leave.
const SECONDS_BOUND: usize = 24 * 60 * 60 + 600;
/// The longest time that a histogram tells apart: an hour, in microseconds.
const HISTOGRAM_BOUND: u64 = 3_600_000_000;
/// Digits that it tells apart: values are exact within 1 %.
const HISTOGRAM_DIGITS: u8 = 2;

/// How an interaction ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub(crate) enum Outcome {
    /// The right page, whole.
    Done,
    /// 503 or 429: somebody was too busy and said so.
    Rejected,
    /// The visitor stopped waiting.
    TimedOut,
    /// No connection, a broken one, or another status of 500 and above.
    Failed,
    /// An answer, but not the page.
    Wrong,
    /// Still waited for when the run ended.
    Unfinished,
}

impl Outcome {
    /// All of them.
    pub(crate) const ALL: [Self; 6] =
        [Self::Done, Self::Rejected, Self::TimedOut, Self::Failed, Self::Wrong, Self::Unfinished];
}

/// Times of which mean and percentiles are wanted.
#[derive(Clone, Debug)]
pub(crate) struct Times {
    /// How many.
    pub(crate) count: u64,
    /// Together.
    pub(crate) sum: Duration,
    /// In microseconds.
    pub(crate) histogram: Histogram<u64>,
}

impl Default for Times {
    fn default() -> Self {
        let histogram = Histogram::new_with_max(HISTOGRAM_BOUND, HISTOGRAM_DIGITS)
            .or_else(|_| Histogram::new(HISTOGRAM_DIGITS))
            .expect("bounds and digits are within what histograms can be");
        Self { count: 0, sum: Duration::ZERO, histogram }
    }
}

impl Times {
    /// Adds a time.
    pub(crate) fn add(&mut self, time: Duration) {
        self.count += 1;
        self.sum += time;
        self.histogram.saturating_record(time.as_micros().min(u128::from(HISTOGRAM_BOUND)) as u64);
    }

    /// Adds those of another.
    pub(crate) fn merge(&mut self, other: &Self) {
        self.count += other.count;
        self.sum += other.sum;
        // Of the same bounds, so it can't fail.
        let _ = self.histogram.add(&other.histogram);
    }

    /// The mean; zero if there is none.
    pub(crate) fn mean(&self) -> Duration {
        self.sum.div_f64(self.count.max(1) as f64)
    }
}

/// One page's counts.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tally {
    /// How many ended how, in the order of [`Outcome::ALL`].
    pub(crate) counts: [u64; 6],
    /// How long they took.
    pub(crate) sums: [Duration; 6],
    /// Response times of those that were right.
    pub(crate) done: Times,
}

/// One phase.
#[derive(Clone, Debug)]
pub(crate) struct PhaseRecord {
    /// How long it really took, so far.
    pub(crate) duration: Duration,
    /// In the order of [`Interaction::ALL`].
    pub(crate) pages: Vec<Tally>,
    /// Every interaction, however it ended, with the whole time that was waited.
    pub(crate) all: Times,
    /// From the request to the last image of a page that was right.
    pub(crate) complete: Times,
    /// Of the rejected, those that the shop itself turned away.
    pub(crate) busy: u64,
    /// Images.
    pub(crate) images: Images,
    /// How long browsers really thought or stayed away.
    pub(crate) thought: Times,
    /// How late thinking ended.
    pub(crate) lag: Times,
    /// Browsers present, integrated over seconds.
    pub(crate) present: f64,
    /// The most that were present.
    pub(crate) most_present: usize,
    /// Visits that began.
    pub(crate) sessions: u64,
    /// Visits that an open loop turned away, because too many were present.
    pub(crate) turned_away: u64,
    /// Processor time that this process used.
    pub(crate) processor: Duration,
}

impl PhaseRecord {
    /// Nothing yet.
    pub(crate) fn new() -> Self {
        Self {
            duration: Duration::ZERO,
            pages: vec![Tally::default(); Interaction::ALL.len()],
            all: Times::default(),
            complete: Times::default(),
            busy: 0,
            images: Images::default(),
            thought: Times::default(),
            lag: Times::default(),
            present: 0.0,
            most_present: 0,
            sessions: 0,
            turned_away: 0,
            processor: Duration::ZERO,
        }
    }

    fn add(&mut self, page: Interaction, outcome: Outcome, took: Duration) {
        self.all.add(took);
        let tally = &mut self.pages[page as usize];
        tally.counts[outcome as usize] += 1;
        tally.sums[outcome as usize] += took;
        if outcome == Outcome::Done {
            tally.done.add(took);
        }
    }

    /// Adds another phase.
    pub(crate) fn merge(&mut self, other: &Self) {
        self.duration += other.duration;
        for (mine, others) in self.pages.iter_mut().zip(&other.pages) {
            for outcome in Outcome::ALL {
                mine.counts[outcome as usize] += others.counts[outcome as usize];
                mine.sums[outcome as usize] += others.sums[outcome as usize];
            }
            mine.done.merge(&others.done);
        }
        self.all.merge(&other.all);
        self.complete.merge(&other.complete);
        self.busy += other.busy;
        self.images.add(other.images);
        self.thought.merge(&other.thought);
        self.lag.merge(&other.lag);
        self.present += other.present;
        self.most_present = self.most_present.max(other.most_present);
        self.sessions += other.sessions;
        self.turned_away += other.turned_away;
        self.processor += other.processor;
    }
}

/// One second of the run.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Second {
    /// How many interactions ended how, in the order of [`Outcome::ALL`].
    pub(crate) counts: [u64; 6],
    /// Of the rejected, those that the shop itself turned away.
    pub(crate) busy: u64,
    /// Response times of those that were right, together.
    pub(crate) done: Duration,
    /// Browsers present when it began, or when the first one came in it.
    pub(crate) present: usize,
}

/// All that was counted.
#[derive(Debug)]
pub(crate) struct Counted {
    /// By phase.
    pub(crate) phases: Vec<PhaseRecord>,
    /// By second from the start.
    pub(crate) seconds: Vec<Second>,
    /// What was wrong with answers, and how often.
    pub(crate) complaints: BTreeMap<String, u64>,
    /// Browsers present.
    pub(crate) present: usize,
    start: Instant,
    phase: usize,
    phase_start: Instant,
    present_since: Instant,
    processor: Duration,
    is_over: bool,
}

/// What all browsers write to.
#[derive(Debug)]
pub(crate) struct Record(Mutex<Counted>);

impl Record {
    /// Begins with the first of so many phases, now.
    pub(crate) fn new(phases: usize) -> Self {
        let now = Instant::now();
        Self(Mutex::new(Counted {
            phases: (0..phases).map(|_| PhaseRecord::new()).collect(),
            seconds: Vec::new(),
            complaints: BTreeMap::new(),
            present: 0,
            start: now,
            phase: 0,
            phase_start: now,
            present_since: now,
            processor: processor_time(),
            is_over: false,
        }))
    }

    /// To look at.
    pub(crate) fn lock(&self) -> MutexGuard<'_, Counted> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The next phase begins.
    pub(crate) fn enter(&self, phase: usize) {
        let mut counted = self.lock();
        counted.close_phase();
        counted.phase = phase;
    }

    /// Nothing that comes from now on counts.
    pub(crate) fn end(&self) {
        let mut counted = self.lock();
        if !counted.is_over {
            counted.close_phase();
            counted.is_over = true;
        }
    }

    /// An interaction ended after so long. A right page's images come later. One whose browser hadn't heard
    /// yet that the run was over was still waited for then.
    pub(crate) fn ended(&self, page: Interaction, outcome: Outcome, took: Duration) {
        let mut counted = self.lock();
        if counted.is_over {
            counted.phase().add(page, Outcome::Unfinished, took);
            return;
        }
        if let Some(second) = counted.second() {
            second.counts[outcome as usize] += 1;
            if outcome == Outcome::Done {
                second.done += took;
            }
        }
        counted.phase().add(page, outcome, took);
    }

    /// A rejection that was just counted was the shop's own.
    pub(crate) fn busy(&self) {
        let mut counted = self.lock();
        if counted.is_over {
            return;
        }
        if let Some(second) = counted.second() {
            second.busy += 1;
        }
        counted.phase().busy += 1;
    }

    /// An interaction was still waited for when the run had ended.
    pub(crate) fn unfinished(&self, page: Interaction, waited: Duration) {
        self.lock().phase().add(page, Outcome::Unfinished, waited);
    }

    /// A right page is complete after so long, with its images.
    pub(crate) fn completed(&self, took: Duration, images: Images) {
        let mut counted = self.lock();
        if !counted.is_over {
            let phase = counted.phase();
            phase.complete.add(took);
            phase.images.add(images);
        }
    }

    /// Something was wrong with an answer.
    pub(crate) fn complain(&self, complaint: String) {
        let mut counted = self.lock();
        let is_known = counted.complaints.contains_key(&complaint);
        if !counted.is_over {
            let room = counted.complaints.len() < COMPLAINTS_BOUND;
            let key = if is_known || room { complaint } else { "further kinds".to_owned() };
            *counted.complaints.entry(key).or_default() += 1;
        }
    }

    /// A browser thought for so long, and went on so late.
    pub(crate) fn thought(&self, thought: Duration, late: Duration) {
        let mut counted = self.lock();
        if !counted.is_over {
            let phase = counted.phase();
            phase.thought.add(thought);
            phase.lag.add(late);
        }
    }

    /// A browser's first request was due, and went so late.
    pub(crate) fn came(&self, late: Duration) {
        let mut counted = self.lock();
        counted.integrate();
        counted.present += 1;
        let (present, is_over) = (counted.present, counted.is_over);
        let phase = counted.phase();
        if !is_over {
            phase.lag.add(late);
            phase.most_present = phase.most_present.max(present);
        }
    }

    /// A browser left that had come.
    pub(crate) fn left(&self) {
        let mut counted = self.lock();
        counted.integrate();
        counted.present -= 1;
    }

    /// A visit began.
    pub(crate) fn session(&self) {
        let mut counted = self.lock();
        if !counted.is_over {
            counted.phase().sessions += 1;
        }
    }

    /// A visit was turned away.
    pub(crate) fn turned_away(&self) {
        let mut counted = self.lock();
        if !counted.is_over {
            counted.phase().turned_away += 1;
        }
    }
}

impl Counted {
    /// Since the start.
    pub(crate) fn age(&self) -> Duration {
        self.start.elapsed()
    }

    fn phase(&mut self) -> &mut PhaseRecord {
        &mut self.phases[self.phase]
    }

    fn second(&mut self) -> Option<&mut Second> {
        let second = self.start.elapsed().as_secs() as usize;
        if second >= SECONDS_BOUND {
            return None;
        }
        if self.seconds.len() <= second {
            let present = self.present;
            self.seconds.resize(second + 1, Second { present, ..Second::default() });
        }
        self.seconds.get_mut(second)
    }

    fn integrate(&mut self) {
        if self.is_over {
            return;
        }
        let now = Instant::now();
        let (present, since) = (self.present, self.present_since);
        self.phase().present += present as f64 * (now - since).as_secs_f64();
        self.present_since = now;
    }

    fn close_phase(&mut self) {
        self.integrate();
        let (now, processor) = (Instant::now(), processor_time());
        let (since, before, present) = (self.phase_start, self.processor, self.present);
        let phase = self.phase();
        phase.duration += now - since;
        phase.processor += processor.saturating_sub(before);
        phase.most_present = phase.most_present.max(present);
        (self.phase_start, self.processor) = (now, processor);
    }
}

/// Processor time that this process has used.
fn processor_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::new(u64::try_from(time.tv_sec).unwrap_or(0), u32::try_from(time.tv_nsec).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn what_ends_is_counted_in_its_phase_and_second() {
        let record = Record::new(2);
        record.came(Duration::ZERO);
        tokio::time::advance(Duration::from_secs(2)).await;
        record.ended(Interaction::Home, Outcome::Done, Duration::from_millis(1_500));
        record.enter(1);
        record.came(Duration::from_millis(3));
        tokio::time::advance(Duration::from_secs(4)).await;
        record.ended(Interaction::BuyConfirm, Outcome::TimedOut, Duration::from_secs(3));
        record.left();
        tokio::time::advance(Duration::from_secs(1)).await;
        record.end();
        // Its browser hasn't heard of the end: what it asked for was still waited for.
        record.ended(Interaction::Home, Outcome::Done, Duration::from_millis(20));
        record.complain("late".to_owned());
        let counted = record.lock();
        let [first, second] = &counted.phases[..] else { panic!("two phases") };
        assert_eq!((first.duration, second.duration), (Duration::from_secs(2), Duration::from_secs(5)));
        assert_eq!((first.present, second.present), (2.0, 2.0 * 4.0 + 1.0));
        assert_eq!((first.most_present, second.most_present), (1, 2));
        assert_eq!(first.pages[Interaction::Home as usize].counts, [1, 0, 0, 0, 0, 0]);
        assert_eq!(second.pages[Interaction::BuyConfirm as usize].counts, [0, 0, 1, 0, 0, 0]);
        assert_eq!(second.pages[Interaction::Home as usize].counts, [0, 0, 0, 0, 0, 1]);
        assert_eq!((second.all.count, second.all.sum), (2, Duration::from_millis(3_020)));
        assert_eq!(counted.seconds.len(), 7);
        assert_eq!((counted.seconds[2].counts[0], counted.seconds[6].counts[2]), (1, 1));
        assert!(counted.complaints.is_empty());
    }

    #[test]
    fn percentiles_are_exact_within_a_hundredth() {
        let mut times = Times::default();
        (1..=1_000).for_each(|millisecond| times.add(Duration::from_millis(millisecond)));
        times.add(Duration::from_secs(100_000));
        let p90 = times.histogram.value_at_quantile(0.9) as f64 / 1e6;
        assert!((p90 / 0.9 - 1.0).abs() < 0.011, "{p90}");
        assert_eq!(times.histogram.max() / 100_000_000, HISTOGRAM_BOUND / 100_000_000);
    }

    #[tokio::test]
    async fn complaints_are_bounded() {
        let record = Record::new(1);
        for number in 0..1_000 {
            record.complain(format!("wrong in the way {number}"));
        }
        let complaints = &record.lock().complaints;
        assert_eq!(complaints.len(), COMPLAINTS_BOUND + 1);
        assert_eq!(complaints["further kinds"], 1_000 - COMPLAINTS_BOUND as u64);
    }
}
