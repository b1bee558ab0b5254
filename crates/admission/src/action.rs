//! What the gate wants the shell to do.

use crate::obstacle::Obstacle;
use crate::request::Ticket;

/// One thing to do, from [`crate::Gate::poll`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Send the request upstream. It is charged from now on.
    Dispatch(Ticket),
    /// Refuse the request. Its ticket has ended.
    Reject(Ticket, Refused),
}

/// A refusal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refused {
    /// The rule that refused the request.
    pub reason: Reason,
    /// What kept the request from starting, as far as it is known.
    pub obstacle: Option<Obstacle>,
}

impl From<Reason> for Refused {
    fn from(reason: Reason) -> Self {
        Self { reason, obstacle: None }
    }
}

/// Why a request was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Reason {
    /// The queue holds `queue_max` requests.
    QueueFull,
    /// It waited for `queue_timeout`.
    QueueTimeout,
    /// Its own deadline passed while it waited.
    Deadline,
    /// It could not have made its own deadline, given the queue ahead.
    DeadlineUnreachable,
    /// A rule from outside of this crate refused the head of the queue for the time that requests wait.
    QueueDelay,
    /// The target of the response time could not have been held.
    Target,
    /// One was too many, and its class or its tenant has more of what is present than its share, while others
    /// have less.
    OverShare,
    /// Pinning its session would hold more than `pinned_max` connections.
    PinnedMax,
}

impl Reason {
    /// Its name in metrics and logs.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::QueueFull => "queue_full",
            Self::QueueTimeout => "queue_timeout",
            Self::Deadline => "deadline",
            Self::DeadlineUnreachable => "deadline_unreachable",
            Self::QueueDelay => "queue_delay",
            Self::Target => "target",
            Self::OverShare => "over_share",
            Self::PinnedMax => "pinned_max",
        }
    }
}
