//! Every metric of a gate, with its labels, its meaning and where its value comes from.

use std::fmt;

use admission::{GroupSnapshot, Work};

use super::samples::Samples;
use super::scrape::GateScrape;
use super::{Kind, Metric, Seconds};
use crate::observe::{Counts, REASONS};
use crate::upstream::health::Condition;

pub(super) const GATE: &[Metric<GateScrape>] = &[
    Metric {
        name: "mode_info",
        in_seconds: Seconds::No,
        kind: Kind::Gauge,
        labels: &["mode"],
        help: "Always 1; with mode observe ends and upstream times are real, all else is what would have been decided",
        read: |gate, out| out.gauge(&[gate.mode], 1.0),
    },
    Metric {
        name: "requests",
        in_seconds: Seconds::No,
        kind: Kind::Counter,
        labels: &["outcome"],
        help: "Requests that ended: success, failure, conflict (a deadlock or serialization failure) or canceled upstream; rejected by the gate; left the queue by themselves",
        read: |gate, out| outcomes(&gate.totals.counts, &[], out),
    },
    Metric {
        name: "rejections",
        in_seconds: Seconds::No,
        kind: Kind::Counter,
        labels: &["reason"],
        help: "Requests that the gate refused",
        read: |gate, out| {
            let counts = REASONS.iter().zip(gate.totals.counts.rejected);
            counts.into_iter().try_for_each(|(reason, count)| out.counter(&[reason.as_str()], count))
        },
    },
    Metric {
        name: "dispatches",
        in_seconds: Seconds::No,
        kind: Kind::Counter,
        labels: &[],
        help: "Requests sent upstream",
        read: |gate, out| out.counter(&[], gate.totals.counts.dispatched),
    },
    Metric {
        name: "queue_wait",
        in_seconds: Seconds::Yes,
        kind: Kind::Histogram,
        labels: &["end"],
        help: "From arrival to the end of the wait, by how it ended: dispatched, rejected or left",
        read: |gate, out| {
            out.histogram(&["dispatched"], &gate.totals.queue_wait_dispatched)?;
            out.histogram(&["rejected"], &gate.totals.queue_wait_rejected)?;
            out.histogram(&["left"], &gate.totals.queue_wait_left)
        },
    },
    Metric {
        name: "upstream_time",
        in_seconds: Seconds::Yes,
        kind: Kind::Histogram,
        labels: &[],
        help: "How long the service was busy with a request, without the client's own pauses",
        read: |gate, out| out.histogram(&[], &gate.totals.upstream_time),
    },
    Metric {
        name: "work",
        in_seconds: Seconds::Yes,
        kind: Kind::Counter,
        labels: &[],
        help: "Expected work of the completed requests",
        read: |gate, out| out.counter_seconds(&[], work_seconds(gate.totals.counts.work)),
    },
    Metric {
        name: "load",
        in_seconds: Seconds::Yes,
        kind: Kind::Gauge,
        labels: &[],
        help: "Work in flight",
        read: |gate, out| out.gauge(&[], work_seconds(gate.snapshot.load)),
    },
    Metric {
        name: "capacity",
        in_seconds: Seconds::Yes,
        kind: Kind::Gauge,
        labels: &[],
        help: "The most work that may be in flight; absent without such a limit",
        read: |gate, out| match gate.snapshot.capacity {
            Some(capacity) => out.gauge(&[], work_seconds(capacity)),
            None => Ok(()),
        },
    },
    Metric {
        name: "capacity_requests",
        in_seconds: Seconds::No,
        kind: Kind::Gauge,
        labels: &[],
        help: "The most requests that may be in flight, where a controller finds the number; absent without one",
        read: |gate, out| match gate.snapshot.capacity_found {
            Some(capacity) => out.gauge(&[], f64::from(capacity)),
            None => Ok(()),
        },
    },
    Metric {
        name: "parallelism_requests",
        in_seconds: Seconds::No,
        kind: Kind::Gauge,
        labels: &[],
        help: "Requests that the server works on at once, about its cores; NaN until it was seen",
        read: |gate, out| {
            let seen = gate.snapshot.parallelism;
            out.gauge(&[], seen.map_or(f64::NAN, |learned| f64::from(learned.requests)))
        },
    },
    Metric {
        name: "trace_lost",
        in_seconds: Seconds::No,
        kind: Kind::Counter,
        labels: &[],
        help: "Entries of the trace that were left out because the disk did not keep up; absent without a trace",
        read: |gate, out| match gate.trace_lost {
            Some(lost) => out.counter(&[], lost),
            None => Ok(()),
        },
    },
    Metric {
        name: "capacity_moves",
        in_seconds: Seconds::No,
        kind: Kind::Counter,
        labels: &[],
        help: "How often a controller found another capacity",
        read: |gate, out| out.counter(&[], gate.totals.capacity_moves),
    },
    Metric {
        name: "stalls",
        in_seconds: Seconds::No,
        kind: Kind::Counter,
        labels: &[],
        help: "How often the service answered nothing for 5 s or more while requests were in flight",
        read: |gate, out| out.counter(&[], gate.totals.stalls),
    },
    Metric {
        name: "rejection_probability",
        in_seconds: Seconds::No,
        kind: Kind::Gauge,
        labels: &[],
        help: "The probability with which a request is refused on arrival, where chance decides",
        read: |gate, out| match gate.snapshot.refusing.probability {
            Some(probability) => out.gauge(&[], probability),
            None => Ok(()),
        },
    },
    Metric {
        name: "rejection_gain",
        in_seconds: Seconds::No,
        kind: Kind::Gauge,
        labels: &["gain"],
        help: "Change of that probability for each second of response time above the target: A of now, B of a step before (rejection = \"yaksha\"); absent without them",
        read: |gate, out| match gate.snapshot.refusing.gains {
            Some((a, b)) => out.gauge(&["A"], a).and_then(|()| out.gauge(&["B"], b)),
            None => Ok(()),
        },
    },
    Metric {
        name: "present_bound",
        in_seconds: Seconds::No,
        kind: Kind::Gauge,
        labels: &[],
        help: "The most requests that may wait or be in flight, to hold a target; types with targets of their own aren't counted; +Inf without a limit",
        read: |gate, out| out.gauge(&[], gate.snapshot.refusing.bound.unwrap_or(f64::INFINITY)),
    },
    Metric {
        name: "target_out_of_reach",
        in_seconds: Seconds::No,
        kind: Kind::Gauge,
        labels: &[],
        help: "1 while requests take longer than the gate's target although fewer are present than the service works on at once",
        read: |gate, out| out.gauge(&[], f64::from(u8::from(gate.snapshot.refusing.is_out_of_reach))),
    },
    Metric {
        name: "retry_after",
        in_seconds: Seconds::Yes,
        kind: Kind::Gauge,
        labels: &[],
        help: "The pause that refusals advise: the time in which the queue will drain",
        read: |gate, out| out.gauge(&[], gate.snapshot.retry_after.as_secs_f64()),
    },
    Metric {
        name: "group_limit",
        in_seconds: Seconds::No,
        kind: Kind::Gauge,
        labels: &["group"],
        help: "The most requests in flight of a group of types that contend with one another; at most 8 groups at a time",
        read: |gate, out| groups(gate, out, |group| f64::from(group.most)),
    },
    Metric {
        name: "group_in_flight",
        in_seconds: Seconds::No,
        kind: Kind::Gauge,
        labels: &["group"],
        help: "Requests in flight of such a group",
        read: |gate, out| groups(gate, out, |group| f64::from(group.in_flight)),
    },
    Metric {
        name: "group_waiting",
        in_seconds: Seconds::No,
        kind: Kind::Gauge,
        labels: &["group"],
        help: "Requests whose turn has come and that wait for room in such a group",
        read: |gate, out| groups(gate, out, |group| group.aside as f64),
    },
    Metric {
        name: "groups_formed",
        in_seconds: Seconds::No,
        kind: Kind::Counter,
        labels: &[],
        help: "How often types that contend with one another were found",
        read: |gate, out| out.counter(&[], gate.totals.groups_formed),
    },
    Metric {
        name: "group_moves",
        in_seconds: Seconds::No,
        kind: Kind::Counter,
        labels: &[],
        help: "How often the bound of such a group was moved",
        read: |gate, out| out.counter(&[], gate.totals.group_moves),
    },
    Metric {
        name: "queue_length",
        in_seconds: Seconds::No,
        kind: Kind::Gauge,
        labels: &[],
        help: "Requests that wait",
        read: |gate, out| out.gauge(&[], gate.snapshot.queued as f64),
    },
    Metric {
        name: "in_flight",
        in_seconds: Seconds::No,
        kind: Kind::Gauge,
        labels: &[],
        help: "Requests in flight, suspended ones included",
        read: |gate, out| out.gauge(&[], gate.snapshot.in_flight as f64),
    },
    Metric {
        name: "suspended",
        in_seconds: Seconds::No,
        kind: Kind::Gauge,
        labels: &[],
        help: "Transactions in flight that are idle and have given their work back",
        read: |gate, out| out.gauge(&[], gate.snapshot.suspended as f64),
    },
    Metric {
        name: "left_in_flight",
        in_seconds: Seconds::No,
        kind: Kind::Gauge,
        labels: &[],
        help: "Requests in flight whose clients have left: the server may work for them in vain",
        read: |gate, out| out.gauge(&[], gate.snapshot.left as f64),
    },
    Metric {
        name: "long_in_flight",
        in_seconds: Seconds::No,
        kind: Kind::Gauge,
        labels: &[],
        help: "Long requests in flight",
        read: |gate, out| out.gauge(&[], f64::from(gate.snapshot.long_in_flight)),
    },
    Metric {
        name: "long_limit",
        in_seconds: Seconds::No,
        kind: Kind::Gauge,
        labels: &[],
        help: "The most long requests in flight; absent without a long lane",
        read: |gate, out| match gate.snapshot.long_limit {
            Some(limit) => out.gauge(&[], f64::from(limit)),
            None => Ok(()),
        },
    },
    Metric {
        name: "paused",
        in_seconds: Seconds::No,
        kind: Kind::Gauge,
        labels: &[],
        help: "1 while an operator holds requests up (PAUSE), of all databases or of some",
        read: |gate, out| out.gauge(&[], f64::from(u8::from(gate.paused))),
    },
    Metric {
        name: "passes_everything",
        in_seconds: Seconds::No,
        kind: Kind::Gauge,
        labels: &[],
        help: "1 while an operator lets everything pass, in an emergency",
        read: |gate, out| out.gauge(&[], f64::from(u8::from(gate.passes_everything))),
    },
    Metric {
        name: "upstream_up",
        in_seconds: Seconds::No,
        kind: Kind::Gauge,
        labels: &["upstream"],
        help: "1 while an address of the service is up; 0 while it is down, and before the first connection",
        read: |gate, out| {
            gate.upstreams.iter().try_for_each(|upstream| {
                let is_up = upstream.condition == Condition::Up;
                out.gauge(&[&upstream.address], f64::from(u8::from(is_up)))
            })
        },
    },
    Metric {
        name: "upstream_failures",
        in_seconds: Seconds::No,
        kind: Kind::Counter,
        labels: &["upstream"],
        help: "How often an address of the service could not be reached, or didn't answer as one that is well",
        read: |gate, out| {
            let mut upstreams = gate.upstreams.iter();
            upstreams.try_for_each(|upstream| out.counter(&[&upstream.address], upstream.failures))
        },
    },
    Metric {
        name: "clients",
        in_seconds: Seconds::No,
        kind: Kind::Gauge,
        labels: &[],
        help: "Clients connected",
        read: |gate, out| out.gauge(&[], gate.clients.connected as f64),
    },
    Metric {
        name: "clients_mixing",
        in_seconds: Seconds::No,
        kind: Kind::Gauge,
        labels: &[],
        help: "Clients whose connections carry short and long requests, as those of a pool do (PostgreSQL)",
        read: |gate, out| out.gauge(&[], f64::from(gate.snapshot.mixing)),
    },
    Metric {
        name: "clients_mixing_waiting",
        in_seconds: Seconds::No,
        kind: Kind::Gauge,
        labels: &[],
        help: "Such clients that wait with a long request; from an eighth on long ones that have waited for two seconds go first",
        read: |gate, out| out.gauge(&[], f64::from(gate.snapshot.mixing_waiting)),
    },
    Metric {
        name: "late",
        in_seconds: Seconds::No,
        kind: Kind::Gauge,
        labels: &[],
        help: "1 while the gate itself is late: its own processor is short",
        read: |gate, out| match gate.lateness {
            Some(lateness) => out.gauge(&[], f64::from(u8::from(lateness.is_late))),
            None => Ok(()),
        },
    },
    Metric {
        name: "late",
        in_seconds: Seconds::Yes,
        kind: Kind::Counter,
        labels: &[],
        help: "How long the gate itself was late: the rate is the part of the time",
        read: |gate, out| match gate.lateness {
            Some(lateness) => out.counter_seconds(&[], lateness.late_for.as_secs_f64()),
            None => Ok(()),
        },
    },
    Metric {
        name: "read_delay",
        in_seconds: Seconds::Yes,
        kind: Kind::Gauge,
        labels: &[],
        help: "The mean time that clients' data waited lately until the gate read them",
        read: |gate, out| match gate.lateness {
            Some(lateness) => out.gauge(&[], lateness.delay.as_secs_f64()),
            None => Ok(()),
        },
    },
    Metric {
        name: "backlog_bound",
        in_seconds: Seconds::No,
        kind: Kind::Gauge,
        labels: &[],
        help: "New connections that the kernel keeps before it turns others away, while the gate is late or newcomers wait all the time; +Inf else",
        read: |gate, out| match gate.lateness {
            Some(lateness) => out.gauge(&[], lateness.backlog.map_or(f64::INFINITY, f64::from)),
            None => Ok(()),
        },
    },
    Metric {
        name: "connections_ended",
        in_seconds: Seconds::No,
        kind: Kind::Counter,
        labels: &[],
        help: "Connections that ended with an answer because the gate itself was late",
        read: |gate, out| match gate.lateness {
            Some(lateness) => out.counter(&[], lateness.ended),
            None => Ok(()),
        },
    },
    Metric {
        name: "left_out",
        in_seconds: Seconds::No,
        kind: Kind::Counter,
        labels: &["how"],
        help: "Requests that were not passed on for the gate's own sake: refused (HTTP: with 503, PostgreSQL: with 53300); closed, their connection unread; gone, whose client had reset it before",
        read: |gate, out| {
            let Some(lateness) = gate.lateness else { return Ok(()) };
            out.counter(&["refused"], lateness.refused)?;
            out.counter(&["closed"], lateness.closed)?;
            out.counter(&["gone"], lateness.gone)
        },
    },
    Metric {
        name: "uplink_rate_bytes",
        in_seconds: Seconds::No,
        kind: Kind::Gauge,
        labels: &[],
        help: "Bytes per second of the link to the clients, set or found; NaN while the link isn't known to be the bottleneck; absent with uplink = \"none\" (HTTP)",
        read: |gate, out| match gate.uplink {
            Some(uplink) => out.gauge(&[], uplink.bits_per_second.map_or(f64::NAN, |bits| bits as f64 / 8.0)),
            None => Ok(()),
        },
    },
    Metric {
        name: "uplink_waiting_bytes",
        in_seconds: Seconds::No,
        kind: Kind::Gauge,
        labels: &[],
        help: "Bytes of responses that wait in the gate for the link to the clients",
        read: |gate, out| match gate.uplink {
            Some(uplink) => out.gauge(&[], uplink.bytes_waiting as f64),
            None => Ok(()),
        },
    },
    Metric {
        name: "uplink_overdue_responses",
        in_seconds: Seconds::No,
        kind: Kind::Gauge,
        labels: &[],
        help: "Responses that wait for the link to the clients, and that a fair link would have sent by now",
        read: |gate, out| match gate.uplink {
            Some(uplink) => out.gauge(&[], uplink.responses_overdue as f64),
            None => Ok(()),
        },
    },
    Metric {
        name: "own_answers",
        in_seconds: Seconds::No,
        kind: Kind::Counter,
        labels: &["reason"],
        help: "Requests over HTTP that the gate answered by itself, beside refusals for others: late; memory (memory_max); bad_request; body_timeout; upstream (no response could be had); upstream_timeout; shutdown",
        read: |gate, out| {
            gate.own_answers.iter().try_for_each(|(reason, count)| out.counter(&[reason], *count))
        },
    },
    Metric {
        name: "logins",
        in_seconds: Seconds::No,
        kind: Kind::Counter,
        labels: &["outcome"],
        help: "Logins that ended: success or failure; or refused, because max_clients were connected",
        read: |gate, out| {
            out.counter(&["success"], gate.clients.logins_succeeded)?;
            out.counter(&["failure"], gate.clients.logins_failed)?;
            out.counter(&["refused"], gate.clients.refused)
        },
    },
    Metric {
        name: "login_failures",
        in_seconds: Seconds::No,
        kind: Kind::Counter,
        labels: &["reason"],
        help: "Failed logins by three reasons: denied by the gate's own authentication; limited, because of too many failures of the address; timeout",
        read: |gate, out| {
            out.counter(&["denied"], gate.clients.denied)?;
            out.counter(&["limited"], gate.clients.limited)?;
            out.counter(&["timeout"], gate.clients.late)
        },
    },
    Metric {
        name: "connections_unfinished",
        in_seconds: Seconds::No,
        kind: Kind::Gauge,
        labels: &[],
        help: "Client connections that have not become sessions yet",
        read: |gate, out| out.gauge(&[], gate.clients.unfinished as f64),
    },
    Metric {
        name: "auth_queries",
        in_seconds: Seconds::No,
        kind: Kind::Counter,
        labels: &["outcome"],
        help: "Questions of auth_query: found a user; unknown; failed, because the server could not be asked",
        read: |gate, out| {
            out.counter(&["found"], gate.clients.auth_queries_found)?;
            out.counter(&["unknown"], gate.clients.auth_queries_unknown)?;
            out.counter(&["failed"], gate.clients.auth_queries_failed)
        },
    },
];

fn groups(gate: &GateScrape, out: &mut Samples<'_, '_>, read: impl Fn(&GroupSnapshot) -> f64) -> fmt::Result {
    for group in &gate.snapshot.groups {
        out.gauge(&[&group.number.to_string()], read(group))?;
    }
    Ok(())
}

pub(super) fn outcomes(counts: &Counts, labels: &[&str], out: &mut Samples<'_, '_>) -> fmt::Result {
    let outcomes = [
        ("success", counts.succeeded),
        ("failure", counts.failed),
        ("conflict", counts.conflicted),
        ("canceled", counts.canceled),
        ("rejected", counts.refused()),
        ("left", counts.left),
    ];
    for (outcome, count) in outcomes {
        let labels: Vec<_> = labels.iter().copied().chain([outcome]).collect();
        out.counter(&labels, count)?;
    }
    Ok(())
}

pub(super) fn work_seconds(work: Work) -> f64 {
    work.as_millis_f64() / 1e3
}
