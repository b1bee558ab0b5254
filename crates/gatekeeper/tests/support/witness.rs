//! A client that asks as long as a flood lasts.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;

use super::until;

/// An established client, and how often it was served.
pub(crate) struct Witness {
    stop: Arc<AtomicBool>,
    served: Arc<AtomicUsize>,
    thread: thread::JoinHandle<()>,
}

impl Witness {
    /// `ask` sends a request and checks the answer.
    pub(crate) fn start(mut ask: impl FnMut() + Send + 'static) -> Self {
        let (stop, served) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
        let (stopped, count) = (Arc::clone(&stop), Arc::clone(&served));
        let thread = thread::spawn(move || {
            while !stopped.load(Ordering::Relaxed) {
                ask();
                count.fetch_add(1, Ordering::Relaxed);
            }
        });
        Self { stop, served, thread }
    }

    /// Waits until the client was served once more.
    pub(crate) async fn is_served(&self) {
        let before = self.served.load(Ordering::Relaxed);
        until("an established client is served", async || {
            assert!(!self.thread.is_finished(), "an established client was not served");
            self.served.load(Ordering::Relaxed) > before
        })
        .await;
    }

    /// Stops the client once it was served again.
    pub(crate) async fn end(self) {
        self.is_served().await;
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().expect("an established client is served");
    }
}
