//! Means over the range of one condition of the paper's Table II: a point for each setup that was run.

use sim::plot::{Curve, Panel, Plot, Scale};

use super::case::Condition;
use super::{Case, Cell};
use crate::table::seconds;
use crate::turns::Section;

/// A condition's name in files, what its axis says, and the condition.
const CONDITIONS: [(&str, &str, Condition); 3] = [
    ("B", "round trip in milliseconds", Condition::RoundTrip),
    ("C", "percent of packets lost in each direction", Condition::Loss),
    ("E", "requests a connection", Condition::Requests),
];

/// For each load and condition of which two points or more were run: a file's name and a picture.
pub(super) fn pictures(
    variants: &[String],
    cases: &[Case],
    sections: &[Section<Cell>],
) -> Vec<(String, Plot)> {
    let mut loads: Vec<&str> = cases.iter().map(|case| case.load.as_str()).collect();
    loads.dedup();
    let each = loads.iter().flat_map(|load| CONDITIONS.iter().map(move |condition| (*load, *condition)));
    each.filter_map(|(load, (letter, axis, condition))| {
        let points: Vec<(f64, &Section<Cell>)> =
            points(cases, load, condition).into_iter().map(|(at, case)| (at, &sections[case])).collect();
        (points.len() > 1)
            .then(|| (format!("srpt-{load}-over-{letter}.svg"), plot(variants, load, axis, &points)))
    })
    .collect()
}

/// Where a load was run along a condition, in order, and the number of that case.
fn points(cases: &[Case], load: &str, condition: Condition) -> Vec<(f64, usize)> {
    let of_it = cases.iter().enumerate().filter(|(_, case)| case.load == load);
    let at = |(number, case): (usize, &Case)| Some((f64::from(case.setup.at(condition)?), number));
    let mut points: Vec<_> = of_it.filter_map(at).collect();
    points.sort_by(|one, other| one.0.total_cmp(&other.0));
    points
}

fn plot(variants: &[String], load: &str, axis: &'static str, points: &[(f64, &Section<Cell>)]) -> Plot {
    let curves = |figure: fn(&Cell) -> f64| -> Vec<Curve> {
        let curve = |variant: usize| {
            let points = points.iter().map(|&(at, section)| (at, section.median(variant, figure))).collect();
            Curve { points, band: Vec::new() }
        };
        (0..variants.len()).map(curve).collect()
    };
    Plot {
        title: format!("{load}: {axis}"),
        subtitle: "a link of 10 Mbit/s; the median of the rounds".to_owned(),
        variants: variants.to_vec(),
        marks: None,
        axis,
        seconds: points.last().map_or(1.0, |point| point.0),
        panels: vec![
            Panel::new("Mean response time", Scale::Logarithmic, seconds, curves(|cell| cell.mean)),
            Panel::new("Mean of the largest 1 %", Scale::Linear, seconds, curves(|cell| cell.largest)),
        ],
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::srpt::Setup;

    fn case(load: &str, setup: &str) -> Case {
        let setup: Setup = setup.parse().expect("a setup");
        Case { load: load.to_owned(), setup, seconds: 1 }
    }

    #[test]
    fn a_condition_has_a_picture_where_two_points_of_it_were_run() {
        let mut cases = ["C5", "A", "B50", "B25", "D", "H10"].map(|setup| case("W1", setup)).to_vec();
        cases.push(case("W2", "B100"));
        let section = |_: &Case| Section { name: String::new(), turns: vec![Vec::new(); 2] };
        let sections: Vec<Section<Cell>> = cases.iter().map(section).collect();
        let variants = ["FAIR", "SRPT"].map(str::to_owned);
        let names: Vec<_> =
            pictures(&variants, &cases, &sections).into_iter().map(|picture| picture.0).collect();
        assert_eq!(names, ["srpt-W1-over-B.svg", "srpt-W1-over-C.svg"]);
        let along = |condition| points(&cases, "W1", condition).iter().map(|it| it.0).collect();
        let [trips, losses]: [Vec<f64>; 2] = [along(Condition::RoundTrip), along(Condition::Loss)];
        assert_eq!((trips, losses), (vec![0.0, 25.0, 50.0], vec![0.0, 5.0]));
    }
}
