//! The service classes of a gate: their names, and which of its rules fits first.

use std::sync::Arc;

use admission::ClassId;
use parking_lot::RwLock;

pub(crate) mod index;

/// A class by its name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ClassName {
    pub(crate) id: ClassId,
    pub(crate) name: Arc<str>,
}

impl ClassName {
    fn of(name: &str) -> Self {
        Self { id: ClassId::named(name), name: Arc::from(name) }
    }
}

#[derive(Debug)]
struct Known<R> {
    rules: R,
    /// The class of each rule.
    of_rule: Vec<ClassName>,
    default: ClassName,
}

impl<R> Known<R> {
    fn new<'a>(names: impl Iterator<Item = &'a str>, rules: R) -> Self {
        Self {
            rules,
            of_rule: names.map(ClassName::of).collect(),
            default: ClassName::of(ClassId::DEFAULT_NAME),
        }
    }

    fn names(&self) -> impl Iterator<Item = &ClassName> {
        self.of_rule.iter().chain([&self.default])
    }
}

/// The classes of one gate. `R` finds the first of its rules that fits.
#[derive(Debug)]
pub(crate) struct Classes<R>(RwLock<Known<R>>);

impl<R> Classes<R> {
    /// Classes by the names of the rules' classes, in order.
    pub(crate) fn new<'a>(names: impl Iterator<Item = &'a str>, rules: R) -> Self {
        Self(RwLock::new(Known::new(names, rules)))
    }

    /// Takes other rules.
    pub(crate) fn change<'a>(&self, names: impl Iterator<Item = &'a str>, rules: R) {
        *self.0.write() = Known::new(names, rules);
    }

    /// The class that the first fitting rule names; `None` where there is one class only.
    pub(crate) fn of(&self, first: impl FnOnce(&R) -> Option<usize>) -> Option<ClassName> {
        let known = self.0.read();
        if known.of_rule.is_empty() {
            return None;
        }
        let found = first(&known.rules).and_then(|place| known.of_rule.get(place));
        Some(found.unwrap_or(&known.default).clone())
    }

    /// All classes with their names.
    pub(crate) fn names(&self) -> Vec<(ClassId, Arc<str>)> {
        self.0.read().names().map(|name| (name.id, Arc::clone(&name.name))).collect()
    }

    /// What a class is called.
    pub(crate) fn name(&self, id: ClassId) -> Option<Arc<str>> {
        let known = self.0.read();
        known.names().find(|name| name.id == id).map(|name| Arc::clone(&name.name))
    }
}
