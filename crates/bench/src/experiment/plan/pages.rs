//! The origin of a plan, and the peers of a gate before it.

use serde::{Deserialize, Serialize};

use super::Plan;
use crate::experiment::words::Time;
use crate::http::Mix;

/// Peers of a gate before an origin.
pub const PEERS: [&str; 5] = ["haproxy", "nginx", "little-loadshedder", "failsafe-go", "concurrency-limits"];

/// The origin of a plan.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Pages {
    /// What is asked for.
    pub mix: Mix,
    /// How long half of the capacity comes before each load.
    pub calm: Time,
    /// The mean response time that somebody holds: a line in the pictures.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target: Option<Time>,
    /// At which load settings of peers are tried.
    #[serde(default = "three")]
    pub tried_at: f64,
}

const fn three() -> f64 {
    3.0
}

impl Plan {
    /// A setting of a peer, as its program calls it.
    pub fn setting(&self, variant: &str, number: u32) -> Option<String> {
        let setting = self.peer.get(variant)?.get(number as usize)?;
        Some(setting.iter().map(|(key, value)| format!("{key} {value}")).collect::<Vec<_>>().join(", "))
    }
}
