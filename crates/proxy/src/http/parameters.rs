//! Paths whose requests differ by a parameter: `GET /wp-admin/admin-ajax.php?action=heartbeat`.
//!
//! Behind one path there may be many functions: the parameter of a query, GraphQL's operation or JSON-RPC's
//! method says which (`said.rs`). The gate looks at them only where that helps, and finds that out by itself:
//!
//! ```text
//!            its requests vary                  a parameter explains that
//! the path ────────────────────► it is examined ──────────────────────────► the values are types
//!     ▲   (`varies`, by the judge)     │ (`exam.rs`)                              │ (`found.rs`)
//!     └──────── rests ◄────────────────┴─ nothing is found ◄── it explains no more ┘
//! ```
//!
//! Of every other path neither query nor body is read: one look at a flag says so. Paths that the
//! configuration or the application names, and those whose name isn't shown, are never examined.
//!
//! **Bounds.** [`PATHS_MAX`] paths, [`EXAMS_MAX`] of them examined, those that vary most first. A path
//! without an answer in time gives its place to another: [`EXAM_MAX`] for an exam, [`UNASKED_MAX`] for one
//! whose values are types. A path that has shown nothing rests for [`REST`], and each time twice as long.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use admission::{LearnedType, RequestType};
use parking_lot::{Mutex, RwLock};
use tokio::time::Instant;

mod exam;
mod found;
mod graphql;
mod said;
mod spread;

pub(crate) use said::{PREFIX_MAX, Said, is_json};

use crate::http::key::{named, request_type};
use crate::observe::TypeName;
use exam::{Exam, Verdict};
use found::Found;

/// How often paths are chosen.
pub(crate) const LOOK_EVERY: Duration = Duration::from_secs(2);
/// The paths of a gate that are looked at.
const PATHS_MAX: usize = 16;
/// How many of them are examined at once.
const EXAMS_MAX: usize = 8;
/// The fewest samples of a type that varies.
const SAMPLES_MIN: u64 = 32;
/// The least coefficient of variation. Two values with the same share that differ by a factor of 3 make it.
const VARIES: f64 = 0.5;
/// An exam that takes longer may give its place to another.
const EXAM_MAX: Duration = Duration::from_secs(600);
/// A path that hasn't been asked for longer may, too.
const UNASKED_MAX: Duration = Duration::from_secs(3_600);
/// How long a path rests that has shown nothing for the first time.
const REST: Duration = Duration::from_secs(600);
/// How often that is doubled.
const REST_DOUBLED_MAX: u32 = 7;
/// The paths that are known to rest.
const RESTING_MAX: usize = 256;

/// What is known of parameters of one gate's paths.
#[derive(Debug, Default)]
pub(crate) struct Parameters {
    /// Whether any path is looked at.
    any: AtomicBool,
    paths: RwLock<HashMap<RequestType, Arc<Path>>>,
    resting: Mutex<HashMap<RequestType, Rest>>,
}

/// A path that has shown nothing.
#[derive(Clone, Copy, Debug)]
struct Rest {
    until: Instant,
    times: u32,
}

/// One path that is looked at.
#[derive(Debug)]
pub(crate) struct Path {
    /// Its type, which is that of requests whose values aren't types.
    name: TypeName,
    stage: Mutex<Stage>,
    news: Mutex<News>,
}

#[derive(Debug)]
enum Stage {
    Examined(Exam),
    Found(Found),
    /// Nothing was found, or what was found helps no more.
    Ended,
}

/// What the last look at a path has seen.
#[derive(Debug)]
struct News {
    asked: Instant,
    is_told: bool,
}

/// What one request of a path that is looked at has said; its service time is still to come.
#[derive(Debug)]
pub(crate) struct Sample {
    path: Arc<Path>,
    said: Said,
}

impl Parameters {
    /// The path of this type, if it is looked at.
    pub(crate) fn of(&self, name: &TypeName) -> Option<Arc<Path>> {
        if !self.any.load(Ordering::Relaxed) || name.row != name.key {
            return None;
        }
        self.paths.read().get(&name.key).cloned()
    }

    /// Knows a type that had this label before, if a parameter is a part of it. The path's own label, if so.
    pub(crate) fn recall<'a>(&self, label: &'a str, now: Instant) -> Option<&'a str> {
        let (path, parameter) = label.split_once('?')?;
        let (name, value) = parameter.split_once('=')?;
        // A route may be called anything.
        if !path.contains(" /") || !said::is_parameter(name) || !said::is_value(value) {
            return None;
        }
        let mut paths = self.paths.write();
        let key = request_type(path);
        if paths.len() >= PATHS_MAX && !paths.contains_key(&key) {
            return Some(path);
        }
        self.any.store(true, Ordering::Relaxed);
        let known = paths.entry(key).or_insert_with(|| {
            let path = named(path);
            let found = Found::new(&path, name.into(), Vec::new());
            Arc::new(Path::new(path, Stage::Found(found), now))
        });
        if let Stage::Found(found) = &mut *known.stage.lock()
            && found.name() == name
        {
            found.recall(&known.name, value);
        }
        Some(path)
    }

    /// Chooses the paths that are looked at, of the types that the judge knows by these labels.
    pub(crate) fn look(&self, gate: &str, now: Instant, known: &[(LearnedType, Arc<str>)]) {
        let mut paths = self.paths.write();
        let mut rests = self.resting.lock();
        paths.retain(|key, path| {
            let ended = path.look(gate, now);
            if ended {
                rest(&mut rests, *key, now);
            }
            !ended
        });
        let is_resting = |key| rests.get(key).is_some_and(|rest| rest.until > now);
        let mut varied: Vec<_> = known
            .iter()
            .filter(|(known, label)| varies(known) && is_path(known.request_type, label))
            .filter(|(known, _)| !paths.contains_key(&known.request_type) && !is_resting(&known.request_type))
            .collect();
        varied.sort_by(|(one, _), (other, _)| spread(other).total_cmp(&spread(one)));
        for (known, label) in varied {
            if !make_room(&mut paths, &mut rests, now) {
                break;
            }
            let name = TypeName::new(known.request_type, Arc::clone(label));
            let path = Path::new(name, Stage::Examined(Exam::default()), now);
            paths.insert(known.request_type, Arc::new(path));
        }
        self.any.store(!paths.is_empty(), Ordering::Relaxed);
    }
}

/// Whether one more path can be examined. One that has taken its time without any result gives way.
fn make_room(
    paths: &mut HashMap<RequestType, Arc<Path>>,
    rests: &mut HashMap<RequestType, Rest>,
    now: Instant,
) -> bool {
    let exams = paths.values().filter(|path| path.is_examined()).count();
    if paths.len() < PATHS_MAX && exams < EXAMS_MAX {
        return true;
    }
    let gives_way = |path: &Arc<Path>| (path.is_examined() || exams < EXAMS_MAX) && path.is_late(now);
    let Some(key) = paths.iter().find(|(_, path)| gives_way(path)).map(|(key, _)| *key) else { return false };
    paths.remove(&key);
    rest(rests, key, now);
    true
}

fn rest(rests: &mut HashMap<RequestType, Rest>, key: RequestType, now: Instant) {
    let times = rests.get(&key).map_or(0, |rest| (rest.times + 1).min(REST_DOUBLED_MAX));
    if rests.len() >= RESTING_MAX
        && !rests.contains_key(&key)
        && let Some(first) = rests.iter().min_by_key(|(_, rest)| rest.until).map(|(key, _)| *key)
    {
        rests.remove(&first);
    }
    rests.insert(key, Rest { until: now + REST * (1 << times), times });
}

/// Whether a type varies so much that a parameter may be why.
fn varies(known: &LearnedType) -> bool {
    let variation = known.variation;
    variation.samples >= SAMPLES_MIN && variation.variance.sqrt() >= VARIES * variation.mean
}

/// How much there is to be found: what varies much and is asked for often.
fn spread(known: &LearnedType) -> f64 {
    known.variation.variance.sqrt() * known.samples as f64
}

/// Whether a label is that of a path.
fn is_path(key: RequestType, label: &str) -> bool {
    label.contains(" /") && !label.contains('?') && request_type(label) == key
}

impl Path {
    fn new(name: TypeName, stage: Stage, now: Instant) -> Self {
        let news = News { asked: now, is_told: false };
        Self { name, stage: Mutex::new(stage), news: Mutex::new(news) }
    }

    /// Whether what bodies say is of use.
    pub(crate) fn reads_bodies(&self) -> bool {
        match &*self.stage.lock() {
            Stage::Examined(_) => true,
            Stage::Found(found) => said::is_in_bodies(found.name()),
            Stage::Ended => false,
        }
    }

    /// The type of a request that says this, if it isn't the path's, and what is to be told how long it took.
    pub(crate) fn tell_apart(self: &Arc<Self>, said: Said) -> (Option<TypeName>, Option<Sample>) {
        let (name, said) = match &mut *self.stage.lock() {
            Stage::Examined(_) => (None, said),
            Stage::Found(found) => {
                let name = found.find(&self.name, &said);
                (name, said.only(found.name()))
            }
            Stage::Ended => return (None, None),
        };
        (name, Some(Sample { path: Arc::clone(self), said }))
    }

    fn learn(&self, said: &Said, time: Duration) {
        let mut stage = self.stage.lock();
        let next = match &mut *stage {
            Stage::Examined(exam) => match exam.learn(said, time) {
                Some(Verdict::Found(name, values)) => Stage::Found(Found::new(&self.name, name, values)),
                Some(Verdict::Nothing) => Stage::Ended,
                None => return,
            },
            Stage::Found(found) => match found.learn(said, time) {
                true => return,
                false => Stage::Ended,
            },
            Stage::Ended => return,
        };
        *stage = next;
    }

    fn is_examined(&self) -> bool {
        matches!(*self.stage.lock(), Stage::Examined(_))
    }

    /// Whether it may give its place to another one.
    fn is_late(&self, now: Instant) -> bool {
        let most = if self.is_examined() { EXAM_MAX } else { UNASKED_MAX };
        now.duration_since(self.news.lock().asked) > most
    }

    /// Tells what is new. Whether it is looked at no longer.
    fn look(&self, gate: &str, now: Instant) -> bool {
        let (mut news, path) = (self.news.lock(), &*self.name.label);
        match &mut *self.stage.lock() {
            Stage::Examined(_) => false,
            Stage::Found(found) => {
                if found.take_asked() {
                    news.asked = now;
                }
                if !std::mem::replace(&mut news.is_told, true) {
                    tracing::info!(gate, r#type = path, parameter = found.name(), "a type is told apart");
                }
                false
            }
            Stage::Ended => {
                if news.is_told {
                    tracing::info!(gate, r#type = path, "a type is told apart no longer");
                }
                true
            }
        }
    }
}

impl Sample {
    /// The service was busy with its request for so long.
    pub(crate) fn learn(self, time: Duration) {
        self.path.learn(&self.said, time);
    }
}

#[cfg(test)]
mod tests;
