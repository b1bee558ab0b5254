//! Log lines for the adaptation to the goals of classes.

use std::sync::Arc;

use admission::{ClassGoal, ClassId, GoalNews, Reached, ShareMove, Standing, Statistic};

/// The names of a gate's classes.
#[derive(Debug, Default)]
pub(super) struct ClassNames(pub(super) Vec<(ClassId, Arc<str>)>);

impl ClassNames {
    fn of(&self, class: ClassId) -> &str {
        let known = self.0.iter().find(|(id, _)| *id == class);
        known.map_or(ClassId::DEFAULT_NAME, |(_, name)| name)
    }

    /// The name of a class, where there are several.
    pub(super) fn of_several(&self, class: ClassId) -> Option<String> {
        (self.0.len() > 1).then(|| self.of(class).to_owned())
    }

    /// Such as "class gold raised 31 % → 38 % of all: p95 212 ms over its goal 150 ms, taken from bronze".
    pub(super) fn text(&self, news: &GoalNews) -> String {
        match news {
            GoalNews::Moved(ShareMove { class, from, to, donor, why }) => {
                let (class, donor) = (self.of(*class), self.of(*donor));
                let why = match why {
                    Some(reached) => format!("{}, taken from {donor}", missed(reached)),
                    None => format!("{donor} has it to spare"),
                };
                format!("class {class} raised {} → {} of all: {why}", part(*from), part(*to))
            }
            GoalNews::OutOfReach(told, standing) => {
                let beside =
                    if *standing == Standing::GivenUp { " beside more important classes" } else { "" };
                format!("class {}: {}, which can't be met{beside}", self.of(told.class), missed(told))
            }
            GoalNews::WithinReach(told) => {
                format!("class {}: its goal {} can be met again", self.of(told.class), told.goal)
            }
        }
    }
}

/// A part of a whole, in percent, with two digits that count.
fn part(share: f64) -> String {
    let digits = usize::from(share < 0.1);
    format!("{:.digits$} %", share * 100.0)
}

/// What was observed beside the goal.
fn missed(told: &Reached) -> String {
    let observed = told.observed;
    match told.goal {
        ClassGoal::Throughput { .. } => format!("{observed:.1}/s under its goal {}", told.goal),
        ClassGoal::Delay { statistic, most, .. } => {
            let statistic = match statistic {
                Statistic::Mean => "mean".to_owned(),
                Statistic::Percentile(part) => format!("p{part}"),
            };
            format!("{statistic} {:.0} ms over its goal {:.0} ms", observed * 1e3, most.as_secs_f64() * 1e3)
        }
    }
}

#[cfg(test)]
mod tests {
    use admission::{Duration, Measure};

    use super::*;

    #[test]
    fn a_move_is_told_with_its_reason() {
        let [gold, bronze] = ["gold", "bronze"].map(ClassId::named);
        let names = ClassNames(vec![(gold, "gold".into()), (bronze, "bronze".into())]);
        let most = Duration::from_millis(150);
        let goal =
            ClassGoal::Delay { measure: Measure::Response, statistic: Statistic::Percentile(95), most };
        let why = Reached { class: gold, goal, observed: 0.212 };
        let told = ShareMove { class: gold, from: 0.31, to: 0.38, donor: bronze, why: Some(why) };
        assert_eq!(
            names.text(&GoalNews::Moved(told)),
            "class gold raised 31 % → 38 % of all: p95 212 ms over its goal 150 ms, taken from bronze"
        );
        assert_eq!([0.004, 0.05, 0.5].map(part), ["0.4 %", "5.0 %", "50 %"]);
        let back = ShareMove { class: bronze, donor: gold, why: None, ..told };
        assert_eq!(
            names.text(&GoalNews::Moved(back)),
            "class bronze raised 31 % → 38 % of all: gold has it to spare"
        );
        let goal = ClassGoal::Throughput { millihertz: 100_000 };
        let slow = Reached { class: bronze, goal, observed: 42.0 };
        assert_eq!(
            names.text(&GoalNews::OutOfReach(slow, Standing::GivenUp)),
            "class bronze: 42.0/s under its goal 100/s, which can't be met beside more important classes"
        );
        assert_eq!(names.text(&GoalNews::WithinReach(slow)), "class bronze: its goal 100/s can be met again");
    }
}
