//! What was measured, a line of JSON for each turn: on the disk before the next begins.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::turn::Turned;
use super::variant::{Setting, Variant};
use crate::Error;
use crate::files::{append_lines, read_lines};

/// How far below the most goodput that of the best setting may be.
const NEAR: f64 = 0.95;

/// What decides about figures; the first line.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
pub(super) struct Header {
    /// How long the calm before each step is, in seconds.
    pub(super) calm: f64,
    /// How long steps are, in seconds.
    pub(super) step: f64,
    /// How long those are with which settings are tried.
    pub(super) tried: f64,
    /// What arrivals are drawn from.
    pub(super) seed: u64,
    /// What is tried, by variant.
    pub(super) tries: Vec<String>,
}

/// A line.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Line {
    /// The first.
    Header(Header),
    /// What the origin can do.
    Peak {
        /// In processors.
        work: f64,
    },
    /// A setting was tried.
    Tried { variant: String, setting: String, turned: Turned },
    /// A turn.
    Turn {
        variant: String,
        load: f64,
        round: usize,
        /// Of what: a peer's setting, the gatekeeper's binary.
        of: String,
        turned: Turned,
    },
}

/// What was found when the book was opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Opened {
    New,
    /// With so many lines.
    Continued(usize),
    /// Another experiment's, which is kept beside it.
    Replaced,
}

impl Opened {
    pub(super) fn says(self, path: &Path) -> Option<String> {
        match self {
            Self::New => None,
            Self::Continued(lines) => Some(format!("going on: {lines} figures are measured already")),
            Self::Replaced => Some(format!(
                "{} was measured otherwise: beginning anew (it is kept as {})",
                path.display(),
                before(path).display()
            )),
        }
    }
}

fn before(path: &Path) -> PathBuf {
    path.with_extension("jsonl.before")
}

/// All lines, and where they are.
#[derive(Debug)]
pub(super) struct Book {
    path: PathBuf,
    lines: Vec<Line>,
}

impl Book {
    /// Opens the book at this path, or begins it.
    ///
    /// # Errors
    /// If it can't be read or written, or holds something else.
    pub(super) fn open(path: &Path, header: &Header) -> Result<(Self, Opened), Error> {
        let failed = |action: &str| Error::io(format!("{action} {}", path.display()));
        let lines = match read_lines(path) {
            Ok(text) => parse(path, &text)?,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Vec::new(),
            Err(error) => return Err(failed("reading")(error)),
        };
        let measured = lines.len().saturating_sub(1);
        let mut book = Self { path: path.to_owned(), lines };
        let opened = match book.lines.first() {
            Some(Line::Header(found)) if found == header => return Ok((book, Opened::Continued(measured))),
            None => Opened::New,
            Some(_) => {
                fs::rename(path, before(path)).map_err(failed("renaming"))?;
                book.lines.clear();
                Opened::Replaced
            }
        };
        if let Some(directory) = path.parent() {
            fs::create_dir_all(directory).map_err(failed("making the directory of"))?;
        }
        book.write(Line::Header(header.clone()))?;
        Ok((book, opened))
    }

    /// Writes a line.
    ///
    /// # Errors
    /// If it can't be written.
    pub(super) fn write(&mut self, line: Line) -> Result<(), Error> {
        let failed = || Error::io(format!("writing to {}", self.path.display()));
        let text = serde_json::to_string(&line).map_err(std::io::Error::from).map_err(failed())?;
        let mut file = append_lines(&self.path).map_err(failed())?;
        file.write_all(format!("{text}\n").as_bytes()).and_then(|()| file.sync_data()).map_err(failed())?;
        self.lines.push(line);
        Ok(())
    }

    /// What the origin can do, if that was measured.
    pub(super) fn peak(&self) -> Option<f64> {
        self.lines.iter().find_map(|line| match line {
            Line::Peak { work } => Some(*work),
            _ => None,
        })
    }

    /// What a setting gave when it was tried.
    pub(super) fn tried(&self, name: &str, wanted: Setting) -> Option<&Turned> {
        let wanted = wanted.to_string();
        self.lines.iter().find_map(|line| match line {
            Line::Tried { variant, setting, turned } if variant == name && *setting == wanted => Some(turned),
            _ => None,
        })
    }

    /// The best setting of a peer, once any was tried.
    pub(super) fn best(&self, variant: &Variant) -> Option<Setting> {
        let settings = variant.settings().iter();
        let tried: Vec<(Setting, &Turned)> =
            settings.filter_map(|setting| Some((*setting, self.tried(variant.name, *setting)?))).collect();
        let most = tried.iter().map(|(_, turned)| turned.goodput).fold(0.0, f64::max);
        tried
            .into_iter()
            .filter(|(_, turned)| turned.goodput >= NEAR * most)
            .min_by(|(_, one), (_, other)| one.short_mean.total_cmp(&other.short_mean))
            .map(|(setting, _)| setting)
    }

    /// What a turn gave.
    pub(super) fn turn(&self, name: &str, at: f64, number: usize, whose: &str) -> Option<&Turned> {
        self.lines.iter().find_map(|line| match line {
            Line::Turn { variant, load, round, of, turned }
                if variant == name && *load == at && *round == number && of == whose =>
            {
                Some(turned)
            }
            _ => None,
        })
    }
}

fn parse(path: &Path, text: &str) -> Result<Vec<Line>, Error> {
    let line = |(number, line): (usize, &str)| {
        serde_json::from_str(line).map_err(|error| {
            let at = format!("{}:{}", path.display(), number + 1);
            Error::Experiment(format!(
                "{at}: isn't a line of figures ({error}); move the file away to begin anew"
            ))
        })
    };
    text.lines().enumerate().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::super::turn::tests::turned;
    use super::super::variant::called;
    use super::*;

    fn header(seed: u64) -> Header {
        Header { calm: 8.0, step: 1.0, tried: 1.0, seed, tries: vec!["a".to_owned()] }
    }

    #[test]
    fn the_best_setting_is_the_fastest_of_those_that_serve_nearly_the_most() {
        let directory = tempfile::tempdir().unwrap();
        let (mut book, _) = Book::open(&directory.path().join("turns.jsonl"), &header(1)).unwrap();
        let variant = called("HAProxy")[0];
        assert_eq!(book.best(&variant), None);
        // Fastest, but it serves hardly anybody; the most goodput, but slow; nearly as much, and faster.
        for (number, figures) in [(0, (0.5, 0.001)), (1, (1.0, 0.9)), (2, (0.96, 0.2)), (3, (0.95, 0.3))] {
            let setting = variant.settings()[number].to_string();
            let turned = turned(figures.0, figures.1);
            book.write(Line::Tried { variant: variant.name.to_owned(), setting, turned }).unwrap();
        }
        assert_eq!(book.best(&variant), Some(variant.settings()[2]));
        assert_eq!(book.best(&called("nginx")[0]), None);
    }

    #[test]
    fn a_book_is_gone_on_with_and_another_is_kept() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("results").join("turns.jsonl");
        let (mut book, opened) = Book::open(&path, &header(1)).unwrap();
        assert_eq!((opened, opened.says(&path)), (Opened::New, None));
        book.write(Line::Peak { work: 0.9 }).unwrap();
        // The next line was cut off.
        fs::write(&path, fs::read_to_string(&path).unwrap() + "{\"turn\":").unwrap();
        let (mut book, opened) = Book::open(&path, &header(1)).unwrap();
        assert_eq!((opened, book.peak()), (Opened::Continued(1), Some(0.9)));
        book.write(Line::Turn {
            variant: "gate".to_owned(),
            load: 3.0,
            round: 0,
            of: "1".to_owned(),
            turned: turned(1.0, 0.1),
        })
        .unwrap();
        let (book, _) = Book::open(&path, &header(1)).unwrap();
        assert_eq!(book.turn("gate", 3.0, 0, "1"), Some(&turned(1.0, 0.1)));
        assert_eq!(book.turn("gate", 3.0, 0, "2"), None);
        let (book, opened) = Book::open(&path, &header(2)).unwrap();
        assert_eq!((opened, book.peak()), (Opened::Replaced, None));
        assert!(before(&path).is_file());
        fs::write(&path, "{}\n").unwrap();
        let said = Book::open(&path, &header(2)).unwrap_err().to_string();
        assert!(said.contains("turns.jsonl:1: isn't a line of figures"), "{said}");
    }
}
