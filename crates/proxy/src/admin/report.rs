//! The JSON of the admin listener. Field names carry their units; what is absent is `null`.

use std::collections::HashMap;
use std::sync::Arc;

use admission::{GroupSnapshot, HeldTarget, Mode, RequestType, Snapshot, TypeSnapshot, Work};
use serde::{Deserialize, Serialize};

use super::classes::{ClassStatus, classes};
use super::{LatenessView, SessionChangesView, UpstreamView};
use crate::gate::Driver;
use crate::memory::MemoryView;
use crate::metrics::shown::id;
use crate::observe::{Counts, REASONS, TimeSummary, Totals, TypeRow, lane_name, shares};
use crate::principal::Principal;
use crate::view::{CeilingView, GateView, PoolView, UplinkReport};

/// `/status`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "the names say it")]
pub struct Status {
    pub version: String,
    /// `starting`, `ready` or `draining`.
    pub phase: String,
    pub uptime_seconds: f64,
    /// The process that handed over to this one, while it serves its clients: nothing else here is of it.
    #[serde(default)]
    pub predecessor: Option<u32>,
    #[serde(default)]
    pub memory: MemoryStatus,
    pub gates: Vec<GateStatus>,
}

/// What clients' messages take, in `/status`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "the names say it")]
pub struct MemoryStatus {
    pub limit_bytes: usize,
    pub held_bytes: usize,
    pub refused_total: u64,
}

impl From<MemoryView> for MemoryStatus {
    fn from(view: MemoryView) -> Self {
        Self { limit_bytes: view.limit, held_bytes: view.held, refused_total: view.refused }
    }
}

/// One gate in `/status`: its state now, and its counts since the start.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "the names say it")]
pub struct GateStatus {
    pub name: String,
    /// `enforce` or `observe`; observing, requests and their ends are counted as they really are, and waits,
    /// refusals and what is in flight as they would be.
    pub mode: String,
    pub listen: String,
    pub upstream: String,
    /// Its addresses one by one.
    #[serde(default)]
    pub upstreams: Vec<UpstreamStatus>,
    /// The databases whose requests an operator holds up; `*` for all.
    #[serde(default)]
    pub paused: Vec<String>,
    /// Whether an operator lets everything pass.
    #[serde(default)]
    pub passes_everything: bool,
    /// How many run at once while everything passes; `None`: all.
    #[serde(default)]
    pub passing_max: Option<u32>,
    pub load_seconds: f64,
    pub capacity_seconds: Option<f64>,
    /// The most requests in flight, where a controller finds that.
    pub capacity_requests: Option<u32>,
    /// The response time that is to be held by refusing, if any; types may have targets of their own.
    #[serde(default)]
    pub target: Option<GoalReport>,
    pub retry_after_seconds: f64,
    /// The server's cores, where it has told them (PostgreSQL, with `long_limit = "auto"`).
    #[serde(default)]
    pub cores: Option<u32>,
    /// On how many requests the server works at once, as far as that was seen: about its cores.
    pub parallelism_requests: Option<u32>,
    /// From how many executions that was learned, at the number in flight that is known least.
    pub parallelism_samples: Option<u32>,
    pub queued: usize,
    /// Of those, how many waited through a stall of the service, and wait behind newcomers.
    #[serde(default)]
    pub late: usize,
    /// Whether the service answers nothing.
    #[serde(default)]
    pub stalled: bool,
    /// Whether requests take longer than the gate's target although fewer are present than the service
    /// works on at once.
    #[serde(default)]
    pub target_out_of_reach: bool,
    pub in_flight: usize,
    /// Observing, how many really are.
    #[serde(default)]
    pub really_in_flight: Option<usize>,
    pub suspended: usize,
    /// Of those in flight, how many whose clients have left.
    #[serde(default)]
    pub left_in_flight: usize,
    pub long_in_flight: u32,
    pub long_limit: Option<u32>,
    /// Clients that send shorts and longs in turn.
    #[serde(default)]
    pub clients_mixing: u32,
    /// How many of them wait with a long.
    #[serde(default)]
    pub clients_mixing_waiting: u32,
    pub connections: u32,
    /// With `connections = "auto"`: what was found, and why.
    #[serde(default)]
    pub connections_found: Option<CeilingView>,
    pub connections_in_use: u32,
    pub connections_pinned: u32,
    /// Sessions that keep a connection, by reason; a session may have several.
    pub pinned_by_reason: HashMap<String, u32>,
    pub types_known: usize,
    pub types_forgotten_total: u64,
    pub clients_connected: usize,
    pub clients_logging_in: usize,
    pub clients_refused_total: u64,
    pub logins_succeeded_total: u64,
    pub logins_failed_total: u64,
    /// Where the gate looks at that (HTTP).
    #[serde(default)]
    pub lateness: Option<LatenessReport>,
    /// Where responses wait for the link to the clients (HTTP).
    #[serde(default)]
    pub uplink: Option<UplinkReport>,
    pub requests: CountsReport,
    pub pools: Vec<PoolStatus>,
    /// Types that contend with one another, and are held back together.
    #[serde(default)]
    pub groups: Vec<GroupStatus>,
    /// The service classes, where there are several.
    #[serde(default)]
    pub classes: Vec<ClassStatus>,
}

/// The target of a gate in `/status`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct GoalReport {
    /// The mean response time to hold.
    pub mean_seconds: Option<f64>,
    /// What 95 % of the requests stay below.
    pub p95_seconds: Option<f64>,
    /// The most that may wait or be in flight before the next one is refused. None while nothing limits them.
    pub present_bound: Option<f64>,
}

/// Whether a gate keeps up with its own clients, in `/status`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "the names say it")]
pub struct LatenessReport {
    /// Clients that asked lately waited longer than 20 ms on average until they were read.
    pub is_late: bool,
    /// How long the gate was late, in all.
    #[serde(default)]
    pub late_seconds_total: f64,
    pub delay_seconds: f64,
    /// How many newcomers the kernel keeps meanwhile, before it turns them away.
    pub backlog: Option<u32>,
    pub ended_total: u64,
    pub refused_total: u64,
    pub closed_total: u64,
    pub gone_total: u64,
}

impl From<LatenessView> for LatenessReport {
    fn from(view: LatenessView) -> Self {
        Self {
            is_late: view.is_late,
            late_seconds_total: view.late_for.as_secs_f64(),
            delay_seconds: view.delay.as_secs_f64(),
            backlog: view.backlog,
            ended_total: view.ended,
            refused_total: view.refused,
            closed_total: view.closed,
            gone_total: view.gone,
        }
    }
}

/// One group of types that contend with one another in `/status`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GroupStatus {
    /// Never used twice.
    pub group: u64,
    /// Its types.
    pub types: Vec<String>,
    /// The most of its requests that may be in flight.
    pub limit: u32,
    /// How many of its requests are in flight.
    pub in_flight: u32,
    /// Those that had their turn and wait for room in the group.
    pub waiting: usize,
}

/// One address of a gate's service in `/status`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct UpstreamStatus {
    /// Where it is.
    pub address: String,
    /// `unknown`, `up` or `down`.
    pub state: String,
    /// For how long it has been so.
    pub since_seconds: f64,
    /// How often it has failed.
    pub failures_total: u64,
    /// Why it failed last.
    pub last_error: Option<String>,
    /// How long ago that was.
    pub last_error_seconds: Option<f64>,
}

impl From<UpstreamView> for UpstreamStatus {
    fn from(view: UpstreamView) -> Self {
        let (last_error, ago) = view.last_error.unzip();
        Self {
            address: view.address,
            state: view.condition.as_str().to_owned(),
            since_seconds: view.since.as_secs_f64(),
            failures_total: view.failures,
            last_error,
            last_error_seconds: ago.map(|ago| ago.as_secs_f64()),
        }
    }
}

/// One pool in `/status`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "the names say it")]
pub struct PoolStatus {
    pub user: String,
    pub database: String,
    pub connections: u32,
    pub idle: u32,
    pub spare: u32,
    /// How often connections went to another session, where sessions share them.
    #[serde(default)]
    pub session_changes: Option<SessionChangesView>,
}

/// What requests came to, since the start.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "the names say it")]
pub struct CountsReport {
    pub dispatched_total: u64,
    pub succeeded_total: u64,
    pub failed_total: u64,
    pub conflicted_total: u64,
    pub canceled_total: u64,
    pub left_total: u64,
    pub rejected_total: u64,
    /// The rejected ones by reason.
    pub rejected_by_reason: HashMap<String, u64>,
    /// The expected work of those that completed.
    pub work_seconds_total: f64,
}

/// `/types`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "the names say it")]
pub struct TypesReport {
    pub gates: Vec<GateTypes>,
}

/// The learned table of one gate, most work first.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "the names say it")]
pub struct GateTypes {
    pub gate: String,
    pub mode: String,
    pub types: Vec<TypeReport>,
}

/// One request type.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "the names say it")]
pub struct TypeReport {
    #[serde(rename = "type")]
    pub label: String,
    /// Its name in the labels of metrics.
    #[serde(default)]
    pub id: String,
    /// `unknown`, `short`, `long` or `variable`.
    pub lane: String,
    /// What one is expected to take.
    pub work_seconds: f64,
    /// Its part in the work of all, from 0 to 1.
    pub work_share: f64,
    /// The coefficient of variation of its upstream times, once known.
    pub variation: Option<f64>,
    /// Around which times alone its executions gather, the least first; several, if it is several types in
    /// one.
    pub modes: Vec<ModeReport>,
    /// How many executions the estimate was learned from.
    pub samples: u64,
    pub in_flight: u32,
    pub queued: u32,
    /// The target that the type has of its own.
    #[serde(default)]
    pub target: Option<TargetReport>,
    pub requests: CountsReport,
    pub upstream_time: TimesReport,
    /// Of all that ended their wait, refused or not.
    pub queue_wait: TimesReport,
    /// The users and applications that send it most (databases).
    #[serde(default)]
    pub asked_by: Vec<PrincipalReport>,
}

/// A user and an application that send requests of a type.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "the names say it")]
pub struct PrincipalReport {
    pub user: String,
    pub application: String,
    /// How many of its requests were counted; a lower bound where more than five principals send the type.
    pub requests: u64,
}

/// A target that a type has of its own, and what holds it.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct TargetReport {
    /// The mean response time to hold.
    pub mean_seconds: Option<f64>,
    /// What 95 % of its requests stay below.
    pub p95_seconds: Option<f64>,
    /// How many of them wait, or the service is busy with.
    pub present: u32,
    /// The most that might be present when a request last came, before the next one is refused. None while
    /// nothing limits them.
    pub present_bound: Option<f64>,
    /// Whether they take longer although fewer requests are present than the service works on at once.
    #[serde(default)]
    pub out_of_reach: bool,
}

/// A time around which executions of a type gather.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct ModeReport {
    /// The time in the middle.
    pub work_seconds: f64,
    /// Which part of the executions, from 0 to 1.
    pub share: f64,
}

/// Many durations since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "the names say it")]
pub struct TimesReport {
    pub count: u64,
    pub mean_seconds: f64,
    pub p50_seconds: f64,
    pub p95_seconds: f64,
}

impl GateStatus {
    pub(super) fn of(gate: &dyn GateView) -> Self {
        // Types that are seen in one row are one.
        let rows = gate.types().iter().filter(|row| row.key.is_some()).count();
        Self::with(gate, &gate.snapshot(), &gate.totals(), rows)
    }

    /// The status that these figures make.
    pub(super) fn with(
        gate: &dyn GateView,
        snapshot: &Snapshot,
        totals: &Totals,
        types_known: usize,
    ) -> Self {
        let Totals { counts, types_forgotten, .. } = *totals;
        let clients = gate.clients();
        Self {
            name: gate.name().to_owned(),
            mode: gate.mode().to_owned(),
            listen: gate.listen(),
            upstream: gate.upstream(),
            upstreams: gate.upstreams().into_iter().map(UpstreamStatus::from).collect(),
            paused: gate.paused(),
            passes_everything: gate.driver().is_some_and(Driver::passes_everything),
            passing_max: gate.driver().and_then(Driver::passing_max),
            load_seconds: work_seconds(snapshot.load),
            capacity_seconds: snapshot.capacity.map(work_seconds),
            capacity_requests: snapshot.capacity_found,
            target: gate.driver().and_then(Driver::target).map(|goal| GoalReport {
                mean_seconds: goal.mean.map(|mean| mean.as_secs_f64()),
                p95_seconds: goal.p95.map(|p95| p95.as_secs_f64()),
                present_bound: snapshot.refusing.bound,
            }),
            retry_after_seconds: snapshot.retry_after.as_secs_f64(),
            cores: gate.driver().and_then(Driver::cores),
            parallelism_requests: snapshot.parallelism.map(|learned| learned.requests),
            parallelism_samples: snapshot.parallelism.map(|learned| learned.samples),
            queued: snapshot.queued,
            late: snapshot.late,
            stalled: snapshot.stalled,
            target_out_of_reach: snapshot.refusing.is_out_of_reach,
            in_flight: snapshot.in_flight,
            really_in_flight: gate.driver().and_then(Driver::really_in_flight),
            suspended: snapshot.suspended,
            left_in_flight: snapshot.left,
            long_in_flight: snapshot.long_in_flight,
            long_limit: snapshot.long_limit,
            clients_mixing: snapshot.mixing,
            clients_mixing_waiting: snapshot.mixing_waiting,
            connections: snapshot.connections,
            connections_found: gate.ceiling(),
            connections_in_use: snapshot.connections_in_use,
            connections_pinned: snapshot.pinned,
            pinned_by_reason: pinned(gate),
            types_known,
            types_forgotten_total: types_forgotten,
            clients_connected: clients.connected,
            clients_logging_in: clients.logging_in,
            clients_refused_total: clients.refused,
            logins_succeeded_total: clients.logins_succeeded,
            logins_failed_total: clients.logins_failed,
            lateness: gate.lateness().map(LatenessReport::from),
            uplink: gate.uplink(),
            requests: CountsReport::of(&counts),
            pools: gate.pools().into_iter().map(PoolStatus::from).collect(),
            groups: groups(gate, snapshot),
            classes: classes(gate, snapshot),
        }
    }
}

fn groups(gate: &dyn GateView, snapshot: &Snapshot) -> Vec<GroupStatus> {
    let name = |key: &RequestType| {
        let label = gate.driver().and_then(|driver| driver.label(*key));
        label.map_or_else(|| format!("{:016x}", key.0), |label| label.to_string())
    };
    let status = |group: &GroupSnapshot| GroupStatus {
        group: group.number,
        types: group.types.iter().map(name).collect(),
        limit: group.most,
        in_flight: group.in_flight,
        waiting: group.aside,
    };
    snapshot.groups.iter().map(status).collect()
}

fn pinned(gate: &dyn GateView) -> HashMap<String, u32> {
    let pins = gate.pins().into_iter().filter(|(_, sessions)| *sessions > 0);
    pins.map(|(reason, sessions)| (reason.to_owned(), sessions)).collect()
}

impl From<PoolView> for PoolStatus {
    fn from(PoolView { user, database, connections, idle, spare, session_changes }: PoolView) -> Self {
        Self { user, database, connections, idle, spare, session_changes }
    }
}

impl CountsReport {
    fn of(counts: &Counts) -> Self {
        let by_reason = REASONS.iter().zip(counts.rejected);
        Self {
            dispatched_total: counts.dispatched,
            succeeded_total: counts.succeeded,
            failed_total: counts.failed,
            conflicted_total: counts.conflicted,
            canceled_total: counts.canceled,
            left_total: counts.left,
            rejected_total: counts.refused(),
            rejected_by_reason: by_reason.map(|(reason, n)| (reason.as_str().to_owned(), n)).collect(),
            work_seconds_total: work_seconds(counts.work),
        }
    }
}

impl GateTypes {
    /// Of all types, or of the one with this id.
    pub(super) fn of(gate: &dyn GateView, only: Option<&str>) -> Self {
        let rows = gate.types();
        let snapshot = gate.snapshot();
        let learned = learned(&snapshot);
        let mut types: Vec<_> = rows
            .iter()
            .zip(shares(&rows))
            .filter(|(row, _)| only.is_none_or(|only| only == id(row.key)))
            .map(|(row, share)| TypeReport::of((gate, row), share, learned.get(&row.key).copied()))
            .collect();
        types.sort_by(|a, b| b.work_share.total_cmp(&a.work_share).then_with(|| a.label.cmp(&b.label)));
        Self { gate: gate.name().to_owned(), mode: gate.mode().to_owned(), types }
    }
}

fn learned(snapshot: &Snapshot) -> HashMap<Option<RequestType>, &TypeSnapshot> {
    snapshot.types.iter().map(|learned| (learned.request_type, learned)).collect()
}

impl TypeReport {
    fn of((gate, row): (&dyn GateView, &TypeRow), work_share: f64, learned: Option<&TypeSnapshot>) -> Self {
        let of = |(key, driver): (_, &Driver)| driver.principals_of(key);
        let principals = row.key.zip(gate.driver()).map_or_else(Vec::new, of);
        Self {
            label: row.label.as_ref().to_owned(),
            id: id(row.key),
            lane: lane_name(learned.map_or(row.lane, |learned| learned.lane)).to_owned(),
            work_seconds: work_seconds(learned.map_or(row.work, |learned| learned.work)),
            work_share,
            variation: learned.map(|learned| learned.variation).filter(|variation| variation.is_finite()),
            modes: learned
                .map_or_else(Vec::new, |learned| learned.modes.iter().map(ModeReport::from).collect()),
            samples: learned.map_or(0, |learned| learned.samples),
            in_flight: learned.map_or(0, |learned| learned.in_flight),
            queued: learned.map_or(0, |learned| learned.queued),
            target: learned.and_then(|learned| learned.target.as_ref()).map(TargetReport::from),
            requests: CountsReport::of(&row.counts),
            upstream_time: TimesReport::from(&row.upstream_time),
            queue_wait: TimesReport::from(&row.queue_wait),
            asked_by: principals.into_iter().map(PrincipalReport::from).collect(),
        }
    }
}

impl From<(Arc<Principal>, u64)> for PrincipalReport {
    fn from((principal, requests): (Arc<Principal>, u64)) -> Self {
        let text = |name: &[u8]| String::from_utf8_lossy(name).into_owned();
        Self { user: text(&principal.user), application: text(&principal.application), requests }
    }
}

impl From<&HeldTarget> for TargetReport {
    fn from(target: &HeldTarget) -> Self {
        Self {
            mean_seconds: target.goal.mean.map(|mean| mean.as_secs_f64()),
            p95_seconds: target.goal.p95.map(|p95| p95.as_secs_f64()),
            present: target.present,
            present_bound: target.bound,
            out_of_reach: target.is_out_of_reach,
        }
    }
}

impl From<&Mode> for ModeReport {
    fn from(mode: &Mode) -> Self {
        Self { work_seconds: work_seconds(mode.work), share: mode.share }
    }
}

impl From<&TimeSummary> for TimesReport {
    fn from(summary: &TimeSummary) -> Self {
        Self {
            count: summary.count,
            mean_seconds: summary.mean().as_secs_f64(),
            p50_seconds: summary.p50.as_secs_f64(),
            p95_seconds: summary.p95.as_secs_f64(),
        }
    }
}

fn work_seconds(work: Work) -> f64 {
    work.as_millis_f64() / 1e3
}
