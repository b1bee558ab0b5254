//! The records of all requests that wait or are in flight, and the lists that they are in.
//!
//! A slab: a ticket names its slot and carries a number that is never used twice, so that a ticket that has
//! ended finds nothing. Each record has two pairs of links: one for the list of those of its class that
//! wait (in order of arrival), one for its type's list (those that wait, or those in
//! flight; never both).

use alloc::vec::Vec;

use crate::ledger::Meter;
use crate::order::Class;
use crate::request::{Connection, Request, Ticket};
use crate::tenants::Queue;
use crate::time::Instant;

const NONE: u32 = u32::MAX;

/// Where a request stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// It waits in this line.
    Waiting(Line),
    /// It was dispatched.
    InFlight,
}

/// A line of waiting requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Line {
    /// Not in a line yet.
    Nowhere,
    /// Before everything else: it may not wait, and there is no connection for it.
    Immediate,
    /// The line of the shorts (without a long lane: of all).
    Short,
    /// The line of the longs.
    Long,
    /// It waits for room in the group in this place; it has had its turn in the line of the shorts.
    Aside(u8),
    /// It waits for room in the group in this place, and in the long lane. It has had its turn in the line of
    /// the longs.
    AsideLong(u8),
    /// It waits in its tenant's shard for the turn to join the lines of its class.
    Shard,
    /// It waits behind the one request of its type that is to find the cost of the type.
    Type,
}

/// How a request in flight counts against the limits of the lanes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Seat {
    /// It passes freely.
    Free,
    /// It leaves the last connections to others: nobody knows its type, or what it takes, or it is long and
    /// suspended.
    Sparing,
    /// It is long, and has a seat in the long lane.
    Long,
}

/// How a request in flight holds its connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Hold {
    /// For a short time, or its session held it before.
    Light,
    /// For long: it is counted among those that do.
    Heavy,
    /// Its session keeps it beyond the end.
    Pinned,
}

/// What the client of a request in flight does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Client {
    /// It waits for an answer.
    Waits,
    /// It has thought since this instant.
    Thinks(Instant),
    /// It has thought since this instant, and the gate has given the request's work back.
    Suspended(Instant),
}

/// What a request may teach of its type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Evidence {
    /// Whatever it takes.
    Unbounded,
    /// What it takes, within a bound: its work was estimated from enough samples.
    Bounded,
    /// Nothing: it was in flight in a stall of the service, or ends for the gate before its end.
    Void,
}

/// One request.
#[derive(Clone, Debug)]
pub(crate) struct Record {
    pub(crate) sequence: u64,
    pub(crate) request: Request,
    /// Its type's place in the table.
    pub(crate) kind: u32,
    /// Its class's place.
    pub(crate) class: u8,
    /// Where it waits among tenants, or would: if it has one.
    pub(crate) queue: Queue,
    pub(crate) place: Place,
    /// The line in which it waits or waited last, or through which it went without waiting.
    pub(crate) line: Line,
    pub(crate) meter: Meter,
    pub(crate) arrived: Instant,
    pub(crate) dispatched: Instant,
    /// When the age of a busy request is looked at next. Over: it has outlived the long cutoff.
    pub(crate) age_alarm: Alarm,
    /// When it will be late. Over: the rule for refusing has counted it, or need not.
    pub(crate) late_at: Alarm,
    pub(crate) client: Client,
    /// The number of the lap that the pace has begun for it while it is in flight.
    pub(crate) lap: Option<u32>,
    /// The amount of dispatched short work at which it goes first, if it is long.
    pub(crate) patience: u64,
    pub(crate) seat: Seat,
    pub(crate) hold: Hold,
    pub(crate) evidence: Evidence,
    /// Its client has left while it was in flight.
    pub(crate) canceled: bool,
    /// Its client mixes (`clients.rs`).
    pub(crate) mixes: bool,
    /// It waits behind newcomers: others that had waited for as long left in service.
    pub(crate) stepped_back: bool,
    /// The place of the group that it is counted in, while it is in flight.
    pub(crate) group: Option<u8>,
    /// By which the clocks know it while it is in flight, if they run.
    pub(crate) flight: Option<u32>,
    links: [Link; 2],
}

impl Record {
    /// Whether it has a connection to give back when it ends.
    pub(crate) fn owns_connection(&self) -> bool {
        self.request.connection == Connection::Needed && self.hold != Hold::Pinned
    }

    /// Whether its client thinks, and its work is given back.
    pub(crate) fn is_suspended(&self) -> bool {
        matches!(self.client, Client::Suspended(_))
    }
}

/// When something about a request is to be done: at an instant, never, or no more because it is over. It is
/// half as large as an enumeration of the three. The end of time is never.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Alarm(u64);

impl Alarm {
    /// Never.
    pub(crate) const NONE: Self = Self(u64::MAX);
    /// It has been done, or doesn't matter any more.
    pub(crate) const OVER: Self = Self(u64::MAX - 1);

    /// At this instant.
    pub(crate) fn at(at: Instant) -> Self {
        if at.as_nanos() < Self::OVER.0 { Self(at.as_nanos()) } else { Self::NONE }
    }

    /// When it goes off.
    pub(crate) fn get(self) -> Option<Instant> {
        (self.0 < Self::OVER.0).then_some(Instant::from_nanos(self.0))
    }

    /// When it would have gone off: it doesn't any more.
    pub(crate) fn take(&mut self) -> Option<Instant> {
        let at = self.get()?;
        *self = Self::NONE;
        Some(at)
    }
}

#[derive(Clone, Copy, Debug)]
struct Link {
    before: u32,
    after: u32,
}

/// Which pair of links a list goes through.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Through {
    /// Those of one class that wait.
    Arrival,
    /// Those of one type.
    Type,
}

/// A list of records.
#[derive(Clone, Copy, Debug)]
pub(crate) struct List {
    through: Through,
    first: u32,
    last: u32,
    len: u32,
}

impl List {
    /// An empty list.
    pub(crate) const fn new(through: Through) -> Self {
        Self { through, first: NONE, last: NONE, len: 0 }
    }

    /// Its first record.
    pub(crate) fn first(&self) -> Option<u32> {
        (self.first != NONE).then_some(self.first)
    }

    /// Its last record.
    pub(crate) fn last(&self) -> Option<u32> {
        (self.last != NONE).then_some(self.last)
    }

    /// How many are in it.
    pub(crate) fn len(&self) -> u32 {
        self.len
    }

    /// Whether it is empty.
    pub(crate) fn is_empty(&self) -> bool {
        self.len == 0
    }
}

/// All records.
#[derive(Debug, Default)]
pub(crate) struct Tickets {
    records: Vec<Option<Record>>,
    free: Vec<u32>,
    arrivals: u64,
}

impl Tickets {
    /// A record for a request that has just arrived.
    pub(crate) fn insert(
        &mut self,
        now: Instant,
        request: Request,
        (kind, class): (u32, u8),
        meter: Meter,
    ) -> u32 {
        let record = Record {
            sequence: self.arrivals,
            request,
            kind,
            class,
            queue: Queue { shard: 0, is_long: false, class: Class::NONE },
            place: Place::Waiting(Line::Nowhere),
            line: Line::Nowhere,
            meter,
            arrived: now,
            dispatched: now,
            age_alarm: Alarm::NONE,
            late_at: Alarm::NONE,
            client: Client::Waits,
            lap: None,
            patience: u64::MAX,
            seat: Seat::Free,
            hold: Hold::Light,
            evidence: Evidence::Unbounded,
            canceled: false,
            mixes: false,
            stepped_back: false,
            group: None,
            flight: None,
            links: [Link { before: NONE, after: NONE }; 2],
        };
        self.arrivals += 1;
        if let Some(slot) = self.free.pop() {
            self.records[slot as usize] = Some(record);
            return slot;
        }
        self.records.push(Some(record));
        (self.records.len() - 1) as u32
    }

    /// Its request has ended.
    pub(crate) fn remove(&mut self, slot: u32) -> Option<Record> {
        let record = self.records[slot as usize].take();
        if record.is_some() {
            self.free.push(slot);
        }
        record
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.records.len() - self.free.len()
    }

    /// The slots of all records.
    pub(crate) fn slots(&self) -> Vec<u32> {
        (0..self.records.len() as u32).filter(|&slot| self.records[slot as usize].is_some()).collect()
    }

    /// The slot of a ticket that has not ended.
    pub(crate) fn find(&self, ticket: Ticket) -> Option<u32> {
        let record = self.records.get(ticket.slot as usize)?.as_ref()?;
        (record.sequence == ticket.sequence).then_some(ticket.slot)
    }

    /// The ticket of a record.
    pub(crate) fn ticket(&self, slot: u32) -> Ticket {
        Ticket { sequence: self.at(slot).sequence, slot }
    }

    /// How many have arrived: the number of the next one.
    pub(crate) fn arrivals(&self) -> u64 {
        self.arrivals
    }

    /// The record in a slot that is known to be taken.
    pub(crate) fn at(&self, slot: u32) -> &Record {
        self.records[slot as usize]
            .as_ref()
            .expect("lines, lists and timers let go of a record before it ends")
    }

    /// The mutable record in this slot.
    pub(crate) fn at_mut(&mut self, slot: u32) -> &mut Record {
        self.records[slot as usize]
            .as_mut()
            .expect("lines, lists and timers let go of a record before it ends")
    }

    /// Adds a record at the end of a list.
    pub(crate) fn append(&mut self, list: &mut List, slot: u32) {
        let which = list.through as usize;
        self.at_mut(slot).links[which] = Link { before: list.last, after: NONE };
        if list.last == NONE {
            list.first = slot;
        } else {
            let last = list.last;
            self.at_mut(last).links[which].after = slot;
        }
        list.last = slot;
        list.len += 1;
    }

    /// Takes a record out of a list that it is in.
    pub(crate) fn unlink(&mut self, list: &mut List, slot: u32) {
        let which = list.through as usize;
        let Link { before, after } = self.at(slot).links[which];
        if before == NONE {
            list.first = after;
        } else {
            self.at_mut(before).links[which].after = after;
        }
        if after == NONE {
            list.last = before;
        } else {
            self.at_mut(after).links[which].before = before;
        }
        list.len -= 1;
    }

    /// The record after this one in a list.
    pub(crate) fn after(&self, list: &List, slot: u32) -> Option<u32> {
        let after = self.at(slot).links[list.through as usize].after;
        (after != NONE).then_some(after)
    }

    /// The record before this one in a list.
    pub(crate) fn before(&self, list: &List, slot: u32) -> Option<u32> {
        let before = self.at(slot).links[list.through as usize].before;
        (before != NONE).then_some(before)
    }

    /// The slots of a list, in its order.
    pub(crate) fn walk(&self, list: &List) -> impl Iterator<Item = u32> + '_ {
        let list = *list;
        core::iter::successors(list.first(), move |&slot| self.after(&list, slot))
    }

    /// All slots of a list, in its order.
    pub(crate) fn all(&self, list: &List) -> Vec<u32> {
        self.walk(list).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_alarm_is_taken_once_and_the_end_of_time_is_never() {
        let mut alarm = Alarm::at(Instant::from_nanos(7));
        assert_eq!((alarm.get(), alarm.take()), (Some(Instant::from_nanos(7)), Some(Instant::from_nanos(7))));
        assert_eq!((alarm, alarm.take()), (Alarm::NONE, None));
        assert_eq!(Alarm::at(Instant::ZERO).get(), Some(Instant::ZERO));
        assert_eq!(Alarm::at(Instant::ZERO.after(std::time::Duration::MAX)).get(), None);
        let mut over = Alarm::OVER;
        assert_eq!((over.take(), over), (None, Alarm::OVER), "what is over stays so");
    }

    #[test]
    fn a_record_is_small() {
        assert!(size_of::<Option<Record>>() <= 200, "{}", size_of::<Option<Record>>());
    }
}
