//! Whether a gate reaches the goals of a row, and what it misses.

use scenario::{FIXED_GATE, WITHOUT_GATE};

use super::cell::{Cell, Digest};
use super::row::{Row, Seeds};

/// How many times as long as without a gate the mean of a type may be.
const SLOWER_MAX: f64 = 10.0;

/// A goal that a gate doesn't reach.
#[derive(Clone, Debug, PartialEq)]
pub struct Miss {
    /// The row's name.
    pub row: String,
    /// The gate's name.
    pub gate: String,
    /// The goal's key in the file.
    pub goal: String,
    /// The bound in the file.
    pub asked: f64,
    /// What the held-out seeds give, or the file's seeds where only they miss the goal.
    pub found: f64,
}

/// The goals that the gates of a row miss. The row's cells are in the order of its gates.
pub fn misses(row: &Row, cells: &[Cell]) -> Vec<Miss> {
    let names: Vec<String> = row.variants().map(|variant| variant.name).collect();
    let cell = |name: &str| names.iter().position(|known| known == name).and_then(|at| cells.get(at));
    let (ungated, fixed) = (cell(WITHOUT_GATE), cell(FIXED_GATE));
    let judged = names.iter().zip(cells).filter(|(name, _)| *name != WITHOUT_GATE && *name != FIXED_GATE);
    let mut misses = Vec::new();
    for (gate, cell) in judged {
        let mut judge = Judge { row, gate, cell, misses: &mut misses };
        judge.of_all(ungated, fixed);
    }
    misses
}

/// Judges one gate of a row.
struct Judge<'a> {
    row: &'a Row,
    gate: &'a str,
    cell: &'a Cell,
    misses: &'a mut Vec<Miss>,
}

/// The side of its bound on which a figure has to be.
#[derive(Clone, Copy, PartialEq)]
enum Side {
    Below,
    Above,
}

impl Judge<'_> {
    fn of_all(&mut self, ungated: Option<&Cell>, fixed: Option<&Cell>) {
        let goal = self.row.goal.clone();
        let (mean, served, whole) = (|of: &Digest| of.mean, |of: &Digest| of.served, |of: &Digest| of.whole);
        self.beside("mean_of_ungated", goal.mean_of_ungated, Side::Below, ungated, mean);
        self.beside("mean_of_fixed", goal.mean_of_fixed, Side::Below, fixed, mean);
        self.beside("served_of_ungated", goal.served_of_ungated, Side::Above, ungated, served);
        self.beside("served_of_fixed", goal.served_of_fixed, Side::Above, fixed, served);
        self.beside("whole_of_ungated", goal.whole_of_ungated, Side::Above, ungated, whole);
        self.beside("whole_of_fixed", goal.whole_of_fixed, Side::Above, fixed, whole);
        let cell = self.cell;
        let lost = |seeds| cell.of(seeds, |of| of.gave_up + of.refused).mean;
        self.note("lost", goal.lost, Side::Below, lost);
        let types = self.row.types().into_iter().map(str::to_owned).collect::<Vec<_>>();
        for (kind, most) in goal.means {
            let key = format!("means.{}", types[kind]);
            let found = |seeds| cell.of(seeds, |of| of.types[kind]).mean;
            self.note(&key, Some(most.as_secs_f64()), Side::Below, found);
        }
        for (kind, name) in types.iter().enumerate() {
            let key = format!("slower.{name}");
            self.beside(&key, Some(SLOWER_MAX), Side::Below, ungated, move |of: &Digest| of.types[kind]);
        }
    }

    /// A figure as a multiple of another gate's.
    fn beside(
        &mut self,
        goal: &str,
        asked: Option<f64>,
        side: Side,
        other: Option<&Cell>,
        of: impl Fn(&Digest) -> f64,
    ) {
        let (Some(other), cell) = (other, self.cell) else { return };
        self.note(goal, asked, side, |seeds| cell.of(seeds, &of).mean / other.of(seeds, &of).mean);
    }

    fn note(&mut self, goal: &str, asked: Option<f64>, side: Side, found: impl Fn(Seeds) -> f64) {
        let Some(asked) = asked else { return };
        let misses = |seeds: &Seeds| match side {
            // Nothing beside nothing isn't a number, and misses no goal.
            Side::Below => found(*seeds) > asked,
            Side::Above => found(*seeds) < asked,
        };
        let Some(seeds) = [Seeds::HeldOut, Seeds::Tuned].into_iter().find(misses) else { return };
        self.misses.push(Miss {
            row: self.row.name.clone(),
            gate: self.gate.to_owned(),
            goal: goal.to_owned(),
            asked,
            found: found(seeds),
        });
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::catalogue::rows_of;

    fn row() -> Row {
        let file = "../../scenarios/catalogue/03-in-parallel.toml";
        rows_of(&Path::new(env!("CARGO_MANIFEST_DIR")).join(file)).expect("a sound file").remove(0)
    }

    fn digest(mean: f64, lost: f64) -> Digest {
        Digest { mean, served: 100.0, gave_up: lost, types: vec![mean; 2], ..Digest::default() }
    }

    /// The goals that are missed beside a mean of one second without a gate.
    fn missed(tuned: Digest, held_out: Digest) -> Vec<(String, f64)> {
        let ungated = || Cell::with(digest(1.0, 0.0), digest(1.0, 0.0));
        let cells = [ungated(), Cell::with(tuned, held_out), ungated()];
        misses(&row(), &cells).into_iter().map(|miss| (miss.goal, miss.found)).collect()
    }

    #[test]
    fn a_goal_is_reached_when_both_sets_of_seeds_reach_it() {
        assert_eq!(missed(digest(1.05, 0.0), digest(1.05, 0.0)), []);
        let of_mean = |found| vec![("mean_of_ungated".to_owned(), found)];
        assert_eq!(missed(digest(1.0, 0.0), digest(1.06, 0.0)), of_mean(1.06));
        assert_eq!(missed(digest(1.07, 0.0), digest(1.0, 0.0)), of_mean(1.07));
        assert_eq!(missed(digest(1.07, 0.0), digest(1.06, 0.0)), of_mean(1.06));
        assert_eq!(missed(digest(1.0, 0.0), digest(1.0, 0.01)), [("lost".to_owned(), 0.01)]);
    }

    #[test]
    fn no_type_is_ten_times_as_slow_as_without_a_gate() {
        let slow = |factor| Digest { types: vec![1.0, factor], ..digest(1.0, 0.0) };
        assert_eq!(missed(slow(10.0), slow(10.0)), []);
        assert_eq!(missed(slow(1.0), slow(11.0)), [("slower.fast".to_owned(), 11.0)]);
    }

    #[test]
    fn nothing_beside_nothing_misses_no_goal() {
        let mut cells = vec![Cell::with(digest(0.0, 0.0), digest(0.0, 0.0)); 3];
        assert_eq!(misses(&row(), &cells), []);
        cells[1] = Cell::with(digest(1.0, 0.0), digest(1.0, 0.0));
        assert_eq!(misses(&row(), &cells).len(), 3);
    }
}
