//! Contention: groups that are found, in a flash sale, against the best bounds that are given; and out of
//! the way without. (`cargo bench -p sim --bench contention` is the whole table.)

mod common;

use admission::{Capacity, Contention, Controller, Duration, Order, Policy};
use common::contention::{FIFO, Figures, SHORTEST, Sale, between, figures, formed, story};
use common::{capacity, no_gate, open, postgres};
use sim::{Collapse, End, Observer, Run, Scenario, Steering, Upstream, run, run_with};

const FOUND: Capacity = Capacity::Found(Controller::Auto);

fn played(scenario: &Scenario) -> Run {
    run(scenario).expect("a sound run")
}

/// A minute after the sale has begun at least 95 % of the goodput with the best of these bounds, and
/// bystanders as if it were not there, but for a half.
fn is_as_good_as_the_best(sale: &Sale, capacity: Capacity) {
    let found = played(&sale.scenario(capacity, Contention::Auto));
    let alone = figures(&played(&sale.alone())).bystanders;
    let best =
        [1, 2, 4].map(|most| figures(&played(&sale.given(most))).goodput).into_iter().fold(0.0, f64::max);
    let Figures { goodput, bystanders, .. } = figures(&found);
    let told = story(&found);
    assert!(goodput >= 0.95 * best, "{goodput:.0} of {best:.0}/s\n{told}");
    assert!(bystanders <= 1.5 * alone, "{:.2} × the uncontended\n{told}", bystanders / alone);
}

#[test]
fn a_hot_row_on_two_cores() {
    is_as_good_as_the_best(&Sale { cores: 2, seed: 11, ..Sale::USUAL }, FOUND);
}

#[test]
fn a_hot_row_on_eight_cores_shortest_first() {
    is_as_good_as_the_best(&Sale { cores: 8, order: SHORTEST, seed: 12, ..Sale::USUAL }, FOUND);
}

#[test]
fn two_types_that_need_the_same_row_are_one_group() {
    let sale = Sale { types: 2, handover: 0.1, seed: 13, ..Sale::USUAL };
    is_as_good_as_the_best(&sale, Capacity::Unlimited);
    let found = played(&sale.found());
    assert_eq!(formed(&found), 1, "{}", story(&found));
}

#[test]
fn types_that_block_one_another_almost_for_ever() {
    is_as_good_as_the_best(&Sale { handover: 5.6, burn: 0.0, seed: 14, ..Sale::USUAL }, FOUND);
}

#[test]
fn a_sale_with_hundreds_of_connections() {
    is_as_good_as_the_best(&Sale { connections: 300, seed: 15, ..Sale::USUAL }, Capacity::Unlimited);
}

/// Three hundred in flight take seconds to fall to the few that are tried, and are no measure of those
/// until then.
#[test]
fn hundreds_in_flight_are_gone_before_few_are_measured() {
    let sale = Sale { cores: 8, handover: 0.02, burn: 0.0, connections: 300, seed: 5, ..Sale::USUAL };
    is_as_good_as_the_best(&sale, Capacity::Unlimited);
}

/// Shortest first lets others take the room of those that block one another while they are tried: that says
/// nothing of them, and the capacity waits until they have been tried again.
#[test]
fn who_had_to_make_room_while_tried_is_tried_again() {
    let sale = Sale { cores: 8, handover: 5.6, burn: 0.0, order: SHORTEST, seed: 4, ..Sale::USUAL };
    is_as_good_as_the_best(&sale, FOUND);
    is_as_good_as_the_best(&sale, Capacity::Unlimited);
}

/// A long type that needs no lock is hardly served while the group is tried: nothing is seen of it, and it
/// is no member.
#[test]
fn who_is_hardly_served_in_the_trial_is_no_member() {
    let sale = Sale { cores: 2, order: SHORTEST, seed: 6, ..Sale::USUAL };
    is_as_good_as_the_best(&sale, FOUND);
    is_as_good_as_the_best(&sale, Capacity::Unlimited);
}

/// Without a lock, on each of the six services, below saturation and far above: no group, and from a minute
/// on hardly anything lost.
fn stays_out_of_the_way(number: usize, order: Order, load: f64, capacity: Capacity) {
    let at = |contention: Contention| {
        let policy = Policy { contention, order, ..capacity::policy(capacity, 20) };
        let duration = Duration::from_secs(100);
        let mut scenario =
            Scenario { duration, end: End::Cut, ..capacity::scenario(number, 21, policy, load) };
        scenario.upstream.speed.clear();
        scenario.types.iter_mut().for_each(|kind| kind.lock = None);
        played(&scenario)
    };
    let (with, without) = (at(Contention::Auto), at(Contention::None));
    let (name, _) = capacity::service(number, 21);
    assert_eq!(formed(&with), 0, "{name} at {load}\n{}", story(&with));
    let collapsed = without.summary.overall.response.mean > 0.5;
    if load < 1.0 && !collapsed {
        let means = [&with, &without].map(|run| run.summary.overall.response.mean);
        assert!(means[0] <= 1.01 * means[1], "{name} at {load}: {means:?}");
    } else if capacity == FOUND || !collapsed {
        let good = [&with, &without].map(|run| capacity::goodput_between(run, 60, 100));
        // What trials cost that come to nothing.
        assert!(good[0] >= 0.95 * good[1], "{name} at {load}: {good:?}");
    }
}

#[test]
fn without_locks_there_are_no_groups_below_saturation() {
    for number in 0..6 {
        for load in [0.5, 0.8, 0.95] {
            stays_out_of_the_way(number, SHORTEST, load, Capacity::Unlimited);
        }
    }
}

#[test]
fn without_locks_there_are_no_groups_in_overload_first_come_first_served() {
    (0..6).for_each(|number| stays_out_of_the_way(number, FIFO, 2.0, FOUND));
}

#[test]
fn without_locks_there_are_no_groups_in_overload_shortest_first() {
    (0..6).for_each(|number| stays_out_of_the_way(number, SHORTEST, 2.0, FOUND));
}

#[test]
fn without_locks_and_without_a_capacity_there_are_no_groups_in_overload() {
    (0..6).for_each(|number| stays_out_of_the_way(number, FIFO, 2.0, Capacity::Unlimited));
}

/// The default gate in front of a service that nothing contends on decides the same, to the last dispatch.
#[test]
fn below_saturation_the_trace_is_that_of_a_gate_without_groups() {
    let (types, shares) = postgres(0.5);
    let at = |contention| {
        let policy = Policy { contention, ..no_gate() };
        let upstream = Upstream::sharing(4, Collapse::None);
        played(&open(policy, types.clone(), shares.clone(), upstream, 0.8, 50_000)).trace
    };
    assert_eq!(at(Contention::Auto), at(Contention::None));
}

#[test]
fn a_group_is_forgotten_when_the_sale_is_over() {
    let sale = Sale { seed: 16, ..Sale::USUAL };
    let mut scenario = sale.found();
    // The bystanders go on for another minute and a half, and a few orders come as before.
    let end = 200;
    scenario.duration = Duration::from_secs(end);
    let others = sale.others * f64::from(sale.cores - 1);
    let bystanders = sale.source(&[70.0, 25.0, 5.0, 0.0], others, 0, end);
    let orders = sale.source(&[0.0, 0.0, 0.0, 1.0], 0.2, 0, end);
    scenario.sources = vec![bystanders, orders, scenario.sources[1].clone()];
    let run = played(&scenario);
    let told = story(&run);
    assert!(told.contains("is formed") && told.contains("is dissolved"), "{told}");
    let (before, after) = (between(&run, 2, 10), between(&run, 160, 200));
    assert!(after.bystanders < 1.1 * before.bystanders, "{before:?} {after:?}\n{told}");
}

/// Asks at each tick whether more of a group are in flight than may be.
#[derive(Default)]
struct Watch {
    above: Vec<String>,
    before: (u32, u32),
}

impl Observer for Watch {
    fn tick(&mut self, _: &sim::Sample, steering: &mut Steering<'_>) {
        for group in steering.snapshot().groups {
            // What was in flight before a bound was lowered goes on.
            let (most, in_flight) = std::mem::replace(&mut self.before, (group.most, group.in_flight));
            if most > 0 && group.in_flight > group.most && group.in_flight > in_flight.max(most) {
                self.above.push(format!("{group:?}"));
            }
        }
    }
}

#[test]
fn no_more_of_a_group_are_in_flight_than_may_be() {
    let scenario = Scenario { tick: Duration::from_millis(1), ..Sale { seed: 17, ..Sale::USUAL }.found() };
    let mut watch = Watch::default();
    let run = run_with(&scenario, &mut watch).expect("a sound run");
    assert!(formed(&run) > 0);
    assert_eq!(watch.above, Vec::<String>::new());
}

#[test]
fn the_way_of_a_group_is_short() {
    let run = played(&Sale { handover: 5.6, burn: 0.0, seed: 18, ..Sale::USUAL }.found());
    let expected = "  21.9 s  group 1 is formed: 20 → 4 +1047 %\n  21.9 s  group 1 has type 3\n  28.3 s  group 1: 4 → 2 \
                    +163 %\n  29.9 s  group 1: 2 → 1 +459 %\n";
    assert_eq!(story(&run), expected);
}
