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

/// The queue before a link.
#[derive(Debug)]
pub(super) enum Before {
    Kernel {
        cutoffs: Vec<u64>,
        length: usize,
        bands: Vec<VecDeque<Packet>>,
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
            Queue::Kernel { cutoffs, length } => Self::Kernel {
                bands: vec![VecDeque::new(); cutoffs.len() + 1],
                cutoffs: cutoffs.clone(),
                length: *length,
            },
            Queue::Paced { length, .. } => {
                Self::Kernel { cutoffs: Vec::new(), length: *length, bands: vec![VecDeque::new()] }
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
        let (queue, length) = match self {
            Self::Kernel { cutoffs, length, bands } => {
                let band = cutoffs.partition_point(|&cutoff| cutoff <= remaining);
                (&mut bands[band], *length)
            }
            Self::Gate { kernel, .. } => (kernel, usize::MAX),
        };
        if queue.len() >= length {
            return Err(Dropped);
        }
        queue.push_back(packet);
        Ok(())
    }

    /// The packet that the link sends next.
    pub(super) fn next(&mut self) -> Option<Packet> {
        match self {
            Self::Kernel { bands, .. } => bands.iter_mut().find_map(VecDeque::pop_front),
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
