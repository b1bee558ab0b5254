//! The application between the clients and the gate: tables that it locks in its own process, and a pool of
//! connections.
//!
//! A request takes the locks of its type in one order, and gets each in order of arrival (a reader too
//! waits behind a writer that waits), then a connection; it holds all of them until the service or the gate
//! is done with it. What waits in here is seen by no gate.

use std::collections::VecDeque;

use admission::Duration;

use crate::agenda::nanos;

/// An application before the gate.
#[derive(Clone, Debug, PartialEq)]
pub struct Application {
    /// The most of its requests that are at the gate and in the service.
    pub connections: u32,
    /// How long a request waits for its locks, and then for a connection, before it is turned away; `None`:
    /// for ever.
    pub timeout: Option<Duration>,
}

/// A lock of the application that a type needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TableLock {
    /// Which one. Everybody takes them in the order of these numbers.
    pub table: u32,
    /// Alone, or with others that read.
    pub written: bool,
}

/// What is wrong with the locks of a type.
pub(crate) fn fault(locks: &[TableLock]) -> Option<&'static str> {
    let in_order = locks.is_sorted_by(|a, b| a.table < b.table);
    let known = locks.iter().all(|lock| lock.table < TABLES_MAX);
    (!in_order || !known).then_some("the tables that it locks must be below 1024 and in order, each once")
}

const TABLES_MAX: u32 = 1024;

/// The application at work. Requests are called by their rows.
#[derive(Debug)]
pub(crate) struct Inside {
    needs: Vec<Vec<TableLock>>,
    timeout: u64,
    locks: Vec<Lock>,
    /// Its connections that are free: the one that was so first is taken first.
    free: VecDeque<u32>,
    for_connection: VecDeque<u32>,
    /// By row: every request comes in here.
    rows: Vec<Visit>,
}

#[derive(Debug, Default)]
struct Lock {
    readers: u32,
    is_written: bool,
    waiting: VecDeque<(u32, bool)>,
}

#[derive(Clone, Copy, Debug)]
struct Visit {
    kind: u32,
    /// How many of its locks it has.
    taken: u32,
    stage: Stage,
    /// Which connection it has, once it is through.
    connection: u32,
    /// Since when it is at this stage.
    since: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Locking,
    Connecting,
    Through,
    Gone,
}

impl Inside {
    /// `needs` are the locks of each type.
    pub(crate) fn new<'a>(application: &Application, needs: impl Iterator<Item = &'a [TableLock]>) -> Self {
        let needs: Vec<_> = needs.map(<[TableLock]>::to_vec).collect();
        let tables = needs.iter().flatten().map(|lock| lock.table as usize + 1).max();
        Self {
            needs,
            timeout: application.timeout.map_or(u64::MAX, nanos),
            locks: (0..tables.unwrap_or(0)).map(|_| Lock::default()).collect(),
            free: (0..application.connections).collect(),
            for_connection: VecDeque::new(),
            rows: Vec::new(),
        }
    }

    /// The next request comes in. Whether it goes on to the gate at once.
    pub(crate) fn enter(&mut self, now: u64, kind: u32) -> bool {
        let row = self.rows.len() as u32;
        self.rows.push(Visit { kind, taken: 0, stage: Stage::Locking, connection: 0, since: now });
        self.goes_on(now, row)
    }

    /// Takes what it can. Whether it has all.
    fn goes_on(&mut self, now: u64, row: u32) -> bool {
        let visit = &mut self.rows[row as usize];
        while let Some(&TableLock { table, written }) =
            self.needs[visit.kind as usize].get(visit.taken as usize)
        {
            let lock = &mut self.locks[table as usize];
            lock.waiting.push_back((row, written));
            // Requests that wait for the lock go first.
            if lock.waiting.len() > 1 || lock.take().is_none() {
                return false;
            }
            visit.taken += 1;
        }
        (visit.stage, visit.since) = (Stage::Connecting, now);
        let is_next = self.for_connection.is_empty();
        let Some(connection) = is_next.then(|| self.free.pop_front()).flatten() else {
            self.for_connection.push_back(row);
            return false;
        };
        (visit.stage, visit.connection) = (Stage::Through, connection);
        true
    }

    /// Until when a request waits here, if it does.
    pub(crate) fn waits_until(&self, row: u32) -> Option<u64> {
        let visit = self.rows.get(row as usize)?;
        let is_waiting = matches!(visit.stage, Stage::Locking | Stage::Connecting);
        (is_waiting && self.timeout < u64::MAX).then(|| visit.since.saturating_add(self.timeout))
    }

    /// Over which connection a request that is through asks.
    pub(crate) fn connection_of(&self, row: u32) -> Option<u32> {
        let visit = self.rows.get(row as usize)?;
        (visit.stage == Stage::Through).then_some(visit.connection)
    }

    /// Whether a request is still somewhere between here and the service.
    pub(crate) fn has(&self, row: u32) -> bool {
        self.rows.get(row as usize).is_some_and(|visit| visit.stage != Stage::Gone)
    }

    /// A request has ended, wherever it was. Who goes on to the gate now, in order.
    pub(crate) fn leave(&mut self, now: u64, row: u32) -> Vec<u32> {
        let Visit { kind, taken, stage, connection, .. } = self.rows[row as usize];
        self.rows[row as usize].stage = Stage::Gone;
        let mut through = Vec::new();
        match stage {
            Stage::Gone => return through,
            Stage::Through => self.free.push_back(connection),
            Stage::Connecting => self.for_connection.retain(|&other| other != row),
            Stage::Locking => {}
        }
        // All that it has, and the one that it may be waiting for.
        let mut freed = self.needs[kind as usize].clone();
        freed.truncate(taken as usize + 1);
        for (at, &TableLock { table, written }) in freed.iter().enumerate() {
            let lock = &mut self.locks[table as usize];
            if at < taken as usize {
                lock.release(written);
            } else {
                lock.waiting.retain(|&(other, _)| other != row);
            }
        }
        for TableLock { table, .. } in freed {
            while let Some(next) = self.locks[table as usize].take() {
                self.rows[next as usize].taken += 1;
                if self.goes_on(now, next) {
                    through.push(next);
                }
            }
        }
        while !self.free.is_empty()
            && let Some(next) = self.for_connection.pop_front()
            && let Some(connection) = self.free.pop_front()
        {
            let visit = &mut self.rows[next as usize];
            (visit.stage, visit.connection) = (Stage::Through, connection);
            through.push(next);
        }
        through
    }
}

impl Lock {
    /// Gives the lock to the first that waits, if that one can have it now.
    fn take(&mut self) -> Option<u32> {
        let &(row, written) = self.waiting.front()?;
        if self.is_written || (written && self.readers > 0) {
            return None;
        }
        self.waiting.pop_front();
        if written {
            self.is_written = true;
        } else {
            self.readers += 1;
        }
        Some(row)
    }

    fn release(&mut self, written: bool) {
        if written {
            self.is_written = false;
        } else {
            self.readers -= 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const READ: TableLock = TableLock { table: 0, written: false };
    const WRITTEN: TableLock = TableLock { table: 0, written: true };

    /// Types: 0 reads a table, 1 writes it, 2 writes it and then another one, 3 reads that one, 4 locks
    /// nothing.
    fn inside(connections: u32) -> Inside {
        let other = |written| TableLock { table: 1, written };
        let types = [vec![READ], vec![WRITTEN], vec![WRITTEN, other(true)], vec![other(false)], vec![]];
        let application = Application { connections, timeout: Some(Duration::from_nanos(10)) };
        Inside::new(&application, types.iter().map(Vec::as_slice))
    }

    #[test]
    fn readers_share_and_wait_behind_a_writer_that_waits() {
        let mut inside = inside(10);
        assert_eq!([0, 0, 1, 0, 1].map(|kind| inside.enter(0, kind)), [true, true, false, false, false]);
        assert_eq!(inside.leave(0, 0), []);
        assert_eq!(inside.leave(0, 1), [2]);
        assert_eq!(inside.leave(0, 2), [3]);
        assert_eq!(inside.leave(0, 3), [4]);
    }

    #[test]
    fn who_waits_for_one_lock_keeps_those_that_it_has() {
        let mut inside = inside(10);
        // 0 reads the second table; 1 has the first one and waits for the second; 2 waits for the first.
        assert_eq!([3, 2, 0].map(|kind| inside.enter(0, kind)), [true, false, false]);
        assert_eq!(inside.leave(0, 0), [1]);
        assert_eq!(inside.leave(0, 1), [2]);
    }

    #[test]
    fn a_writer_that_leaves_lets_the_readers_behind_it_go_on() {
        let mut inside = inside(10);
        assert_eq!([0, 1, 0, 0].map(|kind| inside.enter(0, kind)), [true, false, false, false]);
        assert_eq!(inside.leave(0, 1), [2, 3]);
        assert!(!inside.has(1) && inside.has(2));
    }

    #[test]
    fn connections_are_given_in_the_order_of_asking_and_only_to_who_has_its_locks() {
        let mut inside = inside(1);
        assert_eq!([1, 4, 1, 4].map(|kind| inside.enter(0, kind)), [true, false, false, false]);
        // Row 2 gets its lock now, and is behind both that ask already.
        assert_eq!(inside.leave(5, 0), [1]);
        assert_eq!(inside.leave(6, 1), [3]);
        assert_eq!(inside.leave(7, 3), [2]);
    }

    #[test]
    fn locks_and_a_connection_are_waited_for_one_after_the_other() {
        let mut inside = inside(1);
        assert!(inside.enter(0, 1) && !inside.enter(2, 1) && !inside.enter(3, 4));
        assert_eq!([0, 1, 2].map(|row| inside.waits_until(row)), [None, Some(12), Some(13)]);
        assert_eq!(inside.leave(8, 0), [2]);
        assert_eq!([1, 2].map(|row| inside.waits_until(row)), [Some(18), None]);
    }

    #[test]
    fn locks_out_of_order_are_a_fault() {
        assert!(fault(&[]).is_none() && fault(&[READ]).is_none());
        assert!(fault(&[READ, WRITTEN]).is_some());
        assert!(fault(&[TableLock { table: 2000, written: true }]).is_some());
    }
}
