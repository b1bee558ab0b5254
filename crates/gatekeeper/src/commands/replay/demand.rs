//! What a request would take alone, worked out of what it took among others.
//!
//! An upstream time is measured under the load of its moment, and replayed as it is it would be slowed down
//! twice. If the service shares c cores equally, a request in flight among n advances at the speed min(1,
//! c/n); the trace tells n at every instant, so that
//!
//! ```text
//! alone = busy share × ∫ min(1, c / n(t)) dt    from its dispatch to its end
//! ```
//!
//! where a request counts in n as far as the service was busy with it (a transaction's client thinks in
//! between), and the busy share is its upstream time as a part of its time in flight.
//!
//! **What that assumes.** That the service shares c cores and nothing else. What waits for locks, disks or
//! the network was slowed down less by n than this takes back: its time alone comes out too short, and a
//! replay without the gate too favorable. Whether it holds can be seen: of each type the mean of those that
//! ran with a core of their own stands beside that of those that had to share, and the two must agree. With
//! the recorded policy the replay's waits and response times agree with the recorded ones almost by
//! construction; that they do says that the gate was simulated right, and nothing of the service.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::recorded::{End, Request};

/// Above this mean speed a request had a core of its own.
const ALONE: f64 = 0.9;

/// Seconds alone, by the model; `None` where nothing tells.
pub(super) fn shared(requests: &[Request], cores: u32) -> Vec<Option<f64>> {
    let speeds = speeds(requests, cores);
    requests.iter().zip(speeds).map(|(request, speed)| Some(seconds(request)? * speed?)).collect()
}

/// Seconds alone, if the service serves so many at a time and the others wait inside in order of dispatch, as
/// a site's worker processes do; `None` where nothing tells.
pub(super) fn queued(requests: &[Request], servers: u32) -> Vec<Option<f64>> {
    let mut flights: Vec<(u64, u64, usize)> = requests
        .iter()
        .enumerate()
        .filter_map(|(at, request)| Some((request.dispatched?, request.ended?, at)))
        .collect();
    flights.sort_unstable_by_key(|&(from, _, at)| (from, at));
    let mut free: BinaryHeap<Reverse<u64>> = (0..servers.max(1)).map(|_| Reverse(0)).collect();
    let mut demands = vec![None; requests.len()];
    for (from, to, at) in flights {
        let Reverse(since) = free.pop().unwrap_or(Reverse(0));
        let begin = from.max(since);
        free.push(Reverse(to.max(since)));
        let alone = to.saturating_sub(begin) as f64 / 1e9;
        demands[at] = seconds(&requests[at]).map(|upstream| upstream.min(alone));
    }
    demands
}

/// Samples on each side without which a type says nothing.
const COMPARED_LEAST: usize = 20;

/// Times below that are alike, in seconds.
const ALIKE: f64 = 1e-6;

/// How far those that had a core of their own and those that had company disagree on what a type takes: in
/// the mean and the deviation of the logarithm, averaged over types. `None`: too few had company, or were
/// alone.
pub(super) fn disagreement(
    requests: &[Request],
    demands: &[Option<f64>],
    cores: u32,
    types: usize,
) -> Option<f64> {
    let mut sides = vec![[(0.0, 0.0, 0usize); 2]; types];
    for ((request, demand), speed) in requests.iter().zip(demands).zip(speeds(requests, cores)) {
        let (Some(demand), Some(speed)) = (demand, speed) else { continue };
        let (sum, squares, count) = &mut sides[request.kind as usize][usize::from(speed < ALONE)];
        let log = demand.max(ALIKE).ln();
        *sum += log;
        *squares += log * log;
        *count += 1;
    }
    let (mut sum, mut weight) = (0.0, 0.0);
    for side in sides {
        let least = side[0].2.min(side[1].2);
        if least < COMPARED_LEAST {
            continue;
        }
        let [alone, shared] = side.map(|(sum, squares, count)| {
            let mean = sum / count as f64;
            (mean, (squares / count as f64 - mean * mean).max(0.0).sqrt())
        });
        sum += ((shared.0 - alone.0).abs() + (shared.1 - alone.1).abs()) * least as f64;
        weight += least as f64;
    }
    (weight > 0.0).then(|| sum / weight)
}

/// Upstream times as they were measured, in seconds.
pub(super) fn measured(requests: &[Request]) -> Vec<Option<f64>> {
    requests.iter().map(seconds).collect()
}

/// The mean service times of a type, of those that had a core of their own and of those that had to share.
pub(super) fn by_company(
    requests: &[Request],
    demands: &[Option<f64>],
    cores: u32,
    types: usize,
) -> Vec<[Option<f64>; 2]> {
    let mut sums = vec![[(0.0, 0u64); 2]; types];
    let speeds = speeds(requests, cores);
    for ((request, demand), speed) in requests.iter().zip(demands).zip(speeds) {
        let (Some(demand), Some(speed)) = (demand, speed) else { continue };
        let (sum, count) = &mut sums[request.kind as usize][usize::from(speed < ALONE)];
        *sum += demand;
        *count += 1;
    }
    sums.iter().map(|both| both.map(|(sum, count)| (count > 0).then(|| sum / count as f64))).collect()
}

/// The mean of each type.
pub(super) fn means(requests: &[Request], demands: &[Option<f64>], types: usize) -> Vec<Option<f64>> {
    let mut sums = vec![(0.0, 0u64); types];
    for (request, demand) in requests.iter().zip(demands) {
        let Some(demand) = demand else { continue };
        let (sum, count) = &mut sums[request.kind as usize];
        *sum += demand;
        *count += 1;
    }
    sums.into_iter().map(|(sum, count)| (count > 0).then(|| sum / count as f64)).collect()
}

/// The mean of some numbers.
pub(super) fn mean(numbers: impl Iterator<Item = f64>) -> Option<f64> {
    let (sum, count) = numbers.fold((0.0, 0u64), |(sum, count), number| (sum + number, count + 1));
    (count > 0).then(|| sum / count as f64)
}

/// How long the service was busy with a request that ran to its end.
fn seconds(request: &Request) -> Option<f64> {
    (request.end == End::Completed).then_some(request.upstream as f64 / 1e9)
}

/// The mean speed of each request that was in flight to an end, as a part of a core.
fn speeds(requests: &[Request], cores: u32) -> Vec<Option<f64>> {
    /// How busy the service was with it, of the time in which it was in flight.
    fn busy(request: &Request, from: u64, to: u64) -> f64 {
        if to > from { (request.upstream as f64 / (to - from) as f64).min(1.0) } else { 0.0 }
    }
    let flights: Vec<(usize, u64, u64)> = requests
        .iter()
        .enumerate()
        .filter_map(|(at, request)| Some((at, request.dispatched?, request.ended?)))
        .collect();
    // Ends before beginnings at one instant: the place was free.
    let mut turns: Vec<(u64, bool, usize)> = Vec::with_capacity(2 * flights.len());
    for &(at, from, to) in &flights {
        turns.push((from, true, at));
        turns.push((to.max(from + 1), false, at));
    }
    turns.sort_unstable();
    let (cores, mut company, mut now, mut virtual_time) = (f64::from(cores), 0.0f64, 0u64, 0.0f64);
    let mut begun = vec![0.0; requests.len()];
    let mut speeds = vec![None; requests.len()];
    for (at, begins, number) in turns {
        virtual_time += (at - now) as f64 * (cores / company.max(cores)).min(1.0);
        now = at;
        let request = &requests[number];
        let (from, to) = (request.dispatched.unwrap_or(at), request.ended.unwrap_or(at));
        if begins {
            company += busy(request, from, to);
            begun[number] = virtual_time;
        } else {
            company = (company - busy(request, from, to)).max(0.0);
            speeds[number] = Some((virtual_time - begun[number]) / to.max(from + 1).abs_diff(from) as f64);
        }
    }
    speeds
}

#[cfg(test)]
mod tests {
    use super::*;

    /// In flight from one millisecond to another, busy all the time.
    fn request(from: u64, to: u64) -> Request {
        Request {
            kind: 0,
            class: 0,
            arrived: from * 1_000_000,
            dispatched: Some(from * 1_000_000),
            ended: Some(to * 1_000_000),
            upstream: (to - from) * 1_000_000,
            end: End::Completed,
        }
    }

    fn millis(demands: &[Option<f64>]) -> Vec<Option<u64>> {
        demands.iter().map(|demand| demand.map(|seconds| (seconds * 1e3).round() as u64)).collect()
    }

    #[test]
    fn two_on_one_core_took_half_of_what_they_took_together() {
        // From 0 to 10 both, then the second alone.
        let both = [request(0, 10), request(0, 15)];
        assert_eq!(millis(&shared(&both, 1)), [Some(5), Some(10)]);
        assert_eq!(millis(&shared(&both, 2)), [Some(10), Some(15)]);
        assert_eq!(millis(&measured(&both)), [Some(10), Some(15)]);
    }

    #[test]
    fn behind_one_server_the_second_took_only_what_came_after_the_first() {
        let both = [request(0, 10), request(0, 15)];
        assert_eq!(millis(&queued(&both, 1)), [Some(10), Some(5)]);
        assert_eq!(millis(&queued(&both, 2)), [Some(10), Some(15)]);
        let refused = Request { dispatched: None, end: End::Rejected, ..request(0, 1) };
        assert_eq!(millis(&queued(&[refused, request(3, 4)], 1)), [None, Some(1)]);
    }

    #[test]
    fn the_service_that_explains_the_trace_is_the_one_whose_times_agree() {
        // On one server that serves in order 30 alone, and 30 pairs: each takes 10 ms.
        let alone = (0..30).map(|at| request(100 * at, 100 * at + 10));
        let pairs =
            (30..60).flat_map(|at| [request(100 * at, 100 * at + 10), request(100 * at, 100 * at + 20)]);
        let requests: Vec<Request> = alone.chain(pairs).collect();
        let of = |demands: &[Option<f64>]| disagreement(&requests, demands, 1, 1).unwrap_or(f64::NAN);
        assert!(of(&queued(&requests, 1)) < 0.01);
        assert!(of(&shared(&requests, 1)) > 0.05);
        let few = &requests[..40];
        assert_eq!(disagreement(few, &shared(few, 1), 1, 1), None, "too few had company");
    }

    #[test]
    fn a_client_that_thinks_takes_nobody_s_time() {
        let thinking = Request { upstream: 0, ..request(0, 100) };
        let demands = shared(&[request(0, 10), thinking, request(20, 30)], 1);
        assert_eq!(millis(&demands), [Some(10), Some(0), Some(10)]);
    }

    #[test]
    fn what_was_never_in_flight_or_has_no_end_tells_nothing() {
        let refused = Request { dispatched: None, end: End::Rejected, ..request(0, 1) };
        let running = Request { ended: None, end: End::Unfinished, ..request(0, 1) };
        let canceled = Request { end: End::Canceled, ..request(0, 8) };
        let demands = shared(&[refused, running, canceled, request(2, 4)], 1);
        // The canceled one was company while it lasted.
        assert_eq!(millis(&demands), [None, None, None, Some(1)]);
        assert_eq!(means(&[refused], &[None], 1), [None]);
    }

    #[test]
    fn those_that_ran_alone_are_told_from_those_that_shared() {
        let requests = [request(0, 4), request(10, 20), request(10, 20)];
        let demands = shared(&requests, 1);
        let both = by_company(&requests, &demands, 1, 1);
        assert_eq!(millis(&both[0]), [Some(4), Some(5)]);
        assert_eq!(millis(&means(&requests, &demands, 1)), [Some(5)]);
    }
}
