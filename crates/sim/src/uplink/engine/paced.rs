//! A gate that finds the uplink's rate: what is granted stands in sockets, and TCP sends it into the kernel's
//! queue when its window lets it.

use std::collections::BTreeMap;

use admission::{Egress, Instant, KernelQueue, Line, Priority, RateFinder, Reading, Size, Stream};

use super::*;
use crate::uplink::Queue;

/// How often the gate looks at its connections, in nanoseconds.
const LOOK_EVERY: u64 = 10_000_000;
/// What a body offers at once.
const FRAME: u64 = 16 * 1024;

/// One response at the gate.
#[derive(Debug)]
struct Flow {
    stream: Stream,
    /// Bytes that weren't offered yet, and those that wait for their turn.
    left: u64,
    held: u64,
    line: Line,
}

/// The gate.
#[derive(Debug)]
pub(super) struct Paced {
    egress: Egress,
    finder: RateFinder,
    segment: u64,
    flows: BTreeMap<u32, Flow>,
    streams: BTreeMap<Stream, u32>,
    /// All bytes that were granted.
    granted: u64,
    /// Whether a look is due, and when the next turn is.
    looks: bool,
    turn: Option<u64>,
}

impl Paced {
    pub(super) fn new(queue: &Queue, segment: u32) -> Option<Self> {
        let Queue::Paced { policy, .. } = queue else { return None };
        let mut paced = Self {
            egress: Egress::new(policy.clone()),
            finder: RateFinder::new(policy.rate),
            segment: segment.into(),
            flows: BTreeMap::new(),
            streams: BTreeMap::new(),
            granted: 0,
            looks: false,
            turn: None,
        };
        paced.set_pace();
        Some(paced)
    }

    /// A turn has whole packets.
    fn set_pace(&mut self) {
        let pace = self.finder.pace();
        let bytes = pace.map_or(64 * 1024, |pace| (pace / 200).min(64 * 1024));
        let quantum = bytes / self.segment * self.segment;
        self.egress.set_pace(pace, u32::try_from(quantum.max(self.segment)).unwrap_or(u32::MAX));
    }

    pub(super) fn close(&mut self, connection: u32, ending: Ending) {
        if let Some(flow) = self.flows.remove(&connection) {
            self.streams.remove(&flow.stream);
            self.egress.close(flow.stream, None, ending);
        }
    }
}

impl Playback<'_> {
    pub(super) fn open_paced(&mut self, connection: u32, bytes: u64) {
        let Some(paced) = &mut self.paced else { return };
        let Some(stream) = paced.egress.open(Size::Known(bytes), Priority::default()) else { return };
        let line = Line::new(Instant::from_nanos(self.now));
        if paced.flows.is_empty() {
            paced.finder.begin();
        }
        paced.flows.insert(connection, Flow { stream, left: bytes, held: 0, line });
        paced.streams.insert(stream, connection);
        let looks = std::mem::replace(&mut paced.looks, true);
        self.connections[connection as usize].written = 0;
        if !looks {
            self.due(LOOK_EVERY, Due::Look);
        }
        self.feed(connection);
    }

    /// Offers the next bytes of a response while its socket has room.
    pub(super) fn feed(&mut self, connection: u32) {
        let unsent = self.unsent(connection);
        let Some(paced) = &mut self.paced else { return };
        let Some(flow) = paced.flows.get_mut(&connection) else { return };
        if flow.held > 0 || flow.left == 0 || unsent >= paced.finder.unsent_max().into() {
            return;
        }
        flow.held = flow.left.min(FRAME);
        flow.left -= flow.held;
        paced.egress.offer(flow.stream, flow.held);
        self.give();
    }

    fn unsent(&self, connection: u32) -> u64 {
        let one = &self.connections[connection as usize];
        one.written.saturating_sub(u64::from(one.sender.next()) * u64::from(self.setup.segment))
    }

    pub(super) fn turned(&mut self) {
        if let Some(paced) = &mut self.paced {
            paced.turn = None;
        }
        self.give();
    }

    fn give(&mut self) {
        while let Some(paced) = &mut self.paced
            && let Some(grant) = paced.egress.next(Instant::from_nanos(self.now))
        {
            let Some(&connection) = paced.streams.get(&grant.stream) else { continue };
            paced.granted += grant.bytes;
            if let Some(flow) = paced.flows.get_mut(&connection) {
                flow.held -= grant.bytes;
            }
            self.connections[connection as usize].written += grant.bytes;
            self.forward(connection);
            self.feed(connection);
        }
        let Some(paced) = &mut self.paced else { return };
        if let Some(next) = paced.egress.next_timeout().map(Instant::as_nanos)
            && paced.turn.is_none_or(|turn| turn > next)
        {
            paced.turn = Some(next);
            let after = next.saturating_sub(self.now);
            self.due(after, Due::Turn);
        }
    }

    pub(super) fn look(&mut self) {
        let Some(paced) = &mut self.paced else { return };
        let (now, known) = (Instant::from_nanos(self.now), paced.finder.known());
        let mut queue = KernelQueue::default();
        for (&connection, flow) in &mut paced.flows {
            let one = &self.connections[connection as usize];
            if one.written == 0 {
                continue;
            }
            let sent = one.written.min(u64::from(one.sender.next()) * paced.segment);
            let delivered = u64::from(one.sender.in_order()) * paced.segment;
            // Its head is acknowledged with the first segment.
            let head = u64::from(delivered == 0);
            let flight = sent.saturating_sub(delivered) + head * self.setup.head;
            let under_way = u64::from(one.sender.under_way()) * paced.segment + head * self.setup.head;
            let reading = Reading {
                unsent: one.written - sent,
                flight,
                under_way: flight.min(under_way),
                repairs: one.sender.repairs(),
                unacked: head + u64::from(one.sender.next() - one.sender.in_order()),
                acked: delivered,
                idle: Duration::from_nanos(self.now - one.last),
                trip: Duration::from_nanos(one.sender.shortest()),
                smoothed: Duration::from_nanos(one.sender.smoothed()),
            };
            flow.line.read(now, reading, known, &mut queue);
        }
        paced.finder.observe(now, paced.granted, queue, paced.egress.backlog().bytes);
        paced.set_pace();
        paced.looks = !paced.flows.is_empty();
        if paced.looks {
            self.due(LOOK_EVERY, Due::Look);
        }
        self.give();
    }
}
