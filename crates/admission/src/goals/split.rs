//! Divides one goal between the resources that a class uses.

use alloc::vec::Vec;

/// Divides a goal, in seconds, over resources by how much a class uses each: D_j = D·u_j / Σ u. A resource
/// that the class hardly uses gets hardly any time; a class that uses none gets the goal for each.
///
/// A utilization is what the class takes of a resource over what the resource can give. For a queue of
/// requests before workers that is the part of the workers that the class occupies.
pub fn split(goal: f64, utilizations: &[f64]) -> Vec<f64> {
    let sum: f64 = utilizations.iter().sum();
    let part = |used: &f64| if sum > 0.0 { goal * used / sum } else { goal };
    utilizations.iter().map(part).collect()
}
