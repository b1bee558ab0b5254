//! The open loop: requests are sent when they are due, whether or not the last ones were answered.
//!
//! A request takes a connection that is idle, or opens one; where there are as many as there may be it
//! waits or is lost. Its response time runs from when it was due. A client without an answer within its
//! patience resets its connection; its user may try again.

use std::cell::{Cell, RefCell};
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use testbed::link::Namespace;
use testbed::pacer::Pacer;
use tokio::sync::Semaphore;

use super::connection::{Connection, Head};
use super::on_one_thread;
use crate::Error;
use crate::load::{CpuMeter, Outcome, Record};
use crate::stats::percentile_of_times;

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

/// What clients do besides asking once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Habits {
    /// Requests over one connection, after which the client closes it; no bound without.
    pub(crate) reuse: Option<u32>,
    /// How often a user tries again whose patience was over.
    pub(crate) retries: u32,
}

/// How an open loop is run.
#[derive(Clone, Debug)]
pub(crate) struct OpenRun {
    /// Whom to ask.
    pub(crate) address: SocketAddr,
    /// The network that clients are in, unless this process is in it.
    pub(crate) inside: Option<Namespace>,
    /// What clients do besides asking once.
    pub(crate) habits: Habits,
    /// The requests, in order of the times when they are due.
    pub(crate) requests: Arc<Vec<Request>>,
    /// What is sent.
    pub(crate) bytes: Arc<Vec<Vec<u8>>>,
    /// How long a client waits, each time that it asks.
    pub(crate) patience: Duration,
    /// The most connections at once.
    pub(crate) connections_max: usize,
    /// What becomes of a request that finds none.
    pub(crate) beyond: Beyond,
    /// Whose processor time is measured, from the first arrival to the last end.
    pub(crate) measured: Vec<u32>,
}

/// What became of it.
#[derive(Clone, Debug, Default)]
pub(crate) struct OpenRuns {
    /// One for each request, with its number, in order of their ends.
    pub(crate) records: Vec<(Record, usize)>,
    /// Processor time of the measured, in seconds.
    pub(crate) used: f64,
    /// For how long that was measured, in seconds: beyond the last arrival, until the last has ended.
    pub(crate) metered: f64,
    /// How late requests were sent: the 99th percentile.
    pub(crate) lag_p99: Duration,
    /// How late the latest was sent.
    pub(crate) lag_max: Duration,
    /// Processors that this process used on average while that was measured.
    pub(crate) client_cpu: f64,
    /// When the first byte of each response came, by the request's number, since it was due. `None` where no
    /// response came whole.
    pub(crate) first_bytes: Vec<Option<Duration>>,
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
    first_bytes: RefCell<Vec<Option<Duration>>>,
    running: Cell<usize>,
    connections: Cell<Connections>,
    first_failure: RefCell<Option<String>>,
}

impl OpenRun {
    /// Runs the open loop until every request has ended.
    ///
    /// # Errors
    /// If there is no timer.
    pub(crate) async fn run(self) -> Result<OpenRuns, Error> {
        on_one_thread(self.inside.clone(), async move || {
            let pacer = Pacer::new().map_err(Error::io("making a timer"))?;
            let state = Rc::new(State::new(self));
            let requests = Arc::clone(&state.run.requests);
            pacer.until(state.epoch).await.map_err(Error::io("waiting"))?;
            let (meter, since) = (CpuMeter::start(&state.run.measured), Instant::now());
            let own = CpuMeter::start_own();
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
            Ok(state.outcome(meter.used(), since.elapsed(), own.share()))
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
            first_bytes: RefCell::new(vec![None; run.requests.len()]),
            running: Cell::new(0),
            connections: Cell::default(),
            first_failure: RefCell::default(),
            run,
        }
    }

    fn outcome(&self, used: Duration, metered: Duration, client_cpu: f64) -> OpenRuns {
        let lags = self.lags.take();
        OpenRuns {
            records: self.records.take(),
            used: used.as_secs_f64(),
            metered: metered.as_secs_f64(),
            lag_p99: percentile_of_times(&lags, 0.99),
            lag_max: lags.iter().max().copied().unwrap_or_default(),
            client_cpu,
            first_bytes: self.first_bytes.take(),
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
        let made = Connection::open(self.run.address).await?;
        self.count(|all| &mut all.made);
        connection.insert(made).exchange(bytes).await
    }

    /// A connection whose response came whole.
    fn served(&self, number: usize, head: &Head, connection: Option<Connection>) {
        let Some(connection) = connection else { return };
        let due = self.epoch + self.run.requests[number].due;
        let first_byte = connection.first_byte();
        self.first_bytes.borrow_mut()[number] = first_byte.map(|at| at.saturating_duration_since(due));
        if !head.is_kept {
            self.count(|all| &mut all.ended);
        } else if self.run.habits.reuse.is_none_or(|most| connection.exchanged() < most) {
            self.idle.borrow_mut().push(connection);
        }
    }

    /// One attempt at a request, which began then.
    async fn attempt(&self, number: usize, begun: Instant) -> Outcome {
        let bytes = &self.run.bytes[self.run.requests[number].bytes];
        let mut connection = None;
        let answer = tokio::time::timeout_at((begun + self.run.patience).into(), async {
            // The semaphore is never closed.
            let permit = match self.run.beyond {
                Beyond::Waits => self.permits.acquire().await.map_err(std::io::Error::other)?,
                Beyond::IsLost => match self.permits.try_acquire() {
                    Ok(permit) => permit,
                    Err(_) => return std::future::pending().await,
                },
            };
            connection = self.idle.borrow_mut().pop();
            let head = self.exchange(bytes, &mut connection).await;
            drop(permit);
            head
        })
        .await;
        match answer {
            Ok(Ok(head)) => {
                self.served(number, &head, connection);
                match head.status {
                    // The client's own timer may be late on a busy machine.
                    _ if begun.elapsed() > self.run.patience => Outcome::TimedOut,
                    200 => Outcome::Completed,
                    429 | 503 => Outcome::Rejected,
                    status => self.failed(format!("status {status}")),
                }
            }
            Ok(Err(error)) => self.failed(error.to_string()),
            Err(_) => {
                if let Some(connection) = connection {
                    connection.reset();
                    self.count(|all| &mut all.reset);
                }
                Outcome::TimedOut
            }
        }
    }
}

async fn serve(state: Rc<State>, number: usize) {
    let request = &state.run.requests[number];
    let due = state.epoch + request.due;
    state.lags.borrow_mut().push(due.elapsed());
    let (mut begun, mut retries) = (due, 0);
    let outcome = loop {
        let outcome = state.attempt(number, begun).await;
        if outcome != Outcome::TimedOut || retries == state.run.habits.retries {
            break outcome;
        }
        (begun, retries) = (Instant::now(), retries + 1);
    };
    let response = due.elapsed();
    let record = Record { due: request.due, request_type: request.request_type, outcome, response, retries };
    state.records.borrow_mut().push((record, number));
    state.running.set(state.running.get() - 1);
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::net::{Ipv4Addr, TcpListener, TcpStream};

    use super::*;
    use crate::http::origin;
    use testbed::process::{accepts, free_port};

    /// A client that sends these paths at once over one connection at a time.
    fn one_by_one(port: u16, paths: &[String], habits: Habits, patience: Duration) -> OpenRun {
        let request = |bytes| Request { due: Duration::ZERO, request_type: 0, bytes };
        let written = |path: &String| format!("GET {path} HTTP/1.1\r\nHost: here\r\n\r\n").into_bytes();
        OpenRun {
            address: (Ipv4Addr::LOCALHOST, port).into(),
            inside: None,
            habits,
            requests: Arc::new((0..paths.len()).map(request).collect()),
            bytes: Arc::new(paths.iter().map(written).collect()),
            patience,
            connections_max: 1,
            beyond: Beyond::Waits,
            measured: Vec::new(),
        }
    }

    #[tokio::test]
    async fn a_connection_serves_as_many_requests_as_it_may() {
        let port = free_port().unwrap();
        std::thread::spawn(move || origin::serve(Ipv4Addr::LOCALHOST, port, &[]));
        while accepts(port).is_err() {}
        let paths: Vec<String> = (0..10).map(|number| format!("/{}", number * 30_000)).collect();
        for (reuse, made) in [(Some(1), 10), (Some(5), 2), (Some(20), 1), (None, 1)] {
            let habits = Habits { reuse, retries: 0 };
            let run = one_by_one(port, &paths, habits, Duration::from_secs(60)).run().await.unwrap();
            assert_eq!(run.connections, Connections { made, ended: 0, reset: 0 }, "{reuse:?}");
            assert_eq!(run.records.len(), paths.len());
            for (record, number) in &run.records {
                assert_eq!((record.outcome, record.retries), (Outcome::Completed, 0));
                assert!(run.first_bytes[*number].unwrap() <= record.response);
            }
            assert!(run.lag_p99 <= run.lag_max);
        }
    }

    /// Reads what each client sends, and answers only after so many of them.
    fn answers_after(silent: usize) -> u16 {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        std::thread::spawn(move || {
            let mut kept: Vec<TcpStream> = Vec::new();
            for stream in listener.incoming() {
                let mut stream = stream.unwrap();
                // A client that is gone already reads as an error or as nothing.
                let asked = stream.read(&mut [0; 1_000]).unwrap_or(0) > 0;
                if asked && kept.len() >= silent {
                    let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
                }
                kept.push(stream);
            }
        });
        port
    }

    #[tokio::test]
    async fn a_user_whose_patience_is_over_tries_again() {
        let (paths, patience) = (["/".to_owned()], Duration::from_millis(200));
        let habits = Habits { reuse: Some(1), retries: 100 };
        let run = one_by_one(answers_after(2), &paths, habits, patience).run().await.unwrap();
        let (record, _) = run.records[0];
        assert_eq!(record.outcome, Outcome::Completed);
        assert!(record.retries >= 2 && record.response >= 2 * patience, "{record:?}");
        assert!(run.first_bytes[0].unwrap() >= 2 * patience);
        assert!(run.connections.reset >= 2, "{:?}", run.connections);
    }

    #[tokio::test]
    async fn a_user_gives_up_after_the_last_attempt() {
        let (paths, patience) = (["/".to_owned()], Duration::from_millis(20));
        let habits = Habits { reuse: Some(1), retries: 3 };
        let run = one_by_one(answers_after(usize::MAX), &paths, habits, patience).run().await.unwrap();
        let (record, _) = run.records[0];
        assert_eq!((record.outcome, record.retries), (Outcome::TimedOut, 3));
        assert!(record.response >= 4 * patience && run.first_bytes[0].is_none(), "{record:?}");
    }
}
