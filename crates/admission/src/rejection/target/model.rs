//! The model's own answer: how many may be present so that the mean response time is what it should be.
//!
//! The service is taken for an M/GI/1 processor-sharing queue, as in Yaksha (section III), but with a bound
//! K on the requests present instead of a probability of admission. With a bound, too, it depends on the
//! mean of the service times alone (Cohen, "The multiple phase service network with generalized processor
//! sharing", Acta Informatica 12, 1979): it is the birth-and-death chain M/M/1/K. With ρ = λ E\[X\],
//!
//! ```text
//! π₀ = (1 − ρ)/(1 − ρ^(K+1))      L = ρ/(1 − ρ) − (K+1) ρ^(K+1)/(1 − ρ^(K+1))      T/E[X] = L/(1 − π₀)
//! ```
//!
//! and K is where T/E\[X\] is the target's. It is between r = T_ref/E\[X\] (ρ → ∞: as many are present as
//! may be) and 2 r − 1 at ρ = 1, and without bound below ρ = 1 − 1/r, where all can be let in: Yaksha's p*
//! = (1 − E\[X\]/T_ref)/(λ E\[X\]) is 1 there. The service idles for π₀ of the time only: 3 % at ρ = 1.2
//! and r = 7.5, where random refusal idles for 1/r = 13 % whatever the load.

/// Where all can be let in, still at most so many times as many as the target's: more is no burst any more.
const MOST: f64 = 16.0;
/// This near to 1, ρ is 1.
const NEAR: f64 = 1e-3;
/// Halvings; 2⁻²⁴ of 16 r is nothing.
const HALVINGS: u32 = 24;

/// How many may be present at this utilization offered, so that a response takes `times` as long as a
/// service.
pub(crate) fn bound(offered: f64, times: f64) -> f64 {
    let (mut low, mut high) = (1.0, (MOST * times).max(1.0));
    if response(offered, high) <= times {
        return high;
    }
    for _ in 0..HALVINGS {
        let middle = f64::midpoint(low, high);
        if response(offered, middle) < times {
            low = middle;
        } else {
            high = middle;
        }
    }
    low
}

/// How many have to be allowed so that the service, offered at least what it can do, idles for no more than
/// this part of the time: π₀ = (ρ − 1)/(ρ^(K+1) − 1).
pub(crate) fn busy(offered: f64, idle: f64) -> f64 {
    if offered < 1.0 + NEAR {
        return 1.0 / idle - 1.0;
    }
    libm::log1p((offered - 1.0) / idle) / libm::log(offered) - 1.0
}

/// T/E\[X\] with at most so many present.
fn response(offered: f64, bound: f64) -> f64 {
    if (offered - 1.0).abs() < NEAR {
        return f64::midpoint(bound, 1.0);
    }
    // Beyond 1, places and requests change their roles; so the power never overflows.
    let (ratio, turned) = if offered > 1.0 { (1.0 / offered, true) } else { (offered, false) };
    let power = libm::pow(ratio, bound);
    let rest = 1.0 - power * ratio;
    let mean = ratio / (1.0 - ratio) - (bound + 1.0) * power * ratio / rest;
    let (present, idle) =
        if turned { (bound - mean, (1.0 - ratio) * power / rest) } else { (mean, (1.0 - ratio) / rest) };
    present / (1.0 - idle).max(1e-12)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The response time, computed from the Markov chain itself.
    fn by_the_chain(offered: f64, bound: u32) -> f64 {
        let weights: std::vec::Vec<f64> = (0..=bound).map(|n| offered.powi(n as i32)).collect();
        let total: f64 = weights.iter().sum();
        let present: f64 =
            weights.iter().enumerate().map(|(n, weight)| n as f64 * weight).sum::<f64>() / total;
        present / (1.0 - weights[0] / total)
    }

    #[test]
    fn the_response_is_that_of_the_chain() {
        for offered in [0.3, 0.9, 1.0, 1.2, 5.0] {
            for bound in [1, 2, 7, 30] {
                let (formula, chain) = (response(offered, f64::from(bound)), by_the_chain(offered, bound));
                assert!((formula / chain - 1.0).abs() < 1e-3, "{offered} {bound}: {formula} {chain}");
            }
        }
    }

    #[test]
    fn the_bound_gives_the_target() {
        for (offered, expected) in [(1.0, 14.0), (1.2, 10.73), (2.0, 8.5), (10.0, 7.61)] {
            let found = bound(offered, 7.5);
            assert!((found - expected).abs() < 0.1, "{offered}: {found}");
        }
    }

    #[test]
    fn where_all_can_be_let_in_all_are() {
        // Below 1 − 1/7.5 = 0.867.
        assert!((bound(0.8, 7.5) - 120.0).abs() < 1e-9);
        assert!(bound(0.95, 7.5) < 30.0);
    }

    #[test]
    fn the_service_is_busy_with_as_many_as_keep_it_so() {
        for (offered, expected) in [(0.5, 9.0), (1.0, 9.0), (1.2, 5.03), (1.5, 3.42), (10.0, 0.96)] {
            let found = busy(offered, 0.1);
            assert!((found - expected).abs() < 0.01, "{offered}: {found}");
        }
    }

    #[test]
    fn extremes_are_numbers() {
        for offered in [0.0, 1e-9, 1e9] {
            for times in [0.0, 0.5, 1e7] {
                let found = bound(offered, times);
                assert!(found.is_finite() && found >= 1.0, "{offered} {times}: {found}");
            }
        }
    }
}
