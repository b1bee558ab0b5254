//! A number of places that can be changed while they are taken: a reload raises or lowers a bound under load.
//!
//! A semaphore and the account of how many permits there are. More places are there at once. Fewer are
//! taken away as they become free: nobody loses the place that he has, and nobody new comes in until enough
//! have left. Tasks that wait are served in the order of asking.

use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::AbortHandle;

/// A number of places that can be changed.
#[derive(Debug)]
pub(crate) struct Quota {
    semaphore: Arc<Semaphore>,
    account: Arc<Mutex<Account>>,
}

#[derive(Debug)]
struct Account {
    /// Permits that exist, taken or not.
    existing: usize,
    /// Permits that are wanted.
    wanted: usize,
    /// Waits for permits to take away.
    shrinking: Option<AbortHandle>,
}

impl Quota {
    pub(crate) fn new(places: u32) -> Self {
        let places = clamp(places);
        let account = Account { existing: places, wanted: places, shrinking: None };
        Self { semaphore: Arc::new(Semaphore::new(places)), account: Arc::new(Mutex::new(account)) }
    }

    /// A place, if one is free now.
    pub(crate) fn try_take(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.semaphore).try_acquire_owned().ok()
    }

    /// Waits for a place. Cancel-safe.
    pub(crate) async fn take(&self) -> OwnedSemaphorePermit {
        Arc::clone(&self.semaphore).acquire_owned().await.expect("nobody closes the semaphore")
    }

    /// How many are taken.
    pub(crate) fn taken(&self) -> usize {
        let existing = self.account.lock().existing;
        existing.saturating_sub(self.semaphore.available_permits())
    }

    /// Changes the number of places. To be called within the runtime.
    pub(crate) fn set(&self, places: u32) {
        let places = clamp(places);
        let mut account = self.account.lock();
        // A shrinking that goes on gives back what it has gathered.
        if let Some(shrinking) = account.shrinking.take() {
            shrinking.abort();
        }
        account.wanted = places;
        if places >= account.existing {
            self.semaphore.add_permits(places - account.existing);
            account.existing = places;
            return;
        }
        account.existing -= self.semaphore.forget_permits(account.existing - places);
        if account.existing > places {
            let (semaphore, shared) = (Arc::clone(&self.semaphore), Arc::clone(&self.account));
            account.shrinking = Some(tokio::spawn(shrink(semaphore, shared)).abort_handle());
        }
    }
}

/// Takes places away as they become free, one after the other.
async fn shrink(semaphore: Arc<Semaphore>, account: Arc<Mutex<Account>>) {
    while let Ok(permit) = semaphore.acquire().await {
        let mut account = account.lock();
        // More may be wanted again since.
        if account.existing <= account.wanted {
            return;
        }
        permit.forget();
        account.existing -= 1;
        if account.existing <= account.wanted {
            account.shrinking = None;
            return;
        }
    }
}

fn clamp(places: u32) -> usize {
    usize::try_from(places).unwrap_or(usize::MAX).min(Semaphore::MAX_PERMITS)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fill(quota: &Quota) -> Vec<OwnedSemaphorePermit> {
        std::iter::from_fn(|| quota.try_take()).collect()
    }

    #[tokio::test]
    async fn more_places_are_there_at_once_and_free_ones_go_at_once() {
        let quota = Quota::new(2);
        assert_eq!(fill(&quota).len(), 2);
        quota.set(5);
        assert_eq!(fill(&quota).len(), 5);
        quota.set(1);
        assert_eq!(fill(&quota).len(), 1);
        assert_eq!(quota.taken(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn taken_places_go_as_they_become_free() {
        let quota = Quota::new(4);
        let mut held = fill(&quota);
        quota.set(2);
        tokio::time::sleep(std::time::Duration::from_secs(1)).await;
        assert_eq!(quota.taken(), 4);
        for left in [3, 2] {
            held.pop();
            tokio::time::sleep(std::time::Duration::from_secs(1)).await;
            assert_eq!(quota.taken(), left);
            assert!(quota.try_take().is_none(), "{left} of 2 are taken");
        }
        held.pop();
        assert!(quota.try_take().is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn a_shrinking_that_is_no_longer_wanted_takes_nothing() {
        let quota = Quota::new(4);
        let held = fill(&quota);
        quota.set(1);
        tokio::time::sleep(std::time::Duration::from_secs(1)).await;
        quota.set(4);
        drop(held);
        tokio::time::sleep(std::time::Duration::from_secs(1)).await;
        assert_eq!(fill(&quota).len(), 4);
        assert_eq!(quota.taken(), 0);
    }
}
