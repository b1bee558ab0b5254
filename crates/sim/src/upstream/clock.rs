//! Clocks of processor sharing. A clock shows the work that each of its requests has been given since it
//! began. So a request ends when the clock shows its reading at the start plus its service time.

use super::heap::Heap;

/// The clock of requests that are served at one speed.
#[derive(Debug, Default)]
pub(super) struct Clock {
    /// What each of its requests has been given.
    shows: f64,
    /// How fast it runs.
    pub(super) rate: f64,
    /// Its requests, by what it shows at their end.
    ends: Heap,
}

impl Clock {
    pub(super) fn len(&self) -> usize {
        self.ends.len()
    }

    pub(super) fn start(&mut self, handle: u32, work: f64) {
        if self.ends.is_empty() {
            self.shows = 0.0;
        }
        self.ends.insert(handle, self.shows + work);
    }

    /// Takes a request out. Returns the service time that was left of it.
    pub(super) fn stop(&mut self, handle: u32) -> f64 {
        self.ends.remove(handle).unwrap_or(self.shows) - self.shows
    }

    /// How long until the next one ends, and which.
    fn next(&self) -> Option<(f64, u32)> {
        let (end, handle) = self.ends.first().filter(|_| self.rate > 0.0)?;
        Some(((end - self.shows) / self.rate, handle))
    }
}

/// How long until the next request of all clocks ends, and which.
pub(super) fn next(clocks: &[Clock]) -> Option<(f64, u32)> {
    clocks.iter().filter_map(Clock::next).min_by(|a, b| a.0.total_cmp(&b.0))
}

/// Advances all clocks by `passed`. Returns the work done in that time.
pub(super) fn advance(clocks: &mut [Clock], passed: f64) -> f64 {
    let mut done = 0.0;
    for clock in clocks {
        let given = clock.rate * passed;
        clock.shows += given;
        done += given * clock.len() as f64;
    }
    done
}
