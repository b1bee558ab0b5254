//! What a shell can do to a gate, at random: the operations of a history, and the policies it goes through.

use std::collections::BTreeMap;

use admission::{
    Adaptation, AfterStall, Capacity, ClassGoal, ClassId, Contention, Controller, Cost, Duration, Given,
    Goal, LongLimit, Measure, Mechanism, Order, Outcome, Policy, Rejection, RequestType, ServiceClass,
    Statistic, Targets, Tuning, Turns, Weight, Without, Work, YakshaSettings,
};
use proptest::prelude::*;

use crate::history::MS;
use crate::outside;

pub(crate) const POOLS: u8 = 3;
pub(crate) const KINDS: usize = 6;
pub(crate) const CLIENTS: u8 = 6;

#[derive(Clone, Debug)]
pub(crate) enum Op {
    Arrive {
        kind: u64,
        pool: u8,
        held: bool,
        immediate: bool,
        deadline: Option<u64>,
        class: u64,
        client: u8,
    },
    /// One in this place leaves, if there is one, and another one connects.
    Connect(u8),
    Complete {
        which: usize,
        outcome: Outcome,
        took: u64,
    },
    Idle(usize),
    Resume(usize),
    Suspend(usize),
    Cancel(usize),
    Pin(usize),
    Unpin(usize),
    SetPool(u8, u32),
    SetPolicy(Box<Policy>),
    /// The pools with these bits are held up, and no others.
    HoldUp(u8),
    /// Time goes on: with every time-out answered, or unseen.
    Pass {
        nanos: u64,
        answered: bool,
    },
}

fn order() -> impl Strategy<Value = Order> {
    let aging = |aging, floor| Order::ShortestFirst { aging, floor: Work::from_nanos(floor * MS) };
    prop_oneof![
        Just(Order::Fifo),
        Just(aging(Some(0.0), 50)),
        Just(aging(Some(1.0), 0)),
        Just(aging(Some(5.0), 20)),
        Just(aging(None, 0)),
    ]
}

fn capacity() -> impl Strategy<Value = Capacity> {
    let controller = prop_oneof![
        Just(Controller::Auto),
        Just(Controller::IncrementalSteps),
        Just(Controller::Parabola),
        Just(Controller::Other(outside::ERRATIC)),
    ];
    prop_oneof![
        Just(Capacity::Unlimited),
        (1..100_u64).prop_map(|ms| Capacity::Fixed(Work::from_nanos(ms * MS))),
        controller.prop_map(Capacity::Found),
    ]
}

fn contention() -> impl Strategy<Value = Contention> {
    let given = |range: std::ops::Range<u64>, most| Given { types: range.map(RequestType).collect(), most };
    prop_oneof![
        Just(Contention::None),
        Just(Contention::Auto),
        (1..3_u32).prop_map(move |most| Contention::Given(vec![given(0..2, most)])),
        (1..3_u32, 1..3_u32)
            .prop_map(move |(one, two)| Contention::Given(vec![given(0..1, one), given(3..5, two)])),
    ]
}

fn rejection() -> impl Strategy<Value = Rejection> {
    let ms = Duration::from_millis;
    let yaksha = |tuning| {
        let settings = YakshaSettings { tuning, interval: ms(20), ..YakshaSettings::new(ms(5)) };
        Rejection::Yaksha(YakshaSettings { smoothing: ms(50), averaging: ms(50), ..settings })
    };
    prop_oneof![
        3 => Just(Rejection::Nobody),
        1 => Just(Rejection::Deadline),
        1 => Just(Rejection::Other(outside::EVERY_OTHER)),
        1 => Just(yaksha(Tuning::SelfTuned)),
        1 => Just(yaksha(Tuning::Static)),
        1 => Just(Rejection::Target(Targets::mean(ms(3)))),
        1 => Just(Rejection::Target(Targets::p95(ms(9)))),
        1 => Just(of_types()),
    ]
}

/// Targets of two types, one of all besides.
fn of_types() -> Rejection {
    let goal = |mean, p95: Option<u64>| Goal {
        mean: Some(Duration::from_millis(mean)),
        p95: p95.map(Duration::from_millis),
    };
    let types = BTreeMap::from([(RequestType(1), goal(1, None)), (RequestType(2), goal(9, Some(20)))]);
    Rejection::Target(Targets { all: goal(5, None), types })
}

fn cost() -> impl Strategy<Value = Cost> {
    prop_oneof![Just(Cost::MovingAverage { window: 8 }), Just(Cost::Ewma { weight: 0.1 }), Just(Cost::Steady),]
}

fn long_limit() -> impl Strategy<Value = LongLimit> {
    let cores = prop::option::of(1..5_u32);
    prop_oneof![(1..5_u32).prop_map(LongLimit::Fixed), cores.prop_map(|cores| LongLimit::Found { cores })]
}

/// Mostly none; else some of the ids that requests name.
fn classes() -> impl Strategy<Value = Vec<ServiceClass>> {
    let weight = prop_oneof![Just(1.0), 0.001..1_000.0_f64];
    let class = (0..4_u64, weight).prop_map(|(id, weight)| {
        let most = Duration::from_millis(50);
        let (measure, statistic) = (Measure::Response, Statistic::Mean);
        // A class of an odd number has a goal, so that weights are adapted in some histories.
        let goal = (id % 2 == 1).then_some(ClassGoal::Delay { measure, statistic, most });
        // One of them gets only what the others leave.
        let turns = if id == 2 { Turns::Background } else { Turns::Shared };
        let weight = Weight::new(weight).expect("a weight");
        ServiceClass { goal, turns, ..ServiceClass::new(ClassId(id), weight) }
    });
    prop_oneof![Just(Vec::new()), prop::collection::vec(class, 1..4)]
}

pub(crate) fn a_policy() -> impl Strategy<Value = Policy> {
    let limits =
        (capacity(), 1..9_u32, prop::option::of(long_limit()), 0..20_usize, 1..100_u64, 0..4_u32, 0..8_usize);
    let after_stall = prop_oneof![Just(AfterStall::InOrder), Just(AfterStall::NewcomersFirst)];
    // The model of these laws charges overruns.
    let others: Vec<_> = Mechanism::ALL.into_iter().filter(|&it| it != Mechanism::Overruns).collect();
    let without = prop_oneof![
        6 => Just(Without::NOTHING),
        1 => prop::sample::select(others).prop_map(Without::from),
    ];
    (limits, order(), rejection(), cost(), contention(), classes(), (after_stall, without)).prop_map(
        |(limits, order, rejection, cost, contention, classes, (after_stall, without))| {
            let (capacity, connections, long_limit, queue_max, timeout, pinned_max, types_max) = limits;
            Policy {
                classes,
                adaptation: Adaptation::DEFAULT,
                capacity,
                contention,
                connections,
                long_limit,
                cost,
                order,
                queue_max,
                queue_timeout: Duration::from_millis(timeout),
                pinned_max,
                types_max,
                suspend_after: Duration::from_millis(10),
                after_stall,
                rejection,
                without,
            }
        },
    )
}

fn outcome() -> impl Strategy<Value = Outcome> {
    prop_oneof![6 => Just(Outcome::Success), 1 => Just(Outcome::Failure), 1 => Just(Outcome::Canceled)]
}

pub(crate) fn op() -> impl Strategy<Value = Op> {
    let arrive =
        (0..KINDS as u64, 0..POOLS, 0..10_u8, prop::option::weighted(0.1, 0..30_u64), 0..5_u64, 0..CLIENTS)
            .prop_map(|(kind, pool, special, deadline, class, client)| Op::Arrive {
                kind,
                pool,
                held: special == 0,
                immediate: special == 1,
                deadline,
                class,
                client,
            });
    let took = prop_oneof![3 => 0..2_000_000_u64, 1 => 0..200_000_000_u64];
    let complete = (0..64_usize, outcome(), took).prop_map(|(which, outcome, took)| Op::Complete {
        which,
        outcome,
        took,
    });
    let pass = (
        prop_oneof![20 => 0..1_000_000_u64, 20 => 0..30_000_000_u64, 1 => 0..20_000_000_000_u64],
        any::<bool>(),
    )
        .prop_map(|(nanos, answered)| Op::Pass { nanos, answered });
    prop_oneof![
        16 => arrive,
        10 => complete,
        1 => (0..CLIENTS).prop_map(Op::Connect),
        2 => (0..64_usize).prop_map(Op::Idle),
        2 => (0..64_usize).prop_map(Op::Resume),
        1 => (0..64_usize).prop_map(Op::Suspend),
        3 => (0..64_usize).prop_map(Op::Cancel),
        1 => (0..64_usize).prop_map(Op::Pin),
        1 => (0..64_usize).prop_map(Op::Unpin),
        1 => (0..POOLS, 0..6_u32).prop_map(|(pool, total)| Op::SetPool(pool, total)),
        1 => a_policy().prop_map(|policy| Op::SetPolicy(Box::new(policy))),
        1 => (0..1_u8 << POOLS).prop_map(Op::HoldUp),
        6 => pass,
    ]
}
