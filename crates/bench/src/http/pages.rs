//! The pages of a shop, what each takes, and which client asks for which when.

use std::net::Ipv4Addr;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use serde::{Deserialize, Serialize};
use tokio::time::{Instant, sleep_until};

use super::open::OpenRuns;
use super::{Beyond, Habits, OpenRun, Origin, Request};
use crate::Error;
use crate::blocking::blocking;
use crate::gatekeeper::Gatekeeper;
use crate::load::ARRIVALS_MAX;

/// The most connections of all clients together.
const CONNECTIONS_MAX: usize = 6_000;

/// The pages of TPC-W: what each takes on an idle machine (the paper "A Method for Transparent Admission
/// Control and Request Scheduling in E-Commerce Web Sites", Table 1, in ms), and its percentages of the
/// mixes, in their order (TPC-W 1.8, table 5.2.1).
const PAGES: [(&str, f64, [f64; 2]); 14] = [
    ("home", 1.83, [16.0, 29.0]),
    ("new-products", 13.82, [5.0, 11.0]),
    ("best-sellers", 1205.01, [5.0, 11.0]),
    ("product-detail", 0.75, [17.0, 21.0]),
    ("search-request", 0.22, [20.0, 12.0]),
    ("search-results", 73.27, [17.0, 11.0]),
    ("shopping-cart", 0.34, [11.6, 2.0]),
    ("customer-registration", 0.05, [3.0, 0.82]),
    ("buy-request", 5.26, [2.6, 0.75]),
    ("buy-confirm", 15.71, [1.2, 0.69]),
    ("order-inquiry", 0.05, [0.75, 0.30]),
    ("order-display", 7.43, [0.66, 0.25]),
    ("admin-request", 2.84, [0.10, 0.10]),
    ("admin-confirm", 2476.75, [0.09, 0.09]),
];

/// Which of TPC-W's mixes visitors ask for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Mix {
    /// A twentieth of the requests makes four fifths of the work: a 95th percentile is either what the
    /// others take or what those do, as chance has it.
    #[default]
    Shopping,
    /// A ninth of the requests makes nine tenths of the work: the 95th percentile is in their midst.
    Browsing,
}

impl Mix {
    /// The percentage of this page.
    fn share(self, (_, _, shares): &(&str, f64, [f64; 2])) -> f64 {
        shares[self as usize]
    }

    /// What it takes on average by the paper's table, in ms.
    fn mean(self) -> f64 {
        let total: f64 = PAGES.iter().map(|page| self.share(page)).sum();
        PAGES.iter().map(|page| page.1 * self.share(page)).sum::<f64>() / total
    }
}

/// What is asked for: a mix, on a site on which it takes so many seconds of a processor on average.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Visits {
    pub(crate) mix: Mix,
    pub(crate) mean: f64,
}

impl Visits {
    /// Of this mix, on a site of [`MEAN_WORK`].
    pub(crate) const fn of(mix: Mix) -> Self {
        Self { mix, mean: MEAN_WORK }
    }
}

/// What the mix takes on average: the 50 requests a second of Yaksha's site on one core.
pub(crate) const MEAN_WORK: f64 = 0.020;
/// How much the work of one page varies from request to request: its standard deviation as a part of its
/// mean.
const VARIATION: f64 = 0.5;

/// A type of pages is short whose requests take at most this part of the mix's mean.
const SHORT: f64 = 0.25;

/// Whether the pages of this type are short: they are nearly four fifths of the requests of the shopping mix.
pub(crate) fn is_short(request_type: u16) -> bool {
    PAGES.get(usize::from(request_type)).is_some_and(|(_, ms, _)| *ms <= SHORT * Mix::Shopping.mean())
}

/// The name of a type of pages.
pub(crate) fn name(request_type: u16) -> Option<&'static str> {
    PAGES.get(usize::from(request_type)).map(|page| page.0)
}

/// Each page of a mix: its name, its share in percent, and what it takes on average on a site of
/// [`MEAN_WORK`], in seconds.
pub(crate) fn expected(mix: Mix) -> impl Iterator<Item = (&'static str, f64, f64)> {
    PAGES.iter().map(move |page| (page.0, mix.share(page), page.1 / mix.mean() * MEAN_WORK))
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
    /// Has the arrivals meet an origin of their own through whatever `front` starts. `front` gets the
    /// origin's port. It returns the port to ask, and what runs there, which is dropped at the end. During
    /// `stall` the origin stands still.
    ///
    /// # Errors
    /// If the origin or the front doesn't start, or the load can't be run.
    pub(crate) async fn meet<F: Send + 'static>(
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
            address: (Ipv4Addr::LOCALHOST, port).into(),
            inside: None,
            habits: Habits::default(),
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

    /// A Poisson process whose rate changes: each step is the work that arrives, in processors, and for how
    /// long. What is drawn depends on nothing but the seed, so that every variant meets the same.
    ///
    /// # Errors
    /// If there would be more than fit.
    pub(crate) fn poisson(visits: Visits, steps: &[(f64, Duration)], seed: u64) -> Result<Self, Error> {
        let mean = visits.mean;
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
                arrivals.add(visits, Duration::from_secs_f64(due), &mut random);
            }
            begin = end;
        }
        Ok(arrivals)
    }

    /// A number of requests, all of them due at once: for a closed loop.
    pub(crate) fn at_once(visits: Visits, count: usize, seed: u64) -> Self {
        let mut random = StdRng::seed_from_u64(seed);
        let mut arrivals = Self::default();
        for _ in 0..count {
            arrivals.add(visits, Duration::ZERO, &mut random);
        }
        arrivals
    }

    fn add(&mut self, visits: Visits, due: Duration, random: &mut StdRng) {
        let (page, work) = draw(visits, random);
        let (name, micros) = (PAGES[page].0, work * 1e6);
        let request = format!(
            "GET /shop/{name}?work={micros:.0} HTTP/1.1\r\nHost: shop.example\r\nAccept: */*\r\n\r\n"
        );
        self.requests.push(Request { due, request_type: page as u16, bytes: self.bytes.len() });
        self.bytes.push(request.into_bytes());
        self.work.push(work);
    }
}

/// Starts a gate with these keys before an origin, if there are any.
pub(crate) fn behind(
    keys: Option<&'static [(&'static str, &'static str)]>,
) -> impl FnOnce(u16) -> Result<(u16, Option<Gatekeeper>), Error> + Send + 'static {
    move |origin| {
        let gate = keys.map(|keys| Gatekeeper::start_http(origin, keys, None)).transpose()?;
        Ok((gate.as_ref().map_or(origin, Gatekeeper::port), gate))
    }
}

/// A page and what this request for it takes, in seconds.
fn draw(visits: Visits, random: &mut StdRng) -> (usize, f64) {
    let Visits { mix, mean } = visits;
    let total: f64 = PAGES.iter().map(|page| mix.share(page)).sum();
    let mut at = random.random::<f64>() * total;
    let page = PAGES
        .iter()
        .position(|page| {
            at -= mix.share(page);
            at < 0.0
        })
        .unwrap_or(0);
    // Lognormal, by the method of Box and Muller.
    let variance = VARIATION.mul_add(VARIATION, 1.0).ln();
    let (angle, length) = (random.random::<f64>(), 1.0 - random.random::<f64>());
    let normal = (-2.0 * length.ln()).sqrt() * (std::f64::consts::TAU * angle).cos();
    let factor = variance.sqrt().mul_add(normal, -variance / 2.0).exp();
    (page, PAGES[page].1 / mix.mean() * mean * factor)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_pages_are_many_and_little_work() {
        let of = |is: bool, figure: fn(f64, f64) -> f64| -> f64 {
            let chosen = PAGES.iter().zip(0_u16..).filter(|(_, number)| is_short(*number) == is);
            chosen.map(|(page, _)| figure(page.1, Mix::Shopping.share(page))).sum()
        };
        let (many, few) = (of(true, |_, share| share), of(false, |_, share| share));
        let (little, much) = (of(true, |ms, share| ms * share), of(false, |ms, share| ms * share));
        assert!((0.77..0.79).contains(&(many / (many + few))), "{many} and {few}");
        assert!(little < 0.03 * much, "{little} and {much}");
        assert!(!is_short(PAGES.len() as u16));
    }

    #[test]
    fn the_work_that_arrives_is_what_was_asked_for() {
        let steps = [(0.5, Duration::from_secs(2_000)), (3.0, Duration::from_secs(2_000))];
        for mix in [Mix::Shopping, Mix::Browsing] {
            let arrivals = Arrivals::poisson(Visits::of(mix), &steps, 1).unwrap();
            let work: f64 = arrivals.work.iter().sum();
            // 7,000 s expected; the shopping mix's variation of 4 over 350,000 requests is 48 s.
            assert!((6_760.0..7_240.0).contains(&work), "{mix:?}: {work}");
            assert!(arrivals.requests.is_sorted_by_key(|request| request.due));
            assert_eq!(Arrivals::poisson(Visits::of(mix), &steps, 1).unwrap().bytes, arrivals.bytes);
        }
    }

    #[test]
    fn of_browsers_a_ninth_of_the_requests_makes_nine_tenths_of_the_work() {
        let arrivals = Arrivals::at_once(Visits::of(Mix::Browsing), 100_000, 2);
        let is_long = |number: usize| matches!(PAGES[number].0, "best-sellers" | "admin-confirm");
        let (mut requests, mut work) = (0.0, 0.0);
        for (request, took) in arrivals.requests.iter().zip(&arrivals.work) {
            if is_long(usize::from(request.request_type)) {
                requests += 1.0;
                work += took;
            }
        }
        assert!((0.10..0.12).contains(&(requests / 100_000.0)), "{requests}");
        let part = work / arrivals.work.iter().sum::<f64>();
        assert!((0.91..0.96).contains(&part), "{part}");
    }
}
