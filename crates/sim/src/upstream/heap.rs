//! A priority queue from which any member can be taken.
//!
//! A binary heap that remembers where each member stands. Members are small numbers (handles); ties go in
//! the order of coming, so that a run never depends on how the heap happens to lie.

const ABSENT: u32 = u32::MAX;

#[derive(Clone, Copy, Debug)]
struct Entry {
    key: f64,
    order: u64,
    handle: u32,
}

impl Entry {
    fn is_before(&self, other: &Self) -> bool {
        self.key < other.key || (self.key == other.key && self.order < other.order)
    }
}

/// The queue. Keys are finite.
#[derive(Debug, Default)]
pub(crate) struct Heap {
    entries: Vec<Entry>,
    position: Vec<u32>,
    come: u64,
}

impl Heap {
    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The least key, and whose it is.
    pub(crate) fn first(&self) -> Option<(f64, u32)> {
        self.entries.first().map(|entry| (entry.key, entry.handle))
    }

    /// The greatest key, and whose it is. Looks at all: for short queues.
    pub(crate) fn last(&self) -> Option<(f64, u32)> {
        let last = self.entries.iter().reduce(|last, entry| if last.is_before(entry) { entry } else { last });
        last.map(|entry| (entry.key, entry.handle))
    }

    pub(crate) fn insert(&mut self, handle: u32, key: f64) {
        let index = handle as usize;
        if index >= self.position.len() {
            self.position.resize(index + 1, ABSENT);
        }
        self.come += 1;
        self.entries.push(Entry { key, order: self.come, handle });
        self.rise(self.entries.len() - 1);
    }

    /// Takes a member out. Its key.
    pub(crate) fn remove(&mut self, handle: u32) -> Option<f64> {
        let at = *self.position.get(handle as usize)?;
        if at == ABSENT {
            return None;
        }
        let at = at as usize;
        let gone = self.entries.swap_remove(at);
        self.position[handle as usize] = ABSENT;
        if at < self.entries.len() {
            self.rise(at);
            self.sink(at);
        }
        Some(gone.key)
    }

    fn rise(&mut self, mut at: usize) {
        let entry = self.entries[at];
        while at > 0 {
            let above = (at - 1) / 2;
            if !entry.is_before(&self.entries[above]) {
                break;
            }
            self.put(at, self.entries[above]);
            at = above;
        }
        self.put(at, entry);
    }

    fn sink(&mut self, mut at: usize) {
        let entry = self.entries[at];
        loop {
            let mut below = 2 * at + 1;
            if below >= self.entries.len() {
                break;
            }
            if below + 1 < self.entries.len() && self.entries[below + 1].is_before(&self.entries[below]) {
                below += 1;
            }
            if !self.entries[below].is_before(&entry) {
                break;
            }
            self.put(at, self.entries[below]);
            at = below;
        }
        self.put(at, entry);
    }

    fn put(&mut self, at: usize, entry: Entry) {
        self.position[entry.handle as usize] = at as u32;
        self.entries[at] = entry;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chance::{Chance, Purpose};

    #[test]
    fn members_come_out_by_key_then_in_order_of_coming_whatever_is_taken_out_between() {
        let mut chance = Chance::new(9, Purpose::Types, 0);
        let mut heap = Heap::default();
        let mut model: Vec<(u64, u64, u32)> = Vec::new();
        let mut free: Vec<u32> = (0..200).collect();
        for order in 0..20_000u64 {
            if chance.unit() < 0.5 && !free.is_empty() {
                let handle = free.swap_remove(chance.bits() as usize % free.len());
                let key = chance.bits() % 50;
                heap.insert(handle, key as f64);
                model.push((key, order, handle));
            } else if chance.unit() < 0.5 && !model.is_empty() {
                let (key, _, handle) = model.swap_remove(chance.bits() as usize % model.len());
                assert_eq!(heap.remove(handle), Some(key as f64));
                assert_eq!(heap.remove(handle), None);
                free.push(handle);
            } else if let Some(&first) = model.iter().min() {
                assert_eq!(heap.first(), Some((first.0 as f64, first.2)));
                let last = model.iter().max().unwrap();
                assert_eq!(heap.last(), Some((last.0 as f64, last.2)));
                heap.remove(first.2);
                model.retain(|entry| *entry != first);
                free.push(first.2);
            }
            assert_eq!(heap.len(), model.len());
            assert_eq!(heap.is_empty(), model.is_empty());
        }
    }
}
