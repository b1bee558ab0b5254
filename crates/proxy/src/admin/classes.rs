//! Service classes in the JSON of the admin listener.

use std::sync::Arc;

use admission::{ClassGoal, ClassSnapshot, Snapshot, Standing, Turns};
use serde::{Deserialize, Serialize};

use crate::groups::ProcessorStatus;
use crate::view::{GateView, named_classes};

/// One service class in `/status`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "the names say it")]
pub struct ClassStatus {
    pub class: String,
    /// A class in the background has none.
    pub weight: Option<f64>,
    /// Whether it gets only what the others leave.
    #[serde(default)]
    pub background: bool,
    /// What it is promised, as it is configured.
    pub goal: Option<String>,
    /// What was observed of that lately: seconds, or requests per second.
    pub observed: Option<f64>,
    /// `kept`, `missed`, `out of reach` where no shares of the classes can keep it, or `idle` where nobody
    /// has asked for the class lately. Nothing right after a move, until a request shows its effect.
    pub standing: Option<String>,
    /// The control group of its workers.
    #[serde(default)]
    pub processor: Option<ProcessorStatus>,
    pub queued: u32,
    pub in_flight: u32,
    pub dispatched_total: u64,
    pub rejected_total: u64,
    /// Of those, the ones that were refused because the class had more than its share.
    pub over_share_total: u64,
    /// The work of those that have ended, as it counts for the class.
    pub work_seconds_total: f64,
    /// How long those that were dispatched had waited.
    pub queue_wait_seconds_total: f64,
}

fn standing(goal: ClassGoal, class: &ClassSnapshot) -> Option<&'static str> {
    Some(match class.standing {
        Standing::Idle => "idle",
        Standing::OutOfReach | Standing::GivenUp => "out of reach",
        Standing::InReach if goal.is_missed_by(class.observed?) => "missed",
        Standing::InReach => "kept",
    })
}

pub(super) fn classes(gate: &dyn GateView, snapshot: &Snapshot) -> Vec<ClassStatus> {
    let status = |(name, class): (Arc<str>, ClassSnapshot)| ClassStatus {
        class: name.as_ref().to_owned(),
        weight: (class.turns != Turns::Background).then(|| class.weight.as_f64()),
        background: class.turns == Turns::Background,
        goal: class.goal.map(|goal| goal.to_string()),
        observed: class.observed,
        standing: class.goal.and_then(|goal| standing(goal, &class)).map(str::to_owned),
        processor: gate.processor(class.class),
        queued: class.queued,
        in_flight: class.in_flight,
        dispatched_total: class.dispatched,
        rejected_total: class.rejected,
        over_share_total: class.over_share,
        work_seconds_total: class.served.as_millis_f64() / 1e3,
        queue_wait_seconds_total: class.queue_wait.as_secs_f64(),
    };
    named_classes(gate, snapshot).into_iter().map(status).collect()
}
