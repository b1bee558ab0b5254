//! The gate: the only thing that changes.
use crate::{Action, Completion, Event, Instant, Pin, Policy, PoolId, Reason, Request, Ticket};

/// The admission state of one protected service.
#[derive(Debug)]
pub struct Gate {}

#[allow(unused_variables, clippy::todo, missing_docs)]
impl Gate {
    pub fn new(policy: Policy, now: Instant, seed: u64) -> Self { todo!() }
    pub fn arrive(&mut self, now: Instant, request: Request) -> Ticket { todo!() }
    /// The service has answered, the transaction is open, the client thinks. After `suspend_after` the gate suspends.
    pub fn idle(&mut self, now: Instant, ticket: Ticket) { todo!() }
    /// The client's next statement: charged again (if suspended), never queued.
    pub fn resume(&mut self, now: Instant, ticket: Ticket) { todo!() }
    /// From idle to suspended at once.
    pub fn suspend(&mut self, now: Instant, ticket: Ticket) { todo!() }
    pub fn complete(&mut self, now: Instant, ticket: Ticket, completion: Completion) { todo!() }
    pub fn cancel(&mut self, now: Instant, ticket: Ticket) { todo!() }
    /// The session of this in-flight ticket keeps its connection beyond completion.
    pub fn pin(&mut self, now: Instant, ticket: Ticket) -> Result<Pin, Reason> { todo!() }
    pub fn unpin(&mut self, now: Instant, pin: Pin) { todo!() }
    /// So many connections of this pool exist (idle or in use).
    pub fn set_pool(&mut self, now: Instant, pool: PoolId, connections: u32) { todo!() }
    pub fn set_policy(&mut self, now: Instant, policy: Policy) { todo!() }
    pub fn handle_timeout(&mut self, now: Instant) { todo!() }
    pub fn next_timeout(&self) -> Option<Instant> { todo!() }
    pub fn poll(&mut self) -> Option<Action> { todo!() }
    pub fn snapshot(&self) -> crate::Snapshot { todo!() }
    pub fn poll_event(&mut self) -> Option<Event> { todo!() }
}
