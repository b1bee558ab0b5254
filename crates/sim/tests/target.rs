//! Holding a response time: what each rule for refusing makes of a site at many times what it can do.

mod common;

use admission::{Duration, Maker, Policy, Reason, Rejection, Targets};
use common::assert_recorded;
use common::target::{
    BEST_SELLERS, LATE, Reached, SEARCH_RESULTS, TARGET, bounded_response, bounded_response_of_browsers,
    constant, default_gate, fifo_gate, open_door, ours, ours_of_types, ours_p95, reached, reached_by,
    schedule, static_yaksha, step, yaksha,
};
use sim::{Observer, Outcome, Run, Sample, Scenario, Steering, controllers, run, run_with, sweep};

/// What a rule knows and does at each tick.
#[derive(Default)]
struct Trajectory {
    lines: Vec<String>,
    /// One line in so many ticks.
    every: usize,
    ticks: usize,
}

impl Observer for Trajectory {
    fn tick(&mut self, sample: &Sample, steering: &mut Steering<'_>) {
        self.ticks += 1;
        if self.ticks % self.every != 0 {
            return;
        }
        let refusing = steering.snapshot().refusing;
        let present = sample.queued + sample.in_flight;
        let mut line = format!("{:4} s {present:5} present", sample.at.as_nanos() / 1_000_000_000);
        if let Some(bound) = refusing.bound {
            line += &format!("  at most {:.0}", bound.min(9_999.0));
        }
        if let Some(probability) = refusing.probability {
            line += &format!("  p {probability:.2}");
        }
        if let Some((a, b)) = refusing.gains {
            line += &format!("  A {a:.3} B {b:.3}");
        }
        if let Some(measured) = refusing.measured {
            line += &format!("  T {:.0} ms", measured.as_secs_f64() * 1e3);
        }
        self.lines.push(line);
    }
}

fn trajectory(scenario: &Scenario, every: usize) -> (Run, String) {
    let mut trajectory = Trajectory { every, ..Trajectory::default() };
    let run = run_with(scenario, &mut trajectory).expect("a sound run");
    (run, trajectory.lines.join("\n"))
}

/// Half a capacity, and ten of them from the twentieth second on.
fn ten_times(policy: Policy) -> String {
    trajectory(&step(3, policy, 1, 10.0, 20, 120), 10).1
}

#[test]
fn ours_at_ten_times_the_capacity() {
    let (_, trajectory) = trajectory(&step(3, open_door(ours()), 1, 10.0, 20, 50), 1);
    assert_recorded("target", &trajectory);
}

#[test]
fn yakshas_controller_at_ten_times_the_capacity() {
    assert_recorded("yaksha", &ten_times(open_door(yaksha())));
}

#[test]
fn a_static_controller_designed_for_700_browsers() {
    assert_recorded("yaksha-static-700", &ten_times(open_door(static_yaksha(700.0))));
}

#[test]
fn a_static_controller_designed_for_2000_browsers() {
    assert_recorded("yaksha-static-2000", &ten_times(open_door(static_yaksha(2_000.0))));
}

/// CoDel sees a queue only where connections are few.
#[test]
fn codel_at_ten_times_the_capacity() {
    let make = || controllers::codel(Duration::from_millis(75), Duration::from_millis(1_500));
    let codel = Rejection::Other(Maker { name: "codel for 75 ms", make });
    assert_recorded("codel", &ten_times(Policy { connections: 4, ..open_door(codel) }));
}

// Seeds from 101 on; what ours has by way of constants was chosen with seeds from 1 to 6.

fn played(scenario: &Scenario) -> Run {
    run(scenario).expect("a sound run")
}

/// What a load reaches from five seconds after its beginning on.
fn settled(seed: u64, policy: Policy, cores: u32, load: f64) -> Reached {
    let run = played(&step(seed, policy, cores, load, 20, 200));
    reached(&run, cores, 25, 200)
}

fn assert_held(what: &str, reached: &Reached) {
    let share = reached.response / TARGET.as_secs_f64();
    assert!((0.9..=1.1).contains(&share), "{what}: {:.0} ms", reached.response * 1e3);
    assert!(reached.useful >= 0.95, "{what}: {:.3} of the capacity", reached.useful);
}

#[test]
fn the_mean_is_held_at_every_overload_and_the_service_busy() {
    for load in [1.2, 2.0, 5.0, 10.0] {
        assert_held(&format!("load {load}"), &settled(101, open_door(ours()), 4, load));
    }
}

#[test]
fn the_mean_is_held_on_yakshas_own_site() {
    for load in [2.0, 5.0, 10.0] {
        assert_held(&format!("load {load}"), &settled(102, open_door(ours()), 1, load));
    }
}

#[test]
fn the_mean_is_held_in_front_of_a_queue_whatever_its_order() {
    for (name, policy) in [("fifo", fifo_gate(ours())), ("default", default_gate(4, ours()))] {
        for load in [2.0, 10.0] {
            assert_held(&format!("{name}, load {load}"), &settled(103, policy.clone(), 4, load));
        }
    }
}

/// In the first five seconds of ten times the load nobody waits for long either.
#[test]
fn a_step_to_ten_times_does_not_overshoot() {
    let run = played(&step(104, open_door(ours()), 4, 10.0, 20, 60));
    let at_once = reached(&run, 4, 20, 25).response;
    assert!(at_once <= 1.5 * TARGET.as_secs_f64(), "{:.0} ms at first", at_once * 1e3);
    let most = run.samples.iter().map(|sample| sample.queued + sample.in_flight).max().unwrap_or(0);
    assert!(most <= 100, "{most} present, where 30 make the target");
}

#[test]
fn the_schedule_of_seven_hundred_browsers_three_times() {
    let run = played(&schedule(105, open_door(ours()), 200));
    for (from, to) in [(55, 100), (105, 200)] {
        assert_held(&format!("from {from} s on"), &reached(&run, 1, from, to));
    }
    let theirs = played(&schedule(105, open_door(yaksha()), 200));
    let theirs = reached(&theirs, 1, 105, 200);
    assert!(theirs.useful < 0.9, "random rejection: {:.3} of the capacity", theirs.useful);
}

#[test]
fn five_percent_are_late() {
    for load in [1.2, 2.0, 10.0] {
        let reached = settled(106, open_door(ours_p95()), 4, load);
        assert!((0.04..=0.06).contains(&reached.late), "load {load}: {:.3} above {LATE:?}", reached.late);
        assert!(reached.useful >= 0.95, "load {load}: {:.3} of the capacity", reached.useful);
    }
}

/// Of that site every twentieth page is long, and those take four fifths of the time. A minute's p95
/// varies, and is at most a tenth above the target all the same, but for few of them.
#[test]
fn the_p95_of_a_minute_is_at_most_a_tenth_above_its_target() {
    for load in [1.5, 3.0, 10.0] {
        let scenarios: Vec<_> = (301..=330).map(|seed| bounded_response(seed, ours_p95(), load)).collect();
        let minutes = sweep(&scenarios, None, |_, run| reached(&run.expect("a sound run"), 1, 20, 80));
        let above = minutes.iter().filter(|minute| minute.p95 > 1.1 * LATE.as_secs_f64()).count();
        let useful = minutes.iter().map(|minute| minute.useful).sum::<f64>() / minutes.len() as f64;
        println!("load {load}: {above} of {} above, {useful:.3} of the capacity", minutes.len());
        assert!(above <= 3, "load {load}: {above} of {} minutes above", minutes.len());
        assert!(useful >= 0.95, "load {load}: {useful:.3} of the capacity");
    }
}

/// Where the percentile is in the midst of what is long, it is held from both sides. The stricter it is,
/// the more often nobody is there at 1.5 times the load: with as many long ones present as may be, the last
/// one ends before the next comes.
#[test]
fn the_p95_of_a_minute_is_within_a_tenth_of_its_target_where_it_does_not_jump() {
    for (target, goodput) in [(Duration::from_millis(500), 0.94), (Duration::from_millis(800), 0.95)] {
        for load in [1.5, 3.0, 10.0] {
            let rule = || Rejection::Target(Targets::p95(target));
            let scenarios: Vec<_> =
                (301..=330).map(|seed| bounded_response_of_browsers(seed, rule(), load)).collect();
            let minutes = sweep(&scenarios, None, |_, run| reached(&run.expect("a sound run"), 1, 20, 80));
            let shares: Vec<f64> = minutes.iter().map(|minute| minute.p95 / target.as_secs_f64()).collect();
            let held = shares.iter().filter(|&share| (0.9..=1.1).contains(share)).count();
            let useful = minutes.iter().map(|minute| minute.useful).sum::<f64>() / minutes.len() as f64;
            println!(
                "{target:?}, load {load}: {held} of {} held, {useful:.3} of the capacity",
                minutes.len()
            );
            assert!(held >= 28, "{target:?}, load {load}: {held} of {} minutes: {shares:.2?}", minutes.len());
            assert!(useful >= goodput, "{target:?}, load {load}: {useful:.3} of the capacity");
        }
    }
}

/// Requests that wait in an endless line count as late. At a step long requests wait and short ones pass, so
/// the share of late ones among the answers says nothing.
#[test]
fn a_waiting_request_is_late_before_it_is_answered() {
    let scenarios: Vec<_> = (331..=350).map(|seed| bounded_response(seed, ours_p95(), 10.0)).collect();
    let lost = sweep(&scenarios, None, |_, run| {
        let run = run.expect("a sound run");
        run.rows.iter().filter(|row| row.outcome == Outcome::TimedOut).count()
    });
    let lost = lost.iter().sum::<usize>() / lost.len();
    assert!(lost <= 5, "{lost} in a run waited for ten seconds, and weren't answered");
}

/// Search results take a quarter of the time; refusing them alone would not hold their target.
#[test]
fn the_target_of_a_type_is_held_by_refusing_others_too() {
    let policy = open_door(ours_of_types(&[(SEARCH_RESULTS, 100)]));
    let run = played(&step(107, policy, 1, 5.0, 20, 200));
    let search = reached_by(&run, 1, 25, 200, |row| row.kind as usize == SEARCH_RESULTS);
    assert!((0.085..=0.11).contains(&search.response), "{:.0} ms", search.response * 1e3);
    assert!(reached(&run, 1, 25, 200).useful >= 0.95);
}

/// Best sellers have a lane: refusing their own is enough, and the others hardly notice.
#[test]
fn the_target_of_a_long_type_costs_the_others_little() {
    let policy = default_gate(1, ours_of_types(&[(BEST_SELLERS, 1_500)]));
    let run = played(&step(108, policy, 1, 1.2, 20, 400));
    let of = |kind| reached_by(&run, 1, 25, 400, move |row| row.kind as usize == kind);
    let (best, search) = (of(BEST_SELLERS), of(SEARCH_RESULTS));
    assert!(best.response <= 1.65, "{:.0} ms", best.response * 1e3);
    assert!(search.refused <= 0.02, "{:.3} of the others are refused", search.refused);
}

#[test]
fn half_of_the_speed_and_a_stall_are_forgotten_in_seconds() {
    let at = Duration::from_secs;
    let mut scenario = step(109, open_door(ours()), 4, 3.0, 10, 220);
    scenario.upstream.speed = vec![(at(60), 0.5), (at(120), 1.0), (at(150), 0.0), (at(155), 1.0)];
    let run = played(&scenario);
    for (from, to, speed) in [(65, 120, 0.5), (125, 145, 1.0), (165, 220, 1.0)] {
        let now = reached(&run, 4, from, to);
        let share = now.response / TARGET.as_secs_f64();
        assert!((0.85..=1.15).contains(&share), "from {from} s on: {:.0} ms", now.response * 1e3);
        assert!(now.useful >= 0.93 * speed, "from {from} s on: {:.3}", now.useful);
    }
}

#[test]
fn at_half_of_the_capacity_nobody_is_refused() {
    let (steady, ungated) = (ours(), Rejection::Nobody);
    let [held, free] = [steady, ungated].map(|rule| played(&constant(110, open_door(rule), 0.5, 1_000)));
    assert_eq!(reached(&held, 1, 0, 1_000).refused, 0.0);
    assert_eq!(held.trace, free.trace);
}

// Deadlines.

/// Requests that are of no use after a second, first come, first served, four at a time.
fn hurried(rejection: Rejection, load: f64) -> Run {
    let policy = Policy { connections: 4, ..open_door(rejection) };
    let mut scenario = constant(111, policy, load, 600);
    scenario.in_time = Some(Duration::from_secs(1));
    for source in &mut scenario.sources {
        source.deadline = scenario.in_time;
    }
    played(&scenario)
}

#[test]
fn who_cannot_make_its_deadline_is_told_at_once_and_nobody_loses_by_it() {
    let [early, late] = [Rejection::Deadline, Rejection::Nobody].map(|rule| hurried(rule, 2.0));
    let good = |run: &Run| run.summary.overall.goodput;
    assert!(good(&early) >= good(&late), "{:.1}/s, {:.1}/s without", good(&early), good(&late));
    let waits = |run: &Run| {
        let refused = run.rows.iter().filter(|row| matches!(row.outcome, Outcome::Rejected(_)));
        let (count, waited) =
            refused.fold((0.0, 0.0), |(count, sum), row| (count + 1.0, sum + row.queue_wait().as_secs_f64()));
        waited / count
    };
    assert!(waits(&late) > 0.99, "all waited for their whole second: {:.2} s", waits(&late));
    assert!(waits(&early) < 0.5, "{:.2} s", waits(&early));
}

/// Of those refused at once below saturation, most would indeed have been late: judged by the run in which
/// nobody was.
#[test]
fn few_are_refused_at_once_that_would_have_been_in_time() {
    let [early, late] = [Rejection::Deadline, Rejection::Nobody].map(|rule| hurried(rule, 0.7));
    let refused = Outcome::Rejected(Reason::DeadlineUnreachable);
    let wrong = early.rows.iter().zip(&late.rows).filter(|(row, free)| {
        row.outcome == refused
            && free.outcome == Outcome::Completed
            && free.response_time() <= Duration::from_secs(1)
    });
    let share = wrong.count() as f64 / early.rows.len() as f64;
    assert!(share < 0.02, "{share:.4} of all");
}
