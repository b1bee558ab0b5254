//! Curves over time: the mean over the runs of what each tick showed, and the lowest and highest of them.

use sim::plot::Curve;

use crate::digest::Moment;
use crate::results::Results;

/// The curve of a variant.
pub(crate) fn curve(results: &Results, variant: &str, of: fn(&Moment) -> f64) -> Curve {
    let mut curve = Curve::default();
    let Some(index) = results.variant(variant) else { return curve };
    let runs: Vec<&[Moment]> = results.moments(index).collect();
    for (tick, moment) in runs.first().into_iter().copied().flatten().enumerate() {
        let values = runs.iter().filter_map(|run| run.get(tick)).map(of).filter(|value| value.is_finite());
        let (mut sum, mut count, mut low, mut high) = (0.0, 0.0, f64::INFINITY, f64::NEG_INFINITY);
        for value in values {
            sum += value;
            count += 1.0;
            low = low.min(value);
            high = high.max(value);
        }
        if count > 0.0 {
            curve.points.push((moment.at, sum / count));
            curve.band.push((moment.at, low, high));
        }
    }
    curve
}

/// Of all runs of a variant, between two instants: the sum of this.
pub(crate) fn sum(results: &Results, variant: usize, (from, to): (f64, f64), of: fn(&Moment) -> f64) -> f64 {
    let within = |moment: &&Moment| from < moment.at && moment.at <= to;
    let values = results.moments(variant).flat_map(|run| run.iter().filter(within).map(of));
    values.filter(|value| value.is_finite()).sum()
}

/// The mean over the ticks that have a value, and the lowest and highest value.
pub(crate) fn mean(
    results: &Results,
    variant: usize,
    (from, to): (f64, f64),
    of: fn(&Moment) -> f64,
) -> (f64, f64, f64) {
    let within = |moment: &&Moment| from < moment.at && moment.at <= to;
    let values: Vec<f64> = results
        .moments(variant)
        .flat_map(|run| run.iter().filter(within).map(of))
        .filter(|value| value.is_finite())
        .collect();
    let low = values.iter().copied().fold(f64::INFINITY, f64::min);
    let high = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    (values.iter().sum::<f64>() / values.len() as f64, low, high)
}
