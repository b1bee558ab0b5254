//! The table of harm: the gate as it comes against no gate, on two mixes, 1 to 4 cores, any variation and load; with FIFO,
//! shortest first, and two that see true service times beside it.
//!
//! Run: `cargo bench -p sim --bench no-harm -- [requests=200000] [seed=1] [cores=1,2] [variation=0,1] [load=0.9]`. It prints
//! the table (Markdown), and last what of the goals is broken.

#[path = "../tests/common/no_harm.rs"]
mod experiment;

use experiment::{
    AMPLE, CONNECTIONS, CORES, Cell, LOADS, Outturn, Traffic, VARIATIONS, Variant, broken, outturn,
};

/// What chance may add to a ratio.
const NOISE: f64 = 0.02;

fn argument(name: &str) -> Option<String> {
    std::env::args().find_map(|argument| argument.strip_prefix(name)?.strip_prefix('=').map(str::to_owned))
}

fn numbers(name: &str, all: &[f64]) -> Vec<f64> {
    let parse = |text: &str| text.parse().expect("numbers, separated by commas");
    argument(name).map_or(all.to_vec(), |text| text.split(',').map(parse).collect())
}

fn variants(cell: &Cell) -> Vec<Variant> {
    let mut variants = vec![
        Variant::Ungated,
        Variant::Default(AMPLE),
        Variant::Default(CONNECTIONS),
        Variant::Fifo,
        Variant::ShortestType,
        Variant::Clairvoyant,
        Variant::ShortestRemaining,
    ];
    if cell.is_overloaded() {
        variants.extend([Variant::UngatedUncanceled, Variant::DefaultUncanceled]);
    }
    variants
}

fn line(cell: &Cell, all: &[Outturn], broken: &[String]) {
    let ungated = &all[0];
    let of = |figure: fn(&Outturn) -> f64| move |outturn: &Outturn| figure(outturn) / figure(ungated);
    let (mean, p95) = (of(|outturn| outturn.mean), of(|outturn| outturn.p95));
    let gate = &all[1];
    let kinds: Vec<String> =
        gate.types.iter().zip(&ungated.types).map(|(gate, none)| format!("{:.2}", gate / none)).collect();
    print!("| {:?} | {} | {} | {} ", cell.traffic, cell.cores, cell.variation, cell.load);
    print!(
        "| {:.1} | {:.2} | {:.2} | {:.2} ",
        ungated.mean * 1e3,
        mean(gate),
        gate.median / ungated.median,
        p95(gate)
    );
    print!("| {} | {:.2} ", kinds.join(" "), mean(&all[2]));
    print!("| {:.2} | {:.2} | {:.2} | {:.2} ", mean(&all[3]), mean(&all[4]), mean(&all[5]), mean(&all[6]));
    if cell.is_overloaded() {
        let good = |outturn: &Outturn, than: &Outturn| outturn.goodput / than.goodput;
        print!(
            "| {:.2} → {:.2} | {:.2} ({:.2}) ",
            ungated.useful,
            gate.useful,
            good(gate, ungated),
            good(&all[6], ungated)
        );
        print!("| {:.2} → {:.2}, {:.2} ", all[7].useful, all[8].useful, good(&all[8], &all[7]));
    } else {
        print!("| | | ");
    }
    println!("| {} |", broken.join("; "));
}

fn main() {
    let requests = numbers("requests", &[200_000.0])[0] as u64;
    let seed = numbers("seed", &[1.0])[0] as u64;
    println!(
        "| mix | cores | CV | load | no gate, ms | mean | median | p95 | each type | 20 connections | FIFO | SJF | clairvoyant | SRPT | useful | goodput (SRPT) | not canceled | broken |"
    );
    println!("|{}", "---|".repeat(18));
    let mut missed = 0;
    for traffic in [Traffic::Table1, Traffic::Postgres] {
        for &cores in &numbers("cores", &CORES.map(f64::from)) {
            for &variation in &numbers("variation", &VARIATIONS) {
                for &load in &numbers("load", &LOADS) {
                    let cell = Cell { traffic, cores: cores as u32, variation, load };
                    let scenarios: Vec<_> = variants(&cell)
                        .iter()
                        .map(|&variant| cell.scenario(variant, seed, requests))
                        .collect();
                    let all =
                        sim::sweep(&scenarios, None, |_, run| outturn(&cell, &run.expect("a sound run")));
                    let broken = broken(&cell, &all[1], &all[0], NOISE);
                    missed += usize::from(!broken.is_empty());
                    line(&cell, &all, &broken);
                }
            }
        }
    }
    println!("\n{missed} cells break a goal by more than {NOISE}.");
}
