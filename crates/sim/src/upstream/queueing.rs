//! Servers that each serve one request at a time, and a queue before them.
//!
//! All servers run at one speed, so a single clock of work done per server says when each request ends: at
//! the clock's reading at its start plus its service time. With speed 1 and times in nanoseconds the sums
//! are exact.

use super::heap::Heap;

/// The order of service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// The earliest arrival.
    Earliest,
    /// The shortest service time.
    Shortest,
    /// The least remaining service time, even if another request must be interrupted.
    LeastLeft,
}

/// The servers and their queue.
#[derive(Debug)]
pub(super) struct Queueing {
    servers: usize,
    next: Next,
    speed: f64,
    /// The work done by a server that is always busy.
    clock: f64,
    /// The requests in service, by the clock's reading at their end.
    serving: Heap,
    waiting: Heap,
    /// What is left of those that wait, by handle.
    left: Vec<f64>,
}

impl Queueing {
    pub(super) fn new(servers: u32, next: Next) -> Self {
        Self {
            servers: servers as usize,
            next,
            speed: 1.0,
            clock: 0.0,
            serving: Heap::default(),
            waiting: Heap::default(),
            left: Vec::new(),
        }
    }

    pub(super) fn start(&mut self, handle: u32, work: f64) {
        if self.serving.is_empty() {
            self.clock = 0.0;
        }
        if self.serving.len() < self.servers {
            return self.serving.insert(handle, self.clock + work);
        }
        let last = self.serving.last().filter(|_| self.next == Next::LeastLeft);
        if let Some((end, interrupted)) = last.filter(|(end, _)| self.clock + work < *end) {
            self.serving.remove(interrupted);
            self.wait(interrupted, end - self.clock);
            self.serving.insert(handle, self.clock + work);
        } else {
            self.wait(handle, work);
        }
    }

    fn wait(&mut self, handle: u32, work: f64) {
        let index = handle as usize;
        if index >= self.left.len() {
            self.left.resize(index + 1, 0.0);
        }
        self.left[index] = work;
        let key = if self.next == Next::Earliest { 0.0 } else { work };
        self.waiting.insert(handle, key);
    }

    /// How long until the next one ends.
    pub(super) fn left(&self) -> Option<f64> {
        let (end, _) = self.serving.first().filter(|_| self.speed > 0.0)?;
        Some((end - self.clock) / self.speed)
    }

    /// Takes out the one that ends first, and how far the clock is beyond its end.
    pub(super) fn finish(&mut self) -> Option<(u32, f64)> {
        let (end, handle) = self.serving.first()?;
        self.serving.remove(handle);
        self.serve_next();
        Some((handle, self.clock - end))
    }

    /// Takes a request out. Returns the service time that was left of it.
    pub(super) fn stop(&mut self, handle: u32) -> f64 {
        if let Some(end) = self.serving.remove(handle) {
            self.serve_next();
            return end - self.clock;
        }
        self.waiting.remove(handle);
        self.left.get(handle as usize).copied().unwrap_or(0.0)
    }

    fn serve_next(&mut self) {
        if let Some((_, handle)) = self.waiting.first() {
            self.waiting.remove(handle);
            self.serving.insert(handle, self.clock + self.left[handle as usize]);
        }
    }

    pub(super) fn set_speed(&mut self, factor: f64) {
        self.speed = factor;
    }

    /// Advances the clock by `passed`. Returns the work done in that time.
    pub(super) fn advance(&mut self, passed: f64) -> f64 {
        let work = self.speed * passed;
        self.clock += work;
        work * self.serving.len() as f64
    }
}
