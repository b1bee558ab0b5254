//! What the service manager (systemd) is told: that the process is ready, reloads, ends, and lives. Without
//! one (no `NOTIFY_SOCKET` in the environment) nothing is told.

use std::time::Duration;

use sd_notify::NotifyState;
use tokio::time::{Interval, MissedTickBehavior, interval};

/// All gates listen, or have read their configuration again.
pub(crate) fn ready() {
    tell(&[NotifyState::Ready]);
}

/// The configuration is read again; [`ready`] follows.
pub(crate) fn reloading() {
    match NotifyState::monotonic_usec_now() {
        Ok(now) => tell(&[NotifyState::Reloading, now]),
        Err(error) => tracing::warn!(%error, "the service manager isn't told of the reload"),
    }
}

/// The process drains, or ends at once.
pub(crate) fn stopping() {
    tell(&[NotifyState::Stopping]);
}

/// Says that the process lives, twice in each time after which the service manager would end it.
pub(crate) struct Watchdog(Option<Interval>);

impl Watchdog {
    /// The watchdog that the service manager asks for (`WATCHDOG_USEC`), or none.
    pub(crate) fn new() -> Self {
        let mut micros = 0;
        let asked = sd_notify::watchdog_enabled(false, &mut micros) && micros > 1;
        Self(asked.then(|| {
            let mut interval = interval(Duration::from_micros(micros / 2));
            interval.set_missed_tick_behavior(MissedTickBehavior::Delay);
            interval
        }))
    }

    /// Waits for the next time, and says so. Without a watchdog it waits for ever. Cancel-safe.
    pub(crate) async fn beat(&mut self) {
        match &mut self.0 {
            Some(interval) => interval.tick().await,
            None => std::future::pending().await,
        };
        tell(&[NotifyState::Watchdog]);
    }
}

fn tell(states: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(false, states) {
        tracing::warn!(%error, "the service manager can't be told");
    }
}
