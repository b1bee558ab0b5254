//! Observing without touching: a gate in virtual time that says what would have waited and been refused.
//!
//! Every request really runs at once. The shadow decides as a gate with the same policy would. An event that
//! really happens `x` after a request's arrival happens in the shadow `x` after the shadow's dispatch.
//!
//! ```text
//!             arrives      idle  resumes    ends
//!   really       |-----------|......|---------|
//!   shadow       |-- queue wait --|-----------|......|---------|
//!                              dispatched   idle  resumes    ends
//! ```
//!
//! So the shadow's connection and load are held for as long as the request would have held them, a
//! transaction's pauses included. A client that leaves while its request still waits in the shadow leaves
//! the shadow's queue at that moment. Events happen in order, each exactly when it was due.
//!
//! **A client asks one thing after the other.** While the shadow holds a request of a connection that has
//! really ended, the connection's next requests pass the shadow by: a gate would not have them yet.
//!
//! **Where it errs.** Upstream times are those of the uncontrolled service: under overload the gate would
//! have shortened them, so the shadow's waits are rather too long. It doesn't know which clients would have
//! given up. Pinned sessions and pools aren't modeled: every connection serves every request.
//!
//! **Bounds.** A request is kept as long as it really runs or the shadow's gate holds it (`queue_max`,
//! `connections`). At most [`STEPS_MAX`] of its pauses are kept; later ones count as busy.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use admission::{
    Action, ClientId, Completion, Connection, Event, Gate, Instant, Learned, Outcome, Policy, PoolId, Reason,
    Refused, Request, Ticket,
};

/// The most steps kept for one request that waits in the shadow, and so the most of its pauses.
pub const STEPS_MAX: usize = 64;

/// An instant after all others: five centuries from the origin.
const NEVER: Instant = Instant::from_nanos(u64::MAX);

/// What the shadow knows of a request that really runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Foreseen {
    /// The request would have been dispatched after this time.
    Dispatched(Duration),
    /// The request would still wait, by now for this time.
    Waiting(Duration),
    /// The request would have been refused.
    Rejected(Reason),
}

/// A gate that decides for the record only.
#[derive(Debug)]
pub struct Shadow {
    gate: Gate,
    requests: HashMap<Ticket, Life>,
    /// Requests that the shadow refused and that still really run.
    refused: HashMap<Ticket, Reason>,
    /// For each connection, how many of its requests have really ended and are still held here.
    behind: HashMap<u64, usize>,
    /// Future events of the shadow, in order; the number orders events of one instant.
    due: BTreeMap<(Instant, u64), (Ticket, Step)>,
    next_number: u64,
}

/// One request, really and in the shadow.
#[derive(Debug)]
struct Life {
    arrived: Instant,
    /// When the shadow dispatched it.
    dispatched: Option<Instant>,
    /// Real events while the request waited in the shadow, each with its time since the arrival.
    steps: Vec<(Duration, Step)>,
    /// How many steps there were, waiting or not.
    step_count: usize,
    /// Whether the request is really idle, as the shadow knows or will know.
    is_idle: bool,
    /// Its connection.
    turn: Option<u64>,
    /// Whether it has really ended.
    has_ended: bool,
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Idle,
    Resume,
    End(Completion),
}

impl Shadow {
    /// A shadow of a gate with this policy, where nothing has happened yet.
    pub fn new(policy: Policy, now: Instant, seed: u64) -> Self {
        let mut gate = Gate::new(policy, now, seed);
        // One pool for everybody, as large as the budget allows.
        gate.set_pool(now, PoolId::default(), u32::MAX);
        let (requests, refused, behind) = (HashMap::new(), HashMap::new(), HashMap::new());
        Self { gate, requests, refused, behind, due: BTreeMap::new(), next_number: 0 }
    }

    /// A request arrives, and really runs at once. Its ticket names it until its end.
    pub fn arrive(&mut self, now: Instant, request: Request) -> Ticket {
        self.enter(now, request, None)
    }

    /// A request arrives over the connection `turn`, which carries one after the other. `None`: it passes the
    /// shadow by, because the last one would still be under way.
    pub fn arrive_in_turn(&mut self, now: Instant, request: Request, turn: u64) -> Option<Ticket> {
        self.advance(now);
        let is_behind = self.behind.contains_key(&turn);
        (!is_behind).then(|| self.enter(now, request, Some(turn)))
    }

    fn enter(&mut self, now: Instant, request: Request, turn: Option<u64>) -> Ticket {
        self.advance(now);
        let request = Request { pool: PoolId::default(), connection: Connection::Needed, ..request };
        let ticket = self.gate.arrive(now, request);
        let life = Life {
            arrived: now,
            dispatched: None,
            steps: Vec::new(),
            step_count: 0,
            is_idle: false,
            turn,
            has_ended: false,
        };
        self.requests.insert(ticket, life);
        self.act(now);
        ticket
    }

    /// A client has connected.
    pub(crate) fn connect(&mut self) -> ClientId {
        self.gate.connect()
    }

    /// A client has left.
    pub(crate) fn disconnect(&mut self, now: Instant, client: ClientId) {
        self.advance(now);
        self.gate.disconnect(now, client);
        self.act(now);
    }

    /// A request is really idle in its transaction.
    pub fn idle(&mut self, now: Instant, ticket: Ticket) {
        // The last two places are kept for the end of this pause and the end of the request.
        let is_new = |life: &&mut Life| !life.is_idle && life.step_count + 2 < STEPS_MAX;
        if let Some(life) = self.requests.get_mut(&ticket).filter(is_new) {
            life.is_idle = true;
            self.step(now, ticket, Step::Idle);
        }
    }

    /// A request's next statement really goes upstream.
    pub fn resume(&mut self, now: Instant, ticket: Ticket) {
        if let Some(life) = self.requests.get_mut(&ticket).filter(|life| life.is_idle) {
            life.is_idle = false;
            self.step(now, ticket, Step::Resume);
        }
    }

    /// A request has really ended. Call this exactly once.
    pub fn finished(&mut self, now: Instant, ticket: Ticket, completion: Completion) {
        self.advance(now);
        match self.requests.get_mut(&ticket) {
            None => {}
            Some(life) if life.dispatched.is_none() && completion.outcome == Outcome::Canceled => {
                self.forget(ticket);
                self.gate.cancel(now, ticket);
                self.act(now);
            }
            Some(life) => {
                life.has_ended = true;
                if let Some(turn) = life.turn {
                    *self.behind.entry(turn).or_default() += 1;
                }
                self.step(now, ticket, Step::End(completion));
            }
        }
        self.refused.remove(&ticket);
    }

    /// The shadow holds a request no longer.
    fn forget(&mut self, ticket: Ticket) -> Option<Life> {
        let life = self.requests.remove(&ticket)?;
        if let Some(turn) = life.turn.filter(|_| life.has_ended)
            && let Some(count) = self.behind.get_mut(&turn)
        {
            *count -= 1;
            if *count == 0 {
                self.behind.remove(&turn);
            }
        }
        Some(life)
    }

    /// What would have become of a request that still really runs.
    pub fn foresee(&mut self, now: Instant, ticket: Ticket) -> Option<Foreseen> {
        self.advance(now);
        let of_life = |life: &Life| match life.dispatched {
            Some(dispatched) => Foreseen::Dispatched(dispatched.since(life.arrived)),
            None => Foreseen::Waiting(now.since(life.arrived)),
        };
        let refused = self.refused.get(&ticket).map(|reason| Foreseen::Rejected(*reason));
        self.requests.get(&ticket).map(of_life).or(refused)
    }

    /// Replaces the policy.
    pub fn set_policy(&mut self, now: Instant, policy: Policy) {
        self.advance(now);
        self.gate.set_policy(now, policy);
        self.act(now);
    }

    /// Takes over what another gate had learned.
    pub fn recall(&mut self, now: Instant, learned: &Learned) {
        self.advance(now);
        self.gate.recall(now, learned);
        self.act(now);
    }

    /// The gate that says what would be.
    pub(crate) fn gate(&self) -> &Gate {
        &self.gate
    }

    /// When [`Shadow::handle_timeout`] has something to do, if nothing else happens before.
    pub fn next_timeout(&self) -> Option<Instant> {
        let step = self.due.keys().next().map(|(instant, _)| *instant);
        match (step, self.gate.next_timeout()) {
            (Some(step), Some(gate)) => Some(step.min(gate)),
            (step, gate) => step.or(gate),
        }
    }

    /// Does what is due.
    pub fn handle_timeout(&mut self, now: Instant) {
        self.advance(now);
    }

    /// What happened in the shadow; drain it after every call.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.gate.poll_event()
    }

    /// Records a real event of a request. In the shadow it happens as long after the dispatch there.
    fn step(&mut self, now: Instant, ticket: Ticket, step: Step) {
        self.advance(now);
        // The shadow may just have refused it.
        let Some(life) = self.requests.get_mut(&ticket) else { return };
        let offset = now.since(life.arrived);
        life.step_count += 1;
        match life.dispatched {
            None => life.steps.push((offset, step)),
            Some(dispatched) => self.schedule(dispatched.after(offset), ticket, step),
        }
        self.advance(now);
    }

    fn schedule(&mut self, at: Instant, ticket: Ticket, step: Step) {
        self.due.insert((at, self.next_number), (ticket, step));
        self.next_number += 1;
    }

    /// Does all that is due until `now`, each at its own instant; of the same instant, the gate's timeouts
    /// first. (The gate promises that a timeout it has handled is not due any more.)
    fn advance(&mut self, now: Instant) {
        loop {
            let step_at = self.due.keys().next().map_or(NEVER, |(at, _)| *at);
            let timeout_at = self.gate.next_timeout().unwrap_or(NEVER);
            if step_at.min(timeout_at) > now || step_at.min(timeout_at) == NEVER {
                return;
            }
            if timeout_at <= step_at {
                self.gate.handle_timeout(timeout_at);
                self.act(timeout_at);
            } else if let Some(((at, _), (ticket, step))) = self.due.pop_first() {
                self.take_step(at, ticket, step);
            }
        }
    }

    fn take_step(&mut self, at: Instant, ticket: Ticket, step: Step) {
        match step {
            Step::Idle => self.gate.idle(at, ticket),
            Step::Resume => self.gate.resume(at, ticket),
            Step::End(completion) => {
                self.forget(ticket);
                self.gate.complete(at, ticket, completion);
            }
        }
        self.act(at);
    }

    /// Follows the gate's decisions, made at `now`.
    fn act(&mut self, now: Instant) {
        while let Some(action) = self.gate.poll() {
            match action {
                Action::Dispatch(ticket) => self.dispatch(now, ticket),
                Action::Reject(ticket, Refused { reason, .. }) => {
                    if self.forget(ticket).is_some_and(|life| !life.has_ended) {
                        self.refused.insert(ticket, reason);
                    }
                }
            }
        }
    }

    fn dispatch(&mut self, now: Instant, ticket: Ticket) {
        let Some(life) = self.requests.get_mut(&ticket) else { return };
        life.dispatched = Some(now);
        for (offset, step) in std::mem::take(&mut life.steps) {
            self.schedule(now.after(offset), ticket, step);
        }
    }
}

#[cfg(test)]
mod tests;
