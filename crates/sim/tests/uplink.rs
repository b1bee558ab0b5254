//! The uplink's scheduler against theory, and the effects that *Web servers under overload* (TOIT 2006)
//! reports.

use admission::{Duration, EgressOrder, EgressPolicy};
use sim::theory::BySize;
use sim::uplink::{
    Bytes, Demand, Download, Phases, Plain, Queue, Response, Served, Setup, Tcp, closed_sizes, plain,
    poisson, serve,
};

/// Bytes per second of a plain link.
const RATE: f64 = 1.25e6;
/// Bytes of a turn.
const QUANTUM: u32 = 500;
const PARETO: Bytes = Bytes::Pareto { alpha: 1.1, least: 5_000, most: 20_000_000 };

fn policy(order: EgressOrder) -> EgressPolicy {
    EgressPolicy { order, quantum: QUANTUM, ..EgressPolicy::default() }
}

/// The theory of these sizes at this load; times and sizes are in seconds of the link.
fn theory(load: f64) -> BySize {
    let at_rate = |rate: f64| BySize::new(rate, 5e3 / RATE, 2e7 / RATE, |size| size.powf(-2.1));
    at_rate(load / at_rate(1.0).mean())
}

/// The requests, at this load of a plain link.
fn at_load(load: f64, mut requests: Vec<Download>) -> Vec<Download> {
    let bytes: u64 = requests.iter().map(|one| one.bytes).sum();
    let last = requests.last().expect("there are requests").at.as_secs_f64();
    let faster = load * RATE * last / bytes as f64;
    requests.iter_mut().for_each(|one| one.at = one.at.div_f64(faster));
    requests
}

/// What theory says of a size; a new response waits for the end of the turn that it finds.
fn expected(theory: &BySize, load: f64, size: u64) -> f64 {
    theory.shortest_remaining(size as f64 / RATE) + load.min(1.0) * f64::from(QUANTUM) / 2.0 / RATE
}

fn close(found: f64, expected: f64, percent: f64) {
    assert!((found / expected - 1.0).abs() < percent / 100.0, "{found} instead of {expected}");
}

/// The mean of the response times of sizes within 5 % of this one.
fn near(served: &Served, size: u64) -> f64 {
    let within = |one: &&Response| (size * 95 / 100..size * 105 / 100).contains(&one.bytes);
    let times: Vec<f64> = served.responses.iter().filter(within).filter_map(|one| one.response).collect();
    times.iter().sum::<f64>() / times.len() as f64
}

#[test]
fn fair_has_the_mean_response_time_of_processor_sharing() {
    let requests = at_load(0.8, poisson(&Bytes::Exponential(50_000.0), 500_000, 1));
    let found = plain(policy(EgressOrder::Fair), Plain::Known, RATE, &requests, f64::INFINITY);
    close(found.mean(), 50_000.0 / RATE / 0.2, 3.0);
}

#[test]
fn shortest_remaining_has_the_response_time_of_theory_at_each_size() {
    let requests = at_load(0.7, poisson(&PARETO, 250_000, 1));
    let found = plain(policy(EgressOrder::ShortestRemaining), Plain::Known, RATE, &requests, f64::INFINITY);
    let theory = theory(0.7);
    for (size, percent) in [(6_000, 2.0), (20_000, 2.0), (100_000, 3.0), (1_000_000, 5.0)] {
        close(near(&found, size), expected(&theory, 0.7, size), percent);
    }
}

#[test]
fn of_unknown_sizes_the_least_attained_service_has_the_mean_of_theory() {
    let requests = at_load(0.7, poisson(&PARETO, 250_000, 2));
    let found = plain(policy(EgressOrder::ShortestRemaining), Plain::Unknown, RATE, &requests, f64::INFINITY);
    close(found.mean(), theory(0.7).least_attained(), 6.0);
}

#[test]
fn in_an_overload_without_end_small_responses_are_as_fast_as_if_the_largest_were_not_there() {
    let requests = at_load(1.2, poisson(&PARETO, 250_000, 3));
    let last = requests.last().unwrap().at.as_secs_f64();
    let found = plain(policy(EgressOrder::ShortestRemaining), Plain::Known, RATE, &requests, last);
    let theory = theory(1.2);
    let critical = theory.critical().unwrap() * RATE;
    assert!((500_000.0..10_000_000.0).contains(&critical), "{critical}");
    for (size, percent) in [(6_000, 2.0), (20_000, 2.0), (100_000, 5.0)] {
        close(near(&found, size), expected(&theory, 1.2, size), percent);
    }
    assert!(theory.shortest_remaining(1.5 * critical / RATE).is_infinite());
    let ends = |least: f64| {
        let larger: Vec<_> = found.responses.iter().filter(|one| one.bytes as f64 > least).collect();
        larger.iter().filter(|one| one.response.is_some()).count() as f64 / larger.len() as f64
    };
    assert!(ends(2.0 * critical) < 0.1, "{}", ends(2.0 * critical));
}

#[test]
fn after_an_overload_a_large_response_ends_when_the_busy_period_of_its_size_does() {
    let mean = 50_000.0 / RATE;
    let theory = BySize::new(1.5 / mean, mean / 1e4, 30.0 * mean, |size| (-size / mean).exp());
    let size = 1.3 * theory.critical().unwrap();
    // Of many overloads of 100 s, each followed by as long a time at a load of 0.3.
    let phases = Phases(vec![(Duration::from_secs(100), 1.5), (Duration::from_secs(100), 0.3)]);
    let trace = poisson(&Bytes::Exponential(50_000.0), 300_000, 4);
    let mut setup = Setup::baseline(Queue::fair());
    // A plain link has no headers.
    (setup.bits, setup.segment) = (8.0 * RATE, 1 << 30);
    let requests = phases.replay(&setup, &trace, Duration::from_secs(20_000));
    let found = plain(policy(EgressOrder::ShortestRemaining), Plain::Known, RATE, &requests, f64::INFINITY);
    let times: Vec<f64> = found
        .responses
        .iter()
        .filter(|one| (one.bytes as f64 / RATE / size - 1.0).abs() < 0.1 && one.at % 200.0 < 100.0)
        .filter_map(|one| one.response)
        .collect();
    let mean = times.iter().sum::<f64>() / times.len() as f64;
    close(mean, theory.beyond_overload(size, 100.0, 0.2), 5.0);
}

/// Half an hour of a workload of Table I in the paper's baseline.
fn workload(number: usize, queue: Queue) -> Served {
    play(number, Duration::from_secs(1_800), &Setup::baseline(queue))
}

fn play(number: usize, length: Duration, setup: &Setup) -> Served {
    let trace = poisson(&Bytes::WorldCup, 100_000, 1);
    let requests = Phases::published(number).expect("the table has it").replay(setup, &trace, length);
    serve(setup, &Demand::Open(requests), length + Duration::from_secs(300), 1)
}

#[test]
fn the_published_means_come_out_and_the_gate_is_better_than_the_published_bands() {
    let fair = workload(1, Queue::fair());
    let bands = workload(1, Queue::published_bands());
    let shortest = workload(1, Queue::gate(EgressOrder::ShortestRemaining, None));
    // The paper: 1.1 s, C² 6.39, more than 200 connections, none refused; 138 ms, at most 50.
    assert!((0.9..1.3).contains(&fair.mean()), "{}", fair.mean());
    assert!((5.5..7.5).contains(&fair.squared_variation()), "{}", fair.squared_variation());
    let most = |served: &Served| served.seconds.iter().map(|second| second.connections).max().unwrap();
    assert!(most(&fair) > 200 && fair.seconds.last().unwrap().refused == 0);
    assert!(most(&bands) <= 60, "{}", most(&bands));
    assert!(fair.mean() > 8.0 * bands.mean() && bands.mean() > shortest.mean());
    assert!(shortest.mean_of_largest(0.01) < 1.1 * fair.mean_of_largest(0.01));
    let sent = |served: &Served| served.seconds[1_799].sent as f64;
    close(sent(&shortest), sent(&fair), 1.0);
    close(sent(&bands), sent(&fair), 1.0);
}

#[test]
fn with_aging_no_large_response_takes_twice_its_fair_time() {
    for number in [1, 3, 4, 6] {
        // What is fair doesn't depend on how many workers there are.
        let run = |order, aging| {
            let setup = Setup { workers: 1 << 20, ..Setup::baseline(Queue::gate(order, aging)) };
            play(number, Duration::from_secs(200), &setup)
        };
        let fair = run(EgressOrder::Fair, None);
        let [shortest, aged] = [None, Some(1.0)].map(|aging| run(EgressOrder::ShortestRemaining, aging));
        let worst = |other: &Served| {
            let mut both: Vec<_> = fair.responses.iter().zip(&other.responses).collect();
            both.sort_by_key(|(one, _)| std::cmp::Reverse(one.bytes));
            both.truncate(both.len() / 100);
            let ratio = |(fair, one): &(&Response, &Response)| one.response.unwrap() / fair.response.unwrap();
            both.iter().map(ratio).fold(0.0, f64::max)
        };
        assert!(worst(&aged) < 2.0, "W{number}: {}", worst(&aged));
        assert!(worst(&shortest) > 2.0, "W{number}: {}", worst(&shortest));
        assert!(fair.mean() > 4.0 * aged.mean(), "W{number}: {} {}", fair.mean(), aged.mean());
    }
}

#[test]
fn a_closed_loop_cannot_overload_a_server() {
    let setup = Setup::baseline(Queue::fair());
    let sizes = closed_sizes(&Bytes::WorldCup, 100_000, 1);
    let until = Duration::from_secs(300);
    let run = |think| {
        let think = Duration::from_millis(think);
        let demand = Demand::Closed { clients: 50, think, sizes: sizes.clone(), until };
        serve(&setup, &demand, until, 1)
    };
    let [calm, eager] = [2_000, 20].map(run);
    // A hundredth of the thinking, but no more than fifty connections and fifty responses' time on the link.
    assert!(eager.seconds.iter().all(|second| second.connections + second.waiting <= 50));
    assert_eq!(eager.seconds.last().unwrap().refused, 0);
    assert!(calm.mean() < eager.mean() && eager.mean() < 1.0, "{} {}", calm.mean(), eager.mean());
}

/// One response alone.
fn alone(setup: &Setup, bytes: u64) -> Response {
    let requests = vec![Download { at: Duration::ZERO, bytes }];
    serve(setup, &Demand::Open(requests), Duration::from_secs(100), 1).responses[0]
}

#[test]
fn a_response_over_a_long_way_takes_a_handshake_and_the_rounds_of_slow_start() {
    let mut setup = Setup::baseline(Queue::gate(EgressOrder::ShortestRemaining, None));
    setup.round_trip = Duration::from_millis(100);
    // Fourteen segments in rounds of 2, 4 and 8: the third begins 350 ms after the first packet of the
    // client.
    let found = alone(&setup, 14 * 1_460);
    assert!((0.4..0.42).contains(&found.response.unwrap()), "{found:?}");
    assert!((0.2..0.21).contains(&found.first_byte.unwrap()), "{found:?}");
}

#[test]
fn a_user_aborts_tries_again_and_gives_up() {
    let mut setup = Setup::baseline(Queue::fair());
    (setup.patience, setup.retries) = (Some(Duration::from_secs(1)), 2);
    // Four seconds on the link: never within one.
    let requests = vec![Download { at: Duration::ZERO, bytes: 5_000_000 }];
    let served = serve(&setup, &Demand::Open(requests), Duration::from_secs(20), 1);
    assert_eq!(served.responses[0].response, None);
    let sent = |second: usize| served.seconds[second].sent;
    assert!(sent(2) > 3_500_000 && sent(4) == sent(15), "{:?}", &served.seconds[..5]);
    assert_eq!(served.seconds[15].connections, 0);
    assert!(alone(&setup, 1_000_000).response.is_some());
}

#[test]
fn a_connection_that_is_used_again_needs_no_handshake() {
    let mut setup = Setup::baseline(Queue::gate(EgressOrder::Fair, None));
    (setup.round_trip, setup.reuse) = (Duration::from_millis(100), 2);
    let requests = (0..3).map(|at| Download { at: Duration::from_secs(at), bytes: 1_000 }).collect();
    let served = serve(&setup, &Demand::Open(requests), Duration::from_secs(10), 1);
    let times: Vec<u64> = served.times().map(|time| (time * 10.0) as u64).collect();
    assert_eq!(times, [2, 1, 2]);
}

#[test]
fn losses_cost_time_and_no_response() {
    let mut setup = Setup::baseline(Queue::gate(EgressOrder::ShortestRemaining, None));
    setup.loss = 0.05;
    let trace = poisson(&Bytes::WorldCup, 20_000, 1);
    let requests = Phases::constant(0.3).replay(&setup, &trace, Duration::from_secs(200));
    let served = serve(&setup, &Demand::Open(requests), Duration::from_secs(400), 1);
    assert!(served.incomplete() < 1e-9, "{}", served.incomplete());
    assert!((0.1..1.0).contains(&served.mean()), "{}", served.mean());
}

#[test]
fn a_linux_whose_own_queue_is_full_sends_everything_later() {
    let requests = vec![Download { at: Duration::ZERO, bytes: 100_000 }; 20];
    let queue = Queue::Kernel { cutoffs: Vec::new(), length: 5, frees: 1 };
    let setup = Setup { tcp: Tcp::Linux, head: 41, acknowledgments: 1, ..Setup::baseline(queue) };
    let served = serve(&setup, &Demand::Open(requests), Duration::from_secs(60), 1);
    assert_eq!(served.times().count(), 20);
    assert!(served.seconds.last().unwrap().dropped > 0);
}

#[test]
fn a_linux_gives_up_large_responses_whose_packets_find_no_room_for_long() {
    let length = Duration::from_secs(60);
    let trace = poisson(&Bytes::WorldCup, 100_000, 1);
    let lost = |queue| {
        let setup = today(0, 0.0, queue);
        let requests = Phases::constant(1.4).replay(&setup, &trace, length);
        let served = serve(&setup, &Demand::Open(requests), Duration::from_secs(600), 1).responses;
        let sizes: Vec<u64> =
            served.iter().filter(|one| one.response.is_none()).map(|one| one.bytes).collect();
        (sizes.len(), sizes.iter().sum::<u64>() / sizes.len().max(1) as u64)
    };
    let (given_up, size) = lost(Queue::pfifo_fast(&[], 100));
    assert!(given_up > 0 && size > 20_000, "{given_up} of {size} bytes");
    // Where each waits in a gate, none does.
    assert_eq!(lost(Queue::gate(EgressOrder::ShortestRemaining, Some(1.0))).0, 0);
}

#[test]
fn a_small_response_waits_for_what_a_gate_lets_stand_in_the_kernel() {
    let small = |standing| {
        let requests = [(0, 1_000_000), (500, 1_000)];
        let requests = requests.map(|(at, bytes)| Download { at: Duration::from_millis(at), bytes }).to_vec();
        let queue = Queue::gate(EgressOrder::ShortestRemaining, None);
        let setup = Setup { standing, ..Setup::baseline(queue) };
        serve(&setup, &Demand::Open(requests), Duration::from_secs(10), 1).responses[1].response.unwrap()
    };
    // Before the answer to its opening, and before its only packet.
    let packet = 1_538.0 * 8.0 / 10e6;
    let longer = small(5) - small(1);
    assert!((longer - 8.0 * packet).abs() <= 2.0 * packet, "{longer}");
}

/// Linux of today, so many milliseconds away.
fn today(milliseconds: u64, loss: f64, queue: Queue) -> Setup {
    Setup {
        tcp: Tcp::Linux,
        overhead: 90,
        segment: 1_448,
        head: 80,
        acknowledgments: 1,
        standing: 4,
        round_trip: Duration::from_micros(100) + Duration::from_millis(milliseconds),
        loss,
        first_timeout: Duration::from_secs(1),
        half_open: 1 << 20,
        backlog: 1 << 20,
        workers: 1 << 20,
        ..Setup::baseline(queue)
    }
}

/// The mean of W1.
fn far_away(milliseconds: u64, loss: f64, queue: Queue) -> f64 {
    play(1, Duration::from_secs(200), &today(milliseconds, loss, queue)).mean()
}

/// How often each of the largest hundredth is served where packets are lost.
const RUNS: u64 = 20;

/// Times of the largest hundredth of W1: of each response in runs that lose other packets.
fn of_largest(loss: f64, queue: Queue, seed: u64) -> Vec<Vec<f64>> {
    let (setup, length) = (today(0, loss, queue), Duration::from_secs(50));
    let trace = poisson(&Bytes::WorldCup, 100_000, 1);
    let requests = Phases::published(1).expect("the table has it").replay(&setup, &trace, length);
    let run = |seed| serve(&setup, &Demand::Open(requests.clone()), Duration::from_secs(350), seed);
    let runs: Vec<Served> = (seed..seed + RUNS).map(run).collect();
    let mut order: Vec<usize> = (0..requests.len()).collect();
    order.sort_by_key(|&at| std::cmp::Reverse(requests[at].bytes));
    order.truncate(requests.len() / 100);
    let times =
        |at: usize| runs.iter().map(|run| run.responses[at].response.expect("it comes whole")).collect();
    order.into_iter().map(times).collect()
}

#[test]
fn where_packets_are_lost_the_largest_take_no_longer_than_chance_makes_them_on_a_fair_link() {
    for loss in [0.05, 0.1] {
        let fair = of_largest(loss, Queue::gate(EgressOrder::Fair, None), 1);
        let aged = of_largest(loss, Queue::gate(EgressOrder::ShortestRemaining, Some(1.0)), 1_000);
        let means = fair.iter().map(|times| times.iter().sum::<f64>() / RUNS as f64);
        let means: Vec<f64> = means.collect();
        // Half, nine tenths and 99 of a hundred keep so many fair times.
        let keeps = |all: &[Vec<f64>]| {
            let both = all.iter().zip(&means);
            let mut times: Vec<f64> =
                both.flat_map(|(times, mean)| times.iter().map(move |time| time / mean)).collect();
            times.sort_by(f64::total_cmp);
            [0.5, 0.9, 0.99].map(|part| times[(times.len() as f64 * part) as usize])
        };
        let (fair, aged) = (keeps(&fair), keeps(&aged));
        let no_worse = fair.iter().zip(&aged).all(|(fair, aged)| *aged < 1.25 * fair);
        assert!(no_worse, "{loss}: {aged:?} on a link where a fair order has {fair:?}");
    }
}

#[test]
fn a_gate_needs_no_more_than_tcp_tells_whatever_the_round_trip() {
    let paced = |rate| {
        let policy = EgressPolicy { aging: Some(1.0), rate, ..policy(EgressOrder::ShortestRemaining) };
        Queue::Paced { policy, length: 100 }
    };
    for (way, loss, most) in [
        (0, 0.0, 1.25),
        (50, 0.0, 1.3),
        (100, 0.0, 1.3),
        (150, 0.0, 1.3),
        (0, 0.05, 1.25),
        (0, 0.1, 1.25),
        (100, 0.05, 2.2),
    ] {
        let knows = far_away(way, loss, Queue::gate(EgressOrder::ShortestRemaining, Some(1.0)));
        let is_told = far_away(way, loss, paced(Some(1_250_000)));
        assert!(is_told < most * knows, "{way} ms: {is_told} instead of {knows}");
        if loss == 0.0 {
            let (finds, fair) = (far_away(way, loss, paced(None)), far_away(way, loss, Queue::fair()));
            assert!(2.0 * finds < fair, "{way} ms: {finds} and {fair}");
        }
    }
}
