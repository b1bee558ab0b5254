//! `capacity = "auto"` before services that complete so much of so many.

use alloc::vec::Vec;

use super::*;

#[test]
fn who_is_at_home_moves_with_it_and_who_is_not_keeps_what_was_found() {
    let mut auto = Auto::new(4);
    auto.set_top(100);
    assert_eq!((auto.most(), auto.found()), (HOME, HOME));
    auto.base = 3;
    auto.in_force = 3;
    auto.set_top(10);
    assert_eq!(auto.most(), 3);
    auto.set_top(2);
    assert_eq!((auto.most(), auto.found()), (2, 2));
}

/// A service with 20 requests in flight, of which one is completed in each `every` milliseconds as long as
/// more than five are, and then 100 a second; while a lower bound holds others up, only `held` of those
/// are. Tells for how long the first lower bound stayed, in seconds, when five or fewer were found, and
/// what was after three minutes.
fn draining(every: u64, held: f64) -> (u64, Option<u64>, u32) {
    let mut auto = Auto::new(20);
    let (mut in_flight, mut owed, mut stayed, mut over, mut found) = (20_u32, 0.0, 0, false, None);
    for milli in 0..180_000 {
        let now = Instant::from_nanos(milli * 1_000_000);
        let draining = in_flight > auto.most();
        let pace = if in_flight > 5 { 1e3 / every as f64 } else { 100.0 };
        owed += if draining { pace * held } else { pace } / 1e3;
        if owed >= 1.0 {
            owed -= 1.0;
            in_flight -= 1;
            let took = Duration::from_millis(every);
            auto.complete(
                now,
                &Sample {
                    work: 1.0,
                    upstream_time: took,
                    success: true,
                    answered: true,
                    conflict: false,
                    in_flight,
                    own: true,
                },
            );
        }
        in_flight = in_flight.max(auto.most());
        auto.observe(now, in_flight, true);
        over |= stayed > 0 && auto.most() == 20;
        stayed += u64::from(!over && auto.most() < 20);
        found = found.or_else(|| (auto.found() <= 5).then_some(milli / 1_000));
    }
    (stayed / 1_000, found, auto.found())
}

#[test]
fn requests_that_wait_for_one_another_may_take_long_to_drain() {
    let (_, after, found) = draining(1_000, 1.0);
    assert!(after.is_some_and(|after| (15..=35).contains(&after)), "{after:?} s");
    assert!(found <= 5, "{found}");
    let (_, after, _) = draining(300, 1.0);
    assert!(after.is_some_and(|after| after <= 15), "{after:?} s");
}

/// A service that completes `pace` a second of what is in flight, for so many seconds. Of the n-th
/// `given_up` says for how long it was in flight to be given up for others, if it was. Tells which bounds
/// were tried, one after the other.
fn drive(
    auto: &mut Auto,
    seconds: u64,
    pace: impl Fn(u32) -> f64,
    given_up: impl Fn(u64) -> Option<Duration>,
) -> Vec<u32> {
    let (mut in_flight, mut owed, mut ended) = (auto.most(), 0.0, 0);
    let (mut tried, mut trials) = (Vec::new(), auto.trials);
    let from = auto.until.as_nanos() / 1_000_000;
    for milli in from..from + seconds * 1_000 {
        let now = Instant::from_nanos(milli * 1_000_000);
        owed += pace(in_flight) / 1e3;
        if owed >= 1.0 {
            owed -= 1.0;
            in_flight -= 1;
            ended += 1;
            let conflict = given_up(ended);
            let took = Duration::from_secs_f64(f64::from(in_flight + 1) / pace(in_flight + 1));
            auto.complete(
                now,
                &Sample {
                    work: 1.0,
                    upstream_time: conflict.unwrap_or(took),
                    success: conflict.is_none(),
                    answered: conflict.is_none(),
                    conflict: conflict.is_some(),
                    in_flight,
                    own: true,
                },
            );
        }
        in_flight = in_flight.max(auto.most());
        auto.observe(now, in_flight, true);
        if auto.trials > trials {
            trials = auto.trials;
            tried.push(auto.other);
        }
    }
    tried
}

/// The bound that is found after `seconds` for 30 connections, without conflicts.
fn found_after(seconds: u64, pace: impl Fn(u32) -> f64) -> u32 {
    let mut auto = Auto::new(30);
    drive(&mut auto, seconds, pace, |_| None);
    auto.found()
}

/// Up to 40, with 20 for home, and now at another bound.
fn at(bound: u32) -> Auto {
    let mut auto = Auto::new(40);
    (auto.base, auto.in_force) = (bound, bound);
    auto
}

/// Every tenth, after a tenth of a second.
fn a_tenth(number: u64) -> Option<Duration> {
    (number % 10 == 0).then_some(Duration::from_millis(100))
}

#[test]
fn where_a_quarter_ends_a_collapse_a_quarter_of_that_is_tried_next() {
    // What PostgreSQL was measured to do with orders that deadlock: over 1, 2, 4 and 20 connections.
    let deadlocks = |in_flight| match in_flight {
        0 | 1 => 388.0,
        2 => 110.0,
        3 | 4 => 35.0,
        5..=9 => 14.0,
        _ => 3.0,
    };
    assert_eq!(found_after(22, deadlocks), 1);
    assert_eq!(found_after(180, deadlocks), 1);
    // Where one is too few, it is told soon.
    let peak_at_three = |in_flight| match in_flight {
        0 | 1 => 60.0,
        2 => 110.0,
        3 => 150.0,
        4..=5 => 120.0,
        6..=9 => 30.0,
        _ => 3.0,
    };
    assert_eq!(found_after(60, peak_at_three), 3);
}

#[test]
fn where_others_lose_by_it_a_bound_is_given_up_soon() {
    let (stayed, ..) = draining(1_000, 0.3);
    assert_eq!(stayed, 10);
}

#[test]
fn what_is_rarely_given_up_changes_nothing() {
    // One in ten seconds, after a second.
    let rarely = |number: u64| (number % 1_000 == 0).then_some(Duration::from_secs(1));
    let level = |_| 100.0;
    let peak_at_eight = |in_flight: u32| 100.0 - f64::from(in_flight.abs_diff(8)) * 4.0;
    for pace in [&level as &dyn Fn(u32) -> f64, &peak_at_eight] {
        let (mut with, mut without) = (Auto::new(30), Auto::new(30));
        let (tried, as_usual) =
            (drive(&mut with, 300, pace, rarely), drive(&mut without, 300, pace, |_| None));
        // Here and there a trial is a pair longer, so that one more may fit into the time.
        assert!(tried.iter().zip(&as_usual).all(|(one, other)| one == other), "{tried:?}, {as_usual:?}");
        assert!(tried.len().abs_diff(as_usual.len()) <= 1, "{tried:?}, {as_usual:?}");
        assert_eq!(with.found(), without.found());
    }
}

#[test]
fn a_higher_bound_that_gives_others_up_is_no_home_and_a_lower_one_is() {
    let after = |mut auto: Auto, given_up: fn(u64) -> Option<Duration>| {
        drive(&mut auto, 120, |_| 200.0, given_up);
        auto.found()
    };
    assert!(after(at(5), |_| None) >= 20, "nothing is lost at home");
    assert!(after(at(5), a_tenth) <= 5, "{}", after(at(5), a_tenth));
    assert!(after(at(30), a_tenth) <= 20, "{}", after(at(30), a_tenth));
}

#[test]
fn a_far_look_that_gains_nothing_is_a_single_trial() {
    let mut auto = at(8);
    auto.down.step = STEP_MIN;
    // Fewer are worse, by as much as they are fewer.
    let tried = drive(&mut auto, 120, |in_flight| 25.0 * f64::from(in_flight.min(8)), a_tenth);
    let times = |bound| tried.iter().filter(|&&tried| tried == bound).count();
    assert_eq!(auto.found(), 8, "{tried:?}");
    assert!(times(1) >= 2 && times(7) >= 2, "one alone and the neighbor are tried: {tried:?}");
    assert_eq!((2..7).map(times).sum::<usize>(), 0, "nothing in between is: {tried:?}");
}

/// Orders that deadlock over PostgreSQL, for half a minute: the first bound in force that isn't 20, and
/// what is found.
fn deadlocking(works_on: u32) -> (u32, u32) {
    let mut auto = Auto::new(20);
    auto.suit(works_on, 1);
    let pace = |in_flight| match in_flight {
        0 | 1 => 700.0,
        2..=5 => 30.0,
        _ => 5.0,
    };
    let mut first = 20;
    for _ in 0..30 {
        drive(&mut auto, 1, pace, |ended| (ended % 2 == 0).then_some(Duration::from_secs(3)));
        first = if first == 20 { auto.most() } else { first };
    }
    (first, auto.found())
}

#[test]
fn where_much_is_given_up_one_alone_is_tried_before_a_few() {
    assert_eq!(deadlocking(1), (1, 1));
    // Not where that would let cores stand still, as far as was seen.
    assert_eq!(deadlocking(4).0, 4);
}

#[test]
fn the_more_a_look_loses_the_later_is_the_next_one() {
    // What is beside the best is nearly as good, or a cliff: a look there takes seconds, since so few are
    // completed.
    let looks = |beside: f64| {
        let pace = |in_flight| if in_flight <= 1 { 400.0 } else { beside };
        drive(&mut at(1), 420, pace, |_| None).len()
    };
    let (gentle, cliff) = (looks(360.0), looks(4.0));
    assert!(gentle >= 8, "rests of a minute at most: {gentle} looks in seven minutes");
    assert!((2..=4).contains(&cliff), "{cliff} looks in seven minutes");
}

#[test]
fn where_home_has_grown_over_a_cliff_one_trial_leads_back() {
    let mut auto = Auto::new(1_000);
    // Twenty are as good as any, and looks rest by then.
    drive(&mut auto, 120, |_| 500.0, |_| None);
    assert!((17..=20).contains(&auto.found()), "{}", auto.found());
    auto.suit(22, 22);
    assert_eq!(auto.found(), 44);
    let tried = drive(&mut auto, 30, |in_flight| if in_flight > 26 { 100.0 } else { 500.0 }, |_| None);
    assert!(auto.found() <= 26, "{}: {tried:?}", auto.found());
}

/// What seemed to be worked on at once is seven, by times that were a lock's.
#[test]
fn below_home_the_service_need_not_keep_what_it_seemed_to_work_on_busy() {
    let mut auto = Auto::new(20);
    auto.suit(7, 7);
    let pace = |in_flight| match in_flight {
        8.. => 5.0,
        5..8 => 40.0,
        3..5 => 80.0,
        _ => 400.0,
    };
    let tried = drive(&mut auto, 90, pace, |_| None);
    assert_eq!(tried[..2], [7, 4], "{tried:?}");
    assert!(auto.found() <= 2, "{}: {tried:?}", auto.found());
}

#[test]
fn beyond_home_a_small_gain_is_to_be_seen_twice() {
    let concludes = |auto: &mut Auto, other: u32, verdict: Verdict| {
        auto.other = other;
        auto.trial = Some((Direction::Up, Pairs::after(0.0)));
        auto.conclude(auto.until, Direction::Up, verdict);
        auto.found()
    };
    let small = Verdict::Better(0.1);
    let mut auto = Auto::new(1_000);
    assert_eq!(concludes(&mut auto, 25, small), 20, "one trial may see it by chance");
    assert_eq!(concludes(&mut auto, 25, small), 25);

    let mut auto = Auto::new(1_000);
    concludes(&mut auto, 25, small);
    concludes(&mut auto, 25, Verdict::Same);
    assert_eq!(concludes(&mut auto, 25, small), 20, "the second one didn't");

    assert_eq!(
        concludes(&mut Auto::new(1_000), 25, Verdict::Better(SURE)),
        25,
        "so large a one is no chance"
    );
    assert_eq!(concludes(&mut at(10), 12, small), 12, "towards home one is enough");
}
