//! The open loop: requests are sent when they are due, whether or not the last ones were answered.
//!
//! A request takes a connection that is idle, or opens one; where there are as many as there may be it
//! waits or is lost. Its response time runs from when it was due. A client without an answer within its
//! patience resets its connection.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use tokio::sync::Semaphore;

use super::connection::{Connection, Head};
use super::on_one_thread;
use super::pacer::Pacer;
use crate::Error;
use crate::load::{CpuMeter, Outcome, Record};

/// Time between the call and the first arrival.
const LEAD: Duration = Duration::from_millis(50);

/// One scheduled request.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Request {
    /// When, since the start of the run.
    pub(crate) due: Duration,
    /// Its type, by number.
    pub(crate) request_type: u16,
    /// What is sent, by number.
    pub(crate) bytes: usize,
}

impl Request {
    /// Copies of one request, which arrive as a Poisson process of this rate within the window.
    pub(crate) fn poisson(rate: f64, window: Duration, seed: u64) -> Vec<Self> {
        let mut random = StdRng::seed_from_u64(seed);
        let mut due = 0.0;
        std::iter::repeat_with(|| {
            // 1 - u is never zero, so the logarithm is finite.
            due -= (1.0 - random.random::<f64>()).ln() / rate;
            Self { due: Duration::from_secs_f64(due), request_type: 0, bytes: 0 }
        })
        .take_while(|request| request.due < window)
        .collect()
    }
}

/// What becomes of a request for which there is no connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Beyond {
    /// It waits for one.
    Waits,
    /// It is lost: if it waited, most would be sent when their time is nearly over, whatever the proxy does.
    IsLost,
}

/// How an open loop is run.
#[derive(Clone, Debug)]
pub(crate) struct OpenRun {
    /// Whom to ask.
    pub(crate) port: u16,
    /// The requests, in order of the times when they are due.
    pub(crate) requests: Arc<Vec<Request>>,
    /// What is sent.
    pub(crate) bytes: Arc<Vec<Vec<u8>>>,
    /// How long a client waits.
    pub(crate) patience: Duration,
    /// The most connections at once.
    pub(crate) connections_max: usize,
    /// What becomes of a request that finds none.
    pub(crate) beyond: Beyond,
    /// Whose processor time is measured, from the first arrival to the last end.
    pub(crate) measured: Vec<u32>,
}

/// What became of it.
#[derive(Clone, Debug)]
pub(crate) struct OpenRuns {
    /// One for each request, with its number, in order of their ends.
    pub(crate) records: Vec<(Record, usize)>,
    /// Processor time of the measured, in seconds.
    pub(crate) used: f64,
    /// For how long that was measured, in seconds: beyond the last arrival, until the last has ended.
    pub(crate) metered: f64,
    /// How late requests were sent: the 99th percentile.
    pub(crate) lag_p99: Duration,
    /// What became of connections.
    pub(crate) connections: Connections,
    /// What the first failed one met.
    pub(crate) first_failure: Option<String>,
}

/// Connections of a whole run, by what became of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Connections {
    /// Those that were made.
    pub(crate) made: usize,
    /// Those that the other side ended with an answer.
    pub(crate) ended: usize,
    /// Those that clients reset when their patience was over.
    pub(crate) reset: usize,
}

#[derive(Debug)]
struct State {
    run: OpenRun,
    epoch: Instant,
    permits: Semaphore,
    idle: RefCell<Vec<Connection>>,
    records: RefCell<Vec<(Record, usize)>>,
    lags: RefCell<Vec<Duration>>,
    running: Cell<usize>,
    connections: Cell<Connections>,
    first_failure: RefCell<Option<String>>,
}

impl OpenRun {
    /// Runs it until every request has ended.
    ///
    /// # Errors
    /// If there is no timer.
    pub(crate) async fn run(self) -> Result<OpenRuns, Error> {
        on_one_thread(async move || {
            let pacer = Pacer::new().map_err(Error::io("making a timer"))?;
            let state = Rc::new(State::new(self));
            let requests = Arc::clone(&state.run.requests);
            pacer.until(state.epoch).await.map_err(Error::io("waiting"))?;
            let (meter, since) = (CpuMeter::start(&state.run.measured), Instant::now());
            for (number, request) in requests.iter().enumerate() {
                let due = state.epoch + request.due;
                pacer.until(due).await.map_err(Error::io("waiting"))?;
                state.running.set(state.running.get() + 1);
                tokio::task::spawn_local(serve(Rc::clone(&state), number));
                if number % 64 == 63 {
                    // A timer that is always late must not keep the answers from being read.
                    tokio::task::yield_now().await;
                }
            }
            while state.running.get() > 0 {
                pacer.sleep(Duration::from_millis(5)).await.map_err(Error::io("waiting"))?;
            }
            Ok(state.outcome(meter.used(), since.elapsed()))
        })
        .await
    }
}

impl State {
    fn new(run: OpenRun) -> Self {
        Self {
            epoch: Instant::now() + LEAD,
            permits: Semaphore::new(run.connections_max),
            idle: RefCell::default(),
            records: RefCell::new(Vec::with_capacity(run.requests.len())),
            lags: RefCell::new(Vec::with_capacity(run.requests.len())),
            running: Cell::new(0),
            connections: Cell::default(),
            first_failure: RefCell::default(),
            run,
        }
    }

    fn outcome(&self, used: Duration, metered: Duration) -> OpenRuns {
        let mut lags = self.lags.take();
        lags.sort_unstable();
        OpenRuns {
            records: self.records.take(),
            used: used.as_secs_f64(),
            metered: metered.as_secs_f64(),
            lag_p99: lags.get(lags.len() * 99 / 100).copied().unwrap_or_default(),
            connections: self.connections.get(),
            first_failure: self.first_failure.take(),
        }
    }

    fn count(&self, place: impl FnOnce(&mut Connections) -> &mut usize) {
        let mut connections = self.connections.get();
        *place(&mut connections) += 1;
        self.connections.set(connections);
    }

    fn failed(&self, error: String) -> Outcome {
        self.first_failure.borrow_mut().get_or_insert(error);
        Outcome::Failed
    }

    /// Exchanges over a connection that is idle, or a new one.
    async fn exchange(&self, bytes: &[u8], connection: &mut Option<Connection>) -> std::io::Result<Head> {
        if let Some(idle) = connection {
            match idle.exchange(bytes).await {
                // It was closed while it was idle.
                Err(_) => *connection = None,
                head => return head,
            }
        }
        let made = Connection::open(self.run.port).await?;
        self.count(|all| &mut all.made);
        connection.insert(made).exchange(bytes).await
    }
}

async fn serve(state: Rc<State>, number: usize) {
    let request = &state.run.requests[number];
    let due = state.epoch + request.due;
    state.lags.borrow_mut().push(due.elapsed());
    let mut connection = None;
    let answer = tokio::time::timeout_at((due + state.run.patience).into(), async {
        // The semaphore is never closed.
        let permit = match state.run.beyond {
            Beyond::Waits => state.permits.acquire().await.map_err(std::io::Error::other)?,
            Beyond::IsLost => match state.permits.try_acquire() {
                Ok(permit) => permit,
                Err(_) => return std::future::pending().await,
            },
        };
        connection = state.idle.borrow_mut().pop();
        let head = state.exchange(&state.run.bytes[request.bytes], &mut connection).await;
        drop(permit);
        head
    })
    .await;
    let response = due.elapsed();
    let outcome = match answer {
        Ok(Ok(head)) => {
            if head.is_kept {
                state.idle.borrow_mut().extend(connection);
            } else {
                state.count(|all| &mut all.ended);
            }
            match head.status {
                // The client's own timer may be late on a busy machine.
                _ if response > state.run.patience => Outcome::TimedOut,
                200 => Outcome::Completed,
                429 | 503 => Outcome::Rejected,
                status => state.failed(format!("status {status}")),
            }
        }
        Ok(Err(error)) => state.failed(error.to_string()),
        Err(_) => {
            if let Some(connection) = connection {
                connection.reset();
                state.count(|all| &mut all.reset);
            }
            Outcome::TimedOut
        }
    };
    let record =
        Record { due: request.due, request_type: request.request_type, outcome, response, retries: 0 };
    state.records.borrow_mut().push((record, number));
    state.running.set(state.running.get() - 1);
}
