//! Curves of a schedule, or of an open loop's loads, from second to second: response times, refusals,
//! answers.

use std::time::Duration;

use sim::plot::{Curve, Mark, Panel, Plot, Scale};

use super::Shown;
use super::picture::Picture;
use crate::experiment::cell::Measured;
use crate::experiment::plan::Load;
use crate::experiment::schedule::{self, Moment};
use crate::table::{count, seconds};

/// Points of a curve at most.
const POINTS: usize = 150;
/// Points of an open loop's load at least, and the most seconds of one.
const OF_A_LOAD: (usize, usize) = (20, 5);

/// What is shown of some seconds, of all repetitions together; none if there is nothing to tell.
type Value = fn(&[Moment]) -> Option<f64>;

/// The picture of a form's schedule, if it has one that was measured.
pub(super) fn picture(shown: &Shown) -> Option<(String, Picture)> {
    let form = shown.form();
    let measured: Vec<Vec<&Measured>> =
        form.variants.iter().map(|variant| shown.results.repetitions(variant, Load::Schedule)).collect();
    if form.schedule.is_empty() || measured.iter().all(Vec::is_empty) {
        return None;
    }
    let lasts = schedule::lasts(&form.schedule).as_secs() as usize;
    let width = lasts.div_ceil(POINTS).max(1);
    let begins: Vec<Mark> = schedule::beginnings(&form.schedule).into_iter().skip(1).map(Mark::At).collect();
    let target = shown.plan.workload.site.as_ref().and_then(|site| site.target);
    let level = target.map(|target| Mark::Level(target.0.as_secs_f64()));
    let panel = |title: &str, scale, show, value: Value| {
        let curves = measured.iter().map(|repetitions| curve(repetitions, lasts, width, value)).collect();
        Panel { title: title.to_owned(), scale, show, curves, marks: begins.clone() }
    };
    let mut response = panel("Mean response time of the pages served", Scale::Logarithmic, seconds, response);
    response.marks.extend(level);
    let mut so_far = panel("Pages served so far", Scale::Linear, count, rate);
    so_far.curves.iter_mut().for_each(|curve| add_up(curve, lasts, width));
    let panels = vec![
        response,
        panel("Refused, as a part of all requests", Scale::Linear, |part| format!("{part:.1}"), refused),
        panel("Pages served per second", Scale::Linear, count, rate),
        so_far,
    ];
    let plot = Plot {
        title: format!("{}, second by second", shown.plan.name),
        subtitle: format!(
            "means of {width} s and of {} repetitions; upright: more browsers join",
            shown.repeated()
        ),
        variants: form.variants.clone(),
        marks: None,
        axis: "seconds",
        seconds: lasts as f64,
        panels,
    };
    Some((format!("{}-seconds", shown.plan.name), Picture::new(plot, Vec::new())))
}

/// The picture of an open loop's loads, if they were measured: a panel for each, and of statements two more.
pub(super) fn loads(shown: &Shown) -> Option<(String, Picture)> {
    let (form, origin) = (shown.form(), shown.plan.workload.origin.as_ref());
    let calm = origin.map_or(Duration::ZERO, |origin| origin.calm.0);
    let lasts = (calm + form.warm_up.0 + form.window.0).as_secs() as usize;
    let width = lasts.div_ceil(POINTS).max((lasts / OF_A_LOAD.0).clamp(1, OF_A_LOAD.1));
    let target = origin.and_then(|origin| origin.target);
    let target: Vec<Mark> = target.map(|target| Mark::Level(target.0.as_secs_f64())).into_iter().collect();
    let panels_of = |load: Load| {
        let of = |variant: &String| shown.results.repetitions(variant, load);
        let measured: Vec<Vec<&Measured>> = form.variants.iter().map(of).collect();
        if measured.iter().flatten().all(|measured| measured.moments.is_empty()) {
            return Vec::new();
        }
        let panel = |says: &str, scale, show, value: Value, marks: &[Mark]| {
            let curves = measured.iter().map(|repetitions| curve(repetitions, lasts, width, value)).collect();
            let title = format!("{} from {} s on: {says}", load.label(), calm.as_secs());
            Panel { title, scale, show, curves, marks: marks.to_vec() }
        };
        let mut panels = vec![panel("mean response time", Scale::Logarithmic, seconds, response, &target)];
        if origin.is_none() {
            panels.push(panel("answers per second", Scale::Linear, count, answered, &[]));
            panels.push(panel("waiting or being served", Scale::Linear, count, waiting, &[]));
        }
        panels
    };
    let panels: Vec<Panel> =
        form.overload.iter().flat_map(|&factor| panels_of(Load::Overload(factor))).collect();
    let plot = Plot {
        title: format!("{}, second by second", shown.plan.name),
        subtitle: format!(
            "means of {width} s by arrival, of all that weren't refused; one that isn't answered counts {} s",
            shown.plan.workload.timeout.0.as_secs()
        ),
        variants: form.variants.clone(),
        marks: None,
        axis: "seconds",
        seconds: lasts as f64,
        panels,
    };
    let is_there = !plot.panels.is_empty();
    is_there.then(|| (format!("{}-seconds", shown.plan.name), Picture::new(plot, Vec::new())))
}

/// A value for so many seconds each, at the middle of them.
fn curve(repetitions: &[&Measured], lasts: usize, width: usize, value: Value) -> Curve {
    let mut curve = Curve::default();
    for from in (0..lasts).step_by(width) {
        let to = (from + width).min(lasts);
        let within = |measured: &&Measured| {
            let end = to.min(measured.moments.len());
            measured.moments[from.min(end)..end].to_vec()
        };
        let moments: Vec<Moment> = repetitions.iter().flat_map(within).collect();
        if let Some(value) = value(&moments) {
            curve.points.push((((from + to) as f64) / 2.0, value));
        }
    }
    curve
}

/// Makes of rates, each for so many seconds and the last for what is left of them, what there was by the
/// end of each.
fn add_up(curve: &mut Curve, lasts: usize, width: usize) {
    let (lasts, width) = (lasts as f64, width as f64);
    let mut sum = 0.0;
    for (at, value) in &mut curve.points {
        let from = (*at / width).floor() * width;
        let to = (from + width).min(lasts);
        sum += *value * (to - from);
        (*at, *value) = (to, sum);
    }
}

fn response(moments: &[Moment]) -> Option<f64> {
    let done: u64 = moments.iter().map(|moment| moment.done).sum();
    let sum: f64 = moments.iter().map(|moment| moment.response * moment.done as f64).sum();
    (done > 0).then(|| sum / done as f64)
}

fn refused(moments: &[Moment]) -> Option<f64> {
    let refused: u64 = moments.iter().map(|moment| moment.refused).sum();
    let all: u64 = moments.iter().map(|moment| moment.done + moment.refused + moment.lost).sum();
    (all > 0).then(|| refused as f64 / all as f64)
}

fn rate(moments: &[Moment]) -> Option<f64> {
    let done: u64 = moments.iter().map(|moment| moment.done).sum();
    (!moments.is_empty()).then(|| done as f64 / moments.len() as f64)
}

fn answered(moments: &[Moment]) -> Option<f64> {
    let all: u64 = moments.iter().map(|moment| moment.answered).sum();
    (!moments.is_empty()).then(|| all as f64 / moments.len() as f64)
}

fn waiting(moments: &[Moment]) -> Option<f64> {
    let all: usize = moments.iter().map(|moment| moment.present).sum();
    (!moments.is_empty()).then(|| all as f64 / moments.len() as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn moment(done: u64, refused: u64, response: f64) -> Moment {
        Moment { done, refused, response, ..Moment::default() }
    }

    #[test]
    fn what_was_served_so_far_is_all_that_was_served() {
        // Of seven seconds in threes the last is alone; nothing is known of the second three.
        let mut curve = Curve { points: vec![(1.5, 10.0), (6.5, 4.0)], band: Vec::new() };
        add_up(&mut curve, 7, 3);
        assert_eq!(curve.points, [(3.0, 30.0), (7.0, 34.0)]);
    }

    #[test]
    fn seconds_are_put_together_by_what_was_served_in_them() {
        let moments = vec![moment(1, 9, 0.3), moment(3, 7, 0.1), moment(0, 10, 0.0)];
        let measured = Measured { moments, ..Measured::default() };
        let of = |value: Value| curve(&[&measured, &measured], 4, 2, value).points;
        let near = |found: &[(f64, f64)], expected: &[(f64, f64)]| {
            assert_eq!(found.len(), expected.len(), "{found:?}");
            for (found, expected) in found.iter().zip(expected) {
                assert!(
                    (found.0 - expected.0).abs() < 1e-9 && (found.1 - expected.1).abs() < 1e-9,
                    "{found:?}"
                );
            }
        };
        // The third second is alone in its pair: the schedule ended.
        near(&of(response), &[(1.0, 0.15)]);
        near(&of(refused), &[(1.0, 0.8), (3.0, 1.0)]);
        near(&of(rate), &[(1.0, 2.0), (3.0, 0.0)]);
    }
}
