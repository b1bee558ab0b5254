//! A visitor: a customer with a cart, who fills forms and follows links as TPC-W says (1.8, clause 2).
//!
//! No I/O: from the page on which a visitor is and the one that it wants comes a request, and from the page
//! that was shown what it knows. Its chance is its own, apart from that of its way through the shop: so the
//! way doesn't depend on what pages show.

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use super::cookies::Cookies;
use super::forms;
use super::page::Page;
use crate::interaction::Interaction;
use crate::names::{self, Scale};

/// How many of ten visits are by customers that the shop knows (TPC-W 1.8, clause 2.3).
const KNOWN_OF_TEN: u32 = 8;

/// A request for a page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Request {
    /// Which page.
    pub(crate) interaction: Interaction,
    /// Path and query.
    pub(crate) path: String,
    /// The form, if it is sent with POST.
    pub(crate) form: Option<String>,
}

/// One visit's state.
#[derive(Debug)]
pub(crate) struct Visitor {
    scale: Scale,
    random: StdRng,
    /// What the shop gave it to remember.
    pub(crate) cookies: Cookies,
    customer: Option<u32>,
    /// The page that it is on: the last that was shown.
    at: Option<Interaction>,
    /// The books on the last page that listed any.
    books: Vec<u32>,
    /// The book whose page it saw last.
    book: Option<u32>,
    lines: Vec<(u32, u32)>,
    covers: (Option<String>, Option<String>),
}

impl Visitor {
    /// Somebody comes.
    pub(crate) fn new(scale: Scale, seed: u64) -> Self {
        let mut random = StdRng::seed_from_u64(seed);
        let is_known = random.random_range(0..10) < KNOWN_OF_TEN;
        let customer = is_known.then(|| scale.customer(&mut random));
        Self {
            scale,
            random,
            cookies: Cookies::default(),
            customer,
            at: None,
            books: Vec::new(),
            book: None,
            lines: Vec::new(),
            covers: (None, None),
        }
    }

    /// The page that it is on.
    pub(crate) fn at(&self) -> Option<Interaction> {
        self.at
    }

    /// Forgets the visitor's page, so that the visit begins at the first page again.
    pub(crate) fn is_lost(&mut self) {
        self.at = None;
    }

    /// The request for a page, from the one that it is on.
    pub(crate) fn request(&mut self, to: Interaction) -> Request {
        let path = match to {
            Interaction::Home => match (self.at, self.customer) {
                (None, Some(customer)) => format!("/?customer={customer}"),
                _ => "/".to_owned(),
            },
            Interaction::NewProducts | Interaction::BestSellers => {
                format!("{}?subject={}", to.route(), self.subject())
            }
            Interaction::ProductDetail => format!("/books/{}", self.choose()),
            Interaction::SearchResults => self.search(),
            Interaction::AdminRequest => format!("/admin/books/{}", self.current()),
            Interaction::AdminConfirm => format!("/admin/books/{}/change", self.current()),
            _ => to.route().to_owned(),
        };
        let form = match to {
            Interaction::ShoppingCart => Some(self.cart()),
            Interaction::BuyRequest => Some(match self.customer {
                Some(customer) => forms::sign_in(&[("returning", "yes")], customer),
                None => forms::register(&mut self.random),
            }),
            Interaction::BuyConfirm => Some(forms::pay(&mut self.random)),
            Interaction::OrderDisplay => {
                let customer = self.customer.unwrap_or_else(|| self.scale.customer(&mut self.random));
                Some(forms::sign_in(&[], customer))
            }
            Interaction::AdminConfirm => Some(forms::change(&mut self.random, &self.covers)),
            _ => None,
        };
        Request { interaction: to, path, form }
    }

    /// A page was shown, the right one.
    pub(crate) fn shown(&mut self, request: &Request, page: Page) {
        self.at = Some(request.interaction);
        if let Some(customer) = self.cookies.get("customer").and_then(|id| id.parse().ok()) {
            self.customer = Some(customer);
        }
        self.lines = page.lines;
        self.covers = page.covers;
        if request.interaction == Interaction::ProductDetail {
            // "Current" pages lead back to the list from which they were chosen (clause 2.14.5.4).
            self.book = request.path.strip_prefix("/books/").and_then(|id| id.parse().ok());
        } else if !page.books.is_empty() {
            self.books = page.books;
        }
    }

    fn subject(&mut self) -> &'static str {
        names::SUBJECTS[self.random.random_range(0..names::SUBJECTS.len())]
    }

    /// One of the books on the page, each as likely; any of the shop if there were none.
    fn choose(&mut self) -> u32 {
        if self.books.is_empty() {
            return self.random.random_range(1..=self.scale.items.max(1));
        }
        self.books[self.random.random_range(0..self.books.len())]
    }

    fn current(&mut self) -> u32 {
        match self.book {
            Some(book) => book,
            None => self.choose(),
        }
    }

    fn search(&mut self) -> String {
        let (by, what) = match self.random.random_range(0..3) {
            0 => ("author", self.scale.searched_last_name(&mut self.random)),
            1 => ("title", self.scale.searched_title_word(&mut self.random)),
            _ => ("subject", self.subject().to_owned()),
        };
        format!("/search/results?by={by}&q={what}")
    }

    /// From a book's page it is put into the cart; in the cart quantities are changed; else the cart is
    /// only looked at.
    fn cart(&mut self) -> String {
        match self.at {
            Some(Interaction::ProductDetail) => {
                let book = self.current().to_string();
                forms::encoded(&[("add", &book)])
            }
            Some(Interaction::ShoppingCart) => forms::quantities(&mut self.random, &self.lines),
            _ => String::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SCALE: Scale = Scale { items: 1_000, customers: 2_880 };

    fn visitor(seeds: std::ops::Range<u64>, is_known: bool) -> Visitor {
        let mut all = seeds.map(|seed| Visitor::new(SCALE, seed));
        all.find(|visitor| visitor.customer.is_some() == is_known).unwrap()
    }

    fn show(visitor: &mut Visitor, to: Interaction, page: Page) -> Request {
        let request = visitor.request(to);
        visitor.shown(&request, page);
        request
    }

    fn fields(request: &Request) -> Vec<(String, String)> {
        serde_urlencoded::from_str(request.form.as_ref().unwrap()).unwrap()
    }

    fn names(request: &Request) -> Vec<String> {
        fields(request).into_iter().map(|(name, _)| name).collect()
    }

    #[test]
    fn four_of_five_visitors_are_known_customers() {
        let known = (0..10_000).filter(|&seed| Visitor::new(SCALE, seed).customer.is_some()).count();
        assert!((7_850..8_150).contains(&known), "{known}");
    }

    #[test]
    fn a_known_customer_says_so_on_its_first_page_and_signs_in_at_the_checkout() {
        let mut visitor = visitor(0..100, true);
        let id = visitor.customer.unwrap();
        assert_eq!(visitor.request(Interaction::Home).path, format!("/?customer={id}"));
        show(&mut visitor, Interaction::Home, Page::default());
        assert_eq!(visitor.request(Interaction::Home).path, "/");
        let request = visitor.request(Interaction::BuyRequest);
        let expected = [
            ("returning".to_owned(), "yes".to_owned()),
            ("uname".to_owned(), names::user_name(id)),
            ("password".to_owned(), names::password(id)),
        ];
        assert_eq!((request.path.as_str(), fields(&request)), ("/checkout", expected.to_vec()));
    }

    #[test]
    fn a_new_customer_registers_and_is_known_then() {
        let mut visitor = visitor(0..100, false);
        assert_eq!(visitor.request(Interaction::Home).path, "/");
        let request = visitor.request(Interaction::BuyRequest);
        let expected = "returning first_name last_name street1 street2 city state zip country phone email birth_date data";
        assert_eq!(names(&request), expected.split(' ').collect::<Vec<_>>());
        assert_eq!(fields(&request)[0].1, "no");
        visitor.cookies.take("customer=2881; Path=/; HttpOnly; SameSite=Lax");
        visitor.shown(&request, Page::default());
        assert_eq!(fields(&visitor.request(Interaction::BuyRequest))[1].1, names::user_name(2_881));
    }

    #[test]
    fn books_are_chosen_among_those_of_the_page_and_put_into_the_cart() {
        let mut visitor = visitor(0..100, true);
        show(&mut visitor, Interaction::BestSellers, Page { books: vec![3, 5], ..Page::default() });
        // The page of a book links to others, too; from there it goes back to the list.
        for _ in 0..20 {
            let request =
                show(&mut visitor, Interaction::ProductDetail, Page { books: vec![9], ..Page::default() });
            assert!(["/books/3", "/books/5"].contains(&request.path.as_str()));
        }
        let book = visitor.book.unwrap();
        assert_eq!(visitor.request(Interaction::AdminRequest).path, format!("/admin/books/{book}"));
        let request = show(
            &mut visitor,
            Interaction::ShoppingCart,
            Page { lines: vec![(book, 1), (8, 2)], ..Page::default() },
        );
        assert_eq!(
            (request.path.as_str(), fields(&request)),
            ("/cart", vec![("add".to_owned(), book.to_string())])
        );
        let changed = fields(&visitor.request(Interaction::ShoppingCart));
        assert!(!changed.is_empty());
        for (name, _) in changed {
            assert!([format!("quantity.{book}"), "quantity.8".to_owned()].contains(&name), "{name}");
        }
        show(&mut visitor, Interaction::Home, Page::default());
        assert_eq!(visitor.request(Interaction::ShoppingCart).form.as_deref(), Some(""));
    }

    #[test]
    fn searches_are_for_what_exists() {
        let mut visitor = visitor(0..100, true);
        let mut kinds = [0; 3];
        for _ in 0..300 {
            let path = visitor.request(Interaction::SearchResults).path;
            let query = path.strip_prefix("/search/results?").unwrap();
            let fields: Vec<(String, String)> = serde_urlencoded::from_str(query).unwrap();
            let kind = ["author", "title", "subject"].iter().position(|by| *by == fields[0].1).unwrap();
            kinds[kind] += 1;
            assert_eq!((fields[1].0.as_str(), fields[1].1.is_empty()), ("q", false));
            assert_eq!(kind == 2, names::SUBJECTS.contains(&fields[1].1.as_str()));
        }
        assert!(kinds.iter().all(|&count| count > 60), "{kinds:?}");
    }

    #[test]
    fn forms_of_payment_inquiry_and_change_are_whole() {
        let mut visitor = visitor(0..100, true);
        let mut with_address = 0;
        for _ in 0..1_000 {
            let fields = names(&visitor.request(Interaction::BuyConfirm));
            assert_eq!(fields[..5], ["card_type", "card_number", "card_name", "card_expiry", "shipping"]);
            match &fields[5..] {
                [] => {}
                address => {
                    assert_eq!(address, ["street1", "street2", "city", "state", "zip", "country"]);
                    with_address += 1;
                }
            }
        }
        assert!((25..80).contains(&with_address), "{with_address} of 1000, expected 50");
        assert_eq!(names(&visitor.request(Interaction::OrderDisplay)), ["uname", "password"]);
        let covers = (Some("c.jpg".to_owned()), Some("t.jpg".to_owned()));
        show(&mut visitor, Interaction::AdminRequest, Page { covers, ..Page::default() });
        let change = visitor.request(Interaction::AdminConfirm);
        assert_eq!(names(&change), ["cost", "image", "thumbnail"]);
        assert_eq!(fields(&change)[1].1, "c.jpg");
    }
}
