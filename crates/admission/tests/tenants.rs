//! Tenants of a class: a flood takes nothing from other tenants but the turns of its own few queues.

#[path = "shell/mod.rs"]
mod shell;

use std::collections::BTreeMap;

use admission::{
    Capacity, Duration, Goal, LongLimit, Order, Policy, Reason, Rejection, Request, RequestType, Targets,
    TenantId, Ticket,
};
use proptest::prelude::*;
use shell::{MS, Shell, paper, request};

/// The queues of a tenant.
const HAND: usize = 4;

fn policy(order: Order, connections: u32) -> Policy {
    Policy { connections, capacity: Capacity::Unlimited, ..paper(1, order) }
}

/// Tenants are numbered; the shell hashes what names them.
fn send(shell: &mut Shell, tenant: u64, kind: u64) -> Ticket {
    let hash = (tenant + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    shell.send(Request { tenant: Some(TenantId::new(hash)), ..request(kind) })
}

/// Serves the first `count` in the order in which they start.
fn serve(shell: &mut Shell, from: usize, count: usize, took: impl Fn(Ticket) -> u64) -> Vec<Ticket> {
    let mut served = Vec::new();
    while let Some(&ticket) = shell.dispatched.get(from + served.len()).filter(|_| served.len() < count) {
        let took = took(ticket);
        shell.pass(took);
        shell.succeed(ticket, took);
        served.push(ticket);
    }
    served
}

proptest! {
    /// Whatever the order, the limits and the sizes: before a request of a tenant that doesn't flood, the
    /// flood has one turn for each of its queues.
    #[test]
    fn a_flood_costs_others_at_most_its_queues(
        connections in 1_u32..5,
        shortest_first in any::<bool>(),
        long_limit in prop::option::of((1_u32..3).prop_map(LongLimit::Fixed)),
        flood in prop::collection::vec(1_u64..5, 20..400),
        others in prop::collection::vec((1_u64..1_000, 1_u64..5, 0_usize..6), 1..30),
    ) {
        let order =
            if shortest_first { Order::ShortestFirst { aging: None, floor: shell::ms(0) } } else { Order::Fifo };
        let mut shell = Shell::new(Policy { long_limit, ..policy(order, connections) });
        for kind in 1..5 {
            shell.teach(kind, kind * kind * MS, 40);
        }
        let before = shell.dispatched.len();
        let flood: Vec<_> = flood.into_iter().map(|kind| send(&mut shell, 0, kind)).collect();
        let mut waiting: Vec<(Ticket, usize)> = Vec::new();
        let (mut ended, mut seen) = (before, before + connections as usize);
        for (tenant, kind, steps) in others {
            waiting.push((send(&mut shell, tenant, kind), 0));
            for _ in 0..=steps {
                let Some(&ticket) = shell.dispatched.get(ended) else { break };
                shell.pass(MS);
                shell.succeed(ticket, MS);
                ended += 1;
                for started in &shell.dispatched[seen.min(shell.dispatched.len())..] {
                    waiting.retain(|(ticket, _)| ticket != started);
                    if flood.contains(started) {
                        waiting.iter_mut().for_each(|(_, passed)| *passed += 1);
                    }
                }
                seen = seen.max(shell.dispatched.len());
                for &(_, passed) in &waiting {
                    // A long waits for the long lane besides, in which the flood has its turns, too.
                    let most = if long_limit.is_some() { usize::MAX } else { HAND };
                    prop_assert!(passed <= most, "{passed} of the flood went before");
                }
            }
        }
    }
}

#[test]
fn a_queue_that_a_tenant_has_filled_refuses_it_alone() {
    let mut shell = Shell::new(Policy { queue_max: 100, ..policy(Order::Fifo, 1) });
    let flood: Vec<_> = (0..101).map(|_| send(&mut shell, 0, 1)).collect();
    assert!(shell.rejected.is_empty());
    let more = send(&mut shell, 0, 1);
    assert_eq!(shell.reason(more), Some(Reason::QueueFull));
    for tenant in 1..=10 {
        let other = send(&mut shell, tenant, 1);
        assert_eq!(shell.reason(other), None);
    }
    let gone: Vec<_> = flood.iter().filter(|&&ticket| shell.reason(ticket).is_some()).collect();
    assert_eq!(gone.len(), 10, "the newest of it make room");
    assert!(gone.iter().all(|&&ticket| shell.reason(ticket) == Some(Reason::OverShare)));
    assert_eq!(shell.snapshot().queued, 100);
}

/// No request that waits for something else makes room for a type that has a target of its own.
#[test]
fn a_types_own_target_refuses_requests_of_that_type_alone() {
    let goal = Goal { mean: Some(Duration::from_millis(400)), p95: None };
    let types = BTreeMap::from([(RequestType(1), goal)]);
    let rejection = Rejection::Target(Targets { all: Goal::default(), types });
    let mut shell = Shell::new(Policy { rejection, ..policy(Order::Fifo, 1) });
    for _ in 0..200 {
        shell.teach(1, 20 * MS, 1);
        shell.teach(2, 20 * MS, 1);
    }
    let flood: Vec<_> = (0..50).map(|_| send(&mut shell, 0, 2)).collect();
    let quiet: Vec<_> = (0..50).map(|tenant| send(&mut shell, 1 + tenant, 1)).collect();
    assert!(quiet.iter().any(|&ticket| shell.reason(ticket) == Some(Reason::Target)));
    assert!(flood.iter().all(|&ticket| shell.reason(ticket).is_none()));
}

#[test]
fn tenants_share_a_class_by_work() {
    let mut shell = Shell::new(policy(Order::Fifo, 1));
    shell.teach(1, MS, 40);
    shell.teach(5, 5 * MS, 40);
    let from = shell.dispatched.len();
    // Both fill the four queues of their hands, one with requests five times as long.
    let small: Vec<_> = (0..600).map(|_| send(&mut shell, 1, 1)).collect();
    let large: Vec<_> = (0..600).map(|_| send(&mut shell, 2, 5)).collect();
    let took = |ticket: Ticket| if large.contains(&ticket) { 5 * MS } else { MS };
    let served = serve(&mut shell, from, 600, took);
    let of_small = served.iter().filter(|ticket| small.contains(ticket)).count();
    assert!((490..=510).contains(&of_small), "{of_small} small and {} large", 600 - of_small);
}

#[test]
fn a_request_without_a_tenant_and_one_that_leaves_hold_nobody_up() {
    let mut shell = Shell::new(policy(Order::Fifo, 1));
    let flood: Vec<_> = (0..50).map(|_| send(&mut shell, 0, 1)).collect();
    let plain = shell.arrive(1);
    for &ticket in &flood[1..] {
        shell.cancel(ticket);
    }
    assert_eq!(shell.snapshot().queued, 1);
    shell.succeed(flood[0], MS);
    assert!(shell.is_dispatched(plain));
    shell.succeed(plain, MS);
    let again = send(&mut shell, 0, 1);
    assert!(shell.is_dispatched(again), "a free gate lets it in at once");
}

#[test]
fn other_policies_keep_the_tenants_that_wait() {
    let mut shell = Shell::new(policy(Order::Fifo, 1));
    let all: Vec<_> = (0..20).map(|number| send(&mut shell, number % 3, 1)).collect();
    let order = Order::ShortestFirst { aging: Some(3.0), floor: shell::ms(1_000) };
    let changed = Policy { long_limit: Some(LongLimit::Fixed(1)), ..policy(order, 1) };
    shell.gate.set_policy(shell.at(), changed);
    shell.drain();
    let served = serve(&mut shell, 0, 100, |_| MS);
    assert_eq!(served.len(), all.len());
}
