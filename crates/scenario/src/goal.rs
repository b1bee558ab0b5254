//! The goals of a scenario: what each of its gates has to reach in the catalogue.

use std::time::Duration;

use config::reader::{self, Complaint, hint_for_unknown};
use sim::Kind;
use toml::de::DeTable;

use super::Reader;
use crate::keys::GOAL;

/// The name of the gate with the best fixed number that is known.
pub const FIXED_GATE: &str = "fixed";

/// What every gate has to reach, except [`FIXED_GATE`]. `None`: no such goal.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Goal {
    /// The largest mean over all requests, as a multiple of the mean without a gate.
    pub mean_of_ungated: Option<f64>,
    /// The largest mean over all requests, as a multiple of the mean of the fixed gate.
    pub mean_of_fixed: Option<f64>,
    /// The fewest answers per second, as a part of the answers without a gate.
    pub served_of_ungated: Option<f64>,
    /// The fewest answers per second, as a part of the answers of the fixed gate.
    pub served_of_fixed: Option<f64>,
    /// The largest part of the requests that are refused or given up.
    pub lost: Option<f64>,
    /// The fewest whole visits, as a part of those without a gate.
    pub whole_of_ungated: Option<f64>,
    /// The fewest whole visits, as a part of those with the fixed gate.
    pub whole_of_fixed: Option<f64>,
    /// The largest mean over all requests of a type, by the type's number.
    pub means: Vec<(usize, Duration)>,
}

impl Reader<'_> {
    /// The goals of the file. `None`: it has none.
    pub(super) fn goal(&mut self, top: &DeTable<'_>, types: &[Kind], has_fixed: bool) -> Option<Goal> {
        top.get("goal")?;
        let empty = DeTable::new();
        let (table, at) = reader::single_table(top, "goal", &empty, self.text, self.errors);
        let mut section = self.section("goal".to_owned(), (table, at), GOAL);
        let mut goal = Goal {
            mean_of_ungated: section.read_given("mean_of_ungated", reader::amount),
            mean_of_fixed: section.read_given("mean_of_fixed", reader::amount),
            served_of_ungated: section.read_given("served_of_ungated", reader::amount),
            served_of_fixed: section.read_given("served_of_fixed", reader::amount),
            lost: section.read_given("lost", reader::amount),
            whole_of_ungated: section.read_given("whole_of_ungated", reader::amount),
            whole_of_fixed: section.read_given("whole_of_fixed", reader::amount),
            means: Vec::new(),
        };
        for (name, most) in section.read_given("means", reader::times).unwrap_or_default() {
            match types.iter().position(|kind| kind.name == name) {
                Some(at) => goal.means.push((at, most)),
                None => {
                    let names: Vec<&str> = types.iter().map(|kind| kind.name.as_str()).collect();
                    let complaint = Complaint::new(format!("names the type {name:?}, which isn't there"));
                    section
                        .complain("means", Complaint { hint: hint_for_unknown(&name, &names), ..complaint });
                }
            }
        }
        for key in ["mean_of_fixed", "served_of_fixed", "whole_of_fixed"] {
            if section.has(key) && !has_fixed {
                let hint = format!("write [[gate]] with name = {FIXED_GATE:?}");
                section.complain(key, Complaint::new("needs a fixed gate to compare with").hint(hint));
            }
        }
        Some(goal)
    }
}
