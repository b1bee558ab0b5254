//! `gatekeeper types`: the learned table of a running gatekeeper, readable at 100 columns.

use proxy::admin::{GateTypes, TimesReport, TypeReport, TypesReport};

use crate::Failure;
use crate::cli::TypesArgs;
use crate::commands::running::asked;
use crate::commands::table::{cut, lines, plain, time};
use crate::remote::{Remote, block_on, is_name};

/// The longest label that is shown, in characters: what the other columns leave of 100.
const LABEL_CHARS_MAX: usize = 30;

/// From so many executions on, what was learned of a type is more than a first guess.
const KNOWN: u64 = 32;

/// The table, or the JSON as it came.
pub(crate) fn types(args: &TypesArgs) -> Result<String, Failure> {
    let remote = asked(&args.admin)?;
    let answer = ask(&remote, args)?;
    if args.json {
        return Ok(answer + "\n");
    }
    let report: TypesReport = serde_json::from_str(&answer)
        .map_err(|error| Failure::Runtime(format!("{remote} doesn't answer like a gatekeeper: {error}")))?;
    let tables: Vec<_> = report.gates.iter().map(table).collect();
    Ok(tables.join("\n"))
}

fn ask(remote: &Remote, args: &TypesArgs) -> Result<String, Failure> {
    let path = match &args.gate {
        Some(gate) if !is_name(gate) => return Err(Failure::Usage(format!("there is no gate {gate:?}"))),
        Some(gate) => format!("/types?gate={gate}"),
        None => "/types".to_owned(),
    };
    let answer = block_on(remote.get(&path))?;
    if answer.status.is_success() {
        Ok(answer.body)
    } else if answer.status.as_u16() == 404
        && args.gate.is_some()
        && answer.body.starts_with("there is no gate")
    {
        Err(Failure::Usage(answer.body.trim_end().to_owned()))
    } else {
        Err(Failure::Runtime(format!("{remote} answers {}", answer.status)))
    }
}

fn table(gate: &GateTypes) -> String {
    let observing = if gate.mode == "observe" {
        ", observing: waits and refusals are what they would have been"
    } else {
        ""
    };
    let mut text = format!("gate {}{observing}\n", gate.gate);
    if gate.types.is_empty() {
        text += "no requests yet\n";
        return text;
    }
    let mut table = plain();
    table.set_header([
        "type", "lane", "count", "work", "share", "up p50", "p95", "wait p50", "p95", "refused",
    ]);
    for row in &gate.types {
        table.add_row(cells(row));
    }
    text += &lines(&mut table, 2);
    if gate.types.iter().any(|row| row.samples < KNOWN) {
        text += "~ learned from fewer than 32 requests so far: a first guess\n";
    }
    text
}

fn cells(row: &TypeReport) -> Vec<String> {
    let TimesReport { p50_seconds: up_p50, p95_seconds: up_p95, .. } = row.upstream_time;
    let TimesReport { p50_seconds: wait_p50, p95_seconds: wait_p95, .. } = row.queue_wait;
    let counts = &row.requests;
    let guess = if row.samples < KNOWN { "~" } else { "" };
    let completed =
        counts.succeeded_total + counts.failed_total + counts.conflicted_total + counts.canceled_total;
    vec![
        cut(&row.label, LABEL_CHARS_MAX),
        row.lane.clone(),
        completed.to_string(),
        format!("{guess}{}", time(row.work_seconds)),
        format!("{guess}{:.1}%", row.work_share * 100.0),
        time(up_p50),
        time(up_p95),
        time(wait_p50),
        time(wait_p95),
        row.requests.rejected_total.to_string(),
    ]
}

#[cfg(test)]
mod tests {
    use proxy::admin::CountsReport;

    use super::*;

    fn row(label: &str, share: f64) -> TypeReport {
        let times = TimesReport { count: 9, mean_seconds: 120.0, p50_seconds: 120.5, p95_seconds: 0.0125 };
        let requests = CountsReport {
            succeeded_total: 1_234_567_890,
            rejected_total: 100_000,
            ..CountsReport::default()
        };
        TypeReport {
            label: label.to_owned(),
            id: String::new(),
            lane: "variable".to_owned(),
            work_seconds: 0.0125,
            work_share: share,
            variation: None,
            modes: Vec::new(),
            samples: 1,
            in_flight: 0,
            queued: 0,
            target: None,
            requests,
            upstream_time: times,
            queue_wait: times,
            asked_by: Vec::new(),
        }
    }

    #[test]
    fn the_table_fits_into_100_columns_and_long_labels_are_cut() {
        let long = format!("SELECT\n{}", "x ".repeat(200));
        let gate = GateTypes {
            gate: "shop".to_owned(),
            mode: "enforce".to_owned(),
            types: vec![row(&long, 1.0), row("ümlaut", 0.001)],
        };
        let text = table(&gate);
        assert!(text.lines().all(|line| line.chars().count() <= 100), "\n{text}");
        assert_eq!(text.lines().count(), 5, "\n{text}");
        assert!(
            text.contains(" ~12ms ~100.0% ")
                && text.ends_with("\n~ learned from fewer than 32 requests so far: a first guess\n"),
            "\n{text}"
        );
        assert!(text.contains("SELECT x x x") && text.contains("… variable"), "\n{text}");
        assert!(text.contains("100.0%") && text.contains("0.1%"), "\n{text}");
    }

    #[test]
    fn what_is_known_well_is_no_guess() {
        let known = TypeReport { samples: KNOWN, ..row("known", 1.0) };
        let gate = GateTypes { gate: "shop".to_owned(), mode: "enforce".to_owned(), types: vec![known] };
        assert!(!table(&gate).contains('~'), "{}", table(&gate));
    }

    #[test]
    fn a_gate_without_requests_says_so() {
        let gate = GateTypes { gate: "shop".to_owned(), mode: "observe".to_owned(), types: Vec::new() };
        assert_eq!(
            table(&gate),
            "gate shop, observing: waits and refusals are what they would have been\nno requests yet\n"
        );
    }
}
