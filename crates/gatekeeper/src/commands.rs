//! What each command does.

mod check;
mod run;
mod types;

pub(crate) use check::check;
pub(crate) use run::{SetLevel, check_descriptors, run};
pub(crate) use types::types;
