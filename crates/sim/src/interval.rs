//! A mean over repetitions, and its confidence interval of 90 % by Student's distribution, as in the
//! Gatekeeper paper (section 4.5, after Jain 1991).

use core::f64::consts::{FRAC_2_PI, FRAC_PI_2};

/// The probability below the upper end of an interval of 90 %.
const UPPER: f64 = 0.95;
/// How often the interval in which a quantile lies is halved: more than a double tells apart.
const HALVINGS: usize = 80;

/// A mean and half the width of its interval.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Interval {
    /// The mean.
    pub mean: f64,
    /// Half the width; `None` with a single repetition.
    pub half_width: Option<f64>,
}

impl Interval {
    /// Of these; what isn't a number has not been found, and is left out.
    pub fn of(values: &[f64]) -> Self {
        let values: Vec<f64> = values.iter().copied().filter(|value| value.is_finite()).collect();
        let count = values.len() as f64;
        let mean = values.iter().sum::<f64>() / count;
        let half_width = values.len().checked_sub(1).filter(|&degrees| degrees > 0).map(|degrees| {
            let squares: f64 = values.iter().map(|value| (value - mean) * (value - mean)).sum();
            student(u32::try_from(degrees).unwrap_or(u32::MAX), UPPER)
                * libm::sqrt(squares / (count - 1.0) / count)
        });
        Self { mean, half_width }
    }

    /// With the same factor on both.
    pub fn times(self, factor: f64) -> Self {
        Self { mean: self.mean * factor, half_width: self.half_width.map(|half| half * factor) }
    }

    /// The lower end; the mean itself with a single repetition.
    pub fn low(self) -> f64 {
        self.mean - self.half_width.unwrap_or(0.0)
    }

    /// The upper end; the mean itself with a single repetition.
    pub fn high(self) -> f64 {
        self.mean + self.half_width.unwrap_or(0.0)
    }
}

/// The quantile of Student's distribution with so many degrees of freedom (at least one): below it lies a
/// part `probability` (0.5 to below 1).
///
/// By halving, with the sums that are exact for whole degrees (Abramowitz and Stegun, 26.7.3 and 26.7.4) in
/// the angle θ = arctan(t / √degrees).
pub fn student(degrees: u32, probability: f64) -> f64 {
    let within = 2.0 * probability - 1.0;
    let (mut low, mut high) = (0.0, FRAC_PI_2);
    for _ in 0..HALVINGS {
        let middle = f64::midpoint(low, high);
        if inside(degrees, middle) < within {
            low = middle;
        } else {
            high = middle;
        }
    }
    libm::tan(low) * libm::sqrt(f64::from(degrees))
}

/// How probable it is to be within ±t, for the angle of t.
fn inside(degrees: u32, angle: f64) -> f64 {
    let (sine, cosine) = (libm::sin(angle), libm::cos(angle));
    let odd = degrees % 2 == 1;
    // The factors are 2/3, 4/5, … where the degrees are odd, and 1/2, 3/4, … where they are even.
    let mut term = if odd { cosine } else { 1.0 };
    let mut sum = if degrees == 1 { 0.0 } else { term };
    let mut numerator = if odd { 2.0 } else { 1.0 };
    for _ in 0..degrees.saturating_sub(2) / 2 {
        term *= numerator / (numerator + 1.0) * cosine * cosine;
        sum += term;
        numerator += 2.0;
    }
    if odd { FRAC_2_PI * (angle + sine * sum) } else { sine * sum }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn five_runs_have_the_interval_of_the_paper() {
        let found = Interval::of(&[1.0, 2.0, 3.0, 4.0, 5.0]);
        // Variance 2.5, over five, and 2.132 for four degrees of freedom.
        assert!((found.mean - 3.0).abs() < 1e-12);
        assert!((found.half_width.unwrap() - 2.131_847 * 0.5f64.sqrt()).abs() < 1e-5);
        assert_eq!((found.low() + found.high()) / 2.0, found.mean);
        assert_eq!(Interval::of(&[7.0, f64::NAN]), Interval { mean: 7.0, half_width: None });
    }

    #[test]
    fn the_quantiles_are_those_of_the_tables() {
        let known = [
            (1, 0.95, 6.313_752),
            (2, 0.95, 2.919_986),
            (3, 0.95, 2.353_363),
            (4, 0.95, 2.131_847),
            (5, 0.95, 2.015_048),
            (9, 0.95, 1.833_113),
            (10, 0.975, 2.228_139),
            (29, 0.95, 1.699_127),
            (120, 0.95, 1.657_651),
            (1, 0.5, 0.0),
        ];
        for (degrees, probability, quantile) in known {
            let found = student(degrees, probability);
            assert!((found - quantile).abs() < 2e-6, "{degrees}, {probability}: {found}");
        }
    }
}
