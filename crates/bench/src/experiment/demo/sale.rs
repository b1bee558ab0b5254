//! The first act, before the database: the plan `flash-sale-arrivals`.

use std::path::Path;
use std::time::Duration;

use super::{Act, story};
use crate::Error;
use crate::experiment::cell::Measured;
use crate::experiment::plan::{Load, OPEN_DIRECT, Plan};
use crate::experiment::report::Shown;
use crate::experiment::words::Time;
use crate::stats::mean;
use crate::table::{count, ratio, seconds};

const PLAN: &str = include_str!("../../../../../experiments/flash-sale-arrivals/plan.toml");
/// The arrivals, as a multiple of what the database can take at its best.
const LOAD: f64 = 1.3;
/// The duration of the sale before it counts.
const SETTLES: Duration = Duration::from_secs(2);
/// The duration of the sale that counts. A client's patience is as long as both, so that no time-out disturbs
/// the throughput.
const COUNTS: Duration = Duration::from_secs(8);

pub(super) const ACT: Act = Act {
    title: "1 of 2. In front of the database: a flash sale (a minute and a half)",
    happens: "A shop puts twenty articles on sale. Every order locks three of them, takes them from stock and commits; \
        beside the orders, visitors read articles and somebody computes a sales report now and then. The application has \
        600 connections to PostgreSQL, which has one processor core, or 1,000 to a gate, which passes on as many as the \
        database does best. Requests come at 1.3 times the rate that the database can take at its best: straight to \
        it, and through a gate without settings.",
    plan,
    told,
};

fn plan() -> Result<Plan, Error> {
    let mut plan = Plan::parse("flash-sale-arrivals", Path::new("plan.toml"), PLAN)?;
    plan.short.variants = ["direct", "gate"].map(str::to_owned).to_vec();
    (plan.short.overload, plan.short.repetitions) = (vec![LOAD], 2);
    (plan.short.warm_up, plan.short.window) = (Time(SETTLES), Time(COUNTS));
    plan.workload.timeout = Time(SETTLES + COUNTS);
    Ok(plan)
}

/// The mean of a figure over the repetitions.
fn figure(measured: &[&Measured], of: impl Fn(&Measured) -> f64) -> f64 {
    mean(&measured.iter().map(|measured| of(measured)).collect::<Vec<_>>())
}

fn waiting_at_the_end(measured: &Measured) -> f64 {
    measured.moments.last().map_or(0.0, |moment| moment.present as f64)
}

fn short_read(measured: &Measured) -> f64 {
    measured.short.map_or(0.0, |short| short.all_seconds)
}

fn told(shown: &Shown) -> String {
    let of = |variant: &str| shown.results.repetitions(variant, Load::Overload(LOAD));
    let (direct, gate) = (of("direct"), of("gate"));
    let (Some(first), Some(second)) = (direct.first(), gate.first()) else { return String::new() };
    let named =
        |of: fn(&Measured) -> f64| [("direct", figure(&direct, of)), ("Gatekeeper", figure(&gate, of))];
    let answers =
        |measured: &Measured| measured.moments.iter().map(|moment| moment.answered as f64).collect();
    let (throughput, reads) = (named(|measured| measured.clients.throughput), named(short_read));
    let mut text = story::heading("What is seen");
    text += &story::bars("Answers per second", count, &throughput);
    let title = format!("Answers per second over the {} seconds of a sale", (SETTLES + COUNTS).as_secs());
    text += &story::curves(&title, count, &[("direct", answers(first)), ("Gatekeeper", answers(second))]);
    text += &story::bars("Mean response time of a short read", seconds, &reads);
    text += &story::heading("Why");
    let [(_, at_the_end), (_, behind)] = named(waiting_at_the_end);
    let more = match throughput[1].1 / throughput[0].1 {
        more if more >= 1.0 => format!("{} times as many requests are answered", ratio(more)),
        less => format!("{} times fewer requests are answered, which should not be", ratio(1.0 / less)),
    };
    let sooner = match reads[0].1 / reads[1].1 {
        sooner if sooner >= 1.0 => format!("{} times sooner", ratio(sooner)),
        later => format!("{} times later, which should not be", ratio(1.0 / later)),
    };
    text + &story::sentences(&[
        format!(
            "Directly, up to {} transactions are in PostgreSQL at once. They wait for the same twenty rows, \
             and the one core spends its time on waking and checking them.",
            count(at_the_end.min(OPEN_DIRECT as f64))
        ),
        format!(
            "Gatekeeper lets in few at once, and the others wait in its queue. {} wait at the end of a sale, \
             directly {}. So {more}.",
            count(behind),
            count(at_the_end),
        ),
        format!("In the queue short requests go first. A short read is answered {sooner}."),
    ])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::cell::{Cell, Figures};
    use crate::experiment::results::{Line, Results};
    use crate::experiment::schedule::Moment;

    #[test]
    fn the_story_says_what_was_measured() {
        let cell = |variant: &str, throughput, all_seconds, present| {
            let clients = Figures { throughput, ..Figures::default() };
            let short = Some(Figures { all_seconds, ..Figures::default() });
            let moments = vec![Moment { present, ..Moment::default() }];
            let cell = Cell { variant: variant.to_owned(), load: Load::Overload(LOAD), repetition: 0 };
            Line::Cell {
                cell,
                measured: Box::new(Measured { clients, short, moments, ..Measured::default() }),
            }
        };
        let lines = vec![cell("direct", 500.0, 4.0, 9_000), cell("gate", 1_500.0, 0.01, 300)];
        let told = told(&Shown { plan: plan().unwrap(), form: "short", results: Results { lines } });
        let text = told.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(text.contains("up to 600 transactions") && text.contains("3.00 times as many"), "{text}");
        assert!(text.contains("300 wait at the end of a sale, directly 9,000"), "{text}");
        assert!(text.contains("answered 400 times sooner"), "{text}");
    }
}
