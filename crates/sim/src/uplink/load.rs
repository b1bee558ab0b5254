//! Requests for an uplink: sizes as in published traces, and loads that change.

use admission::Duration;

use super::{Download, Setup};
use crate::chance::{Chance, Purpose};

/// Sizes of responses.
#[derive(Clone, Debug, PartialEq)]
pub enum Bytes {
    /// The World Cup of 1998: a lognormal body and a Pareto tail, which meet every published fact (mean 5 KB,
    /// half below 1 KB, nine tenths below 9.3 KB, 3 % of the responses make half of the bytes, at most 2.02
    /// MB).
    WorldCup,
    /// The NASA trace of 1995 by its quantiles: mean 18 KB, median 3.7 KB, at most 1.3 MB.
    Nasa,
    /// Bounded Pareto between two sizes.
    Pareto {
        /// The tail's exponent.
        alpha: f64,
        /// The least.
        least: u64,
        /// The most.
        most: u64,
    },
    /// Always the same.
    Fixed(u64),
    /// Exponential, with this mean.
    Exponential(f64),
}

/// Quantiles of the NASA trace's 27 825 answers with status 200; logarithmic between.
const NASA: [(f64, f64); 11] = [
    (0.0, 156.0),
    (0.1, 363.0),
    (0.25, 786.0),
    (0.5, 3_635.0),
    (0.75, 8_677.0),
    (0.9, 36_902.0),
    (0.95, 72_117.0),
    (0.99, 250_843.0),
    (0.995, 372_172.0),
    (0.999, 946_425.0),
    (1.0, 1_269_716.0),
];

impl Bytes {
    /// One of them.
    pub fn draw(&self, chance: &mut Chance) -> u64 {
        // The same number of draws for all, so that times stay in step.
        let (which, unit) = (chance.unit(), chance.unit());
        let normals = [(); 4].map(|()| chance.normal());
        let pareto = |alpha: f64, least: f64, most: f64| {
            least * libm::pow(1.0 - unit * (1.0 - libm::pow(least / most, alpha)), -1.0 / alpha)
        };
        let size = match *self {
            Self::WorldCup if which < 0.04 => pareto(1.3, 20_000.0, 2_020_000.0),
            Self::WorldCup => {
                // The body is cut, not heaped, at the tail's beginning.
                let body = normals.map(|normal| 900.0 * libm::exp(1.75 * normal));
                body.into_iter().find(|&size| size < 20_000.0).unwrap_or(900.0).max(41.0)
            }
            Self::Nasa => {
                let above = NASA.partition_point(|&(part, _)| part <= unit).clamp(1, NASA.len() - 1);
                let ((from, least), (to, most)) = (NASA[above - 1], NASA[above]);
                least * libm::pow(most / least, (unit - from) / (to - from))
            }
            Self::Pareto { alpha, least, most } => pareto(alpha, least as f64, most as f64),
            Self::Fixed(bytes) => bytes as f64,
            Self::Exponential(mean) => -mean * libm::log(unit),
        };
        libm::round(size).max(1.0) as u64
    }
}

/// Loads that follow one another without end, each for its time.
#[derive(Clone, Debug, PartialEq)]
pub struct Phases(pub Vec<(Duration, f64)>);

impl Phases {
    /// One load that never changes.
    pub fn constant(load: f64) -> Self {
        Self(vec![(Duration::from_secs(3_600), load)])
    }

    /// The workload of Table I of this number, from 1 to 10.
    pub fn published(number: usize) -> Option<Self> {
        const TABLE: [(f64, f64, f64, f64); 10] = [
            (25.0, 25.0, 0.2, 1.2),
            (10.0, 10.0, 0.2, 1.2),
            (50.0, 50.0, 0.2, 1.6),
            (25.0, 25.0, 0.4, 1.4),
            (10.0, 10.0, 0.4, 1.4),
            (40.0, 40.0, 0.1, 1.7),
            (63.0, 6.0, 0.4, 5.0),
            (63.0, 10.0, 0.45, 3.0),
            (20.0, 3.0, 0.735, 2.0),
            (13.3, 2.0, 0.735, 2.0),
        ];
        let &(low, high, below, above) = TABLE.get(number.checked_sub(1)?)?;
        Some(Self(vec![(Duration::from_secs_f64(low), below), (Duration::from_secs_f64(high), above)]))
    }

    /// The instant at which a unit of load has been offered `work` times, and so on: turns a trace of
    /// constant load 1 into one of these loads, as the paper does (interarrival times are divided by the
    /// load).
    fn scale(&self, trace: &[Download], length: Duration) -> Vec<Download> {
        let end = length.as_secs_f64();
        let (mut phase, mut until, mut at, mut before) = (0, self.0[0].0.as_secs_f64(), 0.0, 0.0);
        let mut scaled = Vec::new();
        for request in trace {
            let mut gap = request.at.as_secs_f64() - before;
            before += gap;
            loop {
                let load = self.0[phase].1;
                if at + gap / load <= until {
                    at += gap / load;
                    break;
                }
                gap -= (until - at) * load;
                at = until;
                phase = (phase + 1) % self.0.len();
                until += self.0[phase].0.as_secs_f64();
            }
            if at >= end {
                break;
            }
            scaled.push(Download { at: Duration::from_secs_f64(at), bytes: request.bytes });
        }
        scaled
    }

    /// Requests of these loads on a link for so long, from a trace of any load, which is repeated as often as
    /// needed.
    pub fn replay(&self, setup: &Setup, trace: &[Download], length: Duration) -> Vec<Download> {
        let Some(last) = trace.last() else { return Vec::new() };
        let sum: u64 = trace.iter().map(|request| setup.on_the_link(request.bytes)).sum();
        let lasts = last.at.as_secs_f64().max(1e-9) * (trace.len() + 1) as f64 / trace.len() as f64;
        let load = sum as f64 * 8.0 / setup.bits / lasts;
        let highest = self.0.iter().map(|phase| phase.1).fold(0.0, f64::max);
        let rounds = (length.as_secs_f64() * highest / load / lasts) as usize + 1;
        let unit = (0..rounds).flat_map(|round| {
            let shift = lasts * round as f64;
            trace.iter().map(move |request| Download {
                at: Duration::from_secs_f64((request.at.as_secs_f64() + shift) * load),
                ..*request
            })
        });
        self.scale(&unit.collect::<Vec<_>>(), length)
    }
}

/// This number of requests at random times, one a second on average.
pub fn poisson(bytes: &Bytes, count: usize, seed: u64) -> Vec<Download> {
    let mut arrivals = Chance::new(seed, Purpose::Arrivals, 0);
    let mut at = 0.0;
    closed_sizes(bytes, count, seed)
        .into_iter()
        .map(|bytes| {
            at += arrivals.exponential();
            Download { at: Duration::from_secs_f64(at), bytes }
        })
        .collect()
}

/// This number of sizes.
pub fn closed_sizes(bytes: &Bytes, count: usize, seed: u64) -> Vec<u64> {
    let mut chance = Chance::new(seed, Purpose::ServiceTimes, 0);
    (0..count).map(|_| bytes.draw(&mut chance)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::uplink::Queue;

    fn sizes(bytes: &Bytes) -> (f64, Vec<u64>) {
        let mut sizes = closed_sizes(bytes, 400_000, 1);
        sizes.sort_unstable();
        (sizes.iter().sum::<u64>() as f64 / sizes.len() as f64, sizes)
    }

    #[test]
    fn sizes_of_the_world_cup_have_the_published_properties() {
        let (mean, sizes) = sizes(&Bytes::WorldCup);
        let below = |limit: u64| sizes.partition_point(|&size| size < limit) as f64 / sizes.len() as f64;
        assert!((4_500.0..5_500.0).contains(&mean), "{mean}");
        assert!(below(1_024) > 0.5 && below(9_523) > 0.9, "{} {}", below(1_024), below(9_523));
        let largest: u64 = sizes[sizes.len() * 97 / 100..].iter().sum();
        assert!(largest as f64 > 0.48 * mean * sizes.len() as f64);
    }

    #[test]
    fn sizes_of_nasa_have_the_trace_s_mean() {
        let (mean, sizes) = sizes(&Bytes::Nasa);
        assert!((17_000.0..20_000.0).contains(&mean), "{mean}");
        assert!((3_500..3_800).contains(&sizes[sizes.len() / 2]));
    }

    #[test]
    fn each_phase_has_its_load() {
        let setup = Setup::baseline(Queue::fair());
        let trace = poisson(&Bytes::Fixed(1_000), 50_000, 1);
        let phases = Phases::published(1).unwrap();
        let requests = phases.replay(&setup, &trace, Duration::from_secs(500));
        let load = |low: bool| {
            let of = |request: &&Download| (request.at.as_secs_f64() % 50.0 < 25.0) == low;
            let bytes: u64 = requests.iter().filter(of).map(|one| setup.on_the_link(one.bytes)).sum();
            bytes as f64 * 8.0 / setup.bits / 250.0
        };
        assert!((load(true) / 0.2 - 1.0).abs() < 0.02 && (load(false) / 1.2 - 1.0).abs() < 0.02);
    }
}
