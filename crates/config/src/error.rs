//! What is wrong with a configuration: where, which key, why, and what to write instead.

use std::fmt;
use std::path::PathBuf;

/// The most errors that are listed; the rest are only counted.
const ERRORS_LISTED_MAX: usize = 100;
/// The longest value that is quoted, in characters.
const VALUE_CHARS_MAX: usize = 60;

/// Where a configuration came from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// A file.
    File(PathBuf),
    /// Flags; errors then name flags.
    CommandLine,
}

/// A place in the text, both counted from 1; the column in characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Position {
    /// The line.
    pub line: usize,
    /// The character in the line.
    pub column: usize,
}

impl Position {
    /// The place of a byte of `text`; the end, if it lies beyond.
    pub fn of(text: &str, byte: usize) -> Self {
        let bytes = &text.as_bytes()[..byte.min(text.len())];
        let line_start = bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |newline| newline + 1);
        let line = bytes.iter().filter(|byte| **byte == b'\n').count() + 1;
        let column = String::from_utf8_lossy(&bytes[line_start..]).chars().count() + 1;
        Self { line, column }
    }
}

/// One thing that is wrong.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Error {
    /// Where, if it is in the text.
    pub position: Option<Position>,
    /// In which section, such as `gate "shop"`; empty at the top.
    pub section: String,
    /// Which key.
    pub key: Option<String>,
    /// Its value as written, cut where it is long and blanked where it may hold a secret.
    pub value: Option<String>,
    /// What is wrong.
    pub why: String,
    /// What to do.
    pub hint: Option<String>,
}

impl Error {
    /// An error with a reason only.
    pub fn new(why: impl Into<String>) -> Self {
        Self { why: why.into(), ..Self::default() }
    }

    fn write_in_file(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.section.is_empty() {
            write!(formatter, "{}: ", self.section)?;
        }
        match (&self.key, &self.value) {
            (Some(key), Some(value)) => write!(formatter, "{key} = {value}: "),
            (Some(key), None) => write!(formatter, "{key}: "),
            _ => Ok(()),
        }
    }

    fn write_as_flag(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(key) = &self.key else { return Ok(()) };
        let flag = if self.section == "admin" { "admin".to_owned() } else { key.replace('_', "-") };
        match &self.value {
            Some(value) => write!(formatter, "--{flag} {value}: "),
            None => write!(formatter, "--{flag}: "),
        }
    }
}

/// Everything that is wrong with one configuration. Shown as a line for each error: `gatekeeper.toml:7:
/// gate "shop": queue_timeout = 120: needs a unit; write "120ms", "120s" or "120m", as you mean it`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct Errors {
    /// Where the configuration came from.
    pub origin: Origin,
    /// The errors in the order of the text. Never empty.
    pub list: Vec<Error>,
}

impl Errors {
    /// These errors, in the order of the text.
    pub fn new(origin: Origin, mut list: Vec<Error>) -> Self {
        list.sort_by_key(|error| error.position);
        Self { origin, list }
    }

    /// A single error.
    pub fn one(origin: Origin, error: Error) -> Self {
        Self { origin, list: vec![error] }
    }
}

impl fmt::Display for Errors {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, error) in self.list.iter().take(ERRORS_LISTED_MAX).enumerate() {
            if index > 0 {
                writeln!(formatter)?;
            }
            match &self.origin {
                Origin::CommandLine => error.write_as_flag(formatter)?,
                Origin::File(path) => {
                    write!(formatter, "{}:", path.display())?;
                    if let Some(Position { line, .. }) = error.position {
                        write!(formatter, "{line}:")?;
                    }
                    write!(formatter, " ")?;
                    error.write_in_file(formatter)?;
                }
            }
            write!(formatter, "{}", error.why)?;
            if let Some(hint) = &error.hint {
                write!(formatter, "; {hint}")?;
            }
        }
        match self.list.len().checked_sub(ERRORS_LISTED_MAX) {
            None | Some(0) => Ok(()),
            Some(more) => write!(formatter, "\nand {more} more"),
        }
    }
}

/// A value as it is quoted in an error.
pub(crate) fn quoted(value: &str) -> String {
    let line = value.lines().next().unwrap_or_default();
    if line.chars().count() <= VALUE_CHARS_MAX && line.len() == value.trim_end().len() {
        line.to_owned()
    } else {
        line.chars().take(VALUE_CHARS_MAX).chain(['…']).collect()
    }
}
