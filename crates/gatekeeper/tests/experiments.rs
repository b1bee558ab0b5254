//! An experiment that is a plan, on a real PostgreSQL or MariaDB with and without a gate: measured,
//! interrupted, gone on with, shown.

// Helpers of tests may panic too.
#![allow(clippy::unwrap_used)]

use std::path::Path;

use bench::Error;
use bench::alternate::Display;
use bench::experiment::laboratory::Statements;
use bench::experiment::part::Part;
use bench::experiment::plan::{Load, Plan};
use bench::experiment::report::{self, Places, Shown};
use bench::experiment::results::{Book, Opened, Otherwise, Results};
use bench::experiment::runner;
use bench::experiment::verdict::{self, Standing};
use testbed::database::Database;

/// Counters that some update and others look at; half a second for each cell. Rows in ascending order:
/// nobody waits for a deadlock to be found.
const PLAN: &str = r#"
question = "Does the harness measure?"
method = "Two clients count, another one looks."

[workload]
setup = ["CREATE TABLE counters (id int PRIMARY KEY, value bigint NOT NULL)",
    "INSERT INTO counters SELECT n, 0 FROM generate_series(1, 10) n"]
reset = ["UPDATE counters SET value = 0"]
timeout = "5s"
[[workload.request]]
name = "count"
unit = "serializable"
draw = ["2 of 1..10"]
statements = ["UPDATE counters SET value = value + 1 WHERE id = {0}",
    "UPDATE counters SET value = value - 1 WHERE id = {1}"]
retry = ["40001", "40P01"]
[[workload.check]]
says = "what was added was taken away"
sql = "SELECT sum(value) = 0 FROM counters"
[workload.bystanders]
application = "onlookers"
beside = ["direct", "gate"]
clients = 1
think = "1ms"
[[workload.bystanders.request]]
name = "look"
draw = ["1..10"]
statements = ["SELECT value / (current_setting('application_name') = 'onlookers')::int FROM counters WHERE id = {0}"]

[variant.alone]

[short]
variants = ["direct", "gate", "alone"]
clients = [0, 2]
overload = [1.5]
calibrate = { variant = "gate", clients = [2] }
repetitions = 1
warm_up = "100ms"
window = "500ms"
drain = "2s"

[full]
variants = ["direct"]
clients = [0]
repetitions = 1
warm_up = "0s"
window = "1s"

[[goal]]
says = "nobody waits for longer than anybody may"
of = "gate"
metric = "response"
clients_from = 2
at_most = 5

[[goal]]
says = "and seen"
of = "gate"
metric = "response"
group = "bystanders"
at_most = 5
"#;

fn plan() -> Plan {
    Plan::parse("tiny", Path::new("plan.toml"), PLAN).unwrap()
}

fn open(path: &Path, plan: &Plan) -> (Book, Opened) {
    let binary = bench::gatekeeper::identity().unwrap();
    Book::open(path, &plan.measured(&plan.short), &binary, Otherwise::BeginAnew).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn an_experiment_is_measured_gone_on_with_and_shown() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("short.jsonl");
    let plan = plan();
    let display = Display::new();
    let mut laboratory = Statements::set_up(&plan, &plan.short, None).await.unwrap();
    // Only one variant first, as if the rest had been interrupted.
    let (mut book, opened) = open(&path, &plan);
    assert_eq!(opened, Opened::New);
    runner::run(&plan, &plan.short, &Part::of("direct"), &mut laboratory, &mut book, &display).await.unwrap();
    drop(book);
    let (mut book, opened) = open(&path, &plan);
    assert_eq!(opened, Opened::Continued(3));
    runner::run(&plan, &plan.short, &Part::default(), &mut laboratory, &mut book, &display).await.unwrap();

    let results = Results::read(&path).unwrap();
    assert_eq!(results.cells().count(), 9);
    for (cell, measured) in results.cells() {
        assert!(measured.alive, "{cell:?}: {measured:?}");
        assert_eq!(measured.first_failure, None, "{cell:?}");
        match cell.load {
            Load::Clients(0) => assert_eq!(measured.clients.under_way, 0),
            _ => assert!(measured.clients.under_way > 0, "{cell:?}: {measured:?}"),
        }
        let is_open = matches!(cell.load, Load::Overload(_));
        assert_eq!(measured.rate.is_some(), is_open);
        assert_eq!(measured.bystanders.is_some(), !is_open && cell.variant != "alone", "{cell:?}");
    }
    assert!(results.calibrated().is_some_and(|rate| rate > 0.0));
    let verdicts = verdict::judge(&plan, &plan.short, &results);
    assert!(verdicts.iter().all(|verdict| verdict.standing == Standing::Reached), "{verdicts:?}");

    let shown = Shown { plan, form: "short", results };
    let places = Places { page: directory.path().join("page"), tables: None };
    let files = report::write(&[shown], &places).unwrap();
    assert!(std::fs::read_to_string(&files[0]).unwrap().contains("Does the harness measure?"));
}

/// The shop's orders and reads, which every database knows.
const OVER_ANY: &str = r#"
question = "Does a plan run over MariaDB?"
method = "Two clients order, another one looks."

[workload]
tables = "shop"
timeout = "10s"
[[workload.request]]
name = "order"
[[workload.check]]
says = "every order took three articles from stock"
sql = "SELECT (SELECT count(*) * 3 FROM orders) = (SELECT sum(1000000000 - stock) FROM items)"
[workload.bystanders]
clients = 1
think = "1ms"
[[workload.bystanders.request]]
name = "short read"

[short]
variants = ["direct", "pgbouncer-same-pool", "gate"]
clients = [2]
repetitions = 1
warm_up = "100ms"
window = "500ms"
drain = "10s"

[full]
variants = ["pgbouncer-same-pool", "direct"]
clients = [2]
repetitions = 1
warm_up = "0s"
window = "1s"

[[goal]]
says = "orders are taken behind the gate"
of = "gate"
metric = "throughput"
at_least = 1

[[goal]]
says = "more than behind PgBouncer"
of = "gate"
metric = "throughput"
relative_to = "pgbouncer-same-pool"
at_least = 1
"#;

#[tokio::test(flavor = "multi_thread")]
async fn a_plan_of_the_shop_runs_over_mariadb() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("short-mariadb.jsonl");
    let plan = Plan::parse("shop", Path::new("plan.toml"), OVER_ANY).unwrap();
    let plan = plan.over(Database::Mariadb).unwrap();
    assert_eq!((plan.short.variants.len(), plan.full.variants.len(), plan.goal.len()), (2, 1, 1));
    let mut laboratory = Statements::set_up(&plan, &plan.short, None).await.unwrap();
    assert_eq!(laboratory.machine().unwrap().database, Database::Mariadb);
    let (mut book, _) = open(&path, &plan);
    let display = Display::new();
    runner::run(&plan, &plan.short, &Part::default(), &mut laboratory, &mut book, &display).await.unwrap();
    let results = Results::read(&path).unwrap();
    for (cell, measured) in results.cells() {
        assert!(measured.alive && measured.clients.throughput > 0.0, "{cell:?}: {measured:?}");
        assert_eq!((&measured.first_failure, measured.clients.failed), (&None, 0), "{cell:?}");
        assert!(measured.bystanders.is_some_and(|others| others.throughput > 0.0), "{cell:?}");
    }
    let verdicts = verdict::judge(&plan, &plan.short, &results);
    assert!(verdicts.iter().all(|verdict| verdict.standing == Standing::Reached), "{verdicts:?}");
}

#[test]
fn what_a_plan_says_of_postgresql_is_not_run_over_mariadb() {
    let said = plan().over(Database::Mariadb).unwrap_err().to_string();
    assert!(said.contains("tiny: workload.setup is written for PostgreSQL"), "{said}");
}

#[tokio::test]
async fn what_does_not_hold_after_a_cell_ends_the_experiment() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("short.jsonl");
    let mut plan = plan();
    plan.workload.check[0].sql = "SELECT count(*) = 0 FROM counters".to_owned();
    let mut laboratory = Statements::set_up(&plan, &plan.short, None).await.unwrap();
    let (mut book, _) = open(&path, &plan);
    let display = Display::new();
    let part = Part::of("direct");
    let run = runner::run(&plan, &plan.short, &part, &mut laboratory, &mut book, &display);
    let error = run.await.unwrap_err();
    assert!(
        matches!(&error, Error::Experiment(why) if why.contains("what was added was taken away")),
        "{error}"
    );
    assert_eq!(Results::read(&path).unwrap().cells().count(), 0);
}
