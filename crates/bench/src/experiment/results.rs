//! The results of an experiment, as lines of JSON: each cell is written when it is finished, so that an
//! interrupted experiment goes on where it was.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::busy;
use super::cell::{Cell, Measured, TypeFigures};
use super::machine::{Machine, Moment};
use super::plan::{Form, Load, OPEN_PROXIED};
use crate::Error;
use crate::files::{append_lines, read_lines};

/// What is added to the name of results that another plan takes the place of.
const REPLACED: &str = "jsonl.before";
/// How far below the most goodput that of the best setting may be.
const NEAR: f64 = 0.95;

/// One line.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Line {
    /// What it was measured with; the first line.
    Plan {
        /// What of the plan decides about figures.
        measured: Value,
        /// The gatekeeper's version, with a sum of its binary.
        gatekeeper: String,
    },
    /// A run began, or went on.
    Began {
        /// On what.
        machine: Machine,
        /// When.
        moment: Moment,
    },
    /// It came to its end.
    Ended {
        /// When.
        moment: Moment,
    },
    /// The best pool of a variant.
    Pool {
        /// Whose.
        variant: String,
        /// Each pool that was tried, with what it completed per second.
        tried: Vec<(u32, f64)>,
    },
    /// The settings of a peer.
    Tried {
        /// Whose.
        variant: String,
        /// Each one's goodput, and the mean of short pages that were let in, in seconds.
        tried: Vec<(f64, f64)>,
    },
    /// One measurement of a capacity that is looked for.
    Capacity {
        /// Whose.
        variant: String,
        /// The capacity, in seconds of work.
        seconds: f64,
        /// What was completed per second.
        throughput: f64,
        /// Whether so much of it was in flight that a larger one would make a difference.
        reached: bool,
    },
    /// What was learned of costs offline.
    Costs {
        /// For whom.
        variant: String,
        /// The file that a gate has written.
        document: String,
    },
    /// How many clients keep the server busy for a part of the time.
    KeptBusy {
        /// The part that is looked for.
        part: f64,
        /// Each number of clients, with the part for which it was busy.
        tried: Vec<(usize, f64)>,
    },
    /// What was calibrated.
    Calibrated {
        /// Each number of clients, with what they completed per second.
        tried: Vec<(usize, f64)>,
    },
    /// What a site's pages take a single visitor who doesn't think.
    Alone {
        /// Each page.
        types: Vec<TypeFigures>,
    },
    /// What a site did with so many browsers, to find the most.
    Busy {
        /// How many.
        clients: usize,
        /// Pages completed per second.
        throughput: f64,
        /// Each page.
        types: Vec<TypeFigures>,
    },
    /// A cell.
    Cell {
        /// Which.
        cell: Cell,
        /// What it gave.
        measured: Box<Measured>,
    },
}

/// All of it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Results {
    /// In the order in which they were written.
    pub lines: Vec<Line>,
}

impl Results {
    /// Reads results; none if there is no file. A last line that was cut off doesn't count.
    ///
    /// # Errors
    /// If the file can't be read, or another line isn't one of ours.
    pub fn read(path: &Path) -> Result<Self, Error> {
        let text = match read_lines(path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Self::default()),
            Err(error) => return Err(Error::io(format!("reading {}", path.display()))(error)),
        };
        let line = |(number, line): (usize, &str)| {
            serde_json::from_str(line).map_err(|error| {
                let at = format!("{}:{}", path.display(), number + 1);
                Error::Experiment(format!("{at}: isn't a line of results ({error})"))
            })
        };
        Ok(Self { lines: text.lines().enumerate().map(line).collect::<Result<_, _>>()? })
    }

    /// What was measured in a cell.
    pub fn cell(&self, wanted: &Cell) -> Option<&Measured> {
        self.cells().find(|(cell, _)| *cell == wanted).map(|(_, measured)| measured)
    }

    /// Every cell.
    pub fn cells(&self) -> impl Iterator<Item = (&Cell, &Measured)> {
        self.lines.iter().filter_map(|line| match line {
            Line::Cell { cell, measured } => Some((cell, &**measured)),
            _ => None,
        })
    }

    /// The cells of a variant under a load, in order of the repetitions; of a phase, that part of its
    /// schedule's cells.
    pub fn repetitions(&self, variant: &str, load: Load) -> Vec<&Measured> {
        let run = if matches!(load, Load::Phase(_)) { Load::Schedule } else { load };
        let mut found: Vec<(&Cell, &Measured)> =
            self.cells().filter(|(cell, _)| cell.variant == variant && cell.load == run).collect();
        found.sort_by_key(|(cell, _)| cell.repetition);
        let measured = found.into_iter().map(|(_, measured)| measured);
        match load {
            Load::Phase(phase) => measured.filter_map(|measured| measured.phases.get(phase)).collect(),
            _ => measured.collect(),
        }
    }

    /// The pools that were tried for a variant, and the best of them.
    pub fn pool(&self, variant: &str) -> Option<(&[(u32, f64)], u32)> {
        self.lines.iter().find_map(|line| match line {
            Line::Pool { variant: whose, tried } if whose == variant => {
                let best = tried.iter().max_by(|one, other| one.1.total_cmp(&other.1))?;
                Some((&tried[..], best.0))
            }
            _ => None,
        })
    }

    /// The number of the best setting of a peer.
    pub fn setting(&self, variant: &str) -> Option<u32> {
        self.lines.iter().find_map(|line| match line {
            Line::Tried { variant: whose, tried } if whose == variant => best_of(tried),
            _ => None,
        })
    }

    /// How many clients keep the server busy for this part of the time, as near as was found; from 1 on so
    /// many times those that would keep it just busy.
    pub fn clients_for(&self, part: f64) -> Option<usize> {
        self.lines.iter().find_map(|line| match line {
            Line::KeptBusy { part: sought, tried } if *sought == busy::sought(part) => {
                busy::clients(part, tried)
            }
            _ => None,
        })
    }

    /// The most clients of a form's closed loops, as far as they are known.
    pub fn most_clients(&self, form: &Form) -> usize {
        let found = form.busy.iter().filter_map(|&part| self.clients_for(part));
        form.clients.iter().copied().chain(found).max().unwrap_or(OPEN_PROXIED)
    }

    /// Every number of clients that was tried for how busy they keep the server, with what it was.
    pub fn busy_tried(&self) -> Vec<(usize, f64)> {
        let tried = self.lines.iter().filter_map(|line| match line {
            Line::KeptBusy { tried, .. } => Some(tried),
            _ => None,
        });
        tried.flatten().copied().collect()
    }

    /// The best that was calibrated, per second.
    pub fn calibrated(&self) -> Option<f64> {
        self.lines.iter().find_map(|line| match line {
            Line::Calibrated { tried } => tried.iter().map(|one| one.1).max_by(f64::total_cmp),
            _ => None,
        })
    }

    /// On what, when it began, and when it ended last, if it did.
    pub fn runs(&self) -> impl Iterator<Item = (&Machine, &Moment)> {
        self.lines.iter().filter_map(|line| match line {
            Line::Began { machine, moment } => Some((machine, moment)),
            _ => None,
        })
    }

    /// The end of the last run that came to one.
    pub fn end(&self) -> Option<&Moment> {
        self.lines.iter().rev().find_map(|line| match line {
            Line::Ended { moment } => Some(moment),
            _ => None,
        })
    }
}

/// The one with the fastest short pages among those near the most goodput: goodput alone chooses long
/// queues, speed alone chooses to refuse nearly everybody.
fn best_of(tried: &[(f64, f64)]) -> Option<u32> {
    let most = tried.iter().map(|tried| tried.0).fold(0.0, f64::max);
    let near = (0..).zip(tried).filter(|(_, tried)| tried.0 >= NEAR * most);
    near.min_by(|one, other| one.1.1.total_cmp(&other.1.1)).map(|(number, _)| number)
}

/// What to do with results that another plan or another gatekeeper gave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Otherwise {
    /// Put them aside and begin anew.
    BeginAnew,
    /// Go on with them all the same.
    GoOn,
}

/// The file of results, being written.
#[derive(Debug)]
pub struct Book {
    path: PathBuf,
    file: File,
    results: Results,
}

/// How a book was opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Opened {
    /// There was nothing.
    New,
    /// It goes on; so many cells are there.
    Continued(usize),
    /// It begins anew, because this has changed; what was there is beside it.
    Replaced(String),
    /// It goes on although this has changed.
    Forced(String),
}

impl Book {
    /// Opens results for what of a plan decides about figures.
    ///
    /// # Errors
    /// If the file can't be read or written.
    pub fn open(
        path: &Path,
        measured: &Value,
        gatekeeper: &str,
        otherwise: Otherwise,
    ) -> Result<(Self, Opened), Error> {
        let failed = || Error::io(format!("writing {}", path.display()));
        if let Some(directory) = path.parent() {
            fs::create_dir_all(directory).map_err(failed())?;
        }
        let mut results = Results::read(path)?;
        let changed = match results.lines.first() {
            Some(Line::Plan { measured: before, gatekeeper: binary }) => difference("", before, measured)
                .or_else(|| (binary != gatekeeper).then(|| "the gatekeeper".to_owned())),
            _ => None,
        };
        let opened = match (results.lines.is_empty(), changed) {
            (true, _) => Opened::New,
            (false, None) => Opened::Continued(results.cells().count()),
            (false, Some(what)) if otherwise == Otherwise::GoOn => Opened::Forced(what),
            (false, Some(what)) => {
                fs::rename(path, path.with_extension(REPLACED)).map_err(failed())?;
                results = Results::default();
                Opened::Replaced(what)
            }
        };
        let file = append_lines(path).map_err(failed())?;
        let mut book = Self { path: path.to_owned(), file, results };
        if book.results.lines.is_empty() {
            book.write(Line::Plan { measured: measured.clone(), gatekeeper: gatekeeper.to_owned() })?;
        }
        Ok((book, opened))
    }

    /// Writes a line, to the disk.
    ///
    /// # Errors
    /// If it can't be written.
    pub fn write(&mut self, line: Line) -> Result<(), Error> {
        let text = line_of(&line)?;
        self.file
            .write_all(text.as_bytes())
            .and_then(|()| self.file.sync_data())
            .map_err(Error::io(format!("writing {}", self.path.display())))?;
        self.results.lines.push(line);
        Ok(())
    }

    /// What is in it so far.
    pub const fn results(&self) -> &Results {
        &self.results
    }
}

fn line_of(line: &Line) -> Result<String, Error> {
    let text = serde_json::to_string(line).map_err(|error| Error::Experiment(error.to_string()))?;
    Ok(text + "\n")
}

/// The first key whose value differs.
fn difference(path: &str, one: &Value, other: &Value) -> Option<String> {
    if one == other {
        return None;
    }
    if let (Value::Object(one), Value::Object(other)) = (one, other) {
        let keys = one.keys().chain(other.keys());
        return keys.into_iter().find_map(|key| {
            let below = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
            let of = |map: &serde_json::Map<String, Value>| map.get(key).cloned().unwrap_or(Value::Null);
            difference(&below, &of(one), &of(other))
        });
    }
    Some(format!("`{path}`"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn line(repetition: u32) -> Line {
        let cell = Cell { variant: "gate".to_owned(), load: Load::Clients(300), repetition };
        Line::Cell { cell, measured: Box::default() }
    }

    #[test]
    fn what_was_written_is_read_again_and_a_line_that_was_cut_off_is_not() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("deep/short.jsonl");
        let plan = json!({ "form": { "window": "1s" } });
        let (mut book, opened) = Book::open(&path, &plan, "1", Otherwise::BeginAnew).unwrap();
        assert_eq!(opened, Opened::New);
        book.write(line(0)).unwrap();
        let mut text = fs::read_to_string(&path).unwrap();
        text.push_str("{\"cell\":{\"cell\":{\"var");
        fs::write(&path, text).unwrap();
        let (mut book, opened) = Book::open(&path, &plan, "1", Otherwise::BeginAnew).unwrap();
        assert_eq!(opened, Opened::Continued(1));
        book.write(line(1)).unwrap();
        let read = Results::read(&path).unwrap();
        assert_eq!((read.cells().count(), read.lines.len()), (2, 3));
        assert_eq!(read.repetitions("gate", Load::Clients(300)).len(), 2);
    }

    #[test]
    fn a_changed_plan_begins_anew_says_what_changed_and_goes_on_if_told() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("short.jsonl");
        let open = |window: &str, binary: &str, otherwise| {
            let plan = json!({ "form": { "window": window, "clients": [1] }, "server": {} });
            Book::open(&path, &plan, binary, otherwise).unwrap()
        };
        open("1s", "1", Otherwise::BeginAnew).0.write(line(0)).unwrap();
        let (book, opened) = open("2s", "1", Otherwise::GoOn);
        assert_eq!((book.results().cells().count(), opened), (1, Opened::Forced("`form.window`".to_owned())));
        let (book, opened) = open("2s", "1", Otherwise::BeginAnew);
        assert_eq!(
            (book.results().cells().count(), opened),
            (0, Opened::Replaced("`form.window`".to_owned()))
        );
        assert!(directory.path().join("short.jsonl.before").is_file());
        assert_eq!(open("2s", "2", Otherwise::BeginAnew).1, Opened::Replaced("the gatekeeper".to_owned()));
    }

    #[test]
    fn results_that_are_none_are_refused() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("short.jsonl");
        fs::write(&path, "{}\n").unwrap();
        assert!(Results::read(&path).unwrap_err().to_string().contains("short.jsonl:1: isn't"));
    }

    #[test]
    fn the_best_setting_is_the_fastest_of_those_with_nearly_the_most_goodput() {
        assert_eq!(best_of(&[(1.0, 0.2), (0.96, 0.1), (0.5, 0.01)]), Some(1));
        assert_eq!(best_of(&[(0.0, 10.0)]), Some(0));
        assert_eq!(best_of(&[]), None);
    }
}
