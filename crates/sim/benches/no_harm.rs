//! The table of harm: the gate with its defaults against no gate, on two mixes, 1 to 4 cores, any variation
//! and load; with FIFO, shortest first, and two that see true service times beside it.
//!
//! Run: `cargo bench -p sim --bench no-harm -- [requests=120000] [seeds=11,12] [cores=1,2] [variation=0,1]
//! [load=0.9] [connections=20] [capacity=auto] [brief=yes] [uncanceled=600000]`. A gate that finds the number
//! of its connections has 72 before a PostgreSQL that allows 100, and a gate for HTTP has 200. With
//! `capacity=auto` it finds its capacity, as gates do by default. It prints the table (Markdown), and last
//! how many cells miss a goal. Figures are ratios of means over the seeds; the others' columns are of the
//! first seed. `brief` leaves them out. `uncanceled` is how many requests are sent where the service goes on
//! with what nobody waits for: it falls the further behind the more there are.
//!
//! Where a goal is missed, the best in hindsight is looked for: of several limits of the long lane, each
//! with the mean costs known beforehand and connections for nothing ([`Variant::Hindsight`]).

#[path = "../tests/common/no_harm.rs"]
mod experiment;

use admission::{Capacity, Controller};
use experiment::{
    AMPLE, Bound, CONNECTIONS, CORES, Cell, Goal, LOADS, Outturn, Traffic, VARIATIONS, Variant, averaged,
    broken, goals, outturn,
};

/// What chance may add to a ratio.
const NOISE: f64 = 0.02;
/// Runs at a load of 0.9 are longer by this factor, as long as those that the goals come from. There the gain
/// from learning is bounded from both sides.
const LONGER: u64 = 6;
/// The number of requests where the service finishes canceled work, as in the runs that the goals come from.
const UNCANCELED: f64 = 600_000.0;
/// The goal for goodput where the service finishes canceled work, relative to no gate.
const UNCANCELED_GOAL: f64 = 1.6;
/// The number of connections of a gate that has more than usual. A further column has `AMPLE` connections.
const MORE: u32 = 60;
/// Limits of the lane that are tried in hindsight, beside those relative to the cores.
const SEATS: [u32; 3] = [8, 12, CONNECTIONS];

fn argument(name: &str) -> Option<String> {
    std::env::args().find_map(|argument| argument.strip_prefix(name)?.strip_prefix('=').map(str::to_owned))
}

fn numbers(name: &str, all: &[f64]) -> Vec<f64> {
    let parse = |text: &str| text.parse().expect("numbers, separated by commas");
    argument(name).map_or(all.to_vec(), |text| text.split(',').map(parse).collect())
}

/// What is asked for.
struct Asked {
    requests: u64,
    uncanceled: u64,
    connections: u32,
    finds_capacity: bool,
    seeds: Vec<u64>,
    brief: bool,
}

impl Asked {
    fn requests(&self, cell: &Cell) -> u64 {
        let near = (cell.load - 0.9).abs() < 1e-9 && cell.cores <= 2 && cell.variation <= 1.0;
        self.requests * if near { LONGER } else { 1 }
    }

    fn scenario(&self, cell: &Cell, variant: Variant, seed: u64, requests: u64) -> sim::Scenario {
        let mut scenario = cell.scenario(variant, seed, requests);
        if self.finds_capacity && matches!(variant, Variant::Default(_) | Variant::DefaultUncanceled(_)) {
            scenario.policy.capacity = Capacity::Found(Controller::Auto);
        }
        scenario
    }

    /// The means over these seeds.
    fn play(&self, cell: &Cell, variants: &[Variant], seeds: &[u64], requests: u64) -> Vec<Outturn> {
        let scenarios: Vec<_> = variants
            .iter()
            .flat_map(|&variant| seeds.iter().map(move |&seed| self.scenario(cell, variant, seed, requests)))
            .collect();
        let all = sim::sweep(&scenarios, None, |_, run| outturn(cell, &run.expect("a sound run")));
        all.chunks(seeds.len()).map(|runs| averaged(&runs.iter().collect::<Vec<_>>())).collect()
    }

    /// What the best rule that knows types only could reach of a goal that was missed.
    fn in_hindsight(&self, cell: &Cell, ungated: &Outturn, missed: &[Goal]) -> Vec<f64> {
        let seats = [cell.cores, 2 * cell.cores]
            .into_iter()
            .chain(SEATS)
            .chain((cell.is_overloaded()).then_some(AMPLE));
        let variants: Vec<Variant> = seats.map(Variant::Hindsight).collect();
        let all = self.play(cell, &variants, &self.seeds, self.requests(cell));
        let reached = |goal: &Goal| {
            let values = all.iter().filter_map(|outturn| {
                goals(cell, outturn, ungated)
                    .into_iter()
                    .find(|other| other.what == goal.what && other.goal == goal.goal)
            });
            let values = values.map(|other| other.value);
            match goal.bound {
                Bound::Most => values.fold(f64::INFINITY, f64::min),
                Bound::Least => values.fold(0.0, f64::max),
            }
        };
        missed.iter().map(reached).collect()
    }
}

fn figures(cell: &Cell, ungated: &Outturn, gate: &Outturn, more: &[Outturn]) {
    print!("| {:?} | {} | {} | {} ", cell.traffic, cell.cores, cell.variation, cell.load);
    print!(
        "| {:.1} | {:.2} | {:.2} | {:.2} ",
        ungated.mean * 1e3,
        gate.mean / ungated.mean,
        gate.median / ungated.median,
        gate.p95 / ungated.p95
    );
    let kinds: Vec<String> =
        gate.types.iter().zip(&ungated.types).map(|(gate, none)| format!("{:.2}", gate / none)).collect();
    print!("| {} ", kinds.join(" "));
    if more.is_empty() {
        print!("| | ");
    }
    for gate in more {
        print!("| {:.2} ", gate.mean / ungated.mean);
    }
}

/// The columns of the other orders, by the first seed. What SRPT's goodput is.
fn others(asked: &Asked, cell: &Cell) -> f64 {
    let variants = [
        Variant::Ungated,
        Variant::Fifo,
        Variant::ShortestType,
        Variant::Clairvoyant,
        Variant::ShortestRemaining,
    ];
    let all = asked.play(cell, &variants, &asked.seeds[..1], asked.requests);
    for other in &all[1..] {
        print!("| {:.2} ", other.mean / all[0].mean);
    }
    all[4].goodput / all[0].goodput
}

/// The columns of overload where the service goes on with what nobody waits for. Which goal is missed, and
/// the most that anybody could reach of it: to answer all that is sent.
fn uncanceled(asked: &Asked, cell: &Cell) -> (Goal, f64) {
    let variants = [Variant::UngatedUncanceled, Variant::DefaultUncanceled(asked.connections)];
    let all = asked.play(cell, &variants, &asked.seeds[..1], asked.uncanceled);
    let value = all[1].goodput / all[0].goodput;
    let most = cell.rate() / all[0].goodput;
    print!("| {:.2} → {:.2}, {value:.2} of {most:.2} ", all[0].useful, all[1].useful);
    (Goal { what: "not canceled", value, bound: Bound::Least, goal: UNCANCELED_GOAL }, most)
}

/// What a line of the table says of the goals.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    Met,
    /// Nobody could, who knows types only.
    OutOfReach,
    Missed,
}

fn line(asked: &Asked, cell: &Cell) -> Verdict {
    let gates = if asked.brief { 1 } else { 3 };
    let gate = Variant::Default;
    let variants = [Variant::Ungated, gate(asked.connections), gate(MORE), gate(AMPLE)];
    let all = asked.play(cell, &variants[..=gates], &asked.seeds, asked.requests(cell));
    let (ungated, gate) = (&all[0], &all[1]);
    figures(cell, ungated, gate, &all[2..]);
    let mut missed = broken(cell, gate, ungated, NOISE);
    let mut bounds = if missed.is_empty() { Vec::new() } else { asked.in_hindsight(cell, ungated, &missed) };
    if asked.brief {
        print!("| | | | ");
    }
    let shortest_remaining = (!asked.brief).then(|| others(asked, cell));
    if cell.is_overloaded() {
        let shortest_remaining = shortest_remaining.map_or(String::new(), |good| format!(" ({good:.2})"));
        print!(
            "| {:.2} → {:.2} | {:.2}{shortest_remaining} ",
            ungated.useful,
            gate.useful,
            gate.goodput / ungated.goodput
        );
    } else {
        print!("| | ");
    }
    if cell.is_overloaded() && !asked.brief {
        let (goal, most) = uncanceled(asked, cell);
        if !goal.is_met(NOISE) {
            missed.push(goal);
            bounds.push(most);
        }
    } else {
        print!("| ");
    }
    let misses = missed.iter().zip(&bounds).map(|(goal, bound)| format!("{goal} ({bound:.2})"));
    println!("| {} |", misses.collect::<Vec<_>>().join("; "));
    let within = |(goal, bound): (&Goal, &f64)| Goal { value: *bound, ..goal.clone() }.is_met(0.0);
    match missed.iter().zip(&bounds).any(within) {
        _ if missed.is_empty() => Verdict::Met,
        true => Verdict::Missed,
        false => Verdict::OutOfReach,
    }
}

fn main() {
    let asked = Asked {
        requests: numbers("requests", &[120_000.0])[0] as u64,
        uncanceled: numbers("uncanceled", &[UNCANCELED])[0] as u64,
        connections: numbers("connections", &[f64::from(CONNECTIONS)])[0] as u32,
        finds_capacity: argument("capacity").is_some_and(|capacity| capacity == "auto"),
        seeds: numbers("seeds", &[11.0, 12.0]).iter().map(|&seed| seed as u64).collect(),
        brief: argument("brief").is_some(),
    };
    println!(
        "| mix | cores | CV | load | no gate, ms | mean | median | p95 | each type | 60 connections | 1000 | FIFO | SJF | clairvoyant | SRPT | useful | goodput (SRPT) | not canceled | missed (in hindsight) |"
    );
    println!("|{}", "---|".repeat(19));
    let mut verdicts = Vec::new();
    for traffic in [Traffic::Table1, Traffic::Postgres] {
        for &cores in &numbers("cores", &CORES.map(f64::from)) {
            for &variation in &numbers("variation", &VARIATIONS) {
                for &load in &numbers("load", &LOADS) {
                    let cell = Cell { traffic, cores: cores as u32, variation, load };
                    verdicts.push(line(&asked, &cell));
                }
            }
        }
    }
    let count = |verdict| verdicts.iter().filter(|&&other| other == verdict).count();
    println!(
        "\n{} cells: {} meet every goal within {NOISE}, in {} what is missed is out of reach of rules that know types only, {} miss a goal.",
        verdicts.len(),
        count(Verdict::Met),
        count(Verdict::OutOfReach),
        count(Verdict::Missed)
    );
}
