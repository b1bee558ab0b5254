//! The signals that mean something: SIGTERM and SIGINT end the process, SIGHUP has it read its
//! configuration again, SIGUSR2 starts its successor.

use std::io;

use tokio::signal::unix::{Signal, SignalKind, signal};

/// What a signal asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Asked {
    /// To end; the signal's name.
    End(&'static str),
    /// To read the configuration again.
    Reload,
    /// To start a successor.
    Upgrade,
}

/// Listens to them, from its making on.
pub(crate) struct Signals {
    terminate: Signal,
    interrupt: Signal,
    hang_up: Signal,
    user: Signal,
}

impl Signals {
    pub(crate) fn new() -> io::Result<Self> {
        let terminate = signal(SignalKind::terminate())?;
        let interrupt = signal(SignalKind::interrupt())?;
        let (hang_up, user) = (signal(SignalKind::hangup())?, signal(SignalKind::user_defined2())?);
        Ok(Self { terminate, interrupt, hang_up, user })
    }

    /// Waits for the next one. Cancel-safe.
    pub(crate) async fn next(&mut self) -> Asked {
        tokio::select! {
            _ = self.terminate.recv() => Asked::End("SIGTERM"),
            _ = self.interrupt.recv() => Asked::End("SIGINT"),
            _ = self.hang_up.recv() => Asked::Reload,
            _ = self.user.recv() => Asked::Upgrade,
        }
    }
}
