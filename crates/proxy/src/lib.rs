//! The data planes of Gatekeeper: sockets, pools and timers around the judge.

pub mod admin;
mod clock;
pub mod gate;
mod listener;
pub mod metrics;
pub mod observe;
mod permit;
pub mod postgres;
pub mod shadow;
pub mod shutdown;
mod stream;
mod upstream;

pub use stream::Keepalive;
pub use upstream::endpoint::{Address, AddressError, ConnectError};
