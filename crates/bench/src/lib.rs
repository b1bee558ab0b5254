//! The witness: private servers, open-loop load, alternated experiments, tables and plots.
//!
//! It drives the `gatekeeper` binary as a process, as a user would, and knows nothing of the proxy's insides.

pub mod error;
pub mod postgres;
mod process;

pub use error::Error;
pub use process::{allowed_cpus, pin_to_cpu};
