//! Rules of the house that no other tool checks: the length of files, what each file opens with, unfinished
//! marks, trailing spaces, paths of somebody's machine; and a ratchet of rules that older files still break.

mod circles;
mod links;
mod ratchet;
mod walls;

use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

use regex::Regex;

/// The longest source file, in lines. A longer one holds two nouns.
const MAX_LINES: usize = 600;
/// Extensions of files that people write here.
const TEXT: [&str; 13] =
    ["rs", "toml", "md", "py", "go", "java", "cjs", "sql", "sh", "yml", "xml", "json", "txt"];
/// Extensions of code.
const CODE: [&str; 5] = ["rs", "py", "go", "java", "cjs"];

/// Marks of unfinished work, split so that this file doesn't hold them itself.
const UNFINISHED: [(&str, &str); 5] =
    [("TO", "DO"), ("FIX", "ME"), ("XX", "X:"), ("todo", "!("), ("unimplemented", "!(")];

/// Beginnings of absolute paths that exist on one machine only, split likewise.
const MACHINE_PATHS: [(&str, &str); 4] = [("/wo", "rk/"), ("/ho", "me/"), ("/ro", "ot/"), ("/Us", "ers/")];

fn repository() -> PathBuf {
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR"));
    manifest.ancestors().nth(2).expect("crates/gatekeeper is two levels down").to_owned()
}

/// Every file under version control, or about to be, that people write.
fn sources() -> Vec<PathBuf> {
    let output = Command::new("git")
        .args(["ls-files", "--cached", "--others", "--exclude-standard", "-z"])
        .current_dir(repository())
        .output()
        .expect("git lists the files");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let listed = String::from_utf8(output.stdout).expect("file names are Unicode");
    let written = |path: &Path| {
        // The fuzzer writes its corpus itself.
        if path.starts_with("fuzz/corpus") {
            return false;
        }
        let extension = path.extension().and_then(|extension| extension.to_str());
        extension.is_none_or(|extension| TEXT.contains(&extension))
    };
    let files: Vec<_> = listed
        .split_terminator('\0')
        .map(PathBuf::from)
        // A file may be listed and yet deleted in the working tree.
        .filter(|path| written(path) && repository().join(path).is_file())
        .collect();
    assert!(files.len() > 50, "git listed {} files only", files.len());
    files
}

/// Applies a rule to every source; the rule returns what is wrong, line by line.
fn check(rule: impl Fn(&Path, &str) -> Vec<String>) {
    let mut problems = String::new();
    for path in sources() {
        let bytes = std::fs::read(repository().join(&path)).expect("a listed file is readable");
        let text = String::from_utf8_lossy(&bytes);
        for problem in rule(&path, &text) {
            writeln!(problems, "{}: {problem}", path.display()).expect("writing to a string succeeds");
        }
    }
    assert!(problems.is_empty(), "\n{problems}");
}

fn is_rust(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "rs")
}

/// `line N: what` for each line of which the rule says so.
fn lines(text: &str, wrong: impl Fn(&str) -> Option<String>) -> Vec<String> {
    let numbered = text.lines().enumerate();
    numbered.filter_map(|(index, line)| Some(format!("line {}: {}", index + 1, wrong(line)?))).collect()
}

#[test]
fn no_source_file_is_too_long() {
    check(|path, text| {
        let code = path.extension().is_some_and(|extension| CODE.iter().any(|known| extension == *known));
        let count = text.lines().count();
        if code && count > MAX_LINES {
            vec![format!("{count} lines, at most {MAX_LINES}")]
        } else {
            Vec::new()
        }
    });
}

#[test]
fn every_rust_file_opens_with_what_it_is() {
    check(|path, text| {
        let first = text.lines().next().unwrap_or_default();
        if is_rust(path) && !first.starts_with("//! ") {
            return vec!["doesn't open with `//!`".to_owned()];
        }
        Vec::new()
    });
}

/// Fields in Rust's debug form in lines of the log that operators read.
fn debug_forms(code: &str) -> Vec<String> {
    let line = Regex::new(r#"(?s)tracing::(?:info|warn|error)!\((.*?)\);"#).expect("a pattern");
    let text = Regex::new(r#""(?:[^"\\]|\\.)*""#).expect("a pattern");
    let field = Regex::new(r"[\s(=]\?[a-z(&]").expect("a pattern");
    let bodies = line.captures_iter(code).map(|found| format!("({}", &found[1]));
    bodies.filter(|body| field.is_match(&text.replace_all(body, "\"\""))).collect()
}

#[test]
fn no_line_of_the_log_has_a_field_in_the_debug_form() {
    assert_eq!(debug_forms("tracing::warn!(gate, ?delay, \"late\");").len(), 1);
    assert_eq!(debug_forms("tracing::info!(gate = of(it)?, \"so ?or\"); tracing::debug!(?it);").len(), 0);
    check(|path, text| {
        if !is_rust(path) || path.components().any(|part| part.as_os_str() == "tests") {
            return Vec::new();
        }
        debug_forms(text).into_iter().map(|body| format!("`?` in a line of the log: {body}")).collect()
    });
}

#[test]
fn nothing_is_marked_as_unfinished() {
    check(|_, text| {
        lines(text, |line| {
            let marks = UNFINISHED.map(|(head, tail)| format!("{head}{tail}"));
            marks.into_iter().find(|mark| line.contains(mark)).map(|mark| format!("`{mark}`"))
        })
    });
}

#[test]
fn no_line_ends_with_a_space_and_every_file_ends_with_a_newline() {
    check(|_, text| {
        let mut problems =
            lines(text, |line| line.ends_with([' ', '\t', '\r']).then(|| "ends with a space".to_owned()));
        if !text.is_empty() && !text.ends_with('\n') {
            problems.push("doesn't end with a newline".to_owned());
        }
        problems
    });
}

#[test]
fn no_file_names_a_path_of_one_machine() {
    check(|_, text| {
        lines(text, |line| {
            let paths = MACHINE_PATHS.map(|(head, tail)| format!("{head}{tail}"));
            paths.into_iter().find(|path| line.contains(path)).map(|path| format!("`{path}`"))
        })
    });
}

#[test]
fn the_version_has_an_entry_in_the_changelog() {
    let changelog = std::fs::read_to_string(repository().join("CHANGELOG.md")).expect("it is there");
    let entry = format!("## [{}]", env!("CARGO_PKG_VERSION"));
    assert!(changelog.lines().any(|line| line.starts_with(&entry)), "no line begins with {entry}");
}
