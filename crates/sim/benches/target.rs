//! The tables of response times that are held (`docs/results/target.md`), and the picture of a step to ten
//! times the capacity.
//!
//! Run: `cargo bench -p sim --bench target -- [SEEDS] [PICTURE.svg]`, such as `101-104
//! docs/results/target.svg`.

#[path = "../tests/common/target.rs"]
mod experiment;

use std::path::Path;

use admission::{Policy, Rejection};
use experiment::{
    BEST_SELLERS, JOINED, Reached, SEARCH_RESULTS, SETTLED, SHOPPING, STEPS, TARGET, best_yaksha, constant,
    default_gate, fifo_gate, open_door, ours, ours_of_types, ours_p95, reached, reached_by, schedule,
    service_time, static_yaksha, step, steps, yaksha,
};
use sim::plot::{Curve, Panel, Plot, Scale};
use sim::{Run, Scenario, controllers, sweep};

const CODEL: Rejection = Rejection::Other(controllers::CODEL);
/// How long the schedule runs, in seconds.
const SCHEDULE_END: u64 = 200;
/// How long a constant load is measured for.
const CALM: u64 = 2_000;

fn main() {
    let mut seeds: Vec<u64> = (101..=104).collect();
    let mut picture = None;
    for argument in std::env::args().skip(1).filter(|argument| !argument.starts_with("--")) {
        if argument.ends_with(".svg") {
            picture = Some(argument);
        } else if let Some((from, to)) = argument.split_once('-') {
            seeds = (from.parse().expect("a seed")..=to.parse().expect("a seed")).collect();
        }
    }
    let most = 1.0 - service_time(SHOPPING) / TARGET.as_secs_f64();
    println!("Random refusal at the target keeps the service busy for at most 1 - E[X]/T_ref = {most:.3}.\n");
    the_steps(&seeds);
    the_schedule(&seeds);
    the_types(&seeds);
    the_calm(&seeds);
    if let Some(picture) = picture {
        draw(Path::new(&picture));
    }
}

/// A gate whose queue is as long as what the service completes in five seconds.
fn drop_tail(cores: u32) -> Policy {
    Policy { queue_max: 250 * cores as usize, ..fifo_gate(Rejection::Nobody) }
}

/// The results of a rule with each seed.
fn reach(
    seeds: &[u64],
    scenario: impl Fn(u64) -> Scenario,
    judge: impl Fn(&Run) -> Vec<Reached> + Sync,
) -> Vec<Vec<Reached>> {
    let scenarios: Vec<Scenario> = seeds.iter().map(|&seed| scenario(seed)).collect();
    sweep(&scenarios, None, |_, run| judge(&run.expect("a sound run")))
}

/// From the least to the most of the seeds.
fn range(values: impl Iterator<Item = f64>, digits: usize) -> String {
    let (least, most) =
        values.fold((f64::INFINITY, 0.0_f64), |(least, most), value| (least.min(value), most.max(value)));
    if format!("{least:.digits$}") == format!("{most:.digits$}") {
        format!("{least:.digits$}")
    } else {
        format!("{least:.digits$} … {most:.digits$}")
    }
}

fn millis(seconds: f64) -> f64 {
    seconds * 1e3
}

fn the_steps(seeds: &[u64]) {
    println!(
        "| gate | cores | rule | load | mean, ms | of the first 5 s, ms | late (> 500 ms) | busy | refused |"
    );
    println!("|---|---|---|---|---|---|---|---|---|");
    for cores in [1, 4] {
        let gates: [(&str, &str, Policy); 10] = [
            ("open", "**target**", open_door(ours())),
            ("FIFO, 20", "**target**", fifo_gate(ours())),
            ("default", "**target**", default_gate(cores, ours())),
            ("default", "**target_p95**", default_gate(cores, ours_p95())),
            ("open", "Yaksha, self-tuned", open_door(yaksha())),
            ("open", "Yaksha, self-tuned, 3 s", open_door(best_yaksha())),
            ("open", "Yaksha, for 700", open_door(static_yaksha(700.0))),
            ("open", "Yaksha, for 2000", open_door(static_yaksha(2_000.0))),
            ("FIFO, 20", "CoDel", fifo_gate(CODEL)),
            ("FIFO, 20", "drop-tail, 5 s", drop_tail(cores)),
        ];
        for (gate, rule, policy) in gates {
            let judge = |run: &Run| {
                let of = |&(_, from, to): &(f64, u64, u64)| {
                    [reached(run, cores, from + SETTLED, to), reached(run, cores, from, from + SETTLED)]
                };
                STEPS.iter().flat_map(of).collect()
            };
            let all = reach(seeds, |seed| steps(seed, policy.clone(), cores), judge);
            for (number, (load, _, _)) in STEPS.iter().enumerate() {
                let of = |which: usize, what: fn(&Reached) -> f64| {
                    all.iter()
                        .map(move |reached| what(&reached[2 * number + which]))
                        .collect::<Vec<_>>()
                        .into_iter()
                };
                println!(
                    "| {gate} | {cores} | {rule} | {load} | {} | {} | {} | {} | {} |",
                    range(of(0, |reached| millis(reached.response)), 0),
                    range(of(1, |reached| millis(reached.response)), 0),
                    range(of(0, |reached| reached.late), 3),
                    range(of(0, |reached| reached.useful), 2),
                    range(of(0, |reached| reached.refused), 2),
                );
            }
        }
    }
}

fn the_schedule(seeds: &[u64]) {
    println!("\n| rule | 5 to 50 s: mean, ms | busy | 55 to 100 s | busy | 105 to 200 s | busy |");
    println!("|---|---|---|---|---|---|---|");
    let rules = [
        ("**target**", ours()),
        ("Yaksha, self-tuned", yaksha()),
        ("Yaksha, self-tuned, 3 s", best_yaksha()),
        ("Yaksha, for 700", static_yaksha(700.0)),
        ("Yaksha, for 2000", static_yaksha(2_000.0)),
        ("none", Rejection::Nobody),
    ];
    for (name, rule) in rules {
        let judge = |run: &Run| {
            let ends = JOINED.iter().skip(1).map(|(from, _)| *from).chain([SCHEDULE_END]);
            JOINED.iter().zip(ends).map(|((from, _), to)| reached(run, 1, from + SETTLED, to)).collect()
        };
        let all = reach(seeds, |seed| schedule(seed, open_door(rule.clone()), SCHEDULE_END), judge);
        let parts = (0..JOINED.len()).map(|part| {
            let of = |what: fn(&Reached) -> f64| {
                all.iter().map(move |reached| what(&reached[part])).collect::<Vec<_>>()
            };
            let response = range(of(|reached| millis(reached.response)).into_iter(), 0);
            format!(" {response} | {} |", range(of(|reached| reached.useful).into_iter(), 2))
        });
        println!("| {name} |{}", parts.collect::<String>());
    }
}

fn the_types(seeds: &[u64]) {
    println!(
        "\n| gate | targets, ms | load | search results, ms | refused | best sellers, ms | refused | busy |"
    );
    println!("|---|---|---|---|---|---|---|---|");
    let targets: [(&str, &[(usize, u64)]); 3] = [
        ("search 100", &[(SEARCH_RESULTS, 100)]),
        ("best sellers 1500", &[(BEST_SELLERS, 1_500)]),
        ("search 100, best sellers 3000", &[(SEARCH_RESULTS, 100), (BEST_SELLERS, 3_000)]),
    ];
    for (name, targets) in targets {
        let rule = ours_of_types(targets);
        for (gate, policy) in [("open", open_door(rule.clone())), ("default", default_gate(1, rule.clone()))]
        {
            for load in [1.2, 3.0, 10.0] {
                let judge = |run: &Run| {
                    let of = |kind| reached_by(run, 1, 25, 320, |row| row.kind as usize == kind);
                    vec![of(SEARCH_RESULTS), of(BEST_SELLERS), reached(run, 1, 25, 320)]
                };
                let all = reach(seeds, |seed| step(seed, policy.clone(), 1, load, 20, 320), judge);
                let of = |which: usize, what: fn(&Reached) -> f64| {
                    all.iter().map(move |reached| what(&reached[which])).collect::<Vec<_>>().into_iter()
                };
                println!(
                    "| {gate} | {name} | {load} | {} | {} | {} | {} | {} |",
                    range(of(0, |reached| millis(reached.response)), 0),
                    range(of(0, |reached| reached.refused), 2),
                    range(of(1, |reached| millis(reached.response)), 0),
                    range(of(1, |reached| reached.refused), 2),
                    range(of(2, |reached| reached.useful), 2),
                );
            }
        }
    }
}

fn the_calm(seeds: &[u64]) {
    println!("\n| load | target: mean, ms | refused | no gate: mean, ms |");
    println!("|---|---|---|---|");
    for load in [0.5, 0.6, 0.7, 0.8] {
        let [held, free] = [ours(), Rejection::Nobody].map(|rule| {
            let judge = |run: &Run| vec![reached(run, 1, 0, CALM)];
            reach(seeds, |seed| constant(seed, open_door(rule.clone()), load, CALM), judge)
        });
        let response = |all: &[Vec<Reached>]| range(all.iter().map(|reached| millis(reached[0].response)), 0);
        let refused = range(held.iter().map(|reached| 100.0 * reached[0].refused), 2);
        println!("| {load} | {} | {refused} % | {} |", response(&held), response(&free));
    }
}

/// The step to ten times the capacity: how many are present, and what is done.
fn draw(path: &Path) {
    const AT: u64 = 20;
    const UNTIL: u64 = 140;
    let rules = [
        ("target = 150ms", open_door(ours())),
        ("Yaksha, self-tuned, 3 s", open_door(best_yaksha())),
        ("CoDel", fifo_gate(CODEL)),
        ("none", open_door(Rejection::Nobody)),
    ];
    let scenarios: Vec<Scenario> =
        rules.iter().map(|(_, policy)| step(101, policy.clone(), 1, 10.0, AT, UNTIL)).collect();
    let curves = sweep(&scenarios, None, |_, run| {
        let run = run.expect("a sound run");
        let curve = |value: fn(&sim::Sample) -> f64| Curve {
            points: run
                .samples
                .iter()
                .map(|sample| (sample.at.as_nanos() as f64 / 1e9, value(sample)))
                .collect(),
            band: Vec::new(),
        };
        [
            curve(|sample| (sample.queued + sample.in_flight).max(1) as f64),
            curve(|sample| sample.useful_work.as_nanos() as f64 / sample.since.as_nanos().max(1) as f64),
        ]
    });
    let of = |panel: usize| curves.iter().map(|curves: &[Curve; 2]| curves[panel].clone()).collect();
    let plot = Plot {
        title: "Ten times the capacity, from the twentieth second on".to_owned(),
        subtitle: "One core that takes 20 ms for a page; at 50 pages/s a mean of 150 ms is 7.5 present"
            .to_owned(),
        variants: rules.iter().map(|(name, _)| (*name).to_owned()).collect(),
        marks: None,
        axis: "seconds",
        seconds: UNTIL as f64,
        panels: vec![
            Panel::new(
                "requests present (waiting or in service)",
                Scale::Logarithmic,
                |value| format!("{value:.0}"),
                of(0),
            ),
            Panel::new("work completed, in cores", Scale::Linear, |value| format!("{value:.1}"), of(1)),
        ],
    };
    plot.write(path).expect("the picture can be written");
}
