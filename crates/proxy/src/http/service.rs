//! Several endpoints of one service: whose turn it is, and whether each is well.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use http::{Request, StatusCode, header};
use tokio::task::JoinSet;
use tokio::time::{Instant, interval, sleep, sleep_until, timeout};

use super::body::ToService;
use super::endpoint::{Endpoint, Reach, Sender, Wish};
use super::state::Gate;
use crate::upstream::address::Address;
use crate::upstream::health::Lack;

/// How often idle connections are looked through.
const LOOK_EVERY: Duration = Duration::from_secs(5);

/// The endpoints of one gate, at least one.
#[derive(Debug)]
pub(crate) struct Endpoints {
    all: Vec<Arc<Endpoint>>,
    turn: AtomicUsize,
}

/// How endpoints are asked whether they are well.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HealthCheck {
    /// What is asked for.
    pub path: String,
    /// How often.
    pub interval: Duration,
    /// How long the answer may take.
    pub timeout: Duration,
}

impl Endpoints {
    /// Those at these addresses. Of those before, one that is reached in the same way stays, with its
    /// connections and what is known of its health; one with TLS doesn't, since a certificate may be
    /// another.
    pub(crate) fn new(addresses: &[Address], reach: &Reach, before: Option<&Self>) -> Self {
        let endpoint = |address: &Address| {
            let before = before.into_iter().flat_map(Self::all);
            let same = before.into_iter().find(|known| known.address == *address && known.is_reached(reach));
            same.map_or_else(|| Endpoint::new(address.clone(), reach.clone()), Arc::clone)
        };
        Self { all: addresses.iter().map(endpoint).collect(), turn: AtomicUsize::new(0) }
    }

    pub(crate) fn all(&self) -> &[Arc<Endpoint>] {
        &self.all
    }

    /// The one with the fewest requests in flight among those that are well; of several the next in turn.
    /// If none is well, the one that may be so again first: somebody has to try. `but`: one that has just
    /// failed, if there is another.
    pub(crate) fn choose(&self, but: Option<&Arc<Endpoint>>) -> Arc<Endpoint> {
        if let [only] = self.all.as_slice() {
            return Arc::clone(only);
        }
        let turn = self.turn.fetch_add(1, Ordering::Relaxed) % self.all.len();
        let in_turn = self.all[turn..].iter().chain(&self.all[..turn]);
        let rank = |endpoint: &&Arc<Endpoint>| {
            let failed = but.is_some_and(|but| Arc::ptr_eq(but, endpoint));
            (failed, endpoint.down_until(), endpoint.in_flight())
        };
        Arc::clone(in_turn.min_by_key(rank).unwrap_or(&self.all[0]))
    }

    /// Closes old connections.
    fn close_old(&self) {
        self.all.iter().for_each(|endpoint| endpoint.close_old());
    }
}

/// Asks each endpoint of a gate whether it is well, and closes old connections, until the task is dropped.
pub(crate) async fn look(gate: &Gate) {
    let asking = async {
        loop {
            let told = gate.told();
            let Some(check) = &told.settings.health_check else {
                // A reload may bring one.
                sleep(LOOK_EVERY).await;
                continue;
            };
            let next = Instant::now() + check.interval;
            for endpoint in &told.endpoints.all {
                ask(endpoint, check).await;
            }
            sleep_until(next).await;
        }
    };
    let watching = async {
        loop {
            let told = gate.told();
            let look_every = told.settings.look_every;
            // A health check says more.
            if told.settings.health_check.is_none() && look_every.is_some() {
                let all = told.endpoints.all().iter().map(Arc::clone);
                let looks: JoinSet<()> = all.map(|endpoint| async move { endpoint.look().await }).collect();
                looks.join_all().await;
            }
            drop(told);
            sleep(look_every.unwrap_or(LOOK_EVERY)).await;
        }
    };
    let closing = async {
        let mut ticks = interval(LOOK_EVERY);
        loop {
            ticks.tick().await;
            gate.told().endpoints.close_old();
        }
    };
    let following = async {
        let mut ticks = interval(LOOK_EVERY);
        loop {
            ticks.tick().await;
            for endpoint in gate.told().endpoints.all() {
                // A resolver that hangs holds up no other for longer.
                let _ = timeout(LOOK_EVERY, endpoint.follow()).await;
            }
        }
    };
    let ((), (), (), ()) = tokio::join!(asking, watching, closing, following);
}

async fn ask(endpoint: &Arc<Endpoint>, check: &HealthCheck) {
    match timeout(check.timeout, status(endpoint, check)).await {
        Ok(Some(status)) if status.is_success() || status.is_redirection() => endpoint.succeeded(),
        Ok(Some(status)) => endpoint.failed(Lack::Answer, &format!("its health check answers {status}")),
        // Already counted: it can't be reached.
        Ok(None) => {}
        Err(_) => endpoint.failed(Lack::Answer, &"its health check takes too long"),
    }
}

async fn status(endpoint: &Arc<Endpoint>, check: &HealthCheck) -> Option<StatusCode> {
    let mut lease = endpoint.lease(Instant::now(), Wish::New, true).await.ok()?;
    let request = Request::get(&check.path)
        .header(header::HOST, endpoint.address.to_string())
        .header(header::USER_AGENT, "gatekeeper (health check)")
        .body(ToService::default())
        .ok()?;
    let answer = match lease.sender.as_mut()? {
        Sender::Http1(connection) => {
            // The task that asks for it waits for less.
            let deadline = Instant::now() + 2 * check.timeout;
            connection.send(request, deadline, None, &mut None).await.ok()?.map_err(|(error, _)| error)
        }
        Sender::Http2(sender) => sender.send_request(request).await,
    };
    match answer {
        Ok(response) => Some(response.status()),
        Err(error) => {
            endpoint.failed(Lack::Answer, &error);
            None
        }
    }
}
