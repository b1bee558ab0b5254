//! What the scheduler costs: the processor time of a gate for each response, with an uplink that is never the
//! bottleneck, and without one. The clients want more than the gate can do, so that its processor is the
//! bottleneck: what it answers each second shows whether a gate that finds a rate takes that for its link's.

use std::time::Duration;

use serde::Serialize;

use crate::Error;
use crate::alternate::Display;
use crate::blocking::blocking;
use crate::gatekeeper::Gatekeeper;
use crate::http::{ClosedRun, Nginx, NginxRole, closed, write_files};
use crate::table::count;
use crate::turns::{Flags, Row};

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

/// What the gates are called.
const NAMES: [&str; 3] = ["without an uplink", "with one", "with one that is found"];

/// One gate in one round.
#[derive(Clone, Copy, Debug, Serialize)]
struct Cost {
    /// Processor time for each response, in seconds.
    time: f64,
    /// Responses a second.
    rate: f64,
}

const ROWS: &[Row<Cost>] = &[
    Row::compared(
        "processor time of the gate for each",
        |cost| cost.time,
        |time| format!("{:.1} µs", time * 1e6),
    ),
    Row::compared("responses a second", |cost| cost.rate, count),
];

/// Compares them in turns.
pub(super) async fn measure(rounds: usize, options: &Flags, display: &Display) -> Result<String, Error> {
    let cpu = options.cpu;
    let mut report = options.report("srpt-cost", &NAMES, ROWS)?;
    let (files, origin, gates) = blocking(move || {
        let files = tempfile::tempdir().map_err(Error::io("creating a temporary directory"))?;
        write_files(files.path(), &SIZES)?;
        let origin = Nginx::start(&NginxRole::Files(files.path().to_owned()), None)?;
        let start = |keys: &[_]| Gatekeeper::start_http(origin.port(), keys, cpu);
        let gates = [start(GATES[0])?, start(GATES[1])?, start(GATES[2])?];
        Ok((files, origin, gates))
    })
    .await?;
    for size in SIZES {
        let request = format!("GET /{size} HTTP/1.1\r\nHost: site.example\r\n\r\n").into_bytes();
        let name = format!("responses of {size} bytes");
        report
            .measure(&name, (rounds, TIMES[0] + TIMES[1]), display, async |at| {
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
    }
    blocking(move || {
        drop((gates, origin, files));
        Ok(())
    })
    .await?;
    Ok(report.table())
}
