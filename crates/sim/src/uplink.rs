//! An uplink that is the bottleneck: responses of a web server over one link, by the scheduler that orders
//! them in production.
//!
//! [`Setup`] says what stands between a server and its clients; [`serve`] plays requests against it. The
//! experiments of *Web servers under overload* (TOIT 2006) are such runs. What is simulated, packet by
//! packet:
//!
//! * the **link**, which sends one packet after the other at its rate;
//! * what **orders** it ([`Queue`]): one queue of the kernel, the kernel's bands as in the paper, both of
//!   which drop what finds them full, or [`admission::Egress`], which asks sockets for bytes only when the
//!   link is free, or the same with [`admission::RateFinder`], which knows of the link what TCP tells;
//! * **TCP** as far as the paper's effects need it (`sender.rs`): the handshake with its initial time-out,
//!   slow start, congestion avoidance, selective acknowledgments, fast retransmit, time-outs that double;
//! * the **server**: the queue of half-open connections, the queue of open ones, a bounded number of
//!   workers, each of which is held until its connection's response is acknowledged;
//! * the **users**: persistent connections, and users that abort and try again.
//!
//! Delay is constant and loss independent. Acknowledgments of data aren't lost, since a later one says the
//! same. Clients send over another link, which is never full. [`plain`] is the link alone, without TCP, to
//! compare with theory.

mod digest;
mod engine;
mod load;
mod plain;
mod queue;
mod sender;
mod trace;

use admission::{Duration, EgressOrder, EgressPolicy};

pub use digest::Digest;
pub use engine::serve;
pub use load::{Bytes, Phases, closed_sizes, poisson};
pub use plain::{Plain, plain};
pub use trace::{Malformed, read_trace};

/// What one packet takes on the link beside its data: headers of TCP, IP and Ethernet, preamble and gap.
const OVERHEAD: u64 = 78;

/// From the server to a client and back in the paper's laboratory.
pub const LAN: Duration = Duration::from_millis(1);

/// A request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Download {
    /// When it is sent, from the beginning.
    pub at: Duration,
    /// The size of its response.
    pub bytes: u64,
}

/// The load on an uplink.
#[derive(Clone, Debug)]
pub enum Demand {
    /// Requests at fixed times, whatever becomes of earlier ones.
    Open(Vec<Download>),
    /// Clients that each wait for a response, think, and send the next request.
    Closed {
        /// How many.
        clients: u32,
        /// For how long each thinks, on average (exponential).
        think: Duration,
        /// The sizes of responses, in the order of requests, repeated.
        sizes: Vec<u64>,
        /// When they stop.
        until: Duration,
    },
}

/// What orders the packets of the link.
#[derive(Clone, Debug)]
pub enum Queue {
    /// The kernel's queues: the first that isn't empty is sent. With no cutoffs there is one. A packet
    /// belongs to the band of its response's remaining bytes; packets without data belong to the first. A
    /// full queue drops.
    Kernel {
        /// Where bands end, ascending.
        cutoffs: Vec<u64>,
        /// Most packets in a band.
        length: usize,
        /// A band has the places of so many packets again when all of these are sent.
        frees: usize,
    },
    /// The scheduler of a gate, and a kernel whose queue stays empty.
    Gate(EgressPolicy),
    /// The scheduler of a gate that finds the rate, and one queue of the kernel behind it.
    Paced {
        /// Its rate is the most that is granted.
        policy: EgressPolicy,
        /// Most packets in the queue.
        length: usize,
    },
}

impl Queue {
    /// The queue of the paper's FAIR: 100 packets.
    pub fn fair() -> Self {
        Self::Kernel { cutoffs: Vec::new(), length: 100, frees: 1 }
    }

    /// The bands of Linux's `pfifo_fast`, which is made for several processors: it frees sixteen places at
    /// once.
    pub fn pfifo_fast(cutoffs: &[u64], length: usize) -> Self {
        Self::Kernel { cutoffs: cutoffs.to_vec(), length, frees: 16 }
    }

    /// The queues of the paper's SRPT: a band for packets without data, and five by remaining size, of 100
    /// packets each.
    pub fn published_bands() -> Self {
        Self::Kernel { cutoffs: vec![1, 1_000, 2_000, 5_000, 50_000], length: 100, frees: 1 }
    }

    /// The scheduler of a gate in this order, a packet a turn.
    pub fn gate(order: EgressOrder, aging: Option<f64>) -> Self {
        Self::Gate(EgressPolicy { order, aging, quantum: 1_460, ..EgressPolicy::default() })
    }
}

/// The TCP of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tcp {
    /// TCP of the paper's time.
    Published,
    /// Linux today. A connection begins with ten segments, and keeps two packets or some more in its host's
    /// own queue. When that is full TCP hears so at once: the packet stays unsent, and the window shrinks. A
    /// connection with nothing on its way tries again twice a second. After the fifteenth time the kernel
    /// ends it, and its client isn't told.
    Linux,
}

impl Tcp {
    /// How often the time-out of an opening has doubled when it was sent again so often. Linux waits equally
    /// long for the first five times (`tcp_syn_linear_timeouts`).
    const fn doublings(self, times: u32) -> u32 {
        match self {
            Self::Published => times,
            Self::Linux => times.saturating_sub(4),
        }
    }
}

/// What stands between a server and its clients.
#[derive(Clone, Debug)]
pub struct Setup {
    /// The order of packets.
    pub queue: Queue,
    /// Bits per second of the link.
    pub bits: f64,
    /// Most bytes of data in a packet.
    pub segment: u32,
    /// What one packet takes on the link beside its data.
    pub overhead: u64,
    /// Bytes of a response's head. A gate sends it as a packet of its own.
    pub head: u64,
    /// The server's acknowledgments, for each connection.
    pub acknowledgments: u32,
    /// Packets of data that a gate lets stand in the kernel's queue.
    pub standing: usize,
    /// The server's TCP.
    pub tcp: Tcp,
    /// From a server to a client and back.
    pub round_trip: Duration,
    /// The part of packets that is lost beyond the link, and of those of clients.
    pub loss: f64,
    /// How many requests one connection serves.
    pub reuse: u32,
    /// The time-out of a connection that has measured nothing yet.
    pub first_timeout: Duration,
    /// After how long a user aborts.
    pub patience: Option<Duration>,
    /// How often a user tries again.
    pub retries: u32,
    /// Most half-open connections.
    pub half_open: usize,
    /// Most open connections that wait for a worker.
    pub backlog: usize,
    /// How many connections are served at once.
    pub workers: usize,
}

impl Setup {
    /// The paper's baseline (Table II, row A): 10 Mbit/s, no loss, one request per connection, patient users.
    ///
    /// The paper says that its delay is none. A switch, two kernels and the network cards need some time;
    /// with none at all, a connection refills the kernel's queue before another packet finds a place. [`LAN`]
    /// is the one number that is chosen so that the paper's FAIR comes out (1.1 s).
    pub fn baseline(queue: Queue) -> Self {
        Self {
            queue,
            bits: 10e6,
            segment: 1460,
            overhead: OVERHEAD,
            head: 0,
            acknowledgments: 0,
            standing: 1,
            tcp: Tcp::Published,
            round_trip: LAN,
            loss: 0.0,
            reuse: 1,
            first_timeout: Duration::from_secs(3),
            patience: None,
            retries: 0,
            half_open: 512,
            backlog: 512,
            workers: 350,
        }
    }

    /// What a response of so many bytes takes of the link, with its headers and the packets without data of a
    /// connection of its own.
    pub fn on_the_link(&self, bytes: u64) -> u64 {
        let bytes = bytes + self.head;
        let packets = bytes.div_ceil(u64::from(self.segment)).max(1) + 2 + u64::from(self.acknowledgments);
        bytes + packets * self.overhead
    }
}

/// What became of a request.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Response {
    /// When it was first sent, in seconds.
    pub at: f64,
    /// Its size.
    pub bytes: u64,
    /// Seconds until the first byte arrived.
    pub first_byte: Option<f64>,
    /// Seconds until the last byte arrived; `None`: the user gave up, or the run ended.
    pub response: Option<f64>,
}

/// The state after each second.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Second {
    /// Connections at workers.
    pub connections: usize,
    /// Half-open ones, and those that wait for a worker.
    pub waiting: usize,
    /// Half-open connections refused since the beginning.
    pub refused: u64,
    /// Packets that found the kernel's queue full, since the beginning.
    pub dropped: u64,
    /// Bytes that the link has sent since the beginning, with headers.
    pub sent: u64,
}

/// What a run gives.
#[derive(Clone, Debug, Default)]
pub struct Served {
    /// The responses, in the order of their requests.
    pub responses: Vec<Response>,
    /// The state after each second.
    pub seconds: Vec<Second>,
}

impl Served {
    /// The response times of those that came whole, in seconds.
    pub fn times(&self) -> impl Iterator<Item = f64> + '_ {
        self.responses.iter().filter_map(|response| response.response)
    }

    /// Their mean.
    pub fn mean(&self) -> f64 {
        mean(self.times())
    }

    /// Their squared coefficient of variation.
    pub fn squared_variation(&self) -> f64 {
        let mean = self.mean();
        let square = crate::uplink::mean(self.times().map(|time| time * time));
        square / (mean * mean) - 1.0
    }

    /// The mean over the largest part of all responses that came whole.
    pub fn mean_of_largest(&self, part: f64) -> f64 {
        mean(self.largest(part).into_iter().map(|(_, time)| time))
    }

    /// The largest part of those that came whole, by size: size and time, the largest first.
    pub fn largest(&self, part: f64) -> Vec<(u64, f64)> {
        let mut whole: Vec<(u64, f64)> =
            self.responses.iter().filter_map(|one| Some((one.bytes, one.response?))).collect();
        whole.sort_by_key(|&(bytes, _)| std::cmp::Reverse(bytes));
        whole.truncate(((whole.len() as f64 * part) as usize).max(1));
        whole
    }

    /// The part of requests that never came whole.
    pub fn incomplete(&self) -> f64 {
        1.0 - self.times().count() as f64 / self.responses.len().max(1) as f64
    }
}

fn mean(values: impl Iterator<Item = f64>) -> f64 {
    let (sum, count) = values.fold((0.0, 0.0), |(sum, count), value| (sum + value, count + 1.0));
    sum / count
}
