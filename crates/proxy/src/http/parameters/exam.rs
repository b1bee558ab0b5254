//! A path whose requests vary much: which parameter, if any, tells the cheap from the costly.
//!
//! A parameter qualifies that most requests have ([`PRESENT`]), with few distinct values ([`COVERED`] of its
//! requests have values that the exam can count), two of which have enough requests, and whose values explain
//! a good part of what their times vary ([`EXPLAINED`]; `spread.rs`), with means that differ by [`FACTOR`].
//! That is judged after 64 answers, and each time that twice as many have come. After [`ANSWERS_MAX`] the
//! exam has found nothing.
//!
//! **Bounds.** [`NAMES_MAX`] names at once. One gives its place to another if more requests had others than
//! had it; and for good if it has too many values, or one only ([`DULL_MAX`]). [`VALUES_MAX`] values of each
//! by the method of Misra and Gries, as places count segments (`routes.rs`): one that makes more than 1 in
//! [`VALUES_MAX`] of the requests can't be missed, whatever the others are.

use std::collections::HashMap;
use std::time::Duration;

use super::said::Said;
use super::spread::{Spread, explained};

/// The names of one exam.
const NAMES_MAX: usize = 4;
/// The values that are counted of one name.
pub(super) const VALUES_MAX: usize = 32;
/// The answers after which names are judged for the first time.
const JUDGED_AT: u32 = 64;
/// The answers after which a name with too many values, or with one, is given up.
const GIVEN_UP_AT: f64 = 256.0;
/// The names that one exam gives up.
const DULL_MAX: usize = 16;
/// The most answers of an exam: a value that two in a hundred have has enough of them by then.
const ANSWERS_MAX: u32 = 1_024;
/// The least part of the requests that has the parameter.
const PRESENT: f64 = 0.5;
/// The least part of those whose value is one that several have.
const COVERED: f64 = 0.75;
/// How many are several.
const SEVERAL: f64 = 4.0;
/// The least part of the variance that lies between the values.
const EXPLAINED: f64 = 0.25;
/// The least factor between the means of two values.
const FACTOR: f64 = 2.0;

/// An exam that goes on.
#[derive(Debug, Default)]
pub(super) struct Exam {
    names: Vec<Name>,
    /// Names that are given up.
    dull: Vec<Box<str>>,
    answers: u32,
}

/// One parameter.
#[derive(Debug)]
struct Name {
    name: Box<str>,
    /// How many more requests had it than lacked it where another name wanted its place.
    credit: u32,
    /// All answers since it is known, whatever they had.
    all: Spread,
    /// How many had it.
    present: f64,
    values: HashMap<Box<str>, Value>,
}

#[derive(Debug, Default)]
struct Value {
    credit: u32,
    times: Spread,
}

/// What an exam has come to.
#[derive(Debug)]
pub(super) enum Verdict {
    /// This parameter tells requests apart, by these values, each of which so many had.
    Found(Box<str>, Vec<(Box<str>, u32)>),
    /// None does.
    Nothing,
}

impl Exam {
    /// A request that said this was answered after so long. The verdict, once there is one.
    pub(super) fn learn(&mut self, said: &Said, time: Duration) -> Option<Verdict> {
        self.meet(said);
        for known in &mut self.names {
            known.learn(said.value(&known.name), time);
        }
        self.answers += 1;
        if self.answers < JUDGED_AT || !self.answers.is_power_of_two() {
            return None;
        }
        self.give_up();
        let judged = self.names.iter().filter_map(|name| Some((name.judge()?, name)));
        let best = judged.max_by(|(one, _), (other, _)| one.total_cmp(other));
        match best {
            Some((_, best)) => {
                let values = best.values.iter().filter(|(_, value)| value.times.count() >= SEVERAL);
                let asked = values.map(|(value, known)| (value.clone(), known.times.count() as u32));
                Some(Verdict::Found(best.name.clone(), asked.collect()))
            }
            None => (self.answers >= ANSWERS_MAX).then_some(Verdict::Nothing),
        }
    }

    /// How many names and values it holds.
    #[cfg(test)]
    pub(super) fn held(&self) -> usize {
        self.names.iter().map(|name| 1 + name.values.len()).sum()
    }

    /// Knows the names of a request from now on, as far as there is room.
    fn meet(&mut self, said: &Said) {
        let is_known = |name: &str| self.names.iter().any(|known| *known.name == *name);
        let is_dull = |name: &str| self.dull.iter().any(|dull| **dull == *name);
        let new: Vec<&str> =
            said.all().map(|(name, _)| name).filter(|name| !is_known(name) && !is_dull(name)).collect();
        if self.names.len() + new.len() > NAMES_MAX {
            for known in self.names.iter_mut().filter(|known| said.value(&known.name).is_none()) {
                known.credit = known.credit.saturating_sub(1);
            }
        }
        for name in new {
            if self.names.len() >= NAMES_MAX {
                let Some(at) = self.names.iter().position(|known| known.credit == 0) else { return };
                self.names.swap_remove(at);
            }
            self.names.push(Name::new(name));
        }
    }

    /// Makes room of names that can't be found any more.
    fn give_up(&mut self) {
        let (dull, names) = std::mem::take(&mut self.names).into_iter().partition(Name::is_dull);
        self.names = names;
        let room = DULL_MAX - self.dull.len();
        self.dull.extend(Vec::<Name>::into_iter(dull).map(|known| known.name).take(room));
    }
}

impl Name {
    fn new(name: &str) -> Self {
        let (all, values) = (Spread::default(), HashMap::new());
        Self { name: name.into(), credit: 1, all, present: 0.0, values }
    }

    fn learn(&mut self, value: Option<&str>, time: Duration) {
        self.all.add(time);
        let Some(value) = value else { return };
        (self.present, self.credit) = (self.present + 1.0, self.credit + 1);
        if let Some(known) = self.values.get_mut(value) {
            known.credit += 1;
            known.times.add(time);
        } else if self.values.len() < VALUES_MAX {
            let mut known = Value { credit: 1, times: Spread::default() };
            known.times.add(time);
            self.values.insert(value.into(), known);
        } else {
            self.values.retain(|_, known| {
                known.credit -= 1;
                known.credit > 0
            });
        }
    }

    /// Whether few values have most of its requests.
    fn is_covered(&self) -> bool {
        let counts = self.values.values().map(|value| value.times.count());
        counts.filter(|count| *count >= SEVERAL).sum::<f64>() >= COVERED * self.present
    }

    /// Whether it tells nothing apart: it has too many values, or only one.
    fn is_dull(&self) -> bool {
        self.all.count() >= GIVEN_UP_AT && (self.values.len() < 2 || !self.is_covered())
    }

    /// Which part of the variance it explains, if that is enough.
    fn judge(&self) -> Option<f64> {
        let is_there = self.present >= PRESENT * self.all.count() && self.is_covered();
        let values = self.values.values().map(|value| &value.times);
        explained(&self.all, values, FACTOR).filter(|part| is_there && *part >= EXPLAINED)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Takes an exam of requests with these queries and times, in turn; the name that was found.
    fn exam(mut request: impl FnMut(u32) -> (String, u64)) -> Option<String> {
        let mut exam = Exam::default();
        for number in 0..ANSWERS_MAX {
            let (query, millis) = request(number);
            let verdict = exam.learn(&Said::of(Some(&query), None), Duration::from_millis(millis));
            assert!(exam.held() <= NAMES_MAX * (1 + VALUES_MAX));
            match verdict {
                Some(Verdict::Found(name, _)) => return Some(name.into()),
                Some(Verdict::Nothing) => return None,
                None => {}
            }
        }
        panic!("there is no end")
    }

    fn word(number: u32) -> String {
        [1, 26, 676].map(|shift| char::from(b'a' + (number / shift % 26) as u8)).iter().collect()
    }

    #[test]
    fn the_parameter_is_found_whose_values_cost_differently_whatever_stands_beside_it() {
        let actions = [("export", 200), ("heartbeat", 5), ("search", 20), ("heartbeat", 6)];
        let found = exam(|number| {
            let (action, millis) = actions[number as usize % 4];
            (format!("lang={}&action={action}&nonce=a{number}&theme=dark", word(number / 7 % 3)), millis)
        });
        assert_eq!(found.as_deref(), Some("action"));
    }

    #[test]
    fn a_rare_costly_value_is_found_before_the_end() {
        let found = exam(|number| match number % 40 {
            0 => ("action=export".to_owned(), 400),
            more => ("action=heartbeat".to_owned(), 2 + u64::from(more % 7)),
        });
        assert_eq!(found.as_deref(), Some("action"));
    }

    #[test]
    fn nothing_is_found_where_no_value_tells_the_cheap_from_the_costly() {
        let time = |number: u32| if number * 7 % 10 < 2 { 200 } else { 5 };
        assert_eq!(exam(|number| (format!("lang={}", word(number % 3)), time(number))), None);
        assert_eq!(exam(|number| (String::new(), time(number))), None);
        // Few have it.
        assert_eq!(
            exam(|number| match number % 3 {
                0 => (format!("action={}", word(number % 2)), 200 * u64::from(number % 2)),
                _ => (String::new(), 10),
            }),
            None
        );
    }

    #[test]
    fn what_has_many_values_is_data_however_much_they_explain() {
        // Each user has a cost, and none makes much of the requests.
        let found =
            exam(|number| (format!("user={}", word(number % 90)), u64::from(number % 90 % 2) * 300 + 1));
        assert_eq!(found, None);
        let found =
            exam(|number| (format!("id={}&at={number}", number % 2), u64::from(number % 2) * 300 + 1));
        assert_eq!(found, None, "numbers");
    }

    #[test]
    fn a_flood_of_names_and_values_takes_no_place_from_what_most_have() {
        let found = exam(|number| match number % 3 {
            0 => {
                let names = [0, 9, 99, 999].map(|more| format!("{}=x", word(number + more)));
                (names.join("&"), 20)
            }
            _ if number % 2 == 0 => ("action=export".to_owned(), 100),
            _ => ("action=list".to_owned(), 1),
        });
        assert_eq!(found.as_deref(), Some("action"));
    }
}
