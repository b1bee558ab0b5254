//! Request types without configuration: method and path template, learned from traffic.
//!
//! A path is a walk down a tree, segment by segment. What looks like an identifier (a number, a UUID, a
//! hash, a date, a token) is `*` from the start. Any other segment becomes a word in two steps:
//!
//! - It is *told apart* after [`APART`] requests that had it at its place: the judge learns what they cost
//!   by themselves. A heavy page must not hide among light ones for long.
//! - It is *shown* after [`SEEN`]: by then it is part of the site, not of somebody's data. So a label never
//!   shows what few have asked for (names, addresses); until then people see one row for all that have the
//!   same label.
//!
//! ```text
//! GET /orders/1234/items      GET /orders/*/items
//! GET /users/ann/settings     GET /users/*/settings      (unless 50 requests, one in 256, are ann's)
//! GET /img/9f86d081884c.png   GET /img/*.png
//! ```
//!
//! **Bounds.** A place counts the frequent ones among its segments by the method of Misra and Gries
//! ("Finding repeated elements", 1982) with [`CANDIDATES_MAX`] counters: one that makes more than 1 in
//! [`CANDIDATES_MAX`] of the requests can't be missed, whatever the others are. A place with more than
//! [`APART_MAX`] words that can't be shown is one of somebody's data, and tells only those apart from then
//! on that it may show. One with more than [`SHOWN_MAX`] that it shows is of high cardinality, and is `*`.
//! At most [`PLACES_MAX`] places, [`DEPTH_MAX`] deep; what lies deeper is `**`.

use http::Method;
use parking_lot::Mutex;

use crate::observe::TypeName;

mod segment;
mod tree;

pub(crate) use segment::is_plain_name;
use segment::{look_at, segments};
use tree::Tree;
pub(crate) use tree::{APART, SEEN, SHARE};

/// What stands for every method that isn't one of [`METHODS`].
const OTHER_METHOD: &str = "OTHER";
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

impl Routes {
    /// Nothing is known but the methods.
    pub(crate) fn new() -> Self {
        Self(Mutex::new(Tree::new(methods())))
    }

    /// The request type of this method and path, as it is known now. One more request has it.
    pub(crate) fn find(&self, method: &Method, path: &str) -> TypeName {
        let root = METHODS.iter().position(|known| known == method).unwrap_or(METHODS.len());
        self.0.lock().find(root, segments(path).map(look_at))
    }

    /// Knows the words of a type that had this label before. What is no label of a template is left alone.
    pub(crate) fn recall(&self, label: &str) {
        let Some((method, path)) = label.split_once(" /") else { return };
        if let Some(root) = methods().position(|known| known == method) {
            self.0.lock().recall(root, segments(path).map(look_at));
        }
    }
}

/// What templates begin with.
fn methods() -> impl Iterator<Item = &'static str> {
    METHODS.iter().map(Method::as_str).chain([OTHER_METHOD])
}

#[cfg(test)]
mod tests {
    use super::tree::DEPTH_MAX;
    use super::*;
    use crate::http::key::request_type;

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
    fn a_word_is_a_type_of_its_own_long_before_it_is_shown() {
        let routes = Routes::new();
        let find = |path| routes.find(&Method::GET, path);
        let all = request_type("GET /*");
        for count in 1..APART {
            assert_eq!(find("/cart").key, all, "{count}");
        }
        for count in APART..SEEN {
            let cart = find("/cart");
            assert_eq!(
                (cart.key, cart.row, &*cart.label),
                (request_type("GET /cart"), all, "GET /*"),
                "{count}"
            );
        }
        // What was learned of it stays.
        let cart = find("/cart");
        assert_eq!((cart.key, cart.row, &*cart.label), (request_type("GET /cart"), cart.key, "GET /cart"));
        assert_eq!(find("/help").key, all);
    }

    #[test]
    fn what_lies_below_a_word_that_is_not_shown_has_the_label_of_all_there() {
        let routes = after(&["/users/1/settings/mail"]);
        let find = |path| routes.find(&Method::GET, path);
        let of_all = find("/users/1/settings/mail");
        for _ in 0..APART {
            find("/users/ann/settings/mail");
        }
        let of_ann = find("/users/ann/settings/mail");
        assert_eq!((of_ann.row, &*of_ann.label), (of_all.key, "GET /users/*/settings/mail"));
        assert_eq!(of_ann.key, request_type("GET /users/ann/settings/mail"));
        for _ in 0..SEEN {
            find("/users/ann/settings/mail");
        }
        assert_eq!(label(&routes, "/users/ann/settings/mail"), "GET /users/ann/settings/mail");
        assert_eq!(find("/users/ann/settings/mail").row, of_ann.key);
    }

    #[test]
    fn what_was_shown_before_a_restart_is_shown_after_it() {
        let routes = Routes::new();
        let labels = [
            "GET /shop/cart/*",
            "GET /img/*.png",
            "OTHER /dav",
            "checkout",
            "BREW /tea",
            "GET / ",
            "GET /a b/c",
        ];
        labels.iter().for_each(|label| routes.recall(label));
        assert_eq!(label(&routes, "/shop/cart/7"), "GET /shop/cart/*");
        assert_eq!(label(&routes, "/img/7.png"), "GET /img/*.png");
        assert_eq!(label(&routes, "/shop/help"), "GET /shop/*");
        assert_eq!(label(&routes, "/tea"), "GET /*");
        assert_eq!(
            routes.find(&Method::from_bytes(b"PROPFIND").unwrap(), "/dav").label.as_ref(),
            "OTHER /dav"
        );
    }

    #[test]
    fn files_keep_an_extension_that_says_what_they_are() {
        let routes = after(&["/img/1.png"]);
        assert_eq!(label(&routes, "/img/9f86d081884c.PNG"), "GET /img/*.png");
        assert_eq!(label(&routes, "/img/9f86d081884c.secret"), "GET /img/*");
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
