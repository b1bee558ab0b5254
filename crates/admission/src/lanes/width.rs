//! How many requests the service really works on at once, found from how long requests take beside others.
//!
//! **Idea.** A service of k cores gives each of n requests in flight the share min(1, k / n) of its speed
//! (processor sharing; a database without contention is close to it). So if k is known, what a request
//! really took is a clock's reading, a clock that runs at that rate: d = ∫ min(1, k / n(t)) dt over its
//! time in flight. Seen the other way round: under the right k requests of one type take alike whatever
//! else was in flight, and under a wrong one they seem to vary by what was. Therefore clocks for all k that
//! are tried run side by side, and the one under which the types vary least is right. Nobody needs to know
//! service times, utilization or cores; a type may vary by itself as much as it likes, since that adds the
//! same to every clock.
//!
//! **Formula.** For clock c and each request of a type, x = ln(reading), m its type's mean of x: the spread
//! s(c) = mean of (x − m)² over all requests, exponentially weighted ([`WEIGHT`]). Logarithms, so that a
//! heavy tail doesn't drown the rest, and a clock that is wrong by a factor is right. The last clock is the
//! wall's: nobody slows anybody.
//!
//! **Choice.** With R the range between the least and the largest spread, the largest k within [`ALIKE`]·R
//! of the least is found: where the clocks differ by noise only, the lane is wide. What was found stays
//! while it is within [`STAYS`]·R of the least. With few requests in flight all k above that number read
//! the same, so nothing is found, or what was found stays.
//!
//! **A little more than cores.** A request that waits for a disk, a lock or the network leaves a core idle,
//! so the number at which a service slows down is larger than its cores, the knee is soft, and as many
//! longs as the knee don't fill it. A second clock for each k has a soft knee: rate ∝ (1 + (n /
//! k)^p)^(−1/p) with p = 2.5 + 1.25 √k, which is within 3 % of the closed network of k / 2 cores whose
//! requests wait for as long as they compute (machine repair). Unless the sharp clock is proved better by
//! [`PROOF`]·R, the lane gets k + ⌈√k⌉ (square-root staffing, Halfin and Whitt 1981), which keeps such a
//! service 98 % busy; if it is, the lane gets k.
//!
//! **What the service tells.** If it has told its cores, k is at most that. A request that waits for
//! a lock is in flight and slows no other: with many such requests every k looks too small, and the wall's
//! clock best. What ⌈√k⌉ adds is for requests that wait for disks.
//!
//! | constant | | why |
//! |---|---|---|
//! | [`WEIGHT`] | 1/4096 | clocks differ little beside types that vary; minutes at 13 requests/s |
//! | [`FIRST`] | 200 | enough where types vary by CV 1; more than enough where they don't |
//! | [`RANGE`] | 0.01 | clocks that differ by less (a tenth, in time) say nothing |
//!
//! **When it fails.** Under collapse (locks, thrashing) requests slow one another by more than sharing, and
//! a k that is too small fits best. A service that serves in order of arrival fits no clock. Where nothing
//! varies in flight nothing is learned; then what was found before holds, or no limit.

use alloc::vec::Vec;

use crate::time::Instant;

/// The numbers that are tried.
const TRIED: [u32; 12] = [1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64];
/// A clock for each, a second one with a soft knee for each, and the wall's.
const CLOCKS: usize = 2 * TRIED.len() + 1;
/// The wall's clock.
const WALL: usize = CLOCKS - 1;

/// The least weight of a request in the spread of all requests.
const WEIGHT: f64 = 1.0 / 4096.0;
/// The least weight of a request in the mean of its type.
const TYPE_WEIGHT: f64 = 1.0 / 64.0;
/// The first requests of a type only make its mean.
const LEARNED: f64 = 4.0;
/// Nothing is found from fewer requests.
const FIRST: f64 = 200.0;
/// Nothing is found if all spreads are this close to one another.
const RANGE: f64 = 0.01;
/// The largest number is found whose spread is this close to the best, as a part of the range.
const ALIKE: f64 = 0.05;
/// The number found earlier stays while its spread is this close to the best, as a part of the range.
const STAYS: f64 = 0.1;
/// A knee counts as sharp if the sharp clock is better than the soft one by this many standard errors.
const PROOF: f64 = 2.5;
/// A sharp knee counts as soft again if the soft clock is better by this many standard errors.
const DISPROOF: f64 = 1.0;
/// The least weight of a request in the comparison of the two clocks.
const PROOF_WEIGHT: f64 = 1.0 / 16_384.0;
/// The knee isn't judged from fewer requests than these.
const PROVED: f64 = 1_000.0;
/// No request is further than this from its type's mean, in logarithms: a factor of 55.
const FAR: f64 = 4.0;
/// Rates are tabulated up to so many in flight; beyond, every clock that isn't the wall's is slowed in
/// proportion.
const TABLE: usize = 128;

/// What the clocks show, in nanoseconds.
pub(crate) type Readings = [f64; CLOCKS];

/// What the clocks usually show for a type.
#[derive(Debug, Default)]
pub(crate) struct Usual {
    samples: f64,
    means: [f32; CLOCKS],
}

/// Whether the sharp clock of what was found is better than the soft one beyond chance: the difference of
/// their squares, its mean over its standard error.
#[derive(Debug, Default)]
struct Proof {
    sharp: bool,
    samples: f64,
    lead: f64,
    square: f64,
}

impl Proof {
    /// By how much the soft clock was further off for one request. Whether it is proved now that the knee
    /// is sharp.
    fn learn(&mut self, lead: f64) -> bool {
        self.samples += 1.0;
        let weight = PROOF_WEIGHT.max(1.0 / self.samples);
        self.lead += weight * (lead - self.lead);
        self.square += weight * (lead * lead - self.square);
        if self.samples < PROVED {
            return false;
        }
        let error = libm::sqrt(self.square / self.samples.min(1.0 / PROOF_WEIGHT));
        let was_sharp = self.sharp;
        if self.lead > PROOF * error {
            self.sharp = true;
        } else if self.lead < -DISPROOF * error {
            self.sharp = false;
        }
        self.sharp && !was_sharp
    }
}

/// The clocks, and what was found by them.
#[derive(Debug)]
pub(crate) struct Width {
    until: Instant,
    /// How many requests the service is busy with.
    busy: u32,
    shows: Readings,
    rates: Vec<Readings>,
    /// By flight: what the clocks showed when it began, less what it had had before.
    began: Vec<Readings>,
    free: Vec<u32>,
    spread: Readings,
    samples: f64,
    /// The place in [`TRIED`] of what was found.
    found: Option<usize>,
    /// Whether its knee is sharp.
    proof: Proof,
    /// How many longs beyond the usual number are let in, because the lane stayed full for long.
    extra: u32,
    /// How many of [`TRIED`] are possible, given the cores that the service has reported.
    possible: usize,
}

impl Width {
    /// Nothing is known.
    pub(crate) fn new() -> Self {
        Self {
            until: Instant::ZERO,
            busy: 0,
            shows: [0.0; CLOCKS],
            rates: (0..TABLE as u32).map(|busy| rates(busy.max(1))).collect(),
            began: Vec::new(),
            free: Vec::new(),
            spread: [0.0; CLOCKS],
            samples: 0.0,
            found: None,
            proof: Proof::default(),
            extra: 0,
            possible: TRIED.len(),
        }
    }

    /// The service has told its cores, or hasn't.
    pub(crate) fn set_cores(&mut self, cores: Option<u32>) {
        let most = cores.map_or(u32::MAX, |cores| cores.max(1));
        let possible = TRIED.iter().filter(|&&tried| tried <= most).count();
        if possible != core::mem::replace(&mut self.possible, possible)
            && self.found.is_some_and(|at| at >= possible)
        {
            self.found = None;
            (self.proof, self.extra) = (Proof::default(), 0);
        }
    }

    /// Another gate has found this number. It stays until requests of this gate say otherwise.
    pub(crate) fn recall(&mut self, found: u32) {
        self.found = TRIED[..self.possible].iter().position(|&tried| tried == found);
    }

    /// Whether the knee of what was found is sharp beyond chance.
    pub(crate) fn is_proved(&self) -> bool {
        self.proof.sharp
    }

    /// How many requests the service works on at once, if that was found.
    pub(crate) fn found(&self) -> Option<u32> {
        self.found.map(|at| TRIED[at])
    }

    /// How many long ones keep it busy.
    pub(crate) fn enough(&self) -> Option<u32> {
        let found = self.found()?;
        let more = if self.proof.sharp { 0 } else { root(found) + self.extra };
        Some(found + more)
    }

    /// The lane has been full for long, and more wait: perhaps it is too narrow to learn from.
    pub(crate) fn widen(&mut self) {
        if self.proof.sharp {
            self.proof = Proof::default();
            return;
        }
        let most = self.found().map_or(0, root);
        self.extra = (self.extra + 1).min(most);
    }

    /// The service begins with a request, or goes on with it. Its flight.
    pub(crate) fn begin(&mut self, now: Instant) -> u32 {
        self.pass(now);
        self.busy += 1;
        let flight = self.free.pop().unwrap_or_else(|| {
            self.began.push([0.0; CLOCKS]);
            (self.began.len() - 1) as u32
        });
        self.began[flight as usize] = self.shows;
        flight
    }

    /// The service is no longer busy with it; its flight goes on if its client only thinks.
    pub(crate) fn pause(&mut self, now: Instant, flight: u32) {
        self.pass(now);
        self.busy -= 1;
        let had = self.had(flight);
        self.began[flight as usize] = had;
    }

    /// The service is busy with it again.
    pub(crate) fn resume(&mut self, now: Instant, flight: u32) {
        self.pass(now);
        self.busy += 1;
        let had = self.had(flight);
        self.began[flight as usize] = had;
    }

    /// A flight that the service is not busy with is over. What the clocks showed.
    pub(crate) fn end(&mut self, flight: u32) -> Readings {
        self.free.push(flight);
        self.began[flight as usize]
    }

    /// Between "began" and "had" either is what the clocks show less the other.
    fn had(&self, flight: u32) -> Readings {
        let began = &self.began[flight as usize];
        core::array::from_fn(|at| self.shows[at] - began[at])
    }

    fn pass(&mut self, now: Instant) {
        let passed = now.since(self.until).as_nanos() as f64;
        self.until = now;
        if self.busy == 0 || passed <= 0.0 {
            return;
        }
        let last = TABLE - 1;
        let beyond = last as f64 / f64::from(self.busy).max(last as f64);
        let rates = &self.rates[(self.busy as usize).min(last)];
        for (shows, rate) in self.shows[..WALL].iter_mut().zip(rates) {
            *shows += passed * rate * beyond;
        }
        self.shows[WALL] += passed;
    }

    /// What a request took by the clock that is believed, as a part of the time that it was in flight.
    pub(crate) fn share(&self, readings: &Readings) -> f64 {
        let passed = readings[WALL];
        if passed > 0.0 { readings[self.found.unwrap_or(WALL)] / passed } else { 1.0 }
    }

    /// A request of a type has ended.
    pub(crate) fn learn(&mut self, usual: &mut Usual, readings: &Readings) {
        usual.samples += 1.0;
        let weight = TYPE_WEIGHT.max(1.0 / usual.samples) as f32;
        let counts = usual.samples > LEARNED;
        if counts {
            self.samples += 1.0;
        }
        let pooled = WEIGHT.max(1.0 / self.samples.max(1.0));
        // Two loops without a branch, for several clocks at a time.
        let mut squares = [0.0; CLOCKS];
        for ((square, mean), reading) in squares.iter_mut().zip(&mut usual.means).zip(readings) {
            let off = log(reading.max(1.0)) - f64::from(*mean);
            *mean += weight * off as f32;
            let off = off.clamp(-FAR, FAR);
            *square = off * off;
        }
        if !counts {
            return;
        }
        for (spread, square) in self.spread.iter_mut().zip(&squares) {
            *spread += pooled * (square - *spread);
        }
        if self.samples < FIRST {
            return;
        }
        self.choose();
        if let Some(at) = self.found
            && self.proof.learn(squares[TRIED.len() + at] - squares[at])
        {
            self.extra = 0;
        }
    }

    fn choose(&mut self) {
        // None of them is NaN.
        let lesser = |one: f64, other: f64| if other < one { other } else { one };
        let least = |spreads: &[f64]| spreads.iter().copied().fold(f64::INFINITY, lesser);
        let sharp = &self.spread[..self.possible];
        // Who has told its cores is slowed by those that need them.
        let wall = if self.possible < TRIED.len() { f64::INFINITY } else { self.spread[WALL] };
        let best = least(sharp).min(wall);
        let range = sharp.iter().chain(&[self.spread[WALL]]).copied().fold(0.0, f64::max) - best;
        if range < RANGE {
            return;
        }
        let stays = self.found.is_some_and(|at| sharp[at] <= best + STAYS * range);
        if !stays {
            let is_alike = |spread: f64| spread <= best + ALIKE * range;
            self.found = sharp.iter().rposition(|&spread| is_alike(spread)).filter(|_| !is_alike(wall));
            (self.proof, self.extra) = (Proof::default(), 0);
        }
    }
}

/// The square root, rounded up.
fn root(count: u32) -> u32 {
    libm::ceil(libm::sqrt(f64::from(count))) as u32
}

/// How fast the clocks run with so many in flight.
fn rates(busy: u32) -> Readings {
    let busy = f64::from(busy);
    core::array::from_fn(|at| match TRIED.get(at) {
        Some(&tried) => (f64::from(tried) / busy).min(1.0),
        None if at == WALL => 1.0,
        None => {
            let knee = f64::from(TRIED[at - TRIED.len()]);
            let power = 2.5 + 1.25 * libm::sqrt(knee);
            let (one, all) = (libm::pow(1.0 / knee, power), libm::pow(busy / knee, power));
            libm::pow((1.0 + one) / (1.0 + all), 1.0 / power)
        }
    })
}

/// The natural logarithm within 0.01, by the exponent and a parabola: there are many, and only their
/// differences count.
fn log(value: f64) -> f64 {
    const MANTISSA: u32 = 52;
    const BIAS: u64 = 1023;
    const ONES: u64 = (BIAS + MANTISSA as u64) << MANTISSA;
    let bits = value.to_bits();
    // Where the mantissa of a float counts ones: a conversion that several floats undergo at once.
    let exponent = f64::from_bits(bits >> MANTISSA | ONES) - (f64::from_bits(ONES) + BIAS as f64);
    let mantissa = f64::from_bits(bits & ((1 << MANTISSA) - 1) | BIAS << MANTISSA);
    (exponent + (2.0 - mantissa / 3.0) * mantissa - 5.0 / 3.0) * core::f64::consts::LN_2
}
