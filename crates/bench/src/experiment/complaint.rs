//! What is wrong with a plan: file, line, key, why, and what to write instead.

use std::fmt;
use std::path::{Path, PathBuf};

use toml::de::{DeTable, DeValue};

/// One thing that is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Complaint {
    /// The line, from 1; none if it is nowhere in the text.
    pub line: Option<usize>,
    /// The key with the tables around it, such as `short.clients`; empty if it is none.
    pub key: String,
    /// What is wrong.
    pub why: String,
    /// What to do.
    pub hint: Option<String>,
}

/// All that is wrong with one plan. Shown as a line for each: `plan.toml:7: short.clients: is empty; write
/// …`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Complaints {
    /// The plan's file.
    pub file: PathBuf,
    /// In order of the lines. Never empty.
    pub list: Vec<Complaint>,
}

impl std::error::Error for Complaints {}

impl fmt::Display for Complaints {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, complaint) in self.list.iter().enumerate() {
            if index > 0 {
                writeln!(formatter)?;
            }
            write!(formatter, "{}:", self.file.display())?;
            if let Some(line) = complaint.line {
                write!(formatter, "{line}:")?;
            }
            if !complaint.key.is_empty() {
                write!(formatter, " {}:", complaint.key)?;
            }
            write!(formatter, " {}", complaint.why)?;
            if let Some(hint) = &complaint.hint {
                write!(formatter, "; {hint}")?;
            }
        }
        Ok(())
    }
}

impl Complaints {
    /// What the reader of TOML said, with a hint where a key is only spelled wrong.
    pub(super) fn of_text(file: &Path, text: &str, error: &toml::de::Error) -> Self {
        let span = error.span();
        let line = span.as_ref().map(|span| line_of(text, span.start));
        let said = error.message().lines().next().unwrap_or_default();
        let (key, why, hint) = match quoted(said, "unknown field ")
            .or_else(|| quoted(said, "unknown variant "))
        {
            Some(unknown) => {
                let known: Vec<&str> = said.split('`').skip(3).step_by(2).collect();
                let what =
                    if said.starts_with("unknown field") { "there is no such key" } else { "isn't known" };
                (unknown.to_owned(), what.to_owned(), nearest(unknown, &known))
            }
            None => match quoted(said, "missing field ") {
                Some(missing) => (missing.to_owned(), "is missing".to_owned(), None),
                None => {
                    let key = span.and_then(|span| key_before(text, span.start)).unwrap_or_default();
                    (key, said.to_owned(), None)
                }
            },
        };
        Self { file: file.to_owned(), list: vec![Complaint { line, key, why, hint }] }
    }
}

/// Gathers complaints about a text that could be read.
pub(super) struct Judge<'a> {
    text: &'a str,
    table: Option<DeTable<'a>>,
    list: Vec<Complaint>,
}

impl<'a> Judge<'a> {
    pub(super) fn new(text: &'a str) -> Self {
        let table = DeTable::parse(text).ok().map(toml::Spanned::into_inner);
        Self { text, table, list: Vec::new() }
    }

    /// Notes what is wrong with the key at this path; numbers in it are places in lists.
    pub(super) fn complain(&mut self, path: &str, why: impl Into<String>, hint: Option<&str>) {
        let line = self.table.as_ref().and_then(|table| locate(table, path)).map(|at| line_of(self.text, at));
        let (key, why, hint) = (path.to_owned(), why.into(), hint.map(str::to_owned));
        self.list.push(Complaint { line, key, why, hint });
    }

    /// All of it, if there is any.
    pub(super) fn verdict(mut self, file: &Path) -> Result<(), Complaints> {
        self.list.sort_by_key(|complaint| complaint.line);
        if self.list.is_empty() { Ok(()) } else { Err(Complaints { file: file.to_owned(), list: self.list }) }
    }
}

/// Where the deepest part of a path stands that is there.
fn locate(table: &DeTable<'_>, path: &str) -> Option<usize> {
    let mut steps = path.split('.');
    let mut value = table.get(steps.next()?)?;
    for step in steps {
        let below = match value.get_ref() {
            DeValue::Table(table) => table.get(step),
            DeValue::Array(list) => step.parse::<usize>().ok().and_then(|index| list.get(index)),
            _ => None,
        };
        let Some(below) = below else { break };
        value = below;
    }
    Some(value.span().start)
}

fn line_of(text: &str, byte: usize) -> usize {
    text.as_bytes()[..byte.min(text.len())].iter().filter(|byte| **byte == b'\n').count() + 1
}

/// The key on the line of this byte.
fn key_before(text: &str, byte: usize) -> Option<String> {
    let line = text.lines().nth(line_of(text, byte) - 1)?;
    line.split_once('=').map(|(key, _)| key.trim().to_owned())
}

/// What stands in backticks behind a beginning.
fn quoted<'a>(said: &'a str, beginning: &str) -> Option<&'a str> {
    said.strip_prefix(beginning)?.strip_prefix('`')?.split('`').next()
}

/// What may have been meant.
pub(super) fn nearest(unknown: &str, known: &[&str]) -> Option<String> {
    let lower = unknown.to_ascii_lowercase();
    let distance = |candidate: &&&str| strsim::damerau_levenshtein(&lower, candidate);
    let nearest = known.iter().min_by_key(distance)?;
    // A third of the letters may be wrong: more is another word.
    if distance(&nearest) <= (nearest.len() / 3).max(1) {
        return Some(format!("did you mean `{nearest}`?"));
    }
    Some(format!("known: {}", known.join(", ")))
}
