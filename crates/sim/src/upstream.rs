//! The protected service: how it serves what is in flight, and how fast.
//!
//! | service | serves | for |
//! |---|---|---|
//! | [`Service::Fifo`] | c at a time, others in order of arrival | the textbook's server behind a gate |
//! | [`Service::Sharing`] | all at once, at equal speed | a database; with a [`Collapse`] |
//! | [`Service::Weighted`] | all at once, each source at its weight | a host with control groups |
//! | [`Service::ShortestFirst`], [`Service::ShortestRemaining`] | by true service time | yardsticks |
//!
//! Its speed may follow a schedule: drift is many small steps, a stall is a step to 0.

mod clock;
mod collapse;
mod heap;
mod queueing;
mod sharing;
mod weighted;

use admission::Duration;

pub use collapse::Collapse;
use queueing::Queueing;
use sharing::Sharing;
use weighted::Weighted;

/// The protected service.
#[derive(Clone, Debug, PartialEq)]
pub struct Upstream {
    /// How it serves.
    pub service: Service,
    /// How many of these stand beside one another. A request goes to the one with the fewest in flight, as a
    /// gate for HTTP sends it; of several to the first.
    pub replicas: u32,
    /// A service that shares its cores: the most that it serves at once, the others wait inside in order of
    /// arrival; `None`: all.
    pub at_once: Option<u32>,
    /// By what its speed is multiplied from each time on (1 before the first), in order.
    pub speed: Vec<(Duration, f64)>,
    /// How long an answer is under way: the request counts as in flight for so much longer.
    pub round_trip: Duration,
    /// For each unit of work that a request takes of a core, so much time it waits for what isn't one, such
    /// as a disk. It does so at its end, in flight, and holds nobody up. 0: it only computes.
    pub input_output: f64,
    /// Which part of its requests it gives up at their end for others in flight, with so many in flight:
    /// some numbers in order, straight lines between them, level before the first and beyond the last. Who
    /// is given up begins anew at once, as what a deadlock or a serialization failure has undone. Empty:
    /// none.
    pub conflicts: Vec<(u32, f64)>,
}

/// How a service serves what is in flight.
#[derive(Clone, Debug, PartialEq)]
pub enum Service {
    /// A fixed number of servers; other requests wait in order of arrival.
    Fifo {
        /// How many servers.
        servers: u32,
    },
    /// All requests at once, sharing the cores equally; none is faster than one core.
    Sharing {
        /// How many cores.
        cores: u32,
        /// How it collapses.
        collapse: Collapse,
    },
    /// All requests at once; sources share the cores by weights, which an observer may change. All weights
    /// are equal at first.
    Weighted {
        /// How many cores.
        cores: u32,
    },
    /// A fixed number of servers; other requests wait by their true service time. A reference: no gate can
    /// know that time.
    ShortestFirst {
        /// How many servers.
        servers: u32,
    },
    /// The requests with the least remaining service time, a fixed number at any instant; others are
    /// interrupted. A reference.
    ShortestRemaining {
        /// How many servers.
        servers: u32,
    },
}

impl Upstream {
    /// A service at its full speed, beside the gate.
    pub const fn new(service: Service) -> Self {
        Self {
            service,
            replicas: 1,
            at_once: None,
            speed: Vec::new(),
            round_trip: Duration::ZERO,
            input_output: 0.0,
            conflicts: Vec::new(),
        }
    }

    /// One server that serves one at a time, in order of arrival.
    pub const fn server() -> Self {
        Self::new(Service::Fifo { servers: 1 })
    }

    /// Cores that all in flight share.
    pub const fn sharing(cores: u32, collapse: Collapse) -> Self {
        Self::new(Service::Sharing { cores, collapse })
    }

    /// The six services that capacity is looked for in front of, with their names: five that hurt, and one
    /// that doesn't.
    pub fn six() -> [(&'static str, Self); 6] {
        [
            ("cliff", Self::sharing(4, Collapse::CLIFF)),
            ("deadlocks", Self::sharing(2, Collapse::DEADLOCKS)),
            ("locks", Self::sharing(4, Collapse::LOCKS)),
            ("memory", Self::sharing(4, Collapse::MEMORY)),
            ("thrashing", Self::sharing(8, Collapse::THRASHING)),
            ("none", Self::sharing(4, Collapse::None)),
        ]
    }

    /// The most requests that it works on at the same time without sharing: servers or cores.
    pub const fn cores(&self) -> u32 {
        match self.service {
            Service::Fifo { servers }
            | Service::ShortestFirst { servers }
            | Service::ShortestRemaining { servers } => servers,
            Service::Sharing { cores, .. } | Service::Weighted { cores } => cores,
        }
    }

    /// Sets the number of servers or cores.
    pub const fn set_cores(&mut self, count: u32) {
        match &mut self.service {
            Service::Fifo { servers }
            | Service::ShortestFirst { servers }
            | Service::ShortestRemaining { servers } => *servers = count,
            Service::Sharing { cores, .. } | Service::Weighted { cores } => *cores = count,
        }
    }

    /// The part of requests that the service gives up with this many in flight.
    pub(crate) fn given_up(&self, in_flight: u64) -> f64 {
        if self.conflicts.is_empty() {
            0.0
        } else {
            collapse::interpolated(&self.conflicts, in_flight as f64)
        }
    }

    /// What is wrong with it.
    pub(crate) fn fault(&self) -> Option<&'static str> {
        if self.cores() == 0 {
            return Some("a service needs at least one server or core");
        }
        if self.replicas == 0 {
            return Some("there must be at least one service");
        }
        if self.at_once == Some(0) {
            return Some("a service that serves none at once never serves any");
        }
        if self.at_once.is_some() && !matches!(self.service, Service::Sharing { .. }) {
            return Some("only a service that shares its cores serves so many at once");
        }
        if self.speed.iter().any(|(_, factor)| !(factor.is_finite() && *factor >= 0.0)) {
            return Some("a speed must be a number from 0");
        }
        if !(self.input_output.is_finite() && self.input_output >= 0.0) {
            return Some("what is waited for each unit of work must be a number from 0");
        }
        if !self.conflicts.iter().all(|(_, part)| (0.0..1.0).contains(part)) {
            return Some("the part that is given up must be from 0 to less than 1");
        }
        if !self.conflicts.is_sorted_by(|a, b| a.0 < b.0) {
            return Some("the points of what is given up must be in order of what is in flight");
        }
        if !self.speed.is_sorted_by(|a, b| a.0 < b.0) {
            return Some("the steps of a speed must be in order of time");
        }
        match &self.service {
            Service::Sharing { collapse, .. } => collapse.fault(),
            _ => None,
        }
    }
}

/// What a service has to know of a request type.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Load {
    /// How much one counts in what is in flight.
    pub(crate) weight: u32,
    /// The lock that it needs.
    pub(crate) lock: Option<u32>,
}

/// What a service is told of a request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Job {
    pub(crate) kind: u32,
    pub(crate) source: u16,
    pub(crate) service_time: u64,
}

/// A service at work. Times are nanoseconds; a job is what the service knows of a request.
#[derive(Debug)]
pub(crate) struct Server {
    replicas: Vec<Replica>,
    /// The requests in service, by handle, and the replica of each.
    rows: Vec<(u32, usize)>,
    free: Vec<u32>,
    now: u64,
    /// Work done so far, in nanoseconds of service time.
    done: f64,
}

/// One of several services beside one another.
#[derive(Debug)]
struct Replica {
    kind: Kind,
    in_flight: u32,
}

#[derive(Debug)]
enum Kind {
    Queueing(Queueing),
    Sharing(Sharing),
    Weighted(Weighted),
}

impl Server {
    pub(crate) fn new(upstream: &Upstream, loads: &[Load]) -> Self {
        let kind = || match &upstream.service {
            Service::Fifo { servers } => Kind::Queueing(Queueing::new(*servers, queueing::Next::Earliest)),
            Service::ShortestFirst { servers } => {
                Kind::Queueing(Queueing::new(*servers, queueing::Next::Shortest))
            }
            Service::ShortestRemaining { servers } => {
                Kind::Queueing(Queueing::new(*servers, queueing::Next::LeastLeft))
            }
            Service::Weighted { cores } => Kind::Weighted(Weighted::new(*cores)),
            Service::Sharing { cores, collapse } => {
                Kind::Sharing(Sharing::new(*cores, collapse, upstream.at_once, loads.to_vec()))
            }
        };
        let replicas = (0..upstream.replicas).map(|_| Replica { kind: kind(), in_flight: 0 }).collect();
        Self { replicas, rows: Vec::new(), free: Vec::new(), now: 0, done: 0.0 }
    }

    /// Another weight of a source, if sources have weights here.
    pub(crate) fn weigh(&mut self, now: u64, source: usize, weight: f64) {
        self.advance(now);
        for replica in &mut self.replicas {
            if let Kind::Weighted(weighted) = &mut replica.kind {
                weighted.weigh(source, weight);
            }
        }
    }

    /// A request begins. Its handle.
    pub(crate) fn start(&mut self, now: u64, row: u32, job: Job) -> u32 {
        let Job { kind, source, service_time } = job;
        self.advance(now);
        let place = (0..self.replicas.len()).min_by_key(|&at| self.replicas[at].in_flight).unwrap_or(0);
        let handle = match self.free.pop() {
            Some(handle) => {
                self.rows[handle as usize] = (row, place);
                handle
            }
            None => {
                self.rows.push((row, place));
                (self.rows.len() - 1) as u32
            }
        };
        let (work, replica) = (service_time as f64, &mut self.replicas[place]);
        replica.in_flight += 1;
        match &mut replica.kind {
            Kind::Queueing(queueing) => queueing.start(handle, work),
            Kind::Sharing(sharing) => sharing.start(handle, kind, work),
            Kind::Weighted(weighted) => weighted.start(handle, usize::from(source), work),
        }
        handle
    }

    /// When the next one ends, if nothing else happens before.
    pub(crate) fn next(&self) -> Option<u64> {
        // Rounded up: it has really ended then. Longer than there are nanoseconds is never.
        let left = self.replicas.iter().filter_map(|replica| replica.kind.left()).min_by(f64::total_cmp);
        left.map(|left| self.now.saturating_add(libm::ceil(left.max(0.0)) as u64))
            .filter(|&next| next < u64::MAX)
    }

    /// The one that ends now, as [`Self::next`] said. Its row.
    pub(crate) fn finish(&mut self, now: u64) -> Option<u32> {
        self.advance(now);
        let ending = self.replicas.iter_mut().filter_map(|replica| Some((replica.kind.left()?, replica)));
        let (_, replica) = ending.min_by(|a, b| a.0.total_cmp(&b.0))?;
        let (handle, over) = replica.kind.finish()?;
        replica.in_flight -= 1;
        // The instant was rounded up: what was done beyond its end isn't work.
        self.done -= over;
        self.free.push(handle);
        Some(self.rows[handle as usize].0)
    }

    /// A request is stopped. The work that was done for it, in nanoseconds.
    pub(crate) fn stop(&mut self, now: u64, handle: u32, service_time: u64) -> f64 {
        self.advance(now);
        let replica = &mut self.replicas[self.rows[handle as usize].1];
        replica.in_flight -= 1;
        let left = match &mut replica.kind {
            Kind::Queueing(queueing) => queueing.stop(handle),
            Kind::Sharing(sharing) => sharing.stop(handle),
            Kind::Weighted(weighted) => weighted.stop(handle),
        };
        self.free.push(handle);
        service_time as f64 - left
    }

    /// From now on its speed is multiplied by this.
    pub(crate) fn set_speed(&mut self, now: u64, factor: f64) {
        self.advance(now);
        for replica in &mut self.replicas {
            match &mut replica.kind {
                Kind::Queueing(queueing) => queueing.set_speed(factor),
                Kind::Sharing(sharing) => sharing.set_speed(factor),
                Kind::Weighted(weighted) => weighted.set_speed(factor),
            }
        }
    }

    /// Work done until now, in nanoseconds of service time.
    pub(crate) fn done(&mut self, now: u64) -> f64 {
        self.advance(now);
        self.done
    }

    fn advance(&mut self, now: u64) {
        let passed = now.saturating_sub(self.now);
        if passed == 0 {
            return;
        }
        self.now = now;
        for replica in &mut self.replicas {
            self.done += match &mut replica.kind {
                Kind::Queueing(queueing) => queueing.advance(passed as f64),
                Kind::Sharing(sharing) => sharing.advance(passed as f64),
                Kind::Weighted(weighted) => weighted.advance(passed as f64),
            };
        }
    }
}

impl Kind {
    /// How long until the next one ends.
    fn left(&self) -> Option<f64> {
        match self {
            Self::Queueing(queueing) => queueing.left(),
            Self::Sharing(sharing) => sharing.left(),
            Self::Weighted(weighted) => weighted.left(),
        }
    }

    /// Takes out the one that ends first, and how far the clock is beyond its end.
    fn finish(&mut self) -> Option<(u32, f64)> {
        match self {
            Self::Queueing(queueing) => queueing.finish(),
            Self::Sharing(sharing) => sharing.finish(),
            Self::Weighted(weighted) => weighted.finish(),
        }
    }
}
