//! How much of the variation of a path's service times a parameter explains: the analysis of variance.
//!
//! Requests fall into groups: one for each value that [`ENOUGH`] have, and one of all others. What is
//! explained is the part of the variance that lies between the groups' means, corrected for what chance
//! explains (the adjusted R²): `1 − (1 − between/total)(n − 1)/(n − groups)`. A single odd time makes at most
//! 1 in [`ENOUGH`] of it.
//!
//! Times are judged as they are and by their logarithms, and the larger part counts. As they are they show a
//! rare value that makes much of the work; logarithms show values that differ where one of them has a heavy
//! tail.

use std::time::Duration;

/// The fewest requests of a value whose mean is believed.
pub(super) const ENOUGH: f64 = 16.0;

/// Service times, as they are and by their logarithms.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Spread {
    count: f64,
    times: Moments,
    logs: Moments,
}

#[derive(Clone, Copy, Debug, Default)]
struct Moments {
    sum: f64,
    squares: f64,
}

impl Moments {
    fn add(&mut self, value: f64) {
        self.sum += value;
        self.squares += value * value;
    }

    fn take_off(&mut self, other: Self) {
        self.sum -= other.sum;
        self.squares -= other.squares;
    }
}

impl Spread {
    /// One more request has taken so long.
    pub(super) fn add(&mut self, time: Duration) {
        let millis = time.as_secs_f64() * 1e3;
        self.count += 1.0;
        self.times.add(millis);
        self.logs.add(millis.max(1e-3).ln());
    }

    /// How many requests.
    pub(super) fn count(&self) -> f64 {
        self.count
    }

    fn without(mut self, other: &Self) -> Self {
        self.count -= other.count;
        self.times.take_off(other.times);
        self.logs.take_off(other.logs);
        self
    }
}

/// Which part of the variance of `all` lies between `values` whose means differ by this factor or more.
/// `None`: fewer than two of them have enough requests.
pub(super) fn explained<'a>(
    all: &Spread,
    values: impl Iterator<Item = &'a Spread>,
    factor: f64,
) -> Option<f64> {
    let mut groups: Vec<Spread> = values.filter(|value| value.count >= ENOUGH).copied().collect();
    if groups.len() < 2 {
        return None;
    }
    let means = |of: fn(&Spread) -> Moments| {
        let means = groups.iter().map(move |group| of(group).sum / group.count);
        means
            .fold((f64::INFINITY, f64::NEG_INFINITY), |(least, most), mean| (least.min(mean), most.max(mean)))
    };
    let (times, logs) = (means(|group| group.times), means(|group| group.logs));
    let (by_time, by_log) = (times.1 >= factor * times.0, logs.1 - logs.0 >= factor.ln());
    let rest = groups.iter().fold(*all, Spread::without);
    groups.extend(Some(rest).filter(|rest| rest.count >= 1.0));
    let part = |is_apart: bool, of: fn(&Spread) -> Moments| {
        if is_apart { adjusted(all, &groups, of) } else { 0.0 }
    };
    Some(part(by_time, |group| group.times).max(part(by_log, |group| group.logs)))
}

fn adjusted(all: &Spread, groups: &[Spread], of: fn(&Spread) -> Moments) -> f64 {
    let square = |group: &Spread| of(group).sum * of(group).sum / group.count;
    let total = of(all).squares - square(all);
    let between = groups.iter().map(square).sum::<f64>() - square(all);
    let free = all.count - groups.len() as f64;
    if total <= 0.0 || free < 1.0 {
        return 0.0;
    }
    1.0 - (1.0 - between / total) * (all.count - 1.0) / free
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(times: &[(f64, usize)]) -> Spread {
        let mut spread = Spread::default();
        for &(millis, count) in times {
            (0..count).for_each(|_| spread.add(Duration::from_secs_f64(millis / 1e3)));
        }
        spread
    }

    fn part(values: &[&[(f64, usize)]]) -> Option<f64> {
        let all = of(&values.concat());
        let values: Vec<Spread> = values.iter().map(|times| of(times)).collect();
        explained(&all, values.iter(), 2.0)
    }

    #[test]
    fn two_values_with_two_times_explain_all_and_values_that_are_alike_nothing() {
        assert!(part(&[&[(5.0, 100)], &[(50.0, 20)]]).unwrap() > 0.999);
        let alike = part(&[&[(5.0, 50), (50.0, 50)], &[(5.0, 50), (50.0, 50)]]).unwrap();
        assert!(alike.abs() < 0.01, "{alike}");
    }

    #[test]
    fn values_that_few_requests_have_say_nothing() {
        assert_eq!(part(&[&[(5.0, 100)], &[(50.0, 15)]]), None);
        assert!(part(&[&[(5.0, 100)], &[(50.0, 16)]]).is_some());
    }

    #[test]
    fn a_rare_costly_value_shows_in_the_times_and_a_heavy_tail_hides_nothing_from_the_logarithms() {
        // Two in a hundred, that vary as an exponential time does, take half of the work.
        let cheap = [(1.0, 400), (4.0, 300), (12.0, 300)];
        assert!(part(&[&cheap, &[(50.0, 8), (150.0, 6), (500.0, 6)]]).unwrap() > 0.25);
        let tail = [(20.0, 90), (3_000.0, 10)];
        assert!(part(&[&[(1.0, 100)], &tail]).unwrap() > 0.25);
    }

    #[test]
    fn one_odd_time_makes_no_parameter() {
        let part = part(&[&[(5.0, 48)], &[(5.0, 15), (60_000.0, 1)]]).unwrap();
        assert!(part < 0.1, "{part}");
    }
}
