//! What a refused request has waited for: a pause, its lane, connections that others hold, a capacity.
//!
//! A look at the whole gate costs more than a refusal may. So all refusals within [`FRESH`] share one look.

use std::time::Duration;

use admission::{Lane, RequestType};
use parking_lot::Mutex;
use tokio::time::Instant;

use super::Shared;
use super::roster::Activity;
use crate::upstream::pool::Paused;

/// For how long a look holds.
const FRESH: Duration = Duration::from_millis(100);

/// What a request has waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cause {
    /// An operator holds up its database.
    Paused,
    /// The long lane is full.
    LongLane { most: u32 },
    /// All server connections are in use, and transactions whose clients are silent hold some.
    Silent { held: u32, connections: u32, longest: Duration },
    /// The limit that a controller sets on requests is reached.
    Requests { most: u32 },
    /// The limit on work in flight is reached.
    Work,
    /// All server connections are in use.
    Connections { connections: u32 },
}

/// The last look at a gate.
#[derive(Debug, Default)]
pub(crate) struct Causes(Mutex<Option<(Instant, Seen)>>);

#[derive(Clone, Debug)]
struct Seen {
    paused: Paused,
    /// The types of the long lane, if that is full.
    longs: Vec<RequestType>,
    long_limit: u32,
    busy: Option<Cause>,
}

impl Causes {
    /// What a request of this type has waited for, in a session of this database.
    pub(crate) fn of(&self, shared: &Shared, database: &str, request_type: RequestType) -> Option<Cause> {
        let mut last = self.0.lock();
        let is_fresh = last.as_ref().is_some_and(|(at, _)| at.elapsed() < FRESH);
        if !is_fresh {
            *last = Some((Instant::now(), Seen::of(shared)));
        }
        let (_, seen) = last.as_ref()?;
        if seen.paused.holds(database) {
            return Some(Cause::Paused);
        }
        if seen.longs.contains(&request_type) {
            return Some(Cause::LongLane { most: seen.long_limit });
        }
        seen.busy
    }
}

impl Seen {
    fn of(shared: &Shared) -> Self {
        let snapshot = shared.driver.snapshot();
        let full = snapshot.long_limit.filter(|limit| snapshot.long_in_flight >= *limit);
        let is_long = |lane: Lane| matches!(lane, Lane::Long | Lane::Variable);
        let known = snapshot.types.iter().filter(|known| full.is_some() && is_long(known.lane));
        let longs = known.filter_map(|known| known.request_type).collect();
        let connections = snapshot.connections;
        let found = snapshot.capacity_found.filter(|most| snapshot.in_flight >= *most as usize);
        let busy = if snapshot.connections_in_use >= connections {
            Some(silent(shared, connections).unwrap_or(Cause::Connections { connections }))
        } else if let Some(most) = found {
            Some(Cause::Requests { most })
        } else {
            snapshot.capacity.filter(|capacity| snapshot.load >= *capacity).map(|_| Cause::Work)
        };
        Self { paused: shared.pools.paused(), longs, long_limit: full.unwrap_or(0), busy }
    }
}

/// Transactions whose clients are silent, if any hold connections.
fn silent(shared: &Shared, connections: u32) -> Option<Cause> {
    let now = shared.driver.clock().now();
    let (mut held, mut longest) = (0, Duration::ZERO);
    for card in shared.roster.cards() {
        if card.activity() == Activity::InTransaction && card.server().is_some() {
            held += 1;
            longest = longest.max(now.since(card.since()));
        }
    }
    (held > 0).then_some(Cause::Silent { held, connections, longest })
}
