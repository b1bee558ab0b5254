//! Service classes: who bears a refusal, what a change of the policy does to them, and who waits for whom.
//!
//! Whose turn it is `tests/order.rs` compares with a naive model, decision by decision.

#[path = "shell/mod.rs"]
mod shell;

use admission::{
    Capacity, ClassId, Duration, LongLimit, Order, Policy, Reason, Rejection, Request, ServiceClass, Targets,
    Ticket, Weight,
};
use shell::{MS, Shell, paper, request};

const GOLD: ClassId = ClassId::named("gold");
const LEAD: ClassId = ClassId::named("lead");

fn class(id: ClassId, weight: f64) -> ServiceClass {
    ServiceClass::new(id, Weight::new(weight).expect("a weight"))
}

/// One at a time, in order of arrival; gold gets three parts of four.
fn one_at_a_time() -> Policy {
    Policy {
        connections: 1,
        capacity: Capacity::Unlimited,
        classes: vec![class(GOLD, 3.0), class(LEAD, 1.0)],
        ..paper(1, Order::Fifo)
    }
}

fn send(shell: &mut Shell, class: ClassId) -> Ticket {
    send_of(shell, class, 1)
}

fn send_of(shell: &mut Shell, class: ClassId, kind: u64) -> Ticket {
    shell.send(Request { class, ..request(kind) })
}

fn rejected(shell: &Shell, ticket: Ticket) -> Option<Reason> {
    shell.rejected.iter().find(|(other, _)| *other == ticket).map(|(_, reason)| *reason)
}

/// Serves one after another, each in so long, and says which classes those were.
fn serve(shell: &mut Shell, of: &[(Ticket, ClassId)], took: u64) -> Vec<ClassId> {
    let mut served = Vec::new();
    let mut at = shell.dispatched.len() - 1;
    while let Some(&ticket) = shell.dispatched.get(at) {
        served.extend(of.iter().find(|(other, _)| *other == ticket).map(|(_, class)| *class));
        shell.pass(took);
        shell.succeed(ticket, took);
        at += 1;
    }
    served
}

#[test]
fn a_name_is_a_class_and_the_default_one_is_known_by_its_own() {
    assert_eq!(ClassId::named("default"), ClassId::DEFAULT);
    assert_ne!(GOLD, LEAD);
    assert_ne!(ClassId::named("defaults"), ClassId::DEFAULT);
    assert_ne!(ClassId::named(""), ClassId::DEFAULT);
}

#[test]
fn classes_take_turns_by_weight_though_one_came_first() {
    let mut shell = Shell::new(one_at_a_time());
    shell.teach(1, MS, 5);
    let mut all = vec![(send(&mut shell, LEAD), LEAD)];
    all.extend((0..40).map(|_| (send(&mut shell, LEAD), LEAD)));
    all.extend((0..40).map(|_| (send(&mut shell, GOLD), GOLD)));
    let served = serve(&mut shell, &all, MS);
    let gold = served[..41].iter().filter(|class| **class == GOLD).count();
    assert!((30..=31).contains(&gold), "{gold} of 41");
    assert_eq!(served.len(), 81, "all are served in the end");
}

#[test]
fn a_full_queue_refuses_who_has_more_than_its_share_though_others_come_later() {
    let mut shell = Shell::new(Policy { queue_max: 4, ..one_at_a_time() });
    let waiting: Vec<_> = (0..5).map(|_| send(&mut shell, LEAD)).collect();
    let alone = send(&mut shell, LEAD);
    assert_eq!(rejected(&shell, alone), Some(Reason::QueueFull), "alone there, it is just full");
    let gold = send(&mut shell, GOLD);
    assert_eq!(rejected(&shell, gold), None);
    assert_eq!(rejected(&shell, waiting[4]), Some(Reason::OverShare), "the newest makes room");
    let lead = send(&mut shell, LEAD);
    assert_eq!(rejected(&shell, lead), Some(Reason::OverShare));
    // Gold has three parts of four: until it has four of five present it makes lead leave.
    for _ in 0..3 {
        let gold = send(&mut shell, GOLD);
        assert_eq!(rejected(&shell, gold), None);
    }
    let gold = send(&mut shell, GOLD);
    assert_eq!(rejected(&shell, gold), Some(Reason::OverShare));
    let snapshot = shell.gate.snapshot();
    let counts: Vec<_> =
        snapshot.classes.iter().map(|class| (class.queued, class.in_flight, class.over_share)).collect();
    assert_eq!(counts, [(0, 0, 0), (4, 0, 1), (0, 1, 5)], "default, gold, lead");
}

#[test]
fn what_has_no_queue_still_never_waits() {
    let mut shell = Shell::new(Policy { queue_max: 0, connections: 2, ..one_at_a_time() });
    send(&mut shell, LEAD);
    send(&mut shell, LEAD);
    let gold = send(&mut shell, GOLD);
    assert_eq!(rejected(&shell, gold), Some(Reason::QueueFull), "nobody waits who could make room");
    let lead = send(&mut shell, LEAD);
    assert_eq!(rejected(&shell, lead), Some(Reason::QueueFull), "alone there");
}

#[test]
fn a_target_refuses_who_has_more_than_its_share() {
    let rejection = Rejection::Target(Targets::mean(Duration::from_millis(20)));
    let mut shell = Shell::new(Policy { rejection, queue_max: 1_000, ..one_at_a_time() });
    let mut refused = [0_u32; 2];
    let mut sent = [0_u32; 2];
    let mut served = 0;
    // Ten times what it can do arrives, of which gold asks for a tenth of what it can do.
    for round in 0..20_000_u64 {
        let class = usize::from(round % 100 == 0);
        let ticket = send(&mut shell, [LEAD, GOLD][class]);
        sent[class] += 1;
        refused[class] += u32::from(rejected(&shell, ticket).is_some());
        shell.rejected.clear();
        shell.pass(MS / 10);
        if round % 10 == 9
            && let Some(&ticket) = shell.dispatched.get(served)
        {
            served += 1;
            shell.succeed(ticket, MS);
        }
    }
    assert!(refused[0] > 15_000, "{refused:?} of {sent:?}");
    assert_eq!(refused[1], 0, "{refused:?} of {sent:?}");
}

#[test]
fn a_class_that_is_gone_is_the_default_one_and_its_requests_keep_their_place() {
    let mut shell = Shell::new(one_at_a_time());
    let first = send(&mut shell, LEAD);
    let (gold, other) = (send(&mut shell, GOLD), send(&mut shell, ClassId::DEFAULT));
    let policy = Policy { classes: vec![class(LEAD, 2.0)], ..one_at_a_time() };
    shell.gate.set_policy(shell.at(), policy);
    let snapshot = shell.gate.snapshot();
    let of = |class: &admission::ClassSnapshot| {
        (class.class, class.weight.as_f64(), class.queued, class.in_flight)
    };
    assert_eq!(
        snapshot.classes.iter().map(of).collect::<Vec<_>>(),
        [(ClassId::DEFAULT, 1.0, 2, 0), (LEAD, 2.0, 0, 1)]
    );
    let queue: Vec<_> = shell.gate.queue(9).into_iter().map(|queued| (queued.ticket, queued.class)).collect();
    assert_eq!(queue, [(gold, ClassId::DEFAULT), (other, ClassId::DEFAULT)]);
    shell.gate.set_policy(shell.at(), Policy { classes: Vec::new(), ..one_at_a_time() });
    assert!(shell.gate.snapshot().classes.is_empty());
    shell.succeed(first, MS);
    shell.succeed(gold, MS);
    assert!(shell.is_dispatched(other));
}

#[test]
fn weights_change_in_a_running_gate() {
    let mut shell = Shell::new(one_at_a_time());
    shell.teach(1, MS, 5);
    let mut all = vec![(send(&mut shell, LEAD), LEAD)];
    for class in [GOLD, LEAD].into_iter().cycle().take(80) {
        all.push((send(&mut shell, class), class));
    }
    let classes = vec![class(GOLD, 1.0), class(LEAD, 4.0)];
    shell.gate.set_policy(shell.at(), Policy { classes, ..one_at_a_time() });
    let served = serve(&mut shell, &all, MS);
    let lead = served[..41].iter().filter(|class| **class == LEAD).count();
    assert!((31..=34).contains(&lead), "{lead} of 41");
}

#[test]
fn who_learns_what_a_type_costs_waits_for_no_other_class() {
    // Lead floods with a type that nobody knows; its first request waits for its turn, and holds back its
    // own alone.
    let policy = Policy { long_limit: Some(LongLimit::Fixed(1)), ..one_at_a_time() };
    let mut shell = Shell::new(policy);
    shell.teach(1, MS, 5);
    let busy = send_of(&mut shell, LEAD, 1);
    for kind in [1, 2].into_iter().flat_map(|kind| [kind; 20]) {
        send_of(&mut shell, LEAD, kind);
    }
    let gold = send_of(&mut shell, GOLD, 2);
    shell.succeed(busy, MS);
    assert!(shell.is_dispatched(gold), "gold's turn comes first, whoever else asks for that type");
}
