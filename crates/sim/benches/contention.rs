//! The table of contention: a flash sale behind groups that are found, against the best bound that is given.
//!
//! Run: `cargo bench -p sim --bench contention -- [SEED] [row=N] [verbose]`; `verbose` tells what groups
//! did, groups with a capacity, and a capacity alone.

#[path = "../tests/common/contention.rs"]
mod experiment;

use admission::{Capacity, Contention, Controller};
use experiment::{FIFO, Figures, SHORTEST, Sale, TRIED, figures, story};

/// The rows: cores, handover and burn, connections, order, how many types need the lock; then the same
/// requests without a lock.
fn sales(seed: u64) -> Vec<Sale> {
    let mut sales = Vec::new();
    for connections in [20, 300] {
        for cores in [2, 4, 8] {
            for (order, types) in [(FIFO, 1), (SHORTEST, 1), (FIFO, 2)] {
                let sale = Sale { cores, connections, order, types, seed, ..Sale::USUAL };
                for (handover, burn) in [(0.02, 0.0), (0.05, 0.2), (0.1, 0.2), (5.6, 0.0)] {
                    sales.push(Sale { handover, burn, ..sale });
                }
                sales.push(Sale { lock: None, ..sale });
            }
        }
    }
    sales
}

fn main() {
    let verbose = std::env::args().any(|argument| argument == "verbose");
    let seed = std::env::args().find_map(|argument| argument.parse().ok()).unwrap_or(5);
    let row: Option<usize> = std::env::args()
        .find_map(|argument| argument.strip_prefix("row=").map(|number| number.parse().expect("a number")));
    let found = Capacity::Found(Controller::Auto);
    println!(
        "| cores | handover, burn | connections | order, types | best bound, goodput, bystanders | groups | groups and capacity | capacity | neither | no gate |"
    );
    println!("|---|---|---|---|---|---|---|---|---|---|");
    for (at, sale) in sales(seed).into_iter().enumerate() {
        if row.is_some_and(|row| row != at + 1) {
            continue;
        }
        let mut scenarios = vec![
            sale.alone(),
            sale.found(),
            sale.scenario(found, Contention::Auto),
            sale.scenario(found, Contention::None),
            sale.scenario(Capacity::Unlimited, Contention::None),
            sale.no_gate(),
        ];
        let others = scenarios.len();
        scenarios.extend(TRIED.map(|most| sale.given(most)));
        let results = sim::sweep(&scenarios, None, |_, run| {
            let run = run.expect("a sound run");
            (figures(&run), story(&run))
        });
        let given = results[others..].iter().map(|(figures, _)| figures).zip(TRIED);
        let (best, most) =
            given.max_by(|a, b| a.0.goodput.total_cmp(&b.0.goodput)).expect("some bounds are tried");
        let alone = results[0].0.bystanders;
        let times = |figures: &Figures| format!("{:.2}×", figures.bystanders / alone);
        let lock = match sale.lock {
            Some(_) => format!("{}, {}", sale.handover, sale.burn),
            None => "no lock".to_owned(),
        };
        print!(
            "| {} | {lock} | {} | {}, {} | {most}, {:.0}/s, {} |",
            sale.cores,
            sale.connections,
            if sale.order == FIFO { "FIFO" } else { "shortest first" },
            sale.types,
            best.goodput,
            times(best)
        );
        for (figures, _) in &results[1..others] {
            print!(" {:.0} %, {} |", 100.0 * figures.goodput / best.goodput, times(figures));
        }
        println!();
        if verbose {
            println!("{}\n{}\n{}", results[1].1, results[2].1, results[3].1);
        }
    }
}
