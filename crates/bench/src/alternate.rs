//! Rounds: A, B, C, A, B, C, so that a drift of the machine meets every variant alike.

use std::io::IsTerminal;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};

use crate::Error;

/// One turn of one variant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Turn {
    /// Which round, from 0.
    pub round: usize,
    /// Which variant, from 0.
    pub variant: usize,
}

/// The order of the turns: every variant once per round, in the same order.
pub fn turns(rounds: usize, variants: usize) -> impl Iterator<Item = Turn> {
    (0..rounds).flat_map(move |round| (0..variants).map(move |variant| Turn { round, variant }))
}

/// Runs every turn and returns the results per variant, in order of the rounds.
///
/// `expected` is how long a turn of each variant takes as far as is known beforehand; once a variant has had
/// its turn, what that took is expected of the next.
///
/// # Errors
/// With the first turn's error.
pub async fn alternate<T>(
    rounds: usize,
    expected: &[Duration],
    mut run: impl AsyncFnMut(Turn, Duration) -> Result<T, Error>,
) -> Result<Vec<Vec<T>>, Error> {
    let mut expected = expected.to_vec();
    let mut results: Vec<Vec<T>> = expected.iter().map(|_| Vec::with_capacity(rounds)).collect();
    for turn in turns(rounds, expected.len()) {
        let left = turns(rounds, expected.len())
            .filter(|other| (other.round, other.variant) >= (turn.round, turn.variant))
            .map(|other| expected[other.variant])
            .sum();
        let start = Instant::now();
        results[turn.variant].push(run(turn, left).await?);
        expected[turn.variant] = start.elapsed();
    }
    Ok(results)
}

/// What is going on, for a person: a line that renews itself on a terminal, plain lines elsewhere.
#[derive(Debug)]
pub struct Display {
    bar: Option<ProgressBar>,
}

impl Display {
    /// Shows on standard error if that is a terminal, else only whole lines on standard output.
    pub fn new() -> Self {
        let bar = std::io::stderr().is_terminal().then(|| {
            let bar = ProgressBar::new_spinner();
            if let Ok(style) = ProgressStyle::with_template("  {spinner:.blue} {msg}") {
                bar.set_style(style);
            }
            bar.enable_steady_tick(Duration::from_millis(120));
            bar
        });
        Self { bar }
    }

    /// Renews the passing line.
    pub fn now(&self, message: impl Into<String>) {
        if let Some(bar) = &self.bar {
            bar.set_message(message.into());
        }
    }

    /// Whether passing lines are seen at all.
    pub const fn is_live(&self) -> bool {
        self.bar.is_some()
    }

    /// Writes a line that stays.
    pub fn say(&self, line: &str) {
        match &self.bar {
            Some(bar) => bar.suspend(|| println!("{line}")),
            None => println!("{line}"),
        }
    }
}

impl Default for Display {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for Display {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_variant_has_its_turn_in_every_round() {
        let order: Vec<_> = turns(2, 3).map(|turn| (turn.round, turn.variant)).collect();
        assert_eq!(order, [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (1, 2)]);
    }

    #[tokio::test]
    async fn results_are_kept_per_variant_and_the_time_left_shrinks() {
        let expected = [Duration::from_secs(100), Duration::from_secs(10)];
        let mut left = Vec::new();
        let results = alternate(2, &expected, async |turn, time_left| {
            left.push(time_left);
            Ok((turn.round, turn.variant))
        })
        .await
        .unwrap();
        assert_eq!(results, [[(0, 0), (1, 0)], [(0, 1), (1, 1)]]);
        assert_eq!(left[0], Duration::from_secs(220));
        // The second variant is still unknown when the first has turned out quick.
        assert!(left[1] >= Duration::from_secs(20) && left[1] < Duration::from_secs(30), "{left:?}");
    }

    #[tokio::test]
    async fn the_first_error_ends_the_rounds() {
        let mut count = 0;
        let result: Result<Vec<Vec<()>>, Error> = alternate(3, &[Duration::ZERO], async |_, _| {
            count += 1;
            Err(Error::Interrupted)
        })
        .await;
        assert!(result.is_err());
        assert_eq!(count, 1);
    }
}
