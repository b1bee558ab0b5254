//! A path whose requests a parameter tells apart: the values that are types of their own.
//!
//! As the words of a path (`routes.rs`), a value is *told apart* after [`APART`] requests and *shown* after
//! [`SEEN`], and is so only if 1 in [`SHARE`] of the path's requests has it. Requests with another value, or
//! none, have the path's type.
//!
//! **Bounds.** [`VALUES_MAX`] values are types at once. One keeps its place as long as it has its share, and
//! longer if nobody else needs the place: others that are asked for more often take nothing from it. The rest
//! is counted by the method of Misra and Gries with [`CANDIDATES_MAX`] counters.
//!
//! **Its end.** Every [`WINDOW`] answers are judged anew. Where the values have explained less than
//! [`EXPLAINED`] of the variance [`STRIKES`] times in a row, the parameter is given up. Answers of a single
//! value say nothing.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use super::exam::VALUES_MAX;
use super::said::Said;
use super::spread::{Spread, explained};
use crate::http::key::{named, request_type};
use crate::http::routes::{APART, SEEN, SHARE};
use crate::observe::TypeName;

/// Values that are counted before they are told apart.
const CANDIDATES_MAX: usize = 64;
/// Counts are halved when the path has had so many requests.
const HALVE_AT: u32 = 4_096;
/// Answers that are judged together.
const WINDOW: f64 = 1_024.0;
/// With a smaller part of the variance between its values a parameter doesn't help: less than half of what
/// finds it, so that nothing flaps.
const EXPLAINED: f64 = 0.1;
/// With a smaller factor between the means of two values, neither.
const FACTOR: f64 = 1.4;
/// How many windows in a row end it.
const STRIKES: u32 = 2;

/// A parameter that tells requests apart.
#[derive(Debug)]
pub(super) struct Found {
    name: Box<str>,
    told: HashMap<Box<str>, Told>,
    candidates: HashMap<Box<str>, u32>,
    /// Requests of the path, since counts were halved.
    passed: u32,
    /// The answers of this window.
    window: Spread,
    strikes: u32,
    is_asked: bool,
}

/// A value that is told apart.
#[derive(Debug)]
struct Told {
    name: TypeName,
    is_shown: bool,
    /// Requests that had it, since counts were halved.
    asked: u32,
    /// Requests that had it, until it is shown.
    seen: u32,
    times: Spread,
}

/// Whether so many make a share of so many.
fn is_share(asked: u32, passed: u32) -> bool {
    u64::from(asked) * u64::from(SHARE) >= u64::from(passed)
}

impl Found {
    /// A parameter of this name, of whose values so many requests each are known.
    pub(super) fn new(path: &TypeName, name: Box<str>, values: Vec<(Box<str>, u32)>) -> Self {
        let mut found = Self {
            name,
            told: HashMap::new(),
            candidates: HashMap::new(),
            passed: values.iter().map(|(_, asked)| asked).sum(),
            window: Spread::default(),
            strikes: 0,
            is_asked: false,
        };
        for (value, asked) in values {
            found.tell_apart(path, &value, asked);
        }
        found
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Whether its path was asked for since the last call.
    pub(super) fn take_asked(&mut self) -> bool {
        std::mem::take(&mut self.is_asked)
    }

    /// A value was shown before.
    pub(super) fn recall(&mut self, path: &TypeName, value: &str) {
        if self.told.len() < VALUES_MAX && !self.told.contains_key(value) {
            self.tell_apart(path, value, 0);
            self.show(path, value);
        }
    }

    /// The type of a request of the path that says this, if it isn't the path's. One more request has it.
    pub(super) fn find(&mut self, path: &TypeName, said: &Said) -> Option<TypeName> {
        self.pass();
        self.is_asked = true;
        let value = said.value(&self.name)?;
        let passed = self.passed;
        if let Some(told) = self.told.get_mut(value) {
            (told.asked, told.seen) = (told.asked + 1, told.seen.saturating_add(1));
            if !told.is_shown && told.seen >= SEEN && is_share(told.asked, passed) {
                self.show(path, value);
            }
        } else {
            let asked = self.notice(value)?;
            self.candidates.remove(value);
            self.tell_apart(path, value, asked);
        }
        self.told.get(value).map(|told| told.name.clone())
    }

    /// A request that said this was answered after so long. Whether the parameter still helps.
    pub(super) fn learn(&mut self, said: &Said, time: Duration) -> bool {
        self.window.add(time);
        if let Some(told) = said.value(&self.name).and_then(|value| self.told.get_mut(value)) {
            told.times.add(time);
        }
        if self.window.count() < WINDOW {
            return true;
        }
        match explained(&self.window, self.told.values().map(|told| &told.times), FACTOR) {
            Some(part) if part < EXPLAINED => self.strikes += 1,
            Some(_) => self.strikes = 0,
            None => {}
        }
        self.window = Spread::default();
        self.told.values_mut().for_each(|told| told.times = Spread::default());
        self.strikes < STRIKES
    }

    /// How many values it holds.
    #[cfg(test)]
    pub(super) fn held(&self) -> (usize, usize) {
        (self.told.len(), self.candidates.len())
    }

    fn pass(&mut self) {
        self.passed += 1;
        if self.passed < HALVE_AT {
            return;
        }
        self.passed /= 2;
        self.told.values_mut().for_each(|told| told.asked /= 2);
        self.candidates.retain(|_, asked| {
            *asked /= 2;
            *asked > 0
        });
    }

    /// Counts a value that isn't told apart. How many had it, if it can be from now on.
    fn notice(&mut self, value: &str) -> Option<u32> {
        if let Some(asked) = self.candidates.get_mut(value) {
            *asked += 1;
            let asked = *asked;
            let is_apart = asked >= APART && is_share(asked, self.passed);
            return (is_apart && self.make_room()).then_some(asked);
        }
        if self.candidates.len() < CANDIDATES_MAX {
            self.candidates.insert(value.into(), 1);
        } else {
            self.candidates.retain(|_, asked| {
                *asked -= 1;
                *asked > 0
            });
        }
        None
    }

    /// Whether there is room for one more: the rarest gives way that has lost its share.
    fn make_room(&mut self) -> bool {
        if self.told.len() < VALUES_MAX {
            return true;
        }
        let rarest = self.told.iter().min_by_key(|(_, told)| told.asked);
        let rarest = rarest.filter(|(_, told)| !is_share(told.asked, self.passed));
        let Some(rarest) = rarest.map(|(value, _)| value.clone()) else { return false };
        self.told.remove(&rarest);
        true
    }

    fn tell_apart(&mut self, path: &TypeName, value: &str, asked: u32) {
        let key = request_type(&label(path, &self.name, value));
        let name = TypeName { key, row: path.row, label: Arc::clone(&path.label) };
        let told = Told { name, is_shown: false, asked, seen: asked, times: Spread::default() };
        self.told.insert(value.into(), told);
    }

    fn show(&mut self, path: &TypeName, value: &str) {
        let label = label(path, &self.name, value);
        if let Some(told) = self.told.get_mut(value) {
            (told.name, told.is_shown) = (named(&label), true);
        }
    }
}

/// What a request of this path is called.
fn label(path: &TypeName, name: &str, value: &str) -> String {
    format!("{}?{name}={value}", path.label)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path() -> TypeName {
        named("GET /ajax")
    }

    fn found() -> Found {
        Found::new(&path(), "action".into(), vec![("export".into(), 30), ("list".into(), 49)])
    }

    fn said(value: &str) -> Said {
        Said::of(Some(&format!("action={value}&more=yes")), None)
    }

    fn word(number: u32) -> String {
        [1, 26, 676].map(|shift| char::from(b'a' + (number / shift % 26) as u8)).iter().collect()
    }

    fn label_of(found: &mut Found, value: &str) -> String {
        found.find(&path(), &said(value)).map_or_else(|| "none".to_owned(), |name| name.label.to_string())
    }

    #[test]
    fn a_value_is_a_type_before_it_is_shown_and_shown_once_it_is_the_sites() {
        let mut found = found();
        let export = found.find(&path(), &said("export")).unwrap();
        assert_eq!((export.row, &*export.label), (path().key, "GET /ajax"));
        assert_eq!(export.key, request_type("GET /ajax?action=export"));
        assert_eq!(label_of(&mut found, "list"), "GET /ajax?action=list");
        for _ in 1..APART {
            assert_eq!(label_of(&mut found, "rare"), "none");
        }
        assert_eq!(label_of(&mut found, "rare"), "GET /ajax");
        for _ in APART..SEEN - 1 {
            label_of(&mut found, "rare");
        }
        assert_eq!(label_of(&mut found, "rare"), "GET /ajax?action=rare");
        assert!(found.find(&path(), &Said::default()).is_none());
    }

    #[test]
    fn a_flood_of_values_makes_no_types_and_takes_none_away() {
        let mut found = found();
        for _ in 0..SEEN {
            label_of(&mut found, "list");
        }
        for number in 0..30_000 {
            let flood = label_of(&mut found, &word(number % 15_000));
            assert!(number < 1_024 || flood == "none", "{number}: {flood}");
            assert!(found.held().0 <= VALUES_MAX && found.held().1 <= CANDIDATES_MAX);
        }
        assert_eq!(label_of(&mut found, "list"), "GET /ajax?action=list");
    }

    #[test]
    fn who_floods_with_the_same_values_takes_no_place_from_one_that_has_its_share() {
        let mut found = found();
        for number in 0..40_000 {
            match number % 50 {
                0 => _ = label_of(&mut found, "list"),
                // Each has more requests than the other one.
                more => _ = label_of(&mut found, &format!("evil-{}", word(more % 40))),
            }
        }
        assert_eq!(label_of(&mut found, "list"), "GET /ajax?action=list");
        assert_eq!(found.held().0, VALUES_MAX);
    }

    #[test]
    fn it_ends_where_its_values_cost_the_same_and_not_where_one_of_them_is_silent() {
        let ms = Duration::from_millis;
        let mut found = found();
        for _ in 0..4_096 {
            assert!(found.learn(&said("list"), ms(5)), "one value says nothing");
        }
        for number in 0..4_096 {
            let is_costly = number % 2 == 0;
            let (value, time) = if is_costly { ("export", 100) } else { ("list", 5) };
            assert!(found.learn(&said(value), ms(time)), "{number}");
        }
        let lasted = (0..10_000).take_while(|number| {
            let value = if number % 2 == 0 { "export" } else { "list" };
            found.learn(&said(value), ms(5 + 100 * u64::from(number % 4 < 2)))
        });
        assert_eq!(lasted.count(), 2 * WINDOW as usize - 1);
    }

    #[test]
    fn what_was_shown_before_is_shown_again() {
        let mut found = Found::new(&path(), "action".into(), Vec::new());
        found.recall(&path(), "list");
        assert_eq!(label_of(&mut found, "list"), "GET /ajax?action=list");
        (0..100).for_each(|number| found.recall(&path(), &word(number)));
        assert_eq!(found.held().0, VALUES_MAX);
    }
}
