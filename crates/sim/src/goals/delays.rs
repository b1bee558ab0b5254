//! Where a request is delayed as the load rises (Fig. 1), and how a class's delay follows its share (Fig. 3).
//!
//! The paper has its delays as pictures only, without numbers. What theory says of the same systems is here
//! beside what is simulated: the two must agree, and the pictures show both.

use admission::{Duration, Instant, ServiceClass, Weight};

use super::{id, policy};
use crate::arrivals::{Arrivals, Rate};
use crate::clients::Mix;
use crate::distribution::Distribution;
use crate::engine::{Observer, Steering, run, run_with};
use crate::error::Error;
use crate::record::{Outcome, Row, Sample};
use crate::scenario::{End, Kind, Scenario, Source};
use crate::theory;
use crate::upstream::{Collapse, Service, Upstream};

/// `MaxClients` of Fig. 1 (section 2.2.1).
const FEW_WORKERS: u32 = 50;
/// The mean processor time of a request in Fig. 3, in seconds: that of Fig. 4.
pub const SHARED_WORK: f64 = 0.052;
/// Requests in a run.
const REQUESTS: f64 = 150_000.0;

/// A workload of Fig. 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Workload {
    /// Connections that stay open: each holds a worker for 2 s, and needs 10 ms of the processor.
    Persistent,
    /// Encrypted connections: each needs 52 ms of the processor.
    Encrypted,
}

/// Mean delays, in seconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Delays {
    /// In the accept queue.
    pub accept: f64,
    /// In the processor's run queue.
    pub run: f64,
    /// At the processor.
    pub service: f64,
}

impl Workload {
    /// The processor time of a connection, and how long it holds its worker beside that, in seconds.
    const fn needs(self) -> (f64, f64) {
        match self {
            Self::Persistent => (0.010, 2.0),
            Self::Encrypted => (0.052, 0.0),
        }
    }

    /// Connections per second that are this part of the most that can be served.
    pub fn rate(self, load: f64) -> f64 {
        let (work, held) = self.needs();
        let sharing = |rate: f64| work / (1.0 - rate * work) + held;
        // A worker is held for longer where the processor is busier.
        let (mut low, mut high) = (0.0, 1.0 / work);
        while held > 0.0 && high - low > 1e-9 {
            let middle = low.midpoint(high);
            if middle * sharing(middle) < f64::from(FEW_WORKERS) { low = middle } else { high = middle }
        }
        load * high
    }

    /// The delays at this part of the most that can be served, of one run.
    ///
    /// # Errors
    /// The errors of [`run`].
    pub fn delays(self, load: f64, seed: u64) -> Result<Delays, Error> {
        let (work, held) = self.needs();
        let kind = Kind { input_output: Some(held / work), ..Kind::new("request", exponential(work)) };
        let source = Source::new(Arrivals::Poisson(Rate::constant(self.rate(load))), Mix::Shares(vec![1.0]));
        let mut policy = policy(Vec::new(), None);
        policy.connections = FEW_WORKERS;
        let base = Scenario::new(policy, vec![kind], source, Upstream::sharing(1, Collapse::None));
        let scenario = lasting(REQUESTS / self.rate(load), seed, base);
        Ok(mean(&run(&scenario)?.rows, &scenario, held / work))
    }

    /// What theory says of these delays. The processor is shared (Kleinrock), workers are servers (Erlang).
    /// Where only the processor is needed, requests beyond the workers' number wait in the accept queue.
    pub fn theory(self, load: f64) -> Delays {
        let ((work, held), rate, workers) = (self.needs(), self.rate(load), FEW_WORKERS);
        let shared = theory::sharing(rate, work, work);
        let accept = if held > 0.0 {
            theory::mmc(workers, rate, 1.0 / (shared + held))
        } else {
            // Of M/M/1: the mean number beyond the workers', over the rate.
            let busy = rate * work;
            busy.powi(workers as i32 + 1) / (1.0 - busy) / rate
        };
        Delays { accept, run: shared - work - if held > 0.0 { 0.0 } else { accept }, service: work }
    }
}

/// The mean time that a request takes of a class which sends at this rate and has this share of a processor;
/// the rest is taken by requests that are always there.
///
/// # Errors
/// The errors of [`run`].
pub fn by_share(rate: f64, share: f64, seed: u64) -> Result<f64, Error> {
    let source = |place: usize, arrivals, mix: [f64; 2]| Source {
        class: id(place),
        ..Source::new(arrivals, Mix::Shares(mix.to_vec()))
    };
    let rest = Arrivals::Closed { clients: 1, think: Distribution::Fixed(Duration::ZERO), think_max: None };
    let kinds = vec![Kind::new("ssl", exponential(SHARED_WORK)), Kind::new("rest", exponential(1.0))];
    let sources =
        vec![source(0, Arrivals::Poisson(Rate::constant(rate)), [1.0, 0.0]), source(1, rest, [0.0, 1.0])];
    let mut policy = policy([0, 1].map(|place| ServiceClass::new(id(place), Weight::ONE)).to_vec(), None);
    policy.connections = 1_000_000;
    let base =
        Scenario::new(policy, kinds, sources[0].clone(), Upstream::new(Service::Weighted { cores: 1 }));
    let scenario = Scenario { sources, ..lasting(REQUESTS / rate, seed, base) };
    let rows = run_with(&scenario, &mut Shares([share, 1.0 - share]))?.rows;
    let rows: Vec<Row> = rows.into_iter().filter(|row| row.source == 0).collect();
    let Delays { accept, run, service } = mean(&rows, &scenario, 0.0);
    Ok(accept + run + service)
}

/// What theory says of [`by_share`]: the time at a processor that is slower by the share.
pub fn by_share_theory(rate: f64, share: f64) -> f64 {
    theory::sharing(rate, SHARED_WORK / share, SHARED_WORK / share)
}

fn exponential(mean: f64) -> Distribution {
    Distribution::Exponential { mean: Duration::from_secs_f64(mean) }
}

/// A scenario of so many seconds after a tenth more of them.
fn lasting(seconds: f64, seed: u64, base: Scenario) -> Scenario {
    let warm_up = Duration::from_secs_f64(seconds / 10.0);
    Scenario {
        seed,
        warm_up,
        duration: warm_up + Duration::from_secs_f64(seconds),
        end: End::Cut,
        tick: warm_up,
        ..base
    }
}

/// Mean delays of those that came after the warm-up, and hold a worker for so much longer than they work.
fn mean(rows: &[Row], scenario: &Scenario, held: f64) -> Delays {
    let since = Instant::ZERO.after(scenario.warm_up);
    let (mut sum, mut count) = ([0.0; 3], 0.0_f64);
    for row in rows.iter().filter(|row| row.outcome == Outcome::Completed && row.arrived >= since) {
        let work = row.service_time.as_millis_f64() / 1e3;
        let accept = row.queue_wait().as_secs_f64();
        let run = row.response_time().as_secs_f64() - accept - work * (1.0 + held);
        sum = [sum[0] + accept, sum[1] + run, sum[2] + work];
        count += 1.0;
    }
    let [accept, run, service] = sum.map(|sum| sum / count.max(1.0));
    Delays { accept, run, service }
}

/// Gives both sources their shares, once the run has begun.
struct Shares([f64; 2]);

impl Observer for Shares {
    fn tick(&mut self, _: &Sample, steering: &mut Steering<'_>) {
        for (source, share) in self.0.into_iter().enumerate() {
            steering.weigh(source, share);
        }
    }
}
