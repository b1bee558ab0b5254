//! Says in the log why nobody goes on: clients that are silent hold every server connection while others
//! wait.
//!
//! That may be an application that is slow between its statements. It may also be one that waits for
//! itself: a thread that serves several connections, and waits on one of them until another one of its own
//! ends its transaction. Nothing but its end helps then, and nobody sees it from outside.

use std::time::Duration;

use admission::Instant;

use super::Shared;
use super::roster::{Activity, Card};

/// How long all must have been silent. Between two statements of a busy transaction it is less.
const SILENCE: Duration = Duration::from_secs(1);
/// At most one line in the log per this time.
const LOG_PERIOD: Duration = Duration::from_secs(60);

/// Sessions of a gate where every one that has a server connection is silent.
#[derive(Debug, Default, PartialEq, Eq)]
struct Silent {
    /// With a connection, in an open transaction.
    in_transactions: u32,
    /// With a connection, which they keep between transactions.
    keeping: u32,
    /// Without one.
    waiting: u32,
}

/// Looks again and again.
#[derive(Debug, Default)]
pub(super) struct Watch {
    said: Option<Instant>,
}

impl Watch {
    /// Looks whether the gate is stuck, and says so.
    pub(super) fn look(&mut self, shared: &Shared) {
        let now = shared.driver.clock().now();
        let was_said = self.said.is_some_and(|said| now.since(said) < LOG_PERIOD);
        // Most gates have no queue at most times: there the look ends.
        if was_said || shared.driver.snapshot().queued == 0 {
            return;
        }
        let pools = shared.pools.snapshot();
        let connections: u32 = pools.iter().map(|pool| pool.connections).sum();
        let cards = shared.roster.cards();
        let Some(Silent { in_transactions, keeping, waiting }) =
            Silent::of(cards.iter().map(AsRef::as_ref), now)
        else {
            return;
        };
        if waiting == 0 || in_transactions + keeping < connections {
            return;
        }
        self.said = Some(now);
        let kept_for = shared.pins.snapshot().into_iter().filter(|(_, sessions)| *sessions > 0);
        let kept_for: Vec<_> = kept_for.map(|(reason, _)| reason).collect();
        tracing::warn!(
            gate = shared.driver.name(),
            connections,
            in_transactions,
            keeping,
            kept_for = kept_for.join(","),
            waiting,
            "all server connections are held by clients that are idle in transactions, or keep theirs, while others \
             wait; where one thread serves several of them, neither may ever go on: end transactions sooner, bound \
             their pauses by idle_in_transaction_session_timeout, or give the gate as many connections as \
             transactions are open at once"
        );
    }
}

impl Silent {
    /// `None`: somebody with a connection is not silent.
    fn of<'a>(cards: impl Iterator<Item = &'a Card>, now: Instant) -> Option<Self> {
        let mut silent = Self::default();
        for card in cards {
            let is_long = now.since(card.since()) >= SILENCE;
            match (card.activity(), card.server()) {
                (Activity::InTransaction, Some(_)) if is_long => silent.in_transactions += 1,
                (Activity::Idle, Some(_)) if is_long => silent.keeping += 1,
                (_, Some(_)) => return None,
                (Activity::Waiting, None) if is_long => silent.waiting += 1,
                _ => {}
            }
        }
        Some(silent)
    }
}
