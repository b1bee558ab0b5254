//! What tests and measurements run against: private servers, proxies before them, links and browsers.
//!
//! Dropping one stops its processes and removes everything that it wrote.

pub mod browser;
pub mod confinement;
pub mod database;
pub mod error;
pub mod first_timeout;
pub mod link;
pub mod mariadb;
pub mod namespace;
pub mod pacer;
pub mod pgbouncer;
pub mod pgpool;
pub mod postgres;
pub mod process;
pub mod proxysql;
pub mod wan;

pub use error::Error;
pub use process::{allowed_cpus, raise_descriptor_limit, resident_memory, separate_processors};
