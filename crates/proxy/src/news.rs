//! Log lines that would be written again and again are written once in a time.
//!
//! [`Seldom`] lets one line through in a time and counts those that it withholds. [`Refusals`] writes one
//! line a second for each reason for which requests were refused. [`Lanes`] writes at most one line a
//! minute for each type that changes its lane. [`tell`] is the task that writes what has been withheld.

use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use admission::{Lane, Reason, Refused, Work};
use lru::LruCache;
use parking_lot::Mutex;
use tokio::time::{Instant, MissedTickBehavior, interval};

use crate::gate::Driver;
use crate::observe::{Most, REASONS, lane_name};

/// What repeats is told at most once in this time.
pub(crate) const ONCE_IN: Duration = Duration::from_secs(60);
/// How often refusals are told.
const TICK: Duration = Duration::from_secs(1);
/// The most types whose changes of lane are remembered.
const LANES_MAX: usize = 256;

/// A line that is written once in a time.
#[derive(Debug)]
pub(crate) struct Seldom {
    period: Duration,
    state: Mutex<(Option<Instant>, u64)>,
}

impl Default for Seldom {
    fn default() -> Self {
        Self::every(ONCE_IN)
    }
}

impl Seldom {
    /// A line that is written once in this time.
    pub(crate) fn every(period: Duration) -> Self {
        Self { period, state: Mutex::default() }
    }

    /// Whether the line may be written now. Then it is how many were withheld since the last one.
    pub(crate) fn may(&self) -> Option<u64> {
        let (now, mut state) = (Instant::now(), self.state.lock());
        if state.0.is_some_and(|last| now.duration_since(last) < self.period) {
            state.1 += 1;
            return None;
        }
        state.0 = Some(now);
        Some(std::mem::take(&mut state.1))
    }
}

/// What was refused, as of the last look.
#[derive(Debug, Default)]
pub(crate) struct Refusals {
    judged: [u64; REASONS.len()],
    own: Vec<(&'static str, u64)>,
}

impl Refusals {
    /// Writes a line for each reason that has refused requests since the last look. `own` is what the gate
    /// has answered without its judge.
    fn look(&mut self, driver: &Driver, own: Vec<(&'static str, u64)>) {
        let judged = driver.totals().counts.rejected;
        let before = std::mem::replace(&mut self.judged, judged);
        let mut most = driver.take_refused();
        let of_judge = REASONS.iter().zip(judged.iter().zip(before));
        for (&reason, count) in of_judge.map(|(reason, (now, before))| (reason, now - before)) {
            if count > 0 {
                Self::tell(driver, reason.as_str(), count, most.remove(&reason).map(|most| (reason, most)));
            }
        }
        let before = std::mem::replace(&mut self.own, own);
        for (at, (reason, now)) in self.own.iter().enumerate() {
            let count = now - before.get(at).map_or(0, |(_, count)| *count);
            if count > 0 {
                Self::tell(driver, reason, count, None);
            }
        }
    }

    /// `most` is what was refused most: the reason, and of which type and class.
    fn tell(driver: &Driver, reason: &str, count: u64, most: Option<(Reason, Most)>) {
        let (gate, queued) = (driver.name(), driver.brief().queued);
        let obstacle = |(reason, most): &(Reason, Most)| Refused { reason: *reason, obstacle: most.obstacle };
        let cause = most.as_ref().and_then(|most| driver.cause(obstacle(most)));
        let cause = cause.map(|cause| cause.to_string());
        let most = most.as_ref().map(|(_, most)| most);
        let (mostly, class) =
            (most.and_then(|it| it.label.as_deref()), most.and_then(|it| it.class.as_deref()));
        if driver.only_watches() {
            tracing::info!(
                gate,
                reason,
                count,
                queued,
                mostly,
                class,
                cause,
                "requests would have been refused"
            );
        } else {
            tracing::warn!(gate, reason, count, queued, mostly, class, cause, "requests were refused");
        }
    }
}

/// Types that have changed their lanes.
#[derive(Debug)]
pub(crate) struct Lanes(Mutex<LruCache<Arc<str>, Moved>>);

#[derive(Debug)]
struct Moved {
    told: Instant,
    /// Changes since then, and the last of them.
    withheld: u64,
    last: (Lane, Work),
}

impl Default for Lanes {
    fn default() -> Self {
        Self(Mutex::new(LruCache::new(NonZeroUsize::new(LANES_MAX).unwrap_or(NonZeroUsize::MIN))))
    }
}

impl Lanes {
    /// A type has changed its lane.
    pub(crate) fn changed(&self, gate: &str, label: &Arc<str>, lane: Lane, work: Work) {
        let mut known = self.0.lock();
        if let Some(moved) = known.get_mut(label) {
            moved.withheld += 1;
            moved.last = (lane, work);
            return;
        }
        known.push(Arc::clone(label), Moved { told: Instant::now(), withheld: 0, last: (lane, work) });
        drop(known);
        tell_lane(gate, label, (lane, work), 1);
    }

    /// Tells what was withheld for a minute, and forgets types that have stayed in their lanes.
    fn look(&self, gate: &str) {
        let now = Instant::now();
        let mut due = Vec::new();
        let mut known = self.0.lock();
        let old = known.iter().filter(|(_, moved)| now.duration_since(moved.told) >= ONCE_IN);
        let old: Vec<Arc<str>> = old.map(|(label, _)| Arc::clone(label)).collect();
        for label in old {
            match known.get_mut(&label) {
                Some(moved) if moved.withheld > 0 => {
                    due.push((label, moved.last, std::mem::take(&mut moved.withheld)));
                    moved.told = now;
                }
                _ => drop(known.pop(&label)),
            }
        }
        drop(known);
        due.iter().for_each(|(label, last, changes)| tell_lane(gate, label, *last, *changes));
    }
}

fn tell_lane(gate: &str, label: &str, (lane, work): (Lane, Work), changes: u64) {
    // What one was expected to take when the type moved last, such as the age of one in flight by then. What
    // the type takes is another figure.
    let (name, expected_then_ms) = (lane_name(lane), work.as_millis_f64());
    if changes > 1 || matches!(lane, Lane::Long | Lane::Variable) {
        tracing::info!(
            gate,
            r#type = label,
            lane = name,
            expected_then_ms,
            changes,
            "a type changed its lane"
        );
    } else {
        tracing::debug!(
            gate,
            r#type = label,
            lane = name,
            expected_then_ms,
            changes,
            "a type changed its lane"
        );
    }
}

/// Tells what has been withheld, until the task is dropped. `own` is what the gate has answered without its
/// judge.
pub(crate) async fn tell(driver: &Driver, own: impl Fn() -> Vec<(&'static str, u64)>) {
    let mut refusals = Refusals::default();
    let mut ticks = interval(TICK);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        refusals.look(driver, own());
        driver.lanes().look(driver.name());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_type_that_changes_its_lane_again_and_again_is_told_once_a_minute() {
        let (lanes, label) = (Lanes::default(), Arc::<str>::from("select ?"));
        let withheld = |lanes: &Lanes| lanes.0.lock().peek(&label).map(|moved| moved.withheld);
        for _ in 0..12 {
            lanes.changed("shop", &label, Lane::Variable, Work::from_nanos(1));
        }
        lanes.look("shop");
        assert_eq!(withheld(&lanes), Some(11));
        tokio::time::advance(ONCE_IN).await;
        lanes.look("shop");
        assert_eq!(withheld(&lanes), Some(0), "they are told");
        tokio::time::advance(ONCE_IN).await;
        lanes.look("shop");
        assert_eq!(withheld(&lanes), None, "it is forgotten");
    }

    #[test]
    fn types_whose_lanes_are_remembered_have_a_bound() {
        let lanes = Lanes::default();
        for number in 0..=LANES_MAX {
            lanes.changed("shop", &format!("t{number}").into(), Lane::Short, Work::from_nanos(1));
        }
        assert_eq!(lanes.0.lock().len(), LANES_MAX);
    }

    #[tokio::test(start_paused = true)]
    async fn a_line_that_repeats_is_let_through_once_a_minute_with_the_number_of_the_others() {
        let seldom = Seldom::default();
        assert_eq!([seldom.may(), seldom.may(), seldom.may()], [Some(0), None, None]);
        tokio::time::advance(ONCE_IN).await;
        assert_eq!(seldom.may(), Some(2));
    }
}
