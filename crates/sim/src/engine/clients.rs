//! What clients do beside asking: they lose patience, try again, and think before they ask for the next.

use admission::Outcome as Ended;

use super::{Engine, Newcomer, Observer, UNDER_WAY};
use crate::agenda::Due;
use crate::chance::{Chance, Purpose};
use crate::clients::Abandoned;
use crate::record::{Outcome, Row, What};

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
}
