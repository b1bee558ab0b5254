//! What a browser reads in a page while it comes: links to books, images, forms and the marks by which
//! answers are verified.
//!
//! A page is read tag by tag and not kept, so that thousands of browsers need little memory. What the shop
//! writes is read (attributes in double quotes), not any HTML there is.

use memchr::memchr;

use crate::interaction::Interaction;

/// Longer tags aren't read.
const TAG_BOUND: usize = 2_048;
/// Links to books that are kept: a page lists at most 50, and five promotions.
const BOOKS_BOUND: usize = 64;
/// Images that are kept.
const IMAGES_BOUND: usize = 64;
/// Lines of a cart that are kept: it has at most 100 (TPC-W 1.8, clause 2.4).
const LINES_BOUND: usize = 100;

/// What was read.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Page {
    /// Which page it says that it is.
    pub(crate) interaction: Option<Interaction>,
    /// Whether its last tag came.
    pub(crate) is_whole: bool,
    /// The books that it links to, in its order.
    pub(crate) books: Vec<u32>,
    /// The paths of its images, each once.
    pub(crate) images: Vec<String>,
    /// The cart's lines: book and quantity.
    pub(crate) lines: Vec<(u32, u32)>,
    /// The order's number.
    pub(crate) order: Option<u64>,
    /// The order's total.
    pub(crate) total: Option<f64>,
    /// The error of which it tells.
    pub(crate) error: Option<String>,
    /// What the form has for the book's image and its thumbnail.
    pub(crate) covers: (Option<String>, Option<String>),
}

/// Reads a page piece by piece.
#[derive(Debug, Default)]
pub(crate) struct Scanner {
    page: Page,
    /// The beginning of a tag whose end hasn't come.
    tag: Option<Vec<u8>>,
}

impl Scanner {
    /// Reads on.
    pub(crate) fn feed(&mut self, mut piece: &[u8]) {
        while !piece.is_empty() {
            let Some(mut tag) = self.tag.take() else {
                let Some(start) = memchr(b'<', piece) else { return };
                piece = &piece[start + 1..];
                if let Some(end) = memchr(b'>', piece) {
                    self.read(&piece[..end]);
                    piece = &piece[end + 1..];
                } else {
                    self.tag = Some(piece[..piece.len().min(TAG_BOUND)].to_vec());
                    return;
                }
                continue;
            };
            let end = memchr(b'>', piece);
            let rest = &piece[..end.unwrap_or(piece.len())];
            tag.extend_from_slice(&rest[..rest.len().min(TAG_BOUND - tag.len())]);
            let Some(end) = end else {
                self.tag = Some(tag);
                return;
            };
            self.read(&tag);
            piece = &piece[end + 1..];
        }
    }

    /// What was read.
    pub(crate) fn finish(self) -> Page {
        self.page
    }

    fn read(&mut self, tag: &[u8]) {
        if tag.len() >= TAG_BOUND {
            return;
        }
        let Ok(tag) = std::str::from_utf8(tag) else { return };
        if tag == "/html" {
            self.page.is_whole = true;
            return;
        }
        let (mut name, mut value) = (None, None);
        for (key, text) in Attributes(tag) {
            match key {
                "name" => name = Some(text),
                "value" => value = Some(text),
                _ => self.page.note(key, text),
            }
        }
        if let (Some(name), Some(value)) = (name, value) {
            match name {
                "image" => self.page.covers.0 = Some(unescaped(value)),
                "thumbnail" => self.page.covers.1 = Some(unescaped(value)),
                _ => {}
            }
        }
    }
}

impl Page {
    fn note(&mut self, key: &str, value: &str) {
        match key {
            "href" => {
                let book = value.strip_prefix("/books/").and_then(|id| id.parse::<u32>().ok());
                let has_room = self.books.len() < BOOKS_BOUND;
                self.books.extend(book.filter(|_| has_room));
            }
            "src" if value.starts_with('/') && self.images.len() < IMAGES_BOUND => {
                let path = unescaped(value);
                if !self.images.contains(&path) {
                    self.images.push(path);
                }
            }
            "data-interaction" => {
                self.interaction = Interaction::ALL.into_iter().find(|page| page.code() == value);
            }
            "data-line" if self.lines.len() < LINES_BOUND => {
                let line = value.split_once(':');
                let line =
                    line.and_then(|(book, quantity)| Some((book.parse().ok()?, quantity.parse().ok()?)));
                self.lines.extend(line);
            }
            "data-order" => self.order = value.parse().ok(),
            "data-total" => self.total = value.trim_start_matches('$').parse().ok(),
            "data-error" => self.error = Some(unescaped(value)),
            _ => {}
        }
    }
}

/// The attributes of a tag that have a value in double quotes.
struct Attributes<'a>(&'a str);

impl<'a> Iterator for Attributes<'a> {
    type Item = (&'a str, &'a str);

    fn next(&mut self) -> Option<Self::Item> {
        let (key, rest) = self.0.split_once("=\"")?;
        let (value, rest) = rest.split_once('"')?;
        self.0 = rest;
        let key = key.rsplit(|letter: char| letter.is_ascii_whitespace()).next().unwrap_or(key);
        Some((key, value))
    }
}

fn unescaped(text: &str) -> String {
    text.replace("&quot;", "\"").replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&")
}

#[cfg(test)]
mod tests {
    use super::*;

    const CART: &str = r#"<!DOCTYPE html><html><head><title>Cart</title></head>
        <body class="wide" data-interaction="SHOP"><a href="/books/12">A &lt; B</a> <a href="/books/7"></a><a href="/cart">x</a>
        <img src="/images/thumbnail/12.jpg" alt="a"><img src="/images/thumbnail/12.jpg"><img src="https://elsewhere/a.gif">
        <tr data-line="12:3"></tr><tr data-line="7:1"></tr><input name="image" value="a&amp;b.jpg"><input value="t.jpg" name="thumbnail">
        <p data-order="4711" data-total="120.05" data-error="none"></p></body></html>"#;

    fn read(pieces: &[&[u8]]) -> Page {
        let mut scanner = Scanner::default();
        for piece in pieces {
            scanner.feed(piece);
        }
        scanner.finish()
    }

    #[test]
    fn a_page_is_read_whatever_pieces_it_comes_in() {
        let page = read(&[CART.as_bytes()]);
        assert_eq!(page.interaction, Some(Interaction::ShoppingCart));
        assert!(page.is_whole);
        assert_eq!(page.books, [12, 7]);
        assert_eq!(page.images, ["/images/thumbnail/12.jpg"]);
        assert_eq!(page.lines, [(12, 3), (7, 1)]);
        assert_eq!((page.order, page.total), (Some(4711), Some(120.05)));
        assert_eq!(page.error.as_deref(), Some("none"));
        assert_eq!(page.covers, (Some("a&b.jpg".to_owned()), Some("t.jpg".to_owned())));
        for length in 1..CART.len() {
            let pieces: Vec<&[u8]> = CART.as_bytes().chunks(length).collect();
            assert_eq!(read(&pieces), page, "in pieces of {length}");
        }
    }

    #[test]
    fn what_is_too_long_or_no_html_is_passed_over() {
        let long = format!("<a x=\"{}\" href=\"/books/1\"><a href=\"/books/2\">", "y".repeat(10_000));
        for length in [1, 100, 100_000] {
            let pieces: Vec<&[u8]> = long.as_bytes().chunks(length).collect();
            assert_eq!(read(&pieces).books, [2], "in pieces of {length}");
        }
        assert_eq!(read(&[b"<\xff\xfe a=\"><<>\"=\"=>< href=\"/books/x\">< src=\"\">"]), Page::default());
        assert_eq!(read(&[b"<body data-interaction=\"NONE\">"]).interaction, None);
    }

    #[test]
    fn what_is_kept_is_bounded() {
        let tags = |make: &dyn Fn(usize) -> String| (1..=1_000).map(make).collect::<String>();
        let books = tags(&|id| format!("<a href=\"/books/{id}\">"));
        let images = tags(&|id| format!("<img src=\"/{id}.gif\">"));
        let lines = tags(&|id| format!("<tr data-line=\"{id}:1\">"));
        let page = read(&[books.as_bytes(), images.as_bytes(), lines.as_bytes()]);
        assert_eq!(
            (page.books.len(), page.images.len(), page.lines.len()),
            (BOOKS_BOUND, IMAGES_BOUND, LINES_BOUND)
        );
    }
}
