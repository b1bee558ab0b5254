//! The reference page on disk is what the code generates.

use std::path::Path;

#[test]
fn the_reference_page_is_up_to_date() {
    let generated = scenario::reference();
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference/scenario.md");
    if std::env::var_os("UPDATE_REFERENCE").is_some() {
        std::fs::write(&path, &generated).expect("the page can be written");
    }
    let on_disk = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        on_disk == generated,
        "docs/reference/scenario.md is out of date: run `UPDATE_REFERENCE=1 cargo test -p scenario --test reference`"
    );
}
