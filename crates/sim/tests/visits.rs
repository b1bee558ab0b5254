//! Visits: clients of an open loop that send several requests at once after their first answer.

use admission::{Duration, Policy};
use sim::{
    Abandoned, Arrivals, Distribution, End, Kind, Mix, Outcome, Patience, Rate, Run, Scenario, Source,
};
use sim::{Upstream, run};

fn ms(count: u64) -> Duration {
    Duration::from_millis(count)
}

/// A page every 100 ms for a second, each with three files, before servers that do one thing at a time.
fn visits(page: u64, patience: Patience) -> Scenario {
    let types =
        vec![Kind::new("page", Distribution::Fixed(ms(page))), Kind::new("file", Distribution::Fixed(ms(2)))];
    let arrivals = Arrivals::Regular(Rate::constant(10.0));
    let source =
        Source { then: vec![(1, 3)], patience, ..Source::new(arrivals, Mix::Shares(vec![1.0, 0.0])) };
    Scenario {
        duration: Duration::from_secs(1),
        warm_up: Duration::ZERO,
        end: End::Drained,
        ..Scenario::new(Policy::default(), types, source, Upstream::server())
    }
}

fn played(scenario: &Scenario) -> Run {
    run(scenario).expect("a sound run")
}

#[test]
fn the_files_are_asked_for_together_when_the_page_is_there() {
    let run = played(&visits(20, Patience::ENDLESS));
    let of_first: Vec<_> = run.rows.iter().filter(|row| row.client == 1).collect();
    assert_eq!(of_first.iter().map(|row| row.kind).collect::<Vec<_>>(), [0, 1, 1, 1]);
    assert!(of_first[1..].iter().all(|file| file.arrived == of_first[0].ended));
    assert_eq!((run.summary.visits.begun, run.summary.visits.whole), (9, 9));
    assert_eq!(run.rows.len(), 4 * 9);
}

#[test]
fn a_visit_without_its_page_asks_for_no_file_and_is_not_whole() {
    // Pages take longer than there is time between them, and nobody waits for two of them.
    let run = played(&visits(150, Patience::of(ms(200))));
    let pages = run.rows.iter().filter(|row| row.kind == 0 && row.outcome == Outcome::Completed).count();
    let files = run.rows.iter().filter(|row| row.kind == 1).count();
    assert!(pages < 9 && files == 3 * pages, "{pages} pages, {files} files");
    assert!(run.summary.visits.whole <= pages as u64);
}

#[test]
fn a_page_that_was_tried_again_makes_a_whole_visit() {
    let patience = Patience { retries: 3, abandoned: Abandoned::Canceled, ..Patience::of(ms(104)) };
    let mut scenario = visits(100, Patience { back_off: ms(300), ..patience });
    scenario.sources[0].until = Some(ms(250));
    let run = played(&scenario);
    assert!(
        run.rows.iter().any(|row| row.attempt > 0 && row.outcome == Outcome::Completed),
        "{:?}",
        run.rows
    );
    assert_eq!((run.summary.visits.begun, run.summary.visits.whole), (2, 2));
}

#[test]
fn what_follows_takes_the_same_whatever_the_gate_does() {
    let mut scenario = visits(20, Patience::ENDLESS);
    scenario.types[1].service_time = Distribution::Exponential { mean: ms(2) };
    let work = |connections| {
        let policy = Policy { connections, ..Policy::default() };
        let mut files: Vec<_> = played(&Scenario { policy, ..scenario.clone() })
            .rows
            .iter()
            .filter(|row| row.kind == 1)
            .map(|row| (row.client, row.service_time))
            .collect();
        files.sort_unstable();
        files
    };
    assert_eq!(work(1), work(20));
}

#[test]
fn what_follows_must_not_be_in_the_mix() {
    let mut scenario = visits(20, Patience::ENDLESS);
    scenario.sources[0].mix = Mix::Shares(vec![1.0, 1.0]);
    assert!(run(&scenario).is_err());
}
