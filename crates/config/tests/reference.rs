//! The reference pages on disk are what the code generates.

use std::path::Path;

fn check(name: &str, generated: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference").join(name);
    if std::env::var_os("UPDATE_REFERENCE").is_some() {
        std::fs::write(&path, generated).expect("the page can be written");
    }
    let on_disk = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        on_disk == generated,
        "docs/reference/{name} is out of date: run `UPDATE_REFERENCE=1 cargo test -p config --test reference`"
    );
}

#[test]
fn the_reference_page_is_up_to_date() {
    check("config.md", &config::reference());
}

#[test]
fn the_reference_page_of_scenarios_is_up_to_date() {
    check("scenario.md", &config::scenario_reference());
}
