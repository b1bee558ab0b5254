//! When a client's task was told that there is something to read.
//!
//! The runtime's poller wakes the task, which then waits behind all others that run before it: that wait is
//! what nobody else measures. So the poller is given this waker, which notes the time and passes the call
//! on. Nothing is asked of the system for it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Wake, Waker};
use std::time::Duration;

use crate::clock::Clock;
use crate::relay::Relay;

/// Nobody has called.
const NEVER: u64 = 0;

/// Notes when its task is called first.
#[derive(Debug)]
pub(crate) struct Stamp {
    told: Arc<Told>,
    /// Of `told`.
    waker: Waker,
}

#[derive(Debug)]
struct Told {
    clock: Clock,
    task: Relay,
    /// In nanoseconds of the clock.
    at: AtomicU64,
}

impl Stamp {
    pub(crate) fn new(clock: Clock) -> Self {
        let told = Arc::new(Told { clock, task: Relay::new(), at: NEVER.into() });
        Self { waker: Waker::from(Arc::clone(&told)), told }
    }

    /// What to poll with in this task's stead.
    pub(crate) fn context(&self, task: &Context<'_>) -> Context<'_> {
        self.told.task.to(task.waker());
        Context::from_waker(&self.waker)
    }

    /// How long ago the task was first called, if it was since the last time that it asked.
    pub(crate) fn take(&self) -> Option<Duration> {
        if self.told.at.load(Ordering::Relaxed) == NEVER {
            return None;
        }
        let at = admission::Instant::from_nanos(self.told.at.swap(NEVER, Ordering::Relaxed));
        Some(self.told.clock.now().since(at))
    }
}

impl Wake for Told {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        let now = self.clock.now().as_nanos().max(NEVER + 1);
        // The first call counts. A task that runs at this moment may see it a moment later: that is a delay
        // of nothing.
        let _ = self.at.compare_exchange(NEVER, now, Ordering::Relaxed, Ordering::Relaxed);
        self.task.call();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn the_first_call_counts_and_reaches_the_task() {
        let stamp = Stamp::new(Clock::start());
        tokio::time::advance(Duration::from_millis(5)).await;
        let task = Arc::new(Told { clock: Clock::start(), task: Relay::new(), at: 0.into() });
        let own = Waker::from(Arc::clone(&task));
        let waker = stamp.context(&Context::from_waker(&own)).waker().clone();
        assert_eq!(stamp.take(), None);
        waker.wake_by_ref();
        assert_ne!(task.at.load(Ordering::Relaxed), NEVER);
        tokio::time::advance(Duration::from_millis(30)).await;
        waker.wake();
        tokio::time::advance(Duration::from_millis(10)).await;
        assert_eq!((stamp.take(), stamp.take()), (Some(Duration::from_millis(40)), None));
    }
}
