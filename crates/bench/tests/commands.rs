//! `bench run page` and `bench run viewer` from their command lines.

// Helpers of tests may panic too.
#![allow(clippy::unwrap_used)]

use std::fs;
use std::process::Command;

#[test]
fn a_browser_paints_all_files_beside_a_download() {
    let directory = tempfile::tempdir().unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_bench"));
    command.args(["run", "page", "--downloads", "1", "--rounds", "1", "--output"]).arg(directory.path());
    let told = command.output().unwrap();
    let errors = String::from_utf8_lossy(&told.stderr);
    if !rustix::process::geteuid().is_root() {
        assert!(errors.contains("run this as root"), "{errors}");
        return;
    }
    assert!(told.status.success(), "{errors}");
    let figures = fs::read_to_string(directory.path().join("page.json")).unwrap();
    let figures: serde_json::Value = serde_json::from_str(&figures).unwrap();
    assert_eq!(figures["variants"].as_array().unwrap().len(), 3);
    for rounds in figures["sections"][0]["turns"].as_array().unwrap() {
        let page = &rounds[0];
        let time = |name: &str| page[name].as_f64().unwrap();
        let files = page["files"].as_array().unwrap();
        assert_eq!(files.len(), 60);
        // 1.35 MB don't fit through 10 Mbit/s in less than 1.08 s.
        assert!(time("painted") > 1.08 && time("painted") >= files[59]["end"].as_f64().unwrap(), "{page}");
        assert!(time("first") > 0.0 && time("first") <= time("largest"), "{page}");
        assert!(time("downloaded") < 1_250_000.0, "{page}");
    }
    assert!(directory.path().join("page.svg").is_file());
}

#[test]
fn gate_and_browser_are_counted_with_a_viewer_and_without() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_bench"));
    command.args(["run", "viewer", "--types", "30", "--rate", "50", "--rounds", "1", "--window", "1"]);
    let directory = tempfile::tempdir().unwrap();
    command.arg("--output").arg(directory.path());
    let told = command.output().expect("it runs");
    let (text, errors) = (String::from_utf8_lossy(&told.stdout), String::from_utf8_lossy(&told.stderr));
    assert!(told.status.success(), "{errors}");
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(text.contains("the gate, % of a core") && text.contains("Goal: at most 1 %"), "{text}");
    // A browser can't show the page for nothing.
    assert!(!text.contains("the viewer's browser 0.00 %"), "{text}");
}
