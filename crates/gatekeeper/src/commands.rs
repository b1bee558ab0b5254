//! What each command does.

mod calibrate;
mod check;
mod import;
mod observe;
mod operate;
mod replay;
mod run;
mod running;
mod simulate;
mod table;
mod top;
mod types;
mod uplink;
mod users;
mod why;

pub(crate) use calibrate::calibrate;
pub(crate) use check::check;
pub(crate) use import::import;
pub(crate) use observe::observe;
pub(crate) use operate::{drain, enforce, pass, pause, reload, resume, status, upgrade};
pub(crate) use replay::{advise, replay};
pub(crate) use run::run;
pub(crate) use simulate::simulate;
pub(crate) use top::top;
pub(crate) use types::types;
pub(crate) use uplink::set_up;
pub(crate) use users::import_users;
pub(crate) use why::why;
