//! Scenario files: text in; out come experiments, or every error.
//!
//! A configuration's reader reads a scenario's gates, and a scenario may name a configuration, so that what
//! was simulated is what runs. A scenario may name other files: a configuration and recorded requests,
//! relative to the scenario. Only this module reads such files.

mod application;
mod distribution;
mod goal;
mod keys;
mod reference;
mod replay;
mod sessions;
mod sweep;

use std::fs::File;
use std::io::Read as _;
use std::path::Path;
use std::time::Duration;

use admission::{ClassId, LongLimit, Policy};
use config::reader::{self, Complaint, Section, Yardsticks, hint_for_unknown, single_table, unknown_key};
use config::{Error, Errors, Field, GATE, Origin, Position};
use sim::{
    Abandoned, Application, Arrivals, Collapse, Distribution, End, Kind, Mix, Patience, Phase, Rate,
    Scenario, Service, Source, Upstream, controllers,
};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use application::Tables;
pub use goal::{FIXED_GATE, Goal};
use keys::{APPLICATION, SCENARIO, SOURCE, TYPE, UPSTREAM};
pub use reference::reference;
pub use sweep::Sweep;

/// The published methods that a simulated gate may have.
const YARDSTICKS: Yardsticks =
    Yardsticks { capacities: &controllers::CAPACITIES, rejections: &[controllers::CODEL] };
/// The name of the variant without a gate.
pub const WITHOUT_GATE: &str = sim::plot::WITHOUT_GATE;
/// The most types, sources or gates of a file.
const TABLES_MAX: usize = 1000;

/// One experiment with several gates, which all meet the same requests.
#[derive(Clone, Debug, PartialEq)]
pub struct Experiment {
    /// The gates by name, in the order of the file (the service without one first, if it is run).
    pub variants: Vec<(String, Scenario)>,
    /// How many runs each gate has: one for each seed, from the scenario's on.
    pub seeds: u64,
    /// What is varied from point to point, if anything.
    pub sweep: Option<Sweep>,
    /// The goals of the gates, if the file has any.
    pub goal: Option<Goal>,
    /// Whether the file says how many cores the service has; else they are a guess.
    pub cores_are_told: bool,
}

/// Reads and checks a scenario file, and the files that it names.
///
/// # Errors
/// Everything that is wrong with it.
pub fn load(path: &Path) -> Result<Experiment, Errors> {
    let origin = Origin::File(path.to_owned());
    let text = read_file(path, config::FILE_BYTES_MAX)
        .map_err(|complaint| Errors::one(origin.clone(), Error::new(complaint.why)))?;
    let mut errors = Vec::new();
    let (document, syntax) = DeTable::parse_recoverable(&text);
    for error in &syntax {
        let position = Some(Position::of(&text, error.span().map_or(0, |span| span.start)));
        errors.push(Error { position, ..Error::new(format!("isn't TOML: {}", error.message())) });
    }
    let experiment = if syntax.is_empty() {
        let directory = path.parent().unwrap_or(Path::new(""));
        Reader { text: &text, directory, errors: &mut errors }.experiment(&document)?
    } else {
        None
    };
    match experiment {
        Some(experiment) if errors.is_empty() => Ok(experiment),
        _ => Err(Errors::new(origin, errors)),
    }
}

/// Reads a file as text, if it isn't longer than this.
fn read_file(path: &Path, most: u64) -> Result<String, Complaint> {
    let mut text = String::new();
    let read = File::open(path).and_then(|file| file.take(most + 1).read_to_string(&mut text));
    match read {
        Ok(_) if text.len() as u64 > most => Err(Complaint::new(format!("is longer than {most} bytes"))),
        Ok(_) => Ok(text),
        Err(error) => Err(Complaint::new(format!("cannot be read: {error}"))),
    }
}

struct Reader<'a> {
    text: &'a str,
    directory: &'a Path,
    errors: &'a mut Vec<Error>,
}

/// One of several tables, and its place in the text.
type Table<'d> = (&'d DeTable<'d>, usize);

impl<'a> Reader<'a> {
    /// `None`: there are errors. An error: of the configuration that the file names.
    fn experiment(mut self, document: &Spanned<DeTable<'_>>) -> Result<Option<Experiment>, Errors> {
        let top = document.get_ref();
        const SECTIONS: [&str; 8] =
            ["scenario", "type", "source", "application", "upstream", "gate", "sweep", "goal"];
        for key in top.keys().filter(|key| !SECTIONS.contains(&&**key.get_ref())) {
            let hint = hint_for_unknown(key.get_ref(), &SECTIONS);
            self.errors.push(unknown_key(key.get_ref(), Position::of(self.text, key.span().start), hint));
        }
        let types = self.types(top);
        let (upstream, cores, tells) = self.upstream(top);
        let mut sources = Vec::new();
        for (number, table) in self.tables(top, "source", true).into_iter().enumerate() {
            sources.extend(self.source(number, table, &types, &upstream));
        }
        let kinds = types.into_iter().map(|(kind, _)| kind).collect();
        let placeholder = Source::new(Arrivals::Poisson(Rate::constant(0.0)), Mix::Shares(Vec::new()));
        let application = top.contains_key("application").then(|| self.application(top));
        let base =
            Scenario { sources, application, ..Scenario::new(no_gate(), kinds, placeholder, upstream) };
        let empty = DeTable::new();
        let (table, at) = single_table(top, "scenario", &empty, self.text, self.errors);
        let section = &mut self.section("scenario".to_owned(), (table, at), SCENARIO);
        let base = read_scenario(section, base);
        let seeds = section.read("seeds", |value| reader::integer(value, 1..=1000));
        let without_gate = section.read("without_gate", reader::boolean);
        let config = section.read_given("config", reader::text);
        let names: Vec<&str> = base.types.iter().map(|kind| kind.name.as_str()).collect();
        let mut variants = Vec::new();
        if without_gate {
            variants.push((WITHOUT_GATE.to_owned(), no_gate()));
        }
        if let Some(file) = config {
            let world = config::load(&self.directory.join(file))?;
            let number = |name: &str| names.iter().position(|known| *known == name);
            let key = |name: &str| number(name).map(Scenario::request_type);
            variants.extend(world.gates.iter().map(|gate| (gate.name.clone(), gate.policy_of(key))));
        }
        self.gates(top, &names, &mut variants);
        if variants.is_empty() {
            let hint = Some("write [[gate]], or name a `config`, or leave `without_gate` on".to_owned());
            self.errors.push(Error { hint, ..Error::new("there is no gate") });
        }
        let sweep = self.sweep(top, &base);
        let told = |policy: Policy| match policy.long_limit {
            Some(LongLimit::FOUND) => {
                Policy { long_limit: Some(LongLimit::Found { cores: tells }), ..policy }
            }
            _ => policy,
        };
        let with = |(name, policy)| (name, Scenario { policy: told(policy), ..base.clone() });
        let has_fixed = variants.iter().any(|(name, _)| name == FIXED_GATE);
        let goal = self.goal(top, &base.types, has_fixed);
        let variants = variants.into_iter().map(with).collect();
        let cores_are_told = cores || matches!(sweep, Some(Sweep::Cores(_)));
        let experiment = Experiment { variants, seeds, sweep, goal, cores_are_told };
        if self.errors.is_empty() {
            // An error that no single key causes.
            for (variant, point) in experiment.places() {
                if let Err(error) = experiment.scenario(variant, point, 0).check() {
                    self.errors.push(Error::new(error.to_string()));
                    break;
                }
            }
        }
        Ok(self.errors.is_empty().then_some(experiment))
    }

    fn section<'s>(
        &'s mut self,
        name: String,
        (table, at): Table<'s>,
        fields: &'static [Field],
    ) -> Section<'s> {
        Section::open(name, table, fields, (self.text, at), self.errors)
    }

    /// All tables `[[key]]`.
    fn tables<'d>(&mut self, top: &'d DeTable<'d>, key: &str, required: bool) -> Vec<Table<'d>> {
        let mut complain = |start: Option<usize>, why: String| {
            let position = start.map(|start| Position::of(self.text, start));
            let hint = Some(format!("write [[{key}]] with its keys below"));
            self.errors.push(Error { position, hint, ..Error::new(why) });
        };
        let values = match top.get(key).map(|value| (value.get_ref(), value.span().start)) {
            Some((DeValue::Array(values), _)) => values,
            Some((_, start)) => {
                complain(Some(start), format!("{key} isn't a list (two brackets: there may be several)"));
                return Vec::new();
            }
            None if required => {
                complain(None, format!("there is no {key}"));
                return Vec::new();
            }
            None => return Vec::new(),
        };
        if values.len() > TABLES_MAX {
            complain(None, format!("there are more than {TABLES_MAX} of {key}"));
        }
        let mut tables = Vec::new();
        for value in values.iter().take(TABLES_MAX) {
            match value.get_ref() {
                DeValue::Table(table) => tables.push((table, value.span().start)),
                _ => complain(Some(value.span().start), format!("a {key} isn't a table")),
            }
        }
        tables
    }

    /// The types, and the name of the lock of each.
    fn types(&mut self, top: &DeTable<'_>) -> Vec<(Kind, Option<String>)> {
        let mut types: Vec<(Kind, Option<String>)> = Vec::new();
        let mut locks: Vec<String> = Vec::new();
        let mut tables = Vec::new();
        for (number, table) in self.tables(top, "type", true).into_iter().enumerate() {
            let mut section = self.section(titled("type", number, table.0), table, TYPE);
            let name = required(&mut section, "name", reader::some_text).unwrap_or_default();
            if types.iter().any(|(other, _)| other.name == name) {
                section.complain("name", Complaint::new("another type has this name"));
            }
            let service_time = required(&mut section, "service_time", distribution::read);
            let lock = section.read_given("lock", reader::some_text);
            let number_of = |lock: &String| {
                let known = locks.iter().position(|other| other == lock);
                known.unwrap_or_else(|| {
                    locks.push(lock.clone());
                    locks.len() - 1
                }) as u32
            };
            let kind = Kind {
                known: section.read_given("known", reader::some_time),
                weight: section.read("weight", |value| reader::number(value, 0, 1_000_000)),
                lock: lock.as_ref().map(number_of),
                ..Kind::new(name, service_time.unwrap_or(Distribution::Fixed(Duration::ZERO)))
            };
            tables.push(Tables::read(&mut section));
            types.push((kind, lock));
        }
        for ((kind, _), locks) in types.iter_mut().zip(Tables::locks(&tables)) {
            kind.tables = locks;
        }
        types
    }

    fn application(&mut self, top: &DeTable<'_>) -> Application {
        let empty = DeTable::new();
        let (table, at) = single_table(top, "application", &empty, self.text, self.errors);
        application::read(&mut self.section("application".to_owned(), (table, at), APPLICATION))
    }

    /// The service, whether the file says how many cores it has, and how many the service tells the gates.
    fn upstream(&mut self, top: &DeTable<'_>) -> (Upstream, bool, Option<u32>) {
        let empty = DeTable::new();
        let (table, at) = single_table(top, "upstream", &empty, self.text, self.errors);
        let mut section = self.section("upstream".to_owned(), (table, at), UPSTREAM);
        let cores = section.read("cores", |value| reader::number(value, 1, 10_000));
        let cores_are_told = section.has("cores");
        let tells = section.read_given("tells_cores", |value| reader::number(value, 1, 10_000));
        let collapse = read_collapse(&mut section);
        const SERVICES: &[(&str, u8)] =
            &[("sharing", 0), ("fifo", 1), ("shortest-first", 2), ("shortest-remaining", 3)];
        let at_once =
            section.read("at_once", |value| reader::bound(value, 1_000_000)).map(|most| most as u32);
        let service = match section.read("service", |value| reader::choice(value, SERVICES)) {
            0 => Service::Sharing { cores, collapse },
            1 => Service::Fifo { servers: cores },
            2 => Service::ShortestFirst { servers: cores },
            _ => Service::ShortestRemaining { servers: cores },
        };
        let upstream = Upstream {
            service,
            replicas: 1,
            at_once,
            speed: section.read("speed", reader::steps),
            round_trip: section.read("round_trip", reader::at_most_a_day),
            input_output: section.read("input_output", reader::amount),
            conflicts: section.read("conflicts", reader::curve),
        };
        (upstream, cores_are_told, tells)
    }

    fn source(
        &mut self,
        number: usize,
        table: Table<'_>,
        types: &[(Kind, Option<String>)],
        upstream: &Upstream,
    ) -> Option<Source> {
        let directory = self.directory;
        let mut section = self.section(titled("source", number, table.0), table, SOURCE);
        let shares = read_mix(&mut section, types);
        let names: Vec<&str> = types.iter().map(|(kind, _)| kind.name.as_str()).collect();
        let sessions = section.read_given("sessions", |value| sessions::read(value, &names, directory));
        let kinds: Vec<Kind> = types.iter().map(|(kind, _)| kind.clone()).collect();
        let full = f64::from(upstream.cores()) / Scenario::mean_service_time(&kinds, &shares);
        let arrivals = read_arrivals(&mut section, full, |file| replay::read(&directory.join(file), &names));
        let then = read_then(&mut section, &names);
        const ABANDONED: &[(&str, Abandoned)] =
            &[("canceled", Abandoned::Canceled), ("runs-on", Abandoned::RunsOn)];
        Some(Source {
            arrivals: arrivals?,
            mix: sessions.map_or(Mix::Shares(shares), Mix::Sessions),
            patience: Patience {
                timeout: section.read("timeout", reader::time_or_none),
                abandoned: section.read("abandoned", |value| reader::choice(value, ABANDONED)),
                retries: section.read("retries", |value| reader::number(value, 0, 1000)),
                back_off: section.read("back_off", reader::at_most_a_day),
            },
            class: section.read("class", |value| Ok(ClassId::named(&reader::some_text(value)?))),
            deadline: section.read("deadline", reader::time_or_none),
            then,
            from: section.read("from", reader::long_time),
            joining: section.read("joining", reader::long_time),
            until: section.read("until", reader::time_or_none),
        })
    }

    fn gates(&mut self, top: &DeTable<'_>, names: &[&str], variants: &mut Vec<(String, Policy)>) {
        for (number, table) in self.tables(top, "gate", false).into_iter().enumerate() {
            let mut section = self.section(titled("gate", number, table.0), table, GATE);
            let (name, policy) =
                reader::read_simulated(&mut section, names, Scenario::request_type, YARDSTICKS);
            if variants.iter().any(|(other, _)| *other == name) {
                let hint = "say how each is to be called in the table";
                section.complain("name", Complaint::new("another gate has this name").hint(hint));
            }
            variants.push((name, policy));
        }
    }
}

/// A gate that bounds nothing, for the variant without a gate.
fn no_gate() -> Policy {
    Policy {
        capacity: admission::Capacity::Unlimited,
        connections: u32::MAX,
        long_limit: None,
        cost: admission::Cost::DEFAULT,
        order: admission::Order::Fifo,
        queue_max: usize::MAX,
        queue_timeout: Duration::MAX,
        pinned_max: 1,
        types_max: 10_000,
        ..Policy::default()
    }
}

/// The title of a table in errors: its name, else its number.
fn titled(what: &str, number: usize, table: &DeTable<'_>) -> String {
    match table.get("name").map(Spanned::get_ref) {
        Some(DeValue::String(name)) => format!("{what} {name:?}"),
        _ => format!("{what} {}", number + 1),
    }
}

fn required<T>(
    section: &mut Section<'_>,
    key: &str,
    parse: impl Fn(&DeValue<'_>) -> Result<T, Complaint>,
) -> Option<T> {
    let value = section.read_given(key, parse);
    if value.is_none() && !section.has(key) {
        section.complain(key, Complaint::new("is missing"));
    }
    value
}

fn read_scenario(section: &mut Section<'_>, base: Scenario) -> Scenario {
    const ENDS: &[(&str, End)] = &[("drained", End::Drained), ("cut", End::Cut)];
    let scenario = Scenario {
        seed: section.read("seed", |value| reader::integer(value, 0..=1 << 53)),
        duration: section.read("duration", reader::long_time),
        warm_up: section.read("warm_up", reader::long_time),
        end: section.read("end", |value| reader::choice(value, ENDS)),
        in_time: section.read("in_time", reader::time_or_none),
        tick: section.read("tick", reader::some_time),
        learning: section.read("learning", reader::boolean),
        requests_max: section.read("requests_max", |value| reader::number(value, 1, 100_000_000)) as usize,
        ..base
    };
    if scenario.warm_up >= scenario.duration {
        section.complain("warm_up", Complaint::new("must be shorter than `duration`"));
    }
    scenario
}

fn read_mix(section: &mut Section<'_>, types: &[(Kind, Option<String>)]) -> Vec<f64> {
    let Some(given) = section.read_given("mix", reader::weights) else { return vec![1.0; types.len()] };
    let mut shares = vec![0.0; types.len()];
    for (name, weight) in given {
        match types.iter().position(|(kind, _)| kind.name == name) {
            Some(at) => shares[at] = weight,
            None => {
                let names: Vec<_> = types.iter().map(|(kind, _)| kind.name.as_str()).collect();
                let complaint = Complaint::new(format!("names the type {name:?}, which isn't there"));
                let hint = hint_for_unknown(&name, &names);
                section.complain("mix", Complaint { hint, ..complaint });
            }
        }
    }
    shares
}

/// Reads the requests that clients send together after their first answer.
fn read_then(section: &mut Section<'_>, names: &[&str]) -> Vec<(u32, u32)> {
    let mut then = Vec::new();
    for (name, count) in section.read_given("then", reader::counts).unwrap_or_default() {
        match names.iter().position(|known| *known == name) {
            Some(at) => then.push((at as u32, count)),
            None => {
                let complaint = Complaint::new(format!("names the type {name:?}, which isn't there"));
                section.complain("then", Complaint { hint: hint_for_unknown(&name, names), ..complaint });
            }
        }
    }
    then
}

/// Reads the arrivals. `full` is the number of requests per second that the service can do. `None`: there are
/// errors.
fn read_arrivals(
    section: &mut Section<'_>,
    full: f64,
    replay: impl Fn(&str) -> Result<Arrivals, Complaint>,
) -> Option<Arrivals> {
    const KINDS: &[(&str, u8)] =
        &[("poisson", 0), ("regular", 1), ("on-off", 2), ("closed", 3), ("replay", 4)];
    let kind = section.read("arrivals", |value| reader::choice(value, KINDS));
    let phase = |section: &mut Section<'_>, rate, lasts| Phase {
        rate: section.read(rate, reader::amount),
        lasts: section.read(lasts, distribution::read),
    };
    let think = section.read("think", distribution::read);
    let think_max = section.read("think_max", reader::time_or_none);
    let clients = section.read("clients", |value| reader::number(value, 1, 1_000_000));
    let (on, off) = (phase(section, "on_rate", "on_lasts"), phase(section, "off_rate", "off_lasts"));
    match kind {
        0 => Some(Arrivals::Poisson(read_rate(section, full)?)),
        1 => Some(Arrivals::Regular(read_rate(section, full)?)),
        2 => Some(Arrivals::OnOff { on, off }),
        3 => Some(Arrivals::Closed { clients, think, think_max }),
        _ => required(section, "replay", |value| replay(&reader::text(value)?)),
    }
}

fn read_rate(section: &mut Section<'_>, full: f64) -> Option<Rate> {
    let rate = section.read_given("rate", reader::amount_or_steps);
    let utilization = section.read_given("utilization", reader::amount_or_steps);
    match (rate, utilization) {
        (Some(steps), None) => Some(Rate::steps(steps)),
        (None, Some(steps)) => {
            let scaled = steps.into_iter().map(|(at, part)| (at, part * full));
            Some(Rate::steps(scaled.collect::<Vec<_>>()))
        }
        (Some(_), Some(_)) => {
            section.complain(
                "utilization",
                Complaint::new("says what `rate` says already").hint("leave one out"),
            );
            None
        }
        (None, None) => {
            if !section.has("rate") && !section.has("utilization") {
                let hint = "write how many a second, or `utilization`";
                section.complain("rate", Complaint::new("is missing").hint(hint));
            }
            None
        }
    }
}

fn read_collapse(section: &mut Section<'_>) -> Collapse {
    const COLLAPSES: &[(&str, u8)] = &[
        ("none", 0),
        ("cliff", 1),
        ("deadlocks", 2),
        ("locks", 3),
        ("memory", 4),
        ("thrashing", 5),
        ("measured", 6),
    ];
    let weight =
        |section: &mut Section<'_>, key| section.read(key, |value| reader::number(value, 0, 1_000_000));
    let after = section.read("after", reader::amount);
    let recovers = |value: &DeValue<'_>| reader::bound(value, 1_000_000);
    match section.read("collapse", |value| reader::choice(value, COLLAPSES)) {
        0 => Collapse::None,
        1 => Collapse::Cliff { plateau: weight(section, "plateau"), after },
        2 => Collapse::Deadlocks {
            best: weight(section, "best"),
            worst: weight(section, "worst"),
            factor: section.read("factor", reader::amount),
        },
        3 => Collapse::Locks {
            handover: section.read("handover", reader::amount),
            burn: section.read("burn", reader::amount),
        },
        4 => Collapse::Memory {
            limit: weight(section, "limit"),
            after,
            recovers_below: section.read("recovers_below", recovers).map(|below| below as u32),
        },
        6 => Collapse::Measured { points: section.read("measured", reader::curve) },
        _ => Collapse::Thrashing {
            half: section.read("half", reader::amount),
            power: section.read("power", |value| reader::number(value, 0, 100)),
        },
    }
}
