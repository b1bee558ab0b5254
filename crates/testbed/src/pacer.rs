//! A timer that is exact to microseconds; the runtime's own rounds to a millisecond.

use std::io;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create, timerfd_settime,
};
use tokio::io::unix::AsyncFd;

/// Waits until given moments.
#[derive(Debug)]
pub struct Pacer(AsyncFd<OwnedFd>);

impl Pacer {
    /// To be made inside a runtime.
    #[expect(
        deprecated,
        reason = "what it warns of can't be: an OwnedFd is neither closed nor exchanged by others"
    )]
    pub fn new() -> io::Result<Self> {
        let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
        Ok(Self(AsyncFd::new(timerfd_create(TimerfdClockId::Monotonic, flags)?)?))
    }

    /// Waits until then; returns at once if that is over.
    pub async fn until(&self, due: Instant) -> io::Result<()> {
        let left = due.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Ok(());
        }
        let never = Timespec { tv_sec: 0, tv_nsec: 0 };
        let it_value = Timespec::try_from(left).map_err(io::Error::other)?;
        timerfd_settime(&self.0, TimerfdTimerFlags::empty(), &Itimerspec { it_interval: never, it_value })?;
        loop {
            let mut ready = self.0.readable().await?;
            let rung = ready.try_io(|timer| Ok(rustix::io::read(timer, &mut [0_u8; 8])?));
            if let Ok(rung) = rung {
                return rung.map(drop);
            }
        }
    }

    /// Waits for so long.
    pub async fn sleep(&self, duration: Duration) -> io::Result<()> {
        self.until(Instant::now() + duration).await
    }
}
