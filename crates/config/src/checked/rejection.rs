//! What is refused: the rule, and the keys that it alone reads.

use std::collections::BTreeMap;

use admission::{Goal, RefuseMaker, Rejection, Targets, Tuning, YakshaSettings};
use toml::de::DeValue;

use super::OwnTarget;
use crate::complaint::Complaint;
use crate::raw::{self, Before, Section, Yardsticks};

/// The rules by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Rule {
    Nobody,
    Deadline,
    Yaksha,
    Target,
    Other(RefuseMaker),
}

const RULES: &[(&str, Rule)] = &[
    ("none", Rule::Nobody),
    ("target", Rule::Target),
    ("deadline", Rule::Deadline),
    ("yaksha", Rule::Yaksha),
];

pub(crate) const TUNINGS: &[(&str, Tuning)] = &[("self", Tuning::SelfTuned), ("static", Tuning::Static)];

/// The name of the rule of a policy.
pub fn rejection_name(rejection: &Rejection) -> &'static str {
    let rule = match rejection {
        Rejection::Nobody => Rule::Nobody,
        Rejection::Deadline => Rule::Deadline,
        Rejection::Yaksha(_) => Rule::Yaksha,
        Rejection::Target(_) => Rule::Target,
        Rejection::Other(maker) => return maker.name,
    };
    RULES.iter().find(|(_, named)| *named == rule).map_or("?", |(name, _)| *name)
}

/// The rule of this name.
fn named(value: &DeValue<'_>, before: Before) -> Result<Rule, Complaint> {
    match (value, before) {
        (DeValue::String(text), Before::Service) if text == "codel" => {
            Err(raw::laboratory("leave it out and write a `target`, such as target = \"150ms\""))
        }
        (DeValue::String(text), Before::Simulation(Yardsticks { rejections, .. })) => {
            let yardstick = rejections.iter().find(|maker| maker.name == &**text);
            yardstick.map_or_else(|| raw::choice(value, RULES), |maker| Ok(Rule::Other(*maker)))
        }
        _ => raw::choice(value, RULES),
    }
}

/// The types' own targets join the policy where their names are told as the judge knows them.
pub(super) fn read(section: &mut Section<'_>, types: &[OwnTarget]) -> Rejection {
    let goal = Goal {
        mean: section.read_given("target", raw::some_time),
        p95: section.read_given("target_p95", raw::some_time),
    };
    let has_target = !types.is_empty() || ["target", "target_p95"].iter().any(|key| section.has(key));
    let unless_said = if has_target { Rule::Target } else { Rule::Nobody };
    let before = section.before();
    let rule = section.read_given("rejection", |value| named(value, before)).unwrap_or(unless_said);
    let yaksha = YakshaSettings {
        target: goal.mean.unwrap_or_default(),
        arrivals: section.read("yaksha_arrivals", arrivals),
        tuning: section.read("yaksha_tuning", |value| raw::choice(value, TUNINGS)),
        interval: section.read("yaksha_interval", raw::some_time),
        smoothing: section.read("yaksha_smoothing", raw::some_time),
        averaging: section.read("yaksha_averaging", raw::some_time),
    };
    check_targets(section, rule, (has_target, types));
    match rule {
        Rule::Nobody => Rejection::Nobody,
        Rule::Deadline => Rejection::Deadline,
        Rule::Other(maker) => Rejection::Other(maker),
        Rule::Yaksha => Rejection::Yaksha(yaksha),
        Rule::Target => Rejection::Target(Targets { all: goal, types: BTreeMap::new() }),
    }
}

/// A target and the rule that holds it belong together.
fn check_targets(section: &mut Section<'_>, rule: Rule, (has_target, types): (bool, &[OwnTarget])) {
    let unheld = |key: &str| {
        let hint = format!("leave out `rejection`, and {key} is held; or leave it out");
        Complaint::new("isn't held by this `rejection`").hint(hint)
    };
    if rule != Rule::Target && !types.is_empty() {
        let hint = "leave out `rejection`, and the types' targets are held; or leave them out";
        section.complain("type", Complaint::new("isn't held by this `rejection`").hint(hint));
    }
    match rule {
        Rule::Target if !has_target => {
            let hint = "add the mean response time to hold, such as target = \"150ms\", or target_p95";
            section.complain("rejection", Complaint::new("needs a `target`").hint(hint));
        }
        Rule::Yaksha if !section.has("target") => {
            let hint = "add the mean response time to hold, such as target = \"150ms\"";
            section.complain("rejection", Complaint::new("needs a `target`").hint(hint));
        }
        Rule::Yaksha if section.has("target_p95") => section.complain("target_p95", unheld("target_p95")),
        Rule::Nobody | Rule::Deadline | Rule::Other(_) => {
            for key in ["target", "target_p95"] {
                if section.has(key) {
                    section.complain(key, unheld(key));
                }
            }
        }
        Rule::Yaksha | Rule::Target => {}
    }
}

fn arrivals(value: &DeValue<'_>) -> Result<f64, Complaint> {
    let arrivals = raw::amount(value)?;
    if arrivals > 0.0 { Ok(arrivals) } else { Err(Complaint::new("must be more than 0")) }
}
