//! The experiment on contention: a flash sale. Types that need one lock are asked for five times as often
//! as it can be passed on, beside others that don't need it.
#![allow(dead_code, reason = "each crate that includes this uses its part")]

use admission::{Capacity, Contention, Duration, Event, Given, Instant, Order, Policy, Work};
use sim::{
    Arrivals, Collapse, Distribution, End, Kind, Mix, Outcome, Patience, Rate, Run, Scenario, Source,
    Upstream,
};

/// The bystanders come first, and those that need the lock behind them.
pub(crate) const BYSTANDERS: usize = 3;
/// The second from which hot requests arrive.
pub(crate) const FROM: u64 = 10;
/// The second until which hot requests arrive.
pub(crate) const UNTIL: u64 = 100;
/// Measured is what ends within these seconds: from a minute after the sale has begun.
pub(crate) const MEASURED: (u64, u64) = (70, 100);
/// A response after this is of no use.
pub(crate) const IN_TIME: Duration = Duration::from_secs(3);
/// The bounds that are tried to find the best one.
pub(crate) const TRIED: [u32; 6] = [1, 2, 3, 4, 8, 16];

/// What is varied.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sale {
    pub(crate) cores: u32,
    pub(crate) handover: f64,
    pub(crate) burn: f64,
    /// How many times as much work needs the lock as it can pass on.
    pub(crate) hot: f64,
    /// The bystanders' work, as a part of the other cores.
    pub(crate) others: f64,
    pub(crate) connections: u32,
    pub(crate) order: Order,
    /// How many types need the lock.
    pub(crate) types: usize,
    /// The lock, if there is one: without it the same requests are in nobody's way.
    pub(crate) lock: Option<u32>,
    pub(crate) seed: u64,
}

/// First come, first served.
pub(crate) const FIFO: Order = Order::Fifo;
/// The product's default.
pub(crate) const SHORTEST: Order =
    Order::ShortestFirst { aging: Some(5.0), floor: Work::from_nanos(50_000_000) };

impl Sale {
    pub(crate) const USUAL: Self = Self {
        cores: 4,
        handover: 0.05,
        burn: 0.2,
        hot: 5.0,
        others: 0.5,
        connections: 20,
        order: FIFO,
        types: 1,
        lock: Some(1),
        seed: 1,
    };

    fn kinds(&self) -> Vec<Kind> {
        let kind = |name: &str, micros: u64| {
            Kind::new(name, Distribution::Lognormal { mean: Duration::from_micros(micros), cv: 0.5 })
        };
        let mut kinds = vec![kind("read", 800), kind("search", 4_000), kind("report", 20_000)];
        for number in 0..self.types {
            kinds.push(Kind { lock: self.lock, ..kind(["order", "payment", "stock"][number], 2_000) });
        }
        kinds
    }

    pub(crate) fn source(&self, shares: &[f64], load: f64, from: u64, until: u64) -> Source {
        let kinds = self.kinds();
        let rate = load / Scenario::mean_service_time(&kinds, shares);
        let at = Duration::from_secs;
        let steps = vec![(Duration::ZERO, 0.0), (at(from), rate), (at(until), 0.0)];
        let steps = if from == 0 { steps[1..].to_vec() } else { steps };
        Source {
            patience: Patience::of(Duration::from_secs(5)),
            ..Source::new(Arrivals::Poisson(Rate::steps(steps)), Mix::Shares(shares.to_vec()))
        }
    }

    /// The sale behind a gate that finds its capacity so and its groups so.
    pub(crate) fn scenario(&self, capacity: Capacity, contention: Contention) -> Scenario {
        let kinds = self.kinds();
        let is_hot = |index: usize| index >= BYSTANDERS;
        let of = |hot: bool, shares: &[f64]| -> Vec<f64> {
            let share = |index: usize| if is_hot(index) == hot { shares[index % shares.len()] } else { 0.0 };
            (0..kinds.len()).map(share).collect()
        };
        let bystanders =
            self.source(&of(false, &[70.0, 25.0, 5.0]), self.others * f64::from(self.cores - 1), 0, UNTIL);
        let hot = self.source(&of(true, &[1.0]), self.hot, FROM, UNTIL);
        let policy = Policy {
            capacity,
            contention,
            connections: self.connections,
            order: self.order,
            queue_timeout: Duration::from_secs(2),
            ..Policy::default()
        };
        let locks = Collapse::Locks { handover: self.handover, burn: self.burn };
        let upstream = Upstream::sharing(self.cores, locks);
        Scenario {
            seed: self.seed,
            duration: Duration::from_secs(UNTIL),
            warm_up: Duration::ZERO,
            in_time: Some(IN_TIME),
            end: End::Cut,
            sources: vec![bystanders.clone(), hot],
            ..Scenario::new(policy, kinds, bystanders, upstream)
        }
    }

    /// Groups that are found.
    pub(crate) fn found(&self) -> Scenario {
        self.scenario(Capacity::Unlimited, Contention::Auto)
    }

    /// One group of all that need the lock, with this bound.
    pub(crate) fn given(&self, most: u32) -> Scenario {
        let types = (BYSTANDERS..BYSTANDERS + self.types).map(Scenario::request_type).collect();
        self.scenario(Capacity::Unlimited, Contention::Given(vec![Given { types, most }]))
    }

    /// Without a request that needs the lock.
    pub(crate) fn alone(&self) -> Scenario {
        let scenario = self.scenario(Capacity::Unlimited, Contention::None);
        Scenario { sources: scenario.sources[..1].to_vec(), ..scenario }
    }

    /// Everybody is let in at once.
    pub(crate) fn no_gate(&self) -> Scenario {
        Self { connections: u32::MAX, order: FIFO, ..*self }.scenario(Capacity::Unlimited, Contention::None)
    }
}

/// The figures of a run, for the seconds that are measured.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Figures {
    /// Requests completed in time, per second.
    pub(crate) goodput: f64,
    /// Requests that need the lock and were completed in time, per second.
    pub(crate) hot: f64,
    /// The mean response time of the bystanders, in seconds; one that is not served counts for its wait.
    pub(crate) bystanders: f64,
}

pub(crate) fn figures(run: &Run) -> Figures {
    between(run, MEASURED.0, MEASURED.1)
}

/// The figures of a run between two seconds.
pub(crate) fn between(run: &Run, from: u64, to: u64) -> Figures {
    let at = |seconds| Instant::ZERO.after(Duration::from_secs(seconds));
    let measured = run.rows.iter().filter(|row| (at(from)..at(to)).contains(&row.ended));
    let (mut good, mut hot, mut sum, mut count) = (0_u32, 0_u32, 0.0, 0_u32);
    for row in measured {
        let is_hot = row.kind as usize >= BYSTANDERS;
        if row.outcome == Outcome::Completed && row.response_time() <= IN_TIME {
            good += 1;
            hot += u32::from(is_hot);
        }
        if !is_hot {
            sum += row.response_time().as_secs_f64();
            count += 1;
        }
    }
    let seconds = (to - from) as f64;
    Figures {
        goodput: f64::from(good) / seconds,
        hot: f64::from(hot) / seconds,
        bystanders: sum / f64::from(count.max(1)),
    }
}

/// What the groups did, a line each.
pub(crate) fn story(run: &Run) -> String {
    let tell = |&(at, event): &(Instant, Event)| {
        let what = match event {
            Event::GroupFormed { group, from, to, gain } => {
                format!("group {group} is formed: {from} → {to} {:+.0} %", gain * 100.0)
            }
            Event::GroupJoined { group, request_type } => {
                format!("group {group} has type {}", request_type.0)
            }
            Event::GroupMoved { group, from, to, gain } => {
                let why = gain.map_or("nothing lost".to_owned(), |gain| format!("{:+.0} %", gain * 100.0));
                format!("group {group}: {from} → {to} {why}")
            }
            Event::GroupDissolved { group, most } => format!("group {group} is dissolved at {most}"),
            Event::CapacityMoved { from, to, .. } => format!("capacity {from} → {to}"),
            _ => return None,
        };
        Some(format!("{:6.1} s  {what}\n", at.as_nanos() as f64 / 1e9))
    };
    run.events.iter().filter_map(tell).collect()
}

/// How many groups were formed.
pub(crate) fn formed(run: &Run) -> usize {
    run.events.iter().filter(|(_, event)| matches!(event, Event::GroupFormed { .. })).count()
}
