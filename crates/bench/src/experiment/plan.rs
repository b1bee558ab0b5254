//! An experiment as data: `experiments/NAME/plan.toml`, read and checked.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use testbed::database::Database;

use super::check;
use super::complaint::Complaints;
use super::offline::{CapacitySearch, Idle};
use super::schedule::Phase;
use super::words::{Drawn, Memory, Reference, Time};
use crate::Error;

mod goals;
mod load;
mod pages;
pub(super) mod takes;

pub use goals::{Goal, Metric, Who};
pub use load::Load;
pub use pages::{PEERS, Pages};

/// The file of a plan in its directory.
const FILE: &str = "plan.toml";
/// Connections of an application straight to the database in an open loop: twenty processes with thirty each.
pub const OPEN_DIRECT: usize = 600;
/// Connections of an application to a proxy in an open loop. Requests that wait in a proxy cost the database
/// nothing.
pub const OPEN_PROXIED: usize = 1_000;
/// Server connections of a gate with default settings, and of PgBouncer beside it.
pub const POOL: u32 = 20;

/// A whole experiment.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Plan {
    /// What it is called: the name of its directory.
    #[serde(skip)]
    pub name: String,
    /// What it asks.
    pub question: String,
    /// How it looks for the answer, and to whom that is unfair.
    pub method: String,
    /// Tables and pictures that the report has of it beside those of all experiments.
    #[serde(default)]
    pub show: Vec<Show>,
    /// What is asked of the server.
    pub workload: Workload,
    /// The server.
    #[serde(default)]
    pub server: Server,
    /// Gates beside those that every plan knows: keys of a `[[gate]]` that differ from the defaults.
    #[serde(default)]
    pub variant: BTreeMap<String, toml::Table>,
    /// Settings among which the best of a peer before an origin is looked for, by peer.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub peer: BTreeMap<String, Vec<BTreeMap<String, String>>>,
    /// At most a minute.
    pub short: Form,
    /// At most an hour and a half.
    pub full: Form,
    /// What should come out.
    #[serde(default)]
    pub goal: Vec<Goal>,
    /// What others found.
    #[serde(default)]
    pub expected: Vec<Expected>,
}

/// What a report can show of an experiment beside the figures that all have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Show {
    /// What each page takes of the database, as the gate measures it (*Gatekeeper*, Fig. 2 and 3, Table 1).
    ServiceTimes,
    /// How soon the gate's estimates are where they stay (*Gatekeeper*, section 3.1).
    Convergence,
    /// What the server is made of: processes, memory, switches, processor (*Gatekeeper*, Table 2).
    Anatomy,
    /// How long pages wait in the gate and how long they are served (*Gatekeeper*, Fig. 11 to 13).
    Breakdown,
}

/// What is asked of the server.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Workload {
    /// Which tables there are.
    #[serde(default)]
    pub tables: Tables,
    /// What makes and fills tables of its own, a statement each.
    #[serde(default)]
    pub setup: Vec<String>,
    /// What puts them in order before each cell.
    #[serde(default)]
    pub reset: Vec<String>,
    /// What must hold after each cell.
    #[serde(default)]
    pub check: Vec<Check>,
    /// When clients connect.
    #[serde(default)]
    pub connect: Connect,
    /// How long a client waits for an answer.
    pub timeout: Time,
    /// How long a client thinks, on average.
    #[serde(default)]
    pub think: Time,
    /// What the clients ask for.
    #[serde(default)]
    pub request: Vec<Request>,
    /// A whole site before the server: then the clients are browsers, and there are no requests of the
    /// plan's own.
    pub site: Option<Site>,
    /// An origin that computes pages, asked over HTTP in an open loop: then there is no server, and there are
    /// no requests of the plan's own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub origin: Option<Pages>,
    /// The clients that the experiment isn't about, and that are there all the time.
    pub bystanders: Option<Bystanders>,
}

/// The bookstore over the server, and its visitors.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Site {
    /// Emulated browsers that it is filled for: 2,880 customers each.
    pub browsers: u32,
    /// Books.
    pub items: u32,
    /// Connections of the site's pool.
    pub connections: u32,
    /// Further flags of `bookstore serve`.
    #[serde(default)]
    pub serve: Vec<String>,
    /// Where visitors go: `browsing`, `shopping` or `ordering`.
    pub mix: String,
    /// What think times and lengths of visits are multiplied by.
    pub think_scale: f64,
    /// How long a visit lasts on average, before that; the specification's length if it isn't said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session_mean: Option<Time>,
    /// Where the compared program stands.
    #[serde(default, skip_serializing_if = "Place::is_database")]
    pub place: Place,
    /// When its books must balance.
    #[serde(default, skip_serializing_if = "Audit::is_after_each_cell")]
    pub audit: Audit,
    /// The mean response time that somebody holds: a line in the pictures.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target: Option<Time>,
}

/// What the variants of a plan with a site stand before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Place {
    /// The site's database, over PostgreSQL's protocol.
    #[default]
    Database,
    /// The site itself, over HTTP.
    Site,
}

/// Which tables there are before `setup`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Tables {
    /// None.
    #[default]
    None,
    /// The shop of the flash sale.
    Shop,
}

/// When clients connect.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Connect {
    /// Once.
    #[default]
    Once,
    /// For each request.
    ForEachRequest,
}

/// A statement that must answer `true`.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Check {
    /// What it shows.
    pub says: String,
    /// The statement.
    pub sql: String,
}

/// A request type: one of the shop's, or statements of its own.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Request {
    /// What it is called; one of the shop's if it has no statements.
    pub name: String,
    /// How often it comes, relative to the others.
    #[serde(default = "one")]
    pub weight: f64,
    /// What holds its statements together.
    #[serde(default)]
    pub unit: Unit,
    /// The values of its statements' places.
    #[serde(default)]
    pub draw: Vec<Drawn>,
    /// Its statements, each a round trip; `{0}` is the first value.
    #[serde(default)]
    pub statements: Vec<String>,
    /// SQLSTATEs after which the application tries again.
    #[serde(default)]
    pub retry: Vec<String>,
    /// Whether an open loop tells it apart, as `short`.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub short: bool,
}

/// What holds a request's statements together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Unit {
    /// Nothing.
    #[default]
    Statements,
    /// A transaction.
    Transaction,
    /// A transaction at isolation level SERIALIZABLE.
    Serializable,
}

/// Clients beside the others.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Bystanders {
    /// Which application they say that they are, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub application: Option<String>,
    /// Beside which variants they are there; beside all if none is named.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub beside: Vec<String>,
    /// How many.
    pub clients: usize,
    /// How long each thinks, on average.
    pub think: Time,
    /// What they ask for.
    pub request: Vec<Request>,
    /// Where they come for a number of requests only, after the warm-up, instead of all the time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub errand: Option<Errand>,
}

/// A number of requests, after which the bystanders leave.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Errand {
    /// Beside which variant. How long it takes alone is measured before.
    pub beside: String,
    /// How many in all.
    pub requests: usize,
}

/// What a server may have of processors.
const PROCESSORS: std::ops::RangeInclusive<f64> = 0.05..=256.0;

/// The server.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Server {
    /// Which database; `--database` has the last word.
    #[serde(default, skip_serializing_if = "Database::is_postgres")]
    pub database: Database,
    /// Lines of `postgresql.conf`.
    #[serde(default)]
    pub settings: BTreeMap<String, String>,
    /// The most memory that all of its processes may have together.
    pub memory: Option<Memory>,
    /// The part of a processor that its processes have together, so that clients on one can overload it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub processors: Option<f64>,
}

/// How it is run: every variant under every load, so often.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Form {
    /// The variants that stand before the server, in turn.
    pub variants: Vec<String>,
    /// Clients of a closed loop.
    #[serde(default)]
    pub clients: Vec<usize>,
    /// Browsers, so many that direct ones keep the server's processor busy for these parts of the time;
    /// from 1 on so many times those that keep it just busy. How many is found before the cells.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub busy: Vec<f64>,
    /// Arrivals of an open loop, as multiples of what `calibrate` found.
    #[serde(default)]
    pub overload: Vec<f64>,
    /// Those of `variants` that meet `overload`, where not all do.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub overloaded: Vec<String>,
    /// Browsers that join one after another while a cell lasts; a cell beside those of `clients`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub schedule: Vec<Phase>,
    /// Emulated browsers that a site is filled for, if not as many as the workload says.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub filled_for: Option<u32>,
    /// Whether sites stay open from cell to cell, each for all variants with the same keys.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub kept_open: bool,
    /// How often each.
    pub repetitions: u32,
    /// How long a cell runs before anything counts.
    pub warm_up: Time,
    /// How long it counts.
    pub window: Time,
    /// How long what is under way at the end may still take.
    #[serde(default = "second")]
    pub drain: Time,
    /// Pools among which the best is looked for, where a variant has the best; a single one is taken as it
    /// is.
    #[serde(default)]
    pub pools: Vec<u32>,
    /// What finds the rate that `overload` multiplies; of a site, what its pages take alone and how much it
    /// does at most.
    pub calibrate: Option<Calibrate>,
    /// How capacities are looked for, where a variant has one that is calibrated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub search: Option<CapacitySearch>,
    /// How costs are learned offline, where a variant has such.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idle: Option<Idle>,
}

/// The best of a closed loop over several numbers of clients.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Calibrate {
    /// Through whom.
    pub variant: String,
    /// How many clients.
    pub clients: Vec<usize>,
}

/// A throughput that was found elsewhere.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Expected {
    /// By whom, and how.
    pub source: String,
    /// The variant in whose place it stands.
    pub variant: String,
    /// With how many clients.
    pub clients: usize,
    /// Per second.
    pub throughput: f64,
}

/// When the books of a site must balance: to look at all of them takes as long as a cell where the shop is
/// large.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Audit {
    /// After each cell, so that it is known which one they don't balance after.
    #[default]
    AfterEachCell,
    /// After the last.
    AtTheEnd,
}

impl Audit {
    const fn is_after_each_cell(&self) -> bool {
        matches!(self, Self::AfterEachCell)
    }
}

impl Place {
    const fn is_database(&self) -> bool {
        matches!(self, Self::Database)
    }
}

const fn one() -> f64 {
    1.0
}

const fn second() -> Time {
    Time(Duration::from_secs(1))
}

impl Plan {
    /// Reads and checks a plan's text.
    ///
    /// # Errors
    /// Everything that is wrong with it.
    pub fn parse(name: &str, file: &Path, text: &str) -> Result<Self, Complaints> {
        let mut plan: Self = toml::from_str(text).map_err(|error| Complaints::of_text(file, text, &error))?;
        name.clone_into(&mut plan.name);
        check::check(&plan, file, text)?;
        Ok(plan)
    }

    /// Reads the plan of this name.
    ///
    /// # Errors
    /// If there is none (the message says which there are), or all that is wrong with it.
    pub fn load(experiments: &Path, name: &str) -> Result<Self, Error> {
        let file = experiments.join(name).join(FILE);
        let text = fs::read_to_string(&file).map_err(|_| {
            let known = names(experiments).unwrap_or_default().join(", ");
            Error::Experiment(format!("there is no {}; known experiments: {known}", file.display()))
        })?;
        Ok(Self::parse(name, &file, &text)?)
    }

    /// What decides about figures, for telling whether those of an earlier run still fit: not the prose,
    /// not the goals.
    pub fn measured(&self, form: &Form) -> serde_json::Value {
        let mut measured = serde_json::json!({
            "workload": self.workload,
            "server": self.server,
            "variant": self.variant,
            "form": form,
        });
        if !self.peer.is_empty() {
            measured["peer"] = serde_json::json!(self.peer);
        }
        // What is shown must have been looked at. Where nothing is, results of before this key fit.
        if !self.show.is_empty() {
            measured["show"] = serde_json::json!(self.show);
        }
        measured
    }

    /// This plan over another database: without the programs that only speak to PostgreSQL, and what was
    /// found elsewhere.
    ///
    /// # Errors
    /// If it says something of PostgreSQL itself.
    pub fn over(mut self, database: Database) -> Result<Self, Error> {
        if database == self.server.database {
            return Ok(self);
        }
        let workload = &self.workload;
        let mut requests =
            workload.request.iter().chain(workload.bystanders.iter().flat_map(|others| &others.request));
        let own = [
            ("workload.origin", workload.origin.is_some()),
            ("server.settings", !self.server.settings.is_empty()),
            ("server.memory", self.server.memory.is_some()),
            ("workload.setup", !workload.setup.is_empty()),
            (
                "workload.bystanders.application",
                workload.bystanders.iter().any(|it| it.application.is_some()),
            ),
            ("workload.reset", !workload.reset.is_empty()),
            ("a request's statements", requests.any(|request| !request.statements.is_empty())),
        ];
        if let Some((key, _)) = own.iter().find(|(_, is_there)| *is_there) {
            let (name, written, other) = (&self.name, self.server.database.name(), database.name());
            return Err(Error::Experiment(format!(
                "{name}: {key} is written for {written}; the plan can't be run over {other}"
            )));
        }
        self.server.database = database;
        self.expected.clear();
        let runs = |variant: &str| !variant.starts_with("pgbouncer") && !variant.starts_with("pgpool");
        for form in [&mut self.short, &mut self.full] {
            form.variants.retain(|variant| runs(variant));
        }
        self.goal.retain(|goal| {
            let other = matches!(&goal.relative_to, Some(Reference::Variant(other)) if !runs(other));
            runs(&goal.of) && !other
        });
        Ok(self)
    }

    /// Whether the report shows this.
    pub fn shows(&self, show: Show) -> bool {
        self.show.contains(&show)
    }
}

impl Bystanders {
    /// How many requests their errand beside a variant has.
    pub fn errand_beside(&self, variant: &str) -> Option<usize> {
        self.errand.as_ref().filter(|errand| errand.beside == variant).map(|errand| errand.requests)
    }

    /// Whether they are there beside a variant.
    pub fn are_beside(&self, variant: &str) -> bool {
        self.beside.is_empty() || self.beside.iter().any(|name| name == variant)
    }
}

impl Server {
    /// Returns this part of a processor, if a server can have it.
    ///
    /// # Errors
    /// Says which parts a server can have.
    pub fn part(processors: f64) -> Result<f64, String> {
        let refused = || format!("must be from {} to {}", PROCESSORS.start(), PROCESSORS.end());
        PROCESSORS.contains(&processors).then_some(processors).ok_or_else(refused)
    }
}

impl Form {
    /// The loads of which figures are told, in order.
    pub fn loads(&self) -> impl Iterator<Item = Load> + '_ {
        self.steady().chain((0..self.schedule.len()).map(Load::Phase))
    }

    /// The loads that make a cell, in order: a schedule is one.
    pub fn runs(&self) -> impl Iterator<Item = Load> + '_ {
        self.steady().chain((!self.schedule.is_empty()).then_some(Load::Schedule))
    }

    /// Whether a variant meets a load.
    pub fn offers(&self, variant: &str, load: Load) -> bool {
        let chosen = self.overloaded.is_empty() || self.overloaded.iter().any(|name| name == variant);
        chosen || !matches!(load, Load::Overload(_))
    }

    fn steady(&self) -> impl Iterator<Item = Load> + '_ {
        let closed = self.clients.iter().copied().map(Load::Clients);
        let busy = self.busy.iter().copied().map(Load::Busy);
        closed.chain(busy).chain(self.overload.iter().copied().map(Load::Overload))
    }
}

/// Whether a variant has the best of several pools.
pub fn has_best(variant: &str) -> bool {
    matches!(variant, "pgbouncer-best-pool" | "pgpool-best-pool" | "gate-calibrated")
}

/// Whether a variant has a session, and a process, for each client for as long as it stays connected.
pub(super) fn has_sessions(variant: &str) -> bool {
    matches!(variant, "pgpool-same-pool" | "pgpool-best-pool")
}

/// The experiments below a directory, in alphabetical order.
///
/// # Errors
/// If it isn't there.
pub fn names(experiments: &Path) -> Result<Vec<String>, Error> {
    let failed = || {
        format!(
            "reading {} (run this where the experiments are, or say --experiments)",
            experiments.display()
        )
    };
    let entries = fs::read_dir(experiments).map_err(Error::io(failed()))?;
    let mut names: Vec<String> = entries
        .filter_map(Result::ok)
        .filter(|entry| entry.path().join(FILE).is_file())
        .filter_map(|entry| entry.file_name().into_string().ok())
        .collect();
    names.sort();
    Ok(names)
}

impl From<Complaints> for Error {
    fn from(complaints: Complaints) -> Self {
        Self::Experiment(complaints.to_string())
    }
}
