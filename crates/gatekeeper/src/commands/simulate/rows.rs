//! Every request of a run as CSV, for whatever else one wants to know. Times are in seconds.

use std::fs::File;
use std::io::{self, BufWriter, Write as _};
use std::path::Path;

use sim::{Outcome, Run, Scenario};

/// Writes a row for each request.
pub(super) fn write(path: &Path, scenario: &Scenario, run: &Run) -> io::Result<()> {
    let mut file = BufWriter::new(File::create(path)?);
    writeln!(
        file,
        "type,source,client,attempt,outcome,reason,arrived,dispatched,ended,service_time,upstream_time"
    )?;
    let names: Vec<_> = scenario.types.iter().map(|kind| quoted(&kind.name)).collect();
    for row in &run.rows {
        let (outcome, reason) = match row.outcome {
            Outcome::Completed => ("completed", ""),
            Outcome::Rejected(reason) => ("rejected", reason.as_str()),
            Outcome::TimedOut => ("timed_out", ""),
            Outcome::CutOff | Outcome::Pending => ("cut_off", ""),
        };
        let dispatched = row.dispatched.map_or(String::new(), |at| seconds(at.as_nanos()));
        writeln!(
            file,
            "{},{},{},{},{outcome},{reason},{},{dispatched},{},{},{}",
            names[row.kind as usize],
            row.source + 1,
            row.client,
            row.attempt,
            seconds(row.arrived.as_nanos()),
            seconds(row.ended.as_nanos()),
            seconds(row.service_time.as_nanos()),
            seconds(u64::try_from(row.upstream_time().as_nanos()).unwrap_or(u64::MAX)),
        )?;
    }
    file.flush()
}

/// To the nanosecond.
fn seconds(nanos: u64) -> String {
    format!("{}.{:09}", nanos / 1_000_000_000, nanos % 1_000_000_000)
}

/// Quotes a name for CSV if it has a comma, a quote or a line break.
fn quoted(name: &str) -> String {
    if name.contains([',', '"', '\n', '\r']) {
        format!("\"{}\"", name.replace('"', "\"\""))
    } else {
        name.to_owned()
    }
}
