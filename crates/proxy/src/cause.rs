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
        let obstacle = refused.obstacle.filter(|&obstacle| explains(refused.reason, obstacle))?;
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

/// Whether what a request would have waited for explains its refusal. A target refuses because responses
/// would be slow, whatever bound comes first: to raise that bound wouldn't help.
const fn explains(reason: Reason, obstacle: Obstacle) -> bool {
    match reason {
        Reason::QueueFull | Reason::QueueTimeout | Reason::QueueDelay => true,
        Reason::Target => matches!(obstacle, Obstacle::Paused | Obstacle::Stall),
        Reason::Deadline | Reason::DeadlineUnreachable | Reason::OverShare | Reason::PinnedMax => false,
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
            Self::LongLane { most: 1 } => formatter.write_str("At most one long request runs at once."),
            Self::LongLane { most } => write!(formatter, "At most {most} long requests run at once."),
            Self::Group => {
                formatter.write_str("It contends with others for locks, and as many of these run as do well.")
            }
            Self::Class => formatter.write_str("Requests of other classes go first."),
            Self::Silent { held, connections, longest } => {
                let hold = if *held == 1 { "an idle transaction holds" } else { "idle transactions hold" };
                let longest = longest.as_secs_f64();
                match connections {
                    1 => write!(
                        formatter,
                        "The only server connection is in use; {hold} it, for {longest:.1} s now."
                    ),
                    _ => write!(
                        formatter,
                        "All {connections} server connections are in use; {hold} {held} of them, the oldest for \
                         {longest:.1} s."
                    ),
                }
            }
            Self::Requests { most: 1 } => formatter.write_str("At most one request runs at once (capacity)."),
            Self::Requests { most } => write!(formatter, "At most {most} requests run at once (capacity)."),
            Self::Work => formatter.write_str("As much work is in flight as the capacity allows."),
            Self::Connections { connections: 1 } => {
                formatter.write_str("The only server connection is busy.")
            }
            Self::Connections { connections } => {
                write!(formatter, "All {connections} server connections are busy.")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_by_target_does_not_blame_a_bound_that_would_not_help() {
        let blamed = Obstacle::ALL.into_iter().filter(|&obstacle| explains(Reason::Target, obstacle));
        assert_eq!(blamed.collect::<Vec<_>>(), [Obstacle::Paused, Obstacle::Stall]);
        assert!(explains(Reason::QueueTimeout, Obstacle::LongLane));
        assert!(!explains(Reason::OverShare, Obstacle::Capacity), "it waited for nothing");
    }

    #[test]
    fn a_bound_of_one_is_said_in_the_singular() {
        let longest = Duration::from_secs(2);
        for (cause, said) in [
            (Cause::LongLane { most: 1 }, "At most one long request runs at once."),
            (Cause::Requests { most: 1 }, "At most one request runs at once (capacity)."),
            (Cause::Connections { connections: 1 }, "The only server connection is busy."),
            (
                Cause::Silent { held: 1, connections: 1, longest },
                "The only server connection is in use; an idle transaction holds it, for 2.0 s now.",
            ),
            (
                Cause::Silent { held: 1, connections: 3, longest },
                "All 3 server connections are in use; an idle transaction holds 1 of them, the oldest for 2.0 s.",
            ),
        ] {
            assert_eq!(cause.to_string(), said);
        }
    }
}
