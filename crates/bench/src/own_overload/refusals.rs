//! What it costs to answer a refusal, beside a request that is passed on: by the gate, and by HAProxy,
//! which shows how little that can be.

use serde::Serialize;

use super::{BUSY_CLIENTS, Options, busy};
use crate::Error;
use crate::alternate::Display;
use crate::blocking::blocking;
use crate::gatekeeper::Gatekeeper;
use crate::http::{HaProxy, HaProxyRole, Nginx, Origin, closed, hold_up, knock};
use crate::stats::Rounds;
use crate::table::{ratio, spread};

/// Processor time of each, in seconds, by round, without a quota.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Refusals {
    /// The gate passes a request on.
    pub passed: Vec<f64>,
    /// The gate answers 503.
    pub refused: Vec<f64>,
    /// HAProxy passes a request on.
    pub haproxy_passed: Vec<f64>,
    /// HAProxy answers 503 (`http-request return`).
    pub haproxy_refused: Vec<f64>,
    /// HAProxy closes a connection at once (`tcp-request connection reject`).
    pub haproxy_rejected: Vec<f64>,
}

/// What is started for it.
struct Proxies {
    passing: Gatekeeper,
    refusing: Gatekeeper,
    haproxy: [HaProxy; 3],
    stalled: Origin,
}

impl Proxies {
    fn start(origin: u16, cpu: Option<usize>) -> Result<Self, Error> {
        let stalled = Origin::start(None)?;
        let keys = [("connections", "1"), ("queue_max", "1"), ("queue_timeout", "\"1h\"")];
        let haproxy = |role| HaProxy::start(role, cpu);
        Ok(Self {
            passing: Gatekeeper::start_http(origin, &[], cpu)?,
            refusing: Gatekeeper::start_http(stalled.port(), &keys, cpu)?,
            haproxy: [
                haproxy(HaProxyRole::Proxy(origin))?,
                haproxy(HaProxyRole::Refuses)?,
                haproxy(HaProxyRole::Rejects)?,
            ],
            stalled,
        })
    }
}

/// Measures them in turns. The gate refuses because the only request that it may let in never ends, and one
/// waits already.
///
/// # Errors
/// If something doesn't start, or answers otherwise.
pub(super) async fn measure(origin: &Nginx, options: &Options, display: &Display) -> Result<Refusals, Error> {
    let (port, cpu) = (origin.port(), options.gate_cpu);
    let proxies = blocking(move || Proxies::start(port, cpu)).await?;
    // Half an hour of a processor: the origin is ended long before.
    let holding = hold_up(proxies.refusing.port(), "/long?work=1800000000").await?;
    let (mut found, window) = (Refusals::default(), options.window / 4);
    let [passes, refuses, rejects] = &proxies.haproxy;
    for round in 0..options.rounds {
        display.now(format!("what a refusal costs: round {} of {}", round + 1, options.rounds));
        let (gate, pids) = (&proxies.passing, vec![proxies.passing.pid()]);
        found.passed.push(closed(busy(gate.port(), pids, 200, window)).await?.cost);
        let (gate, pids) = (&proxies.refusing, vec![proxies.refusing.pid()]);
        found.refused.push(closed(busy(gate.port(), pids, 503, window)).await?.cost);
        found.haproxy_passed.push(closed(busy(passes.port(), passes.pids(), 200, window)).await?.cost);
        found.haproxy_refused.push(closed(busy(refuses.port(), refuses.pids(), 503, window)).await?.cost);
        let rejected = knock(rejects.port(), BUSY_CLIENTS, window, rejects.pids()).await?;
        found.haproxy_rejected.push(rejected.cost);
    }
    drop(holding);
    blocking(move || {
        let Proxies { passing, refusing, haproxy, stalled } = proxies;
        drop((passing, refusing, haproxy));
        drop(stalled);
        Ok(())
    })
    .await?;
    Ok(found)
}

impl Refusals {
    /// In words.
    pub(super) fn told(&self) -> String {
        let micros = |seconds: f64| format!("{:.1} µs", seconds * 1e6);
        let of_rounds = |rounds: &[f64]| spread(Rounds::of(rounds), micros);
        let part = |of: &[f64], whole: &[f64]| spread(Self::part(of, whole), ratio);
        let Self { passed, refused, haproxy_passed, haproxy_refused, haproxy_rejected } = self;
        format!(
            "Without a quota, a request that is passed on takes {}, a refusal that is answered {}: {} of it. HAProxy passes one \
             on for {}, answers 503 for {}, {} of it, and closes a new connection unread for {}, {} of it.",
            of_rounds(passed),
            of_rounds(refused),
            part(refused, passed),
            of_rounds(haproxy_passed),
            of_rounds(haproxy_refused),
            part(haproxy_refused, haproxy_passed),
            of_rounds(haproxy_rejected),
            part(haproxy_rejected, haproxy_passed),
        )
    }

    /// What the one costs as a part of the other, of each round.
    fn part(of: &[f64], whole: &[f64]) -> Rounds {
        Rounds::of(&of.iter().zip(whole).map(|(of, whole)| of / whole).collect::<Vec<_>>())
    }
}
