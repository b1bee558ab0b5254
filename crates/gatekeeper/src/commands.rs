//! What each command does.

mod check;
mod run;
mod simulate;
mod types;

pub(crate) use check::check;
pub(crate) use run::{SetLevel, check_descriptors, run};
pub(crate) use simulate::simulate;
pub(crate) use types::types;
