//! The three mixes of TPC-W: where a visitor goes from each page, and the share of each page that follows.

mod thresholds;

use std::fmt;
use std::str::FromStr;

use clap::ValueEnum;
use rand::{Rng, RngExt};
use serde::{Deserialize, Serialize};

use crate::interaction::Interaction;
use thresholds::{BROWSING, LAST, ORDERING, Row, SHOPPING};

/// How many steps the stationary shares may take to settle. They need some hundreds.
const STATIONARY_STEPS: usize = 100_000;

/// One of the specification's mixes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Mix {
    /// 95 % of the pages browse, 5 % order.
    Browsing,
    /// 80 % browse, 20 % order.
    #[default]
    Shopping,
    /// Half browse, half order.
    Ordering,
}

impl Mix {
    /// All three.
    pub const ALL: [Self; 3] = [Self::Browsing, Self::Shopping, Self::Ordering];

    /// The page that a visitor opens after this one.
    pub fn next<R: Rng + ?Sized>(self, from: Interaction, random: &mut R) -> Interaction {
        let drawn = random.random_range(1..=LAST);
        let row = self.row(from);
        let cell = row.iter().find(|&&(_, threshold)| threshold >= drawn).or(row.last());
        cell.map_or(Interaction::Home, |&(to, _)| to)
    }

    /// The share of each page in the long run, in the order of [`Interaction::ALL`]: the matrix's
    /// stationary distribution.
    #[must_use]
    pub fn stationary(self) -> [f64; 14] {
        let mut shares = [1.0 / 14.0; 14];
        for _ in 0..STATIONARY_STEPS {
            let next = self.step(shares);
            let moved: f64 = shares.iter().zip(next).map(|(old, new)| (old - new).abs()).sum();
            shares = next;
            if moved < 1e-14 {
                break;
            }
        }
        shares
    }

    /// The shares of the next pages, given the shares of the present ones.
    fn step(self, shares: [f64; 14]) -> [f64; 14] {
        let mut next = [0.0; 14];
        for (from, share) in Interaction::ALL.into_iter().zip(shares) {
            let mut below = 0;
            for &(to, threshold) in self.row(from) {
                next[to as usize] += share * f64::from(threshold - below) / f64::from(LAST);
                below = threshold;
            }
        }
        next
    }

    /// The shares that the specification publishes (clause 5.2.1), in percent, in the order of
    /// [`Interaction::ALL`].
    #[must_use]
    pub fn published(self) -> [f64; 14] {
        match self {
            Self::Browsing => {
                [29.0, 11.0, 11.0, 21.0, 12.0, 11.0, 2.0, 0.82, 0.75, 0.69, 0.30, 0.25, 0.10, 0.09]
            }
            Self::Shopping => [16.0, 5.0, 5.0, 17.0, 20.0, 17.0, 11.6, 3.0, 2.6, 1.2, 0.75, 0.66, 0.10, 0.09],
            Self::Ordering => {
                [9.12, 0.46, 0.46, 12.35, 14.53, 13.08, 13.53, 12.86, 12.73, 10.18, 0.25, 0.22, 0.12, 0.11]
            }
        }
    }

    fn row(self, from: Interaction) -> Row {
        match self {
            Self::Browsing => BROWSING[from as usize],
            Self::Shopping => SHOPPING[from as usize],
            Self::Ordering => ORDERING[from as usize],
        }
    }
}

impl fmt::Display for Mix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Browsing => "browsing",
            Self::Shopping => "shopping",
            Self::Ordering => "ordering",
        })
    }
}

impl FromStr for Mix {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        <Self as ValueEnum>::from_str(text, false)
            .map_err(|_| format!("`{text}` is no mix: browsing, shopping or ordering"))
    }
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;
    use rand::rngs::StdRng;

    use super::*;

    #[test]
    fn every_row_rises_to_the_last_threshold() {
        for mix in Mix::ALL {
            for from in Interaction::ALL {
                let row = mix.row(from);
                assert!(row.windows(2).all(|two| two[0].1 < two[1].1), "{mix} {}", from.code());
                assert_eq!(row.last().unwrap().1, LAST, "{mix} {}", from.code());
            }
        }
    }

    #[test]
    fn the_stationary_shares_are_the_published_ones() {
        for mix in Mix::ALL {
            let shares = mix.stationary();
            assert!((shares.iter().sum::<f64>() - 1.0).abs() < 1e-9);
            for ((page, share), published) in Interaction::ALL.into_iter().zip(shares).zip(mix.published()) {
                let apart = (share * 100.0 - published).abs();
                assert!(apart < 0.006, "{mix} {}: {} and {published}", page.code(), share * 100.0);
            }
        }
    }

    #[test]
    fn visitors_who_came_together_ask_for_the_mix_from_their_seventh_page_on() {
        // A warm-up has to cover this: a visitor's second page is Best Sellers six times as often as a
        // later one.
        let best_sellers = Interaction::BestSellers as usize;
        let stationary = Mix::Shopping.stationary();
        let mut shares = [0.0; 14];
        shares[Interaction::Home as usize] = 1.0;
        for page in 2..100 {
            shares = Mix::Shopping.step(shares);
            let times = shares[best_sellers] / stationary[best_sellers];
            match page {
                2 => assert!((6.0..6.5).contains(&times), "{times}"),
                3..=6 => {}
                _ => assert!((0.9..1.1).contains(&times), "page {page}: {times}"),
            }
        }
    }

    #[test]
    fn a_million_steps_have_the_published_shares() {
        const STEPS: u32 = 1_000_000;
        for mix in Mix::ALL {
            let mut random = StdRng::seed_from_u64(14);
            let (mut page, mut visits) = (Interaction::Home, [0_u32; 14]);
            for _ in 0..STEPS {
                page = mix.next(page, &mut random);
                visits[page as usize] += 1;
            }
            for ((page, visits), published) in Interaction::ALL.into_iter().zip(visits).zip(mix.published()) {
                let share = f64::from(visits) * 100.0 / f64::from(STEPS);
                assert!((share - published).abs() < 0.1, "{mix} {}: {share} and {published}", page.code());
            }
        }
    }

    #[test]
    fn a_mix_is_read_as_it_is_written() {
        for mix in Mix::ALL {
            assert_eq!(mix.to_string().parse(), Ok(mix));
        }
        assert!("buying".parse::<Mix>().is_err());
    }
}
