//! Whatever a file holds, it is a world or a list of errors, and no panic.

use config::{Origin, effective, parse};
use proptest::prelude::*;

fn check(text: &str) -> Result<(), TestCaseError> {
    match parse(Origin::File("g.toml".into()), text) {
        Ok(world) => {
            let again = parse(Origin::CommandLine, &effective(&world));
            prop_assert_eq!(again.as_ref(), Ok(&world), "{}", effective(&world));
        }
        Err(errors) => {
            prop_assert!(!errors.list.is_empty());
            prop_assert!(!errors.to_string().is_empty());
        }
    }
    Ok(())
}

/// A key of a gate, or nearly.
fn key() -> impl Strategy<Value = String> {
    let known = prop::sample::select(config::GATE).prop_map(|field| field.key.to_owned());
    prop_oneof![9 => known, 1 => "[a-z_]{1,12}"]
}

/// A value that some key might take, or anything else that is TOML, or nothing that is.
fn value() -> impl Strategy<Value = String> {
    const WORDS: &[&str] = &[
        "\"fifo\"",
        "\"none\"",
        "\"auto\"",
        "\"1s\"",
        "\"250ms\"",
        "\"0s\"",
        "\"ewma\"",
        "\"db:5432\"",
        "\"/run\"",
        "\"[::1]:1\"",
        "true",
        "0",
        "1",
        "20",
        "-1",
        "0.5",
        "inf",
        "nan",
        "1e400",
        "0xff",
        "[]",
        "{}",
        "2026-01-01",
        "99999999999999999999",
        "\"ü@\"",
        "'''\n'''",
    ];
    prop_oneof![9 => prop::sample::select(WORDS).prop_map(str::to_owned), 1 => "\\PC{0,12}"]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn any_text_is_answered(text in any::<String>()) {
        check(&text)?;
    }

    #[test]
    fn any_gate_is_answered(lines in prop::collection::vec((key(), value()), 0..6), upstream in any::<bool>()) {
        let mut text = String::from("[[gate]]\n");
        if upstream {
            text += "upstream = \"db:5432\"\n";
        }
        for (key, value) in lines {
            text += &format!("{key} = {value}\n");
        }
        check(&text)?;
    }

    #[test]
    fn any_flags_are_answered(flags in prop::collection::vec((prop::sample::select(config::GATE), any::<String>()), 0..4)) {
        let flags: Vec<_> = flags.into_iter().map(|(field, value)| (field.key, value)).collect();
        if let Err(errors) = config::from_flags(&flags, None) {
            prop_assert!(!errors.to_string().is_empty());
        }
    }
}
