//! The closed loop: each client sends its next request as soon as the last one was answered. As much as goes.

use std::cell::{Cell, RefCell};
use std::net::Ipv4Addr;
use std::rc::Rc;
use std::time::{Duration, Instant};

use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;

use super::connection::Connection;
use super::on_one_thread;
use crate::Error;
use crate::load::CpuMeter;

/// How a closed loop is run.
#[derive(Clone, Debug)]
pub(crate) struct ClosedRun {
    /// Whom to ask.
    pub(crate) port: u16,
    /// The requests, as bytes; each client sends one after another, from a place of its own on.
    pub(crate) requests: Vec<Vec<u8>>,
    /// What every answer has to be.
    pub(crate) status: u16,
    /// How many clients.
    pub(crate) connections: usize,
    /// How long they ask before anything is counted.
    pub(crate) warm_up: Duration,
    /// How long is counted.
    pub(crate) window: Duration,
    /// Whose processor time is measured.
    pub(crate) measured: Vec<u32>,
}

/// What came of it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Counted {
    /// Answers a second.
    pub(crate) rate: f64,
    /// Processor time of the measured for each, in seconds.
    pub(crate) cost: f64,
}

#[derive(Debug, Default)]
struct Shared {
    answered: Cell<u64>,
    failure: RefCell<Option<String>>,
}

/// Runs the closed loop; every answer has to have the status.
///
/// # Errors
/// With the first other answer.
pub(crate) async fn closed(run: ClosedRun) -> Result<Counted, Error> {
    on_one_thread(None, async move || {
        let shared = Rc::new(Shared::default());
        let run = Rc::new(run);
        for number in 0..run.connections {
            tokio::task::spawn_local(client(Rc::clone(&run), number, Rc::clone(&shared)));
        }
        tokio::time::sleep(run.warm_up).await;
        let (before, meter, start) = (shared.answered.get(), CpuMeter::start(&run.measured), Instant::now());
        tokio::time::sleep(run.window).await;
        let requests = shared.answered.get() - before;
        let (used, seconds) = (meter.used().as_secs_f64(), start.elapsed().as_secs_f64());
        match shared.failure.take() {
            Some(failure) => Err(Error::Experiment(format!("an answer failed: {failure}"))),
            None if requests == 0 => Err(Error::Experiment("nothing was answered".to_owned())),
            None => Ok(Counted { rate: requests as f64 / seconds, cost: used / requests as f64 }),
        }
    })
    .await
}

async fn client(run: Rc<ClosedRun>, number: usize, shared: Rc<Shared>) {
    if let Err(error) = ask(&run, number, &shared).await {
        shared.failure.borrow_mut().get_or_insert(error);
    }
}

async fn ask(run: &ClosedRun, number: usize, shared: &Shared) -> Result<(), String> {
    let mut connection =
        Connection::open((Ipv4Addr::LOCALHOST, run.port)).await.map_err(|error| error.to_string())?;
    let first = number * run.requests.len() / run.connections;
    for request in run.requests.iter().cycle().skip(first) {
        let head = connection.exchange(request).await.map_err(|error| error.to_string())?;
        if head.status != run.status || !head.is_kept {
            let reason = head.refusal.as_deref().unwrap_or("none");
            return Err(format!("status {}, kept: {}, reason: {reason}", head.status, head.is_kept));
        }
        shared.answered.set(shared.answered.get() + 1);
    }
    Ok(())
}

/// Has so many clients connect to a port again and again, and measures what each connection costs those
/// processes that close it.
///
/// # Errors
/// If nobody was turned away.
pub(crate) async fn knock(
    port: u16,
    clients: usize,
    window: Duration,
    measured: Vec<u32>,
) -> Result<Counted, Error> {
    on_one_thread(None, async move || {
        let closed = Rc::new(Cell::new(0_u64));
        for _ in 0..clients {
            let closed = Rc::clone(&closed);
            tokio::task::spawn_local(async move {
                loop {
                    if let Ok(mut stream) = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await {
                        // Closed or reset: both are an answer.
                        let _ = stream.read(&mut [0]).await;
                    }
                    closed.set(closed.get() + 1);
                    tokio::task::yield_now().await;
                }
            });
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
        let (before, meter, start) = (closed.get(), CpuMeter::start(&measured), Instant::now());
        tokio::time::sleep(window).await;
        let times = closed.get() - before;
        let (used, seconds) = (meter.used().as_secs_f64(), start.elapsed().as_secs_f64());
        if times == 0 {
            return Err(Error::Experiment("nobody was turned away".to_owned()));
        }
        Ok(Counted { rate: times as f64 / seconds, cost: used / times as f64 })
    })
    .await
}
