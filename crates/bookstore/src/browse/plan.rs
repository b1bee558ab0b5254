//! The schedule of a run: how many visitors there are, when and for how long.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::Deserialize;

use super::pace::Pace;
use crate::mixes::Mix;

/// Phases of a schedule.
const PHASES_BOUND: usize = 1_000;
/// The longest a run may take: a value for each second is kept.
const DURATION_BOUND: Duration = Duration::from_secs(24 * 60 * 60);
/// The most browsers in one process.
const BROWSERS_BOUND: u32 = 1_000_000;
/// The most sessions that may begin in a second.
const RATE_BOUND: f64 = 1e6;

/// The visitors of a phase.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Load {
    /// The closed loop: a fixed number of browsers.
    Browsers(u32),
    /// The open loop: this many new visits each second, by a Poisson process, whatever became of earlier
    /// ones.
    Sessions(f64),
}

/// A part of the run.
#[derive(Clone, Debug, PartialEq)]
pub struct Phase {
    /// What it is called in the output.
    pub name: String,
    /// How long the phase lasts.
    pub duration: Duration,
    /// The visitors of the phase.
    pub load: Load,
    /// The mix of the pages that are visited.
    pub mix: Mix,
    /// Whether the phase counts, or only warms up.
    pub is_counted: bool,
}

/// A whole run.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The phases, one after another.
    pub phases: Vec<Phase>,
    /// Whether a browser keeps the mix of the phase in which it came; else all take the mix of each phase.
    pub keeps_mix: bool,
    /// How fast visitors are.
    pub pace: Pace,
    /// How long they wait for a page.
    pub patience: Duration,
    /// Over how many connections images are fetched; `None`: they aren't.
    pub image_connections: Option<usize>,
    /// Visitors of an open loop that may be present at once.
    pub most_present: usize,
    /// The source of all chance.
    pub seed: u64,
}

impl Load {
    /// From a number of browsers, or a rate with `/s`.
    fn parse(text: &str) -> Result<Self, String> {
        let load = match text.strip_suffix("/s") {
            Some(rate) => {
                rate.parse().ok().filter(|rate| (0.0..=RATE_BOUND).contains(rate)).map(Self::Sessions)
            }
            None => text.parse().ok().filter(|&count| count <= BROWSERS_BOUND).map(Self::Browsers),
        };
        load.ok_or_else(|| {
            format!("`{text}` is neither a number of browsers nor of sessions a second (`5/s`)")
        })
    }
}

impl fmt::Display for Load {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Browsers(count) => write!(f, "{count} browsers"),
            Self::Sessions(rate) => write!(f, "{rate} sessions/s"),
        }
    }
}

/// A phase as it is written after `--phase`: `60s:200`, `30s:600:ordering`, `60s:5/s:browsing`.
#[derive(Clone, Debug, PartialEq)]
pub struct PhaseFlag {
    duration: Duration,
    load: Load,
    mix: Option<Mix>,
}

impl FromStr for PhaseFlag {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut parts = text.split(':');
        let duration = duration(parts.next().unwrap_or_default())?;
        let load = Load::parse(parts.next().ok_or("how many? (`60s:200`)")?)?;
        let mix = parts.next().map(str::parse).transpose()?;
        match parts.next() {
            Some(_) => Err(format!("`{text}` has more than duration:load:mix")),
            None => Ok(Self { duration, load, mix }),
        }
    }
}

impl PhaseFlag {
    /// The phase, with the mix that holds where none is named.
    pub(crate) fn phase(self, number: usize, mix: Mix) -> Phase {
        let Self { duration, load, mix: own } = self;
        Phase { name: format!("phase {number}"), duration, load, mix: own.unwrap_or(mix), is_counted: true }
    }
}

/// A schedule as a TOML file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    phase: Vec<FilePhase>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct FilePhase {
    name: Option<String>,
    duration: String,
    browsers: Option<u32>,
    sessions_per_second: Option<f64>,
    mix: Option<Mix>,
    #[serde(default = "yes")]
    counted: bool,
}

fn yes() -> bool {
    true
}

/// The phases of a TOML file.
///
/// # Errors
/// What is wrong with it.
pub(crate) fn schedule(text: &str, mix: Mix) -> Result<Vec<Phase>, String> {
    let file: File = toml::from_str(text).map_err(|error| error.to_string())?;
    let phases = file.phase.into_iter().enumerate().map(|(index, phase)| {
        let name = phase.name.unwrap_or_else(|| format!("phase {}", index + 1));
        let load = match (phase.browsers, phase.sessions_per_second) {
            (Some(count), None) => Load::parse(&count.to_string()),
            (None, Some(rate)) => Load::parse(&format!("{rate}/s")),
            _ => Err("either `browsers` or `sessions_per_second`".to_owned()),
        };
        let phase = load.and_then(|load| {
            let (mix, is_counted) = (phase.mix.unwrap_or(mix), phase.counted);
            Ok(Phase { name: name.clone(), duration: duration(&phase.duration)?, load, mix, is_counted })
        });
        phase.map_err(|error| format!("{name}: {error}"))
    });
    phases.collect()
}

/// Looks whether phases can be run.
///
/// # Errors
/// Why not.
pub(crate) fn checked(phases: Vec<Phase>) -> Result<Vec<Phase>, String> {
    let is_closed = |phase: &Phase| matches!(phase.load, Load::Browsers(_));
    if !phases.iter().any(|phase| phase.is_counted) {
        return Err("no phase is counted".to_owned());
    }
    if phases.len() > PHASES_BOUND {
        return Err(format!("more than {PHASES_BOUND} phases"));
    }
    if let Some(phase) = phases.iter().find(|phase| phase.duration.is_zero()) {
        return Err(format!("{} takes no time", phase.name));
    }
    let whole = phases.iter().try_fold(Duration::ZERO, |sum, phase| sum.checked_add(phase.duration));
    if whole.is_none_or(|whole| whole > DURATION_BOUND) {
        return Err("a run takes a day at most".to_owned());
    }
    if phases.iter().any(is_closed) && !phases.iter().all(is_closed) {
        return Err(
            "browsers (closed loop) and sessions a second (open loop) don't mix in one run".to_owned()
        );
    }
    Ok(phases)
}

/// A time as `90s` or `2m`.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    humantime::parse_duration(text).map_err(|error| format!("`{text}` is no duration (`90s`, `5m`): {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn phase(text: &str) -> Result<Phase, String> {
        text.parse().map(|flag: PhaseFlag| flag.phase(1, Mix::Shopping))
    }

    #[test]
    fn a_phase_is_duration_load_and_mix() {
        let one = phase("60s:200").unwrap();
        assert_eq!(
            (one.duration, one.load, one.mix),
            (Duration::from_secs(60), Load::Browsers(200), Mix::Shopping)
        );
        let other = phase("2m:2.5/s:ordering").unwrap();
        assert_eq!((other.load, other.mix), (Load::Sessions(2.5), Mix::Ordering));
        for wrong in
            ["", "60s", "60:200", "60s:many", "60s:-1", "60s:nan/s", "60s:1:buying", "60s:1:ordering:2"]
        {
            assert!(phase(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_schedule_is_a_list_of_phases() {
        let text = "[[phase]]\nname = 'calm'\nduration = '30s'\nbrowsers = 10\ncounted = false\n\n[[phase]]\nduration = '1m'\nbrowsers = 50\nmix = 'ordering'\n";
        let phases = checked(schedule(text, Mix::Browsing).unwrap()).unwrap();
        assert_eq!(
            (phases[0].name.as_str(), phases[0].mix, phases[0].is_counted),
            ("calm", Mix::Browsing, false)
        );
        assert_eq!(
            (phases[1].name.as_str(), phases[1].mix, phases[1].is_counted),
            ("phase 2", Mix::Ordering, true)
        );
        for wrong in [
            "[[phase]]\nduration = '1m'",
            "[[phase]]\nduration = '1m'\nbrowsers = 1\nsessions_per_second = 1",
            "[[phase]]\nduration = '1'\nbrowsers = 1",
            "[[phase]]\nduration = '1m'\nbrowsers = 1\nspeed = 3",
        ] {
            assert!(schedule(wrong, Mix::Shopping).is_err(), "{wrong}");
        }
    }

    #[test]
    fn what_cannot_be_run_is_told() {
        let run = |texts: &[&str]| checked(texts.iter().map(|text| phase(text).unwrap()).collect());
        assert!(run(&["60s:1", "60s:2"]).is_ok());
        assert!(run(&[]).is_err());
        assert!(run(&["60s:1", "60s:2/s"]).is_err());
        assert!(run(&["0s:1"]).is_err());
        assert!(run(&["13h:1", "12h:1"]).is_err());
        assert!(run(&["1s:1"; PHASES_BOUND + 1]).is_err());
    }
}
