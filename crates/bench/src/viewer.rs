//! What one viewer of the page costs: processor time of the gate and of the viewer's browser, with many types
//! of which each second uses some.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde::Serialize;
use testbed::browser::Page;
use testbed::postgres::{Authentication, PrivateServer, PrivateServerOptions};
use testbed::process::descendants;
use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval, sleep};

use crate::Error;
use crate::alternate::{Display, alternate};
use crate::blocking::blocking;
use crate::gatekeeper::{self, Gatekeeper};
use crate::load::{CpuMeter, Target};
use crate::stats::{Rounds, percentile};
use crate::table::{paragraph, spread};

/// The most of a core that a viewer's browser, and the gate for the viewer, may take each, in per cent.
pub const GOAL: f64 = 1.0;
/// Clients that send the statements.
const CLIENTS: usize = 4;
/// The most types: a name of the statement has four letters for them.
pub const TYPES_MAX: usize = 10_000;
/// The size of the browser's window, in pixels.
const WINDOW: (u32, u32) = (1440, 900);
/// How long all types may take to be known.
const KNOWN_BOUND: Duration = Duration::from_secs(300);

/// How the experiment is run.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Types of requests.
    pub types: usize,
    /// Statements a second.
    pub rate: usize,
    /// Rounds: in each, a window with nobody and one with a viewer.
    pub rounds: usize,
    /// How long processor time is counted in each window.
    pub window: Duration,
    /// The server's processor.
    pub server_cpu: Option<usize>,
}

/// What came of it: per cent of a core, by round.
#[derive(Clone, Debug, Serialize)]
pub struct Costs {
    /// The gate whose page nobody sees.
    pub gate_alone: Vec<f64>,
    /// The gate with one viewer.
    pub gate_viewed: Vec<f64>,
    /// The browser's processes on an empty page.
    pub browser_empty: Vec<f64>,
    /// The browser's processes on the gate's page.
    pub browser_viewing: Vec<f64>,
}

/// Runs the experiment.
///
/// # Errors
/// If something doesn't start, or a statement fails.
pub async fn run(options: &Options, display: &Display) -> Result<Costs, Error> {
    display.now("starting a server and a gate");
    let cpu = options.server_cpu;
    let start = move || {
        let authentication = Authentication::Trust;
        let server =
            PrivateServer::start(&PrivateServerOptions { authentication, cpu, ..Default::default() })?;
        let keys = [("connections", "4".to_owned()), ("types_max", TYPES_MAX.to_string())]
            .map(|(key, value)| (key.to_owned(), value));
        let gate = Gatekeeper::start(server.port(), &keys)?;
        Ok((server, gate))
    };
    let (server, gate) = blocking(start).await?;
    let target = Target::parse(&server.dsn_through(gate.port()))?;
    let ends = Arc::new(AtomicBool::new(false));
    let mut load = JoinSet::new();
    for number in 0..CLIENTS {
        load.spawn(send(target.clone(), number, *options, Arc::clone(&ends)));
    }
    display.now(format!("until {} types are known", options.types));
    until_known(&gate, &mut load, options.types).await?;
    let costs = alternate(options.rounds, &[options.window * 5 / 4; 2], async |turn, left| {
        display.now(format!("windows of {:?}: {left:.0?} to go", options.window));
        let url = format!("http://127.0.0.1:{}/", gate.admin_port());
        count(gate.pid(), (turn.variant == 1).then_some(url), options.window).await
    })
    .await?;
    ends.store(true, Ordering::Relaxed);
    while let Some(client) = load.join_next().await {
        client.map_err(|error| Error::Experiment(format!("a client was aborted: {error}")))??;
    }
    let [alone, viewed] = [&costs[0], &costs[1]].map(|turns| turns.iter().copied().unzip());
    Ok(Costs {
        gate_alone: alone.0,
        browser_empty: alone.1,
        gate_viewed: viewed.0,
        browser_viewing: viewed.1,
    })
}

/// One client: uses its part of the types once as fast as it can, and then in turn at the rate.
async fn send(target: Target, number: usize, options: Options, ends: Arc<AtomicBool>) -> Result<(), Error> {
    let client = target.connect().await?;
    let mut ticks = interval(Duration::from_secs(1) * CLIENTS as u32 / options.rate as u32);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    for at in (number..).step_by(CLIENTS) {
        if at >= options.types {
            ticks.tick().await;
        }
        let text = format!("SELECT 1 AS {}", name(at % options.types));
        client.simple_query(&text).await.map_err(Error::database(text))?;
        if ends.load(Ordering::Relaxed) {
            break;
        }
    }
    Ok(())
}

/// A name of letters: names that differ in digits may be one of many tables alike.
fn name(number: usize) -> String {
    format!("{number:04}").bytes().map(|digit| char::from(digit - b'0' + b'a')).collect()
}

/// Waits until the gate knows all types.
async fn until_known(
    gate: &Gatekeeper,
    load: &mut JoinSet<Result<(), Error>>,
    types: usize,
) -> Result<(), Error> {
    let known = async {
        // The first few may be of another type: what a driver asks when it connects.
        while gatekeeper::types_known(gate.admin_port()).is_none_or(|known| known < types as u64) {
            sleep(Duration::from_millis(200)).await;
        }
    };
    tokio::select! {
        known = tokio::time::timeout(KNOWN_BOUND, known) => known.map_err(|_| {
            Error::Experiment(format!("the gate didn't know {types} types within {KNOWN_BOUND:?}"))
        }),
        Some(ended) = load.join_next() => match ended {
            Ok(Err(error)) => Err(error),
            ended => Err(Error::Experiment(format!("a client ended: {ended:?}"))),
        },
    }
}

/// Per cent of a core that the gate and a browser take, which shows the page at `url` or an empty one.
async fn count(gate: u32, url: Option<String>, window: Duration) -> Result<(f64, f64), Error> {
    let is_viewed = url.is_some();
    let open = move || {
        let mut page = Page::open(url.as_deref().unwrap_or("about:blank"), WINDOW)?;
        if is_viewed {
            page.until("document.body.dataset.ready === 'yes'")?;
        }
        page.quiet()?;
        Ok(page)
    };
    let mut page = blocking(open).await?;
    sleep(window / 4).await;
    let (of_gate, of_browser) = (CpuMeter::start(&[gate]), CpuMeter::start(&descendants(page.pid())));
    sleep(window).await;
    let used = (of_gate.share() * 100.0, of_browser.share() * 100.0);
    if is_viewed {
        // Still there, and live.
        let is_live = "document.querySelector('#link').textContent === 'live'";
        blocking(move || Ok(page.until(is_live)?)).await?;
    }
    Ok(used)
}

impl Costs {
    /// The figures, with a verdict computed from them.
    pub fn text(&self) -> String {
        let show = |values: &[f64]| spread(Rounds::of(values), |value| format!("{value:.2}"));
        let more: Vec<f64> =
            self.gate_viewed.iter().zip(&self.gate_alone).map(|(with, without)| with - without).collect();
        let [browser, gate] = [&self.browser_viewing, &more].map(|values| percentile(values, 0.5));
        let reached = if browser <= GOAL && gate <= GOAL { "reached" } else { "missed" };
        paragraph(&format!(
            "The gate takes {} % of a core with nobody, {} % with a viewer: {} % more.",
            show(&self.gate_alone),
            show(&self.gate_viewed),
            show(&more)
        )) + &paragraph(&format!(
            "The viewer's browser takes {} % of a core, all its processes together; on an empty page {} %.",
            show(&self.browser_viewing),
            show(&self.browser_empty)
        )) + &paragraph(&format!("Goal: at most {GOAL} % of a core each for one viewer: {reached}."))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_verdict_is_of_both() {
        let report = |gate: f64, browser: f64| Costs {
            gate_alone: vec![10.0, 12.0],
            gate_viewed: vec![10.0 + gate, 12.0 + gate],
            browser_empty: vec![0.1; 2],
            browser_viewing: vec![browser; 2],
        };
        assert!(report(0.9, 0.9).text().contains("reached"));
        assert!(report(1.1, 0.9).text().contains("missed") && report(0.9, 1.1).text().contains("missed"));
    }

    #[test]
    fn names_differ_and_have_no_digits() {
        let names: std::collections::BTreeSet<String> = (0..TYPES_MAX).map(name).collect();
        assert_eq!(names.len(), TYPES_MAX);
        assert!(names.iter().all(|name| name.bytes().all(|byte| byte.is_ascii_lowercase())));
    }
}
