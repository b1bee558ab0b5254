//! The reference page on disk is what the declarations generate.

use std::path::Path;

#[test]
fn the_page_of_metrics_is_up_to_date() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference/metrics.md");
    let generated = proxy::metrics::reference();
    if std::env::var_os("UPDATE_REFERENCE").is_some() {
        std::fs::write(&path, &generated).unwrap();
    }
    let on_disk = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        on_disk == generated,
        "docs/reference/metrics.md is out of date: run `UPDATE_REFERENCE=1 cargo test -p proxy --test reference`"
    );
}
