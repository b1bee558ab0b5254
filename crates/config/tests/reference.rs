//! The reference pages on disk are what the code generates.

use std::path::Path;

fn check(name: &str, generated: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(name);
    if std::env::var_os("UPDATE_REFERENCE").is_some() {
        std::fs::write(&path, generated).expect("the page can be written");
    }
    let on_disk = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        on_disk == generated,
        "{name} is out of date: run `UPDATE_REFERENCE=1 cargo test -p config --test reference`"
    );
}

#[test]
fn the_reference_page_is_up_to_date() {
    check("docs/reference/config.md", &config::reference());
}

#[test]
fn the_schema_is_up_to_date() {
    check("docs/reference/config.schema.json", &config::schema());
}

#[test]
fn the_example_with_every_key_is_up_to_date_and_right() {
    let example = config::example();
    check("packaging/gatekeeper.toml", &example);
    let parsed = config::parse(config::Origin::CommandLine, &example);
    assert_eq!(parsed.expect("it is a configuration").gates.len(), 1);
    for field in config::GATE.iter().chain(config::ADMIN).chain(config::LOG) {
        let is_told = config::is_of_laboratory(field.key)
            || field.form == config::Form::Tables
            || example
                .lines()
                .any(|line| line.trim_start_matches("# ").starts_with(&format!("{} =", field.key)));
        assert!(is_told, "{} isn't told", field.key);
    }
}
