//! Stories of a gate in invented time.

use std::time::Duration;

use admission::{
    Action, Capacity, Completion, Connection, Entry, Order, Policy, PoolId, PoolSet, RequestType,
};

use super::*;

/// A gate with its stories, and the only one who knows the time.
struct Stage {
    gate: Gate,
    why: Why,
    now: Instant,
}

impl Stage {
    fn new(policy: Policy) -> Self {
        let mut gate = Gate::new(policy, Instant::ZERO, 1);
        gate.set_pool(Instant::ZERO, PoolId::default(), 100);
        Self { gate, why: Why::default(), now: Instant::ZERO }
    }

    fn with_connections(connections: u32) -> Self {
        Self::new(policy(connections, Order::Fifo))
    }

    fn pass(&mut self, millis: u64) {
        self.now = self.now.after(Duration::from_millis(millis));
        self.gate.handle_timeout(self.now);
        self.drain();
        if self.why.is_due(self.now) {
            self.why.look(self.now, &self.gate);
        }
    }

    fn drain(&mut self) {
        while self
            .gate
            .poll()
            .is_some_and(|action| matches!(action, Action::Dispatch(_) | Action::Reject(..)))
        {}
        while let Some(event) = self.gate.poll_event() {
            self.why.happened(self.now, &event);
        }
    }

    fn arrive(&mut self, request_type: u64, trace: u128) -> Ticket {
        let request = Request {
            request_type: RequestType(request_type),
            class: ClassId::DEFAULT,
            client: None,
            tenant: None,
            pool: PoolId::default(),
            connection: Connection::Needed,
            entry: Entry::Queued,
            deadline: None,
        };
        let ticket = self.gate.arrive(self.now, request);
        let origin = Origin { trace: NonZeroU128::new(trace), session: Some(7), turn: None };
        let obstacle = self.gate.obstacle(ticket);
        self.why.arrived(self.now, ticket, (&request, origin), obstacle);
        self.drain();
        ticket
    }

    fn complete(&mut self, ticket: Ticket, millis: u64) {
        let upstream_time = Duration::from_millis(millis);
        self.gate.complete(self.now, ticket, Completion { outcome: Outcome::Success, upstream_time });
        self.drain();
    }

    fn told(&self, ask: Ask) -> Vec<Reply> {
        self.why.tell(self.now, ask)
    }

    fn of_trace(&self, trace: u128) -> Reply {
        let mut told = self.told(Ask::Trace(NonZeroU128::new(trace).unwrap()));
        assert_eq!(told.len(), 1, "{told:?}");
        told.remove(0)
    }
}

fn policy(connections: u32, order: Order) -> Policy {
    Policy {
        capacity: Capacity::Unlimited,
        long_limit: None,
        order,
        connections,
        queue_max: 100,
        queue_timeout: Duration::from_secs(60),
        suspend_after: Duration::from_secs(3_600),
        ..Policy::default()
    }
}

fn seconds(waits: &[(Obstacle, Duration)]) -> Vec<(Obstacle, f64)> {
    waits.iter().map(|(what, time)| (*what, time.as_secs_f64())).collect()
}

#[test]
fn a_wait_is_told_by_its_parts_while_it_lasts_and_afterwards() {
    let mut stage = Stage::with_connections(1);
    let first = stage.arrive(1, 1);
    stage.arrive(2, 2);
    stage.pass(200);
    // The client of the first is silent within its transaction.
    stage.gate.idle(stage.now, first);
    stage.pass(300);
    let told = stage.of_trace(2);
    assert_eq!(told.story.queue_wait, None);
    assert_eq!(seconds(&told.story.waits(stage.now)), [(Obstacle::Connections, 0.5)]);
    assert_eq!(told.story.thinking, 1);

    stage.why.look(stage.now, &stage.gate);
    stage.gate.hold_up(stage.now, PoolSet::ALL);
    stage.why.look(stage.now, &stage.gate);
    stage.complete(first, 100);
    stage.pass(2_000);
    stage.gate.hold_up(stage.now, PoolSet::NONE);
    stage.drain();
    let told = stage.of_trace(2);
    assert_eq!(told.story.queue_wait, Some(Duration::from_millis(2_500)));
    stage.pass(5_000);
    let told = stage.of_trace(2);
    let parts = [(Obstacle::Paused, 2.0), (Obstacle::Connections, 0.5)];
    assert_eq!(seconds(&told.story.waits(stage.now)), parts, "what comes later isn't its wait");
}

#[test]
fn it_is_told_who_went_before_and_who_was_overtaken() {
    let mut stage = Stage::new(policy(1, Order::ShortestFirst { aging: None, floor: admission::Work::ZERO }));
    // The gate learns what both types take.
    for _ in 0..20 {
        for (kind, millis) in [(1, 1), (2, 400)] {
            let ticket = stage.arrive(kind, 0);
            stage.pass(millis);
            stage.complete(ticket, millis);
        }
    }
    let busy = stage.arrive(1, 3);
    let long = stage.arrive(2, 4);
    let shorts = [stage.arrive(1, 5), stage.arrive(1, 6)];
    for ticket in [busy, shorts[0], shorts[1], long] {
        stage.pass(1);
        stage.complete(ticket, 1);
    }
    let told = stage.of_trace(4);
    let by_type = vec![(RequestType(1), 2)];
    assert_eq!(told.overtaken, Some(Overtaken { count: 2, is_partial: false, by_type }));
    assert_eq!((told.overtook, stage.of_trace(5).overtook, stage.of_trace(6).overtook), (0, 1, 1));
    assert_eq!(stage.of_trace(5).overtaken.map(|it| it.count), Some(0));
}

#[test]
fn a_refusal_and_a_client_that_left_are_told() {
    let mut stage = Stage::with_connections(1);
    stage.arrive(1, 1);
    let left = stage.arrive(1, 2);
    stage.arrive(1, 3);
    stage.pass(100);
    stage.gate.cancel(stage.now, left);
    stage.drain();
    assert_eq!(stage.of_trace(2).story.end, Some(End::Left));
    stage.pass(59_900);
    let told = stage.of_trace(3);
    assert_eq!(told.story.end, Some(End::Refused(Reason::QueueTimeout)));
    assert_eq!(seconds(&told.story.waits(stage.now)), [(Obstacle::Connections, 60.0)]);
    assert_eq!((told.overtook, told.overtaken.map(|it| it.count)), (0, Some(0)));
}

#[test]
fn the_slowest_of_long_ago_are_not_of_the_last_minutes() {
    let mut stage = Stage::with_connections(10);
    let slow = stage.arrive(2, 9);
    stage.pass(3_000);
    stage.complete(slow, 3_000);
    assert_eq!(stage.told(Ask::Slowest(3)).len(), 1);
    stage.pass(SLOW_FOR.as_millis() as u64);
    assert!(stage.told(Ask::Slowest(3)).is_empty(), "nothing has come since");
    assert_eq!(stage.of_trace(9).story.sequence, 0, "by its name it is known for longer");
}

#[test]
fn the_slowest_of_the_last_minutes_are_there_however_many_have_come_since() {
    let mut stage = Stage::with_connections(10);
    let slow = stage.arrive(2, 9);
    stage.pass(3_000);
    stage.complete(slow, 3_000);
    for _ in 0..2 * RECENT_MAX {
        let ticket = stage.arrive(1, 0);
        stage.pass(10);
        stage.complete(ticket, 10);
    }
    let slowest = stage.told(Ask::Slowest(3));
    assert_eq!((slowest.len(), slowest[0].story.sequence), (3, 0));
    assert_eq!(stage.of_trace(9).story.sequence, 0);
    assert!(stage.why.recent.len() == RECENT_MAX && stage.why.present.len() <= 10);
    assert_eq!(stage.told(Ask::Session(7)).len(), STORIES_MAX);

    // A running one is among the slowest as soon as it is.
    stage.arrive(3, 10);
    stage.pass(4_000);
    assert_eq!(stage.told(Ask::Slowest(1))[0].story.origin.trace, NonZeroU128::new(10));
    let periods = 2 * PERIODS_MAX as u64;
    for _ in 0..periods {
        let ticket = stage.arrive(1, 0);
        stage.pass(PERIOD.as_millis() as u64);
        stage.complete(ticket, 1);
    }
    assert!(stage.told(Ask::Trace(NonZeroU128::new(9).unwrap())).is_empty(), "it is too long ago");
    assert_eq!(stage.why.periods.len(), PERIODS_MAX);
}

#[test]
fn an_end_that_is_heard_of_after_its_place_was_taken_is_told_of_the_right_request() {
    let mut stage = Stage::with_connections(1);
    stage.arrive(1, 1);
    stage.arrive(1, 2);
    // The next arrival finds that the second has waited too long, and takes its place.
    stage.now = stage.now.after(Duration::from_secs(61));
    let third = stage.arrive(1, 3);
    assert_eq!(third.place(), 1);
    assert_eq!(stage.of_trace(2).story.end, Some(End::Refused(Reason::QueueTimeout)));
    assert_eq!(stage.of_trace(3).story.end, None);
}
