//! What each command does.

mod check;
mod run;
mod types;

pub(crate) use check::check;
pub(crate) use run::run;
pub(crate) use types::types;
