//! The table of capacities: what each controller reaches on the six services, against the best fixed
//! capacity on the same seeds.
//!
//! Run: `cargo bench -p sim --bench capacity -- [SEEDS]`, such as `1-4`.

#[path = "../tests/common/capacity.rs"]
mod experiment;

use admission::{Capacity, Controller};
use experiment::{CONTROLLERS, FIXED, PARTS, goodput, policy, scenario, service};

fn main() {
    let mut seeds = 1..=4;
    let mut only = None;
    let mut verbose = false;
    let mut controllers = &CONTROLLERS[..1];
    for argument in std::env::args().skip(1) {
        if let Some((from, to)) = argument.split_once('-').filter(|(from, _)| !from.is_empty()) {
            seeds = from.parse().expect("a seed")..=to.parse().expect("a seed");
        } else if let Ok(number) = argument.parse::<usize>() {
            only = Some(number);
        } else if argument == "verbose" {
            verbose = true;
        } else if argument == "all" {
            controllers = &CONTROLLERS[..];
        }
    }
    for number in 0..6 {
        if only.is_some_and(|only| only != number) {
            continue;
        }
        let mut scenarios = Vec::new();
        for seed in seeds.clone() {
            for fixed in FIXED {
                scenarios.push(scenario(number, seed, policy(Capacity::Unlimited, fixed), 2.0));
            }
            for &controller in controllers {
                scenarios.push(scenario(number, seed, policy(Capacity::Found(controller), 1_000), 2.0));
            }
        }
        let moves = |run: &sim::Run| -> Vec<String> {
            run.events
                .iter()
                .filter_map(|(at, event)| match event {
                    admission::Event::CapacityMoved { from, to, gain } => Some(format!(
                        "{:.1}s {from}→{to} {:+.0}%",
                        at.as_nanos() as f64 / 1e9,
                        gain.unwrap_or(0.0) * 100.0
                    )),
                    _ => None,
                })
                .collect()
        };
        let results = sim::sweep(&scenarios, None, |_, run| {
            let run = run.expect("a sound run");
            (goodput(&run), moves(&run))
        });
        let per_seed = FIXED.len() + controllers.len();
        for (index, seed) in seeds.clone().enumerate() {
            let of_seed = &results[index * per_seed..(index + 1) * per_seed];
            let (name, upstream) = service(number, seed);
            println!("\n{name} (seed {seed}, {} cores, {:?})", upstream.cores(), upstream.service);
            let best: Vec<(f64, u32)> = (0..PARTS.len())
                .map(|part| {
                    let tried = FIXED.iter().zip(of_seed).map(|(fixed, (result, _))| (result[part], *fixed));
                    tried.fold((0.0, 0), |best, one| if one.0 > best.0 { one } else { best })
                })
                .collect();
            print!("{:18}", "best fixed");
            for (rate, fixed) in &best {
                print!(" {:>16}", format!("{rate:.0}/s ({fixed})"));
            }
            println!();
            for (controller, (result, moves)) in controllers.iter().zip(&of_seed[FIXED.len()..]) {
                print!("{:18}", experiment::name(*controller));
                for (part, (rate, _)) in best.iter().enumerate() {
                    print!(" {:>15.1}%", 100.0 * result[part] / rate);
                }
                println!();
                if *controller == Controller::Auto && verbose {
                    println!("    {}", moves.iter().take(60).cloned().collect::<Vec<_>>().join(", "));
                }
            }
        }
    }
}
