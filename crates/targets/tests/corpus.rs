//! What the fuzzer kept, through the same functions: it covers every branch that was ever reached, in
//! seconds.

use std::fs;
use std::path::{Path, PathBuf};

use targets::TARGETS;

/// The most that is kept of one target, in bytes: the repository is no place for more.
const CORPUS_BYTES_MAX: usize = 512 * 1024;
/// The most inputs that are kept of one target: some thirty reach all branches, the rest are mended findings.
const INPUTS_MAX: usize = 60;
/// The block of a tar archive, in bytes.
const BLOCK: usize = 512;

fn corpus() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus")
}

/// The inputs of a tar archive, by name: a header of one block for each, then the input in whole blocks.
fn inputs(archive: &[u8]) -> Vec<(String, &[u8])> {
    let mut inputs = Vec::new();
    let mut rest = archive;
    while rest.first().is_some_and(|&first| first != 0) {
        let (header, behind) = rest.split_at(BLOCK);
        assert_eq!(&header[257..262], b"ustar", "a header of a tar archive");
        let text = |range| String::from_utf8_lossy(&header[range]).trim_end_matches(['\0', ' ']).to_owned();
        let length = usize::from_str_radix(&text(124..136), 8).expect("a length is an octal number");
        inputs.push((text(0..100), &behind[..length]));
        rest = &behind[length.next_multiple_of(BLOCK)..];
    }
    inputs
}

#[test]
fn everything_that_was_kept_is_borne() {
    for (name, target) in TARGETS {
        let archive = fs::read(corpus().join(format!("{name}.tar")))
            .unwrap_or_else(|error| panic!("{name}: no corpus: {error}"));
        let inputs = inputs(&archive);
        assert!(!inputs.is_empty(), "{name}: the corpus is empty");
        assert!(inputs.len() <= INPUTS_MAX, "{name}: {} inputs are too many to keep", inputs.len());
        let mut bytes = 0;
        for (input, data) in inputs {
            bytes += data.len();
            if std::panic::catch_unwind(|| target(data)).is_err() {
                panic!("{name} doesn't bear {input}");
            }
        }
        assert!(bytes <= CORPUS_BYTES_MAX, "{name}: {bytes} bytes are too much to keep");
    }
}

#[test]
fn every_corpus_and_every_fuzz_target_is_one_of_the_targets() {
    let entries = fs::read_dir(corpus()).expect("the directory is there");
    let names = entries.map(|entry| entry.expect("it can be read").file_name());
    let mut archives: Vec<String> = names
        .map(|name| name.into_string().expect("names are Unicode"))
        .map(|name| name.strip_suffix(".tar").expect("nothing else lies here").to_owned())
        .collect();
    archives.sort();
    let manifest = fs::read_to_string(corpus().join("../Cargo.toml")).expect("it can be read");
    let binary = |part: &str| Some(part.trim().strip_prefix("name = \"")?.split('"').next()?.to_owned());
    let mut binaries: Vec<String> = manifest.split("[[bin]]").skip(1).filter_map(binary).collect();
    binaries.sort();
    let mut known: Vec<&str> = TARGETS.iter().map(|(name, _)| *name).collect();
    known.sort_unstable();
    assert_eq!(archives, known);
    assert_eq!(binaries, known);
}
