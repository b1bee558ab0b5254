//! How long requests take alone, or clients think: distributions of times.
//!
//! Every sample uses the same number of draws whatever the parameters, so that two variants that differ in
//! them stay in step. Transcendental functions are `libm`'s: the platform's own differ from one to the
//! next.

use std::sync::Arc;

use admission::Duration;

use crate::chance::Chance;

/// A distribution of times.
#[derive(Clone, Debug, PartialEq)]
pub enum Distribution {
    /// Always the same.
    Fixed(Duration),
    /// Exponential.
    Exponential {
        /// The mean.
        mean: Duration,
    },
    /// Any time between two alike.
    Uniform {
        /// The least.
        least: Duration,
        /// The most.
        most: Duration,
    },
    /// Lognormal, by its mean and its coefficient of variation.
    Lognormal {
        /// The mean.
        mean: Duration,
        /// The coefficient of variation; 0 is fixed.
        cv: f64,
    },
    /// Of two exponentials one, with balanced means.
    Hyperexponential {
        /// The mean.
        mean: Duration,
        /// The coefficient of variation, at least 1.
        cv: f64,
    },
    /// Bounded Pareto: density proportional to x^(−alpha−1) between two times.
    BoundedPareto {
        /// The tail's exponent.
        alpha: f64,
        /// The least.
        least: Duration,
        /// The most.
        most: Duration,
    },
    /// One of these times, each as likely as the others.
    Empirical(Arc<[Duration]>),
}

impl Distribution {
    /// Its mean, in seconds.
    pub fn mean(&self) -> f64 {
        self.moment(1)
    }

    /// Its second moment, in square seconds.
    pub fn second_moment(&self) -> f64 {
        self.moment(2)
    }

    /// The mean of the lesser of it and `most`, in seconds. (Exact where clients think that way; else the
    /// plain mean.)
    pub fn mean_at_most(&self, most: Option<Duration>) -> f64 {
        match (self, most) {
            (Self::Exponential { mean }, Some(most)) if !mean.is_zero() => {
                self.mean() * -libm::expm1(-(most.as_secs_f64() / mean.as_secs_f64()))
            }
            _ => self.mean(),
        }
    }

    fn moment(&self, order: u8) -> f64 {
        let power = |seconds: f64| libm::pow(seconds, f64::from(order));
        // The second moment over the squared mean.
        let spread = |mean: &Duration, cv: f64| {
            power(mean.as_secs_f64()) * if order == 2 { 1.0 + cv * cv } else { 1.0 }
        };
        match self {
            Self::Fixed(time) => power(time.as_secs_f64()),
            Self::Exponential { mean } => spread(mean, 1.0),
            Self::Lognormal { mean, cv } | Self::Hyperexponential { mean, cv } => spread(mean, *cv),
            Self::Uniform { least, most } => {
                let (least, most) = (least.as_secs_f64(), most.as_secs_f64());
                match order {
                    1 => (least + most) / 2.0,
                    _ => (least * least + least * most + most * most) / 3.0,
                }
            }
            Self::BoundedPareto { alpha, least, most } => {
                let (least, most, order) = (least.as_secs_f64(), most.as_secs_f64(), f64::from(order));
                let scale = alpha * libm::pow(least, *alpha) / (1.0 - libm::pow(least / most, *alpha));
                if (alpha - order).abs() < 1e-9 {
                    return scale * libm::log(most / least);
                }
                let exponent = order - alpha;
                scale * (libm::pow(most, exponent) - libm::pow(least, exponent)) / exponent
            }
            Self::Empirical(times) => {
                times.iter().map(|time| power(time.as_secs_f64())).sum::<f64>() / times.len().max(1) as f64
            }
        }
    }

    /// What is wrong with its parameters.
    pub fn fault(&self) -> Option<&'static str> {
        match self {
            Self::Lognormal { cv, .. } if !(cv.is_finite() && *cv >= 0.0) => {
                Some("a coefficient of variation must be a number from 0")
            }
            Self::Hyperexponential { cv, .. } if !(cv.is_finite() && *cv >= 1.0) => {
                Some("a hyperexponential's coefficient of variation is at least 1")
            }
            Self::Lognormal { mean, .. } if mean.is_zero() => Some("a lognormal's mean must be above 0"),
            Self::Uniform { least, most } if least > most => Some("the least is more than the most"),
            Self::BoundedPareto { alpha, .. } if !(alpha.is_finite() && *alpha > 0.0) => {
                Some("alpha must be a number above 0")
            }
            Self::BoundedPareto { least, most, .. } if least.is_zero() || least >= most => {
                Some("a bounded Pareto's least must be above 0 and below the most")
            }
            Self::Empirical(times) if times.is_empty() => Some("there are no times to draw from"),
            _ => None,
        }
    }

    /// Ready to be drawn from.
    pub(crate) fn sampler(&self) -> Sampler {
        let nanos = |time: &Duration| time.as_nanos() as f64;
        match self {
            Self::Fixed(time) => Sampler::Fixed(nanos(time)),
            Self::Exponential { mean } => Sampler::Exponential(nanos(mean)),
            Self::Uniform { least, most } => {
                Sampler::Uniform { least: nanos(least), range: nanos(most) - nanos(least) }
            }
            Self::Lognormal { mean, cv } => {
                let variance = libm::log1p(cv * cv);
                Sampler::Lognormal {
                    location: libm::log(nanos(mean)) - variance / 2.0,
                    scale: libm::sqrt(variance),
                }
            }
            Self::Hyperexponential { mean, cv } => {
                let square = cv * cv;
                let first = f64::midpoint(1.0, libm::sqrt((square - 1.0) / (square + 1.0)));
                Sampler::Hyperexponential {
                    first,
                    means: [nanos(mean) / (2.0 * first), nanos(mean) / (2.0 * (1.0 - first))],
                }
            }
            Self::BoundedPareto { alpha, least, most } => Sampler::BoundedPareto {
                least: nanos(least),
                cut: 1.0 - libm::pow(nanos(least) / nanos(most), *alpha),
                exponent: -1.0 / alpha,
            },
            Self::Empirical(times) => Sampler::Empirical(Arc::clone(times)),
        }
    }
}

/// A distribution whose constants are computed.
#[derive(Clone, Debug)]
pub(crate) enum Sampler {
    Fixed(f64),
    Exponential(f64),
    Uniform { least: f64, range: f64 },
    Lognormal { location: f64, scale: f64 },
    Hyperexponential { first: f64, means: [f64; 2] },
    BoundedPareto { least: f64, cut: f64, exponent: f64 },
    Empirical(Arc<[Duration]>),
}

impl Sampler {
    /// A time, in nanoseconds.
    pub(crate) fn sample(&self, chance: &mut Chance) -> u64 {
        let nanos = match self {
            Self::Fixed(time) => *time,
            Self::Exponential(mean) => mean * chance.exponential(),
            Self::Uniform { least, range } => least + range * chance.unit(),
            Self::Lognormal { location, scale } => libm::exp(location + scale * chance.normal()),
            Self::Hyperexponential { first, means } => {
                let mean = if chance.unit() < *first { means[0] } else { means[1] };
                mean * chance.exponential()
            }
            Self::BoundedPareto { least, cut, exponent } => {
                least * libm::pow(1.0 - chance.unit() * cut, *exponent)
            }
            Self::Empirical(times) => {
                let at = (chance.unit() * times.len() as f64) as usize;
                times.get(at).map_or(0.0, |time| time.as_nanos() as f64)
            }
        };
        // Saturates: no time is longer than there are nanoseconds.
        libm::round(nanos) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chance::Purpose;

    fn ms(count: u64) -> Duration {
        Duration::from_millis(count)
    }

    #[test]
    fn samples_have_the_mean_and_the_second_moment_that_are_said() {
        let all = [
            Distribution::Fixed(ms(3)),
            Distribution::Exponential { mean: ms(3) },
            Distribution::Uniform { least: ms(1), most: ms(5) },
            Distribution::Lognormal { mean: ms(3), cv: 0.8 },
            Distribution::Hyperexponential { mean: ms(3), cv: 1.5 },
            Distribution::BoundedPareto { alpha: 1.1, least: ms(1), most: ms(50) },
            Distribution::BoundedPareto { alpha: 2.0, least: ms(1), most: ms(50) },
            Distribution::Empirical([ms(1), ms(2), ms(6)].into()),
        ];
        for distribution in all {
            let mut chance = Chance::new(3, Purpose::ServiceTimes, 0);
            let sampler = distribution.sampler();
            let (mut sum, mut squares) = (0.0, 0.0);
            let count = 200_000;
            for _ in 0..count {
                let seconds = sampler.sample(&mut chance) as f64 / 1e9;
                sum += seconds;
                squares += seconds * seconds;
            }
            let (mean, second) = (sum / f64::from(count), squares / f64::from(count));
            assert!((mean / distribution.mean() - 1.0).abs() < 0.02, "{distribution:?}: {mean}");
            assert!((second / distribution.second_moment() - 1.0).abs() < 0.06, "{distribution:?}: {second}");
            assert_eq!(distribution.fault(), None);
        }
    }

    #[test]
    fn impossible_parameters_are_said() {
        let wrong = [
            Distribution::Lognormal { mean: ms(1), cv: f64::NAN },
            Distribution::Lognormal { mean: ms(0), cv: 1.0 },
            Distribution::Hyperexponential { mean: ms(1), cv: 0.5 },
            Distribution::Uniform { least: ms(2), most: ms(1) },
            Distribution::BoundedPareto { alpha: 0.0, least: ms(1), most: ms(2) },
            Distribution::BoundedPareto { alpha: 1.0, least: ms(0), most: ms(2) },
            Distribution::Empirical([].into()),
        ];
        for distribution in wrong {
            assert!(distribution.fault().is_some(), "{distribution:?}");
        }
    }
}
