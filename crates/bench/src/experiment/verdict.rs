//! Verdicts on the goals of a plan: reached, missed, or within the noise.

use sim::Interval;

use super::plan::{Form, Goal, Load, Metric, Plan, Who};
use super::results::Results;
use super::words::Reference;
use super::yardstick::Yardstick;
use crate::table::{ratio, seconds};

/// How a goal stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// Reached, with the whole interval or with a single repetition.
    Reached,
    /// Reached by the mean, but the bound is within the interval.
    Barely,
    /// Missed by the mean, but the bound is within the interval.
    Nearly,
    /// Missed.
    Missed,
    /// Not measured.
    Open,
}

impl Standing {
    /// In a word or two.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Reached => "reached",
            Self::Barely => "just reached",
            Self::Nearly => "just missed",
            Self::Missed => "missed",
            Self::Open => "open",
        }
    }
}

/// What one goal came to, where it came out worst.
#[derive(Clone, Debug, PartialEq)]
pub struct Verdict {
    /// How it stands.
    pub standing: Standing,
    /// The value and its interval of 90 %; infinite where what it is divided by is zero.
    pub found: Option<(Load, Interval)>,
    /// What was found, in plain words.
    pub text: String,
}

/// Judges every goal by the results of a form.
pub fn judge(plan: &Plan, form: &Form, results: &Results) -> Vec<Verdict> {
    plan.goal.iter().map(|goal| one(goal, form, results)).collect()
}

fn one(goal: &Goal, form: &Form, results: &Results) -> Verdict {
    let values = form
        .loads()
        .filter(|&load| applies(goal, load))
        .filter_map(|load| Some((load, value(goal, form, results, load)?)));
    // The worst decides.
    let is_floor = goal.at_least.is_some();
    let worse = |one: &(Load, Interval), other: &(Load, Interval)| {
        let order = one.1.mean.total_cmp(&other.1.mean);
        if is_floor { order } else { order.reverse() }
    };
    let Some((load, found)) = values.min_by(worse) else {
        return Verdict { standing: Standing::Open, found: None, text: "not measured".to_owned() };
    };
    let bound = goal.at_least.or(goal.at_most).unwrap_or(0.0);
    let standing = standing(found, bound, is_floor);
    let comparison = if is_floor { "at least" } else { "at most" };
    let text = if goal.metric == Metric::Alive {
        let word = if found.mean >= 1.0 { "it lives" } else { "it lost processes" };
        format!("{word}, {}", load.phrase())
    } else {
        let value = show(goal, found.mean);
        let around = match found.half_width {
            Some(half) if found.mean.is_finite() => format!(" ± {}", show(goal, half)),
            _ => String::new(),
        };
        let once = if found.half_width.is_none() { "; measured once" } else { "" };
        let grace = goal.grace.0.as_secs_f64();
        let less = if grace > 0.0 { format!(", less {}", seconds(grace)) } else { String::new() };
        format!(
            "{value}{around}{less} {} ({comparison} {} asked for{once})",
            load.phrase(),
            show(goal, bound)
        )
    };
    Verdict { standing, found: Some((load, found)), text }
}

fn applies(goal: &Goal, load: Load) -> bool {
    match load {
        Load::Clients(0) | Load::Schedule => false,
        Load::Clients(clients) => {
            !is_of_overload(goal)
                && goal.phases_from.is_none()
                && !is_of_busy(goal)
                && goal.clients_from.is_none_or(|from| clients >= from)
        }
        Load::Busy(part) => {
            goal.clients_from.is_none()
                && !is_of_overload(goal)
                && goal.phases_from.is_none()
                && goal.busy_from.is_none_or(|from| part >= from)
                && goal.busy_to.is_none_or(|to| part <= to)
        }
        Load::Overload(factor) => {
            goal.clients_from.is_none()
                && goal.phases_from.is_none()
                && !is_of_busy(goal)
                && goal.overload_from.is_none_or(|from| factor >= from)
                && goal.overload_to.is_none_or(|to| factor <= to)
        }
        Load::Phase(phase) => {
            goal.clients_from.is_none()
                && !is_of_overload(goal)
                && !is_of_busy(goal)
                && goal.phases_from.is_none_or(|from| phase + 1 >= from)
        }
    }
}

const fn is_of_overload(goal: &Goal) -> bool {
    goal.overload_from.is_some() || goal.overload_to.is_some()
}

const fn is_of_busy(goal: &Goal) -> bool {
    goal.busy_from.is_some() || goal.busy_to.is_some()
}

fn standing(found: Interval, bound: f64, is_floor: bool) -> Standing {
    let reaches = |value: f64| if is_floor { value >= bound } else { value <= bound };
    match (reaches(found.mean), reaches(found.low()) && reaches(found.high())) {
        (true, true) => Standing::Reached,
        (true, false) => Standing::Barely,
        (false, _) if reaches(found.low()) || reaches(found.high()) => Standing::Nearly,
        (false, _) => Standing::Missed,
    }
}

/// The goal's value under a load; none where something wasn't measured.
fn value(goal: &Goal, form: &Form, results: &Results, load: Load) -> Option<Interval> {
    let yardstick = Yardstick::of(results);
    // With a place for each repetition, also where there is no such figure of it: pairs are of the same one.
    let each = |variant: &str, load: Load| -> Vec<Option<f64>> {
        let figure = |measured| yardstick.figure(measured, goal.metric, goal.group);
        results.repetitions(variant, load).into_iter().map(figure).collect()
    };
    let of = |variant: &str, load: Load| -> Vec<f64> { each(variant, load).into_iter().flatten().collect() };
    let let_off = |found: f64| found - goal.grace.0.as_secs_f64();
    let own: Vec<Option<f64>> = each(&goal.of, load).into_iter().map(|found| found.map(let_off)).collect();
    let known: Vec<f64> = own.iter().copied().flatten().collect();
    if known.is_empty() {
        return None;
    }
    let mean = Interval::of(&known);
    Some(match &goal.relative_to {
        None => mean,
        Some(Reference::Variant(other)) => {
            let pairs: Vec<(f64, f64)> =
                own.into_iter().zip(each(other, load)).filter_map(|(own, other)| own.zip(other)).collect();
            if pairs.is_empty() {
                return None;
            }
            paired(&pairs)
        }
        Some(Reference::Idle) => divided(mean, &[Interval::of(&of(&goal.of, Load::Clients(0))).mean])?,
        Some(Reference::Peak) => divided(mean, &own_peaks(goal, form, results, load, &of))?,
        Some(Reference::Best) => divided(mean, &means(form.loads(), &form.variants, &of))?,
    })
}

/// What a variant's peak before a load is the largest of: its means under this load and lighter ones, and
/// what was calibrated through it. One that does even more under a heavier load has kept what it did. None as
/// long as nothing but the goal's own loads was measured: the peak of those says that they are alike, not
/// that they are near it.
fn own_peaks(
    goal: &Goal,
    form: &Form,
    results: &Results,
    load: Load,
    of: &impl Fn(&str, Load) -> Vec<f64>,
) -> Vec<f64> {
    let is_calibrated = goal.metric == Metric::Throughput
        && goal.group == Who::Clients
        && form.calibrate.as_ref().is_some_and(|calibrate| calibrate.variant == goal.of);
    let calibrated = results.calibrated().filter(|_| is_calibrated);
    let mut elsewhere =
        form.loads().filter(|&load| load != Load::Clients(0) && !applies(goal, load)).peekable();
    let has_elsewhere = elsewhere.peek().is_some();
    if has_elsewhere && calibrated.is_none() && elsewhere.all(|load| of(&goal.of, load).is_empty()) {
        return Vec::new();
    }
    // A form names its loads from the lightest to the heaviest.
    let lighter = form.loads().take_while(|&other| other != load).chain([load]);
    means(lighter, std::slice::from_ref(&goal.of), of).into_iter().chain(calibrated).collect()
}

/// Every mean of some variants under those of the loads that have clients.
fn means(
    loads: impl Iterator<Item = Load>,
    variants: &[String],
    of: &impl Fn(&str, Load) -> Vec<f64>,
) -> Vec<f64> {
    loads
        .filter(|&load| load != Load::Clients(0))
        .flat_map(|load| variants.iter().map(move |variant| Interval::of(&of(variant, load)).mean))
        .collect()
}

/// A mean over the largest of some that are numbers.
fn divided(mean: Interval, by: &[f64]) -> Option<Interval> {
    let largest = by.iter().copied().filter(|value| value.is_finite()).max_by(f64::total_cmp)?;
    (largest > 0.0).then(|| mean.times(1.0 / largest))
}

/// The ratios of repetitions that were measured one after the other; infinite if the other one is always
/// zero.
fn paired(pairs: &[(f64, f64)]) -> Interval {
    if pairs.iter().all(|&(_, other)| other > 0.0) {
        return Interval::of(&pairs.iter().map(|(own, other)| own / other).collect::<Vec<_>>());
    }
    let sum = |of: fn(&(f64, f64)) -> f64| pairs.iter().map(of).sum::<f64>();
    let (own, other) = (sum(|pair| pair.0), sum(|pair| pair.1));
    let mean = if other > 0.0 {
        own / other
    } else if own > 0.0 {
        f64::INFINITY
    } else {
        0.0
    };
    Interval { mean, half_width: None }
}

fn show(goal: &Goal, value: f64) -> String {
    match (goal.metric, &goal.relative_to) {
        (_, Some(_)) if value.is_infinite() => {
            "more than any number of times (the other completed nothing)".to_owned()
        }
        (_, Some(_)) => format!("{} times", ratio(value)),
        (Metric::Throughput | Metric::ThroughputPerProcessor | Metric::EstimatedCapacity, None) => {
            format!("{value:.1}/s")
        }
        (
            Metric::Goodput
            | Metric::GoodputAtUsualSpeed
            | Metric::Refused
            | Metric::Answered
            | Metric::Stretch,
            None,
        ) => ratio(value),
        (_, None) => seconds(value),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::experiment::cell::{Cell, Figures, Measured};
    use crate::experiment::plan::Calibrate;
    use crate::experiment::results::Line;
    use crate::experiment::tests::plan;
    use crate::experiment::words::Time;

    /// Throughputs by variant, clients and repetition; responses are their inverse.
    fn results(figures: &[(&str, usize, &[f64])]) -> Results {
        let mut results = Results::default();
        for &(variant, clients, throughputs) in figures {
            for (repetition, &throughput) in (0..).zip(throughputs) {
                let cell = Cell { variant: variant.to_owned(), load: Load::Clients(clients), repetition };
                let figures = Figures { throughput, all_seconds: 1.0 / throughput, ..Figures::default() };
                let measured = Measured {
                    clients: figures,
                    bystanders: Some(figures),
                    alive: variant != "direct",
                    ..Measured::default()
                };
                results.lines.push(Line::Cell { cell, measured: Box::new(measured) });
            }
        }
        results
    }

    fn verdict(goal: Goal, results: &Results) -> Verdict {
        one(&goal, &plan().full, results)
    }

    fn goal() -> Goal {
        plan().goal[0].clone()
    }

    #[test]
    fn ratios_are_of_rounds_and_the_worst_place_decides() {
        let found = verdict(
            Goal { clients_from: None, ..goal() },
            &results(&[
                ("direct", 4, &[10.0, 20.0]),
                ("gate", 4, &[40.0, 80.0]),
                ("direct", 300, &[10.0, 10.0]),
                ("gate", 300, &[35.0, 37.0]),
            ]),
        );
        assert_eq!(found.found.map(|found| found.0), Some(Load::Clients(300)));
        assert_eq!(found.found.map(|found| found.1.mean), Some(3.6));
        // 3.6 ± 0.63: 6.314 times a standard error of 0.1.
        assert_eq!(found.standing, Standing::Barely, "{}", found.text);
        assert!(
            found.text.contains("3.60 times ± 0.63 times with 300 clients (at least 3.00 times"),
            "{}",
            found.text
        );
    }

    #[test]
    fn a_goal_stands_by_its_whole_interval() {
        let at = |mean, half_width| Interval { mean, half_width };
        assert_eq!(standing(at(3.5, Some(0.2)), 3.0, true), Standing::Reached);
        assert_eq!(standing(at(3.5, None), 3.0, true), Standing::Reached);
        assert_eq!(standing(at(2.9, Some(0.2)), 3.0, true), Standing::Nearly);
        assert_eq!(standing(at(2.5, Some(0.2)), 3.0, true), Standing::Missed);
        assert_eq!(standing(at(2.5, Some(0.2)), 3.0, false), Standing::Reached);
        assert_eq!(standing(at(f64::INFINITY, None), 3.0, true), Standing::Reached);
    }

    #[test]
    fn nothing_at_all_is_outdone_by_anything_and_not_by_nothing() {
        let found = verdict(goal(), &results(&[("direct", 300, &[0.0, 0.0]), ("gate", 300, &[5.0, 6.0])]));
        assert_eq!(found.standing, Standing::Reached);
        assert!(found.text.contains("the other completed nothing"));
        let found = verdict(goal(), &results(&[("direct", 300, &[0.0]), ("gate", 300, &[0.0])]));
        assert_eq!(found.standing, Standing::Missed);
    }

    #[test]
    fn what_was_not_measured_is_open() {
        assert_eq!(verdict(goal(), &Results::default()).standing, Standing::Open);
        assert_eq!(verdict(goal(), &results(&[("gate", 300, &[5.0])])).standing, Standing::Open);
    }

    #[test]
    fn peaks_the_best_and_the_idle_are_found() {
        let results = results(&[
            ("gate", 0, &[1.0]),
            ("gate", 4, &[50.0]),
            ("gate", 300, &[45.0]),
            ("direct", 4, &[60.0]),
            ("direct", 300, &[10.0]),
        ]);
        let with = |relative_to| Goal { relative_to: Some(relative_to), ..goal() };
        let mean = |goal| verdict(goal, &results).found.map(|found| found.1.mean);
        assert_eq!(mean(with(Reference::Peak)), Some(0.9));
        assert_eq!(mean(with(Reference::Best)), Some(0.75));
        let idle = Goal {
            metric: Metric::Response,
            group: Who::Bystanders,
            at_least: None,
            at_most: Some(3.0),
            ..with(Reference::Idle)
        };
        assert!((mean(idle.clone()).unwrap() - 1.0 / 45.0).abs() < 1e-9);
        assert_eq!(verdict(idle, &results).standing, Standing::Reached);
    }

    #[test]
    fn one_hop_more_may_be_let_off_up_to_some_load() {
        let mut form = plan().full;
        (form.clients, form.overload) = (Vec::new(), vec![0.5, 0.9]);
        let mut results = Results::default();
        let mut add = |variant: &str, factor, all_seconds| {
            let (variant, load) = (variant.to_owned(), Load::Overload(factor));
            let clients = Figures { all_seconds, ..Figures::default() };
            let measured = Box::new(Measured { clients, ..Measured::default() });
            results.lines.push(Line::Cell { cell: Cell { variant, load, repetition: 0 }, measured });
        };
        for (factor, direct, gate) in [(0.5, 0.001, 0.0011), (0.9, 0.01, 0.02)] {
            add("direct", factor, direct);
            add("gate", factor, gate);
        }
        let mut goal = Goal {
            metric: Metric::Response,
            clients_from: None,
            overload_to: Some(0.7),
            at_least: None,
            at_most: Some(1.05),
            ..goal()
        };
        assert_eq!(one(&goal, &form, &results).standing, Standing::Missed);
        goal.grace = Time(Duration::from_micros(150));
        let found = one(&goal, &form, &results);
        assert_eq!(found.standing, Standing::Reached);
        assert!(found.text.starts_with("0.95 times, less 0.15 ms at 0.5 times"), "{}", found.text);
        goal.overload_to = None;
        assert_eq!(one(&goal, &form, &results).standing, Standing::Missed);
    }

    #[test]
    fn a_goal_may_be_for_servers_that_are_busy_for_some_part() {
        let mut form = plan().full;
        (form.clients, form.busy) = (vec![300], vec![0.7, 0.9]);
        let mut results = results(&[("gate", 300, &[50.0])]);
        for (part, throughput) in [(0.7, 20.0), (0.9, 30.0)] {
            let cell = Cell { variant: "gate".to_owned(), load: Load::Busy(part), repetition: 0 };
            let clients = Figures { throughput, ..Figures::default() };
            results
                .lines
                .push(Line::Cell { cell, measured: Box::new(Measured { clients, ..Measured::default() }) });
        }
        let mean = |goal: Goal| one(&goal, &form, &results).found.map(|found| found.1.mean);
        let any = Goal { relative_to: None, clients_from: None, ..goal() };
        assert_eq!(mean(any.clone()), Some(20.0));
        assert_eq!(mean(Goal { busy_from: Some(0.9), ..any.clone() }), Some(30.0));
        assert_eq!(mean(Goal { busy_to: Some(0.7), ..any.clone() }), Some(20.0));
        assert_eq!(mean(Goal { clients_from: Some(1), ..any }), Some(50.0));
    }

    #[test]
    fn the_peak_is_of_the_same_variant_and_known_only_where_more_was_measured_than_the_overload() {
        let mut form = plan().full;
        form.overload = vec![1.5, 3.0];
        form.calibrate = Some(Calibrate { variant: "gate".to_owned(), clients: vec![4, 20] });
        let goal = |of: &str| Goal {
            of: of.to_owned(),
            clients_from: None,
            overload_from: Some(1.5),
            relative_to: Some(Reference::Peak),
            at_least: Some(0.95),
            ..goal()
        };
        let mut results = Results::default();
        let add = |results: &mut Results, variant: &str, load, throughput| {
            let cell = Cell { variant: variant.to_owned(), load, repetition: 0 };
            let clients = Figures { throughput, ..Figures::default() };
            let measured = Box::new(Measured { clients, ..Measured::default() });
            results.lines.push(Line::Cell { cell, measured });
        };
        add(&mut results, "gate", Load::Overload(1.5), 90.0);
        add(&mut results, "gate", Load::Overload(3.0), 80.0);
        add(&mut results, "direct", Load::Overload(3.0), 40.0);
        let found = |of: &str, results: &Results| {
            let verdict = one(&goal(of), &form, results);
            (verdict.standing, verdict.found.map(|found| (found.0, found.1.mean)))
        };
        // Two overloads that are as bad as one another aren't a peak.
        assert_eq!(found("gate", &results), (Standing::Open, None));
        results.lines.push(Line::Calibrated { tried: vec![(4, 100.0), (20, 64.0)] });
        assert_eq!(found("gate", &results), (Standing::Missed, Some((Load::Overload(3.0), 0.8))));
        // It was calibrated through another gate, and has to be measured under another load itself.
        assert_eq!(found("direct", &results), (Standing::Open, None));
        add(&mut results, "direct", Load::Clients(4), 50.0);
        assert_eq!(found("direct", &results).1, Some((Load::Overload(3.0), 0.8)));
        add(&mut results, "gate", Load::Clients(300), 160.0);
        assert_eq!(found("gate", &results).1, Some((Load::Overload(3.0), 0.5)));
    }

    #[test]
    fn who_does_more_under_more_load_has_kept_its_peak() {
        let mut form = plan().full;
        form.clients = vec![4, 300, 600];
        let goal = |of: &str| Goal {
            of: of.to_owned(),
            clients_from: Some(300),
            relative_to: Some(Reference::Peak),
            at_least: Some(0.95),
            ..goal()
        };
        let results = results(&[
            ("gate", 4, &[20.0]),
            ("gate", 300, &[40.0]),
            ("gate", 600, &[50.0]),
            ("direct", 4, &[20.0]),
            ("direct", 300, &[40.0]),
            ("direct", 600, &[30.0]),
        ]);
        let found = |of: &str| {
            let verdict = one(&goal(of), &form, &results);
            (verdict.standing, verdict.found.map(|found| (found.0, found.1.mean)))
        };
        assert_eq!(found("gate").0, Standing::Reached);
        assert_eq!(found("direct"), (Standing::Missed, Some((Load::Clients(600), 0.75))));
    }

    #[test]
    fn a_repetition_without_the_figure_leaves_the_other_pairs_as_they_are() {
        let mut results =
            results(&[("direct", 300, &[10.0, 20.0, 40.0]), ("gate", 300, &[30.0, 60.0, 120.0])]);
        // What the server itself used isn't known of one repetition.
        for line in &mut results.lines {
            let Line::Cell { cell, measured } = line else { continue };
            if cell.variant != "gate" || cell.repetition != 0 {
                (measured.server_cpu, measured.others_cpu) = (Some(1.0), Some(0.0));
            }
        }
        let found = verdict(Goal { metric: Metric::ThroughputPerProcessor, ..goal() }, &results);
        assert_eq!(found.found.map(|found| found.1), Some(Interval { mean: 3.0, half_width: Some(0.0) }));
        assert_eq!(found.standing, Standing::Reached);
    }

    #[test]
    fn life_is_a_goal_too() {
        let alive = |of: &str| Goal {
            of: of.to_owned(),
            metric: Metric::Alive,
            relative_to: None,
            at_least: Some(1.0),
            ..goal()
        };
        let results = results(&[("gate", 300, &[5.0]), ("direct", 300, &[5.0])]);
        assert_eq!(verdict(alive("gate"), &results).standing, Standing::Reached);
        assert!(verdict(alive("direct"), &results).text.starts_with("it lost processes"));
    }
}
