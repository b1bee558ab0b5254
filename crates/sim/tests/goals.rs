//! Goals of service classes: the paper's tables and figures, simulated, beside its numbers.

use sim::goals::{Experiment, Method, Seen, Sharing, experiments, table2};

const SEEDS: u64 = 8;
/// A delay is that of a goal if it is at most this multiple.
const KEPT: f64 = 1.1;
/// The number of ticks over which a delay is taken, all runs together.
const SPAN: usize = 40;

#[test]
fn delays_by_weights_are_those_of_table_2_b() {
    let said = [
        ([2, 1, 1], [0.005, 2.4, 2.2]),
        ([3, 2, 1], [0.006, 1.42, 3.15]),
        ([4, 3, 1], [0.005, 0.75, 3.68]),
        ([5, 4, 1], [0.006, 0.49, 3.89]),
        ([6, 5, 1], [0.007, 0.26, 4.15]),
    ];
    for (weights, said) in said {
        let found = table2([400.0; 3], Sharing::Weights(weights), 1).unwrap();
        println!("{weights:?}: {found:.3?}, the paper {said:?}");
        assert!(found[0] < 0.08, "the first class has more than it asks for: {found:?}");
        for place in 1..3 {
            let off = (found[place] - said[place]).abs();
            assert!(off < 0.2 * said[place] + 0.05, "{weights:?}: {found:?}, the paper {said:?}");
        }
    }
}

#[test]
fn equal_weights_isolate_a_class_as_in_table_2_a() {
    let [alone, more, most] = [[375.0; 3], [375.0, 400.0, 400.0], [375.0, 425.0, 425.0]]
        .map(|rates| table2(rates, Sharing::Weights([1; 3]), 1).unwrap());
    println!("{alone:.3?} {more:.3?} {most:.3?}, the paper 1.5, 1.8, 1.9 and 2.1");
    assert!((more[0] / alone[0] - 1.0).abs() < 0.02 && (most[0] / alone[0] - 1.0).abs() < 0.02);
    assert!(more[1] > alone[1] * 1.1 && most[1] > more[1] * 1.1);
    assert!((alone[0] - 1.5).abs() < 0.3 && (most[2] - 2.1).abs() < 0.4);
}

#[test]
fn strict_priority_gives_one_point_only() {
    // The paper's Table 2 (c) has 1.4, 1.5 and 1.8 s, which no strict priority gives at the rates of its
    // other tables: the first class alone is half of what the workers serve.
    let found = table2([425.0; 3], Sharing::Priority, 1).unwrap();
    println!("{found:.3?}");
    assert!(found[0] < 0.02 && found[0] < found[1] && found[1] < 0.5, "{found:?}");
    assert!(found[2] < 1.0, "of the last class only its first were let in: {found:?}");
}

fn runs(experiment: &Experiment, method: Method) -> Vec<Vec<Seen>> {
    (1..=SEEDS).map(|seed| experiment.play(method, seed).expect("it can be run")).collect()
}

fn mean(runs: &[Vec<Seen>], ticks: std::ops::Range<usize>, of: fn(&Seen) -> [(f64, f64); 2]) -> [f64; 2] {
    let (mut count, mut sum) = ([0.0_f64; 2], [0.0; 2]);
    for seen in runs.iter().flat_map(|run| &run[ticks.start..ticks.end.min(run.len())]) {
        for place in 0..2 {
            count[place] += of(seen)[place].0;
            sum[place] += of(seen)[place].1;
        }
    }
    [0, 1].map(|place| sum[place] / count[place].max(1.0))
}

/// A change of goals: the figure, the resource, the class with the shorter goal, and from which tick on.
struct Change {
    figure: &'static str,
    of: fn(&Seen) -> [(f64, f64); 2],
    share: fn(&Seen) -> f64,
    class: usize,
    goals: [f64; 2],
    ticks: std::ops::Range<usize>,
}

impl Change {
    /// After how many ticks both classes keep their goals, over the next ticks and over all to the end.
    fn settles(&self, runs: &[Vec<Seen>]) -> Option<usize> {
        let is_kept = |ticks| {
            let found = mean(runs, ticks, self.of);
            (0..2).all(|place| found[place] <= KEPT * self.goals[place])
        };
        let last = self.ticks.end - SPAN;
        let settled = self.ticks.clone().take_while(|&at| at < last);
        settled
            .into_iter()
            .find(|&at| is_kept(at..at + SPAN) && is_kept(at..self.ticks.end))
            .map(|at| at - self.ticks.start)
    }

    /// How far the share of the class goes back from its largest value, on average.
    fn swings(&self, runs: &[Vec<Seen>]) -> f64 {
        let swing = |run: &Vec<Seen>| {
            let share = |seen: &Seen| {
                let share = (self.share)(seen);
                if self.class == 0 { share } else { 1.0 - share }
            };
            let shares = run[self.ticks.start + 1..self.ticks.end.min(run.len())].iter().map(share);
            let (mut most, mut back) = (0.0_f64, 0.0_f64);
            for share in shares {
                most = most.max(share);
                back = back.max(most - share);
            }
            back
        };
        runs.iter().map(swing).sum::<f64>() / runs.len() as f64
    }
}

fn changes() -> Vec<Change> {
    let processor = |figure, class, goals, ticks| Change {
        figure,
        of: |seen| seen.processor,
        share: |seen| seen.processor_share,
        class,
        goals,
        ticks,
    };
    let queue = |figure, class, goals, ticks| Change {
        of: |seen| seen.queue,
        share: |seen| seen.queue_share,
        ..processor(figure, class, goals, ticks)
    };
    vec![
        processor("Fig. 5", 0, [0.05, 0.15], 100..500),
        processor("Fig. 5", 1, [0.15, 0.05], 500..1200),
        processor("Fig. 6", 0, [0.25, 1.0], 200..600),
        processor("Fig. 6", 1, [1.0, 0.25], 600..1200),
        queue("Fig. 7", 0, [0.05, 0.15], 400..900),
        queue("Fig. 7", 1, [0.15, 0.05], 900..1400),
        processor("Fig. 8", 0, [0.05, 0.15], 100..400),
        queue("Fig. 8", 0, [0.05, 0.15], 400..800),
    ]
}

#[test]
fn ours_settles_at_least_twice_as_fast_as_the_published_adaptation() {
    let (mut ours_sum, mut theirs_sum) = (0, 0);
    for experiment in experiments() {
        let (ours, theirs) = (runs(&experiment, Method::Ours), runs(&experiment, Method::Published));
        let moves = |runs: &[Vec<Seen>]| runs.iter().map(|run| run[run.len() - 1].moves).sum::<u32>();
        println!("{}: moves of ours {}, theirs {}", experiment.name, moves(&ours), moves(&theirs));
        for change in changes().iter().filter(|change| change.figure == experiment.name) {
            let end = change.ticks.end;
            let (our, their) = (change.settles(&ours), change.settles(&theirs));
            println!(
                "  {:?}: ours {our:?} back {:.2} {:.3?}, theirs {their:?} back {:.2} {:.3?}",
                change.ticks,
                change.swings(&ours),
                mean(&ours, end - 200..end, change.of),
                change.swings(&theirs),
                mean(&theirs, end - 200..end, change.of),
            );
            ours_sum += our.expect("ours settles");
            theirs_sum += their.unwrap_or(change.ticks.len());
            assert!(change.swings(&ours) < 0.3, "{} {:?} swings", change.figure, change.ticks);
        }
    }
    println!("ours {ours_sum} ticks, theirs {theirs_sum}");
    assert!(2 * ours_sum <= theirs_sum);
}
