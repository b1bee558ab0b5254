//! Targets of single types at the gate: which requests count, which are refused for others, and what a change
//! of the policy does.

mod shell;

use std::collections::BTreeMap;

use admission::{
    Capacity, ClassId, Duration, Goal, HeldTarget, Order, Policy, Reason, Rejection, Request, RequestType,
    ServiceClass, Targets, Weight,
};
use shell::{MS, Shell, paper, request};

const OWN: u64 = 1;
const OTHER: u64 = 2;

fn mean(ms: u64) -> Goal {
    Goal { mean: Some(Duration::from_millis(ms)), p95: None }
}

/// One at a time; one type has a target of its own.
fn one_at_a_time(all: Goal, own: Goal) -> Policy {
    let types = BTreeMap::from([(RequestType(OWN), own)]);
    Policy {
        connections: 1,
        capacity: Capacity::Unlimited,
        rejection: Rejection::Target(Targets { all, types }),
        ..paper(1, Order::Fifo)
    }
}

fn target(shell: &Shell, kind: u64) -> Option<HeldTarget> {
    let types = shell.snapshot().types;
    types.iter().find(|known| known.request_type == Some(RequestType(kind))).and_then(|known| known.target)
}

fn present(shell: &Shell) -> Option<u32> {
    target(shell, OWN).map(|target| target.present)
}

#[test]
fn a_type_shows_its_own_target_and_how_many_of_it_are_present() {
    let mut shell = Shell::new(one_at_a_time(mean(100), mean(900)));
    let first = shell.arrive(OWN);
    shell.arrive(OWN);
    shell.arrive(OTHER);
    assert_eq!(target(&shell, OWN).map(|target| (target.goal, target.present)), Some((mean(900), 2)));
    assert_eq!(target(&shell, OTHER), None);
    shell.pass(MS);
    shell.succeed(first, MS);
    assert_eq!(present(&shell), Some(1));
}

#[test]
fn who_is_present_is_counted_through_every_change_of_targets() {
    let mut shell = Shell::new(one_at_a_time(Goal::default(), mean(900)));
    let first = shell.arrive(OWN);
    let waiting = [shell.arrive(OWN), shell.arrive(OWN)];
    for rejection in [one_at_a_time(mean(50), mean(900)), one_at_a_time(mean(50), mean(800))] {
        shell.gate.set_policy(shell.at(), rejection);
        assert_eq!(present(&shell), Some(3));
    }
    let nobody = Policy { rejection: Rejection::Nobody, ..one_at_a_time(mean(50), mean(800)) };
    shell.gate.set_policy(shell.at(), nobody);
    assert_eq!(present(&shell), None);
    shell.gate.set_policy(shell.at(), one_at_a_time(mean(50), mean(800)));
    assert_eq!(present(&shell), Some(3));
    shell.pass(MS);
    shell.succeed(first, MS);
    shell.cancel(waiting[1]);
    assert_eq!(present(&shell), Some(1), "nobody is forgotten, nobody counted twice");
}

/// A service that answers nothing for a second: of a type with so short a target there may be but one.
#[test]
fn who_is_one_too_many_of_its_type_is_refused() {
    let mut shell = Shell::new(one_at_a_time(mean(100_000), mean(1)));
    shell.arrive(OTHER);
    let own = shell.arrive(OWN);
    assert_eq!(shell.reason(own), None);
    shell.pass(1_000 * MS);
    let refused = shell.arrive(OWN);
    assert_eq!(shell.reason(refused), Some(Reason::Target));
    let bound = target(&shell, OWN).and_then(|target| target.bound).expect("it limits");
    assert!(bound <= 1.0, "{bound}");
}

#[test]
fn where_a_type_is_one_too_many_another_class_pays_with_one_of_that_type_or_not_at_all() {
    let (gold, lead) = (ClassId::named("gold"), ClassId::named("lead"));
    let class = |id, weight| ServiceClass::new(id, Weight::new(weight).expect("a weight"));
    let policy = Policy {
        classes: vec![class(gold, 3.0), class(lead, 1.0)],
        ..one_at_a_time(Goal::default(), mean(1))
    };
    let mut shell = Shell::new(policy);
    let send = |shell: &mut Shell, class, kind| shell.send(Request { class, ..request(kind) });
    send(&mut shell, lead, OTHER);
    let of_type = send(&mut shell, lead, OWN);
    let newest = send(&mut shell, lead, OTHER);
    shell.pass(1_000 * MS);
    let first = send(&mut shell, gold, OWN);
    assert_eq!((shell.reason(first), shell.reason(of_type)), (None, Some(Reason::OverShare)));
    let second = send(&mut shell, gold, OWN);
    assert_eq!(shell.reason(second), Some(Reason::Target), "lead has none of the type any more");
    assert_eq!(shell.reason(newest), None, "it would not help");
}
