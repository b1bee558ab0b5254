//! `gatekeeper simulate` as a black box.

#![expect(clippy::unwrap_used, reason = "a helper of tests fails like a test")]

use std::fs;
use std::path::Path;
use std::process::Command;

use tempfile::TempDir;

const SCENARIO: &str = r#"
[scenario]
duration = "40s"
warm_up = "5s"
seeds = 2

[[type]]
name = "read"
service_time = "lognormal 1ms cv 0.5"

[[type]]
name = "report, long"
service_time = "lognormal 60ms cv 0.5"

[[source]]
utilization = 0.8
mix = { read = 95, "report, long" = 5 }

[[gate]]
name = "default"
"#;

/// Exit status, standard output, standard error.
fn simulate(directory: &Path, args: &[&str]) -> (i32, String, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_gatekeeper"));
    let output = command.arg("simulate").args(args).current_dir(directory).env_clear().output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (output.status.code().unwrap(), text(output.stdout), text(output.stderr))
}

fn with_scenario(text: &str) -> TempDir {
    let directory = TempDir::new().unwrap();
    fs::write(directory.path().join("s.toml"), text).unwrap();
    directory
}

#[test]
fn gates_are_shown_side_by_side_and_the_same_whatever_the_threads() {
    let directory = with_scenario(SCENARIO);
    let (code, table, said) = simulate(directory.path(), &["s.toml", "--threads", "1"]);
    assert_eq!((code, said.as_str()), (0, ""));
    for expected in ["without a gate", "default", "read", "report, long", "35 s measured, 2 seeds", "trace "]
    {
        assert!(table.contains(expected), "{expected}:\n{table}");
    }
    assert!(table.lines().all(|line| line.chars().count() <= 100), "\n{table}");
    let guess = "a service that shares 1 core: a guess, so name them (`cores` in [upstream])\n\ngate ";
    assert!(table.starts_with(guess), "{table}");
    assert_eq!(simulate(directory.path(), &["s.toml", "--threads", "3"]), (0, table, String::new()));
}

#[test]
fn the_first_line_names_the_service() {
    for (upstream, line) in [
        ("cores = 2", "a service that shares 2 cores"),
        ("cores = 1\nservice = \"fifo\"", "a service of 1 server"),
        ("[sweep]\ncores = [1, 2]", "a service that shares as many cores as each line says"),
    ] {
        let text = SCENARIO.replace("40s", "10s").replace("utilization = 0.8", "rate = 50");
        let directory = with_scenario(&format!("{text}\n[upstream]\n{upstream}\n"));
        let (code, table, said) = simulate(directory.path(), &["s.toml"]);
        assert_eq!((code, table.lines().next()), (0, Some(line)), "{said}");
    }
}

#[test]
fn the_plot_and_the_rows_go_where_they_are_wanted() {
    let directory = with_scenario(SCENARIO);
    let (code, table, _) = simulate(directory.path(), &["s.toml", "--output", "out/here", "--rows"]);
    assert_eq!(code, 0);
    assert!(table.contains("plot: out/here/plot.svg"), "{table}");
    let output = directory.path().join("out/here");
    let plot = fs::read_to_string(output.join("plot.svg")).unwrap();
    assert!(plot.contains("<svg") && plot.contains("Mean response time"));
    for name in ["rows-without-a-gate-1.csv", "rows-without-a-gate-2.csv", "rows-default-1.csv"] {
        let rows = fs::read_to_string(output.join(name)).unwrap();
        assert!(rows.starts_with("type,source,client,attempt,outcome,reason,arrived,dispatched,ended,"));
        let first = rows.lines().nth(1).unwrap();
        assert_eq!(first.replace("\"report, long\"", "report").split(',').count(), 11, "{first}");
        assert!(rows.lines().count() > 1_000 && rows.contains("\"report, long\",1,0,0,completed,,"));
    }
}

#[test]
fn what_is_wrong_is_said_with_its_line_and_the_exit_is_2() {
    let directory = with_scenario(&SCENARIO.replace("seeds = 2", "seed = \"x\""));
    let (code, table, said) = simulate(directory.path(), &["s.toml"]);
    assert_eq!((code, table.as_str()), (2, ""));
    assert!(said.starts_with("s.toml:5: scenario: seed = \"x\": a string isn't a whole number"), "{said}");
}

#[test]
fn a_service_that_stands_still_is_said_and_the_exit_is_1() {
    let directory = with_scenario(&format!("{SCENARIO}\n[upstream]\nspeed = [[\"10s\", 0]]\n"));
    let (code, table, said) = simulate(directory.path(), &["s.toml"]);
    assert_eq!((code, table.as_str()), (1, ""));
    assert!(said.contains("requests never end: the service stands still"), "{said}");
}
