//! Finds the first of many rules that fits, without asking each.
//!
//! **Idea.** Each thing that rules ask for has an index from its values to the rules that want them. What a
//! request has is looked up there, which gives a set of rules for each thing: those that want it, and those
//! that don't ask. The rules that are in all sets fit; the first of them decides. So a request costs a few
//! look-ups and the intersection of sets of one bit for each rule, however many rules there are and whatever
//! they ask.
//!
//! **Source.** Lakshman, Stiliadis, "High-Speed Policy-based Packet Forwarding Using Efficient
//! Multi-dimensional Range Matching", SIGCOMM 1998, section 3.

use std::borrow::Borrow;
use std::collections::{BTreeMap, HashMap};
use std::hash::Hash;
use std::net::IpAddr;

use crate::network::{Network, Prefix};

/// The most rules; the configuration allows as many tables.
pub(crate) const RULES_MAX: usize = 1000;
const WORDS: usize = RULES_MAX.div_ceil(64);

/// A set of rules, by their places.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Set([u64; WORDS]);

impl Set {
    const EMPTY: Self = Self([0; WORDS]);

    /// The first rules, `count` of them.
    pub(crate) fn all(count: usize) -> Self {
        (0..count.min(RULES_MAX)).fold(Self::EMPTY, |mut set, rule| {
            set.add(rule);
            set
        })
    }

    fn add(&mut self, rule: usize) {
        if let Some(word) = self.0.get_mut(rule / 64) {
            *word |= 1 << (rule % 64);
        }
    }

    fn has(&self, rule: usize) -> bool {
        self.0[rule / 64] >> (rule % 64) & 1 == 1
    }

    fn unite(&mut self, other: &Self) {
        self.0.iter_mut().zip(other.0).for_each(|(word, other)| *word |= other);
    }

    fn keep(&mut self, other: &Self) {
        self.0.iter_mut().zip(other.0).for_each(|(word, other)| *word &= other);
    }

    /// The first of them.
    pub(crate) fn first(&self) -> Option<usize> {
        let word = self.0.iter().position(|word| *word != 0)?;
        Some(word * 64 + self.0[word].trailing_zeros() as usize)
    }
}

/// The rules that want one value: each by its place while these take less room than a set.
#[derive(Debug)]
pub(crate) enum Rules {
    Few(Vec<u16>),
    Many(Box<Set>),
}

impl Default for Rules {
    fn default() -> Self {
        Self::Few(Vec::new())
    }
}

impl Rules {
    const FEW: usize = 2 * WORDS;

    pub(crate) fn add(&mut self, rule: usize) {
        match self {
            Self::Few(few) if few.len() < Self::FEW => few.push(rule as u16),
            Self::Few(few) => {
                let mut set = Box::new(Set::EMPTY);
                few.iter().for_each(|&rule| set.add(usize::from(rule)));
                set.add(rule);
                *self = Self::Many(set);
            }
            Self::Many(set) => set.add(rule),
        }
    }

    pub(crate) fn add_to(&self, set: &mut Set) {
        match self {
            Self::Few(few) => few.iter().for_each(|&rule| set.add(usize::from(rule))),
            Self::Many(rules) => set.unite(rules),
        }
    }
}

/// The rules by one thing that they may ask for.
#[derive(Debug)]
pub(crate) struct Wanted<I> {
    index: I,
    /// The rules that don't ask.
    indifferent: Set,
    is_asked: bool,
}

/// An index from values to the rules that want them.
pub(crate) trait Index: Default {
    /// What a rule may want.
    type Value: ?Sized;

    /// This rule wants the value.
    fn add(&mut self, rule: usize, value: &Self::Value);

    /// All have been added.
    fn end(&mut self) {}
}

impl<I: Index> Wanted<I> {
    /// Indexes the values that each rule wants: one of them; none means any.
    pub(crate) fn new<'a, L>(wanted: impl Iterator<Item = L>) -> Self
    where
        L: IntoIterator<Item = &'a I::Value>,
        I::Value: 'a,
    {
        let mut all = Self { index: I::default(), indifferent: Set::EMPTY, is_asked: false };
        for (rule, values) in wanted.enumerate() {
            let mut values = values.into_iter().peekable();
            if values.peek().is_none() {
                all.indifferent.add(rule);
            }
            for value in values {
                all.is_asked = true;
                all.index.add(rule, value);
            }
        }
        all.index.end();
        all
    }

    /// Keeps of the rules those that don't ask, and those that `find` adds.
    pub(crate) fn narrow(&self, left: &mut Set, find: impl FnOnce(&I, &mut Set)) {
        if self.is_asked {
            let mut fitting = self.indifferent.clone();
            find(&self.index, &mut fitting);
            left.keep(&fitting);
        }
    }
}

/// Values that have to be equal.
#[derive(Debug)]
pub(crate) struct Equal<K>(HashMap<K, Rules>);

impl<K> Default for Equal<K> {
    fn default() -> Self {
        Self(HashMap::new())
    }
}

impl<K: Clone + Hash + Eq> Index for Equal<K> {
    type Value = K;

    fn add(&mut self, rule: usize, value: &K) {
        self.0.entry(value.clone()).or_default().add(rule);
    }
}

impl<K: Hash + Eq> Equal<K> {
    /// Adds the rules that want this value.
    pub(crate) fn find<Q: Hash + Eq + ?Sized>(&self, value: &Q, found: &mut Set)
    where
        K: Borrow<Q>,
    {
        #[cfg(test)]
        LOOK_UPS.with(|count| count.set(count.get() + 1));
        if let Some(rules) = self.0.get(value) {
            rules.add_to(found);
        }
    }
}

#[cfg(test)]
thread_local! {
    /// How many values were looked up by this thread.
    pub(crate) static LOOK_UPS: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

/// Prints what finding a rule costs here. No test depends on it.
#[cfg(test)]
pub(crate) fn tell_cost<T>(of: &str, find: impl Fn() -> T) {
    const TIMES: u32 = 100_000;
    let begun = std::time::Instant::now();
    (0..TIMES).for_each(|_| drop(std::hint::black_box(find())));
    println!("{of}: {} ns to find one of {RULES_MAX} rules", (begun.elapsed() / TIMES).as_nanos());
}

/// Beginnings in alphabetical order. All that a text has are the last one before it, or begin that one.
#[derive(Debug, Default)]
pub(crate) struct Beginnings {
    added: BTreeMap<Box<[u8]>, Rules>,
    all: Vec<Beginning>,
}

#[derive(Debug)]
struct Beginning {
    text: Box<[u8]>,
    /// The place of the longest other one that it begins with.
    within: Option<usize>,
    /// The rules that want it, or one that it begins with.
    rules: Rules,
}

impl Beginnings {
    pub(crate) fn add(&mut self, rule: usize, text: Box<[u8]>) {
        self.added.entry(text).or_default().add(rule);
    }

    /// Puts what was added in order.
    pub(crate) fn end(&mut self) {
        for (text, mut rules) in std::mem::take(&mut self.added) {
            let mut within = self.all.len().checked_sub(1);
            while let Some(at) = within.filter(|&at| !text.starts_with(&self.all[at].text)) {
                within = self.all[at].within;
            }
            if let Some(at) = within {
                let mut set = Set::EMPTY;
                self.all[at].rules.add_to(&mut set);
                (0..RULES_MAX).filter(|&rule| set.has(rule)).for_each(|rule| rules.add(rule));
            }
            self.all.push(Beginning { text, within, rules });
        }
    }

    /// Adds the rules that want a beginning of this text.
    pub(crate) fn find(&self, text: &[u8], found: &mut Set) {
        #[cfg(test)]
        LOOK_UPS.with(|count| count.set(count.get() + 1));
        let mut at = self.all.partition_point(|it| *it.text <= *text).checked_sub(1);
        let Some(last) = at else { return };
        let alike = self.all[last].text.iter().zip(text).take_while(|(one, other)| one == other).count();
        while let Some(beginning) = at.map(|at| &self.all[at]) {
            if beginning.text.len() <= alike {
                return beginning.rules.add_to(found);
            }
            at = beginning.within;
        }
    }
}

/// Texts; with `*` at the end any that begins so.
#[derive(Debug, Default)]
pub(crate) struct Texts {
    whole: Equal<Box<[u8]>>,
    beginnings: Beginnings,
}

impl Index for Texts {
    type Value = str;

    fn add(&mut self, rule: usize, value: &str) {
        match value.strip_suffix('*') {
            Some(beginning) => self.beginnings.add(rule, beginning.as_bytes().into()),
            None => self.whole.add(rule, &value.as_bytes().into()),
        }
    }

    fn end(&mut self) {
        self.beginnings.end();
    }
}

impl Texts {
    /// Adds the rules that want this text.
    pub(crate) fn find(&self, text: &[u8], found: &mut Set) {
        self.whole.find(text, found);
        self.beginnings.find(text, found);
    }
}

/// Networks of addresses, as texts of their family and their bits.
#[derive(Debug, Default)]
pub(crate) struct Networks(Beginnings);

impl Index for Networks {
    type Value = Network;

    fn add(&mut self, rule: usize, network: &Network) {
        let (text, length) = network.prefix().text();
        self.0.add(rule, text[..length].into());
    }

    fn end(&mut self) {
        self.0.end();
    }
}

impl Networks {
    /// Adds the rules that want this address.
    pub(crate) fn find(&self, address: IpAddr, found: &mut Set) {
        let (text, length) = Prefix::of(address).text();
        self.0.find(&text[..length], found);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_has_what_was_added_up_to_the_most() {
        let mut rules = Rules::default();
        for rule in (0..RULES_MAX).rev() {
            rules.add(rule);
            let mut set = Set::EMPTY;
            rules.add_to(&mut set);
            assert_eq!(set.first(), Some(rule));
        }
        let mut set = Set::EMPTY;
        rules.add_to(&mut set);
        assert_eq!(set, Set::all(RULES_MAX));
        assert_eq!(Set::all(0).first(), None);
    }

    #[test]
    fn a_text_is_found_whole_and_by_its_beginnings() {
        let rules = [vec!["app"], vec!["app*"], vec![], vec!["apple", "a*"], vec!["*"]];
        let wanted = Wanted::<Texts>::new(rules.iter().map(|values| values.iter().copied()));
        let fitting = |text: &str| {
            let mut left = Set::all(rules.len());
            wanted.narrow(&mut left, |index, found| index.find(text.as_bytes(), found));
            (0..rules.len()).filter(|&rule| left.0[0] >> rule & 1 == 1).collect::<Vec<_>>()
        };
        assert_eq!(fitting("app"), [0, 1, 2, 3, 4]);
        assert_eq!(fitting("apples"), [1, 2, 3, 4]);
        assert_eq!(fitting("b"), [2, 4]);
        assert_eq!(fitting(""), [2, 4]);
    }

    #[test]
    fn an_address_is_found_in_every_network_that_has_it() {
        let network = |text: &str, bits| Network { address: text.parse().unwrap(), bits };
        let all = [network("10.0.0.0", 8), network("10.1.0.0", 16), network("::", 0), network("0.0.0.0", 0)];
        let wanted = Wanted::<Networks>::new(all.iter().map(|network| [network]));
        for address in ["10.1.2.3", "10.2.2.3", "192.0.2.1", "::ffff:10.1.0.1", "2001:db8::1"] {
            let address: IpAddr = address.parse().unwrap();
            let mut left = Set::all(all.len());
            wanted.narrow(&mut left, |index, found| index.find(address, found));
            for (rule, network) in all.iter().enumerate() {
                assert_eq!(left.0[0] >> rule & 1 == 1, network.contains(address), "{address} {network:?}");
            }
        }
    }
}
