//! The pages of a shop, what each takes, and who asks for which when.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use tokio::time::{Instant, sleep_until};

use super::open::OpenRuns;
use super::{Beyond, OpenRun, Origin, Request};
use crate::Error;
use crate::gatekeeper::Gatekeeper;
use crate::load::ARRIVALS_MAX;
use crate::process::blocking;

/// The most connections of all clients together.
const CONNECTIONS_MAX: usize = 6_000;

/// The pages of TPC-W: what each takes on an idle machine (the paper "A Method for Transparent Admission Control and Request
/// Scheduling in E-Commerce Web Sites", Table 1, in ms), and its percentage of the shopping mix (TPC-W 1.8, table 5.2.1).
const PAGES: [(&str, f64, f64); 14] = [
    ("home", 1.83, 16.0),
    ("new-products", 13.82, 5.0),
    ("best-sellers", 1205.01, 5.0),
    ("product-detail", 0.75, 17.0),
    ("search-request", 0.22, 20.0),
    ("search-results", 73.27, 17.0),
    ("shopping-cart", 0.34, 11.6),
    ("customer-registration", 0.05, 3.0),
    ("buy-request", 5.26, 2.6),
    ("buy-confirm", 15.71, 1.2),
    ("order-inquiry", 0.05, 0.75),
    ("order-display", 7.43, 0.66),
    ("admin-request", 2.84, 0.10),
    ("admin-confirm", 2476.75, 0.09),
];

/// What the mix takes on average: the 50 requests a second of Yaksha's site on one core.
pub(crate) const MEAN_WORK: f64 = 0.020;
/// How much the work of one page varies from request to request: its standard deviation as a part of its mean.
const VARIATION: f64 = 0.5;

/// A type of pages is short whose requests take at most this part of the mix's mean.
const SHORT: f64 = 0.25;

/// Whether the pages of this type are short: they are nearly four fifths of the requests.
pub(crate) fn is_short(request_type: u16) -> bool {
    let total: f64 = PAGES.iter().map(|(_, _, share)| share).sum();
    let mean: f64 = PAGES.iter().map(|(_, ms, share)| ms * share).sum::<f64>() / total;
    PAGES.get(usize::from(request_type)).is_some_and(|(_, ms, _)| *ms <= SHORT * mean)
}

/// Requests and what they take.
#[derive(Clone, Debug, Default)]
pub(crate) struct Arrivals {
    /// In order of time.
    pub(crate) requests: Vec<Request>,
    /// What each sends.
    pub(crate) bytes: Vec<Vec<u8>>,
    /// What each takes of a processor, in seconds.
    pub(crate) work: Vec<f64>,
}

impl Arrivals {
    /// Has them meet an origin of their own on this processor: through a gate with these keys, if there are any.
    ///
    /// # Errors
    /// If one of the two doesn't start, or the load can't be run.
    pub(crate) async fn meet(
        &self,
        keys: Option<&'static [(&'static str, &'static str)]>,
        cpu: Option<usize>,
        patience: Duration,
    ) -> Result<OpenRuns, Error> {
        self.meet_stalled(keys, cpu, patience, None).await
    }

    /// The same; within that time the origin stands still.
    ///
    /// # Errors
    /// If one of the two doesn't start, or the load can't be run.
    pub(crate) async fn meet_stalled(
        &self,
        keys: Option<&'static [(&'static str, &'static str)]>,
        cpu: Option<usize>,
        patience: Duration,
        stall: Option<Range<Duration>>,
    ) -> Result<OpenRuns, Error> {
        let front = move |origin| {
            let gate = keys.map(|keys| Gatekeeper::start_http(origin, keys, None)).transpose()?;
            Ok((gate.as_ref().map_or(origin, Gatekeeper::port), gate))
        };
        self.meet_through(front, cpu, patience, stall).await
    }

    /// The same through whatever `front` starts before the origin at the port that it is given: it returns the port to ask,
    /// and what runs there, which is dropped at the end.
    ///
    /// # Errors
    /// As [`Arrivals::meet`].
    pub(crate) async fn meet_through<F: Send + 'static>(
        &self,
        front: impl FnOnce(u16) -> Result<(u16, F), Error> + Send + 'static,
        cpu: Option<usize>,
        patience: Duration,
        stall: Option<Range<Duration>>,
    ) -> Result<OpenRuns, Error> {
        let ((port, front), origin) = blocking(move || {
            let origin = Origin::start(cpu)?;
            Ok((front(origin.port())?, origin))
        })
        .await?;
        let run = OpenRun {
            port,
            requests: Arc::new(self.requests.clone()),
            bytes: Arc::new(self.bytes.clone()),
            patience,
            connections_max: CONNECTIONS_MAX,
            beyond: Beyond::Waits,
            measured: Vec::new(),
        };
        let begin = Instant::now();
        let stalling = async {
            if let Some(Range { start, end }) = stall {
                sleep_until(begin + start).await;
                origin.stop();
                sleep_until(begin + end).await;
                origin.go_on();
            }
        };
        let (outcome, ()) = tokio::join!(run.run(), stalling);
        let outcome = outcome?;
        blocking(move || {
            drop((front, origin));
            Ok(())
        })
        .await?;
        Ok(outcome)
    }

    /// A Poisson process whose rate changes: each step is the work that arrives, in processors, and for how long. What is
    /// drawn depends on nothing but the seed, so that every variant meets the same.
    ///
    /// # Errors
    /// If there would be more than fit.
    pub(crate) fn poisson(steps: &[(f64, Duration)], seed: u64) -> Result<Self, Error> {
        Self::poisson_of(MEAN_WORK, steps, seed)
    }

    /// The same of requests of this mean, in seconds of a processor.
    ///
    /// # Errors
    /// If there would be more than fit.
    pub(crate) fn poisson_of(mean: f64, steps: &[(f64, Duration)], seed: u64) -> Result<Self, Error> {
        let expected: f64 = steps.iter().map(|(load, lasts)| load / mean * lasts.as_secs_f64()).sum();
        if expected.is_nan() || expected > 0.9 * ARRIVALS_MAX as f64 {
            return Err(Error::Experiment(format!("{expected} arrivals: out of range")));
        }
        let mut random = StdRng::seed_from_u64(seed);
        let mut arrivals = Self::default();
        let mut begin = 0.0;
        for (load, lasts) in steps {
            let end = begin + lasts.as_secs_f64();
            let mut due = begin;
            loop {
                // 1 - u is never zero, so the logarithm is finite.
                due -= (1.0 - random.random::<f64>()).ln() * mean / load;
                if due >= end {
                    break;
                }
                arrivals.add(mean, Duration::from_secs_f64(due), &mut random);
            }
            begin = end;
        }
        Ok(arrivals)
    }

    /// So many requests of the mix, all of them due at once: for a closed loop.
    pub(crate) fn mix(count: usize, seed: u64) -> Self {
        let mut random = StdRng::seed_from_u64(seed);
        let mut arrivals = Self::default();
        for _ in 0..count {
            arrivals.add(MEAN_WORK, Duration::ZERO, &mut random);
        }
        arrivals
    }

    fn add(&mut self, mean: f64, due: Duration, random: &mut StdRng) {
        let (page, work) = draw(random);
        let work = work / MEAN_WORK * mean;
        let (name, micros) = (PAGES[page].0, work * 1e6);
        let request = format!(
            "GET /shop/{name}?work={micros:.0} HTTP/1.1\r\nHost: shop.example\r\nAccept: */*\r\n\r\n"
        );
        self.requests.push(Request { due, request_type: page as u16, bytes: self.bytes.len() });
        self.bytes.push(request.into_bytes());
        self.work.push(work);
    }
}

/// A page and what this request for it takes, in seconds.
fn draw(random: &mut StdRng) -> (usize, f64) {
    let total: f64 = PAGES.iter().map(|(_, _, share)| share).sum();
    let mean: f64 = PAGES.iter().map(|(_, ms, share)| ms * share).sum::<f64>() / total;
    let mut at = random.random::<f64>() * total;
    let page = PAGES
        .iter()
        .position(|(_, _, share)| {
            at -= share;
            at < 0.0
        })
        .unwrap_or(0);
    // Lognormal, by the method of Box and Muller.
    let variance = VARIATION.mul_add(VARIATION, 1.0).ln();
    let (angle, length) = (random.random::<f64>(), 1.0 - random.random::<f64>());
    let normal = (-2.0 * length.ln()).sqrt() * (std::f64::consts::TAU * angle).cos();
    let factor = variance.sqrt().mul_add(normal, -variance / 2.0).exp();
    (page, PAGES[page].1 / mean * MEAN_WORK * factor)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_pages_are_many_and_little_work() {
        let of = |is: bool, figure: fn(&(&str, f64, f64)) -> f64| -> f64 {
            let chosen = PAGES.iter().zip(0_u16..).filter(|(_, number)| is_short(*number) == is);
            chosen.map(|(page, _)| figure(page)).sum()
        };
        let (many, few) = (of(true, |page| page.2), of(false, |page| page.2));
        let (little, much) = (of(true, |page| page.1 * page.2), of(false, |page| page.1 * page.2));
        assert!((0.77..0.79).contains(&(many / (many + few))), "{many} and {few}");
        assert!(little < 0.03 * much, "{little} and {much}");
        assert!(!is_short(PAGES.len() as u16));
    }

    #[test]
    fn the_work_that_arrives_is_what_was_asked_for() {
        let steps = [(0.5, Duration::from_secs(2_000)), (3.0, Duration::from_secs(2_000))];
        let arrivals = Arrivals::poisson(&steps, 1).unwrap();
        let work: f64 = arrivals.work.iter().sum();
        // 7,000 s expected; the mix's variation of 4 over 350,000 requests is 48 s.
        assert!((6_760.0..7_240.0).contains(&work), "{work}");
        assert!(arrivals.requests.is_sorted_by_key(|request| request.due));
        assert_eq!(Arrivals::poisson(&steps, 1).unwrap().bytes, arrivals.bytes);
    }
}
