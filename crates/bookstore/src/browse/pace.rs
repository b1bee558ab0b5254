//! How long a visitor thinks about a page, and how long a visit lasts: exponentially distributed, with a
//! cap (TPC-W 1.8, clauses 5.3.2 and 6.1.9).

use std::time::Duration;

use rand::{Rng, RngExt};

/// The longest time that anything here may last. A mistake in a flag shall not become an overflow.
const LONGEST: Duration = Duration::from_secs(24 * 60 * 60);

/// An exponentially distributed time; what would be above the cap is the cap.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Span {
    /// The mean if there was no cap. With a cap of ten times as much the true mean is 0.005 % less, with
    /// four times 1.8 %.
    pub mean: Duration,
    /// What no drawn time exceeds.
    pub cap: Duration,
}

impl Span {
    /// A time of the distribution.
    pub fn draw<R: Rng + ?Sized>(&self, random: &mut R) -> Duration {
        // 1 - u is in (0, 1], so its logarithm is finite.
        let drawn = -(1.0 - random.random::<f64>()).ln() * self.mean.as_secs_f64();
        self.cap.min(LONGEST).min(Duration::try_from_secs_f64(drawn).unwrap_or(LONGEST))
    }
}

/// The times of a visitor.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Pace {
    /// Between a page and the next request: 7 s, at most 70 s.
    pub think: Span,
    /// After which a visit ends as soon as it would go to the first page: 15 min, at most 60 min.
    pub session: Span,
    /// The first request of a browser comes within this time, evenly: 20 s.
    pub stagger: Duration,
}

impl Default for Pace {
    fn default() -> Self {
        Self {
            think: Span { mean: Duration::from_secs(7), cap: Duration::from_secs(70) },
            session: Span { mean: Duration::from_secs(15 * 60), cap: Duration::from_secs(60 * 60) },
            stagger: Duration::from_secs(20),
        }
    }
}

impl Pace {
    /// All times multiplied: at 0.1 it is the same visit, ten times as fast.
    #[must_use]
    pub fn scaled(self, scale: f64) -> Self {
        let times = |time: Duration| {
            Duration::try_from_secs_f64(time.as_secs_f64() * scale).unwrap_or(LONGEST).min(LONGEST)
        };
        let span = |span: Span| Span { mean: times(span.mean), cap: times(span.cap) };
        Self { think: span(self.think), session: span(self.session), stagger: times(self.stagger) }
    }

    /// When a browser that comes now sends its first request.
    pub fn first<R: Rng + ?Sized>(&self, random: &mut R) -> Duration {
        self.stagger.mul_f64(random.random::<f64>())
    }
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;
    use rand::rngs::StdRng;

    use super::*;

    /// Mean and largest of a million, in seconds, and the share of those at the cap.
    fn drawn(span: Span) -> (f64, Duration, f64) {
        const DRAWS: u32 = 1_000_000;
        let mut random = StdRng::seed_from_u64(7);
        let (mut sum, mut largest, mut capped) = (0.0, Duration::ZERO, 0_u32);
        for _ in 0..DRAWS {
            let time = span.draw(&mut random);
            sum += time.as_secs_f64();
            largest = largest.max(time);
            capped += u32::from(time == span.cap);
        }
        (sum / f64::from(DRAWS), largest, f64::from(capped) / f64::from(DRAWS))
    }

    #[test]
    fn think_times_have_their_mean_and_cap() {
        let (mean, largest, capped) = drawn(Pace::default().think);
        assert!((mean - 7.0).abs() < 0.03, "{mean}");
        assert_eq!(largest, Duration::from_secs(70));
        assert!((capped - (-10.0_f64).exp()).abs() < 3e-5, "{capped}");
    }

    #[test]
    fn visits_have_their_mean_and_cap() {
        let (mean, largest, capped) = drawn(Pace::default().session);
        let expected = 900.0 * (1.0 - (-4.0_f64).exp());
        assert!((mean / expected - 1.0).abs() < 0.004, "{mean} of {expected}");
        assert_eq!(largest, Duration::from_secs(3_600));
        assert!((capped - (-4.0_f64).exp()).abs() < 6e-4, "{capped}");
    }

    #[test]
    fn a_scale_applies_to_all_times() {
        let pace = Pace::default().scaled(0.1);
        assert_eq!(pace.think, Span { mean: Duration::from_millis(700), cap: Duration::from_secs(7) });
        assert_eq!(pace.session, Span { mean: Duration::from_secs(90), cap: Duration::from_secs(360) });
        assert_eq!(pace.stagger, Duration::from_secs(2));
        let mut random = StdRng::seed_from_u64(1);
        assert!((0..1_000).all(|_| pace.first(&mut random) < pace.stagger));
        assert_eq!(pace.scaled(1e300).think.cap, LONGEST);
        assert_eq!(pace.scaled(0.0).think.draw(&mut random), Duration::ZERO);
    }
}
