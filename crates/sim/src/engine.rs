//! The engine: a driver of the gate whose clock jumps from event to event.
//!
//! Four things can happen next: the service finishes a request, the gate's alarm goes off, something on the
//! agenda is due, a request arrives. Whatever is earliest happens; of several at one instant, in that
//! order, so that a request that arrives just as another ends finds its place free. Time is whole
//! nanoseconds. Nothing else decides the order, so a run is a function of its scenario.
//!
//! Where an application stands before the gate, requests come to the gate in another order than to the
//! application.

mod application;
mod clients;

use admission::{
    Action, ClientId, Completion, Connection, Duration, Entry, Event, Gate, Instant, Outcome as Ended,
    Policy, PoolId, Reason, Refused, Request, Snapshot, Ticket, Work,
};

use crate::agenda::{Agenda, Due, nanos};
use crate::application::Inside;
use crate::chance::{Chance, Purpose};
use crate::clients::Abandoned;
use crate::distribution::{Distribution, Sampler};
use crate::error::Error;
use crate::laws::{self, Books};
use crate::record::{Outcome, Row, Sample, Trace, What};
use crate::result::Run;
use crate::scenario::{End, Keep, Scenario};
use crate::sources::Feed;
use crate::summary::{self, Integrals};
use crate::upstream::{Load, Server};
use clients::Progress;

/// Runs a scenario.
///
/// # Errors
/// What is wrong with the scenario; or a law that was broken, which is a defect.
pub fn run(scenario: &Scenario) -> Result<Run, Error> {
    run_with(scenario, &mut ())
}

/// Runs a scenario with an observer that may change the gate's policy on the way.
///
/// # Errors
/// The errors of [`run`].
pub fn run_with(scenario: &Scenario, observer: &mut impl Observer) -> Result<Run, Error> {
    scenario.check()?;
    let mut engine = Engine::new(scenario, observer);
    engine.go()?;
    engine.finish()
}

/// An observer of a run that may steer the gate: a controller under test, or a probe.
pub trait Observer {
    /// The gate reports something. What is done by `steering` holds from here on.
    fn event(&mut self, at: Instant, event: &Event, steering: &mut Steering<'_>) {
        let _ = (at, event, steering);
    }

    /// The service has finished with a request, which may go on to wait for what isn't a core.
    fn served(&mut self, at: Instant, row: &Row, steering: &mut Steering<'_>) {
        let _ = (at, row, steering);
    }

    /// A tick of the scenario's interval, after its sample was taken.
    fn tick(&mut self, sample: &Sample, steering: &mut Steering<'_>) {
        let _ = (sample, steering);
    }
}

/// Nobody looks on.
impl Observer for () {}

/// What an observer may do.
#[derive(Debug)]
pub struct Steering<'a> {
    gate: &'a mut Gate,
    server: &'a mut Server,
    now: Instant,
}

impl Steering<'_> {
    /// The gate's state.
    pub fn snapshot(&self) -> Snapshot {
        self.gate.snapshot()
    }

    /// When it is.
    pub fn now(&self) -> Instant {
        self.now
    }

    /// The gate itself, to be looked at.
    pub fn gate(&self) -> &Gate {
        self.gate
    }

    /// Another weight of a source at a service that shares its cores by weights.
    pub fn weigh(&mut self, source: usize, weight: f64) {
        self.server.weigh(self.now.as_nanos(), source, weight);
    }

    /// Another policy from now on.
    pub fn set_policy(&mut self, policy: Policy) {
        self.gate.set_policy(self.now, policy);
    }
}

struct Engine<'a, O> {
    scenario: &'a Scenario,
    observer: &'a mut O,
    gate: Gate,
    server: Server,
    feeds: Vec<Feed>,
    samplers: Vec<Sampler>,
    retries: Chance,
    conflicts: Chance,
    agenda: Agenda,
    rows: Vec<Row>,
    /// By row, once it was at the gate.
    tickets: Vec<Option<Ticket>>,
    /// By row, as far as any had several statements.
    progress: Vec<Progress>,
    /// The rows of what came to the gate, in order.
    at_gate: Vec<u32>,
    inside: Option<Inside>,
    /// The application's connections, as the gate knows them.
    connections: Vec<ClientId>,
    /// How many visits have begun.
    visits: u32,
    samples: Vec<Sample>,
    events: Vec<(Instant, Event)>,
    trace: Trace,
    now: u64,
    window: (u64, u64),
    over: bool,
    queued: u64,
    in_flight: u64,
    /// Since the last tick.
    since: Since,
    integrals: Integrals,
    loads: f64,
    books: Books,
    done_before: f64,
}

#[derive(Clone, Copy, Debug, Default)]
struct Since {
    arrived: u64,
    completed: u64,
    rejected: u64,
    timed_out: u64,
    response: u64,
    useful: u64,
}

impl<'a, O: Observer> Engine<'a, O> {
    fn new(scenario: &'a Scenario, observer: &'a mut O) -> Self {
        let seed = scenario.seed;
        let gate_seed = Chance::new(seed, Purpose::Gate, 0).bits();
        let mut gate = Gate::new(scenario.policy.clone(), Instant::ZERO, gate_seed);
        gate.set_pool(Instant::ZERO, PoolId::default(), u32::MAX);
        gate.recall(Instant::ZERO, &scenario.known());
        let connections = scenario.application.iter().flat_map(|before| 0..before.connections);
        let connections = connections.map(|_| gate.connect()).collect();
        let loads: Vec<_> =
            scenario.types.iter().map(|kind| Load { weight: kind.weight, lock: kind.lock }).collect();
        let (from, to) = (nanos(scenario.warm_up), nanos(scenario.duration));
        let mut agenda = Agenda::default();
        for (step, (at, _)) in scenario.upstream.speed.iter().enumerate() {
            agenda.add(nanos(*at), Due::Speed(step as u32));
        }
        agenda.add(from, Due::WarmedUp);
        agenda.add(to, Due::Over);
        agenda.add(nanos(scenario.tick), Due::Tick);
        let mut feeds = Vec::new();
        for (index, source) in scenario.sources.iter().enumerate() {
            let mut feed = Feed::new(source, seed, index as u64, to);
            feed.begin(index as u16, &mut agenda);
            feeds.push(feed);
        }
        Self {
            scenario,
            observer,
            gate,
            server: Server::new(&scenario.upstream, &loads),
            feeds,
            samplers: scenario.types.iter().map(|kind| Distribution::sampler(&kind.service_time)).collect(),
            retries: Chance::new(seed, Purpose::Retries, 0),
            conflicts: Chance::new(seed, Purpose::Conflicts, 0),
            agenda,
            rows: Vec::new(),
            tickets: Vec::new(),
            progress: Vec::new(),
            at_gate: Vec::new(),
            connections,
            inside: scenario
                .application
                .as_ref()
                .map(|before| Inside::new(before, scenario.types.iter().map(|kind| &*kind.tables))),
            visits: 0,
            samples: Vec::new(),
            events: Vec::new(),
            trace: Trace::new(),
            now: 0,
            window: (from, to),
            over: false,
            queued: 0,
            in_flight: 0,
            since: Since::default(),
            integrals: Integrals::default(),
            loads: 0.0,
            books: Books::default(),
            done_before: 0.0,
        }
    }

    fn at(&self) -> Instant {
        Instant::from_nanos(self.now)
    }

    /// Until no more requests come and none is left.
    fn go(&mut self) -> Result<(), Error> {
        const NEVER: u64 = u64::MAX;
        while !self.over || (self.queued + self.in_flight > 0 && self.scenario.end == End::Drained) {
            let ends = self.server.next().unwrap_or(NEVER);
            let alarm = self.gate.next_timeout().map_or(NEVER, Instant::as_nanos);
            let due = self.agenda.next().unwrap_or(NEVER);
            let (arrives, source) = self.next_arrival();
            let next = ends.min(alarm).min(due).min(arrives);
            if next == NEVER {
                return Err(Error::Stuck { left: self.queued + self.in_flight });
            }
            self.pass_to(next);
            if ends == next {
                self.serve();
            } else if alarm == next {
                self.gate.handle_timeout(self.at());
                self.settle();
            } else if due == next {
                self.attend();
            } else {
                self.arrive_from(source);
            }
            if self.rows.len() > self.scenario.requests_max {
                return Err(Error::TooMany(self.scenario.requests_max));
            }
        }
        Ok(())
    }

    fn next_arrival(&self) -> (u64, usize) {
        let mut first = (u64::MAX, 0);
        for (index, feed) in self.feeds.iter().enumerate() {
            if feed.next() < first.0 {
                first = (feed.next(), index);
            }
        }
        first
    }

    fn pass_to(&mut self, next: u64) {
        let passed = u128::from(next - self.now);
        self.books.present += passed * u128::from(self.queued + self.in_flight);
        let measured =
            next.clamp(self.window.0, self.window.1) - self.now.clamp(self.window.0, self.window.1);
        self.integrals.queued += u128::from(measured) * u128::from(self.queued);
        self.integrals.in_flight += u128::from(measured) * u128::from(self.in_flight);
        self.now = next;
    }

    /// Does all that the gate wants, and hears all that it reports.
    fn settle(&mut self) {
        loop {
            while let Some(action) = self.gate.poll() {
                match action {
                    Action::Dispatch(ticket) => self.dispatch(self.at_gate[ticket.sequence() as usize]),
                    Action::Reject(ticket, Refused { reason, .. }) => {
                        self.reject(self.at_gate[ticket.sequence() as usize], reason);
                    }
                }
            }
            let Some(event) = self.gate.poll_event() else { return };
            let now = self.at();
            self.observer.event(
                now,
                &event,
                &mut Steering { gate: &mut self.gate, server: &mut self.server, now },
            );
            if self.scenario.keep == Keep::All || is_rare(&event) {
                self.events.push((now, event));
            }
        }
    }

    /// The next request of an open loop.
    fn arrive_from(&mut self, source: usize) {
        let (kind, service_time) = self.feeds[source].take(&self.samplers);
        let client = self.visitor(source);
        self.arrive(Newcomer { source: source as u16, client, attempt: 0, kind, service_time });
    }

    fn arrive(&mut self, newcomer: Newcomer) {
        let now = self.at();
        let Newcomer { source, client, attempt, kind, service_time } = newcomer;
        let number = self.rows.len() as u32;
        self.trace.note(What::Arrived, self.now ^ service_time.rotate_left(32), number);
        self.rows.push(Row {
            kind,
            source,
            attempt,
            client,
            outcome: Outcome::Pending,
            service_time: Work::from_nanos(service_time),
            arrived: now,
            dispatched: None,
            ended: now,
            upstream: 0,
            given_up: 0,
            handle: 0,
        });
        self.queued += 1;
        self.since.arrived += 1;
        let asked = &self.scenario.sources[usize::from(source)];
        if let Some(timeout) = asked.patience.timeout {
            self.agenda.add(self.now.saturating_add(nanos(timeout)), Due::TimeOut(number));
        }
        self.tickets.push(None);
        let goes_on = self.inside.as_mut().is_none_or(|inside| inside.enter(self.now, kind));
        if goes_on {
            self.ask(number);
        } else {
            self.watch(number);
        }
        self.settle();
    }

    /// A request comes to the gate.
    fn ask(&mut self, number: u32) {
        let Row { kind, source, arrived, .. } = self.rows[number as usize];
        let asked = &self.scenario.sources[usize::from(source)];
        let connection = self.inside.as_ref().and_then(|inside| inside.connection_of(number));
        let ticket = self.gate.arrive(
            self.at(),
            Request {
                request_type: Scenario::request_type(kind as usize),
                class: asked.class,
                client: connection.map(|connection| self.connections[connection as usize]),
                tenant: None,
                pool: PoolId::default(),
                connection: Connection::Needed,
                entry: Entry::Queued,
                deadline: asked.deadline.map(|deadline| arrived.after(deadline)),
            },
        );
        self.tickets[number as usize] = Some(ticket);
        self.at_gate.push(number);
    }

    fn dispatch(&mut self, number: u32) {
        self.trace.note(What::Dispatched, self.now, number);
        self.queued -= 1;
        self.in_flight += 1;
        self.rows[number as usize].dispatched = Some(self.at());
        self.begin(number);
    }

    fn reject(&mut self, number: u32, reason: Reason) {
        self.trace.note(What::Rejected, self.now, number);
        self.queued -= 1;
        if self.rows[number as usize].outcome == Outcome::Pending {
            self.since.rejected += 1;
            self.end(number, Outcome::Rejected(reason));
            self.go_on(number);
        } else {
            self.forget(number);
        }
        self.left(number);
    }

    /// The service has finished one.
    fn serve(&mut self) {
        let Some(number) = self.server.finish(self.now) else { return };
        let row = self.rows[number as usize];
        self.books.given += self.statement(&row) as f64;
        let goes_on = self.goes_on(number);
        let now = self.at();
        let mut steering = Steering { gate: &mut self.gate, server: &mut self.server, now };
        if !goes_on {
            self.observer.served(now, &row, &mut steering);
        }
        let upstream = &self.scenario.upstream;
        let ratio = self.scenario.types[row.kind as usize].input_output.unwrap_or(upstream.input_output);
        let part = upstream.given_up(self.in_flight);
        let outcome =
            if part > 0.0 && self.conflicts.unit() < part { Ended::Conflict } else { Ended::Success };
        let waits = (self.statement(&row) as f64 * ratio) as u64;
        let away = nanos(upstream.round_trip).saturating_add(waits);
        if away > 0 || goes_on {
            self.rows[number as usize].handle = UNDER_WAY;
            let due = match outcome {
                Ended::Conflict => Due::GivenUp(number),
                _ if goes_on => Due::Think(number),
                _ => Due::Land(number),
            };
            self.agenda.add(self.now.saturating_add(away), due);
        } else {
            self.land(number, outcome);
        }
    }

    /// Its answer is there. Who was given up for others is tried again by its client at once.
    fn land(&mut self, number: u32, outcome: Ended) {
        self.trace.note(What::Landed, self.now, number);
        self.in_flight -= 1;
        let now = self.at();
        let row = &mut self.rows[number as usize];
        let upstream_time = row.dispatched.map_or(Duration::ZERO, |dispatched| now.since(dispatched));
        row.upstream = nanos(upstream_time);
        row.handle = LANDED;
        let completed = row.outcome == Outcome::Pending && outcome == Ended::Success;
        let again = row.outcome == Outcome::Pending && outcome == Ended::Conflict;
        if completed {
            self.trace.note(What::Completed, self.now, number);
            self.since.completed += 1;
            self.since.useful += row.service_time.as_nanos();
            self.since.response += self.now - row.arrived.as_nanos();
            self.end(number, Outcome::Completed);
        }
        // Who doesn't learn hears of no success; to the gate the request has ended either way.
        let told = if self.scenario.learning { outcome } else { Ended::Canceled };
        let upstream_time = self.busy(number, upstream_time);
        if let Some(ticket) = self.tickets[number as usize] {
            self.gate.complete(now, ticket, Completion { outcome: told, upstream_time });
        }
        if !again {
            self.left(number);
        }
        if completed {
            self.think(number);
            self.follow(number);
        }
        if again {
            let row = &mut self.rows[number as usize];
            row.given_up += row.upstream;
            (row.dispatched, row.upstream, row.handle) = (None, 0, 0);
            self.queued += 1;
            self.ask(number);
        }
        self.settle();
    }

    fn end(&mut self, number: u32, outcome: Outcome) {
        let now = self.at();
        let row = &mut self.rows[number as usize];
        row.outcome = outcome;
        row.ended = now;
    }

    /// What is due on the agenda.
    fn attend(&mut self) {
        match self.agenda.pop() {
            None => {}
            Some(Due::Speed(step)) => {
                self.server.set_speed(self.now, self.scenario.upstream.speed[step as usize].1);
            }
            Some(Due::WarmedUp) => self.done_before = self.server.done(self.now),
            Some(Due::Over) => self.close(),
            Some(Due::Tick) => self.tick(),
            // Its client may have given up in the meantime; the gate is rid of it only now.
            Some(Due::Land(number)) => self.land(number, Ended::Success),
            Some(Due::GivenUp(number)) => self.land(number, Ended::Conflict),
            Some(Due::Think(number)) => self.think_between(number),
            Some(Due::Resume(number)) => self.resume(number),
            Some(Due::TimeOut(number)) => self.time_out(number),
            Some(Due::Busy(number)) => self.turn_away(number),
            Some(Due::Retry(number)) if !self.over => {
                let Row { source, client, attempt, kind, service_time, .. } = self.rows[number as usize];
                let service_time = service_time.as_nanos();
                self.arrive(Newcomer { source, client, attempt: attempt + 1, kind, service_time });
            }
            Some(Due::Send(source, client)) if !self.over => {
                let feed = &mut self.feeds[usize::from(source)];
                if let Some((kind, service_time)) = feed.send(self.now, client, &self.samplers) {
                    self.arrive(Newcomer { source, client, attempt: 0, kind, service_time });
                }
            }
            Some(Due::Retry(_) | Due::Send(..)) => {}
        }
    }

    fn tick(&mut self) {
        let now = self.at();
        self.gate.handle_timeout(now);
        self.settle();
        let snapshot = self.gate.snapshot();
        let Since { arrived, completed, rejected, timed_out, response, useful } =
            std::mem::take(&mut self.since);
        let sample = Sample {
            at: now,
            since: self.scenario.tick,
            load: snapshot.load,
            capacity: snapshot.capacity,
            capacity_found: snapshot.capacity_found,
            queued: self.queued as usize,
            in_flight: self.in_flight as usize,
            arrived,
            completed,
            response_time: Duration::from_nanos(response.checked_div(completed).unwrap_or(0)),
            rejected,
            timed_out,
            useful_work: Work::from_nanos(useful),
        };
        if self.now >= self.window.0 {
            self.loads += sample.load.as_nanos() as f64;
            self.integrals.load += 1.0;
        }
        self.samples.push(sample);
        self.observer.tick(&sample, &mut Steering { gate: &mut self.gate, server: &mut self.server, now });
        self.settle();
        let next = self.now.saturating_add(nanos(self.scenario.tick));
        if next <= self.window.1 {
            self.agenda.add(next, Due::Tick);
        }
    }

    /// No more requests come.
    fn close(&mut self) {
        self.over = true;
        self.integrals.done = self.server.done(self.now) - self.done_before;
        for feed in &mut self.feeds {
            feed.close();
        }
    }

    /// What is left is cut off (nothing is, if it was drained), and the books are closed.
    fn finish(mut self) -> Result<Run, Error> {
        if self.queued + self.in_flight > 0 {
            for number in 0..self.rows.len() as u32 {
                self.cut_off(number);
            }
        }
        self.books.done = self.server.done(self.now);
        self.books.queued = self.queued;
        self.books.in_flight = self.in_flight;
        self.books.events_lost = self.gate.events_lost();
        laws::check(&self.rows, &self.books, &self.gate.snapshot()).map_err(Error::Law)?;
        self.integrals.load = if self.integrals.load > 0.0 { self.loads / self.integrals.load } else { 0.0 };
        Ok(Run {
            summary: summary::summarize(self.scenario, &self.rows, &self.integrals),
            rows: self.rows,
            samples: self.samples,
            events: self.events,
            trace: self.trace.value(),
        })
    }

    fn cut_off(&mut self, number: u32) {
        let row = self.rows[number as usize];
        let in_flight = row.dispatched.is_some() && row.handle != LANDED;
        if row.outcome == Outcome::Pending {
            self.trace.note(What::CutOff, self.now, number);
            self.end(number, Outcome::CutOff);
            self.take_away(number, Abandoned::Canceled);
        } else if in_flight {
            self.take_away(number, Abandoned::Canceled);
        } else if row.dispatched.is_none() && self.inside.as_ref().is_some_and(|inside| inside.has(number)) {
            self.forget(number);
            self.take_away(number, Abandoned::Canceled);
        }
        if in_flight && row.handle == UNDER_WAY {
            self.land(number, Ended::Canceled);
        }
        self.settle();
    }
}

/// A request before it has a row.
struct Newcomer {
    source: u16,
    client: u32,
    attempt: u16,
    kind: u32,
    service_time: u64,
}

/// In place of a handle: the service has finished, the answer is under way.
const UNDER_WAY: u32 = u32::MAX;
/// In place of a handle: the gate is rid of it.
const LANDED: u32 = u32::MAX - 1;

/// Whether an event isn't one that each request has.
fn is_rare(event: &Event) -> bool {
    !matches!(
        event,
        Event::Dispatched { .. } | Event::Rejected { .. } | Event::Left { .. } | Event::Completed { .. }
    )
}
