//! A closed loop with all that clients do beside asking: they think, wait only so long, try again, come in
//! groups.
//!
//! Every client sends its next request when the last one was answered and it has thought. Its response time
//! runs from the moment it first wanted the request, through every retry, until the answer; a client that
//! gives up is charged the full time-out, and cancels. A client that was refused, or met an error that isn't
//! retried, waits for a second before its next request: never a storm of refusals. After the window nobody
//! sends any more, and what is under way may still end; what hasn't by the end of the drain is charged the
//! full time-out as well.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::{sleep_until, timeout_at};

use super::client::{Client, Target};
use super::execution::{Execution, execute};
use super::mix::{Mix, Rotation};
use super::usage::CpuMeter;
use super::{Outcome, Record};
use crate::Error;
use crate::stats::percentile_of_times;

/// How long a client pauses that was refused or failed.
const PAUSE: Duration = Duration::from_secs(1);
/// Connections that are opened at the same time before anything is sent.
const OPENING_MAX: usize = 8;
/// How often the client looks whether it is late itself.
const LATENESS_INTERVAL: Duration = Duration::from_millis(5);
/// The longest think time, as a multiple of the mean: TPC-W's bound on the exponential distribution.
const THINK_MAX: f64 = 10.0;

/// When clients connect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Connecting {
    /// Once, and again when the connection is lost.
    Once,
    /// For each request anew, as part of its response time.
    ForEach,
}

/// Clients that behave alike.
#[derive(Clone, Debug)]
pub struct Group {
    /// The server or gate that they connect to.
    pub target: Target,
    /// What they ask for, in turn.
    pub mix: Arc<Mix>,
    /// How many they are.
    pub clients: usize,
    /// How long they think between an answer and the next request: the mean of an exponential distribution.
    pub think: Duration,
}

/// One run.
#[derive(Clone, Debug)]
pub struct Crowd {
    /// The clients, in groups that behave alike.
    pub groups: Vec<Group>,
    /// When they connect.
    pub connecting: Connecting,
    /// How long they wait for an answer.
    pub timeout: Duration,
    /// How long they run before anything counts.
    pub warm_up: Duration,
    /// How long it counts.
    pub window: Duration,
    /// How long what is under way then may still take.
    pub drain: Duration,
    /// What everything is drawn from.
    pub seed: u64,
}

/// What one client did, or all of a group.
#[derive(Clone, Debug, Default)]
pub struct Served {
    /// Every request that ended or was given up, by when it was wanted since the run began.
    pub records: Vec<Record>,
}

/// What happened.
#[derive(Clone, Debug, Default)]
pub struct CrowdOutcome {
    /// By group.
    pub groups: Vec<Served>,
    /// How late the client's own timers were within the window: the 99th percentile.
    pub lag_p99: Duration,
    /// Processors that the client used in the window.
    pub client_cpu: f64,
    /// What the server said first to a request that failed for good.
    pub first_failure: Option<String>,
}

/// When everything happens.
#[derive(Clone, Copy, Debug)]
struct Times {
    epoch: Instant,
    counted: Instant,
    last: Instant,
    over: Instant,
}

struct Shared {
    crowd: Crowd,
    times: Times,
    rotations: Vec<Mutex<Rotation>>,
    first_failure: Mutex<Option<String>>,
}

impl Shared {
    /// Keeps the first failure that says something.
    fn note(&self, failure: Option<String>) {
        let mut first = self.first_failure.lock().unwrap_or_else(PoisonError::into_inner);
        if first.is_none() {
            *first = failure;
        }
    }
}

impl Crowd {
    /// Opens the connections, tells `begun` when counting will begin, and runs to the end of the drain.
    ///
    /// A client that can't connect tries again with its first request: a server may have too little memory
    /// for everybody. Dropping the future ends every client.
    ///
    /// # Errors
    /// If nobody can connect.
    pub async fn run(&self, begun: impl FnOnce(Instant)) -> Result<CrowdOutcome, Error> {
        let connections = self.connect().await?;
        let epoch = Instant::now();
        let counted = epoch + self.warm_up;
        let times =
            Times { epoch, counted, last: counted + self.window, over: counted + self.window + self.drain };
        begun(counted);
        let shared = Arc::new(Shared {
            crowd: self.clone(),
            times,
            rotations: self.groups.iter().map(|group| Mutex::new(Rotation::new(&group.mix))).collect(),
            first_failure: Mutex::default(),
        });
        let mut tasks = JoinSet::new();
        let members = self.groups.iter().enumerate().flat_map(|(at, group)| vec![at; group.clients]);
        for ((number, group), client) in members.enumerate().zip(connections) {
            let random = StdRng::seed_from_u64(self.seed.wrapping_add(number as u64));
            let member = Member { shared: Arc::clone(&shared), group, client, random };
            tasks.spawn(async move { (group, member.run().await) });
        }
        let (lag_p99, client_cpu) = watch(times).await;
        let mut groups = vec![Served::default(); self.groups.len()];
        while let Some(joined) = tasks.join_next().await {
            let (group, served) = joined.map_err(|_| Error::Experiment("a client was aborted".to_owned()))?;
            groups[group].records.extend(served.records);
        }
        let first_failure = shared.first_failure.lock().unwrap_or_else(PoisonError::into_inner).take();
        Ok(CrowdOutcome { groups, lag_p99, client_cpu, first_failure })
    }

    /// One connection for each client, a few at a time; none where each request has its own.
    async fn connect(&self) -> Result<Vec<Option<Client>>, Error> {
        let count = self.groups.iter().map(|group| group.clients).sum();
        if self.connecting == Connecting::ForEach {
            return Ok((0..count).map(|_| None).collect());
        }
        let targets = self.groups.iter().flat_map(|group| vec![&group.target; group.clients]);
        let opening = Arc::new(Semaphore::new(OPENING_MAX));
        let mut tasks = JoinSet::new();
        for (number, target) in targets.cloned().enumerate() {
            let opening = Arc::clone(&opening);
            tasks.spawn(async move {
                let _permit = opening.acquire_owned().await;
                (number, target.connect().await)
            });
        }
        let mut clients: Vec<_> = (0..count).map(|_| None).collect();
        let mut refused = None;
        while let Some(joined) = tasks.join_next().await {
            match joined.map_err(|_| Error::Experiment("a connection was aborted".to_owned()))? {
                (number, Ok(client)) => clients[number] = Some(client),
                (_, Err(error)) => refused = Some(error),
            }
        }
        match refused {
            Some(error) if clients.iter().all(Option::is_none) => Err(error),
            _ => Ok(clients),
        }
    }
}

/// How late timers are and how much processor time this process uses, within the window.
async fn watch(times: Times) -> (Duration, f64) {
    sleep_until(times.counted.into()).await;
    let meter = CpuMeter::start_own();
    let mut lags = Vec::new();
    loop {
        let due = Instant::now() + LATENESS_INTERVAL;
        if due >= times.last {
            break;
        }
        sleep_until(due.into()).await;
        // The runtime's timer itself rounds up to a millisecond.
        lags.push(due.elapsed());
    }
    sleep_until(times.last.into()).await;
    let share = meter.share();
    (percentile_of_times(&lags, 0.99), share)
}

/// One client.
struct Member {
    shared: Arc<Shared>,
    group: usize,
    client: Option<Client>,
    random: StdRng,
}

impl Member {
    async fn run(mut self) -> Served {
        let shared = Arc::clone(&self.shared);
        let (crowd, times, group) = (&shared.crowd, shared.times, &shared.crowd.groups[self.group]);
        let mut served = Served::default();
        loop {
            let sent = Instant::now() + self.think(group.think);
            sleep_until(sent.min(times.last).into()).await;
            if sent >= times.last {
                return served;
            }
            let number =
                shared.rotations[self.group].lock().unwrap_or_else(PoisonError::into_inner).next(&group.mix);
            let seed = self.random.random();
            let deadline = (sent + crowd.timeout).min(times.over);
            let ended = timeout_at(deadline.into(), self.request(&group.mix, number, seed)).await;
            let record = |outcome, retries, response| Record {
                due: sent - times.epoch,
                request_type: number,
                outcome,
                response,
                retries,
            };
            let Ok(execution) = ended else {
                served.records.push(record(Outcome::TimedOut, 0, crowd.timeout));
                if deadline == times.over {
                    return served;
                }
                self.give_up().await;
                continue;
            };
            served.records.push(record(execution.outcome, execution.retries, sent.elapsed()));
            if execution.outcome != Outcome::Completed {
                shared.note(execution.failure);
                sleep_until((Instant::now() + PAUSE).min(times.last).into()).await;
            }
        }
    }

    /// Exponentially distributed, bounded.
    fn think(&mut self, mean: Duration) -> Duration {
        // 1 - u is never zero, so the logarithm is finite.
        let drawn = -(1.0 - self.random.random::<f64>()).ln();
        mean.mul_f64(drawn.min(THINK_MAX))
    }

    async fn request(&mut self, mix: &Mix, number: u16, seed: u64) -> Execution {
        let client = match self.client.take() {
            Some(client) => client,
            None => match self.target().connect().await {
                Ok(client) => client,
                Err(error) => return refused(&error),
            },
        };
        // In its place while the request runs, so that the code that gives the request up finds it.
        let client = self.client.insert(client);
        let execution = execute(client, mix.get(number), seed).await;
        if self.shared.crowd.connecting == Connecting::ForEach || client.is_closed() {
            self.client = None;
        }
        execution
    }

    /// Cancels what was given up, or leaves the connection.
    async fn give_up(&mut self) {
        let Some(client) = self.client.take() else { return };
        let kept = self.shared.crowd.connecting == Connecting::Once;
        if kept && self.target().settle(&client).await {
            self.client = Some(client);
        }
    }

    fn target(&self) -> &Target {
        &self.shared.crowd.groups[self.group].target
    }
}

/// No connection: refused if the server said that there is no room.
fn refused(error: &Error) -> Execution {
    let full = matches!(error, Error::Database { source, .. } if source.is_refusal());
    let outcome = if full { Outcome::Rejected } else { Outcome::Failed };
    Execution { outcome, retries: 0, failure: Some(error.to_string()) }
}

/// An errand: how long a group takes for so many requests, if it doesn't think. Dropping the future ends its
/// clients.
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
