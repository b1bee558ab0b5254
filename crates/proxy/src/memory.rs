//! One budget for the process: the bytes that it holds of its clients' messages.
//!
//! Every holder (a session, a head that is incomplete, a body that waits) tells its `Held` how many bytes
//! it has. The sum is one atomic number. A holder of at most `FREE` bytes is not counted, so that ordinary
//! traffic pays nothing; the number of clients bounds those.
//!
//! Where the sum exceeds the limit, the largest holder gives up. Holders are sorted into classes by the power
//! of two of their size. One that grows is refused if no other is in a larger class. If one is, and waits for
//! more of its message, it is told to give up, and the one that grows goes on. Until the memory of the larger
//! one is free, smaller ones use a reserve of an eighth of the limit. When the reserve is used up, every
//! holder that grows is refused. So the sum exceeds the limit by an eighth at most, and by one read (64 KiB)
//! of each holder that is just being refused.
//!
//! Source: the idea of giving up the largest is that of an operating system that runs out of memory. It fails
//! where many clients of the same size share the limit: then the one that grows last is refused.

use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use tokio::sync::Notify;

/// A holder of so many bytes isn't counted: most messages are shorter.
pub(crate) const FREE: usize = 4 * 1024;
/// Sizes are counted in steps of so many bytes.
const STEP: usize = 4 * 1024;
/// Classes of sizes: one for each power of two, up to a petabyte.
const CLASSES: usize = 51;
/// The part of the limit that is the reserve.
const RESERVE: usize = 8;
/// The allocator is asked to give memory back to the system once the sum has fallen by so much.
const SLACK: usize = 16 << 20;
/// The limit before a configuration has set one.
const LIMIT: usize = 256 << 20;

/// The budget of this process.
static PROCESS: Budget = Budget::new(LIMIT);

/// There is no room for the bytes that a holder has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Full;

/// Bytes that may be held, and those that are.
#[derive(Debug)]
pub(crate) struct Budget {
    limit: AtomicUsize,
    held: AtomicUsize,
    /// The most that was held since memory was last given back.
    peak: AtomicUsize,
    refused: AtomicU64,
    classes: [Class; CLASSES],
    fallen: Notify,
}

/// Holders of about one size.
#[derive(Debug)]
struct Class {
    holders: AtomicUsize,
    /// Holders of the class that can be told to give up.
    waiting: AtomicUsize,
    told: Notify,
}

/// The budget as `/status` and the metrics show it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryView {
    /// The most bytes that may be held.
    pub limit: usize,
    /// Bytes that are held.
    pub held: usize,
    /// Messages that were refused because there was no room.
    pub refused: u64,
}

/// The process's budget now.
#[must_use]
pub fn view() -> MemoryView {
    MemoryView {
        limit: PROCESS.limit.load(Ordering::Relaxed),
        held: PROCESS.held.load(Ordering::Relaxed),
        refused: PROCESS.refused.load(Ordering::Relaxed),
    }
}

/// Sets the process's limit, in bytes. What is held already stays.
pub fn set_limit(bytes: usize) {
    PROCESS.limit.store(bytes, Ordering::Relaxed);
}

/// Resolves when much less is held than before, so that the allocator may have memory to give back.
pub async fn fallen() {
    PROCESS.fallen.notified().await;
    PROCESS.peak.store(PROCESS.held.load(Ordering::Relaxed), Ordering::Relaxed);
}

impl Budget {
    const fn new(limit: usize) -> Self {
        Self {
            limit: AtomicUsize::new(limit),
            held: AtomicUsize::new(0),
            peak: AtomicUsize::new(0),
            refused: AtomicU64::new(0),
            classes: [const {
                Class {
                    holders: AtomicUsize::new(0),
                    waiting: AtomicUsize::new(0),
                    told: Notify::const_new(),
                }
            }; CLASSES],
            fallen: Notify::const_new(),
        }
    }

    fn limit(&self) -> usize {
        self.limit.load(Ordering::Relaxed)
    }

    fn is_over(&self) -> bool {
        self.held.load(Ordering::Relaxed) > self.limit()
    }

    fn refuse(&self) -> Full {
        self.refused.fetch_add(1, Ordering::Relaxed);
        Full
    }

    /// Counts `more` bytes of a holder that is in class `own` now. The bytes are there already, whatever
    /// comes of it.
    fn grow(&self, more: usize, own: usize) -> Result<(), Full> {
        let held = self.held.fetch_add(more, Ordering::Relaxed) + more;
        self.peak.fetch_max(held, Ordering::Relaxed);
        let limit = self.limit();
        if held <= limit {
            return Ok(());
        }
        let mut larger =
            self.classes[own + 1..].iter().rev().filter(|class| class.holders.load(Ordering::Relaxed) > 0);
        let Some(largest) = larger.next() else { return Err(self.refuse()) };
        let mut waiting = std::iter::once(largest).chain(larger);
        if let Some(class) = waiting.find(|class| class.waiting.load(Ordering::Relaxed) > 0) {
            class.told.notify_one();
        }
        if held <= limit + limit / RESERVE { Ok(()) } else { Err(self.refuse()) }
    }

    fn shrink(&self, less: usize) {
        let held = self.held.fetch_sub(less, Ordering::Relaxed) - less;
        if self.peak.load(Ordering::Relaxed).saturating_sub(held) >= SLACK {
            self.fallen.notify_one();
        }
    }
}

/// The class of a size; the first holds those that aren't counted.
fn class(bytes: usize) -> usize {
    let power = bytes.checked_ilog2().map_or(0, |power| power as usize + 1);
    power.min(CLASSES - 1)
}

/// What one holder has, given back when it is dropped.
#[derive(Debug)]
pub(crate) struct Held {
    budget: &'static Budget,
    bytes: usize,
}

impl Default for Held {
    fn default() -> Self {
        Self { budget: &PROCESS, bytes: 0 }
    }
}

impl Held {
    /// Tells how many bytes the holder has.
    ///
    /// # Errors
    /// There is no room for them: the holder must give them up. They count until it has.
    pub(crate) fn set(&mut self, bytes: usize) -> Result<(), Full> {
        self.set_exactly(if bytes <= FREE { 0 } else { bytes.next_multiple_of(STEP) })
    }

    /// Tells how many bytes the holder has, where there may be many holders of few bytes.
    ///
    /// # Errors
    /// As for [`set`](Self::set).
    pub(crate) fn set_exactly(&mut self, bytes: usize) -> Result<(), Full> {
        let before = std::mem::replace(&mut self.bytes, bytes);
        if bytes == before {
            return Ok(());
        }
        let (from, to) = (class(before), class(bytes));
        if bytes > 0 {
            self.budget.classes[to].holders.fetch_add(1, Ordering::Relaxed);
        }
        if before > 0 {
            self.budget.classes[from].holders.fetch_sub(1, Ordering::Relaxed);
        }
        if bytes > before {
            return self.budget.grow(bytes - before, to);
        }
        self.budget.shrink(before - bytes);
        Ok(())
    }

    /// Tells how many bytes the holder has, if others keep half of the limit.
    pub(crate) fn set_if_free(&mut self, bytes: usize) -> bool {
        let held = self.budget.held.load(Ordering::Relaxed);
        held + bytes <= self.budget.limit() / 2 + self.bytes && self.set(bytes).is_ok()
    }

    /// A holder within a budget of its own.
    #[cfg(test)]
    pub(crate) fn within(limit: usize) -> Self {
        Self { budget: Box::leak(Box::new(Budget::new(limit))), bytes: 0 }
    }

    /// Whether a message of so many bytes can be held at all.
    pub(crate) fn may_become(&self, bytes: usize) -> bool {
        bytes <= self.budget.limit()
    }

    /// Counts a refusal that [`may_become`](Self::may_become) has led to.
    pub(crate) fn refuse(&self) {
        let _ = self.budget.refuse();
    }

    /// The class of sizes that the holder is in; 0: it isn't counted.
    pub(crate) fn class(&self) -> usize {
        class(self.bytes)
    }

    /// Resolves when the holder is told to give up, as one that waits for more of its message. `None`: what
    /// it has isn't counted.
    pub(crate) fn told(&self) -> Option<Pin<Box<dyn Future<Output = ()> + Send>>> {
        let (budget, class) = (self.budget, self.class());
        (class > 0).then(|| Box::pin(budget.told(class)) as Pin<Box<dyn Future<Output = ()> + Send>>)
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let _ = self.set(0);
    }
}

/// One that waits and can be told.
struct Waiting<'a>(&'a Class);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.waiting.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Budget {
    async fn told(&self, class: usize) {
        let class = &self.classes[class];
        class.waiting.fetch_add(1, Ordering::Relaxed);
        let _waiting = Waiting(class);
        loop {
            class.told.notified().await;
            // Another may have given up, or left, since.
            if self.is_over() {
                let _ = self.refuse();
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests;
