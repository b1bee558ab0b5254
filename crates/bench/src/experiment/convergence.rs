//! How soon an estimate is where it stays.
//!
//! *Gatekeeper* (WWW 2004, section 3.1): "11 out of the 13 servlets converge to within 90 percent of their
//! steady state values in under 50 seconds". Its text doesn't say what the steady state is; here it is the
//! mean of the estimate over the last [`LAST`] of the time. An estimate has converged when it first is
//! within [`WITHIN`] of that. A moving average of few executions goes on moving: so it is told besides from
//! when on it stays there.

use super::learned::Point;

/// An estimate is there within this part of the steady value.
pub(super) const WITHIN: f64 = 0.1;
/// The steady value is the mean over this last part of the time.
pub(super) const LAST: f64 = 0.25;
/// The paper's bound, in seconds.
pub(super) const SOON: f64 = 50.0;

/// When an estimate was where.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Converged {
    /// The steady value, in seconds of work.
    pub(super) steady: f64,
    /// When it was first within, if ever.
    pub(super) first: Option<When>,
    /// From when on it stayed within, if it did.
    pub(super) stays: Option<When>,
}

/// A time, and what had been executed by then.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct When {
    /// Seconds since the cell began.
    pub(super) seconds: f64,
    /// Executions that the estimate was learned from.
    pub(super) samples: u64,
}

/// What a curve says; `None` where nothing was learned before the last part of it.
pub(super) fn converged(curve: &[Point]) -> Option<Converged> {
    let end = curve.last()?.0;
    // What isn't learned from anything isn't an estimate of this type's.
    let known: Vec<Point> = curve.iter().copied().filter(|point| point.2 > 0).collect();
    let from = end * (1.0 - LAST);
    let last: Vec<f64> = known.iter().filter(|point| point.0 >= from).map(|point| point.1).collect();
    if known.first()?.0 >= from || last.is_empty() {
        return None;
    }
    let steady = crate::stats::mean(&last);
    let is_within = |point: &Point| (point.1 - steady).abs() <= WITHIN * steady;
    let when = |point: &Point| When { seconds: point.0, samples: point.2 };
    let after = known.iter().rposition(|point| !is_within(point)).map_or(0, |outside| outside + 1);
    Some(Converged {
        steady,
        first: known.iter().find(|point| is_within(point)).map(when),
        stays: known.get(after).map(when),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One point a second with ten executions each.
    fn curve(estimates: &[f64]) -> Vec<Point> {
        let point = |(index, &estimate): (usize, &f64)| Point(index as f64, estimate, 10 * index as u64);
        estimates.iter().enumerate().map(point).collect()
    }

    fn when(seconds: f64) -> Option<When> {
        Some(When { seconds, samples: 10 * seconds as u64 })
    }

    #[test]
    fn it_is_told_when_an_estimate_is_first_there_and_from_when_on_it_stays() {
        let found = converged(&curve(&[9.0, 5.0, 1.05, 1.5, 0.95, 1.0, 1.0, 1.0, 1.0])).unwrap();
        assert!((found.steady - 1.0).abs() < 1e-9);
        assert_eq!((found.first, found.stays), (when(2.0), when(4.0)));
    }

    #[test]
    fn what_never_stays_has_no_such_time() {
        let found = converged(&curve(&[0.0, 1.0, 1.5, 0.5, 1.5, 0.5, 0.5, 1.5])).unwrap();
        assert_eq!((found.first, found.stays), (when(1.0), None));
    }

    #[test]
    fn an_estimate_that_nothing_was_learned_for_does_not_count() {
        // The first point has no executions, and would be within.
        let found = converged(&curve(&[1.0, 3.0, 1.0, 1.0, 1.0, 1.0])).unwrap();
        assert_eq!(found.first, when(2.0));
        let mut late = curve(&[1.0; 8]);
        for point in &mut late[..7] {
            point.2 = 0;
        }
        assert_eq!((converged(&late), converged(&[])), (None, None));
    }
}
