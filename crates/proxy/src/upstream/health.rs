//! Whether an address of a service is there, as connections, answers and looks of the gate's own have shown
//! it.
//!
//! Nothing is known of an address at first. An answer, or a connection, finds it up. A failure finds it
//! down; of requests without a response it takes several in a row. Requests avoid the address for a pause
//! that doubles with each failure in a row. An answer ends the pause. A connection ends it only where no
//! connection could be had before, since a service may take connections and serve nobody.
//!
//! The log has one warning when an address goes, and one when it comes back. An address that goes again and
//! again is told of once a second at most. Of requests without a response that don't find it down, the log
//! has a warning a minute.

use std::fmt::{self, Display};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use super::address::Address;
use crate::news::Seldom;

/// How often a gate looks at an address from which nothing has been heard meanwhile.
pub(crate) const LOOK_EVERY: Duration = Duration::from_secs(2);
/// How long an address isn't to be tried after its first failure. The pause doubles with each further
/// failure.
const PAUSE_MIN: Duration = Duration::from_secs(1);
/// The longest pause after failures of an address.
const PAUSE_MAX: Duration = Duration::from_secs(30);
/// How many requests in a row without a response find an address down.
const UNANSWERED_MAX: u32 = 3;
/// The most bytes of an error that are kept.
const ERROR_BYTES_MAX: usize = 500;

/// Whether an address is there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Condition {
    /// Nothing has been heard of it yet.
    #[default]
    Unknown,
    /// It answered last, or took a connection.
    Up,
    /// It failed last.
    Down,
}

impl Condition {
    /// Its name in reports.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Unknown => "unknown",
            Self::Up => "up",
            Self::Down => "down",
        }
    }
}

/// One address of a gate's service, as reports show it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UpstreamView {
    /// Where it is.
    pub address: String,
    /// Whether it is there.
    pub condition: Condition,
    /// For how long it has been so.
    pub since: Duration,
    /// How often it has failed.
    pub failures: u64,
    /// Why it failed last, and how long ago.
    pub last_error: Option<(String, Duration)>,
}

/// What an address failed to give.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lack {
    /// It took no connection.
    Connection,
    /// It took a connection, and gave no answer or one of a service that isn't well.
    Answer,
    /// It took a connection and a request, and gave no response that can be read. The fault may be that of
    /// one request alone.
    Response,
}

/// What is known of one address.
pub struct Health {
    /// It is up and has no failures: a caller that finds that need look no further.
    is_well: AtomicBool,
    /// It has answered since the last look.
    was_heard: AtomicBool,
    state: Mutex<State>,
    /// What the log was told of a server that takes no more connections.
    crowded: Seldom,
    /// What the log was told of when it went.
    falls: Seldom,
    /// What the log was told of requests without a response, of which too few came in a row to find it down.
    unanswered: Seldom,
}

struct State {
    condition: Condition,
    since: Instant,
    /// Failures since the last answer.
    in_a_row: u32,
    /// All failures.
    failures: u64,
    paused: Option<(Lack, Instant)>,
    last_error: Option<(String, Instant)>,
    /// When the server was started, as it says itself.
    started: Option<String>,
    lost: Lost,
    fall: Fall,
}

/// Whether the log has heard that an address went the last time: only then it hears that it came back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fall {
    Told,
    Withheld,
}

/// Connections that the server has ended, and the log hasn't heard of.
#[derive(Default)]
struct Lost {
    busy: u64,
    /// All idle ones of which the log has heard.
    idle_told: u64,
    /// What the server said of the last busy one.
    said: Option<String>,
}

impl Lost {
    /// What the log hasn't heard of: busy ones, idle ones, and what the server said. `idle` is how many idle
    /// ones were ever lost.
    fn take(&mut self, idle: u64) -> (u64, u64, Option<String>) {
        let before = std::mem::replace(&mut self.idle_told, idle);
        (std::mem::take(&mut self.busy), idle.saturating_sub(before), self.said.take())
    }
}

/// Whose address it is, for the log.
#[derive(Clone, Copy)]
pub(crate) struct Named<'a> {
    pub(crate) gate: &'a str,
    pub(crate) address: &'a Address,
}

impl Default for Health {
    fn default() -> Self {
        let state = State {
            condition: Condition::Unknown,
            since: Instant::now(),
            in_a_row: 0,
            failures: 0,
            paused: None,
            last_error: None,
            started: None,
            lost: Lost::default(),
            fall: Fall::Told,
        };
        Self {
            is_well: AtomicBool::new(false),
            was_heard: AtomicBool::new(false),
            state: Mutex::new(state),
            crowded: Seldom::default(),
            falls: Seldom::every(Duration::from_secs(1)),
            unanswered: Seldom::default(),
        }
    }
}

impl fmt::Debug for Health {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Health").field("condition", &self.condition()).finish_non_exhaustive()
    }
}

impl Health {
    /// Whether the address is there.
    pub(crate) fn condition(&self) -> Condition {
        if self.is_well.load(Ordering::Relaxed) { Condition::Up } else { self.state.lock().condition }
    }

    /// When it may be tried again, if it isn't to be tried now.
    pub(crate) fn down_until(&self) -> Option<Instant> {
        if self.is_well.load(Ordering::Relaxed) {
            return None;
        }
        self.state.lock().pause().map(|(_, until)| until)
    }

    /// Counts a request that the upstream didn't answer, or not as a service that is well does.
    pub(crate) fn failed(&self, named: Named<'_>, lack: Lack, why: &dyn Display) {
        let error = why.to_string();
        let error = cut(&error).to_owned();
        let now = Instant::now();
        let mut state = self.state.lock();
        self.is_well.store(false, Ordering::Relaxed);
        state.failures += 1;
        state.in_a_row = state.in_a_row.saturating_add(1);
        let pause = PAUSE_MIN.saturating_mul(1 << (state.in_a_row - 1).min(10)).min(PAUSE_MAX);
        state.paused = Some((lack, now + pause));
        let is_down = lack != Lack::Response || state.in_a_row >= UNANSWERED_MAX;
        if is_down && state.condition != Condition::Down {
            (state.condition, state.since, state.fall) = (Condition::Down, now, Fall::Withheld);
        }
        if is_down && state.fall == Fall::Withheld && self.falls.may().is_some() {
            state.fall = Fall::Told;
            let Named { gate, address } = named;
            tracing::warn!(gate, upstream = %address, reason = %error, "an upstream is down");
        }
        if !is_down && let Some(withheld) = self.unanswered.may() {
            let Named { gate, address } = named;
            tracing::warn!(
                gate, upstream = %address, reason = %error, withheld,
                "a request had no response that can be read"
            );
        }
        state.last_error = Some((error, now));
    }

    /// Counts a request that the upstream answered.
    pub(crate) fn answered(&self, named: Named<'_>) {
        if !self.was_heard.load(Ordering::Relaxed) {
            self.was_heard.store(true, Ordering::Relaxed);
        }
        if self.is_well.load(Ordering::Relaxed) {
            return;
        }
        let mut state = self.state.lock();
        state.rise(named);
        (state.in_a_row, state.paused) = (0, None);
        self.is_well.store(true, Ordering::Relaxed);
    }

    /// Counts a connection that the upstream took, which says less than an answer.
    pub(crate) fn reached(&self, named: Named<'_>) {
        if self.is_well.load(Ordering::Relaxed) {
            return;
        }
        let mut state = self.state.lock();
        match state.pause() {
            Some((Lack::Answer | Lack::Response, _)) => return,
            Some((Lack::Connection, _)) => (state.in_a_row, state.paused) = (0, None),
            None => {}
        }
        state.rise(named);
        self.is_well.store(state.in_a_row == 0, Ordering::Relaxed);
    }

    /// The server refuses connections because it has as many as it takes.
    pub(crate) fn crowded(&self, Named { gate, address }: Named<'_>, (sqlstate, why): (&str, &dyn Display)) {
        if let Some(withheld) = self.crowded.may() {
            tracing::warn!(gate, upstream = %address, sqlstate, reason = %why, withheld, "the server refused a connection");
        }
    }

    /// The server was started then, as it says. `None`: it doesn't say.
    pub(crate) fn started(&self, Named { gate, address }: Named<'_>, at: Option<String>) {
        let Some(at) = at.filter(|at| !at.is_empty()) else { return };
        let before = self.state.lock().started.replace(at.clone());
        if before.is_some_and(|before| before != at) {
            tracing::warn!(gate, upstream = %address, started = at, "the server has restarted, or is another one");
        }
    }

    /// The server has ended a connection that was in use.
    pub(crate) fn lost(&self, said: Option<&str>) {
        let lost = &mut self.state.lock().lost;
        lost.busy += 1;
        lost.said = said.map(|said| cut(said).to_owned()).or(lost.said.take());
    }

    /// Tells of connections that the server has ended since the last call. `idle` is how many idle ones it
    /// ever has.
    pub(crate) fn tell_lost(&self, Named { gate, address }: Named<'_>, idle: u64) {
        let (busy, idle, said) = self.state.lock().lost.take(idle);
        if busy + idle > 0 {
            tracing::warn!(gate, upstream = %address, busy, idle, said, "the server has ended connections");
        }
    }

    /// Whether it has answered since this was asked last.
    pub(crate) fn was_heard(&self) -> bool {
        self.was_heard.swap(false, Ordering::Relaxed)
    }

    /// What the admin listener shows.
    pub(crate) fn view(&self, address: &Address) -> UpstreamView {
        let state = self.state.lock();
        UpstreamView {
            address: address.to_string(),
            condition: state.condition,
            since: state.since.elapsed(),
            failures: state.failures,
            last_error: state.last_error.as_ref().map(|(error, at)| (error.clone(), at.elapsed())),
        }
    }
}

impl State {
    /// Why and until when requests avoid the address.
    fn pause(&self) -> Option<(Lack, Instant)> {
        self.paused.filter(|(_, until)| *until > Instant::now())
    }

    fn rise(&mut self, Named { gate, address }: Named<'_>) {
        if self.condition == Condition::Down && self.fall == Fall::Told {
            let down_seconds = self.since.elapsed().as_secs_f64();
            tracing::warn!(gate, upstream = %address, down_seconds, "an upstream is up again");
        }
        if self.condition != Condition::Up {
            (self.condition, self.since) = (Condition::Up, Instant::now());
        }
    }
}

/// The beginning of an error, as much as is kept of it.
fn cut(error: &str) -> &str {
    let mut end = error.len().min(ERROR_BYTES_MAX);
    while !error.is_char_boundary(end) {
        end -= 1;
    }
    &error[..end]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pause(health: &Health) -> Option<Duration> {
        health.down_until().map(|until| until - Instant::now())
    }

    #[tokio::test(start_paused = true)]
    async fn only_an_answer_forgets_the_failures_of_an_address_that_takes_connections() {
        let (health, address) = (Health::default(), Address::inet("db", 5432));
        let named = Named { gate: "shop", address: &address };
        assert_eq!(health.condition(), Condition::Unknown);
        health.reached(named);
        assert_eq!(health.condition(), Condition::Up);
        for seconds in [1, 2, 4].map(Duration::from_secs) {
            health.failed(named, Lack::Answer, &"closed");
            assert_eq!(pause(&health), Some(seconds));
            health.reached(named);
            assert_eq!(health.condition(), Condition::Down);
            tokio::time::advance(seconds).await;
            health.reached(named);
            assert_eq!((health.condition(), pause(&health)), (Condition::Up, None));
        }
        health.answered(named);
        health.failed(named, Lack::Answer, &"closed");
        assert_eq!(pause(&health), Some(Duration::from_secs(1)));
        tokio::time::advance(Duration::from_secs(2)).await;
        let view = health.view(&address);
        assert_eq!((view.condition, view.since, view.failures), (Condition::Down, Duration::from_secs(2), 4));
        assert_eq!(view.last_error, Some(("closed".to_owned(), Duration::from_secs(2))));
    }

    #[tokio::test(start_paused = true)]
    async fn an_address_that_took_no_connection_is_tried_again_as_soon_as_it_takes_one() {
        let (health, address) = (Health::default(), Address::inet("db", 5432));
        let named = Named { gate: "shop", address: &address };
        for _ in 0..5 {
            health.failed(named, Lack::Connection, &"refused");
        }
        assert_eq!(pause(&health), Some(Duration::from_secs(16)));
        health.reached(named);
        assert_eq!((health.condition(), pause(&health)), (Condition::Up, None));
    }

    #[tokio::test(start_paused = true)]
    async fn one_request_without_a_response_does_not_find_an_address_down() {
        let (health, address) = (Health::default(), Address::inet("site", 80));
        let named = Named { gate: "shop", address: &address };
        health.answered(named);
        let fails = || {
            health.failed(named, Lack::Response, &"closed");
            health.condition()
        };
        let is_told = || health.unanswered.may().is_none();
        for _ in 0..10 {
            assert_eq!((fails(), fails()), (Condition::Up, Condition::Up));
            assert!(health.down_until().is_some(), "other addresses are tried first");
            assert!(is_told(), "the log has heard of the first");
            health.answered(named);
        }
        assert_eq!((fails(), fails(), fails()), (Condition::Up, Condition::Up, Condition::Down));
        health.answered(named);
        health.failed(named, Lack::Connection, &"refused");
        assert_eq!(health.condition(), Condition::Down);
        assert_eq!(health.state.lock().fall, Fall::Withheld, "the log has heard of the first just now");
        tokio::time::advance(Duration::from_secs(1)).await;
        health.failed(named, Lack::Connection, &"refused");
        assert_eq!(health.state.lock().fall, Fall::Told, "it stays down, and the log hears of it");
    }

    #[test]
    fn connections_that_the_server_has_ended_are_told_once() {
        let health = Health::default();
        let untold = |idle| health.state.lock().lost.take(idle);
        health.lost(Some("57P01"));
        assert_eq!(untold(2), (1, 2, Some("57P01".to_owned())));
        assert_eq!(untold(2), (0, 0, None));
        assert_eq!(untold(2), (0, 0, None));
        assert_eq!(untold(5), (0, 3, None));
    }

    #[test]
    fn a_long_error_is_kept_up_to_a_bound() {
        let (health, address) = (Health::default(), Address::inet("db", 5432));
        health.failed(Named { gate: "shop", address: &address }, Lack::Answer, &"é".repeat(ERROR_BYTES_MAX));
        let (error, _) = health.view(&address).last_error.unwrap();
        assert_eq!(error.len(), ERROR_BYTES_MAX);
    }
}
