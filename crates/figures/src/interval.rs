//! A mean over runs with other seeds, and its confidence interval of 90 % by the T distribution, as in the Gatekeeper
//! paper (section 4.5, after Jain 1991).

/// A mean and half the width of its interval.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Interval {
    /// The mean.
    pub mean: f64,
    /// Half the width; `None` with a single run.
    pub half_width: Option<f64>,
}

/// The 95th percentile of the T distribution with 1, 2, … degrees of freedom.
const STUDENT: [f64; 10] = [6.314, 2.920, 2.353, 2.132, 2.015, 1.943, 1.895, 1.860, 1.833, 1.812];
/// With more degrees of freedom than the table has: that of the normal distribution, a little too narrow.
const NORMAL: f64 = 1.645;

impl Interval {
    /// Of these; what isn't a number has not been found, and is left out.
    pub fn of(values: &[f64]) -> Self {
        let values: Vec<f64> = values.iter().copied().filter(|value| value.is_finite()).collect();
        let count = values.len() as f64;
        let mean = values.iter().sum::<f64>() / count;
        let half_width = values.len().checked_sub(2).map(|index| {
            let squares: f64 = values.iter().map(|value| (value - mean) * (value - mean)).sum();
            STUDENT.get(index).unwrap_or(&NORMAL) * (squares / (count - 1.0) / count).sqrt()
        });
        Self { mean, half_width }
    }

    /// With the same factor on both.
    pub fn times(self, factor: f64) -> Self {
        Self { mean: self.mean * factor, half_width: self.half_width.map(|half| half * factor) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn five_runs_have_the_interval_of_the_paper() {
        let found = Interval::of(&[1.0, 2.0, 3.0, 4.0, 5.0]);
        // Variance 2.5, over five, and 2.132 for four degrees of freedom.
        assert!((found.mean - 3.0).abs() < 1e-12);
        assert!((found.half_width.unwrap() - 2.132 * 0.5f64.sqrt()).abs() < 1e-9);
        assert_eq!(Interval::of(&[7.0, f64::NAN]), Interval { mean: 7.0, half_width: None });
    }
}
