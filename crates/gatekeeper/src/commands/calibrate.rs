//! `gatekeeper calibrate`: finds the best fixed capacity of a running gate by experiment, as the Gatekeeper
//! paper does (section 3.1).
//!
//! For each measurement it changes the gate's capacity through the admin listener, starts the load command
//! anew, lets it run for the warm-up (in which the estimates follow, from the first completed request on),
//! and counts what the gate completes in the window after it. So any command will do that sends requests
//! through the gate for long enough. Which capacity is tried next, and how often, is [`sim::search`]'s to
//! say, which was tried out on simulated services first.
//!
//! Whatever happens on the way (the load command fails, the gate goes away, Ctrl-C), the load command is
//! ended with all that it has started, and the capacity from before is set again. Only a `kill -9` leaves
//! what was tried last; a reload of the gate takes that back, too.

mod load;
mod picture;
mod table;

use std::fs;
use std::io::{self, IsTerminal as _};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};
use proxy::admin::{GateChange, GateSettings, GateStatus, Status};
use sim::search::{Found, Measurement, Plan, Rounding, Search, Step};
use tokio::time::{Instant, sleep};

use crate::Failure;
use crate::cli::CalibrateArgs;
use crate::commands::running::asked;
use crate::remote::{Remote, block_on};
use crate::signals::{Asked, Signals};

use load::Load;

/// How often the gate is looked at while it is measured.
const LOOK_INTERVAL: Duration = Duration::from_millis(100);
/// How long the load command may take until the first request of it is completed.
const START_TIMEOUT: Duration = Duration::from_secs(60);
/// How often setting the capacity from before is tried.
const RESTORE_TRIES: u32 = 5;
/// The pause between two tries.
const RESTORE_PAUSE: Duration = Duration::from_millis(500);
/// How many capacities there are for each factor of two: they differ by 26 %, and near a peak that is little.
const PER_OCTAVE: u32 = 3;

/// The table, and what to write into the configuration.
pub(crate) fn calibrate(args: &CalibrateArgs) -> Result<String, Failure> {
    let mut plan =
        Plan::between(args.from.as_secs_f64(), args.to.as_secs_f64(), PER_OCTAVE, Rounding::TwoDigits);
    plan.repeats_max = args.repeats.get();
    plan.measurements_max = args.measurements.get();
    let search = Search::new(plan)
        .ok_or_else(|| Failure::Usage("--from must be above 0, and --to not below it".to_owned()))?;
    if let Some(directory) = &args.output {
        fs::create_dir_all(directory)
            .map_err(|error| Failure::Runtime(format!("cannot make {}: {error}", directory.display())))?;
    }
    block_on(begin(args, search))
}

async fn begin(args: &CalibrateArgs, search: Search) -> Result<String, Failure> {
    let remote = asked(&args.admin)?;
    let signals = Signals::new();
    let mut signals =
        signals.map_err(|error| Failure::Runtime(format!("cannot listen to signals: {error}")))?;
    let gate = bound_gate(&remote, args.gate.as_deref()).await?;
    let before: GateSettings = remote.read(&format!("/gates/{gate}")).await?;
    let mut session =
        Session { args, remote, gate, search, load: None, in_flight: Vec::new(), progress: progress() };
    // To what it is: whether changes are taken is known before anything is started.
    session.set(&before.capacity).await?;
    let outcome = tokio::select! {
        outcome = session.measure_all() => outcome,
        signal = interrupted(&mut signals) => {
            Err(Failure::Interrupted(format!("{signal}: the search was broken off")))
        }
    };
    if let Some(load) = session.load.take() {
        load.end().await;
    }
    session.progress.finish_and_clear();
    let restored = session.restore(&before.capacity).await;
    match (outcome, restored) {
        (Ok(found), Ok(())) => session.report(&found, &before.capacity),
        (Ok(_), Err(failure)) => Err(failure),
        (Err(failure), Ok(())) => {
            Err(failure.with(&format!("the capacity is {:?} again, as before", before.capacity)))
        }
        (Err(failure), Err(also)) => Err(failure.with(also.message())),
    }
}

async fn interrupted(signals: &mut Signals) -> &'static str {
    match signals.next().await {
        Asked::End(name) => name,
        Asked::Reload => "SIGHUP",
        Asked::Upgrade => "SIGUSR2",
    }
}

/// The gate of this name, or the only one.
async fn bound_gate(remote: &Remote, asked: Option<&str>) -> Result<String, Failure> {
    let gate = remote.gate(asked).await?;
    if gate.mode == "observe" {
        return Err(Failure::Usage(format!(
            "gate {:?} only observes: no capacity binds anything there (mode = \"enforce\")",
            gate.name
        )));
    }
    Ok(gate.name)
}

/// Nothing is drawn where nobody looks.
fn progress() -> ProgressBar {
    let bar = if io::stderr().is_terminal() { ProgressBar::new_spinner() } else { ProgressBar::hidden() };
    if let Ok(style) = ProgressStyle::with_template("{msg}") {
        bar.set_style(style);
    }
    bar
}

/// A search under way.
struct Session<'a> {
    args: &'a CalibrateArgs,
    remote: Remote,
    gate: String,
    search: Search,
    load: Option<Load>,
    /// For each measurement which capacity it was of (an index into the grid), and how many were in flight
    /// on average.
    in_flight: Vec<(usize, f64)>,
    progress: ProgressBar,
}

impl Session<'_> {
    async fn measure_all(&mut self) -> Result<Found, Failure> {
        loop {
            match self.search.next() {
                Step::Settled(found) => return Ok(found),
                Step::Measure(at) => {
                    let (measurement, in_flight) = self.measure(at).await?;
                    self.search.record(at, measurement);
                    self.in_flight.push((at, in_flight));
                    self.tell(at, measurement);
                }
            }
        }
    }

    /// One measurement: the load anew, the warm-up, the window.
    async fn measure(&mut self, at: usize) -> Result<(Measurement, f64), Failure> {
        let setting = self.search.grid()[at];
        if let Some(command) = &self.args.before {
            load::prepare(command).await?;
        }
        self.set(&table::capacity(setting)).await?;
        let needed = self.args.warm_up + self.args.window;
        let before = self.status().await?.1.requests.succeeded_total;
        self.load = Some(Load::start(&self.args.command, needed)?);
        self.wait_for_the_first(at, before).await?;
        let begun = Instant::now();
        while begun.elapsed() < self.args.warm_up {
            self.look(at, begun).await?;
        }
        let first = self.status().await?;
        let (mut peak, mut in_flight, mut looks): (f64, f64, f64) = (0.0, 0.0, 0.0);
        while begun.elapsed() < needed {
            let status = self.look(at, begun).await?;
            if status.1.capacity_seconds.is_none_or(|now| (now / setting - 1.0).abs() > 1e-6) {
                return Err(Failure::Runtime(format!(
                    "somebody else has changed the capacity of {:?} meanwhile",
                    self.gate
                )));
            }
            peak = peak.max(status.1.load_seconds);
            in_flight += status.1.in_flight as f64;
            looks += 1.0;
        }
        let last = self.status().await?;
        if let Some(load) = self.load.take() {
            load.end().await;
        }
        // By the gate's own clock, which its counts belong to.
        let seconds = last.0 - first.0;
        let counted = last.1.requests.succeeded_total.saturating_sub(first.1.requests.succeeded_total) as f64;
        let throughput = if seconds > 0.0 { counted / seconds } else { 0.0 };
        // Twice as much would bind nothing, if not even half was ever in flight.
        let measurement = Measurement { throughput, reached: peak >= setting / 2.0 };
        Ok((measurement, in_flight / f64::max(looks, 1.0)))
    }

    /// Waits until the load has begun: some commands take seconds for that, which are no part of the warm-up.
    async fn wait_for_the_first(&mut self, at: usize, before: u64) -> Result<(), Failure> {
        let started = Instant::now();
        while self.look(at, started).await?.1.requests.succeeded_total <= before {
            if started.elapsed() > START_TIMEOUT {
                return Err(Failure::Runtime(format!(
                    "the gate {:?} has completed nothing for {} s: does the load command connect to it?",
                    self.gate,
                    START_TIMEOUT.as_secs()
                )));
            }
        }
        Ok(())
    }

    /// Waits a little, and looks at the gate and at the load.
    async fn look(&mut self, at: usize, begun: Instant) -> Result<(f64, GateStatus), Failure> {
        if let Some(load) = &mut self.load {
            load.check(begun.elapsed()).await?;
        }
        let status = self.status().await?;
        self.draw(at, begun.elapsed());
        sleep(LOOK_INTERVAL).await;
        Ok(status)
    }

    /// When, by the gate's clock in seconds, and its state.
    async fn status(&self) -> Result<(f64, GateStatus), Failure> {
        let status: Status = self.remote.read("/status").await?;
        let gate = status.gates.into_iter().find(|gate| gate.name == self.gate);
        let gate = gate.ok_or_else(|| Failure::Runtime(format!("the gate {:?} is gone", self.gate)))?;
        Ok((status.uptime_seconds, gate))
    }

    async fn set(&self, capacity: &str) -> Result<(), Failure> {
        let change = GateChange { capacity: capacity.to_owned() };
        let change = serde_json::to_string(&change)
            .map_err(|error| Failure::Runtime(format!("cannot write JSON: {error}")))?;
        let answer = self.remote.patch(&format!("/gates/{}", self.gate), change).await?;
        if answer.status.as_u16() == 403 {
            return Err(Failure::Usage(format!(
                "{} takes no changes from here: {} (--admin unix:/path, or --token-file FILE)",
                self.remote,
                answer.body.trim_end()
            )));
        }
        let _: GateSettings = self.remote.parsed(answer)?;
        Ok(())
    }

    /// The capacity from before.
    async fn restore(&self, before: &str) -> Result<(), Failure> {
        let mut result = self.set(before).await;
        for _ in 1..RESTORE_TRIES {
            if result.is_ok() {
                break;
            }
            sleep(RESTORE_PAUSE).await;
            result = self.set(before).await;
        }
        result.map_err(|failure| {
            Failure::Runtime(format!(
                "the capacity could not be set to {before:?} again, as before; reload the gatekeeper: {}",
                failure.message()
            ))
        })
    }

    /// A measurement, for those who read a file and no terminal.
    fn tell(&self, at: usize, measurement: Measurement) {
        if !io::stderr().is_terminal() {
            let setting = table::capacity(self.search.grid()[at]);
            eprintln!(
                "measurement {}: capacity {setting}: {:.1}/s",
                self.search.measured(),
                measurement.throughput
            );
        }
    }

    /// The curve so far, and what is under way.
    fn draw(&self, at: usize, elapsed: Duration) {
        if self.progress.is_hidden() {
            return;
        }
        let each = self.args.warm_up + self.args.window;
        let left = self.args.measurements.get().saturating_sub(self.search.measured());
        let most = each.saturating_mul(u32::try_from(left).unwrap_or(u32::MAX)).saturating_sub(elapsed);
        let phase = if elapsed < self.args.warm_up { "warming up" } else { "measuring" };
        self.progress.set_message(format!(
            "{}\n{phase} {}: {} s of {} s; at most {} left",
            table::chart(&self.search),
            table::capacity(self.search.grid()[at]),
            elapsed.as_secs(),
            each.as_secs(),
            humantime::format_duration(Duration::from_secs(most.as_secs()))
        ));
    }

    /// What was found, in full.
    fn report(&self, found: &Found, before: &str) -> Result<String, Failure> {
        let mut text = table::of(&self.search, &self.in_flight);
        text.push('\n');
        text += &table::advice(found, &self.gate, before);
        if let Some(directory) = &self.args.output {
            let path = directory.join("capacity.svg");
            let drawn = picture::write(&path, &self.search, &self.in_flight, &self.gate);
            drawn.map_err(|error| Failure::Runtime(error.to_string()))?;
            text += &format!("\nplot: {}\n", path.display());
        }
        Ok(text)
    }
}
