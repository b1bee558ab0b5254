//! What a refused request has waited for and what helps, in words for its client. None needs a JSON escape.

use std::fmt;
use std::time::Duration;

use admission::{Obstacle, Reason, Refused};

use crate::gate::Driver;

/// What a request has waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cause {
    /// An operator holds up its database.
    Paused,
    /// The service answers nothing.
    Stall,
    /// The long lane is full.
    LongLane { most: u32 },
    /// Its type contends with others.
    Group,
    /// Requests of other classes go first, as before a class in the background.
    Class,
    /// All server connections are in use, and transactions whose clients are silent hold some.
    Silent { held: u32, connections: u32, longest: Duration },
    /// The limit that a controller sets on requests is reached.
    Requests { most: u32 },
    /// The limit on work in flight is reached.
    Work,
    /// All server connections are in use.
    Connections { connections: u32 },
}

impl Driver {
    /// What a refused request has waited for, unless its refusal has nothing to do with that.
    pub(crate) fn cause(&self, refused: Refused) -> Option<Cause> {
        let is_of_the_queue = matches!(
            refused.reason,
            Reason::QueueFull | Reason::QueueTimeout | Reason::QueueDelay | Reason::Target
        );
        let obstacle = refused.obstacle.filter(|_| is_of_the_queue)?;
        let (now, snapshot, silent) = self.facts();
        let connections = snapshot.connections;
        Some(match obstacle {
            Obstacle::Paused => Cause::Paused,
            Obstacle::Stall => Cause::Stall,
            Obstacle::LongLane => Cause::LongLane { most: snapshot.long_limit? },
            Obstacle::Group => Cause::Group,
            Obstacle::Class => Cause::Class,
            Obstacle::Capacity => {
                snapshot.capacity_found.map_or(Cause::Work, |most| Cause::Requests { most })
            }
            Obstacle::Connections => match silent {
                Some(silent) => {
                    Cause::Silent { held: silent.connections, connections, longest: now.since(silent.since) }
                }
                None => Cause::Connections { connections },
            },
            // Where requests only take turns, the reason says enough.
            Obstacle::Scout | Obstacle::Turn => return None,
        })
    }
}

impl Cause {
    /// What helps, beside another try.
    pub(crate) const fn advice(self) -> &'static str {
        match self {
            Self::Paused => "Retry once an operator has let requests go on (RESUME).",
            Self::Stall => "Look at what the service itself waits for: a lock, a disk, another service.",
            Self::LongLane { .. } => "If they should run sooner, give long requests more room (long_limit).",
            Self::Group => {
                "More at once would wait for one another in the service: keep locks for a shorter time (contention)."
            }
            Self::Class => {
                "If they should run sooner, give their class more weight, or take it out of the background (weight, \
                 background)."
            }
            Self::Silent { .. } => {
                "If they stay idle, end transactions sooner, bound their pauses (idle_transaction_timeout), or give \
                 the gate more connections."
            }
            Self::Requests { .. } => {
                "More at once have completed no more; if the service isn't busy, leave the limit out (capacity)."
            }
            Self::Work => "If the service isn't busy, let more work be in flight (capacity).",
            Self::Connections { .. } => {
                "If the service isn't busy, give the gate more connections (connections)."
            }
        }
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Paused => formatter.write_str("An operator has paused requests."),
            Self::Stall => formatter.write_str("The service answers no request."),
            Self::LongLane { most } => write!(formatter, "At most {most} long requests run at once."),
            Self::Group => {
                formatter.write_str("It contends with others for locks, and as many of these run as do well.")
            }
            Self::Class => formatter.write_str("Requests of other classes go first."),
            Self::Silent { held, connections, longest } => write!(
                formatter,
                "All {connections} server connections are in use; idle transactions hold {held} of them, the oldest for \
                 {:.1} s.",
                longest.as_secs_f64()
            ),
            Self::Requests { most } => write!(formatter, "At most {most} requests run at once (capacity)."),
            Self::Work => formatter.write_str("As much work is in flight as the capacity allows."),
            Self::Connections { connections } => {
                write!(formatter, "All {connections} server connections are busy.")
            }
        }
    }
}
