//! The flags of `bookstore browse`, and the plan that they make.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use super::pace::{Pace, Span};
use super::plan::{Load, Phase, PhaseFlag, Plan, checked, duration, schedule};
use crate::Error;
use crate::mixes::Mix;

/// The largest `--think-scale`.
const SCALE_BOUND: f64 = 1_000.0;

/// Options of the emulated browsers: the site, the load and the output.
#[derive(Debug, Args)]
pub struct Options {
    /// The shop, or whatever stands before it
    #[arg(long, value_name = "URL", default_value = "http://127.0.0.1:8080")]
    pub(super) site: String,
    /// Closed loop: always so many browsers
    #[arg(long, value_name = "N", conflicts_with_all = ["sessions_per_second", "phases", "schedule"])]
    browsers: Option<u32>,
    /// Open loop: so many new visits a second (Poisson), whatever became of earlier ones
    #[arg(long, value_name = "RATE", conflicts_with_all = ["phases", "schedule"])]
    sessions_per_second: Option<f64>,
    /// How long is counted, with --browsers or --sessions-per-second
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = duration)]
    duration: Duration,
    /// A part of a schedule, DURATION:LOAD[:MIX], repeated: `--phase 60s:200 --phase 30s:600:ordering`; a
    /// rate is `5/s`
    #[arg(long = "phase", value_name = "PHASE", conflicts_with = "schedule")]
    phases: Vec<PhaseFlag>,
    /// A schedule as a TOML file of [[phase]] tables
    #[arg(long, value_name = "FILE")]
    schedule: Option<PathBuf>,
    /// Before the first phase, with its load; not counted
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = duration)]
    warm_up: Duration,
    /// Where visitors go, if their phase doesn't say
    #[arg(long, value_enum, default_value_t)]
    mix: Mix,
    /// Browsers keep the mix of the phase in which they came: a phase's mix is that of those that join in it
    #[arg(long)]
    keep_mix: bool,
    /// Multiplies think times and lengths of visits: at 0.1 it is the same visit, ten times as fast
    #[arg(long, value_name = "FACTOR", default_value_t = 1.0)]
    think_scale: f64,
    /// Mean think time before scaling, exponentially distributed
    #[arg(long, value_name = "TIME", default_value = "7s", value_parser = duration)]
    think_mean: Duration,
    /// No think time is longer, before scaling
    #[arg(long, value_name = "TIME", default_value = "70s", value_parser = duration)]
    think_cap: Duration,
    /// Mean length of a visit before scaling; it ends at the next first page
    #[arg(long, value_name = "TIME", default_value = "15m", value_parser = duration)]
    session_mean: Duration,
    /// No visit is longer, before scaling
    #[arg(long, value_name = "TIME", default_value = "60m", value_parser = duration)]
    session_cap: Duration,
    /// How long a visitor waits for a page; then the connection is closed
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = duration)]
    timeout: Duration,
    /// Fetch the pages' images
    #[arg(long)]
    images: bool,
    /// Connections over which a browser fetches images at once
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u8).range(1..=16))]
    image_connections: u8,
    /// Open loop: visitors present at once; further ones are turned away, and told
    #[arg(long, value_name = "N", default_value_t = 10_000)]
    most_present: usize,
    /// Books in the shop; asked of the shop if not said
    #[arg(long, value_name = "N")]
    pub(super) items: Option<u32>,
    /// Customers that the shop began with; asked of the shop if not said
    #[arg(long, value_name = "N")]
    pub(super) customers: Option<u32>,
    /// The source of all chance
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Threads of this process
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(super) threads: usize,
    /// Write all figures to a file
    #[arg(long, value_name = "FILE")]
    pub(super) json: Option<PathBuf>,
    /// Exit with 0 (or 2) though answers were wrong or requests failed
    #[arg(long)]
    pub(super) allow_errors: bool,
}

impl Options {
    /// What the flags say.
    ///
    /// # Errors
    ///
    /// If they don't fit together, or the schedule can't be read.
    pub(super) fn plan(&self) -> Result<Plan, Error> {
        let mut phases = self.phases()?;
        if let Some(first) = phases.first().filter(|_| !self.warm_up.is_zero()) {
            let (name, duration) = ("warm-up".to_owned(), self.warm_up);
            let warm_up = Phase { name, duration, is_counted: false, ..first.clone() };
            phases.insert(0, warm_up);
        }
        if !(0.0..=SCALE_BOUND).contains(&self.think_scale) {
            return Err(Error::Plan(format!("--think-scale has to be between 0 and {SCALE_BOUND}")));
        }
        if self.timeout.is_zero() {
            return Err(Error::Plan("--timeout 0: nobody is that impatient".to_owned()));
        }
        let pace = Pace {
            think: Span { mean: self.think_mean, cap: self.think_cap },
            session: Span { mean: self.session_mean, cap: self.session_cap },
            ..Pace::default()
        };
        Ok(Plan {
            phases: checked(phases).map_err(Error::Plan)?,
            keeps_mix: self.keep_mix,
            pace: pace.scaled(self.think_scale),
            patience: self.timeout,
            image_connections: self.images.then_some(usize::from(self.image_connections)),
            most_present: self.most_present,
            seed: self.seed,
        })
    }

    fn phases(&self) -> Result<Vec<Phase>, Error> {
        if let Some(path) = &self.schedule {
            let action = format!("reading {}", path.display());
            let text = std::fs::read_to_string(path).map_err(Error::io(action))?;
            return schedule(&text, self.mix)
                .map_err(|error| Error::Plan(format!("{}: {error}", path.display())));
        }
        if !self.phases.is_empty() {
            let phases = self.phases.iter().cloned().enumerate();
            return Ok(phases.map(|(index, flag)| flag.phase(index + 1, self.mix)).collect());
        }
        let load = match (self.browsers, self.sessions_per_second) {
            (Some(count), _) => Load::Browsers(count),
            (None, Some(rate)) if (0.0..=1e6).contains(&rate) => Load::Sessions(rate),
            (None, Some(rate)) => {
                return Err(Error::Plan(format!("--sessions-per-second {rate}: impossible")));
            }
            (None, None) => {
                let hint = "who comes? --browsers, --sessions-per-second, --phase or --schedule";
                return Err(Error::Plan(hint.to_owned()));
            }
        };
        let (name, duration, mix) = ("phase 1".to_owned(), self.duration, self.mix);
        Ok(vec![Phase { name, duration, load, mix, is_counted: true }])
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        options: Options,
    }

    fn plan(flags: &str) -> Result<Plan, String> {
        let line = Line::try_parse_from(std::iter::once("browse").chain(flags.split_whitespace()));
        line.map_err(|error| error.to_string())?.options.plan().map_err(|error| error.to_string())
    }

    #[test]
    fn flags_make_a_plan() {
        let plan = plan("--browsers 20 --think-scale 0.1 --images --mix ordering --timeout 5s").unwrap();
        let [warm_up, phase] = &plan.phases[..] else { panic!("{:?}", plan.phases) };
        assert_eq!((warm_up.is_counted, warm_up.duration), (false, Duration::from_secs(30)));
        assert_eq!((phase.load, phase.mix), (Load::Browsers(20), Mix::Ordering));
        assert_eq!(warm_up.load, phase.load);
        assert_eq!(plan.pace.think, Span { mean: Duration::from_millis(700), cap: Duration::from_secs(7) });
        assert_eq!((plan.image_connections, plan.patience), (Some(4), Duration::from_secs(5)));
    }

    #[test]
    fn phases_follow_one_another() {
        let plan = plan("--phase 60s:200 --phase 30s:600:ordering --warm-up 0s").unwrap();
        let loads: Vec<Load> = plan.phases.iter().map(|phase| phase.load).collect();
        assert_eq!(loads, [Load::Browsers(200), Load::Browsers(600)]);
        assert_eq!((plan.phases[0].mix, plan.phases[1].mix), (Mix::Shopping, Mix::Ordering));
    }

    #[test]
    fn flags_that_do_not_fit_are_refused() {
        for flags in [
            "",
            "--browsers 1 --sessions-per-second 2",
            "--browsers 1 --phase 60s:1",
            "--phase 60s:1 --phase 60s:1/s",
            "--browsers 1 --think-scale -1",
            "--browsers 1 --think-scale nan",
            "--sessions-per-second inf",
            "--browsers 1 --timeout 0s",
            "--browsers 1 --duration 0s",
            "--browsers 1 --image-connections 0",
            "--schedule /nowhere/schedule.toml",
        ] {
            assert!(plan(flags).is_err(), "{flags}");
        }
    }
}
