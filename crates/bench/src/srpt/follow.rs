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
use crate::table::seconds;
use crate::turns::{Flags, Row};

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

/// Seconds until the gate's rate had followed: at most the 5 s that are waited.
#[derive(Clone, Copy, Debug, Serialize)]
struct Followed {
    /// After the link's rate was halved.
    halved: f64,
    /// After it was doubled.
    doubled: f64,
}

const ROWS: &[Row<Followed>] = &[
    Row::new("a halved rate is followed within", |followed| followed.halved, seconds),
    Row::new("a doubled one within", |followed| followed.doubled, seconds),
];

/// Halves and doubles the link's rate under load.
pub(super) async fn measure(
    rounds: usize,
    trace: &[Download],
    options: &Flags,
    display: &Display,
) -> Result<String, Error> {
    let requests = Arc::new(LOAD.phases().replay(&case::counted(Setup::BASELINE), trace, LENGTH));
    let cpu = options.cpu;
    let mut report = options.report("srpt-follow", &["a gate that finds the rate"], ROWS)?;
    report
        .measure("", (rounds, LENGTH), display, async |_| {
            let testbed = blocking(move || Testbed::start(case::FOUND, Setup::BASELINE, cpu)).await?;
            let played = testbed.requests(Setup::BASELINE, &requests);
            let (outcome, times) = tokio::join!(played.run(), change(&testbed));
            outcome?;
            let [halved, doubled] = times?.map(|time| time.as_secs_f64());
            blocking(move || {
                drop(testbed);
                Ok(())
            })
            .await?;
            Ok(Followed { halved, doubled })
        })
        .await?;
    Ok(report.table())
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
