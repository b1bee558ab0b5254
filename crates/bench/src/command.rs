//! `bench list`, `bench run` and `bench report`: experiments as data from the command line.

mod classes;
mod srpt;

use std::path::{Path, PathBuf};
use std::time::Duration;

use bench::Error;
use bench::alternate::Display;
use bench::experiment::laboratory::Statements;
use bench::experiment::origin::Pageviews;
use bench::experiment::part::Part;
use bench::experiment::plan::{self, Form, Plan, Server};
use bench::experiment::report::{self, Places, Shown};
use bench::experiment::results::{Book, Line, Opened, Otherwise, Results};
use bench::experiment::visits::Visits;
use bench::experiment::{machine, runner, verdict};
use bench::table::Figures;
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
    /// Runs an experiment that is a plan, or goes on with it; `run classes`, `run page`, `run
    /// real-loads`, `run srpt` and `run viewer` have flags of their own
    #[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
    Run {
        #[command(subcommand)]
        own: Option<Own>,
        // Not an option: of arguments with others flattened into them it would always be none.
        #[command(flatten)]
        plan: RunArguments,
    },
    /// Writes what came out as one page, pictures, and a file of tables for each experiment
    Report(ReportArguments),
}

/// Experiments without a plan.
#[derive(Debug, Subcommand)]
pub(crate) enum Own {
    /// Service classes over HTTP: the tables and figures of their paper, and shares in work
    Classes(classes::Arguments),
    /// A page of 60 files over one HTTP/2 connection of 10 Mbit/s beside downloads: time until it is painted,
    /// directly, through nginx, through a gate; needs root, nginx and Chromium
    Page(PageArguments),
    /// Statements that sleep, a site of 64 places, a site with a lock: directly, through a gate without
    /// settings
    RealLoads(RealLoadsArguments),
    /// Responses in order of least remaining size on a link of 10 Mbit/s; needs root
    Srpt(Box<srpt::Arguments>),
    /// What one viewer of the page costs, the gate and the browser, with ten thousand types and a thousand
    /// statements a second; needs Chromium
    Viewer(ViewerArguments),
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
        ByPlan::Run { own: Some(Own::Classes(arguments)), .. } => {
            classes::run(arguments, server_cpu, display).await
        }
        ByPlan::Run { own: Some(Own::Page(arguments)), .. } => page(arguments, display).await,
        ByPlan::Run { own: Some(Own::RealLoads(arguments)), .. } => {
            real_loads(arguments, server_cpu, display).await
        }
        ByPlan::Run { own: Some(Own::Srpt(arguments)), .. } => {
            srpt::run(*arguments, server_cpu, display).await
        }
        ByPlan::Run { own: Some(Own::Viewer(arguments)), .. } => {
            viewer(&arguments, server_cpu, display).await
        }
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
    table.row("classes", ["–", "53 min", "–"].map(str::to_owned));
    table.row("srpt", ["10 min", "7 h", "–"].map(str::to_owned));
    table.row("viewer", ["2 min", "4 min", "–"].map(str::to_owned));
    questions +=
        "  classes: Do service classes keep weights and goals on a real gate, and how soon after a change?\n";
    questions += "  srpt: Do small responses stop waiting behind large ones on a link of 10 Mbit/s?\n";
    questions += "  viewer: Does one viewer of the page cost at most 1 % of a core with 10,000 types?\n";
    let table: String = table.to_string().lines().map(|line| format!("  {line}\n")).collect();
    Ok(format!("{table}\n{questions}"))
}

/// Flags of `bench run page`.
#[derive(Debug, Args)]
pub(crate) struct PageArguments {
    /// Downloads beside the page, each over a connection of its own; several numbers in turn
    #[arg(long, value_delimiter = ',', default_values_t = [0_u32, 1, 4], value_parser = value_parser!(u32).range(..=100))]
    downloads: Vec<u32>,
    /// Rounds; every variant has one turn in each
    #[arg(long, default_value_t = 3, value_parser = value_parser!(u16).range(1..))]
    rounds: u16,
    /// Directory for the plot and the figures
    #[arg(long, default_value = "results/page")]
    output: PathBuf,
}

async fn page(arguments: PageArguments, display: &Display) -> Result<String, Error> {
    let options = bench::page::Options {
        downloads: arguments.downloads.iter().map(|&downloads| downloads as usize).collect(),
        rounds: arguments.rounds.into(),
        output: arguments.output,
    };
    Ok(bench::page::run(&options, display).await?.text())
}

/// Flags of `bench run real-loads`.
#[derive(Debug, Args)]
pub(crate) struct RealLoadsArguments {
    /// Only loads with this in their names: statements, places or lock
    #[arg(long, default_value = "")]
    only: String,
    /// Rounds; every variant has one turn in each
    #[arg(long, default_value_t = 3, value_parser = value_parser!(u16).range(1..))]
    rounds: u16,
    /// How long requests come in each turn, in seconds
    #[arg(long, default_value_t = 30.0)]
    window: f64,
    /// What the arrivals are drawn from
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Directory for the figures
    #[arg(long, default_value = "results/real-loads")]
    output: PathBuf,
}

async fn real_loads(
    arguments: RealLoadsArguments,
    server_cpu: Option<usize>,
    display: &Display,
) -> Result<String, Error> {
    let options = bench::real_loads::Options {
        loads: bench::real_loads::called(&arguments.only),
        rounds: arguments.rounds.into(),
        window: crate::seconds(arguments.window)?,
        seed: arguments.seed,
        server_cpu,
        output: arguments.output,
    };
    Ok(bench::real_loads::run(&options, display).await?.text())
}

/// Flags of `bench run viewer`.
#[derive(Debug, Args)]
pub(crate) struct ViewerArguments {
    /// Types of requests
    #[arg(long, default_value_t = bench::viewer::TYPES_MAX as u32, value_parser = value_parser!(u32).range(1..=bench::viewer::TYPES_MAX as i64))]
    types: u32,
    /// Statements a second
    #[arg(long, default_value_t = 1_000, value_parser = value_parser!(u32).range(1..=10_000))]
    rate: u32,
    /// Rounds: in each, a window with nobody and one with a viewer
    #[arg(long, default_value_t = 5, value_parser = value_parser!(u32).range(1..))]
    rounds: u32,
    /// How long processor time is counted in each window, in seconds
    #[arg(long, default_value_t = 20.0)]
    window: f64,
}

async fn viewer(
    arguments: &ViewerArguments,
    server_cpu: Option<usize>,
    display: &Display,
) -> Result<String, Error> {
    let options = bench::viewer::Options {
        types: arguments.types as usize,
        rate: arguments.rate as usize,
        rounds: arguments.rounds as usize,
        window: crate::seconds(arguments.window)?,
        server_cpu,
    };
    Ok(bench::viewer::run(&options, display).await?.text())
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
        display.now("starting what is needed");
        let began = |machine| Line::Began { machine, moment: machine::Moment::now() };
        if let Some(pages) = &plan.workload.origin {
            let mut laboratory = Pageviews::set_up(&plan, pages, form, server_cpu).await?;
            book.write(began(Pageviews::machine()?))?;
            runner::run(&plan, form, &part, &mut laboratory, &mut book, display).await?;
        } else if let Some(site) = &plan.workload.site {
            let mut laboratory = Visits::set_up(&plan, site, form, server_cpu).await?;
            book.write(began(laboratory.machine()?))?;
            runner::run(&plan, form, &part, &mut laboratory, &mut book, display).await?;
        } else {
            let mut laboratory = Statements::set_up(&plan, form, server_cpu).await?;
            book.write(began(laboratory.machine()?))?;
            runner::run(&plan, form, &part, &mut laboratory, &mut book, display).await?;
        }
        book.write(Line::Ended { moment: machine::Moment::now() })?;
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
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Bench {
        #[command(subcommand)]
        command: ByPlan,
    }

    #[test]
    fn an_experiment_is_run_by_its_plan_or_by_a_command_of_its_own() {
        let read = |words: &[&str]| Bench::try_parse_from([&["bench", "run"], words].concat());
        let ByPlan::Run { own: None, plan } = read(&["flash-sale", "--short"]).unwrap().command else {
            panic!("it has a plan")
        };
        assert_eq!((plan.name.as_deref(), plan.short), (Some("flash-sale"), true));
        let ByPlan::Run { own: Some(Own::Classes(_)), .. } =
            read(&["classes", "--only", "5"]).unwrap().command
        else {
            panic!("it has a command")
        };
        assert!(read(&[]).is_err(), "nothing says which");
    }
}
