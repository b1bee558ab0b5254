//! What stands before the link: the kernel's queues, or the scheduler of a gate.

use std::collections::{BTreeMap, VecDeque};

use admission::{Egress, Ending, Instant, Priority, Size, Stream};

use super::Queue;

/// A packet of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Packet {
    pub(super) connection: u32,
    pub(super) bytes: u64,
    pub(super) load: Load,
}

/// What a packet carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Load {
    /// The server's answer to a new connection, which may be lost beyond the link.
    SynAck { lost: bool },
    /// Nothing that anybody waits for: an acknowledgment, a head, the end of a connection.
    Bare,
    /// A segment of a response: of the connection's n-th, under this number.
    Data { response: u32, segment: u32, number: u64, sent: u64 },
}

/// One queue of the kernel's.
#[derive(Debug, Default)]
pub(super) struct Band {
    packets: VecDeque<Packet>,
    /// Places of packets that were sent, which aren't free yet, and where the first of them is.
    stale: usize,
    from: usize,
}

impl Band {
    fn push(&mut self, packet: Packet, length: usize) -> Result<(), Dropped> {
        if self.packets.len() + self.stale >= length {
            return Err(Dropped);
        }
        self.packets.push_back(packet);
        Ok(())
    }

    fn pop(&mut self, length: usize, frees: usize) -> Option<Packet> {
        let packet = self.packets.pop_front()?;
        self.stale += 1;
        // Its places are a ring, at whose end they are free at once.
        if self.stale >= frees || self.from + self.stale >= length {
            self.from = (self.from + self.stale) % length.max(1);
            self.stale = 0;
        }
        Some(packet)
    }
}

/// The queue before a link.
#[derive(Debug)]
pub(super) enum Before {
    Kernel {
        cutoffs: Vec<u64>,
        length: usize,
        frees: usize,
        bands: Vec<Band>,
    },
    Gate {
        egress: Box<Egress>,
        /// The kernel's queue.
        kernel: VecDeque<Packet>,
        streams: BTreeMap<Stream, u32>,
        connections: BTreeMap<u32, Stream>,
    },
}

/// A packet found its queue full.
pub(super) struct Dropped;

impl Before {
    pub(super) fn new(queue: &Queue) -> Self {
        match queue {
            Queue::Kernel { cutoffs, length, frees } => Self::Kernel {
                bands: (0..=cutoffs.len()).map(|_| Band::default()).collect(),
                cutoffs: cutoffs.clone(),
                length: *length,
                frees: *frees,
            },
            Queue::Paced { length, .. } => {
                Self::Kernel { cutoffs: Vec::new(), length: *length, frees: 1, bands: vec![Band::default()] }
            }
            Queue::Gate(policy) => Self::Gate {
                egress: Box::new(Egress::new(policy.clone())),
                kernel: VecDeque::new(),
                streams: BTreeMap::new(),
                connections: BTreeMap::new(),
            },
        }
    }

    /// A packet that nobody asked for. `remaining`: of its response, 0 if it carries no data.
    pub(super) fn push(&mut self, packet: Packet, remaining: u64) -> Result<(), Dropped> {
        match self {
            Self::Kernel { cutoffs, length, bands, .. } => {
                let band = cutoffs.partition_point(|&cutoff| cutoff <= remaining);
                bands[band].push(packet, *length)
            }
            Self::Gate { kernel, .. } => {
                kernel.push_back(packet);
                Ok(())
            }
        }
    }

    /// The packet that the link sends next.
    pub(super) fn next(&mut self) -> Option<Packet> {
        match self {
            Self::Kernel { bands, length, frees, .. } => {
                bands.iter_mut().find_map(|band| band.pop(*length, *frees))
            }
            Self::Gate { kernel, .. } => kernel.pop_front(),
        }
    }

    /// A connection that may send a segment, and the bytes that it had offered for it, while fewer than
    /// `standing` packets are in the kernel's queue.
    pub(super) fn grant(&mut self, now: u64, standing: usize) -> Option<(u32, u64)> {
        let Self::Gate { egress, kernel, streams, .. } = self else { return None };
        if kernel.len() >= standing {
            return None;
        }
        let grant = egress.next(Instant::from_nanos(now))?;
        streams.get(&grant.stream).map(|&connection| (connection, grant.bytes))
    }

    /// A response begins.
    pub(super) fn open(&mut self, connection: u32, bytes: u64) {
        if let Self::Gate { egress, streams, connections, .. } = self
            && let Some(stream) = egress.open(Size::Known(bytes), Priority::default())
        {
            streams.insert(stream, connection);
            connections.insert(connection, stream);
        }
    }

    /// A response has these bytes more to send. The kernel is never asked, so nothing changes there.
    pub(super) fn offer(&mut self, connection: u32, bytes: u64) {
        if let Self::Gate { egress, connections, .. } = self
            && let Some(&stream) = connections.get(&connection)
        {
            egress.offer(stream, bytes);
        }
    }

    pub(super) fn close(&mut self, connection: u32, ending: Ending) {
        if let Self::Gate { egress, streams, connections, .. } = self
            && let Some(stream) = connections.remove(&connection)
        {
            streams.remove(&stream);
            egress.close(stream, None, ending);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How many packets find room, one by one, after the packets that are sent in between.
    fn found_room(frees: usize, sent: &[usize]) -> Vec<usize> {
        let queue = Queue::Kernel { cutoffs: Vec::new(), length: 10, frees };
        let mut before = Before::new(&queue);
        let packet = Packet { connection: 0, bytes: 0, load: Load::Bare };
        let mut fill = |sent: &usize| {
            (0..*sent).for_each(|_| _ = before.next());
            std::iter::repeat_with(|| before.push(packet, 0)).take_while(Result::is_ok).count()
        };
        sent.iter().map(&mut fill).collect()
    }

    #[test]
    fn places_are_free_again_one_by_one_or_several_at_once_and_at_the_end_of_the_ring() {
        assert_eq!(found_room(1, &[0, 3, 1]), [10, 3, 1]);
        assert_eq!(found_room(4, &[0, 3, 1, 4, 1, 1, 3]), [10, 0, 4, 4, 0, 2, 0]);
    }
}
