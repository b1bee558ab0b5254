//! What is found beforehand: searched once, gone on with, and given to the gates.

use std::fs;
use std::path::Path;
use std::time::Duration;

use super::*;
use crate::experiment::cell::{Cell, Measured};
use crate::experiment::part::Part;
use crate::experiment::results::{Line, Otherwise};
use crate::experiment::runner;

/// A plan of which two capacities and the costs of one variant are to be found.
const PLAN: &str = r#"
question = "Does it?"
method = "So."

[workload]
timeout = "5s"

[[workload.request]]
name = "look"
statements = ["SELECT 1"]

[variant.first]
capacity = "calibrated"

[variant.second]
order = "fifo"
capacity = "calibrated as first"

[variant.stale]
capacity = "calibrated as first"
cost = "fixed"
state_file = "idle"

[short]
variants = ["direct"]
clients = [1]
repetitions = 1
warm_up = "1s"
window = "2s"

[full]
variants = ["direct", "first", "second", "stale"]
clients = [5, 50]
repetitions = 2
warm_up = "5s"
window = "10s"
search = { from = "10ms", to = "10s", warm_up = "1s", window = "2s", repeats = 3, measurements = 30 }
idle = { clients = 2, window = "20s" }
"#;

fn plan() -> Plan {
    Plan::parse("tried", Path::new("plan.toml"), PLAN).expect("it is whole")
}

fn complaints(this: &str, by: &str) -> String {
    assert!(PLAN.contains(this), "{this}");
    let text = PLAN.replacen(this, by, 1);
    Plan::parse("tried", Path::new("plan.toml"), &text).expect_err("it is wrong").to_string()
}

/// What a cell was measured with.
#[derive(Clone, Debug, PartialEq)]
struct Asked {
    cell: Cell,
    keys: toml::Table,
    window: Duration,
    /// What the gate finds in its state file.
    recalled: Option<String>,
}

/// A service that completes the most with a capacity of 640 ms.
#[derive(Default)]
struct Scripted {
    plan: Option<Plan>,
    window: Duration,
    asked: Vec<Asked>,
    fails_at: Option<usize>,
}

impl Scripted {
    fn of(&self, variant: &str) -> Vec<&Asked> {
        self.asked.iter().filter(|asked| asked.cell.variant == variant).collect()
    }
}

impl Laboratory for Scripted {
    async fn measure(
        &mut self,
        cell: &Cell,
        _best: Option<u32>,
        _rate: Option<f64>,
    ) -> Result<Measured, Error> {
        if self.fails_at == Some(self.asked.len()) {
            return Err(Error::Interrupted);
        }
        let plan = self.plan.as_ref().expect("it was told");
        let keys = plan.variant.get(&cell.variant).cloned().unwrap_or_default();
        let text = |key: &str| keys.get(key).and_then(Value::as_str).map(str::to_owned);
        let file = text(STATE_FILE);
        let recalled = file.as_ref().and_then(|file| fs::read_to_string(file).ok());
        if let Some(file) = file {
            fs::write(file, format!("learned by cell {}", self.asked.len())).expect("it can be written");
        }
        let mut measured = Measured { alive: true, ..Measured::default() };
        if let Some(capacity) = text(CAPACITY) {
            let seconds = humantime::parse_duration(&capacity).expect("it is a capacity").as_secs_f64();
            measured.clients.throughput = 100.0 - (seconds / 0.64).log2().abs() * 10.0;
            measured.load_seconds = Some(seconds);
        }
        self.asked.push(Asked { cell: cell.clone(), keys, window: self.window, recalled });
        Ok(measured)
    }

    fn adopt(&mut self, plan: &Plan, form: &Form) {
        self.plan = Some(plan.clone());
        self.window = form.window.0;
    }
}

fn open(path: &Path) -> Book {
    let plan = plan();
    Book::open(path, &plan.measured(&plan.full), "1", Otherwise::BeginAnew).unwrap().0
}

async fn run(laboratory: &mut Scripted, path: &Path) -> Result<Results, Error> {
    let plan = plan();
    let mut book = open(path);
    runner::run(&plan, &plan.full, &Part::default(), laboratory, &mut book, &Display::new()).await?;
    Ok(book.results().clone())
}

#[tokio::test]
async fn the_best_capacity_is_found_once_under_the_most_clients_and_shared() {
    let directory = tempfile::tempdir().unwrap();
    let mut laboratory = Scripted::default();
    let results = run(&mut laboratory, &directory.path().join("full.jsonl")).await.unwrap();
    let found = capacity_of(&plan(), &plan().full, &results, "second").unwrap();
    assert_eq!(capacity_of(&plan(), &plan().full, &results, "first").as_ref(), Some(&found));
    let off = humantime::parse_duration(&found).unwrap().as_secs_f64() / 0.64;
    assert!((0.79..1.27).contains(&off), "{found}");
    let trials: Vec<&Asked> =
        laboratory.of("first").into_iter().filter(|asked| asked.window == Duration::from_secs(2)).collect();
    assert!((8..=30).contains(&trials.len()), "{}", trials.len());
    assert!(trials.iter().all(|asked| asked.cell.load == Load::Clients(50)));
    let measured = |name: &str| {
        let of = laboratory.of(name);
        of.into_iter().filter(|asked| asked.window == Duration::from_secs(10)).cloned().collect::<Vec<_>>()
    };
    for name in ["first", "second", "stale"] {
        assert_eq!(measured(name).len(), 4);
        assert!(measured(name).iter().all(|asked| asked.keys[CAPACITY].as_str() == Some(&found)), "{name}");
    }
    // Nothing is looked for in the name of a variant that has another's.
    assert_eq!(laboratory.of("second").len(), 4);
    let told = told(&plan(), &plan().full, &results);
    assert!(told[0].starts_with("The capacity of `first` was looked for with 50 clients: 10ms "), "{told:?}");
    assert!(told[0].contains(&format!("Taken: {found}, the middle of")), "{told:?}");
}

#[tokio::test]
async fn a_search_that_was_interrupted_goes_on_where_it_was() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("full.jsonl");
    let mut whole = Scripted::default();
    run(&mut whole, &directory.path().join("other.jsonl")).await.unwrap();
    let mut first = Scripted { fails_at: Some(7), ..Scripted::default() };
    assert!(matches!(run(&mut first, &path).await, Err(Error::Interrupted)));
    let mut second = Scripted::default();
    let results = run(&mut second, &path).await.unwrap();
    let cells = |asked: &[Asked]| asked.iter().map(|asked| asked.cell.clone()).collect::<Vec<_>>();
    assert_eq!([cells(&first.asked), cells(&second.asked)].concat(), cells(&whole.asked));
    let count = |line: fn(&Line) -> bool| results.lines.iter().filter(|one| line(one)).count();
    assert_eq!(count(|line| matches!(line, Line::Costs { .. })), 1);
    let mut third = Scripted::default();
    run(&mut third, &path).await.unwrap();
    assert!(third.asked.is_empty());
}

#[tokio::test]
async fn costs_are_learned_of_an_idle_service_once_and_recalled_for_each_cell() {
    let directory = tempfile::tempdir().unwrap();
    let mut laboratory = Scripted::default();
    run(&mut laboratory, &directory.path().join("full.jsonl")).await.unwrap();
    let stale = laboratory.of("stale");
    assert_eq!(stale.len(), 5);
    let idle = stale[0];
    assert_eq!((idle.cell.load, idle.window), (Load::Clients(2), Duration::from_secs(20)));
    // It learns: neither a capacity nor fixed costs, and nothing is known yet.
    assert_eq!((idle.keys.len(), &idle.recalled), (1, &None));
    assert!(stale[1..].iter().all(|asked| asked.recalled == stale[1].recalled));
    assert!(stale[1].recalled.as_ref().unwrap().starts_with("learned by cell "));
    assert_eq!(stale[1].keys["cost"].as_str(), Some("fixed"));
}

#[tokio::test]
async fn every_measurement_of_a_search_begins_with_what_was_learned_of_an_idle_service() {
    let directory = tempfile::tempdir().unwrap();
    let whole =
        PLAN.replacen("capacity = \"calibrated\"", "capacity = \"calibrated\"\nstate_file = \"idle\"", 1);
    let plan = Plan::parse("tried", Path::new("plan.toml"), &whole).unwrap();
    let path = directory.path().join("full.jsonl");
    let (mut book, _) = Book::open(&path, &plan.measured(&plan.full), "1", Otherwise::BeginAnew).unwrap();
    let mut laboratory = Scripted::default();
    let part = Part::of("first");
    runner::run(&plan, &plan.full, &part, &mut laboratory, &mut book, &Display::new()).await.unwrap();
    let [idle, rest @ ..] = &laboratory.of("first")[..] else { panic!("nothing was measured") };
    assert_eq!(idle.recalled, None);
    assert!(rest.len() > 10, "{}", rest.len());
    assert!(rest.iter().all(|asked| asked.recalled.as_deref() == Some("learned by cell 0")), "{rest:?}");
}

#[test]
fn what_is_found_beforehand_takes_time() {
    let (plan, brief) = (plan(), Duration::from_secs(3));
    let cell = |form: &Form, clients| plan.cell_takes(form, Load::Clients(clients));
    let search = cell(&plan.full, 50) - Duration::from_secs(15) + brief;
    let idle = cell(&plan.full, 2) + Duration::from_secs(10);
    let nothing = Results::default();
    assert_eq!(takes(&plan, &plan.full, &nothing), search * 30 + idle);
    assert_eq!(takes(&plan, &plan.short, &nothing), Duration::ZERO);
    // An interrupted search has fewer measurements to go, and what was learned isn't learned again.
    let mut results = nothing;
    let variant = || "first".to_owned();
    let line = Line::Capacity { variant: variant(), seconds: 0.01, throughput: 1.0, reached: true };
    results.lines.extend([line.clone(), line]);
    assert_eq!(takes(&plan, &plan.full, &results), search * 28 + idle);
    results.lines.push(Line::Costs { variant: "stale".to_owned(), document: String::new() });
    assert_eq!(takes(&plan, &plan.full, &results), search * 28);
    let only_direct = Form { variants: vec!["direct".to_owned()], ..plan.full.clone() };
    assert_eq!(takes(&plan, &only_direct, &results), Duration::ZERO);
}

#[test]
fn what_does_not_fit_is_told() {
    let search = "search = { from = \"10ms\", to = \"10s\", warm_up = \"1s\", window = \"2s\", repeats = 3, measurements = 30 }\n";
    let cases = [
        (search, "", "full.search: is missing, and the capacity of `first` is looked for; write search = {"),
        ("from = \"10ms\"", "from = \"20s\"", "full.search.from: must be at least 1ms, and at most `to`"),
        ("repeats = 3", "repeats = 1", "full.search.repeats: must be at least 2"),
        ("clients = [1]", &format!("clients = [1]\n{search}"), "short.search: is there, and no variant's"),
        (
            "idle = { clients = 2, window = \"20s\" }",
            "",
            "full.idle: is missing, and `stale` has what is learned",
        ),
        ("clients = 2,", "clients = 0,", "full.idle.clients: must be more than zero"),
        (
            "capacity = \"calibrated as first\"\ncost",
            "capacity = \"calibrated as second\"\ncost",
            "variant.stale.capacity: `second` is no variant with capacity = \"calibrated\"",
        ),
    ];
    for (this, by, expected) in cases {
        let said = complaints(this, by);
        assert!(said.contains(expected), "{expected}: {said}");
    }
}
