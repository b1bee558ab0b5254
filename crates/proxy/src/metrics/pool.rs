//! The metrics of connections to the server, and of their pools.

use super::scrape::GateScrape;
use super::{Kind, Metric, Seconds};
use crate::view::PoolView;

pub(super) const POOL: &[Metric<GateScrape>] = &[
    Metric {
        name: "connections",
        in_seconds: Seconds::No,
        kind: Kind::Gauge,
        labels: &[],
        help: "The budget of server connections",
        read: |gate, out| out.gauge(&[], f64::from(gate.snapshot.connections)),
    },
    Metric {
        name: "connections_allowed",
        in_seconds: Seconds::No,
        kind: Kind::Gauge,
        labels: &[],
        help: "With connections = \"auto\": the connections that the server allows to ordinary users; NaN until it was asked",
        read: |gate, out| out.told(gate.ceiling.as_ref().map(|it| it.allowed)),
    },
    Metric {
        name: "connections_others",
        in_seconds: Seconds::No,
        kind: Kind::Gauge,
        labels: &[],
        help: "With connections = \"auto\": the server connections that others held at the last look; NaN until it was asked",
        read: |gate, out| out.told(gate.ceiling.as_ref().map(|it| it.others)),
    },
    Metric {
        name: "connections_in_use",
        in_seconds: Seconds::No,
        kind: Kind::Gauge,
        labels: &[],
        help: "Server connections in use: by a request in flight, or kept by a session",
        read: |gate, out| out.gauge(&[], f64::from(gate.snapshot.connections_in_use)),
    },
    Metric {
        name: "connections_pinned",
        in_seconds: Seconds::No,
        kind: Kind::Gauge,
        labels: &[],
        help: "Server connections kept by sessions whose state can't be shared",
        read: |gate, out| out.gauge(&[], f64::from(gate.snapshot.pinned)),
    },
    Metric {
        name: "pinned_sessions",
        in_seconds: Seconds::No,
        kind: Kind::Gauge,
        labels: &["reason"],
        help: "Sessions that keep a server connection, by reason; a session may have several",
        read: |gate, out| {
            gate.pins.iter().try_for_each(|(reason, sessions)| out.gauge(&[reason], f64::from(*sessions)))
        },
    },
    Metric {
        name: "pool_connections",
        in_seconds: Seconds::No,
        kind: Kind::Gauge,
        labels: &["user", "database", "state"],
        help: "Server connections that exist, by pool, idle or busy",
        read: |gate, out| {
            gate.pools.iter().try_for_each(|PoolView { user, database, connections, idle, .. }| {
                out.gauge(&[user, database, "idle"], f64::from(*idle))?;
                out.gauge(&[user, database, "busy"], f64::from(connections.saturating_sub(*idle)))
            })
        },
    },
    Metric {
        name: "pool_session_changes",
        in_seconds: Seconds::No,
        kind: Kind::Counter,
        labels: &["user", "database", "how"],
        help: "Server connections that went to another session, by pool: reset (MySQL: COM_RESET_CONNECTION; PostgreSQL: DISCARD ALL behind a session that kept it); unreset (PostgreSQL: with settings only)",
        read: |gate, out| {
            let counted = gate.pools.iter().filter_map(|pool| Some((pool, pool.session_changes?)));
            counted.into_iter().try_for_each(|(PoolView { user, database, .. }, session_changes)| {
                out.counter(&[user, database, "reset"], session_changes.reset_total)?;
                out.counter(&[user, database, "unreset"], session_changes.unreset_total)
            })
        },
    },
    Metric {
        name: "pool_refills",
        in_seconds: Seconds::No,
        kind: Kind::Counter,
        labels: &["outcome"],
        help: "Server connections that the gate opened by itself because a pool had too few: success or failure",
        read: |gate, out| {
            out.counter(&["success"], gate.clients.openings_succeeded)?;
            out.counter(&["failure"], gate.clients.openings_failed)
        },
    },
];
