//! What an operator sees of a gate and does with it: who waits, who is in flight, and holding both up.

use alloc::vec::Vec;

use super::Gate;
use crate::request::{PoolId, PoolSet};
use crate::snapshot::{PoolLoad, Queued};
use crate::tickets::Place;
use crate::time::Instant;

impl Gate {
    /// From now on requests of these pools wait, and those of all others don't for that reason. What is in flight goes
    /// on; a queue timeout and a deadline hold as ever. Requests that may not be made to wait aren't: somebody in flight
    /// may wait for the lock that their session holds, and would then never end.
    pub fn hold_up(&mut self, now: Instant, pools: PoolSet) {
        let now = self.advance(now);
        self.connections.pause(pools);
        self.dispatch(now);
    }

    /// The pools whose requests are held up.
    pub fn held_up(&self) -> PoolSet {
        self.connections.paused()
    }

    /// The requests of each pool, by its index. It looks at all that wait or are in flight.
    pub fn pool_loads(&self) -> [PoolLoad; PoolId::COUNT] {
        let mut loads = [PoolLoad::default(); PoolId::COUNT];
        for slot in self.tickets.slots() {
            let record = self.tickets.at(slot);
            let load = &mut loads[record.request.pool.index()];
            if record.place == Place::InFlight {
                load.in_flight += 1;
            } else {
                load.queued += 1;
                let since = load.waiting_since.unwrap_or(record.arrived);
                load.waiting_since = Some(since.min(record.arrived));
            }
        }
        loads
    }

    /// Those that wait, in order of arrival, at most so many.
    pub fn queue(&self, most: usize) -> Vec<Queued> {
        let mut queue = Vec::new();
        let mut next = self.waiting.first();
        while let Some(slot) = next.filter(|_| queue.len() < most) {
            let record = self.tickets.at(slot);
            queue.push(Queued {
                ticket: self.tickets.ticket(slot),
                request_type: record.request.request_type,
                pool: record.request.pool,
                lane: self.types.at(record.kind).lane,
                work: record.meter.work,
                since: record.arrived,
            });
            next = self.tickets.after(&self.waiting, slot);
        }
        queue
    }
}
