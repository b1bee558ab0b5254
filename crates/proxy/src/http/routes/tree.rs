//! The places of all paths: the words that were counted at each, told apart, and shown.

use std::collections::HashMap;
use std::sync::Arc;

use super::segment::Segment;
use crate::http::key::request_type;
use crate::observe::TypeName;

/// The fewest requests with a word at its place before the word makes a type of its own. Fewer would tell
/// users apart by chance where their names are in the paths: of a thousand equally busy users, 4 tells 19
/// apart, 2 tells ninety.
pub(crate) const APART: u32 = 4;
/// The fewest requests that must have had a word before it is shown.
pub(crate) const SEEN: u32 = 50;
/// A word is shown only if at least 1 in this many of the requests that come to its place has it.
pub(crate) const SHARE: u32 = 256;
/// The segments that a place counts before it tells them apart.
const CANDIDATES_MAX: usize = 512;
/// The words that a place may tell apart before it shows them.
const APART_MAX: usize = 64;
/// The words that a place may show; with more it has none.
const SHOWN_MAX: usize = 128;
/// The places of a gate, over all methods.
const PLACES_MAX: usize = 4_096;
/// With so many, only what can be shown is told apart: a few requests of each of many paths don't use up all.
const PLACES_APART_MAX: usize = PLACES_MAX / 2;
/// How deep a template goes.
pub(super) const DEPTH_MAX: usize = 12;
/// Counts are halved when a place has seen so many requests, so that what is rare today is judged by today.
const HALVE_AT: u32 = 1 << 20;
/// What stands for a segment that isn't shown.
const HIDDEN: &str = "*";

/// What is known of the paths of a site.
#[derive(Debug)]
pub(super) struct Tree {
    /// A root for each method, then what grew below them.
    places: Vec<Place>,
}

/// What has the same template so far.
#[derive(Debug)]
struct Place {
    name: TypeName,
    /// Its path with all words, shown or not.
    template: Arc<str>,
    /// Where the template's last segment is, which may not be shown.
    parent: u32,
    segment: Box<str>,
    is_shown: bool,
    /// Requests that had its word, since counts were halved, until it is shown.
    asked: u32,
    /// Requests that went on from here, since counts were halved.
    passed: u32,
    /// Segments that are told apart.
    words: HashMap<Box<str>, u32>,
    /// Identifiers with an extension.
    files: HashMap<&'static str, u32>,
    /// What is not.
    any: Option<u32>,
    /// Segments that may be told apart.
    candidates: HashMap<Box<str>, u32>,
    /// How many of the words are shown.
    shown: usize,
    /// The place that its requests had before they were told apart: words that the site has there, it has
    /// here.
    like: Option<u32>,
    /// Too many were told apart that can't be shown.
    is_data: bool,
    /// Too many were shown.
    is_collapsed: bool,
}

impl Place {
    fn new(parent: u32, segment: &str, (template, label): (Arc<str>, Arc<str>), is_shown: bool) -> Self {
        let name = TypeName { key: request_type(&template), row: request_type(&label), label };
        Self {
            name,
            template,
            parent,
            segment: segment.into(),
            is_shown,
            asked: 0,
            passed: 0,
            words: HashMap::new(),
            files: HashMap::new(),
            any: None,
            candidates: HashMap::new(),
            shown: 0,
            like: None,
            is_data: false,
            is_collapsed: false,
        }
    }

    /// Its last segment, as people may see it.
    fn shows(&self) -> &str {
        if self.is_shown { &self.segment } else { HIDDEN }
    }

    /// Whether a word that so many had may be called the site's.
    fn is_of_the_site(&self, asked: u32, least: u32) -> bool {
        asked >= least && u64::from(asked) * u64::from(SHARE) >= u64::from(self.passed)
    }

    /// Counts a segment that isn't told apart. How many had it, if it is from now on.
    fn notice(&mut self, segment: &str, least: u32) -> Option<u32> {
        if self.is_collapsed {
            return None;
        }
        if let Some(count) = self.candidates.get_mut(segment) {
            *count += 1;
            let asked = *count;
            let is_apart = self.is_of_the_site(asked, least);
            if is_apart {
                self.candidates.remove(segment);
            }
            return is_apart.then_some(asked);
        }
        if self.candidates.len() < CANDIDATES_MAX {
            self.candidates.insert(segment.into(), 1);
        } else {
            self.candidates.retain(|_, count| {
                *count -= 1;
                *count > 0
            });
        }
        None
    }
}

impl Tree {
    /// Nothing is known but these methods.
    pub(super) fn new<'a>(methods: impl Iterator<Item = &'a str>) -> Self {
        let root = |(at, method)| {
            let template: Arc<str> = format!("{method} /").into();
            Place::new(at as u32, "", (Arc::clone(&template), template), true)
        };
        Self { places: methods.enumerate().map(root).collect() }
    }

    /// The type of a request of this method and with these segments.
    pub(super) fn find<'a>(&mut self, root: usize, segments: impl Iterator<Item = Segment<'a>>) -> TypeName {
        let mut place = root as u32;
        for (depth, segment) in segments.enumerate() {
            if depth == DEPTH_MAX {
                place = self.beyond(place);
                break;
            }
            place = self.step(place, segment);
        }
        self.at(place).name.clone()
    }

    /// Knows the words among these segments: they were shown before.
    pub(super) fn recall<'a>(&mut self, root: usize, segments: impl Iterator<Item = Segment<'a>>) {
        let mut place = root as u32;
        for segment in segments.take(DEPTH_MAX) {
            place = match segment {
                Segment::Word(word) => self.recall_word(place, word),
                Segment::Any => self.any(place),
                Segment::File(extension) => self.file(place, extension),
            };
        }
    }

    fn at(&self, place: u32) -> &Place {
        &self.places[place as usize]
    }

    fn at_mut(&mut self, place: u32) -> &mut Place {
        &mut self.places[place as usize]
    }

    fn step(&mut self, from: u32, segment: Segment<'_>) -> u32 {
        self.pass(from);
        let may_hide = self.places.len() < PLACES_APART_MAX;
        let place = self.at_mut(from);
        match segment {
            Segment::Any => self.any(from),
            Segment::File(extension) => self.file(from, extension),
            Segment::Word(word) => {
                if let Some(&next) = place.words.get(word) {
                    self.ask(from, next);
                    // Where it was one too many to be shown, nothing is told apart any more.
                    return if self.at(from).is_collapsed { self.any(from) } else { next };
                }
                if let Some(next) = self.inherit(from, word) {
                    return next;
                }
                let place = self.at_mut(from);
                let least = if may_hide && !place.is_data { APART } else { SEEN };
                let Some(asked) = place.notice(word, least) else { return self.any(from) };
                self.tell_apart(from, word, asked)
            }
        }
    }

    /// One more request goes on from here.
    fn pass(&mut self, from: u32) {
        let place = self.at_mut(from);
        place.passed += 1;
        if place.passed < HALVE_AT {
            return;
        }
        place.passed /= 2;
        place.candidates.retain(|_, count| {
            *count /= 2;
            *count > 0
        });
        let words: Vec<u32> = place.words.values().copied().collect();
        words.into_iter().for_each(|word| self.at_mut(word).asked /= 2);
    }

    /// Requests with this word have a type of their own from now on.
    fn tell_apart(&mut self, from: u32, word: &str, asked: u32) -> u32 {
        let place = self.at(from);
        if place.words.len() - place.shown >= APART_MAX && asked < SEEN {
            self.take_back(from);
            return self.any(from);
        }
        let next = self.word(from, word);
        if next != from {
            let like = self.any(from);
            let place = self.at_mut(next);
            (place.asked, place.like) = (asked - 1, Some(like));
            self.ask(from, next);
        }
        if self.at(from).is_collapsed { self.any(from) } else { next }
    }

    /// The place of a word that the site has where this place's requests were before.
    fn inherit(&mut self, from: u32, word: &str) -> Option<u32> {
        let place = self.at(from);
        if place.is_collapsed || place.shown >= SHOWN_MAX {
            return None;
        }
        let mut before = std::iter::successors(place.like, |&like| self.at(like).like);
        let like = before
            .find_map(|like| self.at(like).words.get(word).copied().filter(|&like| self.at(like).is_shown))?;
        self.at_mut(from).candidates.remove(word);
        let next = self.recall_word(from, word);
        if next != from {
            self.at_mut(next).like = Some(like);
        }
        Some(next)
    }

    /// A request has this word, which is told apart; it is shown if enough had it.
    fn ask(&mut self, from: u32, word: u32) {
        if self.at(word).is_shown {
            return;
        }
        self.at_mut(word).asked += 1;
        if self.at(from).is_of_the_site(self.at(word).asked, SEEN) {
            self.show(from, word);
        }
    }

    /// The word is part of the site.
    fn show(&mut self, from: u32, word: u32) {
        let place = self.at_mut(from);
        if place.shown >= SHOWN_MAX {
            place.is_collapsed = true;
            (place.words, place.candidates, place.shown) = (HashMap::new(), HashMap::new(), 0);
            return;
        }
        place.shown += 1;
        self.at_mut(word).is_shown = true;
        // Every place below it has its label, too; parents come before their children.
        let mut renamed = vec![false; self.places.len()];
        for at in word as usize..self.places.len() {
            if at == word as usize || renamed[self.places[at].parent as usize] {
                renamed[at] = true;
                let place = &self.places[at];
                let label = below(&self.at(place.parent).name.label, place.shows());
                self.places[at].name.row = request_type(&label);
                self.places[at].name.label = label;
            }
        }
    }

    /// Makes the words that aren't shown one again, and only counts them. So many words that few requests
    /// have are somebody's data.
    fn take_back(&mut self, from: u32) {
        let words = std::mem::take(&mut self.at_mut(from).words);
        let (shown, hidden): (HashMap<_, _>, HashMap<_, _>) =
            words.into_iter().partition(|(_, word)| self.at(*word).is_shown);
        let asked: Vec<_> = hidden.into_iter().map(|(word, next)| (word, self.at(next).asked)).collect();
        let place = self.at_mut(from);
        place.is_data = true;
        place.words = shown;
        let room = CANDIDATES_MAX - place.candidates.len().min(CANDIDATES_MAX);
        place.candidates.extend(asked.into_iter().take(room));
    }

    /// The place of a word that was shown before.
    fn recall_word(&mut self, from: u32, word: &str) -> u32 {
        let place = self.at(from);
        if let Some(&next) = place.words.get(word) {
            return next;
        }
        if place.is_collapsed || place.shown >= SHOWN_MAX {
            return self.any(from);
        }
        let next = self.word(from, word);
        if next != from {
            self.show(from, next);
        }
        next
    }

    /// A new place for a word, which isn't shown.
    fn word(&mut self, from: u32, word: &str) -> u32 {
        self.grow(from, (word, false), |place, next| {
            place.words.insert(word.into(), next);
        })
    }

    fn any(&mut self, from: u32) -> u32 {
        match self.at(from).any {
            Some(next) => next,
            None => {
                let like = self.at(from).like.and_then(|like| self.at(like).any);
                let next = self.grow(from, (HIDDEN, true), |place, next| place.any = Some(next));
                if next != from {
                    self.at_mut(next).like = like;
                }
                next
            }
        }
    }

    fn file(&mut self, from: u32, extension: &'static str) -> u32 {
        match self.at(from).files.get(extension) {
            Some(&next) => next,
            None => self.grow(from, (&format!("*.{extension}"), true), |place, next| {
                place.files.insert(extension, next);
            }),
        }
    }

    /// All that lies deeper.
    fn beyond(&mut self, from: u32) -> u32 {
        match self.at(from).files.get("") {
            Some(&next) => next,
            None => self.grow(from, ("**", true), |place, next| {
                place.files.insert("", next);
            }),
        }
    }

    /// A place below another one; without room for it, that other one itself.
    fn grow(
        &mut self,
        from: u32,
        (segment, is_shown): (&str, bool),
        link: impl FnOnce(&mut Place, u32),
    ) -> u32 {
        if self.places.len() >= PLACES_MAX {
            return from;
        }
        let parent = self.at(from);
        let label = below(&parent.name.label, if is_shown { segment } else { HIDDEN });
        let template = below(&parent.template, segment);
        let next = self.places.len() as u32;
        self.places.push(Place::new(from, segment, (template, label), is_shown));
        link(self.at_mut(from), next);
        next
    }
}

/// The template of what lies below another one.
fn below(parent: &str, segment: &str) -> Arc<str> {
    let slash = if parent.ends_with('/') { "" } else { "/" };
    format!("{parent}{slash}{segment}").into()
}

#[cfg(test)]
mod tests {
    use super::super::segment::{look_at, segments};
    use super::*;

    fn empty() -> Tree {
        Tree::new(["GET"].into_iter())
    }

    fn find(tree: &mut Tree, path: &str) -> TypeName {
        tree.find(0, segments(path).map(look_at))
    }

    /// A word of letters for each number.
    fn word(number: usize) -> String {
        [1, 26, 676].map(|shift| char::from(b'a' + (number / shift % 26) as u8)).iter().collect()
    }

    #[test]
    fn many_words_that_few_ask_for_are_data_and_pages_are_still_told_apart() {
        let mut tree = empty();
        // Each is a large enough share for a while.
        for user in 0..APART_MAX {
            for _ in 0..APART {
                find(&mut tree, &format!("/{}/settings", word(user)));
            }
        }
        assert_ne!(find(&mut tree, "/aaa/settings").key, request_type("GET /*/settings"));
        for _ in 0..APART {
            find(&mut tree, "/one-too-many");
        }
        assert_eq!(find(&mut tree, "/aaa/settings").key, request_type("GET /*/settings"));
        for _ in 0..SEEN {
            find(&mut tree, "/help");
        }
        assert_eq!(find(&mut tree, "/help").label.as_ref(), "GET /help");
    }

    #[test]
    fn few_of_a_thousand_users_are_told_apart() {
        let mut tree = empty();
        let (mut state, mut apart) = (1_u64, HashMap::new());
        for _ in 0..20_000 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let found = find(&mut tree, &format!("/{}", word((state >> 33) as usize % 1_000)));
            *apart.entry(found.key).or_insert(0) += 1;
        }
        assert!((2..APART_MAX).contains(&apart.len()), "{}", apart.len());
        assert!(apart[&request_type("GET /*")] > 18_000);
    }

    #[test]
    fn a_place_of_high_cardinality_collapses() {
        let mut tree = empty();
        let name = |user| format!("/{}/settings", word(user));
        // Many users, none of whom makes a large share.
        for _ in 0..3 * SEEN {
            for user in 0..1_000 {
                find(&mut tree, &name(user));
            }
        }
        assert_eq!(find(&mut tree, &name(7)).label.as_ref(), "GET /*/settings");
        // Each a large share for a while, so that too many become known.
        let mut tree = empty();
        for user in 0..1_000 {
            for _ in 0..2 * SEEN {
                find(&mut tree, &name(user));
            }
        }
        assert!(find(&mut tree, &name(7)).label.starts_with("GET /*"));
        assert!(tree.places[0].words.is_empty());
    }

    #[test]
    fn the_tree_is_bounded_whatever_is_asked_for() {
        let mut tree = empty();
        let deep = "/a".repeat(1_000);
        for _ in 0..100 * SEEN {
            find(&mut tree, &deep);
        }
        assert!(find(&mut tree, &deep).label.ends_with("/**"));
        let mut word = 0_u64;
        for _ in 0..200_000 {
            word = word.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let letters: String =
                (0..8).map(|at| char::from(b'a' + (word >> (at * 8 + 3) & 15) as u8)).collect();
            find(&mut tree, &format!("/{letters}/x/{letters}/y"));
        }
        assert!(tree.places.len() <= PLACES_MAX);
        assert!(tree.places.iter().all(|place| place.candidates.len() <= CANDIDATES_MAX));
    }
}
