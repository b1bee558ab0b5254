//! The records of all requests that wait or are in flight, and the lists that they are in.
//!
//! A slab: a ticket names its slot and carries a number that is never used twice, so that a ticket that has
//! ended finds nothing. Each record has two pairs of links: one for the list of those of its class that
//! wait (in order of arrival), one for its type's list (those that wait, or those in
//! flight; never both).

use alloc::vec::Vec;

use crate::ledger::Meter;
use crate::order::Class;
use crate::request::{Request, Ticket};
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
    /// Nobody knows its type yet.
    Fresh,
    /// It is long.
    Long,
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
    /// When the age of a busy request is looked at next.
    pub(crate) age_alarm: Alarm,
    /// When it will be late.
    pub(crate) late_at: Alarm,
    /// Since when the client thinks.
    pub(crate) idle_since: Alarm,
    /// The number of the lap that the pace has begun for it while it is in flight.
    pub(crate) lap: Option<u32>,
    /// The amount of dispatched short work at which it goes first, if it is long.
    pub(crate) patience: u64,
    /// It has a seat in the long lane.
    pub(crate) seated: bool,
    /// It is counted among the requests that hold a connection for long.
    pub(crate) heavy: bool,
    /// Its work was estimated from enough samples to bound what it may teach.
    pub(crate) settled: bool,
    /// It has been in flight for longer than the long cutoff.
    pub(crate) outlived: bool,
    /// The client thinks (suspended or not yet).
    pub(crate) thinking: bool,
    pub(crate) suspended: bool,
    pub(crate) canceled: bool,
    /// Its client mixes (`clients.rs`).
    pub(crate) mixes: bool,
    /// Whether it was late is told to the rule for refusing, or doesn't matter any more.
    pub(crate) judged: bool,
    /// It waits behind newcomers: others that had waited for as long left in service.
    pub(crate) stepped_back: bool,
    /// It was in flight in a stall of the service, and says nothing of its type.
    pub(crate) stalled: bool,
    /// It ends before its end, and says nothing of its type.
    pub(crate) cut_short: bool,
    pub(crate) pinned: bool,
    /// It is counted among those in flight of its type.
    pub(crate) flying: bool,
    /// The place of the group that it is counted in, while it is in flight.
    pub(crate) group: Option<u8>,
    /// By which the clocks know it while it is in flight, if they run.
    pub(crate) flight: Option<u32>,
    links: [Link; 2],
}

/// When something about a request is to be done, if it is: half as large as an option of an instant. The
/// end of time is never.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Alarm(u64);

impl Alarm {
    /// Never.
    pub(crate) const NONE: Self = Self(u64::MAX);

    /// At this instant.
    pub(crate) const fn at(at: Instant) -> Self {
        Self(at.as_nanos())
    }

    /// When it goes off.
    pub(crate) fn get(self) -> Option<Instant> {
        (self != Self::NONE).then_some(Instant::from_nanos(self.0))
    }

    /// When it would have gone off: it doesn't any more.
    pub(crate) fn take(&mut self) -> Option<Instant> {
        core::mem::replace(self, Self::NONE).get()
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
            idle_since: Alarm::NONE,
            lap: None,
            patience: u64::MAX,
            seated: false,
            heavy: false,
            settled: false,
            outlived: false,
            thinking: false,
            suspended: false,
            canceled: false,
            mixes: false,
            judged: false,
            stepped_back: false,
            stalled: false,
            cut_short: false,
            pinned: false,
            flying: false,
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
    }

    #[test]
    fn a_record_is_small() {
        assert!(size_of::<Option<Record>>() <= 200, "{}", size_of::<Option<Record>>());
    }
}
