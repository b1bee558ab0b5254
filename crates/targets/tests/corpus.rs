//! What the fuzzer kept, through the same functions: it covers every branch that was ever reached, in
//! seconds.

use std::fs;
use std::path::{Path, PathBuf};

use targets::TARGETS;

/// The most that is kept of one target, in bytes: the repository is no place for more.
const CORPUS_BYTES_MAX: u64 = 512 * 1024;

fn corpus() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus")
}

#[test]
fn everything_that_was_kept_is_borne() {
    for (name, target) in TARGETS {
        let mut inputs: Vec<PathBuf> = fs::read_dir(corpus().join(name))
            .unwrap_or_else(|error| panic!("{name}: no corpus: {error}"))
            .map(|entry| entry.expect("the directory can be read").path())
            .collect();
        inputs.sort();
        assert!(!inputs.is_empty(), "{name}: the corpus is empty");
        let mut bytes = 0;
        for input in inputs {
            let data = fs::read(&input).expect("the input can be read");
            bytes += data.len() as u64;
            if std::panic::catch_unwind(|| target(&data)).is_err() {
                panic!("{name} doesn't bear {}", input.display());
            }
        }
        assert!(bytes <= CORPUS_BYTES_MAX, "{name}: {bytes} bytes are too much to keep");
    }
}

#[test]
fn every_corpus_and_every_fuzz_target_is_one_of_the_targets() {
    let names = |directory: &str, ending: &str| -> Vec<String> {
        let path = corpus().join("..").join(directory);
        let entries = fs::read_dir(path).expect("the directory is there");
        let names = entries.map(|entry| entry.expect("it can be read").file_name());
        let mut names: Vec<String> = names
            .map(|name| name.into_string().expect("names are Unicode"))
            .map(|name| name.strip_suffix(ending).expect("nothing else lies here").to_owned())
            .collect();
        names.sort();
        names
    };
    let mut known: Vec<&str> = TARGETS.iter().map(|(name, _)| *name).collect();
    known.sort_unstable();
    assert_eq!(names("corpus", ""), known);
    assert_eq!(names("fuzz_targets", ".rs"), known);
}
