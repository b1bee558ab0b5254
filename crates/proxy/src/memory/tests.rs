//! The budget by itself: what is counted, and what gives up.

use super::*;

const MIB: usize = 1 << 20;

fn budget(limit: usize) -> &'static Budget {
    Box::leak(Box::new(Budget::new(limit)))
}

fn held(budget: &'static Budget) -> usize {
    budget.held.load(Ordering::Relaxed)
}

fn holder(budget: &'static Budget) -> Held {
    Held { budget, bytes: 0 }
}

#[test]
fn a_short_message_is_not_counted_and_a_long_one_is_until_it_is_gone() {
    let budget = budget(MIB);
    let mut one = holder(budget);
    assert_eq!((one.set(FREE), held(budget)), (Ok(()), 0));
    assert_eq!((one.set(FREE + 1), held(budget)), (Ok(()), FREE + STEP));
    assert_eq!((one.set(MIB), held(budget)), (Ok(()), MIB));
    assert_eq!((one.set(10_000), held(budget)), (Ok(()), 12 * 1024));
    drop(one);
    assert_eq!(held(budget), 0);
    assert!(budget.classes.iter().all(|class| class.holders.load(Ordering::Relaxed) == 0));
}

#[test]
fn the_largest_is_refused_when_it_grows_beyond_the_limit() {
    let budget = budget(8 * MIB);
    let (mut large, mut small) = (holder(budget), holder(budget));
    assert_eq!(small.set(MIB), Ok(()));
    assert_eq!(large.set(7 * MIB), Ok(()));
    assert_eq!(large.set(7 * MIB + 1), Err(Full));
    assert_eq!(large.set(0), Ok(()));
    assert_eq!((held(budget), budget.refused.load(Ordering::Relaxed)), (MIB, 1));
}

#[test]
fn a_small_one_that_grows_has_the_largest_that_waits_give_up() {
    let budget = budget(8 * MIB);
    let (mut large, mut larger, mut small) = (holder(budget), holder(budget), holder(budget));
    assert_eq!((large.set(2 * MIB), larger.set(5 * MIB)), (Ok(()), Ok(())));
    let (mut large_told, mut larger_told) = (large.told().unwrap(), larger.told().unwrap());
    assert!(!is_ready(&mut large_told) && !is_ready(&mut larger_told));
    assert_eq!(small.set(MIB + STEP), Ok(()), "there is a larger one");
    assert!(!is_ready(&mut large_told));
    assert!(is_ready(&mut larger_told));
    assert_eq!(larger.set(0), Ok(()));
    drop((larger_told, large_told));
    assert!(budget.classes.iter().all(|class| class.waiting.load(Ordering::Relaxed) == 0));
    assert_eq!(held(budget), 3 * MIB + STEP);
}

#[test]
fn one_that_is_told_goes_on_if_there_is_room_again() {
    let budget = budget(8 * MIB);
    let (mut large, mut small) = (holder(budget), holder(budget));
    assert_eq!((large.set(8 * MIB), small.set(MIB)), (Ok(()), Ok(())));
    let mut told = large.told().unwrap();
    assert!(!is_ready(&mut told));
    assert_eq!(small.set(MIB + STEP), Err(Full), "the reserve is used up");
    drop(small);
    assert!(!is_ready(&mut told), "it was told, but there is room");
}

#[test]
fn no_holder_goes_beyond_the_reserve() {
    let budget = budget(8 * MIB);
    let (mut large, mut small) = (holder(budget), holder(budget));
    // What it has can't be given up: it doesn't wait.
    assert_eq!(large.set(8 * MIB), Ok(()));
    assert_eq!(small.set(MIB), Ok(()));
    assert_eq!(small.set(MIB + STEP), Err(Full));
    assert_eq!(budget.refused.load(Ordering::Relaxed), 1);
}

#[test]
fn memory_is_to_be_given_back_once_much_less_is_held() {
    let budget = budget(64 * MIB);
    let mut one = holder(budget);
    let is_told = || is_ready(budget.fallen.notified());
    assert_eq!(one.set(SLACK - STEP), Ok(()));
    drop(one);
    assert!(!is_told());
    let mut one = holder(budget);
    assert_eq!(one.set(SLACK), Ok(()));
    drop(one);
    assert!(is_told());
}

/// Whether a future is ready at once.
fn is_ready(future: impl Future<Output = ()>) -> bool {
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    std::pin::pin!(future).as_mut().poll(&mut context).is_ready()
}
