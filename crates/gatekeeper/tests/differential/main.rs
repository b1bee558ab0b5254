//! The differential test: random scripts of several sessions through a gate with fewer connections than
//! sessions, and the same scripts on a PostgreSQL with a connection each. Every session must hear the same
//! on both sides.
//!
//! `cargo test -p gatekeeper --test differential` plays 2,000 scripts and the kept ones. The environment
//! asks for others:
//!
//! | to play | set |
//! |---|---|
//! | other seeds, or more of them | `DIFFERENTIAL_SEED=5 DIFFERENTIAL_COUNT=100000` |
//! | seeds for a time | `DIFFERENTIAL_SECONDS=60` |
//! | kept scripts that are known to differ, too | `DIFFERENTIAL_KNOWN=1` |
//! | one script from a file | `DIFFERENTIAL_SCRIPT=its/path` |
//! | many seeds, each difference printed as it is | `DIFFERENTIAL_SURVEY=1` |
//!
//! A script that differs is made shorter for as long as it differs, and printed. It belongs into `corpus.txt`
//! then, behind a line with `== ` and a name.

// Helpers of tests panic as tests do; clippy only knows functions marked as tests.
#![allow(clippy::panic)]

mod generate;
mod known;
mod script;
mod session;
mod shrink;
mod stage;
#[path = "../support/mod.rs"]
mod support;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use script::Script;
use stage::{GATES, Heard, PATIENCE, Stage};

/// How many random scripts are played.
const SCRIPTS: u64 = 2_000;
/// How many of the scripts before one that differs may be the reason.
const HISTORY_MAX: usize = 20;

/// Both tests play in the same databases, one after the other.
static STAGES: Mutex<()> = Mutex::new(());

fn given(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().expect("a number"))
}

/// The scripts to play: those with one of the seeds, until the time is up.
struct Plan {
    first: u64,
    end: u64,
    deadline: Option<Instant>,
    next: Vec<AtomicU64>,
    has_failed: AtomicBool,
    /// How many scripts of a survey were heard otherwise.
    differed: AtomicU64,
}

impl Plan {
    fn new() -> Self {
        let first = given("DIFFERENTIAL_SEED").unwrap_or(1);
        let seconds = given("DIFFERENTIAL_SECONDS");
        let count =
            given("DIFFERENTIAL_COUNT").unwrap_or(if seconds.is_some() { u64::MAX / 2 } else { SCRIPTS });
        let gates = GATES as u64;
        // Each gate has the seeds that leave a remainder of their own.
        let next =
            (0..gates).map(|gate| AtomicU64::new(first + (gate + gates - first % gates) % gates)).collect();
        Self {
            first,
            end: first.saturating_add(count),
            deadline: seconds.map(|seconds| Instant::now() + Duration::from_secs(seconds)),
            next,
            has_failed: AtomicBool::new(false),
            differed: AtomicU64::new(0),
        }
    }

    /// The next seed for the gate with this number.
    fn seed(&self, gate: usize) -> Option<u64> {
        let is_over = self.deadline.is_some_and(|deadline| Instant::now() >= deadline);
        let seed = self.next[gate].fetch_add(GATES as u64, Ordering::Relaxed);
        (seed < self.end && !is_over && !self.has_failed.load(Ordering::Relaxed)).then_some(seed)
    }
}

#[test]
fn random_scripts_are_heard_alike_through_a_gate_and_without() {
    let _turn = STAGES.lock().unwrap_or_else(PoisonError::into_inner);
    let plan = Plan::new();
    let plan_of_all = &plan;
    let alike: u64 = std::thread::scope(|scope| {
        let players: Vec<_> = (0..GATES).map(|gate| scope.spawn(move || play(plan_of_all, gate))).collect();
        players.into_iter().map(|player| player.join().unwrap_or_default()).sum()
    });
    assert!(!plan.has_failed.load(Ordering::Relaxed), "a script was heard otherwise: see above");
    let differed = plan.differed.load(Ordering::Relaxed);
    eprintln!("{alike} scripts from seed {} on were heard alike, {differed} otherwise", plan.first);
}

/// Plays the seeds of one gate until one differs; says how many did not.
fn play(plan: &Plan, gate: usize) -> u64 {
    let mut stage = Stage::new(gate + 1);
    let mut history: Vec<Script> = Vec::new();
    let mut played = 0;
    while let Some(seed) = plan.seed(gate) {
        let script = generate::script(seed, gate + 1);
        if let Some(heard) = stage.differs(&script, PATIENCE) {
            if given("DIFFERENTIAL_SURVEY").is_some() {
                eprintln!("seed {seed}:\n{script}\n{}", difference(&heard));
                plan.differed.fetch_add(1, Ordering::Relaxed);
                stage.renew();
                continue;
            }
            plan.has_failed.store(true, Ordering::Relaxed);
            report(&mut stage, seed, &history, &script, &heard);
            return played;
        }
        if history.len() == HISTORY_MAX {
            history.remove(0);
        }
        history.push(script);
        played += 1;
    }
    played
}

/// Prints a script that differs, as short as it can be made.
fn report(stage: &mut Stage, seed: u64, history: &[Script], script: &Script, heard: &(Heard, Heard)) {
    let first = format!("seed {seed}:\n{script}\n{}", difference(heard));
    let whole =
        std::iter::once(script.clone()).chain(std::iter::once_with(|| shrink::joined(history, script)));
    let Some(shrunk) = whole.map(|whole| shrink::shrunk(stage, &whole)).find_map(|found| found) else {
        eprintln!("{first}\nIt differed once, and not again on a new gate.\n{}", stage.log_tail());
        return;
    };
    stage.renew();
    let heard = stage.differs(&shrunk, PATIENCE);
    let difference = heard.as_ref().map_or_else(|| "not again".to_owned(), difference);
    eprintln!(
        "seed {seed}; again: DIFFERENTIAL_SEED={seed} DIFFERENTIAL_COUNT=1 cargo test -p gatekeeper --test \
         differential random\nthe shortest script that differs:\n{shrunk}\n{difference}"
    );
}

/// Where what the sessions heard begins to differ.
fn difference((direct, gated): &(Heard, Heard)) -> String {
    let mut out = String::new();
    for (index, (direct, gated)) in
        direct.iter().zip(gated).enumerate().filter(|(_, (one, other))| one != other)
    {
        let same = direct.bytes().zip(gated.bytes()).take_while(|(one, other)| one == other).count();
        let from =
            (0..=same.saturating_sub(200)).rev().find(|start| direct.is_char_boundary(*start)).unwrap_or(0);
        let part = |text: &str| text.get(from..).unwrap_or_default().chars().take(1200).collect::<String>();
        let letter = char::from(b'A' + u8::try_from(index).unwrap_or(u8::MAX));
        out += &format!(
            "{letter} heard from PostgreSQL …{}\n\n{letter} heard from the gate …{}\n\n",
            part(direct),
            part(gated)
        );
    }
    out
}

/// The kept scripts and their names, or the one that was asked for.
fn kept() -> Vec<(String, String)> {
    if let Some(path) = std::env::var_os("DIFFERENTIAL_SCRIPT") {
        let text = std::fs::read_to_string(&path).expect("a script is readable");
        return vec![(path.to_string_lossy().into_owned(), text)];
    }
    // A script begins behind `== ` and its name.
    let scripts = format!("\n{}", include_str!("corpus.txt"));
    let scripts = scripts.split("\n== ").skip(1).map(|script| script.split_once('\n').expect("a script"));
    scripts.map(|(name, text)| (name.to_owned(), text.to_owned())).collect()
}

#[test]
fn kept_scripts_are_heard_alike_through_a_gate_and_without() {
    let _turn = STAGES.lock().unwrap_or_else(PoisonError::into_inner);
    let mut stages: Vec<Option<Stage>> = (0..GATES).map(|_| None).collect();
    let mut wrong = String::new();
    for (name, text) in kept() {
        if text.starts_with(known::MARK) && given("DIFFERENTIAL_KNOWN").is_none() {
            continue;
        }
        let script = Script::read(&text);
        let stage = stages[script.connections - 1].get_or_insert_with(|| Stage::new(script.connections));
        if let Some(heard) = stage.differs(&script, PATIENCE) {
            wrong += &format!("{name}:\n{script}\n{}", difference(&heard));
            stage.renew();
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
}
