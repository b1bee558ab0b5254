//! A request from its dispatch to the last byte of its response: what it holds, and for how long the
//! service was busy.
//!
//! The upstream time that its type learns is from dispatch to the last byte, without the time that its
//! client let the service wait for its body before the response began, or left what was there untaken: a
//! slow client says nothing of what a request costs. While a client takes nothing for [`PATIENCE`], its
//! request counts as idle (and gives its work back, as any idle one does). A client that has left bytes
//! untaken for [`SLOW_AFTER`] altogether, and for half of the time, is slow: the request ends for the gate,
//! and the rest of its response holds nothing but its two sockets. The responses of one HTTP/2 connection
//! have that second together ([`Leisure`]). A response without a length that goes on
//! for [`STREAM_AFTER`] is a stream: it was admitted once, and holds nothing any more. Neither teaches
//! anything of a type that is known: nobody sees how long the service takes to the end.

use std::future::Future;
use std::mem;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll};
use std::time::Duration;

use admission::Outcome;
use parking_lot::Mutex;
use tokio::time::{Instant, interval};

use super::endpoint::{Lease, Sender};
use super::parameters::Sample;
use super::upload::Upload;
use crate::gate::Driver;
use crate::permit::Permit;

/// A client that takes nothing for so long isn't the service's work.
const PATIENCE: Duration = Duration::from_millis(500);
/// A client that has let the service wait for so long, altogether, and for half of the time, takes its
/// place from nobody else. A client that takes nearly as fast as the service sends comes to a second, too, in
/// a long response; but there it is the service that the place is for.
const SLOW_AFTER: Duration = Duration::from_secs(1);
/// A response that goes on for so long, and doesn't say for how long, is a stream.
const STREAM_AFTER: Duration = Duration::from_secs(10);
/// How often both are looked at.
pub(crate) const LOOK_EVERY: Duration = Duration::from_millis(250);
/// A response up to this size is in buffers whatever its client does, so nobody looks at it.
const SMALL: u64 = 64 * 1024;

/// What a request holds that is in flight.
#[derive(Debug)]
pub(crate) struct Flight(Arc<Mutex<State>>);

#[derive(Debug)]
struct State {
    permit: Option<Permit>,
    lease: Option<Lease>,
    dispatched: Instant,
    /// How long the service has waited for its body until the response began.
    awaited: Duration,
    /// Its upload, if that goes on beside the response.
    upload: Option<Arc<Upload>>,
    outcome: Outcome,
    /// What its parameters are judged by, too.
    sample: Option<Sample>,
    /// Since when the client has what there is.
    untaken_since: Option<Instant>,
    /// How long that has been so, altogether.
    untaken: Duration,
    is_idle: bool,
    /// It has waited for the uplink, which is no fault of its client's.
    has_made_way: bool,
    /// What its client has left of other responses, over HTTP/2.
    leisure: Option<Arc<Leisure>>,
    /// Since when it may be a stream.
    streams_since: Option<Instant>,
}

impl Flight {
    /// A response has begun, to a request that was dispatched then, and for whose body the service has waited
    /// for so long. No permit: its upload had given its place back.
    pub(crate) fn new(
        permit: Option<Permit>,
        lease: Lease,
        (dispatched, awaited): (Instant, Duration),
        upload: Option<Arc<Upload>>,
        (outcome, sample): (Outcome, Option<Sample>),
    ) -> Self {
        Self(Arc::new(Mutex::new(State {
            permit,
            lease: Some(lease),
            dispatched,
            awaited,
            upload,
            outcome,
            sample,
            untaken_since: Some(Instant::now()),
            untaken: Duration::ZERO,
            is_idle: false,
            has_made_way: false,
            leisure: None,
            streams_since: None,
        })))
    }

    /// Its client is one of HTTP/2. If that has left other responses for long, this one takes no place.
    pub(crate) fn is_one_of(&self, leisure: Arc<Leisure>) {
        let mut state = self.0.lock();
        state.leisure = Some(leisure);
        state.look();
    }

    /// The request that is in flight, as stories know it; `None` once it isn't.
    pub(crate) fn request(&self) -> Option<(Arc<Driver>, u64)> {
        self.0.lock().permit.as_ref().map(Permit::request)
    }

    /// The client's side asks for more: what the service has sent is read, and what there is of it polled.
    pub(crate) fn ask<T>(
        &self,
        context: &mut Context<'_>,
        poll: impl FnOnce(&mut Context<'_>) -> Poll<T>,
    ) -> Poll<T> {
        let mut state = self.0.lock();
        if let Some(lease) = &mut state.lease {
            lease.drive(context);
        }
        if let Some(since) = state.untaken_since.take() {
            state.untaken += since.elapsed();
            if mem::take(&mut state.is_idle)
                && let Some(permit) = &state.permit
            {
                permit.resume();
            }
        }
        match &state.lease {
            Some(lease) => lease.take(context, poll),
            None => poll(context),
        }
    }

    /// The service has sent something, which the client's side has now.
    pub(crate) fn answered(&self) {
        self.0.lock().untaken_since = Some(Instant::now());
    }

    /// Its client's socket takes no more.
    pub(crate) fn is_left(&self) {
        self.0.lock().untaken_since.get_or_insert_with(Instant::now);
    }

    /// What the service has sent waits for its turn on the uplink. Until the service is asked for more, its
    /// place is another's.
    pub(crate) fn makes_way(&self) {
        let mut state = self.0.lock();
        state.untaken_since.get_or_insert_with(Instant::now);
        state.has_made_way = true;
        state.pause(Permit::make_way);
    }

    /// The response is complete.
    pub(crate) fn land(&self) {
        self.0.lock().end();
    }

    /// The service broke it off.
    pub(crate) fn crash(&self) {
        let mut state = self.0.lock();
        state.outcome = Outcome::Failure;
        if let Some(lease) = state.lease.take() {
            lease.give_up();
        }
        state.end();
    }

    /// Ends the request for the gate and lets its bytes flow on, for as long as its client likes: an upgrade,
    /// or a stream of events.
    pub(crate) fn let_go(&self) {
        let mut state = self.0.lock();
        state.sample = None;
        state.complete();
    }

    /// Drives a connection that becomes something else until it has. It goes on counting for its endpoint.
    pub(crate) fn hand_over(&self) -> impl Future<Output = ()> + use<> {
        let connection = self.0.lock().lease.as_mut().and_then(|lease| lease.sender.take());
        async move {
            if let Some(Sender::Http1(connection)) = connection {
                connection.run().await;
            }
        }
    }
}

impl State {
    fn end(&mut self) {
        // The connection first: the request that is dispatched next takes it.
        if let Some(lease) = self.lease.take() {
            lease.give_back();
        }
        self.complete();
    }

    /// Ends the request for the gate.
    fn complete(&mut self) {
        let busy = self.busy();
        self.settle();
        if let Some(permit) = self.permit.take() {
            permit.complete(self.outcome, busy);
            if let Some(sample) = self.sample.take().filter(|_| self.outcome == Outcome::Success) {
                sample.learn(busy);
            }
        }
    }

    /// Notes what its client has left of it.
    fn settle(&mut self) {
        if let Some(leisure) = self.leisure.take() {
            let untaken = if self.has_made_way { Duration::ZERO } else { self.untaken() };
            leisure.add(untaken, self.dispatched.elapsed());
        }
    }

    /// Whether its client is slow, as far as this response and those before it say.
    fn is_slow(&self) -> bool {
        let unsent = self.upload.as_ref().map_or(Duration::ZERO, |upload| upload.account().1);
        let (untaken, elapsed) = (self.untaken().max(unsent), self.dispatched.elapsed());
        let others = self.leisure.as_ref().filter(|_| self.untaken_since.is_some());
        is_slow(untaken, elapsed) || others.is_some_and(|others| others.is_slow())
    }

    /// Pauses, in this way, until the service is asked for more.
    fn pause(&mut self, pause: impl FnOnce(&Permit)) {
        if let Some(permit) = self.permit.as_ref().filter(|_| !self.is_idle) {
            pause(permit);
            self.is_idle = true;
        }
    }

    /// For how long its service was, until now.
    fn busy(&self) -> Duration {
        self.dispatched.elapsed().saturating_sub(self.untaken() + self.awaited)
    }

    /// How long its client has left what was there, until now.
    fn untaken(&self) -> Duration {
        self.untaken + self.untaken_since.map_or(Duration::ZERO, |since| since.elapsed())
    }

    /// What the clock alone says. Whether there is more to look at: a request without a place needs none.
    fn look(&mut self) -> bool {
        if self.streams_since.is_some_and(|since| since.elapsed() >= STREAM_AFTER) {
            // Given up, and not completed: it teaches nothing.
            self.settle();
            let busy = self.busy();
            if let Some(permit) = self.permit.take() {
                permit.give_up(busy);
            }
        }
        if self.permit.is_some() && self.is_slow() {
            self.settle();
            let busy = self.busy();
            if let Some(permit) = self.permit.take() {
                permit.cut_short(self.outcome, busy);
            }
        }
        if self.untaken_since.is_some_and(|since| since.elapsed() >= PATIENCE) {
            self.pause(Permit::idle);
        }
        self.permit.is_some()
    }
}

/// Its client has left before the end of the response.
impl Drop for State {
    fn drop(&mut self) {
        self.settle();
        let busy = self.busy();
        if let Some(permit) = self.permit.take() {
            permit.abandon(busy);
        }
    }
}

/// Whether a client is slow that has left a response untaken, or let the service wait for its body, for so
/// much of the time since its request was dispatched.
pub(crate) fn is_slow(untaken: Duration, elapsed: Duration) -> bool {
    untaken >= SLOW_AFTER && untaken * 2 >= elapsed
}

/// What the client of one HTTP/2 connection has left of its responses. It may have a hundred at once, each of
/// which would hold a place for its own second.
#[derive(Debug, Default)]
pub(crate) struct Leisure(Mutex<Account>);

#[derive(Debug, Default)]
struct Account {
    untaken: Duration,
    elapsed: Duration,
}

impl Leisure {
    /// A response has ended, or its place: so much of its time its client had what there was.
    fn add(&self, untaken: Duration, elapsed: Duration) {
        let mut account = self.0.lock();
        // A response that waits for the gate's own turn waits for moments.
        account.untaken += if untaken >= PATIENCE { untaken } else { Duration::ZERO };
        account.elapsed += elapsed;
    }

    fn is_slow(&self) -> bool {
        let account = self.0.lock();
        is_slow(account.untaken, account.elapsed)
    }
}

/// The responses that somebody has to look at.
#[derive(Debug, Default)]
pub(crate) struct Flights(Mutex<Vec<Weak<Mutex<State>>>>);

impl Flights {
    /// Looks at this one from now on, if its response is of a size that needs it.
    pub(crate) fn watch(&self, flight: &Flight, length: Option<u64>) {
        if length.is_some_and(|length| length <= SMALL) && flight.0.lock().upload.is_none() {
            return;
        }
        if length.is_none() {
            flight.0.lock().streams_since = Some(Instant::now());
        }
        self.0.lock().push(Arc::downgrade(&flight.0));
    }

    /// Looks until the task is dropped. What is in flight bounds what is looked at.
    pub(crate) async fn look(&self) {
        let mut ticks = interval(LOOK_EVERY);
        loop {
            ticks.tick().await;
            self.look_once();
        }
    }

    fn look_once(&self) {
        // Not under the lock: to give a permit up may dispatch others, whose responses begin meanwhile.
        let mut all = mem::take(&mut *self.0.lock());
        all.retain(|flight| flight.upgrade().is_some_and(|state| state.lock().look()));
        self.0.lock().append(&mut all);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_is_slow_that_has_left_a_response_untaken_for_a_second_and_for_half_of_the_time() {
        let seconds = Duration::from_secs_f64;
        for (untaken, elapsed, slow) in [
            (0.9, 1.0, false),
            (1.0, 1.0, true),
            (1.0, 2.0, true),
            (1.0, 2.1, false),
            (5.0, 60.0, false),
            (31.0, 60.0, true),
        ] {
            assert_eq!(is_slow(seconds(untaken), seconds(elapsed)), slow, "{untaken} of {elapsed}");
        }
    }

    #[test]
    fn a_client_is_slow_that_has_left_its_responses_for_a_second_together_until_it_takes_others() {
        let (leisure, millis) = (Leisure::default(), Duration::from_millis);
        // Moments don't count, however many they are.
        (0..10_000).for_each(|_| leisure.add(millis(1), millis(1)));
        assert!(!leisure.is_slow());
        let leisure = Leisure::default();
        for (untaken, elapsed, slow) in
            [(600, 700, false), (600, 700, true), (0, 900, true), (0, 100, true), (0, 1, false)]
        {
            leisure.add(millis(untaken), millis(elapsed));
            assert_eq!(leisure.is_slow(), slow, "{untaken} of {elapsed}");
        }
    }

    #[test]
    fn who_holds_no_place_is_looked_at_no_longer() {
        let flight = Flight(Arc::new(Mutex::new(State {
            permit: None,
            lease: None,
            dispatched: Instant::now(),
            awaited: Duration::ZERO,
            upload: None,
            outcome: Outcome::Success,
            sample: None,
            untaken_since: None,
            untaken: Duration::ZERO,
            is_idle: false,
            has_made_way: false,
            leisure: None,
            streams_since: None,
        })));
        let flights = Flights::default();
        flights.watch(&flight, None);
        flights.look_once();
        assert!(flights.0.lock().is_empty());
    }
}
