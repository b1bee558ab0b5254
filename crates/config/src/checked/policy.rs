//! The policy of a gate, as the judge takes it.

use std::time::Duration;

use admission::{Adaptation, AfterStall, Contention, Cost, Order, Policy, Without, Work};

use toml::de::DeValue;

use super::{OwnTarget, number, rejection};
use crate::complaint::Complaint;
use crate::protocol::Protocol;
use crate::raw::{self, Before, Section};

/// The limit of the long lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LongLimit {
    /// A number that keeps the service busy, found from observations.
    Auto,
    /// A fixed number.
    Fixed(u32),
    /// There is no long lane.
    NoLane,
}

/// How many server connections a gate may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Connections {
    /// A fixed number.
    Fixed(u32),
    /// The number that the server has for the gate, found by asking the server.
    Found {
        /// `pinned_max`, if it is given; otherwise it is half of the connections.
        pinned_max: Option<u32>,
    },
}

/// How the work of a type is estimated; the window is a key of its own.
#[derive(Clone, Copy, Debug)]
enum Estimator {
    MovingAverage,
    Ewma,
    Fixed,
    Steady,
}

const COSTS: &[(&str, Estimator)] = &[
    ("moving-average", Estimator::MovingAverage),
    ("ewma", Estimator::Ewma),
    ("steady", Estimator::Steady),
    ("fixed", Estimator::Fixed),
];
const CONTENTIONS: &[(&str, bool)] = &[("auto", true), ("none", false)];
const AFTER_STALLS: &[(&str, AfterStall)] =
    &[("newcomers-first", AfterStall::NewcomersFirst), ("in-order", AfterStall::InOrder)];
const ORDERS: &[(&str, bool)] = &[("fifo", true), ("shortest-first", false)];

/// How many connections a gate begins with that finds their number, and has where the server doesn't tell.
const BEGINS_WITH: u32 = 20;
/// What `connections = "auto"` finds in a scenario: as before a PostgreSQL without settings, which allows
/// 100 connections.
const SIMULATED: u32 = 72;

/// Reads what a gate decides by.
pub(super) fn read(
    section: &mut Section<'_>,
    (protocol, types): (Protocol, &[OwnTarget]),
    cost_window: u32,
    aging_floor: Duration,
) -> (Policy, LongLimit, Connections) {
    let errors_before = section.error_count();
    let before = section.before();
    let given = section.read("connections", |value| read_connections(value, protocol, before));
    let connections = given.unwrap_or(BEGINS_WITH);
    let pinned = match protocol {
        Protocol::Postgres | Protocol::Mysql => {
            section.read_given("pinned_max", |value| number(value, 1, 10_000))
        }
        Protocol::Http => None,
    };
    let pinned_max = pinned.unwrap_or_else(|| (connections / 2).max(1));
    if pinned_max > connections && given.is_some() && section.error_count() == errors_before {
        let why = format!("is more than `connections` ({connections})");
        section.complain("pinned_max", Complaint::new(why).hint("leave it out for half of them"));
    }
    let long_limit = section.read("long_limit", long_limit);
    let capacity = section.read("capacity", |value| raw::capacity(value, before));
    let policy = Policy {
        capacity,
        contention: read_contention(section),
        connections,
        long_limit: match long_limit {
            LongLimit::Auto => Some(admission::LongLimit::FOUND),
            LongLimit::Fixed(limit) => Some(admission::LongLimit::Fixed(limit)),
            LongLimit::NoLane => None,
        },
        cost: read_cost(section, cost_window),
        order: read_order(section, aging_floor),
        queue_max: section.read("queue_max", |value| number(value, 0, 10_000_000)) as usize,
        queue_timeout: section.read("queue_timeout", raw::some_time),
        pinned_max,
        types_max: section.read("types_max", |value| number(value, 1, 10_000)) as usize,
        suspend_after: section.read("suspend_after", raw::at_most_a_day),
        after_stall: section.read("after_stall", |value| raw::choice(value, AFTER_STALLS)),
        rejection: rejection::read(section, types),
        // The rules of a gate's classes are read elsewhere.
        classes: Vec::new(),
        adaptation: Adaptation { tick: section.read("goal_tick", raw::some_time), ..Adaptation::DEFAULT },
        without: Without::NOTHING,
    };
    let found = Connections::Found { pinned_max: pinned };
    (policy, long_limit, given.map_or(found, Connections::Fixed))
}

/// The number; `None` where the server is to be asked.
fn read_connections(
    value: &DeValue<'_>,
    protocol: Protocol,
    before: Before,
) -> Result<Option<u32>, Complaint> {
    match value {
        DeValue::String(text) if text == "auto" => match (protocol, before) {
            (Protocol::Postgres, Before::Service) => Ok(None),
            (Protocol::Http, _) => {
                let complaint = Complaint::new("only PostgreSQL tells how many connections it has");
                Err(complaint.hint("write what your application serves at once"))
            }
            (Protocol::Mysql, Before::Service) => {
                let complaint = Complaint::new("a gate for MySQL doesn't ask the server yet");
                Err(complaint.hint("write a whole number below the server's max_connections"))
            }
            (Protocol::Postgres, Before::Simulation(_)) => Ok(Some(SIMULATED)),
            (Protocol::Mysql, Before::Simulation(_)) => {
                Err(Complaint::new("there is no server to ask in a scenario").hint("write a whole number"))
            }
        },
        DeValue::String(text) if text.parse::<u32>().is_err() => {
            Err(Complaint::new("isn't a number of connections").hint("write a whole number, or \"auto\""))
        }
        value => number(value, 1, 10_000).map(Some),
    }
}

fn read_contention(section: &mut Section<'_>) -> Contention {
    if section.read("contention", |value| raw::choice(value, CONTENTIONS)) {
        Contention::Auto
    } else {
        Contention::None
    }
}

fn read_cost(section: &mut Section<'_>, window: u32) -> Cost {
    match section.read("cost", |value| raw::choice(value, COSTS)) {
        // The mean age of what an EWMA remembers is (1 - w) / w, of a window (n - 1) / 2: equal at w = 2 /
        // (n + 1).
        Estimator::Ewma => Cost::Ewma { weight: 2.0 / (f64::from(window) + 1.0) },
        Estimator::MovingAverage => Cost::MovingAverage { window },
        Estimator::Fixed => Cost::Fixed { window },
        Estimator::Steady => Cost::Steady,
    }
}

fn read_order(section: &mut Section<'_>, aging_floor: Duration) -> Order {
    let aging = section.read("aging", raw::aging);
    let floor = Work::from(aging_floor);
    if section.read("order", |value| raw::choice(value, ORDERS)) {
        Order::Fifo
    } else {
        Order::ShortestFirst { aging, floor }
    }
}

/// The long lane's limit.
fn long_limit(value: &DeValue<'_>) -> Result<LongLimit, Complaint> {
    match value {
        DeValue::String(text) if text == "none" => Ok(LongLimit::NoLane),
        DeValue::String(text) if text == "auto" => Ok(LongLimit::Auto),
        DeValue::String(_) => {
            Err(Complaint::new("isn't a limit").hint("write \"auto\", a whole number, or \"none\""))
        }
        other => match raw::integer(other, 0..=10_000)? {
            0 => Ok(LongLimit::NoLane),
            limit => Ok(LongLimit::Fixed(u32::try_from(limit).unwrap_or(u32::MAX))),
        },
    }
}
