//! Fills pools by the gate's own logins, where it has the credentials.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior, interval, timeout};

use super::login::open::{OpenError, open};
use super::pool::growth::{Failure, Opening};
use super::refusal::Refusal;
use super::{Shared, defaults};
use crate::news::Seldom;
use crate::source::Source;

/// How often pools are looked after though nothing was heard of them: pauses after failures end.
const PERIOD: Duration = Duration::from_secs(1);
/// The most connections that are being opened at once; each also takes a place among the logins.
const OPENINGS_MAX: usize = 4;

/// How these logins ended.
#[derive(Debug, Default)]
pub(crate) struct OpeningCounts {
    pub(crate) succeeded: AtomicU64,
    pub(crate) failed: AtomicU64,
    /// What the log hears of the latter.
    told: Seldom,
}

/// Never returns.
pub(crate) async fn keep_full(shared: &Arc<Shared>) {
    let mut tick = interval(PERIOD);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut openings = JoinSet::new();
    loop {
        tokio::select! {
            _ = tick.tick() => {
                shared.auth_query.maintain();
                // The gate is asked first: its lock is never taken before the pools'.
                let shortage = shared.driver.short_of_connections();
                shared.pools.note_shortage(shortage);
            }
            () = shared.pools.wants() => {}
            Some(_) = openings.join_next() => {}
        }
        while openings.len() < OPENINGS_MAX {
            let Some(opening) = shared.pools.opening(Instant::now()) else { break };
            openings.spawn(fill(Arc::clone(shared), opening));
        }
    }
}

async fn fill(shared: Arc<Shared>, opening: Opening) {
    let _place = shared.logins.take(Source::Gate).await;
    let settings = shared.settings();
    let parameters = opening.key.parameters();
    let connecting = open(&settings, &parameters, opening.key.user(), &opening.credentials);
    let opened = timeout(settings.login_timeout, connecting).await;
    match opened.unwrap_or_else(|_| Err(OpenError::Refused(Refusal::ServerSilent(settings.login_timeout)))) {
        Ok(mut accepted) => {
            let server = &mut accepted.server;
            server.generation = settings.generation;
            server.enrolled = Some(shared.ceiling.ours.enroll(server.process_id));
            let asked = async {
                if settings.ask_defaults {
                    let given = defaults::ask(server, settings.login_timeout).await?;
                    server.defaults = given.defaults;
                    settings.health.started(settings.named(), given.started);
                }
                let is_known = shared.pools.knows_limits(&opening.key);
                shared.ask_room(&settings, server, is_known, settings.login_timeout).await
            };
            if asked.await.is_err() {
                shared.openings.failed.fetch_add(1, Ordering::Relaxed);
                return opening.fail(Failure::Passing);
            }
            shared.openings.succeeded.fetch_add(1, Ordering::Relaxed);
            opening.add(accepted.server);
        }
        Err(error) => {
            shared.openings.failed.fetch_add(1, Ordering::Relaxed);
            if let OpenError::Said(message) = &error {
                shared.note_refused(message, opening.key.user(), opening.key.database());
            }
            let (gate, user) = (shared.driver.name(), opening.key.user());
            if let Some(withheld) = shared.openings.told.may() {
                tracing::warn!(gate, user, %error, withheld, "a server connection could not be replaced");
            }
            let lasts = error.is_about_credentials();
            opening.fail(if lasts { Failure::Credentials } else { Failure::Passing });
        }
    }
}
