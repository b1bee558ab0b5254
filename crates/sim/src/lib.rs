//! The laboratory: the same gate that protects a service, under virtual time.
//!
//! A [`Scenario`] says who sends requests, what they take, how the service serves them, and the policy of
//! the gate in between. [`run`] plays it, a million requests a second, and checks after each run that
//! nothing was lost ([`Law`]). A run is a function of its scenario: the same [`Run::trace`] on every
//! machine. The gate is [`admission::Gate`]. Services that look at true service times are yardsticks.
//!
//! ```
//! use admission::{Capacity, Cost, Duration, LongLimit, Order, Policy};
//! use sim::{Arrivals, Collapse, Distribution, Kind, Mix, Rate, Scenario, Source, Upstream, run};
//!
//! let policy = Policy {
//!     capacity: Capacity::Unlimited,
//!     connections: 20,
//!     long_limit: Some(LongLimit::FOUND),
//!     cost: Cost::DEFAULT,
//!     order: Order::Fifo,
//!     queue_max: 100_000,
//!     queue_timeout: Duration::from_secs(120),
//!     pinned_max: 1,
//!     types_max: 1_000,
//!     ..Policy::default()
//! };
//! let millis = Duration::from_millis;
//! let types = vec![
//!     Kind::new("read", Distribution::Exponential { mean: millis(1) }),
//!     Kind::new("report", Distribution::Lognormal { mean: millis(60), cv: 0.5 }),
//! ];
//! // 95 reads for 5 reports, at half of what two cores can do.
//! let shares = vec![95.0, 5.0];
//! let rate = 0.5 * 2.0 / Scenario::mean_service_time(&types, &shares);
//! let clients = Source::new(Arrivals::Poisson(Rate::constant(rate)), Mix::Shares(shares));
//! let scenario = Scenario {
//!     warm_up: Duration::from_secs(10),
//!     duration: Duration::from_secs(110),
//!     ..Scenario::new(policy, types, clients, Upstream::sharing(2, Collapse::None))
//! };
//! let run = run(&scenario)?;
//! println!("reads took {:.1} ms", run.summary.types[0].response.mean * 1e3);
//! assert!(run.summary.types[0].response.mean < 0.01);
//!
//! // The same arrivals and service times without a gate.
//! let policy = Policy { connections: u32::MAX, long_limit: None, ..scenario.policy.clone() };
//! let ungated = Scenario { policy, ..scenario };
//! assert_eq!(sim::run(&ungated)?.rows.len(), run.rows.len());
//! # Ok::<(), sim::Error>(())
//! ```
//!
//! To watch or steer a gate on the way (a controller outside it, a probe, a policy that changes), give an
//! [`Observer`] to [`run_with`]: it hears every event, and is asked at each tick. [`sweep`] runs many
//! scenarios on all cores.

mod agenda;
mod application;
mod arrivals;
mod chance;
mod clients;
pub mod controllers;
mod distribution;
mod engine;
mod error;
pub mod goals;
mod interval;
mod laws;
pub mod plot;
mod record;
mod result;
mod scenario;
pub mod search;
mod sources;
mod summary;
mod sweep;
pub mod theory;
pub mod uplink;
mod upstream;

pub use application::{Application, TableLock};
pub use arrivals::{Arrival, Arrivals, Phase, Rate};
pub use chance::{Chance, Purpose};
pub use clients::{Abandoned, Mix, Patience, Sessions};
pub use distribution::Distribution;
pub use engine::{Observer, Steering, run, run_with};
pub use error::Error;
pub use interval::{Interval, student};
pub use laws::Law;
pub use record::{Outcome, Row, Sample};
pub use result::Run;
pub use scenario::{End, Keep, Kind, Scenario, Source};
pub use summary::{Figures, Summary, Times, Visits};
pub use sweep::{sweep, sweep_with};
pub use upstream::{Collapse, Service, Upstream};
