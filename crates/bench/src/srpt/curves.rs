//! Means over the range of one condition of the paper's Table II: a point for each setup that was run.

use sim::plot::{Curve, Panel, Plot, Scale};

use super::Cell;
use super::case::Condition;
use super::report::{Measured, Section};
use crate::stats::percentile;
use crate::table::seconds;

/// A condition's name in files, what its axis says, and the condition.
const CONDITIONS: [(&str, &str, Condition); 3] = [
    ("B", "round trip in milliseconds", Condition::RoundTrip),
    ("C", "percent of packets lost in each direction", Condition::Loss),
    ("E", "requests a connection", Condition::Requests),
];

/// For each load and condition of which two points or more were run: a file's name and a picture.
pub(super) fn pictures(measured: &Measured) -> Vec<(String, Plot)> {
    let mut loads: Vec<&str> = measured.sections.iter().map(|section| section.load.as_str()).collect();
    loads.dedup();
    let each = loads.iter().flat_map(|load| CONDITIONS.iter().map(move |condition| (*load, *condition)));
    each.filter_map(|(load, (letter, axis, condition))| {
        let points = points(&measured.sections, load, condition);
        (points.len() > 1)
            .then(|| (format!("srpt-{load}-over-{letter}.svg"), plot(measured, load, axis, &points)))
    })
    .collect()
}

/// Where a load was run along a condition, in order.
fn points<'a>(sections: &'a [Section], load: &str, condition: Condition) -> Vec<(f64, &'a Section)> {
    let at = |section: &'a Section| Some((f64::from(section.setup.at(condition)?), section));
    let mut points: Vec<_> = sections.iter().filter(|section| section.load == load).filter_map(at).collect();
    points.sort_by(|one, other| one.0.total_cmp(&other.0));
    points
}

fn plot(measured: &Measured, load: &str, axis: &'static str, points: &[(f64, &Section)]) -> Plot {
    let curves = |figure: fn(&Cell) -> f64| -> Vec<Curve> {
        let curve = |variant: usize| {
            let of = |section: &Section| {
                percentile(&section.cells[variant].iter().map(figure).collect::<Vec<_>>(), 0.5)
            };
            let points = points.iter().map(|&(at, section)| (at, of(section))).collect();
            Curve { points, band: Vec::new() }
        };
        (0..measured.variants.len()).map(curve).collect()
    };
    Plot {
        title: format!("{load}: {axis}"),
        subtitle: "a link of 10 Mbit/s; the median of the rounds".to_owned(),
        variants: measured.variants.clone(),
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

    fn section(load: &str, setup: &str) -> Section {
        let setup: Setup = setup.parse().expect("a setup");
        Section { load: load.to_owned(), setup, seconds: 1, cells: vec![Vec::new(); 2] }
    }

    #[test]
    fn a_condition_has_a_picture_where_two_points_of_it_were_run() {
        let sections = ["C5", "A", "B50", "B25", "D", "H10"].map(|setup| section("W1", setup)).to_vec();
        let other = section("W2", "B100");
        let measured = Measured {
            variants: vec!["FAIR".to_owned(), "SRPT".to_owned()],
            sections: [sections, vec![other]].concat(),
            costs: None,
            followed: None,
        };
        let names: Vec<_> = pictures(&measured).into_iter().map(|picture| picture.0).collect();
        assert_eq!(names, ["srpt-W1-over-B.svg", "srpt-W1-over-C.svg"]);
        let along = |condition| points(&measured.sections, "W1", condition).iter().map(|it| it.0).collect();
        let [trips, losses]: [Vec<f64>; 2] = [along(Condition::RoundTrip), along(Condition::Loss)];
        assert_eq!((trips, losses), (vec![0.0, 25.0, 50.0], vec![0.0, 5.0]));
    }
}
