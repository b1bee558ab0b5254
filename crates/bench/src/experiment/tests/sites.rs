//! Plans of a site with somebody before it, and browsers that join by a schedule.

use std::path::Path;
use std::time::Duration;

use crate::experiment::cell::{Cell, Figures, Measured};
use crate::experiment::plan::{Load, Place, Plan};
use crate::experiment::results::{Line, Results};
use crate::experiment::runner;
use crate::experiment::verdict::{self, Standing};

const SITE: &str = r#"
question = "Is it held?"
method = "So."

[workload]
timeout = "10s"
[workload.site]
browsers = 10
items = 100
connections = 20
mix = "shopping"
think_scale = 0.1
place = "site"
target = "150ms"

[variant.gate-target]
target = "150ms"

[short]
variants = ["direct", "gate-target"]
schedule = [
  { join = 20, mix = "browsing", lasts = "8s", settles = "3s" },
  { join = 30, lasts = "12s", settles = "3s" },
]
calibrate = { variant = "direct", clients = [10] }
repetitions = 1
warm_up = "1s"
window = "2s"
drain = "0s"

[full]
variants = ["direct", "gate-target"]
clients = [20]
schedule = [{ join = 20, lasts = "90s" }]
calibrate = { variant = "direct", clients = [10] }
repetitions = 3
warm_up = "10s"
window = "20s"

[[goal]]
says = "The mean is held"
of = "gate-target"
metric = "response-let-in"
phases_from = 2
at_most = 0.165

[[goal]]
says = "and the work is done"
of = "gate-target"
metric = "goodput"
at_least = 0.95
"#;

fn plan(text: &str) -> Result<Plan, String> {
    Plan::parse("held", Path::new("plan.toml"), text).map_err(|complaints| complaints.to_string())
}

#[test]
fn others_may_use_the_database_of_a_site_beside_some_variants() {
    let others = r#"
[workload.bystanders]
application = "backfill"
beside = ["gate-target"]
clients = 2
think = "0s"
[[workload.bystanders.request]]
name = "batch"
statements = ["UPDATE backfill SET value = value + 1"]

[variant.gate-target]"#;
    let setup = "[workload]\nsetup = [\"CREATE TABLE backfill (value int)\"]";
    let text = SITE.replacen("[workload]", setup, 1).replacen("[variant.gate-target]", others, 1);
    let said = plan(&text).unwrap_err();
    assert!(said.contains("workload.bystanders: doesn't go with"), "a site has no tables: {said}");
    let text = text.replacen("place = \"site\"\n", "", 1);
    let found = plan(&text).unwrap().workload.bystanders.unwrap();
    assert!(found.are_beside("gate-target") && !found.are_beside("direct"));
    let said = plan(&text.replacen("[\"gate-target\"]\nclients = 2", "[\"gate-targets\"]\nclients = 2", 1));
    let said = said.unwrap_err();
    assert!(said.contains("`gate-targets` is no variant; did you mean `gate-target`?"), "{said}");
    let said = plan(&text.replacen("clients = [20]", "clients = [0]", 1)).unwrap_err();
    assert!(said.contains("full.clients: has 0, and there is nobody else"), "{said}");
}

#[test]
fn a_site_may_be_visited_by_as_many_as_keep_its_server_busy() {
    let text = SITE.replacen("clients = [20]", "busy = [0.5, 0.9]", 1);
    let found = plan(&text).unwrap();
    assert_eq!(found.full.loads().take(2).collect::<Vec<_>>(), [Load::Busy(0.5), Load::Busy(0.9)]);
    assert_eq!(found.full.loads().next().map(Load::label), Some("50%".to_owned()));
    let said = plan(&SITE.replacen("clients = [20]", "busy = [11.0]", 1)).unwrap_err();
    assert!(said.contains("full.busy: must be more than 0 and at most 10"), "{said}");
    let of_statements = super::WHOLE.replacen("clients = [0, 4, 300]", "busy = [0.5]", 1);
    let said = plan(&of_statements).unwrap_err();
    assert!(said.contains("full.busy: is for the browsers of a site"), "{said}");
}

#[test]
fn a_schedule_is_one_cell_and_each_phase_has_figures() {
    let plan = plan(SITE).unwrap();
    assert_eq!(plan.workload.site.as_ref().map(|site| site.place), Some(Place::Site));
    assert_eq!(plan.short.loads().collect::<Vec<_>>(), [Load::Phase(0), Load::Phase(1)]);
    assert_eq!(plan.full.loads().collect::<Vec<_>>(), [Load::Clients(20), Load::Phase(0)]);
    let cells = runner::cells(&plan.short);
    assert_eq!(cells.iter().map(|cell| cell.load).collect::<Vec<_>>(), [Load::Schedule; 2]);
    // 5 s of setting up and half a second of filling; 10 browsers and a single one for 3 s each; two cells
    // of 20 s with 50 browsers.
    let around = Duration::from_millis(600);
    let found = Duration::from_millis(20 + 3_000) + Duration::from_millis(2 + 3_000) + 2 * around;
    let cells = 2 * (around + Duration::from_millis(100 + 20_000));
    assert_eq!(plan.takes(&plan.short), Duration::from_millis(5_500) + found + cells);
}

#[test]
fn what_makes_no_sense_before_a_site_is_told() {
    let short = "variants = [\"direct\", \"gate-target\"]\nschedule";
    let cases = [
        (
            short,
            "variants = [\"pgbouncer-same-pool\"]\nschedule",
            "short.variants.0: `pgbouncer-same-pool` stands before a database, not before a site; with `place = \"site\"` write",
        ),
        (
            "mix = \"browsing\"",
            "mix = \"browsng\"",
            "short.schedule.0.mix: `browsng` is no mix; did you mean `browsing`?",
        ),
        (
            "settles = \"3s\" },\n]",
            "settles = \"12s\" },\n]",
            "short.schedule.1.settles: is not shorter than the phase",
        ),
        ("place = \"site\"", "place = \"web\"", "isn't known"),
        (
            "think_scale = 0.1",
            "think_scale = 0.1\nsession_mean = \"0s\"",
            "workload.site.session_mean: must be more than zero",
        ),
        (
            "schedule = [{ join = 20, lasts = \"90s\" }]",
            "schedule = [{ join = 20, lasts = \"2h\" }]",
            "full.schedule: lasts more than 3600 s",
        ),
        (
            "clients = [20]\nschedule = [{ join = 20, lasts = \"90s\" }]\ncalibrate = { variant = \"direct\", clients = [10] }",
            "clients = [20]",
            "goal.1.metric: needs to know what pages take alone; write calibrate",
        ),
    ];
    for (this, by, expected) in cases {
        assert!(SITE.contains(this), "{this}");
        let said = plan(&SITE.replacen(this, by, 1)).unwrap_err();
        assert!(said.contains(expected) && said.starts_with("plan.toml:"), "{expected}: {said}");
    }
    let end = plan(&SITE.replacen("place = ", "audit = \"at-the-end\"\nplace = ", 1)).unwrap();
    assert_eq!(end.takes(&end.short), plan(SITE).unwrap().takes(&end.short) + Duration::from_millis(500));
    let without = SITE.split("[workload.site]").next().unwrap().to_owned()
        + "[[workload.request]]\nname = \"x\"\nstatements = [\"SELECT 1\"]\n[variant"
        + SITE.split("[variant").nth(1).unwrap();
    assert!(plan(&without).unwrap_err().contains("short.schedule: is for browsers, and there are none"));
}

#[test]
fn plans_that_have_no_such_things_are_written_down_as_before() {
    let before = SITE.replacen("place = \"site\"\ntarget = \"150ms\"", "", 1);
    let text = serde_json::to_string(&plan(&before).unwrap().workload).unwrap();
    assert!(!text.contains("place") && !text.contains("target"), "{text}");
}

/// Results of the short form in which the gate had these means in its phases.
fn results(means: [f64; 2]) -> Results {
    let phase = |mean: f64| Measured {
        clients: Figures { let_in_seconds: Some(mean), ..Figures::default() },
        alive: true,
        ..Measured::default()
    };
    let cell = Cell { variant: "gate-target".to_owned(), load: Load::Schedule, repetition: 0 };
    let measured = Measured { phases: means.map(phase).to_vec(), ..phase(0.0) };
    Results { lines: vec![Line::Cell { cell, measured: Box::new(measured) }] }
}

#[test]
fn goals_are_judged_in_each_phase_once_it_has_settled() {
    let plan = plan(SITE).unwrap();
    let standing = |means| verdict::judge(&plan, &plan.short, &results(means))[0].standing;
    // The first phase isn't asked for.
    assert_eq!(standing([9.0, 0.15]), Standing::Reached);
    assert_eq!(standing([0.15, 0.17]), Standing::Missed);
    let judged = verdict::judge(&plan, &plan.short, &results([0.1, 0.17]));
    assert!(judged[0].text.contains("in phase 2"), "{}", judged[0].text);
    // Nothing says what pages take alone.
    assert_eq!(judged[1].standing, Standing::Open);
}
