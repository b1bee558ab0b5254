//! The handover of a running gatekeeper's sockets to another one, so that an upgrade refuses nobody.
//!
//! ```text
//! successor                                         predecessor
//!   POST /takeover on the Unix socket      ──►  same user, or root?
//!                                          ◄──  each listening socket, what each gate has learned
//!   builds everything, accepts clients
//!   Accepting                              ──►  accepts nobody any more
//!                                          ◄──  Yours
//!   cancel requests with unknown keys      ──►  serves its clients until they leave, or handover_timeout
//! ```
//!
//! Until `Accepting` the predecessor serves as ever, so a successor that is wrong, late or killed costs
//! nobody anything. Between both messages both accept: the kernel gives each client to one of them.

mod channel;
mod give;
mod take;
mod upgrade;

pub(crate) use give::{Estate, Listening};
pub(crate) use take::Inheritance;
pub(crate) use upgrade::{Program, start_successor, upgrade};
