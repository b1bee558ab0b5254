//! `bench run viewer` from its command line.

use std::process::Command;

#[test]
fn gate_and_browser_are_counted_with_a_viewer_and_without() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_bench"));
    command.args(["run", "viewer", "--types", "30", "--rate", "50", "--rounds", "1", "--window", "1"]);
    let told = command.output().expect("it runs");
    let (text, errors) = (String::from_utf8_lossy(&told.stdout), String::from_utf8_lossy(&told.stderr));
    assert!(told.status.success(), "{errors}");
    assert!(text.contains("of a core with nobody") && text.contains("Goal: at most 1 %"), "{text}");
    // A browser can't show the page for nothing.
    assert!(!text.contains("The viewer's browser takes 0.00 %"), "{text}");
}
