//! All browsers of a run: lets them come and go as the schedule says.

use std::sync::Arc;
use std::time::Duration;

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use tokio::sync::watch;
use tokio::task::{AbortHandle, JoinError, JoinSet};
use tokio::time::{Instant, sleep_until, timeout};

use super::browser::{Browser, LEAVE_BOUND, Moment, Setting, Stay};
use super::plan::{Load, Phase};

/// Runs the phases, and returns when the last browser has left.
pub(super) async fn visit(phases: &[Phase], most_present: usize, setting: Arc<Setting>) {
    let Some(first) = phases.first() else { return };
    let (tell, hear) = watch::channel(moment(first));
    let mut crowd = Crowd {
        arrivals: StdRng::seed_from_u64(setting.seed),
        setting,
        hear,
        browsers: JoinSet::new(),
        seats: Vec::new(),
        visits: 0,
        most_present,
    };
    let mut end = Instant::now();
    for (number, phase) in phases.iter().enumerate() {
        if number > 0 {
            crowd.setting.record.enter(number);
            tell.send_replace(moment(phase));
        }
        let start = end;
        end += phase.duration;
        match phase.load {
            Load::Browsers(count) => {
                crowd.fill(count as usize);
                sleep_until(end).await;
            }
            Load::Sessions(rate) => crowd.admit(rate, start, end).await,
        }
    }
    crowd.setting.record.end();
    tell.send_modify(|moment| moment.is_over = true);
    // Each leaves within its own bound; this one is only for a machine that is too busy to let them.
    let _ = timeout(LEAVE_BOUND * 4, crowd.empty()).await;
}

fn moment(phase: &Phase) -> Moment {
    let browsers = match phase.load {
        Load::Browsers(count) => u64::from(count),
        Load::Sessions(_) => u64::MAX,
    };
    Moment { mix: phase.mix, browsers, is_over: false }
}

struct Crowd {
    setting: Arc<Setting>,
    hear: watch::Receiver<Moment>,
    browsers: JoinSet<()>,
    /// Those of a closed loop, by their number.
    seats: Vec<AbortHandle>,
    arrivals: StdRng,
    visits: u64,
    most_present: usize,
}

impl Crowd {
    /// Puts a browser on each of `count` seats.
    fn fill(&mut self, count: usize) {
        self.reap();
        for number in 0..count {
            if self.seats.get(number).is_some_and(|seat| !seat.is_finished()) {
                continue;
            }
            let seat = self.spawn(number as u64, Stay::Always, Instant::now());
            match self.seats.get_mut(number) {
                Some(free) => *free = seat,
                None => self.seats.push(seat),
            }
        }
    }

    /// A visit after the other by a Poisson process.
    async fn admit(&mut self, rate: f64, start: Instant, end: Instant) {
        if rate <= 0.0 {
            return sleep_until(end).await;
        }
        let mut due = start;
        loop {
            let gap = -(1.0 - self.arrivals.random::<f64>()).ln() / rate;
            due += Duration::try_from_secs_f64(gap).unwrap_or(Duration::MAX).min(end - start);
            if due >= end {
                break;
            }
            sleep_until(due).await;
            self.reap();
            if self.browsers.len() >= self.most_present {
                self.setting.record.turned_away();
                continue;
            }
            self.spawn(self.visits, Stay::OneVisit, due);
            self.visits += 1;
        }
        sleep_until(end).await;
    }

    fn spawn(&mut self, number: u64, stay: Stay, due: Instant) -> AbortHandle {
        let browser = Browser::new(Arc::clone(&self.setting), number, stay, due, self.hear.clone());
        self.browsers.spawn(browser.run())
    }

    fn reap(&mut self) {
        while let Some(left) = self.browsers.try_join_next() {
            passed_on(left);
        }
    }

    async fn empty(&mut self) {
        while let Some(left) = self.browsers.join_next().await {
            passed_on(left);
        }
    }
}

/// A browser that panicked is a mistake of ours, and not to be counted as one that left.
fn passed_on(left: Result<(), JoinError>) {
    if let Err(error) = left
        && let Ok(panic) = error.try_into_panic()
    {
        std::panic::resume_unwind(panic);
    }
}
