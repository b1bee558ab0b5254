//! Events into tables: what each request type did, counted, and how long it waited and ran.
//!
//! The driver of a gate owns an [`Observer`] inside its mutex and hands it every event of the gate. So
//! recording must be cheap: one lookup, a few additions (35 ns with 1000 types), and no allocation for a
//! type that is known. Nothing is logged here either, as a log is I/O under a lock: what is worth a line
//! waits in [`Observer::take_changes`] until the lock is free.
//!
//! **Bounds.** At most `types_max` types (and one more, for the moment between the arrival of a new type
//! and the gate's forgetting of an old one), the least recently used going to `other` with everything that
//! it counted. A type takes 8 KB, nearly all of it two histograms (see `observe/times.rs`), so `types_max =
//! 1000` takes 8 MB.

use std::collections::HashMap;
use std::num::NonZeroUsize;
use std::sync::Arc;

use admission::{ClassId, Duration, Event, Lane, Outcome, Reason, RequestType, Ticket, Work};
use lru::LruCache;

use crate::principal::Principal;

mod account;
mod changed;
mod goals;
mod principals;
mod refused;
mod times;
mod told;

pub(crate) use account::Account;
pub use changed::{ChangedRow, ChangedRows, shares};
pub(crate) use refused::Most;
use refused::Refused;
use times::Times;
pub use times::{BOUNDS_SECONDS, Buckets, TimeSummary};
pub use told::lane_name;
pub(crate) use told::log_changes;

/// The label of everything that has no row of its own.
pub const OTHER: &str = "other";

/// Every reason, in the order of the counts in [`Counts::rejected`].
pub const REASONS: [Reason; 8] = [
    Reason::QueueFull,
    Reason::QueueTimeout,
    Reason::Deadline,
    Reason::DeadlineUnreachable,
    Reason::QueueDelay,
    Reason::Target,
    Reason::PinnedMax,
    Reason::OverShare,
];

/// The most changes kept between two calls of [`Observer::take_changes`]; more are only counted.
pub const CHANGES_MAX: usize = 256;

/// A request type and the name that people know it by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TypeName {
    /// What the gate knows it by.
    pub key: RequestType,
    /// The type in whose row people see it: its own, unless its own name isn't to be shown yet.
    pub row: RequestType,
    /// What people know that row by. Never holds a literal of a statement.
    pub label: Arc<str>,
}

impl TypeName {
    /// A type with a row of its own.
    pub const fn new(key: RequestType, label: Arc<str>) -> Self {
        Self { key, row: key, label }
    }
}

/// What the judge has changed by itself, for the log.
#[derive(Clone, Debug, PartialEq)]
pub enum Change {
    /// A type moved to another lane.
    Lane {
        /// The name of the type.
        label: Arc<str>,
        /// Its lane from now on.
        lane: Lane,
        /// The expected work that put it there.
        work: Work,
    },
    /// A controller found another capacity.
    Capacity {
        /// How many requests might be in flight before.
        from: u32,
        /// How many requests may be in flight from now on.
        to: u32,
        /// The share by which more is completed so, if that was why.
        gain: Option<f64>,
    },
    /// Types that contend with one another were found.
    GroupFormed {
        /// The group's number.
        group: u64,
        /// How many of their requests were in flight before.
        from: u32,
        /// How many of their requests may be in flight from now on.
        to: u32,
        /// The share by which more is completed so.
        gain: f64,
    },
    /// A type belongs to a group.
    GroupJoined {
        /// The group's number.
        group: u64,
        /// The name of the type.
        label: Arc<str>,
    },
    /// A group's bound has moved.
    GroupMoved {
        /// The group's number.
        group: u64,
        /// How many of its requests might be in flight before.
        from: u32,
        /// How many of its requests may be in flight from now on.
        to: u32,
        /// The share by which more is completed so, if that was why.
        gain: Option<f64>,
    },
    /// A group isn't needed any more.
    GroupDissolved {
        /// The group's number.
        group: u64,
        /// How many of its requests might be in flight at the end.
        most: u32,
    },
    /// The service answered nothing for long, and goes on.
    Stalled {
        /// For how long.
        lasted: Duration,
        /// How many requests wait behind newcomers.
        late: usize,
    },
    /// A target (of this type; `None`: the gate's) has come out of reach of a service that works on so many
    /// requests at once, or (`None`) is within reach again.
    TargetReach(Option<Arc<str>>, Option<u32>),
    /// A class's share was adapted to goals, or a goal can or can't be met: in words.
    Goal(String),
    /// The long lane became wider or narrower by what was found of the service.
    LongLimit {
        /// How many long requests might be in flight before.
        from: u32,
        /// How many long requests may be in flight from now on.
        to: u32,
        /// How many requests the service works on at once, if that can be told.
        parallelism: Option<u32>,
    },
}

/// What one type did since it was first seen.
#[derive(Clone, Debug, PartialEq)]
pub struct TypeRow {
    /// Which type; `None` is `other`.
    pub key: Option<RequestType>,
    /// Its name.
    pub label: Arc<str>,
    /// Where it queues.
    pub lane: Lane,
    /// The expected work of its latest request.
    pub work: Work,
    /// What its requests came to.
    pub counts: Counts,
    /// The upstream times of its completed requests.
    pub upstream_time: TimeSummary,
    /// The queue waits of its requests, whether they were dispatched, refused or left.
    pub queue_wait: TimeSummary,
    /// The upstream times as metrics show them.
    pub upstream_buckets: Buckets,
    /// The queue waits as metrics show them.
    pub wait_buckets: Buckets,
}

/// What requests came to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Sent upstream.
    pub dispatched: u64,
    /// Completed with success.
    pub succeeded: u64,
    /// Completed with a failure.
    pub failed: u64,
    /// Completed with a failure because of others in flight: a deadlock, or a transaction that couldn't be
    /// serialized.
    pub conflicted: u64,
    /// Completed after the client had left.
    pub canceled: u64,
    /// Refused, by reason in the order of [`REASONS`].
    pub rejected: [u64; REASONS.len()],
    /// Left the queue by themselves.
    pub left: u64,
    /// The expected work of the completed ones.
    pub work: Work,
}

impl Counts {
    /// Requests that ended upstream, however they ended.
    pub fn completed(&self) -> u64 {
        [self.failed, self.conflicted, self.canceled].into_iter().fold(self.succeeded, u64::saturating_add)
    }

    /// Requests refused, for whatever reason.
    pub fn refused(&self) -> u64 {
        self.rejected.iter().fold(0, |sum, count| sum.saturating_add(*count))
    }

    /// Requests that ended, in whatever way.
    pub fn ended(&self) -> u64 {
        self.completed().saturating_add(self.refused()).saturating_add(self.left)
    }

    fn reject(&mut self, reason: Reason) {
        let index = match reason {
            Reason::QueueFull => 0,
            Reason::QueueTimeout => 1,
            Reason::Deadline => 2,
            Reason::DeadlineUnreachable => 3,
            Reason::QueueDelay => 4,
            Reason::Target => 5,
            Reason::PinnedMax => 6,
            Reason::OverShare => 7,
        };
        self.rejected[index] += 1;
    }

    fn complete(&mut self, outcome: Outcome, work: Work) {
        match outcome {
            Outcome::Success => self.succeeded += 1,
            Outcome::Failure => self.failed += 1,
            Outcome::Conflict => self.conflicted += 1,
            Outcome::Canceled => self.canceled += 1,
        }
        self.work = self.work.saturating_add(work);
    }

    /// What was counted since an earlier state.
    pub(crate) fn since(&self, before: &Self) -> Self {
        let mut rejected = self.rejected;
        for (count, before) in rejected.iter_mut().zip(before.rejected) {
            *count = count.saturating_sub(before);
        }
        Self {
            dispatched: self.dispatched.saturating_sub(before.dispatched),
            succeeded: self.succeeded.saturating_sub(before.succeeded),
            failed: self.failed.saturating_sub(before.failed),
            conflicted: self.conflicted.saturating_sub(before.conflicted),
            canceled: self.canceled.saturating_sub(before.canceled),
            rejected,
            left: self.left.saturating_sub(before.left),
            work: self.work.saturating_sub(before.work),
        }
    }

    pub(crate) fn add(&mut self, other: &Self) {
        self.dispatched += other.dispatched;
        self.succeeded += other.succeeded;
        self.failed += other.failed;
        self.conflicted += other.conflicted;
        self.canceled += other.canceled;
        for (sum, count) in self.rejected.iter_mut().zip(other.rejected) {
            *sum += count;
        }
        self.left += other.left;
        self.work = self.work.saturating_add(other.work);
    }
}

/// What a whole gate did since it was started.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Totals {
    /// What the requests came to.
    pub counts: Counts,
    /// Transactions that gave their work back while idle.
    pub suspended: u64,
    /// Suspended transactions that were charged again.
    pub resumed: u64,
    /// Types forgotten, because too many were known.
    pub types_forgotten: u64,
    /// Moves of a type to another lane.
    pub lane_changes: u64,
    /// Moves of a capacity that a controller finds.
    pub capacity_moves: u64,
    /// Stalls of the service after which the requests that had waited yielded to newcomers.
    pub stalls: u64,
    /// Groups of types that contend with one another that were found.
    pub groups_formed: u64,
    /// Moves of a group's bound.
    pub group_moves: u64,
    /// Queue waits of the dispatched.
    pub queue_wait_dispatched: Buckets,
    /// Queue waits of the refused.
    pub queue_wait_rejected: Buckets,
    /// Queue waits of those that left by themselves.
    pub queue_wait_left: Buckets,
    /// Upstream times of the completed.
    pub upstream_time: Buckets,
}

/// Counts what a gate's events tell.
#[derive(Debug)]
pub struct Observer {
    types: LruCache<RequestType, Entry>,
    /// Types that are seen in the row of another one.
    elsewhere: LruCache<RequestType, RequestType>,
    other: Entry,
    totals: Totals,
    changes: Vec<Change>,
    class_names: goals::ClassNames,
    refused: Refused,
    /// Raised by each look at what has changed.
    mark: u64,
}

/// What is known of one type.
#[derive(Debug)]
struct Entry {
    label: Arc<str>,
    lane: Lane,
    work: Work,
    counts: Counts,
    principals: principals::Counted,
    upstream_time: Times,
    queue_wait: Times,
    /// The observer's mark when the type was first seen, and when it was used last.
    marks: (u64, u64),
}

impl Observer {
    /// An observer of at most `types_max` types.
    pub fn new(types_max: usize) -> Self {
        // One more than the gate knows: a new type is described before the gate forgets an old one for it.
        let rows_max = NonZeroUsize::MIN.saturating_add(types_max);
        Self {
            types: LruCache::new(rows_max),
            elsewhere: LruCache::new(rows_max),
            other: Entry::new(OTHER.into()),
            totals: Totals::default(),
            changes: Vec::new(),
            class_names: goals::ClassNames::default(),
            refused: Refused::default(),
            mark: 0,
        }
    }

    /// What the gate's classes are called from now on.
    pub fn name_classes(&mut self, names: Vec<(ClassId, Arc<str>)>) {
        self.class_names = goals::ClassNames(names);
    }

    /// Whether this type has a row of its own; then it also counts as used. Asking spares making a name in
    /// vain.
    pub fn knows(&mut self, request_type: RequestType) -> bool {
        let (mark, known) = (self.mark, self.types.get_mut(&request_type));
        known.map(|entry| entry.marks.1 = mark).is_some()
    }

    /// Remembers the name of a type. Call it before the type's request arrives; when the type is known it
    /// costs one lookup, when it is new a walk over all (some microseconds).
    pub fn describe(&mut self, name: &TypeName) {
        if self.knows(name.key) {
            return;
        }
        if name.row == name.key {
            self.elsewhere.pop(&name.key);
        } else {
            self.elsewhere.push(name.key, name.row);
            if self.knows(name.row) {
                return;
            }
        }
        let mut entry = Entry::new(self.unique_label(name));
        entry.marks = (self.mark, self.mark);
        if let Some((_, forgotten)) = self.types.push(name.row, entry) {
            self.other.absorb(&forgotten);
        }
    }

    /// The name of the row in which a type is seen.
    pub fn label(&self, request_type: RequestType) -> Option<Arc<str>> {
        let row = self.elsewhere.peek(&request_type).unwrap_or(&request_type);
        self.types.peek(row).map(|entry| Arc::clone(&entry.label))
    }

    /// The name of a type that has a row of its own.
    pub fn own_label(&self, request_type: RequestType) -> Option<Arc<str>> {
        self.types.peek(&request_type).map(|entry| Arc::clone(&entry.label))
    }

    /// The label of a type, with its key behind it if another type has that label: where a label is cut,
    /// two types may look alike, but two series of a metric must not.
    fn unique_label(&self, name: &TypeName) -> Arc<str> {
        let is_taken = &*name.label == OTHER || self.types.iter().any(|(_, entry)| entry.label == name.label);
        if is_taken { format!("{} #{:016x}", name.label, name.row.0).into() } else { Arc::clone(&name.label) }
    }

    /// Counts the principal of a type's request.
    pub(crate) fn note_principal(&mut self, request_type: RequestType, principal: &Arc<Principal>) {
        self.entry(request_type).principals.note(principal);
    }

    /// The most frequent principals of a row's types, and at least how many requests each sent.
    pub(crate) fn principals_of(&self, row: RequestType) -> Vec<(Arc<Principal>, u64)> {
        self.types.peek(&row).map_or_else(Vec::new, |entry| entry.principals.told())
    }

    /// Counts what happened.
    pub fn record(&mut self, event: &Event) {
        match *event {
            Event::Dispatched { request_type, work, queue_wait, .. } => {
                self.totals.counts.dispatched += 1;
                self.totals.queue_wait_dispatched.record(queue_wait);
                let (entry, is_own) = self.row_of(request_type);
                entry.counts.dispatched += 1;
                entry.queue_wait.record(queue_wait);
                if is_own {
                    entry.work = work;
                }
            }
            Event::Rejected { request_type, class, reason, obstacle, queue_wait, .. } => {
                self.refuse((reason, request_type, class, obstacle));
                self.totals.queue_wait_rejected.record(queue_wait);
                self.entry(request_type).queue_wait.record(queue_wait);
            }
            Event::Left { request_type, queue_wait, .. } => {
                self.totals.counts.left += 1;
                self.totals.queue_wait_left.record(queue_wait);
                let entry = self.entry(request_type);
                entry.counts.left += 1;
                entry.queue_wait.record(queue_wait);
            }
            Event::Completed { ticket, .. } if self.refused.ends(ticket) => {}
            Event::Completed { request_type, outcome, work, upstream_time, .. } => {
                self.totals.counts.complete(outcome, work);
                // What was canceled before it was sent has no upstream time.
                let was_sent = outcome != Outcome::Canceled || !upstream_time.is_zero();
                if was_sent {
                    self.totals.upstream_time.record(upstream_time);
                }
                let entry = self.entry(request_type);
                entry.counts.complete(outcome, work);
                if was_sent {
                    entry.upstream_time.record(upstream_time);
                }
            }
            Event::Suspended { .. } => self.totals.suspended += 1,
            Event::Resumed { .. } => self.totals.resumed += 1,
            Event::LaneChanged { request_type, lane, work } => self.change_lane(request_type, lane, work),
            Event::CapacityMoved { from, to, gain } => {
                self.totals.capacity_moves += 1;
                self.note(Change::Capacity { from, to, gain });
            }
            Event::GroupFormed { group, from, to, gain } => {
                self.totals.groups_formed += 1;
                self.note(Change::GroupFormed { group, from, to, gain });
            }
            Event::GroupJoined { group, request_type } => {
                let label = Arc::clone(&self.entry(request_type).label);
                self.note(Change::GroupJoined { group, label });
            }
            Event::GroupMoved { group, from, to, gain } => {
                self.totals.group_moves += 1;
                self.note(Change::GroupMoved { group, from, to, gain });
            }
            Event::GroupDissolved { group, most } => self.note(Change::GroupDissolved { group, most }),
            Event::LongLimitMoved { from, to, parallelism } => {
                self.note(Change::LongLimit { from, to, parallelism });
            }
            Event::Stalled { lasted, late } => {
                self.totals.stalls += 1;
                self.note(Change::Stalled { lasted, late });
            }
            Event::TargetReach { of, is_out, places } => {
                let label = of.map(|request_type| Arc::clone(&self.entry(request_type).label));
                self.note(Change::TargetReach(label, is_out.then_some(places)));
            }
            Event::ClassGoal(news) => self.note(Change::Goal(self.class_names.text(&news))),
            Event::TypeForgotten { request_type } => self.forget(request_type),
        }
    }

    /// Counts a request as refused that was dispatched: its wait is counted already, its end will not be.
    pub(crate) fn refuse_in_flight(&mut self, ticket: Ticket, kind: refused::Kind) {
        self.refused.in_flight.push(ticket);
        self.refuse(kind);
    }

    fn refuse(&mut self, kind: refused::Kind) {
        let (reason, request_type, ..) = kind;
        self.refused.note(kind);
        self.totals.counts.reject(reason);
        self.entry(request_type).counts.reject(reason);
    }

    /// What the whole gate did.
    pub fn totals(&self) -> Totals {
        self.totals.clone()
    }

    /// What was refused most since the last call, by reason.
    pub(crate) fn take_refused(&mut self) -> HashMap<Reason, Most> {
        let kinds: Vec<_> = self.refused.take().collect();
        let most = |(_, request_type, class, obstacle)| Most {
            label: self.label(request_type),
            class: self.class_names.of_several(class),
            obstacle,
        };
        // Of each reason the last one stays.
        kinds.into_iter().map(|kind| (kind.0, most(kind))).collect()
    }

    /// The changes since the last call, oldest first, at most [`CHANGES_MAX`], to be logged outside of the
    /// lock with `log_changes`. Without any it doesn't allocate.
    #[must_use]
    pub fn take_changes(&mut self) -> Vec<Change> {
        std::mem::take(&mut self.changes)
    }

    /// The row in which a type is seen.
    fn entry(&mut self, request_type: RequestType) -> &mut Entry {
        self.row_of(request_type).0
    }

    /// The row in which a type is seen, and whether it is the type's own. A row of several types doesn't tell
    /// the lane or the work of one of them.
    fn row_of(&mut self, request_type: RequestType) -> (&mut Entry, bool) {
        let row = if self.elsewhere.is_empty() { None } else { self.elsewhere.peek(&request_type) };
        let entry = self.types.get_mut(row.unwrap_or(&request_type)).unwrap_or(&mut self.other);
        entry.marks.1 = self.mark;
        (entry, row.is_none())
    }

    fn change_lane(&mut self, request_type: RequestType, lane: Lane, work: Work) {
        self.totals.lane_changes += 1;
        let Some(label) = self.label(request_type) else { return };
        let (entry, is_own) = self.row_of(request_type);
        if is_own {
            (entry.lane, entry.work) = (lane, work);
        }
        self.note(Change::Lane { label, lane, work });
    }

    fn note(&mut self, change: Change) {
        if self.changes.len() < CHANGES_MAX {
            self.changes.push(change);
        }
    }

    fn forget(&mut self, request_type: RequestType) {
        self.totals.types_forgotten += 1;
        self.elsewhere.pop(&request_type);
        if let Some(forgotten) = self.types.pop(&request_type) {
            self.other.absorb(&forgotten);
        }
    }
}

impl Entry {
    fn new(label: Arc<str>) -> Self {
        Self {
            label,
            lane: Lane::Unknown,
            work: Work::ZERO,
            counts: Counts::default(),
            principals: principals::Counted::default(),
            upstream_time: Times::new(),
            queue_wait: Times::new(),
            marks: (0, 0),
        }
    }

    fn row(&self, key: Option<RequestType>) -> TypeRow {
        TypeRow {
            key,
            label: Arc::clone(&self.label),
            lane: self.lane,
            work: self.work,
            counts: self.counts,
            upstream_time: self.upstream_time.summary(),
            queue_wait: self.queue_wait.summary(),
            upstream_buckets: self.upstream_time.buckets(),
            wait_buckets: self.queue_wait.buckets(),
        }
    }

    /// Takes over what another type counted, whose row ends.
    fn absorb(&mut self, forgotten: &Self) {
        self.counts.add(&forgotten.counts);
        self.upstream_time.add(&forgotten.upstream_time);
        self.queue_wait.add(&forgotten.queue_wait);
    }
}

#[cfg(test)]
pub(crate) mod tests;
