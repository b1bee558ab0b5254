//! `bench list`, `bench run` and `bench report`: experiments as data from the command line.

use std::path::{Path, PathBuf};
use std::time::Duration;

use bench::Error;
use bench::alternate::Display;
use bench::experiment::measure::measure;
use bench::experiment::part::Part;
use bench::experiment::plan::{self, Form, Plan, Server};
use bench::experiment::report::{self, Places, Shown};
use bench::experiment::results::{Book, Opened, Otherwise, Results};
use bench::experiment::{runner, verdict};
use bench::table::Figures;
use bench::{
    classes, cost, hold_up, idle_clients, own_overload, page, real_loads, srpt, stall, turns, viewer,
};
use clap::{Args, Subcommand, value_parser};
use testbed::database::Database;

/// Where plans are, below the directory that this is called in.
const EXPERIMENTS: &str = "experiments";
/// Where results go.
const RESULTS: &str = "results/experiments";

#[derive(Debug, Subcommand)]
pub(crate) enum ByPlan {
    /// The experiments that are plans: what each asks, how long it takes, what is measured
    List(Directories),
    /// Runs an experiment that is a plan, or goes on with it; those that are no plan have flags of their own
    #[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
    Run {
        #[command(subcommand)]
        own: Option<Box<Planless>>,
        // Not an option: of arguments with others flattened into them it would always be none.
        #[command(flatten)]
        plan: RunArguments,
    },
    /// Writes what came out as one page, pictures, and a file of tables for each experiment
    Report(ReportArguments),
}

/// Experiments without a plan.
#[derive(Debug, Subcommand)]
pub(crate) enum Planless {
    /// Service classes over HTTP: the tables and figures of their paper, and shares in work
    Classes(classes::Options),
    /// Ten thousand clients that say nothing: the memory of each, and whether they slow down those that work
    IdleClients(idle_clients::Options),
    /// A gate with a tenth of a processor, offered up to ten times what it can pass on
    OwnOverload(own_overload::Options),
    /// A page of 60 files over one HTTP/2 connection of 10 Mbit/s beside downloads: time until it is painted,
    /// directly, through nginx, through a gate; needs root, nginx and Chromium
    Page(page::Options),
    /// What standing in between costs: requests directly, through what others would take, through a gate
    ProxyCost(cost::Options),
    /// Statements that sleep, a site of 64 places, a site with a lock: directly, through a gate without
    /// settings
    RealLoads(turns::Flags),
    /// Forty reports of 10 s at once before a gate that knows nothing: how long does a SELECT 1 wait?
    Reports(turns::Flags),
    /// Responses in order of least remaining size on a link of 10 Mbit/s; needs root
    Srpt(Box<srpt::Options>),
    /// A site that stands still for a minute: when is it as fast as before for requests that come afterwards?
    Stall(stall::Options),
    /// What one viewer of the page costs, the gate and the browser, with ten thousand types and a thousand
    /// statements a second; needs Chromium
    Viewer(viewer::Options),
}

/// What `bench list` says of them: how long each takes, and its question.
const PLANLESS: [(&str, &str, &str); 10] = [
    (
        "classes",
        "53 min",
        "Do service classes keep weights and goals on a real gate, and how soon after a change?",
    ),
    ("idle-clients", "3 min", "What does a client that says nothing cost the gate?"),
    ("own-overload", "2 min", "What is left of a gate whose own processor is overloaded?"),
    ("page", "2 min", "How soon is a page painted over HTTP/2 on a link of 10 Mbit/s beside downloads?"),
    ("proxy-cost", "4 min", "What does standing in between cost?"),
    ("real-loads", "15 min", "What does a gate do to servers that sleep or contend?"),
    ("reports", "1 min", "How long does a short statement wait behind reports that nobody knows?"),
    ("srpt", "7 h", "Do small responses stop waiting behind large ones on a link of 10 Mbit/s?"),
    ("stall", "40 min", "When is a site that stood still as fast as before?"),
    ("viewer", "4 min", "Does one viewer of the page cost at most 1 % of a core with 10,000 types?"),
];

impl Planless {
    async fn run(mut self, cpu: Option<usize>, display: &Display) -> Result<String, Error> {
        *self.cpu() = cpu;
        match self {
            Self::Classes(options) => classes::run(&options, display).await,
            Self::IdleClients(options) => idle_clients::run(&options, display).await,
            Self::OwnOverload(options) => own_overload::run(&options, display).await,
            Self::Page(options) => page::run(&options, display).await,
            Self::ProxyCost(options) => cost::run(&options, display).await,
            Self::RealLoads(options) => real_loads::run(&options, display).await,
            Self::Reports(options) => hold_up::run(&options, display).await,
            Self::Srpt(options) => srpt::run(&options, display).await,
            Self::Stall(options) => stall::run(&options, display).await,
            Self::Viewer(options) => viewer::run(&options, display).await,
        }
    }

    /// The processor that what is measured has for itself.
    fn cpu(&mut self) -> &mut Option<usize> {
        match self {
            Self::Classes(options) => &mut options.cpu,
            Self::IdleClients(options) => &mut options.turns.cpu,
            Self::OwnOverload(options) => &mut options.turns.cpu,
            Self::Page(options) => &mut options.turns.cpu,
            Self::ProxyCost(options) => &mut options.turns.cpu,
            Self::RealLoads(options) | Self::Reports(options) => &mut options.cpu,
            Self::Srpt(options) => &mut options.turns.cpu,
            Self::Stall(options) => &mut options.turns.cpu,
            Self::Viewer(options) => &mut options.turns.cpu,
        }
    }
}

#[derive(Debug, Args)]
pub(crate) struct Directories {
    /// Where plans are
    #[arg(long, default_value = EXPERIMENTS)]
    experiments: PathBuf,
    /// Where results are
    #[arg(long, default_value = RESULTS)]
    output: PathBuf,
}

#[derive(Debug, Args)]
pub(crate) struct RunArguments {
    /// Which experiment
    #[arg(required = true)]
    name: Option<String>,
    /// The short form, at most a minute: shows what happens
    #[arg(long)]
    short: bool,
    /// Only these variants
    #[arg(long, value_name = "VARIANT,…", value_delimiter = ',')]
    only: Vec<String>,
    /// Only these loads, as the tables call them
    #[arg(long, value_name = "LOAD,…", value_delimiter = ',')]
    loads: Vec<String>,
    /// At most so many repetitions; the same command without it goes on with the rest
    #[arg(long, value_parser = value_parser!(u32).range(1..))]
    repetitions: Option<u32>,
    /// Limit the server to this part of a processor, such as 0.33. A client on one processor can't overload a
    /// server that has a whole one
    #[arg(long, value_parser = part_of_a_processor)]
    processors: Option<f64>,
    /// Over which database, where it isn't the plan's own
    #[arg(long, value_enum)]
    database: Option<Database>,
    /// Go on with what another plan or another gatekeeper has measured
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    directories: Directories,
}

#[derive(Debug, Args)]
pub(crate) struct ReportArguments {
    /// Directory for the page and the pictures
    #[arg(long, default_value = "results/report")]
    page: PathBuf,
    /// Directory of the tables, a file for each experiment; none are written if it isn't there
    #[arg(long, default_value = "results")]
    tables: PathBuf,
    /// What was measured with so much of a processor for the server, instead of what was measured without a
    /// bound
    #[arg(long, value_parser = part_of_a_processor)]
    processors: Option<f64>,
    /// What was measured over this database; plans that can't be run over it are left out
    #[arg(long, value_enum)]
    database: Option<Database>,
    #[command(flatten)]
    directories: Directories,
}

pub(crate) async fn by_plan(
    command: ByPlan,
    server_cpu: Option<usize>,
    display: &Display,
) -> Result<String, Error> {
    match command {
        ByPlan::List(directories) => list(&directories),
        ByPlan::Run { own: Some(own), .. } => own.run(server_cpu, display).await,
        ByPlan::Run { own: None, plan } => run(&plan, server_cpu, display).await,
        ByPlan::Report(arguments) => write_report(&arguments),
    }
}

/// The two forms, with what their results are called.
fn forms(plan: &Plan) -> [(&'static str, &Form); 2] {
    [("short", &plan.short), ("full", &plan.full)]
}

/// Where the results of a form are; those of a slower server, or of MariaDB, lie beside the others.
fn path(
    output: &Path,
    name: &str,
    form: &str,
    (processors, database): (Option<f64>, Option<Database>),
) -> PathBuf {
    let slower = processors.map_or_else(String::new, |part| format!("-{part}-processors"));
    let over = match database {
        Some(Database::Mariadb) => "-mariadb",
        Some(Database::Postgres) | None => "",
    };
    output.join(name).join(format!("{form}{over}{slower}.jsonl"))
}

fn part_of_a_processor(text: &str) -> Result<f64, String> {
    Server::part(text.parse().map_err(|_| "isn't a number".to_owned())?)
}

/// Reads a plan whose server has so much of a processor, and is of this database; without them, what the
/// plan itself says.
fn load(
    experiments: &Path,
    name: &str,
    (processors, database): (Option<f64>, Option<Database>),
) -> Result<Plan, Error> {
    let mut plan = Plan::load(experiments, name)?;
    if let Some(database) = database {
        plan = plan.over(database)?;
    }
    if processors.is_some() {
        plan.server.processors = processors;
        // They had a whole one.
        plan.expected.clear();
    }
    Ok(plan)
}

fn list(directories: &Directories) -> Result<String, Error> {
    let mut table = Figures::new(&["short", "full", "measured"].map(str::to_owned));
    let mut questions = String::new();
    for name in plan::names(&directories.experiments)? {
        let plan = Plan::load(&directories.experiments, &name)?;
        let mut measured = Vec::new();
        for (form_name, form) in forms(&plan) {
            let results = Results::read(&path(&directories.output, &name, form_name, (None, None)))?;
            let (done, all) = (results.cells().count(), runner::cells(form).len());
            if done > 0 {
                measured.push(format!("{form_name} {done} of {all}"));
            }
        }
        let said = if measured.is_empty() { "–".to_owned() } else { measured.join(", ") };
        table.row(&name, [about(plan.takes(&plan.short)), about(plan.takes(&plan.full)), said]);
        questions += &format!("  {name}: {}\n", plan.question);
    }
    for (name, takes, question) in PLANLESS {
        table.row(name, ["–", takes, "–"].map(str::to_owned));
        questions += &format!("  {name}: {question}\n");
    }
    Ok(format!("{}\n{questions}", table.indented()))
}

/// A time to plan with.
fn about(time: Duration) -> String {
    if time < Duration::from_secs(120) {
        format!("{} s", time.as_secs())
    } else {
        format!("{} min", time.as_secs().div_ceil(60))
    }
}

async fn run(
    arguments: &RunArguments,
    server_cpu: Option<usize>,
    display: &Display,
) -> Result<String, Error> {
    let server = (arguments.processors, arguments.database);
    let named = arguments.name.as_deref();
    let name = named.ok_or_else(|| Error::Experiment("which experiment? see: bench list".to_owned()))?;
    let plan = load(&arguments.directories.experiments, name, server)?;
    let [short, full] = forms(&plan);
    let (form_name, form) = if arguments.short { short } else { full };
    let part = Part {
        variants: arguments.only.clone(),
        // A person without a multiplication sign at hand writes a letter.
        loads: arguments.loads.iter().map(|load| load.replace('x', "×")).collect(),
        repetitions: arguments.repetitions,
    };
    part.check(form, form_name)?;
    let path = path(&arguments.directories.output, &plan.name, form_name, server);
    let otherwise = if arguments.force { Otherwise::GoOn } else { Otherwise::BeginAnew };
    let binary = bench::gatekeeper::identity()?;
    let (mut book, opened) = Book::open(&path, &plan.measured(form), &binary, otherwise)?;
    display.say(&format!("  {}: {}", plan.name, plan.question));
    match opened {
        Opened::New => {}
        Opened::Continued(cells) => display.say(&format!("  going on: {cells} cells are measured already")),
        Opened::Replaced(what) => display.say(&format!(
            "  {what} has changed since the results were measured: beginning anew (they are kept as {}.before; --force goes on with them)",
            path.display()
        )),
        Opened::Forced(what) => display.say(&format!("  {what} has changed since; going on all the same")),
    }
    let missing = runner::missing(form, &part, &book);
    if !missing.is_empty() {
        let takes = plan.left(form, &missing, book.results());
        display.say(&format!("  {} cells, about {}", missing.len(), about(takes)));
        display.say(
            "  over all: the mean response time, in which a refused or failed request counts as the time-out",
        );
        measure(&plan, (form, &part), &mut book, server_cpu, display).await?;
    }
    let mut text = String::from("\n");
    for (goal, verdict) in plan.goal.iter().zip(verdict::judge(&plan, form, book.results())) {
        text += &format!("  {}\n    {}: {}\n", goal.says, verdict.standing.word(), verdict.text);
    }
    Ok(text + &format!("\n  results: {}   bench report draws them\n", path.display()))
}

fn write_report(arguments: &ReportArguments) -> Result<String, Error> {
    let directories = &arguments.directories;
    let mut shown = Vec::new();
    for name in plan::names(&directories.experiments)? {
        let server = (arguments.processors, arguments.database);
        let plan = load(&directories.experiments, &name, (arguments.processors, None))?;
        let over = arguments.database.unwrap_or(plan.server.database);
        let Ok(plan) = plan.over(over) else { continue };
        // The full form once anything of it is there.
        for form in ["full", "short"] {
            let results = Results::read(&path(&directories.output, &name, form, server))?;
            if results.cells().next().is_some() {
                shown.push(Shown { plan, form, results });
                break;
            }
        }
    }
    if shown.is_empty() {
        return Err(Error::Experiment(format!(
            "nothing is measured below {}; run one of: bench list",
            directories.output.display()
        )));
    }
    let tables = arguments.tables.is_dir().then(|| arguments.tables.clone());
    let places = Places { page: arguments.page.clone(), tables };
    let written = report::write(&shown, &places)?;
    Ok(written.into_iter().map(|path| format!("  {}\n", path.display())).collect())
}

#[cfg(test)]
mod tests {
    use clap::{CommandFactory, Parser};

    use super::*;

    #[derive(Debug, Parser)]
    struct Bench {
        #[command(subcommand)]
        command: ByPlan,
    }

    #[test]
    fn an_experiment_is_run_by_its_plan_or_by_a_command_of_its_own() {
        Bench::command().debug_assert();
        let read = |words: &[&str]| Bench::try_parse_from([&["bench", "run"], words].concat());
        let ByPlan::Run { own: None, plan } = read(&["flash-sale", "--short"]).unwrap().command else {
            panic!("it has a plan")
        };
        assert_eq!((plan.name.as_deref(), plan.short), (Some("flash-sale"), true));
        let ByPlan::Run { own: Some(own), .. } = read(&["classes", "--only", "5"]).unwrap().command else {
            panic!("it has a command")
        };
        assert!(matches!(*own, Planless::Classes(_)));
        assert!(read(&[]).is_err(), "nothing says which");
    }
}
