//! The pace of a small service that shares its cores, driven by chance of its own.

use std::vec::Vec;

use super::*;

const MS: f64 = 1e6;

/// Cores shared by all that run; requests of a few types arrive.
struct Service {
    pace: Pace,
    cores: f64,
    speed: f64,
    now: f64,
    running: Vec<(u32, usize, f64)>,
    centers: [Center; TYPES.len()],
    /// The mean progress of the latest thousand executions, nearly, over what was done.
    progress: [f64; TYPES.len()],
    chance: u64,
}

/// What requests of a type take alone, and how often one comes.
const TYPES: [(f64, f64); 3] = [(1.0 * MS, 0.7), (3.0 * MS, 0.2), (10.0 * MS, 0.1)];
const MEAN: f64 = 2.3 * MS;

impl Service {
    fn new(cores: u32) -> Self {
        Self {
            pace: Pace::new(Instant::ZERO, true),
            cores: f64::from(cores),
            speed: 1.0,
            now: 0.0,
            running: Vec::new(),
            centers: [Center::default(); TYPES.len()],
            progress: [f64::NAN; TYPES.len()],
            chance: 1,
        }
    }

    /// From 0 to 1.
    fn draw(&mut self) -> f64 {
        self.chance =
            self.chance.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.chance >> 11) as f64 / (1_u64 << 53) as f64
    }

    fn rate(&self) -> f64 {
        self.speed * (self.cores / self.running.len() as f64).min(1.0)
    }

    fn pass(&mut self, time: f64) {
        let given = time * self.rate();
        for (_, _, left) in &mut self.running {
            *left -= given;
        }
        self.now += time;
        self.pace.advance(Instant::from_nanos(self.now as u64));
    }

    /// Lets `requests` arrive, at the part `load` of what all cores can do. At most `most` run at a time, and
    /// the others are lost.
    fn serve(&mut self, requests: u32, load: f64, most: usize) {
        for _ in 0..requests {
            let mut gap = -libm::log(1.0 - self.draw()) * MEAN / load / self.cores;
            while let Some((at, left)) = self.first() {
                let until = left / self.rate();
                if until > gap {
                    break;
                }
                self.pass(until);
                self.complete(at);
                gap -= until;
            }
            self.pass(gap);
            let drawn = self.draw();
            let kind = if drawn < TYPES[0].1 { 0 } else { 1 + usize::from(drawn > 1.0 - TYPES[2].1) };
            if self.running.len() < most {
                let varies = 0.5 + self.draw();
                let lap = self.pace.start();
                self.running.push((lap, kind, TYPES[kind].0 * varies));
            }
        }
    }

    fn first(&self) -> Option<(usize, f64)> {
        let left = self.running.iter().map(|&(_, _, left)| left).enumerate();
        left.min_by(|a, b| a.1.total_cmp(&b.1))
    }

    fn complete(&mut self, at: usize) {
        let (lap, kind, _) = self.running.swap_remove(at);
        self.pace.stop(lap);
        let done = self.pace.learn(lap, &mut self.centers[kind]);
        self.pace.let_go(lap);
        let change = self.pace.take_change().unwrap_or(1.0);
        for mean in &mut self.progress {
            *mean *= change;
        }
        let ratio = done.amount * self.pace.unit() / TYPES[kind].0;
        let mean = &mut self.progress[kind];
        *mean = if mean.is_nan() { ratio } else { *mean + (ratio - *mean) / 200.0 };
    }

    fn is_near(&self, ratio: f64) {
        for (kind, progress) in self.progress.iter().enumerate() {
            assert!((progress / ratio - 1.0).abs() < 0.2, "type {kind}: {:?} of {ratio}", self.progress);
        }
    }
}

#[test]
fn progress_is_what_a_request_takes_alone_whatever_the_load() {
    for cores in [1, 2, 4] {
        let mut service = Service::new(cores);
        for (load, requests) in [(0.3, 3_000), (0.9, 3_000), (5.0, 8_000), (0.3, 3_000), (5.0, 8_000)] {
            service.serve(requests, load, 24);
            service.is_near(1.0);
        }
    }
}

#[test]
fn the_cores_are_counted_once_more_than_them_were_in_flight() {
    for cores in [1, 2, 4, 8] {
        let mut service = Service::new(cores);
        service.serve(200, 0.1, 24);
        assert_eq!(service.pace.parallelism(), None, "{cores} cores");
        service.serve(6_000, 0.6, 24);
        service.serve(6_000, 1.5, 24);
        let learned = service.pace.parallelism().expect("24 were in flight");
        assert!(learned.requests.abs_diff(cores) <= cores / 8, "{learned:?} of {cores} cores");
    }
}

#[test]
fn only_ever_overloaded_it_says_nothing_of_what_it_has_not_seen() {
    let mut service = Service::new(2);
    for _ in 0..24 {
        let lap = service.pace.start();
        service.running.push((lap, 0, MS));
    }
    service.serve(60_000, 20.0, 24);
    assert_eq!(service.pace.parallelism(), None);
    // Costs are right next to one another, in a unit that isn't known yet.
    let [first, others @ ..] = service.progress;
    assert!(others.iter().all(|other| (other / first - 1.0).abs() < 0.2), "{:?}", service.progress);
    // It is when the load falls.
    service.serve(3_000, 0.3, 24);
    service.is_near(1.0);
}

#[test]
fn half_the_speed_is_twice_the_progress_within_some_hundred_executions() {
    let mut service = Service::new(2);
    service.serve(4_000, 0.4, 24);
    service.is_near(1.0);
    service.speed = 0.5;
    service.serve(1_000, 0.4, 24);
    service.is_near(2.0);
}

#[test]
fn the_clock_runs_with_progress_and_says_when() {
    let mut service = Service::new(1);
    service.serve(4_000, 0.7, 24);
    service.serve(4_000, 3.0, 10);
    let pace = &mut service.pace;
    for (lap, _, _) in service.running.drain(..) {
        pace.stop(lap);
        pace.let_go(lap);
    }
    let laps: Vec<u32> = (0..10).map(|_| pace.start()).collect();
    let (from, now) = (pace.reading(), pace.now);
    let goal = Instant::from_nanos(from.as_nanos() + 1_000_000);
    let when = pace.when(goal);
    let takes = when.since(now).as_nanos();
    assert!((8_500_000..11_500_000).contains(&takes), "one of ten on one core: {takes} ns");
    pace.advance(when);
    assert!(pace.reading() >= goal);
    for lap in laps {
        pace.stop(lap);
        assert!((pace.progress(lap) / MS - 1.0).abs() < 0.15);
    }
}

#[test]
fn a_lap_stands_still_while_its_client_thinks() {
    let mut pace = Pace::new(Instant::ZERO, true);
    let at = |ms: u64| Instant::from_nanos(ms * 1_000_000);
    let lap = pace.start();
    pace.advance(at(2));
    pace.stop(lap);
    pace.advance(at(50));
    pace.go_on(lap);
    pace.advance(at(53));
    pace.stop(lap);
    assert!((pace.progress(lap) - 5.0 * MS).abs() < 1.0);
}

#[test]
fn with_the_other_estimators_the_clock_is_time() {
    let mut service = Service::new(1);
    service.pace = Pace::new(Instant::ZERO, false);
    service.serve(2_000, 3.0, 24);
    let pace = &service.pace;
    assert_eq!(pace.reading(), pace.now);
    let later = Instant::from_nanos(pace.now.as_nanos() + 77);
    assert_eq!(pace.when(later), later);
}

#[test]
fn what_was_learned_is_known_from_the_first_request_on() {
    let mut before = Service::new(2);
    before.serve(6_000, 0.6, 24);
    before.serve(6_000, 2.0, 24);
    let mut after = Service::new(2);
    after.pace.recall(&before.pace.learned());
    let known = |service: &Service| service.pace.parallelism().map(|learned| learned.requests);
    assert_eq!(known(&after), known(&before));
    // Cold, and overloaded at once: it knows what one alone takes without having seen it.
    after.serve(20_000, 5.0, 24);
    after.is_near(1.0);
    let nonsense =
        [(0, 1.0, 9), (2, f64::NAN, 9), (3, -1.0, 9), (4, 0.0, 9), (6, 1.0, 0), (u32::MAX, 1.0, 9)];
    let mut pace = Pace::new(Instant::ZERO, true);
    pace.recall(&nonsense.map(|(in_flight, speed, executions)| LearnedSpeed {
        in_flight,
        speed,
        executions,
    }));
    assert_eq!(pace.learned(), Vec::new());
}
