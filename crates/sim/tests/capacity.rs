//! Finding the capacity: `auto` in front of six services, overloaded from a cold start, against the best
//! fixed capacity of those tried on the same arrivals. (`cargo bench -p sim --bench capacity` is the whole
//! table, with hours and seeds.)

mod common;

use admission::{Capacity, Controller, Duration, Event, Instant};
use common::assert_recorded;
use common::capacity::{self, CONTROLLERS, goodput_between, policy, scenario, service};
use sim::{Observer, Run, Sample, Scenario, Steering, run, run_with};

const AUTO: Capacity = Capacity::Found(Controller::Auto);

/// Twice what the cores could do, from the first second.
fn overloaded(number: usize, seed: u64, capacity: Capacity, connections: u32) -> Scenario {
    let duration = Duration::from_secs(70);
    Scenario { duration, ..scenario(number, seed, policy(capacity, connections), 2.0) }
}

fn played(scenario: &Scenario) -> Run {
    run(scenario).expect("a sound run")
}

fn moves(run: &Run) -> String {
    let of = |&(at, event): &(Instant, Event)| match event {
        Event::CapacityMoved { from, to, gain } => {
            let why = gain.map_or("nothing lost".to_owned(), |gain| format!("{:+.0} %", gain * 100.0));
            Some(format!("{:6.1} s  {from:3} → {to:<3} {why}\n", at.as_nanos() as f64 / 1e9))
        }
        _ => None,
    };
    run.events.iter().filter_map(of).collect()
}

/// From the fortieth second of a cold start on at least 95 % of the best of these.
fn reaches_the_best_of(number: usize, seed: u64, fixed: &[u32]) {
    reaches_the_best_below(1_000, number, seed, fixed);
}

fn reaches_the_best_below(connections: u32, number: usize, seed: u64, fixed: &[u32]) {
    let good = |run: &Run| goodput_between(run, 40, 70);
    let found = played(&overloaded(number, seed, AUTO, connections));
    let best =
        fixed.iter().map(|&fixed| good(&played(&overloaded(number, seed, Capacity::Unlimited, fixed))));
    let best = best.fold(0.0, f64::max);
    let (name, _) = service(number, seed);
    let share = good(&found) / best;
    assert!(share >= 0.95, "{name}: {share:.3} of {best:.0}/s\n{}", moves(&found));
}

#[test]
fn a_plateau_before_a_cliff_is_not_left() {
    reaches_the_best_of(0, 11, &[4, 20]);
}

#[test]
fn a_deadlocked_service_is_taken_back_to_what_it_bears() {
    reaches_the_best_of(1, 11, &[1, 2, 3]);
}

#[test]
fn the_room_for_a_hot_lock_is_found() {
    reaches_the_best_of(2, 11, &[4, 6, 8]);
}

/// Nothing leads back from this cliff, and nothing tells of it before. A burst goes over it if it is within
/// four times the number that no larger one has surely beaten; the connections are the bound.
#[test]
fn a_memory_that_would_not_come_back_is_not_filled_where_the_connections_are_few() {
    reaches_the_best_below(20, 3, 11, &[4, 20]);
    // A trial sees a gain by chance.
    reaches_the_best_below(20, 3, 8, &[4, 20]);
}

#[test]
fn the_peak_of_a_service_that_thrashes_is_found() {
    reaches_the_best_of(4, 11, &[8, 16, 24, 32]);
}

#[test]
fn where_the_peak_is_flat_hardly_anything_is_lost() {
    reaches_the_best_of(4, 9, &[24, 32, 48]);
}

#[test]
fn a_service_that_does_not_collapse_loses_nothing() {
    reaches_the_best_of(5, 11, &[4, 20]);
}

/// Through half the speed, another mix and a stall of a minute: what was in flight in trials only says
/// nothing of more.
#[test]
fn one_core_is_not_taken_for_many_after_a_stall() {
    for number in [0, 3] {
        let duration = Duration::from_secs(490);
        let run = played(&Scenario { duration, ..scenario(number, 6, policy(AUTO, 1_000), 2.0) });
        let good = [(60, 120), (430, 490)].map(|(from, to)| goodput_between(&run, from, to));
        assert!(good[1] >= 0.95 * good[0], "{good:?}/s\n{}", moves(&run));
    }
}

/// Below saturation nothing is tried. (Where cores are many, and so many requests are there at once, more
/// are let in.)
#[test]
fn below_saturation_it_is_not_there() {
    for number in [0, 5] {
        let at = |capacity| {
            let duration = Duration::from_secs(60);
            played(&Scenario { duration, ..scenario(number, 12, policy(capacity, 1_000), 0.6) })
        };
        let (found, unlimited) = (at(AUTO), at(Capacity::Unlimited));
        let fewer = |(_, event): &(Instant, Event)| matches!(event, Event::CapacityMoved { from, to, gain } if to < from || gain.is_some());
        assert!(!found.events.iter().any(fewer), "{}", moves(&found));
        let means = [&found, &unlimited].map(|run| run.summary.overall.response.mean);
        assert!(means[0] <= 1.01 * means[1], "{means:?}");
    }
}

#[test]
fn the_way_down_from_a_deadlock_is_short() {
    let run = played(&overloaded(1, 11, AUTO, 1_000));
    let expected = "   0.6 s    8 → 16  nothing lost\n   1.0 s   16 → 20  nothing lost\n   3.3 s   20 → 25  \
                    nothing lost\n   4.9 s   25 → 32  nothing lost\n   6.2 s   32 → 16  nothing lost\n   9.5 s   \
                    16 → 2   +3874 %\n";
    assert_eq!(moves(&run), expected);
}

/// What a controller has found at each tick.
#[derive(Default)]
struct Found(Vec<u32>);

impl Observer for Found {
    fn tick(&mut self, _: &Sample, steering: &mut Steering<'_>) {
        self.0.push(steering.snapshot().capacity_found.unwrap_or(0));
    }
}

/// The way of each controller through a minute and a half of overload, the last half minute at half the
/// speed, a column for each.
#[test]
fn the_ways_of_all_controllers_are_recorded() {
    const SECONDS: u64 = 90;
    let mut lines = Vec::new();
    for number in [1, 2, 4] {
        let (name, upstream) = service(number, 11);
        let found = CONTROLLERS.map(|controller| {
            let policy = policy(Capacity::Found(controller), 1_000);
            let mut scenario = Scenario {
                duration: Duration::from_secs(SECONDS),
                tick: Duration::from_secs(1),
                ..scenario(number, 11, policy, 2.0)
            };
            scenario.upstream.speed = vec![(Duration::from_secs(60), 0.5)];
            let mut found = Found::default();
            run_with(&scenario, &mut found).expect("a sound run");
            found.0
        });
        let names = CONTROLLERS.map(|controller| format!("{:>9.8}", capacity::name(controller))).concat();
        lines.push(format!("{name}, {} cores\n       {names}", upstream.cores()));
        for second in (0..SECONDS as usize).step_by(3) {
            let row =
                found.each_ref().map(|way| format!("{:9}", way.get(second).copied().unwrap_or(0))).concat();
            lines.push(format!("{second:5} s{row}"));
        }
    }
    assert_recorded("capacities", &lines.join("\n"));
}
