//! The witness: private servers, open-loop load, alternated experiments, tables and plots.
//!
//! It drives the `gatekeeper` binary as a process, as a user would, and knows nothing of the proxy's insides.

pub mod alternate;
pub mod bounded_response;
pub mod browser;
pub mod classes;
mod confinement;
pub mod database;
mod encryption;
pub mod error;
pub mod experiment;
mod files;
pub mod flash_sale;
pub mod gatekeeper;
pub mod hold_up;
pub mod http;
pub mod http_cost;
pub mod idle_clients;
pub mod link;
pub mod load;
pub mod long_lane;
pub mod mariadb;
pub mod mariadb_cost;
mod namespace;
pub mod own_overload;
mod pacer;
pub mod page;
pub mod peers;
pub mod pgbench;
pub mod pgbouncer;
pub mod pgpool;
pub mod postgres;
mod process;
pub mod proxy_cost;
pub mod proxysql;
pub mod rehearsal;
pub mod shop;
pub mod shortest_first;
pub mod srpt;
pub mod stall;
pub mod stats;
mod story;
pub mod sysbench;
pub mod table;
pub mod viewer;
pub mod wan;

pub use error::Error;
pub use process::{allowed_cpus, raise_descriptor_limit, resident_memory, separate_processors};
