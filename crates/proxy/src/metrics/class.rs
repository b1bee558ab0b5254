//! The metrics of service classes: absent where there is but one class.

use admission::{ClassSnapshot, Standing, Turns};

use super::declared::work_seconds;
use super::scrape::GateScrape;
use super::{Kind, Metric, Seconds};

/// The label is a name of the configuration: at most 64 at a time.
pub(super) const CLASS: &[Metric<GateScrape>] = &[
    Metric {
        name: "class_weight",
        in_seconds: Seconds::No,
        kind: Kind::Gauge,
        labels: &["class"],
        help: "The weight in force of a service class; absent with one class, and in the background",
        read: |gate, out| {
            let weighed = gate.classes.iter().filter(|(_, class)| class.turns != Turns::Background);
            weighed.into_iter().try_for_each(|(name, class)| out.gauge(&[name], class.weight.as_f64()))
        },
    },
    Metric {
        name: "class_goal_ratio",
        in_seconds: Seconds::No,
        kind: Kind::Gauge,
        labels: &["class"],
        help: "What was observed of a class over its goal: above 1 a delay is missed, below 1 a throughput; NaN while too little was observed",
        read: |gate, out| {
            let ratio = |class: &ClassSnapshot| {
                let goal = class.goal?;
                Some(class.observed.map_or(f64::NAN, |observed| goal.ratio(observed)))
            };
            let known = gate.classes.iter().filter_map(|(name, class)| Some((name, ratio(class)?)));
            known.into_iter().try_for_each(|(name, ratio)| out.gauge(&[name], ratio))
        },
    },
    Metric {
        name: "class_goal_out_of_reach",
        in_seconds: Seconds::No,
        kind: Kind::Gauge,
        labels: &["class"],
        help: "Whether no shares of the classes can keep the goal of a class: 1 or 0",
        read: |gate, out| {
            let with_goals = gate.classes.iter().filter(|(_, class)| class.goal.is_some());
            with_goals.into_iter().try_for_each(|(name, class)| {
                let is_out = matches!(class.standing, Standing::OutOfReach | Standing::GivenUp);
                out.gauge(&[name], f64::from(u8::from(is_out)))
            })
        },
    },
    Metric {
        name: "class_queued",
        in_seconds: Seconds::No,
        kind: Kind::Gauge,
        labels: &["class"],
        help: "Requests of a service class that wait",
        read: |gate, out| {
            gate.classes.iter().try_for_each(|(name, class)| out.gauge(&[name], f64::from(class.queued)))
        },
    },
    Metric {
        name: "class_in_flight",
        in_seconds: Seconds::No,
        kind: Kind::Gauge,
        labels: &["class"],
        help: "Requests of a service class in flight, suspended ones included",
        read: |gate, out| {
            gate.classes.iter().try_for_each(|(name, class)| out.gauge(&[name], f64::from(class.in_flight)))
        },
    },
    Metric {
        name: "class_dispatched",
        in_seconds: Seconds::No,
        kind: Kind::Counter,
        labels: &["class"],
        help: "Requests of a service class that were dispatched",
        read: |gate, out| {
            gate.classes.iter().try_for_each(|(name, class)| out.counter(&[name], class.dispatched))
        },
    },
    Metric {
        name: "class_rejected",
        in_seconds: Seconds::No,
        kind: Kind::Counter,
        labels: &["class"],
        help: "Requests of a service class that were refused, for whatever reason",
        read: |gate, out| {
            gate.classes.iter().try_for_each(|(name, class)| out.counter(&[name], class.rejected))
        },
    },
    Metric {
        name: "class_over_share",
        in_seconds: Seconds::No,
        kind: Kind::Counter,
        labels: &["class"],
        help: "Requests of a service class that were refused because it had more than its share",
        read: |gate, out| {
            gate.classes.iter().try_for_each(|(name, class)| out.counter(&[name], class.over_share))
        },
    },
    Metric {
        name: "class_work",
        in_seconds: Seconds::Yes,
        kind: Kind::Counter,
        labels: &["class"],
        help: "Work of the requests of a service class that have ended, as it counts for its share",
        read: |gate, out| {
            gate.classes
                .iter()
                .try_for_each(|(name, class)| out.counter_seconds(&[name], work_seconds(class.served)))
        },
    },
    Metric {
        name: "class_queue_wait",
        in_seconds: Seconds::Yes,
        kind: Kind::Counter,
        labels: &["class"],
        help: "Queue wait of the requests of a service class that were dispatched",
        read: |gate, out| {
            gate.classes
                .iter()
                .try_for_each(|(name, class)| out.counter_seconds(&[name], class.queue_wait.as_secs_f64()))
        },
    },
    Metric {
        name: "class_processor_weight",
        in_seconds: Seconds::No,
        kind: Kind::Gauge,
        labels: &["class"],
        help: "The processor weight of the control group of a service class; absent where it can't be adapted",
        read: |gate, out| {
            let known = gate.processors.iter().filter_map(|(name, group)| Some((name, group.weight?)));
            known.into_iter().try_for_each(|(name, weight)| out.gauge(&[name], weight as f64))
        },
    },
    Metric {
        name: "class_processor",
        in_seconds: Seconds::Yes,
        kind: Kind::Counter,
        labels: &["class"],
        help: "What the control group of a service class has used of the processor",
        read: |gate, out| {
            let known = gate.processors.iter().filter_map(|(name, it)| Some((name, it.used_seconds_total?)));
            known.into_iter().try_for_each(|(name, used)| out.counter_seconds(&[name], used))
        },
    },
    Metric {
        name: "class_processor_wait",
        in_seconds: Seconds::Yes,
        kind: Kind::Counter,
        labels: &["class"],
        help: "How long any process of the control group of a service class waited for the processor",
        read: |gate, out| {
            let known =
                gate.processors.iter().filter_map(|(name, it)| Some((name, it.waited_seconds_total?)));
            known.into_iter().try_for_each(|(name, waited)| out.counter_seconds(&[name], waited))
        },
    },
];
