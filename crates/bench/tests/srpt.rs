//! `bench run srpt` from its command line.

// Helpers of tests may panic too.
#![allow(clippy::unwrap_used)]

use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Output};

use flate2::Compression;
use flate2::write::GzEncoder;

fn run_srpt(arguments: &[&str], output: &Path) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_bench"));
    command.args(["run", "srpt", "--cost-rounds", "0", "--follow-rounds", "0", "--output"]).arg(output);
    command.args(arguments).output().unwrap()
}

#[test]
fn a_trace_is_served_over_the_link_to_the_last_byte() {
    let directory = tempfile::tempdir().unwrap();
    let trace = directory.path().join("trace.csv.gz");
    let text = "t_s,bytes,status\n0,1000,200\n0.5,20000,200\n1.5,300,404\n2,5000,200\n";
    let mut packed = GzEncoder::new(fs::File::create(&trace).unwrap(), Compression::fast());
    packed.write_all(text.as_bytes()).unwrap();
    packed.finish().unwrap();
    let shown = trace.to_str().unwrap();
    let arguments =
        ["--loads", "0.3", "--seconds", "2", "--setups", "A,E2", "--only", "FAIR", "--trace", shown];
    let told = run_srpt(&arguments, directory.path());
    let errors = String::from_utf8_lossy(&told.stderr);
    if !rustix::process::geteuid().is_root() {
        assert!(errors.contains("run this as root"), "{errors}");
        return;
    }
    assert!(told.status.success(), "{errors}");
    let figures = fs::read_to_string(directory.path().join("srpt.json")).unwrap();
    let figures: serde_json::Value = serde_json::from_str(&figures).unwrap();
    let sections = figures["sections"].as_array().unwrap();
    assert_eq!(sections.len(), 2);
    for section in sections {
        let cell = &section["turns"][0][0];
        // At 0.3 of 10 Mbit/s for two seconds, responses of 8.7 KB on average are about 85.
        assert!((60..120).contains(&cell["requests"].as_u64().unwrap()), "{cell}");
        assert_eq!((cell["incomplete"].as_f64(), cell["refused"].as_u64()), (Some(0.0), Some(0)), "{cell}");
        assert!(cell["simulated"].as_f64().unwrap() > 0.0 && cell["clairvoyant"].as_f64().unwrap() > 0.0);
    }
    assert!(directory.path().join("srpt-0.3-A.svg").is_file());
}

#[test]
fn what_is_wrong_is_said() {
    let directory = tempfile::tempdir().unwrap();
    let refused = |arguments: &[&str], says: &str| {
        let told = run_srpt(arguments, directory.path());
        let errors = String::from_utf8_lossy(&told.stderr);
        assert!(!told.status.success() && errors.contains(says), "{arguments:?}: {errors}");
    };
    refused(&["--loads", "W11"], "isn't a workload");
    refused(&["--setups", "F9s"], "seconds from 0.1 to 10");
    refused(&["--only", "LIFO"], "there is no variant `LIFO`");
    refused(&["--trace", "/nowhere"], "reading /nowhere");
    let trace = directory.path().join("trace.csv.gz");
    fs::write(&trace, [0x1f, 0x8b, 8]).unwrap();
    refused(&["--trace", trace.to_str().unwrap()], "can't be decompressed");
}
