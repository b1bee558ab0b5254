//! The closed loop: each client sends its next request as soon as the last one was answered. As much as goes.

use std::cell::{Cell, RefCell};
use std::net::Ipv4Addr;
use std::rc::Rc;
use std::time::{Duration, Instant};

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
