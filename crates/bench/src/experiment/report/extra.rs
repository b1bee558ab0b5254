//! Tables and pictures that a plan asks for beside those of all experiments (`show`).

use super::Shown;
use super::picture::Picture;
use super::text_table::Table;
use super::{anatomy, breakdown, convergence, service};
use crate::experiment::plan::Show;

/// The tables in the order of the plan; none of what wasn't measured.
pub(super) fn tables(shown: &Shown) -> Vec<Table> {
    let table = |show: &Show| match show {
        Show::ServiceTimes => service::table(shown),
        Show::Convergence => convergence::table(shown),
        Show::Anatomy => anatomy::table(shown),
        Show::Breakdown => breakdown::table(shown),
    };
    shown.plan.show.iter().map(table).filter(|table| !table.rows.is_empty()).collect()
}

/// Pictures with their names.
pub(super) fn pictures(shown: &Shown) -> Vec<(String, Picture)> {
    let picture = |show: &Show| match show {
        Show::ServiceTimes | Show::Anatomy => Vec::new(),
        Show::Convergence => convergence::pictures(shown),
        Show::Breakdown => breakdown::pictures(shown),
    };
    shown.plan.show.iter().flat_map(picture).collect()
}
