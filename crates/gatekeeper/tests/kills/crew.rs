//! Workers at work, until they are told to pause: then each ends what it does and rests, so that what has
//! become of it can be looked at.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::ledger::Ledger;
use crate::mode::Door;
use crate::worker::{Habit, Worker};

/// The pause between two attempts of a worker whose server or gate is away.
const PAUSE: Duration = Duration::from_millis(2);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Order {
    Work,
    Pause,
    Leave,
}

struct Shared {
    order: Mutex<(Order, usize)>,
    changed: Condvar,
    /// What each has done, undisturbed by faults.
    done: Vec<AtomicU64>,
    has_failed: AtomicBool,
}

/// Some workers.
pub(crate) struct Crew {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
    pub(crate) ledger: Arc<Ledger>,
    /// Where they log in.
    pub(crate) door: Arc<Door>,
}

impl Crew {
    /// Workers who pause.
    pub(crate) fn new(count: usize, door: Door, user: &'static str, habit: Habit) -> Self {
        let shared = Arc::new(Shared {
            order: Mutex::new((Order::Pause, 0)),
            changed: Condvar::new(),
            done: (0..count).map(|_| AtomicU64::new(0)).collect(),
            has_failed: AtomicBool::new(false),
        });
        let (ledger, door) = (Arc::new(Ledger::default()), Arc::new(door));
        let start = |index: usize| {
            let shared = Arc::clone(&shared);
            let worker = Worker::new(format!("w{index}"), index as u64, &ledger, &door, user, habit);
            std::thread::spawn(move || shared.run(index, worker))
        };
        let threads = (0..count).map(start).collect();
        Self { shared, threads, ledger, door }
    }

    /// Lets them work.
    pub(crate) fn work(&self) {
        self.shared.give(Order::Work);
    }

    /// Has each of them rest after what it does.
    pub(crate) fn pause(&self) {
        self.shared.give(Order::Pause);
    }

    /// Whether all of them rest.
    pub(crate) fn rests(&self) -> bool {
        self.assert_well();
        self.shared.lock().1 == self.shared.done.len()
    }

    /// What each has done, undisturbed by faults.
    pub(crate) fn done(&self) -> Vec<u64> {
        self.assert_well();
        self.shared.done.iter().map(|done| done.load(Ordering::Relaxed)).collect()
    }

    fn assert_well(&self) {
        assert!(!self.shared.has_failed.load(Ordering::Relaxed), "a worker has failed, as it said");
    }
}

impl Drop for Crew {
    fn drop(&mut self) {
        self.shared.give(Order::Leave);
        if !std::thread::panicking() {
            self.threads.drain(..).for_each(|thread| thread.join().expect("no worker has failed"));
        }
    }
}

impl Shared {
    fn lock(&self) -> std::sync::MutexGuard<'_, (Order, usize)> {
        self.order.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn give(&self, order: Order) {
        self.lock().0 = order;
        self.changed.notify_all();
    }

    fn run(&self, index: usize, mut worker: Worker) {
        let _alarm = Alarm(&self.has_failed);
        loop {
            let mut order = self.lock();
            if order.0 == Order::Pause {
                drop(order);
                worker.rest();
                order = self.lock();
            }
            if order.0 == Order::Pause {
                order.1 += 1;
                while order.0 == Order::Pause {
                    order = self.changed.wait(order).unwrap_or_else(PoisonError::into_inner);
                }
                order.1 -= 1;
            }
            if order.0 == Order::Leave {
                return;
            }
            drop(order);
            if worker.work() {
                self.done[index].fetch_add(1, Ordering::Relaxed);
            } else {
                std::thread::sleep(PAUSE);
            }
        }
    }
}

/// Tells when its thread fails.
struct Alarm<'a>(&'a AtomicBool);

impl Drop for Alarm<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.store(true, Ordering::Relaxed);
        }
    }
}
