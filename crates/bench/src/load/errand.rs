//! An errand: so many requests, one behind the other, as soon as a group of clients gets them done.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use tokio::task::JoinSet;

use super::Outcome;
use super::crowd::Group;
use super::execution::execute;
use super::mix::Rotation;
use crate::Error;

/// How long a group takes for so many requests, if it doesn't think. Dropping the future ends its clients.
///
/// # Errors
/// If somebody can't connect, or a request fails.
pub async fn run_errand(group: &Group, requests: usize) -> Result<Duration, Error> {
    let mut clients = Vec::new();
    for _ in 0..group.clients {
        clients.push(group.target.connect().await?);
    }
    let left = Arc::new(AtomicUsize::new(requests));
    let rotation = Arc::new(Mutex::new(Rotation::new(&group.mix)));
    let begun = Instant::now();
    let mut tasks = JoinSet::new();
    for (seed, client) in (0..).zip(clients) {
        let (left, rotation, mix) = (Arc::clone(&left), Arc::clone(&rotation), Arc::clone(&group.mix));
        let mut random = StdRng::seed_from_u64(seed);
        tasks.spawn(async move {
            let one_less = |left: usize| left.checked_sub(1);
            while left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_less).is_ok() {
                let next = rotation.lock().unwrap_or_else(PoisonError::into_inner).next(&mix);
                let ended = execute(&client, mix.get(next), random.random()).await;
                if ended.outcome != Outcome::Completed {
                    let why = ended.failure.unwrap_or_default();
                    return Err(Error::Experiment(format!("a request of an errand failed: {why}")));
                }
            }
            Ok(())
        });
    }
    while let Some(joined) = tasks.join_next().await {
        joined.map_err(|_| Error::Experiment("a client was aborted".to_owned()))??;
    }
    Ok(begun.elapsed())
}
