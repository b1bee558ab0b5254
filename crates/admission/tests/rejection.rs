//! Rules of refusal that an operator chooses: whom they refuse, and with which reason.

mod shell;

use admission::{
    Duration, Event, Instant, Maker, Order, Policy, Reason, Refuse, Refusing, Rejection, Request, Ticket,
    Work, YakshaSettings,
};
use shell::{MS, Shell, paper, request};

const TEN: u64 = 10;
const FIVE: u64 = 5;

/// A gate that lets one in at a time, and has seen that ten requests take 100 ms.
fn one_at_a_time(order: Order, rejection: Rejection) -> Shell {
    let policy = Policy { connections: 1, rejection, ..paper(1_000_000, order) };
    let mut shell = Shell::new(policy);
    shell.teach(TEN, 10 * MS, 40);
    shell.teach(FIVE, 5 * MS, 1);
    shell
}

fn before(shell: &Shell, millis: u64, kind: u64) -> Request {
    Request { deadline: Some(Instant::from_nanos(shell.now + millis * MS)), ..request(kind) }
}

#[test]
fn who_cannot_make_its_deadline_given_the_queue_ahead_is_refused_at_once() {
    let mut shell = one_at_a_time(Order::Fifo, Rejection::Deadline);
    let running = shell.arrive(TEN);
    let queue: Vec<Ticket> = (0..10).map(|_| shell.arrive(TEN)).collect();
    // Ten ahead at 100/s and 10 ms of its own: 110 ms, of which 80 % are certain.
    let hopeless = shell.send(before(&shell, 80, TEN));
    assert_eq!(shell.reason(hopeless), Some(Reason::DeadlineUnreachable));
    let hopeful = shell.send(before(&shell, 100, TEN));
    assert_eq!(shell.reason(hopeful), None);
    assert!(queue.iter().all(|&ticket| shell.reason(ticket).is_none()));
    shell.succeed(running, 10 * MS);
}

#[test]
fn who_can_start_at_once_is_never_refused_for_a_deadline_to_come() {
    let mut shell = one_at_a_time(Order::Fifo, Rejection::Deadline);
    let late = shell.send(before(&shell, 1, TEN));
    assert!(shell.is_dispatched(late));
}

#[test]
fn what_it_may_overtake_is_not_ahead_of_it() {
    let shortest = Order::ShortestFirst { aging: None, floor: Work::ZERO };
    let mut shell = one_at_a_time(shortest, Rejection::Deadline);
    shell.arrive(TEN);
    for _ in 0..10 {
        shell.arrive(TEN);
    }
    let short = shell.send(before(&shell, 30, FIVE));
    assert_eq!(shell.reason(short), None);
    let long = shell.send(before(&shell, 30, TEN));
    assert_eq!(shell.reason(long), Some(Reason::DeadlineUnreachable));
}

#[test]
fn before_the_drain_rate_is_known_nobody_is_hopeless() {
    let policy = Policy { connections: 1, rejection: Rejection::Deadline, ..paper(1_000_000, Order::Fifo) };
    let mut shell = Shell::new(policy);
    shell.teach(TEN, 10 * MS, 10);
    for _ in 0..10 {
        shell.arrive(TEN);
    }
    let hurried = shell.send(before(&shell, 30, TEN));
    assert_eq!(shell.reason(hurried), None);
}

/// A made-up rule: a request that has waited for 20 ms while others wait is refused.
#[derive(Debug, Default)]
struct Impatient {
    last_wait: Duration,
}

impl Refuse for Impatient {
    fn refuses(&mut self, _: Instant, waited: Duration, others_wait: bool) -> bool {
        self.last_wait = waited;
        others_wait && waited >= Duration::from_millis(20)
    }

    fn state(&self) -> Refusing {
        Refusing { measured: Some(self.last_wait), ..Refusing::default() }
    }
}

const IMPATIENT: Rejection =
    Rejection::Other(Maker { name: "impatient", make: || Box::<Impatient>::default() });

#[test]
fn a_rule_from_outside_is_asked_before_each_dispatch_and_shows_its_state() {
    let mut shell = one_at_a_time(Order::Fifo, IMPATIENT);
    let first = shell.arrive(TEN);
    let queue: Vec<Ticket> = (0..4).map(|_| shell.arrive(TEN)).collect();
    shell.pass(10 * MS);
    shell.succeed(first, 10 * MS);
    assert!(shell.is_dispatched(queue[0]), "10 ms aren't 20");
    assert_eq!(shell.snapshot().refusing.measured, Some(Duration::from_millis(10)));
    // A policy with the same rule keeps the rule as it is.
    let policy = Policy { connections: 1, rejection: IMPATIENT, ..paper(1_000_000, Order::Fifo) };
    shell.gate.set_policy(shell.at(), policy);
    assert_eq!(shell.snapshot().refusing.measured, Some(Duration::from_millis(10)));
    shell.pass(10 * MS);
    shell.succeed(queue[0], 10 * MS);
    assert_eq!(shell.rejected, [(queue[1], Reason::QueueDelay), (queue[2], Reason::QueueDelay)]);
    assert!(shell.is_dispatched(queue[3]), "nobody waits behind the last one");
    assert_eq!(shell.snapshot().refusing.measured, Some(Duration::from_millis(20)));
}

#[test]
fn yaksha_refuses_by_the_gates_seed_and_nobody_once_it_has_rested() {
    let yaksha = Rejection::Yaksha(YakshaSettings::new(Duration::from_millis(2)));
    let policy = Policy { rejection: yaksha, ..paper(1_000_000, Order::Fifo) };
    let run = || {
        let mut shell = Shell::new(policy.clone());
        for _ in 0..3_000 {
            let ticket = shell.arrive(TEN);
            shell.pass(10 * MS);
            if shell.is_dispatched(ticket) {
                shell.succeed(ticket, 10 * MS);
            }
        }
        shell
    };
    let mut shell = run();
    assert!(shell.rejected.len() > 100, "five times the target: {}", shell.rejected.len());
    assert!(shell.rejected.iter().all(|(_, reason)| *reason == Reason::Target));
    assert_eq!(shell.rejected, run().rejected);
    let probability = shell.gate.snapshot().refusing.probability;
    assert!(probability.is_some_and(|probability| probability > 0.0));
    shell.pass(3_600_000 * MS);
    for _ in 0..100 {
        let ticket = shell.arrive(TEN);
        assert_eq!(shell.reason(ticket), None);
    }
}

#[test]
fn who_is_refused_is_told_how_long_the_queue_takes_to_drain() {
    let mut shell = one_at_a_time(Order::Fifo, Rejection::Nobody);
    assert_eq!(shell.gate.retry_after(), Duration::from_secs(1));
    for _ in 0..501 {
        shell.arrive(TEN);
    }
    let seconds = shell.gate.retry_after().as_secs_f64();
    assert!((4.5..5.5).contains(&seconds), "500 at 100/s: {seconds} s");
}

#[test]
fn a_refusal_is_reported_with_its_reason() {
    let mut shell = one_at_a_time(Order::Fifo, IMPATIENT);
    let mut running = shell.arrive(TEN);
    for _ in 0..4 {
        shell.arrive(TEN);
    }
    for _ in 0..2 {
        shell.pass(10 * MS);
        shell.succeed(running, 10 * MS);
        running = *shell.dispatched.last().expect("one of the queue");
    }
    let waited = Duration::from_millis(20);
    let told = shell.events.iter().any(|event| {
        matches!(event, Event::Rejected { reason: Reason::QueueDelay, queue_wait, .. } if *queue_wait == waited)
    });
    assert!(told, "{:?}", shell.events);
}
