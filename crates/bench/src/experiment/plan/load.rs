//! How much is asked for at once.

use serde::{Deserialize, Serialize};

/// How much is asked for at once.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Load {
    /// A closed loop of this many clients.
    Clients(usize),
    /// The number of clients that keeps the server busy for this part of the time, over direct connections.
    /// From 1 on: this multiple of the clients that keep the server just busy.
    Busy(f64),
    /// Arrivals at this multiple of what was calibrated.
    Overload(f64),
    /// Browsers that join by the form's schedule, in one cell.
    Schedule,
    /// What came of one phase of it: no cell, but a part of one.
    Phase(usize),
}

impl Load {
    /// The load's label in tables.
    pub fn label(self) -> String {
        match self {
            Self::Clients(clients) => format!("{clients}"),
            Self::Busy(part) => format!("{:.0}%", part * 100.0),
            Self::Overload(factor) => format!("{factor}×"),
            Self::Schedule => "steps".to_owned(),
            Self::Phase(phase) => format!("phase {}", phase + 1),
        }
    }

    /// The load's phrase in sentences.
    pub fn phrase(self) -> String {
        match self {
            Self::Clients(0) => "with the bystanders alone".to_owned(),
            Self::Clients(clients) => format!("with {clients} clients"),
            Self::Busy(part) if part < 1.0 => {
                format!("where the server is {:.0} % busy without a gate", part * 100.0)
            }
            Self::Busy(part) => format!("with {part} times the clients that saturate the server"),
            Self::Overload(factor) => format!("at {factor} times the calibrated rate"),
            Self::Schedule => "by the schedule".to_owned(),
            Self::Phase(phase) => format!("in phase {}", phase + 1),
        }
    }
}
