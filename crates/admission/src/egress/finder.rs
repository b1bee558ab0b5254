//! Finds an uplink's rate, so that the queue of responses forms in the gate and not in the kernel.
//!
//! The idea is BBR's (Cardwell et al., *BBR: congestion-based congestion control*, 2016), for all connections
//! together. What is granted and doesn't stand in the kernel was delivered.
//!
//! ```text
//! Free ── a queue stands for SEEN ──► Paced { rate } ── PROBES_MAX probes get more ──► Free
//! ```
//!
//! * **Paced.** The pace is the rate, less what brings the bytes under way to a round trip's and [`FLOOR`]
//!   within [`DRAIN`]. While a queue stands, the rate follows what is delivered.
//! * **Probe.** While responses wait, the pace is raised now and then. If more is delivered, the rate was too
//!   low. After [`PROBES_MAX`] such probes the link counts as no bottleneck.
//!
//! An operator's rate is where pacing begins, and its ceiling: no probe leads to **Free**.
//!
//! **What is a queue.** A queue makes round trips longer. A connection whose round trips are the shortest has
//! no part in one: what it hasn't sent waits for its window or its pacing, and holds up nobody.
//!
//! **Clients that are slow by themselves.** A [`Line`] is one connection. What stands unsent in it for longer
//! than a shared queue could last is that client's own, and doesn't count. Nor does a connection that
//! delivers nothing. One packet or two that are unacknowledged may only wait for a delayed acknowledgment.
//!
//! **When it fails.** A link that only slow clients use is taken for the bottleneck for some round trips: a
//! fast client waits for [`PROBES_MAX`] probes. Clients at very different distances are taken for a queue.

use alloc::collections::VecDeque;

use crate::time::{Duration, Instant};

/// How long a queue stands in the kernel before the link counts as the bottleneck.
const SEEN: Duration = Duration::from_millis(60);
/// The rate is measured over this time.
const WINDOW: Duration = Duration::from_millis(100);
/// A queue in the kernel of this length is a queue.
const QUEUE: Duration = Duration::from_millis(20);
/// How soon the kernel's queue is brought back to its target, if looks aren't farther apart.
const DRAIN: Duration = Duration::from_millis(20);
/// The part of the rate that is left while the kernel's queue is emptied.
const PACE_MIN: f64 = 0.25;
/// What is under way beside a round trip's bytes, so that the link is never idle. A longer queue is one.
const FLOOR: u64 = 7 * 1_460 / 2;
/// Round trips that are so much longer than the shortest have a queue.
const LONGER: f64 = 1.25;
/// Fewer bytes than this are no queue on a link that isn't known to be the bottleneck.
const DEEP: u64 = 24 * 1_460;
/// How much the rate rises with each look at which the kernel's queue is short, and falls if it isn't.
const MORE: f64 = 0.0005;
const LESS: f64 = 0.005;
/// How much more a probe gives, and how much of that must be delivered.
const PROBE: f64 = 1.25;
const GAINED: f64 = 1.12;
/// How long a probe takes, beside a round trip.
const PROBE_TIME: Duration = Duration::from_millis(30);
/// How often a probe is made: after one that found nothing, at most this seldom.
const PROBE_EVERY: Duration = Duration::from_millis(100);
const PROBE_EVERY_MAX: Duration = Duration::from_secs(1);
/// After so many probes in a row that found more, the link isn't the bottleneck.
const PROBES_MAX: u32 = 3;
/// How long the link is left alone then: twice as long each time, up to a minute.
const REST: Duration = Duration::from_secs(1);
const REST_MAX: Duration = Duration::from_secs(60);
/// A link that was the bottleneck for so long is looked at again as if for the first time.
const PROVEN: Duration = Duration::from_secs(10);
/// What a socket may hold that the kernel can't send yet: the most, and with a set rate the bytes of this
/// time, but so many at least. A response whose packet was lost takes no more turns from others then.
const UNSENT: Duration = Duration::from_millis(10);
const UNSENT_MIN: u32 = 16 * 1024;
const UNSENT_MAX: u32 = 128 * 1024;
/// A connection that delivers nothing for so long is its client's own affair.
const STALLED: Duration = Duration::from_millis(200);
/// No rate is below this, in bytes per second.
const RATE_MIN: f64 = 8_000.0;

/// What the kernel says of one connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reading {
    /// Bytes that it has, and hasn't sent.
    pub unsent: u64,
    /// Bytes that it has sent, and that aren't acknowledged.
    pub flight: u64,
    /// Those unacknowledged bytes that its client doesn't have behind a gap, and that aren't lost.
    pub under_way: u64,
    /// The packets of the bytes that aren't acknowledged.
    pub unacked: u64,
    /// Whether it sends again what was lost.
    pub repairs: bool,
    /// The bytes that were ever acknowledged.
    pub acked: u64,
    /// How long ago the last packet was sent.
    pub idle: Duration,
    /// The shortest round trip.
    pub trip: Duration,
    /// The mean of the last round trips.
    pub smoothed: Duration,
}

/// What is known of the link before its connections are read.
#[derive(Clone, Copy, Debug)]
pub struct Known {
    /// How long a queue lasts that all connections share, with room for doubt.
    pub shared: Duration,
    /// How long a packet is under way at most; what was sent before that has arrived or is lost.
    pub arrives: Duration,
    /// The shortest round trip at the last look.
    pub trip: Duration,
}

/// What is remembered of one connection.
#[derive(Clone, Copy, Debug)]
pub struct Line {
    /// What was acknowledged at the last look; `None`: nobody has looked.
    acked: Option<u64>,
    /// When something of it was delivered last.
    moved: Instant,
    /// Since when something stands unsent in it.
    unsent: Option<Instant>,
    /// What stood in it when that turned out to be its client's own affair.
    own: Option<u64>,
    /// When it was read last, and whether nothing stood in it then.
    read: Instant,
    was_empty: bool,
}

/// All connections at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KernelQueue {
    /// The bytes that stand in the kernel.
    pub bytes: u64,
    /// Bytes in the kernel that are under way to clients, or wait for the link.
    pub under_way: u64,
    /// Bytes in the kernel that wait for the link.
    pub queued: u64,
    /// The shortest round trip.
    pub trip: Duration,
    /// Some connection has delivered all that it was given within 20 ms: the link has no longer queue.
    pub is_quick: bool,
}

impl Line {
    /// A connection that nothing is known of.
    pub fn new(now: Instant) -> Self {
        Self { acked: None, moved: now, unsent: None, own: None, read: now, was_empty: true }
    }

    /// Adds what the kernel says of the connection to `standing`.
    pub fn read(&mut self, now: Instant, reading: Reading, known: Known, standing: &mut KernelQueue) {
        let is_empty = reading.unsent + reading.unacked == 0;
        // A handshake and earlier responses are acknowledged, too, which tells nothing of this one.
        let is_first = self.acked.is_none();
        if self.acked.replace(reading.acked) != Some(reading.acked) {
            let is_through = !is_first && is_empty && self.was_empty;
            standing.is_quick |= is_through && now.since(self.read) <= QUEUE;
            self.moved = now;
        }
        if self.was_empty {
            self.moved = now;
        }
        (self.read, self.was_empty) = (now, is_empty);
        match reading.unsent {
            0 => self.unsent = None,
            _ => _ = self.unsent.get_or_insert(now),
        }
        let stalled = STALLED + known.trip;
        let is_own = self.unsent.is_some_and(|since| now.since(since) > known.shared)
            || now.since(self.moved) > stalled && !is_empty;
        let may_wait = known.trip <= reading.idle && reading.idle < stalled;
        let is_delayed = reading.unsent == 0 && reading.unacked <= 2 && may_wait;
        let stands = reading.unsent + reading.flight;
        // What its client's own queue gets from now on counts as delivered.
        let counted = if is_own { self.own.unwrap_or(stands) } else { stands };
        self.own = is_own.then_some(counted);
        standing.bytes += counted;
        let is_lost = reading.idle > known.arrives;
        if !is_own && !is_delayed && !is_lost {
            standing.under_way += reading.under_way;
            if reading.smoothed > known.trip.mul_f64(LONGER) {
                let part = known.trip.as_secs_f64() / reading.smoothed.as_secs_f64();
                // While it repairs, it hasn't sent the rest because of that, and not because of the link.
                let unsent = if reading.repairs { 0 } else { reading.unsent };
                standing.under_way += unsent;
                standing.queued += unsent + reading.under_way - (reading.under_way as f64 * part) as u64;
            }
        }
        if !reading.trip.is_zero() && (standing.trip.is_zero() || reading.trip < standing.trip) {
            standing.trip = reading.trip;
        }
    }
}

#[derive(Clone, Copy, Debug)]
struct Sample {
    at: Instant,
    granted: u64,
    standing: u64,
    queued: u64,
}

#[derive(Clone, Copy, Debug)]
enum Mode {
    /// Since when a queue has stood, and until when the link is left alone.
    Free { deep: Option<Instant>, until: Instant },
    /// The link is the bottleneck since then.
    Paced { since: Instant, rate: f64, trial: Trial },
}

#[derive(Clone, Copy, Debug)]
enum Trial {
    /// The next probe isn't made before.
    After(Instant),
    /// More is given since then.
    Probe { since: Instant, granted: u64, standing: u64 },
}

/// Finds the rate of one uplink.
#[derive(Debug)]
pub struct RateFinder {
    mode: Mode,
    samples: VecDeque<Sample>,
    /// What was seen at the last look.
    kernel: KernelQueue,
    every: Duration,
    gained: u32,
    rest: Duration,
    /// The pace of the moment, while paced.
    pace: f64,
    /// The most bytes per second that are granted.
    ceiling: Option<u64>,
}

impl RateFinder {
    /// Nothing is known of the link but what an operator may have set: its rate in bytes per second at most.
    pub fn new(ceiling: Option<u64>) -> Self {
        let trial = Trial::After(Instant::ZERO);
        let mode = match ceiling {
            Some(rate) => Mode::Paced { since: Instant::ZERO, rate: rate as f64, trial },
            None => Mode::Free { deep: None, until: Instant::ZERO },
        };
        Self {
            mode,
            samples: VecDeque::new(),
            kernel: KernelQueue::default(),
            every: PROBE_EVERY,
            gained: 0,
            rest: REST,
            pace: ceiling.map_or(0.0, |rate| rate as f64),
            ceiling,
        }
    }

    /// The link was idle until now.
    pub fn begin(&mut self) {
        self.samples.clear();
        if let Mode::Free { deep, .. } = &mut self.mode {
            *deep = None;
        }
    }

    /// The link's rate in bytes of bodies per second, found or set; `None`: the link isn't the bottleneck.
    pub fn rate(&self) -> Option<u64> {
        self.capped(|rate| rate)
    }

    /// The pace of grants, in bytes per second; `None`: grants aren't paced.
    pub fn pace(&self) -> Option<u64> {
        self.capped(|_| self.pace.max(RATE_MIN))
    }

    fn capped(&self, found: impl Fn(f64) -> f64) -> Option<u64> {
        let found = match self.mode {
            Mode::Free { .. } => None,
            Mode::Paced { rate, .. } => Some(found(rate) as u64),
        };
        found.into_iter().chain(self.ceiling).min()
    }

    /// What a socket may hold that the kernel can't send yet. To find a rate takes a longer queue.
    pub fn unsent_max(&self) -> u32 {
        self.ceiling.map_or(UNSENT_MAX, |rate| {
            let bytes = (rate as f64 * UNSENT.as_secs_f64()) as u32;
            bytes.clamp(UNSENT_MIN, UNSENT_MAX)
        })
    }

    /// What is to be known when connections are read.
    pub fn known(&self) -> Known {
        let KernelQueue { under_way, trip, .. } = self.kernel;
        let (shared, arrives) = match self.mode {
            Mode::Free { .. } => (Duration::MAX, Duration::MAX),
            Mode::Paced { rate, .. } => (
                STALLED + lasts(under_way.saturating_mul(4), rate),
                QUEUE + trip.mul_f64(LONGER) + lasts(under_way.saturating_mul(2), rate),
            ),
        };
        Known { shared, arrives, trip }
    }

    /// Takes the bytes granted since the beginning, those that stand in the kernel, and those that wait for
    /// their grant.
    pub fn observe(&mut self, now: Instant, granted: u64, kernel: KernelQueue, waiting: u64) {
        // While a connection delivers at once, queues are those of slow clients, and a told rate holds.
        let queued = if kernel.is_quick && self.ceiling.is_some() { 0 } else { kernel.queued };
        self.samples.push_back(Sample { at: now, granted, standing: kernel.bytes, queued });
        self.kernel = kernel;
        while self.samples.get(1).is_some_and(|second| now.since(second.at) >= WINDOW) {
            self.samples.pop_front();
        }
        match self.mode {
            Mode::Free { deep, until } => self.look(now, (deep, until), kernel),
            Mode::Paced { since, rate, trial } => {
                self.adapt(now, (since, rate, trial), (granted, kernel, waiting));
            }
        }
    }

    /// Bytes delivered per second, over the window; `None`: it isn't full.
    fn delivered(&self) -> Option<f64> {
        let (first, last) = (self.samples.front()?, self.samples.back()?);
        (last.at.since(first.at) >= SEEN).then(|| rate_between(first, last))
    }

    fn between_looks(&self) -> Duration {
        let mut looks = self.samples.iter().rev().map(|sample| sample.at);
        looks.next().zip(looks.next()).map_or(Duration::ZERO, |(last, before)| last.since(before))
    }

    fn look(&mut self, now: Instant, (deep, until): (Option<Instant>, Instant), standing: KernelQueue) {
        let Some(rate) = self.delivered() else { return };
        let deep = if is_deep(standing.queued, rate) && !standing.is_quick {
            Some(deep.unwrap_or(now))
        } else {
            None
        };
        if let Some(deep) = deep.filter(|&deep| now >= until && now.since(deep) >= SEEN) {
            // What came before the queue wasn't the link's rate.
            let first = self.samples.iter().find(|sample| sample.at >= deep);
            let rate = first.zip(self.samples.back()).map_or(rate, |(first, last)| rate_between(first, last));
            (self.every, self.gained, self.pace) = (PROBE_EVERY, 0, rate);
            let trial = Trial::After(now.after(self.every));
            self.mode = Mode::Paced { since: now, rate, trial };
        } else {
            self.mode = Mode::Free { deep, until };
        }
    }

    fn adapt(
        &mut self,
        now: Instant,
        (since, mut rate, mut trial): (Instant, f64, Trial),
        (granted, standing, waiting): (u64, KernelQueue, u64),
    ) {
        let is_full = self.samples.iter().all(|sample| sample.queued > FLOOR);
        match trial {
            Trial::Probe { since: began, granted: before, standing: stood } => {
                if now.since(began) >= PROBE_TIME + standing.trip * 2 {
                    let time = now.since(began).as_secs_f64();
                    let given = granted.saturating_sub(before) as f64 / time;
                    let got = (given - (standing.bytes as f64 - stood as f64) / time).max(0.0);
                    if got >= rate * GAINED && waiting > 0 {
                        (self.gained, self.every, rate) = (self.gained + 1, PROBE_EVERY, got.max(rate));
                        trial = Trial::Probe { since: now, granted, standing: standing.bytes };
                    } else {
                        // Less was given than there was room for: it tells nothing.
                        if given >= rate * GAINED {
                            self.every = (self.every * 2).min(PROBE_EVERY_MAX);
                        }
                        self.gained = 0;
                        trial = Trial::After(now.after(self.every));
                    }
                }
            }
            Trial::After(_) if is_full => {
                if let Some(delivered) = self.delivered() {
                    rate += 0.25 * (delivered - rate);
                }
            }
            Trial::After(_) if standing.queued > FLOOR => rate *= 1.0 - LESS,
            Trial::After(at) if waiting > 0 && now >= at => {
                trial = Trial::Probe { since: now, granted, standing: standing.bytes };
            }
            Trial::After(_) if waiting > 0 => rate *= 1.0 + MORE,
            Trial::After(_) => {}
        }
        rate = rate.max(RATE_MIN);
        if let Some(ceiling) = self.ceiling {
            (rate, self.gained) = (rate.min(ceiling as f64), self.gained.min(PROBES_MAX - 1));
        } else if self.gained >= PROBES_MAX || (standing.is_quick && is_deep(standing.queued, rate)) {
            self.rest = if now.since(since) >= PROVEN { REST } else { (self.rest * 2).min(REST_MAX) };
            self.samples.clear();
            self.mode = Mode::Free { deep: None, until: now.after(self.rest) };
            return;
        }
        let excess = standing.under_way as f64 - FLOOR as f64 - rate * standing.trip.as_secs_f64();
        let drain = self.between_looks().max(DRAIN).as_secs_f64();
        self.pace = match trial {
            Trial::Probe { .. } => rate * PROBE * f64::from(1 << self.gained),
            Trial::After(_) => rate * (1.0 - excess / (rate * drain)).clamp(PACE_MIN, 1.0),
        };
        self.mode = Mode::Paced { since, rate, trial };
    }
}

/// Whether a queue stands in the kernel that is worth ordering.
fn is_deep(queued: u64, rate: f64) -> bool {
    queued >= DEEP && rate >= RATE_MIN && lasts(queued, rate) > QUEUE
}

/// How long so many bytes last.
fn lasts(bytes: u64, rate: f64) -> Duration {
    Duration::try_from_secs_f64(bytes as f64 / rate.max(1.0)).unwrap_or(Duration::MAX)
}

/// What was granted and doesn't stand in the kernel has been delivered.
fn rate_between(first: &Sample, last: &Sample) -> f64 {
    let granted = last.granted.saturating_sub(first.granted) as f64;
    let stood = last.standing as f64 - first.standing as f64;
    (granted - stood).max(0.0) / last.at.since(first.at).as_secs_f64().max(1e-6)
}

#[cfg(test)]
mod tests;
