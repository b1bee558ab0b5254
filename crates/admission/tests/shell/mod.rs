//! A shell around a gate for tests: it keeps the clock, and drains after every call.
#![allow(dead_code, reason = "each test crate uses its part")]

use admission::{
    Action, Capacity, Completion, Connection, Cost, Duration, Entry, Event, Gate, Instant, Lane, LongLimit,
    Order, Outcome, Policy, PoolId, Reason, Request, RequestType, Snapshot, Ticket, Work,
};

pub(crate) const MS: u64 = 1_000_000;

pub(crate) fn ms(count: u64) -> Work {
    Work::from_nanos(count * MS)
}

pub(crate) fn pool(index: u8) -> PoolId {
    PoolId::new(index).expect("a small index")
}

/// What the product does by default, on 20 connections.
pub(crate) fn policy() -> Policy {
    Policy {
        capacity: Capacity::Unlimited,
        connections: 20,
        long_limit: Some(LongLimit::Fixed(4)),
        cost: Cost::DEFAULT,
        order: Order::ShortestFirst { aging: Some(5.0), floor: ms(1_000) },
        queue_max: 100_000,
        queue_timeout: Duration::from_secs(120),
        pinned_max: 10,
        types_max: 1_000,
        ..Policy::default()
    }
}

/// The paper's gate: a capacity, and nothing else.
pub(crate) fn paper(capacity: u64, order: Order) -> Policy {
    Policy {
        capacity: Capacity::Fixed(ms(capacity)),
        connections: u32::MAX,
        long_limit: None,
        order,
        ..policy()
    }
}

pub(crate) fn request(kind: u64) -> Request {
    Request {
        request_type: RequestType(kind),
        class: admission::ClassId::DEFAULT,
        pool: pool(0),
        connection: Connection::Needed,
        entry: Entry::Queued,
        client: None,
        tenant: None,
        deadline: None,
    }
}

pub(crate) struct Shell {
    pub(crate) gate: Gate,
    pub(crate) now: u64,
    pub(crate) dispatched: Vec<Ticket>,
    pub(crate) rejected: Vec<(Ticket, Reason)>,
    pub(crate) events: Vec<Event>,
}

impl Shell {
    /// Pool 0 has all the connections that it can want.
    pub(crate) fn new(policy: Policy) -> Self {
        let mut gate = Gate::new(policy, Instant::ZERO, 1);
        gate.set_pool(Instant::ZERO, pool(0), u32::MAX);
        Self { gate, now: 0, dispatched: Vec::new(), rejected: Vec::new(), events: Vec::new() }
    }

    pub(crate) fn at(&self) -> Instant {
        Instant::from_nanos(self.now)
    }

    /// Goes on in time, and answers every timeout on the way.
    pub(crate) fn pass(&mut self, nanos: u64) {
        let end = self.now + nanos;
        while let Some(next) = self.gate.next_timeout().filter(|next| next.as_nanos() <= end) {
            self.now = self.now.max(next.as_nanos());
            self.gate.handle_timeout(self.at());
            self.drain();
            let after = self.gate.next_timeout();
            assert!(after.is_none_or(|after| after > self.at()), "a timeout that makes no progress");
        }
        self.now = end;
    }

    pub(crate) fn arrive(&mut self, kind: u64) -> Ticket {
        self.send(request(kind))
    }

    pub(crate) fn send(&mut self, request: Request) -> Ticket {
        let ticket = self.gate.arrive(self.at(), request);
        self.drain();
        ticket
    }

    pub(crate) fn finish(&mut self, ticket: Ticket, outcome: Outcome, took: u64) {
        let upstream_time = Duration::from_nanos(took);
        self.gate.complete(self.at(), ticket, Completion { outcome, upstream_time });
        self.drain();
    }

    pub(crate) fn succeed(&mut self, ticket: Ticket, took: u64) {
        self.finish(ticket, Outcome::Success, took);
    }

    pub(crate) fn cancel(&mut self, ticket: Ticket) {
        self.gate.cancel(self.at(), ticket);
        self.drain();
    }

    /// Teaches a type its cost on an idle gate.
    pub(crate) fn teach(&mut self, kind: u64, took: u64, times: usize) {
        for _ in 0..times {
            let ticket = self.arrive(kind);
            assert!(self.is_dispatched(ticket), "teach on an idle gate");
            self.pass(took);
            self.succeed(ticket, took);
        }
    }

    pub(crate) fn drain(&mut self) {
        while let Some(action) = self.gate.poll() {
            match action {
                Action::Dispatch(ticket) => self.dispatched.push(ticket),
                Action::Reject(ticket, refused) => self.rejected.push((ticket, refused.reason)),
            }
        }
        while let Some(event) = self.gate.poll_event() {
            self.events.push(event);
        }
    }

    pub(crate) fn is_dispatched(&self, ticket: Ticket) -> bool {
        self.dispatched.contains(&ticket)
    }

    pub(crate) fn reason(&self, ticket: Ticket) -> Option<Reason> {
        self.rejected.iter().find(|(other, _)| *other == ticket).map(|(_, reason)| *reason)
    }

    pub(crate) fn count(&self, tickets: &[Ticket]) -> usize {
        tickets.iter().filter(|ticket| self.is_dispatched(**ticket)).count()
    }

    pub(crate) fn snapshot(&self) -> Snapshot {
        self.gate.snapshot()
    }

    pub(crate) fn load_ms(&self) -> f64 {
        self.snapshot().load.as_millis_f64()
    }

    pub(crate) fn lane(&self, kind: u64) -> Lane {
        let types = self.snapshot().types;
        let found = types.iter().find(|known| known.request_type == Some(RequestType(kind)));
        found.expect("the type is known").lane
    }
}
