//! Plans: a whole one, and every way to get one wrong.

use std::path::Path;
use std::time::Duration;

use super::cell::Cell;
use super::plan::{Calibrate, Connect, Load, Plan, Show};
use super::results::{Line, Results};
use super::runner;

mod sites;

/// A plan with everything in it.
const WHOLE: &str = r#"
question = "Does it?"
method = "So."

[workload]
setup = ["CREATE TABLE counters (id int PRIMARY KEY, value bigint NOT NULL)"]
reset = ["UPDATE counters SET value = 0"]
timeout = "5s"

[[workload.request]]
name = "count"
unit = "transaction"
draw = ["2 of 1..50"]
statements = ["UPDATE counters SET value = value + 1 WHERE id IN ({0}, {1})"]
retry = ["40P01"]

[[workload.check]]
says = "nothing is negative"
sql = "SELECT min(value) >= 0 FROM counters"

[workload.bystanders]
clients = 5
think = "100ms"
[[workload.bystanders.request]]
name = "look"
draw = ["1..50"]
statements = ["SELECT value FROM counters WHERE id = {0}"]

[variant.gate-contention]
contention = "auto"

[short]
variants = ["direct", "gate"]
clients = [300]
repetitions = 2
warm_up = "1s"
window = "2s"

[full]
variants = ["direct", "pgbouncer-best-pool", "gate"]
clients = [0, 4, 300]
repetitions = 3
warm_up = "5s"
window = "10s"
pools = [2, 4, 8]

[[goal]]
says = "three times as much"
of = "gate"
metric = "throughput"
clients_from = 300
relative_to = "direct"
at_least = 3

[[expected]]
source = "a study"
variant = "direct"
clients = 300
throughput = 2.5
"#;

/// The plan that `WHOLE` describes.
pub(crate) fn plan() -> Plan {
    Plan::parse("tried", Path::new("plan.toml"), WHOLE).expect("it is whole")
}

/// What is said of the plan with something in it replaced.
fn complaints(this: &str, by: &str) -> String {
    assert!(WHOLE.contains(this), "{this}");
    let text = WHOLE.replacen(this, by, 1);
    Plan::parse("tried", Path::new("plan.toml"), &text).expect_err("it is wrong").to_string()
}

fn line_of(this: &str) -> usize {
    WHOLE.lines().position(|line| line.starts_with(this)).expect("it is there") + 1
}

#[test]
fn a_whole_plan_is_read() {
    let plan = plan();
    assert_eq!(plan.short.loads().collect::<Vec<_>>(), [Load::Clients(300)]);
    assert_eq!(plan.workload.bystanders.as_ref().map(|others| others.clients), Some(5));
    // 5 s of setting up, and four cells of 600 connections at 2 ms, 3 s, a second of drain, and what is
    // around them.
    assert_eq!(plan.takes(&plan.short), Duration::from_millis(5_000 + 4 * (600 + 600 + 3_000 + 1_000)));
    assert!(plan.takes(&plan.full) > Duration::from_secs(9 * 3 * 16));
}

#[test]
fn a_server_may_have_a_part_of_a_processor() {
    let whole = plan();
    // Results that were measured before there was this key still fit.
    assert!(whole.measured(&whole.full)["server"].get("processors").is_none());
    let with =
        |part: &str| WHOLE.replacen("[short]", &format!("[server]\nprocessors = {part}\n\n[short]"), 1);
    let slow = Plan::parse("tried", Path::new("plan.toml"), &with("0.33")).unwrap();
    assert_eq!(slow.server.processors, Some(0.33));
    assert_ne!(slow.measured(&slow.full), whole.measured(&whole.full));
    for wrong in ["0.0", "-1.0", "nan", "1000.0"] {
        let said = Plan::parse("tried", Path::new("plan.toml"), &with(wrong)).unwrap_err().to_string();
        assert!(said.contains("server.processors: must be from 0.05 to 256"), "{said}");
    }
}

#[test]
fn what_is_left_is_less_than_all_of_it_by_what_is_there() {
    let mut plan = plan();
    plan.full.overload = vec![1.5];
    plan.full.overloaded = vec!["gate".to_owned()];
    plan.full.calibrate = Some(Calibrate { variant: "gate".to_owned(), clients: vec![4] });
    let form = &plan.full;
    let all = runner::cells(form);
    // Three times three variants under three loads, and one under the overload.
    assert_eq!(all.len(), 3 * (3 * 3 + 1));
    assert!(all.iter().all(|cell| cell.variant == "gate" || cell.load != Load::Overload(1.5)));
    let mut results = Results::default();
    assert_eq!(plan.left(form, &all, &results), plan.takes(form));
    let takes = |clients| plan.cell_takes(form, Load::Clients(clients));
    results.lines.push(Line::Pool { variant: "pgbouncer-best-pool".to_owned(), tried: vec![(2, 1.0)] });
    assert_eq!(plan.left(form, &all, &results), plan.takes(form) - takes(300) * 3);
    results.lines.push(Line::Calibrated { tried: vec![(4, 1.0)] });
    assert_eq!(plan.left(form, &all, &results), plan.takes(form) - takes(300) * 3 - takes(4));
    // Of a part without them, neither was to be found.
    let direct: Vec<Cell> = all.into_iter().filter(|cell| cell.variant == "direct").collect();
    let alone = Duration::from_secs(5) + (takes(0) + takes(4) + takes(300)) * 3;
    assert_eq!(plan.left(form, &direct, &Results::default()), alone);
}

#[test]
fn who_is_offered_the_overload_must_be_there() {
    let open = "overload = [3.0]\ncalibrate = { variant = \"gate\", clients = [4] }\n";
    let with = |overloaded: &str| format!("[full]\n{open}overloaded = [{overloaded}]\n");
    let text = WHOLE.replacen("[full]\n", &with("\"gate\", \"direct\""), 1);
    let plan = Plan::parse("tried", Path::new("plan.toml"), &text).unwrap();
    assert!(plan.full.offers("gate", Load::Overload(3.0)) && plan.full.offers("direct", Load::Overload(3.0)));
    assert!(!plan.full.offers("pgbouncer-best-pool", Load::Overload(3.0)));
    assert!(plan.full.offers("pgbouncer-best-pool", Load::Clients(4)));
    let said = complaints("[full]\n", &with("\"gates\""));
    assert!(
        said.contains("full.overloaded.0: `gates` isn't among this form's variants; did you mean `gate`?"),
        "{said}"
    );
    let said = complaints("[full]\n", "[full]\noverloaded = [\"gate\"]\n");
    assert!(said.contains("full.overloaded: is there, and nothing is offered in `overload`"), "{said}");
    let said = complaints("[full]\n", "[full]\nkept_open = true\n");
    assert!(said.contains("full.kept_open: is for a site, and there is none"), "{said}");
}

#[test]
fn every_collapse_is_offered_to_a_gate_that_holds_a_target() {
    let experiments = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../experiments");
    for name in ["deadlocks", "serializable-retries", "flash-sale", "short-reads", "memory-cliff"] {
        let plan = Plan::load(&experiments, name).unwrap();
        let form = &plan.full;
        assert_eq!(form.overload, [1.5, 3.0], "{name}");
        let calibrate = form.calibrate.as_ref().map(|calibrate| calibrate.variant.as_str());
        assert_eq!(calibrate, Some("gate-target"), "{name}");
        for variant in ["gate", "gate-target"] {
            assert!(form.offers(variant, Load::Overload(3.0)), "{name}: {variant}");
            let judged = |goal: &&super::plan::Goal| goal.of == variant && goal.overload_from == Some(1.5);
            assert_eq!(plan.goal.iter().filter(judged).count(), 1, "{name}: {variant}");
        }
        // One line more than the default gate.
        let keys: Vec<&str> = plan.variant["gate-target"].keys().map(String::as_str).collect();
        assert_eq!(keys, ["target"], "{name}");
        assert_eq!(plan.workload.connect, Connect::Once, "{name}: an open loop's connections stay");
    }
}

#[test]
fn every_plan_of_the_repository_is_sound() {
    let experiments = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../experiments");
    let names = super::plan::names(&experiments).unwrap();
    assert!(names.iter().any(|name| name == "deadlocks"), "{names:?}");
    for name in names {
        if let Err(error) = Plan::load(&experiments, &name) {
            panic!("{error}");
        }
    }
    let said = Plan::load(&experiments, "nothing").unwrap_err().to_string();
    assert!(said.contains("known experiments: ") && said.contains("deadlocks"), "{said}");
}

#[test]
fn a_key_that_is_spelled_wrong_is_told_with_its_line_and_the_right_one() {
    let line = line_of("warm_up");
    assert_eq!(
        complaints("warm_up = \"1s\"", "warmup = \"1s\""),
        format!("plan.toml:{line}: warmup: there is no such key; did you mean `warm_up`?")
    );
    assert!(
        complaints("metric = \"throughput\"", "metric = \"throughputs\"")
            .contains("did you mean `throughput`?")
    );
}

#[test]
fn what_is_missing_or_no_value_is_told() {
    assert!(complaints("question = \"Does it?\"", "").contains("question: is missing"));
    let said = complaints("timeout = \"5s\"", "timeout = 5");
    assert!(said.starts_with(&format!("plan.toml:{}: timeout: ", line_of("timeout"))), "{said}");
    let said = complaints("timeout = \"5s\"", "timeout = \"5\"");
    assert!(said.contains("isn't a length of time; write one such as \"250ms\""), "{said}");
    assert!(complaints("\"2 of 1..50\"", "\"two\"").contains("says nothing to draw"));
    assert!(complaints("[short]", "[short").starts_with("plan.toml:"));
}

#[test]
fn all_that_does_not_fit_together_is_told_at_once() {
    let text = WHOLE
        .replacen("variants = [\"direct\", \"gate\"]", "variants = [\"direct\", \"gates\"]", 1)
        .replacen("relative_to = \"direct\"", "relative_to = \"nobody\"", 1)
        .replacen("pools = [2, 4, 8]", "", 1);
    let said = Plan::parse("tried", Path::new("plan.toml"), &text).unwrap_err();
    assert_eq!(said.list.len(), 3, "{said}");
    let lines: Vec<_> = said.list.iter().map(|complaint| complaint.line).collect();
    assert!(lines.is_sorted() && lines.iter().all(Option::is_some), "{said}");
    let said = said.to_string();
    for expected in [
        "short.variants.1: `gates` is no variant; did you mean `gate`?",
        "full.pools: is empty, and `pgbouncer-best-pool` has the best of them; write the sizes",
        "goal.0.relative_to: `nobody` is no variant; known: direct, ",
    ] {
        assert!(said.contains(expected), "{expected}: {said}");
    }
}

#[test]
fn bounds_of_a_form_are_kept() {
    let cases = [
        ("repetitions = 2", "repetitions = 0", "short.repetitions: must be more than zero"),
        ("repetitions = 2", "repetitions = 40", "short: takes about 421 s, and may take 60 s; take away"),
        // Longer than anything lasts, and no reason to panic.
        ("window = \"2s\"", "window = \"100000000000y\"", "short: takes about "),
        ("pools = [2, 4, 8]", "pools = []", "full.pools: is empty, and `pgbouncer-best-pool` has the best"),
        ("clients = [300]", "clients = []", "short.clients: is empty, and so is `overload`"),
        ("clients = [300]", "clients = [6000]", "short.clients: has more than 5000"),
        ("clients = [300]", "overload = [1.5]", "short.overload: has nothing to multiply; write calibrate"),
        ("at_least = 3", "", "has no bound; write at_least or at_most"),
        ("at_least = 3", "at_least = 3\nat_most = 4", "goal.0.at_most: and `at_least` can't both be there"),
        ("\"40P01\"", "\"53300\"", "workload.request.0.retry: `53300` says that there is no room"),
        ("\"40P01\"", "\"deadlock\"", "workload.request.0.retry: `deadlock` is no SQLSTATE"),
        ("[variant.gate-contention]", "[variant.gate]", "variant.gate: is the name of a variant"),
        (
            "method = \"So.\"",
            "method = \"So.\"\nshow = [\"convergence\"]",
            "show.0: there are no pages; it is about",
        ),
        ("variant = \"direct\"", "variant = \"x\"", "expected.0.variant: `x` is no variant"),
    ];
    for (this, by, expected) in cases {
        let said = complaints(this, by);
        assert!(said.contains(expected), "{expected}: {said}");
    }
}

#[test]
fn the_shops_requests_need_the_shop() {
    let statements = "statements = [\"UPDATE counters SET value = value + 1 WHERE id IN ({0}, {1})\"]";
    assert!(complaints(statements, "").contains("workload.request.0.statements: is empty; write them"));
    let text = WHOLE.replacen(statements, "", 1).replacen("[workload]", "[workload]\ntables = \"shop\"", 1);
    let said = Plan::parse("tried", Path::new("plan.toml"), &text).unwrap_err().to_string();
    assert!(said.contains("name: is no request type of the shop, and has no statements"), "{said}");
    let text = text.replacen("name = \"count\"", "name = \"order\"", 1);
    Plan::parse("tried", Path::new("plan.toml"), &text).unwrap();
}

#[test]
fn prose_and_goals_do_not_decide_about_figures_and_everything_else_does() {
    let measured = |text: &str| {
        let plan = Plan::parse("tried", Path::new("plan.toml"), text).unwrap();
        plan.measured(&plan.full)
    };
    let before = measured(WHOLE);
    assert_eq!(before, measured(&WHOLE.replacen("at_least = 3", "at_least = 4", 1)));
    assert_eq!(before, measured(&WHOLE.replacen("Does it?", "Doesn't it?", 1)));
    assert_ne!(before, measured(&WHOLE.replacen("\"40P01\"", "\"40001\"", 1)));
    let mut shows = Plan::parse("tried", Path::new("plan.toml"), WHOLE).unwrap();
    shows.show.push(Show::Convergence);
    assert_ne!(before, shows.measured(&shows.full));
    assert!(before.get("show").is_none(), "results of before this key fit");
    assert_ne!(before, measured(&WHOLE.replacen("window = \"10s\"", "window = \"11s\"", 1)));
}

#[test]
fn a_session_for_each_client_does_not_go_with_an_open_loop() {
    let open = "overload = [3.0]\ncalibrate = { variant = \"gate\", clients = [4] }\nvariants = [";
    let text =
        WHOLE.replacen("[full]\nvariants = [\"direct\"", &format!("[full]\n{open}\"pgpool-same-pool\""), 1);
    let said = Plan::parse("tried", Path::new("plan.toml"), &text).unwrap_err().to_string();
    assert!(said.contains("full.overload: doesn't go with `pgpool-same-pool`"), "{said}");
    let closed = text.replacen("overload = [3.0]\n", "", 1);
    Plan::parse("tried", Path::new("plan.toml"), &closed).unwrap();
    let said = complaints("\"pgbouncer-best-pool\"", "\"pgpool-best-pol\"");
    assert!(said.contains("did you mean `pgpool-best-pool`?"), "{said}");
}

#[test]
fn an_open_loop_does_not_connect_for_each_request() {
    let open = "[full]\noverload = [3.0]\ncalibrate = { variant = \"gate\", clients = [4] }\n";
    let text = WHOLE.replacen("[full]\n", open, 1).replacen(
        "timeout = \"5s\"",
        "timeout = \"5s\"\nconnect = \"for-each-request\"",
        1,
    );
    let said = Plan::parse("tried", Path::new("plan.toml"), &text).unwrap_err().to_string();
    assert!(said.contains("full.overload: is an open loop, and doesn't go with connect"), "{said}");
}

#[test]
fn peers_have_the_same_budget_and_the_gate_has_none() {
    let experiments = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../experiments");
    for name in ["peers-flash-sale", "peers-deadlocks", "peers-shop"] {
        let plan = Plan::load(&experiments, name).unwrap();
        let of = |name: &str| plan.full.variants.iter().any(|variant| variant == name);
        assert!(of("pgbouncer-best-pool") && of("pgpool-best-pool") && of("gate"), "{name}");
        assert!(plan.full.pools.len() >= 5 && plan.variant.is_empty(), "{name}");
        let beside = ["direct", "pgbouncer-best-pool", "pgpool-best-pool"];
        for reference in beside {
            let asked = |goal: &&super::plan::Goal| matches!(&goal.relative_to, Some(super::words::Reference::Variant(name)) if name == reference);
            assert_eq!(plan.goal.iter().filter(asked).count(), 2, "{name}: {reference}");
        }
    }
}

#[test]
fn peers_before_an_origin_have_as_many_settings_to_try_and_the_gate_has_none() {
    let experiments = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../experiments");
    let plan = Plan::load(&experiments, "peers-origin").unwrap();
    assert_eq!(plan.variant.keys().collect::<Vec<_>>(), ["gate-target"]);
    for (name, settings) in &plan.peer {
        assert!(plan.full.variants.contains(name), "{name}");
        assert_eq!(settings.len(), 8, "{name}");
        for (number, setting) in settings.iter().enumerate() {
            assert!(!settings[..number].contains(setting), "{name}: {setting:?} twice");
            assert!(setting.values().all(|value| !value.is_empty()), "{name}: {setting:?}");
        }
    }
    let setting = plan.setting("haproxy", 4).unwrap();
    assert_eq!(setting, "maxconn 4, timeout queue 1s");
    assert!(plan.setting("haproxy", 8).is_none());
    assert!(plan.setting("gate", 0).is_none());
}

/// A plan of an origin with everything in it.
const ORIGIN: &str = r#"
question = "Does it?"
method = "So."
[workload]
timeout = "10s"
[workload.origin]
mix = "shopping"
calm = "2s"
[variant.gate-target]
target = "150ms"
[peer]
nginx = [{ limit_conn = "1" }, { limit_conn = "2" }]
[short]
variants = ["gate"]
overload = [3]
calibrate = { variant = "direct", clients = [32] }
repetitions = 1
warm_up = "1s"
window = "2s"
[full]
variants = ["direct", "gate", "gate-target", "nginx"]
overload = [0.9, 3]
calibrate = { variant = "direct", clients = [32] }
repetitions = 2
warm_up = "1s"
window = "2s"
[[goal]]
says = "short pages are as fast"
of = "gate"
metric = "response-let-in"
group = "short"
relative_to = "nginx"
at_most = 1
"#;

#[test]
fn a_plan_of_an_origin_has_peers_short_pages_and_nothing_of_a_database() {
    let parse = |text: &str| Plan::parse("tried", Path::new("plan.toml"), text);
    let plan = parse(ORIGIN).unwrap();
    assert!(plan.clone().over(testbed::database::Database::Mariadb).is_err());
    // Below saturation nobody is waited for; above it the patience comes behind each cell.
    let takes = |factor| plan.cell_takes(&plan.full, Load::Overload(factor)).as_secs_f64();
    assert!((takes(3.0) - takes(0.9) - 9.0).abs() < 1e-9);
    let cases = [
        ("mix = \"shopping\"", "mix = \"ordering\"", "ordering: isn't known; known: shopping"),
        ("calm = \"2s\"", "calm = \"0s\"", "workload.origin.calm: must be more than zero"),
        ("calm = \"2s\"", "calm = \"2s\"\ntried_at = 0.0", "workload.origin.tried_at: must be more"),
        ("timeout = \"10s\"", "timeout = \"10s\"\ntables = \"shop\"", "workload.tables: doesn't go with"),
        (
            "overload = [3]",
            "clients = [4]\noverload = [3]",
            "short.clients: doesn't go with [workload.origin]",
        ),
        ("\"direct\", \"gate\"", "\"pgbouncer-same-pool\"", "stands before a database"),
        ("\"nginx\"]", "\"ngin\"]", "did you mean `nginx`?"),
        ("nginx = [{ limit_conn = \"1\" }, { limit_conn = \"2\" }]", "nginx = []", "peer.nginx: is empty"),
        ("[peer]\n", "[peer]\napache = [{}]\n", "peer.apache: `apache` is no peer"),
    ];
    for (old, new, expected) in cases {
        let said = parse(&ORIGIN.replacen(old, new, 1)).unwrap_err().to_string();
        assert!(said.contains(expected), "{new}: {said}");
    }
    let statements = WHOLE.replacen("[short]", "[peer]\nnginx = [{ limit_conn = \"1\" }]\n\n[short]", 1);
    let said = parse(&statements).unwrap_err().to_string();
    assert!(said.contains("peer.nginx: is for an origin"), "{said}");
    let short = WHOLE.replacen("clients_from = 300", "group = \"short\"", 1);
    assert!(parse(&short).unwrap_err().to_string().contains("there are no short pages"));
}

#[tokio::test]
async fn the_best_setting_of_a_peer_is_found_once_and_used() {
    use super::cell::{Figures, Measured, TypeFigures};
    use super::results::{Book, Otherwise};
    /// A page as it takes alone; nginx's second setting serves more.
    struct Scripted(Vec<(Cell, Option<u32>)>);
    impl runner::Laboratory for Scripted {
        async fn measure(
            &mut self,
            cell: &Cell,
            best: Option<u32>,
            _: Option<f64>,
        ) -> Result<Measured, crate::Error> {
            self.0.push((cell.clone(), best));
            let throughput = if best == Some(1) { 40.0 } else { 20.0 };
            let clients = Figures { throughput, let_in_seconds: Some(0.1), ..Figures::default() };
            let types = vec![TypeFigures { name: "home".to_owned(), completed: 1, in_time_seconds: 0.1 }];
            Ok(Measured { clients, short: Some(clients), types, ..Measured::default() })
        }
        fn adopt(&mut self, _: &Plan, _: &super::plan::Form) {}
        async fn alone(&mut self, variant: &str) -> Result<Option<Measured>, crate::Error> {
            let cell = Cell { variant: variant.to_owned(), load: Load::Clients(1), repetition: 0 };
            self.measure(&cell, None, None).await.map(Some)
        }
    }
    let directory = tempfile::tempdir().unwrap();
    let plan = Plan::parse("tried", Path::new("plan.toml"), ORIGIN).unwrap();
    let path = directory.path().join("full.jsonl");
    let (mut book, _) = Book::open(&path, &plan.measured(&plan.full), "1", Otherwise::BeginAnew).unwrap();
    let mut laboratory = Scripted(Vec::new());
    let (part, display) = (super::part::Part::default(), crate::alternate::Display::new());
    runner::run(&plan, &plan.full, &part, &mut laboratory, &mut book, &display).await.unwrap();
    let of_nginx = laboratory.0.iter().filter(|(cell, _)| cell.variant == "nginx");
    let settings: Vec<Option<u32>> = of_nginx.map(|(_, best)| *best).collect();
    assert_eq!(settings, [0, 1, 1, 1, 1, 1].map(Some));
    assert_eq!(Results::read(&path).unwrap().setting("nginx"), Some(1));
}
