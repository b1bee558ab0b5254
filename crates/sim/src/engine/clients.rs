//! What clients do beside asking: they lose patience, try again, and think before they ask for the next, or
//! between the statements of a transaction.

use admission::{Duration, Outcome as Ended};

use super::{Engine, LANDED, Newcomer, Observer, UNDER_WAY, nanos};
use crate::agenda::Due;
use crate::chance::{Chance, Purpose};
use crate::clients::Abandoned;
use crate::record::{Outcome, Row, What};
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
    /// A client gives up, if it hasn't got its answer.
    pub(super) fn time_out(&mut self, number: u32) {
        if self.rows[number as usize].outcome != Outcome::Pending {
            return;
        }
        self.trace.note(What::TimedOut, self.now, number);
        self.since.timed_out += 1;
        self.end(number, Outcome::TimedOut);
        let source = self.rows[number as usize].source;
        let abandoned = self.scenario.sources[usize::from(source)].patience.abandoned;
        // An application that goes on with it doesn't notice.
        if self.inside.is_none() || abandoned == Abandoned::Canceled {
            self.take_away(number, abandoned);
        }
        self.go_on(number);
        self.settle();
    }

    /// A request whose client is gone leaves the gate, and the service if it stops such.
    pub(super) fn take_away(&mut self, number: u32, abandoned: Abandoned) {
        let now = self.at();
        let row = self.rows[number as usize];
        let Row { dispatched, handle, outcome, .. } = row;
        // Who is cut off in flight hasn't left: its client goes on waiting.
        if let Some(ticket) = self.tickets[number as usize]
            && (dispatched.is_none() || outcome != Outcome::CutOff)
        {
            self.gate.cancel(now, ticket);
        }
        if dispatched.is_none() {
            self.queued -= 1;
            self.left(number);
        } else if abandoned == Abandoned::Canceled && handle != UNDER_WAY {
            self.books.given += self.server.stop(self.now, handle, self.statement(&row));
            self.land(number, Ended::Canceled);
        }
    }

    /// What a client does whose request was refused or took too long: it tries again, or gives up for good.
    pub(super) fn go_on(&mut self, number: u32) {
        let Row { source, attempt, .. } = self.rows[number as usize];
        let patience = &self.scenario.sources[usize::from(source)].patience;
        if u32::from(attempt) < patience.retries {
            let wait = patience.back_off(attempt, &mut self.retries);
            self.agenda.add(self.now.saturating_add(wait), Due::Retry(number));
        } else {
            self.feeds[usize::from(source)].unanswered(self.rows[number as usize].client);
            self.think(number);
        }
    }

    /// The number of the visit that begins, if the source's clients send more than one request; else 0.
    pub(super) fn visitor(&mut self, source: usize) -> u32 {
        if self.scenario.sources[source].then.is_empty() {
            return 0;
        }
        self.visits += 1;
        self.visits
    }

    /// Sends what follows the client's first answer. The service times depend on the client alone.
    pub(super) fn follow(&mut self, number: u32) {
        let Row { source, client, kind, .. } = self.rows[number as usize];
        let asked = &self.scenario.sources[usize::from(source)];
        if self.over || asked.follows(kind) {
            return;
        }
        let mut chance = Chance::new(self.scenario.seed, Purpose::Visit, client.into());
        for &(kind, count) in &asked.then {
            for _ in 0..count {
                let service_time = self.samplers[kind as usize].sample(&mut chance).max(1);
                self.arrive(Newcomer { source, client, attempt: 0, kind, service_time });
            }
        }
    }

    pub(super) fn think(&mut self, number: u32) {
        let Row { source, client, .. } = self.rows[number as usize];
        if let Some(thinks) = self.feeds[usize::from(source)].think(client) {
            self.agenda.add(self.now.saturating_add(thinks), Due::Send(source, client));
        }
    }

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
