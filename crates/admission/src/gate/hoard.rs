//! Longs that wait hoard the connections that others need, in the gate (`clients.rs` has when, and why).
//!
//! Then longs go first, and shorts make way while the longs' lane is full: one short beside them would take
//! half of a core, and shorts come as fast as they are served, so that nothing would become fewer. It is so
//! only while the first of the longs has waited for [`WAITED`], and only for [`TIMES`] times as long as the
//! long that was started last is expected to take: if it waits for a lock, the holder may have to
//! ask for something before it lets go. A request whose session holds a connection makes way for none,
//! for the same reason. In one class of several its own shorts do; the others' turns are as ever.

use super::Gate;
use crate::event::Lane;
use crate::request::ClientId;
use crate::time::{Duration, Instant};
use crate::without::Mechanism;

/// Longs that have waited for less take nothing from anybody for long.
const WAITED: Duration = Duration::from_secs(2);
/// A long takes so many times what it is expected to, at most, beside all that the lane lets in.
const TIMES: u64 = 8;

impl Gate {
    /// A client has connected whose requests will name it. Tell with [`Gate::disconnect`] when it leaves,
    /// once.
    pub fn connect(&mut self) -> ClientId {
        self.clients.connect()
    }

    /// A client has left. Its request, if there is one, ends in its own time.
    pub fn disconnect(&mut self, now: Instant, client: ClientId) {
        let now = self.advance(now);
        self.clients.disconnect(client);
        self.dispatch(now);
    }

    /// A request has come: what is known of its client, and whether it mixes.
    pub(super) fn note_sender(&mut self, slot: u32) {
        let record = self.tickets.at(slot);
        let Some(client) = record.request.client else { return };
        let is_long = match self.types.at(record.kind).lane {
            _ if !self.lanes.is_on() => return,
            Lane::Unknown => return,
            Lane::Short => false,
            Lane::Long | Lane::Variable => true,
        };
        self.tickets.at_mut(slot).mixes = self.clients.send(client, is_long);
    }

    /// Whether the longs of a class go before its shorts, because they hoard the connections that those need.
    pub(super) fn is_hoarded(&self, class: u8) -> bool {
        let is_off = self.policy.without.has(Mechanism::Hoarding);
        if is_off || !self.clients.hoard() || !self.lanes.is_on() || self.policy.order.aging() <= 0.0 {
            return false;
        }
        let first = self.classes.at(class).patience.least();
        first.is_some_and(|(_, slot)| self.now.since(self.tickets.at(slot).arrived) >= WAITED)
    }

    /// Whether shorts make way when no long can go, either.
    pub(super) fn makes_way(&self) -> bool {
        self.now < self.way_until && !self.lanes.has_room()
    }

    /// A long of a class has started: while it is served shorts make way, if they have to.
    pub(super) fn make_way(&mut self, class: u8, slot: u32) {
        if self.is_hoarded(class) {
            let work = self.tickets.at(slot).meter.work.as_nanos();
            self.way_until = self.now.after(Duration::from_nanos(work.saturating_mul(TIMES)));
        }
    }

    /// When those that make way go on at the latest.
    pub(super) fn next_release(&self) -> Option<Instant> {
        (self.way_until > Instant::ZERO && self.classes.waiting() > 0).then_some(self.way_until)
    }

    /// Whether they go on now.
    pub(super) fn release(&mut self, now: Instant) -> bool {
        let is_over = self.way_until > Instant::ZERO && now >= self.way_until;
        if is_over {
            self.way_until = Instant::ZERO;
        }
        is_over
    }
}
