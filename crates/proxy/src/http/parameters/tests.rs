//! Paths are chosen, told apart, and let go.

use admission::{LearnedVariation, Work};

use super::*;

/// What the judge knows of types with these labels: a mean of 10 ms, and this coefficient of variation.
fn known(types: &[(&str, f64)]) -> Vec<(LearnedType, Arc<str>)> {
    let one = |&(label, coefficient): &(&str, f64)| {
        let (mean, variance) = (1e7, (coefficient * 1e7) * (coefficient * 1e7));
        let (work, samples) = (Work::from_nanos(10_000_000), 100);
        let known = LearnedType {
            request_type: request_type(label),
            mean: work,
            rank: work,
            samples,
            variation: LearnedVariation { samples, mean, variance },
        };
        (known, Arc::from(label))
    };
    types.iter().map(one).collect()
}

fn query(text: &str) -> Said {
    Said::of(Some(text), None)
}

/// Asks for the path of this label so often, with these queries and times in turn.
fn ask(parameters: &Parameters, label: &str, times: usize, requests: &[(&str, u64)]) {
    for (text, millis) in requests.iter().cycle().take(times) {
        let Some(path) = parameters.of(&named(label)) else { return };
        if let (_, Some(sample)) = path.tell_apart(query(text)) {
            sample.learn(Duration::from_millis(*millis));
        }
    }
}

fn label(parameters: &Parameters, path: &str, text: &str) -> String {
    let name = parameters.of(&named(path)).and_then(|path| path.tell_apart(query(text)).0);
    name.map_or_else(|| path.to_owned(), |name| name.label.to_string())
}

const AJAX: [(&str, u64); 2] = [("action=list", 5), ("action=export", 100)];

#[tokio::test(start_paused = true)]
async fn a_path_is_examined_where_its_requests_vary_and_told_apart_by_what_explains_that() {
    let parameters = Parameters::default();
    let types = known(&[("GET /ajax", 1.0), ("GET /even", 0.3), ("checkout", 2.0)]);
    assert!(parameters.of(&named("GET /ajax")).is_none(), "nobody looks yet");
    parameters.look("test", Instant::now(), &types);
    assert!(parameters.of(&named("GET /even")).is_none());
    assert!(parameters.of(&named("checkout")).is_none(), "the application has named it");
    ask(&parameters, "GET /ajax", 63, &AJAX);
    assert_eq!(label(&parameters, "GET /ajax", "action=list"), "GET /ajax");
    ask(&parameters, "GET /ajax", 41, &AJAX);
    assert_eq!(label(&parameters, "GET /ajax", "action=list&a=b"), "GET /ajax?action=list");
    assert_eq!(label(&parameters, "GET /ajax", "action=other"), "GET /ajax");
    assert_eq!(label(&parameters, "GET /ajax", "action=list&action=list"), "GET /ajax");
    let hidden = TypeName { row: request_type("GET /*"), ..named("GET /ajax") };
    assert!(parameters.of(&hidden).is_none(), "it would show what isn't shown");
}

#[tokio::test(start_paused = true)]
async fn a_path_that_shows_nothing_rests_each_time_for_longer() {
    let (parameters, types) = (Parameters::default(), known(&[("GET /ajax", 1.0)]));
    let is_examined = || parameters.of(&named("GET /ajax")).is_some();
    for times in 0..3 {
        parameters.look("test", Instant::now(), &types);
        assert!(is_examined(), "{times}");
        ask(
            &parameters,
            "GET /ajax",
            1_024,
            &[("lang=de", 5), ("lang=de", 100), ("lang=en", 5), ("lang=en", 100)],
        );
        parameters.look("test", Instant::now(), &types);
        assert!(!is_examined() && !parameters.any.load(Ordering::Relaxed));
        tokio::time::advance(REST * (1 << times) - LOOK_EVERY).await;
        parameters.look("test", Instant::now(), &types);
        assert!(!is_examined());
        tokio::time::advance(LOOK_EVERY).await;
    }
}

#[tokio::test(start_paused = true)]
async fn what_helps_no_more_is_undone() {
    let (parameters, types) = (Parameters::default(), known(&[("GET /ajax", 1.0)]));
    parameters.look("test", Instant::now(), &types);
    ask(&parameters, "GET /ajax", 200, &AJAX);
    assert_eq!(label(&parameters, "GET /ajax", "action=list"), "GET /ajax?action=list");
    ask(
        &parameters,
        "GET /ajax",
        4_096,
        &[("action=list", 5), ("action=export", 5), ("action=list", 9), ("action=export", 9)],
    );
    assert_eq!(label(&parameters, "GET /ajax", "action=list"), "GET /ajax");
    parameters.look("test", Instant::now(), &types);
    assert!(parameters.of(&named("GET /ajax")).is_none());
}

#[tokio::test(start_paused = true)]
async fn paths_are_bounded_and_who_varies_most_comes_first() {
    let parameters = Parameters::default();
    let labels: Vec<String> = (0..100).map(|number| format!("GET /path/{number}")).collect();
    let types: Vec<(&str, f64)> =
        labels.iter().zip(1..).map(|(label, more)| (&**label, f64::from(more))).collect();
    let types = known(&types);
    let count = || labels.iter().filter(|label| parameters.of(&named(label)).is_some()).count();
    parameters.look("test", Instant::now(), &types);
    assert_eq!(count(), EXAMS_MAX);
    assert!(parameters.of(&named("GET /path/99")).is_some());
    for _ in 0..4 {
        labels.iter().for_each(|label| ask(&parameters, label, 64, &AJAX));
        parameters.look("test", Instant::now(), &types);
    }
    assert_eq!(count(), PATHS_MAX, "all are told apart by now");
    tokio::time::advance(UNASKED_MAX + LOOK_EVERY).await;
    ask(&parameters, "GET /path/99", 1, &AJAX);
    parameters.look("test", Instant::now(), &types);
    assert!(parameters.of(&named("GET /path/99")).is_some(), "it is asked for");
    assert_eq!(count(), PATHS_MAX);
    assert!(parameters.resting.lock().len() <= RESTING_MAX);
}

#[tokio::test(start_paused = true)]
async fn an_exam_that_takes_too_long_gives_way_to_another() {
    let parameters = Parameters::default();
    let few: Vec<String> = (0..EXAMS_MAX).map(|number| format!("GET /rare/{number}")).collect();
    let few: Vec<(&str, f64)> = few.iter().map(|label| (&**label, 9.0)).collect();
    parameters.look("test", Instant::now(), &known(&few));
    let types = known(&[few, vec![("GET /ajax", 1.0)]].concat());
    parameters.look("test", Instant::now(), &types);
    assert!(parameters.of(&named("GET /ajax")).is_none());
    tokio::time::advance(EXAM_MAX + LOOK_EVERY).await;
    parameters.look("test", Instant::now(), &types);
    assert!(parameters.of(&named("GET /ajax")).is_some());
}

#[tokio::test(start_paused = true)]
async fn what_was_told_apart_before_a_restart_is_so_after_it() {
    let parameters = Parameters::default();
    let recall = |label| parameters.recall(label, Instant::now());
    assert_eq!(recall("GET /ajax?action=list"), Some("GET /ajax"));
    assert_eq!(recall("GET /ajax?action=export"), Some("GET /ajax"));
    assert_eq!(recall("GET /ajax?mail=ann@example.org"), None);
    assert_eq!(recall("GET /ajax"), None);
    assert_eq!(recall("search?by=name"), None);
    assert_eq!(label(&parameters, "GET /ajax", "action=export"), "GET /ajax?action=export");
    for number in 0..100 {
        parameters.recall(&format!("GET /path/{number}?a=b"), Instant::now());
    }
    assert_eq!(parameters.paths.read().len(), PATHS_MAX);
}
