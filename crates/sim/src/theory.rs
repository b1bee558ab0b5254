//! What queueing theory says of the systems that are simulated: formulas to check against.
//!
//! Times may be in any unit, as long as rates are in its inverse. λ is the arrival rate, S the service
//! time, ρ = λE\[S\] the utilization, W the wait, T = W + S the response time; arrivals are Poisson and
//! there is one server unless said otherwise. Beyond saturation the answer is infinite.
//!
//! | formula | source |
//! |---|---|
//! | M/M/c | Erlang (1917) |
//! | FIFO | Pollaczek (1930), Khinchine (1932) |
//! | classes by priority, not interrupted | Cobham (1954); shortest first orders classes by their means |
//! | classes by priority, interrupted and resumed | Miller (1960) |
//! | shortest first | Phipps (1956) |
//! | shortest first by estimates | Mitzenmacher (2020) |
//! | shortest remaining | Schrage and Miller (1966) |
//! | processor sharing | Kleinrock (1967); depends on E\[S\] alone |
//! | conservation | Kleinrock (1965) |
//! | by size, beyond saturation | Bansal and Harchol-Balter (2001) |
//! | closed loops | Little (1961); mean value analysis by Reiser and Lavenberg (1980) |

mod by_size;

pub use by_size::BySize;

/// Points of a numerical integral.
const POINTS: usize = 40_001;

/// Mean response time of M/M/1.
pub fn mm1(rate: f64, service_rate: f64) -> f64 {
    if rate < service_rate { 1.0 / (service_rate - rate) } else { f64::INFINITY }
}

/// Mean wait of M/M/c, all servers at the same service rate.
pub fn mmc(servers: u32, rate: f64, service_rate: f64) -> f64 {
    let count = f64::from(servers);
    let offered = rate / service_rate;
    if offered >= count {
        return f64::INFINITY;
    }
    // Erlang B by its recursion, and C from it.
    let blocked = (1..=servers).fold(1.0, |blocked, server| {
        let carried = offered * blocked;
        carried / (f64::from(server) + carried)
    });
    let waits = blocked / (1.0 - offered / count * (1.0 - blocked));
    waits / (count * service_rate - rate)
}

/// Mean wait under FIFO: λE\[S²\] / 2(1 − ρ).
pub fn fifo_wait(rate: f64, mean: f64, second_moment: f64) -> f64 {
    over(rate * second_moment / 2.0, 1.0 - rate * mean)
}

/// The second moment of that wait, from the third of the service time: 2W² + λE\[S³\] / 3(1 − ρ).
pub fn fifo_wait_second_moment(rate: f64, mean: f64, second: f64, third: f64) -> f64 {
    let wait = fifo_wait(rate, mean, second);
    2.0 * wait * wait + over(rate * third / 3.0, 1.0 - rate * mean)
}

/// Mean response time under processor sharing of a request that takes `service_time` alone.
pub fn sharing(rate: f64, mean: f64, service_time: f64) -> f64 {
    over(service_time, 1.0 - rate * mean)
}

/// Requests that are treated alike.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Class {
    /// How many arrive per time.
    pub rate: f64,
    /// Their mean service time.
    pub mean: f64,
    /// Its second moment.
    pub second_moment: f64,
}

/// The mean wait of each class where the first goes first and nobody is interrupted: W0 / (1 − σ before)(1
/// − σ), σ being the utilization by it and those before it.
pub fn priority_waits(classes: &[Class]) -> Vec<f64> {
    let residual = residual(classes);
    let mut utilization = 0.0;
    let wait = |class: &Class| {
        let before = 1.0 - utilization;
        utilization += class.rate * class.mean;
        over(residual, before * (1.0 - utilization).max(0.0))
    };
    classes.iter().map(wait).collect()
}

/// The mean response time of each class where the first interrupts the second, both the third and so on, and
/// what was interrupted goes on later: S / (1 − σ before) + W0 / (1 − σ before)(1 − σ), σ being the
/// utilization by it and those before it, W0 what is left of those.
pub fn preemptive_responses(classes: &[Class]) -> Vec<f64> {
    let (mut utilization, mut left) = (0.0, 0.0);
    let response = |class: &Class| {
        let before: f64 = 1.0 - utilization;
        utilization += class.rate * class.mean;
        left += residual(core::slice::from_ref(class));
        over(class.mean, before) + over(left, before.max(0.0) * (1.0 - utilization).max(0.0))
    };
    classes.iter().map(response).collect()
}

/// What Σ ρᵢWᵢ is under every order that is work-conserving, doesn't interrupt, and doesn't look at sizes
/// within a class: ρW0 / (1 − ρ).
pub fn conserved(classes: &[Class]) -> f64 {
    let utilization: f64 = classes.iter().map(|class| class.rate * class.mean).sum();
    over(utilization * residual(classes), 1.0 - utilization)
}

/// W0: what is left, on average, of the request in service.
fn residual(classes: &[Class]) -> f64 {
    classes.iter().map(|class| class.rate * class.second_moment).sum::<f64>() / 2.0
}

fn over(dividend: f64, divisor: f64) -> f64 {
    if divisor > 0.0 { dividend / divisor } else { f64::INFINITY }
}

/// Mean response times of one continuous distribution of service times under several orders.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SizeBased {
    /// In order of arrival.
    pub fifo: f64,
    /// Processor sharing.
    pub sharing: f64,
    /// The shortest first, not interrupted.
    pub shortest_first: f64,
    /// The one with the least remaining at any instant.
    pub shortest_remaining: f64,
}

/// The mean response times where service times have this density on [`least`, `most`] (any multiple of it
/// will do).
pub fn size_based(rate: f64, least: f64, most: f64, density: impl Fn(f64) -> f64) -> SizeBased {
    let step = libm::log(most / least) / (POINTS - 1) as f64;
    let sizes: Vec<f64> = (0..POINTS).map(|point| least * libm::exp(step * point as f64)).collect();
    let densities: Vec<f64> = sizes.iter().map(|&size| density(size)).collect();
    let total = cumulative(&sizes, |at| densities[at])[POINTS - 1];
    let weight = |at: usize| densities[at] / total;
    let below = cumulative(&sizes, weight);
    let first = cumulative(&sizes, |at| sizes[at] * weight(at));
    let second = cumulative(&sizes, |at| sizes[at] * sizes[at] * weight(at));
    let (mean, second_moment) = (first[POINTS - 1], second[POINTS - 1]);
    let idle = |at: usize| 1.0 - rate * first[at];
    // For SRPT: the time in service, while only shorter ones interrupt.
    let residence = cumulative(&sizes, |at| 1.0 / idle(at));
    let wait_shortest = |at: usize| rate * second_moment / 2.0 / (idle(at) * idle(at));
    let remaining = |at: usize| {
        let moment = second[at] + sizes[at] * sizes[at] * (1.0 - below[at]);
        rate * moment / 2.0 / (idle(at) * idle(at)) + least + residence[at]
    };
    SizeBased {
        fifo: mean + fifo_wait(rate, mean, second_moment),
        sharing: sharing(rate, mean, mean),
        shortest_first: mean + cumulative(&sizes, |at| weight(at) * wait_shortest(at))[POINTS - 1],
        shortest_remaining: cumulative(&sizes, |at| weight(at) * remaining(at))[POINTS - 1],
    }
}

/// The integral from the first point to each, by trapezoids.
fn cumulative(points: &[f64], value: impl Fn(usize) -> f64) -> Vec<f64> {
    let mut sum = 0.0;
    let mut before = value(0);
    let mut sums = vec![0.0; points.len()];
    for at in 1..points.len() {
        let here = value(at);
        sum += f64::midpoint(here, before) * (points[at] - points[at - 1]);
        sums[at] = sum;
        before = here;
    }
    sums
}

/// Mean wait under shortest first by estimates, where the logarithm of the service time is normal with
/// deviation `spread`, and that of the estimate differs from it by an independent normal error of deviation
/// `error`.
///
/// The load of those with a lesser estimate is ρΦ(z − spread²/√(spread² + error²)) at the estimate's
/// standard normal quantile z, so that W = λE\[S²\]/2 · ∫ φ(z) / (1 − that)² dz.
pub fn shortest_by_estimate_wait(rate: f64, mean: f64, spread: f64, error: f64) -> f64 {
    let second_moment = mean * mean * libm::exp(spread * spread);
    let shift = spread * spread / libm::hypot(spread, error);
    let quantiles: Vec<f64> =
        (0..POINTS).map(|point| -8.0 + 16.0 * point as f64 / (POINTS - 1) as f64).collect();
    let integral = cumulative(&quantiles, |at| {
        let z = quantiles[at];
        let idle = 1.0 - rate * mean * normal(z - shift);
        libm::exp(-z * z / 2.0) / libm::sqrt(core::f64::consts::TAU) / (idle * idle)
    });
    rate * second_moment / 2.0 * integral[POINTS - 1]
}

/// The standard normal distribution function.
pub fn normal(z: f64) -> f64 {
    libm::erfc(-z / core::f64::consts::SQRT_2) / 2.0
}

/// Throughput and mean response time of a closed loop: so many clients that think, one server with
/// exponential service times in order of arrival (or any that are shared). Exact, by mean value analysis.
pub fn closed(clients: u32, think: f64, mean: f64) -> (f64, f64) {
    (1..=clients).fold((0.0, 0.0), |(throughput, response), count| {
        let response = mean * (1.0 + throughput * response);
        (f64::from(count) / (response + think), response)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn close(value: f64, expected: f64) {
        assert!((value / expected - 1.0).abs() < 2e-4, "{value} instead of {expected}");
    }

    /// Utilization; FIFO, sharing, shortest first, shortest remaining: by independent programs.
    type Golden = [(f64, [f64; 4]); 3];
    const EXPONENTIAL: Golden = [
        (0.5, [2.0, 2.0, 1.71269, 1.42537]),
        (0.7, [3.33334, 3.33334, 2.3122, 1.87457]),
        (0.9, [10.00009, 10.0001, 4.19694, 3.55215]),
    ];
    const HYPEREXPONENTIAL: Golden = [
        (0.5, [6.50002, 2.00001, 4.30845, 1.40082]),
        (0.7, [13.83341, 3.33335, 6.19208, 1.78011]),
        (0.9, [50.5009, 10.00018, 9.29849, 3.00342]),
    ];
    const PARETO: Golden = [
        (0.5, [373.9873, 13.2422, 222.2191, 9.2201]),
        (0.7, [863.8089, 22.0703, 334.5927, 11.5426]),
        (0.9, [3312.9164, 66.2108, 476.9377, 17.9577]),
    ];

    fn check(golden: Golden, mean: f64, least: f64, most: f64, density: impl Fn(f64) -> f64) {
        for (utilization, [fifo, shared, shortest, remaining]) in golden {
            let found = size_based(utilization / mean, least, most, &density);
            close(found.fifo, fifo);
            close(found.sharing, shared);
            close(found.shortest_first, shortest);
            close(found.shortest_remaining, remaining);
        }
    }

    #[test]
    fn the_formulas_by_size_give_what_independent_programs_gave() {
        check(EXPONENTIAL, 1.0, 1e-6, 60.0, |x| libm::exp(-x));
        let first = f64::midpoint(1.0, libm::sqrt(9.0 / 11.0));
        let rates = [2.0 * first, 2.0 * (1.0 - first)];
        check(HYPEREXPONENTIAL, 1.0, 1e-6, 400.0, |x| {
            first * rates[0] * libm::exp(-rates[0] * x) + (1.0 - first) * rates[1] * libm::exp(-rates[1] * x)
        });
        check(PARETO, 6.6211, 1.0, 1e4, |x| libm::pow(x, -2.1));
    }

    #[test]
    fn exponential_service_times_are_a_special_case() {
        close(mm1(0.7, 1.0), 10.0 / 3.0);
        close(mmc(1, 0.7, 1.0), 0.7 / 0.3);
        // Erlang's tables: C(2, 1) = 1/3.
        close(mmc(2, 1.0, 1.0), 1.0 / 3.0);
        close(fifo_wait(0.7, 1.0, 2.0), 0.7 / 0.3);
        // The wait of M/M/1 is 0 or exponential: its second moment is 2ρ/(1 − ρ)².
        close(fifo_wait_second_moment(0.7, 1.0, 2.0, 6.0), 1.4 / 0.09);
    }

    #[test]
    fn perfect_estimates_are_shortest_first_and_useless_ones_fifo() {
        let (rate, spread) = (0.8, 1.0);
        let mean = libm::exp(0.5);
        let density = |x: f64| libm::exp(-libm::log(x) * libm::log(x) / 2.0) / x;
        let exact = size_based(rate / mean, 1e-4, 1e4, density);
        close(shortest_by_estimate_wait(rate / mean, mean, spread, 0.0) + mean, exact.shortest_first);
        close(shortest_by_estimate_wait(rate / mean, mean, spread, 1e6) + mean, {
            // Not FIFO: an order at random among those that wait has its mean, the squared term averages
            // 1/(1 − ρu)².
            let second_moment = mean * mean * libm::exp(1.0);
            mean + rate / mean * second_moment / 2.0 / (1.0 - rate)
        });
    }

    #[test]
    fn whatever_the_priorities_the_sum_of_load_times_wait_is_conserved() {
        let class = |rate, mean| Class { rate, mean, second_moment: 2.0 * mean * mean };
        let classes = [class(0.3, 1.0), class(0.02, 20.0)];
        let sum = |order: &[Class]| {
            let waits = priority_waits(order);
            order.iter().zip(waits).map(|(class, wait)| class.rate * class.mean * wait).sum::<f64>()
        };
        close(sum(&classes), conserved(&classes));
        close(sum(&[classes[1], classes[0]]), conserved(&classes));
    }

    #[test]
    fn beyond_saturation_waits_are_infinite() {
        assert!(mm1(2.0, 1.0).is_infinite() && mmc(2, 3.0, 1.0).is_infinite());
        assert!(fifo_wait(1.0, 1.0, 2.0).is_infinite());
        let classes = [1.0, 1.0].map(|mean| Class { rate: 0.7, mean, second_moment: 1.0 });
        let waits = priority_waits(&classes);
        assert!(waits[0].is_finite() && waits[1].is_infinite());
    }

    #[test]
    fn a_closed_loop_obeys_littles_law_and_saturates() {
        let (throughput, response) = closed(50, 7.0, 0.1);
        close(throughput * (response + 7.0), 50.0);
        let (throughput, _) = closed(300, 7.0, 0.1);
        close(throughput, 10.0);
    }
}
