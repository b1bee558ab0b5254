//! The second act, before a site: one load of the plan `bounded-response`.

use std::path::Path;
use std::time::Duration;

use super::{Act, story};
use crate::Error;
use crate::experiment::cell::Measured;
use crate::experiment::plan::{Load, Metric, Plan, Who};
use crate::experiment::report::Shown;
use crate::experiment::words::Time;
use crate::experiment::yardstick::Yardstick;
use crate::table::seconds;

const PLAN: &str = include_str!("../../../../../experiments/bounded-response/plan.toml");
/// The duration of the calm before the load.
const CALM: Duration = Duration::from_secs(4);
/// The duration of the load before it counts.
const SETTLES: Duration = Duration::from_secs(9);
/// The duration of the load that counts.
const COUNTS: Duration = Duration::from_secs(9);
/// The load, in capacities.
const LOAD: f64 = 3.0;

pub(super) const ACT: Act = Act {
    title: "2 of 2. In front of the application servers: a crowd (a minute)",
    happens: "A site computes pages, half of what it can do at first. Then three times as many visitors come as it can \
        serve. They come straight to the site, then through a gate with `target = \"150ms\"`.",
    plan,
    told,
};

fn plan() -> Result<Plan, Error> {
    let mut plan = Plan::parse("bounded-response", Path::new("plan.toml"), PLAN)?;
    let pages = plan.workload.origin.as_mut().ok_or_else(|| Error::Experiment("no origin".to_owned()))?;
    pages.calm = Time(CALM);
    plan.short.variants = ["direct", "gate-target"].map(str::to_owned).to_vec();
    (plan.short.overload, plan.short.repetitions) = (vec![LOAD], 1);
    (plan.short.warm_up, plan.short.window) = (Time(SETTLES), Time(COUNTS));
    Ok(plan)
}

fn told(shown: &Shown) -> String {
    let yardstick = Yardstick::of(&shown.results);
    let of = |name: &'static str, variant: &str| {
        let measured = shown.results.repetitions(variant, Load::Overload(LOAD)).first().copied();
        measured.map(|measured| (name, measured))
    };
    let (Some(without), Some(with)) = (of("direct", "direct"), of("Gatekeeper", "gate-target")) else {
        return String::new();
    };
    let row = |metric: Metric, times: f64| {
        [without, with].map(|(name, measured)| {
            (name, times * yardstick.figure(measured, metric, Who::Clients).unwrap_or(0.0))
        })
    };
    let points = |measured: &Measured| measured.moments.iter().map(|moment| moment.response).collect();
    let curves: [(&str, Vec<f64>); 2] = [without, with].map(|(name, measured)| (name, points(measured)));
    let mut text = story::heading("What is seen");
    let title = format!("Mean response time over time; the crowd comes after {} s", CALM.as_secs());
    text += &story::curves(&title, seconds, &curves);
    text += &story::bars("Mean response time of what is served", seconds, &row(Metric::ResponseLetIn, 1.0));
    let percent = |value: f64| format!("{value:.0} %");
    let goodput = row(Metric::Goodput, 100.0);
    text += &story::bars("Work answered in time, of the most that the site can do", percent, &goodput);
    text += &story::heading("Why");
    let [(_, lost), _] = row(Metric::Answered, -100.0).map(|(name, part)| (name, 100.0 + part));
    let ([_, (_, refused)], [_, (_, mean)]) = (row(Metric::Refused, 100.0), row(Metric::ResponseLetIn, 1.0));
    text += &story::sentences(&[
        format!(
            "Without the gate all requests share the processor. None is quick, and {lost:.0} % aren't answered \
             within {} s.",
            shown.plan.workload.timeout.0.as_secs()
        ),
        format!(
            "With the gate {refused:.0} % are refused at once, for the site can't serve three times its capacity. \
             The others take {} on average. The target is 150 ms.",
            seconds(mean)
        ),
    ]);
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::cell::{Cell, Figures};
    use crate::experiment::results::{Line, Results};

    #[test]
    fn the_story_says_what_was_measured() {
        let cell = |variant: &str, let_in: f64, timed_out, refused| {
            let clients = Figures {
                under_way: 100,
                timed_out,
                refused,
                let_in_seconds: Some(let_in),
                ..Figures::default()
            };
            let cell = Cell { variant: variant.to_owned(), load: Load::Overload(LOAD), repetition: 0 };
            Line::Cell { cell, measured: Box::new(Measured { clients, ..Measured::default() }) }
        };
        let lines = vec![cell("direct", 6.0, 60, 0), cell("gate-target", 0.15, 0, 65)];
        let told = told(&Shown { plan: plan().unwrap(), form: "short", results: Results { lines } });
        let text = told.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(text.contains("60 % aren't answered within 10 s"), "{text}");
        assert!(text.contains("65 % are refused at once") && text.contains("150 ms on average"), "{text}");
    }
}
