//! The gate: the only thing that changes.
//!
//! The shell tells it what happens and when; after every call it drains [`Gate::poll`] for what to do and
//! [`Gate::poll_event`] for what to report. Between two calls nothing that could start waits: every change
//! ends by dispatching whatever may start now (`gate/dispatch.rs`). A request waits in one of these lines:
//!
//! | line | who | order |
//! |---|---|---|
//! | immediate | may not be made to wait, but there is no connection | arrival |
//! | its class's short | all but the following; of an unknown type only the first | the policy's |
//! | its class's long | types of much work, if there is a long lane (`lanes.rs`) | the policy's |
//! | its tenant's shard | a request with a tenant, until its turn (`gate/classes.rs`) | arrival |
//! | its type's | the others of a type not yet known | arrival |
//! | its group's, by class | who had their turn while their group was full (`contention.rs`) | the policy's |
//!
//! After a stall of the service, a class's lines are those of newcomers. Requests that waited before have
//! equal lines, which come after them (`gate/stalls.rs`). So do requests that have waited until their
//! clients would leave in service (`gate/leavers.rs`).
//!
//! `gate/timers.rs` has what happens by the clock alone, `gate/types.rs` what happens when a type changes
//! its lane. `gate/lateness.rs` finds requests that are late while present, `gate/classes.rs` the class whose
//! turn it is, `gate/hoard.rs` the pools whose short requests make way for long ones. `gate/contention.rs`
//! treats groups of types that contend with one another.

mod classes;
mod contention;
mod dispatch;
mod hoard;
mod lateness;
mod leavers;
mod stalls;
mod timers;
mod types;
mod watch;

use alloc::collections::{BTreeSet, VecDeque};

use crate::action::{Action, Reason, Refused};
use crate::capacity::Room;
use crate::classes::Classes;
use crate::clients::Clients;
use crate::connections::Connections;
use crate::contention::Contention;
use crate::event::Event;
use crate::goals::Adapter;
use crate::lanes::Lanes;
use crate::leavers::Leavers;
use crate::ledger::{Ledger, Meter};
use crate::order::Sequence;
use crate::pace::Pace;
use crate::policy::{AfterStall, Cost, Policy};
use crate::rejection::deadline::Deadlines;
use crate::rejection::{Asked, Place as RoomFor, Reach, Refusal, TooMany};
use crate::request::{Completion, Entry, Outcome, Pin, PoolId, Request, RequestType, Ticket};
use crate::stalls::Stalls;
use crate::tickets::{Alarm, Client, Evidence, Hold, Line, Place, Seat, Tickets};
use crate::time::{Duration, Instant};
use crate::types::Types;
use classes::Settled;

/// The most events kept for a shell that doesn't drain them; beyond it the oldest are lost, and counted.
pub const EVENTS_MAX: usize = 65_536;

/// The most immediate requests that wait for a connection. They aren't counted in `queue_max`: a full queue
/// must not refuse the `COMMIT` that it waits for. Beyond this a shell has lost count.
const IMMEDIATE_MAX: usize = 65_536;

/// The admission state of one protected service.
#[derive(Debug)]
pub struct Gate {
    policy: Policy,
    /// The latest instant that the shell has told; time doesn't go back.
    now: Instant,
    tickets: Tickets,
    types: Types,
    ledger: Ledger,
    pace: Pace,
    room: Room,
    connections: Connections,
    lanes: Lanes,
    refusal: Refusal,
    contention: Contention,
    clients: Clients,
    /// Short requests make way for long ones until then.
    way_until: Instant,
    /// The last short that went beyond the number found, since longs filled it.
    beside_longs: Option<Ticket>,
    stalls: Stalls,
    leavers: Leavers,
    /// The clients that leave during requests of the long lane.
    long_leavers: Leavers,
    /// Waiting requests with a smaller arrival number go behind newcomers.
    late_before: u64,
    immediate: Sequence,
    /// All other lines, but those of types and groups.
    classes: Classes,
    /// Adapts their weights, if any has a goal.
    adapter: Option<Adapter>,
    deadlines: Deadlines,
    /// When a busy request will have used its expected work.
    overdue: BTreeSet<(Instant, u32)>,
    /// When the age of a busy request of a known type is checked.
    ages: BTreeSet<(Instant, u32)>,
    /// When the age of a busy request of an unknown type is checked. Other requests may wait for its result.
    scouts: BTreeSet<(Instant, u32)>,
    /// When a request that is present will be late.
    to_be_late: BTreeSet<(Instant, u32)>,
    /// Since when clients of requests in flight think.
    idle: BTreeSet<(Instant, u32)>,
    /// Since when clients of suspended requests think.
    suspended: BTreeSet<(Instant, u32)>,
    /// Requests in flight whose clients have left.
    left: usize,
    actions: VecDeque<Action>,
    events: VecDeque<Event>,
    events_lost: u64,
}

impl Gate {
    /// A gate where nothing has happened. No pool has a connection yet: tell with [`Gate::set_pool`].
    /// `seed` is the only source of chance, which some rules for refusing need.
    pub fn new(policy: Policy, now: Instant, seed: u64) -> Self {
        let budget = policy.connections.max(1);
        let classes = Classes::new(&policy.classes);
        let promised = classes.promised();
        Self {
            adapter: promised.map(|promised| Adapter::new(now, policy.adaptation, &promised)),
            now,
            tickets: Tickets::default(),
            types: Types::new(policy.types_max, policy.cost),
            ledger: Ledger::default(),
            pace: Pace::new(now, policy.cost == Cost::Steady),
            room: Room::new(policy.capacity, budget),
            connections: Connections::new(budget),
            lanes: Lanes::new(policy.long_limit, budget),
            refusal: Refusal::new(policy.rejection.clone(), now, seed),
            contention: Contention::new(policy.contention.clone(), now),
            clients: Clients::default(),
            way_until: Instant::ZERO,
            beside_longs: None,
            stalls: Stalls::new(policy.after_stall == AfterStall::NewcomersFirst),
            leavers: Leavers::new(),
            long_leavers: Leavers::of_longs(),
            late_before: 0,
            immediate: Sequence::new(),
            classes,
            deadlines: Deadlines::default(),
            overdue: BTreeSet::new(),
            ages: BTreeSet::new(),
            scouts: BTreeSet::new(),
            to_be_late: BTreeSet::new(),
            idle: BTreeSet::new(),
            suspended: BTreeSet::new(),
            left: 0,
            actions: VecDeque::new(),
            events: VecDeque::new(),
            events_lost: 0,
            policy,
        }
    }

    /// A request arrives: it is dispatched, waits, or is refused, as [`Gate::poll`] says.
    pub fn arrive(&mut self, now: Instant, request: Request) -> Ticket {
        let now = self.advance(now);
        let (kind, forgotten) = self.types.find(request.request_type, now);
        self.report_forgotten(forgotten);
        self.join_given(kind);
        // What is in flight may have made its type long, or the mean may have moved: seats may be free.
        if self.relane(kind) {
            self.dispatch(now);
        }
        let work = self.expected(kind);
        let slot =
            self.tickets.insert(now, request, (kind, self.classes.find(request.class)), Meter::new(work));
        if self.types.at(kind).estimate.is_settled() {
            self.tickets.at_mut(slot).evidence = Evidence::Bounded;
        }
        self.note_sender(slot);
        self.deal(slot);
        let ticket = self.tickets.ticket(slot);
        match request.entry {
            Entry::Immediate => self.admit_at_once(now, slot),
            Entry::Queued => self.admit(now, slot),
        }
        self.watch_age(ticket);
        self.dispatch(now);
        ticket
    }

    fn admit_at_once(&mut self, now: Instant, slot: u32) {
        if self.connections.has_one_for(&self.tickets.at(slot).request) {
            self.start(now, slot);
        } else if self.immediate.len() >= IMMEDIATE_MAX {
            self.reject(now, slot, Reason::QueueFull);
        } else {
            self.wait(slot, Line::Immediate);
        }
    }

    fn admit(&mut self, now: Instant, slot: u32) {
        if Deadlines::has_passed(now, self.tickets.at(slot).request.deadline) {
            return self.reject(now, slot, Reason::Deadline);
        }
        let it = self.asked(slot);
        let mut instead = None;
        // The wait of a background class is no sign of too many, and refusing it shortens nobody's.
        let too_many =
            if self.is_background(slot) { None } else { self.refusal.arrive(now, it, self.present()) };
        if let Some(Reach { of, is_out }) = self.refusal.reach(it.request_type) {
            self.report(Event::TargetReach { of, is_out, places: self.places() });
        }
        if let Some(too_many) = too_many {
            match self.settle(slot, too_many, Reason::Target) {
                Settled::Refused(reason) => return self.reject(now, slot, reason),
                Settled::Replaces(other) => instead = Some(other),
                Settled::Spared => {}
            }
        }
        let line = self.line_of(slot);
        self.tickets.at_mut(slot).line = line;
        if self.is_free_for(slot, line) {
            self.classes.come(self.tickets.at(slot).class);
            self.charge_tenant(slot);
            self.start(now, slot);
        } else {
            let is_full = instead.is_none() && self.queued() >= self.policy.queue_max;
            if is_full && let Some(late) = self.first_late(slot) {
                self.reject(now, late, Reason::QueueFull);
            } else if is_full {
                match self.settle(slot, TooMany::OfAll, Reason::QueueFull) {
                    Settled::Refused(reason) => return self.reject(now, slot, reason),
                    Settled::Replaces(other) => instead = Some(other),
                    Settled::Spared => return self.reject(now, slot, Reason::QueueFull),
                }
            }
            if self.is_hopeless(now, slot, line) {
                return self.reject(now, slot, Reason::DeadlineUnreachable);
            }
            self.wait(slot, line);
        }
        if let Some(other) = instead {
            self.reject(now, other, Reason::OverShare);
        }
    }

    /// What the rule for refusing is told of it.
    fn asked(&self, slot: u32) -> Asked {
        let record = self.tickets.at(slot);
        let (request_type, work) = (record.request.request_type, record.meter.work);
        let takes = work.as_nanos() as f64 / 1e9;
        let adds = if self.policy.order.is_fifo() {
            // A short request waits for all that are present.
            f64::INFINITY
        } else {
            takes * (1.0 + f64::from(self.present()) / f64::from(self.places()))
        };
        let place = match self.present() {
            present if present < self.places() => RoomFor::Own,
            present if present < self.enough() => RoomFor::Shared,
            _ => RoomFor::Taken,
        };
        Asked { request_type, work, place, adds, judged: record.late_at == Alarm::OVER }
    }

    /// Whether a newcomer to this line can't make its deadline.
    fn is_hopeless(&self, now: Instant, slot: u32, line: Line) -> bool {
        let record = self.tickets.at(slot);
        let Some(deadline) = record.request.deadline else {
            return false;
        };
        let lines = &self.classes.at(record.class).lines;
        let ahead = match line {
            Line::Short if self.policy.order.is_fifo() => lines.short.len(),
            Line::Long if self.policy.order.is_fifo() => lines.long.len(),
            _ => self.types.at(record.kind).waiting.len() as usize,
        };
        let own = Duration::from_nanos(record.meter.work.as_nanos());
        self.refusal.is_hopeless(now, deadline, self.classes.ahead(record.class, ahead), own)
    }

    /// The service has answered, the transaction is open, the client thinks. After `suspend_after` the gate
    /// suspends.
    pub fn idle(&mut self, now: Instant, ticket: Ticket) {
        let now = self.advance(now);
        if let Some(slot) = self.in_flight(ticket).filter(|&slot| self.tickets.at(slot).meter.is_busy()) {
            self.has_answered(now);
            self.pause(slot);
            self.set_client(slot, Client::Thinks(now));
            self.send_scout(self.tickets.at(slot).kind);
            self.dispatch(now);
        }
    }

    /// The client's next statement: charged again (if suspended), never queued.
    pub fn resume(&mut self, now: Instant, ticket: Ticket) {
        let now = self.advance(now);
        let Some(slot) = self.in_flight(ticket).filter(|&slot| !self.tickets.at(slot).meter.is_busy()) else {
            return;
        };
        let was_suspended = self.tickets.at(slot).is_suspended();
        self.run(slot);
        self.set_client(slot, Client::Waits);
        if was_suspended {
            self.join_group(slot);
            self.reseat(slot);
            self.report(Event::Resumed { ticket });
        }
        self.dispatch(now);
    }

    /// From idle to suspended at once: its work is given back, its connection isn't.
    pub fn suspend(&mut self, now: Instant, ticket: Ticket) {
        let now = self.advance(now);
        if let Some(slot) = self.in_flight(ticket) {
            self.give_work_back(slot);
            self.dispatch(now);
        }
    }

    /// A dispatched request has ended. (One that still waits just leaves.)
    pub fn complete(&mut self, now: Instant, ticket: Ticket, completion: Completion) {
        let now = self.advance(now);
        let Some(slot) = self.in_flight(ticket) else {
            return self.cancel(now, ticket);
        };
        let in_flight = self.ledger.count();
        if completion.outcome != Outcome::Canceled {
            self.has_answered(now);
            if !self.tickets.at(slot).canceled {
                self.has_been_answered(now, slot, in_flight);
            }
        }
        self.learn_contention(now, slot, completion.upstream_time.into(), completion.outcome);
        self.land(slot);
        let took = self.teach(slot, &completion);
        let record = self.tickets.at(slot);
        self.classes.correct(record.class, record.meter.work, took);
        self.observe_class(slot, took, completion.upstream_time);
        self.show_controllers(now, slot, completion, in_flight);
        let record = self.tickets.at(slot);
        let (request_type, work) = (record.request.request_type, record.meter.work);
        let queue_wait = record.dispatched.since(record.arrived);
        let Completion { outcome, upstream_time } = completion;
        if outcome != Outcome::Canceled && !self.is_background(slot) {
            let it = self.asked(slot);
            self.refusal.complete(now, it, queue_wait.saturating_add(upstream_time));
        }
        self.report(Event::Completed { ticket, request_type, outcome, work, queue_wait, upstream_time });
        self.end(now, slot);
        self.dispatch(now);
        if self.ledger.busy_count() == 0 {
            self.stalls.rest();
        }
    }

    /// The client has left. A request that waits leaves the queue; one in flight is only marked: its load
    /// falls when it really ends, and it teaches nothing.
    pub fn cancel(&mut self, now: Instant, ticket: Ticket) {
        let now = self.advance(now);
        let Some(slot) = self.tickets.find(ticket) else {
            return;
        };
        let record = self.tickets.at_mut(slot);
        if record.place == Place::InFlight {
            let has_left_before = core::mem::replace(&mut record.canceled, true);
            self.watch_age_no_more(slot);
            self.tickets.at_mut(slot).late_at = Alarm::OVER;
            if !has_left_before {
                self.has_left_in_service(now, slot);
            }
            return;
        }
        let (request_type, queue_wait) = (record.request.request_type, now.since(record.arrived));
        self.report(Event::Left { ticket, request_type, queue_wait });
        self.leavers_mut(self.tickets.at(slot).line).left(queue_wait);
        self.stop_waiting(slot);
        self.end(now, slot);
        self.dispatch(now);
    }

    /// The session of this in-flight ticket keeps its connection beyond completion.
    ///
    /// # Errors
    /// [`Reason::PinnedMax`] if that many are pinned already, and for a ticket that has no connection of
    /// its own to keep (ended, waiting, held or pinned already). The ticket goes on in flight; no event is
    /// reported.
    pub fn pin(&mut self, now: Instant, ticket: Ticket) -> Result<Pin, Reason> {
        let now = self.advance(now);
        let slot = self.in_flight(ticket).ok_or(Reason::PinnedMax)?;
        let record = self.tickets.at(slot);
        let pool = record.request.pool;
        if !record.owns_connection() || self.connections.pinned() >= self.policy.pinned_max {
            return Err(Reason::PinnedMax);
        }
        self.connections.pin();
        self.hold(slot, Hold::Pinned);
        self.dispatch(now);
        Ok(Pin { pool, ticket })
    }

    /// The session gives its connection back, or lets its request in flight do so when it completes.
    pub fn unpin(&mut self, now: Instant, pin: Pin) {
        let now = self.advance(now);
        self.connections.unpin();
        if let Some(slot) = self.tickets.find(pin.ticket) {
            self.hold(slot, Hold::Light);
            self.reseat(slot);
        } else {
            self.connections.give_back(pin.pool);
        }
        self.dispatch(now);
    }

    /// Sets how many connections of this pool exist, idle or in use. A simulator without pools sets
    /// [`u32::MAX`] once.
    pub fn set_pool(&mut self, now: Instant, pool: PoolId, connections: u32) {
        let now = self.advance(now);
        self.connections.set_pool(pool, connections);
        self.dispatch(now);
    }

    /// Changes the policy. Waiting requests are lined up anew if the order or the lanes change, and their
    /// allowances start again. Requests in flight beyond a lower bound go on. Learned estimates stay.
    pub fn set_policy(&mut self, now: Instant, policy: Policy) {
        let now = self.advance(now);
        let budget = policy.connections.max(1);
        let lines_change = policy.order != self.policy.order
            || policy.without != self.policy.without
            || policy.long_limit.is_some() != self.policy.long_limit.is_some();
        self.connections.set_budget(budget);
        self.lanes.set_limit(policy.long_limit, budget);
        self.room.change(policy.capacity, budget);
        if self.refusal.change(policy.rejection.clone(), now) {
            self.tell_who_is_present(now);
        }
        if !self.contention.is(&policy.contention) {
            self.change_contention(now, &policy.contention);
        }
        self.change_classes(&policy.classes);
        self.change_goals(now, policy.adaptation);
        self.types.change(policy.types_max, policy.cost);
        self.stalls.set(policy.after_stall == AfterStall::NewcomersFirst);
        self.pace.set_progress(policy.cost == Cost::Steady);
        self.policy = policy;
        self.forget_surplus(now);
        if lines_change {
            self.line_up_anew();
        }
        self.advance(now);
        self.dispatch(now);
    }

    /// The instant of [`Gate::next_timeout`] has come.
    pub fn handle_timeout(&mut self, now: Instant) {
        self.advance(now);
    }

    /// When [`Gate::handle_timeout`] is to be called, unless something else happens before.
    pub fn next_timeout(&self) -> Option<Instant> {
        self.next_alarm()
    }

    /// The next thing to do. Drain after every call.
    pub fn poll(&mut self) -> Option<Action> {
        self.actions.pop_front()
    }

    /// The next thing to report.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// How many events were lost because nobody drained them (at most [`EVENTS_MAX`] are kept).
    pub fn events_lost(&self) -> u64 {
        self.events_lost
    }

    /// How many wait, or the service is busy with, but for those of background classes.
    fn present(&self) -> u32 {
        let busy = self.ledger.busy_count().saturating_sub(self.classes.background_busy());
        self.classes.waiting_by_right().saturating_add(busy)
    }

    /// Whether it is of a background class.
    fn is_background(&self, slot: u32) -> bool {
        self.classes.at(self.tickets.at(slot).class).is_background()
    }

    /// How many wait that may be made to wait.
    fn queued(&self) -> usize {
        self.classes.waiting() as usize - self.immediate.len()
    }

    fn in_flight(&self, ticket: Ticket) -> Option<u32> {
        self.tickets.find(ticket).filter(|&slot| self.tickets.at(slot).place == Place::InFlight)
    }

    /// A request is refused; its ticket has ended.
    fn reject(&mut self, now: Instant, slot: u32, reason: Reason) {
        let ticket = self.tickets.ticket(slot);
        let (record, obstacle) = (self.tickets.at(slot), self.obstacle_of(slot));
        let (request_type, queue_wait) = (record.request.request_type, now.since(record.arrived));
        let class = self.classes.id_of(record.class);
        self.report(Event::Rejected { ticket, request_type, class, reason, obstacle, queue_wait });
        self.classes.reject(self.tickets.at(slot).class, reason);
        if let (Reason::Target | Reason::OverShare, Some(found)) = (reason, self.room.found()) {
            found.control().refuse(now);
        }
        self.actions.push_back(Action::Reject(ticket, Refused { reason, obstacle }));
        if record_waits(self.tickets.at(slot).place) {
            self.stop_waiting(slot);
        }
        self.end(now, slot);
    }

    /// The record of a request that neither waits nor is in flight any more goes; its type may have to go on.
    fn end(&mut self, now: Instant, slot: u32) {
        self.watch_age_no_more(slot);
        let Some(record) = self.tickets.remove(slot) else {
            return;
        };
        self.left -= usize::from(record.canceled);
        self.relane(record.kind);
        self.send_scout(record.kind);
        self.types.rest(record.kind);
        self.forget_surplus(now);
    }

    /// Takes a request out of flight: its work, its connection, its seat.
    fn land(&mut self, slot: u32) {
        self.stop_clocks(slot);
        self.leave_group(slot);
        let record = self.tickets.at_mut(slot);
        self.ledger.off(self.pace.reading(), &mut record.meter);
        let (kind, pool) = (record.kind, record.request.pool);
        let gives_back = record.owns_connection();
        self.set_client(slot, Client::Waits);
        if self.tickets.at(slot).seat == Seat::Long {
            self.lanes.served(self.classes.has_longs());
        }
        self.take_seat(slot, Seat::Free);
        if gives_back {
            self.connections.give_back(pool);
        }
        self.classes.land(self.tickets.at(slot).class);
        let list = &mut self.types.at_mut(kind).in_flight;
        self.tickets.unlink(list, slot);
    }

    fn forget_surplus(&mut self, now: Instant) {
        while self.types.is_over() {
            let forgotten = self.types.forget(now);
            if forgotten.is_none() {
                return;
            }
            self.report_forgotten(forgotten);
        }
    }

    fn report_forgotten(&mut self, forgotten: Option<RequestType>) {
        if let Some(request_type) = forgotten {
            self.report(Event::TypeForgotten { request_type });
        }
    }

    fn report(&mut self, event: Event) {
        if self.events.len() >= EVENTS_MAX {
            self.events.pop_front();
            self.events_lost += 1;
        }
        self.events.push_back(event);
    }
}

/// Whether a request is in a line.
fn record_waits(place: Place) -> bool {
    matches!(place, Place::Waiting(line) if line != Line::Nowhere)
}
