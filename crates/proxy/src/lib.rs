//! The data planes of Gatekeeper: sockets, pools and timers around the judge.

#![allow(dead_code, reason = "the session loop, which is to use it, comes next")]

pub mod admin;
pub mod gate;
mod listener;
pub mod metrics;
pub mod observe;
pub mod postgres;
pub mod shutdown;
mod stream;
mod upstream;

pub use stream::Keepalive;
pub use upstream::endpoint::{Address, AddressError, ConnectError};
