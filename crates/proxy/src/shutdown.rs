//! Telling every task of a gate that it ends: first *draining* (no new clients; what runs may finish), then
//! *aborting* (close now).

use tokio::sync::watch;

/// How far the end has come. Only ever moves forward.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
    /// Business as usual.
    Running,
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
pub struct Shutdown(watch::Receiver<Phase>);

/// A running system and the means to end it.
pub fn shutdown() -> (Trigger, Shutdown) {
    let (sender, receiver) = watch::channel(Phase::Running);
    (Trigger(sender), Shutdown(receiver))
}

impl Trigger {
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
    /// The phase now.
    pub fn phase(&self) -> Phase {
        *self.0.borrow()
    }

    /// Waits until draining (or more) begins. Waits forever if nobody is left who could begin it.
    pub async fn draining(&self) {
        self.reached(Phase::Draining).await;
    }

    /// Waits until everything has to close.
    pub async fn aborting(&self) {
        self.reached(Phase::Aborting).await;
    }

    async fn reached(&self, phase: Phase) {
        let mut receiver = self.0.clone();
        if receiver.wait_for(|now| *now >= phase).await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
