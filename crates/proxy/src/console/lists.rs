//! The columns of what SHOW shows: PgBouncer's where the meaning is the same (of version 1.24, by name and
//! order), so that what reads its console reads ours.

use super::table::{Column, Kind};
use super::words::List;

use Kind::{Int, Text};

/// The commands and what each does.
pub(crate) const HELP: &[(&str, &str)] = &[
    ("SHOW HELP", "this list"),
    ("SHOW POOLS", "clients and server connections by user and database, and the longest wait"),
    ("SHOW CLIENTS", "every client: what it does, since when, on which server connection"),
    ("SHOW SERVERS", "every server connection: idle or whose"),
    ("SHOW DATABASES", "every database that somebody is connected to"),
    ("SHOW USERS", "every user that is connected"),
    ("SHOW LISTS", "how many there are of each"),
    ("SHOW STATE", "whether the gate is active or paused"),
    ("SHOW STATS", "transactions, queries and times by database (also STATS_TOTALS, STATS_AVERAGES)"),
    ("SHOW TYPES", "what was learned of each request type"),
    ("SHOW QUEUE", "the requests that wait, longest first (at most 1000)"),
    ("SHOW PINNED", "sessions that keep a server connection to themselves, and why"),
    ("SHOW CONFIG", "every key of this gate, and whether a reload can change it"),
    ("SHOW VERSION", "the version"),
    ("PAUSE [db]", "hold requests up, and wait until none is in flight"),
    ("RESUME [db]", "let them go"),
    ("KILL id | db", "end a session, or all of a database; KILL alone ends all"),
    ("RECONNECT", "replace server connections as logins bring others"),
    ("RELOAD", "read the configuration again"),
    ("SHUTDOWN [IMMEDIATE]", "end the process: transactions may end first, or not"),
];

const POOLS: &[Column] = &[
    ("database", Text),
    ("user", Text),
    ("cl_active", Int),
    ("cl_waiting", Int),
    ("cl_active_cancel_req", Int),
    ("cl_waiting_cancel_req", Int),
    ("sv_active", Int),
    ("sv_active_cancel", Int),
    ("sv_being_canceled", Int),
    ("sv_idle", Int),
    ("sv_used", Int),
    ("sv_tested", Int),
    ("sv_login", Int),
    ("maxwait", Int),
    ("maxwait_us", Int),
    ("pool_mode", Text),
];

const CLIENTS: &[Column] = &[
    ("type", Text),
    ("user", Text),
    ("database", Text),
    ("state", Text),
    ("addr", Text),
    ("port", Int),
    ("local_addr", Text),
    ("local_port", Int),
    ("connect_time", Text),
    ("request_time", Text),
    ("wait", Int),
    ("wait_us", Int),
    ("close_needed", Int),
    ("ptr", Text),
    ("link", Text),
    ("remote_pid", Int),
    ("tls", Text),
    ("application_name", Text),
    ("prepared_statements", Int),
    ("id", Int),
];

const DATABASES: &[Column] = &[
    ("name", Text),
    ("host", Text),
    ("port", Int),
    ("database", Text),
    ("force_user", Text),
    ("pool_size", Int),
    ("min_pool_size", Int),
    ("reserve_pool_size", Int),
    ("pool_mode", Text),
    ("max_connections", Int),
    ("current_connections", Int),
    ("paused", Int),
    ("disabled", Int),
];

const USERS: &[Column] = &[("name", Text), ("pool_mode", Text)];
const LISTS: &[Column] = &[("list", Text), ("items", Int)];
const STATE: &[Column] = &[("key", Text), ("value", Text)];
const VERSION: &[Column] = &[("version", Text)];
const HELP_COLUMNS: &[Column] = &[("command", Text), ("does", Text)];
const CONFIG: &[Column] = &[("key", Text), ("value", Text), ("default", Text), ("changeable", Text)];

const STATS: &[Column] = &[
    ("database", Text),
    ("total_xact_count", Int),
    ("total_query_count", Int),
    ("total_received", Int),
    ("total_sent", Int),
    ("total_xact_time", Int),
    ("total_query_time", Int),
    ("total_wait_time", Int),
    ("avg_xact_count", Int),
    ("avg_query_count", Int),
    ("avg_recv", Int),
    ("avg_sent", Int),
    ("avg_xact_time", Int),
    ("avg_query_time", Int),
    ("avg_wait_time", Int),
];
const STATS_SHORT: &[Column] = &[
    ("database", Text),
    ("xact_count", Int),
    ("query_count", Int),
    ("bytes_received", Int),
    ("bytes_sent", Int),
    ("xact_time", Int),
    ("query_time", Int),
    ("wait_time", Int),
];

const TYPES: &[Column] = &[
    ("type", Text),
    ("lane", Text),
    ("work_us", Int),
    ("share_percent", Int),
    ("samples", Int),
    ("in_flight", Int),
    ("queued", Int),
    ("succeeded", Int),
    ("failed", Int),
    ("canceled", Int),
    ("refused", Int),
    ("upstream_p50_us", Int),
    ("upstream_p95_us", Int),
    ("wait_p50_us", Int),
    ("wait_p95_us", Int),
];

const QUEUE: &[Column] = &[
    ("position", Int),
    ("type", Text),
    ("lane", Text),
    ("user", Text),
    ("database", Text),
    ("work_us", Int),
    ("wait", Int),
    ("wait_us", Int),
];

const PINNED: &[Column] = &[
    ("id", Int),
    ("user", Text),
    ("database", Text),
    ("addr", Text),
    ("port", Int),
    ("state", Text),
    ("reasons", Text),
    ("remote_pid", Int),
    ("application_name", Text),
];

/// The columns of a list.
pub(crate) fn columns(list: List) -> &'static [Column] {
    match list {
        List::Help => HELP_COLUMNS,
        List::Version => VERSION,
        List::Config => CONFIG,
        List::Pools => POOLS,
        List::Clients | List::Servers => CLIENTS,
        List::Databases => DATABASES,
        List::Users => USERS,
        List::Lists => LISTS,
        List::State => STATE,
        List::Stats => STATS,
        List::StatsTotals | List::StatsAverages => STATS_SHORT,
        List::Types => TYPES,
        List::Queue => QUEUE,
        List::Pinned => PINNED,
    }
}
