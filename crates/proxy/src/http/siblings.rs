//! The responses of one HTTP/2 connection: more urgent ones go before the others (RFC 9218).
//!
//! Between clients an urgency decides little, or each would call everything urgent. Inside a connection it is
//! its client's own affair: a browser's styles are larger than its pictures, and nothing is painted without
//! them. So a response offers nothing while a more urgent one of its connection takes its turns. One whose
//! service has nothing to send holds up nobody, nor does one that has had no turn for [`GRACE`] and waits for
//! none: its client may not take it.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::{Instant, Sleep, sleep_until};

/// How long after a turn the next may be asked for.
const GRACE: Duration = Duration::from_millis(100);

/// How a response stands to its turns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Turns {
    /// It waits for one.
    Waits,
    /// It had one then, or began.
    Had(Instant),
    /// Its service has nothing to send.
    Pauses,
}

#[derive(Debug)]
struct Member {
    number: u64,
    urgency: u8,
    turns: Turns,
    /// Wakes its task when the more urgent ones change.
    waker: Option<Waker>,
}

impl Member {
    /// Until when it holds up others, if nothing changes.
    fn holds(&self, now: Instant) -> Option<Instant> {
        match self.turns {
            Turns::Waits => Some(now + GRACE),
            Turns::Had(at) => Some(at + GRACE).filter(|&until| until > now),
            Turns::Pauses => None,
        }
    }
}

#[derive(Debug, Default)]
struct Members {
    all: Vec<Member>,
    joined: u64,
}

impl Members {
    fn wake(&mut self) {
        self.all.iter_mut().filter_map(|member| member.waker.take()).for_each(Waker::wake);
    }
}

/// The responses of one connection.
#[derive(Debug, Default)]
pub(crate) struct Siblings(Mutex<Members>);

/// A response among those of its connection.
#[derive(Debug)]
pub(crate) struct Sibling {
    all: Arc<Siblings>,
    number: u64,
    urgency: u8,
    waiting: Option<Pin<Box<Sleep>>>,
}

impl Sibling {
    /// A response of this urgency begins.
    pub(crate) fn join(all: Arc<Siblings>, urgency: u8) -> Self {
        let mut members = all.0.lock();
        members.joined += 1;
        let (number, turns) = (members.joined, Turns::Had(Instant::now()));
        members.all.push(Member { number, urgency, turns, waker: None });
        drop(members);
        Self { all, number, urgency, waiting: None }
    }

    /// Resolves when no more urgent one takes its turns.
    pub(crate) fn poll(&mut self, context: &mut Context<'_>) -> Poll<()> {
        loop {
            let now = Instant::now();
            let mut members = self.all.0.lock();
            let urgent = members.all.iter().filter(|member| member.urgency < self.urgency);
            let Some(until) = urgent.filter_map(|member| member.holds(now)).max() else { break };
            if let Some(own) = members.all.iter_mut().find(|member| member.number == self.number) {
                own.waker = Some(context.waker().clone());
            }
            drop(members);
            let waiting = self.waiting.get_or_insert_with(|| Box::pin(sleep_until(until)));
            waiting.as_mut().reset(until);
            ready!(waiting.as_mut().poll(context));
        }
        self.waiting = None;
        Poll::Ready(())
    }

    /// The response waits for a turn.
    pub(crate) fn waits(&self) {
        self.note(Turns::Waits);
    }

    /// The response has had its turn.
    pub(crate) fn has_had(&self) {
        self.note(Turns::Had(Instant::now()));
    }

    /// The response's service has nothing to send.
    pub(crate) fn pauses(&self) {
        self.note(Turns::Pauses);
    }

    fn note(&self, turns: Turns) {
        let mut members = self.all.0.lock();
        if let Some(own) = members.all.iter_mut().find(|member| member.number == self.number) {
            own.turns = turns;
        }
        if turns == Turns::Pauses {
            members.wake();
        }
    }
}

impl Drop for Sibling {
    fn drop(&mut self) {
        let mut members = self.all.0.lock();
        members.all.retain(|member| member.number != self.number);
        members.wake();
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use tokio::time::timeout;

    use super::*;

    async fn goes(sibling: &mut Sibling) -> bool {
        poll_fn(|context| Poll::Ready(sibling.poll(context).is_ready())).await
    }

    #[tokio::test(start_paused = true)]
    async fn a_response_waits_for_more_urgent_ones_while_they_take_their_turns() {
        let all = Arc::new(Siblings::default());
        let [mut urgent, mut usual, mut other] =
            [0, 3, 3].map(|urgency| Sibling::join(Arc::clone(&all), urgency));
        assert!(goes(&mut urgent).await && !goes(&mut usual).await && !goes(&mut other).await);
        urgent.waits();
        let waited = timeout(GRACE * 5, poll_fn(|context| usual.poll(context))).await;
        assert!(waited.is_err(), "it goes although a more urgent one waits for its turn");
        // Its service has nothing, and it isn't taken.
        urgent.pauses();
        assert!(goes(&mut usual).await && goes(&mut other).await);
        urgent.has_had();
        assert!(!goes(&mut usual).await);
        poll_fn(|context| usual.poll(context)).await;
        urgent.waits();
        assert!(!goes(&mut usual).await);
        let (began, ended) = (Instant::now(), async { drop(urgent) });
        tokio::join!(ended, poll_fn(|context| usual.poll(context)));
        assert_eq!(began.elapsed(), Duration::ZERO);
        // Of one connection only.
        let _another = Sibling::join(Arc::default(), 0);
        assert!(goes(&mut other).await);
    }
}
