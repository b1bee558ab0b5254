//! Beside what others would take: an origin that computes, offered several times what it can do, through
//! gates and peers.
//!
//! The origin and the pages of [`crate::bounded_response`], Poisson arrivals in an open loop: half of the
//! capacity, then a step of which the part after `SETTLED` counts. Directly, through the gate with its
//! defaults, the gate with a target, HAProxy with a bound and a queue, nginx with `limit_conn`, and three
//! libraries with adaptive limits, each in a small proxy of its language.
//!
//! A gate has what it comes with. Every peer has the best of [`TRIES`] settings ([`variant`]), each tried
//! once for the same time at [`TRIED_AT`] times the capacity, before the rounds begin. The best has the
//! least mean of the short pages among those whose goodput is within a twentieth of the most: a
//! program that serves next to nobody is fast.
//!
//! Every turn meets a fresh origin and a fresh process in between, and every variant the same requests in
//! the same round. What was measured is on the disk before the next turn begins (`book`), so that an
//! interrupted run goes on where it was.

mod book;
mod front;
mod report;
mod turn;
pub mod variant;

use std::path::PathBuf;
use std::time::{Duration, Instant};

pub use report::Report;

use crate::alternate::{Display, turns};
use crate::http::Mix;
use crate::http::pages::{Arrivals, Visits};
use crate::table::seconds;
use crate::{Error, gatekeeper};
use book::{Book, Header, Line};
use front::Front;
use turn::Turned;
use variant::{Setting, TRIES, Variant, Way};

/// The loads, in capacities.
pub const LOADS: [f64; 3] = [1.5, 3.0, 10.0];
/// The load at which settings are tried.
pub const TRIED_AT: f64 = 3.0;
/// The load before each step.
const CALM: f64 = 0.5;
/// A step has settled after this time, or after half of it.
const SETTLED: Duration = Duration::from_secs(10);
/// How long a client waits. A client that isn't answered is charged this.
const PATIENCE: Duration = Duration::from_secs(10);
/// For how long the origin's peak is measured.
const PEAK_LASTS: Duration = Duration::from_secs(10);
/// What starting, and the last clients' patience, take beside each turn at most, for telling how long it
/// all lasts.
const AROUND: Duration = Duration::from_secs(6);
/// What the arrivals that settings are tried with are drawn from, beside the seed: none of the rounds has
/// them.
const TRIED_SEED: u64 = 1 << 32;

/// How the experiment is run.
#[derive(Clone, Debug)]
pub struct Options {
    /// The variants that stand before the origin, one after another.
    pub variants: Vec<Variant>,
    /// Rounds; every variant has one turn at every load in each.
    pub rounds: usize,
    /// How long half of the capacity is offered before each step: limiters learn what is usual, and Java's
    /// machine what is run often.
    pub calm: Duration,
    /// How long each step is.
    pub step: Duration,
    /// How long the step is with which each setting of a peer is tried.
    pub tried: Duration,
    /// What the arrivals are drawn from.
    pub seed: u64,
    /// The origin's processor.
    pub origin_cpu: Option<usize>,
    /// Directory for the figures.
    pub output: PathBuf,
}

/// The part of a step that counts, from its beginning on.
fn settled(step: Duration) -> Duration {
    SETTLED.min(step / 2)
}

/// Runs the experiment, or goes on with it.
///
/// # Errors
/// If something doesn't start; what was measured before is kept.
pub async fn run(options: &Options, display: &Display) -> Result<Report, Error> {
    if options.variants.is_empty() {
        let names = variant::ALL.map(|variant| variant.name).join(", ");
        return Err(Error::Experiment(format!("nobody is called so; there are {names}")));
    }
    let header = Header {
        calm: options.calm.as_secs_f64(),
        step: options.step.as_secs_f64(),
        tried: options.tried.as_secs_f64(),
        seed: options.seed,
        tries: variant::ALL.iter().map(Variant::settings_text).collect(),
    };
    let path = options.output.join("turns.jsonl");
    let (mut book, opened) = Book::open(&path, &header)?;
    if let Some(said) = opened.says(&path) {
        display.say(&format!("  {said}"));
    }
    check(&options.variants).await?;
    let mut laboratory = Laboratory { options, peak: peak(options, &mut book, display).await? };
    for variant in &options.variants {
        laboratory.search(variant, &mut book, display).await?;
    }
    let gatekeeper = gatekeeper::identity()?;
    let missing = missing(options, &book, &gatekeeper);
    for (number, turn) in missing.iter().enumerate() {
        let left = (options.calm + options.step + AROUND) * (missing.len() - number) as u32;
        let place = format!(
            "{}/{}  {}, {} times the capacity, round {}",
            number + 1,
            missing.len(),
            turn.variant.name,
            turn.load,
            turn.round + 1
        );
        display.now(format!("{place}: {left:.0?} to go"));
        let turned = laboratory.turn(turn).await?;
        display.say(&format!("  {place}: {}", turned.in_a_line()));
        book.write(Line::Turn {
            variant: turn.variant.name.to_owned(),
            load: turn.load,
            round: turn.round,
            of: turn.of.clone(),
            turned,
        })?;
    }
    let report = Report::of(&book, &options.variants, options.rounds, &gatekeeper);
    report.write(&options.output)?;
    Ok(report)
}

/// Starts every program once: one that isn't installed is said to be missing now, and not after an hour.
async fn check(variants: &[Variant]) -> Result<(), Error> {
    let all: Vec<(Way, Setting)> = variants
        .iter()
        .map(|variant| (variant.way, variant.settings().first().copied().unwrap_or_default()))
        .collect();
    let starting = tokio::task::spawn_blocking(move || {
        // Nobody asks them anything.
        const NOWHERE: u16 = 9;
        all.into_iter().try_for_each(|(way, setting)| Front::start(way, setting, NOWHERE).map(drop))
    });
    starting.await.unwrap_or_else(|panic| std::panic::resume_unwind(panic.into_panic()))
}

/// A turn that is to be measured.
#[derive(Clone, Debug)]
struct Turn {
    variant: Variant,
    /// Of what figures are: a peer's setting, the gatekeeper's binary.
    of: String,
    setting: Setting,
    load: f64,
    round: usize,
}

/// The turns that aren't measured yet: rounds, within them loads, within them variants.
fn missing(options: &Options, book: &Book, gatekeeper: &str) -> Vec<Turn> {
    let order = turns(options.rounds * LOADS.len(), options.variants.len());
    let turn = |at: crate::alternate::Turn| {
        let variant = options.variants[at.variant];
        let setting = book.best(&variant).unwrap_or_default();
        let of = variant.figures_of(setting, gatekeeper);
        Turn { variant, of, setting, load: LOADS[at.round % LOADS.len()], round: at.round / LOADS.len() }
    };
    order
        .map(turn)
        .filter(|turn| book.turn(turn.variant.name, turn.load, turn.round, &turn.of).is_none())
        .collect()
}

async fn peak(options: &Options, book: &mut Book, display: &Display) -> Result<f64, Error> {
    if let Some(peak) = book.peak() {
        return Ok(peak);
    }
    display.now("how much can the origin do?");
    let work = crate::bounded_response::peak(
        Visits::of(Mix::Shopping),
        options.origin_cpu,
        PEAK_LASTS,
        options.seed,
    )
    .await?;
    display.say(&format!("  the origin does {work:.3} s of work a second"));
    book.write(Line::Peak { work })?;
    Ok(work)
}

struct Laboratory<'a> {
    options: &'a Options,
    peak: f64,
}

impl Laboratory<'_> {
    /// Tries every setting of a peer that wasn't tried.
    async fn search(&mut self, variant: &Variant, book: &mut Book, display: &Display) -> Result<(), Error> {
        for (number, setting) in variant.settings().iter().enumerate() {
            if book.tried(variant.name, *setting).is_some() {
                continue;
            }
            display.now(format!("{}: setting {} of {TRIES}, {setting}", variant.name, number + 1));
            let begin = Instant::now();
            let turned = self
                .measure(
                    variant,
                    *setting,
                    TRIED_AT,
                    self.options.tried,
                    self.options.seed.wrapping_add(TRIED_SEED),
                )
                .await?;
            let took = begin.elapsed().as_secs_f64();
            display.say(&format!(
                "  {} with {setting}: {}   ({})",
                variant.name,
                turned.in_a_line(),
                seconds(took)
            ));
            book.write(Line::Tried {
                variant: variant.name.to_owned(),
                setting: setting.to_string(),
                turned,
            })?;
        }
        if let Some(best) = book.best(variant).filter(|_| !variant.settings().is_empty()) {
            display.say(&format!("  {}: the best of {TRIES} settings is {best}", variant.name));
        }
        Ok(())
    }

    async fn turn(&mut self, turn: &Turn) -> Result<Turned, Error> {
        let seed = self.options.seed.wrapping_add(turn.round as u64);
        self.measure(&turn.variant, turn.setting, turn.load, self.options.step, seed).await
    }

    async fn measure(
        &self,
        variant: &Variant,
        setting: Setting,
        load: f64,
        step: Duration,
        seed: u64,
    ) -> Result<Turned, Error> {
        // With another number of the seed for each load, so that no load has the first requests of another.
        let seed = seed.wrapping_add(((load * 10.0) as u64) * 1_000);
        let calm = self.options.calm;
        let steps = [(CALM * self.peak, calm), (load * self.peak, step)];
        let arrivals = Arrivals::poisson(Visits::of(Mix::Shopping), &steps, seed)?;
        let way: Way = variant.way;
        let front = move |origin| {
            let front = Front::start(way, setting, origin)?;
            Ok((front.port(origin), front))
        };
        let outcome = arrivals.meet_through(front, self.options.origin_cpu, PATIENCE, None).await?;
        let begin = calm + settled(step);
        let counted = begin.as_secs_f64()..(calm + step).as_secs_f64();
        Ok(Turned::of(&outcome, &arrivals.work, self.peak, counted))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::peers::turn::tests::turned;

    fn options(variants: Vec<Variant>) -> Options {
        Options {
            variants,
            rounds: 2,
            calm: Duration::from_secs(8),
            step: Duration::from_secs(4),
            tried: Duration::from_secs(2),
            seed: 1,
            origin_cpu: None,
            output: PathBuf::new(),
        }
    }

    fn header() -> Header {
        Header { calm: 8.0, step: 4.0, tried: 2.0, seed: 1, tries: Vec::new() }
    }

    #[test]
    fn variants_take_turns_and_what_is_measured_is_not_measured_again() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("turns.jsonl");
        let (mut book, _) = Book::open(&path, &header()).unwrap();
        let options = options(variant::called("gate"));
        let names = |turns: &[Turn]| -> Vec<(usize, f64, &str)> {
            turns.iter().map(|turn| (turn.round, turn.load, turn.variant.name)).collect()
        };
        let all = missing(&options, &book, "1");
        assert_eq!(
            names(&all)[..3],
            [(0, 1.5, "no gate"), (0, 1.5, "gate"), (0, 1.5, "gate, target = 150 ms")]
        );
        assert_eq!(all.len(), 2 * LOADS.len() * 3);
        for turn in &all[..2] {
            let (variant, of) = (turn.variant.name.to_owned(), turn.of.clone());
            book.write(Line::Turn {
                variant,
                load: turn.load,
                round: turn.round,
                of,
                turned: turned(1.0, 0.1),
            })
            .unwrap();
        }
        let (book, _) = Book::open(&path, &header()).unwrap();
        assert_eq!(names(&missing(&options, &book, "1")), names(&all)[2..]);
        // Another binary makes the gate's turns new, nobody else's.
        assert_eq!(names(&missing(&options, &book, "2")), names(&all)[1..]);
    }

    #[test]
    fn a_step_counts_once_it_has_settled() {
        assert_eq!(settled(Duration::from_secs(30)), Duration::from_secs(10));
        assert_eq!(settled(Duration::from_secs(8)), Duration::from_secs(4));
    }
}
