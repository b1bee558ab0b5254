//! The open loop: requests arrive when the schedule says, whether or not the last ones were answered.
//!
//! A thread of its own sleeps from arrival to arrival (the runtime's timer would round to a millisecond) and
//! hands each request to the connection pool; a task per busy connection does the rest.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::runtime::Handle;
use tokio::sync::Notify;

use super::client::Client;
use super::connections::ConnectionPool;
use super::execution::{Execution, execute};
use super::mix::Mix;
use super::schedule::Schedule;
use super::usage::CpuMeter;
use super::{Outcome, Record};
use crate::Error;
use crate::stats::percentile_of_times;

/// Time between the call and the first arrival, for everything to be in its place.
const LEAD: Duration = Duration::from_millis(20);
/// How often the end of the run is looked for, and waiting requests whose time is over are taken out.
const SWEEP_INTERVAL: Duration = Duration::from_millis(20);
/// How long after the last time-out the connections may take to come to rest.
const REST_BOUND: Duration = Duration::from_secs(30);

/// What happened in one run.
#[derive(Clone, Debug)]
pub struct OpenOutcome {
    /// One record per scheduled request, in order of their ends.
    pub records: Vec<Record>,
    /// How late the client handed over its requests: the 99th percentile.
    pub lag_p99: Duration,
    /// Processors that the client used on average while requests arrived.
    pub client_cpu: f64,
    /// What the server said to the first failed request, if any failed.
    pub first_failure: Option<String>,
    /// How long each scheduled request waited here for a connection, in order of arrival; without one:
    /// until it gave up.
    pub waits: Vec<Duration>,
}

/// One run: the same schedule can be run against several pools.
#[derive(Clone, Debug)]
pub struct OpenRun {
    /// The request types.
    pub mix: Arc<Mix>,
    /// The requests, and when each of them arrives.
    pub schedule: Arc<Schedule>,
    /// How long a client waits for an answer.
    pub timeout: Duration,
}

impl OpenRun {
    /// Runs the schedule against a pool until every request has ended and every connection is at rest.
    ///
    /// Dropping the future stops the arrivals.
    ///
    /// # Errors
    /// If the pool isn't at rest before, or doesn't come to rest afterwards.
    pub async fn run(&self, pool: &Arc<ConnectionPool>) -> Result<OpenOutcome, Error> {
        if !pool.is_at_rest() {
            return Err(Error::Experiment("the last run's requests are still there".to_owned()));
        }
        let state = Arc::new(State::new(self.clone(), Arc::clone(pool)));
        let guard = StopOnDrop(Arc::clone(&state));
        let meter = CpuMeter::start_own();
        let arrivals = {
            let (state, runtime) = (Arc::clone(&state), Handle::current());
            std::thread::spawn(move || arrive(&state, &runtime))
        };
        tokio::time::sleep_until((state.epoch + self.schedule.window()).into()).await;
        let client_cpu = meter.share();
        state.finish().await?;
        drop(guard);
        let lags = arrivals.join().map_err(|_| Error::Experiment("the arrivals' thread ended".to_owned()))?;
        let results = std::mem::take(&mut *state.results.lock().unwrap_or_else(PoisonError::into_inner));
        Ok(OpenOutcome {
            records: results.records,
            lag_p99: percentile_of_times(&lags, 0.99),
            client_cpu,
            first_failure: results.first_failure,
            waits: results.waits,
        })
    }
}

#[derive(Debug, Default)]
struct Results {
    records: Vec<Record>,
    first_failure: Option<String>,
    waits: Vec<Duration>,
}

#[derive(Debug)]
struct State {
    run: OpenRun,
    pool: Arc<ConnectionPool>,
    epoch: Instant,
    stop: AtomicBool,
    results: Mutex<Results>,
    all_ended: Notify,
}

/// Stops the arrivals' thread when the run is abandoned.
struct StopOnDrop(Arc<State>);

impl Drop for StopOnDrop {
    fn drop(&mut self) {
        self.0.stop.store(true, Ordering::Relaxed);
    }
}

impl State {
    fn new(run: OpenRun, pool: Arc<ConnectionPool>) -> Self {
        let total = run.schedule.arrivals().len();
        let (records, waits) = (Vec::with_capacity(total), vec![Duration::ZERO; total]);
        Self {
            run,
            pool,
            epoch: Instant::now() + LEAD,
            stop: AtomicBool::new(false),
            results: Mutex::new(Results { records, first_failure: None, waits }),
            all_ended: Notify::new(),
        }
    }

    fn total(&self) -> usize {
        self.run.schedule.arrivals().len()
    }

    fn deadline(&self, request: usize) -> Instant {
        self.epoch + self.run.schedule.arrivals()[request].due + self.run.timeout
    }

    fn record(&self, request: usize, Execution { outcome, retries, failure }: Execution) {
        let arrival = self.run.schedule.arrivals()[request];
        let response = match outcome {
            Outcome::TimedOut => self.run.timeout,
            _ => (self.epoch + arrival.due).elapsed(),
        };
        let record =
            Record { due: arrival.due, request_type: arrival.request_type, outcome, response, retries };
        let ended = {
            let mut results = self.results.lock().unwrap_or_else(PoisonError::into_inner);
            results.records.push(record);
            if results.first_failure.is_none() {
                results.first_failure = failure;
            }
            results.records.len()
        };
        if ended == self.total() {
            self.all_ended.notify_one();
        }
    }

    /// A request has its connection, or has given up without one.
    fn waited(&self, request: usize) {
        let since = self.epoch + self.run.schedule.arrivals()[request].due;
        let mut results = self.results.lock().unwrap_or_else(PoisonError::into_inner);
        results.waits[request] = since.elapsed();
    }

    fn ended(&self) -> usize {
        self.results.lock().unwrap_or_else(PoisonError::into_inner).records.len()
    }

    /// Gives up the waiting requests whose time is over.
    fn sweep(&self) {
        let now = Instant::now();
        for request in self.pool.take_expired(|request| self.deadline(request) <= now) {
            self.waited(request);
            self.record(request, Execution::GIVEN_UP);
        }
    }

    /// Waits until every request has ended and every connection is idle again.
    async fn finish(&self) -> Result<(), Error> {
        let last = self.epoch + self.run.schedule.window() + self.run.timeout;
        while self.ended() < self.total() || !self.pool.is_at_rest() {
            self.sweep();
            if Instant::now() > last + REST_BOUND {
                return Err(Error::Experiment(
                    "the connections didn't come to rest after the run".to_owned(),
                ));
            }
            // Whichever comes first; a missed notification costs one interval.
            let _ = tokio::time::timeout(SWEEP_INTERVAL, self.all_ended.notified()).await;
        }
        Ok(())
    }
}

/// The arrivals' thread: hands over each request when it is due and returns how late each one was.
fn arrive(state: &Arc<State>, runtime: &Handle) -> Vec<Duration> {
    let arrivals = state.run.schedule.arrivals();
    let mut lags = Vec::with_capacity(arrivals.len());
    for (request, arrival) in arrivals.iter().enumerate() {
        let due = state.epoch + arrival.due;
        let now = Instant::now();
        if due > now {
            std::thread::sleep(due - now);
        }
        if state.stop.load(Ordering::Relaxed) {
            break;
        }
        lags.push(due.elapsed());
        state.sweep();
        if let Some((client, request)) = state.pool.offer(request) {
            runtime.spawn(serve(Arc::clone(state), client, request));
        }
    }
    lags
}

/// Serves requests over one connection for as long as any wait.
async fn serve(state: Arc<State>, client: Client, request: usize) {
    let mut turn = Some((client, request));
    while let Some((client, request)) = turn {
        state.waited(request);
        let deadline = state.deadline(request);
        let usable = if Instant::now() >= deadline {
            state.record(request, Execution::GIVEN_UP);
            Some(client)
        } else {
            let arrival = state.run.schedule.arrivals()[request];
            let request_type = state.run.mix.get(arrival.request_type);
            let execution = execute(&client, request_type, arrival.seed);
            match tokio::time::timeout_at(deadline.into(), execution).await {
                Ok(execution) => {
                    state.record(request, execution);
                    if client.is_closed() { state.pool.repair(client).await } else { Some(client) }
                }
                Err(_) => {
                    state.record(request, Execution::GIVEN_UP);
                    state.pool.repair(client).await
                }
            }
        };
        turn = usable.and_then(|client| state.pool.hand_on(client));
    }
}
