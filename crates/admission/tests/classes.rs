//! Service classes: who bears a refusal, what a change of the policy does to them, and who waits for whom.
//!
//! Whose turn it is `tests/order.rs` compares with a naive model, decision by decision.

#[path = "shell/mod.rs"]
mod shell;

use admission::{
    Capacity, ClassId, Duration, LongLimit, Obstacle, Order, Policy, Reason, Rejection, Request,
    ServiceClass, Targets, Ticket, Turns, Weight,
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
fn the_share_of_a_class_that_becomes_idle_is_used_with_the_next_request() {
    let mut shell = Shell::new(one_at_a_time());
    shell.teach(1, MS, 5);
    let begun = shell.at();
    let lead: Vec<_> = (0..60).map(|_| (send(&mut shell, LEAD), LEAD)).collect();
    let gold: Vec<_> = (0..9).map(|_| (send(&mut shell, GOLD), GOLD)).collect();
    let served = serve(&mut shell, &[lead, gold].concat(), MS);
    let last = served.iter().rposition(|&class| class == GOLD).expect("it was served");
    // Until then it has its three of four; afterwards lead has each, and nothing stands still.
    assert!(last <= 12, "{served:?}");
    assert!(served.len() == 69 && served[last + 1..].iter().all(|&class| class == LEAD), "{served:?}");
    assert_eq!(shell.at().since(begun), Duration::from_nanos(69 * MS));
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
    assert!(shell.is_dispatched(gold), "gold's turn comes first, whichever class asks for that type");
}

const SPARE: ClassId = ClassId::named("spare");

/// Gold and lead take turns, and spare gets what they leave.
fn with_background(policy: Policy) -> Policy {
    let spare = ServiceClass { turns: Turns::Background, ..class(SPARE, 1.0) };
    Policy { classes: vec![class(GOLD, 3.0), class(LEAD, 1.0), spare], ..policy }
}

#[test]
fn a_background_class_runs_one_after_another_on_an_idle_service() {
    let mut shell = Shell::new(with_background(Policy { connections: 8, ..one_at_a_time() }));
    let all: Vec<_> = (0..20).map(|_| (send(&mut shell, SPARE), SPARE)).collect();
    assert_eq!(shell.gate.snapshot().in_flight, 1, "nobody knows that the service does more at once");
    let served = serve(&mut shell, &all, MS);
    assert_eq!(served.len(), 20, "an idle service is used");
}

#[test]
fn a_background_request_waits_for_the_other_classes_and_not_for_a_lane() {
    let policy = Policy { long_limit: Some(LongLimit::Fixed(1)), ..one_at_a_time() };
    let mut shell = Shell::new(with_background(policy));
    let [short, long] = [1, 2];
    for (kind, took) in [&[(long, 500 * MS); 20][..], &[(short, MS); 2_000]].concat() {
        let known = send_of(&mut shell, GOLD, kind);
        shell.succeed(known, took);
    }
    let first = send_of(&mut shell, GOLD, long);
    let [second, spare] = [GOLD, SPARE].map(|class| send_of(&mut shell, class, long));
    assert!(shell.is_dispatched(first));
    let obstacles = [second, spare].map(|ticket| shell.gate.obstacle(ticket));
    assert_eq!(obstacles, [Some(Obstacle::LongLane), Some(Obstacle::Class)]);
}

#[test]
fn a_full_queue_of_the_background_refuses_nobody_else() {
    let mut shell = Shell::new(with_background(Policy { queue_max: 4, ..one_at_a_time() }));
    let spare: Vec<_> = (0..5).map(|_| send(&mut shell, SPARE)).collect();
    let alone = send(&mut shell, SPARE);
    assert_eq!(rejected(&shell, alone), Some(Reason::QueueFull));
    let gold: Vec<_> = (0..4).map(|_| send(&mut shell, GOLD)).collect();
    assert!(gold.iter().all(|&ticket| rejected(&shell, ticket).is_none()), "{:?}", shell.rejected);
    for &ticket in &spare[1..] {
        assert_eq!(rejected(&shell, ticket), Some(Reason::OverShare), "each makes room");
    }
    // One more than the queue takes is gold's own.
    let gold = send(&mut shell, GOLD);
    assert_eq!(rejected(&shell, gold), Some(Reason::QueueFull));
}

#[test]
fn one_that_comes_to_a_free_service_passes_a_background_queue_that_is_full() {
    let policy = Policy { queue_max: 2, connections: 3, ..one_at_a_time() };
    let mut shell = Shell::new(with_background(policy));
    let spare: Vec<_> = (0..3).map(|_| send(&mut shell, SPARE)).collect();
    let gold = send(&mut shell, GOLD);
    assert!(shell.is_dispatched(gold));
    assert!(spare.iter().all(|&ticket| rejected(&shell, ticket).is_none()), "nobody has to go for it");
}

proptest::proptest! {
    /// In no history a background request starts while another class waits, takes one of the service's
    /// last places, or starts beside as many longs as there are cores.
    #[test]
    fn a_background_request_starts_only_where_nobody_else_waits_and_places_stay_free(
        connections in 1_u32..7,
        most in proptest::option::of(1_u64..40),
        cores in 1_u32..4,
        ops in proptest::collection::vec((0_u8..8, 0_u64..6, 1_u64..9), 1..300),
    ) {
        let capacity = most.map_or(Capacity::Unlimited, |most| Capacity::Fixed(shell::ms(most)));
        let long_limit = Some(LongLimit::Found { cores: Some(cores) });
        let policy = Policy { connections, capacity, long_limit, ..paper(1, Order::ShortestFirst { aging: Some(5.0), floor: shell::ms(1_000) }) };
        let mut shell = Shell::new(with_background(Policy { capacity, connections, long_limit, ..policy }));
        let (mut spare, mut flying, mut seen) = (Vec::new(), Vec::new(), 0);
        for (op, kind, took) in ops {
            match op {
                0..=1 => { send_of(&mut shell, GOLD, kind); }
                2 => { send_of(&mut shell, LEAD, kind); }
                3..=4 => {
                    // Its ticket is known before it starts: it is the next one.
                    let ticket = send_of(&mut shell, SPARE, kind + 10);
                    spare.push(ticket);
                }
                _ if flying.is_empty() => shell.pass(took * MS),
                _ => {
                    let ticket = flying.remove(took as usize % flying.len());
                    shell.pass(took * MS);
                    shell.succeed(ticket, took * MS);
                }
            }
            let started: Vec<_> = shell.dispatched[seen..].to_vec();
            seen = shell.dispatched.len();
            flying.extend(&started);
            let snapshot = shell.gate.snapshot();
            let others: u32 = snapshot.classes.iter().filter(|it| it.class != SPARE).map(|it| it.queued).sum();
            let background = started.iter().filter(|ticket| spare.contains(ticket)).count();
            if background > 0 {
                proptest::prop_assert_eq!(others, 0, "it starts while another class waits");
                let in_flight = snapshot.in_flight as u32;
                let places = shell.gate.places();
                let has_room = in_flight == 1 || 4 * in_flight <= 3 * places;
                proptest::prop_assert!(has_room, "{} in flight of {}", in_flight, places);
                let longs = snapshot.long_in_flight.saturating_sub(background as u32);
                proptest::prop_assert!(in_flight == 1 || longs < cores, "{} longs on {}", longs, cores);
            }
            // What the others leave isn't lost.
            let waits = snapshot.classes.iter().any(|it| it.class == SPARE && it.queued > 0);
            proptest::prop_assert!(!waits || snapshot.in_flight > 0, "an idle service, and the background waits");
        }
    }
}
