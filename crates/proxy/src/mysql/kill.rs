//! How statements end early: a session kills another's, or the client leaves that waits for the answer.

use std::time::Duration;

use tokio::time::timeout;

use super::Shared;
use super::channel::{Channel, Lost, OUTPUT_MAX};
use super::classify::{Close, Kill};
use super::greeting::Failed;
use super::place::Place;
use super::roster::{Activity, Entry};
use super::server::{Key, Server, Thread};
use super::users::Credential;
use crate::shutdown::{Ending, Phase};

/// Whether somebody takes an answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Taker {
    #[default]
    There,
    /// The client has left, or has to.
    Left,
}

/// What watches the client of a statement that runs.
pub(super) struct Watch<'a> {
    pub(super) shared: &'a Shared,
    pub(super) of_user: (&'a Key, &'a Credential),
    pub(super) entry: &'a Entry,
    pub(super) ending: &'a mut Ending,
    /// How long a client may take to take what waits for it.
    pub(super) limit: Duration,
    /// A commit isn't killed: its client wants it done.
    pub(super) close: Close,
}

impl Watch<'_> {
    /// Waits until the session has to end.
    pub(super) async fn ended(&mut self) {
        tokio::select! {
            () = self.entry.ended.notified() => {}
            () = self.ending.reached(Phase::Aborting) => {}
        }
    }

    /// Waits until the client leaves, or has to. What it is owed is sent, and what it sends meanwhile is kept
    /// for later. Cancel-safe.
    pub(super) async fn left(&mut self, client: &mut Channel) {
        loop {
            let readable = client.input.len() < OUTPUT_MAX;
            tokio::select! {
                () = self.ended() => return,
                exchanged = client.exchange(readable) => if exchanged.is_err() {
                    return;
                },
            }
        }
    }

    /// Sends what waits for the client, as long as it takes it.
    pub(super) async fn flush(&mut self, client: &mut Channel) -> Taker {
        let limit = self.limit;
        tokio::select! {
            flushed = client.flush_within(limit) => flushed.map_or(Taker::Left, |()| Taker::There),
            () = self.ended() => Taker::Left,
        }
    }

    /// Kills the statement, whose answer nobody takes.
    pub(super) async fn kill(&mut self) {
        let mut activity = self.entry.activity.lock().await;
        let (Activity::Running(thread) | Activity::Killed(thread)) = &*activity else { return };
        let thread = thread.clone();
        if self.close != Close::Nothing {
            return;
        }
        *activity = Activity::Killed(thread.clone());
        let kill = Kill { id: 0, connection: false, soft: false };
        if let Err(error) = kill_thread(self.shared, self.of_user, &thread, kill).await {
            tracing::debug!(?error, "the statement of a client that left goes on");
        }
    }
}

/// Kills what runs on a thread of its server, over a connection beside the budget.
pub(super) async fn kill_thread(
    shared: &Shared,
    (key, credential): (&Key, &Credential),
    thread: &Thread,
    kill: Kill,
) -> Result<(), Failed> {
    let limit = shared.settings().login_timeout;
    let killed = timeout(limit, async {
        let _place = shared.kills.acquire().await;
        let way = (shared, &thread.way);
        let mut server = Server::login(way, key, credential, Place::beside()).await?;
        server.kill(thread.id, kill).await
    });
    killed.await.unwrap_or(Err(Failed::Lost(Lost::Late)))
}
