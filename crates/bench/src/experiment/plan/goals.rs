//! The goals of a plan: rules about the figures of its cells.

use serde::{Deserialize, Serialize};

use crate::experiment::check;
use crate::experiment::words::{Reference, Time};

/// Of the variants that every plan knows, those that are compared with all others.
const GATES: [&str; 2] = ["gate", "gate-calibrated"];

/// A rule about the figures.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Goal {
    /// In plain words.
    pub says: String,
    /// Whose figure.
    pub of: String,
    /// Which figure.
    pub metric: Metric,
    /// Of whom.
    #[serde(default)]
    pub group: Who,
    /// Only where there are at least so many clients.
    pub clients_from: Option<usize>,
    /// Only where the server is busy for at least this part of the time, over direct connections.
    pub busy_from: Option<f64>,
    /// Only where it is busy for at most this part.
    pub busy_to: Option<f64>,
    /// Only where arrivals are at least this multiple.
    pub overload_from: Option<f64>,
    /// Only where they are at most this multiple.
    pub overload_to: Option<f64>,
    /// Only in the phases of a schedule, from this one on.
    pub phases_from: Option<usize>,
    /// Of a response time: so much is let off before it is compared, as what one hop more may take.
    #[serde(default)]
    pub grace: Time,
    /// What it is divided by, if by anything.
    pub relative_to: Option<Reference>,
    /// The least that it should be.
    pub at_least: Option<f64>,
    /// The most.
    pub at_most: Option<f64>,
}

/// A figure of a cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Metric {
    /// Requests completed per second.
    Throughput,
    /// Requests completed per second of processor time that the server itself used. Where the processor is
    /// the bottleneck, a shared machine disturbs this figure less.
    ThroughputPerProcessor,
    /// Mean response time of all requests, those that gave up at the full time-out.
    Response,
    /// Mean response time of those that completed: the papers' metric.
    ResponseInTime,
    /// Mean response time of all that a gate let in, however they ended.
    ResponseLetIn,
    /// The part of all requests that a gate refused.
    Refused,
    /// Of a site: the work of the pages that were served, as a part of the most that it was seen to do.
    Goodput,
    /// Goodput divided by the speed of the server's processor, relative to the median over all cells. A
    /// shared machine whose speed varies from cell to cell disturbs this figure less. It is meant for work
    /// that the server's processor bounds.
    GoodputAtUsualSpeed,
    /// Of a site: the pages per second that it can do, by what a shared processor's response time says of
    /// them.
    EstimatedCapacity,
    /// 95th percentile over all requests.
    P95,
    /// 95th percentile of all that a gate before an origin let in.
    #[serde(rename = "p95-let-in")]
    P95LetIn,
    /// The part of all requests that was answered in time.
    Answered,
    /// How many times as long as alone an errand takes; without one, how many times as long it would take
    /// in what the others leave of the server's processor.
    Stretch,
    /// Whether the server lived through it without losing a process: 1 or 0.
    Alive,
}

/// Whose requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Who {
    /// Those that the experiment is about.
    #[default]
    Clients,
    /// The others.
    Bystanders,
    /// Those for short pages of an origin, and for requests that a plan calls short.
    Short,
}

impl Metric {
    /// Whether it is told in what pages take alone.
    pub const fn is_by_yardstick(self) -> bool {
        matches!(self, Self::Goodput | Self::GoodputAtUsualSpeed | Self::EstimatedCapacity)
    }

    /// Whether it is a time.
    pub const fn is_a_time(self) -> bool {
        matches!(
            self,
            Self::Response | Self::ResponseInTime | Self::ResponseLetIn | Self::P95 | Self::P95LetIn
        )
    }
}

impl Goal {
    /// Whether it is of a control: said for comparison.
    pub fn is_of_a_control(&self) -> bool {
        let of = self.of.as_str();
        check::VARIANTS.contains(&of) && !GATES.contains(&of)
    }
}
