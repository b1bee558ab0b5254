//! Says in the log why nobody goes on: clients that are silent hold every server connection while others
//! wait; or hold some, and statements that may wait for their locks hold the rest.
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
/// How long a statement must have run to be taken for one that waits for locks.
const RUNNING: Duration = Duration::from_secs(5);
/// At most one line in the log per this time.
const LOG_PERIOD: Duration = Duration::from_secs(60);

/// Sessions of a gate where every one that has a server connection is silent, or runs a long statement.
#[derive(Debug, Default)]
struct Silent<'a> {
    /// With a connection, in an open transaction.
    in_transactions: u32,
    /// With a connection, which they keep between transactions.
    keeping: u32,
    /// With a connection, in a statement that may wait for locks of those.
    running: u32,
    /// Without one.
    waiting: u32,
    /// The one with a connection that has been silent for the longest.
    oldest: Option<&'a Card>,
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
        let Some(found) = Silent::of(cards.iter().map(AsRef::as_ref), now) else { return };
        let Silent { in_transactions, keeping, running, waiting, oldest: Some(oldest) } = found else {
            return;
        };
        let silent = in_transactions + keeping;
        if waiting == 0 || silent + running < connections {
            return;
        }
        self.said = Some(now);
        let kept_for = shared.pins.snapshot().into_iter().filter(|(_, sessions)| *sessions > 0);
        let kept_for: Vec<_> = kept_for.map(|(reason, _)| reason).collect();
        let address = oldest.identity.address.map_or_else(|| "unix".to_owned(), |it| it.to_string());
        tracing::warn!(
            gate = shared.driver.name(),
            connections,
            in_transactions,
            keeping,
            running,
            kept_for = kept_for.join(","),
            waiting,
            oldest_session = oldest.id,
            oldest_user = oldest.identity.user,
            oldest_address = address,
            oldest_silent_s = now.since(oldest.since()).as_secs(),
            "all server connections are held by clients that are idle in transactions, or keep theirs, or run \
             statements that may wait for locks of those, while others wait; where one thread serves several \
             of them, neither may ever go on: end transactions sooner, bound their pauses by the gate's \
             idle_transaction_timeout or the server's idle_in_transaction_session_timeout, or give the gate \
             as many connections as transactions are open at once"
        );
    }
}

impl<'a> Silent<'a> {
    /// `None`: somebody with a connection goes on.
    fn of(cards: impl Iterator<Item = &'a Card>, now: Instant) -> Option<Self> {
        let mut silent = Self::default();
        for card in cards {
            let since = now.since(card.since());
            let is_long = since >= SILENCE;
            match (card.activity(), card.server()) {
                (Activity::InTransaction, Some(_)) if is_long => silent.in_transactions += 1,
                (Activity::Idle, Some(_)) if is_long => silent.keeping += 1,
                (Activity::Active, Some(_)) if since >= RUNNING => silent.running += 1,
                (_, Some(_)) => return None,
                (Activity::Waiting, None) if is_long => silent.waiting += 1,
                _ => {}
            }
            let holds = card.server().is_some() && card.activity() != Activity::Active;
            if holds && silent.oldest.is_none_or(|oldest| card.since() < oldest.since()) {
                silent.oldest = Some(card);
            }
        }
        Some(silent)
    }
}
