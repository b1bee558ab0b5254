//! What each command does.

mod calibrate;
mod check;
mod replay;
mod run;
mod simulate;
mod table;
mod types;

pub(crate) use calibrate::calibrate;
pub(crate) use check::check;
pub(crate) use replay::replay;
pub(crate) use run::{check_descriptors, run};
pub(crate) use simulate::simulate;
pub(crate) use types::types;
