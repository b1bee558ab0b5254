//! How far the filling has got: bars on a terminal, plain lines elsewhere.

use std::time::{Duration, Instant};

use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressStyle};

/// Shows the progress of several things at once.
pub(super) struct Progress {
    bars: MultiProgress,
    started: Instant,
    is_silent: bool,
}

/// The progress of one of them.
pub(super) struct Step {
    bar: ProgressBar,
    name: String,
    unit: &'static str,
    started: Instant,
    is_plain: bool,
}

impl Progress {
    /// Begins now, and shows what happens.
    pub(super) fn shown() -> Self {
        Self { bars: MultiProgress::new(), started: Instant::now(), is_silent: false }
    }

    /// Begins now, and says nothing.
    pub(super) fn silent() -> Self {
        let bars = MultiProgress::with_draw_target(ProgressDrawTarget::hidden());
        Self { bars, started: Instant::now(), is_silent: true }
    }

    /// Something of so many units begins.
    pub(super) fn step(&self, name: &str, unit: &'static str, length: u64) -> Step {
        let style =
            ProgressStyle::with_template("{prefix:<20} {bar:30} {human_pos:>9}/{human_len} {msg} {eta}")
                .unwrap_or_else(|_| ProgressStyle::default_bar());
        let bar = self.bars.add(ProgressBar::new(length)).with_style(style).with_prefix(name.to_owned());
        bar.set_message(unit);
        let is_plain = self.bars.is_hidden() && !self.is_silent;
        Step { bar, name: name.to_owned(), unit, started: Instant::now(), is_plain }
    }

    /// The time since the beginning.
    pub(super) fn elapsed(&self) -> Duration {
        self.started.elapsed()
    }
}

impl Step {
    /// Counts this many more units as done.
    pub(super) fn advance(&self, units: u64) {
        self.bar.inc(units);
    }

    /// Ends the step.
    pub(super) fn end(&self, units: u64) {
        if self.is_plain {
            println!(
                "{:<20} {units:>9} {} in {:.1} s",
                self.name,
                self.unit,
                self.started.elapsed().as_secs_f64()
            );
        }
        self.bar.finish();
    }
}
