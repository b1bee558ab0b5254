//! A controller from outside of the crate is asked how many may be in flight, and told what happens.

mod shell;

use std::cell::RefCell;

use admission::{Capacity, Control, ControlMaker, Controller, Instant, Maker, Outcome, Policy, Sample};
use shell::{MS, Shell, policy};

thread_local! {
    /// What the made-up controllers of a test have heard: each test has a thread of its own.
    static HEARD: RefCell<Vec<String>> = const { RefCell::new(Vec::new()) };
}

fn hear(what: String) {
    HEARD.with_borrow_mut(|heard| heard.push(what));
}

/// What was heard since the last time.
fn heard() -> Vec<String> {
    HEARD.take()
}

/// A controller that lets in a fixed number of requests.
#[derive(Debug)]
struct Fixed(u32);

impl Control for Fixed {
    fn most(&self) -> u32 {
        self.0
    }

    fn observe(&mut self, now: Instant, in_flight: u32, waited_for: bool) {
        let waits = if waited_for { "others wait" } else { "nobody waits" };
        hear(format!("{} ms: {in_flight} in flight, {waits}", now.as_nanos() / MS));
    }

    fn complete(&mut self, now: Instant, sample: &Sample) {
        let Sample { success, answered, in_flight, upstream_time, .. } = *sample;
        let took = upstream_time.as_millis();
        let at = now.as_nanos() / MS;
        hear(format!("{at} ms: one of {in_flight} took {took} ms, success {success}, answered {answered}"));
    }

    fn refuse(&mut self, now: Instant) {
        hear(format!("{} ms: one is refused", now.as_nanos() / MS));
    }

    fn set_top(&mut self, top: u32) {
        hear(format!("at most {top}"));
        self.0 = self.0.min(top);
    }
}

fn two(top: u32) -> Box<dyn Control> {
    hear(format!("made for at most {top}"));
    Box::new(Fixed(top.min(2)))
}

const TWO: ControlMaker = Maker { name: "two", make: two };

fn found(maker: ControlMaker, connections: u32) -> Policy {
    let capacity = Capacity::Found(Controller::Other(maker));
    Policy { capacity, connections, long_limit: None, ..policy() }
}

#[test]
fn a_controller_from_outside_is_asked_and_told() {
    let mut shell = Shell::new(found(TWO, 20));
    assert_eq!(heard()[0], "made for at most 20");
    let tickets: Vec<_> = (0..4).map(|_| shell.arrive(1)).collect();
    assert_eq!(shell.count(&tickets), 2);
    assert_eq!(shell.snapshot().capacity_found, Some(2));
    assert_eq!(heard().last().map(String::as_str), Some("0 ms: 2 in flight, others wait"));
    shell.pass(5 * MS);
    heard();
    shell.succeed(tickets[0], 5 * MS);
    assert_eq!(shell.count(&tickets), 3);
    let told = heard();
    assert_eq!(told[0], "5 ms: one of 2 took 5 ms, success true, answered true");
    assert_eq!(told.last().map(String::as_str), Some("5 ms: 2 in flight, others wait"));
    // A client has left, and the service worked on for nobody.
    shell.cancel(tickets[1]);
    heard();
    shell.succeed(tickets[1], 5 * MS);
    assert_eq!(heard()[0], "5 ms: one of 2 took 5 ms, success true, answered false");
    shell.finish(tickets[2], Outcome::Failure, 5 * MS);
    assert_eq!(heard()[0], "5 ms: one of 2 took 5 ms, success false, answered false");
    shell.succeed(tickets[3], 5 * MS);
    assert_eq!(heard().last().map(String::as_str), Some("5 ms: 0 in flight, nobody waits"));
}

#[test]
fn a_controller_of_the_same_name_goes_on_and_another_one_is_made_anew() {
    let mut shell = Shell::new(found(TWO, 20));
    heard();
    shell.gate.set_policy(shell.at(), found(TWO, 1));
    assert_eq!(heard()[0], "at most 1");
    assert_eq!(shell.snapshot().capacity_found, Some(1));
    shell.gate.set_policy(shell.at(), found(Maker { name: "another two", make: two }, 20));
    assert_eq!(heard()[0], "made for at most 20");
    assert_eq!(shell.snapshot().capacity_found, Some(2));
}
