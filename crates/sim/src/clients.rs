//! What clients send, and for how long they are patient.

use admission::Duration;

use crate::chance::{Chance, Purpose};
use crate::distribution::{Distribution, Sampler};

/// Which types a source's requests are of.
#[derive(Clone, Debug, PartialEq)]
pub enum Mix {
    /// Each independent of the one before: a weight for each of the scenario's types.
    Shares(Vec<f64>),
    /// What a client sends next depends on what it sent last. (For closed loops.)
    Sessions(Sessions),
}

/// The sessions of clients, as a Markov chain.
#[derive(Clone, Debug, PartialEq)]
pub struct Sessions {
    /// The type that a session begins with.
    pub first: u32,
    /// For each type the weights of the types that may follow.
    pub next: Vec<Vec<f64>>,
    /// For how long a session lasts (it ends with the next request after that), if not for ever.
    pub lasts: Option<Distribution>,
    /// Whether a client that got no answer is still where it was, and chooses anew from there; else it goes
    /// on as if it had got one.
    pub stays: bool,
}

/// When a client gives up, and what it does then.
#[derive(Clone, Debug, PartialEq)]
pub struct Patience {
    /// How long it waits for an answer; `None`: for ever.
    pub timeout: Option<Duration>,
    /// What becomes of a request in flight whose client gives up.
    pub abandoned: Abandoned,
    /// How often a request is tried again after a time-out or a refusal.
    pub retries: u32,
    /// How long before the first further try. It doubles with each, and varies between half and one and a
    /// half times.
    pub back_off: Duration,
}

/// What becomes of a request in flight whose client has given up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Abandoned {
    /// The service stops it at once.
    Canceled,
    /// The service computes an answer that nobody reads.
    RunsOn,
}

impl Patience {
    /// For ever, without a second try.
    pub const ENDLESS: Self =
        Self { timeout: None, abandoned: Abandoned::Canceled, retries: 0, back_off: Duration::ZERO };

    /// Patience for this time, without a second try; the service stops what was in flight.
    pub const fn of(timeout: Duration) -> Self {
        Self { timeout: Some(timeout), ..Self::ENDLESS }
    }

    /// How long before the try after this one (the first is 0), in nanoseconds.
    pub(crate) fn back_off(&self, attempt: u16, chance: &mut Chance) -> u64 {
        const DOUBLINGS_MAX: u16 = 30;
        let times = f64::from(1u32 << attempt.min(DOUBLINGS_MAX));
        (self.back_off.as_nanos() as f64 * times * (0.5 + chance.unit())) as u64
    }
}

impl Mix {
    /// What is wrong with it, given how many types there are.
    pub(crate) fn fault(&self, types: usize) -> Option<&'static str> {
        let is_wrong = |weights: &Vec<f64>| {
            weights.len() != types
                || weights.iter().any(|weight| !(weight.is_finite() && *weight >= 0.0))
                || weights.iter().sum::<f64>() <= 0.0
        };
        match self {
            Self::Shares(weights) if is_wrong(weights) => {
                Some("a mix needs a weight from 0 for each type, not all of them 0")
            }
            Self::Shares(_) => None,
            Self::Sessions(Sessions { first, .. }) if *first as usize >= types => {
                Some("sessions begin with a type that isn't there")
            }
            Self::Sessions(Sessions { next, .. }) if next.len() != types || next.iter().any(is_wrong) => {
                Some("sessions need, for each type, a weight from 0 for each type, not all of them 0")
            }
            Self::Sessions(Sessions { lasts, .. }) => lasts.as_ref().and_then(Distribution::fault),
        }
    }
}

/// A mix, ready to be drawn from.
#[derive(Debug)]
pub(crate) enum Draw {
    Shares(Choice),
    Sessions { first: u32, next: Vec<Choice>, lasts: Option<Sampler> },
}

/// One of several, by weights.
#[derive(Debug)]
pub(crate) struct Choice(Vec<f64>);

impl Choice {
    fn new(weights: &[f64]) -> Self {
        let total: f64 = weights.iter().sum();
        let mut sum = 0.0;
        let cumulative = weights.iter().map(|weight| {
            sum += weight / total;
            sum
        });
        Self(cumulative.collect())
    }

    pub(crate) fn draw(&self, chance: &mut Chance) -> u32 {
        let unit = chance.unit();
        let at = self.0.partition_point(|&upper| upper <= unit);
        // The last sum may be a hair below 1.
        at.min(self.0.len().saturating_sub(1)) as u32
    }
}

impl Draw {
    pub(crate) fn new(mix: &Mix) -> Self {
        match mix {
            Mix::Shares(weights) => Self::Shares(Choice::new(weights)),
            Mix::Sessions(Sessions { first, next, lasts, .. }) => Self::Sessions {
                first: *first,
                next: next.iter().map(|weights| Choice::new(weights)).collect(),
                lasts: lasts.as_ref().map(Distribution::sampler),
            },
        }
    }

    /// The type of a request that doesn't depend on another.
    pub(crate) fn draw(&self, chance: &mut Chance) -> u32 {
        match self {
            Self::Shares(choice) => choice.draw(chance),
            Self::Sessions { first, .. } => *first,
        }
    }
}

/// One client of a closed loop. It has a stream of chance of its own, so that what it does doesn't depend
/// on when others were served.
#[derive(Debug)]
pub(crate) struct Client {
    pub(crate) chance: Chance,
    last: Option<u32>,
    /// What it had sent before that.
    before: Option<u32>,
    /// When its session ends, in nanoseconds.
    ends: u64,
}

impl Client {
    pub(crate) fn new(seed: u64, source: u64, client: u64) -> Self {
        Self {
            chance: Chance::new(seed, Purpose::Client, source << 32 | client),
            last: None,
            before: None,
            ends: u64::MAX,
        }
    }

    /// The type of its next request.
    pub(crate) fn next(&mut self, now: u64, draw: &Draw) -> u32 {
        let kind = match draw {
            Draw::Shares(_) => draw.draw(&mut self.chance),
            Draw::Sessions { first, next, lasts } => match self.last.filter(|_| now < self.ends) {
                Some(last) => next[last as usize].draw(&mut self.chance),
                None => {
                    let lasts = lasts.as_ref().map_or(u64::MAX, |lasts| lasts.sample(&mut self.chance));
                    self.ends = now.saturating_add(lasts);
                    *first
                }
            },
        };
        self.before = self.last.replace(kind);
        kind
    }

    /// The client got no answer, and is where it was.
    pub(crate) fn stay(&mut self) {
        self.last = self.before;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_met() {
        let Draw::Shares(choice) = Draw::new(&Mix::Shares(vec![1.0, 0.0, 3.0])) else { unreachable!() };
        let mut chance = Chance::new(1, Purpose::Types, 0);
        let mut counts = [0.0f64; 3];
        for _ in 0..40_000 {
            counts[choice.draw(&mut chance) as usize] += 1.0;
        }
        assert!((counts[0] / 1e4 - 1.0).abs() < 0.05 && counts[1] == 0.0, "{counts:?}");
    }

    #[test]
    fn a_session_follows_its_chain_and_begins_anew_when_its_time_is_over() {
        let lasts = Some(Distribution::Fixed(Duration::from_nanos(10)));
        let next = vec![vec![0.0, 1.0, 0.0], vec![0.0, 0.0, 1.0], vec![0.0, 0.0, 1.0]];
        let draw = Draw::new(&Mix::Sessions(Sessions { first: 0, next, lasts, stays: false }));
        let mut client = Client::new(1, 0, 0);
        let kinds: Vec<_> = [0, 3, 6, 9, 12, 15].map(|now| client.next(now, &draw)).into();
        assert_eq!(kinds, [0, 1, 2, 2, 0, 1]);
    }

    #[test]
    fn a_client_that_got_no_answer_chooses_anew_where_it_was() {
        let next = vec![vec![0.0, 1.0, 0.0], vec![0.0, 0.0, 1.0], vec![1.0, 0.0, 0.0]];
        let draw = Draw::new(&Mix::Sessions(Sessions { first: 0, next, lasts: None, stays: true }));
        let mut client = Client::new(1, 0, 0);
        client.next(0, &draw);
        client.stay();
        let kinds: Vec<_> = [false, true, true, false, false]
            .into_iter()
            .map(|is_lost| {
                let kind = client.next(0, &draw);
                if is_lost {
                    client.stay();
                }
                kind
            })
            .collect();
        assert_eq!(kinds, [0, 1, 1, 1, 2]);
    }

    #[test]
    fn back_off_doubles_within_half_and_one_and_a_half_times() {
        let patience = Patience { back_off: Duration::from_nanos(1000), ..Patience::ENDLESS };
        let mut chance = Chance::new(1, Purpose::Retries, 0);
        for attempt in 0..4 {
            let least = 500 << attempt;
            let waited = patience.back_off(attempt, &mut chance);
            assert!((least..=3 * least).contains(&waited), "{waited}");
        }
    }

    #[test]
    fn mixes_that_do_not_fit_the_types_are_said() {
        assert!(Mix::Shares(vec![1.0]).fault(2).is_some());
        assert!(Mix::Shares(vec![0.0, 0.0]).fault(2).is_some());
        assert!(Mix::Shares(vec![0.0, 1.0]).fault(2).is_none());
        let sessions =
            |first| Mix::Sessions(Sessions { first, next: vec![vec![1.0]], lasts: None, stays: false });
        assert!(sessions(1).fault(1).is_some());
        assert!(sessions(0).fault(1).is_none());
    }
}
