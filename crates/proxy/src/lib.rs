//! The data planes of Gatekeeper: sockets, pools and timers around the judge.

pub mod admin;
mod clock;
pub mod command;
pub mod gate;
pub mod http;
mod lateness;
pub mod learned;
mod listener;
pub mod memory;
pub mod metrics;
pub mod mysql;
mod news;
pub mod observe;
pub mod otlp;
mod permit;
pub mod postgres;
mod quota;
mod relay;
pub mod shadow;
pub mod shutdown;
mod source;
mod sql_type;
mod stream;
pub mod tls;
pub mod trace;
mod turns;
mod upstream;
mod users_file;

pub use sql_type::request_type_named;
pub use stream::Keepalive;
pub use upstream::address::{Address, ConnectError};
pub use upstream::health::{Condition, Health};
pub use upstream::resolver::{Answer, Lookup};
