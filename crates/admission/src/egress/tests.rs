//! The uplink's orders, bounds and aging.

use std::vec;

use proptest::prelude::*;

use super::*;

fn uplink(order: EgressOrder) -> Egress {
    Egress::new(EgressPolicy { order, quantum: 1_000, ..EgressPolicy::default() })
}

fn known(egress: &mut Egress, bytes: u64) -> Stream {
    let stream = egress.open(Size::Known(bytes), Priority::default()).unwrap();
    egress.offer(stream, bytes);
    stream
}

/// The order in which everything is sent.
fn drain(egress: &mut Egress) -> Vec<Stream> {
    std::iter::from_fn(|| egress.next(Instant::ZERO).map(|grant| grant.stream)).collect()
}

#[test]
fn fair_gives_each_response_a_quantum_in_turn() {
    let mut egress = uplink(EgressOrder::Fair);
    let [a, b] = [3_000, 1_500].map(|bytes| known(&mut egress, bytes));
    assert_eq!(drain(&mut egress), [a, b, a, b, a]);
}

#[test]
fn a_response_that_is_offered_more_bytes_keeps_its_turn() {
    let mut egress = uplink(EgressOrder::Fair);
    let [a, b] = [1_000, 5_000].map(|bytes| known(&mut egress, bytes));
    assert_eq!(egress.next(Instant::ZERO).unwrap().stream, a);
    egress.offer(b, 1_000);
    egress.offer(a, 1_000);
    egress.offer(b, 1_000);
    assert_eq!(egress.next(Instant::ZERO).unwrap().stream, b);
}

#[test]
fn the_response_with_the_fewest_bytes_remaining_goes_first_and_interrupts() {
    let mut egress = uplink(EgressOrder::ShortestRemaining);
    let large = known(&mut egress, 3_000);
    assert_eq!(egress.next(Instant::ZERO).unwrap().stream, large);
    let [small, middle] = [500, 2_500].map(|bytes| known(&mut egress, bytes));
    // 2000 of the large one remain: fewer than of the middle one.
    assert_eq!(drain(&mut egress), [small, large, large, middle, middle, middle]);
}

#[test]
fn equal_responses_go_one_after_the_other() {
    let mut egress = uplink(EgressOrder::ShortestRemaining);
    let [a, b] = [2_000, 2_000].map(|bytes| known(&mut egress, bytes));
    assert_eq!(drain(&mut egress), [a, a, b, b]);
}

fn asked(egress: &mut Egress, bytes: u64, urgency: u8, delivery: Delivery) -> Stream {
    let stream = egress.open(Size::Known(bytes), Priority { urgency, delivery }).unwrap();
    egress.offer(stream, bytes);
    stream
}

#[test]
fn of_responses_of_about_one_size_the_urgent_one_goes_first_and_a_smaller_one_before_it() {
    let mut egress = uplink(EgressOrder::ShortestRemaining);
    let usual = known(&mut egress, 1_100);
    let urgent = asked(&mut egress, 2_000, 0, Delivery::Whole);
    let small = asked(&mut egress, 1_000, 7, Delivery::Whole);
    assert_eq!(drain(&mut egress), [small, urgent, urgent, usual, usual]);
}

#[test]
fn incremental_responses_of_about_one_size_take_turns_behind_whole_ones() {
    let mut egress = uplink(EgressOrder::ShortestRemaining);
    let [a, b] = [7_500, 6_500].map(|bytes| asked(&mut egress, bytes, 3, Delivery::Incremental));
    let whole = known(&mut egress, 8_000);
    let sent = drain(&mut egress);
    assert!(sent[..8].iter().all(|&stream| stream == whole));
    // Until one of them is of a smaller size.
    assert_eq!(sent[8..12], [a, b, a, b]);
}

#[test]
fn a_priority_changes_nothing_where_all_are_alike() {
    let mut egress = uplink(EgressOrder::Fair);
    let [a, b] =
        [(3_000, 7), (1_500, 0)].map(|(bytes, urgency)| asked(&mut egress, bytes, urgency, Delivery::Whole));
    assert_eq!(drain(&mut egress), [a, b, a, b, a]);
}

#[test]
fn within_a_band_responses_are_alike_and_a_shrinking_one_rises() {
    let mut egress = uplink(EgressOrder::Bands(Cutoffs::Fixed(vec![1_000])));
    let [a, b] = [2_500, 1_500].map(|bytes| known(&mut egress, bytes));
    assert_eq!([a, b].map(|stream| egress.band(stream)), [1, 1]);
    // After its first turn `b` has 500 left, and is in the first band.
    assert_eq!(drain(&mut egress), [a, b, b, a, a]);
}

#[test]
fn of_responses_of_unknown_size_the_one_that_has_sent_least_goes_first() {
    let mut egress = uplink(EgressOrder::ShortestRemaining);
    let old = egress.open(Size::Unknown, Priority::default()).unwrap();
    egress.offer(old, 10_000);
    for _ in 0..3 {
        egress.next(Instant::ZERO);
    }
    let new = egress.open(Size::Unknown, Priority::default()).unwrap();
    egress.offer(new, 2_000);
    assert_eq!(drain(&mut egress)[..2], [new, new]);
}

#[test]
fn the_size_of_a_type_is_learned() {
    let mut egress = uplink(EgressOrder::ShortestRemaining);
    let [page, image] = [RequestType(1), RequestType(2)];
    for (kind, bytes) in [(page, 500), (image, 5_000)] {
        let stream = egress.open(Size::OfType(kind), Priority::default()).unwrap();
        egress.offer(stream, bytes);
        drain(&mut egress);
        egress.close(stream, Some(kind), Ending::Whole);
    }
    let [image, page] = [image, page].map(|kind| {
        let stream = egress.open(Size::OfType(kind), Priority::default()).unwrap();
        egress.offer(stream, 400);
        stream
    });
    assert_eq!(drain(&mut egress), [page, image]);
}

#[test]
fn a_response_larger_than_its_estimate_counts_by_what_it_has_sent() {
    let mut egress = uplink(EgressOrder::ShortestRemaining);
    let kind = RequestType(1);
    let first = egress.open(Size::OfType(kind), Priority::default()).unwrap();
    egress.offer(first, 1_000);
    drain(&mut egress);
    egress.close(first, Some(kind), Ending::Whole);
    let larger = egress.open(Size::OfType(kind), Priority::default()).unwrap();
    egress.offer(larger, 6_000);
    let other = known(&mut egress, 2_500);
    // 1000 were expected; then 1000 sent are as good as 1000 left, then 2000, and then the other one goes.
    assert_eq!(drain(&mut egress)[..5], [larger, larger, larger, other, other]);
}

#[test]
fn turns_are_paced_at_the_rate_and_a_delayed_timer_costs_none_of_it() {
    let policy = EgressPolicy { rate: Some(1_000_000), quantum: 1_000, ..EgressPolicy::default() };
    let mut egress = Egress::new(policy);
    known(&mut egress, 100_000);
    let start = Instant::from_nanos(1_000_000_000);
    let mut sent = 0;
    // Asked every 1.5 ms only, for 60 ms.
    for at in 0..40_u64 {
        let now = start.after(Duration::from_micros(1_500 * at));
        while let Some(grant) = egress.next(now) {
            sent += grant.bytes;
        }
        assert!(egress.next_timeout().unwrap() > now);
    }
    // 58.5 ms at 1000 bytes a millisecond, and at most 2 ms of it in advance.
    assert!((58_500..=62_500).contains(&sent), "{sent}");
}

#[test]
fn there_are_no_more_responses_than_may_be() {
    let mut egress = Egress::new(EgressPolicy { streams_max: 2, ..EgressPolicy::default() });
    let first = egress.open(Size::Unknown, Priority::default()).unwrap();
    assert!(egress.open(Size::Unknown, Priority::default()).is_some());
    assert!(egress.open(Size::Unknown, Priority::default()).is_none());
    egress.close(first, None, Ending::Broken);
    assert!(egress.open(Size::Unknown, Priority::default()).is_some());
}

/// When a link that sends a byte at a time to all alike ends each of these responses (when it comes, and its
/// size), and the bytes that it has yet to send then.
fn fair_ends(responses: &[(u64, u64)]) -> Vec<(f64, f64)> {
    let comes = |at: usize| responses[at].0 as f64;
    let mut left: Vec<f64> = responses.iter().map(|one| one.1 as f64).collect();
    let (mut now, mut ends) = (0.0, vec![(f64::MAX, 0.0); left.len()]);
    loop {
        let here: Vec<usize> = (0..left.len()).filter(|&at| comes(at) <= now && ends[at].0 > now).collect();
        let count = here.len() as f64;
        let soonest = here.iter().map(|&at| now + left[at] * count).fold(f64::MAX, f64::min);
        let next = (0..left.len()).map(comes).filter(|&at| at > now).fold(soonest, f64::min);
        if next == f64::MAX {
            return ends;
        }
        here.iter().for_each(|&at| left[at] -= (next - now) / count);
        let waiting = here.iter().map(|&at| left[at]).sum();
        here.into_iter().filter(|&at| left[at] < 1e-6).for_each(|at| ends[at] = (next, waiting));
        now = next;
    }
}

/// A large response of 10,000 bytes, and small ones that fill the uplink without end.
fn large_among_small() -> Vec<(u64, u64)> {
    let small = (0..2_000).map(|at| (at * 1_000, 1_000));
    [(0, 10_000)].into_iter().chain(small).collect()
}

#[test]
fn a_response_is_overdue_when_a_fair_uplink_had_sent_it_and_gets_every_second_turn_from_then_on() {
    let policy = EgressPolicy { aging: Some(1.0), quantum: 1_000, ..EgressPolicy::default() };
    let mut egress = Egress::new(policy);
    let large = known(&mut egress, 10_000);
    let mut turns = Vec::new();
    for _ in 0..300 {
        known(&mut egress, 1_000);
        turns.push(egress.next(Instant::ZERO).unwrap().stream == large);
    }
    let first = turns.iter().position(|&large| large).unwrap();
    let fair = (fair_ends(&large_among_small())[0].0 / 1_000.0) as usize;
    assert!((fair..=fair + 2).contains(&first), "{first}, {fair}");
    assert_eq!(turns.iter().filter(|&&large| large).count(), 10);
    // Its last thousand is as short as a small one, and the older of the two goes first.
    assert_eq!(turns.iter().rposition(|&large| large), Some(first + 17));
}

/// When an uplink that sends a byte at a time, in turns of 100, ends them.
fn ends(aging: Option<f64>, responses: &[(u64, u64)]) -> Vec<f64> {
    let mut egress = Egress::new(EgressPolicy { aging, quantum: 100, ..EgressPolicy::default() });
    let (mut now, mut ends) = (0, vec![0.0; responses.len()]);
    let mut open = BTreeMap::new();
    let mut to_come = (0..responses.len()).peekable();
    loop {
        while let Some(at) = to_come.next_if(|&at| responses[at].0 <= now) {
            open.insert(known(&mut egress, responses[at].1), at);
        }
        if let Some(grant) = egress.next(Instant::ZERO) {
            now += grant.bytes;
            ends[open[&grant.stream]] = now as f64;
        } else {
            let Some(&at) = to_come.peek() else { return ends };
            now = responses[at].0;
        }
    }
}

/// The bytes by which, with aging, the latest response exceeds its bound. A turn of each overdue one may add
/// to it.
fn beyond_bound(responses: &[(u64, u64)]) -> f64 {
    let bounds = fair_ends(responses).into_iter().map(|(fair, waiting)| fair + 2.0 * waiting);
    ends(Some(1.0), responses)
        .into_iter()
        .zip(bounds)
        .map(|(end, bound)| end - bound)
        .fold(f64::MIN, f64::max)
}

proptest! {
    #[test]
    fn with_aging_none_is_later_than_on_a_fair_uplink_by_more_than_twice_what_that_has_yet_to_send(
        gaps in prop::collection::vec((0..10_000_u64, 1..20_000_u64), 1..60),
    ) {
        let mut at = 0;
        let responses: Vec<_> = gaps.iter().map(|&(gap, size)| { at += gap; (at, size) }).collect();
        prop_assert!(beyond_bound(&responses) <= 100.0 * (responses.len() + 2) as f64);
    }
}

#[test]
fn without_aging_a_large_response_waits_as_long_as_there_are_small_ones() {
    let responses = large_among_small();
    assert!(beyond_bound(&responses) <= 300.0);
    let ends = ends(None, &responses);
    assert!(ends[1..].iter().all(|&small| small < ends[0]));
}

#[derive(Clone, Debug)]
enum Step {
    Open(u64, u8, Priority),
    Offer(usize, u64),
    Next,
    Close(usize, bool),
}

fn priorities() -> impl Strategy<Value = Priority> {
    let delivery = prop_oneof![Just(Delivery::Whole), Just(Delivery::Incremental)];
    (0..9_u8, delivery).prop_map(|(urgency, delivery)| Priority { urgency, delivery })
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        (1..50_000_u64, 0..3_u8, priorities())
            .prop_map(|(size, known, priority)| Step::Open(size, known, priority)),
        (0..8_usize, 1..20_000_u64).prop_map(|(stream, bytes)| Step::Offer(stream, bytes)),
        Just(Step::Next),
        (0..8_usize, any::<bool>()).prop_map(|(stream, whole)| Step::Close(stream, whole)),
    ]
}

fn orders() -> impl Strategy<Value = EgressOrder> {
    prop_oneof![
        Just(EgressOrder::Fair),
        Just(EgressOrder::ShortestRemaining),
        Just(EgressOrder::Bands(Cutoffs::published())),
        Just(EgressOrder::Bands(Cutoffs::Learned)),
    ]
}

proptest! {
    #[test]
    fn bytes_are_conserved_and_the_uplink_never_idles_while_any_wait(
        order in orders(),
        aging in prop_oneof![Just(None), Just(Some(1.0)), Just(Some(3.0))],
        steps in prop::collection::vec(step(), 1..200),
    ) {
        let policy = EgressPolicy { order, aging, quantum: 1_448, streams_max: 8, ..EgressPolicy::default() };
        let mut egress = Egress::new(policy);
        // What waits of each.
        let mut all: Vec<(Stream, u64)> = Vec::new();
        for step in steps {
            match step {
                Step::Open(size, known, priority) => {
                    let kind = RequestType(u64::from(known));
                    let size = [Size::Known(size), Size::OfType(kind), Size::Unknown][usize::from(known)];
                    all.extend(egress.open(size, priority).map(|stream| (stream, 0)));
                }
                Step::Offer(at, bytes) => if let Some(one) = all.get_mut(at) {
                    egress.offer(one.0, bytes);
                    one.1 += bytes;
                },
                Step::Next => {
                    let grant = egress.next(Instant::ZERO);
                    prop_assert_eq!(grant.is_some(), all.iter().any(|one| one.1 > 0));
                    let Some(grant) = grant else { continue };
                    let one = all.iter_mut().find(|one| one.0 == grant.stream).unwrap();
                    prop_assert!(grant.bytes > 0 && grant.bytes <= one.1.min(1_448));
                    one.1 -= grant.bytes;
                }
                Step::Close(at, whole) => if at < all.len() {
                    // What waits of a response that ends is given up.
                    let (stream, _) = all.swap_remove(at);
                    egress.close(stream, None, if whole { Ending::Whole } else { Ending::Broken });
                },
            }
            let waiting: u64 = egress.streams.values().map(|record| record.waiting).sum();
            prop_assert_eq!(waiting, all.iter().map(|one| one.1).sum::<u64>());
            prop_assert_eq!(waiting, egress.backlog().bytes);
            prop_assert_eq!(egress.streams.len(), all.len());
        }
    }
}
