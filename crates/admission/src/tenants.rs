//! Fairness between the tenants of a class: a tenant that floods its class makes hardly any other wait.
//!
//! **Idea.** A class has [`SHARDS`] queues. A tenant's hash deals it a hand of [`HAND`] of them, and each of
//! its requests waits in the shortest of those. So a tenant that floods fills its own hand; another one has
//! the same hand once in 635,376 times. The queues take turns by start-time fair queueing in expected work,
//! as classes do (`classes.rs`). A request whose turn has come joins its class's lines.
//!
//! **Formula.** A queue's tag is S, the virtual time of the class v. When its next request joins the lines
//! or starts without waiting: v := max(v, S), S := S + work. When a request comes to the empty queue:
//! S := max(S, v). A request joins if it could start and its queue's tag is at most v, or if nobody in the
//! lines could start. The least tag goes first. Within a shard shorts wait apart from longs, and each pool's
//! requests apart from others: a full long lane or a pool without a connection holds up nobody else.
//!
//! **Source.** Shuffle sharding: Infima, AWS 2014; dealt hands and the shortest queue: Kubernetes' API
//! Priority and Fairness, KEP 1040.
//!
//! **Bounds.** Memory is a kilobyte for each class and an entry for each waiting request. A step costs
//! O(log n) for each queue that has requests.
//!
//! **When it fails.** A tenant that floods counts for as many queues as its hand has. What a request took
//! beyond its expected work isn't charged.

use alloc::collections::BTreeSet;
use core::ops::Bound::{Excluded, Unbounded};

use crate::order::Class;
use crate::request::TenantId;
use crate::work::Work;

/// How many queues a class has.
const SHARDS: usize = 64;
/// How many queues a tenant is dealt.
const HAND: usize = 4;

/// Where a request waits for its turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Queue {
    /// Its tenant's shard.
    pub(crate) shard: u8,
    /// Whether it goes to the line of the longs.
    pub(crate) is_long: bool,
    /// Which connections can serve it.
    pub(crate) class: Class,
}

/// A request that waits: its queue, arrival number and slot.
type Parked = (Queue, u64, u32);

/// The waiting tenants of one class.
#[derive(Debug)]
pub(crate) struct Tenants {
    parked: BTreeSet<Parked>,
    /// How many requests wait in each shard.
    counts: [u32; SHARDS],
    /// The tag S of each shard.
    tags: [u64; SHARDS],
    /// The class's virtual time v.
    now: u64,
}

impl Default for Tenants {
    fn default() -> Self {
        Self { parked: BTreeSet::new(), counts: [0; SHARDS], tags: [0; SHARDS], now: 0 }
    }
}

impl Tenants {
    /// The shard in which a request of this tenant waits, or would.
    pub(crate) fn shard_of(&self, tenant: TenantId) -> u8 {
        let key =
            |&shard: &u8| (self.counts[usize::from(shard)], self.tags[usize::from(shard)].max(self.now));
        hand(tenant).into_iter().min_by_key(key).unwrap_or_default()
    }

    /// A request comes to a shard, which has no claim from before it if none waits there.
    fn come(&mut self, shard: u8) {
        if self.counts[usize::from(shard)] == 0 {
            let tag = &mut self.tags[usize::from(shard)];
            *tag = self.now.max(*tag);
        }
    }

    /// A request waits in its shard from now on.
    pub(crate) fn park(&mut self, queue: Queue, sequence: u64, slot: u32) {
        self.come(queue.shard);
        self.counts[usize::from(queue.shard)] += 1;
        self.parked.insert((queue, sequence, slot));
    }

    /// A request no longer waits in its shard.
    pub(crate) fn unpark(&mut self, queue: Queue, sequence: u64, slot: u32) {
        let was_there = self.parked.remove(&(queue, sequence, slot));
        self.counts[usize::from(queue.shard)] -= u32::from(was_there);
    }

    /// The first request of each queue that isn't empty.
    fn heads(&self) -> impl Iterator<Item = Parked> + '_ {
        let behind = |&(queue, ..): &Parked| (Excluded((queue, u64::MAX, u32::MAX)), Unbounded);
        let next = move |head: &Parked| self.parked.range(behind(head)).next().copied();
        core::iter::successors(self.parked.first().copied(), next)
    }

    /// Of the requests that could start, the one that joins the lines next, and whether its turn has come.
    pub(crate) fn next(&self, could_start: impl Fn(Queue) -> bool) -> Option<(u32, bool)> {
        let tag = |queue: Queue| self.tags[usize::from(queue.shard)];
        let heads = self.heads().filter(|&(queue, ..)| could_start(queue));
        let (queue, _, slot) = heads.min_by_key(|&(queue, sequence, _)| (tag(queue), sequence))?;
        Some((slot, tag(queue) <= self.now))
    }

    /// A request of a shard with this expected work joins the lines, or starts.
    pub(crate) fn charge(&mut self, shard: u8, work: Work) {
        self.come(shard);
        let tag = &mut self.tags[usize::from(shard)];
        self.now = self.now.max(*tag);
        *tag = tag.saturating_add(work.as_nanos());
    }

    /// The newest of the fullest shard, if more wait there than in this one after one more has come.
    pub(crate) fn surplus(&self, shard: Option<u8>) -> Option<u32> {
        let own = shard.map_or(0, |shard| self.counts[usize::from(shard)] + 1);
        let (count, fullest) = self.counts.iter().zip(0..).map(|(&count, shard)| (count, shard)).max()?;
        if count <= own {
            return None;
        }
        let queues = self.heads().filter(|(queue, ..)| queue.shard == fullest);
        let last = |(queue, ..): Parked| self.parked.range(..=(queue, u64::MAX, u32::MAX)).next_back();
        let newest = queues.filter_map(last).max_by_key(|(_, sequence, _)| *sequence);
        newest.map(|&(_, _, slot)| slot)
    }
}

/// Deals a tenant different shards, each hand as likely as any other.
fn hand(tenant: TenantId) -> [u8; HAND] {
    let (mut rest, mut hand) = (tenant.as_u32(), [0; HAND]);
    for dealt in 0..HAND {
        let left = (SHARDS - dealt) as u32;
        let mut card = (rest % left) as u8;
        rest /= left;
        // The card's number is that among those that are left.
        hand[..dealt].sort_unstable();
        for &before in &hand[..dealt] {
            card += u8::from(before <= card);
        }
        hand[dealt] = card;
    }
    hand
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn a_hand_has_different_shards_and_all_are_dealt() {
        let mut seen = BTreeSet::new();
        for hash in 0..100_000_u64 {
            let hand = hand(TenantId::new(hash.wrapping_mul(0x9e37_79b9_7f4a_7c15)));
            assert_eq!(hand.iter().collect::<BTreeSet<_>>().len(), HAND, "{hand:?}");
            assert!(hand.iter().all(|&shard| usize::from(shard) < SHARDS), "{hand:?}");
            seen.extend(hand);
        }
        assert_eq!(seen.len(), SHARDS);
    }

    const fn queue(shard: u8, is_long: bool) -> Queue {
        Queue { shard, is_long, class: Class::NONE }
    }

    #[test]
    fn shards_take_turns_by_work() {
        let mut tenants = Tenants::default();
        for sequence in 0..300 {
            tenants.park(queue((sequence % 2) as u8, false), sequence, sequence as u32);
        }
        let mut served = [0; 2];
        for _ in 0..90 {
            let (slot, _) = tenants.next(|_| true).expect("somebody");
            let shard = (slot % 2) as u8;
            tenants.unpark(queue(shard, false), u64::from(slot), slot);
            tenants.charge(shard, Work::from_nanos([1_000, 2_000][usize::from(shard)]));
            served[usize::from(shard)] += 1;
        }
        assert_eq!(served, [60, 30]);
    }

    #[test]
    fn a_long_that_cannot_start_holds_up_no_short_of_its_shard() {
        let mut tenants = Tenants::default();
        tenants.park(queue(7, true), 1, 1);
        tenants.park(queue(7, false), 2, 2);
        assert_eq!(tenants.next(|queue| !queue.is_long), Some((2, true)));
        assert_eq!(tenants.surplus(None), Some(2), "the newest of both");
        assert_eq!(tenants.surplus(Some(7)), None);
        tenants.unpark(queue(7, true), 1, 1);
        tenants.unpark(queue(7, false), 2, 2);
        assert!(tenants.next(|_| true).is_none() && tenants.counts == [0; SHARDS]);
    }
}
