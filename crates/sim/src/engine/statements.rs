//! Transactions: requests of several statements, between which their client thinks.

use admission::{Duration, Outcome as Ended};

use super::{Engine, LANDED, Observer, UNDER_WAY, nanos};
use crate::agenda::Due;
use crate::record::{Outcome, Row};
use crate::upstream::Job;

/// How far a transaction has come.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Progress {
    /// How many of its statements the service has finished.
    finished: u32,
    /// How long its client has thought, in nanoseconds.
    thought: u64,
}

impl<O: Observer> Engine<'_, O> {
    /// What a statement of a request takes alone, in nanoseconds.
    pub(super) fn statement(&self, row: &Row) -> u64 {
        row.service_time.as_nanos() / u64::from(self.scenario.types[row.kind as usize].statements)
    }

    /// The service begins with a statement.
    pub(super) fn begin(&mut self, number: u32) {
        let row = self.rows[number as usize];
        let job = Job { kind: row.kind, source: row.source, service_time: self.statement(&row) };
        self.rows[number as usize].handle = self.server.start(self.now, number, job);
    }

    /// The service has finished a statement. Whether others follow.
    pub(super) fn goes_on(&mut self, number: u32) -> bool {
        let kind = &self.scenario.types[self.rows[number as usize].kind as usize];
        if kind.statements == 1 {
            return false;
        }
        let number = number as usize;
        self.progress.resize(self.progress.len().max(number + 1), Progress::default());
        self.progress[number].finished += 1;
        self.progress[number].finished < kind.statements
    }

    /// A statement is answered, and the client thinks.
    pub(super) fn think_between(&mut self, number: u32) {
        let row = self.rows[number as usize];
        if row.handle == LANDED {
            return;
        }
        if let Some(ticket) = self.tickets[number as usize] {
            self.gate.idle(self.at(), ticket);
        }
        let thinks = nanos(self.scenario.types[row.kind as usize].pause);
        self.progress[number as usize].thought += thinks;
        self.agenda.add(self.now.saturating_add(thinks), Due::Resume(number));
        self.settle();
    }

    /// The client asks on, or is gone.
    pub(super) fn resume(&mut self, number: u32) {
        let Row { outcome, handle, .. } = self.rows[number as usize];
        if handle != UNDER_WAY {
            return;
        }
        if outcome != Outcome::Pending {
            return self.land(number, Ended::Canceled);
        }
        if let Some(ticket) = self.tickets[number as usize] {
            self.gate.resume(self.at(), ticket);
        }
        self.begin(number);
        self.settle();
    }

    /// For how long the service was busy with a request: without its client's thinking.
    pub(super) fn busy(&mut self, number: u32, upstream: Duration) -> Duration {
        let progress = self.progress.get_mut(number as usize).map(std::mem::take).unwrap_or_default();
        upstream.saturating_sub(Duration::from_nanos(progress.thought))
    }
}
