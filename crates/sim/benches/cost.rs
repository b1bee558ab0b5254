//! The table of estimates: how far each estimator is off, service by service, load by load, and how many
//! cores it thinks that the service has.
//!
//! Run: `cargo bench -p sim --bench cost -- [SEEDS]`, such as `1-4`. The worst over the seeds is shown.

#[path = "../tests/common/cost.rs"]
mod experiment;

use admission::Cost;
use experiment::{Judgment, LOADS, lasts, scenario, services, watch};

fn main() {
    let given = std::env::args().skip(1).find_map(|argument| {
        let (from, to) = argument.split_once('-').filter(|(from, _)| !from.is_empty())?;
        Some(from.parse().expect("a seed")..=to.parse().expect("a seed"))
    });
    let seeds: Vec<u64> = given.unwrap_or(1..=4).collect();
    println!("| service | estimator | CV | 0.3 | 0.8 | 2 | 5 | 0.3 | 5 | within a fifth | works on |");
    println!("|---|---|---|---|---|---|---|---|---|---|---|");
    let variants = [(Cost::DEFAULT, 0.5), (Cost::Steady, 0.0), (Cost::Steady, 0.5), (Cost::Steady, 1.0)];
    for (name, upstream, connections) in services() {
        for (cost, cv) in variants {
            let scenarios: Vec<_> = seeds
                .iter()
                .map(|&seed| scenario(cost, upstream.clone(), connections, cv, &LOADS, seed))
                .collect();
            let watched: Vec<_> = scenarios.iter().map(watch).collect();
            let judged = |from: f64, to: f64| {
                let all = watched.iter().map(|watch| watch.judge(from, to));
                let worst = |a: Judgment, b: Judgment| Judgment {
                    within: a.within.min(b.within),
                    least: a.least.min(b.least),
                    most: a.most.max(b.most),
                };
                all.reduce(worst).expect("a seed")
            };
            let estimator = if cost == Cost::Steady { "steady" } else { "moving average" };
            print!("| {name} | {estimator} | {cv} |");
            let mut at = 0.0;
            for load in LOADS {
                let to = at + lasts(&upstream, load);
                let Judgment { least, most, .. } = judged(at, to);
                print!(" {least:.2}–{most:.2} |");
                at = to;
            }
            let learned: Vec<String> = watched
                .iter()
                .map(|watch| watch.parallelism(at).map_or("?".to_owned(), |requests| requests.to_string()))
                .collect();
            println!(" {:.0} % | {} |", 100.0 * judged(0.0, at).within, learned.join(", "));
        }
    }
}
