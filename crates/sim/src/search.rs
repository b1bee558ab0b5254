//! A search for the best of many settings by noisy experiments: which one to try next, how often, and when
//! it is settled.
//!
//! **Idea.** A service's throughput, as a function of how much is let in, rises to one peak (or to a
//! plateau) and then falls or stays. That is what the Gatekeeper paper assumes (section 3.1), which tries a
//! few large capacities and then bisects. This is that search, made for measurements that vary:
//!
//! 1. *Bracket.* From the smallest setting upwards by factors of [`STRIDE`], until the throughput has
//!    clearly fallen below the best one, or a setting was so large that it bound nothing. Upwards, because
//!    some services don't recover from too much.
//! 2. *Golden section.* Around the best one, in the larger of the two gaps to its neighbors, at 0.382 of
//!    it: until the neighbors are [`NEAR`] away where they are as good, or next on the grid where they are
//!    worse.
//! 3. *Settle.* Whatever could be as good as the best is measured again until that is decided.
//!
//! **Noise.** Each setting is measured at least twice. Two of them are compared by the logarithms of their
//! means; a difference counts if it is beyond chance (two-sided, 95 %) and beyond [`Plan::tolerance`]. With
//! two or three measurements each a variance of one's own says little, so it is moderated (Smyth, *Linear
//! models and empirical Bayes methods*, 2004): the typical variance of all settings counts as much as four
//! further degrees of freedom. What isn't decided is measured again, up to [`Plan::repeats_max`] times;
//! after that the means decide.
//!
//! **What is chosen.** The paper calls capacity "the maximum load level that produces the highest
//! throughput". Where several settings are equally good that is the last one before the fall, which a
//! service can be pushed over by any other day. Chosen is the middle of those that are as good as the best,
//! by factors: farthest from both ends. If nothing ever fell, no bound is needed, and [`Found::fell`] says
//! so.
//!
//! **When it fails.** Where throughput has two peaks, with a fall between them that is wider than a stride;
//! where the service changes meanwhile; where what is measured isn't saturated, because then every setting
//! is equally good.
//!
//! Everything is a function of what was recorded: no clock, no chance of its own. The laboratory drives it,
//! and so does `gatekeeper calibrate` with a real service.

/// The factor between two settings while the bracket is looked for: five or six of them from one request to
/// a thousand.
pub const STRIDE: f64 = 4.0;
/// How near a neighbor that is as good must have been tried: between two such nothing better is expected.
pub const NEAR: f64 = 2.0;
/// What the typical variance counts for, in degrees of freedom: as much as three measurements of two
/// settings do.
const PRIOR: f64 = 4.0;
/// Where the golden section divides a gap, from the better end.
const GOLDEN: f64 = 0.381_966;
/// A spread below this share of the mean isn't believed: two measurements may agree by chance.
const SPREAD_MIN: f64 = 0.002;
/// Less than this share of the best is nothing: what has collapsed completes none, and none has no logarithm.
const NOTHING: f64 = 1e-3;
/// The most settings on a grid.
const GRID_MAX: usize = 1_024;

/// What is searched, and how thoroughly.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// The settings, from the smallest up: positive, each larger than the one before.
    pub grid: Vec<f64>,
    /// A difference below this share doesn't matter.
    pub tolerance: f64,
    /// The most measurements of one setting, at least 2.
    pub repeats_max: usize,
    /// The most measurements in all.
    pub measurements_max: usize,
}

impl Plan {
    /// A plan with `per_octave` settings for each factor of two from `least` to `most`, at most 1024 in all.
    /// It has the usual thoroughness.
    pub fn between(least: f64, most: f64, per_octave: u32, rounding: Rounding) -> Self {
        let factor = libm::exp2(1.0 / f64::from(per_octave.max(1)));
        let mut grid: Vec<f64> = Vec::new();
        let mut place = least;
        while place < most * 1.000_001 && grid.len() < GRID_MAX {
            let setting = rounding.of(place);
            if setting > 0.0 && grid.last().is_none_or(|last| setting > *last) {
                grid.push(setting);
            }
            place *= factor;
        }
        Self { grid, tolerance: 0.02, repeats_max: 5, measurements_max: 60 }
    }
}

/// How settings are rounded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rounding {
    /// To whole numbers: requests.
    Whole,
    /// To two digits, as people write them.
    TwoDigits,
}

impl Rounding {
    fn of(self, value: f64) -> f64 {
        match self {
            Self::Whole => libm::round(value),
            Self::TwoDigits => {
                let unit = libm::exp10(libm::floor(libm::log10(value)) - 1.0);
                libm::round(value / unit) * unit
            }
        }
    }
}

/// One experiment with a setting.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Measurement {
    /// What was completed per second.
    pub throughput: f64,
    /// Whether the setting bound anything: as much was in flight as it allows, or nearly. A larger one
    /// changes nothing if not.
    pub reached: bool,
}

/// A setting that was tried.
#[derive(Clone, Debug, PartialEq)]
pub struct Point {
    /// Which, an index into the grid.
    pub at: usize,
    /// The setting.
    pub setting: f64,
    /// What was measured, in order.
    pub measurements: Vec<Measurement>,
}

impl Point {
    /// The mean throughput.
    pub fn mean(&self) -> f64 {
        self.measurements.iter().map(|one| one.throughput).sum::<f64>() / self.measurements.len() as f64
    }

    /// The lowest and the highest throughput.
    pub fn range(&self) -> (f64, f64) {
        let all = self.measurements.iter().map(|one| one.throughput);
        (all.clone().fold(f64::INFINITY, f64::min), all.fold(f64::NEG_INFINITY, f64::max))
    }

    fn reached(&self) -> bool {
        self.measurements.iter().any(|one| one.reached)
    }
}

/// What to do next.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Step {
    /// Measure this setting (an index into the grid), and record it.
    Measure(usize),
    /// It is settled.
    Settled(Found),
}

/// What was found.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Found {
    /// The setting to take.
    pub chosen: f64,
    /// The smallest and the largest of those tried that are as good as the best.
    pub plateau: (f64, f64),
    /// The throughput of the chosen one.
    pub throughput: f64,
    /// Whether a larger setting did clearly worse. If none did, no bound is needed.
    pub fell: bool,
    /// The typical spread of one setting's measurements (their standard deviation), as a share of the mean.
    pub spread: f64,
    /// Whether it ended because it had measured as often as it may, and not because it was settled.
    pub exhausted: bool,
}

/// How a setting compares with the best.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    Lower,
    Equal,
    /// Lower or equal: more measurements will tell.
    Open,
}

/// A search under way.
#[derive(Clone, Debug)]
pub struct Search {
    plan: Plan,
    /// In the order of the grid.
    points: Vec<Point>,
    measured: usize,
}

impl Search {
    /// A search of which nothing is known yet. `None` for an empty grid, or one that isn't in order.
    pub fn new(plan: Plan) -> Option<Self> {
        let positive = plan.grid.first().is_some_and(|first| *first > 0.0);
        let sound = positive && plan.grid.is_sorted_by(|a, b| a < b) && plan.grid.len() <= GRID_MAX;
        let plan = Plan { repeats_max: plan.repeats_max.max(2), ..plan };
        sound.then_some(Self { plan, points: Vec::new(), measured: 0 })
    }

    /// What was measured so far, in the order of the grid.
    pub fn points(&self) -> &[Point] {
        &self.points
    }

    /// The settings.
    pub fn grid(&self) -> &[f64] {
        &self.plan.grid
    }

    /// How many measurements were recorded.
    pub fn measured(&self) -> usize {
        self.measured
    }

    /// A measurement of this setting has ended.
    ///
    /// # Panics
    /// If there is no such setting.
    pub fn record(&mut self, at: usize, measurement: Measurement) {
        let setting = self.plan.grid[at];
        self.measured += 1;
        match self.points.binary_search_by_key(&at, |point| point.at) {
            Ok(place) => self.points[place].measurements.push(measurement),
            Err(place) => {
                self.points.insert(place, Point { at, setting, measurements: vec![measurement] });
            }
        }
    }

    /// What to do next: a function of what was recorded.
    pub fn next(&self) -> Step {
        if self.measured < self.plan.measurements_max
            && let Some(at) = self.wanted()
        {
            return Step::Measure(at);
        }
        Step::Settled(self.found())
    }

    fn wanted(&self) -> Option<usize> {
        if let Some(point) = self.points.iter().find(|point| point.measurements.len() < 2) {
            return Some(point.at);
        }
        if self.points.is_empty() {
            return Some(0);
        }
        self.climb().or_else(|| self.divide()).or_else(|| self.settle())
    }

    /// The next step upwards, unless the top of the bracket is found.
    fn climb(&self) -> Option<usize> {
        let (best, top) = (self.best()?, self.points.last()?);
        match self.compare(top, best) {
            Verdict::Lower => return None,
            // Whether it has fallen must be known, before one goes on to where it may fall further.
            Verdict::Open if top.mean() < best.mean() * (1.0 - self.plan.tolerance) => {
                return Some(self.fewer(top, best));
            }
            Verdict::Open | Verdict::Equal => {}
        }
        let last = self.plan.grid.len() - 1;
        if !top.reached() || top.at == last {
            return None;
        }
        let goal = top.setting * STRIDE * 0.999;
        Some(self.plan.grid.iter().position(|setting| *setting >= goal).unwrap_or(last).max(top.at + 1))
    }

    /// A setting in a gap beside the best one that is still too wide.
    fn divide(&self) -> Option<usize> {
        let best = self.best()?;
        let place = self.points.iter().position(|point| point.at == best.at)?;
        let alone = self.equals().count() == 1;
        let below = place.checked_sub(1).map(|below| &self.points[below]);
        let above = self.points.get(place + 1);
        let gap = |other: Option<&Point>| {
            let Some(other) = other else { return 0 };
            let steps = other.at.abs_diff(best.at);
            let factor = (other.setting / best.setting).max(best.setting / other.setting);
            let wide = if alone { steps > 1 } else { steps > 1 && factor > NEAR * 1.001 };
            if wide { steps } else { 0 }
        };
        let (down, up) = (gap(below), gap(above));
        let widest = down.max(up);
        if widest == 0 {
            return None;
        }
        let far = ((widest as f64 * GOLDEN).round() as usize).clamp(1, widest - 1);
        Some(if up >= down { best.at + far } else { best.at - far })
    }

    /// One of those that could be as good as the best, of which it isn't known yet.
    fn settle(&self) -> Option<usize> {
        let best = self.best()?;
        let open = self.points.iter().find(|point| self.compare(point, best) == Verdict::Open)?;
        Some(self.fewer(open, best))
    }

    /// Which of two to measure again: one that may be, and was measured less often.
    fn fewer(&self, point: &Point, best: &Point) -> usize {
        if best.measurements.len() < point.measurements.len() { best.at } else { point.at }
    }

    fn found(&self) -> Found {
        let Some(best) = self.best() else {
            return Found {
                chosen: self.plan.grid[0],
                plateau: (self.plan.grid[0], self.plan.grid[0]),
                throughput: 0.0,
                fell: false,
                spread: 0.0,
                exhausted: true,
            };
        };
        let setting = |point: Option<&Point>| point.map_or(best.setting, |point| point.setting);
        let plateau = (setting(self.equals().next()), setting(self.equals().last()));
        let middle = libm::log(plateau.0 * plateau.1) / 2.0;
        let off = |point: &&Point| libm::fabs(libm::log(point.setting) - middle);
        let chosen = self.equals().min_by(|a, b| off(a).total_cmp(&off(b))).unwrap_or(best);
        Found {
            chosen: chosen.setting,
            plateau,
            throughput: chosen.mean(),
            fell: self.points.last().is_some_and(|top| top.setting > plateau.1),
            spread: libm::sqrt(self.typical_variance()),
            exhausted: self.wanted().is_some(),
        }
    }

    /// The one with the highest mean; of equals the smallest.
    fn best(&self) -> Option<&Point> {
        self.points.iter().reduce(|best, point| if point.mean() > best.mean() { point } else { best })
    }

    /// Those around the best, without a gap, that aren't clearly lower.
    fn equals(&self) -> impl Iterator<Item = &Point> {
        let best = self.best();
        let place = best.and_then(|best| self.points.iter().position(|point| point.at == best.at));
        let place = place.unwrap_or(0);
        let is_lower = |point: &Point| best.is_some_and(|best| self.compare(point, best) == Verdict::Lower);
        let from = self.points[..place].iter().rposition(is_lower).map_or(0, |lower| lower + 1);
        let to =
            self.points[place..].iter().position(is_lower).map_or(self.points.len(), |lower| place + lower);
        self.points[from..to].iter()
    }

    fn compare(&self, point: &Point, best: &Point) -> Verdict {
        if point.at == best.at {
            return Verdict::Equal;
        }
        let (n, m) = (point.measurements.len(), best.measurements.len());
        let difference = self.logarithm(best.mean()) - self.logarithm(point.mean());
        let own = (n + m).saturating_sub(2) as f64;
        let squares = self.squares(point) + self.squares(best);
        let variance = (squares + PRIOR * self.typical_variance()) / (own + PRIOR);
        let half = student(own + PRIOR) * libm::sqrt(variance * (1.0 / n as f64 + 1.0 / m as f64));
        let tolerance = self.plan.tolerance;
        if difference > tolerance && difference > half {
            Verdict::Lower
        } else if difference + half < 2.0 * tolerance {
            Verdict::Equal
        } else if n.min(m) >= self.plan.repeats_max {
            // Not beyond chance. But what sometimes collapses varies so much that chance is all that is left.
            if difference > tolerance { Verdict::Lower } else { Verdict::Equal }
        } else {
            Verdict::Open
        }
    }

    /// The sum of the squared deviations of a setting's measurements, as logarithms.
    fn squares(&self, point: &Point) -> f64 {
        let logarithms = || point.measurements.iter().map(|one| self.logarithm(one.throughput));
        let mean = logarithms().sum::<f64>() / point.measurements.len() as f64;
        logarithms().map(|one| (one - mean) * (one - mean)).sum()
    }

    /// The median of the settings' variances: what has collapsed varies wildly, and says nothing of the
    /// others.
    fn typical_variance(&self) -> f64 {
        let several = self.points.iter().filter(|point| point.measurements.len() > 1);
        let mut variances: Vec<f64> =
            several.map(|point| self.squares(point) / (point.measurements.len() - 1) as f64).collect();
        variances.sort_by(f64::total_cmp);
        let median = variances.get(variances.len() / 2).copied().unwrap_or(0.0);
        median.max(SPREAD_MIN * SPREAD_MIN)
    }

    fn logarithm(&self, throughput: f64) -> f64 {
        let highest = self.points.iter().map(Point::mean).fold(f64::MIN_POSITIVE, f64::max);
        libm::log(throughput.max(highest * NOTHING))
    }
}

/// The 97.5 % quantile of Student's distribution, by the expansion of Cornish and Fisher (Abramowitz and
/// Stegun, 26.7.5): within 0.5 % from four degrees of freedom on, which is the fewest there are here.
fn student(degrees: f64) -> f64 {
    const Z: f64 = 1.959_964;
    let (z3, z5, z7) = (Z.powi(3), Z.powi(5), Z.powi(7));
    let first = (z3 + Z) / 4.0;
    let second = (5.0 * z5 + 16.0 * z3 + 3.0 * Z) / 96.0;
    let third = (3.0 * z7 + 19.0 * z5 + 17.0 * z3 - 15.0 * Z) / 384.0;
    Z + first / degrees + second / (degrees * degrees) + third / (degrees * degrees * degrees)
}

#[cfg(test)]
mod tests;
