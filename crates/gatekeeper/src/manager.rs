//! What the service manager (systemd) is told: that the process is ready, reloads, ends, and lives. Without
//! one (no `NOTIFY_SOCKET` in the environment) nothing is told.

use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::Duration;
use std::{env, io};

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

/// Another process is the service now: the manager watches that one.
pub(crate) fn is_now(pid: u32) {
    tell(&[NotifyState::MainPid(pid)]);
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
        let half = sd_notify::watchdog_enabled().map(|limit| limit / 2);
        Self(half.filter(|half| *half >= Duration::from_micros(1)).map(|half| {
            let mut interval = interval(half);
            interval.set_missed_tick_behavior(MissedTickBehavior::Delay);
            interval
        }))
    }

    /// Says nothing.
    pub(crate) fn none() -> Self {
        Self(None)
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
    if let Err(error) = send(states) {
        tracing::warn!(%error, "the service manager can't be told");
    }
}

fn send(states: &[NotifyState<'_>]) -> io::Result<()> {
    let Some(path) = env::var_os("NOTIFY_SOCKET") else { return Ok(()) };
    // sd_notify(3): a leading @ stands for the zero byte of an abstract socket.
    let address = match path.as_bytes().strip_prefix(b"@") {
        Some(name) => SocketAddr::from_abstract_name(name)?,
        None => SocketAddr::from_pathname(&path)?,
    };
    let text: String = states.iter().map(|state| format!("{state}\n")).collect();
    UnixDatagram::unbound()?.send_to_addr(text.as_bytes(), &address)?;
    Ok(())
}
