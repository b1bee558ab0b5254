//! The finder of the rate on a simulated link: a shared queue, connections that buffer, clients that may be
//! slow by themselves.

use std::vec::Vec;

use super::*;
use crate::egress::{Egress, EgressOrder, EgressPolicy, Ending, Priority, Size, Stream};

const STEP: Duration = Duration::from_millis(1);
/// What a connection buffers before it takes no more.
const BUFFER: u64 = 128 * 1024;
const FRAME: u64 = 16 * 1024;
const PACKET: u64 = 1_460;

/// How the gate paces.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Way {
    Unpaced,
    /// Just under what the link is known to carry: no queue ever stands in the kernel.
    Known(u64),
    /// The finder sets the pace, below the rate that is set if there is one.
    Found(Option<u64>),
}

struct Flow {
    stream: Stream,
    began: Instant,
    size: u64,
    left: u64,
    held: u64,
    /// What stands in the kernel.
    stands: f64,
    delivered: f64,
    /// Bytes per second that its client takes.
    takes: f64,
    line: Line,
}

struct Bench {
    way: Way,
    now: Instant,
    /// How often the kernel is asked.
    every: Duration,
    /// Bytes per second.
    link: f64,
    egress: Egress,
    finder: RateFinder,
    flows: Vec<Flow>,
    queue: VecDeque<(Stream, f64)>,
    /// The size, the beginning and the time of each response that is through.
    done: Vec<(u64, Instant, f64)>,
    /// All bytes that were granted.
    granted: u64,
}

fn quantum(rate: Option<u64>) -> u32 {
    rate.map_or(64 * 1024, |rate| (rate / 200).clamp(PACKET, 64 * 1024) as u32)
}

impl Bench {
    fn new(way: Way, link: f64) -> Self {
        let (rate, ceiling) = match way {
            Way::Unpaced => (None, None),
            Way::Known(rate) => (Some(rate * 94 / 100), None),
            Way::Found(ceiling) => (ceiling, ceiling),
        };
        let policy = EgressPolicy {
            order: EgressOrder::ShortestRemaining,
            aging: Some(1.0),
            quantum: quantum(rate),
            rate,
            ..EgressPolicy::default()
        };
        Self {
            way,
            now: Instant::from_nanos(1_000_000_000),
            every: Duration::from_millis(10),
            link,
            egress: Egress::new(policy),
            finder: RateFinder::new(ceiling),
            flows: Vec::new(),
            queue: VecDeque::new(),
            done: Vec::new(),
            granted: 0,
        }
    }

    fn open(&mut self, size: u64, takes: f64) {
        let stream = self.egress.open(Size::Known(size), Priority::default()).unwrap();
        let (began, line) = (self.now, Line::new(self.now));
        let (left, held, stands, delivered) = (size, 0, 0.0, 0.0);
        self.flows.push(Flow { stream, began, size, left, held, stands, delivered, takes, line });
    }

    fn step(&mut self) {
        self.now = self.now.after(STEP);
        for flow in &mut self.flows {
            if flow.held == 0 && flow.left > 0 && flow.stands < BUFFER as f64 {
                flow.held = flow.left.min(FRAME);
                self.egress.offer(flow.stream, flow.held);
            }
        }
        while let Some(grant) = self.egress.next(self.now) {
            let flow = self.flows.iter_mut().find(|flow| flow.stream == grant.stream).unwrap();
            self.granted += grant.bytes;
            flow.held -= grant.bytes;
            flow.left -= grant.bytes;
            // Packets have heads.
            let bytes = grant.bytes as f64 * 1.05;
            flow.stands += bytes;
            if flow.takes.is_infinite() {
                self.queue.push_back((grant.stream, bytes));
            }
        }
        self.deliver();
        if matches!(self.way, Way::Found(_)) && self.now.as_nanos() % self.every.as_nanos() as u64 == 0 {
            self.sample();
        }
    }

    /// What a client takes slowly stands in its own connection, everything else in the link's one queue.
    fn deliver(&mut self) {
        let mut room = self.link * STEP.as_secs_f64();
        while let Some((stream, bytes)) = self.queue.front_mut() {
            let part = bytes.min(room);
            (*bytes, room) = (*bytes - part, room - part);
            let (stream, is_through) = (*stream, *bytes <= 0.0);
            // The last bits of a response may be lost to rounding.
            if let Some(flow) = self.flows.iter_mut().find(|flow| flow.stream == stream) {
                (flow.stands, flow.delivered) = (flow.stands - part, flow.delivered + part);
            }
            if !is_through {
                break;
            }
            self.queue.pop_front();
        }
        for flow in self.flows.iter_mut().filter(|flow| flow.takes.is_finite()) {
            let part = flow.stands.min(flow.takes * STEP.as_secs_f64());
            (flow.stands, flow.delivered) = (flow.stands - part, flow.delivered + part);
        }
        let is_through = |flow: &Flow| flow.left == 0 && flow.held == 0 && flow.stands < 0.5;
        while let Some(at) = self.flows.iter().position(is_through) {
            let flow = self.flows.swap_remove(at);
            self.egress.close(flow.stream, None, Ending::Whole);
            self.done.push((flow.size, flow.began, self.now.since(flow.began).as_secs_f64()));
        }
    }

    fn sample(&mut self) {
        let (mut standing, known) = (KernelQueue::default(), self.finder.known());
        let shared: f64 = self.queue.iter().map(|(_, bytes)| bytes / self.link).sum();
        for flow in &mut self.flows {
            let stands = flow.stands as u64;
            let is_slow = flow.takes.is_finite() && flow.takes > 0.0;
            let own = is_slow.then(|| flow.stands / flow.takes);
            let reading = Reading {
                unsent: stands.saturating_sub(40 * PACKET),
                flight: stands.min(40 * PACKET),
                under_way: stands.min(40 * PACKET),
                unacked: stands.min(40 * PACKET).div_ceil(PACKET),
                repairs: false,
                acked: flow.delivered as u64,
                idle: Duration::ZERO,
                trip: STEP,
                smoothed: STEP + Duration::from_secs_f64(own.unwrap_or(shared)),
            };
            flow.line.read(self.now, reading, known, &mut standing);
        }
        self.finder.observe(self.now, self.granted, standing, self.egress.backlog().bytes);
        let pace = self.finder.pace();
        self.egress.set_pace(pace, quantum(pace));
    }

    /// Serves `large` downloads at any time, and a small response every 20 ms, for so long.
    fn serve(&mut self, time: Duration, large: usize) {
        let end = self.now.after(time);
        while self.now < end {
            let downloads = self.flows.iter().filter(|flow| flow.size > 1_000_000).count();
            (downloads..large).for_each(|_| self.open(4_000_000, f64::INFINITY));
            if self.now.as_nanos() % 20_000_000 == 0 {
                self.open(5_000, f64::INFINITY);
            }
            self.step();
        }
    }

    /// The mean time of small responses that began since then.
    fn small(&self, since: Instant) -> f64 {
        let times = self.done.iter().filter(|done| done.0 < 1_000_000 && done.1 >= since);
        let times: Vec<f64> = times.map(|done| done.2).collect();
        times.iter().sum::<f64>() / times.len().max(1) as f64
    }

    fn downloaded(&self) -> usize {
        self.done.iter().filter(|done| done.0 > 1_000_000).count()
    }
}

/// 10 Mbit/s.
const LINK: f64 = 1_250_000.0;

#[test]
fn small_responses_are_as_fast_as_with_the_known_rate_and_large_ones_too_whatever_is_set() {
    let serve = |way| {
        let mut bench = Bench::new(way, LINK);
        bench.serve(Duration::from_secs(5), 3);
        let since = bench.now;
        bench.serve(Duration::from_secs(30), 3);
        (bench.small(since), bench.downloaded())
    };
    let [unpaced, known] = [Way::Unpaced, Way::Known(LINK as u64)].map(serve);
    assert!(unpaced.0 > known.0 * 5.0, "{unpaced:?} {known:?}");
    for set in [None, Some(LINK as u64), Some(2 * LINK as u64)] {
        let found = serve(Way::Found(set));
        assert!(found.0 <= known.0 * 1.15, "{set:?}: {found:?} {known:?}");
        assert!(found.1 * 100 >= known.1 * 95, "{set:?}: {found:?} {known:?}");
    }
}

/// What is under way, and what is queued, of one connection whose shortest round trip is 100 ms.
fn told(reading: Reading) -> (u64, u64) {
    let (now, trip) = (Instant::from_nanos(1_000_000_000), Duration::from_millis(100));
    let (mut line, mut queue) = (Line::new(now), KernelQueue::default());
    let known = Known { shared: Duration::from_secs(1), arrives: Duration::from_millis(200), trip };
    line.read(now, Reading { trip, ..reading }, known, &mut queue);
    (queue.under_way, queue.queued)
}

#[test]
fn packets_that_wait_for_a_delayed_acknowledgment_are_no_queue() {
    let after = |idle, unacked| {
        let idle = Duration::from_millis(idle);
        told(Reading {
            flight: unacked * PACKET,
            under_way: unacked * PACKET,
            unacked,
            idle,
            ..Reading::default()
        })
        .0
    };
    assert_eq!((after(110, 2), after(110, 3)), (0, 3 * PACKET));
    // They may still be under way.
    assert_eq!(after(90, 2), 2 * PACKET);
}

#[test]
fn a_connection_that_was_idle_is_not_stalled_when_it_sends() {
    let (known, reading) = (
        Known { shared: Duration::MAX, arrives: Duration::MAX, trip: STEP },
        Reading { acked: 1_000, trip: STEP, smoothed: STEP, ..Reading::default() },
    );
    let at = |millis: u64| Instant::from_nanos(millis * 1_000_000);
    let mut line = Line::new(at(0));
    line.read(at(10), reading, known, &mut KernelQueue::default());
    let sends = Reading { flight: 30 * PACKET, under_way: 30 * PACKET, unacked: 30, ..reading };
    let mut standing = KernelQueue::default();
    line.read(at(5_000), sends, known, &mut standing);
    assert_eq!(standing.under_way, 30 * PACKET);
}

#[test]
fn bytes_that_wait_for_their_window_are_no_queue_and_those_behind_a_queue_are() {
    let after = |smoothed| {
        let smoothed = Duration::from_millis(smoothed);
        told(Reading {
            unsent: 50_000,
            flight: 20_000,
            under_way: 20_000,
            unacked: 14,
            smoothed,
            ..Reading::default()
        })
    };
    assert_eq!(after(120), (20_000, 0));
    assert_eq!(after(200), (70_000, 60_000));
}

#[test]
fn what_is_lost_or_behind_a_gap_is_not_under_way_and_what_waits_for_its_repair_is_no_queue() {
    let smoothed = Duration::from_millis(200);
    let lossy = Reading {
        unsent: 50_000,
        flight: 20_000,
        under_way: 4_000,
        unacked: 14,
        smoothed,
        ..Reading::default()
    };
    assert_eq!(told(lossy), (54_000, 52_000));
    let repairs = Reading { repairs: true, ..lossy };
    assert_eq!(told(repairs), (4_000, 2_000));
    // Packets are 200 ms under way at most.
    let after = |idle| told(Reading { idle: Duration::from_millis(idle), ..repairs });
    assert_eq!((after(200), after(201)), ((4_000, 2_000), (0, 0)));
}

#[test]
fn no_more_is_granted_than_the_rate_that_is_set() {
    let mut bench = Bench::new(Way::Found(Some(LINK as u64)), 1e9);
    bench.serve(Duration::from_secs(10), 5);
    assert_eq!(bench.finder.rate(), Some(LINK as u64));
    let granted = bench.granted as f64;
    assert!((9.8..10.1).contains(&(granted / LINK)), "{granted}");
}

#[test]
fn a_halved_and_a_doubled_rate_are_followed_within_two_seconds() {
    let mut bench = Bench::new(Way::Found(None), LINK);
    bench.serve(Duration::from_secs(5), 3);
    for link in [LINK, LINK / 2.0, LINK, LINK / 2.0] {
        bench.link = link;
        bench.serve(Duration::from_secs(2), 3);
        let since = bench.now;
        bench.serve(Duration::from_secs(3), 3);
        // Of bodies: packets have heads.
        let rate = bench.finder.rate().expect("it is the bottleneck") as f64 * 1.05;
        assert!((link * 0.85..link * 1.15).contains(&rate), "{rate} of {link}");
        assert!(bench.small(since) < 0.030, "{}", bench.small(since));
    }
}

#[test]
fn a_link_is_used_whole_when_looks_are_far_apart() {
    let serve = |way, every| {
        let mut bench = Bench::new(way, LINK);
        bench.every = every;
        while bench.now < Instant::from_nanos(30_000_000_000) {
            bench.open(12_000, f64::INFINITY);
            (0..8).for_each(|_| bench.step());
        }
        bench.done.len()
    };
    let known = serve(Way::Known(LINK as u64), Duration::ZERO);
    let found = serve(Way::Found(None), Duration::from_millis(500));
    assert!(found * 100 >= known * 95, "{found} of {known}");
}

#[test]
fn a_link_that_is_no_bottleneck_is_left_alone() {
    let mut bench = Bench::new(Way::Found(None), 1e9);
    bench.serve(Duration::from_secs(10), 5);
    assert_eq!(bench.finder.rate(), None);
    let mut unpaced = Bench::new(Way::Unpaced, 1e9);
    unpaced.serve(Duration::from_secs(10), 5);
    assert_eq!(bench.downloaded(), unpaced.downloaded());
}

#[test]
fn clients_that_are_slow_by_themselves_hold_up_nobody_for_long() {
    let serve = |way| {
        let mut bench = Bench::new(way, 1e8);
        for round in 0..600_u32 {
            let slow = bench.flows.iter().filter(|flow| flow.takes < 1e6).count();
            (slow..5).for_each(|_| bench.open(2_000_000, 125_000.0));
            // A fast download each half of a second, too.
            if round % 5 == 0 {
                bench.open(3_000_000, f64::INFINITY);
            }
            bench.serve(Duration::from_millis(100), 0);
        }
        let fast = bench.done.iter().filter(|done| done.0 == 3_000_000).map(|done| done.2);
        let slow = bench.done.iter().filter(|done| done.0 == 2_000_000).map(|done| done.2);
        let (fast, slow): (Vec<f64>, Vec<f64>) = (fast.collect(), slow.collect());
        let mean = |times: &[f64]| times.iter().sum::<f64>() / times.len() as f64;
        (mean(&fast), mean(&slow), bench.small(Instant::ZERO))
    };
    let unpaced = serve(Way::Unpaced);
    // A told rate is always paced: what new slow clients buffer counts until it is known to be theirs.
    for (way, late) in [(Way::Found(None), 0.005), (Way::Found(Some(100_000_000)), 0.010)] {
        let paced = serve(way);
        assert!(paced.1 <= unpaced.1 * 1.02, "slow ones: {way:?} {paced:?} {unpaced:?}");
        assert!(paced.0 <= unpaced.0 + 0.050, "fast ones: {way:?} {paced:?} {unpaced:?}");
        assert!(paced.2 <= unpaced.2 + late, "small ones: {way:?} {paced:?} {unpaced:?}");
    }
}

#[test]
fn a_client_that_reads_nothing_does_not_slow_down_others() {
    let mut bench = Bench::new(Way::Found(None), LINK);
    bench.open(2_000_000, 0.0);
    bench.serve(Duration::from_secs(5), 2);
    let since = bench.now;
    bench.serve(Duration::from_secs(20), 2);
    assert!(bench.small(since) < 0.030, "{}", bench.small(since));
    let delivered: usize = bench.downloaded();
    assert!(delivered * 4_000_000 > 15 * LINK as usize, "{delivered}");
}

#[test]
fn a_link_that_was_idle_is_found_at_its_rate() {
    let mut bench = Bench::new(Way::Found(None), LINK);
    bench.serve(Duration::from_millis(500), 0);
    for _ in 0..1_000 {
        bench.step();
    }
    bench.finder.begin();
    bench.serve(Duration::from_millis(400), 3);
    let rate = bench.finder.rate().expect("it is the bottleneck") as f64 * 1.05;
    assert!((LINK * 0.8..LINK * 1.2).contains(&rate), "{rate}");
}
