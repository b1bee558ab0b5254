//! An upload: a request whose body isn't all there when its turn comes.
//!
//! The service waits for what a client sends slowly, and its place is one that others could have. So an
//! upload holds a place only while its body comes:
//!
//! ```text
//! Placed ── its client is slow, or its address has too much ──► Away ── its end has come ──► Asks
//!    │                                                                                        │
//!    └── its end has come ──► Whole ◄──────────────────── its turn has come ──────────────────┘
//! ```
//!
//! The body of one that is away flows on. Its end is held back until the request has a place again, for with
//! the end the work of the service begins: else a pause would be a way past the gate. It waits for that as
//! any other request does.
//!
//! **Parameters.** A client is slow by [`is_slow`]: it has let the service wait for a second altogether, and
//! for half of the time. Uploads are looked at every [`LOOK_EVERY`]. Those of one address (of a network of 64
//! bits with IPv6) may hold one place, and half of what is in flight, while others wait.
//!
//! **When it fails.** A service that begins with its work before it has the whole body does that work without
//! a place.

use std::collections::HashMap;
use std::future::Future;
use std::mem;
use std::net::IpAddr;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use admission::{PoolSet, Request};
use parking_lot::Mutex;
use tokio::time::{Instant, MissedTickBehavior, interval_at};

use super::flight::{LOOK_EVERY, is_slow};
use super::reject::{Refusal, rejected};
use crate::gate::{Arrival, Driver, Waiting};
use crate::network::home_of;
use crate::observe::TypeName;
use crate::permit::Permit;
use crate::why::Origin;

/// The right of a request to be in flight, until its response begins.
#[derive(Debug)]
pub(crate) enum Place {
    /// Its body is there, or it has none.
    Own(Own),
    /// Its body is still coming.
    Upload(Arc<Upload>),
}

/// The right of a request whose body is there. Dropped, its client has left.
#[derive(Debug)]
pub(crate) struct Own {
    /// There until it is taken out.
    permit: Option<Permit>,
    /// Since when the service is busy with it.
    since: Instant,
}

impl Drop for Own {
    fn drop(&mut self) {
        if let Some(permit) = self.permit.take() {
            permit.abandon(self.since.elapsed());
        }
    }
}

impl Place {
    /// The place of a request whose body is there, and which is dispatched now.
    pub(crate) fn own(permit: Permit) -> Self {
        Self::Own(Own { permit: Some(permit), since: Instant::now() })
    }

    /// The upload that it is of.
    pub(crate) fn upload(&self) -> Option<Arc<Upload>> {
        match self {
            Self::Own(_) => None,
            Self::Upload(upload) => Some(Arc::clone(upload)),
        }
    }

    /// What the request was expected to take when it arrived.
    pub(crate) fn expected(&self) -> Duration {
        match self {
            Self::Own(own) => own.permit.as_ref().map_or(Duration::ZERO, Permit::expected),
            Self::Upload(upload) => {
                upload.inner.lock().stage.permit().map_or(Duration::ZERO, Permit::expected)
            }
        }
    }

    /// The client has left; the service may still be busy with what it asked for.
    pub(crate) fn left(&self) {
        match self {
            Self::Own(own) => own.permit.iter().for_each(Permit::left),
            Self::Upload(upload) => upload.left(),
        }
    }

    /// The right itself, for what comes behind the body; `None` if an upload is away.
    pub(crate) fn into_permit(self) -> Option<Permit> {
        match self {
            Self::Own(mut own) => own.permit.take(),
            Self::Upload(upload) => upload.inner.lock().stage.take(),
        }
    }
}

/// One upload.
pub(crate) struct Upload {
    driver: Arc<Driver>,
    /// What is asked of the gate, once more where the place was given back.
    asked: Request,
    name: TypeName,
    /// How long the service may take without any progress.
    limit: Duration,
    inner: Mutex<Inner>,
}

#[derive(Debug)]
struct Inner {
    stage: Stage,
    /// Since when it has the place that it has, or had last.
    placed: Instant,
    /// How long the service has waited since then.
    awaited: Duration,
    /// Since when it waits now.
    waits_since: Option<Instant>,
    /// When something of it went to the service last.
    moved: Instant,
}

#[derive(Debug)]
enum Stage {
    /// Its body comes, and it is in flight.
    Placed(Permit, Share),
    /// Its body comes, and it holds no place.
    Away,
    /// The end of its body is there, and waits for a place.
    Asks(Waiting),
    /// All of its body has gone on, and it is in flight as any other request.
    Whole(Permit),
    /// It holds nothing, and nothing of it is held back: its response has begun, or it is refused.
    Ended,
}

impl Stage {
    fn permit(&self) -> Option<&Permit> {
        match self {
            Self::Placed(permit, _) | Self::Whole(permit) => Some(permit),
            Self::Away | Self::Asks(_) | Self::Ended => None,
        }
    }

    /// Ends the upload, but for its right to be in flight.
    fn take(&mut self) -> Option<Permit> {
        match mem::replace(self, Self::Ended) {
            Self::Placed(permit, _) | Self::Whole(permit) => Some(permit),
            Self::Away | Self::Asks(_) | Self::Ended => None,
        }
    }
}

impl Upload {
    /// One that is dispatched now, of this request of a client at this address. The service may take for
    /// `limit` without any progress.
    pub(crate) fn new(
        driver: &Arc<Driver>,
        (asked, name): (Request, TypeName),
        permit: Permit,
        share: Share,
        limit: Duration,
    ) -> Arc<Self> {
        let now = Instant::now();
        let inner = Inner {
            stage: Stage::Placed(permit, share),
            placed: now,
            awaited: Duration::ZERO,
            waits_since: None,
            moved: now,
        };
        Arc::new(Self { driver: Arc::clone(driver), asked, name, limit, inner: Mutex::new(inner) })
    }

    /// The service waits for more of it from now on, if it didn't before.
    pub(crate) fn waits(&self) {
        self.inner.lock().waits_since.get_or_insert_with(Instant::now);
    }

    /// Something of it goes to the service.
    pub(crate) fn moves(&self) {
        let mut inner = self.inner.lock();
        inner.moved = Instant::now();
        inner.awaited = inner.awaited();
        inner.waits_since = None;
    }

    /// When it was dispatched, the last time, and how long the service has waited for it since.
    pub(crate) fn account(&self) -> (Instant, Duration) {
        let inner = self.inner.lock();
        (inner.placed, inner.awaited())
    }

    /// Whether its body hasn't gone on whole.
    pub(crate) fn goes_on(&self) -> bool {
        !matches!(self.inner.lock().stage, Stage::Whole(_) | Stage::Ended)
    }

    /// When the service has to have answered. A service that waits has all of its time before it.
    pub(crate) fn due(&self) -> Instant {
        let inner = self.inner.lock();
        let since = if inner.waits_since.is_some() { Instant::now() } else { inner.moved };
        since + self.limit
    }

    /// Whether the end of it may go to the service.
    ///
    /// # Errors
    /// The gate refuses it, now that it asks for a place again.
    pub(crate) fn poll_end(&self, context: &mut Context<'_>) -> Poll<Result<(), Refusal>> {
        let mut inner = self.inner.lock();
        loop {
            let permit = match mem::replace(&mut inner.stage, Stage::Ended) {
                Stage::Ended => return Poll::Ready(Ok(())),
                Stage::Placed(permit, _) | Stage::Whole(permit) => {
                    inner.stage = Stage::Whole(permit);
                    return Poll::Ready(Ok(()));
                }
                Stage::Away => {
                    match self.driver.arrive(self.asked, Origin::default(), None, || self.name.clone()) {
                        Arrival::Dispatched(permit) => permit,
                        Arrival::Waiting(waiting) => {
                            inner.stage = Stage::Asks(waiting);
                            continue;
                        }
                        Arrival::Rejected(refused, number) => {
                            return Poll::Ready(Err(rejected(&self.driver, refused, number)));
                        }
                    }
                }
                Stage::Asks(mut waiting) => match Pin::new(&mut waiting).poll(context) {
                    Poll::Ready(Ok(permit)) => permit,
                    Poll::Ready(Err(refused)) => {
                        return Poll::Ready(Err(rejected(&self.driver, refused, waiting.number())));
                    }
                    Poll::Pending => {
                        inner.stage = Stage::Asks(waiting);
                        inner.waits_since.get_or_insert_with(Instant::now);
                        return Poll::Pending;
                    }
                },
            };
            (inner.placed, inner.awaited, inner.waits_since) = (Instant::now(), Duration::ZERO, None);
            inner.stage = Stage::Whole(permit);
        }
    }

    /// Goes on with what sends it, and looks at it meanwhile.
    pub(crate) async fn mind<T>(&self, sending: impl Future<Output = T>) -> T {
        let mut sending = pin!(sending);
        let mut ticks = interval_at(Instant::now() + LOOK_EVERY, LOOK_EVERY);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                biased;
                sent = sending.as_mut() => return sent,
                _ = ticks.tick() => self.look(),
            }
        }
    }

    /// Gives the place back that others should have.
    fn look(&self) {
        let mut inner = self.inner.lock();
        let Stage::Placed(_, share) = &inner.stage else { return };
        if !is_slow(inner.awaited(), inner.placed.elapsed()) && !share.is_too_large(&self.driver) {
            return;
        }
        let busy = inner.busy();
        let placed = mem::replace(&mut inner.stage, Stage::Away);
        drop(inner);
        if let Stage::Placed(permit, share) = placed {
            drop(share);
            permit.give_up(busy);
        }
    }

    fn left(&self) {
        let mut inner = self.inner.lock();
        if let Some(permit) = inner.stage.take() {
            permit.left();
            inner.stage = Stage::Whole(permit);
        }
    }
}

impl std::fmt::Debug for Upload {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Upload").field("inner", &self.inner).finish_non_exhaustive()
    }
}

/// Its client has left.
impl Drop for Inner {
    fn drop(&mut self) {
        let busy = self.busy();
        if let Some(permit) = self.stage.take() {
            permit.abandon(busy);
        }
    }
}

impl Inner {
    /// For how long the service was busy with it, since it has its place.
    fn busy(&self) -> Duration {
        self.placed.elapsed().saturating_sub(self.awaited())
    }

    fn awaited(&self) -> Duration {
        self.awaited + self.waits_since.map_or(Duration::ZERO, |since| since.elapsed())
    }
}

/// How many places the uploads of each address hold. What is in flight bounds it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Shares(Arc<Mutex<HashMap<Option<IpAddr>, usize>>>);

impl Shares {
    /// One more place for an upload from this address (`None`: a Unix socket).
    pub(crate) fn take(&self, from: Option<IpAddr>) -> Share {
        let from = from.map(home_of);
        *self.0.lock().entry(from).or_default() += 1;
        Share { shares: self.clone(), from }
    }
}

/// One of the places of an address; another may have it once it is dropped.
#[derive(Debug)]
pub(crate) struct Share {
    shares: Shares,
    from: Option<IpAddr>,
}

impl Share {
    /// Whether the uploads of its address hold more than half of the places, which others wait for.
    fn is_too_large(&self, driver: &Driver) -> bool {
        let held = self.shares.0.lock().get(&self.from).copied().unwrap_or(0);
        held > 1 && held * 2 > driver.in_flight_of(PoolSet::ALL) && !driver.queue(1).is_empty()
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        let mut shares = self.shares.0.lock();
        if let Some(held) = shares.get_mut(&self.from) {
            *held -= 1;
            if *held == 0 {
                shares.remove(&self.from);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use admission::{ClassId, Connection, Entry, Policy, PoolId, RequestType};

    use super::*;

    /// How long a service may take in these tests.
    const LIMIT: Duration = Duration::from_secs(60);

    fn upload() -> Arc<Upload> {
        let driver = Driver::new("test", Policy::default(), 1);
        driver.set_pool(PoolId::default(), 1);
        let asked = Request {
            request_type: RequestType(1),
            class: ClassId::DEFAULT,
            client: None,
            tenant: None,
            pool: PoolId::default(),
            connection: Connection::Needed,
            entry: Entry::Queued,
            deadline: None,
        };
        let name = TypeName::new(RequestType(1), "POST /".into());
        let Arrival::Dispatched(permit) = driver.arrive(asked, Origin::default(), None, || name.clone())
        else {
            panic!("it is free")
        };
        Upload::new(&driver, (asked, name), permit, Shares::default().take(None), LIMIT)
    }

    #[tokio::test(start_paused = true)]
    async fn a_wait_for_a_body_counts_while_it_goes_on_and_once_it_has_ended() {
        let (upload, second) = (upload(), Duration::from_secs(1));
        let awaited = || upload.account().1;
        tokio::time::advance(second).await;
        assert_eq!(awaited(), Duration::ZERO);
        upload.waits();
        tokio::time::advance(second).await;
        upload.waits();
        assert_eq!(awaited(), second);
        tokio::time::advance(second).await;
        upload.moves();
        tokio::time::advance(second).await;
        assert_eq!(awaited(), 2 * second);
        upload.waits();
        tokio::time::advance(second).await;
        assert_eq!(awaited(), 3 * second);
    }

    #[tokio::test(start_paused = true)]
    async fn a_service_is_due_by_the_last_piece_and_never_while_it_waits() {
        let (upload, began) = (upload(), Instant::now());
        tokio::time::advance(LIMIT / 2).await;
        assert_eq!(upload.due(), began + LIMIT);
        upload.moves();
        assert_eq!(upload.due(), began + LIMIT / 2 + LIMIT);
        upload.waits();
        tokio::time::advance(LIMIT * 2).await;
        assert_eq!(upload.due(), Instant::now() + LIMIT);
    }

    #[tokio::test(start_paused = true)]
    async fn only_a_client_for_which_the_service_waits_loses_its_place() {
        let upload = upload();
        tokio::time::advance(LIMIT).await;
        upload.look();
        assert!(matches!(upload.inner.lock().stage, Stage::Placed(..)), "the service is slow");
        upload.waits();
        tokio::time::advance(LIMIT).await;
        upload.look();
        assert!(matches!(upload.inner.lock().stage, Stage::Away));
        assert_eq!(upload.driver.in_flight_of(PoolSet::ALL), 0);
        let mut context = Context::from_waker(std::task::Waker::noop());
        assert_eq!(upload.poll_end(&mut context), Poll::Ready(Ok(())));
        assert!(!upload.goes_on());
        assert_eq!((upload.account().1, upload.driver.in_flight_of(PoolSet::ALL)), (Duration::ZERO, 1));
    }

    #[test]
    fn addresses_of_one_network_of_ipv6_count_as_one_and_nobody_is_kept() {
        let shares = Shares::default();
        let of = |address: &str| shares.take(Some(address.parse().unwrap()));
        let taken = ["2001:db8::1", "2001:db8::ffff:1", "2001:db8:0:1::1", "192.0.2.1", "::ffff:192.0.2.1"];
        let all = taken.map(of);
        let mut held: Vec<_> = shares.0.lock().values().copied().collect();
        held.sort_unstable();
        assert_eq!(held, [1, 2, 2]);
        drop(all);
        assert!(shares.0.lock().is_empty());
    }
}
