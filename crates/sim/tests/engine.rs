//! The engine: clocks, clients, services and books, on scenarios small enough to be followed by hand, and
//! on random ones.

mod common;

use std::num::NonZero;

use admission::{Capacity, Duration, Event, LongLimit, Order, Policy, Reason, Work};
use common::{ANY, SHORTEST, default_gate, gate, ms, no_gate, one, open, postgres, seconds};
use sim::{
    Abandoned, Arrival, Arrivals, Chance, Collapse, Distribution, End, Error, Keep, Kind, Law, Mix, Observer,
    Outcome, Patience, Phase, Purpose, Rate, Run, Sample, Scenario, Service, Sessions, Source, Steering,
    Upstream, run, run_with, sweep,
};

/// Requests at these milliseconds that take so many alone.
fn replay(policy: Policy, upstream: Upstream, requests: &[(u64, u64)]) -> Scenario {
    let (types, shares) = one(Distribution::Fixed(ms(1)));
    let recorded = |&(at, takes): &(u64, u64)| Arrival { at: ms(at), kind: 0, service_time: Some(ms(takes)) };
    let arrivals: Vec<_> = requests.iter().map(recorded).collect();
    let source = Source::new(Arrivals::Replayed(arrivals.into()), Mix::Shares(shares));
    Scenario {
        duration: seconds(10),
        warm_up: Duration::ZERO,
        ..Scenario::new(policy, types, source, upstream)
    }
}

fn ends(run: &Run) -> Vec<u64> {
    run.rows.iter().map(|row| row.ended.as_nanos() / 1_000_000).collect()
}

#[test]
fn one_server_serves_in_order_of_arrival() {
    let run = run(&replay(no_gate(), Upstream::server(), &[(0, 10), (1, 1), (2, 5)])).unwrap();
    assert_eq!(ends(&run), [10, 11, 16]);
    assert!((run.summary.overall.response.mean - 0.0113333).abs() < 1e-4);
    assert!((run.summary.busy - 0.0016).abs() < 1e-9, "16 ms of work in 10 s");
}

#[test]
fn a_gate_of_one_connection_in_front_of_one_server_changes_nothing_under_fifo() {
    let requests = [(0, 10), (1, 1), (2, 5), (40, 3)];
    let gated = run(&replay(gate(Order::Fifo, 1), Upstream::server(), &requests)).unwrap();
    assert_eq!(ends(&gated), [10, 11, 16, 43]);
    let waits: Vec<_> = gated.rows.iter().map(|row| row.queue_wait().as_millis()).collect();
    assert_eq!(waits, [0, 9, 9, 0]);
}

#[test]
fn sharing_gives_each_the_same_speed_and_none_more_than_a_core() {
    let shared = run(&replay(no_gate(), Upstream::sharing(1, Collapse::None), &[(0, 10), (2, 2)])).unwrap();
    assert_eq!(ends(&shared), [12, 6]);
    let two = run(&replay(no_gate(), Upstream::sharing(2, Collapse::None), &[(0, 10), (2, 2)])).unwrap();
    assert_eq!(ends(&two), [10, 4]);
}

#[test]
fn of_two_services_the_one_with_the_fewest_in_flight_serves() {
    let two = |service| Upstream { replicas: 2, ..Upstream::new(service) };
    // The first and the third on one, the second and the fourth on the other, which the fifth finds empty.
    let requests = [(0, 10), (1, 2), (2, 4), (3, 2), (6, 1)];
    let fifo = run(&replay(no_gate(), two(Service::Fifo { servers: 1 }), &requests)).unwrap();
    assert_eq!(ends(&fifo), [10, 3, 14, 5, 7]);
    let sharing = two(Service::Sharing { cores: 1, collapse: Collapse::None });
    assert_eq!(ends(&run(&replay(no_gate(), sharing, &requests)).unwrap()), [14, 3, 10, 5, 7]);
}

#[test]
fn the_references_serve_by_what_no_gate_knows() {
    let requests = [(0, 10), (1, 6), (2, 1), (9, 2)];
    let shortest = Upstream::new(Service::ShortestFirst { servers: 1 });
    assert_eq!(ends(&run(&replay(no_gate(), shortest, &requests)).unwrap()), [10, 19, 11, 13]);
    let remaining = Upstream::new(Service::ShortestRemaining { servers: 1 });
    assert_eq!(ends(&run(&replay(no_gate(), remaining, &requests)).unwrap()), [19, 8, 3, 11]);
}

#[test]
fn speed_follows_its_schedule_and_a_stall_only_delays() {
    let speed = vec![(ms(2), 0.5), (ms(6), 0.0), (ms(100), 2.0)];
    for service in [Service::Fifo { servers: 1 }, Service::Sharing { cores: 1, collapse: Collapse::None }] {
        let upstream = Upstream { speed: speed.clone(), ..Upstream::new(service) };
        // 2 ms at full speed, 4 at half, and 6 ms of work at double speed after the stall.
        assert_eq!(ends(&run(&replay(no_gate(), upstream, &[(0, 10)])).unwrap()), [103]);
    }
}

#[test]
fn a_service_that_stands_still_for_ever_is_said() {
    let upstream = Upstream { speed: vec![(ms(2), 0.0)], ..Upstream::server() };
    assert_eq!(run(&replay(no_gate(), upstream, &[(0, 10)])), Err(Error::Stuck { left: 1 }));
}

#[test]
fn a_round_trip_counts_as_in_flight_but_keeps_no_server_busy() {
    let upstream = Upstream { round_trip: ms(5), ..Upstream::server() };
    let gated = run(&replay(gate(Order::Fifo, 1), upstream.clone(), &[(0, 10), (0, 10)])).unwrap();
    assert_eq!(ends(&gated), [15, 30], "the gate lets the next in when it hears of the end");
    let ungated = run(&replay(no_gate(), upstream, &[(0, 10), (0, 10)])).unwrap();
    assert_eq!(ends(&ungated), [15, 25]);
}

#[test]
fn what_is_given_up_for_others_is_known_as_late_as_an_answer_and_waits_anew() {
    // Three places, and a request that ends with three in flight is given up: the third of the first, at 50
    // ms. That is known at 55, when the fourth takes its place; the first two are gone at 60, and it begins
    // anew.
    let requests = [(0, 100), (0, 100), (40, 10), (45, 20)];
    let service = |round_trip, input_output| Upstream {
        round_trip: ms(round_trip),
        input_output,
        conflicts: vec![(2, 0.0), (3, 1.0 - 1e-9)],
        ..Upstream::sharing(4, Collapse::None)
    };
    for (upstream, last) in [(service(5, 0.0), 80), (service(0, 0.5), 85)] {
        let mut scenario = replay(gate(Order::Fifo, 3), upstream, &requests);
        scenario.sources[0].patience = Patience::of(ms(60));
        let run = run(&scenario).unwrap();
        assert_eq!(ends(&run), [60, 60, 75, last]);
        let row = &run.rows[2];
        assert_eq!((row.queue_wait(), row.given_up(), row.upstream_time()), (ms(5), ms(15), ms(15)));
        assert_eq!(row.response_time(), ms(35));
    }
}

#[test]
fn a_service_that_serves_so_many_at_once_lets_the_others_wait_inside_in_order() {
    let at_once = |most| Upstream { at_once: Some(most), ..Upstream::sharing(1, Collapse::None) };
    let requests = [(0, 10), (1, 1), (2, 5), (40, 3)];
    assert_eq!(ends(&run(&replay(no_gate(), at_once(1), &requests)).unwrap()), [10, 11, 16, 43]);
    // The first two share until 3 ms, when 8 of the first are left; then the third begins.
    assert_eq!(ends(&run(&replay(no_gate(), at_once(2), &requests)).unwrap()), [16, 3, 13, 43]);
    // Who gives up while waiting inside has been given nothing, and its place isn't missed.
    let mut scenario = replay(no_gate(), at_once(1), &[(0, 10), (1, 100), (2, 5)]);
    scenario.sources[0].patience = Patience::of(ms(14));
    let given_up = run(&scenario).unwrap();
    assert_eq!(ends(&given_up), [10, 15, 16], "the second had begun");
    scenario.sources[0].patience = Patience::of(ms(8));
    assert_eq!(ends(&run(&scenario).unwrap()), [8, 9, 10], "the first was stopped, the others after it");
    assert!(run(&replay(no_gate(), at_once(0), &requests)).is_err());
}

#[test]
fn a_service_as_measured_counts_those_that_wait_inside() {
    let collapse = Collapse::Measured { points: vec![(1, 1.0), (2, 0.5)] };
    let upstream = Upstream { at_once: Some(1), ..Upstream::sharing(1, collapse) };
    // Half as fast while two are inside: 10 ms of the first take 20; then the second is alone.
    assert_eq!(ends(&run(&replay(no_gate(), upstream, &[(0, 10), (0, 10)])).unwrap()), [20, 30]);
}

#[test]
fn a_gate_that_knows_but_does_not_learn_goes_on_with_what_it_was_told() {
    let policy = Policy { capacity: Capacity::Fixed(Work::from_nanos(30_000_000)), ..gate(Order::Fifo, 100) };
    let requests: Vec<_> =
        (0..40).map(|number| (number * 100, 10)).chain((0..4).map(|_| (5_000, 10))).collect();
    let last = |scenario: &Scenario| {
        let run = run(scenario).unwrap();
        run.rows[40..].iter().filter(|row| row.queue_wait().is_zero()).count()
    };
    let mut scenario = replay(policy, Upstream::sharing(8, Collapse::None), &requests);
    scenario.types[0].known = Some(ms(15));
    assert_eq!(last(&scenario), 3, "it has learned that one takes 10 ms: three fit into 30");
    scenario.learning = false;
    assert_eq!(last(&scenario), 2, "it goes on with 15 ms");
}

#[test]
fn clients_that_join_come_evenly_within_the_time_they_are_given() {
    let (types, shares) = one(Distribution::Fixed(ms(1)));
    let think = Distribution::Fixed(Duration::from_secs(1_000));
    let arrivals = Arrivals::Closed { clients: 1_000, think, think_max: None };
    let source = Source {
        from: Duration::from_secs(5),
        joining: Duration::from_secs(20),
        ..Source::new(arrivals, Mix::Shares(shares))
    };
    let scenario = Scenario {
        duration: seconds(100),
        warm_up: Duration::ZERO,
        ..Scenario::new(no_gate(), types, source, Upstream::sharing(8, Collapse::None))
    };
    let joined = run(&scenario).unwrap();
    let by = |second: u64| {
        joined.rows.iter().filter(|row| row.arrived.as_nanos() < second * 1_000_000_000).count()
    };
    assert_eq!((by(5), by(25)), (0, 1_000));
    assert!((430..570).contains(&by(15)), "{}", by(15));
}

#[test]
fn types_that_share_a_lock_run_one_at_a_time_and_burn_what_others_lack() {
    let locks = Collapse::Locks { handover: 0.0, burn: 0.0 };
    let mut scenario = replay(no_gate(), Upstream::sharing(4, locks), &[(0, 10), (0, 10), (0, 10)]);
    scenario.types[0].lock = Some(7);
    assert_eq!(ends(&run(&scenario).unwrap()), [30, 30, 30]);
    scenario.types[0].lock = None;
    assert_eq!(ends(&run(&scenario).unwrap()), [10, 10, 10]);
    scenario.types[0].lock = Some(7);
    scenario.upstream = Upstream::sharing(1, Collapse::Locks { handover: 0.5, burn: 0.5 });
    // Two that wait: each holder has 1/2 of the core (units 1 + 2 × 0.5), and hands over half as fast.
    let ends = ends(&run(&scenario).unwrap());
    assert!(ends[0] >= 120, "{ends:?}");
}

#[test]
fn clients_give_up_and_what_they_leave_in_flight_is_stopped_or_runs_on() {
    let mut scenario = replay(gate(Order::Fifo, 1), Upstream::server(), &[(0, 100), (1, 1)]);
    scenario.sources[0].patience = Patience::of(ms(50));
    let stopped = run(&scenario).unwrap();
    assert_eq!(ends(&stopped), [50, 51]);
    let outcomes: Vec<_> = stopped.rows.iter().map(|row| row.outcome).collect();
    assert_eq!(outcomes, [Outcome::TimedOut, Outcome::Completed]);
    assert_eq!(stopped.rows[0].upstream_time(), ms(50));
    scenario.sources[0].patience.abandoned = Abandoned::RunsOn;
    let goes_on = run(&scenario).unwrap();
    assert_eq!(ends(&goes_on), [50, 51]);
    assert_eq!(goes_on.rows[0].upstream_time(), ms(100));
    assert_eq!(goes_on.rows[1].outcome, Outcome::TimedOut, "the server computed what nobody read");
    assert_eq!(goes_on.rows[1].dispatched, None);
}

#[test]
fn a_client_tries_again_after_a_back_off_but_not_for_ever() {
    let mut scenario = replay(gate(Order::Fifo, 1), Upstream::server(), &[(0, 1_000), (1, 7)]);
    let patience = Patience { retries: 2, back_off: ms(10), ..Patience::of(ms(50)) };
    scenario.sources[0].patience = patience;
    scenario.sources[0].patience.abandoned = Abandoned::RunsOn;
    let tried = run(&scenario).unwrap();
    let second: Vec<_> = tried.rows.iter().filter(|row| row.service_time == ms(7).into()).collect();
    assert_eq!(second.iter().map(|row| row.attempt).collect::<Vec<_>>(), [0, 1, 2]);
    for (row, next) in second.iter().zip(&second[1..]) {
        let waited = next.arrived.since(row.ended);
        let least = ms(5 << row.attempt);
        assert!((least..=3 * least).contains(&waited), "{waited:?}");
    }
}

#[test]
fn the_gate_hears_of_deadlines_and_refuses() {
    let mut scenario = replay(gate(Order::Fifo, 1), Upstream::server(), &[(0, 100), (1, 1)]);
    scenario.sources[0].deadline = Some(ms(20));
    let refused = run(&scenario).unwrap();
    assert_eq!(refused.rows[1].outcome, Outcome::Rejected(Reason::Deadline));
    assert_eq!(ends(&refused), [100, 21]);
    assert_eq!(refused.summary.overall.rejected, 1);
}

#[test]
fn what_is_left_at_the_end_is_drained_or_cut_off() {
    let scenario =
        Scenario { duration: ms(15), ..replay(no_gate(), Upstream::server(), &[(0, 10), (1, 10)]) };
    assert_eq!(ends(&run(&scenario).unwrap()), [10, 20]);
    for policy in [no_gate(), gate(Order::Fifo, 1)] {
        let cut = run(&Scenario { end: End::Cut, policy, ..scenario.clone() }).unwrap();
        assert_eq!(ends(&cut), [10, 15]);
        assert_eq!(cut.rows[1].outcome, Outcome::CutOff);
        assert_eq!(cut.summary.overall.cut_off, 1);
    }
}

#[test]
fn the_clients_of_a_closed_loop_wait_for_answers_and_think() {
    let (types, shares) = one(Distribution::Fixed(ms(100)));
    let think = Distribution::Fixed(ms(400));
    let arrivals = Arrivals::Closed { clients: 1, think, think_max: None };
    let source = Source::new(arrivals, Mix::Shares(shares));
    let scenario = Scenario {
        duration: seconds(10),
        warm_up: seconds(5),
        ..Scenario::new(no_gate(), types, source, Upstream::server())
    };
    let run = run(&scenario).unwrap();
    assert_eq!(run.rows[0].arrived.as_nanos(), 400_000_000);
    assert_eq!(run.rows.len(), 20);
    assert!((run.summary.overall.throughput - 2.0).abs() < 1e-9);
    assert!(run.summary.little_residual.unwrap().abs() < 1e-9);
}

#[test]
fn sources_come_and_go() {
    let (types, shares) = one(Distribution::Fixed(ms(1)));
    let source = |from, until| Source {
        from: seconds(from),
        until: Some(seconds(until)),
        ..Source::new(Arrivals::Regular(Rate::constant(10.0)), Mix::Shares(shares.clone()))
    };
    let mut scenario = Scenario {
        duration: seconds(10),
        warm_up: Duration::ZERO,
        ..Scenario::new(no_gate(), types, source(1, 3), Upstream::server())
    };
    scenario.sources.push(source(2, 4));
    let run = run(&scenario).unwrap();
    let counts: Vec<_> = run.samples.iter().map(|sample| sample.arrived).collect();
    assert_eq!(counts.iter().sum::<u64>(), 38);
    assert_eq!((counts[0], counts[2].max(counts[1]) > 10, counts[6]), (0, true, 0));
}

/// Halves the connections at each tick, and counts what it hears.
#[derive(Default)]
struct Halver {
    policy: Option<Policy>,
    dispatched: u64,
    samples: Vec<Sample>,
}

impl Observer for Halver {
    fn event(&mut self, _: admission::Instant, event: &Event, _: &mut Steering<'_>) {
        self.dispatched += u64::from(matches!(event, Event::Dispatched { .. }));
    }

    fn tick(&mut self, sample: &Sample, steering: &mut Steering<'_>) {
        self.samples.push(*sample);
        if let Some(policy) = &mut self.policy {
            policy.connections = (policy.connections / 2).max(1);
            steering.set_policy(policy.clone());
            assert_eq!(steering.snapshot().connections, policy.connections);
        }
    }
}

#[test]
fn an_observer_hears_every_event_and_may_change_the_policy() {
    let (types, shares) = postgres(0.5);
    let policy = gate(Order::Fifo, 64);
    let scenario = open(policy.clone(), types, shares, Upstream::sharing(2, Collapse::None), 0.7, 20_000);
    let mut halver = Halver { policy: Some(policy), ..Halver::default() };
    let steered = run_with(&scenario, &mut halver).unwrap();
    assert_eq!(halver.dispatched, steered.rows.len() as u64);
    assert_eq!(halver.samples, steered.samples);
    let most = steered.samples.iter().skip(10).map(|sample| sample.in_flight).max();
    assert_eq!(most, Some(1));
    let free = run(&scenario).unwrap();
    assert_ne!(free.trace, steered.trace);
    let asked = |run: &Run| run.rows.iter().map(|row| (row.arrived, row.service_time)).collect::<Vec<_>>();
    assert_eq!(asked(&free), asked(&steered), "both met the same arrivals and service times");
}

#[test]
fn events_of_single_requests_are_kept_only_if_wanted() {
    let (types, shares) = postgres(0.0);
    let scenario = open(default_gate(1), types, shares, Upstream::sharing(1, Collapse::None), 0.5, 5_000);
    let rare = run(&scenario).unwrap();
    assert!(!rare.events.is_empty());
    assert!(rare.events.iter().all(|(_, event)| matches!(event, Event::LaneChanged { .. })));
    let all = run(&Scenario { keep: Keep::All, ..scenario }).unwrap();
    assert_eq!(all.events.len(), rare.events.len() + 2 * all.rows.len());
    assert_eq!(all.trace, rare.trace);
}

#[test]
fn scenarios_that_cannot_be_are_refused_with_their_place() {
    let sound = replay(no_gate(), Upstream::server(), &[(0, 1)]);
    let place = |scenario: &Scenario| match run(scenario) {
        Err(Error::Scenario { place, .. }) => place,
        other => panic!("{other:?}"),
    };
    let mut wrong = sound.clone();
    wrong.policy.connections = 0;
    assert_eq!(place(&wrong), "the policy");
    let mut wrong = sound.clone();
    wrong.sources[0].mix = Mix::Shares(vec![1.0, 1.0]);
    assert_eq!(place(&wrong), "source 1");
    let mut wrong = sound.clone();
    wrong.upstream.service = Service::Fifo { servers: 0 };
    assert_eq!(place(&wrong), "the upstream");
    let mut wrong = sound.clone();
    wrong.warm_up = wrong.duration;
    assert_eq!(place(&wrong), "the warm-up");
    let mut wrong = sound.clone();
    let sessions = Sessions { first: 0, next: vec![vec![1.0]], lasts: None, stays: false };
    wrong.sources[0].mix = Mix::Sessions(sessions);
    assert_eq!(place(&wrong), "source 1");
    let few = Scenario { requests_max: 1, ..replay(no_gate(), Upstream::server(), &[(0, 1), (1, 1)]) };
    assert_eq!(run(&few), Err(Error::TooMany(1)));
}

/// Any scenario: a gate of any policy, clients of any patience, a service that may hurt, drift and stall.
fn random(seed: u64) -> Scenario {
    let mut chance = Chance::new(seed, Purpose::Types, 99);
    let mut below = |most: u64| chance.bits() % most;
    let (types, shares) = postgres([0.0, 0.5, 2.0][below(3) as usize]);
    let mut types = types;
    types[3].lock = Some(0);
    types[4].weight = 4;
    let mut upstream = Upstream::six()[below(6) as usize].1.clone();
    match below(6) {
        0 => upstream.service = Service::Fifo { servers: 2 },
        1 => upstream.service = Service::ShortestRemaining { servers: 2 },
        2 => upstream.service = Service::ShortestFirst { servers: 3 },
        _ => {}
    }
    upstream.speed = vec![(seconds(2), 0.5), (seconds(4), 0.0), (seconds(5), 1.5)];
    upstream.round_trip = ms(below(3));
    let order = [Order::Fifo, SHORTEST, default_gate(1).order][below(3) as usize];
    let policy = Policy {
        capacity: [Capacity::Unlimited, Capacity::Fixed(Work::from_nanos(200_000_000))][below(2) as usize],
        connections: [1, 4, 20, ANY][below(4) as usize],
        long_limit: [None, Some(LongLimit::Fixed(2))][below(2) as usize],
        queue_max: [0, 10, 100_000][below(3) as usize],
        queue_timeout: [ms(300), seconds(100)][below(2) as usize],
        order,
        ..default_gate(1)
    };
    let phase = |rate| Phase { rate, lasts: Distribution::Exponential { mean: seconds(1) } };
    let rate = 100.0 * (1 + below(8)) as f64;
    let think = Distribution::Exponential { mean: ms(200) };
    let arrivals = match below(3) {
        0 => Arrivals::Poisson(Rate::steps([(seconds(0), rate), (seconds(3), 2.0 * rate)])),
        1 => Arrivals::OnOff { on: phase(2.0 * rate), off: phase(10.0) },
        _ => Arrivals::Closed { clients: rate as u32 / 4, think, think_max: Some(seconds(1)) },
    };
    let patience = Patience {
        timeout: [None, Some(ms(50)), Some(seconds(2))][below(3) as usize],
        abandoned: [Abandoned::Canceled, Abandoned::RunsOn][below(2) as usize],
        retries: below(3) as u32,
        back_off: ms(20),
    };
    let deadline = [None, Some(ms(100))][below(2) as usize];
    let source = Source { patience, deadline, ..Source::new(arrivals, Mix::Shares(shares)) };
    Scenario {
        seed,
        duration: seconds(8),
        warm_up: seconds(1),
        end: [End::Drained, End::Cut][below(2) as usize],
        tick: ms(100),
        ..Scenario::new(policy, types, source, upstream)
    }
}

/// A random scenario whose service gives some requests up for others, and waits for a disk. It has a random
/// stream of its own, since the traces of the other scenarios are known.
fn colliding(seed: u64) -> Scenario {
    let mut scenario = random(seed);
    let mut chance = Chance::new(seed, Purpose::Conflicts, 99);
    let mut below = |most: u64| chance.bits() % most;
    let [few, many] = [below(30), 30 + below(40)].map(|hundredths| hundredths as f64 / 100.0);
    scenario.upstream.conflicts = vec![(1, 0.0), (2, few), (20, many)];
    scenario.upstream.input_output = [0.0, 0.5][below(2) as usize];
    scenario
}

#[test]
fn the_laws_hold_whatever_happens() {
    let scenarios: Vec<_> = (0..200).flat_map(|seed| [random(seed), colliding(seed)]).collect();
    let results = sweep(&scenarios, None, |_, result| result.map(|run| run.rows.len()));
    let mut requests = 0;
    for (number, result) in results.into_iter().enumerate() {
        let (of, seed) = (["random", "colliding"][number % 2], number / 2);
        requests += result.unwrap_or_else(|error| panic!("{of}({seed}): {error}"));
    }
    assert!(requests > 400_000, "{requests}");
}

/// The traces of several scenarios, folded into one number.
fn folded(scenarios: &[Scenario], threads: Option<usize>) -> u64 {
    let threads = threads.and_then(NonZero::new);
    let traces = sweep(scenarios, threads, |_, result| result.expect("a sound scenario").trace);
    traces.iter().fold(0u64, |folded, trace| folded.rotate_left(7) ^ trace)
}

#[test]
fn traces_are_the_same_with_any_number_of_threads_and_in_any_build() {
    let scenarios: Vec<_> = (0..24).map(random).collect();
    let alone = folded(&scenarios, Some(1));
    assert_eq!(alone, folded(&scenarios, Some(2)));
    assert_eq!(alone, folded(&scenarios, Some(7)));
    assert_eq!(alone, folded(&scenarios, None));
    // `cargo test --release -p sim` must find the same number as this build.
    assert_eq!(
        alone, WITH_THE_GATE,
        "has the gate come to decide otherwise? Then this is its new number: {alone}"
    );
}

#[test]
fn traces_of_services_without_a_gate_never_change() {
    let without = |seed| {
        let scenario = random(seed);
        Scenario { policy: no_gate(), ..scenario }
    };
    let scenarios: Vec<_> = (0..24).map(without).collect();
    assert_eq!(
        folded(&scenarios, None),
        WITHOUT_A_GATE,
        "the laboratory itself has changed, or the machine's floats"
    );
}

const WITH_THE_GATE: u64 = 9_582_106_933_181_128_090;
const WITHOUT_A_GATE: u64 = 9_688_669_936_264_364_197;

#[test]
fn a_law_says_what_was_seen() {
    let law = Law::Little { requests: 3, clock: 4 };
    assert_eq!(
        Error::Law(law).to_string(),
        "a law is broken: requests spent 3 ns where they were seen for 4 ns"
    );
    let kind = Kind::new("any", Distribution::Fixed(ms(1)));
    assert_eq!((kind.weight, kind.lock), (1, None));
}
