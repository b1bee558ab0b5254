//! The closed loop: N clients without think time, to find what a server can do at that concurrency.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use super::Outcome;
use super::client::Client;
use super::connections::ConnectionPool;
use super::execution::execute;
use super::mix::{Mix, Rotation};
use crate::Error;

/// What a closed loop reached.
#[derive(Clone, Copy, Debug, serde::Serialize)]
pub struct ClosedOutcome {
    /// Clients.
    pub clients: usize,
    /// Completions per second.
    pub throughput: f64,
    /// Mean response time of the completed requests, in seconds.
    pub mean_response_seconds: f64,
    /// Clients that the completions don't account for (see [`little_residual`]).
    pub residual_clients: f64,
    /// Requests that failed.
    pub failed: usize,
}

#[derive(Debug, Default)]
struct Tally {
    completed: usize,
    failed: usize,
    responses: Duration,
}

/// How long the clients run before anything counts, as a part of the window: light requests are the first
/// to end, so that a window which begins at once sees too many of them.
const RAMP: f64 = 0.25;

/// Runs `clients` clients against the pool's connections, which take their request types in turn, for a
/// ramp of a quarter of `window` and then for `window`. Only what ends inside the window counts.
///
/// # Errors
/// If the pool has too few idle connections.
pub async fn run_closed(
    pool: &Arc<ConnectionPool>,
    mix: &Arc<Mix>,
    clients: usize,
    window: Duration,
    seed: u64,
) -> Result<ClosedOutcome, Error> {
    let begin = Instant::now() + window.mul_f64(RAMP);
    let end = begin + window;
    let rotation = Arc::new(Mutex::new(Rotation::new(mix)));
    let mut tasks = tokio::task::JoinSet::new();
    for number in 0..clients {
        let client = pool.take().ok_or_else(|| Error::Experiment("too few idle connections".to_owned()))?;
        let (pool, mix, rotation) = (Arc::clone(pool), Arc::clone(mix), Arc::clone(&rotation));
        let random = StdRng::seed_from_u64(seed.wrapping_add(number as u64));
        tasks.spawn(async move {
            let tally = one_client(&client, &mix, &rotation, (begin, end), random).await;
            // A closed loop never queues requests, so this only puts the connection back.
            let _ = pool.hand_on(client);
            tally
        });
    }
    let mut total = Tally::default();
    while let Some(joined) = tasks.join_next().await {
        let tally = joined.map_err(|_| Error::Experiment("a client was aborted".to_owned()))?;
        total.completed += tally.completed;
        total.failed += tally.failed;
        total.responses += tally.responses;
    }
    let throughput = total.completed as f64 / window.as_secs_f64();
    let mean = total.responses.as_secs_f64() / (total.completed.max(1)) as f64;
    Ok(ClosedOutcome {
        clients,
        throughput,
        mean_response_seconds: mean,
        residual_clients: little_residual(clients as f64, throughput, mean),
        failed: total.failed,
    })
}

async fn one_client(
    client: &Client,
    mix: &Mix,
    rotation: &Mutex<Rotation>,
    (begin, end): (Instant, Instant),
    mut random: StdRng,
) -> Tally {
    let mut tally = Tally::default();
    loop {
        let sent = Instant::now();
        if sent >= end || client.is_closed() {
            return tally;
        }
        let request_type = mix.get(rotation.lock().unwrap_or_else(PoisonError::into_inner).next(mix));
        let outcome = execute(client, request_type, random.random()).await.outcome;
        let now = Instant::now();
        if now < begin {
            continue;
        }
        if now >= end {
            return tally;
        }
        if outcome == Outcome::Completed {
            tally.completed += 1;
            tally.responses += sent.elapsed();
        } else {
            tally.failed += 1;
        }
    }
}

/// Clients that finished nothing in the window, in a closed loop without think time.
///
/// Little's law says N = X · R. Where N − X · R is not near zero, the mean response time covers only the
/// survivors and understates the truth.
pub fn little_residual(clients: f64, throughput: f64, mean_response_seconds: f64) -> f64 {
    clients - throughput * mean_response_seconds
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn littles_law_accounts_for_every_client_that_finishes_something() {
        assert_eq!(little_residual(10.0, 100.0, 0.1), 0.0);
        assert_eq!(little_residual(600.0, 100.0, 2.0), 400.0);
    }
}
