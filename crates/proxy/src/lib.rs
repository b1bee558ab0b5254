//! The data planes of Gatekeeper: sockets, pools and timers around the judge.

pub mod observe;
