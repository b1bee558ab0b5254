//! What one viewer of the page costs: processor time of the gate and of the viewer's browser, with many types
//! of which each second uses some.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use clap::{Args, value_parser};
use serde::Serialize;
use testbed::browser::Page;
use testbed::postgres::{Authentication, PrivateServer, PrivateServerOptions};
use testbed::process::descendants;
use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval, sleep};

use crate::Error;
use crate::alternate::Display;
use crate::blocking::blocking;
use crate::gatekeeper::{self, Gatekeeper};
use crate::load::{CpuMeter, Target};
use crate::stats::percentile;
use crate::table::paragraph;
use crate::turns::{self, Row, Section};

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

/// Flags of `bench run viewer`.
#[derive(Clone, Debug, Args)]
pub struct Options {
    /// Types of requests
    #[arg(long, default_value_t = TYPES_MAX as u32, value_parser = value_parser!(u32).range(1..=TYPES_MAX as i64))]
    types: u32,
    /// Statements a second
    #[arg(long, default_value_t = 1_000, value_parser = value_parser!(u32).range(1..=10_000))]
    rate: u32,
    /// What all experiments without a plan have.
    #[command(flatten)]
    pub turns: turns::Flags,
}

/// One window: per cent of a core.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Costs {
    /// The gate.
    gate: f64,
    /// All processes of a browser that shows its page, or an empty one.
    browser: f64,
}

const ROWS: &[Row<Costs>] = &[
    Row::new("the gate, % of a core", |costs| costs.gate, |part| format!("{part:.2}")),
    Row::new("the browser, all its processes", |costs| costs.browser, |part| format!("{part:.2}")),
];

/// Runs the experiment.
///
/// # Errors
/// If something doesn't start, or a statement fails.
pub async fn run(options: &Options, display: &Display) -> Result<String, Error> {
    display.now("starting a server and a gate");
    let cpu = options.turns.cpu;
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
        load.spawn(send(target.clone(), number, options.clone(), Arc::clone(&ends)));
    }
    display.now(format!("until {} types are known", options.types));
    until_known(&gate, &mut load, options.types).await?;
    let window = options.turns.window(20.0);
    let mut report = options.turns.report("viewer", &["nobody, an empty page", "a viewer"], ROWS)?;
    let times = (options.turns.rounds(5), window * 5 / 4);
    let url = format!("http://127.0.0.1:{}/", gate.admin_port());
    let section = report
        .measure("", times, display, async |turn| {
            count(gate.pid(), (turn.variant == 1).then(|| url.clone()), window).await
        })
        .await?;
    let judged = verdict(section);
    ends.store(true, Ordering::Relaxed);
    while let Some(client) = load.join_next().await {
        client.map_err(|error| Error::Experiment(format!("a client was aborted: {error}")))??;
    }
    Ok(report.table() + "\n" + &paragraph(&judged))
}

/// One client: uses its part of the types once as fast as it can, and then in turn at the rate.
async fn send(target: Target, number: usize, options: Options, ends: Arc<AtomicBool>) -> Result<(), Error> {
    let client = target.connect().await?;
    let mut ticks = interval(Duration::from_secs(1) * CLIENTS as u32 / options.rate);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let types = options.types as usize;
    for at in (number..).step_by(CLIENTS) {
        if at >= types {
            ticks.tick().await;
        }
        let text = format!("SELECT 1 AS {}", name(at % types));
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
    types: u32,
) -> Result<(), Error> {
    let known = async {
        // The first few may be of another type: what a driver asks when it connects.
        while gatekeeper::types_known(gate.admin_port()).is_none_or(|known| known < u64::from(types)) {
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
async fn count(gate: u32, url: Option<String>, window: Duration) -> Result<Costs, Error> {
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
    let costs = Costs { gate: of_gate.share() * 100.0, browser: of_browser.share() * 100.0 };
    if is_viewed {
        // Still there, and live.
        let is_live = "document.querySelector('#link').textContent === 'live'";
        blocking(move || Ok(page.until(is_live)?)).await?;
    }
    Ok(costs)
}

fn verdict(section: &Section<Costs>) -> String {
    let [nobody, viewed] = [0, 1].map(|variant| section.figures(variant, |costs| costs.gate));
    let more: Vec<f64> = viewed.iter().zip(nobody).map(|(with, without)| with - without).collect();
    let gate = percentile(&more, 0.5);
    let browser = percentile(&section.figures(1, |costs| costs.browser), 0.5);
    let reached = if browser <= GOAL && gate <= GOAL { "reached" } else { "missed" };
    format!(
        "For one viewer the gate takes {gate:.2} % of a core more, and the viewer's browser {browser:.2} %. Goal: at most {GOAL} % of a core each: {reached}."
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_verdict_is_of_both() {
        let said = |gate: f64, browser: f64| {
            let costs = |gate, browser| vec![Costs { gate, browser }; 2];
            verdict(&Section {
                name: String::new(),
                turns: vec![costs(10.0, 0.1), costs(10.0 + gate, browser)],
            })
        };
        assert!(said(0.9, 0.9).contains("reached"));
        assert!(said(1.1, 0.9).contains("missed") && said(0.9, 1.1).contains("missed"));
    }

    #[test]
    fn names_differ_and_have_no_digits() {
        let names: std::collections::BTreeSet<String> = (0..TYPES_MAX).map(name).collect();
        assert_eq!(names.len(), TYPES_MAX);
        assert!(names.iter().all(|name| name.bytes().all(|byte| byte.is_ascii_lowercase())));
    }
}
