//! Longs that wait hoard the connections that others need: then they go first, and shorts make way.

mod shell;

use admission::{ClientId, Connection, LongLimit, Outcome, Policy, Request, Ticket};
use shell::{MS, Shell, policy, pool, request};

const SHORT: u64 = 1;
const LONG: u64 = 2;
/// What a long takes.
const TOOK: u64 = 100 * MS;

/// A gate that lets one long in at a time, and its clients.
struct Pool {
    shell: Shell,
    clients: Vec<ClientId>,
}

impl Pool {
    /// An application with this many connections, each of which has carried fourteen shorts.
    fn new(connections: usize, policy: Policy) -> Self {
        let mut shell = Shell::new(Policy { long_limit: Some(LongLimit::Fixed(1)), ..policy });
        shell.teach(SHORT, MS, 200);
        shell.teach(LONG, TOOK, 3);
        let clients = (0..connections).map(|_| shell.gate.connect()).collect();
        let mut pool = Self { shell, clients };
        for client in 0..connections {
            for _ in 0..14 {
                let ticket = pool.send(client, SHORT);
                pool.shell.pass(MS);
                pool.shell.succeed(ticket, MS);
            }
        }
        pool
    }

    fn send(&mut self, client: usize, kind: u64) -> Ticket {
        self.shell.send(Request { client: Some(self.clients[client]), ..request(kind) })
    }

    /// Forty connections of which nine wait with a long, or did. The second long has just been started:
    /// shorts make way.
    fn hoarded() -> (Self, Vec<Ticket>) {
        let mut pool = Self::new(40, policy());
        let longs = pool.longs(9);
        pool.shell.pass(2_000 * MS);
        pool.shell.succeed(longs[0], TOOK);
        (pool, longs)
    }

    /// Sends `count` longs, each over another connection; the first is in flight.
    fn longs(&mut self, count: usize) -> Vec<Ticket> {
        (0..count).map(|client| self.send(client, LONG)).collect()
    }
}

#[test]
fn longs_that_hold_an_eighth_of_the_connections_go_first_and_shorts_make_way() {
    let mut pool = Pool::new(40, policy());
    assert_eq!(pool.shell.snapshot().mixing, 40);
    let longs = pool.longs(7);
    assert_eq!(pool.shell.snapshot().mixing_waiting, 6);
    let before = pool.send(20, SHORT);
    assert!(pool.shell.is_dispatched(before), "they haven't waited for two seconds yet");
    pool.shell.succeed(before, MS);
    pool.shell.pass(2_000 * MS);
    pool.shell.succeed(longs[0], TOOK);
    assert!(pool.shell.is_dispatched(longs[1]));
    let short = pool.send(21, SHORT);
    assert!(!pool.shell.is_dispatched(short), "one long is in flight, and five wait");
    pool.shell.pass(TOOK);
    pool.shell.succeed(longs[1], TOOK);
    assert!(
        pool.shell.is_dispatched(longs[2]) && pool.shell.is_dispatched(short),
        "four are less than an eighth"
    );
    assert_eq!(pool.shell.snapshot().mixing_waiting, 4);
}

#[test]
fn where_a_long_takes_unexpectedly_long_shorts_go_on() {
    let (mut pool, _) = Pool::hoarded();
    let short = pool.send(20, SHORT);
    pool.shell.pass(8 * TOOK - 1);
    assert!(!pool.shell.is_dispatched(short));
    pool.shell.pass(1);
    assert!(pool.shell.is_dispatched(short), "the holder of what the long waits for may be among them");
    let after = pool.send(21, SHORT);
    assert!(pool.shell.is_dispatched(after));
}

#[test]
fn who_holds_a_connection_makes_way_for_nobody() {
    let (mut pool, _) = Pool::hoarded();
    let short = pool.send(20, SHORT);
    let held = Request { connection: Connection::Held, client: Some(pool.clients[21]), ..request(SHORT) };
    let held = pool.shell.send(held);
    assert!(pool.shell.is_dispatched(held) && !pool.shell.is_dispatched(short));
}

#[test]
fn workers_that_wait_for_their_reports_hoard_nothing() {
    let mut pool = Pool::new(20, policy());
    let workers: Vec<_> = (0..64).map(|_| pool.shell.gate.connect()).collect();
    let report = |client: &ClientId| Request { client: Some(*client), ..request(LONG) };
    let first = pool.shell.send(report(&workers[0]));
    for worker in &workers[1..] {
        pool.shell.send(report(worker));
    }
    for _ in 0..20 {
        pool.shell.pass(1_000 * MS);
        let short = pool.send(3, SHORT);
        assert!(pool.shell.is_dispatched(short));
        pool.shell.succeed(short, MS);
    }
    pool.shell.succeed(first, TOOK);
    let short = pool.send(4, SHORT);
    assert!(pool.shell.is_dispatched(short));
    assert_eq!((pool.shell.snapshot().mixing, pool.shell.snapshot().mixing_waiting), (20, 0));
}

#[test]
fn visitors_whose_connection_is_their_own_hoard_nothing() {
    let mut pool = Pool::new(0, policy());
    for _ in 0..50 {
        pool.shell.arrive(LONG);
    }
    pool.shell.pass(2_000 * MS);
    let short = pool.shell.arrive(SHORT);
    assert!(pool.shell.is_dispatched(short));
}

#[test]
fn who_wants_no_bound_on_overtaking_has_none() {
    let order = admission::Order::ShortestFirst { aging: None, floor: admission::Work::ZERO };
    let mut pool = Pool::new(40, Policy { order, ..policy() });
    let longs = pool.longs(20);
    pool.shell.pass(5_000 * MS);
    pool.shell.succeed(longs[0], TOOK);
    let short = pool.send(30, SHORT);
    assert!(pool.shell.is_dispatched(short));
}

#[test]
fn who_leaves_hoards_nothing_any_more() {
    let (mut pool, longs) = Pool::hoarded();
    let short = pool.send(20, SHORT);
    assert!(!pool.shell.is_dispatched(short));
    for &long in &longs[2..] {
        pool.shell.cancel(long);
    }
    assert!(pool.shell.is_dispatched(short));
    for client in core::mem::take(&mut pool.clients) {
        pool.shell.gate.disconnect(pool.shell.at(), client);
    }
    let snapshot = pool.shell.snapshot();
    assert_eq!((snapshot.mixing, snapshot.mixing_waiting), (0, 0));
    pool.shell.finish(longs[1], Outcome::Failure, TOOK);
}

#[test]
fn nobody_makes_way_for_longs_that_have_no_connection() {
    // A long of another pool that is paused can't go; nobody is held back for it.
    let mut pool_of = Pool::new(40, policy());
    pool_of.shell.gate.set_pool(pool_of.shell.at(), pool(1), 0);
    for client in 0..9 {
        let client = Some(pool_of.clients[client]);
        pool_of.shell.send(Request { client, pool: pool(1), ..request(LONG) });
    }
    pool_of.shell.pass(2_000 * MS);
    let short = pool_of.send(20, SHORT);
    assert!(pool_of.shell.is_dispatched(short));
}

/// A number below `bound`, by chance.
fn below(state: &mut u64, bound: u64) -> u64 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    *state % bound
}

#[test]
fn whatever_happens_nobody_waits_while_nobody_is_served_and_all_are_in_the_end() {
    let mut hoarded = 0;
    for seed in 1..=40 {
        let mut pool = Pool::new(24, policy());
        let mut state = seed * 0x9e37_79b9;
        let mut alive: Vec<(Ticket, u64)> = Vec::new();
        let mut ended = 0;
        for step in 0..600 {
            let in_flight: Vec<_> =
                alive.iter().copied().filter(|&(ticket, _)| pool.shell.is_dispatched(ticket)).collect();
            let chosen = (!in_flight.is_empty())
                .then(|| in_flight[below(&mut state, in_flight.len() as u64) as usize]);
            match (below(&mut state, 10), chosen) {
                (0, _) => pool.shell.pass(below(&mut state, 400) * MS),
                (1..=4, Some((ticket, took))) => {
                    pool.shell.succeed(ticket, took);
                    alive.retain(|&(other, _)| other != ticket);
                    ended += 1;
                }
                (5, _) if !alive.is_empty() => {
                    let (ticket, took) = alive[below(&mut state, alive.len() as u64) as usize];
                    pool.shell.cancel(ticket);
                    if pool.shell.is_dispatched(ticket) {
                        pool.shell.finish(ticket, Outcome::Canceled, took);
                    }
                    alive.retain(|&(other, _)| other != ticket);
                    ended += 1;
                }
                _ => {
                    let (kind, took) = if below(&mut state, 4) == 0 { (LONG, TOOK) } else { (SHORT, MS) };
                    let client = below(&mut state, 24) as usize;
                    if step % 50 == 0 {
                        pool.shell.gate.disconnect(pool.shell.at(), pool.clients[client]);
                        pool.clients[client] = pool.shell.gate.connect();
                    }
                    alive.push((pool.send(client, kind), took));
                }
            }
            let snapshot = pool.shell.snapshot();
            assert!(snapshot.queued == 0 || snapshot.in_flight > 0, "seed {seed}, step {step}");
            assert_eq!(snapshot.queued + snapshot.in_flight, alive.len());
            hoarded += usize::from(snapshot.mixing_waiting >= 4);
        }
        while let Some(&(ticket, took)) = alive.iter().find(|&&(ticket, _)| pool.shell.is_dispatched(ticket))
        {
            pool.shell.succeed(ticket, took);
            alive.retain(|&(other, _)| other != ticket);
            ended += 1;
        }
        assert!(alive.is_empty() && ended > 100, "seed {seed}: {} wait for ever", alive.len());
        assert_eq!(pool.shell.snapshot().mixing_waiting, 0);
    }
    assert!(hoarded > 1_000, "{hoarded}");
}
