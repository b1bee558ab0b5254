//! What clients were told of their transactions, beside what the server has of them. Each transaction
//! inserts a number of its own: an acknowledged one is there exactly once, one that was refused or rolled
//! back isn't there, and one whose outcome its client couldn't know is there once or not at all.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

/// What a client may conclude of its transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    Committed,
    Absent,
    Unknown,
}

#[derive(Debug, Default)]
pub(crate) struct Ledger {
    next: AtomicU64,
    /// Of the transactions since the last check: whose, and what became of it.
    entries: Mutex<BTreeMap<u64, (String, Fate)>>,
    checked: AtomicU64,
    /// How many had each fate, for the record.
    counts: [AtomicU64; 3],
}

impl Ledger {
    /// A number for a new transaction. Until more is known it must not be there.
    pub(crate) fn begin(&self, owner: &str) -> u64 {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        self.note(number, owner, Fate::Absent);
        number
    }

    pub(crate) fn note(&self, number: u64, owner: &str, fate: Fate) {
        let mut entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        entries.insert(number, (owner.to_owned(), fate));
    }

    /// What the server must be asked for [`Ledger::check`].
    pub(crate) fn question(&self) -> String {
        let from = self.checked.load(Ordering::Relaxed);
        format!(
            "SELECT number || ' ' || owner || ' ' || count(*) FROM ledger WHERE number >= {from} GROUP BY number, owner"
        )
    }

    /// Compares what the server has since the last check. Nobody may be at work meanwhile.
    pub(crate) fn check(&self, found: &[String]) {
        let mut entries = std::mem::take(&mut *self.entries.lock().unwrap_or_else(PoisonError::into_inner));
        self.checked.store(self.next.load(Ordering::Relaxed), Ordering::Relaxed);
        for row in found {
            let [number, owner, count] = row.split(' ').collect::<Vec<_>>()[..] else {
                panic!("the row {row}")
            };
            let (known, fate) = entries
                .remove(&number.parse().expect("a number"))
                .unwrap_or_else(|| panic!("{row}: twice, by two owners, or never sent"));
            assert_eq!((known.as_str(), count), (owner, "1"), "{row}: {fate:?}");
            assert_ne!(fate, Fate::Absent, "{row}: its client was told that it isn't there");
            self.counts[fate as usize].fetch_add(1, Ordering::Relaxed);
        }
        for (number, (owner, fate)) in entries {
            assert_ne!(fate, Fate::Committed, "{number} of {owner} was acknowledged, and isn't there");
            self.counts[fate as usize].fetch_add(1, Ordering::Relaxed);
        }
    }

    /// How many transactions were acknowledged, not done, and uncertain.
    pub(crate) fn counts(&self) -> [u64; 3] {
        std::array::from_fn(|fate| self.counts[fate].load(Ordering::Relaxed))
    }
}
