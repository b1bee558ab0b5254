//! What a gate learns of the shop's pages, asked at its admin listener while a cell runs.
//!
//! Each page is one transaction and so one request of the gate's, which knows it by the tag of its
//! statements. The gate's counts and times are since its start; those of the window are the difference of
//! two looks, at its beginning and at its end. Where a plan shows how estimates come about there are looks
//! all along, as a curve.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::pages;
use crate::blocking::blocking;
use crate::gatekeeper::admin_page;

/// Time between two looks of a curve.
const EVERY: Duration = Duration::from_millis(500);
/// The most looks of a curve; in a longer cell they are further apart.
const LOOKS_MAX: u32 = 1_000;

/// What a gate learned of a page.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
pub struct LearnedPage {
    /// Its four letters.
    pub name: String,
    /// What one is expected to take at the end of the window, in seconds: the estimate.
    pub work_seconds: f64,
    /// Standard deviation over mean of what its executions take, without what sharing the server adds; none
    /// while too little is known.
    pub variation: Option<f64>,
    /// Executions that it was learned from, since the gate began.
    pub samples: u64,
    /// Executions that ended in the window.
    pub completed: u64,
    /// Their mean upstream time, in seconds: from the first statement sent to the last answer.
    pub upstream_seconds: f64,
    /// Requests whose wait in the queue ended in the window.
    pub waited: u64,
    /// How long they waited on average, in seconds.
    pub wait_seconds: f64,
    /// The estimate from the beginning of the cell on, where the plan shows that.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub curve: Vec<Point>,
}

/// An estimate at a time: seconds since the cell began, the estimate in seconds, executions that it was
/// learned from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Deserialize, Serialize)]
pub struct Point(pub f64, pub f64, pub u64);

/// How closely it is looked at.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Looks {
    /// Not at all: the load isn't pages.
    #[default]
    None,
    /// At the beginning and the end of the window.
    Twice,
    /// All along, and at the beginning and the end of the window.
    AllAlong,
}

/// What is learned by the gate with this admin listener, from now until the window ends. Blocks nobody;
/// empty if the gate doesn't answer.
pub(super) async fn watch(port: u16, counted: Instant, window: Duration, looks: Looks) -> Vec<LearnedPage> {
    if looks == Looks::None {
        return Vec::new();
    }
    let (begin, end) = (Instant::now(), counted + window);
    let at = |time: Instant| async move {
        tokio::time::sleep_until(time.into()).await;
        look(port).await
    };
    let (before, curves, after) = tokio::join!(at(counted), curves(port, begin, end, looks), at(end));
    let mut learned = between(&before, &after);
    for page in &mut learned {
        page.curve = curves.get(&page.name).cloned().unwrap_or_default();
    }
    learned
}

async fn curves(port: u16, begin: Instant, end: Instant, looks: Looks) -> BTreeMap<String, Vec<Point>> {
    let mut curves: BTreeMap<String, Vec<Point>> = BTreeMap::new();
    if looks != Looks::AllAlong {
        return curves;
    }
    let step = EVERY.max(end.saturating_duration_since(begin) / LOOKS_MAX);
    let mut next = begin + step;
    while next < end {
        tokio::time::sleep_until(next.into()).await;
        let millis = begin.elapsed().as_millis() as f64;
        for (name, seen) in look(port).await {
            curves.entry(name).or_default().push(Point(millis / 1e3, seen.work_seconds, seen.samples));
        }
        next += step;
    }
    curves
}

/// What there is to see of each page now.
async fn look(port: u16) -> BTreeMap<String, Seen> {
    let page = blocking(move || Ok(admin_page(port, "/types"))).await.unwrap_or_default();
    page.and_then(|text| seen_in(&text)).unwrap_or_default()
}

/// A type, as `/types` has it, as far as it is of use here.
#[derive(Clone, Debug, Deserialize)]
struct Seen {
    #[serde(rename = "type")]
    label: String,
    work_seconds: f64,
    variation: Option<f64>,
    samples: u64,
    upstream_time: Times,
    queue_wait: Times,
}

#[derive(Clone, Copy, Debug, Default, Deserialize)]
struct Times {
    count: u64,
    mean_seconds: f64,
}

#[derive(Debug, Deserialize)]
struct Told {
    gates: Vec<Gate>,
}

#[derive(Debug, Deserialize)]
struct Gate {
    types: Vec<Seen>,
}

/// The pages in an answer of `/types`. Of several types that are the same page (statements beside
/// transactions) the one that was executed most often.
fn seen_in(answer: &str) -> Option<BTreeMap<String, Seen>> {
    let (_, body) = answer.split_once("\r\n\r\n")?;
    let told: Told = serde_json::from_str(body).ok()?;
    let mut types: Vec<Seen> = told.gates.into_iter().flat_map(|gate| gate.types).collect();
    types.sort_by_key(|seen| seen.upstream_time.count);
    let named = |seen: Seen| Some((pages::of_label(&seen.label)?.code.to_owned(), seen));
    Some(types.into_iter().filter_map(named).collect())
}

fn between(before: &BTreeMap<String, Seen>, after: &BTreeMap<String, Seen>) -> Vec<LearnedPage> {
    let learned = |(name, seen): (&String, &Seen)| {
        let first = before.get(name);
        let (completed, upstream_seconds) =
            seen.upstream_time.since(first.map(|first| first.upstream_time).unwrap_or_default());
        let (waited, wait_seconds) =
            seen.queue_wait.since(first.map(|first| first.queue_wait).unwrap_or_default());
        LearnedPage {
            name: name.clone(),
            work_seconds: seen.work_seconds,
            variation: seen.variation,
            samples: seen.samples,
            completed,
            upstream_seconds,
            waited,
            wait_seconds,
            curve: Vec::new(),
        }
    };
    after.iter().map(learned).collect()
}

impl Times {
    /// How many there were since an earlier look, and their mean.
    fn since(self, before: Self) -> (u64, f64) {
        let count = self.count.saturating_sub(before.count);
        let sum = |times: Self| times.count as f64 * times.mean_seconds;
        let mean = (sum(self) - sum(before)).max(0.0) / count.max(1) as f64;
        (count, mean)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(home: (u64, f64), search: (u64, f64)) -> String {
        let row = |label: &str, (count, mean): (u64, f64)| {
            serde_json::json!({
                "type": label, "lane": "short", "work_seconds": mean, "work_share": 0.5, "variation": 0.25,
                "modes": [], "samples": count, "in_flight": 0, "queued": 0,
                "upstream_time": { "count": count, "mean_seconds": mean, "p50_seconds": 0.0, "p95_seconds": 0.0 },
                "queue_wait": { "count": count, "mean_seconds": mean / 2.0, "p50_seconds": 0.0, "p95_seconds": 0.0 },
            })
        };
        let types = [
            row("bookstore: BEGIN; /", home),
            row("bookstore: BEGIN; /search/results", search),
            row("bookstore: /", (1, 9.0)),
            row("bookstore: select ?", (500, 9.0)),
        ];
        let gates = serde_json::json!({ "gates": [{ "gate": "shop", "mode": "enforce", "types": types }] });
        format!("HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n\r\n{gates}")
    }

    #[test]
    fn the_figures_of_a_window_are_the_difference_of_two_looks() {
        let before = seen_in(&answer((10, 0.010), (4, 0.5))).unwrap();
        let after = seen_in(&answer((30, 0.020), (4, 0.5))).unwrap();
        let learned = between(&before, &after);
        let names: Vec<&str> = learned.iter().map(|page| page.name.as_str()).collect();
        assert_eq!(names, ["HOME", "SRES"]);
        let home = &learned[0];
        assert_eq!((home.samples, home.completed, home.waited), (30, 20, 20));
        // 30 × 20 ms less 10 × 10 ms, of 20.
        assert!((home.upstream_seconds - 0.025).abs() < 1e-9);
        assert!((home.wait_seconds - 0.0125).abs() < 1e-9);
        assert_eq!((home.work_seconds, home.variation), (0.020, Some(0.25)));
        assert_eq!((learned[1].completed, learned[1].upstream_seconds), (0, 0.0));
    }

    #[test]
    fn who_is_not_known_before_the_window_counts_from_its_beginning() {
        let after = seen_in(&answer((2, 0.1), (1, 0.3))).unwrap();
        let learned = between(&BTreeMap::new(), &after);
        assert_eq!((learned[0].completed, learned[0].upstream_seconds), (2, 0.1));
    }

    #[test]
    fn an_answer_that_is_none_teaches_nothing() {
        assert!(seen_in("HTTP/1.1 503 Service Unavailable\r\n\r\nno").is_none());
        assert!(seen_in("").is_none());
    }

    #[tokio::test]
    async fn a_gate_that_does_not_answer_teaches_nothing() {
        let port = testbed::process::free_port().unwrap();
        let window = Duration::from_millis(10);
        assert_eq!(watch(port, Instant::now(), window, Looks::AllAlong).await, []);
    }

    #[test]
    fn a_page_is_read_as_it_was_written() {
        let point = Point(0.5, 0.01, 3);
        let page = LearnedPage { name: "HOME".to_owned(), curve: vec![point], ..LearnedPage::default() };
        let text = serde_json::to_string(&page).unwrap();
        assert!(text.contains("\"curve\":[[0.5,0.01,3]]"), "{text}");
        assert_eq!(serde_json::from_str::<LearnedPage>(&text).unwrap(), page);
    }
}
