//! What an operator sees of a gate and does with it: requests that wait or are in flight, and a hold on both.

use alloc::collections::BinaryHeap;
use alloc::vec::Vec;
use core::cmp::Reverse;

use super::Gate;
use crate::event::Lane;
use crate::obstacle::{Obstacle, Shortage, Silent};
use crate::order::ClassSet;
use crate::pace::Parallelism;
use crate::request::{Connection, PoolId, PoolSet, RequestType, Ticket};
use crate::snapshot::{Queued, Snapshot, TypeSnapshot};
use crate::tickets::{Line, Place};
use crate::time::{Duration, Instant};
use crate::work::Work;

impl Gate {
    /// On how many requests the service works at once; `None` until that was seen.
    pub fn parallelism(&self) -> Option<Parallelism> {
        self.pace.parallelism()
    }

    /// The fewest requests that make the service nearly as fast as it was ever seen; 1 until that is known.
    pub fn places(&self) -> u32 {
        self.pace.works_on().unwrap_or(1)
    }

    /// A number of requests that shows whether the service works on more at once than was seen.
    pub(super) fn enough(&self) -> u32 {
        self.places().saturating_mul(2)
    }

    /// The state at the latest instant that the gate was told.
    pub fn snapshot(&self) -> Snapshot {
        let types = self.types.kinds().filter_map(|kind| self.snapshot_of(kind)).collect();
        Snapshot { types, ..self.brief() }
    }

    /// A snapshot without the types. Its cost doesn't grow with their number.
    pub fn brief(&self) -> Snapshot {
        let queued = self.classes.waiting() as usize;
        Snapshot {
            load: self.ledger.load(self.pace.reading()),
            capacity: self.room.most_work(),
            capacity_found: self.room.most_requests(),
            parallelism: self.pace.parallelism(),
            connections: self.connections.budget(),
            connections_in_use: self.connections.in_use(),
            pinned: self.connections.pinned(),
            queued,
            stalled: self.stalls.is_stalled(self.now),
            late: self.classes.late(),
            in_flight: self.tickets.len() - queued,
            suspended: self.suspended.len(),
            left: self.left,
            long_in_flight: self.lanes.in_flight(),
            long_limit: self.lanes.limit(),
            mixing: self.clients.mixing(),
            mixing_waiting: self.clients.waiting(),
            refusing: self.refusal.state(),
            retry_after: self.retry_after(),
            types: Vec::new(),
            groups: self.snapshot_of_groups(),
            classes: self.snapshot_of_classes(),
        }
    }

    /// The lane and the expected work of a type that is known.
    pub fn lane_of(&self, request_type: RequestType) -> Option<(Lane, Work)> {
        let kind = self.types.known(request_type)?;
        Some((self.types.at(kind).lane, self.expected(kind)))
    }

    /// When a client that is refused now may try again. The queue will have drained by then, at the rate at
    /// which requests complete.
    pub fn retry_after(&self) -> Duration {
        self.refusal.retry_after(self.now, self.classes.waiting() as usize)
    }

    /// `other` only if it was ever used.
    fn snapshot_of(&self, kind: u32) -> Option<TypeSnapshot> {
        let known = self.types.at(kind);
        let used = known.estimate.is_known() || !known.waiting.is_empty() || !known.in_flight.is_empty();
        (known.key.is_some() || used).then(|| TypeSnapshot {
            request_type: known.key,
            lane: known.lane,
            work: self.expected(kind),
            rank: known.estimate.rank().unwrap_or_else(|| self.expected(kind)),
            variation: known.estimate.variation(),
            modes: known.modes.told(self.pace.unit()),
            samples: known.estimate.samples(),
            in_flight: known.in_flight.len(),
            queued: known.waiting.len(),
            target: known.key.and_then(|key| self.refusal.target_of(key)),
        })
    }

    /// From now on requests of these pools wait, and those of all others don't for that reason. What is in
    /// flight goes on; a queue timeout and a deadline hold as ever. Requests that may not be made to wait
    /// aren't: somebody in flight may wait for the lock that their session holds, and would then never end.
    pub fn hold_up(&mut self, now: Instant, pools: PoolSet) {
        let now = self.advance(now);
        self.connections.pause(pools);
        self.dispatch(now);
    }

    /// The pools whose requests are held up.
    pub fn held_up(&self) -> PoolSet {
        self.connections.paused()
    }

    /// How many requests of these pools are in flight (suspended ones included). It looks at what is in
    /// flight, not at what waits.
    pub fn in_flight_of(&self, pools: PoolSet) -> usize {
        let is_of = |&slot: &u32| pools.contains(self.tickets.at(slot).request.pool);
        let of_kind =
            |kind| self.tickets.all(&self.types.at(kind).in_flight).iter().filter(|slot| is_of(slot)).count();
        self.types.kinds().map(of_kind).sum()
    }

    /// What a request in flight was expected to take when it arrived; `None` for one that has ended.
    pub fn expected_of(&self, ticket: Ticket) -> Option<Work> {
        self.in_flight(ticket).map(|slot| self.tickets.at(slot).meter.work)
    }

    /// The waiting requests in order of arrival, at most `most` of them.
    pub fn queue(&self, most: usize) -> Vec<Queued> {
        let queued = |slot: u32| {
            let record = self.tickets.at(slot);
            Queued {
                ticket: self.tickets.ticket(slot),
                request_type: record.request.request_type,
                class: self.classes.id_of(record.class),
                pool: record.request.pool,
                lane: self.types.at(record.kind).lane,
                work: record.meter.work,
                since: record.arrived,
            }
        };
        let mut firsts: BinaryHeap<_> = self
            .classes
            .waits()
            .filter_map(|class| self.classes.at(class).waiting.first())
            .map(|slot| Reverse((self.tickets.at(slot).sequence, slot)))
            .collect();
        let mut queue = Vec::new();
        while let Some(Reverse((_, slot))) = firsts.pop().filter(|_| queue.len() < most) {
            queue.push(queued(slot));
            let class = self.tickets.at(slot).class;
            if let Some(next) = self.tickets.after(&self.classes.at(class).waiting, slot) {
                firsts.push(Reverse((self.tickets.at(next).sequence, next)));
            }
        }
        queue
    }

    /// The pools whose requests wait for nothing but a connection of theirs.
    pub fn short_of_connections(&self) -> Shortage {
        let mut shortage = Shortage::default();
        let lacks = |slot: &u32| self.obstacle_of(*slot) == Some(Obstacle::Connections) && self.fits(*slot);
        let lines = || {
            let own = self.classes.waits().map(|class| self.classes.at(class));
            own.flat_map(|own| [&own.lines, &own.late])
        };
        for pool in PoolId::all() {
            let bit = 1 << pool.index();
            let known = ClassSet { pooled: bit, ..ClassSet::default() };
            let fresh = ClassSet { fresh: bit, ..ClassSet::default() };
            if lines().filter_map(|it| it.short.first(known)).any(|slot| lacks(&slot)) {
                shortage.shorts.insert(pool);
            }
            let heavy = || lines().flat_map(|it| [it.long.first(known), it.short.first(fresh)]).flatten();
            if self.connections.heavy_may_start() && heavy().any(|slot| lacks(&slot)) {
                shortage.heavy.insert(pool);
            }
        }
        shortage
    }

    /// What keeps a request from starting now; `None` for one that doesn't wait.
    pub fn obstacle(&self, ticket: Ticket) -> Option<Obstacle> {
        self.obstacle_of(self.tickets.find(ticket)?)
    }

    /// What keeps a request from starting, or keeps it from joining its line.
    pub(super) fn obstacle_of(&self, slot: u32) -> Option<Obstacle> {
        let record = self.tickets.at(slot);
        let line = match record.place {
            Place::InFlight => return None,
            Place::Waiting(Line::Nowhere | Line::Shard) => self.line_of(slot),
            Place::Waiting(line) => line,
        };
        let is_paused = self.connections.paused().contains(record.request.pool);
        let is_long = matches!(line, Line::Long | Line::AsideLong(_));
        let open = if is_long { self.connections.open_to_longs() } else { self.connections.open_to_shorts() };
        Some(match line {
            Line::Immediate => Obstacle::Connections,
            _ if is_paused => Obstacle::Paused,
            Line::Type => Obstacle::Scout,
            _ if self.stalls.holds(self.now, self.ledger.count()) => Obstacle::Stall,
            _ if self.yields(record.class) => Obstacle::Class,
            _ if is_long && !self.lanes.has_room() => Obstacle::LongLane,
            _ if !open.contains(self.class_of(slot, line)) => Obstacle::Connections,
            _ if !self.fits(slot) => Obstacle::Capacity,
            _ if self.full_group_of(slot).is_some() => Obstacle::Group,
            _ if self.others_could_start(record.class) => Obstacle::Class,
            _ => Obstacle::Turn,
        })
    }

    /// The connections that are held for clients that think within their transactions, if there are any.
    pub fn silent(&self) -> Option<Silent> {
        let holds = |&slot: &u32| self.tickets.at(slot).request.connection == Connection::Needed;
        let all = self.suspended.iter().chain(&self.idle);
        let holders = all.filter(|(_, slot)| holds(slot)).map(|&(since, _)| since);
        let since = holders.clone().min()?;
        Some(Silent { connections: u32::try_from(holders.count()).unwrap_or(u32::MAX), since })
    }
}
