//! The clock: the only file of the proxy that reads one.

use admission::Instant;

/// Reads the time for one gate: nanoseconds since the gate began.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    origin: tokio::time::Instant,
}

impl Clock {
    /// A clock that begins now.
    pub fn start() -> Self {
        Self { origin: tokio::time::Instant::now() }
    }

    /// Now.
    pub fn now(&self) -> Instant {
        Instant::ZERO.after(self.origin.elapsed())
    }

    /// The runtime's instant at `instant`, to sleep until.
    pub(crate) fn at(&self, instant: Instant) -> tokio::time::Instant {
        self.origin + instant.since(Instant::ZERO)
    }
}
