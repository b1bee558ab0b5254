//! Whose bytes go next: the order in which the responses of a gate share one uplink.
//!
//! The shell opens a [`Stream`] for each response, offers the bytes that wait in it, and asks
//! [`Egress::next`] whose turn it is. One ordered set serves all orders; they differ in its key (*Web servers
//! under overload*, TOIT 2006, section 3):
//!
//! | order | key |
//! |---|---|
//! | fair | the turn: round robin with a quantum (one band) |
//! | SRPT | the remaining bytes ([`Priority`] among about as many), then the order of opening |
//! | bands | the band of the remaining bytes, then the turn |
//!
//! **Remaining bytes.** Of a response of known size they are known. Of another one they are its estimate
//! less what was sent, until the estimate is used up. From then on, and where nothing is known, what was
//! sent stands for what remains. That is least attained service. It is right for heavy tails, where a
//! response that has sent much has much left.
//!
//! **Aging.** `clock.rs` keeps a fair system beside the real one, driven by the bytes that were really sent.
//! A response is *overdue* when a fair share would have sent its size [`EgressPolicy::aging`] times over.
//! Overdue responses get every second turn, in the order in which they became overdue. A response whose guess
//! is used up is judged by twice the guess.
//!
//! **Rate.** With [`EgressPolicy::rate`] turns are paced so that the queue forms here and not in the kernel.
//! **Bounds.** Each call takes O(log n). There are at most `streams_max` streams. The scheduler counts
//! bytes and holds none. The shell offers only what a client takes, so a slow client costs no turn.

mod clock;
mod cutoffs;
mod finder;
mod priority;

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

use crate::cost::MovingAverage;
use crate::request::RequestType;
use crate::time::{Duration, Instant};
use clock::FairClock;
use cutoffs::Bands;

pub use finder::{KernelQueue, Known, Line, RateFinder, Reading};
pub use priority::{Delivery, Priority};

/// How far a pace may be caught up with, so that a timer's delay costs no rate.
const CATCH_UP: Duration = Duration::from_millis(2);

/// The mean size of a type is that of its last responses; this many.
const SIZES: u32 = 64;

/// How the responses share the uplink.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EgressOrder {
    /// Alike, in turn.
    Fair,
    /// The response with the fewest bytes remaining.
    ShortestRemaining,
    /// The lowest band of remaining bytes; alike within a band.
    Bands(Cutoffs),
}

/// Where one band ends and the next begins, in remaining bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cutoffs {
    /// These, ascending. At most [`Cutoffs::MAX`] are used.
    Fixed(Vec<u64>),
    /// Five bands, learned: half of the responses below the first cutoff, 0.75 % above the last.
    Learned,
}

impl Cutoffs {
    /// How many cutoffs there can be. The paper's kernel has sixteen bands.
    pub const MAX: usize = 15;

    /// The paper's cutoffs of its five bands: 1, 2, 5 and 50 KB.
    pub fn published() -> Self {
        Self::Fixed(cutoffs::PUBLISHED.to_vec())
    }
}

/// What governs an uplink.
#[derive(Clone, Debug, PartialEq)]
pub struct EgressPolicy {
    /// The order of service.
    pub order: EgressOrder,
    /// After how many times its fair service a response counts as overdue; `None`: never.
    pub aging: Option<f64>,
    /// Most bytes of one turn.
    pub quantum: u32,
    /// Bytes per second at which turns are given; `None`: as the shell asks.
    pub rate: Option<u64>,
    /// Most responses at once.
    pub streams_max: usize,
    /// Most request types whose sizes are learned.
    pub types_max: usize,
}

impl Default for EgressPolicy {
    fn default() -> Self {
        Self {
            order: EgressOrder::ShortestRemaining,
            aging: None,
            quantum: 16 * 1024,
            rate: None,
            streams_max: 65_536,
            types_max: 1_000,
        }
    }
}

/// What is known of a response's size when it begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Size {
    /// This many bytes.
    Known(u64),
    /// What responses of this type take.
    OfType(RequestType),
    /// Nothing.
    Unknown,
}

/// A response that shares the uplink. A number is never used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Stream(u64);

/// One turn: this response may write this many bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grant {
    /// Whose turn it is.
    pub stream: Stream,
    /// How many bytes it may write.
    pub bytes: u64,
}

/// How a response ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// All of it was sent; its size is learned.
    Whole,
    /// It broke off.
    Broken,
}

/// How a response stands in the fair system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Standing {
    /// It is served there since this point of the fair clock.
    Served(u128),
    /// It has nothing to send; it was served there for this long.
    Paused(u128),
    /// A fair share would have sent `guess` so many times over by this point.
    Overdue(u128),
}

#[derive(Clone, Copy, Debug)]
struct Record {
    size: Size,
    priority: Priority,
    /// The bytes that it is judged by: its size, or a guess.
    guess: u64,
    sent: u64,
    waiting: u64,
    /// Its place in the round robin: how many grants there were when it had its last, or became ready.
    place: u64,
    /// Its key in the set of those that are ready, if it is there.
    key: Option<Key>,
    standing: Standing,
}

impl Record {
    /// The bytes that remain, as far as they are known.
    fn remaining(&self) -> u64 {
        match self.size {
            Size::Known(size) => size.saturating_sub(self.sent),
            Size::OfType(_) if self.sent < self.guess => self.guess - self.sent,
            Size::OfType(_) | Size::Unknown => self.sent,
        }
    }

    fn is_ready(&self) -> bool {
        self.waiting > 0
    }
}

type Key = (u64, u64, u64, Stream);

/// What waits for its turn.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Backlog {
    /// Bytes that were offered and not granted.
    pub bytes: u64,
    /// Responses that have such bytes.
    pub responses: usize,
    /// Responses among them that a fair uplink would have sent by now.
    pub overdue: usize,
}

/// The scheduler of one uplink.
#[derive(Debug)]
pub struct Egress {
    policy: EgressPolicy,
    bands: Bands,
    /// The mean size of each type that was seen. A type beyond `types_max` isn't learned.
    sizes: BTreeMap<RequestType, MovingAverage>,
    streams: BTreeMap<Stream, Record>,
    ready: BTreeSet<Key>,
    /// Overdue and ready, by the point at which they became overdue.
    overdue: BTreeSet<(u128, Stream)>,
    clock: FairClock,
    opened: u64,
    grants: u64,
    /// All bytes that wait.
    waiting: u64,
    /// When the uplink has sent what was given.
    free: Instant,
    /// Whether the next turn belongs to an overdue response.
    owed: Owed,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Owed {
    Overdue,
    Order,
}

impl Egress {
    /// An uplink on which nothing is sent yet.
    pub fn new(policy: EgressPolicy) -> Self {
        let fixed = match &policy.order {
            EgressOrder::Bands(Cutoffs::Fixed(cutoffs)) => Some(&cutoffs[..]),
            EgressOrder::Bands(Cutoffs::Learned) => None,
            EgressOrder::Fair | EgressOrder::ShortestRemaining => Some(&[][..]),
        };
        let aging = policy.aging.filter(|aging| aging.is_finite()).map(|aging| aging.max(1.0));
        Self {
            bands: Bands::new(fixed),
            sizes: BTreeMap::new(),
            clock: FairClock::new(aging, policy.streams_max.saturating_mul(2)),
            policy: EgressPolicy { quantum: policy.quantum.max(1), ..policy },
            streams: BTreeMap::new(),
            ready: BTreeSet::new(),
            overdue: BTreeSet::new(),
            opened: 0,
            grants: 0,
            waiting: 0,
            free: Instant::ZERO,
            owed: Owed::Order,
        }
    }

    /// Begins a response; `None` if there are `streams_max` already. Its priority matters to
    /// [`EgressOrder::ShortestRemaining`] alone.
    pub fn open(&mut self, size: Size, priority: Priority) -> Option<Stream> {
        if self.streams.len() >= self.policy.streams_max {
            return None;
        }
        self.opened += 1;
        let stream = Stream(self.opened);
        let guess = match size {
            Size::Known(size) => {
                self.bands.observe(size);
                size
            }
            Size::OfType(kind) => self.sizes.get(&kind).map_or(0, MovingAverage::mean),
            Size::Unknown => 0,
        };
        let guess = if guess > 0 { guess } else { u64::from(self.policy.quantum) };
        let size = match size {
            Size::OfType(kind) if !self.sizes.contains_key(&kind) => Size::Unknown,
            size => size,
        };
        let record = Record {
            size,
            priority,
            guess,
            sent: 0,
            waiting: 0,
            place: 0,
            key: None,
            standing: Standing::Paused(0),
        };
        self.streams.insert(stream, record);
        Some(stream)
    }

    /// A response has these bytes more that wait to be sent.
    pub fn offer(&mut self, stream: Stream, bytes: u64) {
        self.change(stream, |record| record.waiting = record.waiting.saturating_add(bytes));
    }

    /// Whose turn it is, and for how many bytes. They count as sent.
    pub fn next(&mut self, now: Instant) -> Option<Grant> {
        if self.policy.rate.is_some() && self.free > now {
            return None;
        }
        let stream = self.choose()?;
        let record = self.streams.get(&stream)?;
        let bytes = record.waiting.min(u64::from(self.policy.quantum));
        self.grants += 1;
        self.send(stream, bytes);
        self.pace(now, bytes);
        Some(Grant { stream, bytes })
    }

    /// Gives turns of at most `quantum` bytes at this rate from now on; `None`: as the shell asks.
    pub fn set_pace(&mut self, rate: Option<u64>, quantum: u32) {
        (self.policy.rate, self.policy.quantum) = (rate, quantum.max(1));
    }

    /// The most bytes of one turn.
    pub fn turn(&self) -> u64 {
        self.policy.quantum.into()
    }

    /// The band of a response's remaining bytes, where the order has bands; band 0 goes first.
    pub fn band(&self, stream: Stream) -> u64 {
        self.streams.get(&stream).map_or(0, |record| self.bands.of(record.remaining()))
    }

    /// What waits for its turn.
    pub fn backlog(&self) -> Backlog {
        Backlog { bytes: self.waiting, responses: self.ready.len(), overdue: self.overdue.len() }
    }

    /// When to ask for the next turn, if one is due and nothing else happens before.
    pub fn next_timeout(&self) -> Option<Instant> {
        (!self.ready.is_empty()).then_some(self.free)
    }

    /// A response has ended.
    pub fn close(&mut self, stream: Stream, kind: Option<RequestType>, ending: Ending) {
        self.change(stream, |record| record.waiting = 0);
        let Some(record) = self.streams.remove(&stream) else { return };
        if ending == Ending::Broken {
            self.clock.forget(stream);
            return;
        }
        if let Some(kind) = kind
            && (self.sizes.len() < self.policy.types_max || self.sizes.contains_key(&kind))
        {
            self.sizes.entry(kind).or_insert_with(|| MovingAverage::new(SIZES)).learn(record.sent);
        }
        if !matches!(record.size, Size::Known(_)) {
            self.bands.observe(record.sent);
        }
    }

    fn choose(&mut self) -> Option<Stream> {
        let overdue = self.overdue.first().map(|&(_, stream)| stream);
        let first = self.ready.first().map(|&(_, _, _, stream)| stream)?;
        match (overdue, self.owed) {
            (Some(overdue), Owed::Overdue) => {
                self.owed = Owed::Order;
                Some(overdue)
            }
            _ => {
                self.owed = Owed::Overdue;
                Some(first)
            }
        }
    }

    fn send(&mut self, stream: Stream, bytes: u64) {
        // The fair system first: it has the response while that has something to send.
        if self.policy.aging.is_some() {
            self.clock.advance(bytes);
            while let Some((overdue, at)) = self.clock.next_overdue() {
                self.change(overdue, |record| record.standing = Standing::Overdue(at));
            }
        }
        let grants = self.grants;
        self.change(stream, |record| {
            record.place = grants;
            record.waiting = record.waiting.saturating_sub(bytes);
            record.sent = record.sent.saturating_add(bytes);
        });
    }

    fn pace(&mut self, now: Instant, bytes: u64) {
        let Some(rate) = self.policy.rate else { return };
        let nanos = u128::from(bytes) * 1_000_000_000 / u128::from(rate.max(1));
        let lasts = Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX));
        let earliest = Instant::from_nanos(now.as_nanos().saturating_sub(CATCH_UP.as_nanos() as u64));
        self.free = self.free.max(earliest).after(lasts);
    }

    /// Changes a response, and puts it where it belongs then.
    fn change(&mut self, stream: Stream, change: impl FnOnce(&mut Record)) {
        let Some(mut record) = self.streams.get(&stream).copied() else { return };
        self.take_out(stream, &mut record);
        let was_ready = record.is_ready();
        self.waiting -= record.waiting.min(self.waiting);
        change(&mut record);
        self.waiting = self.waiting.saturating_add(record.waiting);
        if !was_ready {
            record.place = self.grants;
        }
        if self.policy.aging.is_some() {
            self.stand(stream, &mut record);
        }
        self.put_in(stream, &mut record);
        self.streams.insert(stream, record);
    }

    fn take_out(&mut self, stream: Stream, record: &mut Record) {
        if let Some(key) = record.key.take() {
            self.ready.remove(&key);
        }
        if let Standing::Overdue(at) = record.standing {
            self.overdue.remove(&(at, stream));
        }
    }

    fn put_in(&mut self, stream: Stream, record: &mut Record) {
        if !record.is_ready() {
            return;
        }
        let remaining = record.remaining();
        let (first, second, third) = match self.policy.order {
            EgressOrder::ShortestRemaining => record.priority.rank(remaining, record.place),
            EgressOrder::Fair | EgressOrder::Bands(_) => (self.bands.of(remaining), record.place, 0),
        };
        let key = (first, second, third, stream);
        record.key = Some(key);
        self.ready.insert(key);
        if let Standing::Overdue(at) = record.standing {
            self.overdue.insert((at, stream));
        }
    }

    /// Lets the fair system serve those that have something to send, and judges those whose guess is used up
    /// anew.
    fn stand(&mut self, stream: Stream, record: &mut Record) {
        let known = matches!(record.size, Size::Known(_));
        if !known && record.sent >= record.guess {
            let served = match record.standing {
                Standing::Served(since) => self.clock.now().saturating_sub(since),
                Standing::Paused(served) => served,
                Standing::Overdue(_) => clock::units(record.guess),
            };
            self.clock.forget(stream);
            record.guess = record.sent.saturating_mul(2).max(1);
            record.standing = Standing::Paused(served.min(clock::units(record.guess)));
        }
        match (record.standing, record.is_ready()) {
            (Standing::Paused(served), true) => {
                let since = self.clock.serve(stream, served, record.guess);
                record.standing = Standing::Served(since);
            }
            // What has sent all that it is judged by stays until the fair system has sent it too.
            (Standing::Served(since), false) if record.sent < record.guess => {
                self.clock.forget(stream);
                record.standing = Standing::Paused(self.clock.now().saturating_sub(since));
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests;
