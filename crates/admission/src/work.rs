//! Work: what a request is expected to occupy the protected service for.

use crate::time::Duration;

/// An amount of work, in nanoseconds of the protected service (shown in milliseconds). Arithmetic saturates.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Work(u64);

impl Work {
    /// No work.
    pub const ZERO: Self = Self(0);
    /// More work than there is.
    pub const MAX: Self = Self(u64::MAX);

    /// Work of this many nanoseconds.
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    /// In nanoseconds.
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// In milliseconds, for people.
    pub fn as_millis_f64(self) -> f64 {
        self.0 as f64 / 1e6
    }

    /// The sum, at most [`Work::MAX`].
    #[must_use]
    pub const fn saturating_add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }

    /// This work, multiplied by a factor.
    #[must_use]
    pub(crate) fn times(self, factor: f64) -> Self {
        Self((self.0 as f64 * factor) as u64)
    }

    /// The difference, at least [`Work::ZERO`].
    #[must_use]
    pub const fn saturating_sub(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }
}

impl From<Duration> for Work {
    fn from(duration: Duration) -> Self {
        Self(u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX))
    }
}
