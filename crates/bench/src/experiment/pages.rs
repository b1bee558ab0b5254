//! The shop's pages as experiments name them: the specification's four letters, the route that their
//! statements are tagged with, and what *Gatekeeper* (WWW 2004) measured of each (Table 1).
//!
//! The bookstore is met as a process only, so that its routes stand here once more; a test compares them
//! with the bookstore's own.

/// One page.
#[derive(Clone, Copy, Debug)]
pub(super) struct Page {
    /// Its four letters.
    pub(super) code: &'static str,
    /// What people call it; where the paper has another name that one.
    pub(super) name: &'static str,
    /// What its statements are tagged with.
    pub(super) route: &'static str,
    /// What the paper measured; none for the page that asked nothing of the database there.
    pub(super) paper: Option<Paper>,
}

/// A row of Table 1.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Paper {
    /// Mean service time without load, in seconds.
    pub(super) idle: f64,
    /// Mean service time at the highest load, in seconds.
    pub(super) peak: f64,
    /// Its part of all interactions, from 0 to 1.
    pub(super) share: f64,
}

/// All of them, in the order of the specification.
pub(super) const PAGES: [Page; 14] = [
    page("HOME", "Home", "/", Some((1.83, 3.22, 16.0))),
    page("NEWP", "New Products", "/new", Some((13.82, 15.66, 5.0))),
    page("BESS", "Best Sellers", "/best", Some((1205.01, 2441.86, 5.0))),
    page("PROD", "Product Detail", "/books/{id}", Some((0.75, 0.91, 17.0))),
    page("SREQ", "Search Request", "/search", Some((0.22, 0.65, 20.0))),
    page("SRES", "Exec Search", "/search/results", Some((73.27, 108.73, 17.0))),
    page("SHOP", "Shopping Cart", "/cart", Some((0.34, 0.92, 11.6))),
    page("CREG", "Customer Registration", "/register", None),
    page("BUYR", "Buy Request", "/checkout", Some((5.26, 6.66, 2.6))),
    page("BUYC", "Buy Confirm", "/checkout/confirm", Some((15.71, 92.80, 1.2))),
    page("ORDI", "Order Inquiry", "/orders", Some((0.05, 0.30, 0.75))),
    page("ORDD", "Order Display", "/orders/last", Some((7.43, 10.48, 0.66))),
    page("ADMR", "Admin Request", "/admin/books/{id}", Some((2.84, 3.19, 0.10))),
    page("ADMC", "Admin Response", "/admin/books/{id}/change", Some((2476.75, 5072.42, 0.09))),
];

/// With times in milliseconds and the share in percent, as the paper has them.
const fn page(
    code: &'static str,
    name: &'static str,
    route: &'static str,
    paper: Option<(f64, f64, f64)>,
) -> Page {
    let paper = match paper {
        Some((idle, peak, share)) => Some(Paper { idle: idle / 1e3, peak: peak / 1e3, share: share / 1e2 }),
        None => None,
    };
    Page { code, name, route, paper }
}

/// The page that a gate knows by this label: `bookstore: BEGIN; /search/results`.
pub(super) fn of_label(label: &str) -> Option<&'static Page> {
    let route = label.rsplit(' ').next()?;
    PAGES.iter().find(|page| page.route == route)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_and_routes_are_the_bookstores() {
        let text = include_str!("../../../bookstore/src/interaction.rs");
        let told = |function: &str| -> Vec<&str> {
            let (_, rest) = text.split_once(function).expect("it is there");
            rest.lines().filter_map(|line| line.split('"').nth(1)).take(PAGES.len()).collect()
        };
        assert_eq!(told("pub fn code(self)"), PAGES.map(|page| page.code));
        assert_eq!(told("pub fn route(self)"), PAGES.map(|page| page.route));
    }

    #[test]
    fn a_label_tells_its_page() {
        let code = |label: &str| of_label(label).map(|page| page.code);
        assert_eq!(code("bookstore: BEGIN; /search/results"), Some("SRES"));
        assert_eq!(code("bookstore: BEGIN; /"), Some("HOME"));
        assert_eq!(code("/books/{id}"), Some("PROD"));
        assert_eq!(code("bookstore: SELECT 1"), None);
    }

    #[test]
    fn the_papers_pages_are_thirteen_and_one_asks_nothing() {
        let shares: f64 = PAGES.iter().filter_map(|page| page.paper).map(|paper| paper.share).sum();
        assert_eq!(PAGES.iter().filter(|page| page.paper.is_some()).count(), 13);
        assert!((0.96..=0.98).contains(&shares), "{shares}");
        let admin = PAGES.iter().find(|page| page.code == "ADMC").and_then(|page| page.paper);
        assert!(admin.is_some_and(|paper| (paper.peak - 5.07242).abs() < 1e-9));
    }
}
