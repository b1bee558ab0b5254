//! An alarm that is set for one deadline after another, of which hardly any is reached.
//!
//! A timer of the runtime is a place in a list that all share: to take it and to give it back costs more
//! than all else that a request wants of a clock. So it is taken for the first deadline, and stays where it
//! is while the deadlines move on. It goes off no later than the present one, and mostly long before: then
//! it is set again.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use hyper::rt::Timer;
use parking_lot::Mutex;
use tokio::time::{Instant, Sleep, sleep_until};

/// One alarm.
#[derive(Debug, Default)]
pub(crate) struct Alarm(Option<Pin<Box<Sleep>>>);

impl Alarm {
    /// Ready once this deadline is over.
    pub(crate) fn poll(&mut self, deadline: Instant, context: &mut Context<'_>) -> Poll<()> {
        let sleep = self.0.get_or_insert_with(|| Box::pin(sleep_until(deadline)));
        if sleep.deadline() > deadline {
            sleep.as_mut().reset(deadline);
        }
        while sleep.as_mut().poll(context).is_ready() {
            if Instant::now() >= deadline {
                return Poll::Ready(());
            }
            sleep.as_mut().reset(deadline);
        }
        Poll::Pending
    }
}

/// The clock of one connection of HTTP/1.1 as hyper asks for it, which wants a timer for the head of each
/// request, and has one at a time.
#[derive(Debug, Default)]
pub(crate) struct HeadTimer(Arc<Mutex<Alarm>>);

impl Timer for HeadTimer {
    fn sleep(&self, duration: Duration) -> Pin<Box<dyn hyper::rt::Sleep>> {
        self.sleep_until(self.now() + duration)
    }

    fn sleep_until(&self, deadline: std::time::Instant) -> Pin<Box<dyn hyper::rt::Sleep>> {
        Box::pin(Until { alarm: Arc::clone(&self.0), deadline: deadline.into() })
    }

    fn now(&self) -> std::time::Instant {
        Instant::now().into()
    }
}

/// One of its timers.
struct Until {
    alarm: Arc<Mutex<Alarm>>,
    deadline: Instant,
}

impl hyper::rt::Sleep for Until {}

impl Future for Until {
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        self.alarm.lock().poll(self.deadline, context)
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use tokio::time::timeout;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn an_alarm_that_was_set_for_another_request_goes_off_at_the_deadline_of_this_one() {
        let (begin, seconds) = (Instant::now(), Duration::from_secs);
        let mut alarm = Alarm::default();
        let mut wait =
            async |deadline: Duration| poll_fn(|context| alarm.poll(begin + deadline, context)).await;
        // Answered after eight seconds of ten.
        assert!(timeout(seconds(8), wait(seconds(10))).await.is_err());
        // The next has until the eighteenth, and the one after that less than was allowed before.
        wait(seconds(18)).await;
        assert_eq!(begin.elapsed().as_secs(), 18);
        assert!(timeout(seconds(1), wait(seconds(60))).await.is_err());
        wait(seconds(20)).await;
        assert_eq!(begin.elapsed().as_secs(), 20);
    }

    #[tokio::test(start_paused = true)]
    async fn timers_of_a_connection_go_off_when_they_are_due_though_they_share_an_alarm() {
        let (begin, timer, seconds) = (Instant::now(), HeadTimer::default(), Duration::from_secs);
        let head = timer.sleep(seconds(10));
        assert!(timeout(seconds(4), head).await.is_err());
        timer.sleep(seconds(10)).await;
        assert_eq!(begin.elapsed().as_secs(), 14);
        timer.sleep_until((begin + seconds(3)).into()).await;
        timer.sleep(seconds(2)).await;
        assert_eq!(begin.elapsed().as_secs(), 16);
    }
}
