//! The connected sessions, and what each is doing: for the console, which shows it and ends sessions.
//!
//! Each session has a card; it notes its changes there without a lock (a few stores for each statement),
//! and the card leaves the roster when the session ends in whatever way. A card that is read while its
//! session goes on may be half a statement old.

use std::collections::BTreeMap;
use std::future::poll_fn;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, SystemTime};

use admission::Instant;
use parking_lot::Mutex;

use super::server::Server;
pub(crate) use crate::console::Activity;
use crate::sql::{Hand, ServerInHand};

/// Why a session is told to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Ends {
    /// It isn't.
    Never,
    /// An operator wants it.
    ByOperator,
    /// Its transaction was idle for too long.
    ByIdleness,
}

/// The identity of a client that has logged in.
#[derive(Clone, Debug)]
pub(crate) struct Identity {
    pub(crate) user: String,
    pub(crate) database: String,
    pub(crate) application: String,
    /// `None`: by a Unix socket.
    pub(crate) address: Option<SocketAddr>,
    pub(crate) is_encrypted: bool,
}

/// What is known of one session.
#[derive(Debug)]
pub(crate) struct Card {
    /// Unique in this gate's life; never reused.
    pub(crate) id: u64,
    pub(crate) identity: Identity,
    pub(crate) connected: SystemTime,
    activity: AtomicU8,
    /// Since when, by the gate's clock in nanoseconds.
    since: AtomicU64,
    /// The server connection that it has.
    hand: Hand,
    /// Why it keeps its connection: bits of [`wire::sql::Pins`].
    pub(crate) pins: Arc<AtomicU32>,
    killed: AtomicU8,
    /// Wakes the session's task when the session is told to end.
    waker: Mutex<Option<Waker>>,
}

impl Card {
    /// What the session does from now on.
    pub(crate) fn note(&self, activity: Activity, now: Instant) {
        self.activity.store(activity as u8, Ordering::Relaxed);
        self.since.store(now.as_nanos(), Ordering::Relaxed);
    }

    /// The server connection that it has from now on.
    pub(crate) fn note_server(&self, server: Option<&Server>) {
        self.hand.note(server.map(|server| ServerInHand {
            id: server.id,
            process_id: server.process_id.unsigned_abs(),
            connected: server.connected,
        }));
    }

    pub(crate) fn activity(&self) -> Activity {
        match self.activity.load(Ordering::Relaxed) {
            1 => Activity::Waiting,
            2 => Activity::Active,
            3 => Activity::InTransaction,
            _ => Activity::Idle,
        }
    }

    /// Since when it does what it does.
    pub(crate) fn since(&self) -> Instant {
        Instant::from_nanos(self.since.load(Ordering::Relaxed))
    }

    pub(crate) fn server(&self) -> Option<ServerInHand> {
        self.hand.server()
    }

    /// Tells the session to end.
    pub(crate) fn kill(&self) {
        self.killed.store(Ends::ByOperator as u8, Ordering::Release);
        self.wake();
    }

    /// Tells the session to end if its client has left a transaction with a server connection idle for so
    /// long.
    pub(crate) fn end_idle(&self, now: Instant, limit: Duration) {
        let is_idle = || {
            self.activity() == Activity::InTransaction
                && self.server().is_some()
                && now.since(self.since()) >= limit
        };
        if !is_idle() {
            return;
        }
        let (never, idle) = (Ends::Never as u8, Ends::ByIdleness as u8);
        if self.killed.compare_exchange(never, idle, Ordering::AcqRel, Ordering::Acquire).is_err() {
            return;
        }
        if is_idle() {
            self.wake();
        } else {
            let _ = self.killed.compare_exchange(idle, never, Ordering::AcqRel, Ordering::Acquire);
        }
    }

    /// Why the session is told to end.
    pub(crate) fn ends(&self) -> Ends {
        match self.killed.load(Ordering::Acquire) {
            0 => Ends::Never,
            1 => Ends::ByOperator,
            _ => Ends::ByIdleness,
        }
    }

    fn wake(&self) {
        if let Some(waker) = self.waker.lock().take() {
            waker.wake();
        }
    }
}

/// All sessions of a gate.
#[derive(Debug, Default)]
pub(crate) struct Roster {
    cards: Mutex<BTreeMap<u64, Arc<Card>>>,
    last: AtomicU64,
}

/// A session's place on the roster, to be held to its end.
#[derive(Debug)]
pub(crate) struct Place {
    roster: Arc<Roster>,
    pub(crate) card: Arc<Card>,
    /// The waker that is called when the session is told to end. It is registered once, so that waiting again
    /// costs a load.
    registered: Option<Waker>,
}

impl Place {
    /// Waits until the session is told to end. Cancel-safe; for the session's own task only.
    pub(crate) async fn killed(&mut self) {
        poll_fn(|context| self.poll_killed(context)).await;
    }

    fn poll_killed(&mut self, context: &Context<'_>) -> Poll<()> {
        let is_registered = self.registered.as_ref().is_some_and(|waker| waker.will_wake(context.waker()));
        if !is_registered {
            *self.card.waker.lock() = Some(context.waker().clone());
            self.registered = Some(context.waker().clone());
        }
        // Looked at behind the registration, so that no word in between is missed.
        if self.card.ends() == Ends::Never { Poll::Pending } else { Poll::Ready(()) }
    }
}

impl Roster {
    /// A session begins.
    pub(crate) fn enter(self: &Arc<Self>, identity: Identity, now: Instant) -> Place {
        let card = Arc::new(Card {
            id: self.last.fetch_add(1, Ordering::Relaxed) + 1,
            identity,
            connected: SystemTime::now(),
            activity: AtomicU8::new(Activity::Idle as u8),
            since: AtomicU64::new(now.as_nanos()),
            hand: Hand::default(),
            pins: Arc::default(),
            killed: AtomicU8::new(Ends::Never as u8),
            waker: Mutex::new(None),
        });
        self.cards.lock().insert(card.id, Arc::clone(&card));
        Place { roster: Arc::clone(self), card, registered: None }
    }

    /// The sessions now, by their numbers.
    pub(crate) fn cards(&self) -> Vec<Arc<Card>> {
        self.cards.lock().values().cloned().collect()
    }

    pub(crate) fn find(&self, id: u64) -> Option<Arc<Card>> {
        self.cards.lock().get(&id).cloned()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.roster.cards.lock().remove(&self.card.id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn identity() -> Identity {
        Identity {
            user: "ann".to_owned(),
            database: "shop".to_owned(),
            application: String::new(),
            address: None,
            is_encrypted: false,
        }
    }

    #[tokio::test]
    async fn a_session_is_on_the_roster_until_it_ends_and_can_be_told_to() {
        let roster = Arc::new(Roster::default());
        let (first, mut second) =
            (roster.enter(identity(), Instant::ZERO), roster.enter(identity(), Instant::ZERO));
        assert_eq!(roster.cards().len(), 2);
        roster.find(second.card.id).unwrap().kill();
        second.killed().await;
        drop(second);
        assert_eq!(roster.cards().iter().map(|card| card.id).collect::<Vec<_>>(), [first.card.id]);
        first.card.note(Activity::Waiting, Instant::from_nanos(5));
        assert_eq!((first.card.activity(), first.card.since()), (Activity::Waiting, Instant::from_nanos(5)));
    }
}
