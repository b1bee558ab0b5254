//! A source at work: its next request, or what its clients do next.

use std::sync::Arc;

use crate::agenda::{Agenda, Due, nanos};
use crate::arrivals::{Arrival, Arrivals, Pace};
use crate::chance::{Chance, Purpose};
use crate::clients::{Client, Draw, Mix};
use crate::distribution::Sampler;
use crate::scenario::{Scenario, Source};

/// One source.
#[derive(Debug)]
pub(crate) struct Feed {
    flow: Flow,
    draw: Draw,
    stays: bool,
    from: u64,
    joining: u64,
    until: u64,
    /// When its next request arrives, if it is an open loop.
    next: u64,
}

#[derive(Debug)]
enum Flow {
    Open { pace: Pace, types: Chance, service_times: Chance },
    Replayed { arrivals: Arc<[Arrival]>, at: usize, service_times: Chance },
    Closed { clients: Vec<Client>, think: Sampler, think_max: u64 },
}

impl Feed {
    /// `end`: when the scenario does.
    pub(crate) fn new(source: &Source, seed: u64, index: u64, end: u64) -> Self {
        let from = nanos(source.from);
        let service_times = Chance::new(seed, Purpose::ServiceTimes, index);
        let flow = match &source.arrivals {
            Arrivals::Closed { clients, think, think_max } => Flow::Closed {
                clients: (0..*clients).map(|client| Client::new(seed, index, client.into())).collect(),
                think: think.sampler(),
                think_max: think_max.map_or(u64::MAX, nanos),
            },
            Arrivals::Replayed(arrivals) => {
                Flow::Replayed { arrivals: Arc::clone(arrivals), at: 0, service_times }
            }
            open @ (Arrivals::Poisson(_) | Arrivals::Regular(_) | Arrivals::OnOff { .. }) => Flow::Open {
                pace: Pace::new(open, Scenario::at(source.from), seed, index),
                types: Chance::new(seed, Purpose::Types, index),
                service_times,
            },
        };
        let until = source.until.map_or(end, |until| nanos(until).min(end));
        Self {
            flow,
            draw: Draw::new(&source.mix),
            stays: matches!(&source.mix, Mix::Sessions(sessions) if sessions.stays),
            from,
            joining: nanos(source.joining),
            until,
            next: u64::MAX,
        }
    }

    /// Finds the first arrival, or lets all clients think before their first request, or join.
    pub(crate) fn begin(&mut self, source: u16, agenda: &mut Agenda) {
        self.find_next();
        let Flow::Closed { clients, think, think_max } = &mut self.flow else { return };
        for (number, client) in clients.iter_mut().enumerate() {
            let thinks = match self.joining {
                0 => think.sample(&mut client.chance).min(*think_max),
                joining => (client.chance.unit() * joining as f64) as u64,
            };
            agenda.add(self.from.saturating_add(thinks), Due::Send(source, number as u32));
        }
    }

    /// When its next request arrives; [`u64::MAX`]: never, as far as it knows.
    pub(crate) fn next(&self) -> u64 {
        self.next
    }

    /// No more requests.
    pub(crate) fn close(&mut self) {
        (self.next, self.until) = (u64::MAX, 0);
    }

    fn find_next(&mut self) {
        let next = match &mut self.flow {
            Flow::Open { pace, .. } => pace.next(),
            Flow::Replayed { arrivals, at, .. } => {
                arrivals.get(*at).map(|arrival| self.from.saturating_add(nanos(arrival.at)))
            }
            Flow::Closed { .. } => None,
        };
        self.next = next.filter(|&next| next < self.until).unwrap_or(u64::MAX);
    }

    /// Takes the request that arrives now: its type and service time.
    pub(crate) fn take(&mut self, samplers: &[Sampler]) -> (u32, u64) {
        let taken = match &mut self.flow {
            Flow::Open { types, service_times, .. } => {
                let kind = self.draw.draw(types);
                (kind, samplers[kind as usize].sample(service_times))
            }
            Flow::Replayed { arrivals, at, service_times } => {
                let Arrival { kind, service_time, .. } = arrivals[*at];
                *at += 1;
                let drawn = |chance: &mut Chance| samplers[kind as usize].sample(chance);
                (kind, service_time.map_or_else(|| drawn(service_times), nanos))
            }
            Flow::Closed { .. } => (0, 0),
        };
        self.find_next();
        (taken.0, taken.1.max(SERVICE_TIME_MIN))
    }

    /// What a client of a closed loop sends now, unless its source has ended.
    pub(crate) fn send(&mut self, now: u64, client: u32, samplers: &[Sampler]) -> Option<(u32, u64)> {
        let Flow::Closed { clients, .. } = &mut self.flow else { return None };
        let client = clients.get_mut(client as usize).filter(|_| now < self.until)?;
        let kind = client.next(now, &self.draw);
        Some((kind, samplers[kind as usize].sample(&mut client.chance).max(SERVICE_TIME_MIN)))
    }

    /// A client of a closed loop got no answer.
    pub(crate) fn unanswered(&mut self, client: u32) {
        let Flow::Closed { clients, .. } = &mut self.flow else { return };
        if let Some(client) = clients.get_mut(client as usize).filter(|_| self.stays) {
            client.stay();
        }
    }

    /// For how long a client of a closed loop thinks now.
    pub(crate) fn think(&mut self, client: u32) -> Option<u64> {
        let Flow::Closed { clients, think, think_max } = &mut self.flow else { return None };
        let client = clients.get_mut(client as usize)?;
        Some(think.sample(&mut client.chance).min(*think_max))
    }
}

/// Nothing takes no time: at least a nanosecond.
const SERVICE_TIME_MIN: u64 = 1;
