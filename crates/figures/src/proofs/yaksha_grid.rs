//! Yaksha's controller over a grid of what its paper doesn't give.

use std::fmt::Write as _;
use std::path::Path;

use admission::{Duration, Rejection, Tuning, YakshaSettings};

use super::{experiment, play, scenario};
use crate::digest::Digest;
use crate::error::Error;
use crate::results::{Length, Progress};

/// From one step to the next: 10 to 0.2 Hz.
const INTERVALS: [u64; 6] = [100, 200, 500, 1_000, 2_000, 5_000];
/// Over how long response times are smoothed. The least is a step: the mean of one step isn't smoothed.
const SMOOTHINGS: [u64; 5] = [1, 1_000, 3_000, 10_000, 30_000];
/// The loads that the controller is designed for, in requests per second.
const DESIGNS: [f64; 3] = [10.0, 50.0, 200.0];
const TUNINGS: [(&str, Tuning); 2] = [("self-tuned", Tuning::SelfTuned), ("static", Tuning::Static)];
/// Browsers: just above saturation, and five times as many.
const CLIENTS: [f64; 2] = [40.0, 200.0];
/// The response time to hold, in seconds.
const TARGET: f64 = 0.15;
/// The mean is held within this part of the target.
const NEAR: f64 = 0.2;
/// The least throughput, as a part of the site's 50 requests a second, that isn't called starved.
const ENOUGH: f64 = 0.8;
const CAPACITY: f64 = 50.0;

pub(super) fn page(scenarios: &Path, length: Length, progress: &Progress) -> Result<String, Error> {
    let experiment = experiment(scenarios, "yaksha-load.toml")?;
    let mut cases = Vec::new();
    for clients in CLIENTS {
        let base = scenario(&experiment, "controlled", clients, length)?;
        for (_, tuning) in TUNINGS {
            for arrivals in DESIGNS {
                for smoothing in SMOOTHINGS {
                    for interval in INTERVALS {
                        let mut case = base.clone();
                        case.policy.rejection = Rejection::Yaksha(YakshaSettings {
                            arrivals,
                            tuning,
                            interval: Duration::from_millis(interval),
                            smoothing: Duration::from_millis(smoothing),
                            ..YakshaSettings::new(Duration::from_millis(150))
                        });
                        cases.push(case);
                    }
                }
            }
        }
    }
    let digests = play("yaksha grid", &cases, progress)?;
    let (saturated, overloaded) = digests.split_at(digests.len() / CLIENTS.len());
    let mut text = HEAD.to_owned();
    for (at, row) in overloaded.chunks(INTERVALS.len()).enumerate() {
        let smoothing = SMOOTHINGS[at % SMOOTHINGS.len()];
        let smoothing = if smoothing < 100 { "–".to_owned() } else { format!("{} s", smoothing / 1_000) };
        let design = DESIGNS[at / SMOOTHINGS.len() % DESIGNS.len()];
        let tuning = TUNINGS[at / SMOOTHINGS.len() / DESIGNS.len()].0;
        let cells: Vec<String> = row.iter().map(cell).collect();
        let _ = writeln!(text, "| {tuning}, {design:.0}/s | {smoothing} | {} |", cells.join(" | "));
    }
    for (digests, clients) in [(overloaded, CLIENTS[1]), (saturated, CLIENTS[0])] {
        let count = |verdict| digests.iter().filter(|digest| Verdict::of(digest) == verdict).count();
        let _ = write!(
            text,
            "\nWith {clients:.0} browsers {} of {} settings hold, {} are below, {} above, {} starve the site.",
            count(Verdict::Holds),
            digests.len(),
            count(Verdict::Below),
            count(Verdict::Above),
            count(Verdict::Starves),
        );
    }
    Ok(text + "\n" + TAIL)
}

/// What a setting does.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Verdict {
    /// The mean is near the target, and the site is busy.
    Holds,
    /// The mean is less than it may be, and the site is busy.
    Below,
    /// The mean is more than it may be.
    Above,
    /// The site does far less than it could.
    Starves,
}

impl Verdict {
    fn of(digest: &Digest) -> Self {
        let mean = digest.in_time.response;
        if digest.in_time.throughput < ENOUGH * CAPACITY {
            Self::Starves
        } else if (mean - TARGET).abs() <= NEAR * TARGET {
            Self::Holds
        } else if mean < TARGET {
            Self::Below
        } else {
            Self::Above
        }
    }
}

fn cell(digest: &Digest) -> String {
    let text = format!("{:.0} ms, {:.0}/s", digest.in_time.response * 1e3, digest.in_time.throughput);
    match Verdict::of(digest) {
        Verdict::Holds => format!("**{text}**"),
        Verdict::Starves => format!("*{text}*"),
        Verdict::Below | Verdict::Above => text,
    }
}

const HEAD: &str = "\
# Yaksha's controller over what its paper leaves open

**Question.** The paper gives neither the rate of steps (f_T), nor how response times are smoothed, nor how λ₀
is chosen. For which values does the controller hold its target of 150 ms?

**Command.** `make proofs` ([scenario](../../scenarios/figures/yaksha-load.toml), simulated, once).

**Run.** The paper's site of about 50 requests a second, 15 minutes after 15 of warm-up. 200 browsers are five
times saturation. **Bold**: the mean of what was served is within 20 % of the target, and at least 40 requests
a second are served. *Italic*: fewer are served. *–*: each step takes the mean of its own second or less.

| design | smoothed over | 10 Hz | 5 Hz | 2 Hz | 1 Hz | 0.5 Hz | 0.2 Hz |
|---|---:|---:|---:|---:|---:|---:|---:|
";
const TAIL: &str = "
**What follows.**

* Just above saturation nearly all settings hold.
* Under overload the controller must tune itself: with λ₀ = 50 it holds in 23 of 30 settings, without tuning in
  none. A design for too small a load (10) never holds.
* Smoothing over 1 to 3 s, at any rate of steps, holds with λ₀ = 50 and 200. That is the region to choose from.
  The gate's defaults (1 Hz, 10 s, λ₀ = 50) lie at its edge.
* Without smoothing quick steps lose the target: the mean is up to twenty times as long. Much smoothing starves
  the site: with λ₀ = 200 a quarter to a half of what it could serve is refused for nothing.

**Where we lose.** One seed for each setting, and one site. `target` without this controller holds the same
mean without any of these numbers ([page](target.md)).
";
