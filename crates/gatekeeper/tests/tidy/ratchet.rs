//! Rules that some files still break. `offenders.txt` lists what each of them may break, and why it stays so:
//! `rule count what | reason`. The list may only shrink. `TIDY_WRITE=1 cargo test -p gatekeeper --test tidy`
//! writes it anew when something was cured, and keeps the reasons.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::path::Path;

use regex::Regex;

/// The longest comment line, in columns.
const COMMENT_COLUMNS: usize = 110;
/// The longest header of a file, in lines.
const HEADER_LINES: usize = 25;
/// In how many files a type may have `impl` blocks of its own.
const IMPL_FILES: usize = 3;
/// How many booleans a struct may have.
const BOOLEANS: usize = 4;
/// Beginnings of a doc comment that can't be understood without the one before.
const LEANING: [&str; 12] = [
    "The same",
    "But ",
    "And ",
    "So many",
    "So much",
    "…",
    "Likewise",
    "As ",
    "Who ",
    "That ",
    "Of them",
    "Those of them",
];
/// Beginnings of a function's comment that name the subject in the comment before, if at all.
const PRONOUNS: [&str; 2] = ["It ", "They "];
/// Endings that make no other noun of a file's name.
const ENDINGS: [&str; 4] = ["s", "ed", "er", "ing"];

/// What breaks a rule, and how often: by rule, and by a path or a name.
type Offenders = BTreeMap<(String, String), usize>;
/// What the list allows: how often, and for which reason.
type Allowed = BTreeMap<(String, String), (usize, String)>;

#[test]
fn what_breaks_the_rules_of_the_ratchet_only_gets_less() {
    let found = offenders();
    let list = super::repository().join("crates/gatekeeper/tests/tidy/offenders.txt");
    let allowed = std::fs::read_to_string(&list).expect("the list is there");
    let allowed: Allowed = allowed.lines().filter_map(read).collect();
    if std::env::var_os("TIDY_WRITE").is_some() {
        let mut text = String::new();
        for (offender @ (rule, what), count) in &found {
            let reason = allowed.get(offender).map_or("", |(_, reason)| reason);
            let line = format!("{rule} {count} {what} | {reason}");
            writeln!(text, "{}", line.trim_end()).expect("a string takes all");
        }
        std::fs::write(&list, text).expect("the list is written");
        return;
    }
    let mut problems = String::new();
    for ((rule, what), count) in &found {
        let most = allowed.get(&(rule.clone(), what.clone())).map_or(0, |(most, _)| *most);
        if *count > most {
            writeln!(problems, "{what}: {rule}, {count} times; at most {most}").expect("a string takes all");
        }
    }
    for ((rule, what), (most, reason)) in &allowed {
        if reason.is_empty() {
            writeln!(problems, "{what}: {rule}, without a reason behind `|`").expect("a string takes all");
        }
        let count = found.get(&(rule.clone(), what.clone())).copied().unwrap_or(0);
        if count < *most {
            writeln!(problems, "{what}: {rule}, {count} times and no longer {most}; write the list anew")
                .expect("a string takes all");
        }
    }
    assert!(problems.is_empty(), "\n{problems}");
}

fn read(line: &str) -> Option<((String, String), (usize, String))> {
    let (offender, reason) = line.split_once('|').unwrap_or((line, ""));
    let mut words = offender.trim_end().splitn(3, ' ');
    let (rule, count, what) = (words.next()?, words.next()?, words.next()?);
    Some(((rule.to_owned(), what.to_owned()), (count.parse().ok()?, reason.trim().to_owned())))
}

fn offenders() -> Offenders {
    let paths: Vec<_> = super::sources().into_iter().filter(|path| super::is_rust(path)).collect();
    let texts: Vec<_> = paths
        .iter()
        .map(|path| std::fs::read_to_string(super::repository().join(path)).expect("a source is UTF-8"))
        .collect();
    let files: Vec<_> =
        paths.iter().map(std::path::PathBuf::as_path).zip(texts.iter().map(String::as_str)).collect();
    let mut found = Offenders::new();
    let mut note = |rule: &str, what: String, count: usize| {
        if count > 0 {
            found.insert((rule.to_owned(), what), count);
        }
    };
    for (path, text) in &files {
        let name = || path.display().to_string();
        note("wide-comment", name(), wide_comments(text));
        note("leaning-comment", name(), leaning_comments(text));
        let header = text.lines().take_while(|line| line.starts_with("//!")).count();
        note("long-header", name(), if header > HEADER_LINES { header } else { 0 });
        for (of, count) in booleans(text) {
            note("booleans", format!("{}: {of}", path.display()), count);
        }
    }
    for (of, count) in scattered(&files) {
        note("scattered-impl", of, count);
    }
    for member in super::circles::members(&files) {
        note("import-circle", member, 1);
    }
    for path in alike(&paths.iter().map(std::path::PathBuf::as_path).collect()) {
        note("names-alike", path, 1);
    }
    found
}

fn wide_comments(text: &str) -> usize {
    let is_wide = |line: &&str| line.trim_start().starts_with("//") && line.chars().count() > COMMENT_COLUMNS;
    text.lines().filter(is_wide).count()
}

fn leaning_comments(text: &str) -> usize {
    let (mut before, mut is_open) = ("", false);
    let mut count = 0;
    for line in text.lines().map(str::trim_start) {
        let begins = |openings: &[&str]| openings.iter().any(|opening| line[4..].starts_with(opening));
        if line.starts_with("/// ") && !before.starts_with("///") {
            count += usize::from(begins(&LEANING));
            is_open = begins(&PRONOUNS);
        } else if !line.starts_with("///") && !line.starts_with("#[") {
            let is_function = line.split_whitespace().any(|word| word == "fn");
            count += usize::from(is_open && is_function);
            is_open = false;
        }
        before = line;
    }
    count
}

/// Structs with too many booleans.
fn booleans(text: &str) -> Vec<(String, usize)> {
    let block = Regex::new(r"(?s)struct (\w+)[^;{(]*\{(.*?)\n\s*\}").expect("a pattern");
    let boolean = Regex::new(r":\s*bool\b").expect("a pattern");
    let counted =
        block.captures_iter(text).map(|found| (found[1].to_owned(), boolean.find_iter(&found[2]).count()));
    counted.filter(|(_, count)| *count > BOOLEANS).collect()
}

/// Types with `impl` blocks in too many files. A file that declares a type of the name counts for its own:
/// of all of them together one counts.
fn scattered(files: &[(&Path, &str)]) -> Vec<(String, usize)> {
    let block = Regex::new(r"(?m)^impl(?:<[^{]*?>)?\s+([A-Z]\w*)(?:<[^{]*?>)?\s*(?:where[^{]*)?\{")
        .expect("a pattern");
    let mut holders: BTreeMap<String, (BTreeSet<&Path>, bool)> = BTreeMap::new();
    for (path, text) in files {
        let name = path.to_string_lossy();
        let Some((root, _)) = name.split_once("/src/") else { continue };
        for found in block.captures_iter(text) {
            let declares = ["struct", "enum"].iter().any(|kind| declares(text, kind, &found[1]));
            let (others, is_declared) = holders.entry(format!("{root}: {}", &found[1])).or_default();
            if declares {
                *is_declared = true;
            } else {
                others.insert(path);
            }
        }
    }
    holders
        .into_iter()
        .map(|(of, (others, is_declared))| (of, others.len() + usize::from(is_declared)))
        .filter(|(_, count)| *count > IMPL_FILES)
        .collect()
}

/// Whether a file declares a type of this name: `struct Gate<` or `enum Gate {`, not `struct Gates`.
fn declares(text: &str, kind: &str, name: &str) -> bool {
    let declaration = format!("{kind} {name}");
    text.split(&declaration)
        .skip(1)
        .filter_map(|rest| rest.chars().next())
        .any(|next| !next.is_alphanumeric() && next != '_')
}

/// Files and folders whose names differ from a neighbor's by an ending only.
fn alike(paths: &BTreeSet<&Path>) -> Vec<String> {
    let stems: BTreeSet<_> = paths.iter().map(|path| path.with_extension("")).collect();
    let longer = |stem: &&std::path::PathBuf| {
        let name = stem.to_string_lossy();
        ENDINGS
            .iter()
            .any(|ending| name.strip_suffix(ending).is_some_and(|short| stems.contains(Path::new(short))))
    };
    stems.iter().filter(longer).map(|stem| stem.display().to_string()).collect()
}

#[test]
fn an_entry_of_the_list_has_a_reason_in_a_column_of_its_own() {
    let entry = |reason: &str| (("booleans".to_owned(), "a.rs: Gate".to_owned()), (6, reason.to_owned()));
    assert_eq!(read("booleans 6 a.rs: Gate | it | is so"), Some(entry("it | is so")));
    assert_eq!(read("booleans 6 a.rs: Gate |"), Some(entry("")));
    assert_eq!(read("booleans 6 a.rs: Gate"), Some(entry("")));
}

#[test]
fn each_rule_finds_what_breaks_it() {
    let wide = format!("    // {}\n    let code = {};\n", "x".repeat(COMMENT_COLUMNS), "1 + ".repeat(40));
    assert_eq!(wide_comments(&wide), 1);
    assert_eq!(leaning_comments("/// A gate.\n/// The same line goes on.\n\n/// The same for a pool.\n"), 1);
    assert_eq!(
        leaning_comments("/// It ends.\nA,\n\n/// It ends.\n#[must_use]\npub(crate) fn end() {}\n"),
        1
    );
    let four = "a: bool,\n    b: bool,\n    c: bool,\n    d: bool,\n";
    let text = format!("struct Few {{\n    {four}}}\n\nstruct Many<T> {{\n    {four}    e: bool,\n}}\n");
    assert_eq!(booleans(&text), [("Many".to_owned(), 5)]);
    let files: Vec<_> = ["a", "b", "c", "d"].map(|name| format!("k/src/{name}.rs")).into();
    let files: Vec<_> = files
        .iter()
        .map(|file| (Path::new(file), "impl<T: Ord> Gate<T> {\n}\nimpl Ord for Gate {}\n"))
        .collect();
    assert_eq!(scattered(&files), [("k: Gate".to_owned(), 4)]);
    assert!(scattered(&files[..3]).is_empty());
    let own: Vec<_> =
        files.iter().map(|(path, _)| (*path, "pub struct Gate<T>(T);\nimpl<T> Gate<T> {\n}\n")).collect();
    assert!(scattered(&own).is_empty(), "types of one name, each in its own file");
    assert_eq!(
        alike(&[Path::new("a/long.rs"), Path::new("a/longs.rs"), Path::new("b/longs.rs")].into()),
        ["a/longs"]
    );
}
