//! The witness: open-loop load, alternated experiments, tables and plots.
//!
//! It drives the `gatekeeper` binary as a process, as a user would, and knows nothing of the proxy's insides.

pub mod alternate;
mod blocking;
pub mod classes;
pub mod cost;
mod encryption;
pub mod error;
pub mod experiment;
mod files;
pub mod gatekeeper;
pub mod hold_up;
pub mod http;
pub mod idle_clients;
pub mod load;
pub mod own_overload;
pub mod page;
pub mod pgbench;
pub mod real_loads;
pub mod rehearsal;
pub mod shop;
pub mod srpt;
pub mod stall;
pub mod stats;
pub mod sysbench;
pub mod table;
pub mod turns;
pub mod viewer;

pub use error::Error;
