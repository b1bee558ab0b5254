//! A link with an origin and perhaps a gate on its one side, and clients on the other.

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

use sim::uplink::{Download, Second};
use testbed::first_timeout::FirstTimeout;
use testbed::link::{Link, Properties, SERVER, UPLINK};
use testbed::process::resident_memory;
use tokio::time::{MissedTickBehavior, interval};

use super::PATIENCE;
use super::case::{BITS, By, Setup, Variant};
use crate::Error;
use crate::blocking::blocking;
use crate::gatekeeper::{Gatekeeper, uplink_rate};
use crate::http::{Beyond, Habits, OpenRun, OpenRuns, Origin, Request};

/// Packets in a band of the link's queue, as in the paper.
const QUEUE: u32 = 100;
/// Most connections of all clients together.
const CONNECTIONS_MAX: usize = 20_000;

/// What was seen while requests were served.
#[derive(Clone, Debug, Default)]
pub(super) struct Seen {
    /// The state after each second.
    pub(super) seconds: Vec<Second>,
    /// The memory of the gate after each second, in bytes; empty without a gate.
    pub(super) memory: Vec<u64>,
    /// Packets that found the link's queue full.
    pub(super) dropped: u64,
}

/// Keys of a gate in which no request waits before the origin: the order of bytes is compared, not admission.
const NO_ADMISSION: [(&str, &str); 3] =
    [("capacity", "\"none\""), ("long_limit", "\"none\""), ("connections", "600")];

/// The link and the servers. They end in this order: gate, origin, link.
#[derive(Debug)]
pub(super) struct Testbed {
    gate: Option<Gatekeeper>,
    origin: Origin,
    _first_timeout: Option<FirstTimeout>,
    pub(super) link: Link,
}

impl Testbed {
    /// Blocks.
    pub(super) fn start(variant: Variant, setup: Setup, cpu: Option<usize>) -> Result<Self, Error> {
        let link =
            Link::new(Properties { bits: BITS, queue: QUEUE, segment: setup.segment(), wan: setup.wan() })?;
        let first_timeout = setup.first_timeout().map(|time| FirstTimeout::set(&link, time)).transpose()?;
        if let By::Kernel { bands: bands @ "htb", .. } = variant.by {
            link.replace_queues(&Gatekeeper::bands_of(UPLINK, BITS, bands)?)?;
        }
        let keys = match variant.by {
            By::Nobody => None,
            By::Gate { order, rate } => Some(vec![("egress", order), ("uplink", rate)]),
            // The link has the queues of `pfifo_fast` already.
            By::Kernel { bands, .. } => Some(vec![("uplink", bands)]),
        };
        let start = || -> Result<_, Error> {
            let origin = Origin::start_on(Ipv4Addr::UNSPECIFIED, None)?;
            let Some(keys) = keys else { return Ok((origin, None)) };
            let keys: Vec<_> = keys.into_iter().map(|(key, value)| (key, format!("\"{value}\""))).collect();
            let mut keys: Vec<_> = keys.iter().map(|(key, value)| (*key, value.as_str())).collect();
            keys.extend(NO_ADMISSION);
            let gate = Gatekeeper::start_http_on(Ipv4Addr::UNSPECIFIED, origin.port(), &keys, cpu)?;
            Ok((origin, Some(gate)))
        };
        let (origin, gate) = link.server().inside(|| Ok(start()))??;
        Ok(Self { gate, origin, _first_timeout: first_timeout, link })
    }

    fn port(&self) -> u16 {
        self.gate.as_ref().map_or(self.origin.port(), Gatekeeper::port)
    }

    /// The rate of the uplink in bits per second, if the gate has found one.
    pub(super) fn rate_found(&self) -> Result<Option<f64>, Error> {
        let Some(gate) = &self.gate else { return Ok(None) };
        Ok(self.link.server().inside(|| Ok(uplink_rate(gate.admin_port())))?)
    }

    /// The requests, to be sent over the link at their times.
    pub(super) fn requests(&self, setup: Setup, requests: &[Download]) -> OpenRun {
        let due = |(number, request): (usize, &Download)| Request {
            due: request.at,
            request_type: 0,
            bytes: number,
        };
        let written = |request: &Download| {
            format!("GET /{} HTTP/1.1\r\nHost: site.example\r\n\r\n", request.bytes).into_bytes()
        };
        let mut measured = vec![self.origin.pid()];
        measured.extend(self.gate.as_ref().map(Gatekeeper::pid));
        OpenRun {
            address: (SERVER, self.port()).into(),
            inside: Some(self.link.clients().clone()),
            habits: Habits { reuse: Some(setup.reuse()), retries: setup.retries() },
            requests: Arc::new(requests.iter().enumerate().map(due).collect()),
            bytes: Arc::new(requests.iter().map(written).collect()),
            patience: setup.patience().unwrap_or(PATIENCE),
            connections_max: CONNECTIONS_MAX,
            beyond: Beyond::Waits,
            measured,
        }
    }

    /// Looks at everything once a second, without end.
    async fn watch(&self, seen: &mut Seen) -> Result<(), Error> {
        let mut ticks = interval(Duration::from_secs(1));
        ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
        ticks.tick().await;
        loop {
            ticks.tick().await;
            let state = self.link.state(self.port())?;
            let second = Second {
                connections: state.connections,
                waiting: state.half_open,
                refused: state.refused,
                dropped: 0,
                sent: state.sent,
            };
            seen.seconds.push(second);
            if let Some(gate) = &self.gate {
                seen.memory.push(resident_memory(gate.pid())?);
            }
        }
    }
}

/// Sends the requests over a new link.
pub(super) async fn play(
    variant: Variant,
    setup: Setup,
    requests: &Arc<Vec<Download>>,
    cpu: Option<usize>,
) -> Result<(OpenRuns, Seen), Error> {
    let testbed = blocking(move || Testbed::start(variant, setup, cpu)).await?;
    let run = testbed.requests(setup, requests);
    let mut seen = Seen::default();
    let outcome = tokio::select! {
        outcome = run.run() => outcome?,
        failed = testbed.watch(&mut seen) => {
            failed?;
            return Err(Error::Experiment("nobody watches the link any more".to_owned()));
        }
    };
    seen.dropped = testbed.link.dropped()?;
    blocking(move || {
        drop(testbed);
        Ok(())
    })
    .await?;
    Ok((outcome, seen))
}
