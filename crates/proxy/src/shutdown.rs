//! Telling every task of a gate that it ends: first *draining* (no new clients; what runs may finish), then
//! *aborting* (close now). A gate whose sockets a successor has taken is *handed over* before that: it
//! accepts nobody, and serves its clients until they leave.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker, ready};

use tokio::sync::watch;
use tokio::task::unconstrained;

/// How far the end has come. Only ever moves forward.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
    /// Business as usual.
    Running,
    /// A successor accepts new clients; those that are connected go on.
    HandedOver,
    /// No new clients or transactions; those in progress may finish.
    Draining,
    /// Everything closes now.
    Aborting,
}

/// The side that decides.
#[derive(Debug)]
pub struct Trigger(watch::Sender<Phase>);

/// The side that obeys; cheap to clone.
#[derive(Clone, Debug)]
pub struct Shutdown {
    phase: watch::Receiver<Phase>,
    /// Of a part of the system: what ends it before the whole.
    part: Option<Arc<Trigger>>,
}

/// A running system and the means to end it.
pub fn shutdown() -> (Trigger, Shutdown) {
    let (sender, receiver) = watch::channel(Phase::Running);
    (Trigger(sender), Shutdown { phase: receiver, part: None })
}

impl Trigger {
    /// Leaves new clients to a successor; does nothing if that or the end has begun already.
    pub fn hand_over(&self) {
        self.reach(Phase::HandedOver);
    }

    /// Starts to drain; does nothing if that has begun already.
    pub fn drain(&self) {
        self.reach(Phase::Draining);
    }

    /// Ends everything now.
    pub fn abort(&self) {
        self.reach(Phase::Aborting);
    }

    fn reach(&self, phase: Phase) {
        self.0.send_if_modified(|now| {
            let is_later = phase > *now;
            *now = phase.max(*now);
            is_later
        });
    }
}

impl Shutdown {
    /// The end of a part of the system: it comes with the whole's, or before by [`Shutdown::abort_part`].
    pub(crate) fn part(self) -> Self {
        let (sender, phase) = watch::channel(self.phase());
        let part = Arc::new(Trigger(sender));
        let (follower, mut whole) = (Arc::clone(&part), self.phase);
        tokio::spawn(async move {
            let following = async {
                loop {
                    follower.reach(*whole.borrow_and_update());
                    if whole.changed().await.is_err() {
                        return;
                    }
                }
            };
            tokio::select! {
                () = following => {}
                () = follower.0.closed() => {}
            }
        });
        Self { phase, part: Some(part) }
    }

    /// Closes all of a part now, whatever becomes of the whole.
    pub(crate) fn abort_part(&self) {
        if let Some(part) = &self.part {
            part.abort();
        }
    }

    /// The phase now.
    pub fn phase(&self) -> Phase {
        *self.phase.borrow()
    }

    /// Waits until new clients are somebody else's, or nobody's.
    pub async fn handed_over(&self) {
        self.reached(Phase::HandedOver).await;
    }

    /// Waits until draining (or more) begins. Waits forever if nothing is left that could begin it.
    pub async fn draining(&self) {
        self.reached(Phase::Draining).await;
    }

    /// Waits until everything has to close.
    pub async fn aborting(&self) {
        self.reached(Phase::Aborting).await;
    }

    async fn reached(&self, phase: Phase) {
        let mut receiver = self.phase.clone();
        if receiver.wait_for(|now| *now >= phase).await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}

/// What a task that waits again and again holds of it: it registers once, and while nothing has changed
/// looking again costs one load.
pub(crate) struct Ending {
    phase: watch::Receiver<Phase>,
    reached: Phase,
    changed: Pin<Box<dyn Future<Output = ()> + Send>>,
    /// What the next change wakes.
    registered: Option<Arc<Alarm>>,
}

/// Wakes a task, and keeps in mind that it has. The channel may also wake one that has seen the change
/// already, and then wakes it no more: it has to register anew.
#[derive(Debug)]
struct Alarm {
    task: Waker,
    has_rung: AtomicBool,
}

impl Wake for Alarm {
    fn wake(self: Arc<Self>) {
        self.has_rung.store(true, Ordering::Release);
        self.task.wake_by_ref();
    }
}

impl Ending {
    /// The end that `shutdown` tells of.
    pub(crate) fn new(shutdown: &Shutdown) -> Self {
        let mut phase = shutdown.phase.clone();
        let reached = *phase.borrow_and_update();
        let changed = Box::pin(unconstrained(changed(phase.clone())));
        Self { phase, reached, changed, registered: None }
    }

    /// Waits until this phase (or a later one) begins. Cancel-safe.
    pub(crate) async fn reached(&mut self, wanted: Phase) {
        poll_fn(|context| self.poll_reached(wanted, context)).await;
    }

    /// Waits until everything has to close. Cancel-safe.
    pub(crate) async fn aborting(&mut self) {
        self.reached(Phase::Aborting).await;
    }

    fn poll_reached(&mut self, wanted: Phase, context: &mut Context<'_>) -> Poll<()> {
        while self.reached < wanted {
            let waits = |alarm: &Arc<Alarm>| {
                alarm.task.will_wake(context.waker()) && !alarm.has_rung.load(Ordering::Acquire)
            };
            if self.registered.as_ref().is_some_and(waits) {
                return Poll::Pending;
            }
            let alarm = Arc::new(Alarm { task: context.waker().clone(), has_rung: AtomicBool::new(false) });
            self.registered = Some(Arc::clone(&alarm));
            ready!(self.changed.as_mut().poll(&mut Context::from_waker(&Waker::from(alarm))));
            self.registered = None;
            self.reached = *self.phase.borrow_and_update();
            self.changed = Box::pin(unconstrained(changed(self.phase.clone())));
        }
        Poll::Ready(())
    }
}

/// Waits for another phase than the receiver has seen. Waits forever if nothing is left that could begin it.
async fn changed(mut phase: watch::Receiver<Phase>) {
    if phase.changed().await.is_err() {
        std::future::pending::<()>().await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn an_ending_is_heard_by_the_last_that_waits() {
        let (trigger, shutdown) = shutdown();
        let mut ending = Ending::new(&shutdown);
        for wanted in [Phase::Draining, Phase::Aborting] {
            // Waiting and giving up, in this task, leaves nothing behind that another task's wait would miss.
            tokio::select! {
                biased;
                () = ending.reached(wanted) => panic!("nothing has been triggered"),
                () = std::future::ready(()) => {}
            }
            let (waits, is_waiting) = tokio::sync::oneshot::channel();
            let task = tokio::spawn(async move {
                tokio::select! {
                    biased;
                    () = ending.reached(wanted) => panic!("nothing has been triggered"),
                    () = async { waits.send(()).unwrap() } => {}
                }
                ending.reached(wanted).await;
                ending
            });
            is_waiting.await.unwrap();
            trigger.reach(wanted);
            ending = task.await.unwrap();
            ending.reached(wanted).await;
        }
        let mut late = Ending::new(&shutdown);
        late.aborting().await;
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn no_phase_is_missed_by_who_has_just_seen_the_one_before() {
        for round in 0..20_000 {
            let (trigger, shutdown) = shutdown();
            let (drains, is_draining) = tokio::sync::oneshot::channel();
            let task = tokio::spawn(async move {
                let mut ending = Ending::new(&shutdown);
                ending.reached(Phase::Draining).await;
                let told = async {
                    drains.send(()).unwrap();
                    std::future::pending::<()>().await;
                };
                tokio::select! {
                    biased;
                    () = ending.aborting() => {}
                    () = told => {}
                }
            });
            tokio::task::yield_now().await;
            trigger.drain();
            is_draining.await.unwrap();
            for _ in 0..3 {
                tokio::task::yield_now().await;
            }
            trigger.abort();
            let heard = tokio::time::timeout(std::time::Duration::from_secs(60), task).await;
            heard.unwrap_or_else(|_| panic!("round {round}")).unwrap();
        }
    }

    #[tokio::test]
    async fn a_part_ends_with_the_whole_or_alone() {
        let (trigger, whole) = shutdown();
        let (first, second) = (whole.clone().part(), whole.clone().part());
        trigger.drain();
        first.draining().await;
        second.draining().await;
        first.abort_part();
        first.aborting().await;
        assert_eq!((second.phase(), whole.phase()), (Phase::Draining, Phase::Draining));
        trigger.abort();
        second.aborting().await;
        let late = whole.part();
        assert_eq!(late.phase(), Phase::Aborting);
    }

    #[tokio::test]
    async fn phases_only_move_forward() {
        let (trigger, shutdown) = shutdown();
        assert_eq!(shutdown.phase(), Phase::Running);
        trigger.abort();
        trigger.drain();
        assert_eq!(shutdown.phase(), Phase::Aborting);
        shutdown.draining().await;
        shutdown.aborting().await;
    }
}
