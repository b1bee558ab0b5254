//! How long each request in flight has been busy, level by level.
//!
//! One clock for each level, common to all requests: while n are busy, the clocks of the levels around n
//! advance by their share of time / n, what one of n gets if the service does one thing at a time. A
//! request notes the clocks when it starts; what they have advanced by is its *lap*. So a change of n costs
//! two additions, whatever is in flight, and a request 192 bytes while it is in flight, none while it
//! waits. A lap stands still while its client thinks.

use alloc::vec::Vec;

use super::levels::{Between, LEVELS, between};

/// What a request was given, by level, in nanoseconds of a service that does one thing at a time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Lap {
    /// While it stands still: what it was given. While it runs: what the clocks showed, less what it was
    /// given before.
    given: [f64; LEVELS],
    /// It was given nothing at levels before the first of these, and none from the second on.
    range: (u32, u32),
    /// How many were busy when it first started, itself included.
    pub(crate) began: Between,
}

impl Lap {
    /// The levels at which it was given anything, and what.
    pub(crate) fn given(&self) -> impl Iterator<Item = (usize, f64)> + '_ {
        let (from, to) = (self.range.0 as usize, self.range.1 as usize);
        (from..to).map(|level| (level, self.given[level]))
    }
}

/// The clocks and the laps.
#[derive(Debug)]
pub(crate) struct Laps {
    clocks: [f64; LEVELS],
    busy: u32,
    now_at: Between,
    /// How many levels were ever reached.
    reached: usize,
    laps: Vec<Lap>,
    free: Vec<u32>,
}

impl Laps {
    pub(crate) fn new() -> Self {
        Self {
            clocks: [0.0; LEVELS],
            busy: 0,
            now_at: between(1),
            reached: 0,
            laps: Vec::new(),
            free: Vec::new(),
        }
    }

    /// How many requests the service is busy with.
    pub(crate) fn busy(&self) -> u32 {
        self.busy
    }

    /// The levels nearest to the number of requests that the service is busy with.
    pub(crate) fn now_at(&self) -> Between {
        self.now_at
    }

    /// Advances the clocks by this many nanoseconds.
    pub(crate) fn pass(&mut self, nanos: u64) {
        if self.busy == 0 {
            return;
        }
        let each = nanos as f64 / f64::from(self.busy);
        let Between { below, lower, upper } = self.now_at;
        self.clocks[below] += lower * each;
        if upper > 0.0 {
            self.clocks[below + 1] += upper * each;
        }
    }

    /// The service starts with a request. Returns the number of its lap.
    pub(crate) fn start(&mut self) -> u32 {
        self.set_busy(self.busy + 1);
        let lap = Lap { given: self.clocks, range: (0, 0), began: self.now_at };
        if let Some(name) = self.free.pop() {
            self.laps[name as usize] = lap;
            return name;
        }
        self.laps.push(lap);
        (self.laps.len() - 1) as u32
    }

    /// The service goes on with a request that stood still.
    pub(crate) fn go_on(&mut self, name: u32) {
        self.turn(name);
        self.set_busy(self.busy + 1);
    }

    /// The service is no longer busy with a request.
    pub(crate) fn stop(&mut self, name: u32) {
        self.turn(name);
        self.set_busy(self.busy - 1);
    }

    /// The lap of a request that has ended; let go of it next.
    pub(crate) fn of(&self, name: u32) -> &Lap {
        &self.laps[name as usize]
    }

    /// The name is for another one.
    pub(crate) fn let_go(&mut self, name: u32) {
        self.free.push(name);
    }

    fn turn(&mut self, name: u32) {
        let lap = &mut self.laps[name as usize];
        let (mut from, mut to) = (self.reached, 0);
        for level in 0..self.reached {
            let given = self.clocks[level] - lap.given[level];
            lap.given[level] = given;
            if given > 0.0 {
                from = from.min(level);
                to = level + 1;
            }
        }
        lap.range = (from as u32, to as u32);
    }

    fn set_busy(&mut self, busy: u32) {
        self.busy = busy;
        self.now_at = between(busy);
        self.reached = self.reached.max((self.now_at.below + 2).min(LEVELS));
    }
}
