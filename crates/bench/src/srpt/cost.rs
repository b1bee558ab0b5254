//! What the scheduler costs: the processor time of a gate for each response, with an uplink that is never the
//! bottleneck, and without one. The clients want more than the gate can do, so that its processor is the
//! bottleneck: what it answers each second shows whether a gate that finds a rate takes that for its link's.

use std::time::Duration;

use serde::Serialize;

use crate::Error;
use crate::alternate::{Display, Turn, alternate};
use crate::blocking::blocking;
use crate::gatekeeper::Gatekeeper;
use crate::http::{ClosedRun, Nginx, NginxRole, closed, write_files};
use crate::stats::Rounds;

/// Sizes of responses, in bytes.
const SIZES: [usize; 2] = [1_024, 102_400];
/// Clients, each with a connection that it keeps.
const CONNECTIONS: usize = 64;
/// How long clients ask before anything is counted, and how long is counted.
const TIMES: [Duration; 2] = [Duration::from_millis(500), Duration::from_secs(2)];
/// The gates' keys: off, with a rate that is told, and with one that is found.
const GATES: [&[(&str, &str)]; 3] = [
    &[],
    &[("uplink", "\"100Gbit\""), ("egress", "\"srpt\"")],
    &[("uplink", "\"auto\""), ("egress", "\"srpt\"")],
];

/// One gate in one round.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Cost {
    /// Processor time for each response, in seconds.
    pub time: f64,
    /// Responses a second.
    pub rate: f64,
}

/// What each gate costs.
#[derive(Clone, Debug, Serialize)]
pub struct Costs {
    /// By size: bytes, then by gate (off, told, found), then by round.
    pub sizes: Vec<(usize, [Vec<Cost>; 3])>,
}

impl Costs {
    /// A figure of each round.
    pub fn rounds(gate: &[Cost], figure: fn(&Cost) -> f64) -> Rounds {
        Rounds::of(&gate.iter().map(figure).collect::<Vec<_>>())
    }

    /// A figure of one gate over that of another, of each round.
    pub fn ratios(off: &[Cost], on: &[Cost], figure: fn(&Cost) -> f64) -> Rounds {
        Rounds::of(&off.iter().zip(on).map(|(off, on)| figure(on) / figure(off)).collect::<Vec<_>>())
    }
}

/// Compares them in turns.
pub(super) async fn measure(rounds: usize, cpu: Option<usize>, display: &Display) -> Result<Costs, Error> {
    let (files, origin, gates) = blocking(move || {
        let files = tempfile::tempdir().map_err(Error::io("creating a temporary directory"))?;
        write_files(files.path(), &SIZES)?;
        let origin = Nginx::start(&NginxRole::Files(files.path().to_owned()), None)?;
        let start = |keys: &[_]| Gatekeeper::start_http(origin.port(), keys, cpu);
        let gates = [start(GATES[0])?, start(GATES[1])?, start(GATES[2])?];
        Ok((files, origin, gates))
    })
    .await?;
    let mut sizes = Vec::new();
    for size in SIZES {
        let request = format!("GET /{size} HTTP/1.1\r\nHost: site.example\r\n\r\n").into_bytes();
        let expected = [TIMES[0] + TIMES[1]; GATES.len()];
        let costs = alternate(rounds, &expected, async |at: Turn, left| {
            display.now(format!("processor time for {size} bytes: {left:.0?} to go"));
            let gate = &gates[at.variant];
            let run = ClosedRun {
                port: gate.port(),
                requests: vec![request.clone()],
                status: 200,
                connections: CONNECTIONS,
                warm_up: TIMES[0],
                window: TIMES[1],
                measured: vec![gate.pid()],
            };
            closed(run).await.map(|counted| Cost { time: counted.cost, rate: counted.rate })
        })
        .await?;
        let costs = <[Vec<Cost>; GATES.len()]>::try_from(costs)
            .map_err(|_| Error::Experiment("there are three gates".to_owned()))?;
        sizes.push((size, costs));
    }
    blocking(move || {
        drop((gates, origin, files));
        Ok(())
    })
    .await?;
    Ok(Costs { sizes })
}
