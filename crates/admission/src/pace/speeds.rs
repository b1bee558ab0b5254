//! How fast the service works, by how many requests it is busy with: learned from what each completion
//! took, of whatever type it was.
//!
//! **Idea.** Requests of one type do alike amounts of work, whether they run alone or among fifty. So what
//! a completion took says how fast the service was, and what is known of the speed says how much work a
//! completion was: both are learned at once, the speed from all types together. A request whose lap is g
//! (by level, see `laps.rs`) has done
//!
//! ```text
//! y = S · Σ g_l X_l          and          ln y = ln c_k + noise
//! ```
//!
//! with X_l the speed with so many in flight, S what changes the speed of the service at all of them (its
//! hardware is shared, its cache cold), and c_k the center of the type. The surprise e = ln y − ln c_k is
//! divided among the three as in a Kalman filter with a diagonal covariance, in units of the noise: the
//! least known takes the most.
//!
//! ```text
//! ln c_k += p_k e/V    ln S −= p_s e/V    ln X_l −= p_l h_l e/V    V = 1 + p_k + p_s + Σ p_l h_l²
//! ```
//!
//! with p_k = 1/n_k (at least 1/[`MEMORY`]), p_s = 1/[`MEMORY`], p_l = 1/([`GUESSED`] + what was learned of
//! the level, at most [`KEPT`]). So a type's first execution teaches nothing of the speed; a level never
//! seen before learns its speed from a few executions of known types; and when all types surprise alike at
//! levels long known, it is the service that has changed.
//!
//! **Which level learns (h): the one where the request began.** Not where it spent its time, which depends
//! on its own size: of those that were all alone from beginning to end too many are small, and alone would
//! seem too fast. How many were in flight when it began does not depend on its size (in the words of
//! statistics: an instrumental variable). A type says as much of that level as of their laps its requests
//! spend there on average: a short request sees one level, a long one all. Only until a level is [`KNOWN`]
//! at all it learns from any type that was there.
//!
//! **Trust.** When the load steps up, those that complete first at the new level are the small ones, so its
//! speed is wrong until all that came together are through. Until it was seen for long ([`SEEN`]
//! executions, and four times as many as are in flight there) S and the types learn less from it, by the
//! square of the part of the lap that was spent where the speed is long known, and so do the estimates. A
//! collapse is learned as what it is: another speed, not other costs.
//!
//! **Neighbors.** What lies between two levels moves both alike, so errors of opposite sign last; each
//! level is drawn a little ([`SMOOTH`]) towards the line through its neighbors, the less the better it is
//! known.
//!
//! **Scale.** Only ratios can be learned. All that is shown is in the time that a request would take alone;
//! where one alone was not seen yet, in that which it takes among the fewest seen ([`Speeds::alone`]).
//!
//! **Fails** where the speed depends on more than how many are in flight: on which (requests that wait for
//! a lock of their own are taken for expensive; those of other types beside them, rightly, are not), or on
//! what was before; and where it never varies: a service that has always had 20 in flight has not shown
//! what one alone takes. Costs are comparable with one another then, but in another unit, and a change of
//! the speed there is taken for one everywhere.

use alloc::vec::Vec;

use super::Parallelism;
use super::laps::Lap;
use super::levels::{Between, LEVELS, at};
use crate::learned::LearnedSpeed;

/// The memory of a type's center and of the common speed, in executions. Where the coefficient of variation
/// within types is 1, each has 4 % of noise. A halving of the speed is followed within some hundred
/// executions.
pub(crate) const MEMORY: f64 = 256.0;
/// The weight of the guess at a level that was never seen, in executions. The speed is taken to be within a
/// factor 4 of the guess, where executions of a type vary by a factor 2.
const GUESSED: f64 = 0.5;
/// The most executions that a level remembers. The number of cores hardly ever changes.
const KEPT: f64 = 2048.0;
/// A level is known from this many executions on.
const KNOWN: f64 = 8.0;
/// It is known for long from so many on, and four times as many as are in flight there.
const SEEN: f64 = 512.0;
/// A type's center learns from so many executions whatever is known of the levels.
const FIRST: f64 = 8.0;
/// One execution surprises by at most so much (a factor 3), in units of V.
const SURPRISE: f64 = 1.1;
/// How far a level is drawn to the line through its neighbors, relative to a surprise.
const SMOOTH: f64 = 0.1;
/// A level is drawn to the line through its neighbors until it is learned from this many executions.
const SMOOTHED: f64 = 128.0;
/// The parallelism is found from levels that are learned from at least this many executions.
const JUDGED: f64 = 24.0;
/// The parallelism makes the service so fast, as a part of the most.
const NEARLY: f64 = 0.9;
/// Where that is reached so little above a number of requests, it is that number.
const ROUNDED: f64 = 0.1;

/// What is typical of a type, on a scale of its own.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Center {
    /// The geometric mean of what its requests did.
    middle: f64,
    samples: f64,
    /// The mean share of a lap that was spent at the level where it began.
    stay: f64,
}

/// What a request has done.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Done {
    /// How much, in a unit that doesn't change with the speed of the service.
    pub(crate) amount: f64,
    /// How far that is to be believed, from 0 to 1.
    pub(crate) trust: f64,
}

/// What is to be made of a lap.
struct View {
    /// The part of it at the level where it began.
    stay: f64,
    trust: f64,
    /// How little is known of its levels.
    of_levels: f64,
}

/// The fewest requests that make the service nine tenths as fast as it was ever seen.
pub(crate) struct Fastest {
    pub(crate) requests: u32,
    /// The most requests whose speed is known. Where `requests` is near, more may be faster.
    top: u32,
    /// Nothing is known of fewer: these may do as well.
    is_fewest: bool,
}

/// What was learned of the service's speed.
#[derive(Debug)]
pub(crate) struct Speeds {
    /// With so many in flight, all together.
    speeds: [f64; LEVELS],
    /// How many executions it was learned from.
    learned: [f64; LEVELS],
    /// Whether so many were ever in flight.
    met: [bool; LEVELS],
    /// How many executions, or parts of them, were there.
    seen: [f64; LEVELS],
    /// By what it is multiplied at all levels.
    common: f64,
    /// The mean square of the surprises: about the variance of the logarithms within types.
    noise: f64,
    surprises: f64,
}

impl Speeds {
    pub(crate) fn new() -> Self {
        Self {
            speeds: core::array::from_fn(|level| f64::from(at(level))),
            learned: [0.0; LEVELS],
            met: [false; LEVELS],
            seen: [0.0; LEVELS],
            common: 1.0,
            noise: 0.0,
            surprises: 0.0,
        }
    }

    /// Guesses the speed at a level that is reached for the first time. The guess holds until the level is
    /// learned.
    pub(crate) fn meet(&mut self, level: usize) {
        if core::mem::replace(&mut self.met[level], true) {
            return;
        }
        let is_learned = |other: &usize| self.learned[*other] > 0.0;
        let nearest = (0..level).rev().find(is_learned).or_else(|| (level + 1..LEVELS).find(is_learned));
        let Some(near) = nearest else { return };
        let more = f64::from(at(level)) / f64::from(at(near));
        // Upwards half way, as a factor, between a core for each more and none; downwards a core less for
        // each less.
        self.speeds[level] = self.speeds[near] * if level > near { libm::sqrt(more) } else { more };
    }

    /// How much was done in a lap.
    pub(crate) fn amount(&self, lap: &Lap) -> f64 {
        (self.common * lap.given().map(|(level, given)| given * self.speeds[level]).sum::<f64>()).max(1e-3)
    }

    /// A request of a type has succeeded.
    pub(crate) fn learn(&mut self, lap: &Lap, center: &mut Center) -> Done {
        let amount = self.amount(lap);
        let view = self.view(lap, amount, center.stay);
        if center.samples == 0.0 {
            *center = Center { middle: amount, samples: 1.0, stay: view.stay };
            return Done { amount, trust: 1.0 };
        }
        let trust = view.trust;
        let of_type = (trust + (1.0 - trust) * (FIRST / center.samples).min(1.0)) / center.samples;
        let of_all = trust / MEMORY;
        let total = 1.0 + of_type + of_all + view.of_levels;
        let off = libm::log(amount / center.middle);
        self.surprises = (self.surprises + 1.0).min(MEMORY);
        self.noise += (off * off - self.noise) / self.surprises;
        let surprise = (off / total).clamp(-SURPRISE, SURPRISE);
        center.middle *= grown(of_type * surprise);
        self.common *= grown(-of_all * surprise);
        for (level, given) in lap.given() {
            let share = self.common * given * self.speeds[level] / amount;
            self.seen[level] += share;
            if self.learned[level] < KNOWN {
                self.learn_level(level, share, surprise);
            }
        }
        for (level, share) in lap.began.shares() {
            if self.learned[level] >= KNOWN {
                self.learn_level(level, share * center.stay, surprise);
            }
        }
        center.stay += of_type * (view.stay - center.stay);
        center.samples = (center.samples + 1.0).min(MEMORY);
        Done { amount, trust }
    }

    /// A level learns from a surprise that has so much to do with it.
    fn learn_level(&mut self, level: usize, weight: f64, surprise: f64) {
        let straight = SMOOTH * weight * self.bend(level);
        self.speeds[level] *= grown(-self.of_level(level) * weight * (surprise + straight));
        self.learned[level] = (self.learned[level] + weight * weight).min(KEPT);
    }

    /// A lap as its levels are known, of a type whose requests stay so much where they begin.
    fn view(&self, lap: &Lap, amount: f64, stay: f64) -> View {
        let mut view = View { stay: 0.0, trust: 0.0, of_levels: 0.0 };
        let share_began = |level: usize| match level.wrapping_sub(lap.began.below) {
            0 => lap.began.lower,
            1 => lap.began.upper,
            _ => 0.0,
        };
        for (level, given) in lap.given() {
            let share = self.common * given * self.speeds[level] / amount;
            let began = share_began(level);
            view.stay += share * began;
            view.trust += share * (self.seen[level] / (SEEN + 4.0 * f64::from(at(level)))).min(1.0);
            let weight = share.max(began * stay);
            view.of_levels += weight * weight * self.of_level(level);
        }
        view.trust *= view.trust;
        view
    }

    /// About how far the logarithm of a level's speed lies above the line through its neighbors'.
    fn bend(&self, level: usize) -> f64 {
        let known = |level: usize| self.learned.get(level).copied().filter(|&learned| learned > 0.0);
        let (below, above) = (level.wrapping_sub(1), level + 1);
        let (line, learned) = match (known(below), known(above)) {
            (Some(less), Some(more)) => (self.speeds[below] * self.speeds[above], less.min(more)),
            (Some(less), None) => (self.speeds[below] * self.speeds[below], less),
            _ => return 0.0,
        };
        let square = self.speeds[level] * self.speeds[level];
        // ln(x) / 2 is about (x − 1) / (x + 1).
        (learned.min(SMOOTHED) / self.learned[level].max(1.0)).min(1.0) * (square - line) / (square + line)
    }

    /// How little is known of a level.
    fn of_level(&self, level: usize) -> f64 {
        1.0 / (GUESSED + self.learned[level])
    }

    /// The speed of one alone; where that is not known, of one among the fewest known; 1 if nothing is.
    ///
    /// A level is learned from few executions at first. One among two is about as fast on many cores, and
    /// half as fast on one: as far as the difference may be noise, it is taken for noise.
    pub(crate) fn alone(&self) -> f64 {
        let each = |level: usize| self.speeds[level] / f64::from(at(level));
        let mut levels = (0..LEVELS).filter(|&level| self.learned[level] >= KNOWN).peekable();
        let (mut alone, mut left) = (0.0, 1.0);
        while let Some(level) = levels.next() {
            let own = match levels.peek() {
                Some(&next) if left > 0.01 => {
                    let apart = each(level) / each(next) - 1.0;
                    // Any type that was there taught it first: those are too small, and don't count.
                    let count = |level: usize| self.learned[level] - KNOWN + 1.0;
                    let noise = |level: usize| self.noise / count(level);
                    let real = (apart * apart - 4.0 * (noise(level) + noise(next))).max(0.0);
                    let (own, others) = (count(level), count(next));
                    (real + noise(level) * own / (own + others)) / (real + noise(level) + 1e-12)
                }
                _ => 1.0,
            };
            alone += left * own * each(level);
            left *= 1.0 - own;
            if left <= 0.0 {
                return alone;
            }
        }
        1.0
    }

    /// On how many requests the service works at once: the fewest that make it nearly as fast as it ever
    /// is, as far as the difference isn't noise. `None`: the service was not seen with half as many more, or
    /// not with fewer (or one).
    pub(crate) fn parallelism(&self) -> Option<Parallelism> {
        let Fastest { requests, top, is_fewest } = self.nearly_fastest()?;
        let learned = self.learned.iter().copied().filter(|&learned| learned >= JUDGED);
        let samples = learned.fold(KEPT, f64::min) as u32;
        let is_known = !is_fewest || requests == 1;
        (is_known && 2 * top >= 3 * requests).then_some(Parallelism { requests, samples })
    }

    pub(crate) fn nearly_fastest(&self) -> Option<Fastest> {
        let levels = || (0..LEVELS).filter(|&level| self.learned[level] >= JUDGED);
        let top = levels().next_back()?;
        let noise = |level: usize| libm::sqrt(self.noise / self.learned[level]);
        let most = levels().map(|level| self.speeds[level] * (1.0 - noise(level))).fold(0.0, f64::max);
        let enough = NEARLY * most;
        let reaches = levels().find(|&level| self.speeds[level] * (1.0 + noise(level)) >= enough)?;
        let before = levels().take_while(|&level| level < reaches).last();
        let requests = before.map_or(at(reaches), |before| {
            let (from, to) = (f64::from(at(before)), f64::from(at(reaches)));
            let part = (enough - self.speeds[before]) / (self.speeds[reaches] - self.speeds[before]);
            libm::ceil(from + part.clamp(0.0, 1.0) * (to - from) - ROUNDED) as u32
        });
        Some(Fastest { requests, top: at(top), is_fewest: before.is_none() })
    }

    /// What is to be kept across restarts.
    pub(crate) fn learned(&self) -> Vec<LearnedSpeed> {
        let alone = self.alone();
        let known = (0..LEVELS).filter(|&level| self.learned[level] >= KNOWN);
        let learned = |level| LearnedSpeed {
            in_flight: at(level),
            speed: self.speeds[level] / alone,
            executions: self.learned[level] as u64,
        };
        known.map(learned).collect()
    }

    /// Restores the speeds of an earlier run. A level that was learned counts as known for long.
    pub(crate) fn recall(&mut self, learned: &[LearnedSpeed]) {
        for known in learned.iter().filter(|known| known.is_possible()) {
            if let Some(level) = (0..LEVELS).find(|&level| at(level) == known.in_flight) {
                self.speeds[level] = known.speed;
                self.learned[level] = (known.executions as f64).min(KEPT);
                self.seen[level] = SEEN + 4.0 * f64::from(known.in_flight);
                self.met[level] = true;
            }
        }
    }

    /// What turns what was done into the time that it takes alone.
    pub(crate) fn unit(&self) -> f64 {
        1.0 / (self.common * self.alone())
    }

    /// What is done in a nanosecond for one of so many.
    pub(crate) fn each(&self, now_at: Between, busy: u32) -> f64 {
        self.common * now_at.of(&self.speeds) / f64::from(busy.max(1))
    }
}

/// exp(x), where x is nearly always small.
fn grown(x: f64) -> f64 {
    if x.abs() < 0.05 { 1.0 + x * (1.0 + x / 2.0 * (1.0 + x / 3.0)) } else { libm::exp(x) }
}
