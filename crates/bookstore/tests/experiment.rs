//! An experiment whose plan has the real shop: a visitor alone, a crowd, and browsers that join by a
//! schedule.

use std::path::Path;

use bench::alternate::Display;
use bench::experiment::part::Part;
use bench::experiment::plan::{Load, Plan};
use bench::experiment::results::{Book, Line, Otherwise};
use bench::experiment::runner;
use bench::experiment::verdict::{self, Standing};
use bench::experiment::visits::Visits;

/// Nothing here depends on how fast anything is.
const PLAN: &str = r#"
question = "Does the harness visit?"
method = "A few browsers for a few seconds."

[workload]
timeout = "60s"
[workload.site]
browsers = 1
items = 100
connections = 4
mix = "shopping"
think_scale = 0.01
place = "site"
audit = "at-the-end"
target = "150ms"

[short]
variants = ["direct"]
clients = [2]
schedule = [
  { join = 2, mix = "browsing", lasts = "3s", settles = "1s" },
  { join = 3, mix = "ordering", lasts = "3s", settles = "0s" },
]
calibrate = { variant = "direct", clients = [2] }
repetitions = 1
warm_up = "500ms"
window = "2s"

[full]
variants = ["direct"]
clients = [2]
calibrate = { variant = "direct", clients = [2] }
repetitions = 1
warm_up = "0s"
window = "1s"

[[goal]]
says = "work is done"
of = "direct"
metric = "goodput"
at_least = 0

[[goal]]
says = "nobody waits for longer than anybody may"
of = "direct"
metric = "response-let-in"
at_most = 60
"#;

#[tokio::test(flavor = "multi_thread")]
async fn a_site_is_visited_by_one_by_a_crowd_and_by_a_schedule() {
    let directory = tempfile::tempdir().expect("a directory");
    let plan = Plan::parse("visited", Path::new("plan.toml"), PLAN).expect("it is sound");
    let form = &plan.short;
    let path = directory.path().join("short.jsonl");
    let (mut book, _) = Book::open(&path, &plan.measured(form), "1", Otherwise::BeginAnew).expect("a book");
    let site = plan.workload.site.as_ref().expect("a site");
    let mut laboratory = Visits::set_up(&plan, site, form, None).await.expect("it is set up");
    runner::run(&plan, form, &Part::default(), &mut laboratory, &mut book, &Display::new())
        .await
        .expect("it runs");

    let results = book.results();
    let alone = results.lines.iter().find_map(|line| match line {
        Line::Alone { types } => Some(types),
        _ => None,
    });
    assert!(alone.is_some_and(|types| types.iter().any(|page| page.name == "HOME")), "{alone:?}");
    assert!(results.lines.iter().any(|line| matches!(line, Line::Busy { clients: 2, .. })));
    let scheduled = results.repetitions("direct", Load::Schedule);
    let [scheduled] = scheduled[..] else { panic!("one schedule: {scheduled:?}") };
    assert_eq!(scheduled.phases.len(), 2);
    assert!((5..=7).contains(&scheduled.moments.len()), "{}", scheduled.moments.len());
    assert_eq!(scheduled.moments.iter().map(|moment| moment.present).max(), Some(5));
    for load in form.loads() {
        let measured = results.repetitions("direct", load);
        assert!(
            measured[0].clients.throughput > 0.0 && measured[0].clients.refused == 0,
            "{load:?}: {measured:?}"
        );
    }
    // Every page of a schedule counts in its phase, but for those before it has settled.
    let seconds: u64 =
        scheduled.moments.iter().map(|moment| moment.done + moment.refused + moment.lost).sum();
    let phases: usize = scheduled.phases.iter().map(|phase| phase.clients.under_way).sum();
    assert!(0 < phases && phases as u64 <= seconds + 5, "{phases} of {seconds}");
    let verdicts = verdict::judge(&plan, form, results);
    assert!(verdicts.iter().all(|verdict| verdict.standing == Standing::Reached), "{verdicts:?}");
}
