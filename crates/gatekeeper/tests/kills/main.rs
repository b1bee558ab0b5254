//! Clients, server connections, servers and gatekeepers that end at any moment, under load, in seeded
//! rounds. After each round the gate owes nobody anything, its pool is whole, no acknowledged transaction
//! is missing, none was repeated, and nobody has seen what was another's. Rounds differ in the gate's mode
//! (which side authenticates, whose server connections are, whether those have TLS), and clients in whether
//! they come with TLS; of all modes there are equally many rounds.

// Helpers of tests panic as tests do; clippy only knows functions marked as tests.
#![allow(clippy::panic)]

mod crew;
#[path = "../gate/mod.rs"]
mod gate;
mod half_answered;
mod ledger;
mod line;
mod mode;
mod relay;
mod rounds;
mod stage;
#[path = "../support/mod.rs"]
mod support;
mod victims;
mod worker;

use testbed::postgres::Stop;

use line::Place;
use mode::Mode;
use relay::{Cut, Direction, Relay};
use rounds::rounds;
use stage::{Stage, USER, WORKERS, signal};
use support::chance::Chance;
use worker::Habit;

/// How many rounds each kind of fault has.
const ROUNDS: u64 = 200;
/// How much is done at most between the begin of a round and its fault.
const PRELUDE_MAX: usize = 30;

/// Clients that die in one round.
const VICTIMS: usize = 4;
/// A round in so many has a server process killed, which has the server end all and recover.
const CRASH_EVERY: u64 = 20;

fn stage(habit: Habit) -> Stage {
    let server = stage::server();
    let upstream = server.port();
    Stage::new(server, upstream, habit)
}

/// Work goes on for a while of random length.
fn prelude(stage: &Stage, chance: &mut Chance) {
    stage.crew.work();
    stage.until_done(chance.below(PRELUDE_MAX) as u64);
}

#[test]
fn clients_are_killed_in_every_state() {
    let mut stage = stage(Habit::All);
    for round in rounds("clients_are_killed_in_every_state", ROUNDS) {
        let mut chance = round.chance();
        stage.enter(Mode::of(round.seed));
        let before = stage.check();
        prelude(&stage, &mut chance);
        let mut costs_a_connection = false;
        let mut victims = Vec::new();
        for victim in 0..VICTIMS {
            let state = victims::STATES[(round.seed as usize * VICTIMS + victim) % victims::STATES.len()];
            costs_a_connection |= state.may_cost_a_connection();
            let place = Place::any(&stage.crew.door, &mut chance);
            victims.push((state, state.reach(place, &stage.crew.ledger, &mut chance)));
        }
        for (state, line) in victims {
            line.die(state.death(&mut chance));
        }
        stage.until_all_worked();
        let after = stage.check();
        if !costs_a_connection {
            // A spare one may have come with more sessions.
            let is_whole = before.is_subset(&after) && (after.len() - before.len()) as u64 <= stage.spares();
            assert!(is_whole, "server connections were closed\n{}", stage.gate.log_tail());
        }
    }
    stage.report("clients killed");
}

#[test]
fn server_processes_are_killed() {
    let mut stage = stage(Habit::All);
    for round in rounds("server_processes_are_killed", ROUNDS) {
        let mut chance = round.chance();
        stage.enter(Mode::of(round.seed));
        prelude(&stage, &mut chance);
        if round.seed % CRASH_EVERY == 0 {
            stage.processes().first().into_iter().for_each(|pid| signal("KILL", pid));
        } else {
            let count = 1 + chance.below(WORKERS.min(stage.connections_max() as usize));
            stage.see(&format!(
                "SELECT pg_terminate_backend(pid) FROM (SELECT pid FROM pg_stat_activity \
                 WHERE usename = '{USER}' ORDER BY hashint8(pid + {}) LIMIT {count}) victims",
                round.seed
            ));
        }
        stage.until_all_worked();
        stage.check();
    }
    stage.report("server processes killed");
}

#[test]
fn the_server_is_restarted() {
    let mut stage = stage(Habit::All);
    for round in rounds("the_server_is_restarted", ROUNDS) {
        let mut chance = round.chance();
        stage.enter(Mode::of(round.seed));
        prelude(&stage, &mut chance);
        let how = *chance.choose(&[Stop::Fast, Stop::Immediate]);
        stage.server.restart(how).expect("PostgreSQL starts again");
        stage.until_all_worked();
        stage.check();
    }
    stage.report("server restarted");
}

#[test]
fn the_connection_to_the_server_is_cut() {
    let server = stage::server();
    let relay = Relay::start(server.port());
    let mut stage = Stage::new(server, relay.port, Habit::All);
    for round in rounds("the_connection_to_the_server_is_cut", ROUNDS) {
        let mut chance = round.chance();
        stage.enter(Mode::of(round.seed));
        prelude(&stage, &mut chance);
        let direction = *chance.choose(&[Direction::ToServer, Direction::ToGate, Direction::ToGate]);
        let most = if direction == Direction::ToServer { 5_000 } else { 200_000 };
        let after = chance.below(most);
        relay.cut(Cut { after, direction, resets: chance.once_in(2), all: chance.once_in(4) });
        stage.until("the cut is made", || {
            stage.until_done(1);
            relay.has_cut()
        });
        stage.until_all_worked();
        stage.check();
    }
    stage.report("connection cut");
}

#[test]
fn the_gatekeeper_is_ended_under_load() {
    let mut stage = stage(Habit::Patient);
    for round in rounds("the_gatekeeper_is_ended_under_load", ROUNDS) {
        let mut chance = round.chance();
        stage.enter(Mode::of(round.seed));
        prelude(&stage, &mut chance);
        stage.until_done(WORKERS as u64);
        let pid = stage.gate.pid().to_string();
        signal("TERM", &pid);
        if chance.once_in(3) {
            // Impatient: what still runs is cut off.
            signal("TERM", &pid);
        }
        assert_eq!(stage.gate.wait().code(), Some(0), "{}", stage.gate.log_tail());
        stage.pause();
        stage.until("the server has no session left", || stage.processes().is_empty());
        stage.check_ledger();
        stage.start_gate();
        stage.crew.work();
        stage.until_all_worked();
        stage.check();
    }
    stage.report("gatekeeper ended");
}
