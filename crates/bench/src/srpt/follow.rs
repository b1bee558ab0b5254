//! How soon a gate that finds the rate of its uplink follows a rate that changes.

use std::sync::Arc;
use std::time::{Duration, Instant};

use serde::Serialize;
use sim::uplink::Download;
use tokio::time::sleep;

use super::case::{self, BITS, Load, Setup};
use super::laboratory::Testbed;
use crate::Error;
use crate::alternate::Display;
use crate::blocking::blocking;

/// A little more than the link carries, so that a queue stands all the time.
const LOAD: Load = Load::Persistent(1.1);
/// For how long requests come; when the rate is halved, and when it is doubled.
const LENGTH: Duration = Duration::from_secs(20);
const HALVED: Duration = Duration::from_secs(8);
const DOUBLED: Duration = Duration::from_secs(14);
/// The rate counts as followed within this part of the new one.
const WITHIN: f64 = 0.25;
/// How long a rate is waited for at most.
const BOUND: Duration = Duration::from_secs(5);
/// How often the gate is asked.
const EVERY: Duration = Duration::from_millis(20);

/// Seconds until the gate's rate had followed, by round, at most the 5 s that are waited.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Followed {
    /// After the link's rate was halved.
    pub halved: Vec<f64>,
    /// After it was doubled.
    pub doubled: Vec<f64>,
}

/// Halves and doubles the link's rate under load.
pub(super) async fn measure(
    rounds: usize,
    trace: &[Download],
    cpu: Option<usize>,
    display: &Display,
) -> Result<Followed, Error> {
    let requests = LOAD.phases().replay(&case::counted(Setup::BASELINE), trace, LENGTH);
    let requests = Arc::new(requests);
    let mut followed = Followed::default();
    for round in 1..=rounds {
        display.now(format!("a rate that changes: round {round} of {rounds}"));
        let testbed = blocking(move || Testbed::start(case::FOUND, Setup::BASELINE, cpu)).await?;
        let played = testbed.requests(Setup::BASELINE, &requests);
        let (outcome, times) = tokio::join!(played.run(), change(&testbed));
        outcome?;
        let [halved, doubled] = times?;
        followed.halved.push(halved.as_secs_f64());
        followed.doubled.push(doubled.as_secs_f64());
        blocking(move || {
            drop(testbed);
            Ok(())
        })
        .await?;
    }
    Ok(followed)
}

async fn change(testbed: &Testbed) -> Result<[Duration; 2], Error> {
    sleep(HALVED).await;
    let before = found(testbed).await?;
    testbed.link.set_rate(BITS / 2)?;
    let halved = until(testbed, before / 2.0).await?;
    sleep(DOUBLED.saturating_sub(HALVED + halved)).await;
    testbed.link.set_rate(BITS)?;
    Ok([halved, until(testbed, before).await?])
}

/// The rate that the gate has found, or finds soon: a link that was let go for a moment is found again.
async fn found(testbed: &Testbed) -> Result<f64, Error> {
    let began = Instant::now();
    loop {
        if let Some(rate) = testbed.rate_found()? {
            return Ok(rate);
        }
        if began.elapsed() > BOUND {
            return Err(Error::Experiment(format!("the gate finds no rate at a load of {LOAD}")));
        }
        sleep(EVERY).await;
    }
}

/// How long it takes until the gate has found about this rate.
async fn until(testbed: &Testbed, rate: f64) -> Result<Duration, Error> {
    let began = Instant::now();
    while began.elapsed() < BOUND {
        if testbed.rate_found()?.is_some_and(|found| (found / rate - 1.0).abs() <= WITHIN) {
            return Ok(began.elapsed());
        }
        sleep(EVERY).await;
    }
    Ok(BOUND)
}
