//! Yaksha (Kamra, Misra and Nahum, IWQoS 2004): a PI controller that holds a mean response time by refusing
//! at random.
//!
//! **Idea.** Everything behind the gate is one M/GI/1 processor-sharing queue, whose mean response time
//! depends on the rate of what is let in alone: T = E\[X\]/(1 − pₐ λ E\[X\]) (section III). So refuse each
//! arrival with the probability p_d, and let a controller move p_d until T is the target.
//!
//! **Formula** (section III, equations 3 to 10). The gain of the plant at the operating point is K_g = λ₀
//! T_ref². With the pole at −0.1 (a time constant of 10 s) and a phase margin of 45°:
//!
//! ```text
//! Kp = 1/(√2 K_g)      Ki = 0.1 (Kp + 1/K_g)      A = Kp + Ki/(2 f_T)      B = Kp − Ki/(2 f_T)
//! p_d := A (T − T_ref) − B (T_old − T_ref) + p_old        within [0, 1], f_T times a second
//! ```
//!
//! Self-tuning: K_g = λ₀ T_ref²/pₐ, pₐ a running average of 1 − p_d over 10 s, and A and B anew at each
//! step. Static: the A and B of a design for one λ₀ (the paper's Figs. 14 to 16: designs for 700 and for
//! 2000 browsers).
//!
//! **What the paper doesn't say,** and what was chosen here, each a parameter: f_T = 1 Hz, ten steps in the
//! controller's own time constant; T is the mean over completed requests, forgotten by e^(−t/10 s), as the
//! paper smooths the response times of its Fig. 6 over 10 s; λ₀ = 50/s for the self-tuned, the site's
//! capacity in its Fig. 6 (the paper derives it from a nominal E\[X\] and calls the value not important). T
//! is T_ref before the first completion. A step in which nothing completed and nobody was present counts as
//! one completion that took no time: where all are refused, T would otherwise stay above the target, and
//! p_d at 1, for ever. pₐ counts as at least 0.001.
//!
//! **When it fails.** T is of completed requests and arrives late: at a step of the load a backlog is there
//! before the first of it has completed. Random refusal lets the queue run empty as an M/GI/1 queue does:
//! at the target the service is busy for 1 − E\[X\]/T_ref of the time and no more, and it refuses when
//! nobody else is there. A design for *more* load has *smaller* gains by its own formulas (a larger K_g),
//! though the paper calls the one for 2000 browsers aggressive.

use crate::chance::Chance;
use crate::outside::Refusing;
use crate::policy::{Tuning, YakshaSettings};
use crate::time::{Duration, Instant};

use super::{Asked, Rule, TooMany};

/// The pole of the closed loop, per second (section III).
const POLE: f64 = -0.1;
/// The least average probability of admission that the gain is computed from.
const ADMITTED_MIN: f64 = 1e-3;
/// After so many steps without any event, further ones change nothing.
const STEPS_MAX: u32 = 10_000;

/// The state of the controller.
#[derive(Debug)]
pub(crate) struct Yaksha {
    settings: YakshaSettings,
    /// T_ref, in seconds.
    target: f64,
    /// The probability p_d of the present step, which is p_old of the next.
    probability: f64,
    /// T_old, in seconds.
    before: f64,
    /// The running average pₐ.
    admitted: f64,
    gains: (f64, f64),
    /// Response times, in seconds, and how many: both forgetting.
    sum: f64,
    count: f64,
    completed: bool,
    next: Instant,
}

impl Yaksha {
    pub(crate) fn new(settings: YakshaSettings, now: Instant) -> Self {
        let target = settings.target.as_secs_f64();
        Self {
            settings,
            target,
            probability: 0.0,
            before: target,
            admitted: 1.0,
            gains: gains(settings.arrivals * target * target, settings.interval),
            sum: 0.0,
            count: 0.0,
            completed: false,
            next: now.after(settings.interval),
        }
    }

    /// T: the smoothed mean response time, in seconds.
    fn measured(&self) -> f64 {
        if self.count > 0.0 { self.sum / self.count } else { self.target }
    }

    fn step(&mut self, present: u32) {
        if !self.completed && present == 0 && self.count > 0.0 {
            self.count += 1.0;
        }
        self.completed = false;
        let (a, b) = self.gains;
        let measured = self.measured();
        let change = a * (measured - self.target) - b * (self.before - self.target);
        self.probability = (self.probability + change).clamp(0.0, 1.0);
        self.before = measured;
        let kept = self.kept(self.settings.smoothing);
        self.sum *= kept;
        self.count *= kept;
        if self.settings.tuning == Tuning::SelfTuned {
            let kept = self.kept(self.settings.averaging);
            self.admitted = kept * self.admitted + (1.0 - kept) * (1.0 - self.probability);
            let nominal = self.settings.arrivals * self.target * self.target;
            self.gains = gains(nominal / self.admitted.max(ADMITTED_MIN), self.settings.interval);
        }
    }

    /// What remains of an average over so long after one step.
    fn kept(&self, over: Duration) -> f64 {
        libm::exp(-self.settings.interval.as_secs_f64() / over.as_secs_f64().max(1e-9))
    }
}

/// A and B for a plant of this gain.
fn gains(plant: f64, interval: Duration) -> (f64, f64) {
    let proportional = 1.0 / (core::f64::consts::SQRT_2 * plant);
    let integral = -POLE * (proportional + 1.0 / plant);
    let half_step = integral * interval.as_secs_f64() / 2.0;
    (proportional + half_step, proportional - half_step)
}

impl Rule for Yaksha {
    fn pass(&mut self, now: Instant, present: u32) {
        let mut steps = 0;
        while self.next <= now {
            self.step(present);
            self.next = self.next.after(self.settings.interval);
            steps += 1;
            if steps == STEPS_MAX {
                self.next = now.after(self.settings.interval);
            }
        }
    }

    fn arrive(&mut self, _: Instant, _: Asked, _: u32, chance: &mut Chance) -> Option<TooMany> {
        (chance.unit() < self.probability).then_some(TooMany::OfAll)
    }

    fn complete(&mut self, _: Instant, _: Asked, response: Duration) {
        self.sum += response.as_secs_f64();
        self.count += 1.0;
        self.completed = true;
    }

    fn state(&self) -> Refusing {
        Refusing {
            probability: Some(self.probability),
            gains: Some(self.gains),
            measured: Duration::try_from_secs_f64(self.measured()).ok(),
            ..Refusing::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rejection::Place;
    use crate::request::RequestType;
    use crate::work::Work;

    const ANY: Asked = Asked {
        request_type: RequestType(0),
        work: Work::ZERO,
        place: Place::Taken,
        adds: f64::INFINITY,
        judged: false,
    };

    fn settings(tuning: Tuning) -> YakshaSettings {
        YakshaSettings { tuning, ..YakshaSettings::new(Duration::from_millis(150)) }
    }

    fn at(seconds: u64) -> Instant {
        Instant::ZERO.after(Duration::from_secs(seconds))
    }

    /// The controller after so many seconds, in each of which 50 have completed in so many milliseconds.
    fn after(seconds: u64, response: u64, tuning: Tuning) -> Yaksha {
        let mut yaksha = Yaksha::new(settings(tuning), at(0));
        for second in 1..=seconds {
            for _ in 0..50 {
                yaksha.complete(at(second), ANY, Duration::from_millis(response));
            }
            yaksha.pass(at(second), 1);
        }
        yaksha
    }

    #[test]
    fn the_gains_are_those_of_the_paper() {
        // K_g = 50 · 0.15² = 1.125: Kp = 0.6285, Ki = 0.1 (0.6285 + 0.8889) = 0.1517.
        let (a, b) = Yaksha::new(settings(Tuning::Static), at(0)).gains;
        assert!((a - 0.7044).abs() < 1e-3 && (b - 0.5527).abs() < 1e-3, "{a} {b}");
    }

    #[test]
    fn a_step_is_the_papers_difference_equation() {
        // T jumps to 300 ms: A · 0.15 at once, and (A − B) · 0.15 = Ki/f_T · 0.15 with each further step.
        let first = after(1, 300, Tuning::Static).probability;
        let second = after(2, 300, Tuning::Static).probability;
        assert!((first - 0.1057).abs() < 1e-3, "{first}");
        assert!((second - first - 0.02276).abs() < 1e-4, "{}", second - first);
    }

    #[test]
    fn self_tuning_lowers_the_gains_as_more_is_refused() {
        // The plant's gain is λ₀ T_ref²/pₐ: the more is refused, the more arrives than the design assumed.
        let tuned = after(30, 600, Tuning::SelfTuned);
        let fixed = after(30, 600, Tuning::Static);
        assert!((fixed.probability - 1.0).abs() < 1e-9 && fixed.admitted > 0.99);
        assert!(tuned.admitted < 0.6 && tuned.gains.0 < 0.6 * fixed.gains.0, "{tuned:?}");
    }

    #[test]
    fn at_the_target_nothing_moves() {
        assert!(after(100, 150, Tuning::SelfTuned).probability.abs() < 1e-9);
    }

    #[test]
    fn who_refuses_everybody_lets_some_in_again() {
        let mut yaksha = after(60, 5_000, Tuning::Static);
        assert!((yaksha.probability - 1.0).abs() < 1e-9);
        yaksha.pass(at(200), 0);
        assert!(yaksha.probability < 0.1, "{}", yaksha.probability);
    }

    #[test]
    fn a_stall_is_no_good_news() {
        let mut yaksha = after(60, 300, Tuning::Static);
        let before = yaksha.probability;
        yaksha.pass(at(80), 3);
        assert!(yaksha.probability >= before);
    }
}
