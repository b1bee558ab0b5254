//! The service classes of a gate: their names, and which of its rules fits first.

use std::hash::{BuildHasher as _, DefaultHasher, Hasher as _, RandomState};
use std::sync::Arc;

use admission::{ClassId, TenantId};
use parking_lot::RwLock;

pub(crate) mod index;

/// What makes a tenant of those whose requests are of one class.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TenantBy {
    /// Where they come from: an address, or for IPv6 a network of 64 bits.
    Network,
    /// The user that logged in.
    User,
    /// The values of this field.
    Header(String),
}

/// A rule of the configuration.
pub(crate) trait Rule: Clone {
    /// The name of its class, and what its tenants are known by.
    fn of(&self) -> (&str, Option<&TenantBy>);
}

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
    /// The classes that have tenants.
    tenants: Vec<(ClassId, TenantBy)>,
}

impl<R> Known<R> {
    /// The default class is that of what no rule fits, so a rule of it says only who its tenants are.
    fn new<T: Rule>(rules: &[T], index: fn(&[T]) -> R) -> Self {
        let fitting = rules.iter().filter(|rule| rule.of().0 != ClassId::DEFAULT_NAME);
        let fitting: Vec<T> = fitting.cloned().collect();
        let tenants = rules.iter().map(Rule::of);
        Self {
            rules: index(&fitting),
            of_rule: fitting.iter().map(|rule| ClassName::of(rule.of().0)).collect(),
            default: ClassName::of(ClassId::DEFAULT_NAME),
            tenants: tenants.filter_map(|(name, by)| Some((ClassId::named(name), by?.clone()))).collect(),
        }
    }

    fn names(&self) -> impl Iterator<Item = &ClassName> {
        self.of_rule.iter().chain([&self.default])
    }
}

/// The classes of one gate. `R` finds the first of its rules that fits.
#[derive(Debug)]
pub(crate) struct Classes<R> {
    known: RwLock<Known<R>>,
    /// Hashes what names a tenant. Nobody else knows the key, so that no tenant chooses its neighbors.
    keys: RandomState,
}

impl<R> Classes<R> {
    /// Classes by rules, in order.
    pub(crate) fn new<T: Rule>(rules: &[T], index: fn(&[T]) -> R) -> Self {
        Self { known: RwLock::new(Known::new(rules, index)), keys: RandomState::new() }
    }

    /// Takes other rules.
    pub(crate) fn change<T: Rule>(&self, rules: &[T], index: fn(&[T]) -> R) {
        *self.known.write() = Known::new(rules, index);
    }

    /// The tenant that a request of this class is of, if the class has tenants. `name` hashes what names it.
    pub(crate) fn tenant(
        &self,
        class: ClassId,
        name: impl FnOnce(&TenantBy, &mut DefaultHasher),
    ) -> Option<TenantId> {
        let known = self.known.read();
        let (_, by) = known.tenants.iter().find(|(of, _)| *of == class)?;
        let mut hasher = self.keys.build_hasher();
        name(by, &mut hasher);
        Some(TenantId::new(hasher.finish()))
    }

    /// The class that the first fitting rule names; `None` where there is one class only.
    pub(crate) fn of(&self, first: impl FnOnce(&R) -> Option<usize>) -> Option<ClassName> {
        let known = self.known.read();
        if known.of_rule.is_empty() {
            return None;
        }
        let found = first(&known.rules).and_then(|place| known.of_rule.get(place));
        Some(found.unwrap_or(&known.default).clone())
    }

    /// All classes with their names.
    pub(crate) fn names(&self) -> Vec<(ClassId, Arc<str>)> {
        self.known.read().names().map(|name| (name.id, Arc::clone(&name.name))).collect()
    }

    /// What a class is called.
    pub(crate) fn name(&self, id: ClassId) -> Option<Arc<str>> {
        let known = self.known.read();
        known.names().find(|name| name.id == id).map(|name| Arc::clone(&name.name))
    }
}
