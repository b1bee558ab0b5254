//! Request types without configuration: method and path template, learned from traffic.
//!
//! A path is a walk down a tree, segment by segment. What looks like an identifier (a number, a UUID, a hash, a date, a
//! token) is `*` from the start. Any other segment is `*` until it has been seen in [`SEEN`] requests at its place: by
//! then it is part of the site, not of somebody's data. So a label never shows what few have asked for (tokens, addresses,
//! names), and a request of a new path counts for the template that is known so far.
//!
//! ```text
//! GET /orders/1234/items      GET /orders/*/items
//! GET /users/ann/settings     GET /users/*/settings      (unless 50 requests are ann's, and one in 256 of all users')
//! GET /img/9f86d081884c.png   GET /img/*.png
//! ```
//!
//! **Bounds.** A place counts the frequent ones among its segments by the method of Misra and Gries ("Finding repeated
//! elements", 1982) with [`CANDIDATES_MAX`] counters: one that makes more than 1 in [`CANDIDATES_MAX`] of the requests
//! can't be missed, whatever the others are. A place with more than [`LITERALS_MAX`] segments of its own is one of high
//! cardinality, and is `*` from then on. At most [`PLACES_MAX`] places, [`DEPTH_MAX`] deep; what lies deeper is `**`.

use std::collections::HashMap;

use http::Method;
use parking_lot::Mutex;

use super::classify::named;
use crate::observe::TypeName;

/// A segment is shown, and distinguished, once so many requests had it.
pub(crate) const SEEN: u32 = 50;
/// … and if it makes at least 1 in so many of the requests that come to its place.
const SHARE: u32 = 256;
/// The segments that a place counts before it knows them.
const CANDIDATES_MAX: usize = 512;
/// The segments of its own that a place may have; with more it has none.
const LITERALS_MAX: usize = 128;
/// The places of a gate, over all methods.
const PLACES_MAX: usize = 4_096;
/// How deep a template goes.
const DEPTH_MAX: usize = 12;
/// A longer segment is data.
const SEGMENT_MAX: usize = 40;
/// Counts are halved when a place has seen so many requests, so that what is rare today is judged by today.
const HALVE_AT: u32 = 1 << 20;
/// Extensions that say what kind of thing is asked for; of all others nothing is shown.
const EXTENSIONS: [&str; 36] = [
    "avif", "asp", "aspx", "cgi", "css", "csv", "do", "gif", "gz", "htm", "html", "ico", "jpeg", "jpg", "js",
    "json", "jsp", "map", "md", "mjs", "mp3", "mp4", "otf", "pdf", "php", "png", "svg", "ttf", "txt", "wasm",
    "webm", "webp", "woff", "woff2", "xml", "zip",
];
const METHODS: [Method; 9] = [
    Method::GET,
    Method::HEAD,
    Method::POST,
    Method::PUT,
    Method::PATCH,
    Method::DELETE,
    Method::OPTIONS,
    Method::TRACE,
    Method::CONNECT,
];

/// The templates of one gate.
#[derive(Debug)]
pub(crate) struct Routes(Mutex<Tree>);

#[derive(Debug)]
struct Tree {
    /// A root for each of [`METHODS`] and one for all others, then what grew below them.
    places: Vec<Place>,
}

/// What has the same template so far.
#[derive(Debug)]
struct Place {
    name: TypeName,
    /// Requests that went on from here, since counts were halved.
    passed: u32,
    /// Segments that are known.
    literals: HashMap<Box<str>, u32>,
    /// Identifiers with an extension.
    files: HashMap<&'static str, u32>,
    /// What is not.
    any: Option<u32>,
    /// Segments that may become known.
    candidates: HashMap<Box<str>, u32>,
    /// Too many were known.
    is_collapsed: bool,
}

impl Place {
    fn new(label: &str) -> Self {
        Self {
            name: named(label),
            passed: 0,
            literals: HashMap::new(),
            files: HashMap::new(),
            any: None,
            candidates: HashMap::new(),
            is_collapsed: false,
        }
    }

    /// Counts a segment that isn't known. Whether it is from now on.
    fn notice(&mut self, segment: &str) -> bool {
        if self.is_collapsed {
            return false;
        }
        if let Some(count) = self.candidates.get_mut(segment) {
            *count += 1;
            let known = *count >= SEEN && u64::from(*count) * u64::from(SHARE) >= u64::from(self.passed);
            if known {
                self.candidates.remove(segment);
            }
            return known;
        }
        if self.candidates.len() < CANDIDATES_MAX {
            self.candidates.insert(segment.into(), 1);
        } else {
            self.candidates.retain(|_, count| {
                *count -= 1;
                *count > 0
            });
        }
        false
    }

    fn pass(&mut self) {
        self.passed += 1;
        if self.passed >= HALVE_AT {
            self.passed /= 2;
            self.candidates.retain(|_, count| {
                *count /= 2;
                *count > 0
            });
        }
    }
}

/// What a segment is before anything is learned of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Segment<'a> {
    /// It may be part of the site.
    Word(&'a str),
    /// An identifier.
    Any,
    /// An identifier with an extension.
    File(&'static str),
}

impl Routes {
    /// Nothing is known but the methods.
    pub(crate) fn new() -> Self {
        let roots = METHODS.iter().map(Method::as_str).chain(["OTHER"]);
        Self(Mutex::new(Tree { places: roots.map(|method| Place::new(&format!("{method} /"))).collect() }))
    }

    /// The request type of this method and path, as it is known now. One more request has it.
    pub(crate) fn find(&self, method: &Method, path: &str) -> TypeName {
        let root = METHODS.iter().position(|known| known == method).unwrap_or(METHODS.len());
        let mut tree = self.0.lock();
        let mut place = root as u32;
        for (depth, segment) in segments(path).enumerate() {
            if depth == DEPTH_MAX {
                place = tree.beyond(place);
                break;
            }
            place = tree.step(place, look_at(segment));
        }
        tree.at(place).name.clone()
    }
}

impl Tree {
    fn at(&self, place: u32) -> &Place {
        &self.places[place as usize]
    }

    fn at_mut(&mut self, place: u32) -> &mut Place {
        &mut self.places[place as usize]
    }

    fn step(&mut self, from: u32, segment: Segment<'_>) -> u32 {
        let place = self.at_mut(from);
        place.pass();
        match segment {
            Segment::Any => self.any(from),
            Segment::File(extension) => match place.files.get(extension) {
                Some(&next) => next,
                None => self.grow(from, &format!("*.{extension}"), |place, next| {
                    place.files.insert(extension, next);
                }),
            },
            Segment::Word(word) => {
                if let Some(&next) = place.literals.get(word) {
                    return next;
                }
                if !place.notice(word) {
                    return self.any(from);
                }
                if place.literals.len() >= LITERALS_MAX {
                    place.is_collapsed = true;
                    (place.literals, place.candidates) = (HashMap::new(), HashMap::new());
                    return self.any(from);
                }
                self.grow(from, word, |place, next| {
                    place.literals.insert(word.into(), next);
                })
            }
        }
    }

    fn any(&mut self, from: u32) -> u32 {
        match self.at(from).any {
            Some(next) => next,
            None => self.grow(from, "*", |place, next| place.any = Some(next)),
        }
    }

    /// All that lies deeper.
    fn beyond(&mut self, from: u32) -> u32 {
        match self.at(from).files.get("") {
            Some(&next) => next,
            None => self.grow(from, "**", |place, next| {
                place.files.insert("", next);
            }),
        }
    }

    /// A place below another one; without room for it, that other one itself.
    fn grow(&mut self, from: u32, segment: &str, link: impl FnOnce(&mut Place, u32)) -> u32 {
        if self.places.len() >= PLACES_MAX {
            return from;
        }
        let parent = &self.at(from).name.label;
        let slash = if parent.ends_with('/') { "" } else { "/" };
        let label = format!("{parent}{slash}{segment}");
        let next = self.places.len() as u32;
        self.places.push(Place::new(&label));
        link(self.at_mut(from), next);
        next
    }
}

/// The segments of a path, without empty ones, and each without its parameters (`;jsessionid=…`).
fn segments(path: &str) -> impl Iterator<Item = &str> {
    path.split('/')
        .map(|segment| segment.split(';').next().unwrap_or(""))
        .filter(|segment| !segment.is_empty())
}

fn look_at(segment: &str) -> Segment<'_> {
    if !is_data(segment) {
        return Segment::Word(segment);
    }
    let extension = segment.rsplit_once('.').map(|(_, extension)| extension);
    let known =
        extension.and_then(|extension| EXTENSIONS.iter().find(|known| known.eq_ignore_ascii_case(extension)));
    known.map_or(Segment::Any, |known| Segment::File(known))
}

/// Whether a segment looks like an identifier, whoever asks for it.
fn is_data(segment: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.' | b'~' | b'+');
    if segment.len() > SEGMENT_MAX || !segment.bytes().all(allowed) {
        return true;
    }
    segment.split(['-', '_', '.', '~', '+']).any(is_identifier)
}

/// A number of more than a version's length, or what only a machine would call something.
fn is_identifier(part: &str) -> bool {
    let digits = part.bytes().filter(u8::is_ascii_digit).count();
    let letters = part.len() - digits;
    let is_hex = part.bytes().all(|byte| byte.is_ascii_hexdigit());
    (digits > 0 && letters == 0)
        || (is_hex && digits > 0 && part.len() >= 6)
        || (part.len() >= 8 && digits >= 3)
        || (part.len() >= 16 && digits > 0)
        || has_random_case(part)
}

/// Letters that change their case more often than words do: base64.
fn has_random_case(part: &str) -> bool {
    let bytes = part.as_bytes();
    let changes = bytes
        .windows(2)
        .filter(|pair| {
            pair[0].is_ascii_uppercase() && pair[1].is_ascii_lowercase()
                || pair[0].is_ascii_lowercase() && pair[1].is_ascii_uppercase()
        })
        .count();
    part.len() >= 10 && changes * 2 >= part.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn label(routes: &Routes, path: &str) -> String {
        routes.find(&Method::GET, path).label.to_string()
    }

    /// A site that has been asked for these paths often.
    fn after(paths: &[&str]) -> Routes {
        let routes = Routes::new();
        for _ in 0..DEPTH_MAX as u32 * SEEN {
            for path in paths {
                routes.find(&Method::GET, path);
            }
        }
        routes
    }

    #[test]
    fn identifiers_are_never_shown_and_words_once_they_are_the_sites() {
        let routes = after(&["/api/v1/orders/1234/items"]);
        assert_eq!(label(&routes, "/api/v1/orders/99/items"), "GET /api/v1/orders/*/items");
        assert_eq!(label(&routes, "/api/v1/orders/99/items/"), "GET /api/v1/orders/*/items");
        assert_eq!(label(&routes, "/api/v1/secret-of-ann"), "GET /api/v1/*");
        assert_eq!(routes.find(&Method::POST, "/api/v1/orders").label.as_ref(), "POST /*/*/*");
        assert_eq!(label(&routes, "/"), "GET /");
    }

    #[test]
    fn a_segment_is_shown_with_its_fiftieth_request_and_not_before() {
        let routes = Routes::new();
        for count in 1..SEEN {
            assert_eq!(label(&routes, "/cart"), "GET /*", "{count}");
        }
        assert_eq!(label(&routes, "/cart"), "GET /cart");
    }

    #[test]
    fn what_looks_like_data_is_data() {
        let data = [
            "1",
            "20240131",
            "2024-01-31",
            "9f86d081884c7d65",
            "c0ffee12",
            "item42a7f99",
            "ann@example.org",
            "a%20b",
            "6ba7b810-9dad-11d1-80b4-00c04fd430c8",
            "eyJhbGciOiJIUzI1NiJ9",
            "dQw4w9WgXcQ",
            "x=1",
            "naïve",
            "a-segment-that-is-too-long-to-be-part-of-a-site",
        ];
        for segment in data {
            assert!(is_data(segment), "{segment}");
        }
        for word in [
            "v1",
            "v2",
            "api",
            "oauth2",
            "2fa",
            "index.html",
            "best-sellers",
            "ProductDetail",
            "wp-admin",
            "x86",
        ] {
            assert!(!is_data(word), "{word}");
        }
    }

    #[test]
    fn files_keep_an_extension_that_says_what_they_are() {
        let routes = after(&["/img/1.png"]);
        assert_eq!(label(&routes, "/img/9f86d081884c.PNG"), "GET /img/*.png");
        assert_eq!(label(&routes, "/img/9f86d081884c.secret"), "GET /img/*");
    }

    #[test]
    fn a_place_of_high_cardinality_collapses() {
        let routes = Routes::new();
        let name = |number: usize| {
            let letter = |shift: usize| char::from(b'a' + (number / shift % 26) as u8);
            format!("/{}{}{}/settings", letter(1), letter(26), letter(676))
        };
        // Many users, none of whom makes a large share.
        for _ in 0..3 * SEEN {
            for user in 0..1_000 {
                routes.find(&Method::GET, &name(user));
            }
        }
        assert_eq!(label(&routes, &name(7)), "GET /*/settings");
        // Each a large share for a while, so that too many become known.
        let routes = Routes::new();
        for user in 0..1_000 {
            for _ in 0..2 * SEEN {
                routes.find(&Method::GET, &name(user));
            }
        }
        assert!(label(&routes, &name(7)).starts_with("GET /*"));
        assert!(routes.0.lock().places[0].literals.is_empty());
    }

    #[test]
    fn the_tree_is_bounded_whatever_is_asked_for() {
        let routes = Routes::new();
        let deep = "/a".repeat(1_000);
        for _ in 0..100 * SEEN {
            routes.find(&Method::GET, &deep);
        }
        assert!(label(&routes, &deep).ends_with("/**"));
        let mut word = 0_u64;
        for _ in 0..200_000 {
            word = word.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let letters: String =
                (0..8).map(|at| char::from(b'a' + (word >> (at * 8 + 3) & 15) as u8)).collect();
            routes.find(&Method::GET, &format!("/{letters}/x/{letters}/y"));
        }
        let tree = routes.0.lock();
        assert!(tree.places.len() <= PLACES_MAX);
        assert!(tree.places.iter().all(|place| place.candidates.len() <= CANDIDATES_MAX));
    }

    #[test]
    fn strange_paths_are_paths() {
        let routes = Routes::new();
        for path in ["", "*", "//", "/;a=b", "/a//b", "/..", "/\u{0}", "http:"] {
            assert!(label(&routes, path).starts_with("GET /"), "{path}");
        }
        let odd = Method::from_bytes(b"PROPFIND").unwrap();
        assert_eq!(routes.find(&odd, "/1").label.as_ref(), "OTHER /*");
    }
}
